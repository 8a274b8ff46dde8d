//! Removes the etcd member of a control plane Node without a Machine.

use std::time::{Duration, Instant};

use anyhow::bail;
use kcp_api::names::label;
use kcp_client::{
    Connection,
    reads::{
        etcd::{Access, MemberConnection},
        node::list_nodes,
        node_removal::{has_etcd_pod, survey_members},
    },
};
use kcp_control_plane::{
    change::decision::Refusal,
    snapshot::{EtcdSurvey, Reading},
    verbs::{
        etcd::{members::read_refusal, remove_member::MemberRemoval},
        node::{
            labelled_node::LabelledNode,
            remove::{RemovableNode, decide_member},
        },
    },
};

use crate::commands::node::remove::RemoveArguments;

/// The time limit for querying all members, and for each change of etcd.
const LIMIT: Duration = Duration::from_secs(30);

/// The time limit of a call that takes no longer than an election. It equals Cluster API's time limit for etcd.
const CALL_LIMIT: Duration = Duration::from_secs(15);

/// The etcd members of the control plane.
pub(super) struct Members<'m> {
    connection: &'m Connection,
    access: Access,
    /// The Nodes of the control plane.
    nodes: Vec<String>,
}

/// The result of a decision, copied so that it does not borrow from the survey.
pub(super) struct Decided {
    id: u64,
    through: String,
    leader: Option<(String, u64)>,
}

impl<'m> Members<'m> {
    /// Reads the credentials for etcd. `None` if the Node runs no etcd member.
    ///
    /// The Node runs a member, but the credentials for etcd are missing or invalid.
    pub(super) async fn read(
        connection: &'m Connection,
        arguments: &RemoveArguments,
        node: &RemovableNode,
    ) -> anyhow::Result<Option<Self>> {
        let Some(access) = arguments.etcd.access()? else {
            if !has_etcd_pod(connection, &node.name).await? {
                return Ok(None);
            }
            bail!(
                "Node {} runs an etcd member, which must leave etcd first: pass etcd's CA, and a client certificate and its \
                 key, with --etcd-ca, --etcd-certificate and --etcd-key; kubeadm stores them in /etc/kubernetes/pki/etcd of \
                 each Node of the control plane",
                node.name
            );
        };
        let nodes = list_nodes(connection, Some(label::NODE_CONTROL_PLANE)).await?;
        let mut members = Self::on_nodes(connection, access, nodes);
        if !members.nodes.contains(&node.name) {
            members.nodes.push(node.name.clone());
        }
        Ok(Some(members))
    }

    /// The members on these Nodes.
    pub(super) fn on_nodes(connection: &'m Connection, access: Access, nodes: Vec<LabelledNode>) -> Self {
        Self {
            connection,
            access,
            nodes: nodes.into_iter().map(|node| node.name).collect(),
        }
    }

    async fn survey(&self) -> Reading<EtcdSurvey> {
        let end = Instant::now() + LIMIT;
        Box::pin(survey_members(
            self.connection,
            self.nodes.clone(),
            &self.access,
            end,
        ))
        .await
    }

    /// Decides whether etcd can lose the member of the Node. `None` if etcd has no such member.
    pub(super) async fn decide(&self, node: &str) -> Result<Option<Decided>, Refusal> {
        let survey = match self.survey().await {
            Reading::Read(survey) => survey,
            unread => {
                let failure = unread.failure().map(read_refusal);
                return Err(failure.unwrap_or_else(|| {
                    Refusal::new(
                        kcp_control_plane::change::decision::RefusedBy::Command,
                        vec!["etcd was not queried".to_owned()],
                    )
                }));
            }
        };
        let removal = decide_member(&survey, node)?;
        Ok(removal.map(|MemberRemoval { id, through, leader }| Decided {
            id,
            through: through.name.clone(),
            leader: leader.map(|(leader, successor)| (leader.name.clone(), successor)),
        }))
    }

    /// Removes the member of the Node, if etcd can lose it. True if this call removed it. The inner error says why the member
    /// must stay.
    pub(super) async fn remove(&self, node: &str) -> anyhow::Result<Result<bool, Refusal>> {
        let decided = match self.decide(node).await {
            Ok(None) => return Ok(Ok(false)),
            Ok(Some(decided)) => decided,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if let Some((leader, successor)) = &decided.leader {
            self.open(leader).await?.move_leader(*successor).await?;
        }
        let removed = self.open(&decided.through).await?.remove_member(decided.id).await;
        if let Err(error) = removed {
            // The response may be lost. What counts is whether the member is listed.
            if !matches!(self.decide(node).await, Ok(None)) {
                return Err(error.into());
            }
        }
        Ok(Ok(true))
    }

    async fn open(&self, node: &str) -> anyhow::Result<MemberConnection> {
        let end = Instant::now() + LIMIT;
        let opened = MemberConnection::open_on_node(self.connection, &self.access, node, CALL_LIMIT, end);
        Ok(Box::pin(opened).await?)
    }
}
