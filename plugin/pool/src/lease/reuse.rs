//! Decides whether an entry must be cleaned between two holders. No I/O.

use kcp_api::ClusterPool;

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
    /// What the pool for which an entry is reserved asks for; `None` if this pool does not exist. Hive frees the entries of its pools
    /// itself, and would take an entry that waits for a janitor as free.
    pub fn decide(pool: Option<&ClusterPool>, is_managed_by_hive: bool) -> Self {
        match pool {
            Some(pool) if pool.asks_for_cleaning() && !is_managed_by_hive => Self::Clean,
            _ => Self::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Reuse;
    use crate::testing::objects::{pool_object, read};

    #[test]
    fn which_entries_are_cleaned() {
        for (value, is_managed, expected) in [
            (None, false, Reuse::Free),
            (Some("false"), false, Reuse::Free),
            (Some("true"), false, Reuse::Clean),
            (Some("True"), false, Reuse::Clean),
            (Some(""), false, Reuse::Clean),
            (Some("no"), false, Reuse::Clean),
            (Some("true"), true, Reuse::Free),
        ] {
            let mut pool = pool_object("pool", &json!({}));
            pool["metadata"]["annotations"] = json!({"kubectl-kcp.dev/clean-before-reuse": value});
            if value.is_none() {
                pool["metadata"]["annotations"] = json!({});
            }
            let found = Reuse::decide(Some(&read(&pool)), is_managed);
            assert_eq!(found, expected, "{value:?} {is_managed}");
        }
        assert_eq!(Reuse::decide(None, false), Reuse::Free);
    }
}
