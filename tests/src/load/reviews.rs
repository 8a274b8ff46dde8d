//! The reviews, and the right answer to each.
//!
//! The expected verdict is fixed: allowed, or denied by these rules, or this patch. The messages are the server's.
//! Every answer under load must equal the first answer in every byte except for the uid.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::connection::{Answered, Dialer};
use crate::{manifests, products};

/// As long as the uids under load, so that both are at the same position.
const FIRST_UID: &str = "00000000-0000-4000-8000-first0000000";

/// The size of a control plane with a few dozen files.
const LARGE_BYTES: usize = 7_000;

pub(super) struct Review {
    verdict: &'static str,
    pub(super) path: &'static str,
    /// The parts before and after the uid.
    body: [String; 2],
    /// The parts before and after the uid.
    answer: [Vec<u8>; 2],
}

enum Verdict {
    Allowed,
    Mutated(Value),
    Denied(&'static [&'static str]),
}

struct Known {
    path: &'static str,
    request: Value,
    verdict: Verdict,
}

/// Sends each review once and returns all with their answers.
pub(super) async fn all(dialer: &Dialer) -> Result<Vec<Review>> {
    let mut reviews = Vec::new();
    for known in known()? {
        reviews.push(known.asked_once(dialer).await?);
    }
    Ok(reviews)
}

fn known() -> Result<Vec<Known>> {
    let good = sample("good/kubeadmcontrolplane-defaults")?;
    let even = sample("bad/replicas-even")?;
    let mut two_faults = even.clone();
    set(&mut two_faults, "/spec/version", json!("latest"))?;
    let mut old = good.clone();
    set(&mut old, "/spec/kubeadmConfigSpec/initConfiguration", large())?;
    set(&mut old, "/spec/kubeadmConfigSpec/joinConfiguration", large())?;
    let mut new = old.clone();
    set(&mut new, "/spec/version", json!("v1.34.3"))?;
    let validate = |request, verdict| Known {
        path: "/validate",
        request,
        verdict,
    };
    Ok(vec![
        validate(create(&good)?, Verdict::Allowed),
        validate(create(&even)?, Verdict::Denied(&["replicas-even"])),
        Known {
            path: "/mutate",
            request: create(&good)?,
            verdict: Verdict::Mutated(json!([
                {"op": "add", "path": "/spec/replicas", "value": 1},
                {"op": "add", "path": "/spec/rollout", "value": {}},
                {"op": "add", "path": "/spec/rollout/strategy", "value": {}},
                {"op": "add", "path": "/spec/rollout/strategy/type", "value": "RollingUpdate"},
                {"op": "add", "path": "/spec/rollout/strategy/rollingUpdate", "value": {}},
                {"op": "add", "path": "/spec/rollout/strategy/rollingUpdate/maxSurge", "value": 1},
            ])),
        },
        validate(
            create(&two_faults)?,
            Verdict::Denied(&["replicas-even", "version-not-semantic"]),
        ),
        validate(update(&new, &old)?, Verdict::Allowed),
        validate(
            create(&sample("bad/patch-from-missing")?)?,
            Verdict::Denied(&["patch-from-missing"]),
        ),
    ])
}

/// The first object of a shipped sample.
fn sample(name: &str) -> Result<Value> {
    let path = products::workspace()
        .join("manifests/samples")
        .join(name)
        .with_extension("yaml");
    let first = manifests::read(&path)?.into_iter().next();
    first.with_context(|| format!("{} is empty", path.display()))
}

/// Replaces an existing field.
fn set(object: &mut Value, path: &str, value: Value) -> Result<()> {
    *object
        .pointer_mut(path)
        .with_context(|| format!("there is no {path}"))? = value;
    Ok(())
}

/// A large node registration.
fn large() -> Value {
    let value = "x".repeat(LARGE_BYTES / 2);
    json!({"nodeRegistration": {"kubeletExtraArgs": [{"name": "v", "value": value}]}})
}

fn create(object: &Value) -> Result<Value> {
    review("CREATE", object, &Value::Null)
}

fn update(object: &Value, old: &Value) -> Result<Value> {
    review("UPDATE", object, old)
}

/// In the format of the API server (k8s.io/api, admission/v1/types.go).
fn review(operation: &str, object: &Value, old: &Value) -> Result<Value> {
    let text = |path: &str| {
        object
            .pointer(path)
            .and_then(Value::as_str)
            .context("no such text")
    };
    let (group, version) = text("/apiVersion")?.split_once('/').context("no group")?;
    let kind = text("/kind")?;
    let kinds = json!({"group": group, "version": version, "kind": kind});
    let resource =
        json!({"group": group, "version": version, "resource": format!("{}s", kind.to_lowercase())});
    Ok(json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": FIRST_UID, "kind": kinds, "resource": resource, "requestKind": kinds, "requestResource": resource,
            "name": text("/metadata/name")?, "namespace": "default", "operation": operation,
            "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "object": object, "oldObject": old, "dryRun": false, "options": null,
        },
    }))
}

impl Known {
    async fn asked_once(self, dialer: &Dialer) -> Result<Review> {
        let request = self.request.to_string();
        let mut connection = dialer.dial().await?;
        let answered = connection.ask(self.path, &[request.as_bytes()]).await?;
        let text = String::from_utf8(answered.body).context("reading an answer")?;
        ensure!(answered.code == 200, "{}: {text}", answered.code);
        self.verdict
            .is_of(&serde_json::from_str(&text)?)
            .with_context(|| format!("the answer to {request} is wrong: {text}"))?;
        let around = |text: &str| {
            let around = text.split_once(FIRST_UID).context("no uid")?;
            anyhow::Ok([around.0.to_owned(), around.1.to_owned()])
        };
        Ok(Review {
            verdict: match self.verdict {
                Verdict::Allowed => "allowed",
                Verdict::Mutated(_) => "mutated",
                Verdict::Denied(_) => "denied",
            },
            path: self.path,
            body: around(&request)?,
            answer: around(&text)?.map(String::into_bytes),
        })
    }
}

impl Verdict {
    fn is_of(&self, answer: &Value) -> Result<()> {
        let response = answer.get("response").context("no response")?;
        ensure!(
            response.get("uid").is_some_and(|uid| uid == FIRST_UID),
            "another uid"
        );
        let allowed = response.get("allowed").and_then(Value::as_bool);
        let patch = response.get("patch").map(|patch| {
            let ByteString(bytes) = serde_json::from_value(patch.clone())?;
            anyhow::Ok(serde_json::from_slice::<Value>(&bytes)?)
        });
        let patch = patch.transpose().context("reading the patch")?;
        let (expected_patch, expected_rules) = match self {
            Self::Allowed => (None, &[][..]),
            Self::Mutated(patch) => (Some(patch), &[][..]),
            Self::Denied(rules) => (None, *rules),
        };
        ensure!(allowed == Some(expected_rules.is_empty()), "allowed: {allowed:?}");
        ensure!(patch.as_ref() == expected_patch, "patch: {patch:?}");
        ensure!(
            rules(response) == expected_rules.iter().copied().collect(),
            "rules: {:?}",
            rules(response)
        );
        Ok(())
    }
}

/// The rules that denied. Each cause's message ends with its rule in brackets.
fn rules(response: &Value) -> BTreeSet<&str> {
    let causes = response
        .pointer("/status/details/causes")
        .and_then(Value::as_array);
    causes
        .into_iter()
        .flatten()
        .map(|cause| {
            let message = cause.get("message").and_then(Value::as_str).unwrap_or_default();
            let id = message.strip_suffix(')').and_then(|text| text.rsplit_once('('));
            id.map_or(message, |(_, id)| id)
        })
        .collect()
}

impl Review {
    /// The body in parts.
    pub(super) fn body<'a>(&'a self, uid: &'a str) -> [&'a [u8]; 3] {
        let [before, after] = &self.body;
        [before.as_bytes(), uid.as_bytes(), after.as_bytes()]
    }

    /// The verdict of a right answer, or why the answer is wrong.
    pub(super) fn judge(&self, uid: &str, answered: &Answered) -> Result<&'static str> {
        let [before, after] = &self.answer;
        let is_right = answered
            .body
            .strip_prefix(before.as_slice())
            .and_then(|rest| rest.strip_prefix(uid.as_bytes()))
            == Some(after.as_slice());
        ensure!(
            answered.code == 200 && is_right,
            "{} {}",
            answered.code,
            String::from_utf8_lossy(&answered.body)
        );
        Ok(self.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::{Answered, FIRST_UID, Review, Verdict};
    use serde_json::{Value, json};

    fn answer(response: &Value) -> Value {
        json!({ "response": response })
    }

    #[test]
    fn a_verdict_is_of_its_own_answer_alone() {
        let causes = |messages: &[&str]| {
            let causes: Vec<_> = messages
                .iter()
                .map(|message| json!({ "message": message }))
                .collect();
            answer(&json!({"uid": FIRST_UID, "allowed": false, "status": {"details": {"causes": causes}}}))
        };
        let allowed = answer(&json!({"uid": FIRST_UID, "allowed": true}));
        // [{"op":"test"}]
        let mutated = answer(&json!({"uid": FIRST_UID, "allowed": true, "patch": "W3sib3AiOiJ0ZXN0In1d"}));
        let answers = [
            allowed,
            mutated,
            causes(&["4: even (b)", "of (x) wrong (a)"]),
            causes(&["even (a)"]),
            answer(&json!({"uid": "other", "allowed": true})),
            answer(&json!({"uid": FIRST_UID, "allowed": false})),
        ];
        for (verdict, right) in [
            (Verdict::Allowed, 0),
            (Verdict::Mutated(json!([{"op": "test"}])), 1),
            (Verdict::Denied(&["a", "b"]), 2),
            (Verdict::Denied(&["a"]), 3),
        ] {
            for (number, answer) in answers.iter().enumerate() {
                assert_eq!(verdict.is_of(answer).is_ok(), number == right, "{answer}");
            }
        }
    }

    #[test]
    fn one_byte_makes_an_answer_wrong() {
        let review = Review {
            verdict: "allowed",
            path: "/validate",
            body: ["[".to_owned(), "]".to_owned()],
            answer: [b"{".to_vec(), b"}".to_vec()],
        };
        assert_eq!(review.body("7").concat(), b"[7]");
        for (code, body, right) in [
            (200, "{7}", true),
            (503, "{7}", false),
            (200, "{8}", false),
            (200, "{7}}", false),
            (200, "{7", false),
            (200, "", false),
        ] {
            let answered = Answered {
                code,
                body: body.into(),
                closes: false,
            };
            assert_eq!(review.judge("7", &answered).is_ok(), right, "{code} {body}");
        }
    }
}
