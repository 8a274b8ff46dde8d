//! Reads an HTTP body up to a size limit.

use std::{fmt, pin::pin, str::Utf8Error};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use tokio::time::{self, Instant};

use super::shares::{Exhausted, Share};

/// A complete HTTP body, with its share of the memory.
pub(crate) struct BufferedBody {
    bytes: Bytes,
    share: Share,
}

/// Why a body could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    TooLarge,
    /// Other bodies use the memory.
    NoMemory,
    /// The body did not arrive before the deadline.
    TooSlow,
    /// The sender disconnected, or sent invalid HTTP.
    Broken(String),
}

impl From<Exhausted> for BodyError {
    fn from(_: Exhausted) -> Self {
        Self::NoMemory
    }
}

impl BufferedBody {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, and their share of the memory.
    pub(crate) fn into_parts(self) -> (Bytes, Share) {
        (self.bytes, self.share)
    }

    pub(crate) fn as_text(&self) -> Result<&str, Utf8Error> {
        str::from_utf8(self.as_bytes())
    }
}

/// The length that the sender of a body announces; 0 if it announces none.
pub(crate) fn announced_length(body: &impl Body) -> usize {
    usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX)
}

/// Reads a body of at most `limit` bytes. If the body is larger than `share`, increases the share.
pub(crate) async fn read<B>(
    body: B,
    limit: usize,
    deadline: Instant,
    mut share: Share,
) -> Result<BufferedBody, BodyError>
where
    B: Body<Data = Bytes, Error: fmt::Display>,
{
    let announced = announced_length(&body);
    if announced > limit {
        return Err(BodyError::TooLarge);
    }
    let mut body = pin!(body);
    let (mut frame, mut joined) = (Bytes::new(), Vec::new());
    let mut length = 0_usize;
    while let Some(next) = time::timeout_at(deadline, body.frame())
        .await
        .map_err(|_| BodyError::TooSlow)?
    {
        // Ignore trailers.
        let Ok(data) = next
            .map_err(|error| BodyError::Broken(error.to_string()))?
            .into_data()
        else {
            continue;
        };
        length = length.saturating_add(data.len());
        if length > limit {
            return Err(BodyError::TooLarge);
        }
        share.grow_to(length)?;
        // Do not copy the frame: most bodies arrive in only one.
        if length == data.len() {
            frame = data;
        } else {
            joined.reserve(announced.max(length) - joined.len());
            joined.extend_from_slice(&std::mem::take(&mut frame));
            joined.extend_from_slice(&data);
        }
    }
    let bytes = if joined.is_empty() { frame } else { joined.into() };
    Ok(BufferedBody { bytes, share })
}
