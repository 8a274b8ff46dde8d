//! Connections with fake responses, for tests of response sequences that a real server cannot be made to
//! send.

pub mod example;

use std::future::{Future, ready};

use http::{Method, Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use crate::{Connection, clock::ServerClock};

impl Connection {
    /// A connection whose responses come from `answer`, which gets the method and path of a request and returns a
    /// status code and an object. Needs a Tokio runtime.
    pub fn canned(answer: impl Fn(&Method, &str) -> (u16, Value) + Send + 'static) -> Self {
        Self::canned_async(move |method, path| ready(answer(method, path)))
    }

    /// Like [`Connection::canned`], but `answer` is asynchronous.
    pub fn canned_async<A>(answer: impl Fn(&Method, &str) -> A + Send + 'static) -> Self
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
            proxy: None,
            context: None,
            timeout: None,
            log: None,
            kubectl: "kubectl".to_owned(),
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
