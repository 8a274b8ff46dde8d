//! Connects to one etcd member, for calls that a survey does not make.

use std::time::{Duration, Instant};

use kcp_control_plane::snapshot::{Failure, etcd::QueriedMember};
use kcp_etcd::{Alarm, Connection, Error, KeyRevision, KeySpaceHash, SnapshotStream, Status, Timeouts};

use crate::{
    Connection as ManagementConnection,
    reads::{
        WorkloadTarget,
        etcd::{Access, FailureContext, external_queries, members::object_name, stacked_queries},
        secret::Secrets,
        time_limits,
        workload::WorkloadCluster,
    },
    retry::retry_while_connecting,
};

/// A call to an etcd member failed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", .0.object, .0.message)]
pub struct MemberError(Box<Failure>);

impl MemberError {
    pub fn failure(&self) -> &Failure {
        &self.0
    }

    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl From<Failure> for MemberError {
    fn from(failure: Failure) -> Self {
        Self(Box::new(failure))
    }
}

fn unknown_member(name: &str) -> Failure {
    Failure {
        object: object_name(name),
        message: "the control plane has no etcd member with this name".to_owned(),
        hint: None,
        ..Failure::default()
    }
}

/// A connection to one etcd member of a control plane.
#[derive(Debug)]
pub struct MemberConnection {
    connection: Connection,
    failures: FailureContext,
    name: String,
}

impl MemberConnection {
    /// Connects. Gives up at `end`. `call` is the time limit of each call, and of each part of a snapshot.
    pub async fn open(
        management: &ManagementConnection,
        target: &WorkloadTarget,
        member: &QueriedMember,
        call: Duration,
        end: Instant,
    ) -> Result<Self, MemberError> {
        let secrets = Secrets {
            management,
            namespace: &target.namespace,
            cluster: &target.cluster,
            end,
        };
        let is_stacked = target.external_etcd.is_none();
        let access = Access::read(&secrets, is_stacked).await?;
        let mut failures = FailureContext::of_cluster(&secrets, is_stacked, "");
        let queries = if let Some(endpoints) = &target.external_etcd {
            external_queries(endpoints)
        } else {
            let cluster = WorkloadCluster::open(&secrets).await?;
            failures.server.clone_from(&cluster.server.url);
            stacked_queries(&cluster.server.client, &[].into(), [member.name.clone()])
        };
        let query = queries.into_iter().find(|query| query.name == member.name);
        let Some(query) = query else {
            return Err(MemberError::from(unknown_member(&member.name)));
        };
        let endpoint = query.endpoint?;
        let timeouts = Timeouts {
            call,
            ..time_limits::for_etcd(time_limits::remaining(end))
        };
        match Connection::open(&endpoint, &access.tls, timeouts).await {
            Ok(connection) => Ok(Self {
                connection,
                failures,
                name: member.name.clone(),
            }),
            Err(error) => Err(failures.describe(&member.name, error).into()),
        }
    }

    /// Connects to the member on a Node of a cluster without Cluster API, until `end` at the latest. `call` is the time limit
    /// of each call.
    pub async fn open_on_node(
        cluster: &ManagementConnection,
        access: &Access,
        node: &str,
        call: Duration,
        end: Instant,
    ) -> Result<Self, MemberError> {
        let failures = FailureContext::with_files(&cluster.server);
        let queries = stacked_queries(&cluster.client, &[].into(), [node.to_owned()]);
        let timeouts = Timeouts {
            call,
            ..time_limits::for_etcd(time_limits::remaining(end))
        };
        let Some(query) = queries.into_iter().next() else {
            return Err(MemberError::from(unknown_member(node)));
        };
        match Connection::open(&query.endpoint?, &access.tls, timeouts).await {
            Ok(connection) => Ok(Self {
                connection,
                failures,
                name: node.to_owned(),
            }),
            Err(error) => Err(failures.describe(node, error).into()),
        }
    }

    /// Queries the member for its own status.
    pub async fn status(&self) -> Result<Status, MemberError> {
        self.described(self.connection.status()).await
    }

    /// Asks the member for the hash of its keys and values up to this revision. Returns `None` if the member has already deleted
    /// this revision.
    pub async fn hash_key_space(&self, revision: i64) -> Result<Option<KeySpaceHash>, MemberError> {
        match self.connection.hash_key_space(revision).await {
            Ok(hash) => Ok(Some(hash)),
            Err(error) if error.is_compacted() => Ok(None),
            Err(error) => Err(self.describe(error)),
        }
    }

    /// Counts the keys that existed at a revision. Returns `None` if etcd has already deleted this revision.
    pub async fn count_keys(&self, revision: i64) -> Result<Option<u64>, MemberError> {
        match self.connection.count_keys(revision).await {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.is_compacted() => Ok(None),
            Err(error) => Err(self.describe(error)),
        }
    }

    /// Reads the member's metrics in Prometheus' text format.
    pub async fn metrics(&self) -> Result<String, MemberError> {
        self.described(self.connection.metrics()).await
    }

    /// Removes another member from etcd.
    pub async fn remove_member(&self, id: u64) -> Result<(), MemberError> {
        self.described(retry_while_connecting(|| self.connection.remove(id)))
            .await
    }

    /// Promotes a learner. Returns false if etcd finds that the learner has not caught up with the leader.
    pub async fn promote(&self, id: u64) -> Result<bool, MemberError> {
        match self.connection.promote(id).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_in_sync() => Ok(false),
            Err(error) => Err(self.describe(error)),
        }
    }

    /// Starts a snapshot of the member's database.
    pub async fn start_snapshot(&self) -> Result<SnapshotStream, MemberError> {
        self.described(self.connection.start_snapshot()).await
    }

    /// Rewrites the member's database file without its free pages. During the call, the member serves no requests. If the member
    /// does not respond within the time limit, or fails, it is unknown whether it has finished.
    pub async fn defragment(&self) -> Result<(), MemberError> {
        self.described(self.connection.defragment()).await
    }

    /// Deletes all revisions before `revision`. Returns false if etcd had already deleted them.
    pub async fn compact(&self, revision: i64) -> Result<bool, MemberError> {
        match self.connection.compact(revision).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_compacted() => Ok(false),
            Err(error) => Err(self.describe(error)),
        }
    }

    /// Disarms an alarm of any member.
    pub async fn disarm(&self, alarm: Alarm) -> Result<(), MemberError> {
        self.described(self.connection.disarm(alarm)).await
    }

    /// Moves the leadership from this member to another.
    pub async fn move_leader(&self, to: u64) -> Result<(), MemberError> {
        self.described(self.connection.move_leader(to)).await
    }

    /// Reads the revision at which a key was last written. `None` if the key does not exist.
    pub async fn read_key_revision(&self, key: &[u8]) -> Result<Option<KeyRevision>, MemberError> {
        self.described(self.connection.read_key_revision(key)).await
    }

    async fn described<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, MemberError> {
        call.await.map_err(|error| self.describe(error))
    }

    /// Adds the name of the member, and a hint, to an error.
    pub fn describe(&self, error: Error) -> MemberError {
        self.failures.describe(&self.name, error).into()
    }
}
