use std::{collections::VecDeque, convert::Infallible, pin::Pin, sync::Mutex as StdMutex, task};

use hyper::{
    Response,
    body::{Bytes, Frame},
};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Sleep;

use super::*;
use crate::{
    cluster::{ClusterReader, kinds::CachedCustomization},
    metrics::Metrics,
};

/// An answer of the API server: some text. A watch stays open for a while after it.
struct Answer {
    code: u16,
    chunks: VecDeque<String>,
    open: Pin<Box<Sleep>>,
}

impl Answer {
    fn new(code: u16, text: String, open: Duration) -> Self {
        Self {
            code,
            chunks: VecDeque::from([text]),
            open: Box::pin(time::sleep(open)),
        }
    }

    fn of(code: u16, json: &Value) -> Self {
        Self::new(code, json.to_string(), Duration::ZERO)
    }

    fn watch(events: &str, open: u64) -> Self {
        Self::new(200, events.to_owned(), Duration::from_secs(open))
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.chunks.pop_front() {
            Some(chunk) => task::Poll::Ready(Some(Ok(Frame::data(chunk.into())))),
            None => self.open.as_mut().poll(context).map(|()| None),
        }
    }
}

/// The requests to an API server, each with its time in seconds.
type Requests = StdMutex<Vec<(u64, String)>>;

/// Watches the customizations in an API server with these answers. Also returns the requests to it.
fn watched(
    answer: impl Fn(&str) -> Answer + Clone + Send + Sync + 'static,
) -> (ClusterReader, Tasks, Arc<Requests>) {
    let requests = Arc::new(StdMutex::new(Vec::new()));
    let (log, began) = (requests.clone(), Instant::now());
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri();
        let query = uri.query().unwrap_or_default();
        let what = match uri.path() {
            "/apis/hive.openshift.io" => "group".to_owned(),
            path if query.contains("watch=true") => {
                let from = query.rsplit('=').next().unwrap();
                format!("watch {} from {from}", version_in(path))
            }
            path => format!("list {}", version_in(path)),
        };
        log.lock()
            .unwrap()
            .push((began.elapsed().as_secs(), what.clone()));
        let answer = answer(&what);
        let response = Response::builder().status(answer.code).body(answer);
        std::future::ready(response)
    });
    let client = Client::new(service, "default");
    let cluster = ClusterReader::new(Some(client), Arc::new(Metrics::new()));
    let mut tasks = Tasks::default();
    let listing = Arc::default();
    spawn(
        &cluster.server,
        &mut tasks,
        &listing,
        kind::CLUSTER_DEPLOYMENT_CUSTOMIZATION,
        &cluster.caches.customizations,
    );
    (cluster, tasks, requests)
}

fn version_in(path: &str) -> &str {
    path.split('/').nth(3).unwrap()
}

fn group(version: &str) -> Answer {
    Answer::of(
        200,
        &json!({"versions": [{"version": version}], "preferredVersion": {"version": version}}),
    )
}

fn object(name: &str, resource_version: u32) -> Value {
    json!({"metadata": {"name": name, "namespace": "prod", "resourceVersion": resource_version.to_string()}})
}

fn list(names: &[&str]) -> Answer {
    let items: Vec<_> = names.iter().map(|name| object(name, 1)).collect();
    Answer::of(
        200,
        &json!({"metadata": {"resourceVersion": "7"}, "items": items}),
    )
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn failure(code: u16) -> Answer {
    Answer::of(
        code,
        &json!({"kind": "Status", "status": "Failure", "code": code, "reason": "Other", "message": "no"}),
    )
}

fn customizations(cluster: &ClusterReader) -> &Cache<CachedCustomization> {
    &cluster.caches.customizations
}

/// The times of the requests that start with `what`.
fn when(requests: &Requests, what: &str) -> Vec<u64> {
    let requests = requests.lock().unwrap();
    requests
        .iter()
        .filter(|(_, request)| request.starts_with(what))
        .map(|(second, _)| *second)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn applies_watch_events() {
    let (cluster, _tasks, requests) = watched(|what| match what {
        "group" => group("v1"),
        "list v1" => list(&["a", "b"]),
        "watch v1 from 7" => Answer::watch(
            &[
                event("DELETED", &object("a", 8)),
                event("ADDED", &object("c", 9)),
                event("MODIFIED", &object("b", 10)),
                event("BOOKMARK", &json!({"metadata": {"resourceVersion": "12"}})),
            ]
            .concat(),
            290 - 160 + 1,
        ),
        _ => Answer::watch("", 10_000),
    });
    time::sleep(Duration::from_millis(10)).await;
    assert_eq!(customizations(&cluster).state(), (CacheState::Synced, 2));
    assert_eq!(
        customizations(&cluster).names("prod"),
        Some(vec!["b".to_owned(), "c".to_owned()])
    );
    // After the end of a watch, the next one starts at the last resource version.
    time::sleep(Duration::from_secs(140)).await;
    assert_eq!(when(&requests, "watch v1 from 12"), [131]);
    assert_eq!(when(&requests, "list"), [0]);
    assert_eq!(customizations(&cluster).state(), (CacheState::Synced, 2));
}

#[tokio::test(start_paused = true)]
async fn restarts_a_watch_without_events() {
    let (cluster, _tasks, requests) = watched(|what| match what {
        "group" => group("v1"),
        "list v1" => list(&["a"]),
        _ => Answer::watch("", 10_000),
    });
    time::sleep(EVENT_TIMEOUT + Duration::from_millis(500)).await;
    assert_eq!(
        customizations(&cluster).state(),
        (CacheState::Failing("error"), 1)
    );
    assert_eq!(customizations(&cluster).names("prod"), None);
    time::sleep(Duration::from_secs(1)).await;
    assert_eq!(customizations(&cluster).state(), (CacheState::Synced, 1));
    assert_eq!(when(&requests, "list"), [0, 161]);
}

#[tokio::test(start_paused = true)]
async fn retries_with_growing_delays() {
    const LISTED: [u64; 8] = [0, 1, 3, 7, 15, 31, 61, 91];
    let forbidden_list = |what: &str| match what {
        "group" => group("v1"),
        _ => failure(403),
    };
    let forbidden_watch = |what: &str| match what {
        "group" => group("v1"),
        "list v1" => list(&["a"]),
        _ => failure(403),
    };
    let watch_that_ends_immediately = |what: &str| match what {
        "group" => group("v1"),
        "list v1" => list(&["a"]),
        _ => Answer::watch("", 0),
    };
    let too_old = |what: &str| match what {
        "group" => group("v1"),
        "list v1" => list(&["a"]),
        _ => Answer::watch(
            &event(
                "ERROR",
                &json!({"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}),
            ),
            100,
        ),
    };
    let answers: [fn(&str) -> Answer; 4] = [
        forbidden_list,
        forbidden_watch,
        watch_that_ends_immediately,
        too_old,
    ];
    for (answer, reason) in answers
        .into_iter()
        .zip(["forbidden", "forbidden", "error", "error"])
    {
        let (cluster, _tasks, requests) = watched(answer);
        time::sleep(Duration::from_secs(100)).await;
        assert_eq!(customizations(&cluster).state().0, CacheState::Failing(reason));
        assert_eq!(when(&requests, "list"), LISTED, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn checks_again_for_a_kind_that_is_not_served() {
    let no_group = |_: &str| Answer::of(404, &json!("404 page not found"));
    let no_kind = |what: &str| match what {
        "group" => group("v1"),
        _ => Answer::of(404, &json!("404 page not found")),
    };
    let cases: [fn(&str) -> Answer; 2] = [no_group, no_kind];
    for answer in cases {
        let (cluster, _tasks, requests) = watched(answer);
        time::sleep(Duration::from_secs(70)).await;
        assert_eq!(customizations(&cluster).state(), (CacheState::Absent, 0));
        assert_eq!(customizations(&cluster).names("prod"), Some(Vec::new()));
        assert_eq!(when(&requests, "group"), [0, 30, 60]);
    }
}

#[tokio::test(start_paused = true)]
async fn lists_again_in_a_newer_version() {
    let discoveries = Arc::new(StdMutex::new(0));
    let (cluster, _tasks, requests) = watched(move |what| match what {
        "group" => {
            let mut times = discoveries.lock().unwrap();
            *times += 1;
            group(if *times == 1 { "v1beta1" } else { "v1beta2" })
        }
        "list v1beta1" => list(&["a"]),
        "list v1beta2" => list(&["a", "b"]),
        _ => Answer::watch("", 120),
    });
    time::sleep(Duration::from_secs(121)).await;
    assert_eq!(when(&requests, "list v1beta2"), [120]);
    assert_eq!(customizations(&cluster).state(), (CacheState::Synced, 2));
}
