//! Reads an HTTP body up to a size limit.

use std::{fmt, pin::pin, str::Utf8Error, time::Duration};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use tokio::time::{self, Instant};

use crate::buffers::{Buffer, NoMemory};

/// A complete HTTP body. While it exists, its bytes count against the memory limit for all bodies together.
pub(crate) struct BufferedBody {
    /// The only frame of the body; `None` if the buffer has all bytes.
    frame: Option<Bytes>,
    buffer: Buffer,
}

/// Why a body could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    TooLarge,
    /// This body would exceed the memory limit for all bodies together.
    NoMemory,
    /// The body did not arrive before the deadline.
    TooSlow,
    /// The body arrives at less than the minimum rate.
    BelowRate,
    /// The sender disconnected, or sent invalid HTTP.
    Broken(String),
}

impl From<NoMemory> for BodyError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// The minimum rate at which a body must arrive, and the deadline for the whole body.
pub(crate) struct Pace {
    deadline: Instant,
    /// The time from which a minimum rate applies, and that rate in bytes per second; `None` if any rate is allowed.
    rate: Option<(Instant, usize)>,
}

impl Pace {
    /// Requires the whole body before `deadline`, at any rate.
    pub(crate) const fn with_deadline(deadline: Instant) -> Self {
        Self { deadline, rate: None }
    }

    /// Requires the whole body within `limit` and, once `grace` has passed, at least `rate` bytes per second.
    pub(crate) fn with_minimum_rate(rate: usize, grace: Duration, limit: Duration) -> Self {
        let now = Instant::now();
        Self {
            deadline: now + limit,
            rate: Some((now + grace, rate)),
        }
    }

    /// The time at which the next bytes must have arrived, and the error if they have not.
    fn next_deadline(&self, received: usize) -> (Instant, BodyError) {
        let due = self.rate.map(|(from, rate)| {
            let seconds = u32::try_from(received).map_or(f64::MAX, f64::from)
                / u32::try_from(rate.max(1)).map_or(f64::MAX, f64::from);
            from + Duration::try_from_secs_f64(seconds).unwrap_or_default()
        });
        match due.filter(|due| *due < self.deadline) {
            Some(due) => (due, BodyError::BelowRate),
            None => (self.deadline, BodyError::TooSlow),
        }
    }
}

impl BufferedBody {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.frame.as_deref().unwrap_or_else(|| self.buffer.joined())
    }

    pub(crate) fn as_text(&self) -> Result<&str, Utf8Error> {
        str::from_utf8(self.as_bytes())
    }
}

/// Reads a body of at most `limit` bytes. Counts the bytes in `buffer` when they arrive. The announced length is not
/// counted, because a client can announce any length at no cost.
pub(crate) async fn read<B>(
    body: B,
    limit: usize,
    pace: Pace,
    mut buffer: Buffer,
) -> Result<BufferedBody, BodyError>
where
    B: Body<Data = Bytes, Error: fmt::Display>,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(BodyError::TooLarge);
    }
    let mut body = pin!(body);
    let mut only: Option<Bytes> = None;
    let mut length = 0_usize;
    loop {
        let (due, late) = pace.next_deadline(length);
        let frame = tokio::select! {
            // Most frames have arrived already, and then neither the deadline nor an eviction needs a waiter.
            biased;
            frame = time::timeout_at(due, body.frame()) => frame.map_err(|_| late)?,
            () = buffer.wait_until_evicted() => return Err(BodyError::NoMemory),
        };
        let Some(frame) = frame else { break };
        // Ignore trailers.
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
        buffer.grow(data.len())?;
        // Do not copy the frame: most bodies arrive in only one.
        if length == data.len() {
            only = Some(data);
        } else {
            let expected = announced.max(length);
            if let Some(first) = only.take() {
                buffer.append(&first, expected);
            }
            buffer.append(&data, expected);
        }
    }
    buffer.complete();
    Ok(BufferedBody { frame: only, buffer })
}
