//! Metrics of requests: their number and their latency.

use hyper::StatusCode;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use tokio::time::Instant;

use crate::hook::Hook;

/// Upper bounds of the latency histogram's buckets, in seconds. A review takes tens of microseconds, and up to a second
/// with live reads.
const LATENCY_BOUNDS: [f64; 12] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 2.5,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WebhookLabels {
    pub(super) webhook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    webhook: &'static str,
    code: u16,
}

/// Metrics of the requests to the webhooks.
pub(super) struct Requests {
    latency: Family<WebhookLabels, Histogram, fn() -> Histogram>,
    total: Family<CodeLabels, Counter>,
    in_flight: Family<WebhookLabels, Gauge>,
    mutate: WebhookSeries,
    validate: WebhookSeries,
}

/// The series of one webhook. They exist before its first request, and a review uses them without a look-up by label.
struct WebhookSeries {
    latency: Histogram,
    in_flight: Gauge,
}

impl Default for Requests {
    fn default() -> Self {
        let latency: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(LATENCY_BOUNDS));
        let in_flight = Family::default();
        let series = |hook: Hook| {
            let labels = WebhookLabels { webhook: hook.path() };
            WebhookSeries {
                latency: latency.get_or_create_owned(&labels),
                in_flight: in_flight.get_or_create_owned(&labels),
            }
        };
        Self {
            mutate: series(Hook::Mutate),
            validate: series(Hook::Validate),
            latency,
            total: Family::default(),
            in_flight,
        }
    }
}

impl Requests {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "controller_runtime_webhook_latency",
            "Time to respond to a review",
            Unit::Seconds,
            self.latency.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests",
            "Requests by HTTP status code",
            self.total.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests_in_flight",
            "Requests in progress",
            self.in_flight.clone(),
        );
    }

    pub(super) fn begin(&self, hook: Hook) -> InFlight<'_> {
        let series = match hook {
            Hook::Mutate => &self.mutate,
            Hook::Validate => &self.validate,
        };
        series.in_flight.inc();
        InFlight {
            webhook: hook.path(),
            series,
            total: &self.total,
            started: Instant::now(),
            code: None,
        }
    }
}

/// A request in progress. If it is dropped without [`InFlight::end`], the client has disconnected, and the request is
/// not counted under any status code.
pub(crate) struct InFlight<'r> {
    webhook: &'static str,
    series: &'r WebhookSeries,
    total: &'r Family<CodeLabels, Counter>,
    started: Instant,
    code: Option<StatusCode>,
}

impl InFlight<'_> {
    /// Records the status code of the response.
    pub(crate) fn end(mut self, code: StatusCode) {
        self.code = Some(code);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.series.in_flight.dec();
        if let Some(code) = self.code {
            let labels = CodeLabels {
                webhook: self.webhook,
                code: code.as_u16(),
            };
            self.total.get_or_create(&labels).inc();
            self.series.latency.observe(self.started.elapsed().as_secs_f64());
        }
    }
}
