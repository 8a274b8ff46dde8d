//! Command-line arguments.

use std::{
    io::{self, IsTerminal},
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use kcp_rules::{anchor, api_proxy};
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Admission webhook for Cluster API control planes and Hive cluster pools.
#[derive(Debug, Parser)]
#[command(name = "kcp-webhook", version, disable_help_subcommand = true)]
pub struct Arguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands of `kcp-webhook`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the admission webhooks over TLS.
    Serve(ServeArguments),
    /// Check a configuration file. Exit code 0: the file has no problem; 1: the file cannot be used, contains unknown
    /// rule ids, or has exemptions that have ended; 2: the file cannot be read.
    CheckConfiguration(CheckConfigurationArguments),
    /// Create and renew the certificates of the webhook, and register it with the API server.
    Manage(ManageArguments),
    /// Run the webhook as a static Pod beside the API server of a control plane node.
    Anchor(AnchorArguments),
    /// Rewrite the list of API servers in the configuration of the local proxy of a node.
    ApiProxy(ApiProxyArguments),
    /// Resolve names and call the API server from this Pod, and print a report as JSON. Exit code 1: a name was not resolved, or
    /// the API server did not respond.
    Probe(ProbeArguments),
    /// Manage certificates for development.
    #[command(subcommand)]
    Certs(CertsCommand),
}

/// `kcp-webhook serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArguments {
    /// IP address to listen on. 0.0.0.0 and :: both listen on all IPv4 and IPv6 addresses.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub bind_address: IpAddr,

    /// Port for /mutate and /validate, with TLS. 0 picks a free port and logs it.
    #[arg(long, value_name = "PORT", default_value_t = 9443)]
    pub secure_port: u16,

    /// Port for /livez, /readyz and /metrics, without TLS. 0 picks a free port and logs it.
    #[arg(long, value_name = "PORT", default_value_t = 8081)]
    pub health_port: u16,

    /// PEM file with the serving certificate and its intermediates. Reloaded when it changes.
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: PathBuf,

    /// PEM file with the private key of the serving certificate. Reloaded when it changes.
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: PathBuf,

    /// PEM file with the certificate authorities of the API server's client certificate. Reloaded when it
    /// changes. The webhook still reviews the writes of a client without such a certificate, but reads no
    /// objects from the API server for these reviews. Without this flag, the webhook reads objects for the
    /// writes of every client that reaches the port.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// Names of the API server, separated by commas. A client certificate counts as the API server's if its common name or one of
    /// its DNS names is listed. A client with another certificate cannot connect. Without this flag, every certificate that a CA
    /// in --client-ca-file has signed counts as the API server's.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "client_ca_file"
    )]
    pub client_allowed_names: Vec<String>,

    /// How often to check the certificate, key and client CA files for changes.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub tls_reload_interval: Duration,

    /// Kubeconfig for the API server. Defaults to the pod's service account. Without either, the webhook refuses every write
    /// to the scale subresource, because the webhook must read the control plane to check such a write.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// YAML file with an AdmissionConfiguration, which sets the action of each rule and exempts writes. Reloaded when it
    /// changes. If the file cannot be used, kcp-webhook logs an error and keeps the previous configuration; at startup, every
    /// rule uses its default action. `kcp-webhook check-configuration` checks the file, and `kubectl kcp lint
    /// --configuration` also reads it.
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,

    /// How long to keep serving after SIGTERM while /readyz fails, so that clients switch to another replica.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub shutdown_delay: Duration,

    /// How long to wait for reviews in progress after the shutdown delay.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration)]
    pub drain_timeout: Duration,

    #[command(flatten)]
    pub log: LogArguments,
}

/// `kcp-webhook manage`.
///
/// Runs beside the servers, in a Deployment of its own. Creates a CA and a serving certificate in Secrets, and renews
/// both. Registers the webhook once it has passed a self-test through its Service, and updates the registration when the
/// CA changes or a new version has other webhooks. Several managers can run: they make the same changes.
#[derive(Clone, Debug, Args)]
pub struct ManageArguments {
    /// Namespace of the Service, the Pods and the Secrets.
    #[arg(long, value_name = "NAME", default_value = "kcp-webhook-system")]
    pub namespace: String,

    /// How long the API servers must trust a new CA before it signs a serving certificate. After that, the API servers still
    /// trust the old CA for at least this time.
    // API servers watch webhook configurations and usually see a change within a second. A kubelet refreshes a mounted Secret
    // every one to two minutes: its `syncFrequency` of a minute, and the delay of its cache.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub ca_trust_delay: Duration,

    /// How long the webhook must pass its self-test before the manager registers it for the first time.
    // The self-test uses the rules of kube-proxy on the manager's node. On the node of an API server, kube-proxy may route to new
    // Pods later: usually within a second, on a busy node within a few.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub registration_delay: Duration,

    /// Let each API server call the static Pod on its own node. The API servers call the Service until `kcp-webhook anchor` runs
    /// such a Pod on the node of every API server, and again when the DaemonSet of the anchors is deleted. With this flag, the
    /// serving certificate is also valid for 127.0.0.1.
    #[arg(long)]
    pub anchors: bool,

    /// Name of the DaemonSet of the anchors.
    #[arg(long, value_name = "NAME", default_value = anchor::ANCHOR)]
    pub anchor_daemon_set: String,

    /// Port on 127.0.0.1 on which the static Pods serve reviews.
    #[arg(long, value_name = "PORT", default_value_t = anchor::PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub anchor_port: u16,

    #[command(flatten)]
    pub reconciler: ReconcilerArguments,
}

/// `kcp-webhook anchor`.
///
/// Runs in a DaemonSet on the control plane nodes, and writes the certificates and the manifest of a static Pod to the node. The
/// API server of the node calls the static Pod at 127.0.0.1, so that a power failure, a broken network or a missing Service
/// does not stop admission. An anchor that ends leaves the files on the node. If the node loses the labels that the DaemonSet
/// selects, or the Node or the DaemonSet is deleted, the anchor removes the files once no API server calls the static Pod.
#[derive(Clone, Debug, Args)]
pub struct AnchorArguments {
    /// Namespace of the DaemonSet, the Secrets and the static Pod.
    #[arg(long, value_name = "NAME", default_value = "kcp-webhook-system")]
    pub namespace: String,

    /// Name of the Node.
    #[arg(long, value_name = "NAME")]
    pub node_name: String,

    /// Name of the Pod in which this process runs. The static Pod uses the image of that Pod's first container.
    #[arg(long, value_name = "NAME")]
    pub pod_name: String,

    /// Name of the DaemonSet that runs this Pod.
    #[arg(long, value_name = "NAME", default_value = anchor::ANCHOR)]
    pub daemon_set: String,

    /// Folder with ca.crt, tls.crt and tls.key: the mounted Secret kcp-webhook-tls.
    #[arg(long, value_name = "DIR", default_value = "/etc/kcp-webhook/tls")]
    pub tls_folder: PathBuf,

    /// YAML file with an AdmissionConfiguration for the static Pod. The file need not exist.
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,

    /// Folder from which the kubelet of the node runs static Pods.
    #[arg(long, value_name = "DIR", default_value = anchor::MANIFEST_FOLDER)]
    pub manifest_folder: PathBuf,

    /// Folder for the files of the static Pod. On the node, its path is /etc/kubernetes/kcp-webhook.
    #[arg(long, value_name = "DIR", default_value = anchor::FOLDER)]
    pub folder: PathBuf,

    /// Folder from which the API server of the node loads webhook configurations, from Kubernetes 1.36 on. On the node, its path is
    /// /etc/kubernetes/kcp-webhook-admission. The anchor writes the configurations to the subfolders that exist. Without this flag,
    /// the anchor writes none.
    #[arg(long, value_name = "DIR")]
    pub admission_folder: Option<PathBuf>,

    /// Port on 127.0.0.1 on which the static Pod serves reviews.
    #[arg(long, value_name = "PORT", default_value_t = anchor::PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// Port on 127.0.0.1 on which the static Pod serves probes and metrics.
    #[arg(long, value_name = "PORT", default_value_t = anchor::HEALTH_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub health_port: u16,

    /// Port of the API server of the node.
    #[arg(long, value_name = "PORT", default_value_t = anchor::API_SERVER_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub api_server_port: u16,

    /// One more argument of `kcp-webhook serve` in the static Pod, such as --serve-argument=--log-format=json. Repeatable.
    #[arg(long = "serve-argument", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub serve_arguments: Vec<String>,

    /// After SIGTERM, how long to wait for the API servers to stop calling a static Pod whose files must be removed. After this
    /// time, the files stay.
    #[arg(long, value_name = "DURATION", default_value = "110s", value_parser = duration)]
    pub removal_timeout: Duration,

    #[command(flatten)]
    pub reconciler: ReconcilerArguments,
}

/// `kcp-webhook api-proxy`.
///
/// Runs in a DaemonSet on the nodes with the files that `kubectl kcp generate api-proxy` prints. HAProxy loads a new list of API
/// servers without closing connections.
#[derive(Clone, Debug, Args)]
pub struct ApiProxyArguments {
    /// Folder with haproxy.cfg and the socket of HAProxy. On the node, its path is /etc/kubernetes/kcp-api-proxy.
    #[arg(long, value_name = "DIR", default_value = api_proxy::FOLDER)]
    pub folder: PathBuf,

    #[command(flatten)]
    pub reconciler: ReconcilerArguments,
}

/// `kcp-webhook check-configuration`.
#[derive(Clone, Debug, Args)]
pub struct CheckConfigurationArguments {
    /// YAML file with an AdmissionConfiguration.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `kcp-webhook probe`.
///
/// `kubectl kcp validate` runs it in a Pod on each Node.
#[derive(Clone, Debug, Args)]
pub struct ProbeArguments {
    /// Text that the report repeats, so that the report of another Pod does not count.
    #[arg(long, value_name = "TEXT")]
    pub nonce: String,

    /// Name to resolve. Repeatable.
    #[arg(long = "name", value_name = "NAME", default_value = "kubernetes.default.svc")]
    pub names: Vec<String>,

    /// Kubeconfig for the API server. Defaults to the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Time limit for each name, and for the response of the API server.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,
}

/// Options of `manage`, `anchor` and `api-proxy`.
#[derive(Clone, Debug, Args)]
pub struct ReconcilerArguments {
    /// Kubeconfig for the API server. Defaults to the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// How often to compare what exists with what should exist.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub interval: Duration,

    #[command(flatten)]
    pub log: LogArguments,
}

/// Options of the log.
#[derive(Clone, Debug, Args)]
pub struct LogArguments {
    /// Format of the log on stderr.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Log level: error, warn, info, debug or trace. Can be set per module: `warn,kcp_webhook=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: Targets,
}

impl LogArguments {
    /// Starts logging for the rest of the process.
    ///
    /// Uses `Targets` instead of `EnvFilter`, whose regular expressions take a megabyte.
    pub fn init(&self) {
        let registry = tracing_subscriber::registry().with(self.log_level.clone());
        // Fails only if logging was started before.
        _ = match self.log_format {
            LogFormat::Text => registry
                .with(
                    fmt::layer()
                        .with_writer(io::stderr)
                        .with_ansi(io::stderr().is_terminal()),
                )
                .try_init(),
            LogFormat::Json => registry
                .with(
                    fmt::layer()
                        .json()
                        .flatten_event(true)
                        .with_current_span(false)
                        .with_span_list(false)
                        .with_writer(io::stderr),
                )
                .try_init(),
        };
    }
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
}

/// `kcp-webhook certs`.
#[derive(Debug, Subcommand)]
pub enum CertsCommand {
    /// Create a certificate authority and a serving certificate.
    Issue(IssueArguments),
}

/// `kcp-webhook certs issue`: writes ca.crt, tls.crt and tls.key.
///
/// For development only: in production, let cert-manager or `kcp-webhook manage` issue and renew certificates. The command
/// discards the private key of the authority. So every new certificate comes with a new ca.crt, which you must set as the
/// caBundle of the webhook configurations.
#[derive(Clone, Debug, Args)]
pub struct IssueArguments {
    /// Directory to write to. Created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,

    /// DNS name in the certificate, such as `kcp-webhook.kcp-system.svc`. Repeatable.
    #[arg(long = "dns-name", value_name = "NAME", required_unless_present = "ips")]
    pub dns_names: Vec<String>,

    /// IP address in the certificate. Repeatable.
    #[arg(long = "ip", value_name = "IP")]
    pub ips: Vec<IpAddr>,

    /// Validity of both certificates, in days.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub days: u16,

    /// Overwrite existing files.
    #[arg(long)]
    pub force: bool,
}

/// Parses a duration such as `1.5s`, `500ms` or `2m`.
fn duration(text: &str) -> Result<Duration, String> {
    let explain =
        |error: jiff::Error| format!("{error}; write a number with a unit, such as 500ms, 5s or 2m");
    let signed: jiff::SignedDuration = text.parse().map_err(explain)?;
    Duration::try_from(signed).map_err(explain)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_reference_lists_every_flag_of_serve() {
        let page = include_str!("../../docs/src/reference/configuration.md");
        let command = Arguments::command();
        let serve = command.find_subcommand("serve").expect("serve");
        let missing: Vec<_> = serve
            .get_arguments()
            .filter_map(|argument| argument.get_long())
            .filter(|flag| !page.contains(&format!("`--{flag}`")))
            .collect();
        assert_eq!(missing, Vec::<&str>::new());
    }

    #[test]
    fn accepts_durations_with_units() {
        for (text, expected) in [
            ("0s", Duration::ZERO),
            ("250ms", Duration::from_millis(250)),
            ("5s", Duration::from_secs(5)),
            ("1m30s", Duration::from_secs(90)),
        ] {
            assert_eq!(duration(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn rejects_durations_without_unit_or_below_zero() {
        for text in ["", "5", "-1s", "soon"] {
            let error = duration(text).expect_err(text);
            assert!(
                error.ends_with("write a number with a unit, such as 500ms, 5s or 2m"),
                "{error}"
            );
        }
    }

    #[test]
    fn rejects_a_certificate_without_a_name() {
        let error = Arguments::try_parse_from(["kcp-webhook", "certs", "issue", "--dir", "d"]).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::MissingRequiredArgument);
    }
}
