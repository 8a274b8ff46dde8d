//! Global flags, mostly kubectl's connection flags. As in kubectl, most of them are shown only by `options`.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueEnum};
use kcp_client::{ConnectionFlags, Token};

use crate::arguments::{KubectlOnly, parse_namespace, parse_request_timeout};

/// The default of `--request-timeout`. kubectl sets no limit by default.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection (as kubectl)")]
pub struct Global {
    /// Path to the kubeconfig file
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub kubeconfig: Option<PathBuf>,

    /// Name of the kubeconfig context to use
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,

    /// Name of the kubeconfig cluster to use
    // The value is optional, because `lint --cluster` needs none.
    #[arg(long, global = true, value_name = "NAME", num_args = 0..=1, default_missing_value = "",
          hide = true)]
    pub cluster: Option<String>,

    /// Name of the kubeconfig user to use
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub user: Option<String>,

    /// Namespace to work in
    #[arg(short, long, global = true, value_name = "NAME", value_parser = parse_namespace)]
    pub namespace: Option<String>,

    /// User to impersonate; for a service account, system:serviceaccount:NAMESPACE:NAME
    #[arg(long = "as", global = true, value_name = "USER", hide = true)]
    pub impersonate: Option<String>,

    /// Group to impersonate; may be repeated
    #[arg(long = "as-group", global = true, value_name = "GROUP", action = ArgAction::Append, hide = true)]
    pub impersonate_groups: Vec<String>,

    /// UID to impersonate
    #[arg(long = "as-uid", global = true, value_name = "UID", hide = true)]
    pub impersonate_uid: Option<String>,

    /// Extra field of the user to impersonate; may be repeated
    #[arg(long = "as-user-extra", global = true, value_name = "KEY=VALUE", value_parser = parse_user_extra,
          action = ArgAction::Append, hide = true)]
    pub impersonate_extra: Vec<(String, String)>,

    /// Address and port of the API server
    #[arg(short, long, global = true, value_name = "URL", hide = true)]
    pub server: Option<String>,

    /// Bearer token for the API server
    #[arg(long, global = true, value_name = "TOKEN", hide = true)]
    pub token: Option<Token>,

    /// User name for basic authentication, which a proxy in front of the API server may ask for
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub username: Option<String>,

    /// Password for basic authentication
    #[arg(long, global = true, value_name = "PASSWORD", hide = true)]
    pub password: Option<Token>,

    /// How long one request may take, such as 30s or 2m; 0 for no limit; as in kubectl, a number without a unit is in
    /// seconds [default: 30s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = parse_request_timeout, hide = true)]
    pub request_timeout: Option<Duration>,

    /// Path to the certificate authority's certificate
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub certificate_authority: Option<PathBuf>,

    /// Path to the client certificate
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub client_certificate: Option<PathBuf>,

    /// Path to the client certificate's key
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub client_key: Option<PathBuf>,

    /// Do not verify the API server's certificate; this makes connections insecure
    // Accepts `--flag` and `--flag=false`, like Go's flag packages.
    #[arg(long, global = true, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide = true)]
    pub insecure_skip_tls_verify: Option<bool>,

    /// Server name that the API server's certificate must contain
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub tls_server_name: Option<String>,

    /// URL of the proxy for requests to the API server
    #[arg(long, global = true, value_name = "URL", hide = true)]
    pub proxy_url: Option<String>,

    /// Log level; at level 6 and above, the plugin logs requests to stderr
    #[arg(
        short = 'v',
        long = "v",
        global = true,
        value_name = "LEVEL",
        default_value_t = 0,
        hide_default_value = true,
        hide = true
    )]
    pub verbosity: u8,

    /// When to colour the output
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        help_heading = "Output",
        hide = true
    )]
    pub color: ColorWhen,

    #[command(flatten)]
    pub kubectl_only: KubectlOnly,
}

/// Parses a value of `--as-user-extra`.
fn parse_user_extra(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

impl Global {
    /// How long one request may take; `None` means no limit.
    pub fn request_timeout(&self) -> Option<Duration> {
        let timeout = self.request_timeout.unwrap_or(DEFAULT_REQUEST_TIMEOUT);
        (!timeout.is_zero()).then_some(timeout)
    }

    /// The flags that select the API server and the credentials, as kubectl has them.
    pub fn connection(&self) -> ConnectionFlags {
        ConnectionFlags {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
            namespace: self.namespace.clone(),
            impersonate: self.impersonate.clone(),
            impersonate_groups: self.impersonate_groups.clone(),
            impersonate_uid: self.impersonate_uid.clone(),
            impersonate_extra: self.impersonate_extra.clone(),
            server: self.server.clone(),
            token: self.token.clone(),
            username: self.username.clone(),
            password: self.password.clone(),
            request_timeout: self.request_timeout(),
            certificate_authority: self.certificate_authority.clone(),
            client_certificate: self.client_certificate.clone(),
            client_key: self.client_key.clone(),
            insecure_skip_tls_verify: self.insecure_skip_tls_verify,
            tls_server_name: self.tls_server_name.clone(),
            proxy_url: self.proxy_url.clone(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// Only on a terminal, unless `NO_COLOR` is set; always if `CLICOLOR_FORCE` is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{Parser, Subcommand};

    use super::{DEFAULT_REQUEST_TIMEOUT, Global};

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        global: Global,
        #[command(subcommand)]
        _command: Command,
    }

    #[derive(Subcommand)]
    enum Command {
        Status,
    }

    fn global(flags: &[&str]) -> Global {
        let arguments = ["kubectl-kcp", "status"].iter().chain(flags);
        Arguments::try_parse_from(arguments).expect("parses").global
    }

    #[test]
    fn accepts_every_flag_of_kubectl_after_the_command() {
        let flags = [
            "--kubeconfig=k",
            "--context=c",
            "--cluster=cl",
            "--user=u",
            "--as=a",
            "--as-group=g1",
            "--as-group=g2",
            "--as-uid=1",
            "--as-user-extra=reason=a=b",
            "--as-user-extra=reason=c",
            "--username=u",
            "--password=p",
            "-n=ns",
            "-s=https://s",
            "--token=t",
            "--request-timeout=5s",
            "--certificate-authority=ca",
            "--client-certificate=cc",
            "--client-key=ck",
            "--insecure-skip-tls-verify",
            "--tls-server-name=t",
            "--proxy-url=http://p",
            "-v=6",
        ];
        let global = global(&flags);
        assert_eq!(global.namespace.as_deref(), Some("ns"));
        assert_eq!(global.impersonate_groups, ["g1", "g2"]);
        let extra =
            [("reason", "a=b"), ("reason", "c")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(global.impersonate_extra, extra);
        assert_eq!(global.insecure_skip_tls_verify, Some(true));
        assert_eq!(global.verbosity, 6);
        assert_eq!(global.request_timeout(), Some(Duration::from_secs(5)));
    }

    #[test]
    fn requests_have_a_time_limit_by_default() {
        assert_eq!(global(&[]).request_timeout(), Some(DEFAULT_REQUEST_TIMEOUT));
        assert_eq!(global(&["--request-timeout=0"]).request_timeout(), None);
    }

    #[test]
    fn a_flag_that_asks_for_what_the_plugin_cannot_do_is_rejected() {
        for (flag, is_accepted) in [
            ("--cache-dir=/tmp/cache", true),
            ("--disable-compression", true),
            ("--kuberc=off", true),
            ("--log-flush-frequency=5s", true),
            ("--vmodule=a=1", true),
            ("--profile-output=p", true),
            ("--profile=none", true),
            ("--profile=cpu", false),
            ("--match-server-version=false", true),
            ("--match-server-version", false),
            ("--warnings-as-errors=false", true),
            ("--warnings-as-errors=true", false),
            ("--as-user-extra=reason", false),
        ] {
            let parsed = Arguments::try_parse_from(["kubectl-kcp", "status", flag]);
            assert_eq!(parsed.is_ok(), is_accepted, "{flag}");
        }
    }

    #[test]
    fn a_token_and_a_password_are_never_shown() {
        let shown = format!("{:?}", global(&["--token", "sesame", "--password", "sesame"]));
        assert!(!shown.contains("sesame"), "{shown}");
    }
}
