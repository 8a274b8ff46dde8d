//! Prometheus metrics. If controller-runtime has the same metric, it has the same name here, so that dashboards for
//! controller-runtime work.

mod etcd_snapshots;
mod pool_entries;
mod requests;

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use kcp_rules::{Action, topics};
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

pub(crate) use self::etcd_snapshots::LastSnapshot;
pub(crate) use self::pool_entries::{OTHER_POOLS, PoolEntries, PoolName};
use self::{
    etcd_snapshots::SnapshotGauges,
    pool_entries::PoolGauges,
    requests::{InFlight, Requests, WebhookLabels},
};
use crate::{
    decision::{Decision, ReviewResult, UNDECODABLE},
    hook::Hook,
};

/// The content type of the text that [`Metrics::encode`] writes.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    webhook: &'static str,
    decision: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    rule: &'static str,
    decision: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SkippedLabels {
    rule: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    version: String,
}

/// What happened to a denial that should become an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventResult {
    Recorded,
    /// The same denial was recorded a short time ago.
    Repeated,
    /// The API server did not accept the Event.
    Failed,
    /// Too many denials were waiting.
    Dropped,
}

/// Metrics of the connections to one listener.
#[derive(Clone, Default)]
pub(crate) struct ConnectionMetrics {
    pub(crate) open: Gauge,
    pub(crate) evicted: Counter,
    pub(crate) failed_handshakes: Counter,
}

/// Registers each metric under its name, with what it measures.
macro_rules! register {
    ($registry:ident, $($($metric:ident).+: $name:literal, $help:literal;)+) => {
        $($registry.register($name, $help, $($metric).+.clone());)+
    };
}

/// The metrics of one server.
#[derive(Default)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Requests,
    decisions: Family<DecisionLabels, Counter>,
    rules: Family<RuleLabels, Counter>,
    skipped_rules: Family<SkippedLabels, Counter>,
    untrusted_controller_writes: Counter,
    live_reads: Family<ResultLabels, Counter>,
    caches_synced: Family<CacheLabels, Gauge>,
    cached_objects: Family<CacheLabels, Gauge>,
    cache_confirmed: Family<CacheLabels, Gauge>,
    registered: Family<WebhookLabels, Gauge>,
    disabled_since: Family<WebhookLabels, Gauge>,
    canary: Family<WebhookLabels, Gauge>,
    watch_restarts: Family<CacheLabels, Counter>,
    denial_events: Family<ResultLabels, Counter>,
    unregistered_versions: Family<VersionLabels, Gauge>,
    pool_entries: PoolGauges,
    etcd_snapshots: SnapshotGauges,
    pub(crate) connections: ConnectionMetrics,
    pub(crate) panics: Counter,
    pub(crate) unverified_reviews: Counter,
    pub(crate) certificate_reads: Counter,
    pub(crate) certificate_errors: Counter,
    pub(crate) certificate_expiry: Gauge,
    configuration_success: Gauge,
    configuration_unknown_rules: Gauge,
    configuration_reads: Family<ResultLabels, Counter>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self::default();
        metrics.register();
        metrics.create_series();
        metrics
    }

    /// Registers all metrics. The encoder adds `_total` to the names of counters.
    fn register(&mut self) {
        let registry = &mut self.registry;
        self.requests.register(registry);
        let build_info = Family::<BuildLabels, Gauge>::default();
        build_info
            .get_or_create(&BuildLabels {
                version: env!("CARGO_PKG_VERSION"),
            })
            .set(1);
        register! { registry,
            build_info: "kcp_webhook_build_info", "Always 1; the label version is the version of kcp-webhook";
            self.certificate_reads: "certwatcher_read_certificate", "TLS key pairs loaded";
            self.certificate_errors: "certwatcher_read_certificate_errors", "TLS key pairs that could not be loaded";
            self.certificate_expiry: "kcp_webhook_certificate_expiry_timestamp_seconds",
                "Expiry of the current serving certificate, in seconds since 1970";
            self.configuration_success: "kcp_webhook_configuration_last_reload_success",
                "1 if the current configuration file is in use, 0 if it cannot be used";
            self.configuration_unknown_rules: "kcp_webhook_configuration_unknown_rules",
                "Unknown rule ids in the configuration file";
            self.configuration_reads: "kcp_webhook_configuration_reloads", "Reloads of the configuration file by result";
            self.decisions: "kcp_webhook_decisions", "Reviews by decision";
            self.rules: "kcp_webhook_rule_findings", "Findings by rule and action";
            self.skipped_rules: "kcp_webhook_rules_skipped",
                "Reviews in which a rule was skipped, because objects could not be read";
            self.untrusted_controller_writes: "kcp_webhook_untrusted_controller_writes",
                "Reviews of writes by a topology controller that trustedUsers does not list";
            self.live_reads: "kcp_webhook_live_reads", "Reads from the API server during a review, by result";
            self.caches_synced: "kcp_webhook_cache_synced",
                "1 if the cache of a kind is up to date or the API server does not serve the kind, 0 if each review reads \
                 these objects from the API server";
            self.cached_objects: "kcp_webhook_cache_objects", "Objects in the cache of each kind";
            self.cache_confirmed: "kcp_webhook_cache_confirmed_timestamp_seconds",
                "When the API server last confirmed that the cache of a kind is up to date, in seconds since 1970";
            self.watch_restarts: "kcp_webhook_cache_watch_restarts",
                "Restarts of a watch after the watch failed, or after the API server did not serve the kind";
            self.denial_events: "kcp_webhook_denial_events",
                "Denials by whether they were recorded as an Event: recorded, repeated, failed or dropped";
        }
        self.pool_entries.register(registry);
        self.etcd_snapshots.register(registry);
        register! { registry,
            self.connections.open: "kcp_webhook_connections", "Open connections";
            self.connections.evicted: "kcp_webhook_connections_evicted",
                "Idle connections that were closed to make room for new connections";
            self.unverified_reviews: "kcp_webhook_unverified_reviews",
                "Reviews from clients without the certificate that --client-ca-file requires";
            self.panics: "kcp_webhook_panics",
                "Reviews during which kcp-webhook panicked, and to which it responded with 500";
            self.connections.failed_handshakes: "kcp_webhook_tls_handshake_errors",
                "TLS handshakes that failed or timed out";
            self.registered: "kcp_webhook_registered",
                "1 if the API server calls this webhook for each shipped entry of its configuration, otherwise 0";
            self.disabled_since: "kcp_webhook_disabled_since_timestamp_seconds",
                "When a person disabled the webhook configuration, in seconds since 1970";
            self.canary: "kcp_webhook_canary_timestamp_seconds",
                "When the API server last sent a canary of kcp-webhook manage, in seconds since 1970";
            self.unregistered_versions: "kcp_webhook_unregistered_version",
                "1 for each version of KubeadmControlPlanes that the API server serves but kcp-webhook does not know";
        }
    }

    /// Creates all series whose labels are known in advance, so that they exist with the value 0.
    fn create_series(&self) {
        for hook in Hook::ALL {
            let webhook = hook.path();
            for decision in ["allowed", "denied", "refused", OVERRIDDEN] {
                drop(
                    self.decisions
                        .get_or_create(&DecisionLabels { webhook, decision }),
                );
            }
        }
        for rule in topics::rules() {
            drop(self.rules.get_or_create(&RuleLabels {
                rule: rule.id,
                decision: decision_of(rule.action),
            }));
        }
        for rule in topics::rules().filter(|rule| !rule.reads().is_empty()) {
            drop(self.skipped_rules.get_or_create(&SkippedLabels { rule: rule.id }));
        }
        drop(self.rules.get_or_create(&RuleLabels {
            rule: UNDECODABLE,
            decision: decision_of(Action::Deny),
        }));
    }

    /// Counts the start of a request. The returned guard counts its end.
    pub(crate) fn begin(&self, hook: Hook) -> InFlight<'_> {
        self.requests.begin(hook)
    }

    pub(crate) fn count_decision(&self, hook: Hook, decision: &Decision) {
        let label = match &decision.verdict {
            ReviewResult::Allowed if decision.overridden_rules().next().is_some() => OVERRIDDEN,
            ReviewResult::Allowed => "allowed",
            ReviewResult::Invalid(_) => "denied",
            ReviewResult::Refused(_) => "refused",
        };
        self.decisions
            .get_or_create(&DecisionLabels {
                webhook: hook.path(),
                decision: label,
            })
            .inc();
        self.untrusted_controller_writes
            .inc_by(decision.is_controller_untrusted.into());
        if decision.is_canary {
            let now = Timestamp::now().as_second();
            self.canary
                .get_or_create(&WebhookLabels { webhook: hook.path() })
                .set(now);
        }
        for &rule in &decision.skipped_rules {
            self.skipped_rules.get_or_create(&SkippedLabels { rule }).inc();
        }
        for (cause, action) in decision.causes() {
            self.rules
                .get_or_create(&RuleLabels {
                    rule: cause.rule,
                    decision: if cause.overridden.is_some() {
                        OVERRIDDEN
                    } else {
                        decision_of(action)
                    },
                })
                .inc();
        }
    }

    /// Counts a reload of the configuration. After a failed reload, the previous configuration stays in use.
    pub(crate) fn count_configuration_reload(&self, success: bool) {
        let result = if success { "success" } else { "error" };
        self.configuration_success.set(success.into());
        self.configuration_reads
            .get_or_create(&ResultLabels { result })
            .inc();
    }

    pub(crate) fn set_unknown_rules(&self, count: usize) {
        self.configuration_unknown_rules
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_live_read(&self, result: &'static str) {
        self.live_reads.get_or_create(&ResultLabels { result }).inc();
    }

    /// Sets the metrics of the cache of a kind. Without API access, these series do not exist.
    pub(crate) fn set_cache_state(&self, kind: &'static str, synced: bool, objects: usize) {
        let labels = CacheLabels { kind };
        self.caches_synced.get_or_create(&labels).set(synced.into());
        let objects = i64::try_from(objects).unwrap_or(i64::MAX);
        self.cached_objects.get_or_create(&labels).set(objects);
        drop(self.watch_restarts.get_or_create(&labels));
    }

    pub(crate) fn confirm_cache(&self, kind: &'static str, now: Timestamp) {
        self.cache_confirmed
            .get_or_create(&CacheLabels { kind })
            .set(now.as_second());
    }

    /// Sets whether the API server calls a webhook. `None` if it is unknown.
    pub(crate) fn set_registered(
        &self,
        hook: Hook,
        registered: Option<bool>,
        disabled_since: Option<Timestamp>,
    ) {
        let labels = WebhookLabels { webhook: hook.path() };
        let set = |metric: &Family<WebhookLabels, Gauge>, value: Option<i64>| match value {
            Some(value) => _ = metric.get_or_create(&labels).set(value),
            None => _ = metric.remove(&labels),
        };
        set(&self.registered, registered.map(i64::from));
        set(&self.disabled_since, disabled_since.map(Timestamp::as_second));
    }

    /// Sets whether the API server sends canaries to a webhook. If it does, the series of canaries exists, with the value 0 until
    /// the first canary.
    pub(crate) fn expect_canaries(&self, hook: Hook, are_expected: bool) {
        let labels = WebhookLabels { webhook: hook.path() };
        if are_expected {
            drop(self.canary.get_or_create(&labels));
        } else {
            self.canary.remove(&labels);
        }
    }

    pub(crate) fn count_denial_event(&self, result: EventResult) {
        let result = match result {
            EventResult::Recorded => "recorded",
            EventResult::Repeated => "repeated",
            EventResult::Failed => "failed",
            EventResult::Dropped => "dropped",
        };
        self.denial_events.get_or_create(&ResultLabels { result }).inc();
    }

    pub(crate) fn set_unregistered_versions(&self, versions: &[String]) {
        self.unregistered_versions.clear();
        for version in versions {
            let labels = VersionLabels {
                version: version.clone(),
            };
            self.unregistered_versions.get_or_create(&labels).set(1);
        }
    }

    /// Replaces the last snapshots of all control planes.
    pub(crate) fn set_last_snapshots(&self, snapshots: Vec<LastSnapshot>) {
        self.etcd_snapshots.set(snapshots);
    }

    /// Replaces the numbers of entries of all pools.
    pub(crate) fn set_pool_entries(&self, pools: BTreeMap<PoolName, PoolEntries>) {
        self.pool_entries.set(pools);
    }

    pub(crate) fn count_watch_restart(&self, kind: &'static str) {
        self.watch_restarts.get_or_create(&CacheLabels { kind }).inc();
    }

    /// Writes all metrics in the `OpenMetrics` text format.
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

/// The label of a decision or a finding that an annotation on the object overrides.
const OVERRIDDEN: &str = "overridden";

const fn decision_of(action: Action) -> &'static str {
    match action {
        Action::Deny => "deny",
        Action::Warn => "warn",
        Action::Audit => "audit",
        Action::Off => "off",
    }
}
