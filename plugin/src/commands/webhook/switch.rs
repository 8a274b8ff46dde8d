//! `kubectl kcp webhook disable` and `enable`.

use std::time::Duration;

use clap::Args;
use kcp_client::{
    Connection, Error,
    reads::webhook::resource_kind,
    update::{Change, ReadObject, UpdateTarget, Updated, WriteMode, WriteResult, update},
};
use kcp_control_plane::{
    change::decision::ObjectWrite,
    webhook::{
        HookKind,
        switch::{disable as disable_patch, enable as enable_patch},
    },
};
use kcp_rules::registration::CONFIGURATION;
use serde_json::Value;

use crate::{
    arguments::{DryRun, parse_reason, parse_timeout},
    document::resource_name,
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
};

#[derive(Debug, Args)]
#[command(
    after_help = "The API server then admits every write without calling the webhook. An update that omits replicas can \
        scale a control plane down to one Machine, so enable the webhook again soon.

Nothing is deleted. The command adds a match condition to each entry of the validating and the mutating webhook configuration. The \
        condition is never true, so the API server skips the webhook. `kcp-webhook manage` removes the condition when the time of \
        --for has passed and the webhook passes its self-test. Without the manager, run `webhook enable`. The certificates \
        of the webhook are still renewed.

Examples:
  kubectl kcp webhook disable --reason capi-upgrade --dry-run=server
  kubectl kcp webhook disable --reason capi-upgrade --for 30m"
)]
pub struct DisableArguments {
    /// Reason to record in both configurations, which `webhook status` shows
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    pub reason: String,

    /// How long until the manager enables the webhook again, such as 30m; a later call can extend the time
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_disabled_time, default_value = "2h")]
    pub lasts: Duration,

    #[command(flatten)]
    pub write: SwitchArguments,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Removes from both configurations what `webhook disable` added, and nothing else. The API server calls the \
        webhook at once, so check first that its Pods are ready.

Examples:
  kubectl kcp webhook status
  kubectl kcp webhook enable"
)]
pub struct EnableArguments {
    #[command(flatten)]
    pub write: SwitchArguments,
}

/// The arguments that `webhook disable` and `webhook enable` share.
#[derive(Debug, Args)]
pub struct SwitchArguments {
    /// Check the change without writing it: only locally (client, the default), or also on the server (server)
    #[arg(long, value_name = "WHERE", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    pub dry_run: Option<DryRun>,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

/// The longest time of `--for`, which is also that of an override of one rule.
const MAX_DISABLED: Duration = Duration::from_secs(24 * 60 * 60);

fn parse_disabled_time(text: &str) -> Result<Duration, String> {
    match parse_timeout(text)? {
        lasts if lasts > MAX_DISABLED => Err("expected at most 24h".to_owned()),
        lasts => Ok(lasts),
    }
}

/// What happened to one configuration.
#[derive(Debug, PartialEq, Eq)]
enum SwitchOutcome {
    Switched,
    Unchanged,
    /// The configuration does not exist.
    Absent,
    /// Why the configuration was not written.
    Refused(Vec<String>),
}

pub(super) async fn disable(arguments: &DisableArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let now = connection.now();
    let until = now.checked_add(arguments.lasts)?;
    let patch = |configuration: &Value| disable_patch(configuration, &arguments.reason, now, until);
    run(
        &connection,
        &arguments.write,
        "disable",
        &patch,
        &session.terminal,
    )
    .await
}

pub(super) async fn enable(arguments: &EnableArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    run(
        &connection,
        &arguments.write,
        "enable",
        &enable_patch,
        &session.terminal,
    )
    .await
}

async fn run(
    connection: &Connection,
    arguments: &SwitchArguments,
    verb: &'static str,
    patch: &dyn Fn(&Value) -> Option<Value>,
    terminal: &Terminal,
) -> anyhow::Result<Verdict> {
    let mut verdict = Verdict::Met;
    for kind in HookKind::ALL {
        let name = resource_name(resource_kind(kind), CONFIGURATION);
        let suffix = DryRun::suffix(arguments.dry_run);
        match switch(connection, arguments, kind, verb, patch).await? {
            SwitchOutcome::Switched => terminal.print_line(&format!("{name} {verb}d{suffix}"))?,
            SwitchOutcome::Unchanged => terminal.print_line(&format!("{name} unchanged{suffix}"))?,
            SwitchOutcome::Absent if verb == "disable" => {
                terminal.note(&format!(
                    "{name} does not exist: the API server does not call this webhook"
                ));
            }
            SwitchOutcome::Absent => {
                terminal.note(&format!(
                    "{name} does not exist: apply the manifests again to register it"
                ));
                verdict = Verdict::Negative;
            }
            SwitchOutcome::Refused(why) => {
                terminal.note(&format!("{name} not {verb}d: {}", why.join("; ")));
                verdict = Verdict::Negative;
            }
        }
    }
    Ok(verdict)
}

struct ConfigurationText(String);

impl ReadObject for ConfigurationText {
    fn object(&self) -> &str {
        &self.0
    }
}

async fn switch(
    connection: &Connection,
    arguments: &SwitchArguments,
    kind: HookKind,
    verb: &'static str,
    patch: &dyn Fn(&Value) -> Option<Value>,
) -> Result<SwitchOutcome, Error> {
    let resource = resource_kind(kind).api_resource("v1");
    let target = UpdateTarget {
        connection,
        resource: &resource,
        namespace: None,
        name: CONFIGURATION,
        field_manager: &arguments.field_manager,
        verb,
        mode: match arguments.dry_run {
            None => WriteMode::Store,
            Some(DryRun::Server) => WriteMode::ServerDryRun,
            Some(DryRun::Client) => WriteMode::ClientDryRun,
        },
    };
    let read = async || {
        let text = connection.get_text_in(&resource, None, CONFIGURATION).await;
        text.map(ConfigurationText)
    };
    let decide = |text: &ConfigurationText| -> Result<Change<()>, Error> {
        let configuration: Value = serde_json::from_str(&text.0).map_err(|error| Error::Other {
            action: kcp_client::Action::new("get", &resource).with_name(CONFIGURATION),
            cause: error.to_string(),
        })?;
        Ok(Change {
            write: patch(&configuration).map(ObjectWrite::patch),
            decision: (),
        })
    };
    match update(&target, read, decide).await {
        Ok(Updated { result, .. }) => Ok(match result {
            WriteResult::Stored => SwitchOutcome::Switched,
            WriteResult::NotWritten => SwitchOutcome::Unchanged,
            WriteResult::Rejected(why) | WriteResult::Conflict(why) => SwitchOutcome::Refused(why),
        }),
        Err(Error::NotFound { .. }) => Ok(SwitchOutcome::Absent),
        Err(error) => Err(error),
    }
}
