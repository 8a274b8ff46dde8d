//! An etcd server's API, spoken over its JSON gateway: no generated code, and readable in a log.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::kubeconfig::{self, User};
use crate::pki::KeyPairFiles;

/// Where clients connect.
pub const CLIENT_PORT: u16 = 2379;
/// Where members talk to each other.
pub const PEER_PORT: u16 = 2380;
/// Where health and metrics are served without certificates.
pub const METRICS_PORT: u16 = 2381;

/// A connection to one member.
pub struct EtcdClient(Client);

/// One member as the cluster knows it. Ids are decimal strings in the JSON gateway: they exceed 2^53.
#[derive(Debug, Deserialize)]
pub struct Member {
    /// Unique in the cluster.
    #[serde(rename = "ID")]
    pub id: String,
    /// Empty until the member has started.
    #[serde(default)]
    pub name: String,
    /// Where other members reach it.
    #[serde(rename = "peerURLs", default)]
    pub peer_urls: Vec<String>,
}

/// The answer to adding a member.
#[derive(Debug, Deserialize)]
pub struct MemberAdded {
    /// The new one.
    pub member: Member,
    /// All, with the new one.
    pub members: Vec<Member>,
}

impl EtcdClient {
    /// A client for the member at `address`.
    pub async fn new(address: Ipv4Addr, authority: &Path, identity: &KeyPairFiles) -> Result<Self> {
        let server = format!("https://{address}:{CLIENT_PORT}");
        Ok(Self(
            kubeconfig::client(&server, authority, &User::Certificate(identity)).await?,
        ))
    }

    /// Succeeds once the member knows a leader.
    pub async fn has_leader(&self) -> Result<()> {
        let status: Value = self.call("maintenance/status", &json!({})).await?;
        let leader = status.get("leader").and_then(Value::as_str).unwrap_or("0");
        ensure!(leader != "0", "no leader is elected");
        Ok(())
    }

    /// Adds a member that does not vote, as kubeadm does first.
    pub async fn add_learner(&self, peer_url: &str) -> Result<MemberAdded> {
        self.call(
            "cluster/member/add",
            &json!({"peerURLs": [peer_url], "isLearner": true}),
        )
        .await
    }

    /// Gives a learner its vote; fails as long as it is not in sync.
    pub async fn promote(&self, id: &str) -> Result<()> {
        self.call::<Value>("cluster/member/promote", &json!({"ID": id}))
            .await
            .map(drop)
    }

    async fn call<T: DeserializeOwned>(&self, method: &str, body: &Value) -> Result<T> {
        let request = Request::post(format!("/v3/{method}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(body)?.into())?;
        let response = self
            .0
            .send(request)
            .await
            .with_context(|| format!("etcd {method}"))?;
        let status = response.status();
        let body = response
            .into_body()
            .collect()
            .await
            .with_context(|| format!("etcd {method}"))?
            .to_bytes();
        if !status.is_success() {
            bail!("etcd {method}: {status}: {}", String::from_utf8_lossy(&body));
        }
        serde_json::from_slice(&body).with_context(|| format!("etcd {method}: reading the answer"))
    }
}
