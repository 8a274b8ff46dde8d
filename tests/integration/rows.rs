//! Sends every row of the rules' own table to a real API server with Cluster API's real webhooks. The one that the row
//! names must answer.
//!
//! - [`environment`]: the API server, and a user whom no webhook reviews
//! - [`policies`]: an API server with our policies and no webhook
//! - [`other_objects`]: the other objects of a row
//! - [`seed`]: creates the objects
//! - [`send`], [`request`]: the write
//! - [`answer`]: the answer, and the expected one

#![expect(
    clippy::indexing_slicing,
    reason = "what is not in a JSON object is null, and all of these are our own"
)]

mod answer;
mod environment;
mod other_objects;
mod policies;
mod request;
mod seed;
mod send;

use std::sync::Arc;

use kcp_rules::testing::{case::Case, cases::written_cases};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::shared::with_management_cluster;
use environment::Environment;
use seed::Place;

/// Concurrent rows. This many keep two cores busy.
const IN_FLIGHT: usize = 8;

#[test]
fn the_webhook_that_the_row_names_answers_every_row() {
    with_management_cluster(async |management| {
        let environment = Arc::new(Environment::start(management).await.unwrap());
        let turns = Arc::new(Semaphore::new(IN_FLIGHT));
        let mut sent = JoinSet::new();
        let rows = written_cases().flat_map(Case::rows);
        for (number, row) in rows.enumerate() {
            let (environment, turns) = (environment.clone(), turns.clone());
            sent.spawn(async move {
                let _turn = turns.acquire().await;
                let namespace = &format!("row-{number}");
                let place = Place::now_in(namespace);
                let judge = |sees| environment.judge(row.case, sees);
                let answered = send::send(environment.client(), place, row, judge).await;
                let wrong = match answered {
                    Ok(answered) => answer::expected(row)
                        .and_then(|expected| answered.is(&expected, place))
                        .err(),
                    Err(error) => Some(error),
                };
                wrong.map(|error| format!("{} of {:?}: {error:#}", row.case.name, row.base))
            });
        }
        let outcomes = sent.join_all().await;
        assert!(outcomes.len() > 300, "{} rows", outcomes.len());
        let wrong: Vec<_> = outcomes.into_iter().flatten().collect();
        assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
    });
}
