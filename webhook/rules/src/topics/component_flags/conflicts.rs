//! Flags that exclude each other, or flags that kubeadm sets.

use std::borrow::Cow;

use semver::Version;

use crate::topics::extra_args::{FlagList, FlagValue, comma_separated, items};

/// A flag, and why it excludes another one.
type Conflict<'c> = (FlagValue<'c>, Cow<'static, str>);

/// The flags of kube-apiserver that exclude others in a minor version.
pub(super) fn api_server_conflicts<'c>(flags: &FlagList<'c>, minor: u64) -> Vec<Conflict<'c>> {
    let mut conflicts = vec![(
        "admission-control",
        "the flag excludes --enable-admission-plugins, which kubeadm always sets",
    )];
    if minor < 30 {
        let cause = "the flag excludes --authorization-mode, which kubeadm sets before 1.30";
        conflicts.push(("authorization-config", cause));
    }
    let is_set = |prefix: &str| {
        flags
            .iter()
            .any(|flag| flag.name.replace('_', "-").starts_with(prefix))
    };
    if minor >= 30 && (is_set("authorization-mode") || is_set("authorization-webhook-")) {
        let cause = "the flag excludes --authorization-mode and the flags --authorization-webhook-*, one of which is also set";
        conflicts.push(("authorization-config", cause));
    }
    if minor >= 32 {
        let cause = "the flag excludes the key files of service accounts, which kubeadm always sets";
        conflicts.push(("service-account-signing-endpoint", cause));
    }
    if is_set("oidc-") {
        conflicts.push((
            "authentication-config",
            "the flag excludes the flags --oidc-*, which are also set",
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
    if flags
        .get("enable-priority-and-fairness")
        .and_then(|flag| flag.as_bool())
        != Some(false)
        && needed.iter().find_map(value_of) == Some("false")
    {
        let cause =
            "the flag turns off an API that --enable-priority-and-fairness needs, which is on by default";
        conflicts.push(("runtime-config", cause));
    }
    // kubeadm enables this plugin unless the flag is set.
    let enabled = flags.get("enable-admission-plugins");
    let enabled = comma_separated(enabled.map_or("NodeRestriction", |flag| flag.value));
    let disabled = comma_separated(flags.value("disable-admission-plugins"));
    if disabled.iter().any(|plugin| enabled.contains(plugin)) {
        let cause = "--enable-admission-plugins, which kubeadm sets to NodeRestriction by default, enables a plugin that the flag disables";
        conflicts.push(("disable-admission-plugins", cause));
    }
    let conflicts = conflicts.into_iter();
    conflicts
        .filter_map(|(name, cause)| Some((flags.get(name)?, cause.into())))
        .collect()
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

/// The experimental flags of etcd 3.6 exclude their successors: flags (`embed/config.go`, `experimentalFlagMigrationMap`) and feature
/// gates. kubeadm 1.34 and later set one of each. etcd 3.7 knows none of these flags.
pub(super) fn etcd_conflicts<'c>(
    flags: &FlagList<'c>,
    etcd: &Version,
    kubernetes: Option<&Version>,
) -> Vec<Conflict<'c>> {
    if etcd.minor != 6 {
        return Vec::new();
    }
    let is_set_by_kubeadm = kubernetes.is_some_and(|kubernetes| kubernetes.minor >= 34);
    let gates = flags.get("feature-gates");
    let conflicts = flags.iter().filter_map(|flag| {
        let successor = flag.name.strip_prefix("experimental-")?;
        let gate = GATES_OF_ETCD
            .iter()
            .find_map(|(name, gate)| (*name == successor).then_some(*gate));
        let cause = match (gate, gates) {
            // etcd looks for the name anywhere in the flag.
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
        Some((flag, cause))
    });
    conflicts.collect()
}
