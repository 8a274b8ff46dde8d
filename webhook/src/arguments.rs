//! The command line.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::filter::Targets;

/// Admission webhook for Cluster API control planes and Hive cluster pools.
#[derive(Debug, Parser)]
#[command(name = "kcp-webhook", version, disable_help_subcommand = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve admission reviews over TLS.
    Serve(ServeArguments),
    /// Certificates for development.
    #[command(subcommand)]
    Certs(CertsCommand),
}

/// `kcp-webhook serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArguments {
    /// Address to listen on. 0.0.0.0 and :: both mean all addresses of both families.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub bind_address: IpAddr,

    /// Port of /mutate and /validate, TLS. 0 takes a free one and logs which.
    #[arg(long, value_name = "PORT", default_value_t = 9443)]
    pub secure_port: u16,

    /// Port of /livez, /readyz and /metrics, plain HTTP. 0 takes a free one and logs which.
    #[arg(long, value_name = "PORT", default_value_t = 8081)]
    pub health_port: u16,

    /// PEM file with the serving certificate and its intermediates. Read again when its content changes.
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: PathBuf,

    /// PEM file with the private key of the serving certificate. Read again when its content changes.
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: PathBuf,

    /// How often the two files are looked at.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub tls_reload_interval: Duration,

    /// How to reach the API server. Without it, the pod's service account is used where there is one; without
    /// either, writes to the scale subresource are refused, for they are judged on an object that must be read.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// What follows from each rule: an AdmissionConfiguration in YAML. Read again when its content changes; one that
    /// cannot be used leaves the last good one in force. `kubectl kcp lint --configuration` takes it too.
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,

    /// After a signal, how long to go on serving while /readyz already fails, so that clients learn of it first.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub shutdown_delay: Duration,

    /// After that, how long reviews that have begun may take to end.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration)]
    pub drain_timeout: Duration,

    /// How logs are written to stderr.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// error, warn, info, debug or trace, for all or per module: `warn,kcp_webhook=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: Targets,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `kcp-webhook certs`.
#[derive(Debug, Subcommand)]
pub enum CertsCommand {
    /// Make a certificate authority and a serving certificate.
    Issue(IssueArguments),
}

/// `kcp-webhook certs issue`: writes ca.crt, tls.crt and tls.key.
///
/// For development; in production let cert-manager issue and renew. The authority's own key is thrown away as soon
/// as it has signed: nothing else can ever be signed with it, and a new certificate means a new ca.crt, to be put
/// into the webhook configurations' caBundle.
#[derive(Clone, Debug, Args)]
pub struct IssueArguments {
    /// Folder to write to; made if it is missing.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,

    /// A DNS name to serve, as in `kcp-webhook.kcp-system.svc`. May be repeated.
    #[arg(long = "dns-name", value_name = "NAME", required_unless_present = "ips")]
    pub dns_names: Vec<String>,

    /// An IP address to serve. May be repeated.
    #[arg(long = "ip", value_name = "IP")]
    pub ips: Vec<IpAddr>,

    /// Days that both certificates are valid.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub days: u16,

    /// Replace files that are there.
    #[arg(long)]
    pub force: bool,
}

/// `1.5s`, `500ms`, `2m`.
fn duration(text: &str) -> Result<Duration, String> {
    let explain = |error: jiff::Error| format!("{error}; write a number and its unit: 500ms, 5s, 2m");
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
                error.ends_with("write a number and its unit: 500ms, 5s, 2m"),
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
