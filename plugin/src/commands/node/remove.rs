//! `kubectl kcp node remove`: drains a Node, removes its etcd member if it has one, deletes the Node, and prints a script for
//! the host.
//!
//! - [`arguments`]: the arguments
//! - [`drain`]: cordons the Node, and evicts its pods until a deadline
//! - [`member`]: removes the etcd member of a control plane Node
//! - [`report`]: what the command did, or why it stopped

mod arguments;
mod drain;
mod member;
mod report;

use std::{io::Write as _, time::Instant};

use anyhow::Context as _;
pub use arguments::RemoveArguments;
use drain::{Drained, cordon, drain};
use kcp_api::kind::NODE;
use kcp_client::{
    Connection, Error,
    reads::{
        etcd::Access,
        node::{list_nodes, read_node},
        node_removal::read_drain,
    },
    retry_after_lost_server,
    update::{Change, UpdateTarget, Updated, WriteMode, WriteResult, update},
};
use kcp_control_plane::{
    change::decision::{ObjectWrite, Refusal, RefusedBy},
    verbs::node::remove::{RemovableNode, refuse_losses, refuse_member_of_machines},
};
use member::Members;
use report::{RemovalReport, Result as Removal};

use crate::{
    arguments::format_duration, commands::node::shell::fill, file::NewFile, output::print, session::Session,
    terminal::table::Layout, verdict::Verdict,
};

/// The script for the host.
const TEARDOWN: &str = include_str!("remove/teardown.sh");

pub(super) async fn run(arguments: &RemoveArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + arguments.timeout;
    let file = arguments
        .output_file
        .as_deref()
        .map(NewFile::create)
        .transpose()?;
    let connection = session.connect().await?;
    let command = RemoveCommand {
        arguments,
        session,
        connection: &connection,
        end,
    };
    let removal = Box::pin(command.remove()).await?;
    let script = match &removal {
        Removal::Removed { .. } => Some(fill(TEARDOWN, &[("node_name", arguments.node.clone())])?),
        _ => None,
    };
    if let (Some(mut file), Some(script)) = (file, &script) {
        file.write_all(script.as_bytes())
            .context("cannot write the script")?;
        file.finish()?;
    }
    let report = RemovalReport {
        node: &arguments.node,
        removal: &removal,
        script: script.as_deref(),
        file: arguments.output_file.as_deref(),
    };
    let text = anstream::adapter::strip_str(&report.summary(Layout::default())).to_string();
    // Text on stdout is the script, so that it can be piped to the host.
    if report.prints_script() || !arguments.output.is_text() {
        text.lines().for_each(|line| session.terminal.note(line));
    }
    print(&report, &arguments.output, &session.terminal)?;
    for hint in report.hints() {
        session.terminal.hint(&hint);
    }
    Ok(report.verdict())
}

struct RemoveCommand<'r> {
    arguments: &'r RemoveArguments,
    session: &'r Session,
    connection: &'r Connection,
    /// The end of the drain.
    end: Instant,
}

impl RemoveCommand<'_> {
    #[expect(clippy::too_many_lines, reason = "one step after the other")]
    async fn remove(&self) -> anyhow::Result<Removal> {
        let Self {
            arguments,
            session,
            connection,
            end,
        } = *self;
        let terminal = &session.terminal;
        let node = match read_node(connection, &arguments.node, RemovableNode::new).await {
            Err(error @ Error::NotFound { .. }) => {
                let Some(access) = arguments.etcd.access()? else {
                    return Err(error.into());
                };
                return Box::pin(self.remove_member_without_node(access)).await;
            }
            node => node?,
        };
        if let Some(refusal) = node.refuse_machine() {
            return Ok(Removal::Refused(refusal));
        }
        let members = Box::pin(Members::read(connection, arguments, &node)).await?;
        let has_member = match &members {
            Some(members) => match members.decide(&node.name).await {
                Ok(removal) => removal.is_some(),
                Err(refusal) => return Ok(Removal::Refused(refusal)),
            },
            None => false,
        };
        if node.is_control_plane
            && let Some(refusal) = refuse_last(connection, &node).await?
        {
            return Ok(Removal::Refused(refusal));
        }
        let forecast = read_drain(connection, &node.name).await?;
        if let Some(refusal) = refuse_losses(&forecast, arguments.force) {
            return Ok(Removal::Refused(refusal));
        }
        for line in forecast.delays.iter().chain(&forecast.losses) {
            terminal.note(line);
        }
        if arguments.dry_run.is_some() {
            return Ok(Removal::DryRun {
                pods: forecast.remaining,
                has_member,
            });
        }
        let goal = format!("evict {} pods, and remove Node {}", forecast.remaining, node.name);
        if !self.confirm(&goal).await? {
            return Ok(Removal::Refused(Refusal::unconfirmed()));
        }
        if let Err(refusal) = cordon(connection, &arguments.field_manager, &node.name).await? {
            return Ok(Removal::Refused(refusal));
        }
        let undo = format!(
            "Node {} stays cordoned; undo with: kubectl uncordon {}",
            node.name, node.name
        );
        terminal.set_interrupt_note(undo.clone());
        let rest = async {
            let evicted = match drain(connection, &node.name, arguments.force, terminal, end).await? {
                Drained::Empty { evicted } => evicted,
                Drained::Lossy(refusal) => {
                    return Ok(Removal::Stopped {
                        refusal,
                        removed_member: false,
                    });
                }
                Drained::TimedOut { delays } => {
                    return Ok(Removal::TimedOut {
                        after: format_duration(arguments.timeout),
                        delays,
                    });
                }
            };
            let removed_member = match &members {
                Some(members) => match Box::pin(members.remove(&node.name)).await? {
                    Ok(is_removed) => is_removed,
                    Err(refusal) => {
                        return Ok(Removal::Stopped {
                            refusal,
                            removed_member: false,
                        });
                    }
                },
                None => false,
            };
            // Without its etcd member, the API server on the host ends. It may be the one to which this command is connected.
            let deleted = if removed_member {
                retry_after_lost_server(|| self.delete(&node.name)).await?
            } else {
                self.delete(&node.name).await?
            };
            match deleted {
                Ok(()) => Ok(Removal::Removed {
                    evicted,
                    removed_member,
                }),
                Err(refusal) => Ok(Removal::Stopped {
                    refusal,
                    removed_member,
                }),
            }
        };
        rest.await.inspect_err(|_: &anyhow::Error| terminal.note(&undo))
    }

    /// Removes the etcd member of a host whose Node no longer exists.
    async fn remove_member_without_node(&self, access: Access) -> anyhow::Result<Removal> {
        let Self {
            arguments,
            connection,
            ..
        } = *self;
        let name = &arguments.node;
        let nodes = list_nodes(connection, Some(kcp_api::names::label::NODE_CONTROL_PLANE)).await?;
        if let Some(refusal) = refuse_member_of_machines(&nodes) {
            return Ok(Removal::Refused(refusal));
        }
        let members = Members::on_nodes(connection, access, nodes);
        let refused = match members.decide(name).await {
            Ok(Some(_)) => None,
            Ok(None) => {
                let why = format!("the cluster has no Node {name}, and etcd has no member {name}");
                Some(Refusal::new(RefusedBy::Command, vec![why]))
            }
            Err(refusal) => Some(refusal),
        };
        if let Some(refusal) = refused {
            return Ok(Removal::Refused(refusal));
        }
        if arguments.dry_run.is_some() {
            return Ok(Removal::DryRun {
                pods: 0,
                has_member: true,
            });
        }
        if !self
            .confirm(&format!("remove etcd member {name}, which has no Node,"))
            .await?
        {
            return Ok(Removal::Refused(Refusal::unconfirmed()));
        }
        Ok(match Box::pin(members.remove(name)).await? {
            Ok(_) => Removal::RemovedMember,
            Err(refusal) => Removal::Refused(refusal),
        })
    }

    /// Asks the user to confirm.
    async fn confirm(&self, goal: &str) -> anyhow::Result<bool> {
        let place = format!("from cluster {}", self.connection.server);
        let confirm = self.arguments.confirm;
        confirm.confirm(goal, &place, false, &self.session.terminal).await
    }

    /// Deletes the Node, if it still is cordoned and belongs to no Machine.
    async fn delete(&self, name: &str) -> Result<Result<(), Refusal>, Error> {
        let target = UpdateTarget {
            connection: self.connection,
            resource: &NODE.api_resource("v1"),
            namespace: None,
            name,
            field_manager: &self.arguments.field_manager,
            verb: "delete",
            mode: WriteMode::Store,
        };
        let read = async || read_node(self.connection, name, RemovableNode::new).await;
        let decide = |node: &RemovableNode| -> Result<Change<Option<Refusal>>, Error> {
            let refusal = node.refuse_machine().or_else(|| {
                (!node.is_cordoned).then(|| {
                    let why = "another client has uncordoned the Node, so new pods may run on it: run the command again";
                    Refusal::new(RefusedBy::Command, vec![why.to_owned()])
                })
            });
            Ok(Change {
                write: refusal.is_none().then_some(ObjectWrite::Delete),
                decision: refusal,
            })
        };
        let updated = match update(&target, read, decide).await {
            // The kubelet of a removed host may have deleted its own Node.
            Err(Error::NotFound { .. }) => return Ok(Ok(())),
            updated => updated?,
        };
        let Updated { decision, result, .. } = updated;
        Ok(match (result, decision) {
            (_, Some(refusal)) => Err(refusal),
            (WriteResult::Rejected(why) | WriteResult::Conflict(why), None) => {
                Err(Refusal::new(RefusedBy::Command, why))
            }
            (WriteResult::Stored | WriteResult::NotWritten, None) => Ok(()),
        })
    }
}

/// Refuses the removal of the only Node of the control plane.
async fn refuse_last(connection: &Connection, node: &RemovableNode) -> Result<Option<Refusal>, Error> {
    let nodes = list_nodes(connection, Some(kcp_api::names::label::NODE_CONTROL_PLANE)).await?;
    let has_other = nodes.iter().any(|other| other.name != node.name);
    Ok((!has_other).then(|| {
        let why = format!(
            "{} is the only Node of the control plane: without it, the cluster has no API server",
            node.name
        );
        Refusal::new(RefusedBy::Command, vec![why])
    }))
}

#[cfg(test)]
mod tests;
