//! The certificates of a control plane: when each one expires, and who renews it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kcp_api::{
    KubeadmControlPlane, Machine, Object as _, SecretOwnership, decode::parse_time, names::annotation,
};
use serde::Serialize;

use crate::snapshot::{Failure, ca_rotation::RotationRecord};

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// How many days before its expiry a CA counts as expiring soon. To replace a CA, every Machine must be replaced.
const CA_WARNING_DAYS: u64 = 180;

/// How many days before its expiry any other certificate counts as expiring soon.
const WARNING_DAYS: u64 = 30;

/// How long before its expiry the controller renews the client certificate of the kubeconfig: half of 365 days
/// (`ClientCertificateRenewalDuration` in `util/certs/consts.go` of Cluster API v1.14).
const RENEWAL_BEFORE_EXPIRY: SignedDuration = SignedDuration::from_hours(365 * 24 / 2);

/// How long after the time for its renewal a certificate counts as not renewed. The controller reconciles every control plane at
/// least once in ten minutes (`--sync-period`), and an error may delay the reconciliation for some time.
const RENEWAL_GRACE: SignedDuration = SignedDuration::from_hours(24);

/// What a certificate or key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// The CA that signs the certificates of API servers, kubelets and administrators.
    ClusterCa,
    /// The CA that signs the certificates of etcd members and their clients.
    EtcdCa,
    /// The CA that signs the client certificate that API servers present to extension API servers.
    FrontProxyCa,
    /// The keys that sign the tokens of service accounts.
    ServiceAccountKeys,
    /// The kubeconfig with the client certificate of Cluster API and of administrators.
    AdminKubeconfig,
    /// The client certificate that API servers present to an external etcd.
    EtcdClient,
    /// The certificates that kubeadm issues on one Machine.
    Machine,
}

/// When a certificate is valid, or why its validity is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validity {
    Certificate {
        /// When the certificate was issued. `None` if only the expiry is recorded.
        issued: Option<Timestamp>,
        expires: Timestamp,
    },
    /// The keys have no certificate, so they never expire.
    NoExpiry,
    /// The object does not need a certificate, for example because it authenticates with a token.
    NoCertificate { why: String },
    /// The object does not exist, or does not have the certificate.
    Missing { why: String },
    /// The Secret or Machine could not be read or parsed. The reason is on one line.
    Unread { why: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Renewer {
    /// Cluster API's controller renews the certificate, without a rollout.
    Controller,
    /// kubeadm issues new certificates on each Machine that a rollout creates.
    Rollout,
    /// A person must renew the certificate: neither Cluster API nor kubeadm does.
    Person,
}

/// A certificate in a Secret, or the certificates of a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub purpose: Purpose,
    /// The Secret or Machine with the certificate, such as `Secret/edge-ca` or `Machine/edge-x7k2p`.
    pub object: String,
    pub validity: Validity,
    pub renewer: Renewer,
    /// Who renews the certificate, and how, as a sentence without a period.
    pub renewal: String,
    /// Whether the Secret lacks the ownerReference that Cluster API sets. Without this ownerReference,
    /// deleting the Cluster does not delete the Secret.
    pub lacks_owner: bool,
    /// The last phase of a rotation that `certificates rotate` has written to the Secret. `None` if there is none.
    pub rotation: Option<RotationRecord>,
}

/// How urgently a person has to renew a certificate, least urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Urgency {
    Valid,
    NoExpiry,
    /// The object authenticates without a certificate.
    NoCertificate,
    Unread,
    /// The controller should have renewed the certificate, but has not.
    NotRenewed,
    ExpiresSoon,
    Missing,
    Expired,
}

/// All certificates of one control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    pub namespace: String,
    pub name: String,
    pub certificates: Vec<Certificate>,
    /// Why the controller has not renewed a certificate that it should have renewed, as a clause.
    pub obstacle: String,
}

impl Purpose {
    /// The suffix of the Secret's name, which follows the Cluster's name and a hyphen. `None` for a Machine.
    pub const fn secret_suffix(self) -> Option<&'static str> {
        match self {
            Self::ClusterCa => Some("ca"),
            Self::EtcdCa => Some("etcd"),
            Self::FrontProxyCa => Some("proxy"),
            Self::ServiceAccountKeys => Some("sa"),
            Self::AdminKubeconfig => Some("kubeconfig"),
            Self::EtcdClient => Some("apiserver-etcd-client"),
            Self::Machine => None,
        }
    }

    pub const fn title(self) -> &'static str {
        match self {
            Self::ClusterCa => "cluster CA",
            Self::EtcdCa => "etcd CA",
            Self::FrontProxyCa => "front-proxy CA",
            Self::ServiceAccountKeys => "service account keys",
            Self::AdminKubeconfig => "admin kubeconfig",
            Self::EtcdClient => "etcd client",
            Self::Machine => "kubeadm certificates",
        }
    }

    /// How `certificates rotate --ca` names the CA or the keys. `None` if the command does not rotate them.
    pub const fn rotated_name(self) -> Option<&'static str> {
        match self {
            Self::EtcdCa => Some("etcd"),
            Self::FrontProxyCa => Some("front-proxy"),
            Self::ServiceAccountKeys => Some("service-account"),
            Self::ClusterCa | Self::AdminKubeconfig | Self::EtcdClient | Self::Machine => None,
        }
    }

    const fn warning_days(self) -> u64 {
        match self {
            Self::ClusterCa | Self::EtcdCa | Self::FrontProxyCa => CA_WARNING_DAYS,
            _ => WARNING_DAYS,
        }
    }
}

/// The purposes for which a control plane has Secrets.
pub fn secret_purposes(control_plane: &KubeadmControlPlane) -> Vec<Purpose> {
    let mut purposes = vec![
        Purpose::ClusterCa,
        Purpose::EtcdCa,
        Purpose::FrontProxyCa,
        Purpose::ServiceAccountKeys,
        Purpose::AdminKubeconfig,
    ];
    if control_plane.spec.kubeadm_config_spec.has_external_etcd() {
        purposes.push(Purpose::EtcdClient);
    }
    purposes
}

impl Certificate {
    /// Describes the certificate in a Secret. `ownership` is none if it is not known.
    pub fn of_secret(
        purpose: Purpose,
        secret: &str,
        validity: Validity,
        ownership: Option<SecretOwnership>,
    ) -> Self {
        let person = |what: &str| (Renewer::Person, what.to_owned());
        let (renewer, renewal) = match (purpose, ownership) {
            (Purpose::AdminKubeconfig, Some(SecretOwnership::UserProvided)) => {
                person("you: the Secret is user-provided, and Cluster API does not renew it")
            }
            (Purpose::AdminKubeconfig, _) => (
                Renewer::Controller,
                "Cluster API's control plane controller, six months before the expiry".to_owned(),
            ),
            (Purpose::ServiceAccountKeys, _) => person("you, if the keys must change: they do not expire"),
            (Purpose::EtcdClient, _) => person("the administrators of the external etcd"),
            _ => person("you: neither Cluster API nor kubeadm renews a CA"),
        };
        Self {
            purpose,
            object: format!("Secret/{secret}"),
            validity,
            renewer,
            renewal,
            lacks_owner: ownership == Some(SecretOwnership::Missing),
            rotation: None,
        }
    }

    /// Describes the certificates that kubeadm issued on a Machine.
    pub fn of_machine(control_plane: &KubeadmControlPlane, machine: &Machine) -> Self {
        let annotation = || parse_time(machine.annotation(annotation::CERTIFICATES_EXPIRY)?).ok();
        let expires: Option<Timestamp> = machine.status.certificates_expiry_date.or_else(annotation);
        let validity = match expires {
            Some(expires) => Validity::Certificate {
                issued: None,
                expires,
            },
            None => Validity::Unread {
                why: "Cluster API has not reported the expiry yet".to_owned(),
            },
        };
        Self::issued_by_kubeadm(control_plane, format!("Machine/{}", machine.name()), validity)
    }

    /// Describes the certificates that kubeadm issued on Machines that could not be read.
    pub fn of_unread_machines(control_plane: &KubeadmControlPlane, failure: &Failure) -> Self {
        let validity = Validity::Unread {
            why: failure.message.clone(),
        };
        Self::issued_by_kubeadm(control_plane, failure.object.clone(), validity)
    }

    fn issued_by_kubeadm(control_plane: &KubeadmControlPlane, object: String, validity: Validity) -> Self {
        let (name, namespace) = (control_plane.name(), control_plane.namespace());
        let renewal = match control_plane.spec.certificates_expiry_days {
            Some(days) => format!(
                "kubeadm, when Cluster API replaces the Machine {days} days before the \
                expiry"
            ),
            None => format!("kubeadm, in a rollout: kubectl kcp rollout start {name} -n {namespace}"),
        };
        Self {
            purpose: Purpose::Machine,
            object,
            validity,
            renewer: Renewer::Rollout,
            renewal,
            lacks_owner: false,
            rotation: None,
        }
    }

    pub fn urgency(&self, now: Timestamp) -> Urgency {
        let (issued, expires) = match &self.validity {
            Validity::Certificate { issued, expires } => (*issued, *expires),
            Validity::NoExpiry => return Urgency::NoExpiry,
            Validity::NoCertificate { .. } => return Urgency::NoCertificate,
            Validity::Missing { .. } => return Urgency::Missing,
            Validity::Unread { .. } => return Urgency::Unread,
        };
        if expires <= now {
            return Urgency::Expired;
        }
        // A certificate with a short validity counts as expiring soon in the last third of its validity.
        let third = issued.map_or(Duration::MAX, |issued| time_between(issued, expires) / 3);
        let warning = Duration::from_secs(self.purpose.warning_days() * DAY_SECONDS).min(third);
        if time_between(now, expires) < warning {
            Urgency::ExpiresSoon
        } else if self.overdue_since(now).is_some() {
            Urgency::NotRenewed
        } else {
            Urgency::Valid
        }
    }

    /// When the controller should have renewed the certificate. `None` if the controller does not renew this certificate, or if
    /// [`RENEWAL_GRACE`] has not passed since then.
    pub fn overdue_since(&self, now: Timestamp) -> Option<Timestamp> {
        let Validity::Certificate { issued, expires } = self.validity else {
            return None;
        };
        // A certificate with a shorter validity is renewed in the next reconciliation.
        let due = expires
            .checked_sub(RENEWAL_BEFORE_EXPIRY)
            .ok()?
            .max(issued.unwrap_or(Timestamp::MIN));
        let is_overdue = now.duration_since(due) > RENEWAL_GRACE;
        (self.renewer == Renewer::Controller && is_overdue).then_some(due)
    }

    /// Who renews the certificate, and how; if the controller should have renewed it, also since when and why it has not.
    pub fn renewal_text(&self, obstacle: &str, now: Timestamp) -> String {
        match self.overdue_since(now) {
            None => self.renewal.clone(),
            Some(due) => format!("{}; {}", self.renewal, not_renewed(due, obstacle)),
        }
    }
}

/// Says that the controller should have renewed a certificate.
pub fn not_renewed(due: Timestamp, obstacle: &str) -> String {
    format!(
        "should have been renewed on {}, but {obstacle}",
        due.strftime("%Y-%m-%d")
    )
}

fn time_between(start: Timestamp, end: Timestamp) -> Duration {
    Duration::try_from(end.duration_since(start)).unwrap_or_default()
}

impl Certificates {
    /// The urgency of the certificate that a person must renew first.
    pub fn urgency(&self, now: Timestamp) -> Urgency {
        let urgencies = self
            .certificates
            .iter()
            .map(|certificate| certificate.urgency(now));
        urgencies.max().unwrap_or(Urgency::Valid)
    }

    /// Whether a certificate could not be read. A more urgent certificate hides this from [`Self::urgency`].
    pub fn is_any_unread(&self) -> bool {
        let mut certificates = self.certificates.iter();
        certificates.any(|certificate| matches!(certificate.validity, Validity::Unread { .. }))
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{
        Certificate, Certificates, Purpose, Renewer, SecretOwnership, Urgency, Validity, secret_purposes,
    };
    use crate::testing::{
        objects::{annotate, now, use_external_etcd},
        plan::observed,
    };

    fn in_days(days: i64) -> Timestamp {
        now() + SignedDuration::from_hours(24 * days)
    }

    fn certificate(purpose: Purpose, issued: Option<i64>, expires: i64) -> Certificate {
        let validity = Validity::Certificate {
            issued: issued.map(in_days),
            expires: in_days(expires),
        };
        Certificate::of_secret(purpose, "c1-x", validity, Some(SecretOwnership::ControlPlane))
    }

    #[test]
    fn a_certificate_is_marked_before_it_expires() {
        for (purpose, issued, expires, expected) in [
            (Purpose::ClusterCa, Some(-3000), 650, Urgency::Valid),
            (Purpose::ClusterCa, Some(-3000), 179, Urgency::ExpiresSoon),
            (Purpose::ClusterCa, Some(-3000), 0, Urgency::Expired),
            (Purpose::AdminKubeconfig, Some(-200), 184, Urgency::Valid),
            // Due 182.5 days before the expiry; a day later, it is not renewed.
            (Purpose::AdminKubeconfig, Some(-200), 182, Urgency::Valid),
            (Purpose::AdminKubeconfig, Some(-200), 181, Urgency::NotRenewed),
            (Purpose::AdminKubeconfig, Some(-200), 31, Urgency::NotRenewed),
            (Purpose::AdminKubeconfig, Some(-200), 29, Urgency::ExpiresSoon),
            // Valid for three days: the last third is one day.
            (Purpose::AdminKubeconfig, Some(-1), 2, Urgency::Valid),
            (Purpose::AdminKubeconfig, Some(-2), 3, Urgency::NotRenewed),
            (Purpose::Machine, None, 29, Urgency::ExpiresSoon),
            (Purpose::Machine, None, -1, Urgency::Expired),
        ] {
            let certificate = certificate(purpose, issued, expires);
            assert_eq!(certificate.urgency(now()), expected, "{certificate:?}");
        }
    }

    #[test]
    fn the_most_urgent_certificate_counts() {
        let urgency = |certificates: Vec<Certificate>| {
            Certificates {
                namespace: "d".to_owned(),
                name: "c1-cp".to_owned(),
                certificates,
                obstacle: String::new(),
            }
            .urgency(now())
        };
        let etcd_ca = |validity| Certificate::of_secret(Purpose::EtcdCa, "c1-etcd", validity, None);
        let unread = || {
            etcd_ca(Validity::Unread {
                why: "forbidden".to_owned(),
            })
        };
        let missing = etcd_ca(Validity::Missing {
            why: "not found".to_owned(),
        });
        let valid = || certificate(Purpose::ClusterCa, None, 300);
        assert_eq!(urgency(vec![]), Urgency::Valid);
        assert_eq!(urgency(vec![valid(), unread()]), Urgency::Unread);
        assert_eq!(urgency(vec![unread(), missing, valid()]), Urgency::Missing);
        assert_eq!(
            urgency(vec![certificate(Purpose::ClusterCa, None, -1), unread()]),
            Urgency::Expired
        );
    }

    #[test]
    fn each_certificate_names_what_renews_it() {
        let valid = || Validity::Certificate {
            issued: None,
            expires: in_days(300),
        };
        for (purpose, ownership, expected) in [
            (Purpose::ClusterCa, SecretOwnership::ControlPlane, Renewer::Person),
            (
                Purpose::ServiceAccountKeys,
                SecretOwnership::ControlPlane,
                Renewer::Person,
            ),
            (
                Purpose::AdminKubeconfig,
                SecretOwnership::ControlPlane,
                Renewer::Controller,
            ),
            (
                Purpose::AdminKubeconfig,
                SecretOwnership::Missing,
                Renewer::Controller,
            ),
            (
                Purpose::AdminKubeconfig,
                SecretOwnership::UserProvided,
                Renewer::Person,
            ),
            (
                Purpose::EtcdClient,
                SecretOwnership::UserProvided,
                Renewer::Person,
            ),
        ] {
            let certificate = Certificate::of_secret(purpose, "c1-x", valid(), Some(ownership));
            assert_eq!(certificate.renewer, expected, "{certificate:?}");
            assert_eq!(
                certificate.lacks_owner,
                ownership == SecretOwnership::Missing,
                "{certificate:?}"
            );
        }
        let mut observed = observed();
        let renewal = |observed: &crate::snapshot::Snapshot| {
            Certificate::of_machine(&observed.control_plane, &observed.machines[0]).renewal
        };
        assert_eq!(
            renewal(&observed),
            "kubeadm, in a rollout: kubectl kcp rollout start c1-cp -n d"
        );
        observed.control_plane.spec.certificates_expiry_days = Some(21);
        assert_eq!(
            renewal(&observed),
            "kubeadm, when Cluster API replaces the Machine 21 days before the expiry"
        );
    }

    #[test]
    fn a_kubeconfig_that_was_not_renewed_says_since_when_and_why() {
        let kubeconfig = |ownership| {
            let validity = Validity::Certificate {
                issued: Some(in_days(-275)),
                expires: in_days(90),
            };
            Certificate::of_secret(
                Purpose::AdminKubeconfig,
                "c1-kubeconfig",
                validity,
                Some(ownership),
            )
        };
        let text = |ownership| kubeconfig(ownership).renewal_text("the Cluster is paused", now());
        let overdue = "Cluster API's control plane controller, six months before the expiry; should have been renewed on \
            2026-05-21, but the Cluster is paused";
        assert_eq!(text(SecretOwnership::ControlPlane), overdue);
        // The controller makes itself the owner before it renews the certificate (`adoptKubeconfigSecret`).
        assert_eq!(text(SecretOwnership::Missing), overdue);
        assert_eq!(
            text(SecretOwnership::UserProvided),
            "you: the Secret is user-provided, and Cluster API does not renew it"
        );
    }

    #[test]
    fn the_annotation_of_a_machine_has_its_expiry() {
        let observed = observed();
        let mut machine = observed.machines[0].clone();
        let validity =
            |machine: &kcp_api::Machine| Certificate::of_machine(&observed.control_plane, machine).validity;
        assert!(matches!(validity(&machine), Validity::Unread { .. }));
        annotate(
            &mut machine.metadata,
            "machine.cluster.x-k8s.io/certificates-expiry",
            "2027-01-02T03:04:05Z",
        );
        let expected = Validity::Certificate {
            issued: None,
            expires: "2027-01-02T03:04:05Z".parse().expect("a time"),
        };
        assert_eq!(validity(&machine), expected);
    }

    #[test]
    fn only_an_external_etcd_needs_a_client_certificate() {
        let mut observed = observed();
        assert!(!secret_purposes(&observed.control_plane).contains(&Purpose::EtcdClient));
        use_external_etcd(&mut observed.control_plane.spec);
        assert!(secret_purposes(&observed.control_plane).contains(&Purpose::EtcdClient));
    }
}
