//! The passes of the manager: each reads everything, decides one step, and takes it.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use futures_util::future::join_all;
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kcp_rules::{
    anchor::KEY_PAIR,
    registration::{Switch, TLS_SECRET, calls_static_pods, has_canary, switch},
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;
use thiserror::Error;
use tokio::time;
use tracing::{debug, info};

use super::{
    anchors::{self, Backend},
    authorities::{
        Authorities, CA_VALIDITY, CERTIFICATE_VALIDITY, CaCertificate, KeyedCa, SecretError, certificates,
        offset_time,
    },
    decision::{
        Canary, ManagerStep, Observed, PodCertificate, Registration, ServedCertificate, ServerVersion,
        Serving, canary_problem, decide, later, rotation_problem,
    },
    objects::{Address, CA_SECRET, ObjectError, Objects},
    registration::{Place, bundles, compare, merge, only_canary},
};
use crate::{
    hook::Hook,
    manager::{
        authority::{CertificateError, Lifetime, ServerNames, serial_number},
        reconciler::LastProblem,
        request::RequestError,
        self_test,
        tls_client::{ProbeError, Trust},
    },
};

/// The pause after a step. It bounds the load if another client reverts every write.
const PAUSE: Duration = Duration::from_millis(500);

/// The pause until the next canary if none has been answered. An API server needs a second to read a new configuration.
const CANARY_RETRY: Duration = Duration::from_secs(2);

/// Why a pass could not take its step. The next pass tries again.
#[derive(Debug, Error)]
enum PassError {
    #[error("{0}")]
    Object(#[from] ObjectError),
    #[error("cannot use the Secret with the CAs: {0}")]
    Secret(#[from] SecretError),
    #[error("{0}")]
    Certificate(#[from] CertificateError),
    #[error("{0}")]
    Template(String),
    #[error("the webhook did not pass its self-test, so the manager does not register it: {0}")]
    SelfTest(ProbeError),
    #[error("{0}")]
    Trust(#[from] ProbeError),
}

/// How the manager was started.
pub(crate) struct Settings {
    pub(crate) trust_delay: Duration,
    pub(crate) registration_delay: Duration,
    pub(crate) interval: Duration,
    /// `None` if the API servers always call the Service.
    pub(crate) anchors: Option<AnchorSettings>,
}

pub(crate) struct AnchorSettings {
    pub(crate) daemon_set: String,
    /// The port on 127.0.0.1 of the static Pods.
    pub(crate) port: u16,
}

pub(crate) struct Manager {
    objects: Objects,
    settings: Settings,
    last_problem: LastProblem,
    /// Since when every self-test has passed. `None` before the first self-test, and after a failed self-test.
    passes_since: Option<Timestamp>,
    /// When the webhook last answered a canary.
    answered: Option<Timestamp>,
    /// When the webhook left a canary unanswered for the first time since its last answer. `None` if it has answered the last
    /// canary.
    unanswered_since: Option<Timestamp>,
}

/// What one pass has read.
struct Seen {
    ca_secret: Option<Secret>,
    tls_secret: Option<Secret>,
    authorities: Authorities,
    live: [Option<Value>; 2],
    desired: [Value; 2],
    service: Address,
    /// Whether the desired configurations make the API servers call static Pods.
    calls_static_pods: bool,
    /// Problems that a person should know, although they prevent no step.
    problems: Vec<String>,
    observed: Observed,
}

/// What the anchors have said.
#[derive(Default)]
struct SeenAnchors {
    /// The certificates of the static Pods.
    certificates: Vec<ServedCertificate>,
    /// The port of the static Pods, if the API servers should call these.
    static_pod_port: Option<u16>,
    problem: Option<String>,
}

impl Manager {
    pub(crate) fn new(objects: Objects, settings: Settings) -> Self {
        Self {
            objects,
            settings,
            last_problem: LastProblem::default(),
            passes_since: None,
            answered: None,
            unanswered_since: None,
        }
    }

    /// Takes one step after the other.
    pub(crate) async fn run(mut self) {
        loop {
            let pause = match self.pass().await {
                Ok(pause) => pause,
                Err(PassError::Object(ObjectError::Request(conflict @ RequestError::Conflict { .. }))) => {
                    debug!("{conflict}; reading again");
                    PAUSE
                }
                Err(error) => {
                    self.last_problem.report(Some(error.to_string()));
                    self.settings.interval
                }
            };
            time::sleep(pause.min(self.settings.interval)).await;
        }
    }

    /// Takes one step. Returns how long to wait before the next one.
    async fn pass(&mut self) -> Result<Duration, PassError> {
        let (server, now) = self.objects.server().await?;
        let mut seen = self.read(server, now).await?;
        seen.observed.canary = self.canary(&mut seen, now).await;
        let step = decide(&seen.observed, self.settings.trust_delay, now);
        let mut problems = seen.problems.clone();
        problems.extend(canary_problem(&seen.observed, now));
        problems.extend(rotation_problem(&seen.observed, self.settings.trust_delay, now));
        let pause = match step {
            ManagerStep::Wait(until) => until.map_or(self.settings.interval, |until| left(now, until)),
            ManagerStep::AwaitCanary => CANARY_RETRY,
            ManagerStep::Refuse(refusal) => {
                problems.push(refusal.to_string());
                self.settings.interval
            }
            _ => self.take(step, seen, now).await?,
        };
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        self.last_problem.report(problem);
        Ok(pause)
    }

    /// Sends a canary. If this fails, the manager registers no further entry of the webhook, but continues with everything else.
    async fn canary(&mut self, seen: &mut Seen, now: Timestamp) -> Canary {
        let is_answered = self.send_canary(seen).await;
        let [_, validating] = &seen.live;
        if !validating
            .as_ref()
            .is_some_and(|live| has_canary(live) && switch(live) == Switch::On)
        {
            self.unanswered_since = None;
            return Canary::NotSent;
        }
        if !is_answered {
            return Canary::Unanswered(*self.unanswered_since.get_or_insert(now));
        }
        let was_answered = self.answered.replace(now).is_some() && self.unanswered_since.is_none();
        self.unanswered_since = None;
        // A canary records the answer to the one before, which `kubectl kcp webhook status` reads. So that the webhook is registered
        // only once its first answer is recorded, the next canary follows at once.
        if !was_answered {
            self.send_canary(seen).await;
        }
        Canary::Answered
    }

    /// Whether the webhook has answered a canary.
    async fn send_canary(&self, seen: &mut Seen) -> bool {
        let sent = self
            .objects
            .send_canary(self.answered, self.last_problem.get())
            .await;
        sent.unwrap_or_else(|error| {
            seen.problems.push(error.to_string());
            false
        })
    }

    async fn read(&self, server: ServerVersion, now: Timestamp) -> Result<Seen, PassError> {
        let objects = &self.objects;
        // Read what depends on the CAs before the CAs. If another manager changes the CAs in between, and then writes what
        // depends on them, the write of this pass fails with a conflict.
        let live = [
            objects.configuration(Hook::Mutate).await?,
            objects.configuration(Hook::Validate).await?,
        ];
        let tls_secret = objects.secret(TLS_SECRET).await?;
        let ca_secret = objects.secret(CA_SECRET.0).await?;
        let authorities = ca_secret
            .as_ref()
            .map(Authorities::read)
            .transpose()?
            .unwrap_or_default();
        let service = objects.service_address().await?;
        let owner = objects.owner().await?;
        let serial = tls_secret.as_ref().and_then(leaf_serial_number);
        let SeenAnchors {
            certificates,
            static_pod_port,
            problem,
        } = self.anchors(&live, serial.as_deref()).await;
        let bundle = authorities.bundle();
        let place = Place {
            namespace: objects.namespace().to_owned(),
            port: service.port.into(),
            static_pod_port,
            control_plane_version: objects.control_plane_version().await?,
        };
        let desired = |hook: Hook| {
            hook.desired(&place, &bundle, owner.as_ref())
                .map_err(PassError::Template)
        };
        let desired = [desired(Hook::Mutate)?, desired(Hook::Validate)?];
        let compared = |index: usize| match (live.get(index), desired.get(index)) {
            (Some(live), Some(desired)) => compare(live.as_ref(), desired, now),
            _ => Registration::Absent,
        };
        let observed = Observed {
            server,
            has_owner: owner.is_some(),
            authorities: authorities.observed(),
            serving: self.serving(tls_secret.as_ref(), &authorities, &live, now)?,
            registrations: [compared(0), compared(1)],
            pods: self.pod_certificates(&authorities, certificates).await?,
            canary: Canary::NotSent,
            clock_difference: now.duration_since(Timestamp::now()),
        };
        Ok(Seen {
            ca_secret,
            tls_secret,
            authorities,
            live,
            desired,
            service,
            calls_static_pods: static_pod_port.is_some(),
            problems: problem.into_iter().collect(),
            observed,
        })
    }

    /// Reads the anchors, and decides whether the API servers should call static Pods. If the anchors cannot be read, the API
    /// servers keep calling what they call now.
    async fn anchors(&self, live: &[Option<Value>; 2], serial: Option<&str>) -> SeenAnchors {
        let Some(AnchorSettings { daemon_set, port }) = &self.settings.anchors else {
            return SeenAnchors::default();
        };
        let is_called = |port| live.iter().flatten().any(|live| calls_static_pods(live, port));
        let current = if is_called(Some(*port)) {
            Backend::StaticPods
        } else {
            Backend::Service
        };
        let expected = serial.map(|serial| format!("{port} {serial}"));
        let read = anchors::read(self.objects.client(), self.objects.namespace(), daemon_set).await;
        let (backend, certificates, problem) = match read {
            Ok(anchors) => {
                let backend = anchors.backend(expected.as_deref(), current);
                let certificates = anchors.certificates(expected.as_deref(), is_called(None));
                let unserved = anchors.without_static_pod(expected.as_deref());
                let problem = unserved.filter(|_| backend == Backend::Service).map(|address| {
                    format!(
                        "the API servers call the Service, because no anchor on the host of the API server at {address} reports a \
                         static Pod that serves the current certificate at port {port}"
                    )
                });
                (backend, certificates, problem)
            }
            Err(error) => {
                let unknown = ServedCertificate {
                    pod: "each static Pod".to_owned(),
                    is_ready: true,
                    certificate: PodCertificate::Unknown,
                };
                (current, vec![unknown], Some(error.to_string()))
            }
        };
        SeenAnchors {
            certificates,
            static_pod_port: (backend == Backend::StaticPods).then_some(*port),
            problem,
        }
    }

    fn serving(
        &self,
        secret: Option<&Secret>,
        authorities: &Authorities,
        live: &[Option<Value>; 2],
        now: Timestamp,
    ) -> Result<Serving, PassError> {
        let data = secret.and_then(|secret| secret.data.as_ref());
        let value = |key: &str| {
            data.and_then(|data| data.get(key))
                .map(|value| value.0.as_slice())
        };
        let (Some(certificate), Some(key)) = (value("tls.crt"), value("tls.key")) else {
            return Ok(Serving::Unusable);
        };
        let host = self.objects.host();
        if let Some(signing) = &authorities.signing {
            let valid_for = |name: &str| -> Result<Option<Lifetime>, ProbeError> {
                Ok(Trust::new(&signing.certificate.pem, name)?.verify(certificate, key, now))
            };
            if let Some(lifetime) = valid_for(&host)?
                && (self.settings.anchors.is_none() || valid_for(&Ipv4Addr::LOCALHOST.to_string())?.is_some())
            {
                return Ok(Serving::Signed(lifetime));
            }
        }
        let registered = live.iter().flatten().flat_map(bundles);
        let registered = registered.filter_map(|bundle| certificates(&bundle)).flatten();
        let others: String = registered
            .map(|ca| ca.pem)
            .chain([authorities.bundle()])
            .collect();
        let is_trusted = Trust::new(&others, &host)?
            .verify(certificate, key, now)
            .is_some();
        Ok(if is_trusted {
            Serving::Outdated
        } else {
            Serving::Unusable
        })
    }

    /// Finds out which CA has issued the certificate of each Pod, with a TLS handshake that trusts only the CA that signs. The
    /// manager cannot reach static Pods, which listen on 127.0.0.1 of their hosts. It uses the certificates that their anchors
    /// have recorded.
    async fn pod_certificates(
        &self,
        authorities: &Authorities,
        of_static_pods: Vec<ServedCertificate>,
    ) -> Result<Vec<ServedCertificate>, PassError> {
        let (Some(signing), false) = (&authorities.signing, authorities.retired.is_empty()) else {
            return Ok(Vec::new());
        };
        let trust = Trust::new(&signing.certificate.pem, &self.objects.host())?;
        let pods = self.objects.pods().await?;
        let asked = pods.into_iter().map(async |pod| {
            let certificate = match &pod.address {
                None => PodCertificate::Unknown,
                Some(Address { host, port }) => match trust.connect(host, *port).await {
                    Ok(_) => PodCertificate::Signing,
                    Err(ProbeError::Untrusted(..)) => PodCertificate::Another,
                    Err(_) => PodCertificate::Unknown,
                },
            };
            ServedCertificate {
                pod: format!("Pod {}", pod.name),
                is_ready: pod.is_ready,
                certificate,
            }
        });
        let mut certificates = join_all(asked).await;
        certificates.extend(of_static_pods);
        Ok(certificates)
    }

    async fn take(&mut self, step: ManagerStep, seen: Seen, now: Timestamp) -> Result<Duration, PassError> {
        let mut authorities = seen.authorities.clone();
        let create = || KeyedCa::create(now, CA_VALIDITY);
        let done = match step {
            ManagerStep::CreateAuthority => {
                authorities.signing = Some(create()?);
                "created a CA"
            }
            ManagerStep::AdoptTrusted => {
                authorities = authorities.with_next(create()?);
                authorities.retired = trusted(&seen.live, now);
                "created a CA, which replaces the CAs that the webhook configurations trust"
            }
            ManagerStep::CreateNextAuthority => {
                authorities = authorities.with_next(create()?);
                "created the next CA"
            }
            ManagerStep::RecordTrust => {
                authorities.next_trusted_since = Some(now);
                "both webhook configurations trust the next CA, which starts to sign after --ca-trust-delay"
            }
            ManagerStep::ForgetTrust => {
                authorities.next_trusted_since = None;
                "a webhook configuration has changed, so the delay before the next CA signs starts again"
            }
            ManagerStep::Promote => {
                authorities = authorities.promote(now);
                "the next CA signs now"
            }
            ManagerStep::RemoveRetired => {
                authorities.retired.clear();
                "removed the retired CA: every ready Pod serves a certificate from the CA that signs"
            }
            ManagerStep::IssueCertificate => return self.issue(&seen, now).await,
            ManagerStep::RegisterCanary | ManagerStep::Register => {
                return self.register(&seen, step, now).await;
            }
            ManagerStep::AwaitCanary | ManagerStep::Wait(_) | ManagerStep::Refuse(_) => return Ok(PAUSE),
        };
        let write = |secret: &mut Secret| authorities.write(secret);
        self.objects
            .write_secret(CA_SECRET, seen.ca_secret.as_ref(), write)
            .await?;
        info!("{done}");
        Ok(PAUSE)
    }

    async fn issue(&self, seen: &Seen, now: Timestamp) -> Result<Duration, PassError> {
        let Some(signing) = &seen.authorities.signing else {
            return Ok(PAUSE);
        };
        let host = self.objects.host();
        let names = [host.clone(), format!("{host}.cluster.local")];
        let names = ServerNames {
            dns_names: &names,
            ips: if self.settings.anchors.is_some() {
                &[IpAddr::V4(Ipv4Addr::LOCALHOST)]
            } else {
                &[]
            },
        };
        let until = later(now, CERTIFICATE_VALIDITY).min(signing.certificate.lifetime.until);
        let issued = signing
            .authority()?
            .issue(names, offset_time(now), offset_time(until))?;
        let bundle = seen.authorities.bundle();
        let pair = issued.certificate.clone() + &issued.key;
        let mut data = vec![
            ("tls.crt", issued.certificate.as_str()),
            ("tls.key", issued.key.as_str()),
            ("ca.crt", bundle.as_str()),
        ];
        // The `files` of new Machines take the key pair from this key of the Secret.
        if self.settings.anchors.is_some() {
            data.push((KEY_PAIR, &pair));
        }
        let write = |secret: &mut Secret| {
            let data = data
                .iter()
                .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
            secret.data.get_or_insert_default().extend(data);
        };
        let secret = (TLS_SECRET, "kubernetes.io/tls");
        self.objects
            .write_secret(secret, seen.tls_secret.as_ref(), write)
            .await?;
        info!(secret = TLS_SECRET, expires = %until, "issued a serving certificate");
        Ok(PAUSE)
    }

    async fn register(
        &mut self,
        seen: &Seen,
        step: ManagerStep,
        now: Timestamp,
    ) -> Result<Duration, PassError> {
        // If the API servers call static Pods, skip this test: each anchor has tested its own static Pod.
        if !seen.calls_static_pods {
            let trust = Trust::new(&seen.authorities.bundle(), &self.objects.host())?;
            self_test::run(&trust, &seen.service.host, seen.service.port)
                .await
                .map_err(|error| {
                    self.passes_since = None;
                    PassError::SelfTest(error)
                })?;
            let delay = self.settings.registration_delay;
            if self.passes_since.is_none() {
                info!(
                    ?delay,
                    "the webhook passed its self-test; the manager registers it when every self-test during the delay has passed"
                );
            }
            let until = later(*self.passes_since.get_or_insert(now), delay);
            if seen.live.iter().any(Option::is_none) && now < until {
                return Ok(left(now, until));
            }
        }
        let is_canary = step == ManagerStep::RegisterCanary;
        let of_hooks = Hook::ALL.into_iter().zip(&seen.live).zip(&seen.desired);
        // Write the validating configuration first, because it contains the entry of the canary.
        for ((hook, live), desired) in of_hooks.rev() {
            let desired = match hook {
                Hook::Mutate if is_canary => continue,
                Hook::Validate if is_canary => only_canary(desired.clone()),
                _ => desired.clone(),
            };
            let wanted = match live {
                Some(live) => merge(live, &desired, now),
                None => desired,
            };
            if live.as_ref() != Some(&wanted) {
                self.objects.write_configuration(hook, &wanted).await?;
                info!(
                    kind = hook.kind(),
                    is_canary, "wrote the configuration of the webhook"
                );
            }
        }
        Ok(PAUSE)
    }
}

fn left(now: Timestamp, until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or_default()
}

/// The serial number of the serving certificate in a Secret.
fn leaf_serial_number(secret: &Secret) -> Option<String> {
    let pem = secret.data.as_ref()?.get("tls.crt")?;
    let leaf = CertificateDer::from_pem_slice(&pem.0).ok()?;
    serial_number(&leaf)
}

/// The CA certificates that the configurations trust and that have not expired.
fn trusted(live: &[Option<Value>; 2], now: Timestamp) -> Vec<CaCertificate> {
    let mut trusted: Vec<CaCertificate> = live
        .iter()
        .flatten()
        .flat_map(bundles)
        .filter_map(|bundle| certificates(&bundle))
        .flatten()
        .filter(|ca| ca.lifetime.until > now)
        .collect();
    trusted.sort_by(|a, b| a.pem.cmp(&b.pem));
    trusted.dedup();
    trusted
}
