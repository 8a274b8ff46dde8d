//! Checks of the Secrets with certificates, and of the expiry of certificates.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckOutcome, CheckResult, Finding, NoResult, WORKLOAD, machine_object, require},
        machine_grace::{machine_of_node, require_machines},
        machines::replacement_hint,
        membership::{ETCD, queried_objects},
    },
    duration::format_duration,
    join_times::JoinLimit,
    problem::{CONTROL_PLANE_CONTROLLER, CONTROLLER_HINT, Problem, pauses},
    snapshot::{
        Reading, Snapshot,
        certificates::{Certificate, Urgency, Validity, not_renewed},
    },
    staleness::{age, format_age},
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "secrets-missing",
        "A Secret with a certificate, a key or the kubeconfig does not exist.",
        check_secrets_missing,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "secrets-not-owned",
        "If you delete the Cluster, a Secret with a CA or a key remains, because the Secret has no owner.",
        check_secrets_not_owned,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "secret-certificates-expiring",
        "A CA, the kubeconfig or the client certificate for an external etcd expires soon, has expired, or was not \
         renewed in time.",
        check_secret_certificates_expiring,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "machine-certificates-expiring",
        "The certificates of a Machine expire soon, or have expired.",
        check_machine_certificates_expiring,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "endpoint-certificate-expiring",
        "The certificate of the control plane endpoint expires soon, or has expired.",
        check_endpoint_certificate_expiring,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "etcd-certificates-expiring",
        "The certificate of an etcd member expires soon, or has expired.",
        check_etcd_certificates_expiring,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "ca-rotation-unfinished",
        "The rotation of a CA or of the keys of service accounts is not complete.",
        check_ca_rotation_unfinished,
        Responsible::Fault(Actor::Person),
    ),
];

/// How many days before its expiry the checks warn about a certificate. kubeadm's certificates are valid for
/// a year; for certificates with a shorter validity, the warning begins when a third of the validity is left.
const EXPIRY_WARNING_DAYS: u64 = 30;

const DAY_SECONDS: u64 = 24 * 60 * 60;

fn outcome_of_expiry(
    observed: &Snapshot,
    expires: Timestamp,
    now: Timestamp,
) -> Option<(CheckOutcome, String)> {
    if expires <= now {
        return Some((
            CheckOutcome::Fail,
            format!("certificate expired {} ago", format_age(expires, now)),
        ));
    }
    let left = age(now, expires);
    let validity = observed.control_plane.spec.certificate_validity_days();
    let third = u64::try_from(validity).unwrap_or_default() / 3;
    let warning = Duration::from_secs(EXPIRY_WARNING_DAYS.min(third).saturating_mul(DAY_SECONDS));
    (left < warning).then(|| {
        (
            CheckOutcome::Warn,
            format!("certificate expires in {}", format_duration(left)),
        )
    })
}

fn renewal_hint(observed: &Snapshot) -> String {
    let control_plane = &observed.control_plane;
    format!(
        "replace the Machines to renew the certificates: kubectl kcp rollout start {} -n {}",
        control_plane.name(),
        control_plane.namespace()
    )
}

pub fn check_machine_certificates_expiring(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    let findings = observed.machines.iter().filter_map(|machine| {
        let (outcome, message) = outcome_of_expiry(observed, machine.status.certificates_expiry_date?, now)?;
        Some(Finding::new(outcome, machine_object(machine.name()), message).with_hint(renewal_hint(observed)))
    });
    Ok(findings.collect())
}

pub fn check_ca_rotation_unfinished(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let certificates = require(&observed.certificates, "the certificates in Secrets")?;
    let rotated = certificates
        .iter()
        .filter_map(|certificate| Some((certificate, certificate.rotation.as_ref()?)));
    let rotated: Vec<_> = rotated.collect();
    if !rotated.is_empty() {
        require_machines(observed)?;
    }
    let control_plane = &observed.control_plane;
    let findings = rotated.into_iter().filter_map(|(certificate, record)| {
        let progress = record.progress(&observed.machines)?;
        let message = format!("rotation of the {}: {progress}", certificate.purpose.title());
        Some(Finding::info(&certificate.object, &message).with_hint(format!(
            "once every Machine has the new content, continue with certificates rotate --ca {}; see also: kubectl kcp \
             certificates {} -n {}",
            certificate.purpose.rotated_name()?,
            control_plane.name(),
            control_plane.namespace()
        )))
    });
    Ok(findings.collect())
}

pub fn check_endpoint_certificate_expiring(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let certificate = match &observed.endpoint_certificate {
        Reading::Read(certificate) => certificate,
        unread => {
            require(&observed.workload, WORKLOAD)?;
            require(unread, "the endpoint's certificate")?
        }
    };
    let found = outcome_of_expiry(observed, certificate.expires_at, now).map(|(outcome, message)| {
        Finding::new(outcome, format!("Endpoint/{}", certificate.server), message)
            .with_hint(renewal_hint(observed))
    });
    Ok(found.into_iter().collect())
}

pub fn check_etcd_certificates_expiring(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let survey = require(&observed.etcd, ETCD)?;
    let findings = survey.queried.iter().filter_map(|queried| {
        let (outcome, message) = outcome_of_expiry(observed, queried.certificate_expires_at()?, now)?;
        let finding = Finding {
            objects: queried_objects(queried),
            ..Finding::new(outcome, "", message)
        };
        let machine = machine_of_node(observed, &queried.name);
        Some(match machine.filter(|_| outcome == CheckOutcome::Fail) {
            // While a member does not respond, a rollout does not start.
            Some(machine) => finding.with_hint(replacement_hint(observed, machine)),
            None if survey.stacked => finding.with_hint(renewal_hint(observed)),
            None => finding,
        })
    });
    Ok(findings.collect())
}

/// Checks the owners of the Secrets. Cluster API makes the control plane the owner of every Secret of the type
/// `cluster.x-k8s.io/secret`. A Secret that a person provided has another type, and keeps its owners
/// (`ensureCertificatesOwnerRef`).
pub fn check_secrets_not_owned(observed: &Snapshot, _: Timestamp) -> CheckResult {
    require(&observed.secrets, "Secrets")?;
    let control_plane = &observed.control_plane;
    let cluster = control_plane.cluster().unwrap_or_default();
    let purposes = ["ca", "etcd", "proxy", "sa"];
    // A person provides the CA of an external etcd.
    let purposes = purposes
        .into_iter()
        .filter(|purpose| *purpose != "etcd" || !observed.has_external_etcd());
    let findings = purposes
        .map(|purpose| format!("{cluster}-{purpose}"))
        .filter(|name| observed.unowned_secrets.contains(name))
        .map(|name| {
            let message = "has no ownerReference, so deleting the Cluster does not delete the Secret; Cluster API adds \
                an ownerReference only if the Secret has the type cluster.x-k8s.io/secret";
            Finding::info(format!("Secret/{name}"), message).with_hint(format!(
                "see who provided the Secret: kubectl kcp certificates {} -n {}",
                control_plane.name(),
                control_plane.namespace()
            ))
        });
    Ok(findings.collect())
}

/// Checks the certificates in Secrets. A Secret that does not exist is a finding of another check.
pub fn check_secret_certificates_expiring(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let certificates = require(&observed.certificates, "the certificates in Secrets")?;
    let findings: Vec<Finding> = certificates
        .iter()
        .filter_map(|certificate| finding_of_secret(observed, certificate, now))
        .collect();
    let unread = certificates
        .iter()
        .find_map(|certificate| match &certificate.validity {
            Validity::Missing { why } | Validity::Unread { why } => {
                Some(format!("{}: {why}", certificate.object))
            }
            _ => None,
        });
    match unread {
        Some(unread) if findings.is_empty() => Err(NoResult::unknown(unread)),
        _ => Ok(findings),
    }
}

fn finding_of_secret(observed: &Snapshot, certificate: &Certificate, now: Timestamp) -> Option<Finding> {
    let Validity::Certificate { expires, .. } = certificate.validity else {
        return None;
    };
    let title = certificate.purpose.title();
    let (outcome, expiry) = match certificate.urgency(now) {
        Urgency::Expired => (
            CheckOutcome::Fail,
            format!(
                "the certificate ({title}) expired {} ago",
                format_age(expires, now)
            ),
        ),
        Urgency::ExpiresSoon | Urgency::NotRenewed => (
            CheckOutcome::Warn,
            format!(
                "the certificate ({title}) expires in {}",
                format_age(now, expires)
            ),
        ),
        _ => return None,
    };
    let finding = |message: &str| Finding::new(outcome, &certificate.object, message);
    let Some(due) = certificate.overdue_since(now) else {
        return Some(finding(&expiry).with_hint(format!("renewed by {}", certificate.renewal)));
    };
    let message = format!("{expiry}; it {}", not_renewed(due, &renewal_obstacle(observed)));
    Some(
        finding(&message)
            .with_since(Some(due))
            .with_hint(overdue_hint(observed)),
    )
}

/// Why the controller does not renew the kubeconfig of a control plane, as a clause. It renews nothing while the control plane
/// is paused or the Cluster has no endpoint (`reconcileKubeconfig` in
/// `controlplane/kubeadm/reconcilers/kubeadmcontrolplane/helpers.go` of Cluster API v1.14).
pub fn renewal_obstacle(observed: &Snapshot) -> String {
    let no_endpoint = (!observed.has_endpoint()).then_some(Problem::NoEndpoint);
    let problem = pauses(observed).into_iter().chain(no_endpoint).next();
    problem.map_or_else(
        || format!("{CONTROL_PLANE_CONTROLLER} has not renewed it"),
        |problem| problem.message(),
    )
}

/// How to get a certificate that the controller should have renewed.
fn overdue_hint(observed: &Snapshot) -> String {
    if observed.is_paused() {
        "the controller renews the certificate as soon as it reconciles the control plane again".to_owned()
    } else if observed.has_endpoint() {
        format!(
            "let the controller renew the certificate: {}; if this has no effect, {CONTROLLER_HINT}",
            observed.reconcile_command()
        )
    } else {
        "the controller renews the certificate once spec.controlPlaneEndpoint of the Cluster is set"
            .to_owned()
    }
}

pub fn check_secrets_missing(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let present: &BTreeSet<String> = require(&observed.secrets, "Secrets")?;
    let control_plane = &observed.control_plane;
    let Some(cluster) = &control_plane.cluster() else {
        return Err(NoResult::skipped("the control plane has no Cluster yet"));
    };
    // Only an external etcd requires the client certificate. The Secret with the CA has the same name for a stacked and
    // an external etcd.
    let client = control_plane
        .spec
        .kubeadm_config_spec
        .has_external_etcd()
        .then_some("apiserver-etcd-client");
    let required = ["ca", "etcd", "proxy", "sa", "kubeconfig"];
    // The controller creates the Secrets before the first Machine.
    let is_new = !control_plane.status.initialized
        && control_plane
            .creation_timestamp()
            .is_some_and(|created| age(created, now) < JoinLimit::of(observed).limit);
    let absent = required
        .into_iter()
        .chain(client)
        .map(|purpose| format!("{cluster}-{purpose}"))
        .filter(|name| !present.contains(name));
    let (unread, absent): (Vec<String>, Vec<String>) = absent.partition(|name| {
        let mut unread = observed.failed_reads.iter();
        unread.any(|failure| failure.object.strip_prefix("Secret/") == Some(name))
    });
    if let (Some(unread), true) = (unread.first(), absent.is_empty()) {
        return Err(NoResult::unknown(format!("could not read Secret/{unread}")));
    }
    let findings = absent.into_iter().map(|secret| {
        let object = || format!("Secret/{secret}");
        if is_new {
            return Finding::info(object(), "does not exist yet");
        }
        if secret.ends_with("-kubeconfig") {
            return Finding::fail(object(), "does not exist").with_hint(format!(
                "let the controller create the kubeconfig again: {}",
                observed.reconcile_command()
            ));
        }
        if secret.ends_with("-apiserver-etcd-client") {
            let hint = format!(
                "create Secret {secret} with a client certificate that the CA of the external etcd signed; then let the controller \
                 try again: {}",
                observed.reconcile_command()
            );
            let object = object();
            return Finding::fail(object, Problem::NoKey { secret }.message()).with_hint(hint);
        }
        Finding::about(&Problem::NoKey { secret }, CheckOutcome::Fail, control_plane)
    });
    Ok(findings.collect())
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::{machine::Bootstrap, metadata::Time};

    use crate::{
        checks::tests::{Case, unread},
        snapshot::{
            EtcdMembers, Reading, Snapshot,
            ca_rotation::{RotationPhase, RotationRecord},
            certificates::{Purpose, Renewer, Validity},
        },
        testing::{
            objects::{minutes_ago, now, pause, use_external_etcd},
            snapshot::{failure, in_days, secrets},
        },
    };

    fn expires(observed: &mut Snapshot, purpose: Purpose, days: i64) {
        let years = if purpose == Purpose::AdminKubeconfig {
            1
        } else {
            10
        };
        observed.certificate(purpose).validity = Validity::Certificate {
            issued: Some(in_days(days - 365 * years)),
            expires: in_days(days),
        };
    }

    pub(crate) const CASES: &[Case] = &[
        ("secrets-missing", "one_could_not_be_read", |o| {
            o.secrets().remove("c1-sa");
            o.failed_reads = vec![failure("Secret/c1-sa", "no answer within 2s")];
        }),
        ("secrets-missing", "absent", |o| {
            o.secrets = Reading::Read(secrets(&["ca", "etcd", "proxy"]));
        }),
        ("secrets-missing", "not_yet", |o| {
            o.secrets = Reading::Read(secrets(&[]));
            o.control_plane().status.initialized = false;
            o.control_plane().metadata.creation_timestamp = Some(Time(minutes_ago(1)));
        }),
        ("secrets-missing", "client_of_an_etcd_elsewhere", |o| {
            use_external_etcd(&mut o.control_plane().spec);
            o.etcd_members = EtcdMembers::External;
            o.survey().stacked = false;
        }),
        (
            "secret-certificates-expiring",
            "kubeconfig_of_a_paused_one",
            |o| {
                pause(&mut o.control_plane().metadata);
                expires(o, Purpose::AdminKubeconfig, 90);
            },
        ),
        (
            "secret-certificates-expiring",
            "kubeconfig_expired_during_a_move",
            |o| {
                o.cluster_mut().spec.paused = true;
                expires(o, Purpose::AdminKubeconfig, -2);
            },
        ),
        (
            "secret-certificates-expiring",
            "kubeconfig_without_an_endpoint",
            |o| {
                o.cluster_mut().spec.control_plane_endpoint = None;
                expires(o, Purpose::AdminKubeconfig, 20);
            },
        ),
        (
            "secret-certificates-expiring",
            "kubeconfig_that_the_controller_left",
            |o| {
                expires(o, Purpose::AdminKubeconfig, 150);
            },
        ),
        (
            "secret-certificates-expiring",
            "kubeconfig_expired_and_the_cluster_is_not_read",
            |o| {
                expires(o, Purpose::AdminKubeconfig, -2);
                unread(o);
            },
        ),
        (
            "secret-certificates-expiring",
            "kubeconfig_of_a_person_expired",
            |o| {
                expires(o, Purpose::AdminKubeconfig, -2);
                let kubeconfig = o.certificate(Purpose::AdminKubeconfig);
                kubeconfig.renewer = Renewer::Person;
                kubeconfig.renewal = "you: no controller owns the Secret".to_owned();
                unread(o);
            },
        ),
        ("secret-certificates-expiring", "kubeconfig_of_a_person", |o| {
            expires(o, Purpose::AdminKubeconfig, 150);
            o.certificate(Purpose::AdminKubeconfig).renewer = Renewer::Person;
        }),
        ("secret-certificates-expiring", "authorities", |o| {
            expires(o, Purpose::ClusterCa, 179);
            expires(o, Purpose::EtcdCa, 181);
            expires(o, Purpose::FrontProxyCa, -1);
        }),
        ("secret-certificates-expiring", "unreadable", |o| {
            o.certificate(Purpose::AdminKubeconfig).validity = Validity::Unread {
                why: "not a valid kubeconfig".to_owned(),
            };
        }),
        ("secrets-not-owned", "provided_by_a_person", |o| {
            o.unowned_secrets = secrets(&["ca", "kubeconfig"]);
        }),
        ("secrets-not-owned", "ca_of_an_etcd_elsewhere", |o| {
            crate::checks::tests::elsewhere(o);
            o.unowned_secrets = secrets(&["etcd"]);
        }),
        ("machine-certificates-expiring", "soon_and_expired", |o| {
            o.machine(1).status.certificates_expiry_date = Some(in_days(29));
            o.machine(2).status.certificates_expiry_date = Some(now());
            o.machine(3).status.certificates_expiry_date = Some(in_days(30));
        }),
        ("machine-certificates-expiring", "short_lived", |o| {
            o.control_plane.spec.kubeadm_config_spec.fields =
                serde_json::json!({"clusterConfiguration": {"certificateValidityPeriodDays": 9}});
            for number in 1..=3 {
                o.machine(number).bootstrap = Bootstrap::Missing;
            }
            o.machine(1).status.certificates_expiry_date = Some(in_days(3));
            o.machine(2).status.certificates_expiry_date = Some(in_days(2));
        }),
        (
            "etcd-certificates-expiring",
            "expired_and_no_connection_is_possible",
            |o| {
                let queried = &mut o.survey().queried[1];
                queried.certificate_expired_at = Some(minutes_ago(5));
                queried.response = Err(failure(
                    "etcd member node-m2",
                    "TLS handshake failed: the member's certificate has expired",
                ));
            },
        ),
        ("endpoint-certificate-expiring", "soon", |o| {
            o.endpoint_certificate().expires_at = in_days(3);
        }),
        (
            "endpoint-certificate-expiring",
            "expired_and_nothing_else_answers",
            |o| {
                o.endpoint_certificate().expires_at = in_days(-1);
                let failure = failure("Secret/c1-kubeconfig", "the certificate is not trusted");
                o.workload = Reading::Failed(failure.clone());
                o.etcd = Reading::Failed(failure);
            },
        ),
        ("endpoint-certificate-expiring", "does_not_come", |o| {
            o.endpoint_certificate = Reading::Failed(failure("https://10.0.0.1:6443", "no TLS"));
        }),
        ("ca-rotation-unfinished", "two_phases_and_a_complete_one", |o| {
            let record = |phase, minutes| {
                Some(RotationRecord {
                    phase,
                    since: minutes_ago(minutes),
                    content: String::new(),
                    older: Vec::new(),
                })
            };
            o.machine(1).metadata.creation_timestamp = Some(Time(minutes_ago(5)));
            o.certificate(Purpose::EtcdCa).rotation = record(RotationPhase::SignWithNew, 10);
            o.certificate(Purpose::FrontProxyCa).rotation = record(RotationPhase::TrustOnlyNew, 10);
            o.certificate(Purpose::ClusterCa).rotation = record(RotationPhase::TrustOnlyNew, 60 * 24 * 30);
        }),
        ("etcd-certificates-expiring", "expired", |o| {
            o.answer(2).certificate_expires_at = Some(in_days(-1));
        }),
    ];
}
