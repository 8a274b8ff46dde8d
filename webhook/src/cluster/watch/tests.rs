use std::{collections::VecDeque, convert::Infallible, pin::Pin, sync::Mutex as StdMutex, task};

use hyper::{
    Response,
    body::{Bytes, Frame},
};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Sleep;

use super::*;
use crate::{cluster::kinds::Name, metrics::Metrics};

/// What an API server answers with: some text, which ends or, for a watch, after a while.
struct Answer {
    code: u16,
    pieces: VecDeque<String>,
    lasts: Pin<Box<Sleep>>,
}

impl Answer {
    fn new(code: u16, text: String, lasts: Duration) -> Self {
        Self {
            code,
            pieces: VecDeque::from([text]),
            lasts: Box::pin(time::sleep(lasts)),
        }
    }

    fn of(code: u16, json: &Value) -> Self {
        Self::new(code, json.to_string(), Duration::ZERO)
    }

    fn watch(events: &str, lasts: u64) -> Self {
        Self::new(200, events.to_owned(), Duration::from_secs(lasts))
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.pieces.pop_front() {
            Some(piece) => task::Poll::Ready(Some(Ok(Frame::data(piece.into())))),
            None => self.lasts.as_mut().poll(context).map(|()| None),
        }
    }
}

/// What an API server was asked, each with the second in which.
type Asked = StdMutex<Vec<(u64, String)>>;

/// A cache of customizations, kept up to date with an API server that answers so; and what that was asked.
fn kept(answer: impl Fn(&str) -> Answer + Clone + Send + Sync + 'static) -> (Cluster, Tasks, Arc<Asked>) {
    let asked = Arc::new(StdMutex::new(Vec::new()));
    let (seen, began) = (asked.clone(), Instant::now());
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
        seen.lock()
            .unwrap()
            .push((began.elapsed().as_secs(), what.clone()));
        let answer = answer(&what);
        let response = Response::builder().status(answer.code).body(answer);
        std::future::ready(response)
    });
    let client = Client::new(service, "default");
    let cluster = Cluster::new(Some(client), Arc::new(Metrics::new()));
    let mut tasks = Tasks::default();
    let listing = Arc::default();
    spawn(
        &cluster,
        &mut tasks,
        &listing,
        CUSTOMIZATION,
        &cluster.caches.customizations,
    );
    (cluster, tasks, asked)
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
        &json!({"kind": "Status", "status": "Failure", "code": code, "reason": "Whatever", "message": "no"}),
    )
}

fn customizations(cluster: &Cluster) -> &Cache<Name> {
    &cluster.caches.customizations
}

/// The seconds in which this was asked.
fn when(asked: &Asked, what: &str) -> Vec<u64> {
    let asked = asked.lock().unwrap();
    asked
        .iter()
        .filter(|(_, asked)| asked.starts_with(what))
        .map(|(second, _)| *second)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn what_changes_is_taken_in() {
    let (cluster, _tasks, asked) = kept(|what| match what {
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
    assert_eq!(customizations(&cluster).state(), (State::Synced, 2));
    assert_eq!(
        customizations(&cluster).names("prod"),
        Some(vec!["b".to_owned(), "c".to_owned()])
    );
    // A watch that ends goes on from what was seen last.
    time::sleep(Duration::from_secs(140)).await;
    assert_eq!(when(&asked, "watch v1 from 12"), [131]);
    assert_eq!(when(&asked, "list"), [0]);
    assert_eq!(customizations(&cluster).state(), (State::Synced, 2));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_silent_is_given_up() {
    let (cluster, _tasks, asked) = kept(|what| match what {
        "group" => group("v1"),
        "list v1" => list(&["a"]),
        _ => Answer::watch("", 10_000),
    });
    time::sleep(SILENCE + Duration::from_millis(500)).await;
    assert_eq!(customizations(&cluster).state(), (State::Failing("error"), 1));
    assert_eq!(customizations(&cluster).names("prod"), None);
    time::sleep(Duration::from_secs(1)).await;
    assert_eq!(customizations(&cluster).state(), (State::Synced, 1));
    assert_eq!(when(&asked, "list"), [0, 161]);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_ever_less_often() {
    const TRIED: [u64; 8] = [0, 1, 3, 7, 15, 31, 61, 91];
    let forbidden_list = |what: &str| match what {
        "group" => group("v1"),
        _ => failure(403),
    };
    let forbidden_watch = |what: &str| match what {
        "group" => group("v1"),
        "list v1" => list(&["a"]),
        _ => failure(403),
    };
    let watch_that_ends_at_once = |what: &str| match what {
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
    let answers: [fn(&str) -> Answer; 4] =
        [forbidden_list, forbidden_watch, watch_that_ends_at_once, too_old];
    for (answer, reason) in answers
        .into_iter()
        .zip(["forbidden", "forbidden", "error", "error"])
    {
        let (cluster, _tasks, asked) = kept(answer);
        time::sleep(Duration::from_secs(100)).await;
        assert_eq!(customizations(&cluster).state().0, State::Failing(reason));
        assert_eq!(when(&asked, "list"), TRIED, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_absent_and_asked_for_again() {
    let no_group = |_: &str| Answer::of(404, &json!("404 page not found"));
    let no_kind = |what: &str| match what {
        "group" => group("v1"),
        _ => Answer::of(404, &json!("404 page not found")),
    };
    let cases: [fn(&str) -> Answer; 2] = [no_group, no_kind];
    for answer in cases {
        let (cluster, _tasks, asked) = kept(answer);
        time::sleep(Duration::from_secs(70)).await;
        assert_eq!(customizations(&cluster).state(), (State::Absent, 0));
        assert_eq!(customizations(&cluster).names("prod"), Some(Vec::new()));
        assert_eq!(when(&asked, "group"), [0, 30, 60]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_newer_version_is_listed_anew() {
    let asked_for_group = Arc::new(StdMutex::new(0));
    let (cluster, _tasks, asked) = kept(move |what| match what {
        "group" => {
            let mut times = asked_for_group.lock().unwrap();
            *times += 1;
            group(if *times == 1 { "v1beta1" } else { "v1beta2" })
        }
        "list v1beta1" => list(&["a"]),
        "list v1beta2" => list(&["a", "b"]),
        _ => Answer::watch("", 120),
    });
    time::sleep(Duration::from_secs(121)).await;
    assert_eq!(when(&asked, "list v1beta2"), [120]);
    assert_eq!(customizations(&cluster).state(), (State::Synced, 2));
}
