//! Writes to a control plane.

use kube::core::Status;

use super::{ControlPlane, Reader};
use crate::cluster::{Error, Write, Written};

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

/// Sends a write of what was judged at `resource_version`, once. When the answer is lost the object is read back:
/// `landed` says whether the write is in it. A write under a version that has passed cannot land any more.
///
/// # Errors
/// When nothing is known about the outcome, or the write could not be sent.
pub async fn send(
    reader: &Reader<'_>,
    write: &Write<'_>,
    resource_version: &str,
    landed: impl Fn(&ControlPlane) -> bool,
) -> Result<Outcome, Error> {
    let lost = match reader.connection.patch(write).await {
        Ok(Written::Stored) => return Ok(Outcome::Written),
        Ok(Written::Changed) => return Ok(Outcome::Changed),
        Ok(Written::Unknown(error)) => error,
        Err(Error::Rejected { status, .. }) => return Ok(Outcome::Rejected(status)),
        Err(error) => return Err(error),
    };
    match reader.control_plane(write.namespace, write.name).await {
        Ok((_, now)) if landed(&now) => Ok(Outcome::Written),
        Ok((_, now)) if now.resource_version != resource_version => Ok(Outcome::Changed),
        Err(Error::NotFound { .. }) => Ok(Outcome::Changed),
        _ => Err(Error::OutcomeUnknown {
            source: Box::new(lost),
        }),
    }
}
