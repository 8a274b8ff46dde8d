//! `lint` on whole manifests.

mod object_schema;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use kcp_rules::{
    Configuration,
    case::{Base, Case, NOW, V1BETA1, V1BETA2, Write},
    row::Row,
    topics::TOPICS,
    view::View,
};
use serde_json::{Value, json};

use crate::commands::lint::{
    Input, LintArguments, LintReport, NAMESPACE, ObjectSource, manifests, subject::Subject,
};
use crate::output::Report as _;
use crate::testing::{assert_every_format, schema};
use crate::{
    printer,
    terminal::{plain, table::Layout},
    verdict::Verdict,
};

fn lint_yaml(text: &str) -> LintReport {
    let mut input = Input::new(NAMESPACE, ObjectSource::Files);
    input.parse("manifest.yaml", text.as_bytes());
    input.check(&Configuration::default(), NOW.parse().unwrap())
}

fn lint(files: Vec<PathBuf>) -> LintReport {
    let arguments = LintArguments {
        files,
        ..LintArguments::default()
    };
    manifests(&arguments, NAMESPACE, &Configuration::default())
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
    insta::assert_snapshot!(printer::json(&lint_yaml(FAULTY)).unwrap());
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
    assert_eq!(report.verdict(), Verdict::Met);
    assert_eq!(
        report.text(Layout::default()),
        "nothing checked: 2 objects in 1 file, but no KubeadmControlPlane, ClusterPool or \
         ClusterDeploymentCustomization (ClusterPool, Pod)\n"
    );
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
    let rows = TOPICS.iter().flat_map(|topic| topic.cases).flat_map(Case::rows);
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
            .map(|finding| (finding.rule.id.to_owned(), finding.fault.field.into_owned()))
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
    input.check(&Configuration::default(), NOW.parse().unwrap())
}

/// The rules and fields of the findings, in the order of the report.
fn found(report: &LintReport) -> Vec<(String, String)> {
    let json: Value = serde_json::from_str(&printer::json(report).unwrap()).unwrap();
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
    input.check(&Configuration::default(), NOW.parse().unwrap())
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
    insta::assert_snapshot!(printer::json(&objects_in_a_cluster()).unwrap());
}

#[test]
fn sarif_of_objects_in_a_cluster() {
    insta::assert_snapshot!(sarif(&objects_in_a_cluster()));
}

#[test]
fn github_annotations_of_objects_in_a_cluster() {
    insta::assert_snapshot!(objects_in_a_cluster().to_github_annotations());
}

/// Only a new object that a Cluster owns may be a copy.
#[test]
fn stored_objects_are_no_copies() {
    let mut template = Base::Template(V1BETA2).object();
    template["spec"]["template"]["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["dns"] =
        json!({"imageTag": "v1 2"});
    for (subject, object, owner, rule, exported_as) in [
        (
            Subject::ControlPlane,
            control_plane(4),
            "Cluster",
            "replicas-even",
            Verdict::Met,
        ),
        (
            Subject::Template,
            template,
            "ClusterClass",
            "image-tag-invalid",
            Verdict::Negative,
        ),
    ] {
        let stored = cluster_objects([(subject, owned_by(owner, object.clone()))]);
        assert_eq!(
            (stored.verdict(), found(&stored)[0].0.as_str()),
            (Verdict::Negative, rule)
        );
        let exported = lint_update(None, &owned_by(owner, object));
        assert_eq!(
            (exported.verdict(), found(&exported)[0].0.as_str()),
            (exported_as, rule)
        );
    }
}

/// As `kubectl get -o yaml` writes it: with the owner that Cluster API set.
fn exported_control_plane() -> LintReport {
    lint_update(None, &owned_by("Cluster", control_plane(4)))
}

#[test]
fn text_of_an_exported_object() {
    insta::assert_snapshot!(plain(&exported_control_plane().text(Layout::default())));
}

#[test]
fn every_format_says_why_a_denial_became_a_warning() {
    let exported = exported_control_plane();
    schema::conforms(&exported);
    let reason = "the object is a copy, as clusterctl move or Hive makes one; the webhook denies the object if its Cluster \
        does not exist or is not paused";
    let json: Value = serde_json::from_str(&printer::json(&exported).unwrap()).unwrap();
    assert_eq!(json["findings"][0]["downgradeReason"], reason);
    assert_eq!(json["findings"][0]["action"], "warn");
    let sarif: Value = serde_json::from_str(&exported.to_sarif().unwrap()).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    let message = result["message"]["text"].as_str().unwrap();
    assert!(
        message.ends_with(&format!("only a warning, because {reason}")),
        "{message}"
    );
    assert_eq!(result["level"], "warning");
    assert!(exported.to_github_annotations().contains(reason));
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
