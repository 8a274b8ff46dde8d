//! Arguments of `kubectl kcp rollout`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;

use crate::{arguments::parse_control_plane, change::arguments::WriteArguments};
use kcp_control_plane::duration::parse_duration;
use kcp_control_plane::verbs::rollout::schedule::Begin;

/// Replace all Machines of a control plane, at once or later, or follow that.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "start|cancel|pause|resume|status|history")]
pub struct RolloutArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: RolloutCommand,
}

/// What to do with a rollout.
#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    /// Have every Machine replaced, one after the other, at once or at a time to come
    Start(StartArguments),
    /// Take back a rollout that is planned
    Cancel(CancelArguments),
    /// Have all controllers leave a control plane alone, in the middle of a rollout too
    Pause(PauseArguments),
    /// Have the controllers go on with a control plane
    Resume(PauseArguments),
    /// Say how far a rollout is: exit code 0 when it is done, 1 while it runs or is stuck
    Status(RolloutStatusArguments),
    /// Show the generations of Machines that are there, and which of them are as asked
    History(HistoryArguments),
}

/// Arguments of `rollout start`.
#[derive(Debug, Args)]
pub struct StartArguments {
    /// Control plane whose Machines are replaced, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Begin at this time to come, such as 2026-12-24T02:00:00Z
    #[arg(long, value_name = "RFC3339")]
    pub at: Option<Timestamp>,

    /// Begin so long after now: 30m, 8h
    #[arg(long = "in", value_name = "DURATION", value_parser = parse_duration, conflicts_with = "at")]
    pub after: Option<Duration>,

    /// Ask for it though the preflight blocks the first step; never against the rules or quorum
    #[arg(long)]
    pub force: bool,

    /// How it is written.
    #[command(flatten)]
    pub write: WriteArguments,
}

/// Arguments of `rollout cancel`.
#[derive(Debug, Args)]
pub struct CancelArguments {
    /// Control plane whose rollout is taken back, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Take it back though it runs already: Machines that are replaced stay, and the others stay too
    #[arg(long)]
    pub running: bool,

    /// How it is written.
    #[command(flatten)]
    pub write: WriteArguments,
}

/// Arguments of `rollout pause` and `rollout resume`.
#[derive(Debug, Args)]
pub struct PauseArguments {
    /// Control plane that is left alone, or no longer, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// How it is written.
    #[command(flatten)]
    pub write: WriteArguments,
}

/// Arguments of `rollout status`.
#[derive(Debug, Args)]
pub struct RolloutStatusArguments {
    /// Control plane to look at, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Follow until it is done or stuck, a line per change
    #[arg(short, long)]
    pub watch: bool,

    /// How long to follow; 0 for no limit
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1h", requires = "watch")]
    pub timeout: Duration,

    /// Output format [default: text for people]; with --watch, of how it ended
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<DocumentFormat>,
}

/// Arguments of `rollout history`.
#[derive(Debug, Args)]
pub struct HistoryArguments {
    /// Control plane to look at, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Output format [default: text for people]
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<DocumentFormat>,
}

/// Formats of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DocumentFormat {
    /// A JSON document
    Json,
    /// The same document as YAML
    Yaml,
}

impl StartArguments {
    /// When it is to begin.
    pub fn begin(&self) -> Begin {
        match (self.at, self.after) {
            (Some(at), _) => Begin::At(at),
            (None, Some(after)) => Begin::In(after),
            (None, None) => Begin::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{Command, FromArgMatches as _};

    use super::{Begin, StartArguments};

    fn begin(words: &str) -> Result<Begin, clap::Error> {
        let command = <StartArguments as clap::Args>::augment_args(Command::new("start"));
        let matches =
            command.try_get_matches_from(std::iter::once("start").chain(words.split_whitespace()))?;
        Ok(StartArguments::from_arg_matches(&matches)?.begin())
    }

    #[test]
    fn when_it_is_to_begin() {
        let at = Begin::At("2026-12-24T02:00:00Z".parse().expect("a time"));
        for (words, expected) in [
            ("edge", Begin::Now),
            ("edge --in 8h", Begin::In(Duration::from_secs(8 * 3600))),
            ("edge --at 2026-12-24T02:00:00Z", at),
            ("edge --at 2026-12-24T03:00:00+01:00", at),
        ] {
            assert_eq!(begin(words).expect("parses"), expected, "{words}");
        }
        for words in [
            "edge --at tomorrow",
            "edge --at 2026-12-24",
            "edge --in -1h",
            "edge --in 1h --at 2026-12-24T02:00:00Z",
        ] {
            assert!(begin(words).is_err(), "{words}");
        }
    }
}
