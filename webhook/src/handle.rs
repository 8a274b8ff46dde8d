//! The interface between a connection and the code that responds to its requests.

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
};

use crate::{connection_slots::ConnectionSlot, shares::Peer};

/// The client at the other end of a connection.
pub(crate) struct Client {
    pub(crate) slot: ConnectionSlot,
    /// Whether the client's certificate was verified. Always false if clients need no certificate.
    pub(crate) verified: bool,
}

impl Client {
    /// The client that takes shares.
    pub(crate) const fn peer(&self) -> Peer {
        Peer {
            address: self.slot.peer(),
            verified: self.verified,
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
