//! Checks of the conditions that the controller reports on the control plane.

use jiff::Timestamp;
use kcp_api::{Condition, ConditionStatus, Machine, Object as _, names::lease};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        components::machines_without_etcd,
        controller::controller_suffix,
        etcd_quorum::votes,
        finding::{CheckOutcome, CheckResult, Finding, NoResult},
        left_behind::is_any_left_behind,
        machine_grace::{are_machines_changing, has_changed_within},
        rollout::CONTROLLER_OBSTACLES,
    },
    duration::format_duration,
    join_times::{DEFAULT_JOIN_LIMIT, JoinLimit},
    plan::{
        blockers::{failed_probe, processing_blockers, unreachable_workload},
        messages::join_names,
    },
    problem::{CONTROL_PLANE_CONTROLLER, CONTROLLER_HINT, Problem},
    snapshot::{
        Snapshot,
        workload::{Component, StaticPod},
    },
    staleness::{OBSERVATION_LIMIT, SUMMARY_LAG_LIMIT, age, format_age, stopped_controller_blocker},
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "status-missing",
        "No controller has reported the status of the control plane yet.",
        check_status_missing,
        Responsible::Step(Actor::ControlPlaneController),
    )
    .usually_within(OBSERVATION_LIMIT),
    Check::new(
        "status-outdated",
        "The controller has not processed the last change to the spec.",
        check_status_outdated,
        Responsible::StepBy(who_processes_the_spec),
    )
    .usually_within(OBSERVATION_LIMIT)
    .effect_of(&[
        CONTROLLER_OBSTACLES,
        &[
            "controller-stopped",
            "endpoint-certificate-expiring",
            "etcd-no-quorum",
        ],
    ])
    .preflight(),
    Check::new(
        "change-not-recorded",
        "The controller has compared the Machines with the last change to the spec, but has not recorded the change as processed: \
         a later step of its reconciles fails, or failed earlier.",
        check_change_not_recorded,
        Responsible::StepBy(who_records_the_change),
    )
    .usually_within(OBSERVATION_LIMIT)
    .effect_of(&[
        CONTROLLER_OBSTACLES,
        &[
            "addon-update-impossible",
            "machine-deletions-deadlocked",
            "etcd-no-quorum",
            "etcd-no-leader",
            "etcd-members-unresponsive",
        ],
    ]),
    Check::new(
        "unavailable",
        "The condition Available of the control plane is not True.",
        check_unavailable,
        Responsible::Fault(Actor::ControlPlaneController),
    )
    .usually_within(DEFAULT_JOIN_LIMIT)
    .as_summary(),
    Check::new(
        "certificates-unavailable",
        "The condition CertificatesAvailable of the control plane is not True.",
        check_certificates_unavailable,
        Responsible::Step(Actor::ControlPlaneController),
    )
    .usually_within(DEFAULT_JOIN_LIMIT)
    .effect_of(&[&["secrets-missing"]]),
    Check::new(
        "etcd-cluster-unhealthy",
        "The condition EtcdClusterHealthy is not True, although no etcd member has a problem that explains \
         this.",
        check_etcd_cluster_unhealthy,
        Responsible::Fault(Actor::Person),
    )
    .as_summary(),
    Check::new(
        "components-unhealthy",
        "The condition ControlPlaneComponentsHealthy is not True, although no static pod has a problem that \
         explains this.",
        check_components_unhealthy,
        Responsible::Fault(Actor::Person),
    )
    .as_summary(),
    Check::new(
        "workload-disconnected",
        "One of Cluster API's controllers cannot connect to the workload cluster, so it does nothing there.",
        check_workload_disconnected,
        Responsible::Fault(Actor::Person),
    )
    .blocking(),
];

fn unmet_condition<'o>(observed: &'o Snapshot, kind: &str) -> Option<&'o Condition> {
    observed
        .control_plane
        .condition(kind)
        .filter(|condition| !condition.is_true())
}

fn finding(observed: &Snapshot, condition: &Condition) -> Finding {
    let outcome = match condition.status {
        ConditionStatus::Unknown => CheckOutcome::Unknown,
        ConditionStatus::True | ConditionStatus::False => CheckOutcome::Fail,
    };
    let message = format!(
        "{} is {}: {}",
        condition.type_,
        condition.status.as_str(),
        condition.message_or_reason()
    );
    Finding::new(outcome, observed.object_name(), message).with_transition_time(condition)
}

/// Whether the control plane was created recently and is not initialized yet.
fn is_new(observed: &Snapshot, now: Timestamp) -> bool {
    let control_plane = &observed.control_plane;
    let created = control_plane.creation_timestamp();
    !control_plane.status.initialized
        && created.is_some_and(|created| age(created, now) < JoinLimit::of(observed).limit)
}

pub fn check_status_missing(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let control_plane = &observed.control_plane;
    let message = if control_plane.status.conditions.is_empty() {
        "no controller has reported a status yet"
    } else if control_plane.condition("Available").is_none() {
        "no controller has reported whether the control plane is available"
    } else {
        return Ok(Vec::new());
    };
    let message = format!("{message}{}", controller_suffix(observed, now));
    Ok(vec![
        Finding::unknown(observed.object_name(), message)
            .with_since(control_plane.creation_timestamp())
            .with_hint(CONTROLLER_HINT),
    ])
}

pub fn check_status_outdated(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let control_plane = &observed.control_plane;
    if control_plane.status.conditions.is_empty()
        || control_plane.is_observed()
        // The check `controller-stopped` reports a change that the controller has not processed for too long.
        || stopped_controller_blocker(observed, now).is_some()
        || is_only_unrecorded(observed)
    {
        return Ok(Vec::new());
    }
    let since = observed.unprocessed_since();
    let unprocessed = Problem::controller_stopped(control_plane).message();
    let message = match since {
        Some(since) => format!("{unprocessed}; this has lasted for {}", format_age(since, now)),
        None => {
            format!("{unprocessed}; for how long is unknown, because no object records when the spec changed")
        }
    };
    let object = observed.object_name();
    let finding = match processing_blockers(observed).first() {
        Some(cause) => {
            let finding = Finding::about(cause, CheckOutcome::Unknown, control_plane);
            let message = format!("{message}; {}", finding.message);
            let objects = vec![object];
            Finding {
                objects,
                message,
                ..finding
            }
        }
        None => Finding::unknown(object, format!("{message}{}", controller_suffix(observed, now))).with_hint(
            if since.is_some() {
                CONTROLLER_HINT.to_owned()
            } else {
                let limit = format_duration(OBSERVATION_LIMIT);
                format!("if the controller has still not processed it in {limit}, {CONTROLLER_HINT}")
            },
        ),
    };
    Ok(vec![finding.with_since(since)])
}

/// Whether the controller has compared the Machines with the spec, and no reason is known why it could not process the spec.
fn is_only_unrecorded(observed: &Snapshot) -> bool {
    let control_plane = &observed.control_plane;
    !control_plane.is_observed()
        && control_plane.has_compared_machines()
        && processing_blockers(observed).is_empty()
}

fn check_change_not_recorded(observed: &Snapshot, now: Timestamp) -> CheckResult {
    if !is_only_unrecorded(observed) {
        return Ok(Vec::new());
    }
    let control_plane = &observed.control_plane;
    let message = format!(
        "{CONTROL_PLANE_CONTROLLER} has compared the Machines with generation {} of the spec, but has not recorded it as \
         processed; the last recorded generation is {}: {}{}",
        control_plane.generation(),
        control_plane.status.observed_generation.unwrap_or_default(),
        late_failure(observed),
        controller_suffix(observed, now),
    );
    let hint = format!(
        "look for errors in the controller's log: kubectl logs -n {} -l cluster.x-k8s.io/provider=control-plane-kubeadm \
         --tail=-1; if the log has no error since the change, change any field of the spec, such as nodeDrainTimeoutSeconds",
        lease::CONTROL_PLANE_NAMESPACE
    );
    Ok(vec![
        Finding::unknown(observed.object_name(), message)
            .with_since(control_plane.last_write())
            .with_hint(hint),
    ])
}

/// Which late step of the controller's reconciles fails, as far as the Machines show it. The last step reads the
/// certificates of new Machines from their API servers (`reconcileCertificateExpiries`).
fn late_failure(observed: &Snapshot) -> String {
    let unread: Vec<&str> = observed
        .machines
        .iter()
        .filter(|machine| machine.has_node() && !machine.is_deleting())
        .filter(|machine| machine.status.certificates_expiry_date.is_none())
        .map(Machine::name)
        .collect();
    if unread.is_empty() {
        "a later step of its reconciles fails, or failed earlier; after such a failure, Cluster API 1.13 and later record the \
         change only when the spec changes again"
            .to_owned()
    } else {
        format!(
            "its reconciles fail before it reads the certificates of the API servers of {}; a single API server that it cannot \
             reach is enough",
            join_names(&unread, "and")
        )
    }
}

/// Returns the controller, or a person if the state lasts, because no later reconcile of the controller ends the state.
fn who_records_the_change(_: &Snapshot, finding: &Finding, now: Timestamp) -> Actor {
    match finding.since {
        Some(since) if age(since, now) <= OBSERVATION_LIMIT => Actor::ControlPlaneController,
        _ => Actor::Person,
    }
}

/// Returns the controller, or a person if the controller cannot succeed until someone removes the cause.
fn who_processes_the_spec(observed: &Snapshot, _: &Finding, _: Timestamp) -> Actor {
    if processing_blockers(observed).is_empty() {
        Actor::ControlPlaneController
    } else {
        Actor::Person
    }
}

pub fn check_unavailable(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let Some(condition) = unmet_condition(observed, "Available") else {
        return Ok(Vec::new());
    };
    let mut finding = finding(observed, condition);
    if is_new(observed, now) {
        finding.outcome = CheckOutcome::Unknown;
        finding.message = format!("no Machine is running yet: {}", condition.message_or_reason());
    } else if are_machines_changing(observed, now) && has_changed_within(condition, now, SUMMARY_LAG_LIMIT) {
        finding.outcome = CheckOutcome::Info;
    }
    Ok(vec![finding])
}

pub fn check_certificates_unavailable(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let Some(condition) = unmet_condition(observed, "CertificatesAvailable") else {
        return Ok(Vec::new());
    };
    let mut finding = finding(observed, condition);
    if is_new(observed, now) {
        finding.outcome = CheckOutcome::Info;
    }
    Ok(vec![finding])
}

pub fn check_etcd_cluster_unhealthy(observed: &Snapshot, now: Timestamp) -> CheckResult {
    // Cluster API does not update the condition of an external etcd, and may leave an outdated value.
    if observed.has_external_etcd() {
        return Err(NoResult::skipped("etcd is external"));
    }
    // Other checks report the unhealthy members.
    let is_explained = is_any_left_behind(observed)
        || votes(observed).is_some_and(|votes| votes.unhealthy > 0)
        || !machines_without_etcd(observed).is_empty();
    summary_findings(observed, "EtcdClusterHealthy", is_explained, now)
}

pub fn check_components_unhealthy(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let pods = observed
        .workload
        .value()
        .and_then(|workload| workload.static_pods.value());
    let is_explained =
        is_any_left_behind(observed) || pods.is_some_and(|pods| pods.iter().any(|pod| !pod.ready));
    let findings = summary_findings(observed, "ControlPlaneComponentsHealthy", is_explained, now)?;
    // The pods are newer than the condition, which the controller updates only when it reconciles.
    let is_outdated = pods.is_some_and(|pods| has_pods_of_each_machine(observed, pods));
    Ok(if is_outdated {
        findings.into_iter().map(as_outdated).collect()
    } else {
        findings
    })
}

fn has_pods_of_each_machine(observed: &Snapshot, pods: &[StaticPod]) -> bool {
    let is_etcd_external = observed.has_external_etcd();
    let components = || {
        let all = Component::ALL.into_iter();
        all.filter(move |component| !(is_etcd_external && *component == Component::Etcd))
    };
    let mut nodes = observed.machines.iter().map(Machine::node);
    nodes.all(|node| {
        node.is_some_and(|node| {
            components().all(|component| {
                pods.iter()
                    .any(|pod| pod.node == node && pod.component == component)
            })
        })
    })
}

fn as_outdated(finding: Finding) -> Finding {
    Finding {
        outcome: CheckOutcome::Warn,
        message: format!(
            "{}; but every static pod is ready, so the condition is outdated: the controller updates it when it reconciles, within \
             ten minutes",
            finding.message
        ),
        ..finding
    }
}

pub fn check_workload_disconnected(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let control_plane = &observed.control_plane;
    let of_core = || {
        let message = failed_probe(observed)?.message_or_reason();
        Some(Finding::fail(
            observed.object_name(),
            format!(
                "Cluster API's core controllers cannot connect to the workload cluster, so they neither find the nodes of new \
                 Machines nor drain nodes: {message}"
            ),
        ))
    };
    let finding = unreachable_workload(observed)
        .map(|problem| Finding::about(&problem, CheckOutcome::Fail, control_plane));
    let finding = finding.or_else(of_core);
    Ok(finding.into_iter().collect())
}

/// Returns the findings for a condition that summarizes the Machines. Cluster API sets the condition to False
/// for a Machine that has not joined, a learner, or a member whose Machine was just deleted. The status False
/// is therefore a problem only if it lasts.
fn summary_findings(observed: &Snapshot, kind: &str, is_explained: bool, now: Timestamp) -> CheckResult {
    let limit = if are_machines_changing(observed, now)
        || crate::checks::rollout::has_pending_change(observed, now)
    {
        JoinLimit::of(observed).limit
    } else {
        SUMMARY_LAG_LIMIT
    };
    let lasting =
        unmet_condition(observed, kind).filter(|condition| !has_changed_within(condition, now, limit));
    let findings = lasting
        .filter(|_| !is_explained)
        .map(|condition| finding(observed, condition));
    Ok(findings.into_iter().collect())
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::{
        ConditionStatus::{False, Unknown},
        metadata::Time,
        names::annotation,
    };

    use crate::{
        checks::tests::{Case, says, starts},
        snapshot::{ControllerLease, EtcdMembers, Reading},
        testing::{
            objects::{
                annotate, change_spec, compare_without_record, condition, minutes_ago, scale_without_a_time,
                use_external_etcd,
            },
            snapshot::{failure, in_days},
        },
    };

    /// The Lease of a controller, renewed so many minutes ago.
    fn lease(minutes: i64) -> ControllerLease {
        ControllerLease {
            name: "kubeadm-control-plane-manager-leader-election-capi".to_owned(),
            holder: Some("capi-kubeadm-control-plane-controller-manager-7d_1".to_owned()),
            renewed: Some(minutes_ago(minutes)),
            acquired: None,
            duration_seconds: Some(60),
        }
    }

    pub(crate) const CASES: &[Case] = &[
        ("status-missing", "nothing", |o| {
            o.control_plane().status.observed_generation = None;
            o.control_plane().status.conditions.clear();
        }),
        ("status-missing", "not_whether_it_is_available", |o| {
            o.control_plane()
                .status
                .conditions
                .retain(|other| other.type_ != "Available");
        }),
        ("status-outdated", "older_spec", |o| {
            o.control_plane().metadata.generation = Some(8);
        }),
        ("status-outdated", "scaled_at_an_unknown_time", |o| {
            o.control_plane().metadata.generation = Some(8);
            change_spec(&mut o.control_plane().metadata, minutes_ago(4));
            scale_without_a_time(o.control_plane());
            o.controller_lease = Reading::Read(Some(lease(0)));
        }),
        ("status-outdated", "of_a_stopped_controller", |o| {
            o.control_plane().metadata.generation = Some(8);
            o.controller_lease = Reading::Read(Some(lease(7)));
        }),
        ("status-outdated", "of_a_running_controller", |o| {
            o.control_plane().metadata.generation = Some(8);
            o.controller_lease = Reading::Read(Some(lease(0)));
        }),
        ("status-outdated", "without_a_lease", |o| {
            o.control_plane().metadata.generation = Some(8);
            o.controller_lease = Reading::Read(None);
        }),
        ("status-outdated", "of_a_controller_that_fails", |o| {
            o.control_plane().metadata.generation = Some(8);
            let metadata = &mut o.control_plane().metadata;
            annotate(metadata, annotation::REMEDIATION_IN_PROGRESS, "{");
        }),
        ("change-not-recorded", "without_a_visible_cause", |o| {
            compare_without_record(o.control_plane());
            change_spec(&mut o.control_plane().metadata, minutes_ago(4));
            for number in 1..=3 {
                o.machine(number).status.certificates_expiry_date = Some(in_days(300));
            }
        }),
        ("change-not-recorded", "a_moment_ago", |o| {
            compare_without_record(o.control_plane());
            change_spec(&mut o.control_plane().metadata, minutes_ago(2));
        }),
        (
            "change-not-recorded",
            "without_the_certificates_of_a_machine",
            |o| {
                compare_without_record(o.control_plane());
                for number in 1..=2 {
                    o.machine(number).status.certificates_expiry_date = Some(in_days(300));
                }
                o.controller_lease = Reading::Read(Some(lease(0)));
            },
        ),
        ("change-not-recorded", "because_of_coredns", |o| {
            compare_without_record(o.control_plane());
            o.control_plane().spec.kubeadm_config_spec.fields["clusterConfiguration"]["dns"] =
                serde_json::json!({"imageTag": "v1.11.3"});
            if let Reading::Read(Some(addon)) = &mut o.workload().core_dns {
                addon.image = Some("registry.k8s.io/coredns/coredns:v1.12.1".to_owned());
            }
        }),
        ("workload-disconnected", "probe_fails", |o| {
            let message = "Remote connection probe failed, probe last succeeded at 2026-08-21T11:50:00Z";
            o.cluster_mut().status.remote_connection =
                Some(condition("RemoteConnectionProbe", False, message));
        }),
        ("workload-disconnected", "not_initialized_yet", |o| {
            o.control_plane().status.initialized = false;
            o.cluster_mut().status.remote_connection =
                Some(condition("RemoteConnectionProbe", False, "not established yet"));
        }),
        ("status-outdated", "of_no_holder", |o| {
            o.control_plane().metadata.generation = Some(8);
            o.controller_lease = Reading::Read(Some(ControllerLease {
                holder: None,
                ..lease(7)
            }));
        }),
        ("unavailable", "no", |o| {
            says(o, "Available", False, "no quorum", 5);
        }),
        ("unavailable", "cannot_be_told", |o| {
            says(o, "Available", Unknown, "", 5);
        }),
        ("unavailable", "not_come_up_yet", |o| {
            o.control_plane().status.initialized = false;
            o.control_plane().metadata.creation_timestamp = Some(Time(minutes_ago(9)));
            says(o, "Available", False, "Control plane not yet initialized", 9);
        }),
        ("unavailable", "does_not_come_up", |o| {
            o.control_plane().status.initialized = false;
            o.control_plane().metadata.creation_timestamp = Some(Time(minutes_ago(10)));
            says(o, "Available", False, "Control plane not yet initialized", 10);
        }),
        ("unavailable", "a_moment_ago_while_a_machine_starts", |o| {
            says(o, "Available", False, "no quorum", 0);
            starts(o);
        }),
        ("certificates-unavailable", "no", |o| {
            says(o, "CertificatesAvailable", False, "ca is missing", 5);
        }),
        ("certificates-unavailable", "not_yet", |o| {
            o.control_plane().status.initialized = false;
            o.control_plane().metadata.creation_timestamp = Some(Time(minutes_ago(1)));
            says(o, "CertificatesAvailable", Unknown, "", 1);
        }),
        ("etcd-cluster-unhealthy", "no", |o| {
            says(
                o,
                "EtcdClusterHealthy",
                False,
                "* Machine m2:\n  * EtcdMemberHealthy: alarm",
                5,
            );
        }),
        ("etcd-cluster-unhealthy", "a_moment_ago", |o| {
            says(o, "EtcdClusterHealthy", False, "member without Machine", 0);
        }),
        ("etcd-cluster-unhealthy", "while_a_machine_starts", |o| {
            says(o, "EtcdClusterHealthy", False, "", 9);
            starts(o);
        }),
        ("etcd-cluster-unhealthy", "for_long_while_a_machine_starts", |o| {
            says(o, "EtcdClusterHealthy", False, "", 11);
            starts(o);
        }),
        ("etcd-cluster-unhealthy", "as_the_members_say", |o| {
            says(o, "EtcdClusterHealthy", False, "* Machine m2: dead", 5);
            o.kill(2);
        }),
        ("etcd-cluster-unhealthy", "elsewhere", |o| {
            use_external_etcd(&mut o.control_plane().spec);
            o.secrets().insert("c1-apiserver-etcd-client".to_owned());
            o.survey().stacked = false;
            o.etcd_members = EtcdMembers::External;
            says(o, "EtcdClusterHealthy", Unknown, "", 60);
        }),
        ("components-unhealthy", "outdated", |o| {
            says(
                o,
                "ControlPlaneComponentsHealthy",
                False,
                "* Machine m2: scheduler",
                5,
            );
        }),
        ("components-unhealthy", "no", |o| {
            o.workload().static_pods = Reading::Failed(failure("Pod", "no answer"));
            says(
                o,
                "ControlPlaneComponentsHealthy",
                False,
                "* Machine m2: scheduler",
                5,
            );
        }),
    ];
}
