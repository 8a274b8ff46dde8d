//! `kubectl kcp webhook`: shows whether the API server calls kcp-webhook, and disables or enables the webhook.
//!
//! - [`status`]: reads the registration; [`screen`], [`document`]: its text and JSON
//! - [`switch`]: disables and enables the webhook

mod document;
mod screen;
mod status;
mod switch;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use kcp_control_plane::webhook::WebhookState;

use crate::{session::Session, verdict::Verdict};
use status::StatusArguments;
use switch::{DisableArguments, EnableArguments};

/// Show whether the API server calls kcp-webhook, and disable or enable the webhook
#[derive(Debug, Args)]
pub struct WebhookArguments {
    #[command(subcommand)]
    pub command: WebhookCommand,
}

#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Show whether the API server calls the webhook, and which other webhooks review the same objects
    Status(StatusArguments),
    /// Disable the webhook, so that the API server no longer calls it
    Disable(DisableArguments),
    /// Enable the webhook again
    Enable(EnableArguments),
}

/// The state of the webhook, and when it was read.
pub(in crate::commands) struct WebhookReport {
    state: WebhookState,
    now: Timestamp,
}

impl WebhookReport {
    pub(in crate::commands) const fn new(state: WebhookState, now: Timestamp) -> Self {
        Self { state, now }
    }
}

pub async fn run(arguments: WebhookArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        WebhookCommand::Status(arguments) => status::run(&arguments, session).await,
        WebhookCommand::Disable(arguments) => switch::disable(&arguments, session).await,
        WebhookCommand::Enable(arguments) => switch::enable(&arguments, session).await,
    }
}
