//! Example control planes with the results of their checks, for tests of the output.
//!
//! - [`broken`]: unhealthy control planes

mod broken;

use broken::end_members;
pub(in crate::commands) use broken::{member_dead, no_leader, node_dead, quorum_lost, unreadable};
use kcp_api::{
    ConditionStatus::{False, True},
    metadata::Time,
    names::annotation,
};
use kcp_control_plane::{
    inspection::{Inspection, inspect},
    snapshot::{
        Failure, Reading, Snapshot, Workers,
        etcd::{Alarms, QueriedMember},
        workload::{Component, Node, StaticPod},
    },
    testing::{
        objects::{condition, minutes_ago, now, set, use_external_etcd},
        plan::worker,
        snapshot::{self, failure, in_days, member},
    },
};
use kcp_etcd::{Alarm, AlarmKind};

/// A control plane and the result of [`inspect`].
#[derive(Clone, Debug)]
pub(crate) struct Example {
    pub(crate) observed: Snapshot,
    pub(crate) inspection: Inspection,
}

impl Example {
    fn new(change: impl FnOnce(&mut Snapshot)) -> Self {
        let mut observed = snapshot::observed();
        for machine in &mut observed.machines {
            machine.status.certificates_expiry_date = Some(in_days(300));
        }
        change(&mut observed);
        Self::judged(observed)
    }

    fn judged(observed: Snapshot) -> Self {
        let inspection = inspect(&observed, now());
        Self { observed, inspection }
    }

    /// The same control plane with a change.
    pub(crate) fn after(&self, change: impl FnOnce(&mut Snapshot)) -> Self {
        let mut observed = self.observed.clone();
        change(&mut observed);
        Self::judged(observed)
    }
}

pub(crate) fn healthy() -> Example {
    Example::new(|_| {})
}

/// An upgrade in progress: `m4` was created, and its member is a learner.
pub(crate) fn mid_rollout() -> Example {
    const REASON: &str = "* Version v1.33.6, v1.34.1 required";
    Example::new(|observed| {
        for machine in &mut observed.machines {
            machine.spec.version = Some("v1.33.6".to_owned());
            set(
                &mut machine.status.conditions,
                condition("UpToDate", False, REASON),
            );
        }
        for node in observed.nodes() {
            node.kubelet_version = "v1.33.6".to_owned();
        }
        add_learner(observed);
        let control_plane = observed.control_plane();
        control_plane.status.replicas = 4;
        control_plane.status.up_to_date_replicas = 1;
        control_plane.status.version = Some("v1.33.6".to_owned());
        let rolling_out = format!("Rolling out 3 not up-to-date replicas\n{REASON}");
        set(
            &mut control_plane.status.conditions,
            condition("RollingOut", True, &rolling_out),
        );
    })
}

/// An upgrade of a managed topology over several minor versions, which waits for one of three groups of workers.
pub(crate) fn topology_upgrade() -> Example {
    Example::new(|observed| {
        observed.set_topology("v1.36.0");
        observed.set_worker("md-0", &[annotation::DEFER_UPGRADE]);
        observed.set_worker("md-1", &[]);
        observed.set_worker("md-2", &[]);
        let mut starting = worker("md-2", "v1.34.1");
        let machines = starting.machines.as_mut().expect("Machines");
        (machines.ready, machines.up_to_date) = (2, Some(1));
        observed.workers = Some(Box::new(Workers {
            workers: vec![worker("md-0", "v1.31.2"), worker("md-1", "v1.33.6"), starting],
            read_failures: vec!["could not read MachinePools: forbidden for user \"jo\"".to_owned()],
        }));
        let cluster = observed.cluster_mut();
        let topology = cluster.spec.topology.as_mut().expect("a topology");
        "edge-class".clone_into(&mut topology.class);
        let annotations = [
            (annotation::TOPOLOGY_UPGRADE_STEP, "v1.34.1"),
            (annotation::PENDING_HOOKS, "AfterClusterUpgrade"),
        ];
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
        cluster.metadata.annotations = Some(annotations.into());
        cluster.status.control_plane_upgrades = vec!["v1.35.2".to_owned(), "v1.36.0".to_owned()];
        cluster.status.worker_upgrades = vec!["v1.34.1".to_owned(), "v1.36.0".to_owned()];
        let mut reconciled = condition(
            "TopologyReconciled",
            False,
            "Cluster is upgrading to v1.36.0\n  * Following hooks are blocking upgrade: AfterWorkersUpgrade: 2 jobs left",
        );
        "ClusterUpgrading".clone_into(&mut reconciled.reason);
        cluster.status.topology_reconciled = Some(reconciled);
    })
}

fn add_learner(observed: &mut Snapshot) {
    let waiting = "Waiting for learner etcd member to be promoted";
    let mut new = kcp_control_plane::testing::plan::machine("m4", "a", 0);
    new.metadata.creation_timestamp = Some(Time(minutes_ago(1)));
    new.status.certificates_expiry_date = Some(in_days(365));
    let conditions = &mut new.status.conditions;
    conditions.retain(|condition| condition.type_ != "NodeKubeadmLabelsAndTaintsSet");
    set(conditions, condition("EtcdMemberHealthy", False, waiting));
    set(
        conditions,
        condition("Ready", False, &format!("* EtcdMemberHealthy: {waiting}")),
    );
    observed.machines.push(new);
    observed.health_checks()[0].targets.insert("m4".to_owned());
    observed.nodes().push(Node {
        name: "node-m4".to_owned(),
        kubelet_version: "v1.34.1".to_owned(),
        ready: Some(true),
        ..Node::default()
    });
    let pods = Component::ALL.map(|component| StaticPod {
        component,
        node: "node-m4".to_owned(),
        phase: "Running".to_owned(),
        ready: component != Component::ApiServer,
        ready_since: None,
        is_deleting: false,
        message: None,
        restarts: 0,
        last_exit: None,
        crash_loop: None,
        forces_new_cluster: false,
    });
    observed.pods().extend(pods);
    observed.each_list(|list| {
        let mut learner = member(4, "node-m4");
        learner.is_learner = true;
        list.members.push(learner);
    });
    let mut answer = observed.answer(1).clone();
    answer.members = Err(failure("etcd member node-m4", "rpc not supported for learner"));
    if let Ok(status) = &mut answer.status {
        status.member_id = 4;
        status.is_learner = true;
    }
    observed.survey().queried.push(QueriedMember {
        name: "node-m4".to_owned(),
        machine: Some("m4".to_owned()),
        response: Ok(answer),
        certificate_expired_at: None,
    });
}

/// One Machine without a failure domain, whose certificates expire soon.
pub(crate) fn single() -> Example {
    Example::new(|observed| {
        observed.machines.truncate(1);
        observed.control_plane.spec.replicas = Some(1);
        let machine = observed.machine(1);
        machine.status.certificates_expiry_date = Some(in_days(12));
        machine.spec.failure_domain = None;
        observed.nodes().truncate(1);
        observed.pods().retain(|pod| pod.node == "node-m1");
        observed.health_checks().clear();
        observed.survey().queried.truncate(1);
        let answer = observed.answer(1);
        answer.certificate_expires_at = Some(in_days(12));
        observed.list(1).members.truncate(1);
        observed.endpoint_certificate().expires_at = in_days(12);
        let workload = observed.workload();
        if let Reading::Read(Some(kube_proxy)) = &mut workload.kube_proxy {
            (kube_proxy.desired_pods, kube_proxy.ready_pods) = (1, 1);
        }
        let control_plane = observed.control_plane();
        control_plane.spec.replicas = Some(1);
        control_plane.status.replicas = 1;
        control_plane.status.ready_replicas = 1;
        control_plane.status.available_replicas = 1;
        control_plane.status.up_to_date_replicas = 1;
    })
}

/// External etcd, queried without the CA key; the third member's database is full.
pub(crate) fn external_etcd() -> Example {
    Example::new(|observed| {
        use_external_etcd(&mut observed.control_plane().spec);
        observed.secrets().insert("c1-apiserver-etcd-client".to_owned());
        observed.pods().retain(|pod| pod.component != Component::Etcd);
        let conditions = &mut observed.control_plane().status.conditions;
        conditions.retain(|condition| condition.type_ != "EtcdClusterHealthy");
        for machine in &mut observed.machines {
            let conditions = &mut machine.status.conditions;
            conditions.retain(|condition| !condition.type_.starts_with("Etcd"));
        }
        observed.each_list(|list| {
            for member in &mut list.members {
                member.client_urls = vec![format!("https://10.0.1.{}:2379", member.id)];
            }
        });
        let survey = observed.survey();
        survey.stacked = false;
        survey.used_ca_key = false;
        survey.alarms = Alarms::Listed(vec![Alarm {
            member_id: 3,
            kind: AlarmKind::NoSpace,
        }]);
        for (number, asked) in (1..).zip(&mut survey.queried) {
            asked.name = format!("10.0.1.{number}:2379");
            asked.machine = None;
        }
        observed.answer(1).has_matching_name = false;
        let full = observed.status(3);
        full.db_size = full.db_size_quota.unwrap_or_default();
        full.db_size_in_use = full.db_size;
    })
}

pub(crate) fn no_etcd() -> Example {
    Example::new(|observed| observed.etcd = Reading::Excluded { flag: "--no-etcd" })
}

/// Renames a Machine and its node everywhere.
fn rename(observed: &mut Snapshot, number: usize, machine: &str, node: &str) {
    let (old_machine, old_node) = (format!("m{number}"), format!("node-m{number}"));
    let answers = observed
        .survey()
        .queried
        .iter_mut()
        .filter_map(|asked| asked.response.as_mut().ok());
    for list in answers.filter_map(|answer| answer.members.as_mut().ok()) {
        for member in list.members.iter_mut().filter(|member| member.name == old_node) {
            node.clone_into(&mut member.name);
        }
    }
    let asked = &mut observed.survey().queried[number - 1];
    node.clone_into(&mut asked.name);
    asked.machine = Some(machine.to_owned());
    node.clone_into(&mut observed.nodes()[number - 1].name);
    for pod in observed.pods().iter_mut().filter(|pod| pod.node == old_node) {
        node.clone_into(&mut pod.node);
    }
    for check in observed.health_checks() {
        if check.targets.remove(&old_machine) {
            check.targets.insert(machine.to_owned());
        }
    }
    let own = observed.machine(number);
    own.metadata.name = Some(machine.to_owned());
    own.status.node_name = Some(node.to_owned());
}

/// Names and messages with control characters.
pub(crate) fn control_characters() -> Example {
    const EVIL: &str = "edge\u{1b}[2J\u{7}\r\nok";
    Example::new(|observed| {
        rename(observed, 1, EVIL, EVIL);
        let machine = observed.machine(1);
        machine.spec.failure_domain = Some("\u{202e}zone".to_owned());
        machine.spec.version = Some("v1\u{9b}31m".to_owned());
        set(&mut machine.status.conditions, condition("UpToDate", False, EVIL));
        observed.control_plane().metadata.name = Some(EVIL.to_owned());
        EVIL.clone_into(&mut observed.reference().name);
        EVIL.clone_into(&mut observed.workload().server);
        EVIL.clone_into(&mut observed.endpoint_certificate().server);
        let failure = Failure {
            hint: Some(EVIL.to_owned()),
            ..failure(EVIL, "\u{1b}]0;owned\u{7}")
        };
        observed.survey().queried[0].response = Err(failure.clone());
        observed.workload().kube_proxy = Reading::Failed(failure.clone());
        observed.workload().leases = Reading::Failed(failure);
    })
}

/// Long names, as installers generate them.
pub(crate) fn long_names() -> Example {
    let name = |suffix: &str| format!("production-eu-central-1-payments-control-plane-{suffix}");
    Example::new(|observed| {
        end_members(observed, &[2]);
        for (number, suffix) in [(1, "x7k2p"), (2, "qq4d"), (3, "m9v6zz")] {
            let node = format!("ip-10-0-12-{number}.eu-central-1.compute.internal");
            rename(observed, number, &name(suffix), &node);
            let domain = ["a", "b", "c"][number - 1];
            let machine = observed.machine(number);
            machine.spec.failure_domain = Some(format!("eu-central-1{domain}"));
        }
        let control_plane = observed.control_plane();
        control_plane.metadata.name = Some(name("kcp"));
        control_plane.metadata.namespace = Some("payments-production-eu-central-1".to_owned());
        observed.reference().name = name("kcp");
    })
}

pub(crate) fn all() -> Vec<(&'static str, Example)> {
    vec![
        ("healthy", healthy()),
        ("mid_rollout", mid_rollout()),
        ("topology_upgrade", topology_upgrade()),
        ("member_dead", member_dead()),
        ("node_dead", node_dead()),
        ("quorum_lost", quorum_lost()),
        ("no_leader", no_leader()),
        ("unreadable", unreadable()),
        ("external_etcd", external_etcd()),
        ("no_etcd", no_etcd()),
        ("control_characters", control_characters()),
        ("single", single()),
        ("long_names", long_names()),
    ]
}
