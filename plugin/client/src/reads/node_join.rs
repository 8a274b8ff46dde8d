//! Reads what a host finds when it joins the control plane of a cluster without Cluster API: kubeadm's configuration, and the
//! certificates that kubeadm uploaded.

use k8s_openapi::api::core::v1::ConfigMap;
use kcp_api::{
    Object as _, PartialObjectMetadata,
    kind::{CONFIG_MAP, SECRET},
};
use kcp_control_plane::{
    audit::facts::KubeadmSettings, snapshot::Reading, verbs::node::join::UploadedCertificates,
};

use crate::{
    Connection, Error,
    bootstrap_token::{is_token_name, read_secret},
    reads::{audit::objects::kubeadm_settings, workload::KUBE_SYSTEM},
};

/// Reads kubeadm's configuration of the cluster.
pub async fn read_kubeadm_settings(
    connection: &Connection,
) -> Result<Reading<Option<KubeadmSettings>>, Error> {
    let resource = CONFIG_MAP.api_resource("v1");
    let map: Option<ConfigMap> = match connection.get(&resource, KUBE_SYSTEM, "kubeadm-config").await {
        Ok(map) => Some(map),
        Err(Error::NotFound { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(kubeadm_settings(map))
}

/// Reads whether the certificates of the control plane exist, and until when. It reads no certificate.
pub async fn read_uploaded_certificates(connection: &Connection) -> Result<UploadedCertificates, Error> {
    let resource = SECRET.api_resource("v1");
    let secret = connection
        .get_metadata::<PartialObjectMetadata>(&resource, KUBE_SYSTEM, "kubeadm-certs")
        .await;
    let secret = match secret {
        Ok(secret) => secret,
        Err(Error::NotFound { .. }) => return Ok(UploadedCertificates::Absent),
        Err(error) => return Err(error),
    };
    let mut owners = secret.owner_references().iter();
    let Some(owner) = owners.find(|owner| is_token_name(&owner.name)) else {
        return Ok(UploadedCertificates::Until(None));
    };
    // Without the token that owns the certificates, Kubernetes is about to delete them.
    let token = read_secret(connection, &owner.name).await?;
    Ok(token.map_or(UploadedCertificates::Absent, |token| {
        UploadedCertificates::Until(token.expires())
    }))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::failure;

    fn read(secret: (u16, Value), token: Value) -> UploadedCertificates {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let connection = Connection::canned(move |method, path| {
                assert_eq!(method, Method::GET);
                match path {
                    "/api/v1/namespaces/kube-system/secrets/kubeadm-certs" => secret.clone(),
                    "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef" => (200, token.clone()),
                    other => {
                        let mut absent = failure(404, "NotFound", "not found");
                        absent.1["details"] = json!({"name": other.rsplit('/').next()});
                        absent
                    }
                }
            });
            read_uploaded_certificates(&connection).await.unwrap()
        })
    }

    #[test]
    fn the_certificates_live_as_long_as_their_token() {
        let owned_by = |name: &str| {
            let owner = json!([{"apiVersion": "v1", "kind": "Secret", "name": name, "uid": "u"}]);
            (
                200,
                json!({"metadata": {"name": "kubeadm-certs", "ownerReferences": owner}}),
            )
        };
        // base64 of 2026-11-25T12:00:00Z.
        let token = json!({
            "metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
            "data": {"expiration": "MjAyNi0xMS0yNVQxMjowMDowMFo="},
        });
        let mut absent = failure(404, "NotFound", "not found");
        absent.1["details"] = json!({"name": "kubeadm-certs"});
        let unowned = (200, json!({"metadata": {"name": "kubeadm-certs"}}));
        for (secret, expected) in [
            (
                owned_by("bootstrap-token-abcdef"),
                UploadedCertificates::Until(Some("2026-11-25T12:00:00Z".parse().unwrap())),
            ),
            (owned_by("bootstrap-token-ghijkl"), UploadedCertificates::Absent),
            (unowned, UploadedCertificates::Until(None)),
            (absent, UploadedCertificates::Absent),
        ] {
            assert_eq!(read(secret, token.clone()), expected);
        }
    }
}
