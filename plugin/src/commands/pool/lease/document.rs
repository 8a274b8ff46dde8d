//! Describes the result of `pool lease` as a JSON document (schema: `plugin/schema/poollease.json`) and as text.

use jiff::Timestamp;
use kcp_api::metadata::Object as _;
use kcp_pool::{
    acquire::answer::{LeaseOutcome, LeaseRefusal, LeaseResult},
    install_config::{InstallConfig, patches::PatchProblem},
    lease::{
        attempt::{LeasedEntry, PatchProblems},
        choice::{Availability, UnusableReason},
    },
    objects::{claim::ClaimLifetime as _, record::LeaseRecord},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    arguments::format_duration,
    commands::pool::{Name, PoolDocumentName, Reason, not_checked, refusal, resource_name},
    document::Document,
};

/// The result of `pool lease`, as `-o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolLease {
    pool: PoolDocumentName,
    cluster_deployment: Name,
    /// The ClusterClaim to which Hive assigned the cluster. To release the cluster, pass this name to `pool release`.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<Name>,
    /// The customization that was leased; absent without a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    customization: Option<Name>,
    /// Whether the holder already had the lease; absent without a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    already_held: Option<bool>,
    /// Why there is no lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// Why there is no lease, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Whether the holder's `ClusterDeployment` exists, because the command has created it or because it existed
    /// before; absent unless its creation was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    has_cluster: Option<bool>,
    /// The id of the lease or claim, for `--id` of `pool release` and `pool renew`; absent without a lease, and if another
    /// program created the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_id: Option<String>,
    /// When the lease or claim ends unless it is renewed; absent if it never ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<Timestamp>,
    /// The leases of a command with `--count` above 1, in the order of their customizations. The fields of a single lease are then
    /// absent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    leases: Vec<LeaseDocument>,
    /// If too few entries of the inventory are free: each entry, and why it is not free.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    entries: Vec<EntryDocument>,
    /// Entries of the inventory that were skipped, because their patches cannot be applied or their name is too long for a
    /// lease.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    broken: Vec<EntryDocument>,
    /// The customization's patches for the manifests that the installer writes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    installer_manifest_patches: Vec<Value>,
    /// Warnings, one sentence each: checks that failed, entries that were skipped, and patches that Hive
    /// reads differently.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl Document for PoolLease {
    const KIND: &'static str = "PoolLease";
}

/// One of several leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct LeaseDocument {
    /// The customization that was leased.
    customization: Name,
    /// Whether the holder already had the lease.
    already_held: bool,
    /// The id of the lease, for `--id` of `pool release` and `pool renew`.
    lease_id: String,
    /// When the lease ends unless it is renewed; absent if it never ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<Timestamp>,
    /// The customization's patches for the manifests that the installer writes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    installer_manifest_patches: Vec<Value>,
}

impl LeaseDocument {
    fn new(leased: &LeasedEntry) -> Self {
        let patched = leased.patched_install_config.as_ref();
        Self {
            customization: leased.customization.as_str().into(),
            already_held: leased.was_already_held,
            lease_id: leased.record.id.clone(),
            ends: leased.record.deadline.map(whole_second),
            installer_manifest_patches: patched
                .map(|patched| patched.manifest_patches.clone())
                .unwrap_or_default(),
        }
    }
}

/// The state of an inventory's entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "EntryState"))]
#[serde(rename_all = "camelCase")]
struct EntryDocument {
    name: String,
    #[cfg_attr(test, schemars(extend("enum" = ["ours", "free", "held", "cleaning", "referenced", "broken", "cordoned", "deleting", "missing", "unnamed", "unreadable", "pool-unknown"])))]
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_deployment: Option<Name>,
    /// The pool for which the entry is leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<Name>,
    /// Why the entry cannot be leased, or how long it is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl PoolLease {
    pub(crate) fn new(answer: &LeaseResult) -> Self {
        let none = Self {
            pool: (&answer.pool).into(),
            cluster_deployment: answer.cluster_deployment.as_str().into(),
            claim: None,
            customization: answer.customization().map(Name::from),
            already_held: None,
            has_cluster: None,
            lease_id: None,
            ends: None,
            leases: Vec::new(),
            broken: Vec::new(),
            installer_manifest_patches: Vec::new(),
            reason: None,
            message: None,
            entries: Vec::new(),
            warnings: warnings(answer),
        };
        match &answer.outcome {
            LeaseOutcome::Leased(lease) => {
                let leased = LeaseDocument::new(&lease.entry);
                Self {
                    already_held: Some(leased.already_held),
                    has_cluster: lease.has_cluster.then_some(true),
                    lease_id: Some(leased.lease_id),
                    ends: leased.ends,
                    broken: EntryDocument::all_broken(&lease.entry.patch_problems),
                    installer_manifest_patches: leased.installer_manifest_patches,
                    ..none
                }
            }
            LeaseOutcome::LeasedSet(set) => Self {
                leases: set.entries.iter().map(LeaseDocument::new).collect(),
                broken: EntryDocument::all_broken(&set.patch_problems),
                ..none
            },
            LeaseOutcome::Claimed(claimed) => Self {
                claim: Some(claimed.claim.name().into()),
                lease_id: claimed.claim.id().map(str::to_owned),
                ends: claimed.ends.map(whole_second),
                ..none
            },
            LeaseOutcome::Refused(refusal) => Self {
                reason: Some(match (refusal, answer.timed_out_after) {
                    (_, Some(_)) => Reason::Timeout,
                    (LeaseRefusal::Exhausted { .. }, None) => Reason::Exhausted,
                    (LeaseRefusal::NoInventory { .. } | LeaseRefusal::TooFewEntries { .. }, None) => {
                        Reason::NoSuchEntry
                    }
                    (
                        LeaseRefusal::AlreadyHeld { .. }
                        | LeaseRefusal::HeldInstead { .. }
                        | LeaseRefusal::HeldMore { .. }
                        | LeaseRefusal::ClaimExists { .. },
                        None,
                    ) => Reason::Held,
                    _ => Reason::Blocked,
                }),
                message: Some(match answer.timed_out_after {
                    Some(waited) => format!("waited {}: {refusal}", format_duration(waited)),
                    None => refusal.to_string(),
                }),
                entries: match refusal {
                    LeaseRefusal::Exhausted { entries, .. } => entries
                        .iter()
                        .map(|(name, availability)| EntryDocument::new(name, availability))
                        .collect(),
                    _ => Vec::new(),
                },
                ..none
            },
        }
    }

    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The leased customizations as `RESOURCE.GROUP/NAME`, as `kubectl get -o name` prints them.
    pub(crate) fn resource_names(&self) -> Vec<String> {
        let several = self.leases.iter().map(|lease| &lease.customization);
        self.customization
            .iter()
            .chain(several)
            .map(resource_name)
            .collect()
    }

    /// One line for each lease.
    pub(crate) fn sentences(&self) -> Vec<String> {
        if self.leases.is_empty() {
            return self.sentence().into_iter().collect();
        }
        let leases = self.leases.iter();
        leases
            .map(|lease| self.sentence_of(&lease.customization, lease.already_held))
            .collect()
    }

    fn sentence_of(&self, customization: &Name, is_held_already: bool) -> String {
        let verb = if is_held_already {
            "already leased"
        } else {
            "leased"
        };
        format!(
            "{} {verb} from pool {}/{} for {}",
            resource_name(customization),
            self.pool.namespace,
            self.pool.name,
            self.cluster_deployment.name
        )
    }

    fn sentence(&self) -> Option<String> {
        if let Some(claim) = &self.claim {
            let suffix = self
                .customization()
                .map(|name| format!(" with customization {name}"));
            return Some(format!(
                "clusterclaim.hive.openshift.io/{} has ClusterDeployment {}{}",
                claim.name,
                self.cluster_deployment.name,
                suffix.unwrap_or_default()
            ));
        }
        let with_cluster = if self.has_cluster == Some(true) {
            ". This ClusterDeployment exists"
        } else {
            ""
        };
        let sentence = self.sentence_of(self.customization.as_ref()?, self.already_held == Some(true));
        Some(sentence + with_cluster)
    }

    /// One sentence for each lease or claim that says when it ends.
    pub(crate) fn end_sentences(&self) -> Vec<String> {
        let several = self.leases.iter();
        let several =
            several.map(|lease| end_of_lease(&lease.lease_id, &lease.customization.name, lease.ends));
        self.end_sentence().into_iter().chain(several).collect()
    }

    fn end_sentence(&self) -> Option<String> {
        if let Some(claim) = &self.claim {
            let end = self.ends?;
            return Some(format!("ClusterClaim {} ends at {end}", claim.name));
        }
        let (id, name) = (self.lease_id.as_deref()?, self.customization()?);
        Some(end_of_lease(id, name, self.ends))
    }

    /// The environment variables that describe the lease. If a claimed cluster has no customization, the variable of the
    /// customization is empty, so that scripts can read it under `set -u`. The customizations and ids of several leases are in one
    /// variable each, in the same order.
    pub(crate) fn variables(&self) -> Option<Vec<(&'static str, String)>> {
        if self.customization.is_none() && self.claim.is_none() && self.leases.is_empty() {
            return None;
        }
        let mut variables = vec![
            ("KCP_NAMESPACE", self.pool.namespace.clone()),
            ("KCP_POOL", self.pool.name.clone()),
            ("KCP_CLUSTER_DEPLOYMENT", self.cluster_deployment.name.clone()),
        ];
        if self.leases.is_empty() {
            let customization = self.customization().unwrap_or_default();
            variables.push(("KCP_CUSTOMIZATION", customization.to_owned()));
            let claim = self.claim.iter();
            variables.extend(claim.map(|claim| ("KCP_CLUSTER_CLAIM", claim.name.clone())));
            let id = self.lease_id.iter();
            variables.extend(id.map(|id| ("KCP_LEASE_ID", id.clone())));
        } else {
            let joined = |text: fn(&LeaseDocument) -> &str| {
                let texts: Vec<_> = self.leases.iter().map(text).collect();
                texts.join(" ")
            };
            variables.push(("KCP_CUSTOMIZATIONS", joined(|lease| &lease.customization.name)));
            variables.push(("KCP_LEASE_IDS", joined(|lease| &lease.lease_id)));
        }
        Some(variables)
    }

    /// The name of the leased customization.
    pub(crate) fn customization(&self) -> Option<&str> {
        self.customization.as_ref().map(|name| name.name.as_str())
    }

    /// One line that says why there is no lease.
    pub(crate) fn refusal(&self) -> Option<String> {
        refusal(self.reason, self.message.as_deref())
    }
}

impl EntryDocument {
    fn new(name: &str, availability: &Availability) -> Self {
        let (cluster_deployment, pool) = availability.cluster_deployment_and_pool();
        Self {
            name: name.to_owned(),
            state: match availability {
                Availability::Ours => "ours",
                Availability::Free => "free",
                Availability::Held { .. } => "held",
                Availability::Cleaning(_) => "cleaning",
                Availability::Referenced { .. } => "referenced",
                Availability::Unusable(UnusableReason::Patches(_)) => "broken",
                Availability::Unusable(UnusableReason::Cordoned(_)) => "cordoned",
                Availability::Unusable(UnusableReason::Deleting) => "deleting",
                Availability::Unusable(UnusableReason::NotInInventory) => "unnamed",
                Availability::Unusable(UnusableReason::Missing) => "missing",
                Availability::Unusable(UnusableReason::Unreadable(_)) => "unreadable",
                Availability::Unusable(UnusableReason::PoolUnknown(_)) => "pool-unknown",
            },
            cluster_deployment: cluster_deployment.map(Name::from),
            pool: pool.map(Name::from),
            message: match availability {
                Availability::Held { until, .. } => until.map(|until| until.to_string()),
                Availability::Unusable(UnusableReason::Patches(why)) => Some(why.to_string()),
                Availability::Unusable(UnusableReason::Cordoned(why)) => Some(why.clone()),
                Availability::Unusable(UnusableReason::Unreadable(why)) => Some(why.to_string()),
                Availability::Cleaning(_) | Availability::Unusable(UnusableReason::PoolUnknown(_)) => {
                    Some(availability.describe_entry(name, pool.unwrap_or_default()))
                }
                _ => None,
            },
        }
    }

    fn all_broken(problems: &PatchProblems) -> Vec<Self> {
        let broken = |(name, why): (&String, &PatchProblem)| {
            let broken = Availability::Unusable(UnusableReason::Patches(why.clone()));
            Self::new(name, &broken)
        };
        problems.iter().map(broken).collect()
    }
}

/// Rounds a time to whole seconds, because the records of leases contain only whole seconds.
fn whole_second(time: Timestamp) -> Timestamp {
    LeaseRecord::round_up_to_second(time)
}

/// When a lease ends, in one sentence.
fn end_of_lease(id: &str, customization: &str, ends: Option<Timestamp>) -> String {
    match ends {
        Some(end) => format!("lease {id} of {customization} ends at {end}"),
        None => format!("lease {id} of {customization} never ends; release it when it is no longer needed"),
    }
}

/// The warnings about the leases, one sentence each.
fn warnings(answer: &LeaseResult) -> Vec<String> {
    let patch_problems = match &answer.outcome {
        LeaseOutcome::Leased(lease) => &lease.entry.patch_problems,
        LeaseOutcome::LeasedSet(set) => &set.patch_problems,
        LeaseOutcome::Claimed(_) | LeaseOutcome::Refused(_) => return Vec::new(),
    };
    let leased = answer.leased();
    let names: Vec<_> = leased
        .iter()
        .map(|leased| leased.customization.as_str())
        .collect();
    let names = names.join(", ");
    let passed_over = patch_problems
        .iter()
        .map(|(name, why)| format!("skipped {name}: {why}"));
    let of_patches = leased
        .iter()
        .filter_map(|leased| leased.patched_install_config.as_ref())
        .flat_map(|patched| patched.warnings.clone());
    let unread = answer.cluster_list_error.as_ref().map(|why| {
        let question = format!("whether a cluster already uses {names}");
        not_checked(&question, why)
    });
    let unordered = answer
        .queue_error
        .as_ref()
        .map(|why| not_checked("whether other lessees have waited longer", why));
    let unchecked = answer.are_patches_unchecked.then(|| {
        format!(
            "the patches of {names} were not checked, because --install-config is not set and no install-config of \
             the pool can be read"
        )
    });
    passed_over
        .chain(of_patches)
        .chain(unread)
        .chain(unordered)
        .chain(unchecked)
        .collect()
}

/// The patched install-config. It contains secrets, so it is printed only on request, and never in a JSON document.
pub(crate) fn install_config(answer: &LeaseResult) -> Option<&InstallConfig> {
    match &answer.outcome {
        LeaseOutcome::Leased(lease) => lease
            .entry
            .patched_install_config
            .as_ref()
            .map(|patched| &patched.install_config),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcp_client::Error;
    use kcp_pool::{
        acquire::answer::{ClaimedCluster, Lease, LeaseOutcome, LeaseRefusal, LeaseResult},
        install_config::{
            InstallConfig,
            patches::{PatchProblem, patch_install_config},
        },
        lease::{
            attempt::{LeasedEntry, LeasedSet, PatchProblems},
            choice::{Availability, HeldUntil, UnusableReason},
        },
        objects::{ClusterName, Holder, PoolName},
        release::{Release, decision::ReleaseRefusal},
        testing::objects::{lease, read},
    };
    use serde_json::json;

    use super::PoolLease;
    use crate::{
        commands::pool::{lease::PrintedLease, release::PoolRelease},
        document::Versioned,
        output::Report as _,
        testing::{
            assert_every_format,
            schema::{self, checked_in, faults},
        },
    };

    fn pool() -> PoolName {
        PoolName::new("prod", "vsphere")
    }

    fn answer(outcome: LeaseOutcome) -> LeaseResult {
        let holder = Holder {
            pool: "vsphere",
            cluster_deployment: "us",
        };
        LeaseResult::new("prod", holder, outcome)
    }

    fn document(outcome: LeaseOutcome) -> PoolLease {
        PoolLease::new(&answer(outcome))
    }

    fn refused(refusal: LeaseRefusal) -> PoolLease {
        document(LeaseOutcome::Refused(refusal))
    }

    /// Two leases. The holder already had one of them, and a third entry was skipped.
    fn several() -> PoolLease {
        let entry = |name: &str, is_held_already| LeasedEntry {
            customization: name.to_owned(),
            ..leased(is_held_already)
        };
        document(LeaseOutcome::LeasedSet(LeasedSet {
            entries: vec![entry("foo", true), entry("gnu", false)],
            patch_problems: [("bar".to_owned(), broken())].into(),
        }))
    }

    /// A request for two entries.
    fn exhausted_of_two(states: &[(&str, Availability)]) -> PoolLease {
        let entries = states.iter().cloned();
        refused(LeaseRefusal::Exhausted {
            pool: pool(),
            entries: entries.map(|(name, state)| (name.to_owned(), state)).collect(),
            count: 2,
        })
    }

    fn granted(leased: LeasedEntry) -> LeaseOutcome {
        LeaseOutcome::Leased(Lease {
            entry: leased,
            has_cluster: false,
        })
    }

    fn with_cluster() -> PoolLease {
        document(LeaseOutcome::Leased(Lease {
            entry: leased(true),
            has_cluster: true,
        }))
    }

    fn claimed(customization: Option<&str>) -> PoolLease {
        let claim = json!({
            "metadata": {"name": "us", "annotations": {"kubectl-kcp.dev/lease-id": "k4x7"}},
            "spec": {"clusterPoolName": "vsphere"},
        });
        let outcome = LeaseOutcome::Claimed(Box::new(ClaimedCluster {
            claim: read(&claim),
            cluster: "vsphere-x".to_owned(),
            customization: customization.map(str::to_owned),
            ends: "2026-11-22T05:00:00Z".parse().ok(),
        }));
        PoolLease::new(&LeaseResult {
            cluster_deployment: "vsphere-x".to_owned(),
            ..answer(outcome)
        })
    }

    fn release(pool: Option<PoolName>, customizations: &[&str]) -> Release {
        Release {
            pool,
            cluster_deployment: "us".to_owned(),
            customizations: customizations.iter().map(|name| (*name).to_owned()).collect(),
            cleaned_first: Vec::new(),
            claim: None,
            refusal: None,
            still_used: Vec::new(),
            cluster_list_error: None,
            names_customization_as_pool: false,
        }
    }

    fn released(pool: Option<PoolName>, customizations: &[&str]) -> PoolRelease {
        PoolRelease::new(&release(pool, customizations))
    }

    fn claim_deleted() -> PoolRelease {
        PoolRelease::new(&Release {
            claim: Some("us".to_owned()),
            ..release(Some(pool()), &[])
        })
    }

    #[test]
    fn only_a_release_of_nothing_hints_at_the_holders() {
        let pool_of = |release: PoolRelease| release.pool_without_lease().map(|pool| pool.name.clone());
        assert_eq!(pool_of(released(Some(pool()), &[])), Some("vsphere".to_owned()));
        assert_eq!(pool_of(released(Some(pool()), &["foo"])), None);
        assert_eq!(pool_of(claim_deleted()), None);
        assert_eq!(pool_of(released(None, &[])), None);
    }

    fn held(holder: Option<&str>, pool: Option<&str>) -> Availability {
        Availability::Held {
            cluster_deployment: holder.map(str::to_owned),
            pool: pool.map(str::to_owned),
            until: holder.map(|_| HeldUntil::Time("2026-11-22T05:00:00Z".parse().unwrap())),
        }
    }

    fn leased(already: bool) -> LeasedEntry {
        LeasedEntry {
            customization: "foo".to_owned(),
            record: lease("us", Some("2026-11-22T05:00:00Z")),
            was_already_held: already,
            patched_install_config: None,
            patch_problems: PatchProblems::new(),
        }
    }

    /// One entry was skipped.
    fn patched() -> PoolLease {
        let config = InstallConfig::parse(b"metadata: {name: generated}", "f").unwrap();
        let spec = json!({
            "installConfigPatches": [{"op": "replace", "path": "metadata/name", "value": "foo"}],
            "installerManifestPatches": [{
                "manifestSelector": {"glob": "manifests/*.yaml"}, "patches": [{"op": "remove", "path": "/a"}],
            }],
        });
        let leased = LeasedEntry {
            patched_install_config: Some(patch_install_config(&config, &spec).unwrap()),
            patch_problems: [("bar".to_owned(), broken())].into(),
            ..leased(false)
        };
        document(LeaseOutcome::Leased(Lease {
            entry: leased,
            has_cluster: false,
        }))
    }

    fn broken() -> PatchProblem {
        PatchProblem::Broken(
            "spec.installConfigPatches[0] (remove \"/x\"): its path does not exist".to_owned(),
        )
    }

    fn exhausted() -> LeaseRefusal {
        let entries = [
            ("a", held(Some("x"), Some("vsphere"))),
            ("b", held(Some("y"), Some("other"))),
            ("c", held(None, None)),
            (
                "d",
                Availability::Referenced {
                    by: ClusterName::new("z", "z"),
                },
            ),
            ("e", Availability::Unusable(UnusableReason::Deleting)),
            ("f", Availability::Unusable(UnusableReason::Missing)),
            ("g", Availability::Unusable(UnusableReason::Patches(broken()))),
            (
                "h",
                Availability::Unusable(UnusableReason::Cordoned("fan is broken".to_owned())),
            ),
        ];
        LeaseRefusal::Exhausted {
            pool: pool(),
            entries: entries
                .map(|(name, availability)| (name.to_owned(), availability))
                .into(),
            count: 1,
        }
    }

    fn timed_out() -> PoolLease {
        PoolLease::new(
            &answer(LeaseOutcome::Refused(exhausted())).with_timed_out_after(Duration::from_secs(90)),
        )
    }

    #[test]
    fn json_of_a_lease() {
        let lease = document(granted(leased(false)));
        insta::with_settings!({snapshot_path => "../snapshots"}, {
            insta::assert_snapshot!(serde_json::to_string_pretty(&Versioned(&lease)).unwrap());
        });
    }

    #[test]
    fn json_of_a_lease_with_an_install_config() {
        insta::with_settings!({snapshot_path => "../snapshots"}, {
            insta::assert_snapshot!(serde_json::to_string_pretty(&Versioned(patched())).unwrap());
        });
    }

    #[test]
    fn json_of_several_leases() {
        insta::with_settings!({snapshot_path => "../snapshots"}, {
            insta::assert_snapshot!(serde_json::to_string_pretty(&Versioned(several())).unwrap());
        });
    }

    #[test]
    fn sentences_of_several_leases() {
        let held = held(Some("x"), Some("vsphere"));
        let too_few = LeaseRefusal::TooFewEntries {
            pool: "vsphere".to_owned(),
            entries: 3,
            is_selection: false,
            count: 4,
        };
        let too_few_selected = LeaseRefusal::TooFewEntries {
            pool: "vsphere".to_owned(),
            entries: 1,
            is_selection: true,
            count: 2,
        };
        let held_more = LeaseRefusal::HeldMore {
            cluster_deployment: "us".to_owned(),
            customizations: vec!["foo".to_owned(), "gnu".to_owned(), "zoo".to_owned()],
            count: 2,
        };
        let lines = [
            several().sentences(),
            several().end_sentences(),
            several().warnings().to_vec(),
            several().resource_names(),
            vec![format!("{:?}", several().variables())],
            [
                exhausted_of_two(&[("foo", Availability::Ours), ("gnu", held.clone())]),
                exhausted_of_two(&[("foo", Availability::Free), ("gnu", held)]),
                exhausted_of_two(&[("foo", Availability::Free), ("gnu", Availability::Free)]),
                refused(too_few),
                refused(too_few_selected),
                refused(held_more),
            ]
            .iter()
            .filter_map(PoolLease::refusal)
            .collect(),
        ];
        insta::with_settings!({snapshot_path => "../snapshots"}, {
            insta::assert_snapshot!(lines.concat().join("\n"));
        });
    }

    #[test]
    fn json_of_an_exhausted_pool() {
        insta::with_settings!({snapshot_path => "../snapshots"}, {
            insta::assert_snapshot!(serde_json::to_string_pretty(&Versioned(refused(exhausted()))).unwrap());
        });
    }

    #[test]
    fn json_of_a_release() {
        let release = released(Some(pool()), &["foo"]);
        insta::with_settings!({snapshot_path => "../snapshots"}, {
            insta::assert_snapshot!(serde_json::to_string_pretty(&Versioned(&release)).unwrap());
        });
    }

    #[test]
    fn every_document_matches_its_schema() {
        let leases = [
            patched(),
            refused(exhausted()),
            timed_out(),
            with_cluster(),
            claimed(None),
            several(),
            exhausted_of_two(&[("foo", Availability::Ours)]),
        ];
        let schema = serde_json::to_value(schema::of::<PoolLease>()).unwrap();
        for lease in leases {
            let document = serde_json::to_value(Versioned(&lease)).unwrap();
            assert_every_format(&PrintedLease {
                lease,
                install_config: None,
                kubeconfig: None,
            });
            assert_eq!(faults(&schema, &document), Vec::<String>::new(), "{document}");
        }
        let not_holder = PoolRelease::new(&Release {
            refusal: Some(ReleaseRefusal::NotHolder {
                customization: "foo".to_owned(),
                holder: "them".to_owned(),
                cluster_deployment: "us".to_owned(),
            }),
            cluster_list_error: Some(Error::Configuration {
                cause: "warning".to_owned(),
            }),
            ..release(None, &["bar"])
        });
        let releases = [released(Some(pool()), &["foo"]), claim_deleted(), not_holder];
        let schema = serde_json::to_value(schema::of::<PoolRelease>()).unwrap();
        for release in releases {
            let document = serde_json::to_value(Versioned(&release)).unwrap();
            assert_every_format(&release);
            assert_eq!(faults(&schema, &document), Vec::<String>::new(), "{document}");
        }
    }

    #[test]
    fn the_schemas_are_checked_in() {
        checked_in::<PoolLease>("poollease.json");
        checked_in::<PoolRelease>("poolrelease.json");
    }

    #[test]
    fn sentences() {
        let many = (0..12).map(|index| (format!("entry-{index}"), held(Some("x"), Some("vsphere"))));
        let many = LeaseRefusal::Exhausted {
            pool: pool(),
            entries: many.collect(),
            count: 1,
        };
        let no_inventory = LeaseRefusal::NoInventory {
            pool: "vsphere".to_owned(),
            why: Some("the server drops it".to_owned()),
        };
        let deleting = LeaseRefusal::PoolDeleting {
            pool: "vsphere".to_owned(),
        };
        let screens = [
            document(granted(leased(false))).sentences().join("\n"),
            document(granted(leased(true))).sentences().join("\n"),
            document(granted(leased(true))).end_sentences().join("\n"),
            format!("{:?}", patched().variables()),
            patched().warnings().join("\n"),
            refused(exhausted()).refusal().unwrap(),
            timed_out().refusal().unwrap(),
            refused(many).refusal().unwrap(),
            claimed(Some("foo")).sentences().join("\n"),
            claimed(None).sentences().join("\n"),
            claim_deleted().sentences(),
            refused(no_inventory).refusal().unwrap(),
            refused(deleting).refusal().unwrap(),
            released(Some(pool()), &["a", "b"]).sentences(),
            released(Some(pool()), &["a", "b"]).names().join("\n") + "\n",
            released(Some(pool()), &[]).sentences(),
            released(None, &[]).sentences(),
        ];
        insta::with_settings!({snapshot_path => "../snapshots"}, {
            insta::assert_snapshot!(screens.join("\n"));
        });
    }
}
