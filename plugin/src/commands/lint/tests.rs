//! `lint` on whole manifests.

mod object_schema;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use kcp_rules::{
    Configuration,
    testing::{
        case::{Base, Case, NOW, V1BETA1, V1BETA2, Write},
        cases::written_cases,
        row::Row,
    },
    view::View,
};
use serde_json::{Value, json};

use crate::commands::lint::{
    Input, LintArguments, LintReport, NAMESPACE, ObjectSource, finding::UnreadFile, manifests,
    subject::Subject,
};
use crate::output::Report as _;
use crate::testing::{assert_every_format, schema};
use crate::{
    document::Versioned,
    printer,
    terminal::{plain, table::Layout},
    verdict::Verdict,
};

fn lint_yaml(text: &str) -> LintReport {
    let mut input = Input::new(NAMESPACE, ObjectSource::Files);
    input.parse("manifest.yaml", text.as_bytes());
    input.check(Some(&Configuration::default()), NOW.parse().unwrap())
}

/// Without a configuration.
fn lint_with_unknown_gates(text: &str) -> LintReport {
    let mut input = Input::new(NAMESPACE, ObjectSource::Files);
    input.parse("manifest.yaml", text.as_bytes());
    input.check(None, NOW.parse().unwrap())
}

fn lint(files: Vec<PathBuf>) -> LintReport {
    let arguments = LintArguments {
        files,
        ..LintArguments::default()
    };
    manifests(&arguments, NAMESPACE, Some(&Configuration::default()))
}

fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/documents")
        .join(name)
}

/// The output and the verdict for a sample of the design documents, without the name of the folder.
fn screen(name: &str) -> (String, Verdict) {
    let report = lint(vec![document(name)]);
    let mut text = String::new();
    for unread in report.unread_files() {
        writeln!(text, "error: {}", unread.sentence()).unwrap();
    }
    text.push_str(&plain(&report.text(Layout::default())));
    let folder = document("").display().to_string();
    (text.replace(&folder, ""), report.verdict())
}

#[test]
fn every_document_matches_its_schema() {
    for report in [
        lint_yaml(FAULTY),
        lint_yaml("a: [\n"),
        lint_yaml(""),
        objects_in_a_cluster(),
    ] {
        schema::conforms(&report);
        assert_every_format(&report);
    }
    schema::checked_in::<LintReport>("lintreport.json");
}

#[test]
fn the_name_format_lists_objects_with_findings() {
    let names = lint_yaml(FAULTY).names();
    let expected = [
        "kubeadmcontrolplane.controlplane.cluster.x-k8s.io/even",
        "clusterpool.hive.openshift.io/pool",
        "clusterpool.hive.openshift.io/red \u{1b}[31m",
    ];
    assert_eq!(names, expected);
}

#[test]
fn the_control_plane_of_the_current_proposal() {
    let (text, verdict) = screen("kubeadm-control-plane-2021.yaml");
    assert_eq!(verdict, Verdict::Negative);
    insta::assert_snapshot!(text);
}

#[test]
fn the_control_plane_of_the_first_proposal() {
    let (text, verdict) = screen("kubeadm-control-plane-2019.yaml");
    assert_eq!(verdict, Verdict::Negative);
    insta::assert_snapshot!(text);
}

#[test]
fn the_inventory_of_the_pool_document() {
    let (text, verdict) = screen("cluster-pool-inventory-pool.yaml");
    assert_eq!(verdict, Verdict::Negative);
    insta::assert_snapshot!(text);
}

#[test]
fn the_customization_of_the_pool_document() {
    let (text, verdict) = screen("cluster-pool-inventory-customization.yaml");
    assert_eq!(verdict, Verdict::Met);
    insta::assert_snapshot!(text);
}

#[test]
fn the_patches_of_the_pool_document() {
    let (text, verdict) = screen("cluster-pool-inventory-patches.yaml");
    assert_eq!(verdict, Verdict::Negative);
    insta::assert_snapshot!(text);
}

/// In YAML, `component: *` is an alias without a name.
#[test]
fn the_configuration_of_the_leader_migration_document() {
    let (text, verdict) = screen("leader-migration.yaml");
    assert_eq!(verdict, Verdict::Undecided);
    insta::assert_snapshot!(text);
}

const FAULTY: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: controlplane.cluster.x-k8s.io/v1beta2
  kind: KubeadmControlPlane
  metadata: {name: even, namespace: prod}
  spec:
    replicas: 2
    version: 1.34.2
    kubeadmConfigSpec: {}
- apiVersion: v1
  kind: ConfigMap
---
apiVersion: hive.openshift.io/v1
kind: ClusterPool
metadata:
  name: pool
spec:
  platform: {}
  size: many
  baseDomain: example.com
  imageSetRef: {name: r}
---
apiVersion: hive.openshift.io/v1
kind: ClusterPool
metadata: {name: "red \e[31m"}
spec:
  platform: {}
  baseDomain: example.com
  imageSetRef: {name: r}
"#;

#[test]
fn text_of_faulty_objects() {
    insta::assert_snapshot!(plain(&lint_yaml(FAULTY).text(Layout::default())));
}

#[test]
fn json_of_faulty_objects() {
    insta::assert_snapshot!(printer::json(&Versioned(lint_yaml(FAULTY))).unwrap());
}

#[test]
fn github_annotations_of_faulty_objects() {
    insta::assert_snapshot!(lint_yaml(&format!("{FAULTY}---\na: [\n")).to_github_annotations());
}

/// A SARIF log, without the version of the program.
fn sarif(report: &LintReport) -> String {
    let log = report.to_sarif().unwrap();
    log.replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

#[test]
fn sarif_of_faulty_objects() {
    insta::assert_snapshot!(sarif(&lint_yaml(&format!("{FAULTY}---\na: [\n"))));
}

/// Checks logs against the schema of the standard.
#[test]
fn every_sarif_log_matches_the_schema() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/sarif");
    let schema = std::fs::read(folder.join("sarif-schema-2.1.0.json")).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    for (case, report) in [
        ("faults", lint_yaml(FAULTY)),
        ("no fault", lint_yaml("apiVersion: v1\nkind: ConfigMap\n")),
        ("wrong syntax", lint_yaml("a: [\n")),
        ("nothing", lint_yaml("")),
        ("a cluster", objects_in_a_cluster()),
        ("a missing file", lint(vec![PathBuf::from("no-such.yaml")])),
    ] {
        let log: Value = serde_json::from_str(&report.to_sarif().unwrap()).unwrap();
        assert_eq!(schema::faults(&schema, &log), Vec::<String>::new(), "{case}");
    }
    let faults = schema::faults(&schema, &json!({"version": "2.1.0", "runs": [{"results": []}]}));
    assert_eq!(faults, ["/runs/0/tool: missing"]);
}

#[test]
fn says_that_nothing_was_checked() {
    let report = lint_yaml("kind: Pod\napiVersion: v1\n---\nkind: ClusterPool\napiVersion: other.io/v1\n");
    assert_eq!(report.verdict(), Verdict::Undecided);
    assert_eq!(
        report.text(Layout::default()),
        "nothing checked: 2 objects in 1 file, but none of a kind that lint checks\n"
    );
    assert_eq!(
        report.unchecked_error().as_deref(),
        Some("lint checked nothing in 1 file")
    );
    // An object without a kind is denied.
    assert_eq!(lint_yaml("spec: {}\n").verdict(), Verdict::Negative);
}

#[test]
fn without_any_object_the_verdict_is_undecided() {
    for text in ["", "# nothing\n---\n"] {
        let report = lint_yaml(text);
        assert_eq!(report.verdict(), Verdict::Undecided, "{text:?}");
        assert_eq!(
            report.text(Layout::default()),
            "nothing checked: no object in 1 file\n",
            "{text:?}"
        );
    }
    assert_eq!(cluster_objects([]).verdict(), Verdict::Met);
}

#[test]
fn a_file_that_is_no_text_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.yaml");
    std::fs::write(&path, [0xff, 0xd8, 0xff, 0xe0]).unwrap();
    let report = lint(vec![path.clone()]);
    let errors: Vec<String> = report.unread_files().iter().map(UnreadFile::sentence).collect();
    let expected = format!(
        "{}: not a manifest: the file is not text in UTF-8",
        path.display()
    );
    assert_eq!((report.verdict(), errors), (Verdict::Undecided, vec![expected]));
}

#[test]
fn with_a_missing_file_the_verdict_is_undecided() {
    let report = lint(vec![
        document("cluster-pool-inventory-pool.yaml"),
        PathBuf::from("no-such.yaml"),
    ]);
    assert_eq!(report.verdict(), Verdict::Undecided);
    assert!(
        report.text(Layout::default()).contains("inventory-not-a-list"),
        "{}",
        report.text(Layout::default())
    );
    let [error] = report.unread_files() else {
        panic!("{:?}", report.unread_files())
    };
    assert!(
        error.sentence().starts_with("cannot read no-such.yaml: "),
        "{}",
        error.sentence()
    );
}

/// The faults that the mutating webhook corrects.
const COMPLETED_BY_DEFAULTS: [&str; 2] = ["version-without-v", "replicas-dropped"];

/// What an API server says before admission.
const OF_API_SERVER: [&str; 3] = ["field-invalid", "field-moved", "field-unknown"];

/// For each example of each rule, `lint` reports exactly what admission reports: what the validating webhook
/// says about the object after the mutating webhook has set its defaults.
#[test]
fn lint_and_admission_report_the_same_findings() {
    let mut judged = 0;
    let rows = written_cases().flat_map(Case::rows);
    for row in rows {
        let Row { case, base } = row;
        let configured = case.configuration() != Configuration::default();
        let written_by_somebody = case.writer.is_some() || case.field_manager.is_some();
        let is_manifest = matches!(case.write, Write::Create(_) | Write::Update(..));
        if !is_manifest || base == Base::Cluster || configured || written_by_somebody {
            continue;
        }
        // The two files do not contain the other objects of a cluster.
        let case = &Case {
            view: View::default,
            ..*case
        };
        let row = Row { case, base };
        let report = lint_update(row.old().unwrap().as_ref(), &row.new_object().unwrap());
        let expected: Vec<_> = row
            .judge()
            .unwrap()
            .into_iter()
            .map(|finding| {
                let field = finding.exact_field.unwrap_or(finding.fault.field);
                (finding.rule.id.to_owned(), field.into_owned())
            })
            .filter(|(rule, _)| !COMPLETED_BY_DEFAULTS.contains(&rule.as_str()))
            .collect();
        let found: Vec<_> = found(&report)
            .into_iter()
            .filter(|(rule, _)| !OF_API_SERVER.contains(&rule.as_str()))
            .collect();
        assert_eq!(found, expected, "{}", case.name);
        judged += 1;
    }
    assert!(judged > 100, "{judged}");
}

fn lint_update(old: Option<&Value>, new: &Value) -> LintReport {
    let mut input = Input::new(NAMESPACE, ObjectSource::Files);
    if let Some(old) = old {
        input.parse_old("old.json", old.to_string().as_bytes());
    }
    input.parse("new.json", new.to_string().as_bytes());
    input.check(Some(&Configuration::default()), NOW.parse().unwrap())
}

/// The rules and fields of the findings, in the order of the report.
fn found(report: &LintReport) -> Vec<(String, String)> {
    let json: Value = serde_json::from_str(&printer::json(&Versioned(report)).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = json["findings"].as_array().unwrap();
    findings
        .iter()
        .map(|finding| (text(&finding["rule"]), text(&finding["field"])))
        .collect()
}

/// A valid control plane with other replicas.
fn control_plane(replicas: i64) -> Value {
    let mut object = Base::ControlPlane(V1BETA2).object();
    object["spec"]["replicas"] = json!(replicas);
    object
}

#[test]
fn an_object_in_both_sets_is_an_update() {
    let mut dropped = control_plane(1);
    dropped["spec"].as_object_mut().unwrap().remove("replicas");
    let mut skipping = control_plane(3);
    skipping["spec"]["version"] = json!("v1.36.0");
    let mut elsewhere = control_plane(4);
    elsewhere["metadata"]["namespace"] = json!("prod");
    let mut in_default = control_plane(4);
    in_default["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("namespace");
    for (case, old, new, verdict, rules) in [
        (
            "created",
            None,
            control_plane(4),
            Verdict::Negative,
            vec!["replicas-even"],
        ),
        (
            "at fault as before",
            Some(control_plane(4)),
            control_plane(4),
            Verdict::Met,
            vec!["replicas-even"],
        ),
        (
            "the same object without its namespace",
            Some(control_plane(4)),
            in_default,
            Verdict::Met,
            vec!["replicas-even"],
        ),
        (
            "an object of another namespace",
            Some(control_plane(4)),
            elsewhere,
            Verdict::Negative,
            vec!["replicas-even"],
        ),
        (
            "replicas dropped",
            Some(control_plane(3)),
            dropped,
            Verdict::Met,
            vec![],
        ),
        (
            "a step that is too long",
            Some(control_plane(3)),
            skipping,
            Verdict::Negative,
            vec!["version-skips-minor"],
        ),
    ] {
        let report = lint_update(old.as_ref(), &new);
        let found: Vec<_> = found(&report).into_iter().map(|(rule, _)| rule).collect();
        assert_eq!(
            (report.verdict(), found),
            (verdict, rules.iter().map(|&rule| rule.to_owned()).collect()),
            "{case}"
        );
    }
}

#[test]
fn the_status_of_the_old_object_counts() {
    let mut old = control_plane(3);
    old["metadata"]["generation"] = json!(2);
    old["status"] = json!({"observedGeneration": 2, "replicas": 3, "upToDateReplicas": 1});
    let mut new = control_plane(5);
    new["metadata"]["generation"] = json!(1);
    assert_eq!(
        found(&lint_update(Some(&old), &new)),
        [("replicas-during-rollout".to_owned(), "spec.replicas".to_owned())]
    );
}

#[test]
fn an_object_that_is_being_deleted_is_not_checked() {
    let mut old = control_plane(3);
    old["metadata"]["deletionTimestamp"] = json!("2026-05-01T00:00:00Z");
    assert_eq!(found(&lint_update(Some(&old), &control_plane(4))), []);
}

#[test]
fn reports_an_old_object_that_cannot_be_compared() {
    let mut unreadable = control_plane(3);
    unreadable["spec"]["replicas"] = json!("three");
    let version_mismatch = Base::ControlPlane(V1BETA1).object();
    for (old, rule, field) in [
        (unreadable, "old-object-undecodable", "spec.replicas"),
        (version_mismatch, "old-api-version-other", "apiVersion"),
    ] {
        let report = lint_update(Some(&old), &control_plane(4));
        assert_eq!(
            found(&report),
            [
                (rule.to_owned(), field.to_owned()),
                ("replicas-even".to_owned(), "spec.replicas".to_owned())
            ]
        );
        assert_eq!(report.verdict(), Verdict::Undecided);

        let report = lint_update(Some(&old), &control_plane(3));
        assert_eq!(report.verdict(), Verdict::Undecided);
        let summary = "1 object in 1 file: 1 checked, 0 skipped; 0 denials, 1 warning; 1 change not checked";
        assert_eq!(report.text(Layout::default()).lines().last(), Some(summary));
    }
}

#[test]
fn reports_an_override_without_effect() {
    let mut object = control_plane(4);
    object["metadata"]["annotations"] =
        json!({"kubectl-kcp.dev/override-rules": "replicas-even=2026-05-01T00:00:00Z"});
    let report = lint_update(None, &object);
    insta::assert_snapshot!(plain(&report.text(Layout::default())));
}

/// The fields that a control plane has in the first proposal.
#[test]
fn the_fields_of_the_first_version_are_judged() {
    let report = lint_yaml(
        r#"
apiVersion: cluster.x-k8s.io/v1alpha3
kind: KubeadmControlPlane
metadata: {name: a}
spec:
  replicas: 2
  version: v1.34.2
  infrastructureTemplate: {kind: AcmeMachineTemplate}
  upgradeAfter: "2026-05-01T00:00:00Z"
  kubeadmConfigSpec: {clusterConfiguration: {}, initConfiguration: {}, joinConfiguration: {}}
"#,
    );
    insta::assert_snapshot!(plain(&report.text(Layout::default())));
}

fn cluster_objects(objects: impl IntoIterator<Item = (Subject, Value)>) -> LintReport {
    let mut input = Input::new(NAMESPACE, ObjectSource::Cluster);
    for (subject, object) in objects {
        input.add_listed(subject, [object.to_string()]);
    }
    input.add_unserved_kind("kubeadmcontrolplanetemplates.controlplane.cluster.x-k8s.io".to_owned());
    input.check(Some(&Configuration::default()), NOW.parse().unwrap())
}

/// Gives an object the owner that Cluster API sets: a Cluster, or the `ClusterClass` of a template.
fn owned_by(kind: &str, mut object: Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": "c1", "uid": "u1"},
    ]);
    object
}

/// `lint` checks the current state of an object, not the effects of a write, and not fields that can no
/// longer be changed.
fn objects_in_a_cluster() -> LintReport {
    let mut even = owned_by("Cluster", control_plane(4));
    even["metadata"]["namespace"] = json!("prod");
    even["spec"]["rollout"]["after"] = json!("2026-05-01T00:00:00Z");
    let mut deleting = owned_by("Cluster", control_plane(2));
    deleting["metadata"]["deletionTimestamp"] = json!("2026-05-01T00:00:00Z");
    let mut without_v = owned_by("Cluster", control_plane(3));
    without_v["metadata"]["name"] = json!("without-v");
    without_v["spec"]["version"] = json!("1.34.2");
    let mut relative = Base::Customization.object();
    relative["spec"]["installConfigPatches"] =
        json!([{"op": "replace", "path": "metadata/name", "value": "a"}]);
    let mut claimed = Base::ClusterDeployment.object();
    claimed["spec"]["clusterPoolRef"]["claimName"] = json!("us");
    let mut unreadable = Base::ClusterPool.object();
    unreadable["metadata"]["name"] = json!("unreadable");
    unreadable["spec"]["size"] = json!("many");
    unreadable["spec"]["inventory"] = json!([{"name": "example"}]);
    cluster_objects([
        (Subject::ControlPlane, even),
        (Subject::ControlPlane, deleting),
        (Subject::ControlPlane, without_v),
        (Subject::ClusterPool, Base::ClusterPool.object()),
        (Subject::ClusterPool, unreadable),
        (Subject::Customization, relative),
        (Subject::ClusterDeployment, claimed),
    ])
}

#[test]
fn text_of_objects_in_a_cluster() {
    insta::assert_snapshot!(plain(&objects_in_a_cluster().text(Layout::default())));
}

#[test]
fn json_of_objects_in_a_cluster() {
    insta::assert_snapshot!(printer::json(&Versioned(objects_in_a_cluster())).unwrap());
}

#[test]
fn sarif_of_objects_in_a_cluster() {
    insta::assert_snapshot!(sarif(&objects_in_a_cluster()));
}

#[test]
fn github_annotations_of_objects_in_a_cluster() {
    insta::assert_snapshot!(objects_in_a_cluster().to_github_annotations());
}

/// Cluster API makes a Cluster or a `ClusterClass` the owner of what it has adopted, also in a file that `kubectl get` has written.
#[test]
fn an_owner_alone_makes_no_copy() {
    let mut template = Base::Template(V1BETA2).object();
    template["spec"]["template"]["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["dns"] =
        json!({"imageTag": "v1 2"});
    for (subject, object, owner, rule) in [
        (
            Subject::ControlPlane,
            control_plane(4),
            "Cluster",
            "replicas-even",
        ),
        (Subject::Template, template, "ClusterClass", "image-tag-invalid"),
    ] {
        let owned = owned_by(owner, object);
        for report in [lint_update(None, &owned), cluster_objects([(subject, owned)])] {
            assert_eq!(
                (report.verdict(), found(&report)[0].0.as_str()),
                (Verdict::Negative, rule)
            );
        }
    }
}

/// A control plane beside the paused Cluster that owns it, as `clusterctl move` creates it.
fn moved_control_plane() -> LintReport {
    let mut cluster = Base::Cluster.object();
    cluster["metadata"]["name"] = json!("c1");
    cluster["metadata"]["uid"] = json!("u1");
    cluster["spec"]["paused"] = json!(true);
    let control_plane = owned_by("Cluster", control_plane(4));
    lint_yaml(&format!("{cluster}\n---\n{control_plane}"))
}

#[test]
fn every_format_says_why_a_denial_became_a_warning() {
    let moved = moved_control_plane();
    schema::conforms(&moved);
    let reason = "the object is a copy that clusterctl move or Hive makes; the webhook denies the object if its Cluster \
        does not exist or is not paused";
    let json: Value = serde_json::from_str(&printer::json(&Versioned(&moved)).unwrap()).unwrap();
    assert_eq!(json["findings"][0]["downgradeReason"], reason);
    assert_eq!(json["findings"][0]["action"], "warn");
    let sarif: Value = serde_json::from_str(&moved.to_sarif().unwrap()).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    let message = result["message"]["text"].as_str().unwrap();
    assert!(
        message.ends_with(&format!("only a warning, because {reason}")),
        "{message}"
    );
    assert_eq!(result["level"], "warning");
    assert!(moved.to_github_annotations().contains(reason));
    let unchanged = lint_update(Some(&control_plane(4)), &control_plane(4));
    let text = unchanged.text(Layout::default());
    assert!(
        text.contains("only a warning, because the old object has the same problem\n"),
        "{text}"
    );
    assert!(
        !lint_update(None, &control_plane(4))
            .text(Layout::default())
            .contains("only a warning")
    );
}

/// The rule, the field and the action of each finding.
fn judged(report: &LintReport) -> Vec<(String, String, String)> {
    let json: Value = serde_json::from_str(&printer::json(&Versioned(report)).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = json["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| {
            (
                text(&finding["rule"]),
                text(&finding["field"]),
                text(&finding["action"]),
            )
        })
        .collect()
}

fn expected(findings: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    let owned = findings
        .iter()
        .map(|(rule, field, action)| ((*rule).to_owned(), (*field).to_owned(), (*action).to_owned()));
    owned.collect()
}

const WORKER: &str = r"
apiVersion: bootstrap.cluster.x-k8s.io/v1beta1
kind: KubeadmConfigTemplate
metadata: {name: pool-a}
spec:
  template:
    spec:
      joinConfiguration:
        nodeRegistration:
          kubeletExtraArgs:
            pod-infra-container-image: example.com/pause
            node-labels: rack=a,node-role.kubernetes.io/gpu=
";

fn deployment(kind: &str, version: &str, template: &str) -> String {
    let spec = json!({"version": version, "bootstrap": {"configRef": {"kind": "KubeadmConfigTemplate", "name": template}}});
    let api_version = "cluster.x-k8s.io/v1beta2";
    format!(
        "---\n{}\n",
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": format!("{version}-{template}")},
            "spec": {"template": {"spec": spec}}})
    )
}

/// A Cluster with this topology, beside a `ClusterClass` whose workers have these fields.
fn topology(topology: &Value, worker: &Value) -> String {
    let object = |kind: &str, name: &str, spec: &Value| json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let cluster = object("Cluster", "edge", &json!({"topology": topology}));
    let class = object(
        "ClusterClass",
        "quick",
        &json!({"workers": {"machineDeployments": [worker]}}),
    );
    format!("---\n{cluster}\n---\n{class}\n")
}

#[test]
fn the_configuration_of_workers_is_checked_for_the_version_that_uses_it() {
    const FIELD: &str =
        "spec.template.spec.joinConfiguration.nodeRegistration.kubeletExtraArgs[pod-infra-container-image]";
    const LABELS: &str =
        "spec.template.spec.joinConfiguration.nodeRegistration.kubeletExtraArgs[node-labels]";
    let label = ("kubelet-label-refused", LABELS, "deny");
    let flag = |action| ("component-flag-unknown", FIELD, action);
    let reference = json!({"kind": "KubeadmConfigTemplate", "name": "pool-a"});
    for (case, others, findings) in [
        ("no version", String::new(), vec![flag("warn"), label]),
        (
            "an old version",
            deployment("MachineDeployment", "v1.34.2", "pool-a"),
            vec![label],
        ),
        (
            "a new one",
            deployment("MachinePool", "v1.35.1", "pool-a"),
            vec![flag("deny"), label],
        ),
        (
            "both",
            deployment("MachineDeployment", "v1.34.2", "pool-a")
                + &deployment("MachineDeployment", "v1.35.1", "pool-a"),
            vec![label, flag("deny")],
        ),
        (
            "another template",
            deployment("MachineDeployment", "v1.35.1", "pool-b"),
            vec![flag("warn"), label],
        ),
        (
            "a variable",
            deployment("MachineDeployment", "${VERSION}", "pool-a"),
            vec![flag("warn"), label],
        ),
        (
            "a topology",
            topology(
                &json!({"classRef": {"name": "quick"}, "version": "v1.35.1"}),
                &json!({"class": "a", "bootstrap": {"templateRef": reference}}),
            ),
            vec![flag("deny"), label],
        ),
        (
            "an old topology in v1beta1",
            topology(
                &json!({"class": "quick", "version": "v1.34.2"}),
                &json!({"class": "a", "template": {"bootstrap": {"ref": reference}}}),
            ),
            vec![label],
        ),
        (
            "another class",
            topology(
                &json!({"class": "slow", "version": "v1.34.2"}),
                &json!({"class": "a", "template": {"bootstrap": {"ref": reference}}}),
            ),
            vec![flag("warn"), label],
        ),
    ] {
        let report = lint_yaml(&format!("{WORKER}{others}"));
        let mut found = judged(&report);
        // The objects that use the template have only the fields that the test needs.
        found.retain(|(rule, ..)| {
            !["field-invalid", "field-moved", "manifest-unrendered"].contains(&rule.as_str())
        });
        assert_eq!(found, expected(&findings), "{case}");
        assert_eq!(report.verdict(), Verdict::Negative, "{case}");
    }
}

#[test]
fn the_configuration_of_one_machine_is_checked_as_in_a_control_plane() {
    let machine = r"
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfig
metadata: {name: m-1}
spec:
  clusterConfiguration:
    featureGates: {EtcdLearnerMode: true}
    apiServer: {extraArgs: [{name: cloud-provider, value: external}]}
  joinConfiguration:
    timeouts: {controlPlaneComponentHealthCheckSeconds: 5}
  files: [{path: /a}]
---
{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: m-1}, spec:
  {version: v1.34.2, bootstrap: {configRef: {kind: KubeadmConfig, name: m-1}}}}
";
    assert_eq!(
        judged(&lint_yaml(machine)),
        expected(&[
            (
                "component-flag-unknown",
                "spec.clusterConfiguration.apiServer.extraArgs[0].value",
                "deny"
            ),
            (
                "kubeadm-feature-gate-unknown",
                "spec.clusterConfiguration.featureGates[EtcdLearnerMode]",
                "deny"
            ),
            ("file-content-missing", "spec.files[0].content", "warn"),
        ])
    );
    let undecodable = machine.replace("[{path: /a}]", "{}");
    assert_eq!(
        judged(&lint_yaml(&undecodable)),
        expected(&[("object-undecodable", "spec.files", "deny")])
    );
}

/// Patches and templates, and whole objects that only look like them.
#[test]
fn patches_and_templates_are_not_checked() {
    let whole = Base::ControlPlane(V1BETA1).object();
    let changed = |pointer: &str, value: Value| {
        let mut object = whole.clone();
        *object.pointer_mut(pointer).unwrap() = value;
        object.to_string()
    };
    let patch = |spec: &str| {
        format!(
            "{{apiVersion: controlplane.cluster.x-k8s.io/v1beta1, kind: KubeadmControlPlane, metadata: {{name: a}}, spec: {spec}}}"
        )
    };
    let with_files = |content: &str| {
        let mut object = whole.clone();
        object["spec"]["kubeadmConfigSpec"]["files"] = json!([{"path": "/a", "content": content}]);
        object["spec"]["kubeadmConfigSpec"]["preKubeadmCommands"] = json!([content]);
        object.to_string()
    };
    for (case, text, field) in [
        ("a whole object", whole.to_string(), None),
        (
            "shell in a file",
            with_files("echo ${HOSTNAME} {{ ds.meta_data.local_hostname }}"),
            None,
        ),
        (
            "a Go template for names",
            {
                let mut object = whole.clone();
                object["spec"]["machineNamingStrategy"] =
                    json!({"template": "{{ .cluster.name }}-{{ .random }}"});
                object.to_string()
            },
            None,
        ),
        (
            "a variable",
            changed("/spec/replicas", json!("${REPLICAS}")),
            Some("spec.replicas"),
        ),
        (
            "a default",
            changed("/spec/version", json!("${VERSION:=v1.34.2}")),
            Some("spec.version"),
        ),
        (
            "a name",
            changed("/metadata/name", json!("{{ .Values.name }}")),
            Some("metadata.name"),
        ),
        (
            "a patch of the strategy",
            patch("{rolloutStrategy: {rollingUpdate: {maxSurge: 0}}}"),
            Some("spec"),
        ),
        (
            "a patch of the version",
            patch("{version: v1.34.2, replicas: 4}"),
            Some("spec"),
        ),
        (
            "not YAML",
            "a: 1\n{{- if .Values.a }}\nb: 2\n{{- end }}\n".to_owned(),
            Some("."),
        ),
        (
            "not YAML because of a variable",
            WORKER.replace("pool-a", "${NAME}-a"),
            Some("."),
        ),
        (
            "workers",
            WORKER.replace("{name: pool-a}", "\n  name: ${NAME}-a"),
            Some("metadata.name"),
        ),
    ] {
        let report = lint_yaml(&text);
        let findings: Vec<_> = field
            .map(|field| ("manifest-unrendered", field, "warn"))
            .into_iter()
            .collect();
        assert_eq!(judged(&report), expected(&findings), "{case}");
        let verdict = if field.is_some() {
            Verdict::Undecided
        } else {
            Verdict::Met
        };
        assert_eq!(report.verdict(), verdict, "{case}");
        // Beside an object that lint checks, a template is only a warning.
        let report = lint_yaml(&format!("{whole}\n---\n{text}"));
        assert_eq!(
            (report.verdict(), report.unread_files().len()),
            (Verdict::Met, 0),
            "{case}"
        );
    }
}

/// Files that stand beside manifests in a repository.
const FOREIGN: [(&str, &str); 7] = [
    ("kustomization.yaml", "resources: [a.yaml]\n"),
    (
        "other.yaml",
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n",
    ),
    (
        "patch.yaml",
        "- op: replace\n  path: /spec/replicas\n  value: 5\n",
    ),
    ("values.yaml", "replicas: 3\nimage: {tag: v1}\n"),
    ("Chart.yaml", "apiVersion: v2\nname: edge\nversion: 0.1.0\n"),
    ("notes.yaml", "only text\n"),
    ("twice.yaml", "a: 1\na: 2\n"),
];

#[test]
fn files_of_other_programs_are_only_counted() {
    let whole = control_plane(3).to_string();
    let mut input = Input::new(NAMESPACE, ObjectSource::Files);
    input.parse("a.yaml", whole.as_bytes());
    for (name, text) in FOREIGN {
        input.parse(name, text.as_bytes());
    }
    let report = input.check(Some(&Configuration::default()), NOW.parse().unwrap());
    schema::conforms(&report);
    assert_eq!(
        report.text(Layout::default()),
        "1 object in 8 files: 1 checked, 0 skipped, 7 documents are not Kubernetes objects; 0 denials, 0 warnings\n"
    );
    assert_eq!(report.verdict(), Verdict::Met);
    // Flux's objects have the same kind, and an object without a kind is none of these files.
    for (text, rule) in [
        (
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nspec: {}\n",
            None,
        ),
        ("spec: {}\n", Some("kind-missing")),
        ("apiVersion: v1\ndata: {}\n", Some("kind-missing")),
        ("- kind: Pod\n", Some("kind-missing")),
    ] {
        let found: Vec<_> = found(&lint_yaml(text))
            .into_iter()
            .map(|(rule, _)| rule)
            .collect();
        assert_eq!(found, Vec::from_iter(rule), "{text}");
    }
}

#[test]
fn a_kustomization_alone_is_not_rendered() {
    for (name, text) in FOREIGN {
        let mut input = Input::new(NAMESPACE, ObjectSource::Files);
        input.parse(name, text.as_bytes());
        let report = input.check(Some(&Configuration::default()), NOW.parse().unwrap());
        let is_kustomization = text.contains("resources");
        let expected = is_kustomization.then(|| ("manifest-unrendered".to_owned(), ".".to_owned()));
        assert_eq!(found(&report), Vec::from_iter(expected), "{name}");
        assert_eq!(report.verdict(), Verdict::Undecided, "{name}");
    }
}

/// What belongs to cloud-init, to a shell or to the names of Machines does not make wrong syntax a template.
#[test]
fn wrong_syntax_is_an_error_beside_placeholders() {
    for text in [
        "a: {{ ds.meta_data.local_hostname }}\n",
        "a: '{% if b %} ${B}'\nb: [\n",
        "machineNaming: {template: '{{ .cluster.name }}'}\nb: [\n",
    ] {
        let broken = lint_yaml(text);
        assert_eq!(
            (broken.verdict(), broken.unread_files().len()),
            (Verdict::Undecided, 1),
            "{text}"
        );
    }
}

#[test]
fn text_of_patches_and_templates() {
    let text = "\
kind: KubeadmControlPlane
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
metadata: {name: patch}
spec: {rollout: {after: \"2026-05-01T00:00:00Z\"}}
---
kind: ClusterPool
apiVersion: hive.openshift.io/v1
metadata: {name: template}
spec: {size: \"${SIZE}\"}
---
{{- if .Values.enabled }}
";
    let report = lint_yaml(text);
    schema::conforms(&report);
    insta::assert_snapshot!(plain(&report.text(Layout::default())));
}

/// Only a configuration says which gates are on.
#[test]
fn unknown_gates_make_a_denial_a_warning() {
    let mut object = Base::ControlPlane(V1BETA2).object();
    object["spec"]["kubeadmConfigSpec"]["format"] = json!("ignition");
    object["spec"]["machineTemplate"]["spec"]["taints"] =
        json!([{"key": "example.com/a", "effect": "NoSchedule", "propagation": "Always"}]);
    let object = object.to_string();
    let both = |action| {
        expected(&[
            ("ignition-gate-off", "spec.kubeadmConfigSpec.format", action),
            ("taints-gate-off", "spec.machineTemplate.spec.taints", action),
        ])
    };
    assert_eq!(judged(&lint_yaml(&object)), both("deny"));
    let unknown = lint_with_unknown_gates(&object);
    assert_eq!(judged(&unknown), both("warn"));
    assert_eq!(unknown.verdict(), Verdict::Met);
    insta::assert_snapshot!(plain(&unknown.text(Layout::default())));
}

/// The webhook hides these values, because anybody may read its messages.
#[test]
fn shows_the_values_in_the_users_own_file() {
    let report = lint_yaml(
        r#"apiVersion: controlplane.cluster.x-k8s.io/v1beta1
kind: KubeadmControlPlane
metadata: {name: edge}
spec:
  replicas: 3
  version: v1.34.2
  machineTemplate: {infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1, kind: M, name: a}}
  kubeadmConfigSpec:
    clusterConfiguration:
      controllerManager:
        extraArgs:
          profiling: "false"
          cloud-provider: gce
          enable-leader-migration: "true"
          leader-migration-config: /etc/kubernetes/pki/migration.yaml
      scheduler:
        extraArgs:
          v: "2"
          profilling: "false"
      featureGates:
        NoSuch: true
    files:
    - path: /etc/kubernetes/pki/migration.yaml
      content: "hunter2: [}"
"#,
    );
    let text = plain(&report.text(Layout::default()));
    assert!(!text.contains("hunter2"), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_field_that_occurs_twice_fails_only_what_lint_checks() {
    let elsewhere = "apiVersion: v1\nkind: ConfigMap\ndata:\n  a: 1\n  a: 2\n";
    let report = lint_yaml(&format!("{elsewhere}---\n{}\n", control_plane(4)));
    schema::conforms(&report);
    assert_eq!(report.verdict(), Verdict::Negative);
    insta::assert_snapshot!(plain(&report.text(Layout::default())));
    let judged = lint_yaml("apiVersion: hive.openshift.io/v1\nkind: ClusterPool\nspec: {size: 1, size: 2}\n");
    assert_eq!(judged.verdict(), Verdict::Undecided);
    let [error] = judged.unread_files() else {
        panic!("{:?}", judged.unread_files())
    };
    assert_eq!(error.line, Some(3));
}

#[test]
fn fills_the_variables_of_a_template() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("template.yaml");
    let mut object = Base::ControlPlane(V1BETA2).object();
    object["spec"]["replicas"] = json!(4);
    let text = object.to_string();
    for (text, substitute, verdict) in [
        (
            text.replace(":4", ":${KCP_LINT_ABSENT:=4}"),
            true,
            Verdict::Negative,
        ),
        (text.replace(":4", ":${KCP_LINT_ABSENT:-3}"), true, Verdict::Met),
        (
            text.replace(":4", ":\"${KCP_LINT_ABSENT:=4}\""),
            false,
            Verdict::Undecided,
        ),
        (
            text.replace(":4", ":${KCP_LINT_ABSENT}"),
            true,
            Verdict::Undecided,
        ),
    ] {
        std::fs::write(&file, &text).unwrap();
        let arguments = LintArguments {
            files: vec![file.clone()],
            substitute,
            ..LintArguments::default()
        };
        let report = manifests(&arguments, NAMESPACE, None);
        assert_eq!(report.verdict(), verdict, "{text}");
        if substitute && verdict == Verdict::Undecided {
            let error = report.unread_files()[0].sentence();
            assert!(error.contains("no value for KCP_LINT_ABSENT"), "{error}");
        }
    }
}

#[test]
fn the_health_check_of_a_topology_is_checked_with_its_replicas() {
    let v1beta2 = |limit: Value| json!({"healthCheck": {"remediation": {"triggerIf": limit}}});
    let old = |limit: Value| json!({"machineHealthCheck": limit});
    let disabled = json!({"healthCheck": {"enabled": false, "remediation": {"triggerIf": {"unhealthyInRange": "[2-5]"}}}});
    for (version, check, replicas, field) in [
        (
            "v1beta2",
            v1beta2(json!({"unhealthyInRange": "[2-5]"})),
            3,
            Some("healthCheck.remediation.triggerIf.unhealthyInRange"),
        ),
        (
            "v1beta2",
            v1beta2(json!({"unhealthyLessThanOrEqualTo": "33%"})),
            3,
            Some("healthCheck.remediation.triggerIf.unhealthyLessThanOrEqualTo"),
        ),
        (
            "v1beta2",
            v1beta2(json!({"unhealthyLessThanOrEqualTo": "33%"})),
            5,
            None,
        ),
        ("v1beta2", disabled, 3, None),
        (
            "v1beta1",
            old(json!({"maxUnhealthy": "33%"})),
            3,
            Some("machineHealthCheck.maxUnhealthy"),
        ),
        ("v1beta1", old(json!({"maxUnhealthy": "40%"})), 3, None),
    ] {
        let mut control_plane = check.clone();
        control_plane["replicas"] = json!(replicas);
        let class = if version == "v1beta1" {
            json!("quick")
        } else {
            json!({"name": "quick"})
        };
        let key = if version == "v1beta1" { "class" } else { "classRef" };
        let cluster = json!({
            "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "Cluster", "metadata": {"name": "edge"},
            "spec": {"topology": {key: class, "version": "v1.34.2", "controlPlane": control_plane}},
        });
        let report = lint_yaml(&cluster.to_string());
        let expected: Vec<_> = field
            .map(|field| {
                (
                    "health-check-idle".to_owned(),
                    format!("spec.topology.controlPlane.{field}"),
                )
            })
            .into_iter()
            .collect();
        assert_eq!(found(&report), expected, "{check}");
    }
}

const HEALTH_CHECK: &str = r#"
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: edge-cp}
spec:
  clusterName: edge
  selector: {matchLabels: {cluster.x-k8s.io/control-plane: ""}}
  remediation:
    triggerIf:
      unhealthyLessThanOrEqualTo: 33%
"#;

/// A control plane of three, and a `MachineHealthCheck` with these changes.
fn lint_health_check(changes: &[(&str, &str)], control_plane: &Value) -> LintReport {
    let mut check = HEALTH_CHECK.to_owned();
    for (old, new) in changes {
        assert!(check.contains(old), "{old}");
        check = check.replace(old, new);
    }
    lint_yaml(&format!("{control_plane}\n---\n{check}"))
}

#[test]
fn text_of_a_health_check_that_never_acts() {
    let report = lint_health_check(&[], &control_plane(3));
    schema::conforms(&report);
    assert_eq!(report.names(), ["machinehealthcheck.cluster.x-k8s.io/edge-cp"]);
    insta::assert_snapshot!(plain(&report.text(Layout::default())));
}

#[test]
fn a_health_check_is_checked_beside_its_control_plane() {
    const PERCENT: &str = "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo";
    const RANGE: &str = "spec.remediation.triggerIf.unhealthyInRange";
    let labelled = |cluster: &str| {
        let mut object = control_plane(3);
        object["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": cluster});
        object
    };
    let of_v1beta1 = |limit: &str| {
        (
            "  remediation:\n    triggerIf:\n      unhealthyLessThanOrEqualTo: 33%",
            format!("  {limit}"),
        )
    };
    let v1beta1 = ("cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta1");
    let (new, old) = of_v1beta1("maxUnhealthy: 33%");
    let (_, range) = of_v1beta1("unhealthyRange: \"[2-5]\"");
    let (_, none) = of_v1beta1("nodeStartupTimeout: 10m");
    for (case, changes, control_plane, field) in [
        ("a third of three", vec![], control_plane(3), Some(PERCENT)),
        ("34 %", vec![("33%", "34%")], control_plane(3), None),
        ("a third of five", vec![], control_plane(5), None),
        ("a number", vec![("33%", "1")], control_plane(3), None),
        ("none", vec![("33%", "0")], control_plane(3), Some(PERCENT)),
        (
            "a range",
            vec![("unhealthyLessThanOrEqualTo: 33%", "unhealthyInRange: \"[2-5]\"")],
            control_plane(3),
            Some(RANGE),
        ),
        (
            "v1beta1",
            vec![(new, &*old), v1beta1],
            control_plane(3),
            Some("spec.maxUnhealthy"),
        ),
        (
            "a range in v1beta1",
            vec![(new, &*range), v1beta1],
            control_plane(3),
            Some("spec.unhealthyRange"),
        ),
        (
            "without a limit",
            vec![(new, &*none), v1beta1],
            control_plane(3),
            None,
        ),
        ("its own", vec![], labelled("edge"), Some(PERCENT)),
        ("of another Cluster", vec![], labelled("other"), None),
        (
            "of workers",
            vec![("cluster.x-k8s.io/control-plane: \"\"", "nodepool: a")],
            control_plane(3),
            None,
        ),
        // Nobody knows how many workers there are.
        (
            "of all Machines",
            vec![(
                "cluster.x-k8s.io/control-plane: \"\"",
                "cluster.x-k8s.io/cluster-name: edge",
            )],
            control_plane(3),
            None,
        ),
        (
            "elsewhere",
            vec![("name: edge-cp", "name: edge-cp, namespace: b")],
            control_plane(3),
            None,
        ),
    ] {
        let report = lint_health_check(&changes, &control_plane);
        let expected: Vec<_> = field
            .map(|field| ("health-check-idle".to_owned(), field.to_owned()))
            .into_iter()
            .collect();
        assert_eq!(
            (report.verdict(), found(&report)),
            (Verdict::Met, expected),
            "{case}"
        );
    }
}

#[test]
fn a_cluster_in_the_files_says_whose_control_plane_it_is() {
    let mut cluster = Base::Cluster.object();
    cluster["metadata"]["name"] = json!("edge");
    let mut other = control_plane(3);
    other["metadata"]["name"] = json!("other");
    let files = |cluster: &Value| {
        let report = lint_yaml(&format!(
            "{cluster}\n---\n{}\n---\n{other}\n---\n{HEALTH_CHECK}",
            control_plane(3)
        ));
        found(&report).len()
    };
    assert_eq!(files(&cluster), 1);
    // Two control planes, and nothing says which one belongs to the Cluster.
    cluster["metadata"]["name"] = json!("rim");
    assert_eq!(files(&cluster), 0);
}

/// A Cluster of a class, with this topology of its control plane.
fn of_class(topology: &Value) -> String {
    let template = r#"{"kind":"KubeadmControlPlaneTemplate","name":"example"}"#;
    let mut object = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "edge"},
        "spec": {"topology": {"classRef": {"name": "fleet"}, "version": "v1.34.2"}},
    });
    object["spec"]["topology"]["controlPlane"] = topology.clone();
    format!(
        r#"{object}
---
{{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"ClusterClass","metadata":{{"name":"fleet"}},"spec":{{"controlPlane":{{"templateRef":{template}}}}}}}
"#
    )
}

#[test]
fn the_topology_of_a_cluster_is_checked_with_its_class() {
    let even = || {
        vec![(
            "replicas-even".to_owned(),
            "spec.topology.controlPlane.replicas".to_owned(),
        )]
    };
    let template = Base::Template(V1BETA2).object();
    let mut external = template.clone();
    external["spec"]["template"]["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"] =
        json!({"external": {"endpoints": ["https://a"], "caFile": "/a", "certFile": "/a", "keyFile": "/a"}});
    let two = of_class(&json!({"replicas": 2}));
    for (files, verdict, expected) in [
        (format!("{two}---\n{template}"), Verdict::Negative, even()),
        (format!("{two}---\n{external}"), Verdict::Met, vec![]),
        // Without the template, it is unknown whether etcd is stacked.
        (two, Verdict::Met, even()),
        (of_class(&json!({"replicas": 3})), Verdict::Met, vec![]),
    ] {
        let report = lint_yaml(&files);
        assert_eq!((report.verdict(), found(&report)), (verdict, expected), "{files}");
    }
}

#[test]
fn an_update_of_a_topology_is_checked_with_the_old_one() {
    let cluster = |replicas: &Value| {
        let mut object = Base::Cluster.object();
        object["metadata"]["name"] = json!("edge");
        object["spec"] = json!({"topology": {"classRef": {"name": "fleet"}, "version": "v1.34.2",
            "controlPlane": {"replicas": replicas, "metadata": {"labels": {"a": "b"}}}}});
        object
    };
    let report = |old: i64, new: i64| lint_update(Some(&cluster(&json!(old))), &cluster(&json!(new)));
    let zero = vec![(
        "replicas-not-positive".to_owned(),
        "spec.topology.controlPlane.replicas".to_owned(),
    )];
    assert_eq!(
        (found(&report(3, 0)), report(3, 0).verdict()),
        (zero.clone(), Verdict::Negative)
    );
    // The fault is not new, so it is only a warning.
    assert_eq!(
        (found(&report(0, 0)), report(0, 0).verdict()),
        (zero, Verdict::Met)
    );
}

fn samples(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../manifests/samples")
        .join(folder);
    let files = crate::commands::lint::source::files(&folder, false).unwrap();
    assert!(files.len() > 3, "{files:?}");
    files
}

#[test]
fn each_bad_sample_has_one_fault_and_describes_the_fault() {
    for sample in samples("bad") {
        let report = lint(vec![sample.clone()]);
        let found = found(&report);
        assert_eq!(
            (report.verdict(), found.len()),
            (Verdict::Negative, 1),
            "{sample:?}: {found:?}"
        );
        let text = std::fs::read_to_string(&sample).unwrap();
        assert!(text.starts_with("# "), "{sample:?} does not say what it shows");
    }
}

#[test]
fn good_samples_have_no_fault() {
    for sample in samples("good") {
        let report = lint(vec![sample.clone()]);
        assert_eq!(
            (report.verdict(), found(&report)),
            (Verdict::Met, vec![]),
            "{sample:?}"
        );
        let text = std::fs::read_to_string(&sample).unwrap();
        assert!(text.starts_with("# "), "{sample:?} does not say what it shows");
    }
}
