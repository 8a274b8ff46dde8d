//! The choice between stacked and external etcd.

use crate::{
    action::Action,
    api::{ControlPlaneSpec, KubeadmControlPlane, kubeadm_config::KubeadmConfigSpec},
    case::Case,
    cel::Cel,
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, ON_UPDATE, ON_WRITE, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "etcd",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "etcd-local-and-external",
        summary: "etcd must be either stacked or external",
        why: "kubeadm either runs etcd on the control plane Machines or uses an external etcd. If both are \
              set, kubeadm init fails.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: cannot have both external and local etcd",
        check: Check::ControlPlaneSpec(local_and_external),
        cel: Cel::Faults(include_str!("cel/etcd-local-and-external.cel")),
    },
    Rule {
        id: "etcd-topology-switched",
        summary: "a control plane must not switch between stacked and external etcd",
        why: "The data of a cluster is in its etcd, and neither kubeadm nor Cluster API moves this data. \
              After a switch, a new Machine would join an empty etcd.",
        operations: ON_UPDATE,
        action: Action::Deny,
        scope: Scope::Transition,
        overridable: false,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: cannot change between external and local etcd",
        check: Check::ControlPlane(topology_switched),
        cel: Cel::Faults(include_str!("cel/etcd-topology-switched.cel")),
    },
];

const EXTERNAL: &str = "spec.kubeadmConfigSpec.clusterConfiguration.etcd.external";

fn local_and_external(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let etcd = change.new.kubeadm_config().and_then(KubeadmConfigSpec::etcd);
    if etcd.is_some_and(|etcd| etcd.local.is_some() && etcd.external.is_some()) {
        faults.push(Fault {
            field: change.new.kubeadm_path("clusterConfiguration.etcd.external"),
            reason: CauseReason::Forbidden,
            value: None,
            detail: "etcd.local is also set, and kubeadm supports only one of the two".into(),
            remedy: "remove etcd.local to use the external etcd, or remove etcd.external to run etcd on the \
                 Machines"
                .into(),
        });
    }
}

fn topology_switched(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(old) = change.old else { return };
    let (from, to) = match (old.has_external_etcd(), change.new.has_external_etcd()) {
        (false, true) => ("stacked", "external"),
        (true, false) => ("external", "stacked"),
        _ => return,
    };
    faults.push(Fault {
        field: EXTERNAL.into(),
        reason: CauseReason::Forbidden,
        value: None,
        detail: format!("the cluster's data is in {from} etcd, and no controller migrates it to {to} etcd")
            .into(),
        remedy: format!(
            "keep {from} etcd, or create a new Cluster with {to} etcd and move the workloads to it"
        )
        .into(),
    });
}

const STACKED: &str = r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"dataDir":"/data"},"external":null}}}}}"#;
const EXTERNAL_ETCD: &str = r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":null,"external":{
    "endpoints":["https://etcd:2379"],"caFile":"/ca","certFile":"/cert","keyFile":"/key"}}}}}}"#;
const OTHER_EXTERNAL_ETCD: &str = r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"external":{
    "endpoints":["https://etcd-2:2379"],"caFile":"/ca","certFile":"/cert","keyFile":"/key"}}}}}}"#;
const LOCAL_AND_EXTERNAL: &str = r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"dataDir":"/data"},"external":{
    "endpoints":["https://etcd:2379"],"caFile":"/ca","certFile":"/cert","keyFile":"/key"}}}}}}"#;

const CASES: &[Case] = &[
    Case::create("accepts_stacked", STACKED, &[]),
    Case::create("accepts_external", EXTERNAL_ETCD, &[]),
    Case::create(
        "rejects_both",
        LOCAL_AND_EXTERNAL,
        &[("etcd-local-and-external", EXTERNAL)],
    ),
    Case::update(
        "accepts_changed_external_endpoints",
        EXTERNAL_ETCD,
        OTHER_EXTERNAL_ETCD,
        &[],
    ),
    Case::update(
        "rejects_stacked_to_external",
        STACKED,
        EXTERNAL_ETCD,
        &[("etcd-topology-switched", EXTERNAL)],
    ),
    Case::update(
        "rejects_external_to_stacked",
        EXTERNAL_ETCD,
        STACKED,
        &[("etcd-topology-switched", EXTERNAL)],
    ),
    Case::template(
        "rejects_both_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"dataDir":"/data"},
            "external":{"endpoints":["https://etcd:2379"]}}}}}}}}"#,
        &[(
            "etcd-local-and-external",
            "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.etcd.external",
        )],
    ),
    Case::update(
        "rejects_default_to_external",
        "{}",
        EXTERNAL_ETCD,
        &[("etcd-topology-switched", EXTERNAL)],
    ),
];
