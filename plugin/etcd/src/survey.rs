//! Queries all members of an etcd cluster at the same time.

use futures_util::future::{join, join_all};

use crate::connection::{Connection, Timeouts};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::response::{Members, Status};
use crate::trust::Tls;

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
}

/// Queries every member for its status and its list of members, all at the same time. Takes as long as the slowest
/// member. Returns one result for each endpoint, in the same order.
///
/// If the members disagree on the leader, an election may have taken place between their responses. Then each member is
/// queried for its status once more, so that only a lasting disagreement remains.
pub async fn survey(endpoints: &[Endpoint], tls: &Tls, timeouts: Timeouts) -> Vec<Result<Report, Error>> {
    let mut reports = join_all(endpoints.iter().map(|endpoint| report(endpoint, tls, timeouts))).await;
    let statuses = reports.iter().flatten().flat_map(|report| &report.status);
    if !agree_on_leader(statuses) {
        join_all(reports.iter_mut().flatten().map(Report::update_status)).await;
    }
    reports
}

/// Returns whether the members are in the same raft term and follow the same leader, as far as they have one. A member without
/// a leader waits for an election, which takes longer than a second query.
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
    let (status, members) = join(connection.status(), connection.members()).await;
    Ok(Report {
        connection,
        status,
        members,
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

    fn status((raft_term, leader): (u64, u64)) -> Status {
        Status::from(StatusResponse {
            raft_term,
            leader,
            ..StatusResponse::default()
        })
    }
}
