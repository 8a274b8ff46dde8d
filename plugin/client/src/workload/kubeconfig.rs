//! Creates a client for the workload cluster, from the kubeconfig in Cluster API's Secret.
//!
//! The user of this program does not necessarily trust everyone who can write the Secret, so this module rejects a kubeconfig
//! that refers to local files or programs.

use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use thiserror::Error;

use crate::ConnectionFlags;
use crate::workload::{ComponentTls, ServingCertificate, response_limit::limit_responses};
use crate::{
    ServerClock,
    kubeconfig::{KubeconfigFault, fault, select, skip_system_cas},
    proxy::{Environment, proxy_for},
    redact_url,
};

/// The maximum size of a kubeconfig: the API server's limit for a value of a Secret.
const MAX_KUBECONFIG_BYTES: usize = 1024 * 1024;

#[derive(Debug, Error, PartialEq, Eq)]
#[error("cannot use the kubeconfig in key {key:?} of Secret {secret}: {fault}")]
pub struct KubeconfigError {
    /// The Secret that contains the kubeconfig, as `namespace/name`.
    pub secret: String,
    pub key: String,
    pub fault: KubeconfigFault,
}

#[derive(Clone)]
pub struct ApiServer {
    /// The client, which enforces [`ResponseLimit`](crate::workload::ResponseLimit).
    pub client: Client,
    /// The server's URL, as `https://host:port`, without secrets.
    pub url: String,
    pub certificate: ServingCertificate,
    /// The API server's clock, from the dates of its responses to `client`.
    pub clock: ServerClock,
    /// The TLS settings for requests to the components of the cluster.
    pub component_tls: ComponentTls,
    /// The settings in the kubeconfig that lower the security of the connection, one line for each setting.
    pub risks: Vec<String>,
}

/// The kubeconfig as JSON, which is also YAML, for another program. It refers to no local file or program. The error names the
/// Secret and its key.
pub fn portable(secret: &str, key: &str, kubeconfig: &[u8]) -> Result<Vec<u8>, KubeconfigError> {
    let json = parse(kubeconfig)
        .and_then(|kubeconfig| serde_json::to_vec(&kubeconfig).map_err(|_| KubeconfigFault::Unreadable));
    json.map_err(|fault| KubeconfigError {
        secret: secret.to_owned(),
        key: key.to_owned(),
        fault,
    })
}

/// Like [`api_server`], but returns only the client.
pub async fn client(
    secret: &str,
    key: &str,
    kubeconfig: &[u8],
    timeout: Duration,
) -> Result<Client, KubeconfigError> {
    let server = api_server(secret, key, kubeconfig, timeout).await?;
    Ok(server.client)
}

/// Returns the API server that `kubeconfig` describes. Sends no request. Requests fail if the server sends nothing for
/// `timeout`, and are never retried. If the kubeconfig is invalid, the error names the Secret and its key.
pub async fn api_server(
    secret: &str,
    key: &str,
    kubeconfig: &[u8],
    timeout: Duration,
) -> Result<ApiServer, KubeconfigError> {
    let error = |fault| KubeconfigError {
        secret: secret.to_owned(),
        key: key.to_owned(),
        fault,
    };
    let kubeconfig = parse(kubeconfig).map_err(error)?;
    let inconsistent = || error(KubeconfigFault::Inconsistent);
    let selected = select(&kubeconfig, &ConnectionFlags::default()).map_err(|_| inconsistent())?;
    // kube's own proxy from the environment is not used, because it matches `NO_PROXY` against the proxy instead of the
    // server.
    let risks = risks(&selected);
    let proxy_url = proxy_for(&selected, &Environment::from_process()).map_err(|_| inconsistent())?;
    let mut config = Config::from_custom_kubeconfig(selected, &KubeConfigOptions::default())
        .await
        .map_err(|_| inconsistent())?;
    if let Some(fault) = fault(&config) {
        return Err(error(fault));
    }
    config.proxy_url = proxy_url;
    skip_system_cas(&mut config);
    config.default_retry = false;
    config.connect_timeout = Some(timeout);
    config.read_timeout = Some(timeout);
    config.write_timeout = Some(timeout);
    let url = redact_url(&config.cluster_url);
    let certificate = ServingCertificate {
        name: config.tls_server_name.clone(),
        proxy: config.proxy_url.clone(),
        ..ServingCertificate::new(config.cluster_url.clone())
    };
    let component_tls = ComponentTls::new(&config).map_err(|_| inconsistent())?;
    let clock = ServerClock::default();
    let builder = ClientBuilder::try_from(config).map_err(|_| inconsistent())?;
    Ok(ApiServer {
        client: limit_responses(builder, &clock),
        url,
        certificate,
        clock,
        component_tls,
        risks,
    })
}

/// The settings in the kubeconfig that lower the security of the connection, one line for each setting.
fn risks(selected: &Kubeconfig) -> Vec<String> {
    let clusters = selected
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref());
    let risks = clusters.flat_map(|cluster| {
        let insecure = cluster.insecure_skip_tls_verify == Some(true);
        let insecure = insecure.then(|| {
            "insecure-skip-tls-verify is set: the API server's certificate is not verified".to_owned()
        });
        let proxy = cluster.proxy_url.as_ref().map(|url| {
            let url = url
                .parse()
                .map_or_else(|_| "an invalid URL".to_owned(), |url| redact_url(&url));
            format!("proxy-url is set: connections pass through {url}")
        });
        let server = cluster.server.as_deref().unwrap_or_default();
        let plain = server
            .to_ascii_lowercase()
            .starts_with("http://")
            .then(|| "server is an http URL: requests and their credentials are not encrypted".to_owned());
        insecure.into_iter().chain(proxy).chain(plain)
    });
    risks.collect()
}

fn parse(bytes: &[u8]) -> Result<Kubeconfig, KubeconfigFault> {
    if bytes.len() > MAX_KUBECONFIG_BYTES {
        return Err(KubeconfigFault::TooLarge);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| KubeconfigFault::Unreadable)?;
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| KubeconfigFault::Unreadable)?;
    let clusters = kubeconfig
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig
        .auth_infos
        .iter()
        .filter_map(|named| named.auth_info.as_ref());
    match clusters
        .filter_map(local_file_of_cluster)
        .chain(users.filter_map(local_reference_of_user))
        .next()
    {
        Some(outside) => Err(KubeconfigFault::Outside(outside)),
        None => Ok(kubeconfig),
    }
}

fn local_file_of_cluster(cluster: &Cluster) -> Option<&'static str> {
    cluster.certificate_authority.as_ref().map(|_| "a CA file")
}

fn local_reference_of_user(user: &AuthInfo) -> Option<&'static str> {
    [
        (user.exec.is_some(), "a program to run"),
        (user.auth_provider.is_some(), "an auth provider"),
        (user.token_file.is_some(), "a token file"),
        (user.client_certificate.is_some(), "a client certificate file"),
        (user.client_key.is_some(), "a client key file"),
    ]
    .into_iter()
    .find_map(|(named, what)| named.then_some(what))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{KubeconfigFault, MAX_KUBECONFIG_BYTES, client, parse, portable, risks};

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'{cluster}}}}}], \
             users: [{{name: u, user: {{{user}}}}}]}}"
        )
    }

    #[test]
    fn settings_that_lower_the_security_are_named() {
        let risks_of = |text: &str| risks(&parse(text.as_bytes()).expect("a kubeconfig"));
        let secure = kubeconfig("", "token: t");
        assert_eq!(risks_of(&secure), [""; 0]);
        assert_eq!(
            risks_of(&secure.replace("https:", "HTTP:")),
            ["server is an http URL: requests and their credentials are not encrypted"]
        );
        assert_eq!(
            risks_of(&kubeconfig(", insecure-skip-tls-verify: true", "token: t")),
            ["insecure-skip-tls-verify is set: the API server's certificate is not verified"]
        );
    }

    #[test]
    fn another_program_gets_the_secrets_but_no_references() {
        let text = kubeconfig(", tls-server-name: a", "token: sesame");
        let json = portable("n/s", "value", text.as_bytes()).expect("a kubeconfig");
        let parsed: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(parsed["users"][0]["user"]["token"], "sesame");
        assert_eq!(parsed["clusters"][0]["cluster"]["tls-server-name"], "a");
        assert_eq!(parsed["current-context"], "c");
        let text = kubeconfig("", "client-key: /etc/passwd");
        let refused = portable("n/s", "value", text.as_bytes());
        assert_eq!(
            refused.map_err(|error| error.fault),
            Err(KubeconfigFault::Outside("a client key file"))
        );
    }

    #[test]
    fn accepts_what_holds_everything_itself() {
        assert!(parse(kubeconfig("", "token: t").as_bytes()).is_ok());
    }

    #[test]
    fn rejects_what_leads_outside() {
        for (cluster, user, what) in [
            (", certificate-authority: /etc/passwd", "", "a CA file"),
            (
                "",
                "exec: {apiVersion: client.authentication.k8s.io/v1, command: rm}",
                "a program to run",
            ),
            ("", "auth-provider: {name: gcp, config: {}}", "an auth provider"),
            ("", "tokenFile: /etc/passwd", "a token file"),
            ("", "client-certificate: /etc/passwd", "a client certificate file"),
            ("", "client-key: /etc/passwd", "a client key file"),
        ] {
            let parsed = parse(kubeconfig(cluster, user).as_bytes());
            assert_eq!(parsed.unwrap_err(), KubeconfigFault::Outside(what));
        }
    }

    #[test]
    fn rejects_garbage() {
        for (bytes, fault) in [
            (&b"\xff\xfe"[..], KubeconfigFault::Unreadable),
            (b"[1, 2", KubeconfigFault::Unreadable),
            (&vec![b' '; MAX_KUBECONFIG_BYTES + 1], KubeconfigFault::TooLarge),
        ] {
            assert_eq!(parse(bytes).unwrap_err(), fault);
        }
    }

    #[tokio::test]
    async fn rejects_a_token_that_is_no_header_value() {
        for (token, is_valid) in [("sesame", true), ("sesame\\n", false), ("\\e[1m", false)] {
            let text = kubeconfig("", &format!("token: \"{token}\""));
            let made = client("n/s", "value", text.as_bytes(), Duration::from_secs(1)).await;
            let fault = made.err().map(|error| error.fault);
            assert_eq!(fault, (!is_valid).then_some(KubeconfigFault::Token), "{token}");
        }
    }

    #[tokio::test]
    async fn rejects_a_server_without_a_scheme_or_with_another_port() {
        let scheme = Some(KubeconfigFault::Scheme("127.0.0.1:6443".to_owned()));
        for (server, expected) in [
            ("127.0.0.1:6443", scheme),
            ("https://127.0.0.1:99999", Some(KubeconfigFault::Port)),
            ("https://127.0.0.1:0", Some(KubeconfigFault::Port)),
            ("https://user:sesame@edge:65536/path", Some(KubeconfigFault::Port)),
            ("https://[::1]", None),
            ("https://[::1]:6443", None),
            ("https://user:sesame@edge", None),
        ] {
            let text = kubeconfig("", "token: sesame").replace("https://127.0.0.1:1", server);
            let made = client("n/s", "value", text.as_bytes(), Duration::from_secs(1)).await;
            assert_eq!(made.err().map(|error| error.fault), expected, "{server}");
        }
    }

    #[tokio::test]
    async fn names_the_secret_and_the_key() {
        let made = client("team/edge-kubeconfig", "value", b"{}", Duration::from_secs(1)).await;
        assert_eq!(
            made.err().expect("nothing to connect to").to_string(),
            "cannot use the kubeconfig in key \"value\" of Secret team/edge-kubeconfig: the kubeconfig does \
             not define a usable connection; check its context, cluster and user"
        );
    }
}
