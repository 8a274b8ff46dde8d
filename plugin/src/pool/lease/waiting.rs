//! Waiting for a free customization.

use std::hash::{BuildHasher as _, RandomState};

use jiff::Timestamp;

use crate::{
    cluster::Error,
    pool::{
        document::{PoolLease, Reason},
        lease::patience::Patience,
    },
    terminal::Terminal,
};

/// Makes an attempt after the other until one is told anything else than that no customization is free. Why it waits is
/// told whenever that changes. Returns the answer, or with what whoever waits gave up: between two attempts alone, since one
/// may have taken a lease.
///
/// # Errors
/// Of an attempt, if waiting does not help.
pub(in crate::pool) async fn wait_for<S>(
    mut attempt: impl AsyncFnMut() -> anyhow::Result<PoolLease>,
    patience: Patience,
    stop: impl Future<Output = S>,
    terminal: &Terminal,
) -> anyhow::Result<Result<PoolLease, S>> {
    let random = RandomState::new();
    let mut stop = std::pin::pin!(stop);
    let mut told = String::new();
    let mut looks = 0_u64;
    loop {
        let result = match attempt().await {
            Ok(result) if result.reason() != Some(Reason::Exhausted) => return Ok(Ok(result)),
            // Before the first answer it may be the user's mistake.
            Err(error) if looks == 0 || !may_pass(&error) => return Err(error),
            result => result,
        };
        let now = Timestamp::now();
        let Some(rest) = patience.rest(now, random.hash_one(looks)) else {
            return result.map(|result| Ok(result.timed_out(patience.waited(now))));
        };
        let why = match &result {
            Ok(result) => result.refusal().unwrap_or_default(),
            Err(error) => format!("{error:#}"),
        };
        if why != told {
            terminal.note(&format!("waiting: {why}"));
            told = why;
        }
        terminal.spin("waiting for a free customization");
        looks += 1;
        let stopped = tokio::select! {
            stopped = &mut stop => Some(stopped),
            () = tokio::time::sleep(rest) => None,
        };
        terminal.stop_spinning();
        if let Some(stopped) = stopped {
            return Ok(Err(stopped));
        }
    }
}

fn may_pass(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<Error>());
    causes.any(Error::may_pass)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use jiff::Timestamp;

    use super::wait_for;
    use crate::{
        arguments::global::ColorWhen,
        pool::{
            document::{PoolLease, Reason},
            inventory::entry_state::PoolName,
            lease::patience::{Patience, WaitLimit},
        },
        terminal::Terminal,
    };

    fn answer(reason: Reason) -> PoolLease {
        let pool = PoolName {
            namespace: "d".to_owned(),
            name: "hosts".to_owned(),
        };
        PoolLease::refused(pool, "paris", reason, "none".to_owned())
    }

    fn patience() -> Patience {
        Patience {
            since: Timestamp::now(),
            limit: WaitLimit::Unlimited,
        }
    }

    #[tokio::test]
    async fn it_is_given_up_between_two_attempts_alone() {
        let terminal = Terminal::new(ColorWhen::Never);
        let mut attempts = 0;
        let attempt = async || {
            // Whoever waits has given up long before the answer comes.
            tokio::task::yield_now().await;
            attempts += 1;
            Ok(answer(Reason::Exhausted))
        };
        let waited = wait_for(attempt, patience(), ready("stopped"), &terminal).await;
        assert_eq!((waited.unwrap(), attempts), (Err("stopped"), 1));
        let attempt = async || {
            tokio::task::yield_now().await;
            Ok(answer(Reason::Blocked))
        };
        let waited = wait_for(attempt, patience(), ready("stopped"), &terminal).await;
        assert_eq!(waited.unwrap(), Ok(answer(Reason::Blocked)));
        let attempt = async || Err(anyhow::anyhow!("no such pool"));
        let waited = wait_for(attempt, patience(), pending::<()>(), &terminal).await;
        assert_eq!(waited.unwrap_err().to_string(), "no such pool");
    }
}
