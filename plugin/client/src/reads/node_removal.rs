//! The reads and requests that `kubectl kcp node remove` uses to take a Node out of a cluster: its pods, their evictions, and
//! the etcd members of a control plane without Cluster API.

use std::time::Instant;

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kcp_api::{Kind, PartialObjectMetadata, kind::SECRET};
use kcp_control_plane::{
    drain::node::{NodeDrain, PodToEvict, node_drain},
    snapshot::{EtcdSurvey, Reading},
    verbs::node::remove::RemovableNode,
};
use kcp_etcd::{ClientCertificate, CredentialError, Tls, Trust};
use kube::{
    Resource as _,
    api::{DeleteParams, DynamicObject, EvictParams, Preconditions},
    core::Request,
};
use serde_json::Value;

use crate::{
    Action, Connection, Error,
    reads::{
        etcd::{Access, FailureContext, members::pod_name, stacked_queries, survey},
        time_limits,
        workload::KUBE_SYSTEM,
    },
    request::check_safe_in_url,
    update::ReadObject,
};

const POD: Kind = Kind {
    kind: "Pod",
    plural: "pods",
    ..SECRET
};

const POD_DISRUPTION_BUDGET: Kind = Kind {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    ..SECRET
};

impl ReadObject for RemovableNode {
    fn object(&self) -> &str {
        &self.json
    }
}

/// Reads the pods of a Node and all budgets, and predicts the drain.
pub async fn read_drain(connection: &Connection, node: &str) -> Result<NodeDrain, Error> {
    let selector = format!("spec.nodeName={node}");
    let pods: Vec<Pod> = connection
        .list_all_by_fields(&POD.api_resource("v1"), &selector)
        .await?;
    let budgets: Vec<PodDisruptionBudget> = connection
        .list(&POD_DISRUPTION_BUDGET.api_resource("v1"), None, None)
        .await?;
    Ok(node_drain(node, pods, budgets))
}

/// What the API server did with an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The pod is being deleted, or no longer exists.
    Started,
    /// The API server refuses the eviction for now, for this reason.
    Refused(String),
}

/// Evicts a pod, unless a budget does not allow it now.
pub async fn evict(connection: &Connection, pod: &PodToEvict) -> Result<Eviction, Error> {
    let resource = POD.api_resource("v1");
    let action = Action::new("create", &resource)
        .in_namespace(&pod.namespace)
        .with_name(&pod.name)
        .subresource("eviction");
    check_safe_in_url(&action)?;
    let parameters = EvictParams {
        delete_options: Some(DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        }),
        ..EvictParams::default()
    };
    let requests = Request::new(DynamicObject::url_path(&resource, Some(&pod.namespace)));
    let request = requests.evict(&pod.name, &parameters);
    let answer = connection.call(&action, async {
        connection
            .client
            .request::<Value>(request.map_err(kube::Error::BuildRequest)?)
            .await
    });
    match answer.await {
        // A conflict: another pod has the name.
        Ok(_) | Err(Error::NotFound { .. } | Error::Conflict { .. }) => Ok(Eviction::Started),
        // 500: more than one budget selects the pod.
        Err(
            Error::Busy {
                code: 429, message, ..
            }
            | Error::Response {
                code: 500, message, ..
            },
        ) => Ok(Eviction::Refused(message)),
        Err(error) => Err(error),
    }
}

/// Creates the credentials for etcd from the content of files: the CA, and a client certificate with its key. An error contains
/// neither a certificate nor the key.
pub fn etcd_access(ca: &[u8], certificate: &[u8], key: &[u8]) -> Result<Access, CredentialError> {
    Ok(Access {
        tls: Tls::new(Trust::new(ca)?, ClientCertificate::from_pem(certificate, key)?),
        used_ca_key: false,
    })
}

/// Queries the etcd members on these Nodes through port-forwards.
pub async fn survey_members(
    connection: &Connection,
    nodes: Vec<String>,
    access: &Access,
    end: Instant,
) -> Reading<EtcdSurvey> {
    let queries = stacked_queries(&connection.client, &[].into(), nodes);
    let timeouts = time_limits::for_etcd(time_limits::remaining(end));
    survey(
        queries,
        access,
        &FailureContext::with_files(&connection.server),
        timeouts,
    )
    .await
}

/// Whether the Node runs an etcd member as a static pod.
pub async fn has_etcd_pod(connection: &Connection, node: &str) -> Result<bool, Error> {
    let pod = connection
        .get_metadata::<PartialObjectMetadata>(&POD.api_resource("v1"), KUBE_SYSTEM, &pod_name(node))
        .await;
    match pod {
        Ok(_) => Ok(true),
        Err(Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
