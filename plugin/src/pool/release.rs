//! Giving back what a holder has.

use std::{collections::BTreeMap, time::Duration};

use super::{
    entry::Holder,
    record_keeping::withdraw,
    store::{Customizations, Records},
};
use crate::cluster::{Error, Written};

/// How often the entries are read anew after others have changed them.
const MAX_ROUNDS: usize = 8;

/// Before the entries are read anew after a write without an answer.
const REST: Duration = Duration::from_millis(200);

/// The clusters that were made with customizations and still need them, by customization.
pub(super) type Needs = BTreeMap<String, Cluster>;

/// A holder's `ClusterDeployment`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cluster {
    /// It has the holder's name.
    pub(super) namespace: String,
    /// Hive takes it down, and gives its customization back then.
    pub(super) is_deprovisioning: bool,
}

impl Cluster {
    /// Why the customization is kept, and what to do.
    pub(super) fn refusal(&self, name: &str, customization: &str) -> String {
        let namespace = &self.namespace;
        if self.is_deprovisioning {
            format!(
                "ClusterDeployment {name} was made with {customization} and is being taken down; Hive gives it back \
                 when that is done: kubectl wait --for=delete --timeout=1h \
                 clusterdeployments.hive.openshift.io/{name} -n {namespace}"
            )
        } else {
            format!(
                "ClusterDeployment {name} was made with {customization} and is there; delete it first: \
                 kubectl delete clusterdeployments.hive.openshift.io {name} -n {namespace}"
            )
        }
    }
}

/// What came of it. Names, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Given back.
    pub(super) released: Vec<String>,
    /// Kept: a cluster needs it.
    pub(super) needed: Vec<String>,
}

/// Gives back every entry that the holder has and none of its clusters needs, whether the pool still names it or not.
/// Another's are not touched.
///
/// # Errors
/// When the API server cannot be asked, or an entry changes faster than it can be written.
pub(super) async fn release<S: Customizations + Records>(
    customizations: &S,
    needs: &Needs,
    holder: Holder<'_>,
) -> Result<Outcome, Error> {
    let mut released = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let entries = customizations.list().await?;
        let held = entries.iter().filter(|entry| entry.names(holder));
        let (needed, held): (Vec<_>, Vec<_>) = held.partition(|entry| needs.contains_key(entry.name()));
        let mut settled = true;
        for entry in held {
            let patch = entry.release(customizations.now());
            match customizations.write_status(entry.name(), &patch).await? {
                Written::Stored => released.push(entry.name().to_owned()),
                Written::Changed => settled = false,
                // Read again, it is either free, then it was this write, or still ours: then the next write settles it,
                // because only one of the two can be stored.
                Written::Unknown(_) => {
                    released.push(entry.name().to_owned());
                    settled = false;
                    customizations.rest(REST).await;
                }
            }
        }
        released.sort();
        released.dedup();
        if settled {
            for name in &released {
                withdraw(customizations, name, holder).await?;
            }
            let mut needed: Vec<_> = needed.iter().map(|entry| entry.name().to_owned()).collect();
            needed.sort();
            return Ok(Outcome { released, needed });
        }
    }
    Err(Error::Contended {
        goal: format!("release the customizations of {}", holder.cluster_deployment),
        attempts: MAX_ROUNDS,
    })
}

#[cfg(test)]
mod tests;
