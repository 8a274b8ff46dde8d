//! A change of a control plane's spec: read, decided on, and written under the version that was read; all anew when
//! others have written in between.

mod overtaking;

use jiff::Timestamp;
use overtaking::Overtaking;
use serde_json::{Value, json};

use crate::{arguments::DryRun, terminal::Terminal};
use kcp_client::{
    Error, KUBEADM_CONTROL_PLANE, Write, Written,
    events::Events,
    reader::Reader,
    reads::change::{LIMIT, read_control_plane_alone, read_situation},
};
use kcp_control_plane::{
    change::{
        decision::{Decision, Proposal, Refusal},
        event::Subject,
        situation::{Extent, Situation},
    },
    control_plane::ControlPlane,
    judgement::rejection,
    merge_patch,
};

/// How often a control plane is read and judged anew when somebody else writes to it between our read and our write.
/// Its controller writes the status several times a second at most, and only in bursts.
const ATTEMPTS: usize = 5;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was as wanted.
    Unchanged,
    /// Not sent.
    Refused(Refusal),
    /// Refused by the server or a webhook, and why, a line each.
    Rejected(Vec<String>),
    /// Others wrote the same fields between our judgement and our write; what they wrote, a line each.
    Overtaken(Vec<String>),
    /// It was made, or would be if this were no dry run.
    Made,
}

/// What came of it, and on what ground.
#[derive(Clone, Debug, PartialEq)]
pub struct Edited {
    /// The control plane when that was decided, as the server wrote it.
    pub object: String,
    /// The same as we understand it.
    pub before: ControlPlane,
    /// What was written, or would be.
    pub patch: Option<Value>,
    /// What was said then without refusing it.
    pub warnings: Vec<String>,
    /// What comes of it that one has to know.
    pub consequences: Vec<String>,
    /// What came of it.
    pub outcome: Outcome,
}

impl Edited {
    pub(crate) fn without_write(situation: Situation, outcome: Outcome) -> Self {
        Self {
            object: situation.object,
            before: situation.observed.control_plane,
            patch: None,
            warnings: Vec::new(),
            consequences: Vec::new(),
            outcome,
        }
    }
}

/// A change that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'e> {
    /// Of which control plane.
    pub name: &'e str,
    /// What is done to it, in one word, for messages: `scale`.
    pub verb: &'static str,
    /// What it is judged on.
    pub extent: Extent,
    /// Where it ends, if it is to change nothing.
    pub dry_run: Option<DryRun>,
    /// Recorded by the server.
    pub field_manager: &'e str,
}

impl Edit<'_> {
    /// Makes the change that `decide` makes of a control plane and what surrounds it. All of that is read and decided
    /// anew when others have written meanwhile; where they have written the same fields, be it while we read, it ends.
    ///
    /// # Errors
    /// When nothing could be decided, or it is not known whether the change was made.
    pub async fn make(
        &self,
        reader: &Reader<'_>,
        terminal: &Terminal,
        decide: impl AsyncFn(&Situation) -> anyhow::Result<Decision>,
    ) -> anyhow::Result<Edited> {
        let Self { name, verb, .. } = self;
        let mut last: Option<(String, Value)> = None;
        let mut meanwhile = Vec::new();
        for _ in 0..ATTEMPTS {
            let situation = Box::pin(self.situation(reader)).await?;
            if let Some((judged, patch)) = &last {
                let Overtaking { contested, beside } = Overtaking::of(judged, &situation.object, patch);
                if !contested.is_empty() {
                    return Ok(Edited::without_write(situation, Outcome::Overtaken(contested)));
                }
                meanwhile.extend(beside);
            }
            let while_read =
                |patch: &Value| Overtaking::of(&situation.object_at_first, &situation.object, patch);
            let proposal = match decide(&situation).await? {
                Decision::Unchanged => return Ok(Edited::without_write(situation, Outcome::Unchanged)),
                Decision::Refused(mut refusal) => {
                    // What others have written may be why.
                    refusal.why.append(&mut meanwhile);
                    refusal.why.extend(while_read(&Value::Null).beside);
                    return Ok(Edited::without_write(situation, Outcome::Refused(refusal)));
                }
                Decision::Write(proposal) => proposal,
            };
            let Overtaking { contested, beside } = while_read(&proposal.patch);
            if !contested.is_empty() {
                return Ok(Edited::without_write(situation, Outcome::Overtaken(contested)));
            }
            meanwhile.extend(beside);
            let outcome = self.attempt(reader, terminal, &situation, &proposal).await?;
            let Some(outcome) = outcome else {
                // What was warned of may be so no more: all is decided anew.
                last = Some((situation.object, proposal.patch));
                continue;
            };
            let mut warnings = meanwhile;
            warnings.extend(proposal.warnings);
            return Ok(Edited {
                patch: Some(proposal.patch),
                warnings,
                consequences: proposal.consequences,
                ..Edited::without_write(situation, outcome)
            });
        }
        Err(Error::Contended {
            goal: format!("{verb} {name}"),
            attempts: ATTEMPTS,
        }
        .into())
    }

    /// Reads as much as the change is judged on.
    async fn situation(&self, reader: &Reader<'_>) -> Result<Situation, Error> {
        let (namespace, limit) = (&reader.connection.namespace, LIMIT);
        if self.extent != Extent::All {
            let situation = read_control_plane_alone(reader, namespace, self.name, limit).await?;
            if self.extent.suffices(situation.control_plane(), Timestamp::now()) {
                return Ok(situation);
            }
        }
        read_situation(reader, namespace, self.name, limit).await
    }

    /// Writes, as far as this is no dry run, and tells of it; none when others have written meanwhile.
    async fn attempt(
        &self,
        reader: &Reader<'_>,
        terminal: &Terminal,
        situation: &Situation,
        proposal: &Proposal,
    ) -> Result<Option<Outcome>, Error> {
        let namespace = &reader.connection.namespace;
        match self.dry_run {
            Some(DryRun::Client) => return Ok(Some(Outcome::Made)),
            Some(DryRun::Server) => {}
            None => terminal.on_interrupt(format!(
                "the change may have been accepted already; look with: kubectl kcp status {} -n {namespace}",
                self.name
            )),
        }
        let control_plane = situation.control_plane();
        match self
            .write(reader, &control_plane.resource_version, proposal)
            .await
        {
            Ok(Fate::Made) => {}
            Ok(Fate::Overtaken) => return Ok(None),
            Err(Error::Rejected { status, .. }) => return Ok(Some(Outcome::Rejected(rejection(&status)))),
            Err(error) => return Err(error),
        }
        if self.dry_run.is_none() {
            let events = Events {
                connection: reader.connection,
                field_manager: self.field_manager,
            };
            let subject = subject(control_plane, &reader.control_planes.api_version);
            if let Err(error) = events.write(&proposal.occurrence, &subject, None).await {
                terminal.warning(&format!("no Event tells of the change: {error}"));
            }
        }
        Ok(Some(Outcome::Made))
    }

    /// Writes once. When the answer is lost the object is read back.
    async fn write(&self, reader: &Reader<'_>, version: &str, proposal: &Proposal) -> Result<Fate, Error> {
        let namespace = &reader.connection.namespace;
        let mut patch = proposal.patch.clone();
        merge_patch::apply(&mut patch, &json!({ "metadata": { "resourceVersion": version } }));
        let write = Write {
            resource: &reader.control_planes,
            namespace,
            name: self.name,
            subresource: proposal.subresource,
            patch: &patch,
            field_manager: self.field_manager,
            dry_run: self.dry_run == Some(DryRun::Server),
        };
        let lost = match reader.connection.patch(&write).await? {
            Written::Stored => return Ok(Fate::Made),
            Written::Changed => return Ok(Fate::Overtaken),
            Written::Unknown(error) => error,
        };
        let fate = match reader.control_plane(namespace, self.name).await {
            Ok((now, _)) => fate(&now, version, &proposal.patch),
            Err(Error::NotFound { .. }) => Some(Fate::Overtaken),
            Err(_) => None,
        };
        fate.ok_or_else(|| Error::OutcomeUnknown {
            source: Box::new(lost),
        })
    }
}

/// A control plane as an Event names it.
pub(crate) fn subject(control_plane: &ControlPlane, api_version: &str) -> Subject {
    Subject {
        api_version: api_version.to_owned(),
        kind: KUBEADM_CONTROL_PLANE.kind.to_owned(),
        namespace: control_plane.namespace.clone(),
        name: control_plane.name.clone(),
        uid: control_plane.uid.clone(),
        resource_version: control_plane.resource_version.clone(),
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
fn fate(now: &str, version: &str, patch: &Value) -> Option<Fate> {
    let now: Value = serde_json::from_str(now).ok()?;
    let current = now.pointer("/metadata/resourceVersion")?.as_str()?;
    if merge_patch::is_applied(&now, patch) {
        return Some(Fate::Made);
    }
    (current != version).then_some(Fate::Overtaken)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use http::Method;
    use kcp_rules::case::{Base, V1BETA2};
    use serde_json::{Value, json};

    use super::{Edit, Edited, Extent, Fate, Outcome, fate};
    use crate::{arguments::global::ColorWhen, terminal::Terminal};
    use kcp_client::{Connection, canned::failure, reader::Reader};
    use kcp_control_plane::change::decision::{Decision, Proposal, Refusal, RefusedBy};
    use kcp_control_plane::change::{event::Occurrence, situation::Situation};

    const EDIT: Edit<'_> = Edit {
        name: "example",
        verb: "scale",
        extent: Extent::All,
        dry_run: None,
        field_manager: "kubectl-kcp",
    };

    /// A management cluster with one control plane, which is answered for by `control_plane`, and no Machine.
    fn canned(control_plane: impl Fn(&Method, &str) -> (u16, Value) + Send + 'static) -> Connection {
        let group = |name: &str| {
            let version = json!({"groupVersion": format!("{name}/v1beta2"), "version": "v1beta2"});
            json!({"name": name, "versions": [version], "preferredVersion": version})
        };
        let names = [
            "cluster.x-k8s.io",
            "controlplane.cluster.x-k8s.io",
            "bootstrap.cluster.x-k8s.io",
        ];
        let groups = json!({"groups": names.map(group)});
        Connection::canned(move |method, path| {
            let is_list = ["/machines", "/kubeadmconfigs"]
                .iter()
                .any(|end| path.ends_with(end));
            match *method {
                Method::GET if path == "/apis" => (200, groups.clone()),
                Method::GET if is_list => (200, json!({"items": []})),
                Method::GET if path.contains("/clusters/") => failure(404, "NotFound", "no"),
                Method::POST => (201, json!({})),
                _ => control_plane(method, path),
            }
        })
    }

    /// A control plane to which others have written before each of so many writes of ours.
    fn contended(conflicts: usize) -> Connection {
        written_by_others(conflicts, 3)
    }

    /// The same; from their second write on it asks for so many Machines.
    fn written_by_others(conflicts: usize, replicas: i64) -> Connection {
        let writes = Arc::new(AtomicUsize::new(0));
        canned(move |method, _| {
            let mut object = Base::ControlPlane(V1BETA2).object();
            let version = writes.load(Relaxed);
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            object["spec"]["replicas"] = json!(if version < 2 { 3 } else { replicas });
            if *method == Method::PATCH && writes.fetch_add(1, Relaxed) < conflicts {
                return failure(409, "Conflict", "changed");
            }
            (200, object)
        })
    }

    async fn edit(connection: &Connection) -> anyhow::Result<Edited> {
        let reader = Reader::discover(connection).await?;
        let decide = async |situation: &Situation| {
            Ok(Decision::Write(Proposal {
                patch: json!({"spec": {"replicas": 5}}),
                subresource: None,
                warnings: vec![format!("at {}", situation.control_plane().resource_version)],
                consequences: Vec::new(),
                occurrence: Occurrence {
                    reason: "Scaled",
                    action: "Scale",
                    done: "scaled",
                    detail: String::new(),
                },
            }))
        };
        EDIT.make(&reader, &Terminal::new(ColorWhen::Never), decide).await
    }

    #[test]
    fn a_refusal_says_by_whom_it_is_and_what_helps() {
        let file = Some("if the server is configured otherwise, name its file with --configuration");
        let force =
            Some("with --force it is asked for all the same, and the controller waits until it may begin");
        for (by, is_configured, expected) in [
            (
                RefusedBy::Rules,
                false,
                ("the rules, judged by the default configuration", file),
            ),
            (RefusedBy::Rules, true, ("the rules", None)),
            (RefusedBy::Preflight, false, ("the preflight", force)),
            (RefusedBy::Preflight, true, ("the preflight", force)),
            (RefusedBy::Command, false, ("kubectl kcp", None)),
            (RefusedBy::Command, true, ("kubectl kcp", None)),
        ] {
            let refusal = Refusal::new(by, Vec::new());
            assert_eq!((refusal.by(is_configured), refusal.hint(is_configured)), expected);
        }
    }

    #[test]
    fn what_to_do_goes_before_what_to_try() {
        let refusal = Refusal {
            remedies: vec!["resume it".to_owned()],
            ..Refusal::new(RefusedBy::Rules, Vec::new())
        };
        assert_eq!(refusal.hints(true), ["resume it"]);
        assert_eq!(
            refusal.hints(false),
            [
                "resume it",
                "if the server is configured otherwise, name its file with --configuration"
            ]
        );
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

    #[tokio::test]
    async fn who_is_too_late_is_told_what_others_wrote() {
        let edited = edit(&written_by_others(3, 7)).await.unwrap();
        let line = "spec.replicas was 3 when judged and is 7 now".to_owned();
        assert_eq!(edited.outcome, Outcome::Overtaken(vec![line]));
        assert_eq!(edited.before.resource_version, "2");
        // What others wrote is what was wanted: it is judged as any other.
        let edited = edit(&written_by_others(3, 5)).await.unwrap();
        assert_eq!(edited.outcome, Outcome::Made);
    }

    #[tokio::test]
    async fn what_others_write_while_we_read_is_told_too() {
        let reads = Arc::new(AtomicUsize::new(0));
        let connection = canned(move |method, _| {
            assert_eq!(*method, Method::GET, "nothing is written");
            let mut object = Base::ControlPlane(V1BETA2).object();
            object["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "c1"});
            let is_first = reads.fetch_add(1, Relaxed) == 0;
            object["spec"]["replicas"] = json!(if is_first { 3 } else { 7 });
            (200, object)
        });
        let edited = edit(&connection).await.unwrap();
        let line = "spec.replicas was 3 when judged and is 7 now".to_owned();
        assert_eq!(edited.outcome, Outcome::Overtaken(vec![line]));
    }

    #[tokio::test]
    async fn a_refusal_tells_what_others_wrote_meanwhile() {
        let reads = Arc::new(AtomicUsize::new(0));
        let connection = canned(move |_, _| {
            let mut object = Base::ControlPlane(V1BETA2).object();
            object["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "c1"});
            let is_first = reads.fetch_add(1, Relaxed) == 0;
            object["spec"]["replicas"] = json!(if is_first { 3 } else { 7 });
            (200, object)
        });
        let reader = Reader::discover(&connection).await.unwrap();
        let refusal = |why: &[&str]| {
            Refusal::new(
                RefusedBy::Preflight,
                why.iter().map(ToString::to_string).collect(),
            )
        };
        let decide = async |_: &Situation| Ok(Decision::Refused(refusal(&["no"])));
        let edited = EDIT
            .make(&reader, &Terminal::new(ColorWhen::Never), decide)
            .await
            .unwrap();
        let expected = refusal(&["no", "spec.replicas was changed meanwhile: judged anew"]);
        assert_eq!(edited.outcome, Outcome::Refused(expected));
    }

    #[tokio::test]
    async fn what_needs_no_machines_reads_none() {
        for (extent, after, reads_machines) in [
            (Extent::ControlPlane, Some("2020-01-01T00:00:00Z"), false),
            (Extent::AllOnceRollingOut, None, false),
            (Extent::AllOnceRollingOut, Some("2999-01-01T00:00:00Z"), false),
            (Extent::AllOnceRollingOut, Some("2020-01-01T00:00:00Z"), true),
            (Extent::All, None, true),
        ] {
            let connection = canned(move |_, _| {
                let mut object = Base::ControlPlane(V1BETA2).object();
                object["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "c1"});
                object["spec"]["rollout"]["after"] = json!(after);
                (200, object)
            });
            let reader = Reader::discover(&connection).await.unwrap();
            let read = Edit { extent, ..EDIT }.situation(&reader).await.unwrap();
            assert_eq!(read.machines_read, reads_machines, "{extent:?} {after:?}");
            assert_eq!(read.object, read.object_at_first);
        }
    }

    #[test]
    fn what_an_object_tells_of_a_write_without_an_answer() {
        let object = |version: &str, after: Option<&str>| {
            let rollout = json!({"strategy": {}, "after": after});
            json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": 3, "rollout": rollout}})
                .to_string()
        };
        let wanted = json!({"spec": {"rollout": {"after": "2026-08-21T12:00:00Z"}}});
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
