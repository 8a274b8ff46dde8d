//! The workload cluster.

use crate::checks::tests::{
    Case,
    object::{joins_unnamed, starts},
};
use crate::{
    control_plane::{
        ConditionStatus::{False, Unknown},
        example::{condition, minutes_ago, set},
    },
    snapshot::{
        Observed, Reading,
        workload::{Component, Node},
    },
};

fn leave_out(observed: &mut Observed) {
    observed.workload = Reading::Excluded {
        flag: "--no-workload",
    };
    observed.endpoint_certificate = Reading::Excluded {
        flag: "--no-workload",
    };
    observed.etcd = Reading::Excluded {
        flag: "--no-workload",
    };
}

fn not_ready(observed: &mut Observed, component: Component) {
    let pod = observed.pod(component, 2);
    pod.ready = false;
    pod.message = Some("CrashLoopBackOff: back-off 5m0s".to_owned());
}

fn worker(observed: &mut Observed, kubelet: &str) {
    observed.nodes()[3].kubelet_version = kubelet.to_owned();
}

fn lacks_kube_proxies(observed: &mut Observed, number: i64) {
    if let Reading::Read(Some(add_on)) = &mut observed.workload().kube_proxy {
        add_on.ready -= number;
    }
}

pub(super) const CASES: &[Case] = &[
    ("api-servers-match", "machine_without_pod", |o| {
        o.pods()
            .retain(|pod| pod.component != Component::ApiServer || pod.node != "node-m2");
    }),
    ("api-servers-match", "pod_without_machine", |o| {
        let mut pod = o.pods()[0].clone();
        pod.node = "node-m9".to_owned();
        o.pods().push(pod);
        let node = o.nodes()[0].clone();
        o.nodes().push(Node {
            name: "node-m9".to_owned(),
            ..node
        });
    }),
    ("api-servers-match", "pod_that_its_node_has_left", |o| {
        let mut pod = o.pods()[0].clone();
        pod.node = "node-m9".to_owned();
        pod.ready = false;
        o.pods().push(pod);
    }),
    ("api-servers-match", "pod_of_a_machine_that_starts", |o| {
        let (pod, node) = (o.pod(Component::ApiServer, 3).clone(), o.nodes()[2].clone());
        starts(o);
        o.pods().push(pod);
        o.nodes().push(node);
    }),
    ("api-servers-ready", "not_ready", |o| {
        not_ready(o, Component::ApiServer);
    }),
    ("api-servers-ready", "by_the_condition", |o| {
        leave_out(o);
        let failed = condition("APIServerPodHealthy", False, "readiness probe failed");
        set(&mut o.machine(2).machine.conditions, failed);
    }),
    ("controller-managers-ready", "not_ready", |o| {
        not_ready(o, Component::ControllerManager);
    }),
    ("schedulers-ready", "not_ready", |o| {
        not_ready(o, Component::Scheduler);
    }),
    ("schedulers-ready", "absent", |o| {
        o.pods()
            .retain(|pod| pod.component != Component::Scheduler || pod.node != "node-m2");
    }),
    ("schedulers-ready", "of_a_machine_that_leaves", |o| {
        not_ready(o, Component::Scheduler);
        o.machine(2).machine.deleting_since = Some(minutes_ago(1));
    }),
    ("schedulers-ready", "of_a_machine_that_has_just_joined", |o| {
        not_ready(o, Component::Scheduler);
        o.machine(2).machine.created = Some(minutes_ago(3));
        o.machine(2)
            .machine
            .conditions
            .retain(|other| !matches!(other.kind.as_str(), "Ready" | "NodeKubeadmLabelsAndTaintsSet"));
    }),
    (
        "schedulers-ready",
        "of_a_machine_that_has_yet_to_name_its_node",
        |o| {
            joins_unnamed(o);
            o.pod(Component::Scheduler, 3).ready = false;
        },
    ),
    ("schedulers-ready", "of_a_node_that_is_no_machine_s", |o| {
        let (mut pod, node) = (o.pod(Component::Scheduler, 3).clone(), o.nodes()[2].clone());
        pod.node = "node-m9".to_owned();
        pod.ready = false;
        o.pods().push(pod);
        o.nodes().push(Node {
            name: "node-m9".to_owned(),
            ..node
        });
    }),
    ("schedulers-ready", "by_a_condition_that_is_unknown", |o| {
        leave_out(o);
        let unknown = condition("SchedulerPodHealthy", Unknown, "no connection");
        set(&mut o.machine(2).machine.conditions, unknown);
    }),
    (
        "schedulers-ready",
        "by_the_condition_where_pods_were_not_read",
        |o| {
            o.workload().static_pods = Reading::Failed(crate::checks::example::failure("Pod", "no answer"));
            let failed = condition("SchedulerPodHealthy", False, "crashed");
            set(&mut o.machine(2).machine.conditions, failed);
        },
    ),
    ("etcd-pods-ready", "elsewhere", |o| {
        o.control_plane().external_etcd = true;
        o.secrets().insert("c1-apiserver-etcd-client".to_owned());
        o.facts().etcd = crate::plan::observed::Etcd::External;
        o.survey().stacked = false;
        o.pods().retain(|pod| pod.component != Component::Etcd);
    }),
    ("nodes-ready", "not_ready", |o| o.nodes()[1].ready = Some(false)),
    ("nodes-ready", "does_not_say", |o| o.nodes()[1].ready = None),
    ("nodes-ready", "unreachable", |o| {
        o.nodes()[1].ready = None;
        o.nodes()[1].is_unreachable = true;
    }),
    ("nodes-ready", "gone", |o| {
        o.nodes().remove(1);
    }),
    ("nodes-ready", "of_a_worker", |o| o.nodes()[3].ready = Some(false)),
    ("node-labels-and-taints", "neither", |o| {
        o.nodes()[1] = Node {
            has_control_plane_label: false,
            has_control_plane_taint: false,
            ..o.nodes()[1].clone()
        };
    }),
    ("node-labels-and-taints", "no_label", |o| {
        o.nodes()[1].has_control_plane_label = false;
    }),
    ("node-labels-and-taints", "no_taint", |o| {
        o.nodes()[1].has_control_plane_taint = false;
    }),
    ("node-labels-and-taints", "no_taint_is_asked_for", |o| {
        o.nodes()[1].has_control_plane_taint = false;
        o.facts().spec.config.fields["joinConfiguration"]["nodeRegistration"]["taints"] =
            serde_json::json!([]);
        for number in 1..=3 {
            o.machine(number).bootstrap = crate::plan::observed::Bootstrap::Missing;
        }
    }),
    ("node-labels-and-taints", "by_the_condition", |o| {
        leave_out(o);
        let failed = condition("NodeKubeadmLabelsAndTaintsSet", False, "the taint is missing");
        set(&mut o.machine(2).machine.conditions, failed);
    }),
    ("controller-leases", "over", |o| {
        if let Reading::Read(leases) = &mut o.workload().leases {
            leases[0].renewed = Some(minutes_ago(3));
            leases[1].renewed = Some(minutes_ago(3));
            leases[1].holder = Some(String::new());
        }
    }),
    ("controller-leases", "released_by_one_that_stops", |o| {
        if let Reading::Read(leases) = &mut o.workload().leases {
            leases[0].renewed = Some(minutes_ago(2));
            leases[0].holder = Some(String::new());
            leases[1].renewed = None;
            leases[1].holder = None;
        }
    }),
    ("controller-leases", "none", |o| {
        o.workload().leases = Reading::Read(vec![]);
    }),
    ("kube-proxy-ready", "some", |o| lacks_kube_proxies(o, 1)),
    ("kube-proxy-ready", "some_while_a_machine_starts", |o| {
        starts(o);
        lacks_kube_proxies(o, 1);
    }),
    ("kube-proxy-ready", "but_on_a_worker_that_is_not_ready", |o| {
        o.nodes()[3].ready = Some(false);
        lacks_kube_proxies(o, 1);
    }),
    ("kube-proxy-ready", "but_on_a_worker_that_has_just_joined", |o| {
        o.nodes()[3].created = Some(minutes_ago(1));
        lacks_kube_proxies(o, 1);
    }),
    ("kube-proxy-ready", "on_fewer_nodes_than_are_settled", |o| {
        o.nodes()[3].ready = Some(false);
        lacks_kube_proxies(o, 2);
    }),
    ("kube-proxy-ready", "none_there", |o| {
        o.workload().kube_proxy = Reading::Read(None);
    }),
    ("coredns-ready", "none", |o| {
        if let Reading::Read(Some(add_on)) = &mut o.workload().core_dns {
            add_on.ready = 0;
        }
    }),
    ("kubeadm-config-version", "another", |o| {
        o.workload().kubeadm_version = Reading::Read(Some("v1.33.6".to_owned()));
    }),
    (
        "kubeadm-config-version",
        "before_the_first_machine_of_a_rollout",
        |o| {
            o.workload().kubeadm_version = Reading::Read(Some("v1.33.6".to_owned()));
            o.machine(1).machine.version = Some("v1.33.6".to_owned());
        },
    ),
    ("kubeadm-config-version", "a_vendor_s_build", |o| {
        o.workload().kubeadm_version = Reading::Read(Some("v1.34.1+vendor.1".to_owned()));
    }),
    ("kubeadm-config-version", "not_named", |o| {
        o.workload().kubeadm_version = Reading::Read(None);
    }),
    ("kubelet-skew", "newer", |o| worker(o, "v1.35.0")),
    ("kubelet-skew", "at_the_limit", |o| worker(o, "v1.31.9")),
    ("kubelet-skew", "behind", |o| worker(o, "v1.30.0")),
    ("kubelet-skew", "behind_what_is_asked_for", |o| {
        worker(o, "v1.31.9");
        o.facts().spec.version = "v1.35.0".to_owned();
    }),
];
