//! Taking a lease: first the record, which keeps others from the entry for a moment, then the status, one write at a
//! time, each refused by the server once the entry has changed. The status decides.
//!
//! A lease is told only after the entry has changed since the command listed it, also that of a holder who has it
//! already. Otherwise a release or a repair that was decided before could be stored after it: its write asks for the
//! version that the entry had, and may be late by any time. One that is decided on the version that the lease has made
//! reads the record after that (repair lists entries before records), and the record was written before.
//!
//! - [`record_keeping`]: the record
//! - [`hold`], [`renewal`], [`heartbeat`]: renews a lease, once or until it is lost
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

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct AttemptRequest<'r> {
    /// The inventory.
    pub names: &'r [&'r str],
    /// None where the clusters could not be read.
    pub references: Option<&'r References>,
    pub claim: LeaseClaim<'r>,
    /// What the patches have to apply to; none where nobody wants to know.
    pub install_config: Option<&'r InstallConfig>,
    /// Whether a lease that the holder has already is somebody else's.
    pub is_new: bool,
    /// Whether Hive says what becomes of the patches.
    pub is_run_by_hive: bool,
}

/// What came of it, and what there was.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub outcome: AttemptOutcome,
    /// All customizations, as they were last listed.
    pub entries: Vec<Entry>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The holder has this entry.
    Leased(Leased),
    /// No entry is free: how things stand with each.
    Exhausted(Vec<(String, Standing)>),
    /// The holder's cluster was made with an entry that it cannot have.
    Bound {
        customization: String,
        standing: Standing,
    },
    /// The holder has this entry, and is not the one who asks.
    HeldBefore { customization: String },
    /// The holder has this entry, but its patches cannot be applied.
    HeldUnfit { customization: String, why: Unfit },
}

/// A lease that the holder has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    pub customization: String,
    /// It had it before we came.
    pub already: bool,
    /// What it makes of the install-config.
    pub patched: Option<Patched>,
    /// Entries that were passed over, and why.
    pub unfit: Unfits,
}

/// Entries that cannot be taken.
pub type Unfits = BTreeMap<String, Unfit>;

/// A lease could not be asked for, or it is open what came of it.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error(transparent)]
    Api(#[from] Error),
    #[error("cannot tell whether {customization} is leased; ask again to find out")]
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
    /// The API server's part in it.
    pub fn cause(&self) -> &Error {
        match self {
            Self::Api(cause) => cause,
            Self::InDoubt { source, .. } | Self::Unfinished { source, .. } => source,
        }
    }

    /// With its cause, in one line.
    pub fn in_full(&self) -> String {
        match self {
            Self::Api(cause) => cause.to_string(),
            Self::InDoubt { source, .. } | Self::Unfinished { source, .. } => format!("{self}: {source}"),
        }
    }
}

/// Of a lease that was taken for a cluster that is not made.
pub fn unfinished(customization: &str, cluster_deployment: &str) -> String {
    format!(
        "{customization} is leased, and the cluster {cluster_deployment} is not made; the same command again goes on"
    )
}

impl AttemptOutcome {
    /// The entries whose patches Hive cannot apply either, as far as this attempt has found any.
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
