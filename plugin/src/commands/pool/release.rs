//! Runs `kubectl kcp pool release`.

use clap::Args;
use kcp_control_plane::change::decision::Refusal;
use kcp_pool::{
    release::{
        Release,
        decision::{EntryInUse, ReleaseRefusal, ReleaseRequest, ReleaseTarget},
        release,
    },
    store::Store,
};
use serde::Serialize;

use crate::{
    arguments::{parse_cluster_pool, parse_object_name},
    change::confirmation::ConfirmArguments,
    commands::pool::{
        HiveArgument, Name, PoolDocumentName, Reason, not_checked, refusal, resource_name, verdict,
    },
    document::{Document, Versioned},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};

/// Arguments of `pool release`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp pool release hosts --cluster-deployment paris
  kubectl kcp pool release cdc/host-a --cluster-deployment paris --id k4x7qzbm2v9cdfhj")]
pub struct ReleaseArguments {
    /// Name of the cluster pool, or cdc/NAME of one customization
    #[arg(value_name = "POOL|cdc/NAME", value_parser = parse_target)]
    pub target: ReleaseTarget,

    /// Name of the cluster deployment that holds the lease
    #[arg(long, value_name = "NAME", value_parser = parse_object_name)]
    pub cluster_deployment: String,

    /// Release only the lease or claim with this id, not a later one of the same cluster deployment
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,

    /// Release a customization even if a cluster uses it or may use it: the next holder may install over that
    /// cluster
    #[arg(long)]
    pub force: bool,

    /// Release a claim, which destroys its cluster
    #[arg(long)]
    pub delete_cluster: bool,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    /// Whether Hive manages the pool
    #[arg(long, value_enum, default_value = "auto")]
    pub hive: HiveArgument,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

pub(crate) async fn run(arguments: ReleaseArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    if arguments.delete_cluster {
        let goal = format!("delete the cluster of {}", arguments.cluster_deployment);
        let place = connection.describe_target();
        let answer = arguments.confirm.confirm(&goal, &place, false, &session.terminal);
        if !answer.await? {
            session.terminal.note(&format!(
                "not released: {}",
                Refusal::unconfirmed().why.join("; ")
            ));
            return Ok(Verdict::Negative);
        }
    }
    let store = Store::new(&connection, &arguments.field_manager);
    let request = ReleaseRequest {
        target: &arguments.target,
        cluster_deployment: &arguments.cluster_deployment,
        id: arguments.id.as_deref(),
        force: arguments.force,
        delete_cluster: arguments.delete_cluster,
        hive: arguments.hive.into(),
    };
    let release = release(&store, &request).await?;
    if let (true, ReleaseTarget::Pool(name)) = (release.names_customization_as_pool, &arguments.target) {
        session.terminal.note(&format!(
            "{name} is a customization, not a pool; to release it, write cdc/{name}"
        ));
        return Ok(Verdict::Undecided);
    }
    let result = PoolRelease::new(&release);
    for warning in result.warnings() {
        session.terminal.warning(warning);
    }
    print(&result, &arguments.output, &session.terminal)?;
    if let Some(pool) = result.pool_without_lease() {
        session.terminal.hint(&format!(
            "list the holders with: kubectl kcp pool status {} -n {}",
            pool.name, pool.namespace
        ));
    }
    Ok(verdict(result.refusal(), &session.terminal))
}

/// Parses what to release: a pool as `NAME` or `clusterpool/NAME`, or one customization as `cdc/NAME`. Each kind may have
/// its group after a dot.
fn parse_target(text: &str) -> Result<ReleaseTarget, String> {
    let named = text.split_once('/').filter(|(kind, _)| is_customization(kind));
    match named {
        Some((_, name)) => parse_object_name(name).map(ReleaseTarget::Customization),
        None => parse_cluster_pool(text).map(ReleaseTarget::Pool).map_err(|why| {
            why.replace(
                "write NAME or clusterpool/NAME",
                "write NAME, clusterpool/NAME or cdc/NAME",
            )
        }),
    }
}

/// Whether `kind` is a name of the kind ClusterDeploymentCustomization, whose short name is `cdc`.
fn is_customization(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    let plain = kind.strip_suffix(".hive.openshift.io").unwrap_or(&kind);
    matches!(
        plain,
        "cdc" | "clusterdeploymentcustomization" | "clusterdeploymentcustomizations"
    )
}

/// The result of `pool release`, as `-o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolRelease {
    /// The pool; absent if the request named one customization on which the holder has no lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<PoolDocumentName>,
    cluster_deployment: Name,
    /// The customizations that were released; empty if the holder had none.
    customizations: Vec<Name>,
    /// Those of the released customizations that must be cleaned before the next lease.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cleaned_first: Vec<Name>,
    /// The ClusterClaim that was deleted together with its cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<Name>,
    /// Why a lease or a claim was not released.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// Why a lease or a claim was not released, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Warnings about checks that failed and about clusters that still run, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl Document for PoolRelease {
    const KIND: &'static str = "PoolRelease";
}

impl PoolRelease {
    pub(crate) fn new(release: &Release) -> Self {
        let reason = release.refusal.as_ref().map(|refusal| match refusal {
            ReleaseRefusal::NoSuchEntry { .. } => Reason::NoSuchEntry,
            ReleaseRefusal::NotHolder { .. }
            | ReleaseRefusal::UnclearHolder { .. }
            | ReleaseRefusal::OtherLease { .. }
            | ReleaseRefusal::OtherClaim { .. } => Reason::NotHolder,
            ReleaseRefusal::InUse(_)
            | ReleaseRefusal::MayBeInUse { .. }
            | ReleaseRefusal::PoolUnknown { .. }
            | ReleaseRefusal::DestroysCluster { .. } => Reason::Blocked,
        });
        Self {
            pool: release.pool.as_ref().map(PoolDocumentName::from),
            cluster_deployment: release.cluster_deployment.as_str().into(),
            customizations: release
                .customizations
                .iter()
                .map(|name| name.as_str().into())
                .collect(),
            cleaned_first: release
                .cleaned_first
                .iter()
                .map(|name| name.as_str().into())
                .collect(),
            claim: release.claim.as_deref().map(Name::from),
            reason,
            message: release.refusal.as_ref().map(ToString::to_string),
            warnings: warnings(release),
        }
    }

    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The pool in which the holder has no lease, so there was nothing to release.
    pub(crate) fn pool_without_lease(&self) -> Option<&PoolDocumentName> {
        let had_none = self.customizations.is_empty() && self.claim.is_none() && self.reason.is_none();
        self.pool.as_ref().filter(|_| had_none)
    }

    /// One line that says why a lease or a claim was not released.
    pub(crate) fn refusal(&self) -> Option<String> {
        refusal(self.reason, self.message.as_deref())
    }

    /// One line for each customization that was released, or one line that says that the holder has none.
    pub(crate) fn sentences(&self) -> String {
        let Self {
            pool,
            cluster_deployment,
            customizations,
            cleaned_first,
            ..
        } = self;
        if let Some(claim) = &self.claim {
            return format!("clusterclaim.hive.openshift.io/{} deleted\n", claim.name);
        }
        if customizations.is_empty() && self.reason.is_none() {
            let deployment = &cluster_deployment.name;
            return match pool {
                Some(PoolDocumentName { namespace, name }) => {
                    format!("{deployment} holds nothing from pool {namespace}/{name}\n")
                }
                None => format!(
                    "{deployment} does not hold the customization, because the customization is not leased\n"
                ),
            };
        }
        customizations.iter().fold(String::new(), |text, name| {
            let cleaned = if cleaned_first.contains(name) {
                ", and waits for cleaning"
            } else {
                ""
            };
            text + &resource_name(name) + " released" + cleaned + "\n"
        })
    }
}

impl Report for PoolRelease {
    fn table(&self, _: Layout) -> String {
        self.sentences()
    }

    fn document(&self) -> impl Serialize {
        Versioned(self)
    }

    fn names(&self) -> Vec<String> {
        self.customizations.iter().map(resource_name).collect()
    }
}

/// The warnings about checks that failed and about clusters that still run, one sentence each.
fn warnings(release: &Release) -> Vec<String> {
    let still_used = |EntryInUse {
                          customization,
                          cluster,
                      }: &EntryInUse| cluster.still_used_warning(customization);
    let still_used = release.still_used.iter().map(still_used);
    let unread = release.cluster_list_error.as_ref();
    let unread = unread.filter(|_| !release.customizations.is_empty()).map(|why| {
        let question = format!(
            "whether the cluster still uses {}",
            release.customizations.join(", ")
        );
        not_checked(&question, why)
    });
    still_used.chain(unread).collect()
}

#[cfg(test)]
mod tests {
    use super::{ReleaseTarget, parse_target};
    #[test]
    fn releases_a_pool_or_a_customization() {
        for (text, expected) in [
            ("hosts", Ok(ReleaseTarget::Pool("hosts".to_owned()))),
            ("clusterpool/hosts", Ok(ReleaseTarget::Pool("hosts".to_owned()))),
            ("cdc/a", Ok(ReleaseTarget::Customization("a".to_owned()))),
            (
                "ClusterDeploymentCustomizations.hive.openshift.io/a",
                Ok(ReleaseTarget::Customization("a".to_owned())),
            ),
            (
                "pod/a",
                Err("pod is not a cluster pool: write NAME, clusterpool/NAME or cdc/NAME".to_owned()),
            ),
        ] {
            assert_eq!(parse_target(text), expected);
        }
        assert!(parse_target("cdc/..").is_err());
    }
}
