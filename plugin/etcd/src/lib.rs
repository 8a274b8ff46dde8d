//! A small etcd client that asks each member of a control plane separately.
//!
//! A call passes through [`Endpoint`] (how to reach a member, over any stream) -> [`Tls`] (which CA to trust, which client
//! certificate to present) -> [`Connection`] (one member, one stream) -> plain data. This crate does not judge answers.
//!
//! - [`Endpoint`], [`Dial`]: the way to a member; [`Tcp`] is the plain one
//! - [`Tls`], [`Trust`], [`ClientCertificate`]: certificates, a minted one included
//! - [`Connection`]: the calls, and what went wrong with them: [`Error`], [`HandshakeError`]
//! - [`survey()`]: asks all members at the same time
//!
//! Messages are generated from `proto`, a minimal copy of etcd's definitions, and checked in: tonic over prost.
//! Weighed against it (2026-11): the crate etcd-client, whose build script needs `protoc`, which neither users nor fresh
//! machines have, and which brings its own way to dial and to verify; etcd's JSON gateway, which an operator can switch
//! off (`--enable-grpc-gateway=false`).

mod answer;
mod connection;
mod credentials;
mod endpoint;
mod error;
mod identity;
mod rpc;
mod survey;
mod trust;

pub use answer::{Alarm, AlarmKind, Member, Members, Status};
pub use connection::{Connection, Server, Timeouts};
pub use credentials::CredentialError;
pub use endpoint::{BoxedStream, Dial, Dialing, Endpoint, Stream, Tcp};
pub use error::{Call, Error, HandshakeError, Step};
pub use identity::{ClientCertificate, MINTED_VALIDITY};
pub use survey::{Report, survey};
pub use trust::{Tls, Trust};
