//! Several control planes one by one, some at a time.

use futures_util::stream::{self, StreamExt as _};

use crate::terminal::Terminal;

/// Control planes that are read at one time: each may hold a dozen connections to a cluster of its own.
const AT_ONCE: usize = 8;

/// Reads each control plane by itself with `one`, which never fails as a whole; in their order. Where a person watches,
/// a line shows the progress.
pub(super) async fn each<C, T>(
    terminal: &Terminal,
    control_planes: &[C],
    one: impl AsyncFn(&C) -> T,
) -> Vec<T> {
    let total = control_planes.len();
    let progress = |done: usize| terminal.spin(&format!("{done} of {total} control planes read"));
    progress(0);
    let one = &one;
    let reads = control_planes
        .iter()
        .enumerate()
        .map(|(index, control_plane)| async move { (index, one(control_plane).await) });
    let mut reads = stream::iter(reads).buffer_unordered(AT_ONCE);
    let mut read = Vec::with_capacity(total);
    while let Some(outcome) = reads.next().await {
        read.push(outcome);
        progress(read.len());
    }
    terminal.stop_spinning();
    read.sort_unstable_by_key(|(index, _)| *index);
    read.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{AT_ONCE, each};
    use crate::{arguments::global::ColorWhen, terminal::Terminal};

    #[test]
    fn some_at_a_time_and_in_order() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let (under_way, most) = (Cell::new(0), Cell::new(0));
        let numbers: Vec<usize> = (0..3 * AT_ONCE).collect();
        let read = runtime.expect("a runtime").block_on(each(
            &Terminal::new(ColorWhen::Never),
            &numbers,
            async |number| {
                under_way.set(under_way.get() + 1);
                most.set(most.get().max(under_way.get()));
                // The later ones end first.
                for _ in *number..numbers.len() {
                    tokio::task::yield_now().await;
                }
                under_way.set(under_way.get() - 1);
                number * 2
            },
        ));
        let expected: Vec<usize> = numbers.iter().map(|number| number * 2).collect();
        assert_eq!(read, expected);
        assert_eq!(most.get(), AT_ONCE);
    }
}
