//! Defines the verdict of a command, and its exit code.

use std::process::ExitCode;

use kcp_control_plane::inspection::Health;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The condition that the command checks is met, or the change was made.
    Met,
    /// The result is negative: unhealthy, denied, blocked, exhausted or timed out. The output shows the
    /// reason.
    Negative,
    /// There is no result, because of a usage, I/O, API or permission error.
    Undecided,
    Interrupted,
    /// `pool exec` ran a command, which ended with this exit code.
    Command(u8),
}

impl Verdict {
    /// The exit code for this verdict. 130 is 128 plus the number of SIGINT, as in shells.
    pub const fn code(self) -> u8 {
        match self {
            Self::Met => 0,
            Self::Negative => 1,
            Self::Undecided => 2,
            Self::Interrupted => 130,
            Self::Command(code) => code,
        }
    }

    /// Combines the verdicts of several objects: undecided outweighs negative, and negative outweighs met.
    pub fn worst(verdicts: impl IntoIterator<Item = Self>) -> Self {
        verdicts
            .into_iter()
            .max_by_key(|verdict| verdict.code())
            .unwrap_or(Self::Met)
    }
}

impl From<Health> for Verdict {
    fn from(health: Health) -> Self {
        match health {
            Health::Healthy => Self::Met,
            Health::Degraded | Health::Blocked => Self::Negative,
            Health::Unknown => Self::Undecided,
        }
    }
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        Self::from(verdict.code())
    }
}

#[cfg(test)]
mod tests {
    use super::Health;
    use super::{
        Verdict, Verdict::Command, Verdict::Interrupted, Verdict::Met, Verdict::Negative, Verdict::Undecided,
    };

    #[test]
    fn exit_codes_are_those_of_the_reference() {
        assert_eq!(
            [Met, Negative, Undecided, Interrupted, Command(7)].map(Verdict::code),
            [0, 1, 2, 130, 7]
        );
    }

    #[test]
    fn the_worst_verdict_counts() {
        for (verdicts, worst) in [
            (vec![], Met),
            (vec![Met, Met], Met),
            (vec![Met, Negative, Met], Negative),
            (vec![Undecided, Negative], Undecided),
        ] {
            assert_eq!(Verdict::worst(verdicts.clone()), worst, "{verdicts:?}");
        }
    }

    #[test]
    fn each_health_has_its_exit_code() {
        let verdicts = [
            Health::Healthy,
            Health::Degraded,
            Health::Blocked,
            Health::Unknown,
        ]
        .map(Verdict::from);
        assert_eq!(verdicts, [Met, Negative, Negative, Undecided]);
    }
}
