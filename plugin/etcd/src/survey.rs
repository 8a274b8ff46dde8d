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
pub async fn survey(endpoints: &[Endpoint], tls: &Tls, timeouts: Timeouts) -> Vec<Result<Report, Error>> {
    join_all(endpoints.iter().map(|endpoint| report(endpoint, tls, timeouts))).await
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
