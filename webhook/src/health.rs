//! Serves `/livez`, `/readyz` and `/metrics` on a separate port without TLS.
//!
//! The server is ready from the time when it has loaded the TLS key pair and opened the port for reviews
//! until it shuts down. Readiness must not depend on anything else, such as the caches: with `failurePolicy:
//! Fail`, a webhook that is not ready blocks every write for which it is registered.

use std::{fmt::Write, io, sync::Arc, thread};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{self, HeaderValue},
};
use jiff::Timestamp;
use tokio::{
    net::TcpListener,
    runtime,
    sync::{oneshot, watch},
};

use crate::{
    cluster::{CacheState, ClusterReader},
    configuration::CurrentConfiguration,
    limits::RateLimit,
    metrics::{self, Metrics},
    net::{
        connection::{Client, Handle},
        listener::Listener,
    },
    shutdown::Phase,
    tasks::Tasks,
};

/// Responds to probes and scrapes.
pub(crate) struct Health {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) cluster: ClusterReader,
    pub(crate) configuration: Arc<CurrentConfiguration>,
    pub(crate) phase: watch::Receiver<Phase>,
    /// Limits how often the entries of pools are counted, because counting takes a long time and delays probes.
    pub(crate) pools_counted: RateLimit,
}

const TEXT: &str = "text/plain; charset=utf-8";

impl Health {
    pub(crate) fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "use GET\n".to_owned());
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
                // The first two checks always pass, because this port is opened last. They are listed to show what ready means.
                self.probe(
                    "readyz",
                    verbose,
                    &[("key-pair", true), ("listener", true), ("serving", serving)],
                )
            }
            "/metrics" => {
                if self.pools_counted.admit().is_some() {
                    let now = Timestamp::now();
                    self.metrics
                        .set_pool_entries(self.cluster.count_pool_entries(now));
                    self.metrics.set_last_snapshots(self.cluster.last_snapshots(now));
                }
                match self.metrics.encode() {
                    Ok(text) => answer(StatusCode::OK, metrics::CONTENT_TYPE, text),
                    Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
                }
            }
            _ => answer(
                StatusCode::NOT_FOUND,
                TEXT,
                "not found; this port serves /livez, /readyz and /metrics\n".to_owned(),
            ),
        }
    }

    /// Appends the state of the configuration, the API access and the caches. This state does not affect
    /// readiness.
    fn write_state(&self, text: &mut String) {
        if let Some(status) = self.configuration.status() {
            // Writing to a string cannot fail.
            _ = writeln!(text, "[i]configuration {status}");
        }
        // Writing to a string cannot fail.
        if !self.cluster.has_access() {
            _ = writeln!(
                text,
                "[i]api-access none: kcp-webhook refuses writes to the scale subresource"
            );
            return;
        }
        _ = writeln!(text, "[i]api-access configured");
        for version in self.cluster.unregistered_versions() {
            _ = writeln!(
                text,
                "[i]unregistered-version/{version} kcp-webhook does not know this version of KubeadmControlPlanes, so the API \
                 server converts such objects before review; upgrade kcp-webhook"
            );
        }
        for (kind, state, objects) in self.cluster.cache_states() {
            _ = match state {
                CacheState::Synced => writeln!(text, "[i]cache/{kind} {state}, {objects} objects"),
                state => writeln!(text, "[i]cache/{kind} {state}"),
            };
        }
    }

    /// Responds in the format of the API server's own probes.
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
            // Writing to a string cannot fail.
            _ = if *passed {
                writeln!(text, "[+]{check} ok")
            } else {
                writeln!(text, "[-]{check} failed")
            };
        }
        if verbose {
            self.write_state(&mut text);
        }
        let result = if passed { "passed" } else { "failed" };
        _ = writeln!(text, "{name} check {result}");
        answer(code, TEXT, text)
    }
}

impl Handle for Health {
    async fn handle(&self, request: Request<Incoming>, _: &Client) -> Response<Full<Bytes>> {
        self.answer(&request)
    }
}

/// Serves the health port on a thread of its own, and starts a background task that ends when the thread ends. If the task is
/// aborted, the thread ends too. Probes must get a response even while every thread for reviews is busy, because otherwise the
/// kubelet restarts the server.
pub(crate) fn spawn<H: Handle>(
    tasks: &mut Tasks,
    socket: TcpListener,
    listener: Listener<H>,
) -> io::Result<()> {
    let socket = socket.into_std()?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let (running, ended) = oneshot::channel::<()>();
    thread::Builder::new().name("probes".to_owned()).spawn(move || {
        // This is dropped when the thread ends, even by a panic.
        let _running = running;
        runtime.block_on(async {
            let Ok(socket) = TcpListener::from_std(socket) else {
                return;
            };
            tokio::select! {
                () = listener.run(socket) => {}
                _ = stopped => {}
            }
        });
    })?;
    tasks.spawn("probes", async move {
        let _stop = stop;
        // Wait until the other side is dropped. No message is ever sent.
        _ = ended.await;
    });
    Ok(())
}

fn answer(code: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // One response for each connection, so that responses that a client does not read do not pile up.
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests;
