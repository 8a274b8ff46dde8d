//! What is decided about a Machine.

use serde_json::Value;

use crate::change::{decision::Refusal, event::Occurrence};

/// What to do with a Machine as it was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing, and why.
    Unchanged(String),
    /// Nothing: it is not allowed.
    Refused(Refusal),
    /// Write.
    Write(Proposal),
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// To the Machine.
    pub write: MachineWrite,
    /// What is said without refusing it.
    pub warnings: Vec<String>,
    /// What comes of it that one has to know, a line each.
    pub consequences: Vec<String>,
    /// What tells of it.
    pub occurrence: Occurrence,
}

/// A write to a Machine.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineWrite {
    /// It is deleted.
    Delete,
    /// A merge patch.
    Patch(Value),
}

impl MachineWrite {
    /// The merge patch; none where it is deleted.
    pub const fn patch(&self) -> Option<&Value> {
        match self {
            Self::Delete => None,
            Self::Patch(patch) => Some(patch),
        }
    }
}
