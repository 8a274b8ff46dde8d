//! The connection to a management cluster.

use std::{
    future::Future,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderValue, header::USER_AGENT};
use jiff::Timestamp;
use kcp_rules::syntax::is_dns1123_label;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{InClusterError, KubeConfigOptions, Kubeconfig},
};

use crate::ConnectionFlags;
use crate::{
    Action, Error,
    clock::{DateRecorder, ServerClock},
    kubeconfig, proxy,
    retry::retry_while_busy,
};

/// The time limit for the TCP and TLS handshakes with the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The user agent in kubectl's format: `kubectl-kcp/VERSION (OS/ARCH)`.
fn user_agent() -> HeaderValue {
    const NAME: &str = concat!("kubectl-kcp/", env!("CARGO_PKG_VERSION"));
    let agent = format!("{NAME} ({}/{})", std::env::consts::OS, std::env::consts::ARCH);
    HeaderValue::from_str(&agent).unwrap_or_else(|_| HeaderValue::from_static(NAME))
}

/// A function that the connection calls with one line for each request, for `-v`.
pub type RequestLog = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Clone)]
pub struct Connection {
    /// The client for requests that have no method in this type. Wrap them in [`Connection::read`] or [`Connection::call`].
    pub client: Client,
    /// The namespace from the flag `-n`, or else from the kubeconfig context, or else `default`.
    pub namespace: String,
    /// The API server's URL without secrets, for messages.
    pub server: String,
    /// The proxy's URL without secrets, for messages. `None` if the connection needs no proxy.
    pub proxy: Option<String>,
    /// The name of the kubeconfig context. `None` if only flags or a service account select the cluster.
    pub context: Option<String>,
    pub timeout: Option<Duration>,
    pub log: Option<RequestLog>,
    /// The API server's clock, from the dates of its responses.
    pub clock: ServerClock,
    /// The beginning of a kubectl command for this cluster, to which a message appends the arguments of kubectl.
    pub kubectl: String,
}

impl Connection {
    /// Selects the cluster as kubectl does. Sends no request.
    pub async fn open(flags: &ConnectionFlags, log: Option<RequestLog>) -> Result<Self, Error> {
        let mut context = flags.context.clone();
        let mut config = match kubeconfig::load(flags.kubeconfig.as_deref(), flags.server.is_some())? {
            Some(kubeconfig) => {
                context = context.or_else(|| kubeconfig.current_context.clone());
                config_from_kubeconfig(&kubeconfig, flags).await?
            }
            None => config_from_service_account(flags)?,
        };
        // kube's default retry would also resend writes, but only reads may be retried.
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = flags.request_timeout;
        config.reset_reader_on_write = true;
        let server = redact_url(&config.cluster_url);
        let proxy = config.proxy_url.as_ref().map(redact_url);
        let plugin = config.auth_info.exec.as_ref();
        let plugin = plugin.and_then(|plugin| plugin.command.clone());
        let namespace = match &flags.namespace {
            Some(namespace) => namespace.clone(),
            None => default_namespace(&config)?,
        };
        if let Some(fault) = kubeconfig::fault(&config) {
            return Err(Error::Configuration {
                cause: fault.to_string(),
            });
        }
        config.headers.push((USER_AGENT, user_agent()));
        let clock = ServerClock::default();
        let dated = tower::layer::layer_fn(|inner| DateRecorder {
            inner,
            clock: clock.clone(),
        });
        let builder = ClientBuilder::try_from(config)
            .map_err(|error| Error::from_client_error(&error, &server, plugin.as_deref()))?;
        let client = builder.with_layer(&dated).build();
        Ok(Self {
            clock,
            client,
            namespace,
            server,
            proxy,
            context: context.filter(|name| !name.is_empty()),
            timeout: flags.request_timeout,
            log,
            kubectl: "kubectl".to_owned(),
        })
    }

    /// Returns a connection to another cluster with the same settings, but without a context. `kubectl` is the command
    /// that runs kubectl against that cluster, such as `kubectl kcp kubectl edge --`.
    pub fn with_client(&self, client: Client, server: String, kubectl: String) -> Self {
        Self {
            client,
            server,
            kubectl,
            proxy: None,
            context: None,
            clock: ServerClock::default(),
            ..self.clone()
        }
    }

    /// Describes the namespace, and the context or the server, for a confirmation prompt.
    pub fn describe_target(&self) -> String {
        let cluster = match &self.context {
            Some(context) => format!("context {context}"),
            None => format!("cluster {}", self.server),
        };
        format!("in namespace {} of {cluster}", self.namespace)
    }

    /// The API server's time, or this machine's time until the API server has responded.
    pub fn now(&self) -> Timestamp {
        self.clock.now().map_or_else(Timestamp::now, |time| time.earliest)
    }

    /// Sends one request with the time limit of `--request-timeout`.
    pub async fn call<T>(
        &self,
        action: &Action,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let failed = |error| match Error::from_request_error(error, action, &self.server) {
            Error::Forbidden { action, user, .. } => Error::Forbidden {
                action,
                user,
                kubectl: self.kubectl.clone(),
            },
            Error::Unreachable { server, cause, .. } => Error::Unreachable {
                server,
                proxy: self.proxy.clone(),
                cause,
            },
            error => error,
        };
        let outcome = match self.timeout {
            Some(timeout) => match tokio::time::timeout(timeout, request).await {
                Ok(outcome) => outcome.map_err(failed),
                Err(_) => Err(Error::Timeout {
                    action: Box::new(action.clone()),
                    server: self.server.clone(),
                    after: timeout,
                }),
            },
            None => request.await.map_err(failed),
        };
        if let Some(log) = &self.log {
            let result = match &outcome {
                Ok(_) => "ok".to_owned(),
                Err(error) => error.to_string(),
            };
            let elapsed = started.elapsed().as_millis();
            log(&format!("{action}: {result} ({elapsed} ms)"));
        }
        outcome
    }

    /// Sends a read request, and retries it while the server is busy.
    pub async fn read<T, F>(&self, action: &Action, mut request: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = kube::Result<T>>,
    {
        retry_while_busy(|| self.call(action, request())).await
    }
}

/// Checks that a text is a valid name of a namespace, and returns it. The error says how a name must be formed.
pub fn parse_namespace(text: &str) -> Result<String, String> {
    if is_dns1123_label(text.as_bytes()) {
        return Ok(text.to_owned());
    }
    Err(
        "a namespace must be at most 63 characters long, contain only lowercase letters, digits and '-', and begin and end \
         with a letter or digit"
            .to_owned(),
    )
}

/// The namespace of the kubeconfig context or of the pod. It is validated because it becomes part of URLs.
fn default_namespace(config: &Config) -> Result<String, Error> {
    let namespace = &config.default_namespace;
    parse_namespace(namespace).map_err(|why| Error::Configuration {
        cause: format!("invalid namespace {namespace:?}: {why}"),
    })
}

/// Returns a URL without user, password and query, which may be secret.
pub fn redact_url(url: &http::Uri) -> String {
    let scheme = url.scheme_str().unwrap_or("https");
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let path = url.path().trim_end_matches('/');
    format!("{scheme}://{}{port}{path}", url.host().unwrap_or_default())
}

async fn config_from_kubeconfig(kubeconfig: &Kubeconfig, flags: &ConnectionFlags) -> Result<Config, Error> {
    let selected = kubeconfig::select(kubeconfig, flags)?;
    let proxy_url = proxy::proxy_for(&selected, &proxy::Environment::from_process())?;
    let mut config = Config::from_custom_kubeconfig(selected, &KubeConfigOptions::default())
        .await
        .map_err(|error| Error::configuration(&error))?;
    config.proxy_url = proxy_url;
    kubeconfig::skip_system_cas(&mut config);
    Ok(config)
}

/// Returns the configuration for a plugin that runs in a pod: the pod's service account, and the flags.
fn config_from_service_account(flags: &ConnectionFlags) -> Result<Config, Error> {
    match Config::incluster() {
        Ok(mut config) => {
            if let Some(token) = &flags.token {
                config.auth_info.token = Some(token.expose().to_owned().into());
                config.auth_info.token_file = None;
            }
            config.auth_info.impersonate.clone_from(&flags.impersonate);
            config
                .auth_info
                .impersonate_uid
                .clone_from(&flags.impersonate_uid);
            if !flags.impersonate_groups.is_empty() {
                config.auth_info.impersonate_groups = Some(flags.impersonate_groups.clone());
            }
            config.auth_info.impersonate_user_extra = flags.extra();
            Ok(config)
        }
        Err(InClusterError::ReadEnvironmentVariable(_)) => Err(Error::NoKubeconfig {
            looked_at: kubeconfig::files()
                .iter()
                .map(PathBuf::as_path)
                .map(|path| path.display().to_string())
                .collect(),
        }),
        Err(error) => Err(Error::Pod {
            cause: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use kube::Config;

    use super::{default_namespace, redact_url, user_agent};

    #[test]
    fn a_context_cannot_lead_out_of_its_namespace() {
        let mut config = Config::new("https://s".parse().expect("a URL"));
        config.default_namespace = "team-a".to_owned();
        assert_eq!(default_namespace(&config).expect("a namespace"), "team-a");
        config.default_namespace = "..".to_owned();
        assert_eq!(
            default_namespace(&config).expect_err("none").to_string(),
            "invalid cluster configuration: invalid namespace \"..\": a namespace must be at most 63 characters long, contain only lowercase letters, digits and '-', and begin and end with a letter or digit"
        );
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("https://127.0.0.1:6443", "https://127.0.0.1:6443"),
            ("https://[::1]:6443/", "https://[::1]:6443"),
            ("https://me:sesame@host/clusters/a/", "https://host/clusters/a"),
        ] {
            assert_eq!(redact_url(&url.parse().expect("a URL")), expected);
        }
    }

    #[test]
    fn requests_name_the_program_its_version_and_the_platform() {
        let agent = user_agent();
        let agent = agent.to_str().expect("text");
        let version = env!("CARGO_PKG_VERSION");
        let platform = format!("({}/{})", std::env::consts::OS, std::env::consts::ARCH);
        assert_eq!(agent, format!("kubectl-kcp/{version} {platform}"));
    }
}
