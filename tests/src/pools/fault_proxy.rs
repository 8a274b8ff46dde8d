//! A TLS reverse proxy between one command and the API server. It forwards everything, but injects a fault into one
//! write. It is the administrator to the server, whoever the client is.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow};
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::fault::{Fault, FaultPlan};
use crate::wait::LIMIT;

/// A write that the server answered, whether or not the answer reached the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedWrite {
    pub method: Method,
    /// The path of the object or collection, without the query.
    pub path: String,
    pub status: StatusCode,
    /// The resourceVersion in the answer.
    pub resource_version: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// In the order of the answers.
    pub forwarded: Vec<ForwardedWrite>,
    /// The path of the write into which the fault was injected.
    pub faulted: Option<String>,
}

pub(super) struct FaultProxy {
    port: u16,
    exchange: Arc<Exchange>,
    /// Requests to kill the command. Each waits until the command is dead.
    deaths: mpsc::Receiver<oneshot::Sender<()>>,
    closing: oneshot::Sender<()>,
    accepting: JoinHandle<()>,
}

/// The state that the connections of one command share.
struct Exchange {
    server: Client,
    plan: Option<FaultPlan>,
    kill: mpsc::Sender<oneshot::Sender<()>>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    writes: usize,
    traffic: Traffic,
}

impl FaultProxy {
    /// Listens on a free loopback port.
    pub(super) async fn start(
        acceptor: TlsAcceptor,
        server: Client,
        plan: Option<FaultPlan>,
    ) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("listening in the API server's place")?;
        let port = listener.local_addr()?.port();
        let (kill, deaths) = mpsc::channel(1);
        let (closing, closed) = oneshot::channel();
        let exchange = Arc::new(Exchange {
            server,
            plan,
            kill,
            seen: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, acceptor, exchange.clone(), closed));
        Ok(Self {
            port,
            exchange,
            deaths,
            closing,
            accepting,
        })
    }

    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Waits until the command must be killed. Send a message on the returned channel when it is dead.
    pub(super) async fn death(&mut self) -> oneshot::Sender<()> {
        match self.deaths.recv().await {
            Some(death) => death,
            // No write can request it any more.
            None => std::future::pending().await,
        }
    }

    /// Closes the proxy after its command has ended, and waits until the server has answered every request.
    pub(super) async fn close(self) -> Result<Traffic> {
        let Self {
            exchange,
            closing,
            accepting,
            deaths,
            ..
        } = self;
        // A connection that waits for the death of a command that ended on its own would wait for ever.
        drop(deaths);
        // Ignored: it has ended already.
        let _ = closing.send(());
        let ended = tokio::time::timeout(LIMIT, accepting).await;
        ended.context("a connection outlives its command")??;
        Ok(exchange.seen().traffic.clone())
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    exchange: Arc<Exchange>,
    mut closed: oneshot::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut closed => break,
        };
        // Only the client is affected by a connection that failed before it was accepted.
        let Ok((stream, _)) = stream else { continue };
        let (acceptor, exchange) = (acceptor.clone(), exchange.clone());
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = service_fn(|request| exchange.answer(request));
            // A killed command must not cancel a write that the proxy is forwarding.
            let mut connection = http1::Builder::new();
            let connection = connection.half_close(true);
            // Ignored: the injected fault, or a command that closed its connection.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
    while connections.join_next().await.is_some() {}
}

impl Exchange {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error closes the connection without an answer.
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        // A review of one's own name stores nothing.
        let is_review = request.uri().path().ends_with("/selfsubjectreviews");
        if is_review || matches!(*request.method(), Method::GET | Method::HEAD) {
            return self.forward(request).await;
        }
        match self.fault_of_next_write(request.uri().path()) {
            Some(Fault::KilledBeforeWrite) => Err(self.killed().await),
            None => self.write(request).await,
            Some(Fault::KilledBeforeAnswer) => {
                self.write(request).await?;
                Err(self.killed().await)
            }
            Some(Fault::AnswerCut) => {
                self.write(request).await?;
                Err(anyhow!("the answer is cut"))
            }
            Some(Fault::GatewayTimeout) => {
                self.write(request).await?;
                gateway_timeout()
            }
        }
    }

    /// Counts one write and returns its fault.
    fn fault_of_next_write(&self, path: &str) -> Option<Fault> {
        let mut seen = self.seen();
        seen.writes += 1;
        let plan = self.plan.filter(|plan| plan.write == seen.writes)?;
        seen.traffic.faulted = Some(path.to_owned());
        Some(plan.fault)
    }

    /// Forwards a write and records the answer.
    async fn write(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let (mut head, body) = self.forward(request).await?.into_parts();
        let body = body.collect().await.context("the server's answer")?.to_bytes();
        head.headers.remove(TRANSFER_ENCODING);
        self.seen().traffic.forwarded.push(ForwardedWrite {
            method,
            path,
            status: head.status,
            resource_version: resource_version(&body),
        });
        Ok(Response::from_parts(head, Body::from(body.to_vec())))
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        let (mut head, body) = request.into_parts();
        // These belong to the client's connection and user.
        for header in [HOST, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            head.headers.remove(header);
        }
        let body = body.collect().await.context("the request's body")?.to_bytes();
        let request = Request::from_parts(head, Body::from(body.to_vec()));
        let mut answer = self.server.send(request).await?;
        answer.headers_mut().remove(CONNECTION);
        Ok(answer)
    }

    /// Requests that the command is killed, and waits until it is dead.
    async fn killed(&self) -> anyhow::Error {
        let (dead, death) = oneshot::channel();
        // Ignored: the command has ended by itself.
        if self.kill.send(dead).await.is_ok() {
            let _ = death.await;
        }
        anyhow!("the command is dead")
    }
}

/// The API server's answer if its storage timed out.
fn gateway_timeout() -> Result<Response<Body>> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Timeout", "code": 504,
        "message": "Timeout: request did not complete within the allotted timeout",
    });
    let answer = Response::builder()
        .status(StatusCode::GATEWAY_TIMEOUT)
        .header(CONTENT_TYPE, "application/json");
    Ok(answer.body(Body::from(serde_json::to_vec(&status)?))?)
}

fn resource_version(answer: &[u8]) -> Option<String> {
    let object: Value = serde_json::from_slice(answer).ok()?;
    Some(object.pointer("/metadata/resourceVersion")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use anyhow::ensure;
    use http::Request;
    use serde_json::Value;

    use super::{Fault, FaultPlan, FaultProxy};
    use crate::kubeconfig::{self, User};
    use crate::pki::{Authority, Subject};
    use crate::run::random;
    use crate::wait;

    /// A command that gives up on its write and ends on its own: nothing kills it any more.
    #[tokio::test]
    async fn a_command_that_ends_before_it_is_killed_does_not_block_the_proxy() {
        let folder = std::env::temp_dir().join(format!("kcp-fault-proxy-{:x}", random()));
        fs::create_dir_all(&folder).unwrap();
        let authority = Authority::new("ca").unwrap();
        let ca = authority.write(&folder, "ca").unwrap();
        let subject = Subject {
            common_name: "fault-proxy",
            addresses: &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
            ..Subject::default()
        };
        let pair = authority.issue(&folder, "pair", &subject).unwrap();
        let no_server = kubeconfig::plain_client("http://127.0.0.1:1").unwrap();
        let plan = FaultPlan {
            write: 1,
            fault: Fault::KilledBeforeWrite,
        };
        let proxy = FaultProxy::start(pair.acceptor().unwrap(), no_server, Some(plan))
            .await
            .unwrap();
        let user = User::Certificate(&pair);
        let client = kubeconfig::client(&proxy.url(), &ca.certificate, &user)
            .await
            .unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let command = tokio::spawn(async move {
            let write = Request::post("/api/v1/events").body(b"{}".to_vec()).unwrap();
            client.request::<Value>(write).await
        });
        wait::until("the write reaches the proxy", || async {
            ensure!(proxy.exchange.seen().traffic.faulted.is_some());
            Ok(())
        })
        .await
        .unwrap();
        command.abort();
        let traffic = tokio::time::timeout(Duration::from_secs(60), proxy.close()).await;
        assert!(traffic.expect("the proxy ends").unwrap().forwarded.is_empty());
    }
}
