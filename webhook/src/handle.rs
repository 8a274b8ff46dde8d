//! The interface between a connection and the code that responds to its requests.

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
};

use crate::{buffers::Sender, places::Place};

/// The client at the other end of a connection.
pub(crate) enum Client {
    /// The connection is within the limits and is served.
    Served {
        place: Place,
        /// Whether the client's certificate was verified. Always false if clients need no certificate.
        verified: bool,
    },
    /// The connection exceeds the limit. Every request on it must be rejected.
    Refused,
}

impl Client {
    /// Whether every request must be rejected.
    pub(crate) const fn is_refused(&self) -> bool {
        matches!(self, Self::Refused)
    }

    pub(crate) const fn is_verified(&self) -> bool {
        matches!(self, Self::Served { verified: true, .. })
    }

    /// Marks the connection as proven, so that it is not evicted.
    pub(crate) fn prove(&self) {
        if let Self::Served { place, .. } = self {
            place.prove();
        }
    }

    /// The sender, under which the client's bodies are counted.
    pub(crate) fn sender(&self) -> Option<Sender> {
        match self {
            Self::Served { place, .. } => Some(Sender {
                peer: place.peer(),
                proven: place.is_proven(),
            }),
            Self::Refused => None,
        }
    }

    /// Waits until the connection is evicted.
    pub(crate) async fn evicted(&self) {
        match self {
            Self::Served { place, .. } => place.evicted().await,
            Self::Refused => std::future::pending().await,
        }
    }
}

pub(crate) trait Handle: Send + Sync + 'static {
    /// Responds to one request.
    fn handle(
        &self,
        request: Request<Incoming>,
        client: &Client,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}
