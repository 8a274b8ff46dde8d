//! What a component demands of a value after it has parsed it.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    net::IpAddr,
    ops::RangeBounds,
    sync::LazyLock,
    time::Duration,
};

use semver::Version;

use super::values::{is_quantity, parse_duration, parse_emulated};
use crate::{
    components::Component::{self, ApiServer, ControllerManager, Etcd, Kubelet, Scheduler},
    syntax::{key_fault, label_value_fault, may_kubelet_set},
    topics::extra_args::{FlagList, FlagValue, comma_separated, items},
};

/// What a component demands of a value.
enum Demand {
    /// One of these words. If one of the words is empty, the value can be empty, too.
    OneOf(&'static str),
    /// A number in this range.
    Between(f64, f64),
    /// A number or a duration that is not negative.
    NotNegative,
    /// What the text says. The function checks the value, for a minor version if this is known.
    Text(&'static str, fn(&str, Option<u64>) -> bool),
    /// A list. Each item that is not empty must be what the text says.
    Items(&'static str, fn(&str) -> bool),
    /// What components of this minor version and later demand.
    Since(u64, &'static Demand),
}

use Demand::{Between, Items, NotNegative, OneOf, Since, Text};

const MANY: f64 = f64::INFINITY;

/// Flags, separated by blanks, and what their values must be.
type Check = (&'static str, Demand);

/// The checks of components. From component-base (`cli/flag`, `logs/api/v1`, `compatibility`), apiserver
/// (`pkg/server/options`), kubernetes (`cmd/kube-apiserver/app/options`, `pkg/kubeapiserver/options`, `cmd/kubelet/app/server.go`,
/// `pkg/kubelet/apis/config/validation`) and etcd (`embed/config.go`).
const CHECKS: &[(&[Component], &[Check])] = &[
    (
        &[ApiServer, ControllerManager, Scheduler, Kubelet],
        &[
            (
                "tls-min-version",
                OneOf(" VersionTLS10 VersionTLS11 VersionTLS12 VersionTLS13"),
            ),
            ("tls-cipher-suites", Text(SUITES, are_cipher_suites)),
            ("logging-format", OneOf("text json")),
            ("log-flush-frequency", Since(35, &Text("above 0", is_positive))),
        ],
    ),
    (
        &[ApiServer, ControllerManager, Scheduler],
        &[
            ("emulated-version", Text(EMULATED, is_emulated)),
            (
                "show-hidden-metrics-for-version",
                Text("the minor version before the component's own", is_last_minor),
            ),
        ],
    ),
    (
        &[ApiServer],
        &[
            ("secure-port", Between(1.0, 65535.0)),
            ("goaway-chance", Between(0.0, 0.02)),
            (
                "max-requests-inflight max-mutating-requests-inflight",
                NotNegative,
            ),
            ("request-timeout min-request-timeout", NotNegative),
            ("shutdown-delay-duration livez-grace-period", NotNegative),
            ("shutdown-watch-termination-grace-period", NotNegative),
            ("storage-initialization-timeout", Since(31, &NotNegative)),
            ("storage-backend", OneOf(" etcd3")),
            ("storage-media-type", OneOf(MEDIA_TYPES)),
            ("watch-cache-sizes", Items("RESOURCE#SIZE", is_cache_size)),
            ("strict-transport-security-directives", Items(HSTS, is_hsts)),
            ("cors-allowed-origins", Items(ORIGINS, is_pinned)),
            (
                "audit-log-mode audit-webhook-mode",
                OneOf("batch blocking blocking-strict"),
            ),
            ("audit-log-format", OneOf("legacy json")),
            (
                "audit-log-version audit-webhook-version",
                OneOf("audit.k8s.io/v1"),
            ),
            (
                "audit-log-maxage audit-log-maxbackup audit-log-maxsize",
                NotNegative,
            ),
            ("apiserver-count", Between(1.0, MANY)),
            ("kubernetes-service-node-port", Between(0.0, 65535.0)),
            (
                "oidc-issuer-url service-account-jwks-uri",
                Text("a URL with https", is_https),
            ),
            (
                "oidc-required-claim",
                Text("KEY=VALUE", |value, _| is_pair(value)),
            ),
            (
                "service-account-issuer",
                Text("a URL, or a text without a colon", is_issuer),
            ),
            (
                "service-account-max-token-expiration",
                Text(EXPIRATION, is_expiration),
            ),
            ("service-cluster-ip-range", Text(RANGES, is_service_range)),
        ],
    ),
    (
        &[ControllerManager, Scheduler],
        &[
            ("secure-port", Between(0.0, 65535.0)),
            ("kube-api-burst", Between(1.0, MANY)),
        ],
    ),
    (&[Scheduler], &[("leader-elect-resource-lock", OneOf("leases"))]),
    (
        &[ControllerManager],
        &[
            (
                "concurrent-cron-job-syncs concurrent-ephemeralvolume-syncs concurrent-horizontal-pod-autoscaler-syncs \
                 concurrent-job-syncs concurrent-statefulset-syncs",
                Between(1.0, MANY),
            ),
            ("concurrent-daemonset-syncs", Since(33, &Between(1.0, MANY))),
            (
                "concurrent-device-taint-eviction-syncs",
                Since(35, &Between(1.0, MANY)),
            ),
            ("concurrent-resourceclaim-syncs", Since(36, &Between(1.0, MANY))),
            (
                "concurrent-service-endpoint-syncs mirroring-concurrent-service-endpoint-syncs",
                Between(1.0, 50.0),
            ),
            (
                "max-endpoints-per-slice mirroring-max-endpoints-per-subset",
                Between(1.0, 1000.0),
            ),
            (
                "attach-detach-reconcile-sync-period",
                Text("at least 1s", |value, _| is_within(value, SECOND..)),
            ),
            ("cidr-allocator-type", Since(33, &OneOf(" RangeAllocator"))),
        ],
    ),
    (
        &[Kubelet],
        &[
            (
                "topology-manager-policy",
                OneOf("none best-effort restricted single-numa-node"),
            ),
            ("topology-manager-scope", OneOf("container pod")),
            ("hairpin-mode", OneOf("none hairpin-veth promiscuous-bridge")),
            ("cpu-manager-policy", OneOf("none static")),
            ("memory-manager-policy", OneOf("None Static")),
            ("max-pods pods-per-core registry-qps registry-burst", NotNegative),
            ("event-qps event-burst kube-api-qps kube-api-burst", NotNegative),
            ("read-only-port healthz-port", Between(0.0, 65535.0)),
            ("oom-score-adj", Between(-1000.0, 1000.0)),
            (
                "image-gc-high-threshold image-gc-low-threshold",
                Between(0.0, 100.0),
            ),
            ("container-log-max-files", Between(2.0, MANY)),
            (
                "container-runtime-endpoint",
                Text("set", |value, _| !value.is_empty()),
            ),
            (
                "cpu-cfs-quota-period",
                Text("between 1ms and 1s", |value, _| {
                    is_within(value, Duration::from_millis(1)..=SECOND)
                }),
            ),
            ("enforce-node-allocatable", Items(ENFORCEMENTS, is_enforcement)),
            ("max-open-files", NotNegative),
            ("minimum-image-ttl-duration", Since(36, &NotNegative)),
            ("port", Between(1.0, 65535.0)),
            ("reserved-cpus", Text("a list of CPUs, such as 0-3,8", are_cpus)),
            (
                "cpu-manager-policy-options topology-manager-policy-options eviction-minimum-reclaim eviction-soft-grace-period \
                 qos-reserved",
                Items("pairs, as KEY=VALUE", is_pair),
            ),
            ("eviction-hard eviction-soft", Items(THRESHOLDS, is_threshold)),
            ("system-reserved kube-reserved", Items(RESERVED, is_reserved)),
            ("node-labels", Items("labels, as KEY=VALUE", is_label)),
            ("register-with-taints", Text(TAINTS, are_taints)),
        ],
    ),
    (
        &[Etcd],
        &[
            ("heartbeat-interval", Between(1.0, MANY)),
            ("election-timeout", Between(1.0, 50000.0)),
            ("auto-compaction-mode", Text(COMPACTION, is_compaction_mode)),
            (
                "compact-hash-check-time experimental-compact-hash-check-time",
                Text("above 0", is_positive),
            ),
            (
                "auto-compaction-retention",
                Text("a number, or a duration with a unit", is_retention),
            ),
            (
                "log-level",
                Text(
                    "one of debug, info, warn, error, dpanic, panic, fatal",
                    is_log_level,
                ),
            ),
            ("logger", OneOf("zap")),
            ("log-format", OneOf(" json console")),
            ("tls-min-version tls-max-version", OneOf(" TLS1.2 TLS1.3")),
            ("cipher-suites", Text(SUITES, are_cipher_suites)),
        ],
    ),
];

type ComponentDemand = (&'static [Component], &'static Demand);

/// The demands of each flag, with the components that have them.
static DEMANDS: LazyLock<HashMap<&str, Vec<ComponentDemand>>> = LazyLock::new(|| {
    let mut demands: HashMap<_, Vec<_>> = HashMap::new();
    for (components, checks) in CHECKS {
        for (names, demand) in *checks {
            for name in names.split(' ') {
                demands.entry(name).or_default().push((*components, demand));
            }
        }
    }
    demands
});

const SECOND: Duration = Duration::from_secs(1);

const ENFORCEMENTS: &str =
    "none, pods, system-reserved, system-reserved-compressible, kube-reserved and kube-reserved-compressible";
const COMPACTION: &str = "periodic or revision";
const EMULATED: &str =
    "the component's minor version or one of the three minor versions before it, such as 1.34";
const MEDIA_TYPES: &str = " application/json application/yaml application/vnd.kubernetes.protobuf";
const HSTS: &str = "max-age=SECONDS, includeSubDomains or preload";
const ORIGINS: &str = r"regular expressions that pin both ends of a host, such as ^https://a\.example$";
const EXPIRATION: &str = "0, or between 1h and 2^32 seconds";
const RANGES: &str = "a range of at least 8 addresses, or two such ranges, one of IPv4 and one of IPv6";
const SUITES: &str = "a list of Go's names of TLS cipher suites, such as TLS_AES_128_GCM_SHA256";
const THRESHOLDS: &str = "thresholds, such as memory.available<100Mi or nodefs.available<10%";
const RESERVED: &str = "NAME=QUANTITY, where NAME is cpu, memory, ephemeral-storage or pid";
const TAINTS: &str = "a list of taints without spaces, as KEY=VALUE:EFFECT or KEY:EFFECT with the effect NoSchedule, \
                      PreferNoSchedule or NoExecute, each key at most once per effect";

pub(super) const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// What the value of a flag must be; `None` if the component accepts it, or does not look at it.
pub(super) fn required_by_check(
    component: Component,
    minor: Option<u64>,
    flags: &FlagList<'_>,
    flag: &FlagValue<'_>,
) -> Option<Cow<'static, str>> {
    let name = flag.name.replace('_', "-");
    let mut demands = DEMANDS.get(&*name)?.iter();
    let (_, demand) = demands.find(|(components, _)| components.contains(&component))?;
    // kube-apiserver checks the flags of an audit backend only if this backend is on.
    let target = match name.get(..9) {
        Some("audit-log") => Some("audit-log-path"),
        Some("audit-web") => Some("audit-webhook-config-file"),
        _ => None,
    };
    let elects = flags.bool("leader-elect") != Some(false);
    // client-go checks the burst only if it limits the rate. The kubelet always checks it.
    let is_unlimited = component != Kubelet
        && flags
            .value("kube-api-qps")
            .parse::<f64>()
            .is_ok_and(|qps| qps <= 0.0);
    let is_read = target.is_none_or(|target| !flags.value(target).is_empty())
        && (elects || !flag.is("leader-elect-resource-lock"))
        && !(is_unlimited && flag.is("kube-api-burst"));
    required(demand, flag.value, minor).filter(|_| is_read)
}

fn required(demand: &Demand, value: &str, minor: Option<u64>) -> Option<Cow<'static, str>> {
    let is_accepted = match demand {
        OneOf(words) => words.split(' ').any(|word| word == value),
        Between(low, high) => (*low..=*high).contains(&value.replace('_', "").parse().ok()?),
        NotNegative => !value.starts_with('-') || !value.contains(|c: char| ('1'..='9').contains(&c)),
        Text(_, is_accepted) => is_accepted(value, minor),
        Items(_, is_accepted) => items(value).all(is_accepted),
        Since(first, demand) => {
            return minor
                .filter(|minor| minor >= first)
                .and_then(|_| required(demand, value, minor));
        }
    };
    (!is_accepted).then(|| demand.in_words())
}

impl Demand {
    /// What the flag must be, as the end of a sentence.
    fn in_words(&self) -> Cow<'static, str> {
        match self {
            OneOf(words) => match words.trim_start() {
                word if !word.contains(' ') => word.into(),
                words => format!("one of {}", words.replace(' ', ", ")).into(),
            },
            Between(low, MANY) => format!("at least {low}").into(),
            Between(low, high) => format!("between {low} and {high}").into(),
            NotNegative => "0 or more".into(),
            Text(words, _) => (*words).into(),
            Items(words, _) => format!("a list of {words}").into(),
            Since(_, demand) => demand.in_words(),
        }
    }
}

fn is_emulated(value: &str, minor: Option<u64>) -> bool {
    let is_near = |version: Version| {
        minor.is_none_or(|minor| (minor.saturating_sub(3)..=minor).contains(&version.minor))
    };
    value.is_empty() || parse_emulated(value).is_some_and(is_near)
}

fn is_last_minor(value: &str, minor: Option<u64>) -> bool {
    value.is_empty() || minor.is_none_or(|minor| value == format!("1.{}", minor.saturating_sub(1)))
}

fn is_positive(value: &str, _: Option<u64>) -> bool {
    !value.starts_with('-') && value.contains(|c: char| ('1'..='9').contains(&c))
}

/// Whether a duration is within limits. A value that is not a duration counts as within limits, because another check reports it.
fn is_within(value: &str, limits: impl RangeBounds<Duration>) -> bool {
    parse_duration(value).is_none_or(|duration| limits.contains(&duration) && !value.starts_with('-'))
}

fn is_pair(item: &str) -> bool {
    item.contains('=')
}

fn is_enforcement(item: &str) -> bool {
    let reserved = item.strip_suffix("-compressible").unwrap_or(item);
    ["none", "pods"].contains(&item) || ["system-reserved", "kube-reserved"].contains(&reserved)
}

/// A set of CPUs (`k8s.io/utils/cpuset`, `Parse`).
fn are_cpus(value: &str, _: Option<u64>) -> bool {
    let is_range = |range: &str| match range.split_once('-') {
        Some((first, last)) => {
            let (first, last) = (first.parse::<u32>(), last.parse::<u32>());
            matches!((first, last), (Ok(first), Ok(last)) if first <= last)
        }
        None => range.parse::<u32>().is_ok(),
    };
    value.is_empty() || value.split(',').all(is_range)
}

/// etcd 3.5 accepts an empty mode.
fn is_compaction_mode(value: &str, minor: Option<u64>) -> bool {
    ["periodic", "revision"].contains(&value) || value.is_empty() && minor.is_none_or(|minor| minor < 6)
}

/// The cipher suites of Go (`crypto/tls`), including the old names of two of them.
pub(super) fn are_cipher_suites(value: &str, _: Option<u64>) -> bool {
    const SUITES: &str = "TLS_AES_128_GCM_SHA256 TLS_AES_256_GCM_SHA384 TLS_CHACHA20_POLY1305_SHA256 \
        TLS_RSA_WITH_RC4_128_SHA TLS_RSA_WITH_3DES_EDE_CBC_SHA TLS_RSA_WITH_AES_128_CBC_SHA TLS_RSA_WITH_AES_256_CBC_SHA \
        TLS_RSA_WITH_AES_128_CBC_SHA256 TLS_RSA_WITH_AES_128_GCM_SHA256 TLS_RSA_WITH_AES_256_GCM_SHA384 \
        TLS_ECDHE_ECDSA_WITH_RC4_128_SHA TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA \
        TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256 TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 \
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305 \
        TLS_ECDHE_RSA_WITH_RC4_128_SHA TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA \
        TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256 TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 \
        TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305";
    comma_separated(value)
        .iter()
        .all(|suite| SUITES.split(' ').any(|known| known == *suite))
}

fn is_cache_size(item: &str) -> bool {
    item.split_once('#')
        .and_then(|(_, size)| size.parse::<i64>().ok())
        .is_some_and(|size| size >= 0)
}

fn is_hsts(item: &str) -> bool {
    ["includeSubDomains", "preload"].contains(&item) || item.starts_with("max-age=")
}

/// Whether a regular expression pins both ends of a host. One that begins with an operator is invalid.
fn is_pinned(item: &str) -> bool {
    !item.starts_with(['*', '+', '?'])
        && ["^", "//"].iter().any(|start| item.contains(start))
        && ["$", ":"].iter().any(|end| item.contains(end))
}

fn is_https(value: &str, _: Option<u64>) -> bool {
    value.is_empty() || value.to_ascii_lowercase().starts_with("https://")
}

fn is_issuer(value: &str, _: Option<u64>) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let before_colon = value.split_once(':').map(|(before, _)| before);
    !value.is_empty()
        && before_colon.is_none_or(|before| before.contains(['/', '?', '#']) || is_scheme(before))
}

fn is_expiration(value: &str, _: Option<u64>) -> bool {
    let limits = SECOND * 3600..=Duration::from_secs(1 << 32);
    parse_duration(value).is_none_or(|duration| duration.is_zero()) || is_within(value, limits)
}

/// An address, whose IPv4 numbers may have leading zeros (`k8s.io/utils/net`, `ParseCIDRSloppy`).
fn parse_address(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let numbers = text.split('.').map(|number| number.parse::<u8>().ok());
    let numbers: [u8; 4] = numbers.collect::<Option<Vec<_>>>()?.try_into().ok()?;
    Some(IpAddr::from(numbers))
}

fn is_service_range(value: &str, _: Option<u64>) -> bool {
    let is_range = |range: &str| {
        let (address, length) = range.split_once('/').unwrap_or((range, ""));
        let longest = match parse_address(address) {
            Some(IpAddr::V4(_)) => 29,
            Some(IpAddr::V6(_)) => 125,
            None => return false,
        };
        length.parse::<u8>().is_ok_and(|length| length <= longest)
    };
    let (first, second) = value.split_once(',').unwrap_or((value, ""));
    let are_of_both_families = first.contains(':') != second.contains(':');
    value.is_empty() || is_range(first) && (second.is_empty() || is_range(second) && are_of_both_families)
}

fn is_threshold(item: &str) -> bool {
    const SIGNALS: &str = "memory.available nodefs.available nodefs.inodesFree imagefs.available imagefs.inodesFree \
        containerfs.available containerfs.inodesFree allocatableMemory.available pid.available";
    item.split_once('<').is_some_and(|(signal, value)| {
        let (signal, value) = (signal.trim(), value.trim());
        let percentage = value
            .strip_suffix('%')
            .map(|number| number.parse::<f32>().is_ok());
        SIGNALS.split(' ').any(|known| known == signal) && percentage.unwrap_or_else(|| is_quantity(value))
    })
}

fn is_reserved(item: &str) -> bool {
    let names = ["cpu", "memory", "ephemeral-storage", "pid"];
    item.split_once('=')
        .is_some_and(|(name, value)| names.contains(&name.trim()) && is_quantity(value.trim()))
}

/// Whether an item is a label. A label that Kubernetes does not let a kubelet set also counts, because another rule reports it.
fn is_label(item: &str) -> bool {
    let (key, value) = item.split_once('=').unwrap_or((item, ""));
    let (key, value) = (key.trim(), value.trim());
    !may_kubelet_set(key) || key_fault(key).is_none() && label_value_fault(value).is_none()
}

fn are_taints(value: &str, _: Option<u64>) -> bool {
    let mut seen = HashSet::new();
    let mut taints = value.split(',');
    value.is_empty() || taints.all(|taint| is_taint(taint) && seen.insert(taint_identity(taint)))
}

/// The key and the effect of a taint. Two taints of a Node must not have the same key and effect.
fn taint_identity(taint: &str) -> (&str, &str) {
    let (label, effect) = taint.split_once(':').unwrap_or((taint, ""));
    (label.split('=').next().unwrap_or(label), effect)
}

/// Whether an item is a taint. A dash at the end stands for a taint to remove.
fn is_taint(item: &str) -> bool {
    let Some((label, effect)) = item.trim_end_matches('-').split_once(':') else {
        return false;
    };
    let (key, value) = label.split_once('=').unwrap_or((label, ""));
    TAINT_EFFECTS.contains(&effect) && key_fault(key).is_none() && label_value_fault(value).is_none()
}

fn is_retention(value: &str, _: Option<u64>) -> bool {
    value.is_empty()
        || value.parse::<u64>().is_ok()
        || !value.starts_with('-') && parse_duration(value).is_some()
}

fn is_log_level(value: &str, _: Option<u64>) -> bool {
    let levels = ["", "debug", "info", "warn", "error", "dpanic", "panic", "fatal"];
    levels.contains(&value.to_ascii_lowercase().as_str())
}
