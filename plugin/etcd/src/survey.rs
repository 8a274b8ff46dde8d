//! Every member's own view, at once.

use futures_util::future::{join, join_all};

use crate::answer::{Members, Status};
use crate::connection::{Connection, Timeouts};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::trust::Tls;

/// What one member said. Each call may have failed alone.
#[derive(Debug)]
pub struct Report {
    /// For more questions: alarms need only one member's answer, and one that knows a leader.
    pub connection: Connection,
    /// Of itself.
    pub status: Result<Status, Error>,
    /// Of its cluster.
    pub members: Result<Members, Error>,
}

/// Asks every member for its status and its list of members, all at the same time: none waits for another, and the
/// whole takes no longer than dial, handshake and call of the slowest. One result an endpoint, in their order.
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
