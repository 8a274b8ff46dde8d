//! Arguments of `kubectl kcp rollout`.

use std::time::Duration;

use clap::{ArgAction, Args, Subcommand};
use jiff::Timestamp;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_timestamp},
    change::{
        arguments::{ReviewArguments, WaitArguments, WriteArguments},
        confirmation::ConfirmArguments,
    },
    commands::etcd::snapshot_first::SnapshotFirstArguments,
    output::OutputArguments,
};
use kcp_control_plane::{duration::parse_duration, verbs::rollout::start::StartTime};

/// Replace all Machines of a control plane, now or later, watch the rollout, and undo a change.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "start|cancel|undo|pause|resume|status|history")]
pub struct RolloutArguments {
    #[command(subcommand)]
    pub command: RolloutCommand,
}

#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    /// Replace every Machine, one after the other, now or later
    #[command(visible_alias = "restart")]
    Start(StartArguments),
    /// Cancel a planned rollout
    Cancel(CancelArguments),
    /// Undo a change that keeps new Machines from starting: write back the spec that earlier Machines have
    Undo(UndoArguments),
    /// Pause a control plane, even during a rollout: controllers stop reconciling it
    Pause(PauseArguments),
    /// Resume a paused control plane
    Resume(PauseArguments),
    /// Wait until a rollout is complete: exit code 0 if it is complete, 1 if it is stuck, stopped or timed out
    Status(RolloutStatusArguments),
    /// Show which existing Machines are up to date, and what Events say about deleted Machines
    History(HistoryArguments),
}

/// Arguments of `rollout start`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp rollout start edge
  kubectl kcp rollout restart edge
  kubectl kcp rollout start edge --snapshot edge.db
  kubectl kcp rollout start edge --in 8h --yes")]
pub struct StartArguments {
    /// Control plane whose Machines to replace, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// Start at this time, such as 2026-12-24T02:00:00Z
    #[arg(long, value_name = "RFC3339", value_parser = parse_timestamp)]
    pub at: Option<Timestamp>,

    /// Start after this duration, such as 30m or 8h
    #[arg(long = "in", value_name = "DURATION", value_parser = parse_duration, conflicts_with = "at")]
    pub after: Option<Duration>,

    /// Start even if the preflight blocks the first step; admission rules still apply, and etcd must still keep its
    /// quorum
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    #[command(flatten)]
    pub snapshot: SnapshotFirstArguments,

    #[command(flatten)]
    pub write: WriteArguments,

    #[command(flatten)]
    pub review: ReviewArguments,
}

/// Arguments of `rollout cancel`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp rollout cancel edge
  kubectl kcp rollout cancel edge --running --dry-run")]
pub struct CancelArguments {
    /// Control plane whose rollout to cancel, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// Cancel the rollout even if it is in progress: the new Machines stay, and no other Machine is replaced
    #[arg(long)]
    pub running: bool,

    #[command(flatten)]
    pub write: WriteArguments,

    #[command(flatten)]
    pub review: ReviewArguments,
}

/// Arguments of `rollout undo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp rollout undo edge --dry-run=server
  kubectl kcp rollout undo edge --yes --wait")]
pub struct UndoArguments {
    /// Control plane whose change to undo, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// Write the earlier spec even if the preflight blocks the first step; admission rules still apply, and etcd must
    /// still keep its quorum
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    #[command(flatten)]
    pub wait: WaitArguments,

    #[command(flatten)]
    pub write: WriteArguments,

    #[command(flatten)]
    pub review: ReviewArguments,
}

/// Arguments of `rollout pause` and `rollout resume`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp rollout pause edge
  kubectl kcp rollout resume edge")]
pub struct PauseArguments {
    /// Control plane to pause or resume, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    #[command(flatten)]
    pub write: WriteArguments,

    #[command(flatten)]
    pub review: ReviewArguments,
}

/// Arguments of `rollout status`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp rollout status edge
  kubectl kcp rollout status edge --timeout 20m
  kubectl kcp rollout status edge --watch=false -o json")]
pub struct RolloutStatusArguments {
    /// Control plane to show, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// Wait until the rollout is complete or stuck, and print a line for each change; false shows the progress once
    // Accepts `--flag` and `--flag=false`, like Go's flag packages.
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub watch: bool,

    /// How long to wait; 0 for no limit
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1h")]
    pub timeout: Duration,

    /// The output format. It applies to the final result.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Arguments of `rollout history`.
#[derive(Debug, Args)]
#[command(
    after_help = "Cluster API keeps no record of deleted Machines. Only Events name them, and Kubernetes deletes Events after
an hour, unless kube-apiserver has another --event-ttl.

Examples:
  kubectl kcp rollout history edge
  kubectl kcp rollout history edge -o jsonpath={.deletedMachines[*].name}"
)]
pub struct HistoryArguments {
    /// Control plane to show, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

impl StartArguments {
    pub fn start_time(&self) -> StartTime {
        match (self.at, self.after) {
            (Some(time), _) => StartTime::At(time),
            (None, Some(after)) => StartTime::In(after),
            (None, None) => StartTime::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{Command, FromArgMatches as _};

    use super::{RolloutStatusArguments, StartArguments, StartTime};

    fn start(words: &str) -> Result<StartTime, clap::Error> {
        let command = <StartArguments as clap::Args>::augment_args(Command::new("start"));
        let matches =
            command.try_get_matches_from(std::iter::once("start").chain(words.split_whitespace()))?;
        Ok(StartArguments::from_arg_matches(&matches)?.start_time())
    }

    #[test]
    fn parses_when_a_rollout_starts() {
        let planned = StartTime::At("2026-12-24T02:00:00Z".parse().expect("a time"));
        for (words, expected) in [
            ("edge", StartTime::Now),
            ("edge --in 8h", StartTime::In(Duration::from_secs(8 * 3600))),
            ("edge --at 2026-12-24T02:00:00Z", planned),
            ("edge --at 2026-12-24T03:00:00+01:00", planned),
        ] {
            assert_eq!(start(words).expect("parses"), expected, "{words}");
        }
        for words in [
            "edge --at tomorrow",
            "edge --at 2026-12-24",
            "edge --in -1h",
            "edge --in 8",
            "edge --in 1h --at 2026-12-24T02:00:00Z",
        ] {
            assert!(start(words).is_err(), "{words}");
        }
    }

    #[test]
    fn status_waits_unless_told_otherwise() {
        let watches = |words: &str| {
            let command = <RolloutStatusArguments as clap::Args>::augment_args(Command::new("status"));
            let words = std::iter::once("status").chain(words.split_whitespace());
            let matches = command.try_get_matches_from(words).ok()?;
            Some(RolloutStatusArguments::from_arg_matches(&matches).ok()?.watch)
        };
        for (words, expected) in [
            ("edge", Some(true)),
            ("edge -w", Some(true)),
            ("-w edge", Some(true)),
            ("edge --watch", Some(true)),
            ("edge --watch=true --timeout 5m", Some(true)),
            ("edge --watch=false", Some(false)),
            ("edge -w=false -o json", Some(false)),
            ("edge --timeout 5m", Some(true)),
            ("edge --watch=no", None),
            ("edge --watch false", None),
        ] {
            assert_eq!(watches(words), expected, "{words}");
        }
    }
}
