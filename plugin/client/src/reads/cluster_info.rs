//! Reads what a host needs to join a cluster: the address and the CA from the ConfigMap `cluster-info`, which kubeadm
//! publishes in namespace `kube-public`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Uri;
use k8s_openapi::api::core::v1::ConfigMap;
use kcp_api::kind::CONFIG_MAP;
use kcp_rules::syntax::is_dns1123_subdomain;
use kube::config::Kubeconfig;
use x509_parser::pem::Pem;

use crate::{Connection, Error};

const NAMESPACE: &str = "kube-public";
const NAME: &str = "cluster-info";
const KUBECONFIG: &str = "kubeconfig";

/// The prefix of the keys that contain a signature of the kubeconfig; the rest of the key is the id of the token.
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

/// The maximum number of certificates in the CA bundle. A rotation of the CA needs two.
const MAX_CERTIFICATES: usize = 8;

/// The address and the CA of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// The API server, as `host:port`.
    pub endpoint: String,
    /// The CA certificates in PEM.
    pub ca: String,
    /// The hash of each CA's public key, as kubeadm's `caCertHashes` needs it.
    pub ca_hashes: Vec<String>,
    /// The ids of the tokens for which the cluster has signed `cluster-info`.
    pub signed_ids: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClusterInfoError {
    #[error(transparent)]
    Request(#[from] Error),
    #[error("ConfigMap {NAMESPACE}/{NAME} is invalid: {0}")]
    Invalid(String),
}

/// Reads `cluster-info`.
pub async fn read_cluster_info(connection: &Connection) -> Result<ClusterInfo, ClusterInfoError> {
    let resource = CONFIG_MAP.api_resource("v1");
    let map: ConfigMap = connection.get(&resource, NAMESPACE, NAME).await?;
    cluster_info(&map).map_err(ClusterInfoError::Invalid)
}

fn cluster_info(map: &ConfigMap) -> Result<ClusterInfo, String> {
    let data = map.data.as_ref();
    let kubeconfig = data.and_then(|data| data.get(KUBECONFIG));
    let kubeconfig = kubeconfig.ok_or("it has no key kubeconfig")?;
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(|_| "its kubeconfig cannot be decoded")?;
    let mut clusters = kubeconfig.clusters.into_iter().filter_map(|named| named.cluster);
    let (Some(cluster), None) = (clusters.next(), clusters.next()) else {
        return Err("its kubeconfig does not have exactly one cluster".to_owned());
    };
    let server = cluster.server.as_deref().unwrap_or_default();
    let endpoint = endpoint(server).ok_or("the server in its kubeconfig is not https://HOST:PORT")?;
    let ca = cluster.certificate_authority_data.unwrap_or_default();
    let ca = STANDARD
        .decode(ca)
        .map_err(|_| "its certificate-authority-data is not base64")?;
    let (ca, ca_hashes) = authorities(&ca)?;
    let keys = data.into_iter().flatten();
    let signed_ids = keys.filter_map(|(key, _)| key.strip_prefix(SIGNATURE_PREFIX));
    Ok(ClusterInfo {
        endpoint,
        ca,
        ca_hashes,
        signed_ids: signed_ids.map(str::to_owned).collect(),
    })
}

/// Returns `host:port` of an https URL without a path. IPv6 addresses are in brackets.
fn endpoint(server: &str) -> Option<String> {
    let url: Uri = server.parse().ok()?;
    let authority = url.authority()?;
    let host = authority.host();
    // Parse the port here, because `port_u16` also returns `None` for a port that is not a number.
    let port = match authority.as_str().strip_prefix(host)? {
        "" => 443,
        port => {
            let digits = port.strip_prefix(':')?;
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u16>().ok().filter(|_| is_number)?
        }
    };
    let is_ipv6 = |host: &str| host.parse::<std::net::Ipv6Addr>().is_ok();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = bare.map_or_else(|| is_dns1123_subdomain(host.as_bytes()), is_ipv6);
    let is_plain =
        url.scheme_str() == Some("https") && matches!(url.path(), "" | "/") && url.query().is_none();
    (is_host && is_plain).then(|| format!("{host}:{port}"))
}

/// The certificates of a bundle in PEM, and the hash of each public key.
fn authorities(bundle: &[u8]) -> Result<(String, Vec<String>), String> {
    let mut text = String::new();
    let mut hashes = Vec::new();
    for pem in Pem::iter_from_buffer(bundle) {
        let invalid = "its CA is not a certificate in PEM";
        let pem = pem.map_err(|_| invalid)?;
        let certificate = pem.parse_x509().map_err(|_| invalid)?;
        hashes.push(public_key_hash(certificate.public_key().raw));
        // Encode again, so that nothing but the certificates reaches the host.
        text += "-----BEGIN CERTIFICATE-----\n";
        let encoded = STANDARD.encode(&pem.contents);
        for line in encoded.as_bytes().chunks(64) {
            text += &String::from_utf8_lossy(line);
            text.push('\n');
        }
        text += "-----END CERTIFICATE-----\n";
    }
    match hashes.len() {
        0 => Err("it has no CA".to_owned()),
        1..=MAX_CERTIFICATES => Ok((text, hashes)),
        count => Err(format!("it has {count} CAs, more than {MAX_CERTIFICATES}")),
    }
}

/// The SHA-256 of a public key (`SubjectPublicKeyInfo`, RFC 7469), in kubeadm's format.
fn public_key_hash(public_key: &[u8]) -> String {
    format!("sha256:{}", kcp_etcd::sha256(public_key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CA: &[u8] = include_bytes!("../../../etcd/tests/keys/rsa-pkcs1.crt");
    /// `openssl x509 -pubkey -noout -in rsa-pkcs1.crt | openssl pkey -pubin -outform der | sha256sum`
    const RSA_HASH: &str = "sha256:b7e445cbf503baea0fba9ee33ef5cc3c20884d34ac425a5c7db68f78e1a514a9";
    const P256: &[u8] = include_bytes!("../../../etcd/tests/keys/p256-pkcs8.crt");
    const P256_HASH: &str = "sha256:f76d56029b7f971c9f55ee7a99b93cad475f50fdf5bd081a342d77710414fce8";

    fn map(server: &str, ca: &[u8]) -> ConfigMap {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": [{"name": "", "cluster": {"server": server, "certificate-authority-data": STANDARD.encode(ca)}}],
        });
        let data = json!({
            "kubeconfig": kubeconfig.to_string(),
            "jws-kubeconfig-abcdef": "a..b",
            "jws-kubeconfig-ghijkl": "a..b",
        });
        serde_json::from_value(json!({"data": data})).unwrap()
    }

    #[test]
    fn the_hashes_equal_those_of_openssl() {
        let both = [CA, P256].concat();
        let info = cluster_info(&map("https://10.0.0.1:6443", &both)).unwrap();
        assert_eq!(info.endpoint, "10.0.0.1:6443");
        assert_eq!(info.ca_hashes, [RSA_HASH, P256_HASH]);
        assert_eq!(info.signed_ids, ["abcdef", "ghijkl"]);
        assert_eq!(info.ca.matches("BEGIN CERTIFICATE").count(), 2);
        assert_eq!(
            authorities(info.ca.as_bytes()).unwrap(),
            (info.ca, info.ca_hashes)
        );
    }

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        for (server, expected) in [
            ("https://api.example.com", Some("api.example.com:443")),
            ("https://10.0.0.1:6443/", Some("10.0.0.1:6443")),
            ("https://[fd00::1]:6443", Some("[fd00::1]:6443")),
            ("http://10.0.0.1:6443", None),
            ("https://10.0.0.1:6443/path", None),
            ("https://user@10.0.0.1:6443", None),
            ("https://10.0.0.1:6443;reboot", None),
            ("https://$(reboot):6443", None),
            ("https://`reboot`:6443", None),
            ("https://a'b:6443", None),
            ("https://10.0.0.1:6443'", None),
            ("https://10.0.0.1:", None),
            ("https://10.0.0.1:+1", None),
            ("https://10.0.0.1:65536", None),
            ("https://10.0.0.1:6443\nreboot", None),
            ("https://[fd00::1;reboot]:6443", None),
            ("", None),
        ] {
            assert_eq!(endpoint(server).as_deref(), expected, "{server}");
        }
    }

    #[test]
    fn what_is_not_a_certificate_is_refused() {
        let with_key = [CA, include_bytes!("../../../etcd/tests/keys/rsa-pkcs1.key")].concat();
        for (ca, expected) in [
            (&b""[..], "it has no CA"),
            (b"reboot", "it has no CA"),
            (&with_key, "its CA is not a certificate in PEM"),
            (&CA.repeat(9), "it has 9 CAs, more than 8"),
        ] {
            let found = cluster_info(&map("https://10.0.0.1:6443", ca));
            assert_eq!(found.unwrap_err(), expected);
        }
        assert_eq!(
            cluster_info(&ConfigMap::default()).unwrap_err(),
            "it has no key kubeconfig"
        );
    }

    #[test]
    fn text_around_the_certificates_does_not_reach_the_host() {
        let noisy = [b"# $(reboot)\n", CA].concat();
        let (text, _) = authorities(&noisy).unwrap();
        assert!(
            text.starts_with("-----BEGIN CERTIFICATE-----\n") && !text.contains("reboot"),
            "{text}"
        );
    }
}
