//! Reserves an entry for a holder: first the record, which keeps other clients from the entry for a moment, then the
//! status. Each is one conditional write, which the server refuses if the object has changed. The status decides.
//!
//! A lease is reported only after its entry has changed since the command listed it, even if the holder already had
//! it. Otherwise a release or a repair that was decided earlier could still be stored: it asks for the version that
//! the entry had, and can arrive late. One that is decided on the new version reads the record after that (repair
//! lists entries before records), and the record was written before.
//!
//! - [`attempt`]: one attempt over an inventory
//! - [`record_keeping`]: the record
//! - [`renewal`]: renews a lease, once or until it is lost
//! - [`generated_name`]: a name for a holder that has none

pub mod attempt;
mod entry_write;
pub mod generated_name;
pub mod record_keeping;
pub mod renewal;

use std::collections::{BTreeMap, BTreeSet};

use kcp_client::Error;

use crate::{
    install_config::{
        InstallConfig,
        patches::{Patched, Unfit},
    },
    inventory::choice::Standing,
    objects::{cluster_deployment::References, entry::Entry, record::LeaseClaim},
};

/// One attempt's input.
#[derive(Clone, Copy, Debug)]
pub struct AttemptRequest<'r> {
    /// The inventory.
    pub names: &'r [&'r str],
    /// None if the clusters could not be read.
    pub references: Option<&'r References>,
    pub claim: LeaseClaim<'r>,
    /// The install-config that the entry's patches have to apply to; none if the caller has none.
    pub install_config: Option<&'r InstallConfig>,
    /// Whether a lease under this name that exists already belongs to another process.
    pub is_new: bool,
    /// Whether Hive reports the result of the patches.
    pub is_run_by_hive: bool,
}

#[derive(Clone, Debug)]
pub struct Attempt {
    pub outcome: AttemptOutcome,
    /// All entries, as they were last listed.
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    Leased(Leased),
    /// No entry is free. The state of each.
    Exhausted(Vec<(String, Standing)>),
    /// The holder is bound to an entry that it cannot have.
    Bound {
        customization: String,
        standing: Standing,
    },
    /// The holder already has this entry, and the request is for a new lease.
    HeldBefore {
        customization: String,
    },
    /// The holder has this entry, but its patches cannot be applied.
    HeldUnfit {
        customization: String,
        why: Unfit,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    pub customization: String,
    /// Whether the holder had it before the request.
    pub already: bool,
    /// The patched install-config.
    pub patched: Option<Patched>,
    /// Entries that were skipped, and why.
    pub unfit: Unfits,
}

pub type Unfits = BTreeMap<String, Unfit>;

/// No lease could be requested, or its result is unknown.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error(transparent)]
    Api(#[from] Error),
    #[error("unknown whether {customization} is leased; run the same command again to find out")]
    InDoubt {
        customization: String,
        source: Box<Error>,
    },
    #[error("{}", unfinished(customization, cluster_deployment))]
    Unfinished {
        customization: String,
        cluster_deployment: String,
        source: Box<Error>,
    },
}

impl LeaseError {
    pub fn cause(&self) -> &Error {
        match self {
            Self::Api(cause) => cause,
            Self::InDoubt { source, .. } | Self::Unfinished { source, .. } => source,
        }
    }

    /// The message and its cause, in one line.
    pub fn in_full(&self) -> String {
        match self {
            Self::Api(cause) => cause.to_string(),
            Self::InDoubt { source, .. } | Self::Unfinished { source, .. } => format!("{self}: {source}"),
        }
    }
}

/// Of a lease whose cluster is not created.
pub fn unfinished(customization: &str, cluster_deployment: &str) -> String {
    format!(
        "{customization} is leased, but cluster {cluster_deployment} is not created; run the same command again to continue"
    )
}

impl AttemptOutcome {
    /// The entries that this attempt found to have patches that Hive cannot apply either.
    pub fn broken(&self) -> BTreeSet<&str> {
        let is_broken = |why: &Unfit| matches!(why, Unfit::Broken(_));
        match self {
            Self::Leased(leased) => {
                let unfit = leased.unfit.iter().filter(|(_, why)| is_broken(why));
                unfit.map(|(name, _)| name.as_str()).collect()
            }
            Self::Exhausted(standings) => {
                let is_broken =
                    |standing: &Standing| matches!(standing, Standing::Unfit(why) if is_broken(why));
                let broken = standings.iter().filter(|(_, standing)| is_broken(standing));
                broken.map(|(name, _)| name.as_str()).collect()
            }
            Self::HeldUnfit { customization, why } if is_broken(why) => {
                BTreeSet::from([customization.as_str()])
            }
            Self::Bound {
                customization,
                standing: Standing::Unfit(why),
            } if is_broken(why) => BTreeSet::from([customization.as_str()]),
            Self::Bound { .. } | Self::HeldBefore { .. } | Self::HeldUnfit { .. } => BTreeSet::new(),
        }
    }
}
