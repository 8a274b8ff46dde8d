//! What `pool lease` and `pool release` say: JSON documents, by the schemas in `plugin/schema`, and sentences.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::{
    arguments::format_duration,
    cluster::Error,
    document::API_VERSION,
    pool::{
        install_config::InstallConfig,
        inventory::{
            entry_state::{EntryState, Name, PoolName, none_free},
            model::Standing,
        },
        lease::Leased,
        objects::record,
    },
};

/// The result of `pool lease`, as `-o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolLease {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "PoolLease")))]
    kind: &'static str,
    pool: PoolName,
    cluster_deployment: Name,
    /// The claim that Hive answered with this cluster; to be named when it is released.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<Name>,
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
    /// Whether its `ClusterDeployment` was made, or was there; absent where nobody asked for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    has_cluster: Option<bool>,
    /// How long it lasts from each renewal, in seconds; absent where until it is released.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_seconds: Option<u64>,
    /// How things stand with each entry, when none is free.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    entries: Vec<EntryState>,
    /// Entries that were passed over: their patches cannot be applied, or their name is too long for a lease.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    broken: Vec<EntryState>,
    /// The install-config with the customization's patches applied. Its secrets are for who asks for it, and not for
    /// every log of a document.
    #[serde(skip)]
    install_config: Option<InstallConfig>,
    /// What the customization wants patched in the manifests that the installer writes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    installer_manifest_patches: Vec<Value>,
    /// What was not looked at or was passed over, and how patches were read, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Why there is no lease, or why one is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reason {
    /// No entry is free.
    Exhausted,
    /// No entry became free in the time that was given.
    Timeout,
    /// Another has it.
    NotHolder,
    /// The pool has no inventory.
    NoSuchEntry,
    /// A lease would not last, or would not be the one that the cluster needs; or a cluster still needs it.
    Blocked,
}

impl Reason {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Timeout => "timeout",
            Self::NotHolder => "not-holder",
            Self::NoSuchEntry => "no-such-entry",
            Self::Blocked => "blocked",
        }
    }
}

/// The result of `pool release`, as `-o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolRelease {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "PoolRelease")))]
    kind: &'static str,
    /// Absent where it was given back by its own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<PoolName>,
    cluster_deployment: Name,
    /// What was given back; empty when nothing was held.
    customizations: Vec<Name>,
    /// The claim that was deleted, and with it the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<Name>,
    /// Why something was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// The reason in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// What was not looked at, and what still runs, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl PoolLease {
    pub(super) fn leased(pool: PoolName, cluster_deployment: &str, leased: Leased) -> Self {
        let mut document = Self {
            customization: Some(leased.customization.as_str().into()),
            already_held: Some(leased.already),
            ..Self::none(pool, cluster_deployment)
        };
        for (name, why) in leased.unfit {
            document.warnings.push(format!("{name} is passed over: {why}"));
            document.broken.push(EntryState::new(name, Standing::Unfit(why)));
        }
        if let Some(patched) = leased.patched {
            document.warnings.extend(patched.warnings);
            document.install_config = Some(patched.install_config);
            document.installer_manifest_patches = patched.manifest_patches;
        }
        document
    }

    /// The same, with the cluster that was made for it.
    pub(super) fn with_cluster(self) -> Self {
        Self {
            has_cluster: Some(true),
            ..self
        }
    }

    /// The same, for so long.
    pub(super) fn lasting(self, ttl: Option<Duration>) -> Self {
        let is_leased = self.customization.is_some();
        let seconds = ttl.filter(|_| is_leased).map(record::whole_seconds);
        Self {
            ttl_seconds: seconds.map(u64::from),
            ..self
        }
    }

    /// The same, after a wait that was in vain.
    pub(super) fn timed_out(self, waited: Duration) -> Self {
        let message = self.message.unwrap_or_default();
        Self {
            reason: Some(Reason::Timeout),
            message: Some(format!("waited {}: {message}", format_duration(waited))),
            ..self
        }
    }

    /// A cluster that Hive gave to a claim. It has no customization where the pool has no inventory.
    pub(super) fn claimed(
        pool: PoolName,
        cluster_deployment: &str,
        customization: Option<&str>,
        claim: &str,
    ) -> Self {
        Self {
            claim: Some(claim.into()),
            customization: customization.map(Name::from),
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
            claim: None,
            customization: None,
            already_held: None,
            has_cluster: None,
            ttl_seconds: None,
            broken: Vec::new(),
            install_config: None,
            installer_manifest_patches: Vec::new(),
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

    /// What to tell apart from the result.
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
        if let Some(claim) = &self.claim {
            let with = self.customization().map(|name| format!(" with {name}"));
            return Some(format!(
                "clusterclaim.hive.openshift.io/{} has ClusterDeployment {}{}",
                claim.name,
                cluster_deployment.name,
                with.unwrap_or_default()
            ));
        }
        let with_cluster = if self.has_cluster == Some(true) {
            ", which is made"
        } else {
            ""
        };
        Some(format!(
            "{} {verb} from pool {}/{} for {}{with_cluster}",
            self.resource_name()?,
            pool.namespace,
            pool.name,
            cluster_deployment.name
        ))
    }

    pub(super) fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// What scripts and commands find in their environment; none where there is no lease. A cluster that has no
    /// customization has an empty one: scripts may read it under `set -u`.
    pub(super) fn variables(&self) -> Option<Vec<(&'static str, &str)>> {
        if self.customization.is_none() && self.claim.is_none() {
            return None;
        }
        let named = [
            ("KCP_NAMESPACE", self.pool.namespace.as_str()),
            ("KCP_POOL", &self.pool.name),
            ("KCP_CLUSTER_DEPLOYMENT", &self.cluster_deployment.name),
            ("KCP_CUSTOMIZATION", self.customization().unwrap_or_default()),
        ];
        let claim = self
            .claim
            .as_ref()
            .map(|claim| ("KCP_CLUSTER_CLAIM", claim.name.as_str()));
        Some(named.into_iter().chain(claim).collect())
    }

    /// The leased customization.
    pub(super) fn customization(&self) -> Option<&str> {
        self.customization.as_ref().map(|name| name.name.as_str())
    }

    /// The patched install-config.
    pub(super) fn install_config(&self) -> Option<&InstallConfig> {
        self.install_config.as_ref()
    }

    /// One line on why there is none.
    pub(super) fn refusal(&self) -> Option<String> {
        refusal(self.reason, self.message.as_deref())
    }
}

impl PoolRelease {
    pub(super) fn new(pool: Option<PoolName>, cluster_deployment: &str, released: &[String]) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "PoolRelease",
            pool,
            cluster_deployment: cluster_deployment.into(),
            customizations: released.iter().map(|name| name.as_str().into()).collect(),
            claim: None,
            reason: None,
            message: None,
            warnings: Vec::new(),
        }
    }

    pub(super) fn refused(
        pool: Option<PoolName>,
        cluster_deployment: &str,
        reason: Reason,
        message: String,
    ) -> Self {
        Self {
            reason: Some(reason),
            message: Some(message),
            ..Self::new(pool, cluster_deployment, &[])
        }
    }

    /// The same, with a claim that was deleted.
    pub(super) fn of_claim(self, claim: &str) -> Self {
        Self {
            claim: Some(claim.into()),
            ..self
        }
    }

    /// The same, with what comes of it.
    pub(super) fn warned(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(warnings);
        self
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

    /// What to tell apart from the result.
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
        if let Some(claim) = &self.claim {
            return format!("clusterclaim.hive.openshift.io/{} deleted\n", claim.name);
        }
        if customizations.is_empty() && self.reason.is_none() {
            let deployment = &cluster_deployment.name;
            return match pool {
                Some(PoolName { namespace, name }) => {
                    format!("{deployment} holds nothing from pool {namespace}/{name}\n")
                }
                None => format!("{deployment} does not hold it, and nobody else does\n"),
            };
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
    use std::time::Duration;

    use serde_json::json;

    use super::{EntryState, Leased, PoolLease, PoolName, PoolRelease, Reason};
    use crate::{
        pool::{
            install_config::{InstallConfig, patching::Unfit},
            inventory::model::{Deployment, Standing},
            lease::Unfits,
        },
        status::schema::{self, faults},
    };

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

    fn leased(already: bool) -> Leased {
        Leased {
            customization: "foo".to_owned(),
            already,
            patched: None,
            unfit: Unfits::new(),
        }
    }

    /// One entry was passed over.
    fn patched() -> PoolLease {
        let config = InstallConfig::parse(b"metadata: {name: generated}", "f").unwrap();
        let spec = json!({
            "installConfigPatches": [{"op": "replace", "path": "metadata/name", "value": "foo"}],
            "installerManifestPatches": [{
                "manifestSelector": {"glob": "manifests/*.yaml"}, "patches": [{"op": "remove", "path": "/a"}],
            }],
        });
        let leased = Leased {
            patched: Some(crate::pool::install_config::patching::patched(&config, &spec).unwrap()),
            unfit: [("bar".to_owned(), broken())].into(),
            ..leased(false)
        };
        PoolLease::leased(pool(), "us", leased).lasting(Some(Duration::from_secs(90)))
    }

    fn broken() -> Unfit {
        Unfit::Broken("spec.installConfigPatches[0] (remove \"/x\"): its path leads nowhere".to_owned())
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
            ("g", Standing::Unfit(broken())),
        ];
        let entries = entries.map(|(name, standing)| EntryState::new(name.to_owned(), standing));
        PoolLease::exhausted(pool(), "us", entries.into())
    }

    #[test]
    fn json_of_a_lease() {
        let lease = PoolLease::leased(pool(), "us", leased(false));
        insta::assert_snapshot!(serde_json::to_string_pretty(&lease).unwrap());
    }

    #[test]
    fn json_of_a_lease_with_an_install_config() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&patched()).unwrap());
    }

    #[test]
    fn json_of_an_exhausted_pool() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&exhausted()).unwrap());
    }

    #[test]
    fn json_of_a_release() {
        let release = PoolRelease::new(Some(pool()), "us", &["foo".to_owned()]);
        insta::assert_snapshot!(serde_json::to_string_pretty(&release).unwrap());
    }

    #[test]
    fn every_document_is_as_its_schema_says() {
        let leases = [
            patched(),
            exhausted(),
            exhausted().timed_out(Duration::from_secs(90)),
            PoolLease::leased(pool(), "us", leased(true)).with_cluster(),
            PoolLease::claimed(pool(), "vsphere-x", None, "us"),
        ];
        let schema = serde_json::to_value(schema::of::<PoolLease>()).unwrap();
        for lease in leases {
            let document = serde_json::to_value(&lease).unwrap();
            assert_eq!(faults(&schema, &document), Vec::<String>::new(), "{document}");
        }
        let refused = PoolRelease::refused(None, "us", Reason::NotHolder, "why".to_owned());
        let releases = [
            PoolRelease::new(Some(pool()), "us", &["foo".to_owned()]),
            PoolRelease::new(Some(pool()), "us", &[]).of_claim("us"),
            refused.warned(["warning".to_owned()]),
        ];
        let schema = serde_json::to_value(schema::of::<PoolRelease>()).unwrap();
        for release in releases {
            let document = serde_json::to_value(&release).unwrap();
            assert_eq!(faults(&schema, &document), Vec::<String>::new(), "{document}");
        }
    }

    #[test]
    fn the_schemas_are_checked_in() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
        for (name, schema) in [
            ("poollease.json", schema::of::<PoolLease>()),
            ("poolrelease.json", schema::of::<PoolRelease>()),
        ] {
            let path = directory.join(name);
            let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
            if std::env::var_os("UPDATE_SCHEMA").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let checked_in = std::fs::read_to_string(&path).unwrap();
            assert!(
                checked_in == text,
                "{name} has drifted: run this test with UPDATE_SCHEMA=1"
            );
        }
    }

    #[test]
    fn sentences() {
        let refused = |reason, message: &str| PoolLease::refused(pool(), "us", reason, message.to_owned());
        let many =
            (0..12).map(|index| EntryState::new(format!("entry-{index}"), held(Some("x"), Some("vsphere"))));
        let screens = [
            PoolLease::leased(pool(), "us", leased(false)).sentence().unwrap(),
            PoolLease::leased(pool(), "us", leased(true)).sentence().unwrap(),
            format!("{:?}", patched().variables()),
            patched().warnings().join("\n"),
            exhausted().refusal().unwrap(),
            exhausted().timed_out(Duration::from_secs(90)).refusal().unwrap(),
            PoolLease::exhausted(pool(), "us", many.collect())
                .refusal()
                .unwrap(),
            PoolLease::claimed(pool(), "vsphere-x", Some("foo"), "us")
                .sentence()
                .unwrap(),
            PoolLease::claimed(pool(), "vsphere-x", None, "us")
                .sentence()
                .unwrap(),
            PoolRelease::new(Some(pool()), "us", &[])
                .of_claim("us")
                .sentences(),
            refused(Reason::NoSuchEntry, "no inventory").refusal().unwrap(),
            refused(Reason::Blocked, "Hive").refusal().unwrap(),
            PoolRelease::new(Some(pool()), "us", &["a".to_owned(), "b".to_owned()]).sentences(),
            PoolRelease::new(Some(pool()), "us", &["a".to_owned(), "b".to_owned()]).resource_names(),
            PoolRelease::new(Some(pool()), "us", &[]).sentences(),
            PoolRelease::new(None, "us", &[]).sentences(),
        ];
        insta::assert_snapshot!(screens.join("\n"));
    }
}
