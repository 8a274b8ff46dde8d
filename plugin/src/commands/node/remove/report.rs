//! What `node remove` did, or why it stopped: text and JSON.

use std::path::Path;

use kcp_api::kind::NODE;
use kcp_control_plane::change::decision::Refusal;
use owo_colors::OwoColorize as _;
use serde::Serialize;

use crate::{
    document::{Document, Versioned, resource_name},
    output::Report,
    terminal::{escape, style::BAD, table::Layout},
    verdict::Verdict,
};

/// How the removal ended.
#[derive(Debug)]
pub(super) enum Result {
    Removed {
        /// The number of evicted pods.
        evicted: usize,
        removed_member: bool,
    },
    /// The cluster has no such Node. The command removed the etcd member of that name.
    RemovedMember,
    DryRun {
        pods: usize,
        has_member: bool,
    },
    /// Nothing was changed.
    Refused(Refusal),
    /// The Node is cordoned.
    Stopped {
        refusal: Refusal,
        removed_member: bool,
    },
    /// Pods were left on the Node when the time limit passed. Only the cordon remains.
    TimedOut {
        /// The time limit, such as `10m`.
        after: String,
        delays: Vec<String>,
    },
}

pub(super) struct RemovalReport<'r> {
    pub(super) node: &'r str,
    pub(super) removal: &'r Result,
    /// The script for the host, after a removal.
    pub(super) script: Option<&'r str>,
    /// The file with the script. `None` if the script is printed.
    pub(super) file: Option<&'r Path>,
}

/// The removal of a Node from a cluster.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct RemovalDocument<'r> {
    metadata: NodeName<'r>,
    /// `removed`, `removedMember` (the Node did not exist), `dryRun`, `refused`, `stopped` or `timedOut`.
    result: &'static str,
    /// Whether the Node is cordoned, although it was not removed.
    stays_cordoned: bool,
    /// Why the Node was not removed, one sentence each.
    reasons: &'r [String],
    /// The number of evicted pods; null if the Node was not removed.
    evicted_pods: Option<usize>,
    /// Whether this command removed the etcd member of the Node.
    removed_etcd_member: bool,
    /// The script for the host; null if the Node was not removed, or if the script is in a file.
    teardown_script: Option<&'r str>,
}

impl Document for RemovalDocument<'_> {
    const KIND: &'static str = "NodeRemoval";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NodeName<'r> {
    name: &'r str,
}

impl RemovalReport<'_> {
    pub(super) const fn verdict(&self) -> Verdict {
        match self.removal {
            Result::Removed { .. } | Result::RemovedMember | Result::DryRun { .. } => Verdict::Met,
            Result::Refused(_) | Result::Stopped { .. } | Result::TimedOut { .. } => Verdict::Negative,
        }
    }

    /// Whether the text on stdout is the script for the host.
    pub(super) const fn prints_script(&self) -> bool {
        self.script.is_some() && self.file.is_none()
    }

    pub(super) fn hints(&self) -> Vec<String> {
        let mut hints = match self.removal {
            Result::Refused(refusal) | Result::Stopped { refusal, .. } => refusal.remedies.clone(),
            _ => Vec::new(),
        };
        if self.stays_cordoned() {
            hints.push(format!(
                "let pods run on the Node again with: kubectl uncordon {}",
                self.node
            ));
        }
        hints
    }

    const fn stays_cordoned(&self) -> bool {
        matches!(self.removal, Result::Stopped { .. } | Result::TimedOut { .. })
    }

    fn reasons(&self) -> &[String] {
        match self.removal {
            Result::Refused(refusal) | Result::Stopped { refusal, .. } => &refusal.why,
            Result::TimedOut { delays, .. } => delays,
            Result::Removed { .. } | Result::RemovedMember | Result::DryRun { .. } => &[],
        }
    }

    /// What happened, for people.
    pub(super) fn summary(&self, layout: Layout) -> String {
        let object = escape(&resource_name(&NODE, self.node)).into_owned();
        let not_removed = "not removed".style(BAD);
        let heading = match self.removal {
            Result::Removed {
                evicted,
                removed_member,
            } => {
                let member = if *removed_member {
                    ", removed its etcd member"
                } else {
                    ""
                };
                let script = self.file.map_or_else(
                    || "run the script as root on the host".to_owned(),
                    |file| format!("run {} as root on the host", file.display()),
                );
                let pods = if *evicted == 1 { "pod" } else { "pods" };
                format!(
                    "{object} removed: evicted {evicted} {pods}{member}; {}\n",
                    escape(&script)
                )
            }
            Result::RemovedMember => format!(
                "etcd member {} removed; the cluster has no Node of this name\n",
                escape(self.node)
            ),
            Result::DryRun { pods, has_member } => {
                let member = if *has_member {
                    ", removes its etcd member"
                } else {
                    ""
                };
                format!("{object} removed (dry run): evicts {pods} pods{member}\n")
            }
            Result::Refused(_) => format!("{object} {not_removed}: refused by kubectl kcp\n"),
            Result::Stopped { removed_member, .. } => {
                let what = if *removed_member {
                    "the cordon remains, and the etcd member has been removed"
                } else {
                    "only the cordon remains"
                };
                format!("{object} {not_removed}: {what}\n")
            }
            Result::TimedOut { after, .. } => format!(
                "{object} {not_removed}: pods are left after {after}; only the cordon remains, and evicted pods run elsewhere\n"
            ),
        };
        layout.append_paragraphs(heading, self.reasons())
    }
}

impl Report for RemovalReport<'_> {
    fn table(&self, layout: Layout) -> String {
        match self.script {
            Some(script) if self.prints_script() => script.to_owned(),
            _ => self.summary(layout),
        }
    }

    fn document(&self) -> impl Serialize {
        let (result, evicted, removed_member) = match self.removal {
            Result::Removed {
                evicted,
                removed_member,
            } => ("removed", Some(*evicted), *removed_member),
            Result::RemovedMember => ("removedMember", None, true),
            Result::DryRun { .. } => ("dryRun", None, false),
            Result::Refused(_) => ("refused", None, false),
            Result::Stopped { removed_member, .. } => ("stopped", None, *removed_member),
            Result::TimedOut { .. } => ("timedOut", None, false),
        };
        Versioned(RemovalDocument {
            metadata: NodeName { name: self.node },
            result,
            stays_cordoned: self.stays_cordoned(),
            reasons: self.reasons(),
            evicted_pods: evicted,
            removed_etcd_member: removed_member,
            teardown_script: self.script.filter(|_| self.prints_script()),
        })
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(&NODE, self.node)]
    }
}
