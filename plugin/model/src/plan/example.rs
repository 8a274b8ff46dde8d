//! Control planes to plan with.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::control_plane::{self, example};
use crate::{
    plan::{
        observed::{Bootstrap, Cluster, Etcd, Infrastructure, Machine, Observed},
        spec::{ConfigSpec, RemediationLimits, Spec, TemplateRef},
        state::{Deletion, Fault, HealthCheck, Replica, State},
    },
    quorum::Member,
};

/// Names of failure domains, apart by blanks.
pub fn declared(names: &str) -> Vec<String> {
    names.split_whitespace().map(str::to_owned).collect()
}

/// Machines, apart by blanks, the oldest first: `name@domain` and marks. The marks: `!` outdated, `d` to be deleted,
/// `x` being deleted, `p` without a node, `f` a component failed, `u` one unknown, `e` its member failed, `l` its member
/// a learner, `s` its member silent, `r` awaits remediation, `R` is marked for it besides.
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
        is_outdated: has('!'),
        deletion: match (has('x'), has('d')) {
            (true, _) => Deletion::UnderWay(Timestamp::UNIX_EPOCH + age),
            (false, true) => Deletion::Marked,
            (false, false) => Deletion::Unasked,
        },
        is_updating: false,
        is_silent: has('s'),
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

/// A control plane of such Machines, etcd on them.
pub fn state(machines: &str) -> State {
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
            is_healthy: !replica.has_fault("EtcdMemberHealthy") && !replica.is_silent,
            machine: Some(replica.name.clone()),
        })
    });
    State {
        members: Some(members.collect()),
        replicas,
        remediation_in_progress: false,
        made: 0,
    }
}

/// A spec of three Machines.
pub fn spec() -> Spec {
    Spec {
        replicas: 3,
        version: "v1.34.1".to_owned(),
        max_surge: 1,
        rollout_after: None,
        certificates_expiry_days: None,
        infrastructure: template("t1"),
        config: config(json!({"joinConfiguration": {"nodeRegistration": {"name": "n"}}})),
        remediation: RemediationLimits::default(),
    }
}

impl Spec {
    /// The spec with another number of Machines.
    pub fn with_replicas(self, replicas: usize) -> Self {
        Self { replicas, ..self }
    }

    /// The spec with another Kubernetes version.
    pub fn with_version(self, version: &str) -> Self {
        let version = version.to_owned();
        Self { version, ..self }
    }

    /// The spec with every Machine of before `now` to be replaced.
    pub fn restarted(self, now: Timestamp) -> Self {
        Self {
            rollout_after: Some(now),
            ..self
        }
    }
}

/// A template that infrastructure Machines are cloned from.
pub fn template(name: &str) -> TemplateRef {
    TemplateRef {
        group_kind: "DockerMachineTemplate.infrastructure.cluster.x-k8s.io".to_owned(),
        name: name.to_owned(),
    }
}

/// A bootstrap configuration.
pub fn config(fields: serde_json::Value) -> ConfigSpec {
    ConfigSpec {
        version: "v1beta2".to_owned(),
        fields,
    }
}

/// A Machine that is as the spec asks, so many hours old.
pub fn machine(name: &str, failure_domain: &str, hours: i64) -> Machine {
    Machine {
        machine: control_plane::Machine {
            created: Some(example::minutes_ago(hours * 60)),
            failure_domain: Some(failure_domain.to_owned()),
            ..example::machine(name)
        },
        infrastructure: Infrastructure::ClonedFrom(template("t1")),
        bootstrap: Bootstrap::Config(config(json!({
            "clusterConfiguration": {"featureGates": {"ControlPlaneKubeletLocalMode": true}},
            "joinConfiguration": {"controlPlane": {}, "nodeRegistration": {"name": "n"}},
        }))),
        ..Machine::default()
    }
}

/// Three Machines, one in each of three failure domains, with nothing wrong and nothing to do.
pub fn observed() -> Observed {
    Observed {
        control_plane: example::healthy(3).control_plane,
        spec: spec(),
        remediation_in_progress: None,
        cluster: Cluster {
            failure_domains: declared("a b c"),
            infrastructure_ready: true,
            has_endpoint: true,
            has_kubeconfig: Some(true),
            ..Cluster::default()
        },
        machines: vec![
            machine("m1", "a", 5),
            machine("m2", "b", 4),
            machine("m3", "c", 3),
        ],
        etcd: Etcd::Unread,
    }
}
