//! Decodes `Secret`. Its `Debug` output contains the keys, but not the values.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::Deserialize;

use crate::{
    decode::null_as_default, kind::KUBEADM_CONTROL_PLANE, metadata, metadata::Object as _, names::SECRET_TYPE,
};

#[derive(Default, Deserialize)]
pub struct Secret {
    #[serde(default, deserialize_with = "metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    #[serde(default, rename = "type")]
    pub type_: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub data: BTreeMap<String, ByteString>,
}

impl Secret {
    /// Whether the control plane controller owns and renews the Secret, unlike a user-provided one.
    pub fn is_managed_by_control_plane(&self) -> bool {
        self.type_ == SECRET_TYPE && self.owner(KUBEADM_CONTROL_PLANE.kind).is_some()
    }

    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).map(|value| value.0.as_slice())
    }
}

impl<const N: usize> From<[(&str, &[u8]); N]> for Secret {
    fn from(values: [(&str, &[u8]); N]) -> Self {
        let values = values.map(|(key, value)| (key.to_owned(), ByteString(value.to_vec())));
        Self {
            data: values.into(),
            ..Self::default()
        }
    }
}

/// A Secret without `tls.key`, the private key, which is not even decoded from base64.
#[derive(Default, Deserialize)]
pub struct CertificateSecret {
    #[serde(default, deserialize_with = "metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    #[serde(default, rename = "type")]
    pub type_: String,
    #[serde(default, deserialize_with = "null_as_default")]
    data: CertificateData,
}

#[derive(Default, Deserialize)]
struct CertificateData {
    #[serde(default, rename = "tls.crt")]
    certificate: Option<ByteString>,
    /// The kubeconfig. Only the Secret `CLUSTER-kubeconfig` has this key.
    #[serde(default)]
    value: Option<ByteString>,
}

/// Who is responsible for a Secret with a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretOwnership {
    ControlPlane,
    /// Cluster API created the Secret, but the Secret has no ownerReference to a control plane. The controller adds
    /// one.
    Missing,
    /// A user created the Secret. The controller neither changes nor renews it.
    UserProvided,
}

impl CertificateSecret {
    pub fn ownership(&self) -> SecretOwnership {
        if self.type_ != SECRET_TYPE {
            SecretOwnership::UserProvided
        } else if self.owner(KUBEADM_CONTROL_PLANE.kind).is_some() {
            SecretOwnership::ControlPlane
        } else {
            SecretOwnership::Missing
        }
    }

    /// The value of `tls.crt`: a certificate in PEM format. `None` if absent.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.data.certificate.as_ref().map(|value| value.0.as_slice())
    }

    /// The value of `value`: a kubeconfig, which may contain a private key. `None` if absent.
    pub fn kubeconfig(&self) -> Option<&[u8]> {
        self.data.value.as_ref().map(|value| value.0.as_slice())
    }
}

impl metadata::Object for CertificateSecret {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.data.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CertificateSecret, Secret, SecretOwnership};
    use crate::decode;

    #[test]
    fn debug_shows_keys_and_no_values() {
        let text = r#"{"kind": "Secret", "data": {"tls.crt": "aGVsbG8=", "tls.key": "c2VzYW1l"}}"#;
        let secret: Secret = decode(text).expect("decodes");
        assert_eq!(secret.value("tls.key"), Some(&b"sesame"[..]));
        assert_eq!(secret.value("value"), None);
        assert_eq!(format!("{secret:?}"), r#"{"tls.crt", "tls.key"}"#);
    }

    #[test]
    fn a_private_key_is_not_decoded() {
        // A key that is not base64 does not matter, because the field is skipped.
        let text = r#"{"kind": "Secret", "data": {"tls.crt": "aGVsbG8=", "tls.key": "%%%"}}"#;
        let secret: CertificateSecret = decode(text).expect("decodes");
        assert_eq!(secret.certificate(), Some(&b"hello"[..]));
        assert_eq!(secret.ownership(), SecretOwnership::UserProvided);
        assert_eq!(secret.kubeconfig(), None);
    }

    #[test]
    fn a_secret_of_the_controller_has_its_type_and_owner() {
        let owner =
            json!([{"apiVersion": "g/v1", "kind": "KubeadmControlPlane", "name": "c1-cp", "uid": "u"}]);
        for (type_, owners, expected) in [
            ("cluster.x-k8s.io/secret", owner.clone(), true),
            ("cluster.x-k8s.io/secret", json!([]), false),
            ("Opaque", owner, false),
        ] {
            let object = json!({"metadata": {"name": "c1-ca", "ownerReferences": owners}, "type": type_});
            let secret: Secret = decode(&object.to_string()).expect("decodes");
            assert_eq!(secret.is_managed_by_control_plane(), expected, "{object}");
            let of_certificate: CertificateSecret = decode(&object.to_string()).expect("decodes");
            let is_owned = of_certificate.ownership() == SecretOwnership::ControlPlane;
            assert_eq!(is_owned, expected, "{object}");
        }
    }
}
