//! Reads and writes the objects of the manager. Every call has a time limit, and every write is conditional on the resource
//! version that was read.

use http_body_util::{BodyExt as _, Limited};
use hyper::{
    StatusCode, Uri,
    header::{DATE, HeaderMap, WARNING},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Pod, Secret, Service},
        rbac::v1::ClusterRole,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
    apimachinery::pkg::version::Info,
};
use kcp_api::names::group;
use kcp_rules::registration::{
    CANARY_ANNOTATION, CANARY_LEASE, CONFIGURATION, PROBLEM_ANNOTATION, canary_warning,
};
use kube::{
    Api, Client, Resource as _,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
        Request,
    },
    client::Body,
};
use serde_json::{Value, json};
use thiserror::Error;

use super::{decision::ServerVersion, registration::Owner};
use crate::{
    cluster::SUPPORTED,
    hook::Hook,
    limits::shorten,
    manager::request::{RequestError, call},
};

/// The maximum size in bytes of the response to a request for the version.
const MAX_VERSION: usize = 64 * 1024;

/// The maximum length in characters of a problem in the annotation of the Lease.
const MAX_PROBLEM: usize = 1000;

/// The name of the Service and of the `ClusterRole` in `manifests/base`, and the value of the label of the Pods.
const NAME: &str = "kcp-webhook";

/// The name of the port in the Service and in the Pods.
const PORT: &str = "webhook";

/// The Secret with the CAs, which only the manager reads, and its type.
pub(super) const CA_SECRET: (&str, &str) = ("kcp-webhook-ca", "Opaque");

/// The name under which the API server records the fields that the manager writes.
const FIELD_MANAGER: &str = "kcp-webhook-manage";

/// Why an object could not be read or written.
#[derive(Debug, Error)]
pub(crate) enum ObjectError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("Service {0} has no address, or no port named {PORT}; apply the manifests again")]
    NoAddress(String),
    #[error("the API server reports the version {0:?}, which is not a number")]
    Version(String),
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// A Pod of the webhook.
pub(crate) struct WebhookPod {
    pub(crate) name: String,
    pub(crate) is_ready: bool,
    /// Where it listens. `None` before it has an address.
    pub(crate) address: Option<Address>,
}

pub(crate) struct Objects {
    client: Client,
    namespace: String,
}

impl Objects {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
        }
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The host name in certificates, as the API server derives it from the Service: k8s.io/apiserver,
    /// pkg/util/webhook/client.go.
    pub(crate) fn host(&self) -> String {
        format!("{NAME}.{}.svc", self.namespace)
    }

    /// The version of the API server, and its time.
    pub(crate) async fn server(&self) -> Result<(ServerVersion, Timestamp), ObjectError> {
        let action = "get /version";
        let failed = |error: &dyn ToString| RequestError::Failed {
            action: action.to_owned(),
            error: error.to_string(),
        };
        let mut request = hyper::Request::new(Body::empty());
        *request.uri_mut() = Uri::from_static("/version");
        let response = call(action, self.client.send(request)).await?;
        let now = date(response.headers()).ok_or_else(|| failed(&"the response has no date"))?;
        let body = Limited::new(response.into_body(), MAX_VERSION).collect().await;
        let body = body.map_err(|error| failed(&error))?.to_bytes();
        let info: Info = serde_json::from_slice(&body).map_err(|error| failed(&error))?;
        Ok((parse_version(&info.major, &info.minor)?, now))
    }

    /// Returns the newest version of control planes that the API server serves and the webhook can decode. If there is none,
    /// returns the newest version that the webhook can decode: then nobody can write a control plane.
    pub(crate) async fn control_plane_version(&self) -> Result<&'static str, ObjectError> {
        let [newest, _] = SUPPORTED;
        for version in SUPPORTED {
            let group_version = format!("{}/{version}", group::CONTROL_PLANE);
            let action = format!("discover {group_version}");
            let listed = async {
                match self.client.list_api_group_resources(&group_version).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
                    listed => listed.map(|listed| {
                        let mut resources = listed.resources.iter();
                        resources.any(|resource| resource.name == "kubeadmcontrolplanes")
                    }),
                }
            };
            if call(&action, listed).await? {
                return Ok(version);
            }
        }
        Ok(newest)
    }

    /// The `ClusterRole` that owns the configurations. `None` if it is gone or is being deleted.
    pub(crate) async fn owner(&self) -> Result<Option<Owner>, ObjectError> {
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let role = call("get the ClusterRole kcp-webhook", roles.get_opt(NAME)).await?;
        let metadata = role.map(|role| role.metadata);
        let metadata = metadata.filter(|metadata| metadata.deletion_timestamp.is_none());
        Ok(metadata.and_then(|metadata| metadata.uid).map(|uid| Owner {
            name: NAME.to_owned(),
            uid,
        }))
    }

    /// Where the API server reaches the Service: at its cluster IP, or at its external name, as k8s.io/apiserver,
    /// pkg/util/proxy, `ResolveCluster`, finds it.
    pub(crate) async fn service_address(&self) -> Result<Address, ObjectError> {
        let services: Api<Service> = self.namespaced();
        let service = call("get the Service kcp-webhook", services.get(NAME)).await?;
        address(&service).ok_or_else(|| ObjectError::NoAddress(NAME.to_owned()))
    }

    pub(crate) async fn secret(&self, name: &str) -> Result<Option<Secret>, ObjectError> {
        let secrets: Api<Secret> = self.namespaced();
        Ok(call(&format!("get the Secret {name}"), secrets.get_opt(name)).await?)
    }

    /// Writes a Secret. `before` is the Secret that was read.
    pub(crate) async fn write_secret(
        &self,
        (name, kind): (&str, &str),
        before: Option<&Secret>,
        change: impl FnOnce(&mut Secret),
    ) -> Result<(), ObjectError> {
        let secrets: Api<Secret> = self.namespaced();
        let mut secret = before.cloned().unwrap_or_else(|| Secret {
            metadata: named(name),
            type_: Some(kind.to_owned()),
            ..Secret::default()
        });
        change(&mut secret);
        // Keep the resource version in the metadata, so that the API server rejects the write if another client has changed the
        // Secret since.
        if before.is_some() {
            let action = format!("update the Secret {name}");
            call(&action, secrets.replace(name, &parameters(), &secret)).await?;
        } else {
            let action = format!("create the Secret {name}");
            call(&action, secrets.create(&parameters(), &secret)).await?;
        }
        Ok(())
    }

    pub(crate) async fn configuration(&self, hook: Hook) -> Result<Option<Value>, ObjectError> {
        let action = format!("get the {} {CONFIGURATION}", hook.kind());
        let found = call(&action, self.configurations(hook).get_opt(CONFIGURATION)).await?;
        let read = found.map(serde_json::to_value).transpose();
        Ok(read.map_err(|error| RequestError::failed(&action, &error))?)
    }

    /// Creates a configuration, or replaces one that has the resource version that was read.
    pub(crate) async fn write_configuration(&self, hook: Hook, object: &Value) -> Result<(), ObjectError> {
        let action = format!("write the {} {CONFIGURATION}", hook.kind());
        let object: DynamicObject =
            serde_json::from_value(object.clone()).map_err(|error| RequestError::failed(&action, &error))?;
        let api = self.configurations(hook);
        if object.metadata.resource_version.is_none() {
            call(&action, api.create(&parameters(), &object)).await?;
        } else {
            call(&action, api.replace(CONFIGURATION, &parameters(), &object)).await?;
        }
        Ok(())
    }

    /// Writes the Lease that the API server sends to the webhook as a canary. Returns whether the webhook has answered.
    /// `answered` is the time of the last answer, which the Lease records.
    pub(crate) async fn send_canary(
        &self,
        answered: Option<Timestamp>,
        problem: Option<&str>,
    ) -> Result<bool, ObjectError> {
        let action = format!("update the Lease {CANARY_LEASE}");
        let nonce = Timestamp::now().as_nanosecond().to_string();
        let problem = problem.map(|problem| shorten(problem, MAX_PROBLEM, ""));
        let mut lease =
            json!({"metadata": {"annotations": {CANARY_ANNOTATION: nonce, PROBLEM_ANNOTATION: problem}}});
        if let (Some(lease), Some(answered)) = (lease.as_object_mut(), answered) {
            lease.insert("spec".to_owned(), json!({"renewTime": MicroTime(answered)}));
        }
        let of_manager = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let request = Request::new(Lease::url_path(&(), Some(&self.namespace)))
            .patch(CANARY_LEASE, &of_manager, &Patch::Merge(lease))
            .map_err(|error| RequestError::failed(&action, &error))?;
        let response = call(&action, self.client.send(request.map(Body::from))).await?;
        match response.status() {
            status if status.is_success() => Ok(has_warning(response.headers(), &canary_warning(&nonce))),
            StatusCode::NOT_FOUND => self.create_canary().await.map(|()| false),
            status => Err(RequestError::failed(&action, &status).into()),
        }
    }

    async fn create_canary(&self) -> Result<(), ObjectError> {
        let leases: Api<Lease> = self.namespaced();
        let lease = Lease {
            metadata: named(CANARY_LEASE),
            spec: None,
        };
        let action = format!("create the Lease {CANARY_LEASE}");
        match call(&action, leases.create(&parameters(), &lease)).await {
            // On a conflict, another manager has created the Lease.
            Ok(_) | Err(RequestError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The Pods of the webhook that may serve.
    pub(crate) async fn pods(&self) -> Result<Vec<WebhookPod>, ObjectError> {
        let pods: Api<Pod> = self.namespaced();
        let selected = ListParams::default().labels("app.kubernetes.io/name=kcp-webhook");
        let listed = call("list pods", pods.list(&selected)).await?;
        Ok(listed
            .items
            .iter()
            .filter(|pod| may_serve(pod))
            .map(webhook_pod)
            .collect())
    }

    fn namespaced<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn configurations(&self, hook: Hook) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", hook.kind());
        Api::all_with(
            self.client.clone(),
            &ApiResource::from_gvk_with_plural(&gvk, hook.plural()),
        )
    }
}

/// Returns the time of the API server. The API server's certificates and the webhook's must be valid at this time, not at the
/// time of this host.
fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let date = jiff::fmt::rfc2822::parse(headers.get(DATE)?.to_str().ok()?).ok()?;
    Some(date.timestamp())
}

/// Whether the API server has returned a warning, as RFC 7234 defines the header.
fn has_warning(headers: &HeaderMap, text: &str) -> bool {
    let warnings = headers.get_all(WARNING).iter();
    let mut warnings = warnings.filter_map(|warning| warning.to_str().ok());
    warnings.any(|warning| warning.contains(&format!("\"{text}\"")))
}

fn parameters() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

/// Some distributions append a character to the minor version, as in `31+`.
fn parse_version(major: &str, minor: &str) -> Result<ServerVersion, ObjectError> {
    let number = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let digits = text.get(..end).unwrap_or_default();
        digits
            .parse()
            .map_err(|_| ObjectError::Version(format!("{major}.{minor}")))
    };
    Ok(ServerVersion {
        major: number(major)?,
        minor: number(minor)?,
    })
}

fn address(service: &Service) -> Option<Address> {
    let spec = service.spec.as_ref()?;
    let host = if spec.type_.as_deref() == Some("ExternalName") {
        spec.external_name.clone()
    } else {
        spec.cluster_ip
            .clone()
            .filter(|ip| !ip.is_empty() && ip != "None")
    };
    let port = spec
        .ports
        .as_ref()?
        .iter()
        .find(|port| port.name.as_deref() == Some(PORT))?;
    Some(Address {
        host: host?,
        port: u16::try_from(port.port).ok()?,
    })
}

/// Whether a Pod serves, or is about to. A Pod without a node has not mounted a Secret yet, so it does not count.
fn may_serve(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let has_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    has_node && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the Pod is an endpoint of its Service.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    is_ready && pod.metadata.deletion_timestamp.is_none()
}

fn webhook_pod(pod: &Pod) -> WebhookPod {
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(PORT));
    let port = port.and_then(|port| u16::try_from(port.container_port).ok());
    WebhookPod {
        name: pod.metadata.name.clone().unwrap_or_default(),
        is_ready: is_ready(pod),
        address: ip.zip(port).map(|(host, port)| Address { host, port }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_is_reached_as_the_api_server_reaches_it() {
        let ports = json!([{"name": "other", "port": 80}, {"name": "webhook", "port": 443}]);
        let target = |host: &str| Some((host.to_owned(), 443));
        for (spec, expected) in [
            (
                json!({"type": "ClusterIP", "clusterIP": "10.0.0.7", "ports": ports}),
                target("10.0.0.7"),
            ),
            (json!({"clusterIP": "fd00::7", "ports": ports}), target("fd00::7")),
            (
                json!({"type": "ExternalName", "externalName": "host.example", "ports": ports}),
                target("host.example"),
            ),
            (json!({"clusterIP": "None", "ports": ports}), None),
            (json!({"clusterIP": "10.0.0.7", "ports": [{"port": 443}]}), None),
        ] {
            let service: Service = serde_json::from_value(json!({"spec": spec})).unwrap();
            let found = address(&service).map(|address| (address.host, address.port));
            assert_eq!(found, expected, "{spec}");
        }
    }

    #[test]
    fn the_time_of_the_api_server_is_read() {
        let mut headers = HeaderMap::new();
        assert_eq!(date(&headers), None);
        headers.insert(DATE, "Tue, 01 Dec 2026 12:00:00 GMT".parse().unwrap());
        assert_eq!(date(&headers), "2026-12-01T12:00:00Z".parse().ok());
        headers.insert(DATE, "today".parse().unwrap());
        assert_eq!(date(&headers), None);
    }

    #[test]
    fn the_answer_to_a_canary_is_a_warning() {
        let mut headers = HeaderMap::new();
        for (warning, expected) in [
            ("299 - \"kcp-webhook has received the canary 123\"", false),
            ("299 - \"v1 Lease is deprecated\"", false),
            ("299 - \"kcp-webhook has received the canary 12\"", true),
        ] {
            headers.append(WARNING, warning.parse().unwrap());
            assert_eq!(
                has_warning(&headers, &canary_warning("12")),
                expected,
                "{warning}"
            );
        }
    }

    #[test]
    fn a_version_is_read_with_and_without_a_suffix() {
        let read = |major, minor| {
            parse_version(major, minor)
                .map(|version| version.to_string())
                .ok()
        };
        assert_eq!(read("1", "31").as_deref(), Some("1.31"));
        assert_eq!(read("1", "30+").as_deref(), Some("1.30"));
        assert_eq!(read("", "31"), None);
    }

    #[test]
    fn only_pods_that_may_serve_are_asked() {
        let pod = |node: Option<&str>, phase: &str, ip: Option<&str>| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p"},
                "spec": {"nodeName": node, "containers": [{"name": "c", "ports": [
                    {"name": "health", "containerPort": 8081}, {"name": "webhook", "containerPort": 9443}]}]},
                "status": {"phase": phase, "podIP": ip},
            }))
            .unwrap()
        };
        for (pod, expected) in [
            (
                pod(Some("n"), "Running", Some("10.0.0.7")),
                Some(Some("10.0.0.7")),
            ),
            (pod(Some("n"), "Pending", None), Some(None)),
            (pod(None, "Pending", None), None),
            (pod(Some("n"), "Failed", Some("10.0.0.7")), None),
        ] {
            let found = may_serve(&pod).then(|| webhook_pod(&pod).address.map(|address| address.host));
            assert_eq!(found, expected.map(|ip| ip.map(str::to_owned)), "{pod:?}");
        }
    }
}
