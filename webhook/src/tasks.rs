//! Background tasks that run as long as the server does. If a task ends, the server shuts down, because the data of the
//! task would become stale.

use std::{collections::HashMap, future, time::Duration};

use tokio::{
    task::{Id, JoinSet},
    time::{self, MissedTickBehavior},
};

/// Background tasks by name. Dropping this value aborts the tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    running: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

/// A background task that ended unexpectedly.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EndedTask {
    pub(crate) name: &'static str,
    pub(crate) panicked: bool,
}

impl Tasks {
    /// Calls `reload` every `interval`, forever.
    ///
    /// `reload` compares the content of files: to update a mounted Secret or `ConfigMap`, the kubelet replaces a symlink
    /// two levels up, which a watch on the files does not notice. The files are small and in memory, so reading them blocks
    /// for less time than starting another thread for it.
    pub(crate) fn repeat(
        &mut self,
        name: &'static str,
        interval: Duration,
        reload: impl Fn() + Send + 'static,
    ) {
        self.spawn(name, async move {
            // An interval of zero would panic.
            let mut ticks = time::interval(interval.max(Duration::from_millis(1)));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                reload();
            }
        });
    }

    /// Runs a task that should never end.
    pub(crate) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.running.spawn(task);
        self.names.insert(handle.id(), name);
    }

    /// Waits until a task ends.
    pub(crate) async fn wait_for_end(&mut self) -> EndedTask {
        let Some(ended) = self.running.join_next_with_id().await else {
            return future::pending().await;
        };
        let (id, panicked) = match ended {
            Ok((id, ())) => (id, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        EndedTask {
            name: self.names.remove(&id).unwrap_or_default(),
            panicked,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn names_the_task_that_ends() {
        for (panicked, name) in [(false, "returns"), (true, "panics")] {
            let mut tasks = Tasks::default();
            tasks.spawn("runs", future::pending());
            tasks.spawn(name, async move { assert!(!panicked, "a panic for the test") });
            assert_eq!(tasks.wait_for_end().await, EndedTask { name, panicked });
            let more = tokio::time::timeout(Duration::from_secs(3600), tasks.wait_for_end()).await;
            assert!(more.is_err(), "{more:?}");
        }
    }
}
