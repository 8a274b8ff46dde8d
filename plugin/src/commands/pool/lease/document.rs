//! Describes the result of `pool lease` as a JSON document (schema: `plugin/schema/poollease.json`) and as text.

use jiff::Timestamp;
use kcp_api::metadata::Object as _;
use kcp_pool::{
    acquire::answer::{LeaseOutcome, LeaseRefusal, LeaseResult},
    install_config::{InstallConfig, patches::PatchProblem},
    lease::choice::{Availability, UnusableReason},
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
    #[cfg_attr(test, schemars(with = "Option<String>", extend("format" = "date-time")))]
    ends: Option<Timestamp>,
    /// If no entry of the inventory is free: each entry, and why it is not free.
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

/// The state of an inventory's entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "EntryState"))]
#[serde(rename_all = "camelCase")]
struct EntryDocument {
    name: String,
    #[cfg_attr(test, schemars(extend("enum" = ["free", "held", "referenced", "broken", "cordoned", "deleting", "missing", "unnamed", "unreadable"])))]
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
            broken: Vec::new(),
            installer_manifest_patches: Vec::new(),
            reason: None,
            message: None,
            entries: Vec::new(),
            warnings: warnings(answer),
        };
        match &answer.outcome {
            LeaseOutcome::Leased(lease) => {
                let leased = &lease.entry;
                let patches = leased
                    .patched_install_config
                    .as_ref()
                    .map(|patched| &patched.manifest_patches);
                Self {
                    already_held: Some(leased.was_already_held),
                    has_cluster: lease.has_cluster.then_some(true),
                    lease_id: Some(leased.record.id.clone()),
                    ends: leased.record.deadline.map(whole_second),
                    broken: leased
                        .patch_problems
                        .iter()
                        .map(|(name, why)| EntryDocument::broken(name, why))
                        .collect(),
                    installer_manifest_patches: patches.cloned().unwrap_or_default(),
                    ..none
                }
            }
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
                    (LeaseRefusal::NoInventory { .. }, None) => Reason::NoSuchEntry,
                    (
                        LeaseRefusal::AlreadyHeld { .. }
                        | LeaseRefusal::HeldInstead { .. }
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

    /// The leased customization as `RESOURCE.GROUP/NAME`, as `kubectl get -o name` prints it.
    pub(crate) fn resource_name(&self) -> Option<String> {
        self.customization.as_ref().map(resource_name)
    }

    /// One line that describes the lease.
    pub(crate) fn sentence(&self) -> Option<String> {
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
            let suffix = self
                .customization()
                .map(|name| format!(" with customization {name}"));
            return Some(format!(
                "clusterclaim.hive.openshift.io/{} has ClusterDeployment {}{}",
                claim.name,
                cluster_deployment.name,
                suffix.unwrap_or_default()
            ));
        }
        let with_cluster = if self.has_cluster == Some(true) {
            ". This ClusterDeployment exists"
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

    /// One sentence that says when the lease or claim ends.
    pub(crate) fn end_sentence(&self) -> Option<String> {
        if let Some(claim) = &self.claim {
            let end = self.ends?;
            return Some(format!("ClusterClaim {} ends at {end}", claim.name));
        }
        let (id, name) = (self.lease_id.as_deref()?, self.customization()?);
        Some(match self.ends {
            Some(end) => format!("lease {id} of {name} ends at {end}"),
            None => format!("lease {id} of {name} never ends; release it when it is no longer needed"),
        })
    }

    /// The environment variables that describe the lease. If a claimed cluster has no customization, the variable of the
    /// customization is empty, so that scripts can read it under `set -u`.
    pub(crate) fn variables(&self) -> Option<Vec<(&'static str, &str)>> {
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
        let id = self.lease_id.as_deref().map(|id| ("KCP_LEASE_ID", id));
        Some(named.into_iter().chain(claim).chain(id).collect())
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
                Availability::Ours | Availability::Free => "free",
                Availability::Held { .. } => "held",
                Availability::Referenced { .. } => "referenced",
                Availability::Unusable(UnusableReason::Patches(_)) => "broken",
                Availability::Unusable(UnusableReason::Cordoned(_)) => "cordoned",
                Availability::Unusable(UnusableReason::Deleting) => "deleting",
                Availability::Unusable(UnusableReason::NotInInventory) => "unnamed",
                Availability::Unusable(UnusableReason::Missing) => "missing",
                Availability::Unusable(UnusableReason::Unreadable(_)) => "unreadable",
            },
            cluster_deployment: cluster_deployment.map(Name::from),
            pool: pool.map(Name::from),
            message: match availability {
                Availability::Held { until, .. } => until.map(|until| until.to_string()),
                Availability::Unusable(UnusableReason::Patches(why)) => Some(why.to_string()),
                Availability::Unusable(UnusableReason::Cordoned(why)) => Some(why.clone()),
                Availability::Unusable(UnusableReason::Unreadable(why)) => Some(why.to_string()),
                _ => None,
            },
        }
    }

    fn broken(name: &str, why: &PatchProblem) -> Self {
        Self::new(
            name,
            &Availability::Unusable(UnusableReason::Patches(why.clone())),
        )
    }
}

/// Rounds a time to whole seconds, because the records of leases contain only whole seconds.
fn whole_second(time: Timestamp) -> Timestamp {
    LeaseRecord::round_up_to_second(time)
}

/// The warnings about the lease, one sentence each.
fn warnings(answer: &LeaseResult) -> Vec<String> {
    let LeaseOutcome::Leased(lease) = &answer.outcome else {
        return Vec::new();
    };
    let leased = &lease.entry;
    let passed_over = leased
        .patch_problems
        .iter()
        .map(|(name, why)| format!("skipped {name}: {why}"));
    let of_patches = leased
        .patched_install_config
        .iter()
        .flat_map(|patched| patched.warnings.clone());
    let unread = answer.cluster_list_error.as_ref().map(|why| {
        let question = format!("whether a cluster already uses {}", leased.customization);
        not_checked(&question, why)
    });
    let unordered = answer
        .queue_error
        .as_ref()
        .map(|why| not_checked("whether other lessees have waited longer", why));
    let unchecked = answer.are_patches_unchecked.then(|| {
        let name = &leased.customization;
        format!(
            "the patches of {name} were not checked, because --install-config is not set and no install-config of \
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
            attempt::{LeasedEntry, PatchProblems},
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
        };
        let no_inventory = LeaseRefusal::NoInventory {
            pool: "vsphere".to_owned(),
        };
        let deleting = LeaseRefusal::PoolDeleting {
            pool: "vsphere".to_owned(),
        };
        let screens = [
            document(granted(leased(false))).sentence().unwrap(),
            document(granted(leased(true))).sentence().unwrap(),
            document(granted(leased(true))).end_sentence().unwrap(),
            format!("{:?}", patched().variables()),
            patched().warnings().join("\n"),
            refused(exhausted()).refusal().unwrap(),
            timed_out().refusal().unwrap(),
            refused(many).refusal().unwrap(),
            claimed(Some("foo")).sentence().unwrap(),
            claimed(None).sentence().unwrap(),
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
