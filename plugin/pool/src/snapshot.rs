//! The pools of one namespace, their entries, records and clusters, read at one time.

use std::collections::BTreeMap;

use kcp_client::Error;

use crate::{
    objects::{
        cluster_deployment::{Copy, Deployments},
        cluster_pool::Pool,
        entry::Entry,
        record::{LABEL, Record},
    },
    store::{CUSTOMIZATION, Customizations as _, Records as _, Store},
};

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub namespace: String,
    pub pools: Vec<Pool>,
    /// All customizations of the namespace.
    pub entries: Vec<Entry>,
    pub records: Vec<Record>,
    /// The ClusterDeployments of all namespaces.
    pub deployments: Deployments,
    /// The copies of customizations in the namespaces of clusters.
    pub copies: Vec<Copy>,
}

impl Snapshot {
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name() == name)
    }

    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name() == name)
    }

    pub fn record(&self, customization: &str) -> Option<&Record> {
        self.records
            .iter()
            .find(|record| record.customization() == Some(customization))
    }

    /// The pools that list a customization.
    pub fn pools_naming<'s>(&'s self, customization: &'s str) -> impl Iterator<Item = &'s Pool> {
        self.pools
            .iter()
            .filter(move |pool| pool.inventory().contains(&customization))
    }
}

impl Store<'_> {
    /// Reads everything.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        // Clusters last: the snapshot then has a cluster that is created during the reads, whose entry has changed
        // since and which a conditional write therefore leaves alone. Records after entries: a lease writes its
        // record, then its entry, then reports it, so a new entry is never judged by an old record. Records before
        // entries too: a release deletes the record last, and the old entry would otherwise have none.
        let before = self.records().await?;
        let entries = self.list().await?;
        let records = newest(before, self.records().await?);
        let pools = self.pools(Some(self.namespace()), None).await?;
        let labelled = format!("{LABEL}=true");
        let copies: Vec<Copy> = self
            .connection()
            .list_metadata(&CUSTOMIZATION.at("v1"), None, Some(&labelled))
            .await?;
        Ok(Snapshot {
            namespace: self.namespace().to_owned(),
            pools,
            entries,
            records,
            deployments: self.deployments().await?,
            copies,
        })
    }
}

/// All records of two lists, each as in the later list.
fn newest(before: Vec<Record>, after: Vec<Record>) -> Vec<Record> {
    let by_name = |record: Record| (record.metadata.name.clone(), record);
    let all: BTreeMap<String, Record> = before.into_iter().chain(after).map(by_name).collect();
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::newest;
    use crate::objects::record::Record;

    #[test]
    fn a_record_is_read_as_it_was_last() {
        let record = |name: &str, version: &str| -> Record {
            serde_json::from_value(json!({"metadata": {"name": name, "resourceVersion": version}})).unwrap()
        };
        let before = vec![record("a", "1"), record("b", "2")];
        let after = vec![record("c", "5"), record("a", "4")];
        assert_eq!(
            newest(before, after),
            [record("a", "4"), record("b", "2"), record("c", "5")]
        );
    }
}
