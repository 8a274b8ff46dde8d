//! What goes wrong with one write of a command.

/// What befalls a write on its way to the API server or the answer on its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The command is killed, and its write never reaches the server.
    KilledBeforeWrite,
    /// The server has answered, and the command is killed before it hears of that.
    KilledBeforeAnswer,
    /// The server has answered, and the connection is closed in the answer's place.
    AnswerCut,
    /// The server has answered, and the command is told that it did not in time.
    GatewayTimeout,
}

/// Every fault.
pub const FAULTS: [Fault; 4] = [
    Fault::KilledBeforeWrite,
    Fault::KilledBeforeAnswer,
    Fault::AnswerCut,
    Fault::GatewayTimeout,
];

/// A fault, and the write that it befalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Which of the command's writes, from 1.
    pub write: usize,
    /// What becomes of it.
    pub fault: Fault,
}

impl Fault {
    /// Whether the command does not live to tell.
    pub fn kills(self) -> bool {
        matches!(self, Self::KilledBeforeWrite | Self::KilledBeforeAnswer)
    }
}
