//! Everything but the server: creates certificates, registers the webhook, and runs it beside an API server. No review passes
//! through this code.
//!
//! - [`manage`]: `kcp-webhook manage`, which creates the certificates and registers the webhook
//! - [`anchor`]: `kcp-webhook anchor`, which runs the webhook as a static Pod beside an API server
//! - [`api_proxy`]: `kcp-webhook api-proxy`, which updates the list of API servers in the local proxy of a node
//! - `reconciler`: what `manage`, `anchor` and `api-proxy` have in common
//! - [`certs`]: `kcp-webhook certs issue`
//! - [`node_probe`]: `kcp-webhook probe`
//! - `self_test`: reviews that a server must answer before an API server may call it
//! - `tls_client`: connects to a server as the API server does
//! - `authority`: creates certificate authorities and serving certificates, and reads certificates
//! - `request`: requests to the API server, each with a time limit
//! - `replace_file`: replaces a file atomically, so that a reader gets either the old or the new content

pub mod anchor;
pub mod api_proxy;
mod authority;
pub mod certs;
pub mod manage;
pub mod node_probe;
mod reconciler;
mod replace_file;
mod request;
mod self_test;
mod tls_client;
