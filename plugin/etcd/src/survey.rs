//! Queries all members of an etcd cluster at the same time.

use std::time::Duration;

use futures_util::future::{join_all, join3};
use tokio::time::{Instant, sleep};

use crate::connection::{Connection, Timeouts};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::response::{Members, Status};
use crate::trust::Tls;

/// How long the survey waits for the election of a leader, at most the time limit of a call. etcd's default election timeout is
/// one second, and a split vote takes another second (`--election-timeout`).
const ELECTION: Duration = Duration::from_secs(3);
const ELECTION_POLL: Duration = Duration::from_millis(200);

/// The responses of one member to the survey. Each call can fail separately.
#[derive(Debug)]
pub struct Report {
    /// The connection to the member, for more calls. For example, alarms are queried later, from one member that has a
    /// leader.
    pub connection: Connection,
    /// The member's status, or why the call failed.
    pub status: Result<Status, Error>,
    /// The member's own list of members, or why the call failed.
    pub members: Result<Members, Error>,
    /// The member's metrics in Prometheus' text format, or why the call failed.
    pub metrics: Result<String, Error>,
    /// How long the member took to respond to the call for its status, or to fail.
    pub latency: Duration,
}

/// Queries every member for its status, its list of members and its metrics, all at the same time. Takes as long as the slowest
/// member. Returns one result for each endpoint, in the same order.
///
/// If the members disagree on the leader, the survey queries their status once more. If most of the members respond but none has
/// a leader, the survey queries their status again, for up to three seconds. So an election that ends soon does not show in the
/// result.
pub async fn survey(endpoints: &[Endpoint], tls: &Tls, timeouts: Timeouts) -> Vec<Result<Report, Error>> {
    let mut reports = join_all(endpoints.iter().map(|endpoint| report(endpoint, tls, timeouts))).await;
    if !agree_on_leader(statuses(&reports)) {
        join_all(reports.iter_mut().flatten().map(Report::update_status)).await;
    }
    let end = Instant::now() + ELECTION.min(timeouts.call);
    while can_elect(statuses(&reports), endpoints.len()) && Instant::now() < end {
        sleep(ELECTION_POLL).await;
        join_all(reports.iter_mut().flatten().map(Report::update_status)).await;
    }
    reports
}

fn statuses(reports: &[Result<Report, Error>]) -> impl Iterator<Item = &Status> {
    reports.iter().flatten().flat_map(|report| &report.status)
}

/// Whether no member has a leader, although most of the members respond.
fn can_elect<'s>(statuses: impl Iterator<Item = &'s Status>, members: usize) -> bool {
    let leaders: Vec<Option<u64>> = statuses.map(|status| status.leader).collect();
    leaders.len() > members / 2 && leaders.iter().all(Option::is_none)
}

/// Returns whether the members are in the same raft term and follow the same leader, as far as they have one.
fn agree_on_leader<'s>(statuses: impl Iterator<Item = &'s Status>) -> bool {
    let mut followed = statuses.filter_map(|status| Some((status.raft_term, status.leader?)));
    let first = followed.next();
    followed.all(|other| Some(other) == first)
}

impl Report {
    /// Queries the member for its status again. If the member does not respond, its earlier status remains.
    async fn update_status(&mut self) {
        if self.status.is_ok()
            && let Ok(status) = self.connection.status().await
        {
            self.status = Ok(status);
        }
    }
}

async fn report(endpoint: &Endpoint, tls: &Tls, timeouts: Timeouts) -> Result<Report, Error> {
    let connection = Connection::open(endpoint, tls, timeouts).await?;
    let timed_status = async {
        let begun = Instant::now();
        (connection.status().await, begun.elapsed())
    };
    let calls = join3(timed_status, connection.members(), connection.metrics());
    let ((status, latency), members, metrics) = calls.await;
    Ok(Report {
        connection,
        status,
        members,
        metrics,
        latency,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::etcdserverpb::StatusResponse;

    #[test]
    fn members_agree_on_the_leader_of_one_term() {
        let (term, next) = (2, 3);
        // The term and the leader of each member. 0 is no leader, as in etcd's response.
        let cases: [(&[(u64, u64)], bool); 7] = [
            (&[], true),
            (&[(term, 7)], true),
            (&[(term, 7), (term, 7), (term, 7)], true),
            (&[(term, 7), (term, 7), (next, 8)], false),
            (&[(term, 7), (next, 7)], false),
            (&[(term, 7), (term, 0)], true),
            (&[(next, 0), (next, 0)], true),
        ];
        for (members, agree) in cases {
            let statuses: Vec<Status> = members.iter().copied().map(status).collect();
            assert_eq!(agree_on_leader(statuses.iter()), agree, "{members:?}");
        }
    }

    #[test]
    fn most_members_can_elect_a_leader() {
        type Case = (&'static [(u64, u64)], usize, bool);
        let cases: [Case; 6] = [
            (&[], 0, false),
            (&[], 3, false),
            (&[(2, 0)], 3, false),
            (&[(2, 0), (3, 0)], 3, true),
            (&[(2, 7), (3, 0)], 3, false),
            (&[(2, 0)], 1, true),
        ];
        for (responses, members, can) in cases {
            let statuses: Vec<Status> = responses.iter().copied().map(status).collect();
            assert_eq!(can_elect(statuses.iter(), members), can, "{responses:?}");
        }
    }

    fn status((raft_term, leader): (u64, u64)) -> Status {
        Status::from(StatusResponse {
            raft_term,
            leader,
            ..StatusResponse::default()
        })
    }
}
