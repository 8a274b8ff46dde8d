//! Control planes and the reports of their controller managers, for the tests of the steps.

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::{KubeadmControlPlane, decode as decode_object};
use kcp_rules::{
    api::decode,
    leader_migration::{Component, Flags, Lock},
};
use serde_json::{Value, json};

use crate::{
    change::decision::Decision,
    leader_migration::{
        Health, LockRole, ObservedLease, ObservedLock, ObservedManager, ObservedManagers, Settings,
        SettingsSource, served,
    },
    plan::options::apply_patch,
    snapshot::change::ChangeSnapshot,
    testing::{change, objects::now},
};

pub(super) const LEADER: &str = "m";

/// A control plane of three Machines at this version.
pub(super) fn snapshot(version: &str) -> ChangeSnapshot {
    let mut snapshot = change::snapshot();
    let mut object: Value = decode(&snapshot.json).expect("JSON");
    object["spec"]["version"] = json!(version);
    set_object(&mut snapshot, &object);
    for machine in &mut snapshot.observed.machines {
        machine.spec.version = Some(version.to_owned());
    }
    snapshot
}

fn set_object(snapshot: &mut ChangeSnapshot, object: &Value) {
    snapshot.json = object.to_string();
    snapshot.json_at_start.clone_from(&snapshot.json);
    let decoded: KubeadmControlPlane = decode_object(&snapshot.json).expect("a control plane");
    snapshot.observed.control_plane.spec = decoded.spec;
    snapshot.observed.control_plane.metadata = decoded.metadata;
}

fn configuration(leader: &str) -> String {
    format!(
        "{{apiVersion: controllermanager.config.k8s.io/v1, kind: LeaderMigrationConfiguration, leaderName: {leader}, \
         controllerLeaders: [{{name: node-ipam-controller, component: \"*\"}}]}}"
    )
}

/// A kube-controller-manager with these flags. Its configuration has this leader name.
pub(super) fn kube(pod: &str, flags: &str, leader: &str) -> ObservedManager {
    let file = configuration(leader);
    let flags = Flags::from_command(flags.split(' '));
    ObservedManager {
        component: Component::Kube,
        namespace: "kube-system".to_owned(),
        pod: pod.to_owned(),
        node: "n1".to_owned(),
        minor: Some(35),
        health: Health::Serves(["node-ipam-controller".to_owned()].into()),
        settings: Settings {
            source: SettingsSource::Configz,
            described: Ok(served::manager(Component::Kube, Some(35), flags, Some(&file))),
            unverified_reason: None,
        },
    }
}

pub(super) fn migrating(pod: &str) -> ObservedManager {
    kube(
        pod,
        "--enable-leader-migration --leader-migration-config=f",
        LEADER,
    )
}

pub(super) fn three() -> Vec<ObservedManager> {
    ["k1", "k2", "k3"].map(migrating).to_vec()
}

/// The main Leases, held by `k_1` and `c_1`, and the migration Lease with this holder.
pub(super) fn observed(managers: Vec<ObservedManager>, holder: Option<&str>) -> ObservedManagers {
    let time: Timestamp = now();
    let lock = |role, name: &str, holder: Option<&str>| ObservedLock {
        role,
        lock: Lock {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
        },
        lease: Ok(holder.map(|holder| ObservedLease {
            holder: Some(holder.to_owned()),
            renewed: Some(time),
            duration: Some(Duration::from_secs(15)),
            ..ObservedLease::default()
        })),
    };
    ObservedManagers {
        now: time,
        managers: Ok(managers),
        locks: vec![
            lock(
                LockRole::Main(Component::Kube),
                "kube-controller-manager",
                Some("k_1"),
            ),
            lock(
                LockRole::Main(Component::Cloud),
                "cloud-controller-manager",
                Some("c_1"),
            ),
            lock(LockRole::Migration, LEADER, holder),
        ],
    }
}

/// The control plane after a write.
pub(super) fn take(mut snapshot: ChangeSnapshot, decision: &Decision) -> ChangeSnapshot {
    let Decision::Write(proposal) = decision else {
        panic!("not written: {decision:?}");
    };
    let object = apply_patch(&snapshot.json, proposal.write.fields()).expect("JSON");
    set_object(&mut snapshot, &decode(&object).expect("JSON"));
    snapshot
}

/// Sets the version of the first Machines.
pub(super) fn replace(mut snapshot: ChangeSnapshot, count: usize, version: &str) -> ChangeSnapshot {
    for machine in snapshot.observed.machines.iter_mut().take(count) {
        machine.spec.version = Some(version.to_owned());
    }
    snapshot
}

/// A cloud-controller-manager with Node IPAM.
pub(super) fn cloud(pod: &str, flags: &str) -> ObservedManager {
    let flags = format!("--allocate-node-cidrs=true --controllers=*,node-ipam-controller {flags}");
    let of_kube = kube(pod, &flags, LEADER);
    let settings = of_kube.settings.described.expect("known settings");
    let file = settings.configuration.is_some().then(|| configuration(LEADER));
    ObservedManager {
        component: Component::Cloud,
        settings: Settings {
            source: SettingsSource::Configz,
            described: Ok(served::manager(
                Component::Cloud,
                Some(36),
                settings.flags,
                file.as_deref(),
            )),
            unverified_reason: None,
        },
        ..of_kube
    }
}

/// Three kube-controller-managers without leader migration and Node IPAM.
pub(super) fn handed_over() -> Vec<ObservedManager> {
    let manager = |pod| ObservedManager {
        health: Health::Serves(["serviceaccount-token-controller".to_owned()].into()),
        ..kube(
            pod,
            "--allocate-node-cidrs=true --controllers=*,-node-ipam-controller",
            LEADER,
        )
    };
    ["k1", "k2", "k3"].map(manager).to_vec()
}
