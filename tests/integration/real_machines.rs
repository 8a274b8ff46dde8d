//! Real machines: see [`kcp_tests::machines::real`]. `make test-machines` runs these tests; all others ignore them, because they
//! need root and Debian packages.
//!
//! A test in [`short`] takes about a minute, and `.ci/run` runs it. One in [`full`] takes many.

#![expect(
    clippy::panic,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

mod full;
mod scripts;
mod short;

use std::sync::Arc;

use anyhow::Result;
use kcp_tests::machines::real::{Images, Site};

use crate::shared::run;

/// Runs a test in a network of its own, see [`Site::enter`].
fn on_machines(name: &str, images: Images, test: impl AsyncFnOnce(&Arc<Site>) -> Result<()> + Send) {
    if let Err(error) = Site::enter(run(), name, images, test) {
        panic!("{error:#}");
    }
}
