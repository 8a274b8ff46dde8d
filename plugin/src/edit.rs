//! A change of a control plane's spec: read, decided on, and written under the version that was read; all anew when
//! others have written in between.

use serde_json::{Value, json};

use crate::{
    arguments::DryRun,
    cluster::{Error, Write, Written},
    control_plane::{ControlPlane, Reader},
    judgement::rejection,
    terminal::Terminal,
};

/// How often a control plane is read and judged anew when somebody else writes to it between our read and our write.
/// Its controller writes the status several times a second at most, and only in bursts.
const ATTEMPTS: usize = 5;

/// What to do with a control plane as it was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing: it is as wanted.
    Unchanged,
    /// Nothing: it is not allowed.
    Refused(Refusal),
    /// Write.
    Write {
        /// The fields of the spec that are set.
        spec: Value,
        /// None for the object itself.
        subresource: Option<&'static str>,
        /// What the rules say without refusing it.
        warnings: Vec<String>,
    },
}

/// Why a change is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A line each.
    pub why: Vec<String>,
    /// Whether a rule is among what refuses: a configuration can have it do something else.
    pub by_rules: bool,
}

impl Refusal {
    /// Who refuses, given whether the server's configuration is known.
    pub const fn by(&self, is_configured: bool) -> &'static str {
        match (self.by_rules, is_configured) {
            (true, false) => "the rules, judged by the default configuration",
            (true, true) => "the rules",
            (false, _) => "kubectl kcp",
        }
    }

    /// What to try next, given whether the server's configuration is known.
    pub const fn hint(&self, is_configured: bool) -> Option<&'static str> {
        match (self.by_rules, is_configured) {
            (true, false) => {
                Some("if the server is configured otherwise, name its file with --configuration")
            }
            _ => None,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was as wanted.
    Unchanged,
    /// Not sent.
    Refused(Refusal),
    /// Refused by the server or a webhook, and why, a line each.
    Rejected(Vec<String>),
    /// It was made, or would be if this were no dry run.
    Made,
}

/// What came of it, and on what ground.
#[derive(Clone, Debug, PartialEq)]
pub struct Edited {
    /// The control plane when that was decided.
    pub before: ControlPlane,
    /// What the rules said then without refusing it.
    pub warnings: Vec<String>,
    /// What came of it.
    pub outcome: Outcome,
}

/// A change that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'e> {
    /// Of which control plane.
    pub name: &'e str,
    /// What is done to it, in one word, for messages: `scale`.
    pub verb: &'static str,
    /// Where it ends, if it is to change nothing.
    pub dry_run: Option<DryRun>,
    /// Recorded by the server.
    pub field_manager: &'e str,
}

impl Edit<'_> {
    /// Makes the change that `decide` makes of a control plane, given as the server wrote it and as we understand it.
    ///
    /// # Errors
    /// When nothing could be decided, or it is not known whether the change was made.
    pub async fn make(
        &self,
        reader: &Reader<'_>,
        terminal: &Terminal,
        decide: impl AsyncFn(&str, &ControlPlane) -> anyhow::Result<Decision>,
    ) -> anyhow::Result<Edited> {
        let Self { name, verb, .. } = self;
        let namespace = &reader.connection.namespace;
        for _ in 0..ATTEMPTS {
            let (text, before) = reader.control_plane(namespace, name).await?;
            let decision = decide(&text, &before).await?;
            let version = before.resource_version.clone();
            let edited = |outcome, warnings| Edited {
                before,
                warnings,
                outcome,
            };
            let (spec, subresource, warnings) = match decision {
                Decision::Unchanged => return Ok(edited(Outcome::Unchanged, Vec::new())),
                Decision::Refused(refusal) => return Ok(edited(Outcome::Refused(refusal), Vec::new())),
                Decision::Write {
                    spec,
                    subresource,
                    warnings,
                } => (spec, subresource, warnings),
            };
            if self.dry_run == Some(DryRun::Client) {
                return Ok(edited(Outcome::Made, warnings));
            }
            if self.dry_run.is_none() {
                terminal.on_interrupt(format!(
                    "the change may have been accepted already; look with: kubectl kcp status {name} -n {namespace}"
                ));
            }
            match self.write(reader, &version, &spec, subresource).await {
                Ok(Fate::Made) => return Ok(edited(Outcome::Made, warnings)),
                // What was warned of may be so no more: all is decided anew.
                Ok(Fate::Overtaken) => {}
                Err(Error::Rejected { status, .. }) => {
                    return Ok(edited(Outcome::Rejected(rejection(&status)), warnings));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended {
            goal: format!("{verb} {name}"),
            attempts: ATTEMPTS,
        }
        .into())
    }

    /// Writes once. When the answer is lost the object is read back.
    async fn write(
        &self,
        reader: &Reader<'_>,
        version: &str,
        spec: &Value,
        subresource: Option<&str>,
    ) -> Result<Fate, Error> {
        let namespace = &reader.connection.namespace;
        let write = Write {
            resource: &reader.control_planes,
            namespace,
            name: self.name,
            subresource,
            patch: &json!({ "metadata": { "resourceVersion": version }, "spec": spec }),
            field_manager: self.field_manager,
            dry_run: self.dry_run == Some(DryRun::Server),
        };
        let lost = match reader.connection.patch(&write).await? {
            Written::Stored => return Ok(Fate::Made),
            Written::Changed => return Ok(Fate::Overtaken),
            Written::Unknown(error) => error,
        };
        let fate = match reader.control_plane(namespace, self.name).await {
            Ok((now, _)) => fate(&now, version, spec),
            Err(Error::NotFound { .. }) => Some(Fate::Overtaken),
            Err(_) => None,
        };
        fate.ok_or_else(|| Error::OutcomeUnknown {
            source: Box::new(lost),
        })
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is in the object.
    Made,
    /// It is not, and never will be: the version that it was made under has passed.
    Overtaken,
}

/// What an object that is read after a write under `version` tells of that write; none when it may be stored yet.
fn fate(now: &str, version: &str, spec: &Value) -> Option<Fate> {
    let now: Value = serde_json::from_str(now).ok()?;
    if has(now.get("spec")?, spec) {
        return Some(Fate::Made);
    }
    let current = now.pointer("/metadata/resourceVersion")?.as_str()?;
    (current != version).then_some(Fate::Overtaken)
}

/// Whether an object has all that a merge patch without nulls sets.
fn has(object: &Value, patch: &Value) -> bool {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => patch
            .iter()
            .all(|(name, patch)| object.get(name).is_some_and(|value| has(value, patch))),
        (value, patch) => value == patch,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use http::Method;
    use kcp_rules::case::{Base, V1BETA2};
    use serde_json::json;

    use super::{Decision, Edit, Edited, Fate, Outcome, Refusal, fate};
    use crate::{
        arguments::global::ColorWhen,
        cluster::{Connection, canned::failure},
        control_plane::{ControlPlane, Reader},
        terminal::Terminal,
    };

    /// A control plane to which others have written before each of so many writes of ours.
    fn contended(conflicts: usize) -> Connection {
        let writes = Arc::new(AtomicUsize::new(0));
        let group = |name: &str| {
            let version = json!({"groupVersion": format!("{name}/v1beta2"), "version": "v1beta2"});
            json!({"name": name, "versions": [version], "preferredVersion": version})
        };
        let groups = json!({"groups": [group("cluster.x-k8s.io"), group("controlplane.cluster.x-k8s.io")]});
        Connection::canned(move |method, path| {
            let mut object = Base::ControlPlane(V1BETA2).object();
            object["metadata"]["resourceVersion"] = json!(writes.load(Relaxed).to_string());
            match *method {
                Method::GET if path == "/apis" => (200, groups.clone()),
                Method::GET => (200, object),
                _ if writes.fetch_add(1, Relaxed) < conflicts => failure(409, "Conflict", "changed"),
                _ => (200, object),
            }
        })
    }

    async fn edit(connection: &Connection) -> anyhow::Result<Edited> {
        let reader = Reader::discover(connection).await?;
        let edit = Edit {
            name: "example",
            verb: "scale",
            dry_run: None,
            field_manager: "kubectl-kcp",
        };
        let decide = async |_: &str, control_plane: &ControlPlane| {
            Ok(Decision::Write {
                spec: json!({"replicas": 5}),
                subresource: None,
                warnings: vec![format!("at {}", control_plane.resource_version)],
            })
        };
        edit.make(&reader, &Terminal::new(ColorWhen::Never), decide).await
    }

    #[test]
    fn a_refusal_says_whose_rules_it_is_by() {
        let hint = "if the server is configured otherwise, name its file with --configuration";
        for (by_rules, is_configured, by, expected) in [
            (
                true,
                false,
                "the rules, judged by the default configuration",
                Some(hint),
            ),
            (true, true, "the rules", None),
            (false, false, "kubectl kcp", None),
            (false, true, "kubectl kcp", None),
        ] {
            let refusal = Refusal {
                why: Vec::new(),
                by_rules,
            };
            assert_eq!(refusal.by(is_configured), by);
            assert_eq!(refusal.hint(is_configured), expected);
        }
    }

    #[test]
    fn only_what_was_decided_last_is_told() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            for conflicts in [0, 1, 4] {
                let edited = edit(&contended(conflicts)).await.unwrap();
                assert_eq!(edited.outcome, Outcome::Made);
                assert_eq!(edited.warnings, [format!("at {conflicts}")]);
                assert_eq!(edited.before.resource_version, conflicts.to_string());
            }
            assert_eq!(
                edit(&contended(5)).await.unwrap_err().to_string(),
                "cannot scale example: others changed it at each of 5 attempts"
            );
        });
    }

    #[test]
    fn what_an_object_tells_of_a_write_without_an_answer() {
        let object = |version: &str, after: Option<&str>| {
            let rollout = json!({"strategy": {}, "after": after});
            json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": 3, "rollout": rollout}})
                .to_string()
        };
        let wanted = json!({"rollout": {"after": "2026-08-21T12:00:00Z"}});
        for (name, now, expected) in [
            (
                "stored",
                object("13", Some("2026-08-21T12:00:00Z")),
                Some(Fate::Made),
            ),
            (
                "stored_and_changed_again",
                object("15", Some("2026-08-21T12:00:00Z")),
                Some(Fate::Made),
            ),
            ("not_yet", object("12", None), None),
            ("overtaken", object("13", None), Some(Fate::Overtaken)),
            (
                "overtaken_by_the_same_field",
                object("13", Some("2026-08-21T12:00:01Z")),
                Some(Fate::Overtaken),
            ),
            ("no_object", "{}".to_owned(), None),
        ] {
            assert_eq!(fate(&now, "12", &wanted), expected, "{name}");
        }
    }
}
