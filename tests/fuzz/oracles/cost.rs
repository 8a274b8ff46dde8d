//! The CPU time of a review's bytes. A client must not be able to keep the server busy with few bytes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::{ready, review::SERVER};

/// Shorter inputs count as this long: of a few bytes, the time of any answer would be a lot.
const LEAST_BYTES: usize = 1024;

/// The number of measurements, of which the least counts: the others had interruptions.
const MEASUREMENTS: usize = 3;

/// The CPU time of both webhooks for one body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) cpu: Duration,
    pub(crate) bytes: usize,
}

impl Cost {
    pub(crate) fn measure(body: &[u8]) -> Self {
        let measured = (0..MEASUREMENTS).map(|_| {
            let started = cpu_time();
            // Whether the answers are right is for the other targets.
            _ = (ready(SERVER.mutate(body)), ready(SERVER.validate(body)));
            cpu_time().saturating_sub(started)
        });
        Self {
            cpu: measured.min().unwrap_or_default(),
            bytes: body.len(),
        }
    }

    pub(crate) fn per_byte(&self) -> Duration {
        let bytes = u32::try_from(self.bytes.max(LEAST_BYTES)).unwrap_or(u32::MAX);
        self.cpu / bytes
    }
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
