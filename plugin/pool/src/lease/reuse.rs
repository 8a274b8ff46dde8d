//! Decides whether an entry must be cleaned between two holders. No I/O.

use kcp_api::ClusterPool;

use crate::objects::entry::Reservation;

/// What becomes of an entry whose lease has ended or was released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// The next holder can have the entry.
    #[default]
    Free,
    /// A janitor must clean the entry first.
    Clean,
    /// It is unknown whether the entry must be cleaned, because its pool cannot be read. The entry stays reserved.
    Unknown,
}

impl Reuse {
    /// What the pool for which an entry is reserved asks for; `None` if this pool does not exist. Reservations that Hive wrote,
    /// which have no record, are never cleaned.
    pub fn decide(pool: Option<&ClusterPool>, reservation: &Reservation, is_managed_by_hive: bool) -> Self {
        let is_of_hive = is_managed_by_hive && *reservation == Reservation::Unrecorded;
        match pool {
            Some(pool) if pool.asks_for_cleaning() && !is_of_hive => Self::Clean,
            _ => Self::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Reuse;
    use crate::{
        objects::{entry::Reservation, record::Unreadable},
        testing::objects::{lease, pool_object, read},
    };

    #[test]
    fn which_entries_are_cleaned() {
        let leased = || Reservation::Leased(lease("us", None));
        let unreadable = Reservation::Unreadable(Unreadable::Malformed);
        for (value, reservation, is_managed, expected) in [
            (None, leased(), false, Reuse::Free),
            (Some("false"), leased(), false, Reuse::Free),
            (Some("true"), leased(), false, Reuse::Clean),
            (Some("True"), leased(), false, Reuse::Clean),
            (Some(""), leased(), false, Reuse::Clean),
            (Some("no"), leased(), false, Reuse::Clean),
            (Some("true"), leased(), true, Reuse::Clean),
            (Some("true"), unreadable, true, Reuse::Clean),
            (Some("true"), Reservation::Unrecorded, false, Reuse::Clean),
            (Some("true"), Reservation::Unrecorded, true, Reuse::Free),
        ] {
            let mut pool = pool_object("pool", &json!({}));
            pool["metadata"]["annotations"] = json!({"kubectl-kcp.dev/clean-before-reuse": value});
            if value.is_none() {
                pool["metadata"]["annotations"] = json!({});
            }
            let found = Reuse::decide(Some(&read(&pool)), &reservation, is_managed);
            assert_eq!(found, expected, "{value:?} {reservation:?} {is_managed}");
        }
        assert_eq!(Reuse::decide(None, &leased(), false), Reuse::Free);
    }
}
