//! The Secrets through which the management cluster accesses a workload cluster, and faults of them.
//!
//! Pause the Cluster first: otherwise Cluster API repairs the Secrets or fails because of them.

mod fault;
mod kubeconfig;
mod stand_in;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client, Error};
use tokio::sync::Mutex;

pub use self::fault::AccessFault;
pub use self::stand_in::FLOOD_BYTES;
use self::stand_in::{Behaviour, StandIn};
use crate::addresses::free_port;
use crate::pki::{Authority, KeyPairFiles, Subject};
use crate::run::Run;

const KUBECONFIG: &str = "value";
/// The keys of a CA in its Secret.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The client in Cluster API's kubeconfig.
const ADMINISTRATOR: Subject<'_> = Subject {
    common_name: "kubernetes-admin",
    organization: Some("system:masters"),
    names: &[],
    addresses: &[],
};

/// Bytes that are neither text nor YAML. They contain an escape sequence that no terminal should receive.
const GARBAGE: &[u8] = b"\xff\xfe\x1b[31m{";

/// The Secrets of a workload cluster as Cluster API wrote them, and the fault that is active now.
pub struct WorkloadAccess {
    secrets: Api<Secret>,
    folder: PathBuf,
    kubeconfig: Secret,
    etcd: Secret,
    authority: Authority,
    /// The API server that the kubeconfig names instead of the real one.
    stand_in: Mutex<Option<StandIn>>,
}

/// Replacements for the Secrets. None deletes the Secret.
struct Spoiled {
    kubeconfig: Option<Secret>,
    etcd: Option<Secret>,
    stand_in: Option<StandIn>,
}

impl WorkloadAccess {
    /// Reads the Secrets, which must be valid.
    pub async fn read(run: &Run, client: &Client, namespace: &str, cluster: &str) -> Result<Self> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let read = async |purpose: &str| {
            let name = format!("{cluster}-{purpose}");
            let secret = secrets.get(&name).await;
            secret.with_context(|| format!("reading Secret {namespace}/{name}"))
        };
        let authority = read("ca").await?;
        Ok(Self {
            kubeconfig: read("kubeconfig").await?,
            etcd: read("etcd").await?,
            authority: Authority::load(&text(&authority, CERTIFICATE)?, &text(&authority, KEY)?)?,
            folder: run.subfolder(&format!("access-{namespace}-{cluster}"))?,
            secrets,
            stand_in: Mutex::default(),
        })
    }

    /// Injects a fault and ends the previous one.
    pub async fn inflict(&self, fault: AccessFault) -> Result<()> {
        let spoiled = self.spoil(fault).await?;
        self.write(&self.kubeconfig, spoiled.kubeconfig).await?;
        self.write(&self.etcd, spoiled.etcd).await?;
        *self.stand_in.lock().await = spoiled.stand_in;
        Ok(())
    }

    /// The URL of the API server that the kubeconfig names instead of the real one.
    pub async fn stand_in_url(&self) -> Option<String> {
        let stand_in = self.stand_in.lock().await;
        let port = stand_in.as_ref().map(StandIn::port)?;
        Some(format!("https://127.0.0.1:{port}"))
    }

    async fn spoil(&self, fault: AccessFault) -> Result<Spoiled> {
        let mut spoiled = Spoiled {
            kubeconfig: Some(self.kubeconfig.clone()),
            etcd: Some(self.etcd.clone()),
            stand_in: None,
        };
        let behaviour = match fault {
            AccessFault::ServerError | AccessFault::ServerExpired => Some(Behaviour::Error),
            AccessFault::Hang => Some(Behaviour::Silence),
            AccessFault::Flood => Some(Behaviour::Flood),
            _ => None,
        };
        if let Some(behaviour) = behaviour {
            let pair = self.server_certificate(fault == AccessFault::ServerExpired)?;
            let stand_in = StandIn::start(&pair, behaviour).await?;
            spoiled.kubeconfig = Some(self.pointing_to(stand_in.port())?);
            spoiled.stand_in = Some(stand_in);
        }
        match fault {
            AccessFault::Nowhere => spoiled.kubeconfig = Some(self.pointing_to(free_port()?)?),
            AccessFault::ClientExpired => spoiled.kubeconfig = Some(self.of_an_expired_client()?),
            AccessFault::KubeconfigMissing => spoiled.kubeconfig = None,
            AccessFault::KubeconfigGarbage => {
                spoiled.kubeconfig = Some(with(&self.kubeconfig, KUBECONFIG, GARBAGE));
            }
            AccessFault::EtcdAuthorityMissing => spoiled.etcd = None,
            AccessFault::EtcdAuthorityWrong => spoiled.etcd = Some(self.of_another_authority()?),
            _ => {}
        }
        Ok(spoiled)
    }

    fn server_certificate(&self, expired: bool) -> Result<KeyPairFiles> {
        let subject = Subject {
            common_name: "kube-apiserver",
            addresses: &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
            ..Subject::default()
        };
        if expired {
            self.authority.issue_expired(&self.folder, "stand-in", &subject)
        } else {
            self.authority.issue(&self.folder, "stand-in", &subject)
        }
    }

    fn pointing_to(&self, port: u16) -> Result<Secret> {
        let text = kubeconfig::pointing_to(&text(&self.kubeconfig, KUBECONFIG)?, port)?;
        Ok(with(&self.kubeconfig, KUBECONFIG, text.as_bytes()))
    }

    /// Writes a kubeconfig whose client certificate has only this number of days left.
    pub async fn expire_client_in(&self, days: i64) -> Result<()> {
        let pair = self
            .authority
            .issue_for(&self.folder, "client", &ADMINISTRATOR, days)?;
        let text = kubeconfig::of_client(&text(&self.kubeconfig, KUBECONFIG)?, &pair)?;
        let secret = with(&self.kubeconfig, KUBECONFIG, text.as_bytes());
        self.write(&self.kubeconfig, Some(secret)).await
    }

    fn of_an_expired_client(&self) -> Result<Secret> {
        let pair = self
            .authority
            .issue_expired(&self.folder, "client", &ADMINISTRATOR)?;
        let text = kubeconfig::of_client(&text(&self.kubeconfig, KUBECONFIG)?, &pair)?;
        Ok(with(&self.kubeconfig, KUBECONFIG, text.as_bytes()))
    }

    fn of_another_authority(&self) -> Result<Secret> {
        // Cluster API gives every CA this name.
        let other = Authority::new("kubernetes")?;
        let pair = other.write(&self.folder, "another-authority")?;
        let key = std::fs::read(&pair.key).context("reading an authority's key")?;
        let secret = with(&self.etcd, CERTIFICATE, other.certificate().as_bytes());
        Ok(with(&secret, KEY, &key))
    }

    async fn write(&self, original: &Secret, secret: Option<Secret>) -> Result<()> {
        let name = original.metadata.name.clone().unwrap_or_default();
        let what = || format!("writing Secret {name}");
        let existing = self.secrets.get_opt(&name).await.with_context(what)?;
        match (existing, secret) {
            (None, None) => {}
            (Some(_), None) => match self.secrets.delete(&name, &DeleteParams::default()).await {
                Err(Error::Api(status)) if status.is_not_found() => {}
                deleted => drop(deleted.with_context(what)?),
            },
            (None, Some(mut secret)) => {
                // The API server sets these for a new object.
                secret.metadata = ObjectMeta {
                    resource_version: None,
                    uid: None,
                    managed_fields: None,
                    ..secret.metadata
                };
                let created = self.secrets.create(&PostParams::default(), &secret).await;
                created.with_context(what)?;
            }
            (Some(existing), Some(mut secret)) => {
                secret.metadata = existing.metadata;
                let replaced = self.secrets.replace(&name, &PostParams::default(), &secret).await;
                replaced.with_context(what)?;
            }
        }
        Ok(())
    }
}

fn with(secret: &Secret, key: &str, value: &[u8]) -> Secret {
    let mut secret = secret.clone();
    let data = secret.data.get_or_insert_default();
    data.insert(key.to_owned(), ByteString(value.to_vec()));
    secret
}

fn text(secret: &Secret, key: &str) -> Result<String> {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    let name = secret.metadata.name.as_deref().unwrap_or_default();
    let value = value.with_context(|| format!("Secret {name} has no key {key}"))?;
    String::from_utf8(value.0.clone()).with_context(|| format!("key {key} of Secret {name} is not text"))
}
