//! The server on real sockets: TLS, connections, limits, reload, shutdown.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: they may panic"
)]

mod client;
mod client_certificates;
mod connections;
mod faulty_clients;
mod hostile_clients;
mod memory;
mod process;
mod reload;
mod running;
mod shutdown;
mod stand_in;
