//! Runs `kubectl kcp pool renew`.

use clap::Args;
use jiff::Timestamp;
use kcp_api::metadata::Object as _;
use kcp_pool::{
    acquire::claim::{ends, extend},
    events::{LeaseChange, record_by_name},
    lease::{
        DEFAULT_TTL, Ttl,
        renewal::{LeaseName, list_held_entries, renew},
    },
    objects::{Holder, claim::ClaimLifetime as _},
    release::find_claim,
    store::{LeaseStore as _, Store},
};
use serde::Serialize;

use crate::{
    arguments::{parse_cluster_pool, parse_object_name},
    commands::pool::{
        Name, PoolDocumentName, Reason, claim_ttl, parse_ttl, refusal, reported, resource_name, verdict,
    },
    document::{Document, Versioned},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};

/// Arguments of `pool renew`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp pool renew hosts --cluster-deployment paris --ttl 2h
  kubectl kcp pool renew hosts --cluster-deployment paris --id k4x7qzbm2v9cdfhj")]
pub struct RenewArguments {
    /// Name of the cluster pool
    #[arg(value_parser = parse_cluster_pool)]
    pub pool: String,

    /// Name of the cluster deployment that holds the lease, or of the claim
    #[arg(long, value_name = "NAME", value_parser = parse_object_name)]
    pub cluster_deployment: String,

    /// Renew the lease or claim only if it has this id
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,

    /// How long the lease or claim lasts from now, such as 2h; 0 means until the lease is released. A lease or claim
    /// that ends later keeps its end time [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl)]
    pub ttl: Option<Ttl>,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

pub(crate) async fn run(arguments: RenewArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let store = Store::new(&connection, &arguments.field_manager);
    let lease = LeaseName {
        holder: Holder {
            pool: &arguments.pool,
            cluster_deployment: &arguments.cluster_deployment,
        },
        id: arguments.id.as_deref(),
    };
    let ttl = arguments.ttl.unwrap_or(Ttl::For(DEFAULT_TTL));
    let mut result = PoolRenewal {
        pool: PoolDocumentName {
            namespace: store.namespace().to_owned(),
            name: arguments.pool.clone(),
        },
        cluster_deployment: arguments.cluster_deployment.as_str().into(),
        leases: Vec::new(),
        claim: None,
        reason: None,
        message: None,
    };
    let mut lost = Vec::new();
    for customization in list_held_entries(&store, lease).await? {
        match renew(&store, &customization, lease, ttl)
            .await
            .map_err(reported)?
        {
            Some(record) => result.leases.push(RenewedDocument {
                customization: customization.as_str().into(),
                lease_id: record.id,
                ends: record.deadline,
            }),
            None => lost.push(customization),
        }
    }
    if result.leases.is_empty() && lost.is_empty() {
        result.claim = renew_claim(&store, lease, ttl).await?;
    }
    if result.is_empty() && lost.is_empty() && store.get(&arguments.pool).await?.is_none() {
        // A mistyped name of a pool must be an error, because otherwise it would look like a lost lease.
        store.read_pool(&arguments.pool).await?;
    }
    let changes = result.leases.iter().map(|lease| {
        let change = LeaseChange::Renewed {
            holder: &arguments.cluster_deployment,
            ends: lease.ends,
        };
        (lease.customization.name.as_str(), change)
    });
    record_by_name(&store, Some(&arguments.pool), changes).await;
    if result.is_empty() || !lost.is_empty() {
        let what = match lost.as_slice() {
            [] => format!("holds no entry of pool {}", arguments.pool),
            lost => format!("no longer holds {}", lost.join(", ")),
        };
        let id = arguments.id.as_ref().map(|id| format!(" with lease {id}"));
        result.reason = Some(Reason::NotHolder);
        result.message = Some(format!(
            "{} {what}{}",
            arguments.cluster_deployment,
            id.unwrap_or_default()
        ));
    }
    print(&result, &arguments.output, &session.terminal)?;
    Ok(verdict(
        refusal(result.reason, result.message.as_deref()),
        &session.terminal,
    ))
}

/// Extends the holder's claim; `None` if the holder has no claim, or if the claim has another id.
async fn renew_claim(
    store: &Store<'_>,
    lease: LeaseName<'_>,
    ttl: Ttl,
) -> anyhow::Result<Option<RenewedClaimDocument>> {
    let found = find_claim(store, lease.holder).await?;
    let Some(claim) = found.filter(|claim| lease.id.is_none() || claim.id() == lease.id) else {
        return Ok(None);
    };
    let pool = store.read_pool(lease.holder.pool).await?;
    let extended = extend(store, &claim, claim_ttl(ttl)?, None).await?;
    Ok(extended.map(|claim| RenewedClaimDocument {
        name: claim.name().to_owned(),
        lease_id: claim.id().map(str::to_owned),
        ends: ends(&claim, &pool, store.now().latest),
    }))
}

/// The result of `pool renew`, as `-o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolRenewal {
    pool: PoolDocumentName,
    cluster_deployment: Name,
    /// The leases that were renewed; empty if the holder has none.
    leases: Vec<RenewedDocument>,
    /// The ClusterClaim that was renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<RenewedClaimDocument>,
    /// Why no lease was renewed, or why not all were.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// Why no lease was renewed, or which were lost, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl Document for PoolRenewal {
    const KIND: &'static str = "PoolRenewal";
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct RenewedDocument {
    customization: Name,
    lease_id: String,
    /// When the lease ends; absent if it never ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct RenewedClaimDocument {
    name: String,
    /// The id of the claim; absent if another program created the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_id: Option<String>,
    /// When Hive deletes the claim and its cluster. If the claim still waits for a cluster, Hive deletes it later than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<Timestamp>,
}

impl PoolRenewal {
    const fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.claim.is_none()
    }

    /// What was renewed, as `kubectl get -o name` prints it, and when it ends.
    fn renewed(&self) -> impl Iterator<Item = (String, Option<Timestamp>)> {
        let leases = self.leases.iter();
        let leases = leases.map(|renewed| (resource_name(&renewed.customization), renewed.ends));
        let claim = self.claim.iter();
        leases.chain(claim.map(|claim| {
            (
                format!("clusterclaim.hive.openshift.io/{}", claim.name),
                claim.ends,
            )
        }))
    }
}

impl Report for PoolRenewal {
    fn table(&self, _: Layout) -> String {
        self.renewed().fold(String::new(), |text, (name, ends)| {
            let end = ends.map_or("never ends".to_owned(), |end| format!("ends at {end}"));
            text + &format!("{name} renewed: {end}\n")
        })
    }

    fn document(&self) -> impl Serialize {
        Versioned(self)
    }

    fn names(&self) -> Vec<String> {
        self.renewed().map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{PoolRenewal, RenewedClaimDocument, RenewedDocument};
    use crate::{
        commands::pool::{PoolDocumentName, Reason},
        testing::{
            assert_every_format,
            schema::{checked_in, conforms},
        },
    };

    fn renewal(leases: Vec<RenewedDocument>, reason: Option<Reason>) -> PoolRenewal {
        PoolRenewal {
            pool: PoolDocumentName {
                namespace: "d".to_owned(),
                name: "hosts".to_owned(),
            },
            cluster_deployment: "paris".into(),
            leases,
            claim: None,
            reason,
            message: reason.map(|_| "paris no longer holds host-a".to_owned()),
        }
    }

    #[test]
    fn documents() {
        let renewed = RenewedDocument {
            customization: "host-a".into(),
            lease_id: "k4x7".to_owned(),
            ends: "2026-11-22T05:00:00Z".parse().ok(),
        };
        let claim = RenewedClaimDocument {
            name: "paris".to_owned(),
            lease_id: Some("k4x7".to_owned()),
            ends: "2026-11-22T05:00:00Z".parse().ok(),
        };
        for document in [
            renewal(vec![renewed.clone()], None),
            renewal(vec![renewed], Some(Reason::NotHolder)),
            PoolRenewal {
                claim: Some(claim),
                ..renewal(Vec::new(), None)
            },
            renewal(Vec::new(), Some(Reason::NotHolder)),
        ] {
            conforms(&document);
            assert_every_format(&document);
        }
        checked_in::<PoolRenewal>("poolrenewal.json");
    }
}
