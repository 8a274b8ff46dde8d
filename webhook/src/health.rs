//! `/livez`, `/readyz` and `/metrics`, on a port of their own, without TLS.
//!
//! Ready means: the key pair is loaded, the listener is up, and the server is not on its way down. Never more: with
//! `failurePolicy: Fail` an unready webhook stops every write that it is registered for.

use std::{fmt::Write, sync::Arc};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{self, HeaderValue},
};
use tokio::sync::watch;

use crate::{
    cluster::{Cluster, State},
    handle::Handle,
    metrics::{self, Metrics},
    shutdown::Phase,
};

/// Answers probes.
pub(crate) struct Health {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) cluster: Cluster,
    pub(crate) phase: watch::Receiver<Phase>,
}

const TEXT: &str = "text/plain; charset=utf-8";

impl Health {
    pub(crate) fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "ask with GET\n".to_owned());
            response
                .headers_mut()
                .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let verbose = request.uri().query().is_some_and(|query| {
            query
                .split('&')
                .any(|part| part.split('=').next() == Some("verbose"))
        });
        match request.uri().path() {
            "/livez" => self.probe("livez", verbose, &[]),
            "/readyz" => {
                let serving = *self.phase.borrow() == Phase::Serving;
                // The first two hold before this port answers; they are listed so that what ready means can be read.
                self.probe(
                    "readyz",
                    verbose,
                    &[("key-pair", true), ("listener", true), ("serving", serving)],
                )
            }
            "/metrics" => match self.metrics.encode() {
                Ok(text) => answer(StatusCode::OK, metrics::CONTENT_TYPE, text),
                Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
            },
            _ => answer(
                StatusCode::NOT_FOUND,
                TEXT,
                "there is nothing at this path; ask /livez, /readyz or /metrics\n".to_owned(),
            ),
        }
    }

    /// What is said and does not count: what cannot be kept is read live.
    fn tell_of_the_cluster(&self, text: &mut String) {
        // Writing to a string does not fail.
        if !self.cluster.has_access() {
            _ = writeln!(text, "[i]api-access none: the scale subresource is refused");
            return;
        }
        _ = writeln!(text, "[i]api-access configured");
        for (kind, state, objects) in self.cluster.caches() {
            _ = match state {
                State::Synced => writeln!(text, "[i]cache/{kind} {state}, {objects} objects"),
                state => writeln!(text, "[i]cache/{kind} {state}"),
            };
        }
    }

    /// As the API server writes its own probes.
    fn probe(&self, name: &str, verbose: bool, checks: &[(&str, bool)]) -> Response<Full<Bytes>> {
        let passed = checks.iter().all(|(_, passed)| *passed);
        let code = if passed {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        if passed && !verbose {
            return answer(code, TEXT, "ok".to_owned());
        }
        let mut text = String::new();
        for (check, passed) in checks {
            // Writing to a string does not fail.
            _ = if *passed {
                writeln!(text, "[+]{check} ok")
            } else {
                writeln!(text, "[-]{check} failed")
            };
        }
        if verbose {
            self.tell_of_the_cluster(&mut text);
        }
        let outcome = if passed { "passed" } else { "failed" };
        _ = writeln!(text, "{name} check {outcome}");
        answer(code, TEXT, text)
    }
}

impl Handle for Health {
    async fn handle(&self, request: Request<Incoming>, overloaded: bool) -> Response<Full<Bytes>> {
        if overloaded {
            return answer(
                StatusCode::SERVICE_UNAVAILABLE,
                TEXT,
                "too many connections are open\n".to_owned(),
            );
        }
        self.answer(&request)
    }
}

fn answer(code: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests;
