//! Runs the Pods of a validation: creates them, reads their progress and their logs, and deletes them. Each request has a time
//! limit.

use std::{future::Future, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kcp_api::{PartialObjectMetadata, kind::POD};
use kcp_control_plane::validation::{
    Progress,
    pod::{CONTAINER, RUN_LABEL},
};
use kube::{
    Resource as _,
    api::{DynamicObject, LogParams},
    core::{ApiResource, Request},
};
use serde_json::Value;

use crate::{Action, Connection, DeleteRequest, Error, ReadLimit, Written, request::check_safe_in_url};

/// The time limit of each request.
const REQUEST_LIMIT: ReadLimit = ReadLimit::per_read(Duration::from_secs(15));

/// The maximum size of a log, in bytes. A report has one line.
const MAX_LOG: i64 = 64 * 1024;

/// The Pods of one run in a namespace.
pub struct ValidationPods<'v> {
    pub connection: &'v Connection,
    pub namespace: &'v str,
    /// The value of [`RUN_LABEL`].
    pub run: &'v str,
    pub field_manager: &'v str,
}

/// A Pod of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningPod {
    pub name: String,
    pub uid: String,
    pub progress: Progress,
}

impl ValidationPods<'_> {
    /// Creates a Pod.
    pub async fn create(&self, pod: &Value) -> Result<(), Error> {
        let resource = resource();
        let create = self.connection.create::<PartialObjectMetadata>(
            &resource,
            Some(self.namespace),
            pod,
            self.field_manager,
        );
        self.limited(&self.action("create"), create).await.map(drop)
    }

    /// Lists the Pods of the run that exist.
    pub async fn list(&self) -> Result<Vec<RunningPod>, Error> {
        let resource = resource();
        let selector = format!("{RUN_LABEL}={}", self.run);
        let list = self
            .connection
            .list::<Pod>(&resource, Some(self.namespace), Some(&selector));
        let pods = self.limited(&self.action("list"), list).await?;
        let pods = pods.into_iter().map(|pod| RunningPod {
            progress: Progress::of(&pod),
            name: pod.metadata.name.unwrap_or_default(),
            uid: pod.metadata.uid.unwrap_or_default(),
        });
        Ok(pods.collect())
    }

    /// Reads the log of a Pod that has ended.
    pub async fn log(&self, pod: &str) -> Result<String, Error> {
        let action = self.action("get").with_name(pod).subresource("log");
        check_safe_in_url(&action)?;
        let requests = Request::new(DynamicObject::url_path(&resource(), Some(self.namespace)));
        let parameters = LogParams {
            container: Some(CONTAINER.to_owned()),
            limit_bytes: Some(MAX_LOG),
            ..LogParams::default()
        };
        let read = self.connection.read(&action, || async {
            let request = requests
                .logs(pod, &parameters)
                .map_err(kube::Error::BuildRequest)?;
            self.connection.client.request_text(request).await
        });
        self.limited(&action, read).await
    }

    /// Asks the API server to delete all Pods of the run, and returns the names of the Pods that existed. The caller repeats the
    /// call until no Pods exist.
    pub async fn delete_all(&self) -> Result<Vec<String>, Error> {
        let resource = resource();
        let pods = self.list().await?;
        for pod in &pods {
            let delete = DeleteRequest {
                resource: &resource,
                namespace: Some(self.namespace),
                name: &pod.name,
                uid: &pod.uid,
                resource_version: None,
                dry_run: false,
            };
            let action = self.action("delete").with_name(&pod.name);
            match self.limited(&action, self.connection.delete(&delete)).await {
                Ok(Written::Unknown(error)) => return Err(error),
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(pods.into_iter().map(|pod| pod.name).collect())
    }

    fn action(&self, verb: &'static str) -> Action {
        Action::new(verb, &resource()).in_namespace(self.namespace)
    }

    async fn limited<T>(
        &self,
        action: &Action,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.connection
            .run_with_limit(REQUEST_LIMIT, action, Box::pin(request))
            .await
    }
}

fn resource() -> ApiResource {
    POD.api_resource("v1")
}

#[cfg(test)]
mod tests {
    use http::Method;
    use kcp_control_plane::validation::Progress;
    use serde_json::{Value, json};

    use super::{RunningPod, ValidationPods};
    use crate::{Connection, Error, testing::failure};

    const PODS: &str = "/api/v1/namespaces/d/pods";

    fn pods(connection: &Connection) -> ValidationPods<'_> {
        ValidationPods {
            connection,
            namespace: "d",
            run: "r",
            field_manager: "kubectl-kcp",
        }
    }

    fn list() -> (u16, Value) {
        let pod = json!({"metadata": {"name": "p", "uid": "u"}, "status": {"phase": "Succeeded"}});
        (
            200,
            json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod]}),
        )
    }

    #[tokio::test]
    async fn the_pods_of_a_run_are_listed_and_deleted() {
        let connection = Connection::canned(|method, path| match (method, path) {
            (&Method::GET, PODS) => list(),
            (&Method::DELETE, "/api/v1/namespaces/d/pods/p") => (200, json!({})),
            other => panic!("{other:?}"),
        });
        let expected = RunningPod {
            name: "p".to_owned(),
            uid: "u".to_owned(),
            progress: Progress::Ended,
        };
        assert_eq!(pods(&connection).list().await.expect("a list"), [expected]);
        assert_eq!(pods(&connection).delete_all().await.expect("deleted"), ["p"]);
    }

    #[tokio::test]
    async fn a_pod_that_is_gone_needs_no_deletion_and_another_failure_is_an_error() {
        let answered = |answer: (u16, Value)| {
            Connection::canned(move |method, path| match (method, path) {
                (&Method::GET, PODS) => list(),
                _ => answer.clone(),
            })
        };
        let (code, mut gone) = failure(404, "NotFound", "gone");
        gone["details"] = json!({"name": "p"});
        let connection = answered((code, gone));
        assert!(pods(&connection).delete_all().await.is_ok());
        for (answer, is_expected) in [
            (
                failure(403, "Forbidden", "no"),
                (|error| matches!(error, Error::Forbidden { .. })) as fn(Error) -> bool,
            ),
            (failure(504, "Timeout", "no"), |error| {
                matches!(error, Error::Busy { .. })
            }),
        ] {
            let connection = answered(answer);
            let error = pods(&connection).delete_all().await.expect_err("a failure");
            assert!(is_expected(error));
        }
    }

    #[tokio::test]
    async fn a_log_is_read_as_text() {
        let connection = Connection::canned(|method, path| {
            assert_eq!((method, path), (&Method::GET, "/api/v1/namespaces/d/pods/p/log"));
            (200, json!("line"))
        });
        assert_eq!(pods(&connection).log("p").await.expect("a log"), "\"line\"");
    }
}
