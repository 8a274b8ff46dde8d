//! Which fields of a control plane may change. The tables list every field of the real CRDs, so that each new field
//! needs a decision, and the tests compare each decision with the rules.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: they may panic"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use kcp_rules::{
    Change, Configuration,
    api::{KubeadmControlPlane, decode},
    judge,
    testing::case::{Base, V1BETA1, V1BETA2},
};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Decision {
    /// The field and everything below it may change.
    Mutable,
    /// The field must not change.
    Immutable,
    /// The field may be added and removed; its subfields have their own decisions.
    Section,
    /// The field must not be removed; its subfields have their own decisions.
    Kept,
}

use Decision::{Immutable, Kept, Mutable, Section};

/// The fields that both API versions have.
const BOTH: &[(&str, Decision)] = &[
    ("spec", Section),
    ("spec.kubeadmConfigSpec", Section),
    ("spec.kubeadmConfigSpec.bootCommands", Mutable),
    ("spec.kubeadmConfigSpec.clusterConfiguration", Kept),
    ("spec.kubeadmConfigSpec.clusterConfiguration.apiServer", Mutable),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.caCertificateValidityPeriodDays",
        Immutable,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.certificateValidityPeriodDays",
        Mutable,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.certificatesDir",
        Immutable,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.controlPlaneEndpoint",
        Immutable,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager",
        Mutable,
    ),
    ("spec.kubeadmConfigSpec.clusterConfiguration.dns", Mutable),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.encryptionAlgorithm",
        Mutable,
    ),
    ("spec.kubeadmConfigSpec.clusterConfiguration.etcd", Section),
    ("spec.kubeadmConfigSpec.clusterConfiguration.etcd.external", Kept),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.etcd.external.caFile",
        Mutable,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.etcd.external.certFile",
        Mutable,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.etcd.external.endpoints",
        Mutable,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.etcd.external.keyFile",
        Mutable,
    ),
    ("spec.kubeadmConfigSpec.clusterConfiguration.etcd.local", Mutable),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.featureGates",
        Mutable,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.imageRepository",
        Mutable,
    ),
    ("spec.kubeadmConfigSpec.clusterConfiguration.scheduler", Mutable),
    ("spec.kubeadmConfigSpec.diskSetup", Mutable),
    ("spec.kubeadmConfigSpec.files", Mutable),
    ("spec.kubeadmConfigSpec.format", Mutable),
    ("spec.kubeadmConfigSpec.ignition", Mutable),
    ("spec.kubeadmConfigSpec.initConfiguration", Kept),
    (
        "spec.kubeadmConfigSpec.initConfiguration.bootstrapTokens",
        Mutable,
    ),
    (
        "spec.kubeadmConfigSpec.initConfiguration.localAPIEndpoint",
        Mutable,
    ),
    (
        "spec.kubeadmConfigSpec.initConfiguration.nodeRegistration",
        Mutable,
    ),
    ("spec.kubeadmConfigSpec.initConfiguration.patches", Mutable),
    ("spec.kubeadmConfigSpec.initConfiguration.skipPhases", Mutable),
    ("spec.kubeadmConfigSpec.joinConfiguration", Kept),
    ("spec.kubeadmConfigSpec.joinConfiguration.caCertPath", Mutable),
    ("spec.kubeadmConfigSpec.joinConfiguration.controlPlane", Mutable),
    ("spec.kubeadmConfigSpec.joinConfiguration.discovery", Mutable),
    (
        "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration",
        Mutable,
    ),
    ("spec.kubeadmConfigSpec.joinConfiguration.patches", Mutable),
    ("spec.kubeadmConfigSpec.joinConfiguration.skipPhases", Mutable),
    ("spec.kubeadmConfigSpec.mounts", Mutable),
    ("spec.kubeadmConfigSpec.ntp", Mutable),
    ("spec.kubeadmConfigSpec.postKubeadmCommands", Mutable),
    ("spec.kubeadmConfigSpec.preKubeadmCommands", Mutable),
    ("spec.kubeadmConfigSpec.users", Mutable),
    ("spec.kubeadmConfigSpec.verbosity", Mutable),
    ("spec.machineTemplate", Section),
    ("spec.machineTemplate.metadata", Mutable),
    ("spec.replicas", Mutable),
    ("spec.version", Mutable),
];

const ONLY_V1BETA1: &[(&str, Decision)] = &[
    ("spec.kubeadmConfigSpec.clusterConfiguration.apiVersion", Mutable),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.clusterName",
        Immutable,
    ),
    ("spec.kubeadmConfigSpec.clusterConfiguration.kind", Mutable),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.kubernetesVersion",
        Immutable,
    ),
    ("spec.kubeadmConfigSpec.clusterConfiguration.networking", Section),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.networking.dnsDomain",
        Immutable,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.networking.podSubnet",
        Immutable,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.networking.serviceSubnet",
        Immutable,
    ),
    ("spec.kubeadmConfigSpec.initConfiguration.apiVersion", Mutable),
    ("spec.kubeadmConfigSpec.initConfiguration.kind", Mutable),
    ("spec.kubeadmConfigSpec.joinConfiguration.apiVersion", Mutable),
    ("spec.kubeadmConfigSpec.joinConfiguration.kind", Mutable),
    ("spec.kubeadmConfigSpec.useExperimentalRetryJoin", Mutable),
    ("spec.machineNamingStrategy", Mutable),
    ("spec.machineTemplate.infrastructureRef", Mutable),
    ("spec.machineTemplate.nodeDeletionTimeout", Mutable),
    ("spec.machineTemplate.nodeDrainTimeout", Mutable),
    ("spec.machineTemplate.nodeVolumeDetachTimeout", Mutable),
    ("spec.machineTemplate.readinessGates", Mutable),
    ("spec.machineTemplate.taints", Mutable),
    ("spec.remediationStrategy", Mutable),
    ("spec.rolloutAfter", Mutable),
    ("spec.rolloutBefore", Mutable),
    ("spec.rolloutStrategy", Mutable),
];

const ONLY_V1BETA2: &[(&str, Decision)] = &[
    ("spec.kubeadmConfigSpec.initConfiguration.timeouts", Mutable),
    ("spec.kubeadmConfigSpec.joinConfiguration.timeouts", Mutable),
    ("spec.machineNaming", Mutable),
    ("spec.machineTemplate.spec", Section),
    ("spec.machineTemplate.spec.deletion", Mutable),
    ("spec.machineTemplate.spec.infrastructureRef", Mutable),
    ("spec.machineTemplate.spec.readinessGates", Mutable),
    ("spec.machineTemplate.spec.taints", Mutable),
    ("spec.remediation", Mutable),
    ("spec.rollout", Section),
    ("spec.rollout.after", Mutable),
    ("spec.rollout.before", Mutable),
    ("spec.rollout.strategy", Mutable),
];

/// The rules that implement the decisions. Other rules, such as those about versions, are ignored.
const RULES: &[&str] = &[
    "cluster-configuration-immutable",
    "kubeadm-section-removed",
    "etcd-topology-switched",
];

fn decisions(version: &str) -> BTreeMap<&'static str, Decision> {
    let only = if version == V1BETA1 {
        ONLY_V1BETA1
    } else {
        ONLY_V1BETA2
    };
    BOTH.iter().chain(only).copied().collect()
}

/// The fields of `spec`, with their types.
fn fields(version: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/fields")
        .join(format!("kubeadmcontrolplane-{version}.txt"));
    fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .lines()
        .filter(|line| line.starts_with("spec"))
        .map(|line| {
            let mut columns = line.split('\t').map(str::to_owned);
            (columns.next().unwrap(), columns.next().unwrap())
        })
        .collect()
}

fn is_below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent)
        .is_some_and(|rest| rest.starts_with(['.', '[', '{']))
}

#[test]
fn every_field_has_a_decision() {
    for version in [V1BETA1, V1BETA2] {
        let decisions = decisions(version);
        let fields = fields(version);
        for (field, _) in &fields {
            let decided = decisions.contains_key(field.as_str())
                || decisions
                    .iter()
                    .any(|(parent, decision)| *decision == Mutable && is_below(field, parent));
            assert!(decided, "{version}: may {field} change?");
        }
        let fields: BTreeSet<_> = fields.iter().map(|(field, _)| field.as_str()).collect();
        for decided in decisions.keys() {
            assert!(fields.contains(decided), "{version} has no {decided}");
        }
    }
}

#[test]
fn rules_implement_the_decisions() {
    for version in [V1BETA1, V1BETA2] {
        let decisions = decisions(version);
        let fields = fields(version);
        for (field, kind) in &fields {
            let decision = decisions.get(field.as_str()).copied().unwrap_or(Mutable);
            let has_fields = fields.iter().any(|(other, _)| is_below(other, field));
            let (old, new) = match kind.as_str() {
                "object" if has_fields => (json!({}), Value::Null),
                "object" => (json!({}), json!({ "a": "b" })),
                "array" => continue,
                "integer" | "int-or-string" => (json!(1), json!(3)),
                "boolean" => (json!(false), json!(true)),
                "string" => (json!("a"), json!("b")),
                other => panic!("{field} is of type {other}"),
            };
            let expected: &[&str] = match decision {
                Immutable | Kept => &[field.as_str()],
                Mutable | Section => &[],
            };
            // Elements of lists and maps cannot be null, and neither can the spec.
            if new.is_null() && (field.ends_with(['}', ']']) || field == "spec" || is_required(field)) {
                continue;
            }
            assert_eq!(found(version, field, &old, &new), expected, "{version}: {field}");
        }
    }
}

/// Whether removing the field would remove other fields with decisions of their own: all three sections.
fn is_required(field: &str) -> bool {
    field == "spec.kubeadmConfigSpec"
}

fn found(version: &'static str, field: &str, old: &Value, new: &Value) -> Vec<String> {
    let mut base = Base::ControlPlane(version).object();
    put(&mut base, field, old.clone());
    let old = base.to_string();
    put(&mut base, field, new.clone());
    let new = base.to_string();
    let (old, new): (KubeadmControlPlane, KubeadmControlPlane) =
        (decode(&old).unwrap(), decode(&new).unwrap());
    judge(&Change::update(&old, &new), &Configuration::default())
        .findings
        .into_iter()
        .filter(|finding| RULES.contains(&finding.rule.id))
        .map(|finding| finding.fault.field.into_owned())
        .collect()
}

/// Sets the value at a generic path such as `spec.files[].path` or `spec.labels{}`.
fn put(object: &mut Value, path: &str, value: Value) {
    let steps = path.replace("[]", ".[]").replace("{}", ".{}");
    let mut place = object;
    for step in steps.split('.') {
        place = match step {
            "[]" => {
                if !place.is_array() {
                    *place = json!([null]);
                }
                &mut place[0]
            }
            step => {
                if !place.is_object() {
                    *place = json!({});
                }
                &mut place[step]
            }
        };
    }
    *place = value;
}
