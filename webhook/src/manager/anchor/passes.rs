//! The passes of the anchor: each reads everything, decides, and writes what differs.

use std::{fs, io, path::PathBuf};

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Pod};
use kcp_rules::{
    anchor::{
        ADMISSION_KINDS, CONFIGURATION, KEY_PAIR, KUBECONFIG, NO_TOKEN, SERVES, StaticPod, TOKEN, kubeconfig,
        text,
    },
    registration::{StaticManifest, static_manifest},
};
use thiserror::Error;
use tracing::info;

use super::{
    admission_folder::AdmissionFolder,
    decision::{Cause, Membership, may_stop},
    host::{Host, HostError, Wanted},
    objects::{Objects, StaticPodState, Token, image, runs},
};
use crate::{
    arguments::AnchorArguments,
    manager::{
        reconciler::LastProblem,
        request::RequestError,
        self_test,
        tls_client::{ProbeError, Trust},
    },
};

/// The CA certificates of the API server, in a Pod with a service account. The anchor copies them to the kubeconfig of the static
/// Pod, because the user of the static Pod may have no permission to read those of the host.
const CLUSTER_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The address of the static Pod, which its certificate must contain.
const LOCAL: &str = "127.0.0.1";

/// After this many failed tests, the anchor records that no API server should call the static Pod. With the default interval,
/// that is after half a minute.
const FAILURES: u32 = 3;

/// What a pass has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassOutcome {
    /// The files are as they should be.
    Written,
    Removed,
    /// The static Pod must stop, but API servers may still call it.
    WaitsForService,
    /// Nothing is removed, because the Node still belongs to the DaemonSet.
    Stays,
}

/// Why a pass failed. The next pass tries again.
#[derive(Debug, Error)]
enum PassError {
    #[error("{0}; the files on this node stay as they are")]
    Request(#[from] RequestError),
    #[error("{0}")]
    Host(#[from] HostError),
    #[error("cannot read {}: {error}", path.display())]
    Source { path: PathBuf, error: io::Error },
    #[error(
        "the certificate in {} is not valid for {LOCAL}, or the CA certificates in the same folder do not verify it; kcp-webhook \
         manage issues a valid certificate if it runs with --anchors",
        .0.display()
    )]
    Certificate(PathBuf),
    #[error("Pod {0} has no image")]
    NoImage(String),
    #[error("the CA certificates in {} cannot be used: {error}", folder.display())]
    Authorities { folder: PathBuf, error: ProbeError },
    #[error("the static Pod on this node did not pass its self-test: {0}")]
    Local(#[from] ProbeError),
    #[error("the kubelet of this node does not report that the static Pod of the current manifest is ready")]
    NotReady,
}

/// What the anchor copies to the host.
pub(crate) struct Files {
    tls_folder: PathBuf,
    configuration: Option<PathBuf>,
    /// The manifest, with any image.
    static_pod: StaticPod,
    api_server_port: u16,
}

impl Files {
    pub(crate) fn of(arguments: &AnchorArguments) -> Self {
        Self {
            tls_folder: arguments.tls_folder.clone(),
            configuration: arguments.configuration.clone(),
            static_pod: StaticPod {
                namespace: arguments.namespace.clone(),
                image: String::new(),
                port: arguments.port,
                health_port: arguments.health_port,
                arguments: arguments.serve_arguments.clone(),
            },
            api_server_port: arguments.api_server_port,
        }
    }

    fn of_secret(&self, name: &str) -> Result<Vec<u8>, PassError> {
        let path = self.tls_folder.join(name);
        fs::read(&path).map_err(|error| PassError::Source { path, error })
    }

    /// Returns the files, and the CA certificates that verify the serving certificate. Fails if an API server would not accept
    /// this certificate.
    fn wanted(&self, token: Option<&Token>, now: Timestamp) -> Result<(WantedFiles, Trust), PassError> {
        let authorities = self.of_secret("ca.crt")?;
        let mut pair = self.of_secret("tls.crt")?;
        let key = self.of_secret("tls.key")?;
        let trust = Trust::new(&String::from_utf8_lossy(&authorities), LOCAL).map_err(|error| {
            PassError::Authorities {
                folder: self.tls_folder.clone(),
                error,
            }
        })?;
        // While the kubelet updates the files, the certificate and the key can be of different versions. The next pass reads them
        // again.
        if trust.verify(&pair, &key, now).is_none() {
            return Err(PassError::Certificate(self.tls_folder.clone()));
        }
        pair.extend(key);
        let configuration = match self.configuration.as_ref().map(|path| (path, fs::read(path))) {
            None => Wanted::Absent,
            Some((_, Ok(text))) => Wanted::Content(text),
            Some((_, Err(error))) if error.kind() == io::ErrorKind::NotFound => Wanted::Absent,
            Some((path, Err(error))) => {
                return Err(PassError::Source {
                    path: path.clone(),
                    error,
                });
            }
        };
        let token = match token {
            Some(token) => Wanted::Content(token.text.as_bytes().to_vec()),
            None => Wanted::Initially(NO_TOKEN.as_bytes().to_vec()),
        };
        // Outside a Pod, there is no such file.
        let authority = fs::read(CLUSTER_CA).ok();
        let authority =
            authority.and_then(|certificates| serde_json::to_value(ByteString(certificates)).ok());
        let kubeconfig = text(&kubeconfig(self.api_server_port, authority.as_ref())).into_bytes();
        let files = [
            (KEY_PAIR, Wanted::Content(pair)),
            (CONFIGURATION, configuration),
            (KUBECONFIG, Wanted::Content(kubeconfig)),
            (TOKEN, token),
        ];
        Ok((files, trust))
    }

    fn static_pod(&self, image: &str) -> StaticPod {
        StaticPod {
            image: image.to_owned(),
            ..self.static_pod.clone()
        }
    }
}

/// The files of the static Pod, in the order in which they are written.
type WantedFiles = [(&'static str, Wanted); 4];

pub(crate) struct Anchor {
    objects: Objects,
    host: Host,
    /// `None` if the API server of the host loads no webhook configurations from files.
    admission_folder: Option<AdmissionFolder>,
    files: Files,
    /// The token in the file, and when to request the next one.
    token: Option<(Token, Timestamp)>,
    /// The number of tests of the static Pod that have failed since the last one that passed.
    failures: u32,
    last_problem: LastProblem,
    last_token_problem: LastProblem,
}

impl Anchor {
    pub(crate) fn new(
        objects: Objects,
        host: Host,
        admission_folder: Option<AdmissionFolder>,
        files: Files,
    ) -> Self {
        Self {
            objects,
            host,
            admission_folder,
            files,
            token: None,
            failures: 0,
            last_problem: LastProblem::default(),
            last_token_problem: LastProblem::default(),
        }
    }

    /// Writes the files, or removes them. Returns `None` if the pass failed.
    pub(crate) async fn pass(&mut self) -> Option<PassOutcome> {
        let outcome = match self.objects.membership().await {
            Ok(Membership::Selected) => self.write(Timestamp::now()).await,
            Ok(Membership::Ended(cause)) => {
                // A token is valid only for the Node of its request, and not for a later one with the same name.
                self.token = None;
                self.end(cause).await
            }
            Err(error) => Err(error.into()),
        };
        self.reported(outcome)
    }

    /// Removes the files if the Node no longer belongs to the DaemonSet. Returns `None` if the pass failed.
    pub(crate) async fn removal_pass(&mut self) -> Option<PassOutcome> {
        let outcome = match self.objects.membership().await {
            Ok(Membership::Selected) => Ok(PassOutcome::Stays),
            Ok(Membership::Ended(cause)) => self.end(cause).await,
            Err(error) => Err(error.into()),
        };
        self.reported(outcome)
    }

    fn reported(&mut self, outcome: Result<PassOutcome, PassError>) -> Option<PassOutcome> {
        let problem = match &outcome {
            Ok(PassOutcome::WaitsForService) => Some(
                "the static Pod on this node must stop or change; waiting until the API servers call the Service instead"
                    .to_owned(),
            ),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        self.last_problem.report(problem);
        outcome.ok()
    }

    async fn end(&self, cause: Cause) -> Result<PassOutcome, PassError> {
        let has_api_server = self.host.has_api_server()?;
        if !may_stop(self.objects.is_called().await?, has_api_server) {
            let pod = self.objects.own_pod().await?;
            self.objects.record(&pod, &StaticPodState::Stops).await?;
            return Ok(PassOutcome::WaitsForService);
        }
        // The API server calls the static Pod until it notices that its webhook configuration files are gone.
        if let Some(folder) = &self.admission_folder
            && folder.remove()?
        {
            info!("removed the webhook configurations of the API server on this node");
            return Ok(PassOutcome::WaitsForService);
        }
        if self.host.remove()? {
            info!(%cause, "removed the static Pod of kcp-webhook from this node");
        }
        Ok(PassOutcome::Removed)
    }

    async fn write(&mut self, now: Timestamp) -> Result<PassOutcome, PassError> {
        let configurations = self.admission_manifests().await?;
        // These need no test, because the API server then calls no webhook.
        let is_disabled = |(_, wanted): &&(_, StaticManifest)| wanted.is_disabled();
        self.write_admission_manifests(configurations.iter().filter(is_disabled))?;
        let pod = self.objects.own_pod().await?;
        let image =
            image(&pod).ok_or_else(|| PassError::NoImage(pod.metadata.name.clone().unwrap_or_default()))?;
        self.renew_token(now).await;
        let token = self.token.as_ref().map(|(token, _)| token);
        let (files, trust) = self.files.wanted(token, now)?;
        let static_pod = self.files.static_pod(image);
        let manifest = text(&static_pod.manifest());
        let is_withdrawn = |(_, wanted): &&(_, StaticManifest)| *wanted == StaticManifest::Absent;
        if self.write_admission_manifests(configurations.iter().filter(is_withdrawn))? {
            // The API server calls the static Pod until it notices that its webhook configuration files are gone.
            return Ok(PassOutcome::WaitsForService);
        }
        if self.host.has_another_manifest(&manifest)? {
            let has_api_server = self.host.has_api_server()?;
            if !may_stop(self.objects.is_called().await?, has_api_server) {
                self.objects.record(&pod, &StaticPodState::Stops).await?;
                return Ok(PassOutcome::WaitsForService);
            }
        }
        let written = self.host.write(&files, &manifest)?;
        if !written.is_empty() {
            info!(files = ?written, "wrote files of the static Pod");
        }
        match self.test(&pod, &static_pod, &trust).await {
            Ok(state) => {
                self.failures = 0;
                self.objects.record(&pod, &state).await?;
                self.write_admission_manifests(configurations.iter())?;
                Ok(PassOutcome::Written)
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= FAILURES {
                    self.objects.record(&pod, &StaticPodState::Stops).await?;
                }
                Err(error)
            }
        }
    }

    /// Returns the folder and the content of each webhook configuration file of the API server. Empty if the API server loads no
    /// such files.
    async fn admission_manifests(&self) -> Result<Vec<(&'static str, StaticManifest)>, RequestError> {
        let mut manifests = Vec::new();
        if self.admission_folder.is_some() {
            for (kind, folder, _) in ADMISSION_KINDS {
                let stored = self.objects.configuration(kind).await?;
                manifests.push((folder, static_manifest(kind, stored.as_ref())));
            }
        }
        Ok(manifests)
    }

    /// Returns whether a file has changed.
    fn write_admission_manifests<'m>(
        &self,
        manifests: impl Iterator<Item = &'m (&'static str, StaticManifest)>,
    ) -> Result<bool, HostError> {
        let Some(admission_folder) = &self.admission_folder else {
            return Ok(false);
        };
        let mut has_changed = false;
        for (folder, manifest) in manifests {
            if admission_folder.write(folder, manifest)? {
                info!(
                    folder,
                    "changed the webhook configuration of the API server on this node"
                );
                has_changed = true;
            }
        }
        Ok(has_changed)
    }

    /// Requests the next token when a third of the validity of the current token has passed. A failure does not stop the pass,
    /// because the webhook also serves without a token.
    async fn renew_token(&mut self, now: Timestamp) {
        if self.token.as_ref().is_some_and(|(_, renewal)| now < *renewal) {
            return;
        }
        let requested = self.objects.token().await;
        let problem = requested.as_ref().err().map(ToString::to_string);
        self.last_token_problem.report(problem);
        if let Ok(token) = requested {
            let third = token.expires.duration_since(now) / 3;
            let renewal = now.checked_add(third).unwrap_or(now);
            self.token = Some((token, renewal));
        }
    }

    /// Tests the static Pod: with reviews after each new certificate, and with a TLS handshake in each pass. After a change of
    /// the manifest, the previous static Pod serves for a few more seconds. It must not pass the test in place of the new one.
    async fn test(
        &self,
        pod: &Pod,
        static_pod: &StaticPod,
        trust: &Trust,
    ) -> Result<StaticPodState, PassError> {
        let mirror = self.objects.mirror_pod().await?;
        if !mirror.is_some_and(|mirror| runs(&mirror, static_pod)) {
            return Err(PassError::NotReady);
        }
        let port = static_pod.port;
        let serves = format!("{port} {}", trust.connect(LOCAL, port).await?);
        let annotations = pod.metadata.annotations.as_ref();
        if annotations.and_then(|all| all.get(SERVES)) != Some(&serves) {
            self_test::run(trust, LOCAL, port).await?;
            info!(serves, "the static Pod passed its self-test");
        }
        Ok(StaticPodState::Serves(serves))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_for_another_name_is_not_copied() {
        use crate::manager::authority::{Authority, ServerNames};
        let folder = tempfile::tempdir().unwrap();
        let now = time::OffsetDateTime::now_utc();
        let until = now + time::Duration::days(1);
        let authority = Authority::create("CA", now, time::Duration::days(2)).unwrap();
        let files = Files {
            tls_folder: folder.path().to_owned(),
            configuration: Some(folder.path().join("configuration.yaml")),
            static_pod: StaticPod {
                namespace: "n".to_owned(),
                image: String::new(),
                port: 1,
                health_port: 2,
                arguments: Vec::new(),
            },
            api_server_port: 6443,
        };
        let issue = |dns_names: &[String], ips: &[std::net::IpAddr]| {
            let issued = authority
                .issue(ServerNames { dns_names, ips }, now, until)
                .unwrap();
            for (name, text) in [
                ("ca.crt", authority.certificate()),
                ("tls.crt", &issued.certificate),
                ("tls.key", &issued.key),
            ] {
                fs::write(folder.path().join(name), text).unwrap();
            }
        };
        issue(&["kcp-webhook.kcp-webhook-system.svc".to_owned()], &[]);
        let refused = files.wanted(None, Timestamp::now()).map(|_| ()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!(
                "the certificate in {} is not valid for 127.0.0.1, or the CA certificates in the same folder do not verify it; \
                 kcp-webhook manage issues a valid certificate if it runs with --anchors",
                folder.path().display()
            )
        );
        issue(&[], &["127.0.0.1".parse().unwrap()]);
        let (wanted, _) = files.wanted(None, Timestamp::now()).unwrap();
        let content = |index: usize| match &wanted[index].1 {
            Wanted::Content(text) | Wanted::Initially(text) => String::from_utf8_lossy(text).into_owned(),
            Wanted::Absent => "absent".to_owned(),
        };
        assert!(content(0).contains("BEGIN CERTIFICATE") && content(0).contains("BEGIN PRIVATE KEY"));
        assert_eq!([content(1), content(3)], ["absent", "none"]);
        assert_eq!(files.static_pod("image").image, "image");
    }
}
