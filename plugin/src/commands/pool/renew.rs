//! Runs `kubectl kcp pool renew`.

use clap::Args;
use jiff::Timestamp;
use kcp_pool::{
    events::{LeaseChange, record_by_name},
    lease::{
        DEFAULT_TTL, Ttl,
        renewal::{LeaseName, list_held_entries, renew},
    },
    objects::Holder,
    store::{LeaseStore as _, Store},
};
use serde::Serialize;

use crate::{
    arguments::{parse_cluster_pool, parse_object_name},
    commands::pool::{Name, PoolDocumentName, Reason, parse_ttl, refusal, reported, resource_name, verdict},
    document::API_VERSION,
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

    /// Name of the cluster deployment that holds the lease
    #[arg(long, value_name = "NAME", value_parser = parse_object_name)]
    pub cluster_deployment: String,

    /// Renew the lease with this id only
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,

    /// How long the lease lasts from now, such as 2h; 0 means until it is released. A lease that ends later keeps its
    /// end time [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl)]
    pub ttl: Option<Ttl>,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

/// Runs `pool renew`.
///
/// # Errors
/// The API server cannot be reached, or refuses a request.
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
        api_version: API_VERSION,
        kind: "PoolRenewal",
        pool: PoolDocumentName {
            namespace: store.namespace().to_owned(),
            name: arguments.pool.clone(),
        },
        cluster_deployment: arguments.cluster_deployment.as_str().into(),
        leases: Vec::new(),
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
    if result.leases.is_empty() && lost.is_empty() && store.get(&arguments.pool).await?.is_none() {
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
    if result.leases.is_empty() {
        let what = match lost.as_slice() {
            [] => format!("an entry of pool {}", arguments.pool),
            lost => lost.join(", "),
        };
        let id = arguments.id.as_ref().map(|id| format!(" with lease {id}"));
        result.reason = Some(Reason::NotHolder);
        result.message = Some(format!(
            "{} no longer holds {what}{}",
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

/// The result of `pool renew`, as `-o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolRenewal {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "PoolRenewal")))]
    kind: &'static str,
    pool: PoolDocumentName,
    cluster_deployment: Name,
    /// The leases that were renewed; empty if the holder has none.
    leases: Vec<RenewedDocument>,
    /// Why no lease was renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// Why no lease was renewed, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct RenewedDocument {
    customization: Name,
    lease_id: String,
    /// When the lease ends; absent if it never ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>", extend("format" = "date-time")))]
    ends: Option<Timestamp>,
}

impl Report for PoolRenewal {
    fn table(&self, _: Layout) -> String {
        self.leases.iter().fold(String::new(), |text, renewed| {
            let end = renewed
                .ends
                .map_or("never ends".to_owned(), |end| format!("ends at {end}"));
            text + &format!("{} renewed: {end}\n", resource_name(&renewed.customization))
        })
    }

    fn document(&self) -> impl Serialize {
        self
    }

    fn names(&self) -> Vec<String> {
        self.leases
            .iter()
            .map(|renewed| resource_name(&renewed.customization))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{PoolRenewal, RenewedDocument};
    use crate::{
        commands::pool::{PoolDocumentName, Reason},
        document::API_VERSION,
        testing::{
            assert_every_format,
            schema::{checked_in, conforms},
        },
    };

    fn renewal(leases: Vec<RenewedDocument>, reason: Option<Reason>) -> PoolRenewal {
        PoolRenewal {
            api_version: API_VERSION,
            kind: "PoolRenewal",
            pool: PoolDocumentName {
                namespace: "d".to_owned(),
                name: "hosts".to_owned(),
            },
            cluster_deployment: "paris".into(),
            leases,
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
        for document in [
            renewal(vec![renewed], None),
            renewal(Vec::new(), Some(Reason::NotHolder)),
        ] {
            conforms(&document);
            assert_every_format(&document);
        }
        checked_in::<PoolRenewal>("poolrenewal.json");
    }
}
