//! The passes of the anchor: each reads everything, decides, and writes what differs.

use std::{fs, io, path::PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kcp_rules::anchor::{
    CA_CERTIFICATES, CERTIFICATE, NO_TOKEN, PRIVATE_KEY, SERVES, StaticPod, kubeconfig, text,
};
use thiserror::Error;
use tracing::{info, warn};

use super::{
    decision::{Action, Membership, decide},
    host::{Content, Host, HostError},
    objects::{Objects, Token, image},
};
use crate::{
    arguments::AnchorArguments,
    request::RequestError,
    self_test,
    tls_client::{ProbeError, Trust},
};

/// The address of the static Pod, which its certificate must contain.
const LOCAL: &str = "127.0.0.1";

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
        "the certificate in {} is not valid for {LOCAL}, or the CA certificates beside it do not verify it; kcp-webhook \
         manage --anchors issues one that is",
        .0.display()
    )]
    Certificate(PathBuf),
    #[error("Pod {0} has no image")]
    NoImage(String),
    #[error("the static Pod on this node did not pass its self-test: {0}")]
    Local(#[from] ProbeError),
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

    /// The content of the files, if an API server accepts the certificate, and the CA certificates that verify it.
    fn content(
        &self,
        image: &str,
        token: Option<&Token>,
        now: Timestamp,
    ) -> Result<(Content, Trust), PassError> {
        let authorities = self.of_secret(CA_CERTIFICATES)?;
        let certificate = self.of_secret(CERTIFICATE)?;
        let key = self.of_secret(PRIVATE_KEY)?;
        let trust = Trust::new(&String::from_utf8_lossy(&authorities), LOCAL)?;
        // While the kubelet updates the files, they may not belong together. The next pass reads them again.
        if trust.verify(&certificate, &key, now).is_none() {
            return Err(PassError::Certificate(self.tls_folder.clone()));
        }
        let configuration = match &self.configuration {
            None => None,
            Some(path) => match fs::read(path) {
                Ok(text) => Some(text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => {
                    return Err(PassError::Source {
                        path: path.clone(),
                        error,
                    });
                }
            },
        };
        let static_pod = StaticPod {
            image: image.to_owned(),
            ..self.static_pod.clone()
        };
        let token = token.map_or(NO_TOKEN, |token| &token.text);
        let content = Content {
            manifest: text(&static_pod.manifest()),
            files: [
                Some(authorities),
                Some(key),
                Some(certificate),
                configuration,
                Some(text(&kubeconfig(self.api_server_port)).into_bytes()),
                Some(token.as_bytes().to_vec()),
            ],
        };
        Ok((content, trust))
    }
}

pub(crate) struct Anchor {
    objects: Objects,
    host: Host,
    files: Files,
    /// The token in the file, and when to request the next one.
    token: Option<(Token, Timestamp)>,
    /// The last problem in the log, which is not logged again while it lasts.
    last_problem: Option<String>,
}

impl Anchor {
    pub(crate) const fn new(objects: Objects, host: Host, files: Files) -> Self {
        Self {
            objects,
            host,
            files,
            token: None,
            last_problem: None,
        }
    }

    /// Returns what the pass has done. None if it failed.
    pub(crate) async fn pass(&mut self) -> Option<Action> {
        match self.try_pass(Timestamp::now()).await {
            Ok(action) => {
                self.last_problem = None;
                Some(action)
            }
            Err(error) => {
                self.report(error.to_string());
                None
            }
        }
    }

    fn report(&mut self, problem: String) {
        if self.last_problem.as_ref() != Some(&problem) {
            warn!("{problem}");
            self.last_problem = Some(problem);
        }
    }

    async fn try_pass(&mut self, now: Timestamp) -> Result<Action, PassError> {
        let membership = self.objects.membership().await?;
        let is_called = match membership {
            // The decision does not depend on it.
            Membership::Selected => true,
            Membership::Ended(_) => self.objects.is_called().await?,
        };
        let action = decide(membership, is_called, self.host.has_api_server());
        match action {
            Action::LeaveUntilUnused(_) => {}
            Action::Write => self.write(now).await?,
            Action::Remove(cause) => {
                if self.host.remove()? {
                    info!(%cause, "removed the static Pod of kcp-webhook from this node");
                }
            }
        }
        Ok(action)
    }

    async fn write(&mut self, now: Timestamp) -> Result<(), PassError> {
        let pod = self.objects.own_pod().await?;
        let image =
            image(&pod).ok_or_else(|| PassError::NoImage(pod.metadata.name.clone().unwrap_or_default()))?;
        self.renew_token(now).await;
        let token = self.token.as_ref().map(|(token, _)| token);
        let (content, trust) = self.files.content(image, token, now)?;
        let written = self.host.write(&content)?;
        if !written.is_empty() {
            info!(files = ?written, "wrote files of the static Pod");
        }
        self.test(&pod, &trust).await
    }

    /// Requests a token when a third of its validity has passed. The webhook serves without one, so a failure stops nothing.
    async fn renew_token(&mut self, now: Timestamp) {
        if self.token.as_ref().is_some_and(|(_, renewal)| now < *renewal) {
            return;
        }
        match self.objects.token().await {
            Ok(token) => {
                let third = token.expires.duration_since(now) / 3;
                let renewal = now.checked_add(third).unwrap_or(now);
                self.token = Some((token, renewal));
            }
            Err(error) => self.report(error.to_string()),
        }
    }

    /// Tests the local server with each new certificate, and records it, so that the manager knows which CA the server needs.
    async fn test(&self, pod: &Pod, trust: &Trust) -> Result<(), PassError> {
        let port = self.files.static_pod.port;
        let serial = trust.connect(LOCAL, port).await?;
        let annotations = pod.metadata.annotations.as_ref();
        if annotations.and_then(|all| all.get(SERVES)) == Some(&serial) {
            return Ok(());
        }
        self_test::run(trust, LOCAL, port).await?;
        self.objects.record_certificate(pod, &serial).await?;
        info!(serial, "the static Pod passed its self-test");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_for_another_name_is_not_copied() {
        use crate::authority::{Authority, ServerNames};
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
        let refused = files
            .content("image", None, Timestamp::now())
            .map(|_| ())
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!(
                "the certificate in {} is not valid for 127.0.0.1, or the CA certificates beside it do not verify it; \
                 kcp-webhook manage --anchors issues one that is",
                folder.path().display()
            )
        );
        issue(&[], &["127.0.0.1".parse().unwrap()]);
        let (content, _) = files.content("image", None, Timestamp::now()).unwrap();
        assert!(
            content.manifest.contains("image: image\n"),
            "{}",
            content.manifest
        );
        assert_eq!(content.files[3], None);
        assert_eq!(content.files[5].as_deref(), Some(b"none".as_slice()));
    }
}
