//! Checks whether each source of the snapshot could be read.

use jiff::Timestamp;
use kcp_api::Condition;

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckResult, Finding, WORKLOAD, require},
        membership::ETCD,
    },
    snapshot::{Failure, Forbidden, Reading, Snapshot, etcd::Alarms},
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "management-unreadable",
        "An object in the management cluster could not be read.",
        check_management_unreadable,
        Responsible::Fault(Actor::Person),
    )
    .as_unread(),
    Check::new(
        "workload-unreachable",
        "The workload cluster could not be read, or could be read only in part.",
        check_workload_unreachable,
        Responsible::Fault(Actor::Person),
    )
    .effect_of(&[&[
        "secrets-missing",
        "secret-certificates-expiring",
        "endpoint-certificate-expiring",
    ]]),
    Check::new(
        "etcd-unreachable",
        "No member of etcd could be queried, for example because Secret `<cluster>-etcd` is not usable.",
        check_etcd_unreachable,
        Responsible::Fault(Actor::Person),
    )
    .effect_of(&[&["workload-unreachable", "secrets-missing"]]),
    Check::new(
        "permissions-missing",
        "The user has no permission to read something that a check needs.",
        check_permissions_missing,
        Responsible::Fault(Actor::Person),
    )
    .as_unread(),
];

/// Returns findings for failed reads, except for missing permissions, which the check `permissions-missing`
/// reports.
fn unread_findings<'f>(failures: impl IntoIterator<Item = &'f Failure>) -> Vec<Finding> {
    failures
        .into_iter()
        .filter(|failure| failure.forbidden.is_none())
        .map(Finding::from_failure)
        .collect()
}

fn management_failures(observed: &Snapshot) -> impl Iterator<Item = &Failure> {
    let readings = [
        observed.cluster.failure(),
        observed.health_checks.failure(),
        observed.secrets.failure(),
    ];
    readings.into_iter().flatten().chain(&observed.failed_reads)
}

fn workload_failures(observed: &Snapshot) -> impl Iterator<Item = &Failure> {
    let parts = observed.workload.value().map(|workload| {
        [
            observed.endpoint_certificate.failure(),
            workload.nodes.failure(),
            workload.static_pods.failure(),
            workload.kube_proxy.failure(),
            workload.core_dns.failure(),
            workload.kubeadm_config.failure(),
            workload.leases.failure(),
        ]
    });
    let whole = observed.workload.failure();
    whole.into_iter().chain(parts.into_iter().flatten().flatten())
}

/// The failed requests to etcd. This file reports only missing permissions; the check `etcd-members-unresponsive`
/// reports members that do not respond.
fn etcd_failures(observed: &Snapshot) -> impl Iterator<Item = &Failure> {
    let survey = observed.etcd.value();
    let members = survey
        .into_iter()
        .flat_map(|survey| &survey.queried)
        .flat_map(|queried| {
            let whole = queried.response.as_ref().err();
            let response = queried.response.as_ref().ok();
            let status = response.and_then(|response| response.status.as_ref().err());
            let list = response.and_then(|response| response.members.as_ref().err());
            [whole, status, list].into_iter().flatten()
        });
    let alarms = survey.and_then(|survey| match &survey.alarms {
        Alarms::Failed(failure) => Some(failure),
        Alarms::Listed(_) | Alarms::FromStatus => None,
    });
    observed.etcd.failure().into_iter().chain(members).chain(alarms)
}

pub fn check_management_unreadable(observed: &Snapshot, _: Timestamp) -> CheckResult {
    Ok(unread_findings(management_failures(observed)))
}

pub fn check_workload_unreachable(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let mut findings = unread_findings(workload_failures(observed));
    for finding in &mut findings {
        let hint = finding.hint.take();
        finding.hint = endpoint_hint(observed, &finding.message).or_else(|| with_recovery(observed, hint));
    }
    require_source(&observed.workload, WORKLOAD, findings)
}

/// Adds the recovery command to a hint about the connection, because no API server responds once etcd has lost its quorum for
/// good. While Cluster API is connected, the hint stays as it is.
fn with_recovery(observed: &Snapshot, hint: Option<String>) -> Option<String> {
    let failure = observed.workload.failure();
    let is_off = failure.is_some_and(|failure| !failure.is_unusable_secret) && !observed.has_external_etcd();
    let cluster = observed.cluster.value();
    let probe = cluster.and_then(|cluster| cluster.status.remote_connection.as_ref());
    hint.map(|hint| {
        if !is_off || probe.is_some_and(Condition::is_true) {
            return hint;
        }
        format!(
            "{hint}; if most control plane hosts are lost for good, continue from a host that is left: {}",
            observed.recover_command()
        )
    })
}

/// Returns a hint if the address of the API server in the message differs from the Cluster's endpoint.
fn endpoint_hint(observed: &Snapshot, message: &str) -> Option<String> {
    let cluster = observed.cluster.value()?;
    let endpoint = cluster.spec.control_plane_endpoint.as_ref()?;
    let address = endpoint.to_string();
    let name = observed.control_plane.cluster()?;
    (message.contains("https://") && !message.contains(&address)).then(|| {
        format!(
            "the address in Secret/{name}-kubeconfig differs from the endpoint of Cluster/{name}, {address}: \
             correct the address in the Secret, or delete the Secret so that Cluster API creates it again"
        )
    })
}

pub fn check_etcd_unreachable(observed: &Snapshot, _: Timestamp) -> CheckResult {
    require_source(&observed.etcd, ETCD, unread_findings(observed.etcd.failure()))
}

fn require_source<T>(reading: &Reading<T>, what: &str, findings: Vec<Finding>) -> CheckResult {
    if findings.is_empty() {
        require(reading, what)?;
    }
    Ok(findings)
}

pub fn check_permissions_missing(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let failures = management_failures(observed)
        .chain(workload_failures(observed))
        .chain(etcd_failures(observed));
    let mut findings: Vec<Finding> = Vec::new();
    for failure in failures {
        let Some(forbidden) = &failure.forbidden else {
            continue;
        };
        let message = message(forbidden);
        // Several reads can fail because the same permission is missing.
        if let Some(known) = findings.iter_mut().find(|known| known.message == message) {
            *known = known.clone().with_object(&failure.object);
            continue;
        }
        let hint = failure.hint.clone().unwrap_or_else(|| hint(observed, forbidden));
        findings.push(Finding::unknown(&failure.object, message).with_hint(hint));
    }
    Ok(findings)
}

fn message(forbidden: &Forbidden) -> String {
    let Forbidden {
        verb,
        resource,
        namespace,
        is_from_workload_cluster: in_workload_cluster,
    } = forbidden;
    let place = match (namespace, in_workload_cluster) {
        (Some(namespace), true) => format!("in namespace {namespace} of the workload cluster"),
        (Some(namespace), false) => format!("in namespace {namespace}"),
        (None, true) => "in the workload cluster".to_owned(),
        (None, false) => "in all namespaces".to_owned(),
    };
    format!("you have no permission to {verb} {resource} {place}")
}

fn hint(observed: &Snapshot, forbidden: &Forbidden) -> String {
    let Forbidden {
        verb,
        resource,
        namespace,
        is_from_workload_cluster: in_workload_cluster,
    } = forbidden;
    let place = match namespace {
        Some(namespace) => format!(" -n {namespace}"),
        None => " -A".to_owned(),
    };
    let question = format!("auth can-i {verb} {resource}{place}");
    if *in_workload_cluster {
        observed.kubectl_in_workload(&question)
    } else {
        format!("kubectl {question}")
    }
}

/// Whether the workload cluster and at least one etcd member responded.
pub fn are_all_read(observed: &Snapshot) -> bool {
    let survey = observed.etcd.value();
    let has_responded = survey.is_some_and(|survey| survey.statuses().next().is_some());
    observed.workload.value().is_some() && has_responded
}

#[cfg(test)]
pub(super) mod test_cases {
    use crate::{
        checks::tests::Case,
        snapshot::{EtcdMembers, Reading, etcd::Alarms},
        testing::{
            objects::use_external_etcd,
            snapshot::{failure, forbidden},
        },
    };

    pub(crate) const CASES: &[Case] = &[
        ("management-unreadable", "health_checks", |o| {
            o.health_checks = Reading::Failed(failure("MachineHealthCheck", "no answer within 2s"));
        }),
        ("management-unreadable", "the_cluster", |o| {
            o.cluster = Reading::Failed(failure("Cluster/c1", "is not there"));
        }),
        ("management-unreadable", "infrastructure", |o| {
            o.failed_reads = vec![failure("DockerMachine", "no answer within 2s")];
        }),
        ("management-unreadable", "machines", |o| {
            o.failed_reads = vec![failure("Machine", "no answer within 2s")];
            o.machines.clear();
        }),
        ("workload-unreachable", "nowhere", |o| {
            let mut nowhere = failure("Secret/c1-kubeconfig", "cannot connect to 10.0.0.1:6443\nrefused");
            nowhere.hint = Some("can this machine reach it?".to_owned());
            o.workload = Reading::Failed(nowhere.clone());
            o.etcd = Reading::Failed(nowhere);
        }),
        ("workload-unreachable", "another_address_than_the_endpoint", |o| {
            let message = "cannot reach the API server at https://127.0.0.1:1: connection refused";
            o.workload = Reading::Failed(failure("Secret/c1-kubeconfig", message));
        }),
        ("workload-unreachable", "nowhere_and_etcd_is_not_asked_for", |o| {
            o.workload = Reading::Failed(failure("Secret/c1-kubeconfig", "is not there"));
            o.etcd = Reading::Excluded { flag: "--no-etcd" };
        }),
        ("workload-unreachable", "left_out", |o| {
            o.workload = Reading::Excluded {
                flag: "--no-workload",
            };
            o.etcd = Reading::Excluded {
                flag: "--no-workload",
            };
        }),
        ("workload-unreachable", "a_part", |o| {
            o.workload().nodes = Reading::Failed(failure("Node", "the server answered 500"));
        }),
        ("workload-unreachable", "static_pods", |o| {
            o.workload().static_pods = Reading::Failed(failure("Pod", "the answer has more than 8 MiB"));
        }),
        ("workload-unreachable", "not_yet", |o| {
            o.workload = Reading::NotYet;
            o.etcd = Reading::NotYet;
        }),
        ("etcd-unreachable", "wrong_ca", |o| {
            o.etcd = Reading::Failed(failure("Secret/c1-etcd", "tls.crt is not a certificate"));
        }),
        ("etcd-unreachable", "elsewhere", |o| {
            use_external_etcd(&mut o.control_plane().spec);
            o.etcd_members = EtcdMembers::External;
            o.secrets().insert("c1-apiserver-etcd-client".to_owned());
            o.etcd = Reading::OutOfReach(failure("etcd", "no way to 10.1.0.1:2379"));
        }),
        ("etcd-unreachable", "left_out", |o| {
            o.etcd = Reading::Excluded { flag: "--no-etcd" };
        }),
        ("permissions-missing", "secrets", |o| {
            o.secrets = Reading::Failed(forbidden("Secret/c1-ca", "get", "secrets", false));
        }),
        ("permissions-missing", "port_forward_of_every_member", |o| {
            for queried in &mut o.survey().queried {
                queried.response = Err(forbidden(
                    &format!("Pod/etcd-{}", queried.name),
                    "create",
                    "pods/portforward",
                    true,
                ));
            }
            o.survey().alarms = Alarms::FromStatus;
        }),
        ("permissions-missing", "cluster_wide", |o| {
            let mut nodes = forbidden("Node", "list", "nodes", true);
            if let Some(forbidden) = &mut nodes.forbidden {
                forbidden.namespace = None;
            }
            o.workload().nodes = Reading::Failed(nodes);
        }),
    ];
}
