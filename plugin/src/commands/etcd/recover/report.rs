//! What `etcd recover` prints: the plan with the script, or how far the recovery is.

use std::path::Path;

use kcp_api::{KubeadmControlPlane, Object as _, kind::KUBEADM_CONTROL_PLANE};
use kcp_control_plane::verbs::etcd::recover::{
    remains::{ControlPlaneHost, Remains},
    restore::RestorableSnapshot,
    steps::Remainder,
};
use owo_colors::OwoColorize as _;
use serde::Serialize;

use crate::{
    commands::etcd::recover::SnapshotCopy,
    document::{Document, ObjectName, Versioned, resource_name},
    output::Report,
    terminal::{escape, style::BAD, table::Layout},
    verdict::Verdict,
};

/// The command that continues the recovery after the script has run.
pub(super) fn continue_command(name: &str, namespace: &str) -> String {
    format!("kubectl kcp etcd recover {name} -n {namespace} --continue")
}

/// What the command has found or done.
#[derive(Clone, Copy, Debug)]
pub(super) enum RecoveryOutcome<'r> {
    /// The plan before the script has run.
    Script {
        remains: &'r Remains,
        /// `None` if the script is in a file.
        script: Option<&'r String>,
        file: Option<&'r Path>,
        /// The snapshot that the script restores. `None` if etcd continues with the data of the host.
        source: Option<&'r SnapshotCopy>,
    },
    /// The plan after the script has run, in a dry run.
    DryRun(&'r Remainder),
    /// Every member is healthy.
    Recovered { done: &'r [String] },
    /// The time limit has passed, or a step needs another confirmation.
    Unfinished {
        done: &'r [String],
        /// Why the command has ended, one line each.
        why: &'r [String],
    },
}

pub(super) struct RecoveryReport<'r> {
    pub(super) control_plane: &'r KubeadmControlPlane,
    pub(super) outcome: RecoveryOutcome<'r>,
}

/// The recovery of an etcd that has lost its quorum.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct RecoveryDocument<'r> {
    /// The control plane.
    metadata: ObjectName,
    /// `script` (the first part), or with --continue `dryRun`, `recovered` or `unfinished`.
    result: &'static str,
    /// The hosts that may have etcd's data. Empty with --continue.
    hosts: Vec<RecoveryHost<'r>>,
    /// The Node of the host on which etcd continues; null if it is not chosen, and with --continue.
    survivor: Option<&'r str>,
    /// Why it is unknown whether etcd has a quorum; null if members report that they have no leader, and with --continue.
    quorum_unknown_because: Option<&'r str>,
    /// What may be lost, one sentence each. Empty with --continue.
    may_be_lost: &'r [String],
    /// What this command has done, one sentence each.
    done: &'r [String],
    /// What is left to do, one sentence each.
    steps: Vec<String>,
    /// Why the recovery is not finished, one sentence each.
    reasons: &'r [String],
    /// The snapshot that the script restores; null without `etcd restore`.
    snapshot: Option<RestoredSnapshot<'r>>,
    /// The script for the host; null with --continue, or if the script is in a file.
    script: Option<&'r str>,
}

impl Document for RecoveryDocument<'_> {
    const KIND: &'static str = "EtcdRecovery";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct RestoredSnapshot<'r> {
    /// The file or the object from which the command read the snapshot.
    place: &'r str,
    /// The file on this machine, to be copied to the host.
    file: String,
    /// When the snapshot was taken; null if that is unknown.
    taken: Option<jiff::Timestamp>,
    bytes: u64,
    /// The newest revision in the snapshot.
    revision: i64,
    /// The number of keys in the snapshot.
    keys: u64,
}

impl<'r> From<&'r SnapshotCopy> for RestoredSnapshot<'r> {
    fn from(copy: &'r SnapshotCopy) -> Self {
        let RestorableSnapshot {
            place,
            taken,
            bytes,
            revision,
            keys,
            ..
        } = &copy.snapshot;
        Self {
            place,
            file: copy.file.display().to_string(),
            taken: *taken,
            bytes: *bytes,
            revision: *revision,
            keys: *keys,
        }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct RecoveryHost<'r> {
    machine: &'r str,
    node: &'r str,
    /// The address of the host; null if Cluster API does not know it.
    address: Option<&'r str>,
    /// Whether the Machine is being deleted, so that etcd cannot continue there.
    is_deleting: bool,
    /// What is known about the etcd member on the host.
    member: &'r str,
}

impl<'r> From<&'r ControlPlaneHost> for RecoveryHost<'r> {
    fn from(host: &'r ControlPlaneHost) -> Self {
        Self {
            machine: &host.machine,
            node: &host.node,
            address: host.address.as_deref(),
            is_deleting: host.is_deleting,
            member: &host.known,
        }
    }
}

impl<'r> RecoveryReport<'r> {
    pub(super) const fn verdict(&self) -> Verdict {
        match self.outcome {
            RecoveryOutcome::Script { .. }
            | RecoveryOutcome::DryRun(_)
            | RecoveryOutcome::Recovered { .. } => Verdict::Met,
            RecoveryOutcome::Unfinished { .. } => Verdict::Negative,
        }
    }

    /// Whether the text on stdout is the script for the host.
    pub(super) const fn prints_script(&self) -> bool {
        matches!(self.outcome, RecoveryOutcome::Script { script: Some(_), .. })
    }

    pub(super) fn as_document(&self) -> RecoveryDocument<'r> {
        let mut document = RecoveryDocument {
            metadata: ObjectName::from(self.control_plane),
            result: "script",
            hosts: Vec::new(),
            survivor: None,
            quorum_unknown_because: None,
            may_be_lost: &[],
            done: &[],
            steps: self.steps(),
            reasons: &[],
            snapshot: None,
            script: None,
        };
        match self.outcome {
            RecoveryOutcome::Script {
                remains,
                script,
                source,
                ..
            } => {
                document.snapshot = source.map(RestoredSnapshot::from);
                document.hosts = remains.hosts.iter().map(RecoveryHost::from).collect();
                document.survivor = remains.survivor.as_deref();
                document.quorum_unknown_because = remains.doubt.as_deref();
                document.may_be_lost = &remains.losses;
                document.script = script.map(String::as_str);
            }
            RecoveryOutcome::DryRun(left) => {
                document.result = "dryRun";
                document.reasons = &left.waits_for;
            }
            RecoveryOutcome::Recovered { done } => {
                document.result = "recovered";
                document.done = done;
            }
            RecoveryOutcome::Unfinished { done, why } => {
                document.result = "unfinished";
                document.done = done;
                document.reasons = why;
            }
        }
        document
    }

    /// What is left to do, one sentence each.
    fn steps(&self) -> Vec<String> {
        let continues = continue_command(self.control_plane.name(), self.control_plane.namespace());
        match self.outcome {
            RecoveryOutcome::Script {
                remains,
                file,
                source,
                ..
            } => {
                let script = file.map_or_else(
                    || "the script".to_owned(),
                    |file| format!("bash {}", file.display()),
                );
                let Some(node) = &remains.survivor else {
                    return vec![format!(
                        "run {script} as root on each host that is left: it changes nothing; compare what it prints, and run this \
                         command again with --survivor"
                    )];
                };
                if let Some(source) = source {
                    return restore_steps(source, node, &script, &continues);
                }
                vec![
                    format!(
                        "run {script} as root on the host of Node {node}: it changes nothing, and names the other etcd members"
                    ),
                    "make sure that the hosts of these members are off, and that their data is lost or older; the script \
                     cannot know whether these members have a quorum without this host"
                        .to_owned(),
                    format!(
                        "run {script} there with --lost and the names of these members: it keeps a copy of etcd's data, and makes \
                         the member on this host etcd's only member"
                    ),
                    format!("replace the other Machines, one after the other: {continues}"),
                ]
            }
            RecoveryOutcome::DryRun(left) => left.plan(),
            RecoveryOutcome::Recovered { .. } => Vec::new(),
            RecoveryOutcome::Unfinished { .. } => vec![format!("run the command again: {continues}")],
        }
    }

    /// What the command has found or done, for people.
    pub(super) fn summary(&self, layout: Layout) -> String {
        let object = format!("kubeadmcontrolplane/{}", escape(self.control_plane.name()));
        let steps = self.steps();
        match self.outcome {
            RecoveryOutcome::Script { remains, source, .. } => {
                let heading = match &remains.survivor {
                    Some(node) if source.is_some() => {
                        format!(
                            "{object}: the script restores the snapshot on Node {}\n",
                            escape(node)
                        )
                    }
                    Some(node) => format!("{object}: etcd continues on Node {}\n", escape(node)),
                    None => format!("{object}: the host on which etcd continues is not chosen yet\n"),
                };
                let doubt = remains.doubt.iter().map(|why| {
                    format!(
                        "it is unknown whether etcd has a quorum: {why}; the script does not know either, because hosts that it \
                         cannot reach may have a quorum"
                    )
                });
                let lines: Vec<String> = remains.hosts.iter().map(describe).chain(doubt).collect();
                let text = layout.append_paragraphs(heading, &lines);
                let text = layout.append_paragraphs(text + "may be lost:\n", &remains.losses);
                layout.append_paragraphs(text + "steps:\n", &numbered(&steps))
            }
            RecoveryOutcome::DryRun(left) if left.is_empty() => {
                format!("{object}: every etcd member is healthy, nothing is left to do\n")
            }
            RecoveryOutcome::DryRun(left) => {
                let text =
                    layout.append_paragraphs(format!("{object} recovered (dry run):\n"), &numbered(&steps));
                layout.append_paragraphs(text + "waits for:\n", &left.waits_for)
            }
            RecoveryOutcome::Recovered { done: [] } => {
                format!("{object}: every etcd member is healthy, nothing is left to do\n")
            }
            RecoveryOutcome::Recovered { .. } => {
                format!("{object} recovered: every etcd member is healthy\n")
            }
            RecoveryOutcome::Unfinished { why, .. } => {
                let heading = format!("{object} {}\n", "not recovered yet:".style(BAD));
                let text = layout.append_paragraphs(heading, why);
                layout.append_paragraphs(text + "steps:\n", &numbered(&steps))
            }
        }
    }
}

fn restore_steps(source: &SnapshotCopy, node: &str, script: &str, continues: &str) -> Vec<String> {
    let file = source.file.display();
    vec![
        format!(
            "copy the script and {file} to one folder on the host of Node {node}; the snapshot contains every Secret of the cluster"
        ),
        "stop etcd on the hosts of all other Machines: power them off, or on each: mv /etc/kubernetes/manifests/etcd.yaml \
         /root/; if etcd still runs after a minute: pkill -x etcd"
            .to_owned(),
        format!("run {script} there as root: it changes nothing, and checks the snapshot and the other members"),
        format!(
            "run {script} there with --lost and the names of the other members: it keeps a copy of etcd's data, and restores the \
             snapshot to an etcd with only this member"
        ),
        format!("replace the other Machines, one after the other: {continues}"),
    ]
}

fn describe(host: &ControlPlaneHost) -> String {
    let address = host
        .address
        .as_ref()
        .map_or_else(String::new, |address| format!(", {address}"));
    let deleting = if host.is_deleting {
        "is being deleted, so etcd cannot continue there; "
    } else {
        ""
    };
    format!(
        "Machine {} (Node {}{address}): {deleting}{}",
        host.machine, host.node, host.known
    )
}

fn numbered(steps: &[String]) -> Vec<String> {
    let numbered = (1..).zip(steps);
    numbered
        .map(|(number, step)| format!("{number}. {step}"))
        .collect()
}

impl Report for RecoveryReport<'_> {
    fn table(&self, layout: Layout) -> String {
        match self.outcome {
            RecoveryOutcome::Script {
                script: Some(script), ..
            } => script.clone(),
            _ => self.summary(layout),
        }
    }

    fn document(&self) -> impl Serialize {
        Versioned(self.as_document())
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(&KUBEADM_CONTROL_PLANE, self.control_plane.name())]
    }
}
