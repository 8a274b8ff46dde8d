//! Extracts the fields that the checks need from a workload cluster's objects.

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    coordination::v1::Lease,
    core::v1::{self, ConfigMap, ContainerStatus, NodeCondition, Pod, PodSpec, Taint},
    events::v1::Event,
};
use kcp_api::{
    Condition, ConditionStatus,
    names::{TAINT_UNREACHABLE, annotation, label},
};
use serde::Deserialize;

use crate::reads::failure::one_line;
use kcp_control_plane::snapshot::workload::{
    Addon, Component, ControllerLease, CrashLoop, JoinReport, KubeadmConfigMap, Node, StaticPod,
};

pub fn node(node: v1::Node) -> Node {
    let status = node.status.unwrap_or_default();
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|condition| condition.type_ == "Ready");
    let ready = condition.and_then(|condition| match condition.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    });
    let ready_since = condition.and_then(|condition| Some(condition.last_transition_time.as_ref()?.0));
    let spec = node.spec.unwrap_or_default();
    let taints = spec.taints.unwrap_or_default();
    let has_taint = |key: &str, effect: &str| {
        taints
            .iter()
            .any(|taint| taint.key == key && taint.effect == effect)
    };
    let images = status
        .images
        .into_iter()
        .flatten()
        .filter_map(|image| image.names);
    // Skip a name that ends in a digest, because it does not contain the version.
    let is_etcd = |name: &String| name.contains("/etcd:");
    let etcd_images = images.flatten().filter(is_etcd).collect();
    let version = status
        .node_info
        .map(|info| info.kubelet_version)
        .unwrap_or_default();
    let labels = node.metadata.labels.unwrap_or_default();
    let mut annotations = node.metadata.annotations.unwrap_or_default();
    Node {
        name: node.metadata.name.unwrap_or_default(),
        provider_id: spec.provider_id.filter(|id| !id.is_empty()),
        machine: annotations.remove(annotation::NODE_MACHINE),
        created: node.metadata.creation_timestamp.map(|time| time.0),
        kubelet_version: if version.is_empty() || version.starts_with('v') {
            version
        } else {
            format!("v{version}")
        },
        ready,
        ready_since,
        has_control_plane_label: labels.contains_key(label::NODE_CONTROL_PLANE),
        has_control_plane_taint: has_taint(label::NODE_CONTROL_PLANE, "NoSchedule"),
        is_unreachable: has_taint(TAINT_UNREACHABLE, "NoExecute"),
        problems: status
            .conditions
            .into_iter()
            .flatten()
            .filter_map(problem)
            .collect(),
        taints: taints.iter().map(taint_text).collect(),
        etcd_images,
    }
}

/// The condition if it reports a problem.
fn problem(condition: NodeCondition) -> Option<Condition> {
    let status = match condition.status.as_str() {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    let good = if condition.type_ == "Ready" {
        ConditionStatus::True
    } else {
        ConditionStatus::False
    };
    (status != good).then(|| Condition {
        type_: condition.type_,
        status,
        reason: condition.reason.unwrap_or_default(),
        message: one_line(&condition.message.unwrap_or_default()),
        last_transition_time: condition.last_transition_time.map(|time| time.0),
        observed_generation: None,
    })
}

fn taint_text(taint: &Taint) -> String {
    let value = taint.value.as_ref().filter(|value| !value.is_empty());
    let value = value.map_or_else(String::new, |value| format!("={value}"));
    format!("{}{value}:{}", taint.key, taint.effect)
}

/// Extracts the fields of a static pod. `None` if the pod's name is not `COMPONENT-NODE`, as kubeadm names static pods.
pub fn static_pod(pod: Pod) -> Option<StaticPod> {
    let name = pod.metadata.name?;
    let spec = pod.spec?;
    let mut words = spec
        .containers
        .iter()
        .flat_map(|container| container.command.iter().chain(&container.args).flatten());
    let forces_new_cluster = words.any(|word| word.starts_with("--force-new-cluster"));
    let node = spec.node_name?;
    let component = Component::ALL.into_iter().find(|component| {
        let of_node = name.strip_prefix(component.as_str());
        of_node.and_then(|of_node| of_node.strip_prefix('-')) == Some(&node)
    })?;
    let status = pod.status.unwrap_or_default();
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|condition| condition.type_ == "Ready");
    let ready = condition.is_some_and(|condition| condition.status == "True");
    let ready_since = condition.and_then(|condition| Some(condition.last_transition_time.as_ref()?.0));
    let containers = || status.container_statuses.iter().flatten();
    let problem = containers().find_map(|container| {
        let problem = container_problem(container)?;
        let is_waiting = container
            .state
            .as_ref()
            .is_some_and(|state| state.waiting.is_some());
        Some(match last_exit(container).filter(|_| is_waiting) {
            Some(exit) => format!(
                "{problem}; restarted {} times, last {exit}",
                container.restart_count
            ),
            None => problem,
        })
    });
    let crash_loop = containers().find_map(crash_loop);
    let restarts = containers().map(|container| u32::try_from(container.restart_count).unwrap_or_default());
    let restarts = restarts.sum();
    let last_exit = containers().find_map(last_exit);
    Some(StaticPod {
        component,
        node,
        phase: status.phase.unwrap_or_default(),
        ready,
        ready_since,
        is_deleting: pod.metadata.deletion_timestamp.is_some(),
        message: problem.or_else(|| reason_and_message(status.reason, status.message)),
        restarts,
        last_exit,
        crash_loop,
        forces_new_cluster,
    })
}

/// Why a container waits or has terminated, on one line. `None` if it runs.
pub fn container_problem(container: &ContainerStatus) -> Option<String> {
    let state = container.state.clone()?;
    if let Some(waiting) = state.waiting {
        return reason_and_message(waiting.reason, waiting.message);
    }
    let terminated = state.terminated?;
    let reason = terminated
        .reason
        .unwrap_or_else(|| format!("exit code {}", terminated.exit_code));
    reason_and_message(Some(reason), terminated.message)
}

fn crash_loop(container: &ContainerStatus) -> Option<CrashLoop> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let last = container
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref());
    (waiting.reason.as_deref() == Some("CrashLoopBackOff")).then(|| CrashLoop {
        ended: last.and_then(|last| Some(last.finished_at.as_ref()?.0)),
    })
}

/// How a container ended before it was restarted. The message is the one that the container wrote; kubeadm's static pods usually
/// write none.
fn last_exit(container: &ContainerStatus) -> Option<String> {
    let ended = container.last_state.as_ref()?.terminated.as_ref()?;
    let message = ended
        .message
        .as_deref()
        .map(one_line)
        .filter(|message| !message.is_empty());
    let message = message.map_or_else(String::new, |message| format!(": {message}"));
    Some(format!("exit code {}{message}", ended.exit_code))
}

pub fn reason_and_message(reason: Option<String>, message: Option<String>) -> Option<String> {
    let words: Vec<String> = [reason, message]
        .into_iter()
        .flatten()
        .map(|text| one_line(&text))
        .filter(|text| !text.is_empty())
        .collect();
    (!words.is_empty()).then(|| words.join(": "))
}

pub fn daemon_set_addon(object: DaemonSet) -> Addon {
    let status = object.status.unwrap_or_default();
    let template = object.spec.and_then(|spec| spec.template.spec);
    Addon {
        desired_pods: status.desired_number_scheduled.into(),
        ready_pods: status.number_ready.into(),
        image: template.and_then(|pod| image(pod, "kube-proxy")),
        lacks_config: false,
    }
}

/// Extracts the fields of `CoreDNS`, whose `ConfigMap` may not exist.
pub fn deployment_addon(object: Deployment, lacks_config: bool) -> Addon {
    let spec = object.spec.unwrap_or_default();
    let ready = object.status.and_then(|status| status.ready_replicas);
    Addon {
        // The API server's default for `spec.replicas`.
        desired_pods: spec.replicas.unwrap_or(1).into(),
        ready_pods: ready.unwrap_or_default().into(),
        image: spec.template.spec.and_then(|pod| image(pod, "coredns")),
        lacks_config,
    }
}

fn image(pod: PodSpec, container: &str) -> Option<String> {
    let mut containers = pod.containers.into_iter();
    containers.find(|other| other.name == container)?.image
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterConfiguration {
    kubernetes_version: Option<String>,
}

/// Extracts from kubeadm's `ConfigMap` what Cluster API's controller needs, if `config` exists.
pub fn kubeadm_config(config: Option<&ConfigMap>) -> KubeadmConfigMap {
    const KEY: &str = "ClusterConfiguration";
    let Some(config) = config else {
        return KubeadmConfigMap::Absent;
    };
    let Some(text) = config.data.as_ref().and_then(|data| data.get(KEY)) else {
        return KubeadmConfigMap::WithoutKey;
    };
    // The parser's message is dropped, because it may quote the configuration.
    serde_saphyr::from_str::<ClusterConfiguration>(text).map_or(
        KubeadmConfigMap::Undecodable,
        |configuration| KubeadmConfigMap::Usable {
            version: configuration
                .kubernetes_version
                .filter(|version| !version.is_empty()),
        },
    )
}

pub fn lease(lease: Lease) -> ControllerLease {
    let spec = lease.spec.unwrap_or_default();
    ControllerLease {
        name: lease.metadata.name.unwrap_or_default(),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        renewed: spec.renew_time.map(|time| -> Timestamp { time.0 }),
        acquired: spec.acquire_time.map(|time| -> Timestamp { time.0 }),
        duration_seconds: spec.lease_duration_seconds.map(i64::from),
    }
}

/// Whether an API server's verbose health response contains a failed etcd check. The response has lines such as
/// `[+]ping ok` and `[-]etcd failed: reason withheld`.
pub fn reports_failed_etcd(health: &str) -> bool {
    health.lines().any(|line| line.starts_with("[-]etcd "))
}

/// What a host reports about its join. `None` if another program has created the Event. The texts are those of the host, so they are
/// bounded, and have no control characters.
pub fn join_report(event: Event) -> Option<JoinReport> {
    if event.reporting_controller.as_deref() != Some(JoinReport::CONTROLLER) {
        return None;
    }
    let plain = |text: Option<String>| one_line(&text.unwrap_or_default().replace(char::is_control, " "));
    let metadata = event.metadata;
    let addresses = metadata
        .annotations
        .and_then(|mut all| all.remove(JoinReport::ADDRESSES));
    let addresses = addresses.unwrap_or_default();
    Some(JoinReport {
        host: plain(event.regarding.and_then(|host| host.name)),
        addresses: addresses.split_whitespace().map(str::to_owned).collect(),
        has_failed: event.reason.as_deref() == Some(JoinReport::FAILED),
        text: plain(event.note),
        reported: metadata.creation_timestamp?.0,
    })
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use kcp_api::{Condition, ConditionStatus};

    use super::{
        Addon, Component, ControllerLease, CrashLoop, JoinReport, KubeadmConfigMap, Node, StaticPod,
        daemon_set_addon, deployment_addon, join_report, kubeadm_config, lease, node, reports_failed_etcd,
        static_pod,
    };

    /// The text is that of kube-apiserver 1.34.
    #[test]
    fn a_servers_health_says_whether_etcd_failed() {
        let rest = "[+]log ok\n[+]poststarthook/start-apiserver-admission-initializer ok\nlivez check";
        for (health, expected) in [
            (
                format!("[+]ping ok\n[-]etcd failed: reason withheld\n{rest} failed\n"),
                true,
            ),
            (format!("[+]ping ok\n[+]etcd ok\n{rest} passed\n"), false),
            (
                format!("[-]ping failed: reason withheld\n[+]etcd ok\n{rest} failed\n"),
                false,
            ),
            ("no etcd here".to_owned(), false),
        ] {
            assert_eq!(reports_failed_etcd(&health), expected, "{health}");
        }
    }

    fn object<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object")
    }

    #[test]
    fn the_report_of_a_host_is_one_line_without_control_characters() {
        let event = |controller: &str| {
            join_report(object(json!({
                "metadata": {"creationTimestamp": "2026-03-01T12:00:00Z",
                    "annotations": {"kubectl-kcp.dev/host-addresses": "10.0.0.3 fd00::3 "}},
                // The clock of the host is wrong.
                "eventTime": "1970-01-01T00:00:07.000000Z",
                "reason": "KubeadmFailed",
                "reportingController": controller,
                "regarding": {"kind": "Node", "name": "m3\u{1b}[31m"},
                "note": format!("a disk\nis\u{1b}[2Jfull {}", "x".repeat(400)),
            })))
        };
        let expected = JoinReport {
            host: "m3 [31m".to_owned(),
            addresses: ["10.0.0.3", "fd00::3"].map(str::to_owned).to_vec(),
            has_failed: true,
            text: format!("a disk is [2Jfull {}…", "x".repeat(282)),
            reported: "2026-03-01T12:00:00Z".parse().expect("a time"),
        };
        assert_eq!(event("kubectl-kcp.dev/join-report"), Some(expected));
        assert_eq!(event("kubelet"), None);
    }

    #[test]
    fn a_control_plane_node() {
        let read = node(object(json!({
            "metadata": {"name": "n1", "creationTimestamp": "2026-03-01T12:00:00Z",
                "annotations": {"cluster.x-k8s.io/machine": "m1"},
                "labels": {"node-role.kubernetes.io/control-plane": ""}},
            "spec": {"providerID": "p://n1",
                "taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True",
                    "lastTransitionTime": "2026-03-01T12:01:00Z"}],
                "nodeInfo": {"kubeletVersion": "v1.34.2", "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                    "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
                    "systemUUID": ""},
                "images": [
                    {"names": ["registry.k8s.io/etcd@sha256:1f", "registry.k8s.io/etcd:3.6.6-0"]},
                    {"names": ["registry.k8s.io/pause:3.10.1"]},
                ],
            },
        })));
        assert_eq!(
            read,
            Node {
                name: "n1".to_owned(),
                provider_id: Some("p://n1".to_owned()),
                machine: Some("m1".to_owned()),
                created: "2026-03-01T12:00:00Z".parse().ok(),
                kubelet_version: "v1.34.2".to_owned(),
                ready: Some(true),
                ready_since: "2026-03-01T12:01:00Z".parse().ok(),
                has_control_plane_label: true,
                has_control_plane_taint: true,
                is_unreachable: false,
                problems: Vec::new(),
                taints: vec!["node-role.kubernetes.io/control-plane:NoSchedule".to_owned()],
                etcd_images: vec!["registry.k8s.io/etcd:3.6.6-0".to_owned()],
            }
        );
    }

    #[test]
    fn a_node_whose_kubelet_is_silent() {
        let read = node(object(json!({
            "metadata": {"name": "n1"},
            "spec": {"taints": [
                {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
                {"key": "node-role.kubernetes.io/control-plane", "value": "a", "effect": "NoExecute"},
            ]},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        })));
        assert_eq!(
            read,
            Node {
                name: "n1".to_owned(),
                is_unreachable: true,
                problems: vec![Condition {
                    type_: "Ready".to_owned(),
                    status: ConditionStatus::Unknown,
                    reason: String::new(),
                    message: String::new(),
                    last_transition_time: None,
                    observed_generation: None,
                }],
                taints: [
                    "node.kubernetes.io/unreachable:NoExecute",
                    "node-role.kubernetes.io/control-plane=a:NoExecute",
                ]
                .map(str::to_owned)
                .to_vec(),
                ..Node::default()
            }
        );
        let conditions = json!([
            {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no CNI\nplugin"},
            {"type": "DiskPressure", "status": "True"}, {"type": "MemoryPressure", "status": "False"},
        ]);
        let not_ready = node(object(json!({"status": {"conditions": conditions}})));
        assert_eq!(not_ready.ready, Some(false));
        let problems = not_ready.problems.iter();
        let problems: Vec<_> = problems
            .map(|problem| (problem.type_.as_str(), problem.message.as_str()))
            .collect();
        assert_eq!(problems, [("Ready", "no CNI plugin"), ("DiskPressure", "")]);
    }

    fn pod(name: &str, status: &Value) -> Option<StaticPod> {
        static_pod(object(json!({
            "metadata": {"name": name}, "spec": {"nodeName": "n-1", "containers": []}, "status": status,
        })))
    }

    #[test]
    fn a_static_pod_is_known_by_its_name() {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T12:01:00Z"});
        let status = json!({"phase": "Running", "conditions": [ready]});
        for (name, component) in [
            ("kube-apiserver-n-1", Some(Component::ApiServer)),
            ("kube-controller-manager-n-1", Some(Component::ControllerManager)),
            ("kube-scheduler-n-1", Some(Component::Scheduler)),
            ("etcd-n-1", Some(Component::Etcd)),
            ("etcd-n-2", None),
            ("etcd-1", None),
            ("etcdn-1", None),
            ("coredns-n-1", None),
        ] {
            let expected = component.map(|component| StaticPod {
                component,
                node: "n-1".to_owned(),
                phase: "Running".to_owned(),
                ready: true,
                ready_since: "2026-03-01T12:01:00Z".parse().ok(),
                is_deleting: false,
                message: None,
                restarts: 0,
                last_exit: None,
                crash_loop: None,
                forces_new_cluster: false,
            });
            assert_eq!(pod(name, &status), expected, "{name}");
        }
        let forced = json!({
            "metadata": {"name": "etcd-n-1"},
            "spec": {"nodeName": "n-1", "containers": [{"name": "etcd", "command": ["etcd", "--force-new-cluster"]}]},
        });
        let forced = serde_json::from_value(forced).expect("a pod");
        assert!(static_pod(forced).is_some_and(|pod| pod.forces_new_cluster));
    }

    #[test]
    fn a_pod_says_on_one_line_what_is_wrong() {
        let waiting = json!([{"name": "etcd", "ready": false, "restartCount": 4, "image": "", "imageID": "",
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s\nrestarting"}}}]);
        let crashed = json!([{"name": "etcd", "ready": false, "restartCount": 4, "image": "", "imageID": "",
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-03-01T12:01:00Z",
                "message": "unknown flag: --no-such\n"}}}]);
        let loops = pod("etcd-n-1", &json!({"containerStatuses": crashed})).and_then(|pod| pod.crash_loop);
        let ended_at = "2026-03-01T12:01:00Z".parse().ok();
        assert_eq!(loops, Some(CrashLoop { ended: ended_at }));
        let crashing = pod("etcd-n-1", &json!({"containerStatuses": crashed})).expect("a static pod");
        let last_exit = crashing.last_exit.as_deref();
        assert_eq!(
            (crashing.restarts, last_exit),
            (4, Some("exit code 1: unknown flag: --no-such"))
        );
        let ended = json!([{"name": "etcd", "ready": false, "restartCount": 4, "image": "", "imageID": "",
            "state": {"terminated": {"exitCode": 137}}}]);
        let running = json!([{"name": "etcd", "ready": true, "restartCount": 0, "image": "", "imageID": "",
            "state": {"running": {}}}]);
        for (status, message) in [
            (
                json!({"containerStatuses": waiting}),
                Some("CrashLoopBackOff: back-off 5m0s restarting"),
            ),
            (
                json!({"containerStatuses": crashed}),
                Some(
                    "CrashLoopBackOff: back-off 5m0s; restarted 4 times, last exit code 1: unknown flag: --no-such",
                ),
            ),
            (json!({"containerStatuses": ended}), Some("exit code 137")),
            (json!({"containerStatuses": running}), None),
            (json!({"reason": "NodeLost", "message": ""}), Some("NodeLost")),
            (json!({}), None),
        ] {
            let pod = pod("etcd-n-1", &status).expect("a static pod");
            assert_eq!(pod.message.as_deref(), message, "{status}");
            assert!(!pod.ready);
        }
    }

    #[test]
    fn addons_tell_how_many_pods_they_want_and_have() {
        let container = |name: &str| json!({"name": name, "image": format!("registry/{name}:v1")});
        let containers = ["sidecar", "kube-proxy", "coredns"].map(container);
        let template = json!({"spec": {"containers": containers}});
        let wanted = |name: &str, lacks_config| Addon {
            desired_pods: 3,
            ready_pods: 2,
            image: Some(format!("registry/{name}:v1")),
            lacks_config,
        };
        let read = daemon_set_addon(object(json!({
            "spec": {"selector": {}, "template": template},
            "status": {"desiredNumberScheduled": 3, "numberReady": 2, "currentNumberScheduled": 3, "numberMisscheduled": 0},
        })));
        assert_eq!(read, wanted("kube-proxy", false));
        let deployment = object(json!({
            "spec": {"replicas": 3, "selector": {}, "template": template}, "status": {"readyReplicas": 2},
        }));
        assert_eq!(deployment_addon(deployment, true), wanted("coredns", true));
        let read = deployment_addon(object(json!({"spec": {"selector": {}, "template": {}}})), false);
        assert_eq!(
            read,
            Addon {
                desired_pods: 1,
                ..Addon::default()
            }
        );
    }

    #[test]
    fn a_kubeadm_config_is_usable_or_the_reason_is_known() {
        let map = |data: Value| kubeadm_config(Some(&object(json!({"data": data}))));
        let usable = |version: Option<&str>| KubeadmConfigMap::Usable {
            version: version.map(str::to_owned),
        };
        let text = "apiVersion: kubeadm.k8s.io/v1beta4\nkubernetesVersion: v1.34.2\nnetworking: {}\n";
        assert_eq!(
            map(json!({"ClusterConfiguration": text})),
            usable(Some("v1.34.2"))
        );
        assert_eq!(
            map(json!({"ClusterConfiguration": "networking: {}"})),
            usable(None)
        );
        assert_eq!(map(json!({})), KubeadmConfigMap::WithoutKey);
        assert_eq!(
            map(json!({"ClusterConfiguration": "[secret"})),
            KubeadmConfigMap::Undecodable
        );
        assert_eq!(kubeadm_config(None), KubeadmConfigMap::Absent);
    }

    #[test]
    fn a_lease_tells_who_holds_it_since_when() {
        let read = lease(object(json!({
            "metadata": {"name": "kube-scheduler"},
            "spec": {"holderIdentity": "n1_1", "renewTime": "2026-08-21T10:00:00.000000Z", "leaseDurationSeconds": 15},
        })));
        assert_eq!(
            read,
            ControllerLease {
                name: "kube-scheduler".to_owned(),
                holder: Some("n1_1".to_owned()),
                renewed: Some("2026-08-21T10:00:00Z".parse().expect("a time")),
                acquired: None,
                duration_seconds: Some(15),
            }
        );
        let released = lease(object(
            json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": ""}}),
        ));
        assert_eq!((released.holder, released.renewed), (None, None));
    }
}
