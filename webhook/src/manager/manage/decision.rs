//! Decides what the manager writes next. Pure: everything that was read, and the time, are arguments.
//!
//! How a CA is replaced, one step at a time, so that no API server ever refuses a certificate that a Pod serves:
//!
//! 1. The next CA is stored beside the CA that signs.
//! 2. Both webhook configurations get a caBundle with both CAs.
//! 3. After the trust delay, the next CA becomes the CA that signs, and the Secret of the Pods gets a certificate from it.
//!    The CA that signed before stays in the caBundles as a retired CA.
//! 4. When every ready Pod serves a certificate from the CA that signs, the retired CA is removed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kcp_rules::registration::CANARY_LEASE;

use crate::manager::authority::Lifetime;

/// The oldest Kubernetes on which the manifests work. In 1.31, `matchLabelKeys` of Pod affinity became enabled by default,
/// and `unhealthyPodEvictionPolicy` stable; `matchConditions` of webhooks has been stable since 1.30. An older API server
/// drops `matchLabelKeys`, and then an upgrade on two nodes waits forever.
pub(crate) const OLDEST_SERVER: ServerVersion = ServerVersion { major: 1, minor: 31 };

/// The maximum difference between the clocks of the API server and of this host. Certificates are valid from an hour before they
/// are issued, so a smaller difference does no harm.
const MAX_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_mins(5);

/// How long canaries may stay unanswered before the manager reports a problem.
const CANARY_GRACE: Duration = Duration::from_secs(10);

/// The version of an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerVersion {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// What the manager has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) server: ServerVersion,
    /// Whether the `ClusterRole` exists that owns the webhook configurations. If it is gone, kcp-webhook is being
    /// uninstalled.
    pub(crate) has_owner: bool,
    pub(crate) authorities: Authorities,
    pub(crate) serving: Serving,
    /// The mutating and the validating configuration.
    pub(crate) registrations: [Registration; 2],
    /// The certificates that Pods serve. Only read while a retired CA is trusted.
    pub(crate) pods: Vec<ServedCertificate>,
    pub(crate) canary: Canary,
    /// How far the clock of the API server is ahead of that of this host.
    pub(crate) clock_difference: SignedDuration,
}

/// Whether the webhook has answered the last canary. A canary is a write that the API server sends to the webhook because of an
/// entry of the validating configuration. So an answer proves that the API server reaches the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Canary {
    /// No API server sends canaries, because the entry does not exist or is disabled.
    NotSent,
    Answered,
    /// Since this time, no canary has been answered.
    Unanswered(Timestamp),
}

/// The CAs in the Secret of the manager. All of them belong in the caBundles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Authorities {
    /// The CA that signs serving certificates.
    pub(crate) signing: Option<Lifetime>,
    /// The CA that will sign.
    pub(crate) next: Option<Lifetime>,
    /// Since when both configurations have had the next CA in their caBundles.
    pub(crate) next_trusted_since: Option<Timestamp>,
    /// CAs that no longer sign.
    pub(crate) retired: Vec<Lifetime>,
    /// When the CA that signs now began to sign.
    pub(crate) signing_since: Option<Timestamp>,
    /// Whether somebody asked for a new CA, with an annotation of the Secret.
    pub(crate) rotation_requested: bool,
}

/// The certificate in the Secret of the Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serving {
    /// There is no certificate, or no API server would accept it.
    Unusable,
    /// The CA that signs has issued it.
    Signed(Lifetime),
    /// An API server accepts it, but the manager must issue another one: a CA that no longer signs has issued it, or it lacks an
    /// address.
    Outdated,
}

/// A webhook configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    Absent,
    /// It has only the entry of the canary.
    OnlyCanary {
        is_current: bool,
    },
    /// It is as it should be, including the caBundle with all CAs.
    Current,
    /// It differs from the desired configuration. `trusts_any` is false if no certificate in its caBundle is valid.
    Outdated {
        trusts_any: bool,
    },
    /// cert-manager's injector writes its caBundle.
    Injected,
}

/// The certificate that a Pod serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedCertificate {
    /// The Pod, as a message names it.
    pub(crate) pod: String,
    /// Whether the API server may call it.
    pub(crate) is_ready: bool,
    pub(crate) certificate: PodCertificate,
}

/// Which CA has issued the certificate that a Pod serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodCertificate {
    Signing,
    Another,
    /// The Pod does not respond.
    Unknown,
}

/// What to write next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManagerStep {
    /// Create the first CA, which signs at once.
    CreateAuthority,
    /// Store the CAs that the configurations trust: they become retired CAs. Create the first CA as the next CA.
    AdoptTrusted,
    CreateNextAuthority,
    /// Issue a serving certificate.
    IssueCertificate,
    /// Write the validating configuration with only the entry of the canary. If API servers will call the Service, test the
    /// webhook through the Service first.
    RegisterCanary,
    /// Send the next canary soon, because the manager registers no other entry before the webhook answers a canary.
    AwaitCanary,
    /// Write the configurations that differ, after the same test as for [`Self::RegisterCanary`].
    Register,
    /// Record that both configurations trust the next CA.
    RecordTrust,
    /// Remove the record that both configurations trust the next CA, because one of them has changed.
    ForgetTrust,
    /// Let the next CA sign.
    Promote,
    /// Remove the retired CAs.
    RemoveRetired,
    /// Write nothing until this time. `None`: until something changes.
    Wait(Option<Timestamp>),
    /// The certificates are up to date, but the manager cannot write the configurations. If the clocks differ too much, it can
    /// write neither.
    Refuse(CertificateRefusal),
}

/// Why the manager does not register the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateRefusal {
    Clock,
    OldServer(ServerVersion),
    NoOwner,
    Injected,
}

/// Decides the next step.
pub(crate) fn decide(observed: &Observed, trust_delay: Duration, now: Timestamp) -> ManagerStep {
    let authorities = &observed.authorities;
    if observed.clock_difference.abs() > MAX_CLOCK_DIFFERENCE {
        return ManagerStep::Refuse(CertificateRefusal::Clock);
    }
    if let Some(step) = certificate_step(observed, now) {
        return step;
    }
    let is_current = |registration: &Registration| *registration == Registration::Current;
    let all_current = observed.registrations.iter().all(is_current);
    if !all_current && authorities.next_trusted_since.is_some() {
        return ManagerStep::ForgetTrust;
    }
    if !all_current {
        return match refusal(observed) {
            Some(refusal) => ManagerStep::Refuse(refusal),
            None => registration_step(observed),
        };
    }
    match (authorities.next, authorities.next_trusted_since) {
        (None, _) => {}
        (Some(_), None) => return ManagerStep::RecordTrust,
        (Some(_), Some(since)) => {
            let until = later(since, trust_delay);
            return if now >= until {
                ManagerStep::Promote
            } else {
                ManagerStep::Wait(Some(until))
            };
        }
    }
    if !authorities.retired.is_empty() {
        let until = mounted_at(observed, trust_delay, now);
        let all_expired = authorities.retired.iter().all(|retired| retired.until <= now);
        return if all_expired || now >= until && holders(observed).is_empty() {
            ManagerStep::RemoveRetired
        } else {
            ManagerStep::Wait((now < until).then_some(until))
        };
    }
    let renewals = [
        authorities.signing.map(renewal),
        match observed.serving {
            Serving::Signed(lifetime) => Some(renewal(lifetime)),
            Serving::Unusable | Serving::Outdated => None,
        },
    ];
    ManagerStep::Wait(renewals.into_iter().flatten().min())
}

/// Returns the time by which each Pod has mounted the serving certificate of the CA that signs.
fn mounted_at(observed: &Observed, delay: Duration, now: Timestamp) -> Timestamp {
    let since = observed.authorities.signing_since.unwrap_or(now);
    let issued = match observed.serving {
        Serving::Signed(lifetime) => lifetime.issued(),
        Serving::Unusable | Serving::Outdated => since,
    };
    later(since.max(issued), delay)
}

/// Returns the Pods because of which the API servers must still trust the retired CAs. A Pod that is not ready does not count: it
/// has mounted the new certificate by the time it is ready. If no Pod is ready, returns a text that says so, because a Pod may be
/// starting with the previous certificate.
fn holders(observed: &Observed) -> Vec<&str> {
    let ready = || observed.pods.iter().filter(|pod| pod.is_ready);
    if ready().next().is_none() {
        return vec!["no Pod is ready"];
    }
    ready()
        .filter(|pod| pod.certificate != PodCertificate::Signing)
        .map(|pod| pod.pod.as_str())
        .collect()
}

/// Why the retired CAs are trusted for longer than usual.
pub(crate) fn rotation_problem(observed: &Observed, trust_delay: Duration, now: Timestamp) -> Option<String> {
    let holders = holders(observed);
    let waits = !observed.authorities.retired.is_empty() && !holders.is_empty();
    (waits && now >= mounted_at(observed, trust_delay, now)).then(|| {
        format!(
            "the API server still trusts the previous CA of kcp-webhook, because not all Pods serve a certificate of the new \
             CA yet: {}; if a Pod does not respond, delete it",
            holders.join(", ")
        )
    })
}

/// Returns the next step for the CAs and the serving certificate, if a step is due that does not depend on up-to-date webhook
/// configurations.
fn certificate_step(observed: &Observed, now: Timestamp) -> Option<ManagerStep> {
    let authorities = &observed.authorities;
    let Some(signing) = authorities.signing else {
        if authorities.next.is_none() {
            let trusts_any = |registration: &Registration| match registration {
                Registration::Outdated { trusts_any } => *trusts_any,
                Registration::Absent
                | Registration::OnlyCanary { .. }
                | Registration::Current
                | Registration::Injected => false,
            };
            return Some(if observed.registrations.iter().any(trusts_any) {
                ManagerStep::AdoptTrusted
            } else {
                ManagerStep::CreateAuthority
            });
        }
        // The adopted CAs have no keys. If the Secret has no certificate from them, a Pod that starts cannot serve.
        let nothing_to_lose = authorities.retired.iter().all(|retired| retired.until <= now);
        return (nothing_to_lose || observed.serving == Serving::Unusable).then_some(ManagerStep::Promote);
    };
    if signing.until <= now {
        // The CA has expired, so no API server accepts a certificate that it signed.
        return Some(match authorities.next {
            Some(_) => ManagerStep::Promote,
            None => ManagerStep::CreateNextAuthority,
        });
    }
    match observed.serving {
        Serving::Unusable | Serving::Outdated => return Some(ManagerStep::IssueCertificate),
        // A certificate never outlives its CA. If this one expires together with its CA, a new one would not last longer.
        Serving::Signed(lifetime) if now >= renewal(lifetime) && lifetime.until < signing.until => {
            return Some(ManagerStep::IssueCertificate);
        }
        Serving::Signed(_) => {}
    }
    let is_due = authorities.rotation_requested || now >= renewal(signing);
    (authorities.next.is_none() && is_due).then_some(ManagerStep::CreateNextAuthority)
}

/// Returns what to register. An API server that cannot reach the webhook refuses writes because of entries that fail closed. So
/// the manager registers these entries only after the webhook has answered a canary. Entries that exist stay, and the manager
/// keeps them up to date.
fn registration_step(observed: &Observed) -> ManagerStep {
    if is_registered(observed) || observed.canary == Canary::Answered {
        return ManagerStep::Register;
    }
    match observed.registrations {
        [_, Registration::OnlyCanary { is_current: true }] => ManagerStep::AwaitCanary,
        _ => ManagerStep::RegisterCanary,
    }
}

/// Whether a configuration has entries besides that of the canary.
fn is_registered(observed: &Observed) -> bool {
    observed.registrations.iter().any(|registration| {
        !matches!(
            registration,
            Registration::Absent | Registration::OnlyCanary { .. }
        )
    })
}

/// What to say about canaries without an answer. An API server needs a second to read a new entry.
pub(crate) fn canary_problem(observed: &Observed, now: Timestamp) -> Option<String> {
    match observed.canary {
        Canary::Unanswered(since) if now >= later(since, CANARY_GRACE) => {}
        Canary::Unanswered(_) | Canary::Answered | Canary::NotSent => return None,
    }
    let effect = if is_registered(observed) {
        "it refuses writes to control planes"
    } else {
        "the webhook is not registered"
    };
    Some(format!(
        "the API server gets no answer from kcp-webhook when the manager updates Lease {CANARY_LEASE}, so {effect}; if the Pods \
         of kcp-webhook are ready, allow connections from the control plane to their port named webhook, or run the Pods with \
         hostNetwork"
    ))
}

fn refusal(observed: &Observed) -> Option<CertificateRefusal> {
    if observed.server < OLDEST_SERVER {
        Some(CertificateRefusal::OldServer(observed.server))
    } else if !observed.has_owner {
        Some(CertificateRefusal::NoOwner)
    } else if observed.registrations.contains(&Registration::Injected) {
        Some(CertificateRefusal::Injected)
    } else {
        None
    }
}

/// When to replace a certificate: after two thirds of its validity, as cert-manager does by default.
fn renewal(lifetime: Lifetime) -> Timestamp {
    let third = lifetime.until.duration_since(lifetime.from) / 3;
    lifetime.until.checked_sub(third).unwrap_or(lifetime.until)
}

pub(super) fn later(time: Timestamp, delay: Duration) -> Timestamp {
    time.checked_add(delay).unwrap_or(Timestamp::MAX)
}

impl std::fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl std::fmt::Display for CertificateRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Clock => f.write_str(
                "certificates and registration stay as they are, because the clocks of the API server and of the manager differ by \
                 more than five minutes; correct the clocks of their nodes",
            ),
            Self::OldServer(version) => write!(
                f,
                "the manager does not register the webhook: the API server has version {version}, and kcp-webhook needs \
                 {OLDEST_SERVER} or newer; upgrade Kubernetes"
            ),
            Self::NoOwner => f.write_str(
                "the manager does not register the webhook: the ClusterRole that owns the webhook configurations does not exist; \
                 apply manifests/managed again, or delete the manager too",
            ),
            Self::Injected => f.write_str(
                "the manager does not register the webhook: cert-manager writes the caBundle of a webhook configuration; remove \
                 its annotation cert-manager.io/inject-ca-from, or delete the manager",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
