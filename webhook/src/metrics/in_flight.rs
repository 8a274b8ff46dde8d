//! Counts requests and how long they took.

use hyper::StatusCode;
use tokio::time::Instant;

use super::{Metrics, OfHook, OfHookAndCode};
use crate::hook::Hook;

impl Metrics {
    /// Counts a request from here to the end of the returned guard.
    pub(crate) fn begin(&self, hook: Hook) -> InFlight<'_> {
        let webhook = hook.path();
        self.in_flight.get_or_create(&OfHook { webhook }).inc();
        InFlight {
            metrics: self,
            webhook,
            started: Instant::now(),
            code: None,
        }
    }
}

/// A request being answered. Dropped without [`InFlight::end`], its client has gone away: the request is counted out
/// and in no code.
pub(crate) struct InFlight<'m> {
    metrics: &'m Metrics,
    webhook: &'static str,
    started: Instant,
    code: Option<StatusCode>,
}

impl InFlight<'_> {
    /// The request has been answered.
    pub(crate) fn end(mut self, code: StatusCode) {
        self.code = Some(code);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let webhook = self.webhook;
        self.metrics.in_flight.get_or_create(&OfHook { webhook }).dec();
        if let Some(code) = self.code {
            self.metrics
                .requests
                .get_or_create(&OfHookAndCode {
                    webhook,
                    code: code.as_u16(),
                })
                .inc();
            self.metrics
                .latency
                .get_or_create(&OfHook { webhook })
                .observe(self.started.elapsed().as_secs_f64());
        }
    }
}
