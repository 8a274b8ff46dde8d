//! What `node join-script` prints: the script, or a summary without secrets.

use kcp_client::reads::cluster_info::ClusterInfo;
use serde::Serialize;

use crate::{
    commands::node::join_script::arguments::JoinScriptArguments,
    document::{Document, Versioned},
    output::{CommandFormat, Report},
    terminal::{escape, table::Layout},
};

pub(super) struct JoinScriptReport<'r> {
    pub(super) arguments: &'r JoinScriptArguments,
    pub(super) token_id: &'r str,
    /// When the token expires, in RFC 3339 format.
    pub(super) expires: &'r str,
    pub(super) cluster: &'r ClusterInfo,
    /// The script. `None` if it is in a file, so that only the summary is printed.
    pub(super) script: Option<&'r str>,
}

/// A join script without its secrets.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct JoinScriptDocument<'r> {
    token: TokenDocument<'r>,
    /// The API server, as `host:port`.
    endpoint: &'r str,
    /// The hash of each CA's public key, as kubeadm writes it.
    ca_cert_hashes: &'r [String],
    /// The name that the host must have; null for any name.
    hostname: Option<&'r str>,
    control_plane: bool,
    /// The file with the script; null if the script was printed.
    file: Option<String>,
}

impl Document for JoinScriptDocument<'_> {
    const KIND: &'static str = "JoinScript";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TokenDocument<'r> {
    /// The part of the token before the dot, which is not secret.
    id: &'r str,
    /// When the token expires, in RFC 3339 format.
    expires: &'r str,
}

impl Report for JoinScriptReport<'_> {
    fn table(&self, _: Layout) -> String {
        match (self.script, &self.arguments.output_file) {
            (Some(script), _) => script.to_owned(),
            (None, Some(file)) => {
                format!("join script written to {}\n", escape(&file.display().to_string()))
            }
            (None, None) => String::new(),
        }
    }

    fn document(&self) -> impl Serialize {
        let file = self.arguments.output_file.as_ref();
        Versioned(JoinScriptDocument {
            token: TokenDocument {
                id: self.token_id,
                expires: self.expires,
            },
            endpoint: &self.cluster.endpoint,
            ca_cert_hashes: &self.cluster.ca_hashes,
            hostname: self.arguments.hostname.as_deref(),
            control_plane: self.arguments.control_plane,
            file: file.map(|file| file.display().to_string()),
        })
    }

    fn names(&self) -> Vec<String> {
        vec![format!("secret/bootstrap-token-{}", self.token_id)]
    }

    fn special(&self, _: CommandFormat) -> Option<anyhow::Result<String>> {
        self.script.map(|script| Ok(script.to_owned()))
    }
}
