//! Reads a body, up to a size.

use std::{fmt, pin::pin, str::Utf8Error};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{self, Instant},
};

/// A whole body. As long as it lives its bytes are taken from those that all bodies may hold.
pub(crate) struct Whole<'s> {
    bytes: Bytes,
    _held: Option<SemaphorePermit<'s>>,
}

/// A body that was not read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is larger than the limit.
    TooLarge,
    /// All bodies together are larger than the limit.
    NoMemory,
    /// It took too long.
    TooSlow,
    /// The other side broke off, or sent what is not HTTP.
    Broken(String),
}

impl Whole<'_> {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn as_text(&self) -> Result<&str, Utf8Error> {
        str::from_utf8(&self.bytes)
    }
}

/// Reads a body of at most `limit` bytes until `deadline`. Bytes are counted when they come, not when they are
/// announced: announcing costs a client nothing.
pub(crate) async fn read<B>(
    body: B,
    limit: usize,
    deadline: Instant,
    buffered: &Semaphore,
) -> Result<Whole<'_>, Unread>
where
    B: Body<Data = Bytes, Error: fmt::Display>,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(Unread::TooLarge);
    }
    time::timeout_at(deadline, collect(body, announced, limit, buffered))
        .await
        .unwrap_or(Err(Unread::TooSlow))
}

async fn collect<B>(
    body: B,
    announced: usize,
    limit: usize,
    buffered: &Semaphore,
) -> Result<Whole<'_>, Unread>
where
    B: Body<Data = Bytes, Error: fmt::Display>,
{
    let mut body = pin!(body);
    let mut first: Option<Bytes> = None;
    let mut rest = Vec::new();
    let mut held: Option<SemaphorePermit<'_>> = None;
    let mut length = 0_usize;
    while let Some(frame) = body.frame().await {
        // Trailers are not data, and nobody reads them.
        let Ok(data) = frame
            .map_err(|error| Unread::Broken(error.to_string()))?
            .into_data()
        else {
            continue;
        };
        length = length.saturating_add(data.len());
        if length > limit {
            return Err(Unread::TooLarge);
        }
        let count = u32::try_from(data.len()).map_err(|_| Unread::TooLarge)?;
        let permit = buffered.try_acquire_many(count).map_err(|_| Unread::NoMemory)?;
        match &mut held {
            Some(held) => held.merge(permit),
            None => held = Some(permit),
        }
        // Most bodies come whole in one frame, and are not copied.
        if rest.is_empty() && first.is_none() {
            first = Some(data);
        } else {
            if let Some(first) = first.take() {
                rest.reserve_exact(announced.max(length));
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(Whole {
        bytes: first.unwrap_or_else(|| rest.into()),
        _held: held,
    })
}
