//! What a command decided, and its exit code.

use std::process::ExitCode;

use kcp_control_plane::inspection::Health;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What was asked is so, or has been done.
    Met,
    /// It is not so, or was refused: unhealthy, denied, blocked, exhausted, timed out. The output says why.
    Negative,
    /// Nothing was decided: usage, input and output, the API, permissions.
    Undecided,
    Interrupted,
    /// A command that we ran ended with this code.
    Command(u8),
}

impl Verdict {
    /// The exit code: 130 is a shell's 128 + SIGINT.
    pub const fn code(self) -> u8 {
        match self {
            Self::Met => 0,
            Self::Negative => 1,
            Self::Undecided => 2,
            Self::Interrupted => 130,
            Self::Command(code) => code,
        }
    }

    /// The verdict on several things at once: what could not be decided outweighs what is negative.
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
