//! Runs `kubectl kcp pool cordon` and `pool uncordon`.

use anyhow::Context as _;
use clap::Args;
use kcp_api::metadata::Object as _;
use kcp_pool::{
    cordon::{CordonResult, read_hive_pool, set_cordon},
    hive::HiveConclusion,
    store::{LeaseStore as _, Store},
};

use crate::{
    arguments::{parse_customization, parse_reason},
    commands::pool::{HiveArgument, Reason},
    session::Session,
    verdict::Verdict,
};

/// Arguments of `pool cordon`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp pool cordon host-a --reason maintenance
  kubectl kcp pool cordon cdc/host-a -n pools --reason repair")]
pub struct CordonArguments {
    #[command(flatten)]
    pub change: CordonChange,

    /// Reason to show in pool status
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    pub reason: String,
}

/// Arguments of `pool uncordon`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp pool uncordon host-a
  kubectl kcp pool uncordon cdc/host-a -n pools")]
pub struct UncordonArguments {
    #[command(flatten)]
    pub change: CordonChange,
}

/// The arguments that `pool cordon` and `pool uncordon` share.
#[derive(Debug, Args)]
pub struct CordonChange {
    /// Name of the customization, or cdc/NAME
    #[arg(value_name = "ENTRY", value_parser = parse_customization)]
    pub entry: String,

    /// Whether Hive manages the pools of the customization
    #[arg(long, value_enum, default_value = "auto")]
    pub hive: HiveArgument,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

/// Runs `pool cordon`, or `pool uncordon` without a reason.
pub(crate) async fn run(
    change: CordonChange,
    reason: Option<String>,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let store = Store::new(&connection, &change.field_manager);
    let entry = &change.entry;
    let terminal = &session.terminal;
    let hive_pool = read_hive_pool(&store, entry, change.hive.into()).await;
    let hive_pool = hive_pool.with_context(|| {
        format!("cannot find out whether Hive manages a pool of {entry}; if it does not, add --hive=no")
    })?;
    if let Some((pool, HiveConclusion { evidence, .. })) = hive_pool {
        let instead = if reason.is_some() {
            format!(
                "remove {entry} from the pool's inventory instead, or add --hive=no if Hive does not manage the pool"
            )
        } else {
            "to remove the annotation anyway, add --hive=no, but only while Hive creates no cluster"
                .to_owned()
        };
        terminal.note(&format!(
            "{}: Hive manages, or may manage, pool {} ({evidence}); Hive ignores a cordon, and waits for five minutes if \
             another program changes a customization at the wrong moment; {instead}",
            Reason::Blocked.as_str(),
            pool.name()
        ));
        return Ok(Verdict::Negative);
    }
    match set_cordon(&store, entry, reason.as_deref()).await? {
        CordonResult::NoSuchEntry => {
            let namespace = &store.connection().namespace;
            terminal.note(&format!(
                "no-such-entry: customization {entry} does not exist in namespace {namespace}; list the entries with: \
                 kubectl kcp pool status -n {namespace}"
            ));
            return Ok(Verdict::Negative);
        }
        CordonResult::Changed | CordonResult::Unchanged => {
            let state = if reason.is_some() {
                "cordoned"
            } else {
                "uncordoned"
            };
            terminal.note(&format!(
                "clusterdeploymentcustomization.hive.openshift.io/{entry} {state}"
            ));
        }
    }
    if reason.is_some() {
        let holder = store.get(entry).await?;
        if let Some(holder) = holder.as_ref().and_then(|entry| entry.status.holder()) {
            terminal.note(&format!(
                "{holder} holds {entry}; the cordon does not end this lease"
            ));
        }
    }
    Ok(Verdict::Met)
}

#[cfg(test)]
mod tests {
    use super::parse_reason;

    #[test]
    fn a_reason_is_a_short_text() {
        assert_eq!(parse_reason(" fan is broken "), Ok("fan is broken".to_owned()));
        assert!(parse_reason(" ").is_err());
        assert!(parse_reason(&"x".repeat(401)).is_err());
    }
}
