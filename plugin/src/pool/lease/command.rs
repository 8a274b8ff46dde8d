//! `pool lease`: from arguments to exit code.

use std::{convert::Infallible, future::pending};

use anyhow::Context as _;
use jiff::Timestamp;

use crate::{
    document::{text, yaml},
    pool::{
        arguments::{LeaseArguments, LeaseOutput},
        claim_command,
        creation::command::create,
        document::PoolLease,
        install_config::InstallConfig,
        lease::{
            patience::{Patience, WaitLimit},
            taking::{Wish, take},
            waiting::wait_for,
        },
        objects::{entry::Holder, record::LeaseClaim},
        store::Store,
    },
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
};

/// Runs `pool lease`.
///
/// # Errors
/// When nothing could be decided.
pub(in crate::pool) async fn run(arguments: LeaseArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let store = Store::new(&connection, &arguments.field_manager);
    let cluster_deployment = arguments
        .lessee
        .name()
        .context("neither a name nor a prefix is given")?;
    let install_config = match &arguments.install_config {
        Some(source) => Some(InstallConfig::read(source, &connection).await?),
        None => None,
    };
    session.terminal.on_interrupt(format!(
        "interrupted: a lease may have been taken; give it back with: kubectl kcp pool release {} \
         --cluster-deployment {cluster_deployment} -n {}",
        arguments.pool, connection.namespace
    ));
    let wish = Wish {
        claim: LeaseClaim {
            holder: Holder {
                pool: &arguments.pool,
                cluster_deployment: &cluster_deployment,
            },
            duration: arguments.ttl,
            cluster_deployment_uid: None,
            is_creating: false,
        },
        install_config: install_config.as_ref(),
        is_new: false,
    };
    if arguments.claim {
        let patience = Patience {
            since: Timestamp::now(),
            limit: arguments.wait.unwrap_or(WaitLimit::Unlimited),
        };
        let terminal = &session.terminal;
        let claim = claim_command::claim(&store, wish.claim.holder, patience, arguments.keep, terminal);
        return show(&claim.await?, arguments.output, terminal);
    }
    if let (true, Some(install_config)) = (arguments.create, &install_config) {
        let created = create(&store, wish, install_config).await?;
        return show(&created, arguments.output, &session.terminal);
    }
    let result = match arguments.wait {
        None => take(&store, wish).await?,
        Some(limit) => {
            let patience = Patience {
                since: Timestamp::now(),
                limit,
            };
            let attempt = async || take(&store, wish).await;
            let waited = wait_for(attempt, patience, pending::<Infallible>(), &session.terminal);
            let Ok(result) = waited.await?;
            result
        }
    };
    show(&result, arguments.output, &session.terminal)
}

/// Prints a result.
fn show(result: &PoolLease, output: Option<LeaseOutput>, terminal: &Terminal) -> anyhow::Result<Verdict> {
    for warning in result.warnings() {
        terminal.warning(warning);
    }
    let shown = match output {
        Some(LeaseOutput::Json) => Some(text(result)?),
        Some(LeaseOutput::Yaml) => Some(yaml(result)?),
        Some(LeaseOutput::Env) => result
            .variables()
            .map(|variables| {
                let lines = variables.iter().map(|(name, value)| {
                    // For `eval`: what an object says of itself is not always a name.
                    let value = shlex::try_quote(value)?;
                    Ok(format!("{name}={value}\n"))
                });
                lines.collect::<Result<String, shlex::QuoteError>>()
            })
            .transpose()?,
        Some(LeaseOutput::Name) => result.resource_name().map(|name| name + "\n"),
        Some(LeaseOutput::InstallConfig) => match result.install_config() {
            Some(install_config) => Some(install_config.to_yaml()?),
            None => None,
        },
        None => result.sentence().map(|sentence| sentence + "\n"),
    };
    if let Some(shown) = shown {
        terminal.print(&shown)?;
    }
    match result.refusal() {
        Some(refusal) => {
            terminal.note(&refusal);
            Ok(Verdict::Negative)
        }
        None => Ok(Verdict::Met),
    }
}
