//! What must hold of any bytes. The fuzz targets look for bytes of which it does not, and a test of the webhook's puts
//! the corpus to it: no file here knows of a fuzzer.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

pub(crate) mod configuration;
pub(crate) mod cost;
pub(crate) mod leader_migration;
pub(crate) mod lint_yaml;
pub(crate) mod patch;
pub(crate) mod review;

/// What a future gives that waits for nothing.
fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("an answer without a cluster waits for something"),
    }
}
