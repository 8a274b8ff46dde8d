//! Builders and fakes for unit tests: routers without sockets, reviews, and an API server in memory.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt::Write,
    io,
    net::Ipv4Addr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode, Uri,
    body::{Bytes, Frame},
    header,
};
use kube::{Client, client::Body};
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    cluster::ClusterReader,
    configuration::CurrentConfiguration,
    limits::Limits,
    metrics::Metrics,
    net::{connection::Client as Caller, connection_slots::ConnectionSlots},
    review::{
        admission::Admission,
        decode::{Review, count_values, decode_review},
        router::{Admissions, Router},
    },
    shutdown::Phase,
};

/// A control plane that every rule accepts.
pub(crate) fn control_plane() -> Value {
    kcp_rules::testing::case::Base::ControlPlane("v1beta2").object()
}

/// A router without API access.
pub(crate) fn router() -> Router {
    router_with(None, Limits::default())
}

pub(crate) fn router_with(client: Option<Client>, limits: Limits) -> Router {
    let metrics = Arc::new(Metrics::new());
    Router::new(
        Admissions::for_all(admission(client, &metrics)),
        metrics,
        limits,
        phase(Phase::Serving),
    )
}

/// Admission with the default action of every rule.
pub(crate) fn admission(client: Option<Client>, metrics: &Arc<Metrics>) -> Admission {
    let configuration = CurrentConfiguration::load(None, metrics.clone());
    Admission::new(
        ClusterReader::new(client, metrics.clone()),
        Arc::new(configuration),
    )
}

/// A client without a certificate, on a new connection.
pub(crate) fn caller() -> Caller {
    let slots = ConnectionSlots::new(1, Counter::default());
    Caller {
        slot: slots.take(Ipv4Addr::LOCALHOST.into()).unwrap(),
        verified: false,
    }
}

/// A receiver of a phase that never changes.
pub(crate) fn phase(phase: Phase) -> watch::Receiver<Phase> {
    watch::channel(phase).1
}

/// An API server whose responses a function computes from the path.
pub(crate) fn api_server<F, O>(answer: F) -> Client
where
    F: Fn(String) -> O + Clone + Send + 'static,
    O: Future<Output = (u16, Value)> + Send,
{
    api_server_by_uri(move |uri| answer(uri.path().to_owned()))
}

/// An API server whose responses a function computes from the path and the query.
pub(crate) fn api_server_by_uri<F, O>(answer: F) -> Client
where
    F: Fn(Uri) -> O + Clone + Send + 'static,
    O: Future<Output = (u16, Value)> + Send,
{
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (code, body) = answer(request.uri().clone()).await;
            Response::builder()
                .status(code)
                .body(Full::new(Bytes::from(body.to_string())))
        }
    });
    Client::new(service, "default")
}

/// A review of a write to a control plane named `example`.
pub(crate) fn review(operation: &str, object: &Value, old_object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0f1e2d3c",
            "kind": {
                "group": "controlplane.cluster.x-k8s.io", "version": "v1beta2", "kind": "KubeadmControlPlane"
            },
            "resource": {
                "group": "controlplane.cluster.x-k8s.io", "version": "v1beta2", "resource": "kubeadmcontrolplanes"
            },
            "name": "example",
            "namespace": "default",
            "operation": operation,
            "userInfo": {"username": "somebody"},
            "object": object,
            "oldObject": old_object,
            "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions"}
        }
    })
}

pub(crate) fn decoded(review: &str) -> Review<'_> {
    let body = review.as_bytes();
    decode_review(body, count_values(body)).unwrap()
}

/// A review of a write to the scale subresource. Like Go, it omits a zero.
pub(crate) fn scale_review(replicas: u32) -> Value {
    let spec = if replicas == 0 {
        json!({})
    } else {
        json!({ "replicas": replicas })
    };
    let scale = json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "example", "namespace": "default"},
        "spec": spec
    });
    let mut review = review("UPDATE", &scale, &scale);
    review["request"]["kind"] = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
    review["request"]["subResource"] = json!("scale");
    review
}

/// Sends bytes as a review. Returns the status code and the body.
pub(crate) async fn post(router: &Router, path: &str, body: impl Into<Bytes>) -> (StatusCode, String) {
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body.into()))
        .unwrap();
    read(router.answer(request, &caller()).await).await
}

pub(crate) async fn read(response: Response<Full<Bytes>>) -> (StatusCode, String) {
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (head.status, String::from_utf8(bytes.to_vec()).unwrap())
}

/// Sends a review. Returns the `response` of the `AdmissionReview`.
pub(crate) async fn send(router: &Router, path: &str, review: &Value) -> Value {
    let (code, body) = post(router, path, review.to_string()).await;
    assert_eq!(code, StatusCode::OK, "{body}");
    let mut answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    answer["response"].take()
}

/// What kubectl prints for a denial (k8s.io/kubectl, `pkg/cmd/util/helpers.go`, `checkErr`), followed by the response.
pub(crate) fn kubectl_output(response: &Value) -> String {
    let mut text = String::new();
    let status = &response["status"];
    if status["reason"] == "Invalid" {
        let details = &status["details"];
        let (kind, name) = (
            details["kind"].as_str().unwrap(),
            details["name"].as_str().unwrap(),
        );
        write!(text, "The {kind} {name:?} is invalid:").unwrap();
        let causes = details["causes"].as_array().unwrap();
        let bullet = if causes.len() == 1 { " " } else { "\n* " };
        for cause in causes {
            let (field, message) = (
                cause["field"].as_str().unwrap(),
                cause["message"].as_str().unwrap(),
            );
            write!(text, "{bullet}{field}: {message}").unwrap();
        }
        text.push('\n');
    } else if let Some(message) = status["message"].as_str() {
        let reason = status["reason"].as_str().unwrap();
        writeln!(text, "Error from server ({reason}): {message}").unwrap();
    }
    text.push_str("---\n");
    text.push_str(&serde_json::to_string_pretty(response).unwrap());
    text
}

/// A body that arrives in chunks, without a content length.
pub(crate) struct Chunks(pub(crate) VecDeque<Bytes>);

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|chunk| Ok(Frame::data(chunk))))
    }
}

/// The lines that this thread logs, at every level.
pub(crate) struct Captured {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

impl Captured {
    pub(crate) fn start() -> Self {
        // While there is only one subscriber, tracing-core (callsite.rs, `Rebuilder::JustOne`) asks the thread that logs first whether
        // anybody reads a line, and remembers the answer for all threads. The thread of another test would say no.
        _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let written = text.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(move || Shared(written.clone()));
        let subscriber = tracing_subscriber::registry().with(layer);
        Self {
            text,
            _guard: subscriber.set_default(),
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.text.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

struct Shared(Arc<Mutex<Vec<u8>>>);

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
