//! Control planes for tests of plans.

use jiff::{SignedDuration, Timestamp};
use kcp_api::{
    Cluster, KubeadmConfigSpec, KubeadmControlPlane, KubeadmControlPlaneSpec, Machine, Reference,
    cluster::{
        ClusterSpec, ClusterStatus, Endpoint, FailureDomain, Topology, TopologyMetadata, TopologyWorker,
    },
    machine::{Bootstrap, Infrastructure},
    metadata::{ObjectMeta, Time},
};
use serde_json::json;

use crate::{
    controller_release::Release,
    plan::state::{Deletion, Fault, HealthCheck, PlanState, Replica},
    quorum::Member,
    snapshot::{
        Reading, Snapshot,
        workers::{Worker, WorkerMachines},
    },
    testing::objects,
};

/// Parses the names of failure domains, separated by spaces.
pub fn declared(names: &str) -> Vec<String> {
    names.split_whitespace().map(str::to_owned).collect()
}

/// Parses Machines, separated by spaces, the oldest first: `name@domain` and marks. The marks: `!` outdated, `d` marked
/// for deletion, `x` being deleted, `p` without a node, `f` a failed component, `u` a component whose health is
/// unknown, `e` a failed etcd member, `l` a learner, `s` an etcd member that does not respond, `i` may be updated in
/// place, `r` awaits remediation, `R` awaits remediation and has the annotation.
///
/// Names are a letter and a digit, domains a letter.
pub fn replicas(machines: &str) -> Vec<Replica> {
    machines
        .split_whitespace()
        .enumerate()
        .map(|(index, text)| replica(index, text))
        .collect()
}

fn replica(index: usize, text: &str) -> Replica {
    let (name, rest) = text.split_at(2);
    let (failure_domain, marks) = match rest.strip_prefix('@') {
        Some(rest) => (Some(rest[..1].to_owned()), &rest[1..]),
        None => (None, rest),
    };
    let has = |mark| marks.contains(mark);
    let age = SignedDuration::from_hours(i64::try_from(index).expect("a small number"));
    let faults = [
        ("EtcdMemberHealthy", has('e') || has('l') || has('p'), !has('p')),
        ("SchedulerPodHealthy", has('f') || has('u') || has('p'), has('f')),
    ];
    Replica {
        name: name.to_owned(),
        is_new: false,
        created: Some(Timestamp::UNIX_EPOCH + age),
        failure_domain,
        node: (!has('p')).then(|| format!("node-{name}")),
        member: (!has('p')).then(|| format!("node-{name}")),
        is_outdated: has('!'),
        deletion: match (has('x'), has('d')) {
            (true, _) => Deletion::InProgress(Timestamp::UNIX_EPOCH + age),
            (false, true) => Deletion::Marked,
            (false, false) => Deletion::Unmarked,
        },
        is_updating: false,
        may_update_in_place: has('i'),
        has_unhealthy_member: has('s'),
        health: match (has('R'), has('r')) {
            (true, _) => HealthCheck::AwaitsRemediationFirst,
            (false, true) => HealthCheck::AwaitsRemediation,
            (false, false) => HealthCheck::Passed,
        },
        remediation_for: None,
        faults: faults
            .into_iter()
            .filter(|(_, holds_not, _)| *holds_not)
            .map(|(condition, _, is_false)| Fault { condition, is_false })
            .collect(),
    }
}

/// A control plane with these Machines and a stacked etcd.
pub fn state(machines: &str) -> PlanState {
    let learners: Vec<&str> = machines
        .split_whitespace()
        .filter(|text| text.contains('l'))
        .map(|text| &text[..2])
        .collect();
    let replicas = replicas(machines);
    let members = replicas.iter().filter_map(|replica| {
        Some(Member {
            name: replica.node.clone()?,
            is_learner: learners.contains(&replica.name.as_str()),
            is_healthy: !replica.has_fault("EtcdMemberHealthy") && !replica.has_unhealthy_member,
            is_dead: replica.has_unhealthy_member,
            machine: Some(replica.name.clone()),
            ..Member::default()
        })
    });
    PlanState {
        release: Release::LATEST,
        newest_node: None,
        unread_by_controller: None,
        members: Some(members.collect()),
        replicas,
        unreachable_leader: None,
        has_remediation_in_progress: false,
        has_malformed_remediation: false,
        waited_until: None,
        created_count: 0,
    }
}

/// A spec with three Machines.
pub fn spec() -> KubeadmControlPlaneSpec {
    KubeadmControlPlaneSpec {
        replicas: Some(3),
        version: Some("v1.34.1".to_owned()),
        infrastructure_ref: template("t1"),
        kubeadm_config_spec: config(json!({"joinConfiguration": {"nodeRegistration": {"name": "n"}}})),
        ..KubeadmControlPlaneSpec::default()
    }
}

/// The spec with another number of Machines.
pub fn with_replicas(spec: KubeadmControlPlaneSpec, replicas: usize) -> KubeadmControlPlaneSpec {
    let replicas = Some(i64::try_from(replicas).expect("a small number"));
    KubeadmControlPlaneSpec { replicas, ..spec }
}

/// The spec with another Kubernetes version.
pub fn with_version(spec: KubeadmControlPlaneSpec, version: &str) -> KubeadmControlPlaneSpec {
    let version = Some(version.to_owned());
    KubeadmControlPlaneSpec { version, ..spec }
}

/// The spec with a rollout at `now`, which replaces every older Machine.
pub fn restarted(spec: KubeadmControlPlaneSpec, now: Timestamp) -> KubeadmControlPlaneSpec {
    KubeadmControlPlaneSpec {
        rollout_after: Some(now),
        ..spec
    }
}

/// A template from which infrastructure Machines are cloned.
pub fn template(name: &str) -> Reference {
    Reference {
        group: "infrastructure.cluster.x-k8s.io".to_owned(),
        kind: "DockerMachineTemplate".to_owned(),
        name: name.to_owned(),
    }
}

/// A bootstrap configuration.
pub fn config(fields: serde_json::Value) -> KubeadmConfigSpec {
    KubeadmConfigSpec {
        version: "v1beta2".to_owned(),
        fields,
    }
}

/// A Machine that matches the spec and is this number of hours old.
pub fn machine(name: &str, failure_domain: &str, hours: i64) -> Machine {
    let mut machine = objects::machine(name);
    machine.metadata.creation_timestamp = Some(Time(objects::minutes_ago(hours * 60)));
    machine.spec.failure_domain = Some(failure_domain.to_owned());
    machine.infrastructure = Infrastructure::ClonedFrom(template("t1"));
    machine.bootstrap = Bootstrap::Config(config(json!({
        "clusterConfiguration": {"featureGates": {"ControlPlaneKubeletLocalMode": true}},
        "joinConfiguration": {"controlPlane": {}, "nodeRegistration": {"name": "n"}},
    })));
    machine
}

/// A ready Cluster with failure domains of these names.
pub fn cluster(failure_domains: &str) -> Cluster {
    let domains = declared(failure_domains).into_iter().map(|name| FailureDomain {
        name,
        control_plane: true,
    });
    Cluster {
        metadata: ObjectMeta {
            name: Some("c1".to_owned()),
            namespace: Some("d".to_owned()),
            ..ObjectMeta::default()
        },
        spec: ClusterSpec {
            control_plane_ref: Some(Reference {
                group: "controlplane.cluster.x-k8s.io".to_owned(),
                kind: "KubeadmControlPlane".to_owned(),
                name: "c1-cp".to_owned(),
            }),
            control_plane_endpoint: Some(Endpoint {
                host: "10.0.0.1".to_owned(),
                port: 6443,
            }),
            ..ClusterSpec::default()
        },
        status: ClusterStatus {
            failure_domains: domains.collect(),
            infrastructure_provisioned: true,
            initialized_since: Some(objects::minutes_ago(120)),
            infrastructure_ready_since: Some(objects::minutes_ago(120)),
            ..ClusterStatus::default()
        },
    }
}

/// Access to the parts that tests change.
impl Snapshot {
    pub fn cluster_mut(&mut self) -> &mut Cluster {
        match &mut self.cluster {
            Reading::Read(cluster) => cluster,
            _ => panic!("not read"),
        }
    }

    /// Gives the Cluster a managed topology with this version.
    pub fn set_topology(&mut self, version: &str) {
        self.cluster_mut().spec.topology = Some(Topology {
            version: Some(version.to_owned()),
            ..Topology::default()
        });
    }

    /// Appends a `MachineDeployment` with these annotations to the topology.
    pub fn set_worker(&mut self, name: &str, annotations: &[&str]) {
        let topology = self.cluster_mut().spec.topology.as_mut().expect("a topology");
        let annotations = annotations.iter();
        let annotations = annotations.map(|key| ((*key).to_owned(), String::new()));
        topology.workers.machine_deployments.push(TopologyWorker {
            name: name.to_owned(),
            metadata: TopologyMetadata {
                annotations: annotations.collect(),
            },
        });
    }

    /// Gives the Cluster failure domains of these names.
    pub fn set_failure_domains(&mut self, names: &str) {
        self.cluster_mut().status = cluster(names).status;
    }
}

/// A `MachineDeployment` of a topology with three Machines, and its name in the topology.
pub fn worker(name: &str, version: &str) -> Worker {
    Worker {
        object: format!("MachineDeployment/c1-{name}"),
        version: version.to_owned(),
        machines: Some(WorkerMachines {
            topology_name: Some(name.to_owned()),
            desired: Some(3),
            ready: 3,
            up_to_date: Some(3),
        }),
    }
}

/// Three healthy Machines, one in each of three failure domains, and no change to make.
pub fn observed() -> Snapshot {
    Snapshot {
        cluster: Reading::Read(cluster("a b c")),
        templates: [(template("t1"), Reading::Read(true))].into(),
        has_kubeconfig: Some(true),
        machines: vec![
            machine("m1", "a", 5),
            machine("m2", "b", 4),
            machine("m3", "c", 3),
        ],
        ..Snapshot::from(KubeadmControlPlane {
            spec: spec(),
            ..objects::healthy(3).control_plane
        })
    }
}
