//! Certificates: those that are there, and when they expire.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::{
    checks::{
        Check,
        components::WORKLOAD,
        etcd_quorum::ETCD,
        finding::{CheckOutcome, Finding, Judgement, Unjudged, machine, need},
        machine_grace::machines_read,
        membership::asked_objects,
    },
    duration::format_duration,
    snapshot::{Reading, Snapshot},
    staleness::{JOIN_LIMIT, age, since},
};

pub const CHECKS: &[Check] = &[
    Check::new("secrets-present", "the Secrets of the cluster exist", secrets),
    Check::new(
        "machine-certificates",
        "no Machine's certificates expire soon",
        of_machines,
    ),
    Check::new(
        "endpoint-certificate",
        "the endpoint's certificate does not expire soon",
        of_endpoint,
    ),
    Check::new(
        "etcd-certificates",
        "no etcd member's certificate expires soon",
        of_etcd,
    ),
];

/// Days before its expiry from which a certificate is a warning. kubeadm's certificates last a year; for shorter ones a
/// third of their validity.
const EXPIRY_WARNING_DAYS: u64 = 30;

const DAY_SECONDS: u64 = 24 * 60 * 60;

fn expiry(observed: &Snapshot, expires: Timestamp, now: Timestamp) -> Option<(CheckOutcome, String)> {
    if expires <= now {
        return Some((
            CheckOutcome::Fail,
            format!("certificate expired {} ago", since(expires, now)),
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

pub fn of_machines(observed: &Snapshot, now: Timestamp) -> Judgement {
    machines_read(observed)?;
    let findings = observed.machines.iter().filter_map(|of| {
        let (outcome, message) = expiry(observed, of.status.certificates_expiry_date?, now)?;
        Some(Finding::of(outcome, machine(of.name()), message).hint(renewal_hint(observed)))
    });
    Ok(findings.collect())
}

pub fn of_endpoint(observed: &Snapshot, now: Timestamp) -> Judgement {
    let certificate = match &observed.endpoint_certificate {
        Reading::Read(certificate) => certificate,
        unread => {
            need(&observed.workload, WORKLOAD)?;
            need(unread, "the endpoint's certificate")?
        }
    };
    let found = expiry(observed, certificate.expires, now).map(|(outcome, message)| {
        Finding::of(outcome, format!("Endpoint/{}", certificate.server), message).hint(renewal_hint(observed))
    });
    Ok(found.into_iter().collect())
}

pub fn of_etcd(observed: &Snapshot, now: Timestamp) -> Judgement {
    let survey = need(&observed.etcd, ETCD)?;
    let findings = survey.answers().filter_map(|(asked, answer)| {
        let (outcome, message) = expiry(observed, answer.certificate_expires?, now)?;
        let finding = Finding {
            objects: asked_objects(asked),
            ..Finding::of(outcome, "", message)
        };
        Some(if survey.stacked {
            finding.hint(renewal_hint(observed))
        } else {
            finding
        })
    });
    Ok(findings.collect())
}

pub fn secrets(observed: &Snapshot, now: Timestamp) -> Judgement {
    let present: &BTreeSet<String> = need(&observed.secrets, "Secrets")?;
    let control_plane = &observed.control_plane;
    let Some(cluster) = &control_plane.cluster() else {
        return Err(Unjudged::skipped("it has no Cluster yet"));
    };
    // The CA of an etcd elsewhere is in the same place, beside a client's certificate that only then is needed.
    let client = control_plane
        .spec
        .kubeadm_config_spec
        .has_external_etcd()
        .then_some("apiserver-etcd-client");
    let wanted = ["ca", "etcd", "proxy", "sa", "kubeconfig"];
    // The controller makes them before the first Machine.
    let is_new = !control_plane.status.initialized
        && control_plane
            .creation_timestamp()
            .is_some_and(|created| age(created, now) < JOIN_LIMIT);
    let absent: Vec<String> = wanted
        .into_iter()
        .chain(client)
        .map(|purpose| format!("{cluster}-{purpose}"))
        .filter(|name| !present.contains(name))
        .map(|name| format!("Secret/{name}"))
        .collect();
    let (unread, absent): (Vec<String>, Vec<String>) = absent.into_iter().partition(|object| {
        let mut unread = observed.unread.iter();
        unread.any(|failure| failure.object == *object)
    });
    if let (Some(unread), true) = (unread.first(), absent.is_empty()) {
        return Err(Unjudged::unknown(format!("{unread}: could not be read")));
    }
    let findings = absent.into_iter().map(|object| {
        if is_new {
            return Finding::info(object, "does not exist yet");
        }
        Finding::fail(object, "does not exist").hint(format!(
            "see: kubectl get secrets -n {} -l cluster.x-k8s.io/cluster-name={cluster}",
            control_plane.namespace()
        ))
    });
    Ok(findings.collect())
}

#[cfg(test)]
pub(super) mod cases {
    use kcp_api::{machine::Bootstrap, metadata::Time};

    use crate::{
        checks::tests::Case,
        snapshot::{EtcdMembers, Reading},
        testing::{
            objects::{minutes_ago, now, use_external_etcd},
            snapshot::{failure, in_days, secrets},
        },
    };

    pub(crate) const CASES: &[Case] = &[
        ("secrets-present", "one_could_not_be_read", |o| {
            o.secrets().remove("c1-sa");
            o.unread = vec![failure("Secret/c1-sa", "no answer within 2s")];
        }),
        ("secrets-present", "absent", |o| {
            o.secrets = Reading::Read(secrets(&["ca", "etcd", "proxy"]));
        }),
        ("secrets-present", "not_yet", |o| {
            o.secrets = Reading::Read(secrets(&[]));
            o.control_plane().status.initialized = false;
            o.control_plane().metadata.creation_timestamp = Some(Time(minutes_ago(1)));
        }),
        ("secrets-present", "client_of_an_etcd_elsewhere", |o| {
            use_external_etcd(&mut o.control_plane().spec);
            o.etcd_members = EtcdMembers::External;
            o.survey().stacked = false;
        }),
        ("machine-certificates", "soon_and_expired", |o| {
            o.machine(1).status.certificates_expiry_date = Some(in_days(29));
            o.machine(2).status.certificates_expiry_date = Some(now());
            o.machine(3).status.certificates_expiry_date = Some(in_days(30));
        }),
        ("machine-certificates", "short_lived", |o| {
            o.control_plane.spec.kubeadm_config_spec.fields =
                serde_json::json!({"clusterConfiguration": {"certificateValidityPeriodDays": 9}});
            for number in 1..=3 {
                o.machine(number).bootstrap = Bootstrap::Missing;
            }
            o.machine(1).status.certificates_expiry_date = Some(in_days(3));
            o.machine(2).status.certificates_expiry_date = Some(in_days(2));
        }),
        ("endpoint-certificate", "soon", |o| {
            o.endpoint_certificate().expires = in_days(3);
        }),
        ("endpoint-certificate", "expired_and_nothing_else_answers", |o| {
            o.endpoint_certificate().expires = in_days(-1);
            let failure = failure("Secret/c1-kubeconfig", "the certificate is not trusted");
            o.workload = Reading::Failed(failure.clone());
            o.etcd = Reading::Failed(failure);
        }),
        ("endpoint-certificate", "does_not_come", |o| {
            o.endpoint_certificate = Reading::Failed(failure("https://10.0.0.1:6443", "no TLS"));
        }),
        ("etcd-certificates", "expired", |o| {
            o.answer(2).certificate_expires = Some(in_days(-1));
        }),
    ];
}
