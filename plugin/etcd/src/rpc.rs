//! Generated from `proto`; `tests/generated.rs` says how.

#[rustfmt::skip]
#[allow(clippy::pedantic, missing_docs, unreachable_pub, dead_code, reason = "generated, and not published")]
pub(crate) mod etcdserverpb;
#[rustfmt::skip]
#[allow(clippy::pedantic, missing_docs, unreachable_pub, dead_code, reason = "generated, and not published")]
pub(crate) mod mvccpb;
