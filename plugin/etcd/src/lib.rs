//! A small etcd client that queries each member of a control plane separately.
//!
//! A call passes through [`Endpoint`] (how to reach a member, over any stream) -> [`Tls`] (which CA to trust, which
//! client certificate to present) -> [`Connection`] (one member, one stream) -> plain data. This crate does not
//! evaluate responses.
//!
//! - [`Endpoint`], [`Dial`]: how to reach a member; [`Tcp`] dials directly
//! - [`Tls`], [`Trust`], [`ClientCertificate`]: certificates
//! - [`parse_bundle`], [`generate_like`]: the CAs in Secrets, and new ones
//! - [`Connection`]: the calls, with their errors [`Error`] and [`HandshakeError`]
//! - [`SnapshotStream`]: a snapshot of a member's database
//! - [`survey()`]: queries all members at the same time
//!
//! The gRPC messages (tonic and prost) are generated from `proto`, a minimal copy of etcd's definitions. The
//! generated code is checked in. Alternatives considered (2026-11): the crate etcd-client, whose build script needs
//! `protoc` and which cannot use a port-forward stream; etcd's JSON gateway, which operators can disable
//! (`--enable-grpc-gateway=false`).

mod connection;
mod credentials;
mod endpoint;
mod error;
mod identity;
mod key_pair;
mod response;
mod rpc;
mod snapshot;
mod stream;
mod survey;
mod trust;

pub use connection::{Connection, ServerIdentity, Timeouts};
pub use credentials::CredentialError;
pub use endpoint::{BoxedStream, Dial, Dialing, Endpoint, Stream, Tcp};
pub use error::{Call, ConnectionStep, Error, HandshakeError};
pub use identity::{ClientCertificate, ISSUED_VALIDITY};
pub use key_pair::{
    BundleEntry, EntryKind, GeneratedPair, generate_like, parse_bundle, public_key_of, sha256,
};
pub use response::{Alarm, AlarmKind, KeyRevision, KeySpaceHash, Member, Members, Status};
pub use snapshot::{ReceivedSnapshot, SnapshotChunk, SnapshotStream};
pub use survey::{Report, survey};
pub use trust::{Tls, Trust};
