//! Every version of every object of pools that etcd stored, watched from the first revision over etcd's JSON gateway.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Request;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::version::{Revision, Sorter, Stored, Versions};
use crate::api_server::Etcd;
use crate::kubeconfig;
use crate::wait::LIMIT;

/// From the first possible key. As the end of a range it means all keys.
const FIRST_KEY: &[u8] = &[0];

/// The versions so far. The watch ends when it is dropped.
pub struct History {
    etcd: Client,
    versions: Arc<Mutex<HashMap<String, Versions>>>,
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
}

/// The progress of the watch.
#[derive(Clone, Debug, Default)]
struct Seen {
    revision: Revision,
    /// Why the watch ended.
    error: Option<String>,
}

#[derive(Deserialize)]
struct WatchAnswer {
    result: WatchResult,
}

#[derive(Deserialize)]
struct WatchResult {
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    cancel_reason: String,
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    /// Omitted if it is `PUT`.
    #[serde(rename = "type", default)]
    kind: String,
    kv: KeyValue,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    /// The gateway writes 64-bit numbers as strings.
    mod_revision: String,
    #[serde(default)]
    value: String,
}

impl History {
    /// Watches the objects of an API server. It must store JSON, never compact, and be the only one with pools on its
    /// etcd.
    pub async fn watch(etcd: &Etcd, api_server: &str) -> Result<Self> {
        let client = kubeconfig::plain_client(etcd.url())?;
        let everything = BASE64_STANDARD.encode(FIRST_KEY);
        let request =
            json!({"create_request": {"key": everything, "range_end": everything, "start_revision": "1"}});
        let request = Request::post("/v3/watch").body(Body::from(serde_json::to_vec(&request)?))?;
        let answer = client.send(request).await.context("watching etcd")?;
        let (now, seen) = watch::channel(Seen::default());
        let versions = Arc::new(Mutex::default());
        let (written, prefix) = (Arc::clone(&versions), format!("/{api_server}"));
        let task = tokio::spawn(async move {
            let ended = follow(answer.into_body(), &prefix, &written, &now).await;
            let error = ended
                .err()
                .map_or("it ended".to_owned(), |error| format!("{error:#}"));
            now.send_modify(|seen| seen.error = Some(error));
        });
        Ok(Self {
            etcd: client,
            versions,
            seen,
            task,
        })
    }

    /// The revision of etcd's last write.
    pub async fn revision(&self) -> Result<Revision> {
        let range = json!({"key": BASE64_STANDARD.encode(FIRST_KEY), "limit": 1});
        let request = Request::post("/v3/kv/range").body(serde_json::to_vec(&range)?)?;
        let answer: Value = self
            .etcd
            .request(request)
            .await
            .context("asking etcd for its revision")?;
        let revision = answer.pointer("/header/revision").and_then(Value::as_str);
        Ok(revision.context("etcd's answer has no revision")?.parse()?)
    }

    /// Removes and returns all versions so far of objects of the pools in a namespace.
    pub async fn take(&self, namespace: &str) -> Result<Versions> {
        let revision = self.revision().await?;
        let mut seen = self.seen.clone();
        let complete = seen.wait_for(|seen| seen.revision >= revision || seen.error.is_some());
        let complete = tokio::time::timeout(LIMIT, complete).await;
        let complete =
            complete.with_context(|| format!("etcd's watch does not reach revision {revision}"))??;
        if let Some(error) = &complete.error {
            bail!(
                "etcd's watch broke off at revision {}: {error}",
                complete.revision
            );
        }
        Ok(locked(&self.versions).remove(namespace).unwrap_or_default())
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads answers, one per line, until the watch ends.
async fn follow(
    mut answers: Body,
    prefix: &str,
    versions: &Mutex<HashMap<String, Versions>>,
    now: &watch::Sender<Seen>,
) -> Result<()> {
    let (mut sorter, mut text) = (Sorter::default(), Vec::new());
    while let Some(frame) = answers.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        text.extend_from_slice(&data);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let WatchAnswer { result } = serde_json::from_slice(&line).with_context(|| {
                let line = String::from_utf8_lossy(&line);
                format!("etcd's watch answered {line}")
            })?;
            if result.canceled {
                bail!("etcd cancels the watch: {}", result.cancel_reason);
            }
            // The first answer only confirms the watch and has no events.
            for event in &result.events {
                let revision = event.kv.mod_revision.parse()?;
                sort(event, revision, prefix, &mut sorter, &mut locked(versions))?;
                now.send_modify(|seen| seen.revision = revision);
            }
        }
    }
    Ok(())
}

fn sort(
    event: &Event,
    revision: Revision,
    prefix: &str,
    sorter: &mut Sorter,
    versions: &mut HashMap<String, Versions>,
) -> Result<()> {
    let key = BASE64_STANDARD.decode(&event.kv.key)?;
    // Keys of the API server are text.
    let key = std::str::from_utf8(&key)
        .ok()
        .and_then(|key| key.strip_prefix(prefix));
    let Some(key) = key else { return Ok(()) };
    let value = match event.kind.as_str() {
        "DELETE" => None,
        _ => Some(BASE64_STANDARD.decode(&event.kv.value)?),
    };
    let value = value.as_deref();
    let stored = Stored {
        revision,
        seen: Timestamp::now(),
        key,
        value,
    };
    sorter
        .add(stored, versions)
        .with_context(|| format!("reading {key}"))
}
