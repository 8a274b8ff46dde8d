//! `kubectl kcp webhook status`.

use std::time::{Duration, Instant};

use clap::Args;
use kcp_client::reads::{
    self,
    webhook::{read_webhook, resource_kind},
};
use kcp_rules::registration::CONFIGURATION;
use serde::Serialize;

use super::{WebhookReport, document::WebhookStatusDocument, screen};
use crate::{
    arguments::parse_timeout,
    document::{Versioned, resource_name},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};

#[derive(Debug, Args)]
#[command(
    after_help = "The exit code is 1 if a configuration does not exist or is disabled, if the API server does not trust a \
        certificate of the webhook, or if no Pod of the webhook is ready.

Examples:
  kubectl kcp webhook status
  kubectl kcp webhook status -o json"
)]
pub struct StatusArguments {
    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for reading, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

pub(super) async fn run(arguments: &StatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    let limit = reads::list_limit(end.saturating_duration_since(Instant::now()));
    let state = read_webhook(&connection, limit).await?;
    let report = WebhookReport::new(state, connection.now());
    print(&report, &arguments.output, &session.terminal)?;
    Ok(report.verdict())
}

impl WebhookReport {
    fn verdict(&self) -> Verdict {
        if self.state.problems(self.now).is_empty() {
            Verdict::Met
        } else {
            Verdict::Negative
        }
    }
}

impl Report for WebhookReport {
    fn table(&self, layout: Layout) -> String {
        screen::render(self, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(WebhookStatusDocument::new(self))
    }

    fn names(&self) -> Vec<String> {
        let registered = self
            .state
            .registrations
            .iter()
            .filter(|registration| registration.registered.is_some());
        registered
            .map(|registration| resource_name(resource_kind(registration.kind), CONFIGURATION))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kcp_control_plane::webhook::{
        Canary, HookKind, Pods, Registered, Registration, Trust, WebhookState,
        order::{OtherWebhook, Turn},
    };
    use kcp_rules::registration::Switch;

    use super::*;
    use crate::{
        terminal::plain,
        testing::{assert_every_format, schema},
    };

    fn now() -> Timestamp {
        "2026-12-01T12:00:00Z".parse().unwrap()
    }

    fn registration(kind: HookKind, entries: usize, fail_closed: usize) -> Registration {
        Registration {
            kind,
            registered: Some(Registered {
                switch: Switch::On,
                disabled_note: None,
                disabled_until: None,
                entries,
                fail_closed,
                trust: Trust::Until {
                    expires: "2027-12-01T12:00:00Z".parse().unwrap(),
                    certificates: 1,
                },
            }),
        }
    }

    fn other(kind: HookKind, configuration: &str, turn: Turn) -> OtherWebhook {
        OtherWebhook {
            kind,
            configuration: configuration.to_owned(),
            name: format!("{}.kubeadmcontrolplane.example", kind.title()),
            resources: vec![
                "kubeadmcontrolplanes".to_owned(),
                "kubeadmcontrolplanes/scale".to_owned(),
            ],
            turn,
            fails_closed: turn != Turn::Before,
            timeout_seconds: Some(10),
            is_selective: turn == Turn::Before,
        }
    }

    fn report(change: impl FnOnce(&mut WebhookState)) -> WebhookReport {
        let mut state = WebhookState {
            registrations: [
                registration(HookKind::Mutating, 6, 1),
                registration(HookKind::Validating, 8, 3),
            ],
            namespace: Some("kcp-webhook-system".to_owned()),
            pods: Pods::Read { ready: 2, total: 2 },
            canary: Canary::Read {
                answered: "2026-12-01T11:59:55Z".parse().ok(),
                problem: None,
            },
            others: vec![
                other(HookKind::Mutating, "a-policy", Turn::Before),
                other(
                    HookKind::Mutating,
                    "capi-kubeadm-control-plane-mutating-webhook-configuration",
                    Turn::After,
                ),
                other(
                    HookKind::Validating,
                    "capi-kubeadm-control-plane-validating-webhook-configuration",
                    Turn::SameTime,
                ),
            ],
        };
        change(&mut state);
        WebhookReport { state, now: now() }
    }

    fn broken() -> WebhookReport {
        report(|state| {
            let [mutating, validating] = &mut state.registrations;
            mutating.registered = None;
            if let Some(registered) = &mut validating.registered {
                registered.switch = Switch::Off;
                registered.disabled_note = Some("2026-12-01T11:00:00Z: upgrade of Cluster API".to_owned());
                registered.trust = Trust::Differs;
            }
            state.pods =
                Pods::Unread("cannot list pods in namespace \"kcp-webhook-system\": forbidden".to_owned());
            state.canary = Canary::Unread("forbidden".to_owned());
            state.others.clear();
        })
    }

    #[test]
    fn the_screen_shows_the_registration_and_the_other_webhooks() {
        let layout = Layout {
            width: Some(110),
            ..Layout::default()
        };
        for (name, report, expected) in [
            ("works", report(|_| {}), Verdict::Met),
            ("broken", broken(), Verdict::Negative),
        ] {
            insta::assert_snapshot!(name, plain(&report.table(layout)));
            assert_eq!(report.verdict(), expected, "{name}");
        }
    }

    #[test]
    fn the_document_matches_its_schema() {
        for report in [report(|_| {}), broken()] {
            schema::conforms(&WebhookStatusDocument::new(&report));
            assert_every_format(&report);
        }
        schema::checked_in::<WebhookStatusDocument<'_>>("webhookstatus.json");
    }
}
