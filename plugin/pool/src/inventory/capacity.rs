//! How many clusters a pool may still be given. Pure.

use std::fmt;

use crate::objects::{cluster_pool::Pool, deployments::ClusterDeployment};

/// A pool's limits, and the clusters that count against them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Unclaimed clusters that are wanted.
    pub size: usize,
    /// Of all clusters; none where there is no limit. What is below zero allows none, as for Hive.
    pub max_size: Option<usize>,
    /// Of those that are made or taken down at the same time.
    pub max_concurrent: Option<usize>,
    /// Customizations that the pool names.
    pub inventory: Option<usize>,
    pub clusters: usize,
    pub unclaimed: usize,
    /// Unclaimed, installed and not being taken down.
    pub ready: usize,
    pub installing: usize,
    pub deleting: usize,
}

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    MaxSize { clusters: usize, limit: usize },
    MaxConcurrent { changing: usize, limit: usize },
}

/// An inventory that is smaller than the pool's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    size: usize,
    entries: usize,
}

impl Capacity {
    /// Of a pool with these clusters: those that were made for it.
    pub fn of<'d>(pool: &Pool, clusters: impl Iterator<Item = &'d ClusterDeployment>) -> Self {
        let limit = |given: Option<i32>| given.map(|limit| usize::try_from(limit).unwrap_or(0));
        let mut capacity = Self {
            size: usize::try_from(pool.spec.size).unwrap_or(0),
            max_size: limit(pool.spec.max_size),
            max_concurrent: limit(pool.spec.max_concurrent),
            inventory: pool.spec.inventory.as_ref().map(|_| pool.inventory().len()),
            ..Self::default()
        };
        for cluster in clusters {
            capacity.clusters += 1;
            capacity.unclaimed += usize::from(cluster.claim().is_none());
            // As Hive counts: one that is deleted while it is installed is being taken down.
            if cluster.metadata.is_deleting() {
                capacity.deleting += 1;
            } else if !cluster.is_installed {
                capacity.installing += 1;
            } else if cluster.claim().is_none() {
                capacity.ready += 1;
            }
        }
        capacity
    }

    /// How many clusters may be added at once; none where nothing limits them.
    ///
    /// # Errors
    /// The limit that is reached.
    pub fn room(&self) -> Result<Option<usize>, Full> {
        let of_all = self.max_size.map(|limit| limit.saturating_sub(self.clusters));
        let changing = self.installing + self.deleting;
        let at_once = self.max_concurrent.map(|limit| limit.saturating_sub(changing));
        match (of_all, at_once, self.max_size, self.max_concurrent) {
            (Some(0), _, Some(limit), _) => Err(Full::MaxSize {
                clusters: self.clusters,
                limit,
            }),
            (_, Some(0), _, Some(limit)) => Err(Full::MaxConcurrent { changing, limit }),
            _ => Ok(of_all.into_iter().chain(at_once).min()),
        }
    }

    /// The same with a cluster that is about to be made.
    pub fn with_one_more(self) -> Self {
        Self {
            clusters: self.clusters + 1,
            unclaimed: self.unclaimed + 1,
            installing: self.installing + 1,
            ..self
        }
    }

    /// That more unclaimed clusters are wanted than the inventory has customizations: the document asks for a condition
    /// that says so.
    pub fn shortage(&self) -> Option<Shortage> {
        let entries = self.inventory.filter(|entries| self.size > *entries)?;
        Some(Shortage {
            size: self.size,
            entries,
        })
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, entries } = self;
        let noun = if *entries == 1 { "entry" } else { "entries" };
        write!(f, "size is {size}, and the inventory has {entries} {noun}")
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxSize { clusters, limit } => {
                write!(f, "it has {clusters} clusters, and maxSize is {limit}")
            }
            Self::MaxConcurrent { changing, limit } => write!(
                f,
                "{changing} of its clusters are being made or taken down, and maxConcurrent is {limit}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Capacity, Full};
    use crate::testing::objects::{cluster, pool};

    /// Installed and claimed, installing, claimed and being taken down, ready.
    fn clusters() -> Vec<Value> {
        let mut installed = cluster("a", "pool", None);
        installed["spec"]["installed"] = true.into();
        installed["spec"]["clusterPoolRef"]["claimName"] = "claim".into();
        let mut deleting = cluster("c", "pool", None);
        deleting["metadata"]["deletionTimestamp"] = "2026-11-21T05:00:00Z".into();
        deleting["spec"]["clusterPoolRef"]["claimName"] = "other".into();
        let mut ready = cluster("e", "pool", None);
        ready["spec"]["installed"] = true.into();
        vec![installed, cluster("b", "pool", None), deleting, ready]
    }

    fn capacity(spec: &Value) -> Capacity {
        let clusters: Vec<_> = clusters()
            .into_iter()
            .map(|cluster| serde_json::from_value(cluster).unwrap())
            .collect();
        Capacity::of(&pool(spec), clusters.iter())
    }

    #[test]
    fn what_counts() {
        let spec = json!({"size": 4, "maxSize": 9, "maxConcurrent": -1, "inventory": [{"name": "a"}]});
        let expected = Capacity {
            size: 4,
            max_size: Some(9),
            max_concurrent: Some(0),
            inventory: Some(1),
            clusters: 4,
            unclaimed: 2,
            ready: 1,
            installing: 1,
            deleting: 1,
        };
        assert_eq!(capacity(&spec), expected);
        for (spec, shortage) in [
            (spec, Some("size is 4, and the inventory has 1 entry")),
            (json!({"size": 1, "inventory": [{"name": "a"}]}), None),
            (
                json!({"size": 1, "inventory": []}),
                Some("size is 1, and the inventory has 0 entries"),
            ),
            (json!({"size": 4}), None),
        ] {
            let found = capacity(&spec).shortage().map(|shortage| shortage.to_string());
            assert_eq!(found.as_deref(), shortage, "{spec}");
        }
    }

    #[test]
    fn what_goes_and_is_claimed_leaves_what_is_ready() {
        let of = |names: [usize; 2]| {
            let clusters = clusters();
            let read = names.map(|index| serde_json::from_value(clusters[index].clone()).unwrap());
            Capacity::of(&pool(&json!({})), read.iter()).ready
        };
        assert_eq!(of([2, 3]), 1);
        assert_eq!(of([0, 1]), 0);
    }

    #[test]
    fn what_room_there_is() {
        for (spec, expected) in [
            (json!({}), Ok(None)),
            (json!({"maxSize": 6}), Ok(Some(2))),
            (json!({"maxConcurrent": 3}), Ok(Some(1))),
            (json!({"maxSize": 6, "maxConcurrent": 3}), Ok(Some(1))),
            (json!({"maxSize": 5, "maxConcurrent": 9}), Ok(Some(1))),
            (
                json!({"maxSize": 4}),
                Err(Full::MaxSize {
                    clusters: 4,
                    limit: 4,
                }),
            ),
            (
                json!({"maxSize": 0}),
                Err(Full::MaxSize {
                    clusters: 4,
                    limit: 0,
                }),
            ),
            (
                json!({"maxSize": 9, "maxConcurrent": 2}),
                Err(Full::MaxConcurrent {
                    changing: 2,
                    limit: 2,
                }),
            ),
        ] {
            assert_eq!(capacity(&spec).room(), expected, "{spec}");
        }
    }

    #[test]
    fn a_limit_in_a_sentence() {
        let sentences = [
            Full::MaxSize {
                clusters: 3,
                limit: 3,
            }
            .to_string(),
            Full::MaxConcurrent {
                changing: 2,
                limit: 2,
            }
            .to_string(),
        ];
        assert_eq!(
            sentences,
            [
                "it has 3 clusters, and maxSize is 3",
                "2 of its clusters are being made or taken down, and maxConcurrent is 2",
            ]
        );
    }
}
