//! How things stand with the entries of an inventory, in JSON and in a sentence.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use crate::pool::{install_config::patching::shortened, inventory::model::Standing};

/// How many entries a sentence names before it only counts.
const NAMED: usize = 10;

/// Of how many entries a sentence says what is wrong with them.
const EXPLAINED: usize = 3;

/// How much of that it says, in characters.
const EXPLANATION: usize = 400;

/// How things stand with one entry of the inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pool) struct EntryState {
    name: String,
    standing: Standing,
}

/// An [`EntryState`] in JSON.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct EntryDocument<'e> {
    name: &'e str,
    #[cfg_attr(test, schemars(extend("enum" = ["free", "held", "referenced", "broken", "deleting", "missing"])))]
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_deployment: Option<Name>,
    /// The pool that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<Name>,
    /// What is wrong with a broken one.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// A reference by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::pool) struct Name {
    pub(in crate::pool) name: String,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::pool) struct PoolName {
    pub(in crate::pool) namespace: String,
    pub(in crate::pool) name: String,
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

impl Serialize for EntryState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { name, standing } = self;
        let (cluster_deployment, pool) = standing.user();
        EntryDocument {
            name,
            state: standing.state(),
            cluster_deployment: cluster_deployment.map(Name::from),
            pool: pool.map(Name::from),
            message: match standing {
                Standing::Unfit(why) => Some(why.to_string()),
                _ => None,
            },
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for EntryState {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EntryState".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        EntryDocument::json_schema(generator)
    }
}

impl Standing {
    /// In JSON.
    const fn state(&self) -> &'static str {
        match self {
            Self::Ours | Self::OursUnmarked | Self::Free => "free",
            Self::Held { .. } => "held",
            Self::Referenced { .. } => "referenced",
            Self::Unfit(_) => "broken",
            Self::Deleting => "deleting",
            Self::Unnamed => "unnamed",
            Self::Missing => "missing",
        }
    }

    /// After `which is`, of one entry.
    const fn participle(&self) -> &'static str {
        match self {
            Self::Ours | Self::OursUnmarked | Self::Free => "free",
            Self::Held { .. } => "held",
            Self::Referenced { .. } => "used",
            Self::Unfit(_) => "broken",
            Self::Deleting => "being deleted",
            Self::Unnamed => "not in the inventory",
            Self::Missing => "missing",
        }
    }

    /// The `ClusterDeployment` and the pool that have it.
    fn user(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Held {
                cluster_deployment,
                pool,
            } => (cluster_deployment.as_deref(), pool.as_deref()),
            Self::Referenced { by } => (Some(&by.name), Some(&by.pool)),
            Self::Ours
            | Self::OursUnmarked
            | Self::Free
            | Self::Unfit(_)
            | Self::Deleting
            | Self::Unnamed
            | Self::Missing => (None, None),
        }
    }

    /// ` by x`, with the pool where that is another than the one asked.
    fn by(&self, asked: &str) -> String {
        let (cluster_deployment, pool) = self.user();
        let mut text = String::new();
        // Writing to a String cannot fail.
        if let Some(cluster_deployment) = cluster_deployment {
            let _ = write!(text, " by {cluster_deployment}");
        }
        if let Some(pool) = pool.filter(|pool| *pool != asked) {
            let _ = write!(text, " of pool {pool}");
        }
        text
    }
}

impl EntryState {
    pub(in crate::pool) fn new(name: String, standing: Standing) -> Self {
        Self { name, standing }
    }

    /// `a, which is held by x`.
    pub(in crate::pool) fn described(&self, asked: &str) -> String {
        let Self { name, standing } = self;
        format!("{name}, which is {}{}", standing.participle(), standing.by(asked))
    }

    /// `a by x`.
    fn named(&self, asked: &str) -> String {
        format!("{}{}", self.name, self.standing.by(asked))
    }

    /// `a by x`, or `a (what is wrong with it)`.
    fn explained(&self, asked: &str) -> String {
        match &self.standing {
            Standing::Unfit(why) => format!("{} ({})", self.name, shortened(&why.to_string(), EXPLANATION)),
            _ => self.named(asked),
        }
    }
}

/// `pool d/p has no free entry of 3: held: a by x, b by y; missing: c`.
pub(in crate::pool) fn none_free(pool: &PoolName, entries: &[EntryState]) -> String {
    type Is = fn(&Standing) -> bool;
    let mut text = format!(
        "pool {}/{} has no free entry of {}: ",
        pool.namespace,
        pool.name,
        entries.len()
    );
    let groups: [(Is, &str); 5] = [
        (|standing| matches!(standing, Standing::Held { .. }), "held"),
        (
            |standing| matches!(standing, Standing::Referenced { .. }),
            "used by a cluster without a lease",
        ),
        (|standing| matches!(standing, Standing::Unfit(_)), "broken"),
        (|standing| *standing == Standing::Deleting, "being deleted"),
        (|standing| *standing == Standing::Missing, "missing"),
    ];
    let mut separator = "";
    for (is, title) in groups {
        let such: Vec<_> = entries.iter().filter(|entry| is(&entry.standing)).collect();
        if such.is_empty() {
            continue;
        }
        let names: Vec<_> = such
            .iter()
            .take(NAMED)
            .enumerate()
            .map(|(index, entry)| {
                if index < EXPLAINED {
                    entry.explained(&pool.name)
                } else {
                    entry.named(&pool.name)
                }
            })
            .collect();
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{} {title}: {}", such.len(), names.join(", "));
        if such.len() > NAMED {
            let _ = write!(text, " and {} more", such.len() - NAMED);
        }
        separator = "; ";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{EntryState, PoolName, Standing, none_free};
    use crate::pool::{install_config::patching::Unfit, inventory::model::Deployment};

    #[test]
    fn one_entry_in_a_sentence() {
        let held = |cluster_deployment: Option<&str>, pool: Option<&str>| Standing::Held {
            cluster_deployment: cluster_deployment.map(str::to_owned),
            pool: pool.map(str::to_owned),
        };
        let by = Deployment {
            name: "x".to_owned(),
            pool: "other".to_owned(),
        };
        for (standing, expected) in [
            (held(Some("x"), Some("pool")), "a, which is held by x"),
            (
                held(Some("x"), Some("other")),
                "a, which is held by x of pool other",
            ),
            (held(None, None), "a, which is held"),
            (Standing::Referenced { by }, "a, which is used by x of pool other"),
            (Standing::Deleting, "a, which is being deleted"),
            (Standing::Unnamed, "a, which is not in the inventory"),
            (Standing::Missing, "a, which is missing"),
        ] {
            assert_eq!(
                EntryState::new("a".to_owned(), standing).described("pool"),
                expected
            );
        }
    }
    #[test]
    fn why_the_first_of_the_broken_are_so() {
        let pool = PoolName {
            namespace: "d".to_owned(),
            name: "pool".to_owned(),
        };
        let broken =
            |name: &str, why: String| EntryState::new(name.to_owned(), Standing::Unfit(Unfit::Broken(why)));
        let entries = ["a", "b", "c", "d"].map(|name| broken(name, format!("not {name}")));
        assert_eq!(
            none_free(&pool, &entries),
            "pool d/pool has no free entry of 4: 4 broken: a (not a), b (not b), c (not c), d"
        );
        let long = none_free(&pool, &[broken("a", "ä".repeat(33_000))]);
        assert_eq!(
            long,
            format!(
                "pool d/pool has no free entry of 1: 1 broken: a ({}...)",
                "ä".repeat(400)
            )
        );
    }
}
