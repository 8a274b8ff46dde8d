//! Limits the size of responses, because the server in a kubeconfig is not trusted, and records the server's clock.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited, combinators::MapErr};
use kube::{
    Client,
    client::{Body, ClientBuilder, DynBody},
};
use thiserror::Error;
use tower::{BoxError, Service, layer::layer_fn, util::BoxService};

use crate::clock::{ServerClock, time_since_boot};

/// The maximum size of a response in bytes. A caller sets it as an extension of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimit(pub usize);

impl ResponseLimit {
    pub const fn mebibytes(count: usize) -> Self {
        Self(count * 1024 * 1024)
    }
}

impl Default for ResponseLimit {
    /// Returns 2 MiB, because by default etcd refuses requests of more than 1.5 MiB (`--max-request-bytes`).
    fn default() -> Self {
        Self::mebibytes(2)
    }
}

#[derive(Debug, Error)]
#[error("the response is larger than {} MiB", _0.0 / 1024 / 1024)]
struct TooLarge(ResponseLimit);

type UnlimitedService = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

type LimitedBody = MapErr<Limited<Box<DynBody>>, Box<dyn FnMut(BoxError) -> BoxError + Send>>;

/// Builds a client that enforces the [`ResponseLimit`] of each request, also on error responses, and records the dates
/// of responses.
pub fn limit_responses(builder: ClientBuilder<UnlimitedService>, clock: &ServerClock) -> Client {
    let limited = layer_fn(|inner| LimitedResponses {
        inner,
        clock: clock.clone(),
    });
    builder.with_layer(&limited).build()
}

struct LimitedResponses {
    inner: UnlimitedService,
    clock: ServerClock,
}

impl Service<Request<Body>> for LimitedResponses {
    type Response = Response<LimitedBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let limit: ResponseLimit = request.extensions().get().copied().unwrap_or_default();
        let (clock, sent) = (self.clock.clone(), time_since_boot());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            clock.observe(answer.headers(), sent);
            Ok(answer.map(|body| {
                let named: Box<dyn FnMut(BoxError) -> BoxError + Send> = Box::new(move |error| {
                    if error.is::<LengthLimitError>() {
                        TooLarge(limit).into()
                    } else {
                        error
                    }
                });
                Limited::new(body, limit.0).map_err(named)
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::{
        Client,
        client::{Body, ClientBuilder, DynBody},
    };
    use tower::{BoxError, service_fn, util::BoxService};

    use super::{ResponseLimit, ServerClock, limit_responses};

    /// A client of a server that responds with `code` and this number of spaces.
    fn client(code: u16, blanks: usize) -> Client {
        let service = service_fn(move |_: Request<Body>| async move {
            let body: Box<DynBody> = Box::new(Body::from(vec![b' '; blanks]).map_err(BoxError::from));
            Response::builder()
                .status(code)
                .body(body)
                .map_err(BoxError::from)
        });
        limit_responses(
            ClientBuilder::new(BoxService::new(service), "d"),
            &ServerClock::default(),
        )
    }

    async fn read(client: &Client, limit: Option<ResponseLimit>) -> Result<usize, String> {
        let mut request = Request::new(Vec::new());
        if let Some(limit) = limit {
            request.extensions_mut().insert(limit);
        }
        match client.request_text(request).await {
            Ok(text) => Ok(text.len()),
            Err(error) => {
                let cause = error.source().and_then(|inner| inner.source().or(Some(inner)));
                Err(cause.map_or_else(|| error.to_string(), ToString::to_string))
            }
        }
    }

    #[tokio::test]
    async fn an_answer_is_read_up_to_its_limit() {
        const MIB: usize = 1024 * 1024;
        let four = Some(ResponseLimit::mebibytes(4));
        for (code, size, limit, read_size) in [
            (200, 2 * MIB, None, Ok(2 * MIB)),
            (200, 2 * MIB + 1, None, Err("the response is larger than 2 MiB")),
            (500, 2 * MIB + 1, None, Err("the response is larger than 2 MiB")),
            (200, 4 * MIB, four, Ok(4 * MIB)),
            (200, 4 * MIB + 1, four, Err("the response is larger than 4 MiB")),
        ] {
            let answer = read(&client(code, size), limit).await;
            assert_eq!(answer, read_size.map_err(str::to_owned), "{code} {size}");
        }
    }
}
