//! What `pool lease` and `pool release` say: JSON documents and sentences.

use serde::Serialize;

use super::entry_state::{EntryState, Name, PoolName, none_free};
use crate::{cluster::Error, document::API_VERSION};

/// The result of `pool lease`, as `-o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolLease {
    api_version: &'static str,
    kind: &'static str,
    pool: PoolName,
    cluster_deployment: Name,
    /// The leased customization; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    customization: Option<Name>,
    /// Whether the lease was there before; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    already_held: Option<bool>,
    /// Why there is no lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// The reason in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// How things stand with each entry, when none is free.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    entries: Vec<EntryState>,
    /// What was not looked at, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Why there is no lease, or why one is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reason {
    /// No entry is free.
    Exhausted,
    /// The pool has no inventory.
    NoSuchEntry,
    /// A lease would not last, or would not be the one that the cluster needs; or a cluster still needs it.
    Blocked,
}

impl Reason {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::NoSuchEntry => "no-such-entry",
            Self::Blocked => "blocked",
        }
    }
}

/// The result of `pool release`, as `-o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolRelease {
    api_version: &'static str,
    kind: &'static str,
    pool: PoolName,
    cluster_deployment: Name,
    /// What was given back; empty when nothing was held.
    customizations: Vec<Name>,
    /// Why something was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// The reason in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// What was not looked at, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl PoolLease {
    pub(super) fn leased(
        pool: PoolName,
        cluster_deployment: &str,
        customization: &str,
        already: bool,
    ) -> Self {
        Self {
            customization: Some(customization.into()),
            already_held: Some(already),
            ..Self::none(pool, cluster_deployment)
        }
    }

    pub(super) fn refused(pool: PoolName, cluster_deployment: &str, reason: Reason, message: String) -> Self {
        Self {
            reason: Some(reason),
            message: Some(message),
            ..Self::none(pool, cluster_deployment)
        }
    }

    pub(super) fn exhausted(pool: PoolName, cluster_deployment: &str, entries: Vec<EntryState>) -> Self {
        let message = none_free(&pool, &entries);
        Self {
            entries,
            ..Self::refused(pool, cluster_deployment, Reason::Exhausted, message)
        }
    }

    fn none(pool: PoolName, cluster_deployment: &str) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "PoolLease",
            pool,
            cluster_deployment: cluster_deployment.into(),
            customization: None,
            already_held: None,
            reason: None,
            message: None,
            entries: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// The same, leased without knowing of the clusters that were made before: with why they could not be read.
    pub(super) fn without_deployments(mut self, why: &Error) -> Self {
        if let Some(Name { name }) = &self.customization {
            let question = format!("whether a cluster already uses {name}");
            self.warnings.push(not_looked_at(&question, why));
        }
        self
    }

    /// What was not looked at.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// `RESOURCE/NAME` of the leased customization.
    pub(super) fn resource_name(&self) -> Option<String> {
        self.customization.as_ref().map(resource_name)
    }

    /// One line on a lease that was taken.
    pub(super) fn sentence(&self) -> Option<String> {
        let verb = if self.already_held == Some(true) {
            "already leased"
        } else {
            "leased"
        };
        let Self {
            pool,
            cluster_deployment,
            ..
        } = self;
        Some(format!(
            "{} {verb} from pool {}/{} for {}",
            self.resource_name()?,
            pool.namespace,
            pool.name,
            cluster_deployment.name
        ))
    }

    /// One line on why there is none.
    pub(super) fn refusal(&self) -> Option<String> {
        refusal(self.reason, self.message.as_deref())
    }
}

impl PoolRelease {
    pub(super) fn new(pool: PoolName, cluster_deployment: &str, released: &[String]) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "PoolRelease",
            pool,
            cluster_deployment: cluster_deployment.into(),
            customizations: released.iter().map(|name| name.as_str().into()).collect(),
            reason: None,
            message: None,
            warnings: Vec::new(),
        }
    }

    /// The same, with others that were kept because the holder's cluster needs them: a sentence on each.
    pub(super) fn blocked(self, why: &[String]) -> Self {
        Self {
            reason: Some(Reason::Blocked),
            message: Some(why.join("; ")),
            ..self
        }
    }

    /// The same, released without knowing of the holder's cluster: with why it could not be read.
    pub(super) fn without_deployment(mut self, why: &Error) -> Self {
        if !self.customizations.is_empty() {
            let names: Vec<_> = self
                .customizations
                .iter()
                .map(|name| name.name.as_str())
                .collect();
            let question = format!("whether the cluster still uses {}", names.join(", "));
            self.warnings.push(not_looked_at(&question, why));
        }
        self
    }

    /// What was not looked at.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// One line on why something was kept.
    pub(super) fn refusal(&self) -> Option<String> {
        refusal(self.reason, self.message.as_deref())
    }

    /// `RESOURCE/NAME` of each, a line each.
    pub(super) fn resource_names(&self) -> String {
        self.customizations
            .iter()
            .fold(String::new(), |text, name| text + &resource_name(name) + "\n")
    }

    /// A line for each entry that was given back, or one that nothing was held.
    pub(super) fn sentences(&self) -> String {
        let Self {
            pool,
            cluster_deployment,
            customizations,
            ..
        } = self;
        if customizations.is_empty() && self.reason.is_none() {
            let (deployment, namespace, pool) = (&cluster_deployment.name, &pool.namespace, &pool.name);
            return format!("{deployment} holds nothing from pool {namespace}/{pool}\n");
        }
        customizations.iter().fold(String::new(), |text, name| {
            text + &resource_name(name) + " released\n"
        })
    }
}

fn refusal(reason: Option<Reason>, message: Option<&str>) -> Option<String> {
    Some(format!("{}: {}", reason?.as_str(), message?))
}

fn not_looked_at(question: &str, why: &Error) -> String {
    let hint = why.hint().map_or(String::new(), |hint| format!("; {hint}"));
    format!("{why}: {question} was not looked at{hint}")
}

fn resource_name(Name { name }: &Name) -> String {
    format!("clusterdeploymentcustomization.hive.openshift.io/{name}")
}

#[cfg(test)]
mod tests {
    use super::{EntryState, PoolLease, PoolName, PoolRelease, Reason};
    use crate::pool::model::{Deployment, Standing};

    fn pool() -> PoolName {
        PoolName {
            namespace: "prod".to_owned(),
            name: "vsphere".to_owned(),
        }
    }

    fn held(holder: Option<&str>, pool: Option<&str>) -> Standing {
        Standing::Held {
            cluster_deployment: holder.map(str::to_owned),
            pool: pool.map(str::to_owned),
        }
    }

    fn exhausted() -> PoolLease {
        let entries = [
            ("a", held(Some("x"), Some("vsphere"))),
            ("b", held(Some("y"), Some("other"))),
            ("c", held(None, None)),
            (
                "d",
                Standing::Referenced {
                    by: Deployment {
                        name: "z".to_owned(),
                        pool: "vsphere".to_owned(),
                    },
                },
            ),
            ("e", Standing::Deleting),
            ("f", Standing::Missing),
        ];
        let entries = entries.map(|(name, standing)| EntryState::new(name.to_owned(), standing));
        PoolLease::exhausted(pool(), "us", entries.into())
    }

    #[test]
    fn json_of_a_lease() {
        let lease = PoolLease::leased(pool(), "us", "foo", false);
        insta::assert_snapshot!(serde_json::to_string_pretty(&lease).unwrap());
    }

    #[test]
    fn json_of_an_exhausted_pool() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&exhausted()).unwrap());
    }

    #[test]
    fn json_of_a_release() {
        let release = PoolRelease::new(pool(), "us", &["foo".to_owned()]);
        insta::assert_snapshot!(serde_json::to_string_pretty(&release).unwrap());
    }

    #[test]
    fn sentences() {
        let refused = |reason, message: &str| PoolLease::refused(pool(), "us", reason, message.to_owned());
        let many =
            (0..12).map(|index| EntryState::new(format!("entry-{index}"), held(Some("x"), Some("vsphere"))));
        let screens = [
            PoolLease::leased(pool(), "us", "foo", false).sentence().unwrap(),
            PoolLease::leased(pool(), "us", "foo", true).sentence().unwrap(),
            exhausted().refusal().unwrap(),
            PoolLease::exhausted(pool(), "us", many.collect())
                .refusal()
                .unwrap(),
            refused(Reason::NoSuchEntry, "no inventory").refusal().unwrap(),
            refused(Reason::Blocked, "Hive").refusal().unwrap(),
            PoolRelease::new(pool(), "us", &["a".to_owned(), "b".to_owned()]).sentences(),
            PoolRelease::new(pool(), "us", &["a".to_owned(), "b".to_owned()]).resource_names(),
            PoolRelease::new(pool(), "us", &[]).sentences(),
        ];
        insta::assert_snapshot!(screens.join("\n"));
    }
}
