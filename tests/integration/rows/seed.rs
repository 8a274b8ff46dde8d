//! Creates objects without any webhook.

use anyhow::{Context as _, Result};
use jiff::{Timestamp, ToSpan as _};
use kcp_rules::testing::case::NOW;
use kube::Client;
use serde_json::{Value, json};

use super::environment::SEEDER;
use super::request::{Request, Verb, path_of};

/// The finalizer of objects that are being deleted.
const FINALIZER: &str = "test.kubectl-kcp.dev/kept";

/// Creates an object with its status, deletes it if it is being deleted, and returns the stored object.
pub(super) async fn seed(client: &Client, mut object: Value) -> Result<Value> {
    let collection = path_of(&object)?;
    let path = format!(
        "{collection}/{}",
        object["metadata"]["name"].as_str().context("no name")?
    );
    let deleting = take(&mut object, "deletionTimestamp").is_some();
    let generation = take(&mut object, "generation").and_then(|generation| generation.as_i64());
    let managed = take(&mut object, "managedFields");
    let mut status = object.as_object_mut().and_then(|object| object.remove("status"));
    let behind = generation
        .zip(
            status
                .as_ref()
                .and_then(|status| status["observedGeneration"].as_i64()),
        )
        .map(|(generation, observed)| generation - observed);
    if deleting {
        object["metadata"]["finalizers"] = json!([FINALIZER]);
    }
    let write = |verb, path: &str, body: Value| {
        let path = path.to_owned();
        async move {
            let request = Request::new(verb, &path).body(body).by(SEEDER);
            Ok::<_, anyhow::Error>(request.send(client).await?.succeeded()?)
        }
    };
    let mut stored = write(Verb::Create, &collection, object.clone()).await?;
    // A status can only be behind if the object has a second generation.
    for step in 0..behind.unwrap_or(0) {
        let mut next = stored.clone();
        next["spec"]["version"] = json!(format!("v1.30.{step}"));
        let mut back = write(Verb::Replace, &path, next).await?;
        back["spec"] = object["spec"].clone();
        stored = write(Verb::Replace, &path, back).await?;
    }
    if let Some(status) = &mut status {
        if let Some(behind) = behind {
            let now = stored["metadata"]["generation"]
                .as_i64()
                .context("no generation")?;
            status["observedGeneration"] = json!(now - behind);
        }
        stored["status"] = status.clone();
        stored = write(Verb::Replace, &format!("{path}/status"), stored).await?;
    }
    // A write that changes no other field leaves exactly these entries, with their times.
    if let Some(managed) = managed {
        stored["metadata"]["managedFields"] = managed;
        stored = write(Verb::Replace, &path, stored).await?;
    }
    if deleting {
        stored = write(Verb::Delete, &path, Value::Null).await?;
    }
    Ok(stored)
}

fn take(object: &mut Value, name: &str) -> Option<Value> {
    object["metadata"].as_object_mut()?.remove(name)
}

/// The namespace and the time of a row. Rows are defined in `default` at [`NOW`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'n> {
    pub(super) namespace: &'n str,
    /// The time since [`NOW`].
    seconds: i64,
}

impl<'n> Place<'n> {
    pub(super) fn now_in(namespace: &'n str) -> Self {
        let then = NOW.parse::<Timestamp>().map_or(0, Timestamp::as_second);
        Self {
            namespace,
            seconds: Timestamp::now().as_second() - then,
        }
    }

    /// An object of the row with this namespace and time.
    pub(super) fn of(self, mut object: Value) -> Value {
        translate(&mut object, self.namespace, self.seconds);
        object
    }

    /// Replaces this namespace and time in a message by those of the row.
    pub(super) fn back(self, told: &str) -> String {
        let told = told
            .replace(&format!("{}-", self.namespace), "")
            .replace(self.namespace, "default");
        let of_time = |character: char| character.is_ascii_digit() || "-:TZ".contains(character);
        let words = told.split_inclusive(|character| !of_time(character));
        words
            .map(|word| {
                let time = word.trim_end_matches(|character| !of_time(character) || character == ':');
                let then = time.parse::<Timestamp>().ok();
                let then = then.and_then(|then| then.checked_sub(self.seconds.seconds()).ok());
                then.map_or_else(|| word.to_owned(), |then| word.replace(time, &then.to_string()))
            })
            .collect()
    }
}

fn translate(value: &mut Value, namespace: &str, seconds: i64) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value.as_str()) {
                    ("namespace", Some("default")) => *value = json!(namespace),
                    ("namespace", Some(other)) if !other.starts_with("row-") => {
                        *value = json!(format!("{namespace}-{other}"));
                    }
                    _ => translate(value, namespace, seconds),
                }
            }
        }
        Value::Array(elements) => {
            for element in elements {
                translate(element, namespace, seconds);
            }
        }
        // A whole time, or the times of a lease record: `deadline=2026-06-01T12:00:00Z`.
        Value::String(text) => {
            let words = text.split(' ').map(|word| match word.split_once('=') {
                Some((name, time)) => shifted(time, seconds).map(|time| format!("{name}={time}")),
                None => shifted(word, seconds),
            });
            let words: Vec<_> = words
                .zip(text.split(' '))
                .map(|(shifted, word)| shifted.unwrap_or_else(|| word.to_owned()))
                .collect();
            *text = words.join(" ");
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// None if the text is no time.
fn shifted(text: &str, seconds: i64) -> Option<String> {
    // The zero time means "unset".
    let time = text
        .parse::<Timestamp>()
        .ok()
        .filter(|time| time.as_second() > 0)?;
    let time = time.checked_add(seconds.seconds()).ok()?;
    // Kubernetes has two formats of times.
    let form = if text.contains('.') {
        "%Y-%m-%dT%H:%M:%S%.6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Some(time.strftime(form).to_string())
}
