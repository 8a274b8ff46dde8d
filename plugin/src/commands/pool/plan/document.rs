//! The JSON and YAML of `pool plan`. `plugin/schema` says the same as a JSON schema.

use kcp_pool::plan::{self, EntryChange, WhyStale};
use serde::Serialize;

use crate::{commands::pool::PoolDocumentName, document::API_VERSION};

/// What a change of a pool comes to.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolPlan {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "PoolPlan")))]
    kind: &'static str,
    metadata: PoolDocumentName,
    /// Whether there is no such pool yet.
    new: bool,
    /// Whether Hive does by itself what follows.
    run_by_hive: bool,
    version: VersionDocument,
    /// Unclaimed clusters that become stale: Hive replaces them.
    stale: Vec<StaleDocument>,
    /// How many unclaimed clusters are deleted because the size is smaller.
    excess: usize,
    entries: Vec<EntryDocument>,
    /// What the change leaves wrong, a sentence each.
    problems: Vec<String>,
}

/// Null where it cannot be told, for some platforms.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct VersionDocument {
    before: Option<String>,
    after: Option<String>,
    /// Whether they differ, which can be told of every platform.
    changes: bool,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StaleDocument {
    namespace: String,
    name: String,
    /// version, dropped-from-inventory.
    reason: &'static str,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct EntryDocument {
    name: String,
    /// added, dropped.
    change: &'static str,
    /// free, missing, shared, unused, cluster-stale, cluster-claimed, held.
    effect: &'static str,
    /// In a sentence.
    message: String,
}

impl PoolPlan {
    pub(crate) fn of(plan: &plan::PoolPlan) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "PoolPlan",
            metadata: PoolDocumentName {
                namespace: plan.namespace.clone(),
                name: plan.name.clone(),
            },
            new: plan.is_new,
            run_by_hive: plan.is_run_by_hive,
            version: VersionDocument {
                before: plan.version.before.clone(),
                after: plan.version.after.clone(),
                changes: plan.version.changes,
            },
            stale: plan
                .stale
                .iter()
                .map(|cluster| StaleDocument {
                    namespace: cluster.namespace.clone(),
                    name: cluster.name.clone(),
                    reason: match cluster.why {
                        WhyStale::Version => "version",
                        WhyStale::DroppedFromInventory => "dropped-from-inventory",
                    },
                })
                .collect(),
            excess: plan.excess,
            entries: plan.entries.iter().map(EntryDocument::of).collect(),
            problems: plan.problems.clone(),
        }
    }
}

impl EntryDocument {
    fn of(entry: &EntryChange) -> Self {
        Self {
            name: entry.name.clone(),
            change: entry.change.as_str(),
            effect: entry.effect.as_str(),
            message: entry.effect.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_pool::testing::plans::plans;

    use super::PoolPlan;
    use crate::commands::status::schema::{checked_in, faults, of};

    #[test]
    fn documents() {
        let schema = serde_json::to_value(of::<PoolPlan>()).unwrap();
        for (name, plan) in plans() {
            let document = serde_json::to_value(PoolPlan::of(&plan)).unwrap();
            assert_eq!(faults(&schema, &document), Vec::<String>::new(), "{name}");
            insta::assert_snapshot!(name, serde_json::to_string_pretty(&document).unwrap());
        }
    }

    #[test]
    fn the_schema_is_checked_in() {
        checked_in::<PoolPlan>("poolplan.json");
    }
}
