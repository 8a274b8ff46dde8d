//! etcd's API over its JSON gateway: no generated code, and readable in a log.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kubeconfig::{self, User};
use crate::pki::KeyPairFiles;

/// The port for clients.
pub const CLIENT_PORT: u16 = 2379;
/// The port for other members.
pub const PEER_PORT: u16 = 2380;
/// The port for health and metrics, without certificates.
pub const METRICS_PORT: u16 = 2381;

/// A connection to one member.
pub struct EtcdClient(Client);

/// A member as its cluster lists it. Ids are decimal strings in the JSON gateway, because they exceed 2^53.
#[derive(Debug, Deserialize)]
pub struct Member {
    #[serde(rename = "ID")]
    pub id: String,
    /// Empty until the member has started.
    #[serde(default)]
    pub name: String,
    #[serde(rename = "peerURLs", default)]
    pub peer_urls: Vec<String>,
    #[serde(rename = "isLearner", default)]
    pub is_learner: bool,
}

/// A member's status.
#[derive(Debug, Deserialize)]
pub struct Status {
    pub header: Header,
    /// The leader's id; `0` if there is none.
    #[serde(default = "zero")]
    pub leader: String,
    /// In bytes.
    #[serde(rename = "dbSizeInUse", default = "zero")]
    pub size_in_use: String,
}

/// The sender of an answer.
#[derive(Debug, Deserialize)]
pub struct Header {
    pub cluster_id: String,
    pub member_id: String,
}

/// The JSON gateway omits zero.
fn zero() -> String {
    "0".to_owned()
}

/// The answer to adding a member.
#[derive(Debug, Deserialize)]
pub struct MemberAdded {
    /// The new member.
    pub member: Member,
    /// All members, including the new one.
    pub members: Vec<Member>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Alarm {
    /// None; in a query, all alarms.
    #[default]
    None,
    /// The database has reached its quota.
    NoSpace,
    /// The member's data differ from the others'.
    Corrupt,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct RaisedAlarm {
    #[serde(rename = "memberID")]
    pub member: String,
    pub alarm: Alarm,
}

impl EtcdClient {
    pub async fn new(address: Ipv4Addr, authority: &Path, identity: &KeyPairFiles) -> Result<Self> {
        let server = format!("https://{address}:{CLIENT_PORT}");
        Ok(Self(
            kubeconfig::client(&server, authority, &User::Certificate(identity)).await?,
        ))
    }

    /// Succeeds if the member knows a leader.
    pub async fn has_leader(&self) -> Result<()> {
        ensure!(self.status().await?.leader != "0", "no leader is elected");
        Ok(())
    }

    pub async fn status(&self) -> Result<Status> {
        self.call("maintenance/status", &json!({})).await
    }

    /// Adds a learner, as kubeadm does first.
    pub async fn add_learner(&self, peer_url: &str) -> Result<MemberAdded> {
        self.add(peer_url, true).await
    }

    /// Adds a member that votes before it has started.
    pub async fn add_voter(&self, peer_url: &str) -> Result<MemberAdded> {
        self.add(peer_url, false).await
    }

    async fn add(&self, peer_url: &str, is_learner: bool) -> Result<MemberAdded> {
        let member = json!({"peerURLs": [peer_url], "isLearner": is_learner});
        self.call("cluster/member/add", &member).await
    }

    /// Promotes a learner. Fails until the learner is in sync.
    pub async fn promote(&self, id: &str) -> Result<()> {
        self.call::<Value>("cluster/member/promote", &json!({"ID": id}))
            .await
            .map(drop)
    }

    /// All members by a linearizable read, including members that have not started.
    pub async fn members(&self) -> Result<Vec<Member>> {
        self.list_members(true).await
    }

    /// All members according to this member alone.
    pub async fn known_members(&self) -> Result<Vec<Member>> {
        self.list_members(false).await
    }

    async fn list_members(&self, linearizable: bool) -> Result<Vec<Member>> {
        #[derive(Deserialize)]
        struct Answer {
            members: Vec<Member>,
        }
        let answer: Answer = self
            .call("cluster/member/list", &json!({ "linearizable": linearizable }))
            .await?;
        Ok(answer.members)
    }

    /// Removes a member from the cluster. Its process then exits.
    pub async fn remove(&self, id: &str) -> Result<()> {
        self.call::<Value>("cluster/member/remove", &json!({"ID": id}))
            .await
            .map(drop)
    }

    pub async fn raise(&self, alarm: Alarm, member: &str) -> Result<()> {
        self.alarm("ACTIVATE", alarm, member).await.map(drop)
    }

    /// Disarms all alarms.
    pub async fn disarm(&self) -> Result<()> {
        for raised in self.alarm("GET", Alarm::None, "0").await? {
            self.alarm("DEACTIVATE", raised.alarm, &raised.member).await?;
        }
        Ok(())
    }

    /// The alarms of all members.
    pub async fn alarms(&self) -> Result<Vec<RaisedAlarm>> {
        self.alarm("GET", Alarm::None, "0").await
    }

    async fn alarm(&self, action: &str, alarm: Alarm, member: &str) -> Result<Vec<RaisedAlarm>> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            alarms: Vec<RaisedAlarm>,
        }
        let request = json!({"action": action, "memberID": member, "alarm": alarm});
        let answer: Answer = self.call("maintenance/alarm", &request).await?;
        Ok(answer.alarms)
    }

    /// Rewrites the database of this member.
    pub async fn defragment(&self) -> Result<()> {
        self.call::<Value>("maintenance/defragment", &json!({}))
            .await
            .map(drop)
    }

    pub async fn put(&self, key: &str, value: &str) -> Result<()> {
        let pair = json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)});
        self.call::<Value>("kv/put", &pair).await.map(drop)
    }

    /// The keys with this prefix, by a linearizable read.
    pub async fn keys(&self, prefix: &str) -> Result<Vec<String>> {
        self.list_keys(prefix, false).await
    }

    /// The keys with this prefix that this member has. It needs no quorum.
    pub async fn known_keys(&self, prefix: &str) -> Result<Vec<String>> {
        self.list_keys(prefix, true).await
    }

    async fn list_keys(&self, prefix: &str, serializable: bool) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            kvs: Vec<Pair>,
        }
        #[derive(Deserialize)]
        struct Pair {
            key: String,
        }
        // The end of the range of a prefix. No prefix ends in 0xff.
        let mut end = prefix.as_bytes().to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let range = json!({
            "key": STANDARD.encode(prefix),
            "range_end": STANDARD.encode(end),
            "keys_only": true,
            "serializable": serializable,
        });
        let answer: Answer = self.call("kv/range", &range).await?;
        let keys = answer.kvs.into_iter().map(|pair| {
            let key = STANDARD.decode(pair.key).context("a key that is not base64")?;
            String::from_utf8(key).context("a key that is not text")
        });
        keys.collect()
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
