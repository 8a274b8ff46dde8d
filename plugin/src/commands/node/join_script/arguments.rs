//! Arguments of `kubectl kcp node join-script`. Every value becomes part of a script, so only known-good text is accepted.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use kcp_control_plane::duration::parse_duration;
use kcp_rules::syntax::may_kubelet_set;
use kcp_rules::syntax::{key_fault, label_value_fault};

use crate::{
    arguments::{self, parse_node, parse_timeout},
    commands::{generate::ProxyArguments, node::etcd_files::EtcdFiles},
    output::{OutputFormat, OutputFormats},
};

/// The longest lifetime of a token.
const MAX_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The maximum length of a URL or a path.
const MAX_TEXT: usize = 2000;

/// The maximum length of the value of a label.
const MAX_NAME: usize = 63;

#[derive(Debug, Args)]
#[command(
    after_help = "The script contains a bootstrap token: anyone who reads it can join hosts until the token expires. Its \
        expiry is printed on stderr. To revoke it, delete the Secret bootstrap-token-ID in kube-system.

Examples:
  kubectl kcp node join-script --hostname worker-7 --output-file join.sh
  kubectl kcp node join-script --labels rack=r1,pool=batch --taints dedicated=batch:NoSchedule --output-file join.sh
  kubectl kcp node join-script --hostname worker-7 -o cloud-init --output-file user-data
  kubectl kcp node join-script --api-proxy --proxy-image registry.example.com/haproxy:3.2 --output-file join.sh
  kubectl kcp node join-script --install kubelet=https://example.com/kubelet,sha256=\
0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)]
#[command(mut_arg("etcd_ca", |ca| ca.requires("control_plane")))]
#[command(mut_arg("image", |image| image.requires("api_proxy")))]
#[command(mut_arg("port", |port| port.requires("api_proxy")))]
#[command(mut_arg("health_port", |port| port.requires("api_proxy")))]
pub struct JoinScriptArguments {
    /// How long the token is valid, at most 168h
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl, default_value = "1h")]
    pub ttl: Duration,

    /// Name that the host must have, and that no Node may have yet [default: any]
    #[arg(long, value_name = "NAME", value_parser = parse_host_name)]
    pub hostname: Option<String>,

    /// Labels with which the kubelet registers its Node, as KEY=VALUE
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = parse_label, value_delimiter = ',')]
    pub labels: Vec<Label>,

    /// Taints with which the kubelet registers its Node, as KEY[=VALUE]:EFFECT
    #[arg(long, value_name = "KEY=VALUE:EFFECT,...", value_parser = parse_taint, value_delimiter = ',')]
    pub taints: Vec<Taint>,

    /// Socket of the container runtime, such as that of containerd [default: the only one]
    #[arg(long, value_name = "unix:///PATH", value_parser = parse_socket)]
    pub cri_socket: Option<String>,

    /// Download and install kubelet, kubeadm, unit (kubelet.service) or drop-in (10-kubeadm.conf); may be repeated
    #[arg(long, value_name = "NAME=URL,sha256=HEX", value_parser = parse_download)]
    pub install: Vec<Download>,

    /// Errors of kubeadm's preflight to ignore, such as Swap
    #[arg(long, value_name = "NAME,...", value_parser = parse_error_name, value_delimiter = ',')]
    pub ignore_preflight_errors: Vec<String>,

    /// How long the script waits until the Node is Ready
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "5m")]
    pub ready_timeout: Duration,

    /// Join the host as a member of the control plane; refused if Cluster API manages the Machines of the control plane
    #[arg(long, requires = "certificate_key_file")]
    pub control_plane: bool,

    /// File with the key that `kubeadm init phase upload-certs --upload-certs` printed, or - for stdin
    #[arg(long, value_name = "FILE", requires = "control_plane")]
    pub certificate_key_file: Option<PathBuf>,

    #[command(flatten)]
    pub etcd: EtcdFiles,

    /// On the host, run HAProxy in front of all API servers, and let the kubelet use it instead of the load balancer
    #[arg(long)]
    pub api_proxy: bool,

    #[command(flatten)]
    pub proxy: ProxyArguments,

    /// Create this file with mode 0600, instead of printing the script
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,

    /// Format of the script; or, with --output-file, of a summary without secrets [default: script]
    #[arg(short, long, value_name = "FORMAT", value_parser = OutputFormats::JOIN_SCRIPT)]
    pub output: Option<OutputFormat>,

    /// Print tables without their header lines
    #[arg(long)]
    pub no_headers: bool,

    /// Time limit for reading the cluster, and for waiting until it has signed cluster-info with the token
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "60s")]
    pub timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub key: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

/// A file that the script downloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    pub program: String,
    pub url: String,
    pub sha256: String,
}

fn parse_ttl(text: &str) -> Result<Duration, String> {
    let ttl = parse_duration(text)?;
    if ttl < Duration::from_secs(60) || ttl > MAX_TTL {
        return Err("expected a duration from 1m to 168h".to_owned());
    }
    Ok(ttl)
}

/// Parses the name of a host. The kubelet's label `kubernetes.io/hostname` has the name as its value, which limits its length.
fn parse_host_name(text: &str) -> Result<String, String> {
    let name = parse_node(text)?;
    if name.len() > MAX_NAME {
        return Err(format!(
            "a host name has at most {MAX_NAME} characters, because the kubelet's label kubernetes.io/hostname has the name as its \
             value"
        ));
    }
    Ok(name)
}

fn parse_label(text: &str) -> Result<Label, String> {
    let (key, value) = arguments::parse_label(text)?;
    if !may_kubelet_set(&key) {
        return Err(format!(
            "Kubernetes does not let a kubelet set {key} on its own Node; set it after the join with: kubectl label node \
             NODE KEY=VALUE"
        ));
    }
    Ok(Label { key, value })
}

fn parse_taint(text: &str) -> Result<Taint, String> {
    let (taint, effect) = text.rsplit_once(':').ok_or("expected KEY=VALUE:EFFECT")?;
    let (key, value) = taint.split_once('=').unwrap_or((taint, ""));
    if let Some(fault) = key_fault(key).or_else(|| label_value_fault(value)) {
        return Err(fault.to_owned());
    }
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Err("the effect must be NoSchedule, PreferNoSchedule or NoExecute".to_owned());
    }
    Ok(Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
    })
}

fn parse_socket(text: &str) -> Result<String, String> {
    let path = text.strip_prefix("unix://").unwrap_or_default();
    if path.starts_with('/') && is_plain(path, b"/-_.") {
        return Ok(text.to_owned());
    }
    Err("expected unix:///PATH; the path may contain letters, digits, '/', '-', '_' and '.'".to_owned())
}

fn parse_download(text: &str) -> Result<Download, String> {
    let (program, rest) = text.split_once('=').ok_or("expected NAME=URL,sha256=HEX")?;
    let (url, sha256) = rest
        .rsplit_once(",sha256=")
        .ok_or("expected NAME=URL,sha256=HEX")?;
    if !["kubelet", "kubeadm", "unit", "drop-in"].contains(&program) {
        return Err("the name must be kubelet, kubeadm, unit or drop-in".to_owned());
    }
    let host = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    if !host.is_some_and(|host| is_plain(host, b"/-_.~:[]@!$&()*+,;=%?#") && !host.contains("$(")) {
        return Err(
            "the URL must begin with https:// or http://, and contain no blanks or quotes".to_owned(),
        );
    }
    if sha256.len() != 64
        || !sha256
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    {
        return Err("the SHA-256 must have 64 digits, 0-9 and a-f".to_owned());
    }
    Ok(Download {
        program: program.to_owned(),
        url: url.to_owned(),
        sha256: sha256.to_owned(),
    })
}

fn parse_error_name(text: &str) -> Result<String, String> {
    if is_plain(text, b"-_./") {
        return Ok(text.to_owned());
    }
    Err("expected the name of an error, such as Swap".to_owned())
}

/// Whether a text has a limited length, and only letters, digits and these characters.
fn is_plain(text: &str, others: &[u8]) -> bool {
    (1..=MAX_TEXT).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::command::Arguments;

    fn accepts(flag: &str, value: &str) -> bool {
        let words = ["kubectl-kcp", "node", "join-script", flag, value];
        Arguments::try_parse_from(words).is_ok()
    }

    const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn accepts_plain_values() {
        let download = |program: &str, url: &str| format!("{program}={url},sha256={HASH}");
        for (flag, value) in [
            ("--ttl", "1m"),
            ("--ttl", "168h"),
            ("--hostname", "worker-1.example.com"),
            ("--hostname", &"a".repeat(63)),
            (
                "--labels",
                "rack=r1,example.com/pool=,node.kubernetes.io/a=b,topology.kubernetes.io/zone=z",
            ),
            ("--taints", "dedicated=batch:NoSchedule,example.com/gpu:NoExecute"),
            ("--cri-socket", "unix:///run/containerd/containerd.sock"),
            (
                "--install",
                &download("kubelet", "https://example.com:8443/a/kubelet?v=1,2"),
            ),
            ("--install", &download("drop-in", "http://[fd00::1]/conf")),
            (
                "--ignore-preflight-errors",
                "Swap,FileContent--proc-sys-net-ipv4-ip_forward",
            ),
        ] {
            assert!(accepts(flag, value), "{flag} {value}");
        }
    }

    #[test]
    fn rejects_hostile_values_in_every_field() {
        for hostile in [
            "; rm -rf /",
            "a\nb",
            "a'b",
            "a\"b",
            "$(id)",
            "`id`",
            "a b",
            "a\0b",
            "\u{202e}",
            "a\\b",
        ] {
            let embed = |before: &str, after: &str| format!("{before}{hostile}{after}");
            for (flag, value) in [
                ("--ttl", embed("", "")),
                ("--hostname", embed("", "")),
                ("--hostname", embed("worker", "1")),
                ("--labels", embed("a", "=b")),
                ("--labels", embed("a=", "")),
                ("--taints", embed("a", "=b:NoSchedule")),
                ("--taints", embed("a=", ":NoSchedule")),
                ("--taints", embed("a=b:NoSchedule", "")),
                ("--cri-socket", embed("unix:///run/a", ".sock")),
                ("--install", format!("kubelet=https://a/{hostile},sha256={HASH}")),
                ("--install", format!("kube{hostile}let=https://a/,sha256={HASH}")),
                ("--install", format!("kubelet=https://a/,sha256={hostile}{HASH}")),
                ("--ignore-preflight-errors", embed("Swap", "")),
                ("--ready-timeout", embed("5m", "")),
            ] {
                assert!(!accepts(flag, &value), "{flag} {value:?}");
            }
        }
        for (flag, value) in [
            ("--ttl", "30s"),
            ("--ttl", "169h"),
            ("--hostname", &"a".repeat(64)),
            ("--labels", "node-role.kubernetes.io/worker="),
            ("--labels", "kubernetes.io/a=b"),
            ("--taints", "a=b:Never"),
            ("--cri-socket", "/run/a.sock"),
            ("--install", "kubelet=https://a/b"),
            (
                "--install",
                "kubelet=ftp://a/b,sha256=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            ),
        ] {
            assert!(!accepts(flag, value), "{flag} {value}");
        }
    }
}
