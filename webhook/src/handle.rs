//! The interface between a connection and the code that answers its requests.

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
};

pub(crate) trait Handle: Send + Sync + 'static {
    /// Answers one request. `overloaded` means that the connection exceeds the limit: every request on it must be
    /// rejected.
    fn handle(
        &self,
        request: Request<Incoming>,
        overloaded: bool,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}
