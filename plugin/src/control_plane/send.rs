//! Writes to a control plane.

use kube::core::Status;

use super::{ControlPlane, Reader};
use crate::cluster::{Error, Write};

/// How a write ended.
#[derive(Debug)]
pub enum Outcome {
    /// It was made.
    Written,
    /// The object has changed since it was read: nothing was written.
    Changed,
    /// The server or a webhook refused it.
    Rejected(Box<Status>),
}

/// Sends a write, once. When the answer is lost the object is read back: `landed` says whether the write is in it.
///
/// # Errors
/// When nothing is known about the outcome, or the write could not be sent.
pub async fn send(
    reader: &Reader<'_>,
    write: &Write<'_>,
    landed: impl Fn(&ControlPlane) -> bool,
) -> Result<Outcome, Error> {
    match reader.connection.patch(write).await {
        Ok(_) => Ok(Outcome::Written),
        Err(Error::Conflict { .. }) => Ok(Outcome::Changed),
        Err(Error::Rejected { status, .. }) => Ok(Outcome::Rejected(status)),
        Err(error) if error.may_pass() && !write.dry_run => {
            match reader.control_plane(write.namespace, write.name).await {
                Ok((_, control_plane)) if landed(&control_plane) => Ok(Outcome::Written),
                _ => Err(Error::OutcomeUnknown {
                    source: Box::new(error),
                }),
            }
        }
        Err(error) => Err(error),
    }
}
