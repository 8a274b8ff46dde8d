//! Checks of the controllers' leader election, kube-proxy, `CoreDNS`, and the kubelets of workers.

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::Object as _;
use kcp_rules::syntax::parse_version;

use crate::{
    addon_update::{SKIP_CORE_DNS, SKIP_KUBE_PROXY, image_tag, impossible_updates},
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{
            CheckOutcome, CheckResult, Finding, NoResult, WORKLOAD, machine_object, node_object, require,
        },
        machine_grace::{Phase, are_machines_changing, machine_of_node, machines_without_node},
        rollout::has_pending_change,
    },
    join_times::DEFAULT_JOIN_LIMIT,
    kubelet_skew::{Skew, skew},
    snapshot::{
        Reading, Snapshot,
        workload::{Addon, Node, Workload},
    },
    staleness::{age, format_age},
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "workload-connection-insecure",
        "Settings in the kubeconfig of the workload cluster lower the security of the connection.",
        check_workload_connection_insecure,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "controller-leases-expired",
        "kube-controller-manager or kube-scheduler has no leader.",
        check_controller_leases_expired,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "addon-update-impossible",
        "Cluster API's controller cannot update kube-proxy or CoreDNS, so its reconciles fail after the Machines are up to \
         date.",
        check_addon_update_impossible,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "kube-proxy-not-ready",
        "Pods of kube-proxy are not ready, or do not have the image tag that the spec of the control plane \
         requires.",
        check_kube_proxy_not_ready,
        Responsible::Fault(Actor::Person),
    )
    .effect_of(&[&["addon-update-impossible"]]),
    Check::new(
        "coredns-not-ready",
        "Pods of CoreDNS are not ready, or do not have the image tag that the spec of the control plane \
         requires.",
        check_coredns_not_ready,
        Responsible::Fault(Actor::Person),
    )
    .effect_of(&[&["addon-update-impossible"]]),
    Check::new(
        "kubelet-skew",
        "The version of a kubelet is too old or too new for the API servers.",
        check_kubelet_skew,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "machine-kubelet-differs",
        "The kubelet of a control plane Machine does not have the version of the Machine.",
        check_machine_kubelet_differs,
        Responsible::Fault(Actor::Person),
    ),
];

/// How long a Lease must have been expired before it counts as a problem. A change of the leader takes seconds, and clocks
/// differ.
const LEASE_LIMIT: Duration = Duration::from_secs(2 * 60);

pub fn check_workload_connection_insecure(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let workload = require(&observed.workload, WORKLOAD)?;
    let findings = workload.connection_risks.iter().map(|risk| {
        let cluster = observed.control_plane.cluster().unwrap_or_default();
        let secret = format!("Secret/{cluster}-kubeconfig");
        Finding::warn(secret, risk.clone())
            .with_hint("find out who changed the kubeconfig, and restore it if the change was not intended")
    });
    Ok(findings.collect())
}

pub fn check_controller_leases_expired(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let workload = require(&observed.workload, WORKLOAD)?;
    let leases = require(&workload.leases, "Leases")?;
    if leases.is_empty() {
        return Err(NoResult::skipped(
            "kube-controller-manager and kube-scheduler have no Leases",
        ));
    }
    let findings = leases.iter().filter_map(|lease| {
        let object = format!("Lease/{}", lease.name);
        if lease.holder.as_deref().unwrap_or_default().is_empty() {
            // A controller that shuts down releases its Lease; another instance acquires it after its retry period.
            return Some(match lease.renewed {
                Some(released) if age(released, now) > LEASE_LIMIT => {
                    let lasts = format_age(released, now);
                    Finding::fail(
                        object,
                        format!("no leader: the Lease has had no holder for {lasts}"),
                    )
                }
                _ => Finding::info(object, "no leader: the Lease has just been released"),
            });
        }
        let renewed = lease.renewed?;
        let holds = Duration::from_secs(u64::try_from(lease.duration_seconds?).ok()?);
        let is_over = age(renewed, now) > holds.saturating_add(LEASE_LIMIT);
        is_over.then(|| {
            let message = format!("no leader: the Lease has not been renewed for {}", format_age(renewed, now));
            Finding::fail(object, message)
                .with_hint("check that the control plane nodes are running and that their clocks match this machine's clock")
        })
    });
    Ok(findings.collect())
}

pub fn check_addon_update_impossible(observed: &Snapshot, _: Timestamp) -> CheckResult {
    require(&observed.workload, WORKLOAD)?;
    let control_plane = &observed.control_plane;
    let updates = impossible_updates(observed, &control_plane.spec, None);
    // The controller reads the certificates after it has updated the add-ons.
    let consequence = control_plane.spec.certificates_expiry_days.map_or("", |_| {
        "; the controller then does not record when the certificates of new Machines expire, so certificatesExpiryDays has no \
         effect on these Machines"
    });
    let findings = updates.into_iter().map(|update| {
        let outcome = if update.depends_on_version && control_plane.is_observed() {
            CheckOutcome::Warn
        } else {
            CheckOutcome::Fail
        };
        let message = format!(
            "{}; the reconciles of Cluster API's controller fail after the Machines are up to date{consequence}",
            update.message
        );
        Finding::new(outcome, update.object, message)
            .with_object(observed.object_name())
            .with_hint(update.hint(control_plane))
    });
    Ok(findings.collect())
}

/// An add-on that kubeadm installs, with the number of pods and the image tag that a check expects.
struct ExpectedAddon<'e> {
    kind: &'static str,
    name: &'static str,
    addon: &'e Reading<Option<Addon>>,
    /// How many pods of the add-on may still be starting.
    starting: i64,
    /// The expected tag of the image. `None` if the spec does not determine it.
    tag: Option<&'e str>,
}

pub fn check_kube_proxy_not_ready(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let workload = require(&observed.workload, WORKLOAD)?;
    let control_plane = &observed.control_plane;
    let is_managed = !control_plane.has_annotation(SKIP_KUBE_PROXY);
    let expected = ExpectedAddon {
        kind: "DaemonSet",
        name: "kube-proxy",
        addon: &workload.kube_proxy,
        // The pod on a new node is possibly not ready yet, and a joining node is possibly not listed yet.
        starting: count_nodes(workload, |node| !has_settled(node, now))
            .saturating_add(joining_nodes(observed, now)),
        tag: is_managed.then(|| control_plane.spec.version()),
    };
    addon_findings(observed, &expected, now)
}

/// Whether a node is ready and older than [`DEFAULT_JOIN_LIMIT`].
fn has_settled(node: &Node, now: Timestamp) -> bool {
    let is_young = node
        .created
        .is_some_and(|created| age(created, now) < DEFAULT_JOIN_LIMIT);
    node.ready == Some(true) && !is_young
}

pub fn check_coredns_not_ready(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let workload = require(&observed.workload, WORKLOAD)?;
    let control_plane = &observed.control_plane;
    let fields = &control_plane.spec.kubeadm_config_spec.fields;
    let tag = fields.pointer("/clusterConfiguration/dns/imageTag");
    let has_settled_node = count_nodes(workload, |node| has_settled(node, now)) > 0;
    let expected = ExpectedAddon {
        kind: "Deployment",
        name: "coredns",
        addon: &workload.core_dns,
        // While every node is new, it is normal that no pod is ready.
        starting: if has_settled_node { 0 } else { i64::MAX },
        tag: tag
            .and_then(serde_json::Value::as_str)
            .filter(|tag| !tag.is_empty() && !control_plane.has_annotation(SKIP_CORE_DNS)),
    };
    addon_findings(observed, &expected, now)
}

/// Whether the controller cannot update this add-on.
fn is_impossible(observed: &Snapshot, addon: &str) -> bool {
    let updates = impossible_updates(observed, &observed.control_plane.spec, None);
    updates.iter().any(|update| update.object == addon)
}

fn joining_nodes(observed: &Snapshot, now: Timestamp) -> i64 {
    let joining = machines_without_node(observed)
        .filter(|machine| Phase::of(observed, machine, now) == Phase::Starting);
    i64::try_from(joining.count()).unwrap_or(i64::MAX)
}

fn count_nodes(workload: &Workload, counts: impl Fn(&Node) -> bool) -> i64 {
    let nodes = workload.nodes.value().into_iter().flatten();
    i64::try_from(nodes.filter(|node| counts(node)).count()).unwrap_or(i64::MAX)
}

fn addon_findings(observed: &Snapshot, expected: &ExpectedAddon<'_>, now: Timestamp) -> CheckResult {
    let ExpectedAddon { kind, name, .. } = expected;
    let control_plane = &observed.control_plane;
    let Some(addon) = require(expected.addon, name)? else {
        return Err(NoResult::skipped(format!(
            "the workload cluster has no {kind} {name}"
        )));
    };
    let object = || format!("{kind}/{name}");
    let missing = addon.desired_pods.saturating_sub(addon.ready_pods);
    let not_ready = (missing > 0).then(|| {
        let outcome = if missing <= expected.starting {
            CheckOutcome::Info
        } else if addon.ready_pods == 0 {
            CheckOutcome::Fail
        } else {
            CheckOutcome::Warn
        };
        let message = format!("{} of {} pods are ready", addon.ready_pods, addon.desired_pods);
        Finding::new(outcome, object(), message).with_hint(
            observed.kubectl_in_workload(&format!("describe {} {name} -n kube-system", kind.to_lowercase())),
        )
    });
    let outdated = expected.tag.and_then(|tag| {
        let actual = image_tag(addon.image.as_deref()?)?;
        // The check `addon-update-impossible` reports an image that the controller cannot update.
        if is_impossible(observed, &object()) {
            return None;
        }
        // Image tags have no `+`; kubeadm replaces it with `_`.
        let desired = tag.replace('+', "_");
        (actual != desired).then(|| {
            let outcome = if has_pending_change(observed, now) || are_machines_changing(observed, now) {
                CheckOutcome::Info
            } else {
                CheckOutcome::Warn
            };
            let message = format!("runs image tag {actual}, but the spec requires {desired}");
            let finding = Finding::new(outcome, object(), message);
            if control_plane.is_observed() {
                finding.with_hint(
                    "Cluster API updates the image after all Machines are up to date and etcd is healthy",
                )
            } else {
                finding
            }
        })
    });
    Ok(not_ready.into_iter().chain(outdated).collect())
}

/// The major and the minor version, such as `(1, 34)` for `v1.34.1`. `None` if the text is not a version.
pub fn minor_version(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub fn check_kubelet_skew(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let workload = require(&observed.workload, WORKLOAD)?;
    let nodes = require(&workload.nodes, "nodes")?;
    let mut servers: Vec<&str> = observed
        .machines
        .iter()
        .filter_map(|machine| machine.spec.version.as_deref())
        .filter(|version| minor_version(version).is_some())
        .collect();
    servers.sort_by_key(|version| minor_version(version));
    let (Some(oldest), Some(newest)) = (servers.first(), servers.last()) else {
        return Err(NoResult::unknown("no Machine reports its Kubernetes version"));
    };
    let desired = observed.control_plane.spec.version();
    let workers = nodes
        .iter()
        .filter(|node| machine_of_node(observed, &node.name).is_none() && !node.has_control_plane_label);
    let findings = workers.filter_map(|node| {
        let kubelet = node.kubelet_version.as_str();
        let is_old = |server: &str| match skew(kubelet, server) {
            Some(Skew::TooOld { lag, allowed }) => Some((lag, allowed)),
            Some(Skew::TooNew) | None => None,
        };
        let finding = |message: String| Finding::warn(node_object(&node.name), message);
        if skew(kubelet, oldest) == Some(Skew::TooNew) {
            return Some(finding(format!("kubelet {kubelet} is newer than the oldest API server, {oldest}")));
        }
        if let Some((lag, allowed)) = is_old(newest) {
            let message = format!(
                "kubelet {kubelet} is {lag} minor versions behind the newest API server, {newest}; Kubernetes supports at most {allowed}"
            );
            return Some(finding(message).with_hint("upgrade the worker nodes"));
        }
        let (lag, allowed) = is_old(desired)?;
        let message = format!(
            "kubelet {kubelet} would be {lag} minor versions behind the desired version {desired}; Kubernetes supports at most {allowed}"
        );
        Some(finding(message).with_hint("upgrade the worker nodes first"))
    });
    Ok(findings.collect())
}

/// Checks whether the kubelet of each Machine has the Machine's version. If not, the usual cause is a machine image with a
/// different version of Kubernetes: both the kubelet and kubeadm come from the image.
pub fn check_machine_kubelet_differs(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let workload = require(&observed.workload, WORKLOAD)?;
    let nodes = require(&workload.nodes, "nodes")?;
    let settled = observed
        .machines
        .iter()
        .filter(|machine| !machine.is_updating_in_place());
    let findings = settled.filter_map(|machine| {
        let node = nodes.iter().find(|node| machine.node() == Some(&node.name))?;
        let required = machine.spec.version.as_deref()?;
        let release = |version| {
            let version = parse_version(version).ok()?;
            Some((version.major, version.minor, version.patch))
        };
        (release(required)? != release(&node.kubelet_version)?).then(|| {
            let message = format!("requires {required}, but its kubelet is {}", node.kubelet_version);
            Finding::warn(machine_object(machine.name()), message)
                .with_object(node_object(&node.name))
                .with_hint(
                    "use an infrastructure template whose image has the Kubernetes version of the Machine",
                )
        })
    });
    Ok(findings.collect())
}

#[cfg(test)]
pub(super) mod test_cases {
    use crate::{
        checks::tests::{Case, starts},
        snapshot::{Reading, Snapshot},
        testing::objects::{compare_without_record, minutes_ago},
    };

    fn lacks_kube_proxies(observed: &mut Snapshot, number: i64) {
        if let Reading::Read(Some(add_on)) = &mut observed.workload().kube_proxy {
            add_on.ready_pods -= number;
        }
    }

    fn kube_proxy_image(observed: &mut Snapshot, tag: &str) {
        if let Reading::Read(Some(add_on)) = &mut observed.workload().kube_proxy {
            add_on.image = Some(format!("registry.k8s.io/kube-proxy:{tag}"));
        }
    }

    /// Sets the tag of `CoreDNS` that runs, and the one that the spec requires.
    fn core_dns(observed: &mut Snapshot, actual: &str, desired: &str) {
        observed.control_plane().spec.kubeadm_config_spec.fields["clusterConfiguration"]["dns"] =
            serde_json::json!({"imageTag": desired});
        if let Reading::Read(Some(add_on)) = &mut observed.workload().core_dns {
            add_on.image = Some(format!("registry.k8s.io/coredns/coredns:{actual}"));
        }
    }

    fn worker(observed: &mut Snapshot, kubelet: &str) {
        observed.nodes()[3].kubelet_version = kubelet.to_owned();
    }

    pub(crate) const CASES: &[Case] = &[
        ("workload-connection-insecure", "unverified", |o| {
            let risk = "insecure-skip-tls-verify is set: the API server's certificate is not verified";
            o.workload().connection_risks = vec![risk.to_owned()];
        }),
        ("controller-leases-expired", "over", |o| {
            if let Reading::Read(leases) = &mut o.workload().leases {
                leases[0].renewed = Some(minutes_ago(3));
                leases[1].renewed = Some(minutes_ago(3));
                leases[1].holder = Some(String::new());
            }
        }),
        ("controller-leases-expired", "released_by_one_that_stops", |o| {
            if let Reading::Read(leases) = &mut o.workload().leases {
                leases[0].renewed = Some(minutes_ago(2));
                leases[0].holder = Some(String::new());
                leases[1].renewed = None;
                leases[1].holder = None;
            }
        }),
        ("controller-leases-expired", "none", |o| {
            o.workload().leases = Reading::Read(vec![]);
        }),
        ("addon-update-impossible", "coredns_downgrade", |o| {
            core_dns(o, "v1.12.1", "v1.11.3");
        }),
        (
            "addon-update-impossible",
            "coredns_downgrade_without_expiry_dates",
            |o| {
                core_dns(o, "v1.12.1", "v1.11.3");
                o.control_plane.spec.certificates_expiry_days = Some(30);
            },
        ),
        ("addon-update-impossible", "coredns_of_an_unknown_version", |o| {
            core_dns(o, "v1.12.99", "v1.13.1");
        }),
        (
            "addon-update-impossible",
            "coredns_of_an_unknown_version_unrecorded",
            |o| {
                core_dns(o, "v1.12.99", "v1.13.1");
                compare_without_record(o.control_plane());
            },
        ),
        ("addon-update-impossible", "kube_proxy_with_a_digest", |o| {
            kube_proxy_image(o, "v1.33.0@sha256:0");
        }),
        ("kube-proxy-not-ready", "some", |o| lacks_kube_proxies(o, 1)),
        ("kube-proxy-not-ready", "some_while_a_machine_starts", |o| {
            starts(o);
            lacks_kube_proxies(o, 1);
        }),
        ("kube-proxy-not-ready", "but_on_a_worker_that_is_not_ready", |o| {
            o.nodes()[3].ready = Some(false);
            lacks_kube_proxies(o, 1);
        }),
        (
            "kube-proxy-not-ready",
            "but_on_a_worker_that_has_just_joined",
            |o| {
                o.nodes()[3].created = Some(minutes_ago(1));
                lacks_kube_proxies(o, 1);
            },
        ),
        ("kube-proxy-not-ready", "on_fewer_nodes_than_are_settled", |o| {
            o.nodes()[3].ready = Some(false);
            lacks_kube_proxies(o, 2);
        }),
        ("kube-proxy-not-ready", "none_ready", |o| lacks_kube_proxies(o, 4)),
        ("kube-proxy-not-ready", "another_image", |o| {
            kube_proxy_image(o, "v1.33.0");
        }),
        (
            "kube-proxy-not-ready",
            "another_image_while_reconciles_fail",
            |o| {
                kube_proxy_image(o, "v1.33.0");
                compare_without_record(o.control_plane());
            },
        ),
        ("kube-proxy-not-ready", "another_image_during_a_rollout", |o| {
            kube_proxy_image(o, "v1.33.0");
            o.machine(1).spec.version = Some("v1.33.0".to_owned());
        }),
        ("kube-proxy-not-ready", "another_image_that_is_not_managed", |o| {
            kube_proxy_image(o, "v1.33.0");
            crate::testing::objects::annotate(&mut o.control_plane().metadata, super::SKIP_KUBE_PROXY, "");
        }),
        ("kube-proxy-not-ready", "none_there", |o| {
            o.workload().kube_proxy = Reading::Read(None);
        }),
        ("coredns-not-ready", "none", |o| {
            if let Reading::Read(Some(add_on)) = &mut o.workload().core_dns {
                add_on.ready_pods = 0;
            }
        }),
        ("coredns-not-ready", "some_during_a_deletion", |o| {
            o.machine(2).metadata.deletion_timestamp = Some(kcp_api::metadata::Time(minutes_ago(1)));
            if let Reading::Read(Some(add_on)) = &mut o.workload().core_dns {
                add_on.ready_pods = 1;
            }
        }),
        ("coredns-not-ready", "another_image", |o| {
            core_dns(o, "v1.11.3", "v1.12.1");
        }),
        ("kubelet-skew", "newer", |o| worker(o, "v1.35.0")),
        ("kubelet-skew", "at_the_limit", |o| worker(o, "v1.31.9")),
        ("kubelet-skew", "behind", |o| worker(o, "v1.30.0")),
        ("kubelet-skew", "behind_and_below_1_25", |o| {
            for number in 1..=3 {
                o.machine(number).spec.version = Some("v1.27.0".to_owned());
            }
            o.control_plane.spec.version = Some("v1.27.0".to_owned());
            worker(o, "v1.24.17");
        }),
        ("kubelet-skew", "behind_what_is_asked_for", |o| {
            worker(o, "v1.31.9");
            o.control_plane.spec.version = Some("v1.35.0".to_owned());
        }),
        ("machine-kubelet-differs", "older_minor", |o| {
            o.nodes()[1].kubelet_version = "v1.33.6".to_owned();
        }),
        ("machine-kubelet-differs", "same_release_of_a_vendor", |o| {
            o.nodes()[1].kubelet_version = "v1.34.1+vendor.2".to_owned();
        }),
    ];
}
