//! A stand-in for an API server that responds slowly. A real one cannot be made to take exactly this long.

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kcp_rules::testing::case::Base;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time};

/// Writes a kubeconfig for this API server.
pub(crate) fn kubeconfig(api_server: SocketAddr, folder: &Path) -> PathBuf {
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{api_server}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}]
    });
    let file = folder.join("kubeconfig");
    fs::write(&file, content.to_string()).unwrap();
    file
}

/// Serves a Cluster with a control plane and a worker, and takes this long for each response.
pub(crate) async fn slow_api_server(latency: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(move |request: Request<Incoming>| async move {
                time::sleep(latency).await;
                let (code, body) = answer(request.uri().path(), request.uri().query().unwrap_or_default());
                let response = Response::builder()
                    .status(code)
                    .body(Full::<hyper::body::Bytes>::from(body.to_string()));
                Ok::<_, Infallible>(response.unwrap())
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

fn answer(path: &str, query: &str) -> (u16, Value) {
    const CLUSTER_API: &str = "/apis/cluster.x-k8s.io";
    let metadata = json!({"name": "example", "namespace": "default", "resourceVersion": "1", "uid": "1"});
    let of_namespace = path.strip_prefix("/apis/cluster.x-k8s.io/v1beta2/namespaces/default/");
    match (path, of_namespace) {
        (CLUSTER_API, _) => {
            let version = json!({"version": "v1beta2"});
            (200, json!({"versions": [version], "preferredVersion": version}))
        }
        ("/api/v1/namespaces/default", _) | (_, Some("clusters/example")) => {
            (200, json!({"metadata": metadata, "spec": {}, "status": {}}))
        }
        (_, Some("machines")) if query.contains("%21cluster.x-k8s.io%2Fcontrol-plane") => {
            (200, json!({"metadata": {}, "items": [{"metadata": metadata}]}))
        }
        (_, Some("machines" | "machinepools")) => (200, json!({"metadata": {}, "items": []})),
        _ => (
            404,
            json!({"kind": "Status", "code": 404, "message": "not found"}),
        ),
    }
}

/// A review of the deletion of the control plane, which a rule denies because of the worker.
pub(crate) fn deletion() -> String {
    let mut object = Base::ControlPlane("v1beta2").object();
    object["metadata"] = json!({
        "name": "example", "namespace": "default", "labels": {"cluster.x-k8s.io/cluster-name": "example"}
    });
    review("example", "", "DELETE", &json!({"oldObject": object}))
}

/// A review of the creation of a control plane, which a rule denies because of the object alone.
pub(crate) fn bad_creation(name: &str) -> String {
    let mut object = Base::ControlPlane("v1beta2").object();
    object["spec"]["replicas"] = json!(4);
    review(name, "", "CREATE", &json!({"object": object}))
}

/// A review of a scale, for which the server reads a control plane that does not exist.
pub(crate) fn scale(name: &str) -> String {
    let object = json!({"spec": {"replicas": 3}});
    review(name, "scale", "UPDATE", &json!({"object": object}))
}

fn review(name: &str, sub_resource: &str, operation: &str, more: &Value) -> String {
    let mut request = json!({
        "uid": "7", "name": name, "namespace": "default", "subResource": sub_resource, "operation": operation,
        "resource": {
            "group": "controlplane.cluster.x-k8s.io", "version": "v1beta2", "resource": "kubeadmcontrolplanes"
        }
    });
    for (field, value) in more.as_object().unwrap() {
        request[field] = value.clone();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}
