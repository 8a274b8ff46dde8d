//! Answers that are made up, for the order of events that no test can force on a server.

use std::future::{Future, ready};

use http::{Method, Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use crate::{Connection, clock::ServerClock};

impl Connection {
    /// A connection on which each request is answered by what `answer` makes of its method and path: a status and an
    /// object. Needs a runtime.
    pub fn canned(answer: impl Fn(&Method, &str) -> (u16, Value) + Send + 'static) -> Self {
        Self::canned_later(move |method, path| ready(answer(method, path)))
    }

    /// The same with answers that take their time.
    pub fn canned_later<A>(answer: impl Fn(&Method, &str) -> A + Send + 'static) -> Self
    where
        A: Future<Output = (u16, Value)> + Send + 'static,
    {
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = answer(request.method(), request.uri().path());
            async move {
                let (status, object) = answer.await;
                Response::builder()
                    .status(status)
                    .body(Body::from(object.to_string().into_bytes()))
            }
        });
        Self {
            client: Client::new(service, "d"),
            namespace: "d".to_owned(),
            server: "https://s".to_owned(),
            timeout: None,
            log: None,
            clock: ServerClock::default(),
        }
    }
}

pub fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    (code, status)
}
