//! The report of `kcp-webhook probe`, which `kubectl kcp validate` runs in a Pod on each Node.

use serde::{Deserialize, Serialize};

/// What a Pod can do on its Node. The program prints it as one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeReport {
    /// The text from the command line. It distinguishes this report from the log of another Pod.
    pub nonce: String,
    pub names: Vec<ResolvedName>,
    pub api_server: ApiServerAnswer,
}

/// The result of resolving a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedName {
    pub name: String,
    /// Empty if the name could not be resolved.
    pub addresses: Vec<String>,
    /// Absent if the name has addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The response of the API server to a request for its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiServerAnswer {
    /// Absent if the API server did not respond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ProbeReport {
    /// Whether every name has addresses, and the API server has responded.
    pub fn passes(&self) -> bool {
        self.names.iter().all(|name| !name.addresses.is_empty()) && self.api_server.version.is_some()
    }
}
