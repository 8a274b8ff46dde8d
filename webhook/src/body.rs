//! Reads an HTTP body up to a size limit.

use std::{fmt, pin::pin, str::Utf8Error};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{self, Instant},
};

/// A complete body. While it exists, its bytes count against the limit for all bodies together.
pub(crate) struct BufferedBody<'s> {
    bytes: Bytes,
    _permit: Option<SemaphorePermit<'s>>,
}

/// Why a body could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    TooLarge,
    /// All bodies in memory together would exceed their limit.
    NoMemory,
    TooSlow,
    /// The sender disconnected, or sent invalid HTTP.
    Broken(String),
}

impl BufferedBody<'_> {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn as_text(&self) -> Result<&str, Utf8Error> {
        str::from_utf8(&self.bytes)
    }
}

/// Reads a body of at most `limit` bytes until `deadline`. Takes permits from `free_bytes` as bytes arrive, not as the
/// client announces them: announcing costs a client nothing.
pub(crate) async fn read<B>(
    body: B,
    limit: usize,
    deadline: Instant,
    free_bytes: &Semaphore,
) -> Result<BufferedBody<'_>, BodyError>
where
    B: Body<Data = Bytes, Error: fmt::Display>,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(BodyError::TooLarge);
    }
    time::timeout_at(deadline, collect(body, announced, limit, free_bytes))
        .await
        .unwrap_or(Err(BodyError::TooSlow))
}

async fn collect<B>(
    body: B,
    announced: usize,
    limit: usize,
    free_bytes: &Semaphore,
) -> Result<BufferedBody<'_>, BodyError>
where
    B: Body<Data = Bytes, Error: fmt::Display>,
{
    let mut body = pin!(body);
    let mut first: Option<Bytes> = None;
    let mut rest = Vec::new();
    let mut permit: Option<SemaphorePermit<'_>> = None;
    let mut length = 0_usize;
    while let Some(frame) = body.frame().await {
        // Ignores trailers.
        let Ok(data) = frame
            .map_err(|error| BodyError::Broken(error.to_string()))?
            .into_data()
        else {
            continue;
        };
        length = length.saturating_add(data.len());
        if length > limit {
            return Err(BodyError::TooLarge);
        }
        let count = u32::try_from(data.len()).map_err(|_| BodyError::TooLarge)?;
        let more = free_bytes
            .try_acquire_many(count)
            .map_err(|_| BodyError::NoMemory)?;
        match &mut permit {
            Some(permit) => permit.merge(more),
            None => permit = Some(more),
        }
        // Most bodies arrive in one frame, which is used without a copy.
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
    Ok(BufferedBody {
        bytes: first.unwrap_or_else(|| rest.into()),
        _permit: permit,
    })
}
