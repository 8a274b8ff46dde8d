//! The interface between a connection and the code that responds to its requests.

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
};

use crate::{buffers::Sender, connection_slots::ConnectionSlot};

/// The client at the other end of a connection.
pub(crate) enum Client {
    /// The connection has a slot, so the server handles its requests.
    Served {
        slot: ConnectionSlot,
        /// Whether the client's certificate was verified. Always false if clients need no certificate.
        verified: bool,
    },
    /// All slots for connections are taken, so every request on this connection must be rejected.
    Refused,
}

impl Client {
    /// Whether every request of the client must be rejected.
    pub(crate) const fn is_refused(&self) -> bool {
        matches!(self, Self::Refused)
    }

    pub(crate) const fn is_verified(&self) -> bool {
        matches!(self, Self::Served { verified: true, .. })
    }

    /// Marks the client's connection as proven, so that the server does not evict the connection.
    pub(crate) fn mark_proven(&self) {
        if let Self::Served { slot, .. } = self {
            slot.mark_proven();
        }
    }

    /// The sender under which the memory of the client's bodies is counted; `None` for a refused connection.
    pub(crate) fn sender(&self) -> Option<Sender> {
        match self {
            Self::Served { slot, .. } => Some(Sender {
                peer: slot.peer(),
                proven: slot.is_proven(),
            }),
            Self::Refused => None,
        }
    }

    /// Waits until the connection is evicted.
    pub(crate) async fn wait_until_evicted(&self) {
        match self {
            Self::Served { slot, .. } => slot.wait_until_evicted().await,
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
