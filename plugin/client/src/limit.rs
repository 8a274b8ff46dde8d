//! The time limits of reads: one for each read, and one for all reads of a command together.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use crate::{Action, Connection, Error};

/// How long one read may take, and when all reads of a command must have ended.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimit {
    per_read: Duration,
    /// The time at which all reads must have ended. `None` if only the limit of each read applies.
    end: Option<Instant>,
}

impl ReadLimit {
    pub const fn per_read(per_read: Duration) -> Self {
        Self { per_read, end: None }
    }

    /// Returns a limit that also ends every read at `end`.
    pub const fn ending_at(self, end: Instant) -> Self {
        Self {
            end: Some(end),
            ..self
        }
    }

    /// Returns the limit for a read on which all other reads depend. This read may take all the time until
    /// the end.
    pub fn for_first_read(self) -> Self {
        let time_left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        Self {
            per_read: time_left.unwrap_or(self.per_read),
            ..self
        }
    }

    fn remaining(self) -> Duration {
        let time_left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        time_left.map_or(self.per_read, |time_left| time_left.min(self.per_read))
    }
}

impl Connection {
    /// Runs a read, with all its pages and retries, within a time limit. Fails with [`Error::OutOfTime`] if the read exceeds the
    /// limit.
    pub async fn run_with_limit<T>(
        &self,
        limit: ReadLimit,
        action: &Action,
        read: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let after = limit.remaining();
        match tokio::time::timeout(after, read).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::OutOfTime {
                action: Box::new(action.clone()),
                server: self.server.clone(),
                after,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        time::{Duration, Instant},
    };

    use kcp_api::kind::MACHINE;

    use super::{Error, ReadLimit};
    use crate::{Action, Connection, testing::failure};

    #[test]
    fn the_command_ends_what_each_read_would_still_have() {
        let per_read = Duration::from_secs(60);
        assert_eq!(ReadLimit::per_read(per_read).remaining(), per_read);
        let expired = ReadLimit::per_read(per_read).ending_at(Instant::now());
        assert_eq!(expired.remaining(), Duration::ZERO);
        let soon = ReadLimit::per_read(per_read).ending_at(Instant::now() + Duration::from_secs(5));
        assert!(soon.remaining() <= Duration::from_secs(5));
        assert_eq!(
            ReadLimit::per_read(per_read).for_first_read().remaining(),
            per_read
        );
        let first = ReadLimit::per_read(Duration::ZERO)
            .ending_at(Instant::now() + per_read)
            .for_first_read();
        assert!(first.remaining() > per_read / 2);
        let late = ReadLimit::per_read(per_read).ending_at(Instant::now() + per_read * 2);
        assert_eq!(late.remaining(), per_read);
    }

    #[test]
    fn a_read_that_does_not_end_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let connection = Connection::canned(|_, _| failure(500, "InternalError", "unasked"));
            let action = Action::new("list", &MACHINE.api_resource("v1beta2")).in_namespace("d");
            let limit = ReadLimit::per_read(Duration::ZERO);
            let given_up = connection.run_with_limit(limit, &action, pending::<Result<(), Error>>());
            let error = given_up.await.expect_err("no answer");
            assert_eq!(
                error.to_string(),
                "cannot list machines in namespace \"d\": no response from https://s within 0s"
            );
            assert_eq!(
                error.hint().as_deref(),
                Some(
                    "check whether the API server is overloaded; or allow more time with --timeout, if the \
                      command has this flag"
                )
            );
            let answered = connection.run_with_limit(limit, &action, ready(Ok(1)));
            assert_eq!(answered.await.expect("an answer"), 1);
        });
    }
}
