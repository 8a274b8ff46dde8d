//! Asks the API server whether a user is allowed to do something. Also reads the labels of a namespace,
//! because exemptions in the configuration can depend on them.

use std::collections::BTreeMap;

use kcp_api::PartialObjectMetadata;
use serde::Deserialize;
use serde_json::Value;

use super::{
    live_reads::{LiveReads, Projection, post},
    read_error::ReadError,
    subject::is_path_segment,
};

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

#[derive(Deserialize)]
struct SubjectAccessReview {
    status: AccessStatus,
}

#[derive(Deserialize)]
struct AccessStatus {
    #[serde(default)]
    allowed: bool,
}

impl LiveReads<'_> {
    pub(crate) async fn read_namespace_labels(
        &self,
        namespace: &str,
    ) -> Result<BTreeMap<String, String>, ReadError> {
        if !is_path_segment(namespace) {
            return Err(ReadError::BadName);
        }
        let path = format!("/api/v1/namespaces/{namespace}");
        let namespace: PartialObjectMetadata = self.read_object(&path, Projection::Whole).await?;
        Ok(namespace.metadata.labels.unwrap_or_default())
    }

    /// Whether the API server allows the action that the `spec` of a `SubjectAccessReview` describes.
    pub(crate) async fn check_access(&self, spec: &Value) -> Result<bool, ReadError> {
        let review = serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec
        });
        let answer = self.send(PATH, post(PATH, &review)?).await?;
        let review: SubjectAccessReview =
            serde_json::from_slice(answer.as_bytes()).map_err(|error| ReadError::from_json_error(&error))?;
        Ok(review.status.allowed)
    }
}
