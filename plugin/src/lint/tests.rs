//! `lint` on whole manifests.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use kcp_rules::{
    Configuration, Scope,
    case::{Base, Case, NOW, Row, Write},
    topics::{TOPICS, rules},
};
use serde_json::Value;

use super::{Given, Report, lint};
use crate::{terminal::plain, verdict::Verdict};

fn lint_yaml(text: &str) -> Report {
    let mut given = Given::default();
    given.report.file();
    given.parse("manifest.yaml", text.as_bytes());
    given.judge(&Configuration::default(), NOW.parse().unwrap())
}

fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/documents")
        .join(name)
}

/// The screen and the verdict for a sample of the design documents, the folder's name left out.
fn screen(name: &str) -> (String, Verdict) {
    let report = lint(&[document(name)], false, &Configuration::default());
    let mut text = String::new();
    for unread in report.errors() {
        writeln!(text, "error: {}", unread.sentence()).unwrap();
    }
    text.push_str(&plain(&report.text()));
    let folder = document("").display().to_string();
    (text.replace(&folder, ""), report.verdict())
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

/// `component: *` is an alias without a name to YAML.
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
    insta::assert_snapshot!(plain(&lint_yaml(FAULTY).text()));
}

#[test]
fn json_of_faulty_objects() {
    insta::assert_snapshot!(lint_yaml(FAULTY).json().unwrap());
}

#[test]
fn github_annotations_of_faulty_objects() {
    insta::assert_snapshot!(lint_yaml(&format!("{FAULTY}---\na: [\n")).github());
}

#[test]
fn nothing_judged_is_said() {
    let report = lint_yaml("kind: Pod\napiVersion: v1\n---\nkind: ClusterPool\napiVersion: other.io/v1\n");
    assert_eq!(report.verdict(), Verdict::Met);
    assert_eq!(
        report.text(),
        "nothing judged: 2 objects in 1 file, none of them a KubeadmControlPlane, ClusterPool or \
         ClusterDeploymentCustomization (ClusterPool, Pod)\n"
    );
}

#[test]
fn a_missing_file_leaves_the_verdict_open_and_the_others_judged() {
    let report = lint(
        &[
            document("cluster-pool-inventory-pool.yaml"),
            PathBuf::from("no-such.yaml"),
        ],
        false,
        &Configuration::default(),
    );
    assert_eq!(report.verdict(), Verdict::Undecided);
    assert!(
        report.text().contains("inventory-not-a-list"),
        "{}",
        report.text()
    );
    let [error] = report.errors() else {
        panic!("{:?}", report.errors())
    };
    assert!(
        error.sentence().starts_with("cannot read no-such.yaml: "),
        "{}",
        error.sentence()
    );
}

/// The one fault that the mutating webhook repairs.
const COMPLETED_BY_DEFAULTS: &str = "version-without-v";

/// A file says nothing of the other objects of a cluster.
fn looks_at_the_cluster(id: &str) -> bool {
    rules().any(|rule| rule.id == id && rule.scope == Scope::Cluster)
}

/// On each example of each rule `lint` says exactly what admission says of the creation: what the validating webhook
/// says of the object that the mutating one has completed.
#[test]
fn says_what_admission_says() {
    let mut judged = 0;
    let rows = TOPICS.iter().flat_map(|topic| topic.cases).flat_map(Case::rows);
    for row in rows {
        let Row { case, base } = row;
        let configured = case.configuration() != Configuration::default();
        if !matches!(case.write, Write::Create(_)) || base == Base::Cluster || configured {
            continue;
        }
        let report = lint_yaml(&serde_json::to_string_pretty(&row.new_object().unwrap()).unwrap());
        let json: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        let found: Vec<_> = json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| {
                (
                    finding["rule"].as_str().unwrap(),
                    finding["field"].as_str().unwrap(),
                )
            })
            .collect();
        let expected: Vec<_> = case
            .findings
            .iter()
            .copied()
            .filter(|(rule, _)| *rule != COMPLETED_BY_DEFAULTS && !looks_at_the_cluster(rule))
            .collect();
        assert_eq!(found, expected, "{}", case.name);
        judged += 1;
    }
    assert!(judged > 10, "{judged}");
}
