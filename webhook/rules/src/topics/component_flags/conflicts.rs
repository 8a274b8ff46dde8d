//! Flags that a component refuses. Some exclude each other, some exclude flags that kubeadm sets, and some need another flag that
//! is missing.

use std::borrow::Cow;

use semver::Version;

use super::checks::are_cipher_suites;
use crate::{
    syntax::parse_go_duration,
    topics::extra_args::{FlagList, FlagValue, comma_separated, has_placeholder, items},
};

/// A flag, why the component refuses it together with the other flags, and what a user could set so that the component accepts
/// it.
type Conflict<'c> = (FlagValue<'c>, Cow<'static, str>, Option<&'static str>);

/// The flags of kube-apiserver that exclude others in a minor version.
pub(super) fn api_server_conflicts<'c>(flags: &FlagList<'c>, minor: u64) -> Vec<Conflict<'c>> {
    let mut conflicts = vec![(
        "admission-control",
        "the flag cannot be combined with --enable-admission-plugins, which kubeadm always sets",
    )];
    if minor < 30 {
        let cause = "the flag cannot be combined with --authorization-mode, which kubeadm before 1.30 sets";
        conflicts.push(("authorization-config", cause));
    }
    let is_set = |prefix: &str| {
        flags
            .iter()
            .any(|flag| flag.name.replace('_', "-").starts_with(prefix))
    };
    if minor >= 30 && (is_set("authorization-mode") || is_set("authorization-webhook-")) {
        let cause = "the flag cannot be combined with --authorization-mode or --authorization-webhook-*, one of which is also \
                     set";
        conflicts.push(("authorization-config", cause));
    }
    if minor >= 32 {
        let cause =
            "the flag cannot be combined with the key files of service accounts, which kubeadm always sets";
        conflicts.push(("service-account-signing-endpoint", cause));
    }
    if is_set("oidc-") {
        conflicts.push((
            "authentication-config",
            "the flag cannot be combined with the flags --oidc-*, some of which are also set",
        ));
    }
    // The first of these keys that is set decides.
    let needed = ["flowcontrol.apiserver.k8s.io/v1", "api/ga", "api/all"];
    let runtime_config = flags.value("runtime-config");
    let value_of = |key: &&str| {
        let pairs = items(runtime_config).filter_map(|item| item.split_once('='));
        let values = pairs.filter(|(name, _)| name.trim() == *key);
        let value = values.last().map(|(_, value)| value.trim())?;
        ["true", "false"].contains(&value).then_some(value)
    };
    if flags.bool("enable-priority-and-fairness") != Some(false)
        && needed.iter().find_map(value_of) == Some("false")
    {
        let cause = "the flag turns off an API that --enable-priority-and-fairness (on by default) needs";
        conflicts.push(("runtime-config", cause));
    }
    // kubeadm enables NodeRestriction unless the user sets --enable-admission-plugins.
    let enabled = flags.get("enable-admission-plugins");
    let enabled = comma_separated(enabled.map_or("NodeRestriction", |flag| flag.value));
    let disabled = comma_separated(flags.value("disable-admission-plugins"));
    if disabled.iter().any(|plugin| enabled.contains(plugin)) {
        let cause = "--enable-admission-plugins, which kubeadm sets to NodeRestriction by default, enables a plugin that \
                     this flag disables";
        conflicts.push(("disable-admission-plugins", cause));
    }
    let mut modes: Vec<_> = items(flags.value("authorization-mode")).collect();
    let given = modes.len();
    modes.sort_unstable();
    modes.dedup();
    if modes.len() < given {
        conflicts.push(("authorization-mode", "the flag names a mode twice"));
    }
    let conflicts = conflicts.into_iter();
    let excluded = conflicts.filter_map(|(name, cause)| Some((flags.get(name)?, cause.into(), None)));
    excluded
        .chain(lone(flags, &api_server_pairs(flags)))
        .chain(missing_suite(flags))
        .collect()
}

/// A flag that needs something, what it needs, and whether that is set.
type Pair = (&'static str, &'static str, bool);

fn api_server_pairs(flags: &FlagList<'_>) -> Vec<Pair> {
    let is_set = |name: &'static str| !flags.value(name).is_empty();
    let mut pairs = Vec::new();
    if flags.get("authentication-config").is_none() {
        let [client, issuer] = ["oidc-client-id", "oidc-issuer-url"].map(is_set);
        pairs.push(("oidc-issuer-url", "--oidc-client-id", client));
        let others = [
            "oidc-client-id",
            "oidc-username-claim",
            "oidc-username-prefix",
            "oidc-groups-claim",
            "oidc-groups-prefix",
            "oidc-required-claim",
            "oidc-signing-algs",
            "oidc-ca-file",
        ];
        let other = others.into_iter().find(|name| is_set(name));
        pairs.extend(other.map(|name| (name, "--oidc-issuer-url", issuer)));
    }
    let automatic = "encryption-provider-config-automatic-reload";
    if flags.bool(automatic) == Some(true) {
        pairs.push((
            automatic,
            "--encryption-provider-config",
            is_set("encryption-provider-config"),
        ));
    }
    // With --authorization-config, a file contains the authorization modes.
    let modes = flags.value("authorization-mode");
    if flags.get("authorization-config").is_some() || has_placeholder(modes) {
        return pairs;
    }
    for (mode, file, needed_file, needed_mode) in [
        (
            "ABAC",
            "authorization-policy-file",
            "--authorization-policy-file",
            "ABAC in --authorization-mode",
        ),
        (
            "Webhook",
            "authorization-webhook-config-file",
            "--authorization-webhook-config-file",
            "Webhook in --authorization-mode",
        ),
    ] {
        let has_mode = items(modes).any(|known| known == mode);
        if has_mode {
            pairs.push(("authorization-mode", needed_file, is_set(file)));
        }
        pairs.push((file, needed_mode, has_mode));
    }
    pairs
}

/// With a list of cipher suites, Go serves HTTP/2 only if the list has one of two suites (`golang.org/x/net/http2`,
/// `ConfigureServer`). This does not apply if TLS 1.3 is the minimum version, because TLS 1.3 has suites of its own.
fn missing_suite<'c>(flags: &FlagList<'c>) -> Option<Conflict<'c>> {
    let flag = flags.get("tls-cipher-suites")?;
    let suites = comma_separated(flag.value);
    let is_required = |suite: &&str| {
        [
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        ]
        .contains(suite)
    };
    let serves_http2 =
        flags.value("tls-min-version") != "VersionTLS13" && flags.bool("disable-http2-serving") != Some(true);
    let cause = "the list has neither TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 nor TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, and \
                 HTTP/2 needs one of these two suites";
    let is_valid = !suites.is_empty() && are_cipher_suites(flag.value, None);
    (serves_http2 && is_valid && !suites.iter().any(is_required))
        .then(|| (flag, cause.into(), Some("one of these two suites in the list")))
}

/// The conflict between the times of leader election, which are by default 15s, 10s and 2s (`k8s.io/client-go`,
/// `tools/leaderelection`, `NewLeaderElector`).
fn election_times<'c>(flags: &FlagList<'c>) -> Option<Conflict<'c>> {
    if flags.bool("leader-elect") == Some(false) {
        return None;
    }
    let names = [
        "leader-elect-lease-duration",
        "leader-elect-renew-deadline",
        "leader-elect-retry-period",
    ];
    let seconds = |name, default: f64| match flags.get(name) {
        Some(flag) => parse_go_duration(flag.value).map(|time| time.as_secs_f64()),
        None => Some(default),
    };
    let [lease, renewal, retry] = names;
    let (lease, renewal, retry) = (
        seconds(lease, 15.0)?,
        seconds(renewal, 10.0)?,
        seconds(retry, 2.0)?,
    );
    let cause = "--leader-elect-lease-duration (by default 15s) is not above --leader-elect-renew-deadline (10s), or the renew \
                 deadline is not above 1.2 times --leader-elect-retry-period (2s)";
    let is_valid =
        |[lease, renewal, retry]: [f64; 3]| lease > renewal && renewal > 1.2 * retry && retry > 0.0;
    // The flag that the user can remove: with its default, the times are valid.
    let with_default = [
        [15.0, renewal, retry],
        [lease, 10.0, retry],
        [lease, renewal, 2.0],
    ];
    let mut removable = names.into_iter().zip(with_default);
    let wrong = removable.find_map(|(name, times)| flags.get(name).filter(|_| is_valid(times)));
    let flag = wrong.or_else(|| names.iter().find_map(|name| flags.get(name)))?;
    (!is_valid([lease, renewal, retry])).then(|| (flag, cause.into(), None))
}

/// The conflicts of kube-controller-manager and kube-scheduler: the certificate and the key with which they serve, the cipher
/// suites, and the times of leader election.
pub(super) fn manager_conflicts<'c>(flags: &FlagList<'c>) -> Vec<Conflict<'c>> {
    let is_set = |name: &'static str| !flags.value(name).is_empty();
    let [certificate, key] = ["tls-cert-file", "tls-private-key-file"];
    let pairs = [
        (certificate, "--tls-private-key-file", is_set(key)),
        (key, "--tls-cert-file", is_set(certificate)),
    ];
    lone(flags, &pairs)
        .chain(missing_suite(flags))
        .chain(election_times(flags))
        .collect()
}

/// The signers of kube-controller-manager that have a certificate without a key, or a key without a certificate.
pub(super) fn signer_conflicts<'c>(flags: &FlagList<'c>) -> Vec<Conflict<'c>> {
    const FLAGS: [[&str; 2]; 4] = [
        [
            "--cluster-signing-kubelet-serving-cert-file",
            "--cluster-signing-kubelet-serving-key-file",
        ],
        [
            "--cluster-signing-kubelet-client-cert-file",
            "--cluster-signing-kubelet-client-key-file",
        ],
        [
            "--cluster-signing-kube-apiserver-client-cert-file",
            "--cluster-signing-kube-apiserver-client-key-file",
        ],
        [
            "--cluster-signing-legacy-unknown-cert-file",
            "--cluster-signing-legacy-unknown-key-file",
        ],
    ];
    let pairs = FLAGS.iter().flat_map(|[certificate, key]| {
        let name = |flag: &'static str| flag.trim_start_matches('-');
        let is_set = |flag| !flags.value(name(flag)).is_empty();
        [
            (name(certificate), *key, is_set(key)),
            (name(key), *certificate, is_set(certificate)),
        ]
    });
    lone(flags, &pairs.collect::<Vec<_>>()).collect()
}

/// The flags that the kubelet validates together (`pkg/kubelet/apis/config/validation`).
pub(super) fn kubelet_conflicts<'c>(flags: &FlagList<'c>) -> Vec<Conflict<'c>> {
    let has_root = !flags.value("cgroup-root").is_empty();
    lone(flags, &[("system-cgroups", "--cgroup-root", has_root)])
        .chain(image_thresholds(flags))
        .collect()
}

/// The conflict between the thresholds of image garbage collection, which are by default 85 and 80 %.
fn image_thresholds<'c>(flags: &FlagList<'c>) -> Option<Conflict<'c>> {
    let names = ["image-gc-high-threshold", "image-gc-low-threshold"];
    let percentage = |(name, default)| match flags.get(name) {
        Some(flag) => flag.value.parse::<u8>().ok(),
        None => Some(default),
    };
    let [high, low] = names;
    let (high, low) = (percentage((high, 85))?, percentage((low, 80))?);
    let flag = names.iter().find_map(|name| flags.get(name))?;
    let cause =
        "--image-gc-high-threshold (by default 85) is not above --image-gc-low-threshold (by default 80)";
    (low >= high).then(|| (flag, cause.into(), None))
}

/// The flags that are set although something that they need is not set.
fn lone<'c>(flags: &FlagList<'c>, pairs: &[Pair]) -> impl Iterator<Item = Conflict<'c>> {
    pairs.iter().filter_map(|(name, needed, is_set)| {
        let flag = flags.get(name).filter(|flag| !flag.value.is_empty() && !is_set)?;
        let cause = format!("the flag needs {needed}, which is not set");
        Some((flag, cause.into(), Some(*needed)))
    })
}

/// The experimental flags of etcd 3.6 whose successor is a feature gate (`features/etcd_features.go`,
/// `ExperimentalFlagToFeatureMap`).
const GATES_OF_ETCD: [(&str, &str); 6] = [
    ("stop-grpc-service-on-defrag", "StopGRPCServiceOnDefrag"),
    ("initial-corrupt-check", KUBEADM_GATE_OF_ETCD),
    ("compact-hash-check-enabled", "CompactHashCheck"),
    (
        "txn-mode-write-with-shared-buffer",
        "TxnModeWriteWithSharedBuffer",
    ),
    ("enable-lease-checkpoint", "LeaseCheckpoint"),
    ("enable-lease-checkpoint-persist", "LeaseCheckpointPersist"),
];

/// The gate that kubeadm 1.34 and later set, unless the user sets `feature-gates`.
const KUBEADM_GATE_OF_ETCD: &str = "InitialCorruptCheck";

/// In etcd 3.6, an experimental flag excludes its successor, which is a flag (`embed/config.go`, `experimentalFlagMigrationMap`)
/// or a feature gate. kubeadm 1.34 and later set one such flag and one such feature gate. etcd 3.7 knows none of the experimental
/// flags.
pub(super) fn etcd_conflicts<'c>(
    flags: &FlagList<'c>,
    etcd: &Version,
    kubernetes: Option<&Version>,
) -> Vec<Conflict<'c>> {
    if etcd.minor != 6 {
        return election_conflict(flags).into_iter().collect();
    }
    let is_set_by_kubeadm = kubernetes.is_some_and(|kubernetes| kubernetes.minor >= 34);
    let gates = flags.get("feature-gates");
    let conflicts = flags.iter().filter_map(|flag| {
        let successor = flag.name.strip_prefix("experimental-")?;
        let gate = GATES_OF_ETCD
            .iter()
            .find_map(|(name, gate)| (*name == successor).then_some(*gate));
        let cause = match (gate, gates) {
            // etcd looks for the name anywhere in the value of the flag.
            (Some(gate), Some(gates)) if gates.value.contains(gate) => {
                format!("etcd 3.6 refuses the flag together with the gate {gate}, which is also set").into()
            }
            (Some(KUBEADM_GATE_OF_ETCD), None) if is_set_by_kubeadm => {
                "etcd 3.6 refuses the flag together with the gate InitialCorruptCheck, which kubeadm 1.34 and later set".into()
            }
            _ if successor == "watch-progress-notify-interval" && is_set_by_kubeadm => {
                "etcd 3.6 refuses the flag together with --watch-progress-notify-interval, which kubeadm 1.34 and later set".into()
            }
            _ if flags.get(successor).is_some() => {
                format!("etcd 3.6 refuses the flag together with --{successor}, which is also set").into()
            }
            _ => return None,
        };
        Some((flag, cause, None))
    });
    conflicts.chain(election_conflict(flags)).collect()
}

/// etcd demands an election timeout of at least five heartbeats, by default 1000 ms and 100 ms (`embed.Config.Validate`).
fn election_conflict<'c>(flags: &FlagList<'c>) -> Option<Conflict<'c>> {
    let milliseconds = |name, default| match flags.get(name) {
        Some(flag) => flag.value.parse::<u64>().ok(),
        None => Some(default),
    };
    let heartbeat = milliseconds("heartbeat-interval", 100)?;
    let election = milliseconds("election-timeout", 1000).filter(|election| *election > 0)?;
    let flag = flags
        .get("election-timeout")
        .filter(|_| heartbeat.saturating_mul(5) <= 1000)
        .or_else(|| flags.get("heartbeat-interval"))?;
    let cause = "--election-timeout (by default 1000 ms) is less than 5 times --heartbeat-interval (by default 100 ms)";
    (heartbeat.saturating_mul(5) > election).then(|| (flag, cause.into(), None))
}
