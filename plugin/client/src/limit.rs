//! How long reads may take: each by itself, and all of a command together.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use crate::{Action, Connection, Error};

/// The longest that a read may take.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimit {
    each: Duration,
    /// None where nothing but each read by itself is limited.
    end: Option<Instant>,
}

impl ReadLimit {
    pub const fn each(each: Duration) -> Self {
        Self { each, end: None }
    }

    /// And none beyond this time.
    pub const fn until(self, end: Instant) -> Self {
        Self {
            end: Some(end),
            ..self
        }
    }

    /// The same for a read without which there are no others: it may take all the time that there is.
    pub fn for_the_first(self) -> Self {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        Self {
            each: left.unwrap_or(self.each),
            ..self
        }
    }

    /// How long a read may take that begins now.
    fn left(self) -> Duration {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        left.map_or(self.each, |left| left.min(self.each))
    }
}

impl Connection {
    /// Gives a read up when its time is over: all of its pages and its attempts together.
    ///
    /// # Errors
    /// Those of the read, and [`Error::OutOfTime`].
    pub async fn within<T>(
        &self,
        limit: ReadLimit,
        action: &Action,
        read: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let after = limit.left();
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
    use crate::{Action, Connection, canned::failure};

    #[test]
    fn the_command_ends_what_each_read_would_still_have() {
        let each = Duration::from_secs(60);
        assert_eq!(ReadLimit::each(each).left(), each);
        let over = ReadLimit::each(each).until(Instant::now());
        assert_eq!(over.left(), Duration::ZERO);
        let soon = ReadLimit::each(each).until(Instant::now() + Duration::from_secs(5));
        assert!(soon.left() <= Duration::from_secs(5));
        assert_eq!(ReadLimit::each(each).for_the_first().left(), each);
        let first = ReadLimit::each(Duration::ZERO)
            .until(Instant::now() + each)
            .for_the_first();
        assert!(first.left() > each / 2);
        let late = ReadLimit::each(each).until(Instant::now() + each * 2);
        assert_eq!(late.left(), each);
    }

    #[test]
    fn a_read_that_does_not_end_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let connection = Connection::canned(|_, _| failure(500, "InternalError", "unasked"));
            let action = Action::new("list", &MACHINE.at("v1beta2")).in_namespace("d");
            let limit = ReadLimit::each(Duration::ZERO);
            let given_up = connection.within(limit, &action, pending::<Result<(), Error>>());
            let error = given_up.await.expect_err("no answer");
            assert_eq!(
                error.to_string(),
                "cannot list machines in namespace \"d\": no answer from https://s within 0s"
            );
            assert_eq!(error.hint().as_deref(), Some("allow more time with --timeout"));
            let answered = connection.within(limit, &action, ready(Ok(1)));
            assert_eq!(answered.await.expect("an answer"), 1);
        });
    }
}
