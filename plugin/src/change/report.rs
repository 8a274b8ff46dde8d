//! Reports the result of a change: as text, or as a JSON document with the text on stderr. The document is the changed
//! object, or a [`ChangeRefused`].

use anyhow::Context as _;
use kcp_api::{
    KubeadmControlPlane, Object as _,
    kind::{CLUSTER, KUBEADM_CONTROL_PLANE},
};
use owo_colors::OwoColorize as _;
use serde::Serialize;
use serde_json::Value;

use crate::{
    arguments::DryRun,
    change::{
        diff::diff,
        engine::{ChangeOutcome, Changed, Engine, Verb},
    },
    document::{Document, ObjectName, Versioned, resource_name},
    output::{Report, print},
    terminal::{escape, style::BAD, table::Layout},
    verdict::Verdict,
};
use kcp_client::Error;
use kcp_control_plane::{
    change::decision::{ObjectWrite, Refusal},
    merge_patch,
};

/// The result of a change, ready to be printed.
struct ChangeReport<'c> {
    changed: &'c Changed,
    verb: &'c Verb<'c>,
    namespace: &'c str,
    dry_run: Option<DryRun>,
    is_configured: bool,
    /// The changed object as JSON; null if the output is text.
    object: Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ChangeDocument<'c> {
    Object(&'c Value),
    Refused(Versioned<ChangeRefused<'c>>),
}

/// A change that was not written, as `-o json` shows it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangeRefused<'c> {
    /// The object that the command did not change.
    metadata: ObjectName,
    refused_by: &'c str,
    /// Why the change was not written, one sentence each.
    reasons: &'c [String],
    /// What the user can do; absent if there is no advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Document for ChangeRefused<'_> {
    const KIND: &'static str = "ChangeRefused";
}

impl<'c> ChangeRefused<'c> {
    /// The refusal of a command that does not write the control plane itself.
    pub(crate) fn by_command(metadata: ObjectName, refusal: &'c Refusal) -> Self {
        Self {
            metadata,
            refused_by: refusal.refused_by_text(false),
            reasons: &refusal.why,
            hint: Some(refusal.remedies.join("; ")).filter(|hint| !hint.is_empty()),
        }
    }
}

/// Who prevented a change, and why.
struct RefusalReason<'c> {
    judge: &'c str,
    lines: &'c [String],
    hints: Vec<&'c str>,
}

impl Changed {
    /// Why the change was not written; `None` if it was written, or if the object already is in the requested state.
    fn reason<'c>(&'c self, verb: &Verb<'c>, is_configured: bool) -> Option<RefusalReason<'c>> {
        let (judge, lines, hints) = match &self.outcome {
            ChangeOutcome::Unchanged(_) | ChangeOutcome::Done { .. } => return None,
            ChangeOutcome::Refused(refusal) => (
                refusal.refused_by_text(is_configured),
                &refusal.why,
                refusal.hints(is_configured, verb.force_effect),
            ),
            ChangeOutcome::Rejected(why) => ("the server", why, Vec::new()),
            ChangeOutcome::Conflict(fields) => ("another client", fields, Vec::new()),
        };
        Some(RefusalReason { judge, lines, hints })
    }

    pub const fn verdict(&self) -> Verdict {
        match self.outcome {
            ChangeOutcome::Unchanged(_) | ChangeOutcome::Done { .. } => Verdict::Met,
            ChangeOutcome::Refused(_) | ChangeOutcome::Rejected(_) | ChangeOutcome::Conflict(_) => {
                Verdict::Negative
            }
        }
    }

    pub(crate) fn text(
        &self,
        verb: &Verb<'_>,
        dry_run: Option<DryRun>,
        is_configured: bool,
        layout: Layout,
    ) -> String {
        let object = format!("{}/{}", self.kind.kind.to_lowercase(), escape(&self.name));
        if let Some(RefusalReason { judge, lines, .. }) = self.reason(verb, is_configured) {
            let cause = match self.outcome {
                ChangeOutcome::Conflict(_) => "conflict: changed by another client".to_owned(),
                _ => format!("refused by {judge}"),
            };
            let not_done = escape(verb.not_done);
            return layout.append_paragraphs(format!("{object} {}: {cause}\n", not_done.style(BAD)), lines);
        }
        match &self.outcome {
            ChangeOutcome::Done { done, .. } => {
                let heading = format!("{object} {}{}\n", escape(done), DryRun::suffix(dry_run));
                let mut text = layout.append_paragraphs(heading, &self.consequences);
                if dry_run.is_some() {
                    text += &self.diff();
                }
                text
            }
            ChangeOutcome::Unchanged(why) => format!("{object} unchanged: {}\n", escape(why)),
            _ => String::new(),
        }
    }

    /// The fields that the write changes, one line for each value before and after it.
    fn diff(&self) -> String {
        let ChangeOutcome::Done { write, .. } = &self.outcome else {
            return String::new();
        };
        // Parsing cannot fail, because the object was decoded before.
        let object: Value = serde_json::from_str(&self.json).unwrap_or_default();
        let lines = match write {
            ObjectWrite::Patch { patch, .. } => diff(&object, patch),
            ObjectWrite::Delete => Vec::new(),
        };
        let lines = lines.iter().map(|line| format!("  {}\n", escape(line)));
        lines.collect()
    }

    /// The changed object. `now` is the object that was read after the write, if the read succeeded.
    fn object_after(&self, now: Option<&str>) -> anyhow::Result<Value> {
        let mut object: Value = serde_json::from_str(now.unwrap_or(&self.json))?;
        if let (None, ChangeOutcome::Done { write, .. }) = (now, &self.outcome)
            && *write != ObjectWrite::Delete
        {
            merge_patch::apply(&mut object, write.fields());
        }
        Ok(object)
    }
}

impl Report for ChangeReport<'_> {
    fn table(&self, layout: Layout) -> String {
        self.changed
            .text(self.verb, self.dry_run, self.is_configured, layout)
    }

    fn document(&self) -> impl Serialize {
        match self.changed.reason(self.verb, self.is_configured) {
            None => ChangeDocument::Object(&self.object),
            Some(RefusalReason { judge, lines, hints }) => {
                ChangeDocument::Refused(Versioned(ChangeRefused {
                    metadata: ObjectName {
                        name: self.changed.name.clone(),
                        namespace: self.namespace.to_owned(),
                    },
                    refused_by: judge,
                    reasons: lines,
                    hint: Some(hints.join("; ")).filter(|hint| !hint.is_empty()),
                }))
            }
        }
    }

    /// The changed object, as `kubectl get -o name` prints it; empty if nothing was written.
    fn names(&self) -> Vec<String> {
        match self.changed.reason(self.verb, self.is_configured) {
            None => vec![resource_name(self.changed.kind, &self.changed.name)],
            Some(_) => Vec::new(),
        }
    }
}

/// Why a command that does not write the control plane itself did nothing.
pub(crate) struct RefusalReport<'r> {
    pub(crate) control_plane: &'r KubeadmControlPlane,
    /// The text after the control plane's name, such as `not compacted`.
    pub(crate) not_done: &'r str,
    pub(crate) refusal: &'r Refusal,
}

impl Report for RefusalReport<'_> {
    fn table(&self, layout: Layout) -> String {
        let heading = format!(
            "kubeadmcontrolplane/{} {}: refused by {}\n",
            escape(self.control_plane.name()),
            self.not_done.style(BAD),
            self.refusal.refused_by_text(false)
        );
        layout.append_paragraphs(heading, &self.refusal.why)
    }

    fn document(&self) -> impl Serialize {
        let name = ObjectName::from(self.control_plane);
        Versioned(ChangeRefused::by_command(name, self.refusal))
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Engine<'_> {
    /// Prints the result of a change, and returns the command's verdict.
    pub async fn report(&self, verb: &Verb<'_>, changed: &Changed) -> anyhow::Result<Verdict> {
        let is_configured = self.configuration.is_some();
        self.warn(&changed.warnings);
        let output = &self.arguments.output;
        let mut report = ChangeReport {
            changed,
            verb,
            namespace: &self.reader.connection.namespace,
            dry_run: self.arguments.dry_run,
            is_configured,
            object: Value::Null,
        };
        if !output.is_text() {
            self.print_text(&report.table(Layout::default()))?;
            let now = match (&changed.outcome, self.arguments.dry_run) {
                (ChangeOutcome::Done { .. }, None) => self.read_back(changed).await,
                _ => None,
            };
            report.object = changed.object_after(now.as_deref())?;
        }
        print(&report, output, self.terminal)?;
        let reason = changed.reason(verb, is_configured);
        for hint in reason.into_iter().flat_map(|reason| reason.hints) {
            self.terminal.hint(hint);
        }
        Ok(changed.verdict())
    }

    /// Reads the object after the write; `None` if it no longer exists or cannot be read.
    async fn read_back(&self, changed: &Changed) -> Option<String> {
        let connection = self.reader.connection;
        let resource = if changed.kind == &KUBEADM_CONTROL_PLANE {
            &self.reader.control_plane_resource
        } else if changed.kind == &CLUSTER {
            &self.reader.cluster_resource
        } else {
            &self.reader.machine_resource
        };
        match connection
            .get_text(resource, &connection.namespace, &changed.name)
            .await
        {
            Ok(now) => is_same(&changed.json, &now).then_some(now),
            Err(Error::NotFound { .. }) => None,
            Err(error) => {
                self.terminal.warning(&format!(
                    "could not read the stored object, so the output shows the expected object: {error}"
                ));
                None
            }
        }
    }

    /// Prints text to stdout, or to stderr if stdout gets a document.
    pub fn print_text(&self, text: &str) -> anyhow::Result<()> {
        if self.arguments.output.is_text() {
            return self.terminal.print(text).context("cannot write to stdout");
        }
        // Strip colours first, because `note` would escape their control characters.
        for line in anstream::adapter::strip_str(text).to_string().lines() {
            self.terminal.note(line);
        }
        Ok(())
    }
}

/// Whether both texts describe the same object. They do not if the object was deleted and created again with the same name.
fn is_same(before: &str, now: &str) -> bool {
    let uid = |text: &str| {
        let object: Value = serde_json::from_str(text).ok()?;
        Some(object.pointer("/metadata/uid")?.as_str()?.to_owned())
    };
    uid(before) == uid(now)
}

#[cfg(test)]
mod tests {
    use kcp_api::kind::{KUBEADM_CONTROL_PLANE, MACHINE};
    use serde_json::{Value, json};

    use super::{ChangeOutcome, ChangeRefused, ChangeReport, Changed, Layout, is_same};
    use crate::{
        arguments::DryRun,
        change::engine::Verb,
        output::{
            OutputFormat::{self, Json, Name, Yaml},
            text,
        },
        terminal::plain,
        testing::{assert_every_format, schema},
        verdict::Verdict::{Met, Negative},
    };
    use kcp_control_plane::change::decision::{ObjectWrite, Refusal, RefusedBy};

    const VERB: Verb<'_> = Verb {
        name: "c1-cp",
        infinitive: "scale",
        not_done: "not scaled to 5",
        force_effect: Some("use --force to write it"),
        waits_for_replacement: false,
    };

    fn changed(outcome: ChangeOutcome) -> Changed {
        Changed {
            kind: &KUBEADM_CONTROL_PLANE,
            name: "c1-cp".to_owned(),
            json: json!({"metadata": {"name": "c1-cp", "x": 1}, "spec": {"replicas": 3}}).to_string(),
            control_plane: Some("c1-cp".to_owned()),
            warnings: Vec::new(),
            consequences: Vec::new(),
            outcome,
        }
    }

    fn scaled() -> ChangeOutcome {
        ChangeOutcome::Done {
            done: "scaled from 3 to 5".to_owned(),
            write: ObjectWrite::patch(json!({"spec": {"replicas": 5}})),
        }
    }

    fn report<'c>(changed: &'c Changed, now: Option<&str>) -> ChangeReport<'c> {
        ChangeReport {
            changed,
            verb: &VERB,
            namespace: "d",
            dry_run: None,
            is_configured: false,
            object: changed.object_after(now).expect("decodes"),
        }
    }

    fn output(changed: &Changed, format: &OutputFormat, now: Option<&str>) -> String {
        text(&report(changed, now), format, Layout::default()).expect("printed")
    }

    fn parsed(text: &str) -> Value {
        serde_saphyr::from_str(text).expect("YAML, which includes JSON")
    }

    #[test]
    fn the_document_is_the_written_object() {
        let written = json!({"metadata": {"name": "c1-cp", "x": 1}, "spec": {"replicas": 5}});
        let done = changed(scaled());
        assert_every_format(&report(&done, None));
        for format in [Json, Yaml] {
            assert_eq!(parsed(&output(&done, &format, None)), written, "a dry run");
            let now = output(&done, &format, Some(r#"{"metadata": {"name": "now"}}"#));
            assert_eq!(parsed(&now), json!({"metadata": {"name": "now"}}));
        }
        assert_eq!(
            output(&done, &Name, None),
            "kubeadmcontrolplane.controlplane.cluster.x-k8s.io/c1-cp\n"
        );
        // A deleted object is shown as it was, until it can be read again.
        let machine = Changed {
            kind: &MACHINE,
            ..changed(ChangeOutcome::Done {
                done: "deleted".to_owned(),
                write: ObjectWrite::Delete,
            })
        };
        assert_eq!(parsed(&output(&machine, &Json, None)), parsed(&machine.json));
        assert_eq!(output(&machine, &Name, None), "machine.cluster.x-k8s.io/c1-cp\n");
        let unchanged = changed(ChangeOutcome::Unchanged("replicas is already 3".to_owned()));
        assert_eq!(parsed(&output(&unchanged, &Json, None)), parsed(&unchanged.json));
    }

    #[test]
    fn the_document_says_why_nothing_was_written() {
        let why = vec!["Machine m2 has no node yet".to_owned()];
        let refused = |judge: &str, hint: Option<&str>| {
            let mut document = json!({
                "apiVersion": "kubectl-kcp.dev/v1alpha1",
                "kind": "ChangeRefused",
                "metadata": {"name": "c1-cp", "namespace": "d"},
                "refusedBy": judge,
                "reasons": why,
            });
            if let Some(hint) = hint {
                document["hint"] = json!(hint);
            }
            document
        };
        let refusal = Refusal::new(RefusedBy::Preflight, why.clone());
        let with_remedy = Refusal {
            remedies: vec!["resume it".to_owned()],
            ..refusal.clone()
        };
        let force = "use --force to write it";
        let schema = serde_json::to_value(schema::of::<ChangeRefused<'_>>()).expect("serializes");
        for (outcome, expected) in [
            (
                ChangeOutcome::Refused(refusal),
                refused("the preflight", Some(force)),
            ),
            (
                ChangeOutcome::Refused(with_remedy),
                refused("the preflight", Some(&format!("resume it; {force}"))),
            ),
            (
                ChangeOutcome::Refused(Refusal::new(RefusedBy::Command, why.clone())),
                refused("kubectl kcp", None),
            ),
            (ChangeOutcome::Rejected(why.clone()), refused("the server", None)),
            (
                ChangeOutcome::Conflict(why.clone()),
                refused("another client", None),
            ),
        ] {
            let changed = changed(outcome);
            assert_every_format(&report(&changed, None));
            for format in [Json, Yaml] {
                let document = parsed(&output(&changed, &format, None));
                assert_eq!(document, expected);
                assert_eq!(schema::faults(&schema, &document), Vec::<String>::new());
            }
            assert_eq!(output(&changed, &Name, None), "");
            assert_eq!(changed.verdict(), Negative);
        }
        for outcome in [scaled(), ChangeOutcome::Unchanged(String::new())] {
            assert_eq!(changed(outcome).verdict(), Met);
        }
    }

    #[test]
    fn the_text_says_what_was_done_or_why_nothing_was() {
        let text = |changed: &Changed, dry_run| plain(&changed.text(&VERB, dry_run, true, Layout::default()));
        let mut done = changed(scaled());
        done.consequences =
            vec!["etcd tolerates no member failure until the second new Machine has joined".to_owned()];
        insta::assert_snapshot!(text(&done, None), @r"
        kubeadmcontrolplane/c1-cp scaled from 3 to 5
          etcd tolerates no member failure until the second new Machine has joined
        ");
        done.consequences.clear();
        insta::assert_snapshot!(
            text(&done, Some(DryRun::Server)),
            @r"
        kubeadmcontrolplane/c1-cp scaled from 3 to 5 (server dry run)
          - spec.replicas: 3
          + spec.replicas: 5
        "
        );
        let unchanged = changed(ChangeOutcome::Unchanged("replicas is already 5".to_owned()));
        insta::assert_snapshot!(
            text(&unchanged, None),
            @"kubeadmcontrolplane/c1-cp unchanged: replicas is already 5"
        );
        let why = vec!["spec.replicas: Forbidden: 4: even".to_owned(), "more".to_owned()];
        let refused = changed(ChangeOutcome::Refused(Refusal::new(
            RefusedBy::Rules,
            why.clone(),
        )));
        insta::assert_snapshot!(text(&refused, None), @r"
        kubeadmcontrolplane/c1-cp not scaled to 5: refused by the admission rules
          spec.replicas: Forbidden: 4: even
          more
        ");
        insta::assert_snapshot!(text(&changed(ChangeOutcome::Rejected(why)), None), @r"
        kubeadmcontrolplane/c1-cp not scaled to 5: refused by the server
          spec.replicas: Forbidden: 4: even
          more
        ");
        let fields = vec![
            "spec.replicas was 3 when this command checked the change, and is now 7, set by kubectl-scale"
                .to_owned(),
        ];
        insta::assert_snapshot!(text(&changed(ChangeOutcome::Conflict(fields)), None), @r"
        kubeadmcontrolplane/c1-cp not scaled to 5: conflict: changed by another client
          spec.replicas was 3 when this command checked the change, and is now 7, set by kubectl-scale
        ");
    }

    #[test]
    fn a_later_object_of_the_same_name_is_not_the_same() {
        let machine = |uid: &str, version: &str| {
            format!(r#"{{"metadata":{{"name":"m1","uid":"{uid}","resourceVersion":"{version}"}}}}"#)
        };
        assert!(is_same(&machine("u", "1"), &machine("u", "2")));
        assert!(!is_same(&machine("u", "1"), &machine("v", "1")));
    }

    #[test]
    fn the_schema_is_checked_in() {
        schema::checked_in::<ChangeRefused<'_>>("changerefused.json");
    }
}
