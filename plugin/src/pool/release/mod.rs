//! Giving back what a holder has.
//!
//! - [`held`]: by what it is given back; [`command`]: from arguments to exit code

pub(in crate::pool) mod command;
pub(in crate::pool) mod held;

use std::{collections::BTreeMap, time::Duration};

use crate::{
    cluster::{Error, Written},
    pool::{
        lease::record_keeping::withdraw,
        objects::entry::Holder,
        store::{Customizations, Records},
    },
};

/// How often the entries are read anew after others have changed them.
const MAX_ROUNDS: usize = 8;

/// Before the entries are read anew after a write without an answer.
const REST: Duration = Duration::from_millis(200);

/// The clusters that were made with customizations and still need them, by customization.
pub(super) type Needs = BTreeMap<String, Cluster>;

/// A `ClusterDeployment` that needs a customization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cluster {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Of others than us, where it is being taken down; none while it is alive.
    pub(super) finalizers: Vec<String>,
    /// Whether our finalizer keeps it too: it was made by us and not by Hive.
    pub(super) is_ours: bool,
}

impl Cluster {
    /// Why the customization is kept, and what to do.
    pub(super) fn refusal(&self, customization: &str) -> String {
        let Self { namespace, name, .. } = self;
        if self.finalizers.is_empty() {
            return format!(
                "ClusterDeployment {name} was made with {customization} and is there; delete it first: \
                 kubectl delete clusterdeployments.hive.openshift.io {name} -n {namespace}"
            );
        }
        let finalizers = self.finalizers.join(", ");
        let what_then = if self.is_ours {
            "release it again when they are gone".to_owned()
        } else {
            format!(
                "Hive gives it back when that is done: kubectl wait --for=delete --timeout=1h \
                 clusterdeployments.hive.openshift.io/{name} -n {namespace}"
            )
        };
        format!(
            "ClusterDeployment {name} was made with {customization} and is being taken down, with finalizers \
             {finalizers}; {what_then}"
        )
    }

    /// What is left to run when the customization is given back all the same.
    pub(super) fn left(&self, customization: &str) -> String {
        let Self { namespace, name, .. } = self;
        let state = if self.finalizers.is_empty() {
            "still runs"
        } else {
            "is still being taken down"
        };
        format!(
            "ClusterDeployment {name} in namespace {namespace} {state} with {customization}, which another may get now"
        )
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

/// Gives back every entry that the holder has and no cluster needs, whether the pool still names it or not;
/// or `only` this one. Another's are not touched. Their records go last.
///
/// # Errors
/// When the API server cannot be asked, or an entry changes faster than it can be written.
pub(super) async fn release<S: Customizations + Records>(
    customizations: &S,
    needs: &Needs,
    holder: Holder<'_>,
    only: Option<&str>,
) -> Result<Outcome, Error> {
    let is_meant = |name: &str| only.is_none_or(|only| only == name);
    let mut released = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let entries = customizations.list().await?;
        let held = entries
            .iter()
            .filter(|entry| entry.names(holder) && is_meant(entry.name()));
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
            let mut needed: Vec<_> = needed.iter().map(|entry| entry.name().to_owned()).collect();
            needed.sort();
            // Also those of a release that was killed before it came to them.
            for record in customizations.records().await? {
                let leased = record.customization().filter(|_| record.names(holder));
                let Some(name) = leased.filter(|name| is_meant(name)) else {
                    continue;
                };
                if !needed.iter().any(|needed| needed == name) {
                    withdraw(customizations, name, holder).await?;
                }
            }
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
