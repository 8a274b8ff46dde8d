//! Reads the pools of one namespace, with their entries and clusters, at one time.

use std::collections::BTreeMap;

use kcp_api::{
    ClusterClaim, ClusterPool,
    metadata::{Object as _, PartialObjectMetadata},
    names::label,
};
use kcp_client::{Error, ServerTime};
use serde_json::Value;

use crate::{
    hive::{Hive, HiveMode},
    lease::{
        queue::{QUEUE_LABEL, Queue},
        reuse::Reuse,
        usage::{Clusters, Usage},
    },
    objects::{
        cluster_deployment::{ClusterDeployment, ClusterDeployments, CustomizationCopy, Deletion as _},
        entry::Entry,
    },
    sources::{
        lost_inventory::{LostInventory, applied_entries, read_drops_inventory},
        secrets::{ComparedClusters, SecretFacts},
    },
    store::{CLUSTER_POOL, CUSTOMIZATION, LeaseStore as _, Store},
};

#[derive(Debug)]
pub struct Snapshot {
    pub namespace: String,
    pub pools: Vec<ClusterPool>,
    /// Whether `pools` has all pools of the namespace. If not, an absent pool may exist.
    pub has_all_pools: bool,
    /// All customizations of the namespace, whether or not a pool lists them.
    pub entries: Vec<Entry>,
    pub clusters: Clusters,
    /// The copies of customizations in the namespaces of clusters.
    pub copies: Vec<CustomizationCopy>,
    /// `None` if the client is not allowed to list them.
    pub claims: Option<Vec<ClusterClaim>>,
    /// The Leases (`coordination.k8s.io`) in which version 0.1 stored its records.
    pub old_records: Vec<PartialObjectMetadata>,
    /// The queues of pools; `None` if the client is not allowed to list them.
    pub queues: Option<Vec<PartialObjectMetadata>>,
    pub hive: Hive,
    /// Whether the server drops the inventory of pools; `None` if unknown.
    pub drops_inventory: Option<bool>,
    /// The entries of the manifests that were last applied, for pools that have no inventory.
    pub applied_inventories: BTreeMap<String, Vec<String>>,
    /// What the Secrets of pools that Hive manages say about the pools' clusters, by the pool's name.
    pub secrets: BTreeMap<String, SecretFacts>,
    /// The server's time for all decisions about this snapshot; see [`Clusters::time_of_check`].
    pub now: ServerTime,
    /// One sentence for each kind of object that the client is not allowed to read, and for each Secret that it could not read.
    pub unread_kinds: Vec<String>,
}

impl Snapshot {
    pub fn pool(&self, name: &str) -> Option<&ClusterPool> {
        self.pools.iter().find(|pool| pool.name() == name)
    }

    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name() == name)
    }

    /// The pools whose inventory lists this customization.
    pub fn pools_that_list<'s>(&'s self, customization: &'s str) -> impl Iterator<Item = &'s ClusterPool> {
        self.pools
            .iter()
            .filter(move |pool| pool.inventory().contains(&customization))
    }

    /// What is known about the inventory that the pool does not have.
    pub fn lost_inventory(&self, pool: &ClusterPool) -> LostInventory {
        if pool.spec.inventory.is_some() {
            return LostInventory::default();
        }
        LostInventory {
            is_dropped: self.drops_inventory,
            applied: self
                .applied_inventories
                .get(pool.name())
                .cloned()
                .unwrap_or_default(),
        }
    }

    /// The queue of a pool; `None` if it could not be read.
    pub fn queue(&self, pool: &str) -> Option<Queue> {
        let leases = self.queues.as_ref()?.iter();
        Some(Queue::new(pool, leases.map(|lease| &lease.metadata)))
    }

    /// The ClusterDeployments of all namespaces; `None` if they could not be listed.
    pub const fn cluster_deployments(&self) -> Option<&ClusterDeployments> {
        self.clusters.cluster_deployments()
    }

    /// What becomes of an entry when its lease ends.
    pub fn reuse(&self, entry: &Entry) -> Reuse {
        let Some(name) = entry.status.pool() else {
            return Reuse::Free;
        };
        match self.pool(name) {
            None if !self.has_all_pools => Reuse::Unknown,
            pool => Reuse::decide(pool, pool.is_some_and(|pool| self.hive.manages(pool))),
        }
    }

    /// The pool for which the entry is reserved, if this pool does not exist.
    pub fn deleted_pool<'e>(&self, entry: &'e Entry) -> Option<&'e str> {
        let pool = entry.status.pool().filter(|_| self.has_all_pools)?;
        self.pool(pool).is_none().then_some(pool)
    }

    /// Whether the clusters are known, and none of them uses the entry.
    pub fn is_unused(&self, entry: &Entry) -> bool {
        self.clusters.usage(entry) == Usage::Unused
    }

    /// Whether Hive manages the pool for which the entry is reserved, a pool that lists the entry, or the pool of a cluster
    /// that uses the entry. Hive deletes a pool before the clusters of the pool.
    pub fn is_managed_by_hive(&self, entry: &Entry, users: &[&ClusterDeployment]) -> bool {
        let reserved_for = entry.status.pool().and_then(|name| self.pool(name));
        let mut pools = self.pools_that_list(entry.name()).chain(reserved_for);
        let mut pools_of_users = users.iter().filter_map(|user| user.pool());
        pools.any(|pool| self.hive.manages(pool))
            || pools_of_users.any(|name| {
                self.pool(name)
                    .map_or_else(|| self.hive.is_found(), |pool| self.hive.manages(pool))
            })
    }
}

impl Store<'_> {
    /// Reads the pools, entries and clusters of the namespace. For an account that is not allowed to list pools, the
    /// snapshot contains only the named pool.
    pub async fn snapshot(&self, mode: HiveMode, named: Option<&str>) -> Result<Snapshot, Error> {
        let mut unseen = Vec::new();
        let hive = self.read_hive(mode).await?;
        let leases = match self.list_leases().await {
            Err(error @ Error::Forbidden { .. }) => {
                unseen.push(format!("the queues of pools are unknown: {error}"));
                None
            }
            leases => Some(leases?),
        };
        let (queues, old_records) = leases.map_or_else(Default::default, |leases| {
            let is_queue =
                |lease: &PartialObjectMetadata| lease.label(label::POOL_LEASE) == Some(QUEUE_LABEL);
            let (queues, old_records) = leases.into_iter().partition(is_queue);
            (Some(queues), old_records)
        });
        let (pools, has_all_pools) = match (self.list_pools(Some(self.namespace())).await, named) {
            (Err(error @ Error::Forbidden { .. }), Some(named)) => {
                unseen.push(error.to_string());
                (vec![self.read_pool(named).await?], false)
            }
            (pools, _) => (pools?, true),
        };
        let labelled = format!("{}=true", label::POOL_LEASE);
        let resource = CUSTOMIZATION.api_resource("v1");
        let copies = self.connection().list_metadata(&resource, None, Some(&labelled));
        let copies = match copies.await {
            // Continue without permission to list copies, which repair only reports and removes.
            Err(error @ Error::Forbidden { .. }) => {
                unseen.push(error.to_string());
                Vec::new()
            }
            copies => copies?,
        };
        let claims = match self.list_claims().await {
            Err(error @ Error::Forbidden { .. }) => {
                unseen.push(error.to_string());
                None
            }
            Err(Error::NotServed { .. }) => Some(Vec::new()),
            claims => Some(claims?),
        };
        let entries = self.list().await?;
        // Read the clusters last, so that a cluster that is created during the reads is included. An entry that changes
        // during the reads is not overwritten, because each write requires the version that was read.
        let clusters = self.clusters().await?;
        let now = clusters.time_of_check(self.now());
        unseen.extend(clusters.error().map(ToString::to_string));
        let is_asked = |pool: &&ClusterPool| named.is_none_or(|named| named == pool.name());
        let mut secrets = BTreeMap::new();
        for pool in pools.iter().filter(is_asked).filter(|pool| hive.manages(pool)) {
            let deployments = clusters.cluster_deployments().into_iter();
            let replaceable: Vec<_> = deployments
                .flat_map(|all| all.in_pool(pool.name()))
                .filter(|cluster| cluster.claim().is_none() && !cluster.is_deleting())
                .collect();
            let compared = ComparedClusters {
                pool,
                clusters: &replaceable,
                entries: &entries,
            };
            let facts = Box::pin(compared.read(self, &mut unseen)).await;
            secrets.insert(pool.name().to_owned(), facts);
        }
        Ok(Snapshot {
            namespace: self.namespace().to_owned(),
            drops_inventory: read_drops_inventory(self, &pools).await,
            applied_inventories: self.applied_inventories(&pools, named).await,
            secrets,
            pools,
            has_all_pools,
            entries,
            clusters,
            copies,
            claims,
            old_records,
            queues,
            hive,
            now,
            unread_kinds: unseen,
        })
    }

    /// The entries of the manifests that were last applied, for pools that have no inventory. What cannot be read is left out.
    async fn applied_inventories(
        &self,
        pools: &[ClusterPool],
        named: Option<&str>,
    ) -> BTreeMap<String, Vec<String>> {
        let has_none = |name: &str| {
            let mut pools = pools.iter();
            pools.any(|pool| pool.name() == name && pool.spec.inventory.is_none())
        };
        let resource = CLUSTER_POOL.api_resource("v1");
        let objects: Vec<Value> = match named {
            Some(named) if has_none(named) => {
                let read = self.connection().get_metadata(&resource, self.namespace(), named);
                read.await.into_iter().collect()
            }
            None if pools.iter().any(|pool| has_none(pool.name())) => {
                let namespace = Some(self.namespace());
                let read = self.connection().list_metadata(&resource, namespace, None);
                read.await.unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let named = objects.iter().filter_map(|object| {
            let name = object.pointer("/metadata/name")?.as_str()?;
            Some((name.to_owned(), applied_entries(object)))
        });
        named.filter(|(name, _)| has_none(name)).collect()
    }
}
