//! Catches panics, so that a panic in one review does not end its connection.

use std::{
    future::poll_fn,
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    task::Poll,
};

use tracing::error;

/// The error for a future that panicked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

/// Runs a future until it ends or panics.
pub(crate) fn catch_panics<F: Future>(
    mut future: Pin<Box<F>>,
) -> impl Future<Output = Result<F::Output, Panicked>> {
    poll_fn(
        move |cx| match panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(_) => Poll::Ready(Err(Panicked)),
        },
    )
}

/// Makes panics log their location, but not their message, which can quote text from a client.
pub(crate) fn log_panics_without_message() {
    panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        error!(location, "kcp-webhook panicked; report this as a bug");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_the_output_or_the_panic() {
        assert_eq!(catch_panics(Box::pin(async { 7 })).await, Ok(7));
        let panics = async {
            tokio::task::yield_now().await;
            panic!("a panic for the test");
        };
        assert_eq!(catch_panics(Box::pin(panics)).await, Err::<(), _>(Panicked));
    }
}
