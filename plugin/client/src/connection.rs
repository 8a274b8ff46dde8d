//! The connection to a management cluster.

use std::{
    future::Future,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderValue, header::USER_AGENT};
use kcp_rules::syntax::is_dns1123_label;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{InClusterError, KubeConfigOptions, Kubeconfig},
};

use crate::ConnectionFlags;
use crate::{
    Action, Error,
    clock::{Dated, ServerClock},
    kubeconfig, proxy,
    retry::while_busy,
};

/// A server that does not complete a TCP and TLS handshake in this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// As kubectl names itself: `kubectl-kcp/VERSION (OS/ARCH)`.
fn user_agent() -> HeaderValue {
    const NAME: &str = concat!("kubectl-kcp/", env!("CARGO_PKG_VERSION"));
    let agent = format!("{NAME} ({}/{})", std::env::consts::OS, std::env::consts::ARCH);
    HeaderValue::from_str(&agent).unwrap_or_else(|_| HeaderValue::from_static(NAME))
}

/// Receives one line for each request.
pub type RequestLog = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Clone)]
pub struct Connection {
    /// For requests that [`Connection`] has no method for; put them through [`Connection::read`] or
    /// [`Connection::call`].
    pub client: Client,
    /// The namespace to work in: `-n`, else the context's, else `default`.
    pub namespace: String,
    /// The API server's URL, for messages.
    pub server: String,
    pub timeout: Option<Duration>,
    pub log: Option<RequestLog>,
    /// The server's time, from its answers.
    pub clock: ServerClock,
}

impl Connection {
    /// Finds the cluster by kubectl's rules. Nothing is sent yet.
    ///
    /// # Errors
    /// When no cluster is configured or its configuration is wrong.
    pub async fn open(flags: &ConnectionFlags, log: Option<RequestLog>) -> Result<Self, Error> {
        let mut config = match kubeconfig::load(flags.kubeconfig.as_deref(), flags.server.is_some())? {
            Some(kubeconfig) => from_kubeconfig(&kubeconfig, flags).await?,
            None => from_pod(flags)?,
        };
        // kube retries writes too by default; we retry reads only.
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = flags.request_timeout;
        config.reset_reader_on_write = true;
        let server = shown(&config.cluster_url);
        let namespace = match &flags.namespace {
            Some(namespace) => namespace.clone(),
            None => namespace_of(&config)?,
        };
        config.headers.push((USER_AGENT, user_agent()));
        let clock = ServerClock::default();
        let dated = tower::layer::layer_fn(|inner| Dated {
            inner,
            clock: clock.clone(),
        });
        let builder = ClientBuilder::try_from(config).map_err(|error| Error::client(&error, &server))?;
        let client = builder.with_layer(&dated).build();
        Ok(Self {
            clock,
            client,
            namespace,
            server,
            timeout: flags.request_timeout,
            log,
        })
    }

    /// The same with another cluster: its client, and its URL for messages.
    pub fn with(&self, client: Client, server: String) -> Self {
        Self {
            client,
            server,
            clock: ServerClock::default(),
            ..self.clone()
        }
    }

    /// Makes one request, within `--request-timeout`.
    ///
    /// # Errors
    /// Whatever went wrong, by kind.
    pub async fn call<T>(
        &self,
        action: &Action,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let outcome = match self.timeout {
            Some(timeout) => match tokio::time::timeout(timeout, request).await {
                Ok(outcome) => outcome.map_err(|error| Error::request(error, action, &self.server)),
                Err(_) => Err(Error::Timeout {
                    action: Box::new(action.clone()),
                    server: self.server.clone(),
                    after: timeout,
                }),
            },
            None => request
                .await
                .map_err(|error| Error::request(error, action, &self.server)),
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

    /// Sends a request that changes nothing, and again if the server is busy.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn read<T, F>(&self, action: &Action, mut request: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = kube::Result<T>>,
    {
        while_busy(|| self.call(action, request())).await
    }
}

/// Parses the name of a namespace.
///
/// # Errors
/// One sentence on what is wrong.
pub fn parse_namespace(text: &str) -> Result<String, String> {
    if is_dns1123_label(text.as_bytes()) {
        return Ok(text.to_owned());
    }
    Err(
        "a namespace has at most 63 lower case letters, digits and '-', and begins and ends with a letter or digit"
            .to_owned(),
    )
}

/// The context's or the pod's. It becomes a part of URLs, and nobody has looked at it yet.
fn namespace_of(config: &Config) -> Result<String, Error> {
    let namespace = &config.default_namespace;
    parse_namespace(namespace).map_err(|why| Error::Configuration {
        cause: format!("its namespace is {namespace:?}, but {why}"),
    })
}

/// A URL without what may be secret in it: a user and a password, a query.
pub fn shown(url: &http::Uri) -> String {
    let scheme = url.scheme_str().unwrap_or("https");
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let path = url.path().trim_end_matches('/');
    format!("{scheme}://{}{port}{path}", url.host().unwrap_or_default())
}

async fn from_kubeconfig(kubeconfig: &Kubeconfig, flags: &ConnectionFlags) -> Result<Config, Error> {
    let selected = kubeconfig::select(kubeconfig, flags)?;
    let proxy_url = proxy::proxy_for(&selected, &proxy::Environment::of_process())?;
    let mut config = Config::from_custom_kubeconfig(selected, &KubeConfigOptions::default())
        .await
        .map_err(|error| Error::configuration(&error))?;
    config.proxy_url = proxy_url;
    Ok(config)
}

/// The configuration of a pod, for a plugin that runs in the cluster it looks at.
fn from_pod(flags: &ConnectionFlags) -> Result<Config, Error> {
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
            Ok(config)
        }
        Err(InClusterError::ReadEnvironmentVariable(_)) => Err(Error::NoKubeconfig {
            looked_at: kubeconfig::places()
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

    use super::{namespace_of, shown, user_agent};

    #[test]
    fn a_context_cannot_lead_out_of_its_namespace() {
        let mut config = Config::new("https://s".parse().expect("a URL"));
        config.default_namespace = "team-a".to_owned();
        assert_eq!(namespace_of(&config).expect("a namespace"), "team-a");
        config.default_namespace = "..".to_owned();
        assert_eq!(
            namespace_of(&config).expect_err("none").to_string(),
            "the cluster's configuration cannot be used: its namespace is \"..\", but a namespace has at most 63 \
             lower case letters, digits and '-', and begins and ends with a letter or digit"
        );
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("https://127.0.0.1:6443", "https://127.0.0.1:6443"),
            ("https://[::1]:6443/", "https://[::1]:6443"),
            ("https://me:sesame@host/clusters/a/", "https://host/clusters/a"),
        ] {
            assert_eq!(shown(&url.parse().expect("a URL")), expected);
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
