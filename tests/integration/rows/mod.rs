//! Every row of the rules' own table, sent through a real API server beside Cluster API's real webhooks: whoever the
//! row says answers it is who answers.
//!
//! - [`ground`]: the API server, with a writer whom no webhook judges
//! - [`policies`]: an API server with our policies and no webhook
//! - [`world`]: the other objects that a row sees
//! - [`seed`]: how what is there comes to be there
//! - [`send`], [`request`]: the write
//! - [`answer`]: what came back, and what should have

#![expect(
    clippy::indexing_slicing,
    reason = "what is not in a JSON object is null, and all of these are our own"
)]

mod answer;
mod ground;
mod policies;
mod request;
mod seed;
mod send;
mod world;

use std::sync::Arc;

use kcp_rules::{case::Case, topics::TOPICS};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::shared::with_management_cluster;
use ground::Ground;
use seed::Place;

/// Each row in flight costs the API server a few requests; two cores are busy with this many.
const IN_FLIGHT: usize = 8;

#[test]
fn every_row_is_answered_by_whom_it_says() {
    with_management_cluster(async |management| {
        let ground = Arc::new(Ground::start(management).await.unwrap());
        let turns = Arc::new(Semaphore::new(IN_FLIGHT));
        let mut sent = JoinSet::new();
        let rows = TOPICS.iter().flat_map(|topic| topic.cases).flat_map(Case::rows);
        for (number, row) in rows.enumerate() {
            let (ground, turns) = (ground.clone(), turns.clone());
            sent.spawn(async move {
                let _turn = turns.acquire().await;
                let namespace = &format!("row-{number}");
                let place = Place::now_in(namespace);
                let judge = |sees| ground.judge(row.case, sees);
                let answered = send::send(ground.client(), place, row, judge).await;
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
