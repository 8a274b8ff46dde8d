//! Background tasks that run as long as the server does. If one ends, the server notices: its data would become stale.

use std::{collections::HashMap, future};

use tokio::task::{Id, JoinSet};

/// Background tasks by name. Aborted when dropped.
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
    /// Runs a task that should never end.
    pub(crate) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.running.spawn(task);
        self.names.insert(handle.id(), name);
    }

    /// Waits until a task ends.
    pub(crate) async fn ended(&mut self) -> EndedTask {
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
            assert_eq!(tasks.ended().await, EndedTask { name, panicked });
            let more = tokio::time::timeout(Duration::from_secs(3600), tasks.ended()).await;
            assert!(more.is_err(), "{more:?}");
        }
    }
}
