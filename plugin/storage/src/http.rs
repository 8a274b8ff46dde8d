//! Sends the requests of the crate `object_store`, whose own HTTP client would add reqwest and aws-lc to the dependencies.

use std::{
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use async_trait::async_trait;
use http::{HeaderValue, Method, StatusCode, Uri, header::IF_NONE_MATCH};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::{
        legacy::{
            Client,
            connect::{HttpConnector as TcpConnector, proxy::Tunnel},
        },
        proxy::matcher::Matcher,
    },
    rt::{TokioExecutor, TokioIo},
};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
        HttpResponseBody, HttpService,
    },
};
use rustls::ClientConfig;
use tokio::{
    net::TcpStream,
    time::{Instant, Sleep, timeout},
};
use tower::Service;

use crate::error::{Failure, StorageError};

/// The time limit for a connection to the server, or to a proxy.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The time limit from the start of a request to the headers of its response. At about half a megabit per second, a part of an
/// upload takes this long.
const REQUEST_LIMIT: Duration = Duration::from_secs(120);

/// How long a server may pause in the body of a response.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// The maximum size in bytes of a response that says why a request failed.
const MAX_ERROR_BYTES: usize = 64 << 10;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Creates the client of a bucket. Clones record their failures in one place.
#[derive(Clone, Debug)]
pub(crate) struct StorageConnector {
    client: Client<HttpsConnector<Route>, HttpRequestBody>,
    last_failure: Arc<Mutex<Option<Failure>>>,
    /// Whether the environment names credentials.
    has_credentials: bool,
}

impl StorageConnector {
    pub(crate) fn new(tls: ClientConfig, has_credentials: bool) -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            // `Bucket::open` refuses http:// unless the user allows it.
            .https_or_http()
            .enable_http1()
            .wrap_connector(Route::from_environment());
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            last_failure: Arc::default(),
            has_credentials,
        }
    }

    /// The error of a request to a bucket or an object, with the reason of the last request that failed.
    pub(crate) fn describe(
        &self,
        action: &'static str,
        place: &str,
        error: &object_store::Error,
    ) -> StorageError {
        let recorded = self
            .last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        StorageError::Request {
            action,
            place: place.to_owned(),
            cause: recorded.unwrap_or_else(|| Failure::Other(error.to_string())),
            has_credentials: self.has_credentials,
        }
    }

    pub(crate) fn forget_failure(&self) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn record(&self, failure: Failure) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    /// Records why the server refused a request, and returns the same response.
    async fn noted(&self, response: HttpResponse) -> Result<HttpResponse, HttpError> {
        let status = response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let collected = Limited::new(body, MAX_ERROR_BYTES).collect().await;
        let bytes = collected.map_or_else(|_| Vec::new(), |body| body.to_bytes().to_vec());
        self.record(Failure::from_response(status, &String::from_utf8_lossy(&bytes)));
        Ok(HttpResponse::from_parts(parts, bytes.into()))
    }
}

impl HttpConnector for StorageConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for StorageConnector {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if completes_upload(request.method(), request.uri()) {
            // S3 then does not replace an object that has appeared since the upload began. The header needs no signature.
            request
                .headers_mut()
                .insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        let response = match timeout(REQUEST_LIMIT, self.client.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let kind = if error.is_connect() {
                    HttpErrorKind::Connect
                } else {
                    HttpErrorKind::Interrupted
                };
                self.record(Failure::from_transport(&error, kind == HttpErrorKind::Connect));
                return Err(HttpError::new(kind, error));
            }
            Err(elapsed) => {
                self.record(Failure::no_response(REQUEST_LIMIT));
                return Err(HttpError::new(HttpErrorKind::Timeout, elapsed));
            }
        };
        let response = response.map(|body| HttpResponseBody::new(IdleLimit::new(body)));
        self.noted(response).await
    }
}

/// Whether a request gives an upload in parts its name (`CompleteMultipartUpload`).
fn completes_upload(method: &Method, uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    method == Method::POST && query.split('&').any(|pair| pair.starts_with("uploadId="))
}

/// The body of a response whose server must not pause for longer than [`IDLE_LIMIT`].
struct IdleLimit {
    body: Incoming,
    sleep: Pin<Box<Sleep>>,
}

impl IdleLimit {
    fn new(body: Incoming) -> Self {
        Self {
            body,
            sleep: Box::pin(tokio::time::sleep(IDLE_LIMIT)),
        }
    }
}

impl Body for IdleLimit {
    type Data = hyper::body::Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let end = Instant::now() + IDLE_LIMIT;
            self.sleep.as_mut().reset(end);
            let frame =
                frame.map(|frame| frame.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error)));
            return Poll::Ready(frame);
        }
        ready!(self.sleep.as_mut().poll(context));
        let paused = io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the server sent nothing for {} s", IDLE_LIMIT.as_secs()),
        );
        Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, paused))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Connects to a server, through the proxy that the environment names for it.
#[derive(Clone, Debug)]
struct Route {
    direct: TcpConnector,
    proxies: Arc<Matcher>,
}

impl Route {
    fn from_environment() -> Self {
        let mut direct = TcpConnector::new();
        direct.enforce_http(false);
        direct.set_connect_timeout(Some(CONNECT_LIMIT));
        direct.set_nodelay(true);
        Self {
            direct,
            proxies: Arc::new(Matcher::from_env()),
        }
    }
}

/// Whether a server is on this machine, or has a link-local address, like a server that gives this machine its credentials. Such
/// a server is reached without a proxy.
fn is_local(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|address| match address {
            IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
            IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
        })
}

impl Service<Uri> for Route {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.direct.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let proxy = if is_local(&server) {
            None
        } else {
            self.proxies.intercept(&server)
        };
        let Some(proxy) = proxy else {
            let connecting = self.direct.call(server);
            return Box::pin(async { Ok(connecting.await?) });
        };
        let mut tunnel = Tunnel::new(proxy.uri().clone(), self.direct.clone());
        if let Some(authorization) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        let connecting = tunnel.call(server);
        Box::pin(async {
            let connected = timeout(CONNECT_LIMIT, connecting).await?;
            connected.map_err(|error| format!("cannot connect through the proxy: {error}").into())
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::{completes_upload, is_local};

    #[test]
    fn only_the_end_of_an_upload_is_conditional() {
        for (method, uri, expected) in [
            (Method::POST, "https://s3.example/b/k?uploadId=1", true),
            (Method::POST, "https://s3.example/b/k?x=1&uploadId=1", true),
            (Method::POST, "https://s3.example/b/k?uploads=", false),
            (Method::POST, "https://s3.example/b/uploadId=1", false),
            (
                Method::PUT,
                "https://s3.example/b/k?partNumber=1&uploadId=1",
                false,
            ),
            (Method::DELETE, "https://s3.example/b/k?uploadId=1", false),
        ] {
            let uri: Uri = uri.parse().expect("a URI");
            assert_eq!(completes_upload(&method, &uri), expected, "{method} {uri}");
        }
    }

    #[test]
    fn no_proxy_is_between_a_machine_and_its_own_credentials() {
        for (server, expected) in [
            ("http://169.254.169.254/latest/api/token", true),
            ("http://[fe80::1]/", true),
            ("https://localhost:7070", true),
            ("https://127.0.0.2:7070", true),
            ("https://[::1]:7070", true),
            ("https://10.0.0.1", false),
            ("https://s3.eu-central-1.amazonaws.com", false),
        ] {
            assert_eq!(is_local(&server.parse().expect("a URI")), expected, "{server}");
        }
    }
}
