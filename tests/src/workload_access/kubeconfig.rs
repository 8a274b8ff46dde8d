//! Changes to the kubeconfig that Cluster API writes.

use std::fs;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::pki::KeyPairFiles;

/// Replaces the server by a local port.
pub(super) fn pointing_to(kubeconfig: &str, port: u16) -> Result<String> {
    let mut kubeconfig = parse(kubeconfig)?;
    let server = format!("https://127.0.0.1:{port}");
    set(&mut kubeconfig, "/clusters/0/cluster", "server", server)?;
    Ok(kubeconfig.to_string())
}

/// Replaces the client certificate.
pub(super) fn of_client(kubeconfig: &str, client: &KeyPairFiles) -> Result<String> {
    let mut kubeconfig = parse(kubeconfig)?;
    for (field, file) in [
        ("client-certificate-data", &client.certificate),
        ("client-key-data", &client.key),
    ] {
        let pem = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        set(
            &mut kubeconfig,
            "/users/0/user",
            field,
            BASE64_STANDARD.encode(pem),
        )?;
    }
    Ok(kubeconfig.to_string())
}

fn parse(kubeconfig: &str) -> Result<Value> {
    serde_saphyr::from_str(kubeconfig).context("parsing Cluster API's kubeconfig")
}

fn set(kubeconfig: &mut Value, at: &str, field: &str, value: String) -> Result<()> {
    let object = kubeconfig.pointer_mut(at).and_then(Value::as_object_mut);
    let object = object.with_context(|| format!("Cluster API's kubeconfig has no {at}"))?;
    object.insert(field.to_owned(), Value::String(value));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::pointing_to;

    #[test]
    fn changes_nothing_but_the_server() {
        let written = "{clusters: [{name: edge, cluster: {server: 'https://edge:6443', certificate-authority-data: YQ==}}], users: []}";
        let changed: Value = serde_json::from_str(&pointing_to(written, 7).unwrap()).unwrap();
        let cluster = json!({"server": "https://127.0.0.1:7", "certificate-authority-data": "YQ=="});
        assert_eq!(
            changed,
            json!({"clusters": [{"name": "edge", "cluster": cluster}], "users": []})
        );
        assert!(pointing_to("{clusters: []}", 7).is_err());
    }
}
