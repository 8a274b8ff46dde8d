//! Finds the kubeconfig and applies the connection flags to it, as kubectl does.

use std::path::{Path, PathBuf};

use http::HeaderValue;
use kube::Config;
use kube::config::{
    AuthInfo, Cluster, Context, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster, NamedContext,
};
use secrecy::ExposeSecret as _;

use crate::ConnectionFlags;
use crate::Error;

/// The name of the only context, cluster and user in the result of [`select`].
const ONLY_ENTRY: &str = "selected";

/// What is wrong with a kubeconfig. Messages never quote the kubeconfig.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KubeconfigFault {
    #[error("larger than 1 MiB")]
    TooLarge,
    #[error("not a valid kubeconfig")]
    Unreadable,
    /// The kubeconfig refers to something outside itself, such as a local file or program.
    #[error(
        "the kubeconfig refers to {0}, which is not allowed; embed certificates, keys and tokens in the kubeconfig"
    )]
    Outside(&'static str),
    #[error("the kubeconfig does not define a usable connection; check its context, cluster and user")]
    Inconsistent,
    #[error("the token contains characters that an HTTP header cannot contain, such as a line break")]
    Token,
    /// The value is host and port of the server, without credentials.
    #[error("the address of the server, {0}, has no scheme; write https://{0}")]
    Scheme(String),
    #[error("the port of the server is not a number from 1 to 65535")]
    Port,
}

/// Reads the kubeconfig: the file that the flag names, or else the merged files of `$KUBECONFIG`, or else `~/.kube/config`.
/// As in kubectl, skips files that do not exist, except the file that the flag names. `None` if no file exists.
pub fn load(flag: Option<&Path>, server_given: bool) -> Result<Option<Kubeconfig>, Error> {
    if let Some(path) = flag {
        return read(path).map(Some);
    }
    let mut merged: Option<Kubeconfig> = None;
    for path in files().iter().filter(|path| path.exists()) {
        let next = read(path)?;
        merged = Some(match merged {
            None => next,
            Some(first) => first
                .merge(next)
                .map_err(|error| Error::kubeconfig(path, &error))?,
        });
    }
    // With --server, the flags alone can define a connection.
    Ok(merged.or_else(|| server_given.then(Kubeconfig::default)))
}

/// The files to read if `--kubeconfig` names none: those of `$KUBECONFIG`, or else `~/.kube/config`.
pub fn files() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
        Some(list) => std::env::split_paths(&list)
            .filter(|path| !path.as_os_str().is_empty())
            .collect(),
        None => std::env::home_dir()
            .map(|home| home.join(".kube").join("config"))
            .into_iter()
            .collect(),
    }
}

fn read(path: &Path) -> Result<Kubeconfig, Error> {
    Kubeconfig::read_from(path).map_err(|error: KubeconfigError| Error::kubeconfig(path, &error))
}

/// Returns a kubeconfig with only the selected context, cluster and user, and with the flags applied.
pub fn select(kubeconfig: &Kubeconfig, flags: &ConnectionFlags) -> Result<Kubeconfig, Error> {
    let mut context = select_context(kubeconfig, flags)?;
    let mut cluster = select_cluster(kubeconfig, flags, &context)?;
    let mut user = select_user(kubeconfig, flags, &context)?;
    override_cluster(&mut cluster, flags);
    override_user(&mut user, flags);
    ONLY_ENTRY.clone_into(&mut context.cluster);
    context.user = Some(ONLY_ENTRY.to_owned());
    context.namespace = context.namespace.filter(|namespace| !namespace.is_empty());
    Ok(Kubeconfig {
        current_context: Some(ONLY_ENTRY.to_owned()),
        contexts: vec![NamedContext {
            name: ONLY_ENTRY.to_owned(),
            context: Some(context),
            ..NamedContext::default()
        }],
        clusters: vec![NamedCluster {
            name: ONLY_ENTRY.to_owned(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: ONLY_ENTRY.to_owned(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        ..Kubeconfig::default()
    })
}

fn select_context(kubeconfig: &Kubeconfig, flags: &ConnectionFlags) -> Result<Context, Error> {
    let current = kubeconfig.current_context.as_ref();
    let Some(name) = flags.context.as_ref().or(current).filter(|name| !name.is_empty()) else {
        // --server or --cluster replace the context.
        return if flags.server.is_some() || flags.cluster.is_some() {
            Ok(Context::default())
        } else {
            Err(Error::NoCurrentContext)
        };
    };
    let named = kubeconfig.contexts.iter().find(|context| context.name == *name);
    named
        .and_then(|named| named.context.clone())
        .ok_or_else(|| not_in_kubeconfig("context", name))
}

fn select_cluster(
    kubeconfig: &Kubeconfig,
    flags: &ConnectionFlags,
    context: &Context,
) -> Result<Cluster, Error> {
    let name = flags.cluster.as_ref().unwrap_or(&context.cluster);
    let named = kubeconfig.clusters.iter().find(|cluster| cluster.name == *name);
    match named.and_then(|named| named.cluster.clone()) {
        Some(cluster) => Ok(cluster),
        None if flags.cluster.is_none() && flags.server.is_some() => Ok(Cluster::default()),
        None => Err(not_in_kubeconfig("cluster", name)),
    }
}

fn select_user(
    kubeconfig: &Kubeconfig,
    flags: &ConnectionFlags,
    context: &Context,
) -> Result<AuthInfo, Error> {
    let Some(name) = flags.user.as_ref().or(context.user.as_ref()) else {
        return Ok(AuthInfo::default());
    };
    let named = kubeconfig.auth_infos.iter().find(|user| user.name == *name);
    match named.and_then(|named| named.auth_info.clone()) {
        Some(user) => Ok(user),
        None if flags.user.is_some() => Err(not_in_kubeconfig("user", name)),
        // As in kubectl, a context may name an undefined user.
        None => Ok(AuthInfo::default()),
    }
}

fn override_cluster(cluster: &mut Cluster, flags: &ConnectionFlags) {
    if let Some(server) = &flags.server {
        cluster.server = Some(server.clone());
        // The tls-server-name in the kubeconfig does not apply to the server from the flag.
        cluster.tls_server_name = None;
    }
    if let Some(name) = &flags.tls_server_name {
        cluster.tls_server_name = Some(name.clone());
    }
    if let Some(url) = &flags.proxy_url {
        cluster.proxy_url = Some(url.clone());
    }
    if let Some(insecure) = flags.insecure_skip_tls_verify {
        cluster.insecure_skip_tls_verify = Some(insecure);
    }
    if let Some(path) = &flags.certificate_authority {
        cluster.certificate_authority = Some(path.display().to_string());
        cluster.certificate_authority_data = None;
    }
}

fn override_user(user: &mut AuthInfo, flags: &ConnectionFlags) {
    if let Some(token) = &flags.token {
        user.token = Some(token.expose().to_owned().into());
        user.token_file = None;
        user.exec = None;
        user.auth_provider = None;
    }
    if let Some(name) = &flags.username {
        user.username = Some(name.clone());
    }
    if let Some(password) = &flags.password {
        user.password = Some(password.expose().to_owned().into());
    }
    if let Some(path) = &flags.client_certificate {
        user.client_certificate = Some(path.display().to_string());
        user.client_certificate_data = None;
    }
    if let Some(path) = &flags.client_key {
        user.client_key = Some(path.display().to_string());
        user.client_key_data = None;
    }
    if let Some(impersonate) = &flags.impersonate {
        user.impersonate = Some(impersonate.clone());
    }
    if let Some(uid) = &flags.impersonate_uid {
        user.impersonate_uid = Some(uid.clone());
    }
    if !flags.impersonate_groups.is_empty() {
        user.impersonate_groups = Some(flags.impersonate_groups.clone());
    }
    if let Some(extra) = flags.extra() {
        user.impersonate_user_extra = Some(extra);
    }
}

fn not_in_kubeconfig(kind: &'static str, name: &str) -> Error {
    Error::NotInKubeconfig {
        kind,
        name: name.to_owned(),
    }
}

/// Keeps kube from loading the CAs of the system if it verifies no certificate: on a machine without CAs, loading them fails.
/// kube uses the same CAs for the server and for a proxy.
pub(crate) fn skip_system_cas(config: &mut Config) {
    let is_tls = |url: &http::Uri| url.scheme_str() == Some("https");
    let connects_by_tls = is_tls(&config.cluster_url) || config.proxy_url.as_ref().is_some_and(is_tls);
    if config.root_cert.is_none() && (config.accept_invalid_certs || !connects_by_tls) {
        config.root_cert = Some(Vec::new());
    }
}

/// What kube does not check: it panics on an address without a scheme, such as `127.0.0.1:6443`, and on a token that cannot be the
/// value of an HTTP header, and it replaces a port above 65535 with the default one.
pub fn fault(config: &Config) -> Option<KubeconfigFault> {
    let address = &config.cluster_url;
    let authority = address.authority().map_or("", |authority| authority.as_str());
    let (_, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if address.scheme().is_none() {
        return Some(KubeconfigFault::Scheme(host.to_owned()));
    }
    let (_, port) = host.rsplit_once(':').unwrap_or_default();
    let has_port = !port.is_empty() && !port.ends_with(']');
    if has_port && address.port_u16().is_none_or(|port| port == 0) {
        return Some(KubeconfigFault::Port);
    }
    let token = config.auth_info.token.as_ref();
    let is_invalid = token.is_some_and(|token| HeaderValue::from_str(token.expose_secret()).is_err());
    is_invalid.then_some(KubeconfigFault::Token)
}

#[cfg(test)]
mod tests {
    use kube::{Config, config::Kubeconfig};

    use super::{ConnectionFlags, select, skip_system_cas};

    const KUBECONFIG: &str = "
current-context: one
contexts:
- {name: one, context: {cluster: a, user: u, namespace: n}}
- {name: two, context: {cluster: b, user: ghost}}
- {name: broken, context: {cluster: ghost, user: u}}
clusters:
- {name: a, cluster: {server: 'https://a', tls-server-name: a, certificate-authority-data: Y2E=}}
- {name: b, cluster: {server: 'https://b'}}
users:
- {name: u, user: {token: sesame, client-certificate-data: Yw==, exec: {command: login}}}
";

    #[test]
    fn the_cas_of_the_system_are_loaded_only_to_verify_with_them() {
        for (server, proxy, is_insecure, loads) in [
            ("https://a", None, false, true),
            ("https://a", None, true, false),
            ("http://a", None, false, false),
            ("http://a", Some("http://p"), false, false),
            ("http://a", Some("https://p"), false, true),
            ("https://a", Some("http://p"), false, true),
        ] {
            let mut config = Config::new(server.parse().expect("a URL"));
            config.proxy_url = proxy.map(|proxy| proxy.parse().expect("a URL"));
            config.accept_invalid_certs = is_insecure;
            skip_system_cas(&mut config);
            assert_eq!(
                config.root_cert.is_none(),
                loads,
                "{server} {proxy:?} {is_insecure}"
            );
        }
        let mut config = Config::new("https://a".parse().expect("a URL"));
        config.accept_invalid_certs = true;
        config.root_cert = Some(vec![vec![1]]);
        skip_system_cas(&mut config);
        assert_eq!(config.root_cert, Some(vec![vec![1]]), "the kubeconfig's own CA");
    }

    fn selected(flags: &ConnectionFlags) -> Result<Kubeconfig, String> {
        let kubeconfig = Kubeconfig::from_yaml(KUBECONFIG).expect("a kubeconfig");
        select(&kubeconfig, flags).map_err(|error| error.to_string())
    }

    fn server(flags: &ConnectionFlags) -> Result<String, String> {
        selected(flags).map(|kubeconfig| {
            let cluster = kubeconfig.clusters[0].cluster.clone().expect("a cluster");
            cluster.server.unwrap_or_default()
        })
    }

    #[test]
    fn flags_choose_context_cluster_and_user() {
        let given = |text: &str| Some(text.to_owned());
        let none = ConnectionFlags::default;
        for (name, flags, expected) in [
            ("accepts_current_context", none(), Ok("https://a")),
            (
                "accepts_context",
                ConnectionFlags {
                    context: given("two"),
                    ..none()
                },
                Ok("https://b"),
            ),
            (
                "accepts_cluster",
                ConnectionFlags {
                    cluster: given("b"),
                    ..none()
                },
                Ok("https://b"),
            ),
            (
                "accepts_server",
                ConnectionFlags {
                    server: given("https://s"),
                    ..none()
                },
                Ok("https://s"),
            ),
            (
                "rejects_unknown_context",
                ConnectionFlags {
                    context: given("x"),
                    ..none()
                },
                Err("context \"x\" is not in the kubeconfig"),
            ),
            (
                "rejects_context_of_unknown_cluster",
                ConnectionFlags {
                    context: given("broken"),
                    ..none()
                },
                Err("cluster \"ghost\" is not in the kubeconfig"),
            ),
            (
                "rejects_unknown_user",
                ConnectionFlags {
                    user: given("x"),
                    ..none()
                },
                Err("user \"x\" is not in the kubeconfig"),
            ),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(server(&flags), expected, "{name}");
        }
    }

    #[test]
    fn a_kubeconfig_without_context_needs_a_server() {
        let empty = Kubeconfig::default;
        let error = select(&empty(), &ConnectionFlags::default()).expect_err("no context");
        assert_eq!(error.to_string(), "the kubeconfig has no current context");
        let server = Some("https://s".to_owned());
        assert!(
            select(
                &empty(),
                &ConnectionFlags {
                    server,
                    ..ConnectionFlags::default()
                }
            )
            .is_ok()
        );
    }

    #[test]
    fn a_server_flag_drops_the_name_of_the_other_servers_certificate() {
        let flags = ConnectionFlags {
            server: Some("https://s".to_owned()),
            ..ConnectionFlags::default()
        };
        let cluster = selected(&flags).expect("selected").clusters[0].cluster.clone();
        assert_eq!(cluster.expect("a cluster").tls_server_name, None);
    }

    #[test]
    fn a_proxy_flag_replaces_the_proxy_of_the_kubeconfig() {
        let flags = ConnectionFlags {
            proxy_url: Some("http://proxy:3128".to_owned()),
            ..ConnectionFlags::default()
        };
        let cluster = selected(&flags).expect("selected").clusters[0].cluster.clone();
        let proxy = cluster.expect("a cluster").proxy_url;
        assert_eq!(proxy.as_deref(), Some("http://proxy:3128"));
    }

    #[test]
    fn flags_replace_credentials_of_the_same_kind() {
        let flags = ConnectionFlags {
            token: Some("other".to_owned().into()),
            client_certificate: Some("/c".into()),
            impersonate: Some("bob".to_owned()),
            impersonate_extra: [("a", "1"), ("a", "2")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .to_vec(),
            username: Some("jane".to_owned()),
            password: Some("sesame".to_owned().into()),
            ..ConnectionFlags::default()
        };
        let user = selected(&flags).expect("selected").auth_infos[0]
            .auth_info
            .clone();
        let user = user.expect("a user");
        assert!(user.exec.is_none());
        assert!(user.token.is_some());
        assert_eq!(user.client_certificate.as_deref(), Some("/c"));
        assert_eq!(user.client_certificate_data, None);
        assert_eq!(user.impersonate.as_deref(), Some("bob"));
        let extra = user.impersonate_user_extra.expect("extra fields");
        assert_eq!(extra.get("a"), Some(&vec!["1".to_owned(), "2".to_owned()]));
        assert_eq!(
            (user.username.as_deref(), user.password.is_some()),
            (Some("jane"), true)
        );
    }
}
