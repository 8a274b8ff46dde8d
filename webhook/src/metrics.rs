//! What is counted. Names are controller-runtime's where it counts the same, so that its dashboards fit.

mod in_flight;

use std::fmt;

use kcp_rules::{Action, topics};
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::{
    decision::{Decision, Outcome, UNDECODABLE},
    hook::Hook,
};

/// The content type of what [`Metrics::encode`] writes.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of latencies, in seconds. A review takes tens of microseconds, with a live read up to a second.
const LATENCY_BOUNDS: [f64; 12] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 2.5,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfHook {
    webhook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfHookAndCode {
    webhook: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfDecision {
    webhook: &'static str,
    decision: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRule {
    rule: &'static str,
    decision: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRead {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCache {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfConfiguration {
    result: &'static str,
}

/// What a listener counts.
#[derive(Clone, Default)]
pub(crate) struct Connections {
    pub(crate) open: Gauge,
    pub(crate) refused: Counter,
    pub(crate) failed_handshakes: Counter,
}

/// All counters of one server.
pub(crate) struct Metrics {
    registry: Registry,
    latency: Family<OfHook, Histogram, fn() -> Histogram>,
    requests: Family<OfHookAndCode, Counter>,
    in_flight: Family<OfHook, Gauge>,
    decisions: Family<OfDecision, Counter>,
    rules: Family<OfRule, Counter>,
    live_reads: Family<OfRead, Counter>,
    caches_synced: Family<OfCache, Gauge>,
    cached_objects: Family<OfCache, Gauge>,
    watch_restarts: Family<OfCache, Counter>,
    pub(crate) connections: Connections,
    pub(crate) certificate_reads: Counter,
    pub(crate) certificate_errors: Counter,
    pub(crate) certificate_expiry: Gauge,
    configuration_success: Gauge,
    configuration_reads: Family<OfConfiguration, Counter>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            latency: Family::new_with_constructor(|| Histogram::new(LATENCY_BOUNDS)),
            requests: Family::default(),
            in_flight: Family::default(),
            decisions: Family::default(),
            rules: Family::default(),
            live_reads: Family::default(),
            caches_synced: Family::default(),
            cached_objects: Family::default(),
            watch_restarts: Family::default(),
            connections: Connections::default(),
            certificate_reads: Counter::default(),
            certificate_errors: Counter::default(),
            certificate_expiry: Gauge::default(),
            configuration_success: Gauge::default(),
            configuration_reads: Family::default(),
        };
        metrics.register();
        metrics.touch();
        metrics
    }

    /// The encoder adds `_total` to counters.
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register_with_unit(
            "controller_runtime_webhook_latency",
            "How long a review took to answer",
            Unit::Seconds,
            self.latency.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests",
            "Requests by HTTP status code",
            self.requests.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests_in_flight",
            "Requests being answered",
            self.in_flight.clone(),
        );
        registry.register(
            "certwatcher_read_certificate",
            "Key pairs read and put to use",
            self.certificate_reads.clone(),
        );
        registry.register(
            "certwatcher_read_certificate_errors",
            "Key pairs that could not be put to use",
            self.certificate_errors.clone(),
        );
        registry.register(
            "kcp_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate being served expires",
            self.certificate_expiry.clone(),
        );
        registry.register(
            "kcp_webhook_configuration_last_reload_success",
            "1 when the configuration file is in force as it stands, 0 while an earlier content is",
            self.configuration_success.clone(),
        );
        registry.register(
            "kcp_webhook_configuration_reloads",
            "Contents of the configuration file that were read, by result",
            self.configuration_reads.clone(),
        );
        registry.register(
            "kcp_webhook_decisions",
            "Reviews by outcome",
            self.decisions.clone(),
        );
        registry.register(
            "kcp_webhook_rule_findings",
            "Findings by rule",
            self.rules.clone(),
        );
        registry.register(
            "kcp_webhook_live_reads",
            "Objects read from the API server, by result",
            self.live_reads.clone(),
        );
        registry.register(
            "kcp_webhook_cache_synced",
            "1 when a kind is watched or is known not to be served, 0 while it is read live",
            self.caches_synced.clone(),
        );
        registry.register(
            "kcp_webhook_cache_objects",
            "Objects that are kept",
            self.cached_objects.clone(),
        );
        registry.register(
            "kcp_webhook_cache_watch_restarts",
            "Lists and watches begun anew, for they failed or the kind was not served",
            self.watch_restarts.clone(),
        );
        registry.register(
            "kcp_webhook_connections",
            "Connections open",
            self.connections.open.clone(),
        );
        registry.register(
            "kcp_webhook_connections_refused",
            "Connections beyond the limit",
            self.connections.refused.clone(),
        );
        registry.register(
            "kcp_webhook_tls_handshake_errors",
            "TLS handshakes that failed or took too long",
            self.connections.failed_handshakes.clone(),
        );
    }

    /// Makes the series that have a fixed set of labels, so that each is there, and 0, before anything happens.
    fn touch(&self) {
        for hook in Hook::ALL {
            let webhook = hook.path();
            drop(self.latency.get_or_create(&OfHook { webhook }));
            drop(self.in_flight.get_or_create(&OfHook { webhook }));
            for decision in ["allowed", "denied", "refused"] {
                drop(self.decisions.get_or_create(&OfDecision { webhook, decision }));
            }
        }
        for rule in topics::rules() {
            drop(self.rules.get_or_create(&OfRule {
                rule: rule.id,
                decision: decision_of(rule.action),
            }));
        }
        drop(self.rules.get_or_create(&OfRule {
            rule: UNDECODABLE,
            decision: decision_of(Action::Deny),
        }));
    }

    /// Counts what was decided.
    pub(crate) fn decided(&self, hook: Hook, decision: &Decision) {
        let label = match &decision.outcome {
            Outcome::Allowed => "allowed",
            Outcome::Invalid(_) => "denied",
            Outcome::Refused(_) => "refused",
        };
        self.decisions
            .get_or_create(&OfDecision {
                webhook: hook.path(),
                decision: label,
            })
            .inc();
        for (cause, action) in decision.causes() {
            self.rules
                .get_or_create(&OfRule {
                    rule: cause.rule,
                    decision: decision_of(action),
                })
                .inc();
        }
    }

    /// Counts a configuration that was read: it is in force, or the one before it stays.
    pub(crate) fn configuration_in_force(&self, success: bool) {
        let result = if success { "success" } else { "error" };
        self.configuration_success.set(success.into());
        self.configuration_reads
            .get_or_create(&OfConfiguration { result })
            .inc();
    }

    /// Counts a live read.
    pub(crate) fn live_read(&self, result: &'static str) {
        self.live_reads.get_or_create(&OfRead { result }).inc();
    }

    /// Takes down how far a cache is. Series of caches are there with API access alone.
    pub(crate) fn cached(&self, kind: &'static str, synced: bool, objects: usize) {
        let of = OfCache { kind };
        self.caches_synced.get_or_create(&of).set(synced.into());
        let objects = i64::try_from(objects).unwrap_or(i64::MAX);
        self.cached_objects.get_or_create(&of).set(objects);
        drop(self.watch_restarts.get_or_create(&of));
    }

    /// Counts a watch that was begun anew.
    pub(crate) fn watch_restarted(&self, kind: &'static str) {
        self.watch_restarts.get_or_create(&OfCache { kind }).inc();
    }

    /// Everything, in the `OpenMetrics` text format.
    pub(crate) fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

const fn decision_of(action: Action) -> &'static str {
    match action {
        Action::Deny => "deny",
        Action::Warn => "warn",
        Action::Audit => "audit",
        Action::Off => "off",
    }
}
