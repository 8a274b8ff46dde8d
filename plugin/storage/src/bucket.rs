//! A bucket of S3, or of a server with the same API.

use std::{env, fmt, io::Cursor, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use kcp_control_plane::verbs::etcd::snapshot::place::ObjectPlace;
use object_store::{
    ClientConfigKey, ObjectStore, ObjectStoreExt as _, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, Checksum},
    path::Path,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::{error::StorageError, http::StorageConnector, upload::Upload};

/// How often to try a request again. [`RETRY_LIMIT`] limits the time of all attempts together. It leaves time for another attempt
/// after one that has timed out, and is shorter than the five minutes for which the token of a role is valid.
const RETRIES: usize = 4;
const RETRY_LIMIT: Duration = Duration::from_secs(280);

/// The maximum number of objects in a list. Ten years of hourly snapshots are fewer objects.
const MAX_OBJECTS: usize = 100_000;

/// A bucket. Clones share connections.
#[derive(Clone)]
pub struct Bucket {
    name: String,
    store: Arc<AmazonS3>,
    connector: StorageConnector,
}

/// An object in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// The name of the object, from the root of the bucket.
    pub key: String,
    pub bytes: u64,
}

impl Bucket {
    /// Reads the credentials, the region and the endpoint from the environment variables of AWS's tools. Sends no request. Fails
    /// if a variable is invalid, or would send the data unencrypted.
    pub fn open(place: &ObjectPlace) -> Result<Self, StorageError> {
        let fails = |cause: String| StorageError::Configuration {
            place: format!("s3://{}", place.bucket),
            cause,
        };
        // A variable that is set but empty counts as absent.
        let variables = env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let value = value.into_string().ok().filter(|value| !value.is_empty())?;
            let key = name
                .starts_with("AWS_")
                .then(|| name.to_ascii_lowercase().parse());
            Some((key?.ok()?, value))
        });
        let builder = variables.fold(AmazonS3Builder::new(), |builder, (key, value)| {
            builder.with_config(key, value)
        });
        let set = |key| builder.get_config_value(&key);
        let endpoint = set(AmazonS3ConfigKey::S3Endpoint).or_else(|| set(AmazonS3ConfigKey::Endpoint));
        let allows_http = set(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
        for endpoint in [endpoint, set(AmazonS3ConfigKey::StsEndpoint)] {
            check_endpoint(endpoint.as_deref(), allows_http.as_deref()).map_err(fails)?;
        }
        let has_credentials = [
            AmazonS3ConfigKey::AccessKeyId,
            AmazonS3ConfigKey::WebIdentityTokenFile,
            AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
            AmazonS3ConfigKey::ContainerCredentialsFullUri,
        ]
        .into_iter()
        .any(|key| set(key).is_some());
        let connector = StorageConnector::new(tls().map_err(fails)?, has_credentials);
        let retries = RetryConfig {
            max_retries: RETRIES,
            retry_timeout: RETRY_LIMIT,
            ..RetryConfig::default()
        };
        let store = builder
            .with_bucket_name(&place.bucket)
            .with_http_connector(connector.clone())
            .with_retry(retries)
            // A bucket with Object Lock requires a checksum.
            .with_checksum_algorithm(Checksum::SHA256)
            .build()
            .map_err(|error| fails(error.to_string()))?;
        Ok(Self {
            name: place.bucket.clone(),
            store: Arc::new(store),
            connector,
        })
    }

    /// Whether the bucket has an object with this key. `None` if the credentials do not permit the question.
    pub async fn has(&self, key: &str) -> Result<Option<bool>, StorageError> {
        let found = self.store.head(&self.path(key)?).await;
        // A missing object is not a failure.
        if let Err(object_store::Error::NotFound { .. }) = found {
            self.connector.forget_failure();
        }
        match found {
            Ok(_) => Ok(Some(true)),
            Err(object_store::Error::NotFound { .. }) => Ok(Some(false)),
            Err(
                object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. },
            ) => Ok(None),
            Err(error) => Err(self.connector.describe("look for", &self.place(key), &error)),
        }
    }

    /// Begins an upload. The object appears only with [`Upload::complete`].
    pub async fn begin_upload(&self, key: &str) -> Result<Upload, StorageError> {
        let place = self.place(key);
        match self.store.put_multipart(&self.path(key)?).await {
            Ok(upload) => Ok(Upload::new(self.connector.clone(), place, upload)),
            Err(error) => Err(self.connector.describe("upload to", &place, &error)),
        }
    }

    /// Lists the objects of a folder: those whose key is the prefix and a name without `/`. Fails if more than 100,000 objects
    /// have the prefix.
    pub async fn list(&self, prefix: &str) -> Result<Vec<StoredObject>, StorageError> {
        let place = self.place(prefix);
        let path = self.path(prefix)?;
        let listed = self.store.list(Some(&path)).take(MAX_OBJECTS + 1);
        let listed: Vec<_> = listed
            .try_collect()
            .await
            .map_err(|error| self.connector.describe("list", &place, &error))?;
        if listed.len() > MAX_OBJECTS {
            return Err(StorageError::Configuration {
                place,
                cause: format!("it contains more than {MAX_OBJECTS} objects"),
            });
        }
        let objects = listed.into_iter().map(|object| StoredObject {
            key: object.location.to_string(),
            bytes: object.size,
        });
        let is_inside = |object: &StoredObject| {
            let name = object.key.strip_prefix(prefix);
            name.is_some_and(|name| !name.contains('/'))
        };
        Ok(objects.filter(is_inside).collect())
    }

    /// Reads an object, part by part.
    pub async fn read(
        &self,
        key: &str,
    ) -> Result<BoxStream<'static, Result<Vec<u8>, StorageError>>, StorageError> {
        let place = self.place(key);
        let connector = self.connector.clone();
        let response = self.store.get(&self.path(key)?).await;
        let response = response.map_err(|error| self.connector.describe("read", &place, &error))?;
        let parts = response.into_stream().map_ok(|part| part.to_vec());
        Ok(parts
            .map_err(move |error| connector.describe("read", &place, &error))
            .boxed())
    }

    /// Deletes an object. An object that no longer exists is not an error.
    pub async fn delete(&self, key: &str) -> Result<(), StorageError> {
        match self.store.delete(&self.path(key)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.connector.describe("delete", &self.place(key), &error)),
        }
    }

    fn place(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.name)
    }

    fn path(&self, key: &str) -> Result<Path, StorageError> {
        Path::parse(key).map_err(|error| StorageError::Configuration {
            place: self.place(key),
            cause: error.to_string(),
        })
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leave out the configuration, which contains the credentials.
        formatter
            .debug_struct("Bucket")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Refuses to send a snapshot unencrypted, unless the user allows it.
fn check_endpoint(endpoint: Option<&str>, allows_http: Option<&str>) -> Result<(), String> {
    let Some(endpoint) = endpoint else {
        return Ok(());
    };
    // The URL may contain a password, so no message shows it.
    if endpoint.contains('@') {
        return Err("the URL of an endpoint contains a user: set AWS_ACCESS_KEY_ID instead".to_owned());
    }
    let uri: http::Uri = endpoint.parse().map_err(|_| {
        "the value of AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL_STS is not a URL".to_owned()
    })?;
    match uri.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if allows_http.is_some_and(|value| value.eq_ignore_ascii_case("true")) => Ok(()),
        Some("http") => Err(
            "AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL_STS begins with http://, so the Secrets in the snapshot or \
             the credentials would be sent unencrypted; use https://, or set AWS_ALLOW_HTTP=true"
                .to_owned(),
        ),
        _ => Err("the value of AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL_STS must begin with https://".to_owned()),
    }
}

/// Trusts the CAs in the file that `AWS_CA_BUNDLE` names, or else those of this machine.
fn tls() -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = env::var_os("AWS_CA_BUNDLE").filter(|file| !file.is_empty()) {
        let fails = |cause: &dyn fmt::Display| format!("cannot read AWS_CA_BUNDLE: {cause}");
        let content = std::fs::read(&file).map_err(|error| fails(&error))?;
        for certificate in CertificateDer::pem_reader_iter(Cursor::new(content)) {
            let certificate = certificate.map_err(|error| fails(&error))?;
            roots.add(certificate).map_err(|error| fails(&error))?;
        }
        if roots.is_empty() {
            return Err(fails(&"the file contains no certificate in PEM format"));
        }
    } else {
        // Ignore errors, because a machine without CAs can still use http://.
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
    }
    Ok(ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::check_endpoint;

    #[test]
    fn a_snapshot_is_sent_unencrypted_only_if_the_user_allows_it() {
        for (endpoint, allows_http, expected) in [
            (None, None, ""),
            (Some("https://s3.example"), None, ""),
            (Some("http://s3.example"), Some("true"), ""),
            (Some("http://s3.example"), Some("TRUE"), ""),
            (
                Some("http://s3.example"),
                Some("false"),
                "would be sent unencrypted",
            ),
            (Some("http://s3.example"), None, "would be sent unencrypted"),
            (Some("s3.example:9000"), None, "must begin with https://"),
            (Some("https://u:p@s3.example"), None, "contains a user"),
            (Some("https:// s3"), None, "is not a URL"),
        ] {
            let checked = check_endpoint(endpoint, allows_http).err().unwrap_or_default();
            assert!(checked.contains(expected), "{endpoint:?}: {checked}");
            assert_eq!(checked.is_empty(), expected.is_empty(), "{endpoint:?}: {checked}");
            assert!(!checked.contains("u:p"), "{checked}");
        }
    }
}
