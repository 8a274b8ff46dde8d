//! Kubeconfig files and the clients that they configure.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::pki::KeyPairFiles;

/// Ends a call that would never end. Calls take milliseconds on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The user of a kubeconfig.
#[derive(Debug)]
pub enum User<'a> {
    Certificate(&'a KeyPairFiles),
    Token(&'a str),
}

/// Writes a kubeconfig with one context.
pub fn write(path: &Path, server: &str, authority: &Path, user: &User<'_>) -> Result<()> {
    fs::write(path, text(server, authority, user)).with_context(|| format!("writing {}", path.display()))
}

/// A client for any server that speaks TLS, Kubernetes API server or not.
pub async fn client(server: &str, authority: &Path, user: &User<'_>) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(&text(server, authority, user))?;
    client_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// A client for the server that a kubeconfig names.
pub async fn client_of(path: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
    client_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// A client for plain HTTP.
pub fn plain_client(server: &str) -> Result<Client> {
    client_from(Config::new(
        server.parse().with_context(|| format!("parsing {server}"))?,
    ))
}

fn client_from(mut config: Config) -> Result<Client> {
    config.connect_timeout = Some(TIMEOUT);
    config.read_timeout = Some(TIMEOUT);
    // Without this, the read timeout also counts the time that a connection was idle.
    config.reset_reader_on_write = true;
    // A test must see each answer of the server.
    config.default_retry = false;
    config.proxy_url = None;
    Client::try_from(config).context("making a client")
}

fn text(server: &str, authority: &Path, user: &User<'_>) -> String {
    let user = match user {
        User::Certificate(files) => format!(
            "client-certificate: {}\n    client-key: {}",
            files.certificate.display(),
            files.key.display()
        ),
        User::Token(token) => format!("token: {token}"),
    };
    format!(
        "\
apiVersion: v1
kind: Config
current-context: test
clusters:
- name: test
  cluster:
    server: {server}
    certificate-authority: {}
users:
- name: test
  user:
    {user}
contexts:
- name: test
  context:
    cluster: test
    user: test
",
        authority.display()
    )
}
