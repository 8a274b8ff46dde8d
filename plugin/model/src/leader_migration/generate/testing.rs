//! Control planes and the reports of their controller managers, for the tests of the steps.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kcp_api::Machine;
use kcp_rules::leader_migration::{Component, Flags, Lock};
use serde_json::{Value, json};

use super::{Facts, Generated};
use crate::{
    leader_migration::{
        Health, LockRole, ObservedLease, ObservedLock, ObservedManager, ObservedManagers, Settings,
        SettingsSource, served,
    },
    testing::{change, objects::now},
};

pub(super) const LEADER: &str = "m";

/// A control plane and its three Machines.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) control_plane: Value,
    pub(super) machines: Vec<Machine>,
}

impl Scene {
    /// A control plane whose Machines have the same version.
    pub(super) fn at(version: &str) -> Self {
        let snapshot = change::snapshot();
        let mut control_plane: Value = serde_json::from_str(&snapshot.json).expect("JSON");
        control_plane["spec"]["version"] = json!(version);
        let scene = Self {
            control_plane,
            machines: snapshot.observed.machines,
        };
        scene.replaced(3, version)
    }

    /// The first Machines have this version.
    pub(super) fn replaced(mut self, count: usize, version: &str) -> Self {
        for machine in self.machines.iter_mut().take(count) {
            machine.spec.version = Some(version.to_owned());
        }
        self
    }

    pub(super) fn facts<'s>(&'s self, observed: &'s ObservedManagers) -> Facts<'s> {
        Facts {
            control_plane: &self.control_plane,
            machines: &self.machines,
            observed,
        }
    }

    /// The control plane after a patch.
    pub(super) fn patched(mut self, generated: &Generated) -> Self {
        let patch: json_patch::Patch =
            serde_json::from_value(generated.patch.clone().into()).expect("a JSON patch");
        json_patch::patch(&mut self.control_plane, &patch).expect("it applies");
        self
    }
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
    let flags = format!("--allocate-node-cidrs=true {flags}");
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

/// Three kube-controller-managers that migrate, of which the first one leads.
pub(super) fn three() -> Vec<ObservedManager> {
    vec![migrating("k1"), waiting("k2"), waiting("k3")]
}

/// A kube-controller-manager that migrates, and waits for its main lock.
pub(super) fn waiting(pod: &str) -> ObservedManager {
    ObservedManager {
        health: Health::Serves(BTreeSet::new()),
        ..migrating(pod)
    }
}

/// The main Leases, held by `k_1` and, if a cloud-controller-manager runs, by `c_1`, and the migration Lease with this holder.
pub(super) fn observed(managers: Vec<ObservedManager>, holder: Option<&str>) -> ObservedManagers {
    let time: Timestamp = now();
    let is_cloud = |manager: &ObservedManager| manager.component == Component::Cloud;
    let cloud_holder = managers.iter().any(is_cloud).then_some("c_1");
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
                cloud_holder,
            ),
            lock(LockRole::Migration, LEADER, holder),
        ],
    }
}

/// A cloud-controller-manager with Node IPAM.
pub(super) fn cloud(pod: &str, flags: &str) -> ObservedManager {
    let flags = format!("--controllers=*,node-ipam-controller {flags}");
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
        ..kube(pod, "--controllers=*,-node-ipam-controller", LEADER)
    };
    ["k1", "k2", "k3"].map(manager).to_vec()
}
