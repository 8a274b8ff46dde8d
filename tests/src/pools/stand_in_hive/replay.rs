//! A stand-in for Hive's controllers that sends recorded writes, and nothing else: see `recording.yaml`.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result, ensure};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::recording::{Names, Recording, Verb, Write};

/// Replays what Hive writes.
#[derive(Debug)]
pub struct StandInReplay {
    recording: Recording,
}

/// One reconcile of a controller: it reads each object once, and keeps the copy.
pub struct StandInReconcile<'r> {
    recording: &'r Recording,
    client: Client,
    names: Names,
    now: Timestamp,
    /// The copies by the paths of the objects.
    copies: BTreeMap<String, Value>,
}

/// What came of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Hive sends no request, because the write would change nothing.
    Omitted,
    Stored {
        /// Those of admission webhooks.
        warnings: Vec<String>,
    },
    Refused {
        code: u16,
        message: String,
    },
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Omitted => f.write_str("omitted"),
            Self::Stored { warnings } if warnings.is_empty() => f.write_str("stored"),
            Self::Stored { warnings } => write!(f, "stored with a warning: {}", warnings.join("; ")),
            Self::Refused { code: 409, .. } => f.write_str("conflict"),
            Self::Refused { code, message } => write!(f, "refused with {code}: {message}"),
        }
    }
}

impl StandInReplay {
    pub fn new() -> Result<Self> {
        Ok(Self {
            recording: Recording::read()?,
        })
    }

    /// The writes of each reconcile of a sequence.
    pub fn sequence(&self, name: &str) -> Result<&[Vec<String>]> {
        self.recording.sequence(name)
    }

    /// Begins a reconcile that counts as run at this time.
    pub fn reconcile(&self, client: &Client, names: &Names, now: Timestamp) -> StandInReconcile<'_> {
        StandInReconcile {
            recording: &self.recording,
            client: client.clone(),
            names: names.clone(),
            now,
            copies: BTreeMap::new(),
        }
    }
}

impl StandInReconcile<'_> {
    /// Sends a write, with the resourceVersion of the copy. A reconcile ends with the first write that is refused.
    pub async fn write(&mut self, name: &str) -> Result<Answer> {
        let recording = self.recording;
        let write = recording.write(name)?;
        let (object_path, path) = (write.object_path(&self.names)?, write.path(&self.names)?);
        let (code, answer, warnings) = match write.verb {
            Verb::Create => {
                let object = write.applied(&json!({}), &self.names, self.now)?;
                self.send(Method::POST, &path, object.as_ref()).await?
            }
            Verb::Delete => self.send(Method::DELETE, &path, None).await?,
            Verb::Update => {
                let copy = match self.copies.get(&object_path) {
                    Some(copy) => copy.clone(),
                    None => self.read(&object_path).await?,
                };
                let Some(object) = write.applied(&copy, &self.names, self.now)? else {
                    self.keep(write, object_path, copy)?;
                    return Ok(Answer::Omitted);
                };
                self.send(Method::PUT, &path, Some(&object)).await?
            }
        };
        if code >= 300 {
            let message = answer.get("message").and_then(Value::as_str);
            return Ok(Answer::Refused {
                code,
                message: message.unwrap_or_default().to_owned(),
            });
        }
        if write.verb == Verb::Update {
            self.keep(write, object_path, answer)?;
        }
        Ok(Answer::Stored { warnings })
    }

    async fn read(&self, path: &str) -> Result<Value> {
        let (code, object, _) = self.send(Method::GET, path, None).await?;
        ensure!(code == 200, "{path}: {object}");
        Ok(object)
    }

    /// Keeps the object for the next write, as the controller does.
    fn keep(&mut self, write: &Write, path: String, mut copy: Value) -> Result<()> {
        write.remember(&mut copy, &self.names)?;
        self.copies.insert(path, copy);
        Ok(())
    }

    /// The HTTP code, the body and the warnings of the response.
    async fn send(
        &self,
        method: Method,
        path: &str,
        object: Option<&Value>,
    ) -> Result<(u16, Value, Vec<String>)> {
        let body = object.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let request = Request::builder().method(&method).uri(path);
        let request = request
            .header("content-type", "application/json")
            .body(Body::from(body))?;
        let response = self.client.send(request).await;
        let response = response.with_context(|| format!("{method} {path}"))?;
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned());
        let (code, warnings) = (response.status().as_u16(), warnings.collect());
        let body = response.into_body().collect().await?.to_bytes();
        let body = serde_json::from_slice(&body).with_context(|| format!("{method} {path}"))?;
        Ok((code, body, warnings))
    }
}
