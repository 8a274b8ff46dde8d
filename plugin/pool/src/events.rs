//! Writes Events about leases, on the customization and on its pool, after the lease itself has been written.
//! Failures are ignored, because the client may not be allowed to write Events.

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::{ClusterPool, kind::CLUSTER_DEPLOYMENT_CUSTOMIZATION as CUSTOMIZATION, kind::CLUSTER_POOL};
use kcp_client::events::Events;
use kcp_control_plane::change::decision::{ChangeEvent, ObjectReference};

use crate::{
    objects::entry::Entry,
    store::{LeaseStore as _, Store},
};

const API_VERSION: &str = "hive.openshift.io/v1";

/// How long a command waits for its Events to be written.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of customizations for which one command writes Events.
pub const MAX_ENTRIES: usize = 10;

/// What happened to a holder's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChange<'c> {
    Leased {
        holder: &'c str,
        ends: Option<Timestamp>,
        /// The previous holder, if the new lease replaces a lease that had ended.
        after: Option<&'c str>,
    },
    Renewed {
        holder: &'c str,
        ends: Option<Timestamp>,
    },
    Released {
        holder: &'c str,
    },
    /// `pool repair` freed the customization.
    Reclaimed {
        holder: Option<&'c str>,
    },
}

impl LeaseChange<'_> {
    /// Describes the change as an Event, such as `leased by alice for paris: host-a, until 2026-11-23T10:00:00Z`.
    fn event(&self, customization: &str) -> ChangeEvent {
        let until = |ends: Option<Timestamp>| match ends {
            Some(ends) => format!(", until {}", ends.strftime("%Y-%m-%dT%H:%M:%SZ")),
            None => ", with no deadline".to_owned(),
        };
        let (reason, action, done, detail) = match self {
            Self::Leased { holder, ends, after } => {
                let after = after.map_or(String::new(), |after| format!("; the lease of {after} had ended"));
                let detail = format!("for {holder}: {customization}{}{after}", until(*ends));
                ("Leased", "Lease", "leased", detail)
            }
            Self::Renewed { holder, ends } => {
                let detail = format!("for {holder}: {customization}{}", until(*ends));
                ("LeaseRenewed", "Renew", "lease renewed", detail)
            }
            Self::Released { holder } => {
                let detail = format!("for {holder}: {customization}");
                ("Released", "Release", "released", detail)
            }
            Self::Reclaimed { holder } => {
                let detail = format!("from {}: {customization}", holder.unwrap_or("an unknown holder"));
                ("Reclaimed", "Reclaim", "reclaimed", detail)
            }
        };
        ChangeEvent {
            reason,
            action,
            note_verb: done,
            detail,
        }
    }
}

/// Writes the Events about a change of one customization's lease.
pub async fn record(
    store: &Store<'_>,
    user: Option<&str>,
    pool: Option<&ClusterPool>,
    entry: &Entry,
    change: LeaseChange<'_>,
) {
    let customization = ObjectReference::new(entry, &CUSTOMIZATION, API_VERSION);
    let pool = pool.map(|pool| ObjectReference::new(pool, &CLUSTER_POOL, API_VERSION));
    let event = change.event(&customization.name);
    let events = Events {
        connection: store.connection(),
        field_manager: store.field_manager(),
    };
    let user = user.unwrap_or_else(|| store.field_manager());
    let written = async {
        tokio::join!(events.write_as(user, &event, &customization, None), async {
            match &pool {
                Some(pool) => events.write_as(user, &event, pool, Some(&customization)).await,
                None => Ok(()),
            }
        })
    };
    // Ignore errors: the client may not be allowed to write Events.
    drop(tokio::time::timeout(EVENTS_TIMEOUT, written).await);
}

/// Reads these customizations, and writes the Events about a change of their leases.
pub async fn record_by_name(
    store: &Store<'_>,
    pool: Option<&str>,
    changes: impl IntoIterator<Item = (&str, LeaseChange<'_>)>,
) {
    let mut changes = changes.into_iter().take(MAX_ENTRIES).peekable();
    if changes.peek().is_none() {
        return;
    }
    let recorded = async {
        let user = store.read_user().await;
        let pool = match pool {
            Some(name) => store.read_pool(name).await.ok(),
            None => None,
        };
        for (name, change) in changes {
            if let Ok(Some(entry)) = store.get(name).await {
                record(store, user.as_deref(), pool.as_ref(), &entry, change).await;
            }
        }
    };
    // Ignore errors: the client may not be allowed to write Events.
    drop(tokio::time::timeout(EVENTS_TIMEOUT, recorded).await);
}

#[cfg(test)]
mod tests {
    use super::LeaseChange;

    #[test]
    fn an_event_names_the_user_the_holder_and_the_deadline() {
        let ends = "2026-11-23T10:00:00Z".parse().ok();
        for (change, reason, note) in [
            (
                LeaseChange::Leased {
                    holder: "paris",
                    ends,
                    after: Some("rome"),
                },
                "Leased",
                "leased by alice for paris: host-a, until 2026-11-23T10:00:00Z; the lease of rome had ended",
            ),
            (
                LeaseChange::Leased {
                    holder: "paris",
                    ends: None,
                    after: None,
                },
                "Leased",
                "leased by alice for paris: host-a, with no deadline",
            ),
            (
                LeaseChange::Renewed {
                    holder: "paris",
                    ends,
                },
                "LeaseRenewed",
                "lease renewed by alice for paris: host-a, until 2026-11-23T10:00:00Z",
            ),
            (
                LeaseChange::Released { holder: "paris" },
                "Released",
                "released by alice for paris: host-a",
            ),
            (
                LeaseChange::Reclaimed {
                    holder: Some("paris"),
                },
                "Reclaimed",
                "reclaimed by alice from paris: host-a",
            ),
            (
                LeaseChange::Reclaimed { holder: None },
                "Reclaimed",
                "reclaimed by alice from an unknown holder: host-a",
            ),
        ] {
            let event = change.event("host-a");
            assert_eq!((event.reason, event.note("alice").as_str()), (reason, note));
        }
    }
}
