//! Faults of one write of a command.

/// A fault of a write or of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The command is killed before its write reaches the server.
    KilledBeforeWrite,
    /// The command is killed before the server's answer reaches it.
    KilledBeforeAnswer,
    /// The connection is closed instead of forwarding the server's answer.
    AnswerCut,
    /// The server's answer is replaced by a timeout.
    GatewayTimeout,
}

pub const FAULTS: [Fault; 4] = [
    Fault::KilledBeforeWrite,
    Fault::KilledBeforeAnswer,
    Fault::AnswerCut,
    Fault::GatewayTimeout,
];

/// A fault and the write that it affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// The number of the command's write, from 1.
    pub write: usize,
    pub fault: Fault,
}

impl Fault {
    /// Whether the command is killed.
    pub fn kills(self) -> bool {
        matches!(self, Self::KilledBeforeWrite | Self::KilledBeforeAnswer)
    }
}
