//! kubectl's connection flags.

use std::{collections::HashMap, path::PathBuf, time::Duration};

/// The values of kubectl's connection flags, such as `--context`. `None` if a flag is not given.
#[derive(Clone, Debug, Default)]
pub struct ConnectionFlags {
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    pub cluster: Option<String>,
    pub user: Option<String>,
    pub namespace: Option<String>,
    pub impersonate: Option<String>,
    pub impersonate_groups: Vec<String>,
    pub impersonate_uid: Option<String>,
    /// Pairs of a key and one of its values.
    pub impersonate_extra: Vec<(String, String)>,
    pub server: Option<String>,
    pub token: Option<Token>,
    pub username: Option<String>,
    pub password: Option<Token>,
    /// The time limit of each request. `None` for no limit.
    pub request_timeout: Option<Duration>,
    pub certificate_authority: Option<PathBuf>,
    pub client_certificate: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
    pub insecure_skip_tls_verify: Option<bool>,
    pub tls_server_name: Option<String>,
    pub proxy_url: Option<String>,
}

impl ConnectionFlags {
    /// The flags that make kubectl impersonate the same user: `--as`, `--as-group`, `--as-uid` and `--as-user-extra`.
    pub fn impersonation_flags(&self) -> Vec<String> {
        let user = self.impersonate.iter().map(|user| format!("--as={user}"));
        let groups = self.impersonate_groups.iter();
        let groups = groups.map(|group| format!("--as-group={group}"));
        let uid = self.impersonate_uid.iter().map(|uid| format!("--as-uid={uid}"));
        let extra = self.impersonate_extra.iter();
        let extra = extra.map(|(key, value)| format!("--as-user-extra={key}={value}"));
        user.chain(groups).chain(uid).chain(extra).collect()
    }

    /// The values of each key of `--as-user-extra`; none if the flag is not given.
    pub(crate) fn extra(&self) -> Option<HashMap<String, Vec<String>>> {
        let mut extra: HashMap<String, Vec<String>> = HashMap::new();
        for (key, value) in &self.impersonate_extra {
            extra.entry(key.clone()).or_default().push(value.clone());
        }
        (!extra.is_empty()).then_some(extra)
    }
}

/// A bearer token or a password. `Debug` hides it, and there is no `Display`.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Returns the token. Use it only to send the token to the server.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Token {
    fn from(token: String) -> Self {
        Self(token)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}
