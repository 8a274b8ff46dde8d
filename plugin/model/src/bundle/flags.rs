//! The flags of control plane components whose values a bundle contains. The value of another flag may be secret, so a bundle
//! contains only the name of the flag.

use serde_json::{Map, Value};

use crate::bundle::{REDACTED, replace_text};

/// Flags whose values are file names, addresses, numbers or settings. kubeadm writes some of them; the others decide how
/// components work together.
const HARMLESS: &[&str] = &[
    "admission-control-config-file",
    "advertise-address",
    "advertise-client-urls",
    "allocate-node-cidrs",
    "allow-privileged",
    "anonymous-auth",
    "audit-log-maxage",
    "audit-log-maxbackup",
    "audit-log-maxsize",
    "audit-log-path",
    "audit-policy-file",
    "authentication-config",
    "authentication-kubeconfig",
    "authorization-config",
    "authorization-kubeconfig",
    "authorization-mode",
    "auto-compaction-mode",
    "auto-compaction-retention",
    "bind-address",
    "bootstrap-kubeconfig",
    "cert-file",
    "cgroup-driver",
    "client-ca-file",
    "client-cert-auth",
    "cloud-provider",
    "cluster-cidr",
    "cluster-dns",
    "cluster-domain",
    "cluster-name",
    "cluster-signing-cert-file",
    "cluster-signing-key-file",
    "config",
    "configure-cloud-routes",
    "container-runtime-endpoint",
    "controllers",
    "data-dir",
    "default-not-ready-toleration-seconds",
    "default-unreachable-toleration-seconds",
    "disable-admission-plugins",
    "election-timeout",
    "enable-admission-plugins",
    "enable-bootstrap-token-auth",
    "enable-leader-migration",
    "encryption-provider-config",
    "etcd-cafile",
    "etcd-certfile",
    "etcd-compaction-interval",
    "etcd-keyfile",
    "etcd-servers",
    "eviction-hard",
    "experimental-initial-corrupt-check",
    "experimental-watch-progress-notify-interval",
    "feature-gates",
    "heartbeat-interval",
    "hostname-override",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "key-file",
    "kube-api-burst",
    "kube-api-qps",
    "kubeconfig",
    "kubelet-client-certificate",
    "kubelet-client-key",
    "kubelet-preferred-address-types",
    "leader-elect",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-resource-lock",
    "leader-elect-resource-name",
    "leader-elect-resource-namespace",
    "leader-elect-retry-period",
    "leader-migration-config",
    "listen-client-http-urls",
    "listen-client-urls",
    "listen-metrics-urls",
    "listen-peer-urls",
    "max-mutating-requests-inflight",
    "max-pods",
    "max-requests-inflight",
    "name",
    "node-cidr-mask-size",
    "node-cidr-mask-size-ipv4",
    "node-cidr-mask-size-ipv6",
    "node-ip",
    "node-labels",
    "node-monitor-grace-period",
    "peer-cert-file",
    "peer-client-cert-auth",
    "peer-key-file",
    "peer-trusted-ca-file",
    "pod-infra-container-image",
    "profiling",
    "provider-id",
    "proxy-client-cert-file",
    "proxy-client-key-file",
    "quota-backend-bytes",
    "register-with-taints",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-username-headers",
    "root-ca-file",
    "runtime-config",
    "secure-port",
    "service-account-issuer",
    "service-account-key-file",
    "service-account-private-key-file",
    "service-account-signing-key-file",
    "service-cluster-ip-range",
    "service-node-port-range",
    "snapshot-count",
    "terminated-pod-gc-threshold",
    "tls-cert-file",
    "tls-cipher-suites",
    "tls-min-version",
    "tls-private-key-file",
    "trusted-ca-file",
    "use-service-account-credentials",
    "v",
    "watch-progress-notify-interval",
];

fn is_harmless(flag: &str) -> bool {
    HARMLESS.binary_search(&flag).is_ok()
}

/// Redacts flags whose names have no dashes: a map in v1beta1 of Cluster API, a list of names and values in v1beta2.
pub(super) fn redact_flags(flags: Value) -> Value {
    match flags {
        Value::Object(flags) => {
            let flags = flags.into_iter().map(|(name, value)| {
                let value = if is_harmless(&name) {
                    value
                } else {
                    replace_text(value)
                };
                (name, value)
            });
            Value::Object(flags.collect())
        }
        Value::Array(flags) => Value::Array(flags.into_iter().map(redact_named_flag).collect()),
        other => replace_text(other),
    }
}

fn redact_named_flag(flag: Value) -> Value {
    let Value::Object(fields) = flag else {
        return replace_text(flag);
    };
    let name = fields.get("name").and_then(Value::as_str);
    let keeps_value = name.is_some_and(is_harmless);
    let fields = fields.into_iter().map(|(key, value)| {
        let is_kept = key == "name" || (key == "value" && keeps_value);
        let value = if is_kept { value } else { replace_text(value) };
        (key, value)
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Redacts the command of a container: the program stays, and [`redact_arguments`] redacts its arguments.
pub(super) fn redact_command(command: Value) -> Value {
    let Value::Array(mut words) = command else {
        return replace_text(command);
    };
    if words.is_empty() {
        return Value::Array(words);
    }
    let arguments = words.split_off(1);
    let is_program = |word: &Value| {
        let is_of_path = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
        word.as_str().is_some_and(|word| word.chars().all(is_of_path))
    };
    let program = words.into_iter().map(|word| {
        if is_program(&word) {
            word
        } else {
            replace_text(word)
        }
    });
    Value::Array(
        program
            .chain(arguments.into_iter().map(redact_argument))
            .collect(),
    )
}

/// Redacts arguments of a program: `--FLAG=VALUE` stays if the value is no secret. Of any other flag with a value, only
/// the name stays.
pub(super) fn redact_arguments(arguments: Value) -> Value {
    match arguments {
        Value::Array(arguments) => Value::Array(arguments.into_iter().map(redact_argument).collect()),
        other => replace_text(other),
    }
}

fn redact_argument(argument: Value) -> Value {
    let flag = argument.as_str().and_then(|text| text.strip_prefix("--"));
    let redacted = match flag.map(|flag| flag.split_once('=').unwrap_or((flag, ""))) {
        Some((name, _)) if is_harmless(name) => return argument,
        Some((name, value)) if is_flag_name(name) && !value.is_empty() => format!("--{name}={REDACTED}"),
        _ => return replace_text(argument),
    };
    Value::String(redacted)
}

fn is_flag_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{HARMLESS, redact_arguments, redact_command, redact_flags};

    #[test]
    fn the_flags_are_sorted_for_the_search() {
        assert!(HARMLESS.is_sorted());
    }

    #[test]
    fn values_of_unknown_flags_are_replaced() {
        assert_eq!(
            redact_flags(json!({"v": "2", "password": "s3cret", "cloud-provider": "external"})),
            json!({"v": "2", "password": "<redacted>", "cloud-provider": "external"})
        );
        assert_eq!(
            redact_flags(json!([
                {"name": "v", "value": "2"},
                {"name": "password", "value": "s3cret"},
                {"value": "s3cret"},
                "s3cret",
            ])),
            json!([
                {"name": "v", "value": "2"},
                {"name": "password", "value": "<redacted>"},
                {"value": "<redacted>"},
                "<redacted>",
            ])
        );
        assert_eq!(redact_flags(json!("s3cret")), json!("<redacted>"));
    }

    #[test]
    fn a_command_keeps_its_program_and_harmless_flags() {
        for (command, expected) in [
            (
                json!([
                    "kube-apiserver",
                    "--etcd-servers=https://127.0.0.1:2379",
                    "--token=s3cret"
                ]),
                json!([
                    "kube-apiserver",
                    "--etcd-servers=https://127.0.0.1:2379",
                    "--token=<redacted>"
                ]),
            ),
            (
                json!(["/bin/sh", "-c", "echo s3cret"]),
                json!(["/bin/sh", "<redacted>", "<redacted>"]),
            ),
            (
                json!(["/bin/tool", "--leader-elect", "--password", "s3cret", "--S3=cret"]),
                json!([
                    "/bin/tool",
                    "--leader-elect",
                    "<redacted>",
                    "<redacted>",
                    "<redacted>"
                ]),
            ),
            (json!(["echo s3cret"]), json!(["<redacted>"])),
            (json!([]), json!([])),
            (json!("s3cret"), json!("<redacted>")),
        ] {
            assert_eq!(redact_command(command.clone()), expected, "{command}");
        }
        assert_eq!(
            redact_arguments(json!(["s3cret", "--v=2"])),
            json!(["<redacted>", "--v=2"])
        );
    }
}
