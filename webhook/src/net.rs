//! Connections: each module bounds what one client can make the server hold, and for how long.
//!
//! - `listener`: accepts connections up to a limit
//! - `connection`: serves HTTP/1.1 on one connection, with timeouts
//! - `connection_slots`: the slots for open connections, and which connection is evicted for a new one
//! - `body`: reads an HTTP body up to a size limit
//! - `tls`: TLS with a key pair that is reloaded when its files change
//! - `shares`: what clients share, such as memory, and how much of it one client gets

pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod connection_slots;
pub(crate) mod listener;
pub(crate) mod shares;
pub(crate) mod tls;
