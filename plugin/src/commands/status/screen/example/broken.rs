//! Unhealthy control planes, as Cluster API and etcd members report them.

use kcp_api::ConditionStatus::{False, Unknown};
use kcp_control_plane::{
    snapshot::{Failure, Reading, Snapshot, etcd::Alarms},
    testing::{
        objects::{condition, set},
        snapshot::failure,
    },
};

use crate::commands::status::screen::example::Example;

/// The member of `m2` crashes repeatedly, and Cluster API reports its pod.
pub(crate) fn member_dead() -> Example {
    Example::new(|observed| end_members(observed, &[2]))
}

pub(super) fn end_members(observed: &mut Snapshot, numbers: &[usize]) {
    for number in numbers {
        observed.kill(*number);
        let conditions = &mut observed.machine(*number).status.conditions;
        set(conditions, condition("EtcdPodHealthy", False, "CrashLoopBackOff"));
        set(
            conditions,
            condition("Ready", False, "* EtcdPodHealthy: CrashLoopBackOff"),
        );
        observed.control_plane().status.ready_replicas -= 1;
    }
    let names: Vec<String> = numbers.iter().map(|number| format!("m{number}")).collect();
    let message = format!(
        "* Machines {}:\n  * EtcdPodHealthy: CrashLoopBackOff",
        names.join(", ")
    );
    set(
        &mut observed.control_plane().status.conditions,
        condition("EtcdClusterHealthy", False, &message),
    );
}

/// The node of `m2` is unreachable.
pub(crate) fn node_dead() -> Example {
    Example::new(|observed| {
        let silence = failure("etcd member node-m2", "connecting: no response within 2.2 s");
        observed.survey().queried[1].response = Err(silence);
        let node = &mut observed.nodes()[1];
        node.ready = None;
        node.is_unreachable = true;
        for pod in observed.pods().iter_mut().filter(|pod| pod.node == "node-m2") {
            pod.ready = false;
        }
        let workload = observed.workload();
        for (add_on, ready) in [(&mut workload.kube_proxy, 3), (&mut workload.core_dns, 1)] {
            if let Reading::Read(Some(add_on)) = add_on {
                add_on.ready_pods = ready;
            }
        }
        let unreachable = "Node node-m2 is unreachable";
        let conditions = &mut observed.machine(2).status.conditions;
        for kind in ["APIServer", "ControllerManager", "Scheduler", "Etcd"] {
            let kind = format!("{kind}PodHealthy");
            set(conditions, condition(&kind, Unknown, unreachable));
        }
        set(
            conditions,
            condition(
                "Ready",
                Unknown,
                &format!("* Control plane components: {unreachable}"),
            ),
        );
        let control_plane = observed.control_plane();
        control_plane.status.ready_replicas = 2;
        for (kind, subject) in [
            ("ControlPlaneComponentsHealthy", "Control plane components"),
            ("EtcdClusterHealthy", "EtcdPodHealthy"),
        ] {
            let message = format!("* Machine m2:\n  * {subject}: {unreachable}");
            set(
                &mut control_plane.status.conditions,
                condition(kind, Unknown, &message),
            );
        }
    })
}

/// Two members have failed, and port-forward does not work.
pub(crate) fn quorum_lost() -> Example {
    Example::new(|observed| {
        end_members(observed, &[2, 3]);
        let message = "* 1 of 3 etcd members is healthy, at least 2 healthy member required for etcd quorum";
        set(
            &mut observed.control_plane().status.conditions,
            condition("Available", False, message),
        );
        let survey = observed.survey();
        survey.alarms = Alarms::FromStatus;
        for asked in &mut survey.queried {
            let silence = failure("etcd", "connecting: no response within 2.2 s");
            asked.response = Err(Failure {
                object: format!("etcd member {}", asked.name),
                ..silence
            });
        }
    })
}

/// Two members have failed, and the third one responds.
pub(crate) fn no_leader() -> Example {
    Example::new(|observed| {
        end_members(observed, &[2, 3]);
        observed.survey().alarms = Alarms::FromStatus;
        let status = observed.status(1);
        status.leader = None;
        status.errors = vec![
            "etcdserver: no leader".to_owned(),
            format!("memberID:{} alarm:NOSPACE ", status.member_id),
        ];
    })
}

/// The workload cluster is unreachable, so etcd is unreachable as well.
pub(crate) fn unreadable() -> Example {
    Example::new(|observed| {
        let failure = Failure {
            hint: Some(
                "check the address in the kubeconfig in Secret c1-kubeconfig, and whether this machine can \
                 reach it"
                    .to_owned(),
            ),
            ..failure(
                "Secret/c1-kubeconfig",
                "cannot reach the API server at https://10.0.0.1:6443: connection refused",
            )
        };
        observed.workload = Reading::Failed(failure.clone());
        observed.etcd = Reading::Failed(failure);
    })
}
