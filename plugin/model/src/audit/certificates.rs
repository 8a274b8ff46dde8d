//! Certificates that expire while the machines are off. After that, components cannot connect to each other, and nothing can
//! renew their certificates. The certificate of kcp-webhook is replaced after the start. Until then, kcp-webhook admits no change.

use std::time::Duration;

use jiff::Timestamp;
use kcp_rules::syntax::parse_go_duration;

use crate::{
    audit::{
        Assumptions, AuditCheck, Evidence, Facts,
        evidence::{either, require},
        static_pods::{PODS, control_plane_nodes, pod_of},
    },
    certificates::Validity,
    duration::format_duration,
    snapshot::{Reading, workload::Component},
    staleness::{age, format_age},
};

pub const CHECKS: &[AuditCheck] = &[
    AuditCheck {
        id: "certificates-expire-while-off",
        requirement: "each certificate is valid for longer than the machines stay off",
        remedy: "before you switch off the machines, renew the CAs and the certificates. To renew the certificates, run kubeadm \
            certs renew all on each control plane Node, or start a rollout: kubectl kcp rollout start NAME",
        function: check_certificates_expire_while_off,
    },
    AuditCheck {
        id: "kubelet-certificates-expire-while-off",
        requirement: "the client certificate of each kubelet is valid for longer than the machines stay off",
        remedy: "set --cluster-signing-duration of kube-controller-manager to ten times the time for which the machines stay off; \
            a kubelet whose certificate has expired must join again",
        function: check_kubelet_certificates_expire_while_off,
    },
    AuditCheck {
        id: "webhook-certificate-expires-while-off",
        requirement: "if kcp-webhook is registered, its serving certificate is valid for longer than the machines stay off",
        remedy: "before you switch off the machines, replace the certificate. If cert-manager or the manager of kcp-webhook \
            issued the certificate, delete its Secret: the issuer then creates a certificate that is valid for 90 days. If the \
            machines stay off for longer, API servers refuse changes of control planes until you replace the certificate",
        function: check_webhook_certificate_expires_while_off,
    },
];

fn check_certificates_expire_while_off(facts: &Facts, assumptions: Assumptions) -> Evidence {
    let mut evidence = Evidence::default();
    let mut found = |what: String, expires: Timestamp| judge(&mut evidence, &what, expires, assumptions);
    for certificate in &facts.certificates.managed {
        if let Validity::Certificate { expires, .. } = certificate.validity {
            found(
                format!("{} of {}", certificate.purpose.title(), certificate.object),
                expires,
            );
        }
    }
    if let Reading::Read(endpoint) = &facts.certificates.endpoint {
        found(
            format!("the serving certificate of {}", endpoint.server),
            endpoint.expires_at,
        );
    }
    for (name, expires) in facts.certificates.authorities.value().into_iter().flatten() {
        found(name.clone(), *expires);
    }
    for queried in facts
        .etcd
        .survey
        .value()
        .into_iter()
        .flat_map(|survey| &survey.queried)
    {
        if let Some(expires) = queried.certificate_expires_at() {
            found(
                format!("the serving certificate of etcd member {}", queried.name),
                expires,
            );
        }
    }
    for certificate in &facts.certificates.managed {
        match &certificate.validity {
            Validity::Missing { why } | Validity::Unread { why } => {
                evidence.unknown(format!(
                    "{} of {}: {why}",
                    certificate.purpose.title(),
                    certificate.object
                ));
            }
            Validity::Certificate { .. } | Validity::NoExpiry | Validity::NoCertificate { .. } => {}
        }
    }
    let unread = [
        require(
            &facts.certificates.endpoint,
            "the serving certificate of the endpoint",
        )
        .err(),
        require(
            &facts.certificates.authorities,
            "the ConfigMap extension-apiserver-authentication",
        )
        .err(),
    ];
    for reason in unread
        .into_iter()
        .flatten()
        .flat_map(|reasons| reasons.decide().1)
    {
        evidence.unknown(reason);
    }
    if !facts.certificates.is_managed {
        evidence.unknown(
            "the certificates in /etc/kubernetes/pki cannot be read through the API; on each control plane Node, run: kubeadm \
             certs check-expiration",
        );
    }
    evidence
}

fn judge(evidence: &mut Evidence, what: &str, expires: Timestamp, assumptions: Assumptions) {
    let Assumptions { now, power_off } = assumptions;
    if expires <= now {
        evidence.fail(format!("{what} expired {} ago", format_age(expires, now)));
        return;
    }
    let left = age(now, expires);
    let text = format!("{what} expires in {}", format_duration(left));
    if left <= power_off {
        evidence.fail(format!(
            "{text}, but the machines may be off for {}",
            format_duration(power_off)
        ));
    } else {
        evidence.pass(text);
    }
}

fn check_webhook_certificate_expires_while_off(facts: &Facts, assumptions: Assumptions) -> Evidence {
    const WHAT: &str = "the serving certificate of kcp-webhook";
    let certificate = match require(&facts.certificates.webhook, WHAT) {
        Ok(certificate) => certificate,
        Err(unread) => return unread,
    };
    let mut evidence = Evidence::default();
    match certificate {
        None => evidence.pass("the cluster has no webhook configuration of kcp-webhook"),
        Some(Validity::Certificate { expires, .. }) => judge(&mut evidence, WHAT, *expires, assumptions),
        Some(Validity::Missing { why } | Validity::Unread { why } | Validity::NoCertificate { why }) => {
            evidence.unknown(format!("{WHAT}: {why}"));
        }
        Some(Validity::NoExpiry) => evidence.pass(format!("{WHAT} never expires")),
    }
    evidence
}

/// The default of `--cluster-signing-duration`.
const SIGNING_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);

/// A kubelet renews its client certificate when between 70 and 90 percent of its validity have passed (client-go's
/// `jitteryDuration` in `util/certificate`). So at least a tenth is left at any time.
const LEAST_LEFT: u32 = 10;

fn check_kubelet_certificates_expire_while_off(facts: &Facts, assumptions: Assumptions) -> Evidence {
    either(kubelet_certificates(facts, assumptions))
}

fn kubelet_certificates(facts: &Facts, assumptions: Assumptions) -> Result<Evidence, Evidence> {
    let nodes = control_plane_nodes(facts)?;
    require(&facts.system_pods, PODS)?;
    let manager = Component::ControllerManager;
    let mut evidence = Evidence::default();
    for node in nodes {
        let pod = pod_of(facts, manager, node);
        let Some(container) = pod.and_then(|pod| pod.container(manager.as_str())) else {
            evidence.unknown(format!(
                "Node {} has no static Pod of {}",
                node.name,
                manager.as_str()
            ));
            continue;
        };
        let flag = container.flag("--cluster-signing-duration");
        let Some(duration) = flag.map_or(Some(SIGNING_DURATION), parse_go_duration) else {
            evidence.unknown(format!(
                "cannot parse --cluster-signing-duration={} of Pod {}",
                flag.unwrap_or_default(),
                pod.map(|pod| pod.name.as_str()).unwrap_or_default()
            ));
            continue;
        };
        let left = duration / LEAST_LEFT;
        let text = format!(
            "kube-controller-manager on Node {} signs certificates that are valid for {}; when the power goes off, they are still \
             valid for at least {}",
            node.name,
            format_duration(duration),
            format_duration(left)
        );
        if left <= assumptions.power_off {
            let off = format_duration(assumptions.power_off);
            evidence.fail(format!("{text}; the machines may be off for {off}"));
        } else {
            evidence.pass(text);
        }
    }
    Ok(evidence)
}

#[cfg(test)]
pub(super) mod test_cases {
    use crate::{
        audit::tests::{Case, failed},
        certificates::{Certificate, Purpose, Validity},
        testing::snapshot::in_days,
    };

    pub(crate) const CASES: &[Case] = &[
        ("certificates-expire-while-off", "healthy", |_| {}),
        ("certificates-expire-while-off", "after 30 and 31 days", |facts| {
            let certificate = |purpose, days| {
                let validity = Validity::Certificate {
                    issued: None,
                    expires: in_days(days),
                };
                Certificate::of_secret(purpose, "c1-x", validity, None)
            };
            facts.certificates.managed = vec![
                certificate(Purpose::ClusterCa, 30),
                certificate(Purpose::FrontProxyCa, 31),
            ];
        }),
        ("certificates-expire-while-off", "expired and soon", |facts| {
            facts.survey().queried[0].certificate_expired_at = Some(in_days(-2));
            facts.survey().queried[0].response = Err(crate::testing::snapshot::failure("etcd", "TLS"));
            facts.certificates.authorities = crate::snapshot::Reading::Read(vec![(
                "the CA of aggregated API servers".to_owned(),
                in_days(3),
            )]);
        }),
        (
            "webhook-certificate-expires-while-off",
            "a webhook after 29 days",
            |facts| {
                facts.certificates.webhook = crate::snapshot::Reading::Read(Some(Validity::Certificate {
                    issued: None,
                    expires: in_days(29),
                }));
            },
        ),
        (
            "webhook-certificate-expires-while-off",
            "a webhook after 31 days",
            |facts| {
                facts.certificates.webhook = crate::snapshot::Reading::Read(Some(Validity::Certificate {
                    issued: None,
                    expires: in_days(31),
                }));
            },
        ),
        (
            "webhook-certificate-expires-while-off",
            "a webhook without its Secret",
            |facts| {
                facts.certificates.webhook = crate::snapshot::Reading::Read(Some(Validity::Missing {
                    why: "there is no Secret kcp-webhook-system/kcp-webhook-tls with the key tls.crt"
                        .to_owned(),
                }));
            },
        ),
        ("certificates-expire-while-off", "a plain cluster", |facts| {
            facts.without_management();
        }),
        ("certificates-expire-while-off", "unread endpoint", |facts| {
            facts.certificates.endpoint = failed("https://10.0.0.9:6443");
        }),
        ("certificates-expire-while-off", "an unread Secret", |facts| {
            let validity = Validity::Unread {
                why: "forbidden".to_owned(),
            };
            facts.certificates.managed =
                vec![Certificate::of_secret(Purpose::EtcdCa, "c1-etcd", validity, None)];
        }),
        ("webhook-certificate-expires-while-off", "no webhook", |_| {}),
        (
            "webhook-certificate-expires-while-off",
            "a forbidden Secret",
            |facts| {
                facts.certificates.webhook = failed("Secret/kcp-webhook-tls");
            },
        ),
        ("kubelet-certificates-expire-while-off", "healthy", |_| {}),
        (
            "kubelet-certificates-expire-while-off",
            "signed for a week",
            |facts| {
                facts.set_flag("kube-controller-manager-n2", "--cluster-signing-duration", "168h");
            },
        ),
        (
            "kubelet-certificates-expire-while-off",
            "not a duration",
            |facts| {
                facts.set_flag(
                    "kube-controller-manager-n2",
                    "--cluster-signing-duration",
                    "a week",
                );
            },
        ),
        (
            "kubelet-certificates-expire-while-off",
            "no static Pods",
            |facts| {
                facts.pods().clear();
            },
        ),
    ];
}
