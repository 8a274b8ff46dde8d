//! What could not be read.

use crate::checks::tests::Case;
use crate::{
    checks::example::{failure, forbidden},
    snapshot::{Reading, etcd::Alarms},
};

pub(super) const CASES: &[Case] = &[
    ("management-readable", "health_checks", |o| {
        o.management.health_checks = Reading::Failed(failure("MachineHealthCheck", "no answer within 2s"));
    }),
    ("management-readable", "the_cluster", |o| {
        o.management.cluster = Reading::Failed(failure("Cluster/c1", "is not there"));
    }),
    ("management-readable", "infrastructure", |o| {
        o.management.unread = vec![failure("DockerMachine", "no answer within 2s")];
    }),
    ("management-readable", "machines", |o| {
        o.management.unread = vec![failure("Machine", "no answer within 2s")];
        o.facts().machines.clear();
    }),
    ("workload-reachable", "nowhere", |o| {
        let mut nowhere = failure("Secret/c1-kubeconfig", "cannot connect to 10.0.0.1:6443\nrefused");
        nowhere.hint = Some("can this machine reach it?".to_owned());
        o.workload = Reading::Failed(nowhere.clone());
        o.etcd = Reading::Failed(nowhere);
    }),
    ("workload-reachable", "nowhere_and_etcd_is_not_asked_for", |o| {
        o.workload = Reading::Failed(failure("Secret/c1-kubeconfig", "is not there"));
        o.etcd = Reading::Excluded { flag: "--no-etcd" };
    }),
    ("workload-reachable", "left_out", |o| {
        o.workload = Reading::Excluded {
            flag: "--no-workload",
        };
        o.etcd = Reading::Excluded {
            flag: "--no-workload",
        };
    }),
    ("workload-reachable", "a_part", |o| {
        o.workload().nodes = Reading::Failed(failure("Node", "the server answered 500"));
    }),
    ("workload-reachable", "static_pods", |o| {
        o.workload().static_pods = Reading::Failed(failure("Pod", "the answer has more than 8 MiB"));
    }),
    ("workload-reachable", "not_yet", |o| {
        o.workload = Reading::NotYet;
        o.etcd = Reading::NotYet;
    }),
    ("etcd-reachable", "wrong_ca", |o| {
        o.etcd = Reading::Failed(failure("Secret/c1-etcd", "tls.crt is no certificate"));
    }),
    ("etcd-reachable", "elsewhere", |o| {
        o.control_plane().external_etcd = true;
        o.facts().etcd = crate::plan::observed::Etcd::External;
        o.secrets().insert("c1-apiserver-etcd-client".to_owned());
        o.etcd = Reading::OutOfReach(failure("etcd", "no way to 10.1.0.1:2379"));
    }),
    ("etcd-reachable", "left_out", |o| {
        o.etcd = Reading::Excluded { flag: "--no-etcd" };
    }),
    ("permissions", "secrets", |o| {
        o.management.secrets = Reading::Failed(forbidden("Secret/c1-ca", "get", "secrets", false));
    }),
    ("permissions", "port_forward_of_every_member", |o| {
        for asked in &mut o.survey().asked {
            asked.answer = Err(forbidden(
                &format!("Pod/etcd-{}", asked.name),
                "create",
                "pods/portforward",
                true,
            ));
        }
        o.survey().alarms = Alarms::FromStatus;
    }),
    ("permissions", "cluster_wide", |o| {
        let mut nodes = forbidden("Node", "list", "nodes", true);
        if let Some(forbidden) = &mut nodes.forbidden {
            forbidden.namespace = None;
        }
        o.workload().nodes = Reading::Failed(nodes);
    }),
];
