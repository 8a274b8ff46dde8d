//! What answers the requests of a connection.

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
};

/// Answers requests.
pub(crate) trait Handle: Send + Sync + 'static {
    /// Answers one. `overloaded`: the connection has no place, and every request on it is to be turned away.
    fn handle(
        &self,
        request: Request<Incoming>,
        overloaded: bool,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}
