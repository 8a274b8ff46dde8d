//! The registration of kcp-webhook with the API server: whether the API server calls the webhook, until when the API server
//! trusts the webhook's certificates, and which other webhooks review the same objects.
//!
//! - [`order`]: the other webhooks, and when the API server calls them
//! - [`switch`]: the patches that disable and enable the webhook

pub mod order;
pub mod switch;

use jiff::{SignedDuration, Timestamp};
use kcp_rules::registration::{CANARY_LEASE, Switch};

/// The two kinds of webhook configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    Mutating,
    Validating,
}

impl HookKind {
    pub const ALL: [Self; 2] = [Self::Mutating, Self::Validating];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Mutating => "mutating",
            Self::Validating => "validating",
        }
    }
}

/// One of the two webhook configurations of kcp-webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub kind: HookKind,
    /// `None` if the configuration does not exist, so that the API server never calls the webhook.
    pub registered: Option<Registered>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    pub switch: Switch,
    /// When and why the configuration was switched off.
    pub disabled_note: Option<String>,
    /// When `kcp-webhook manage` switches the configuration on again. `None` if it does not.
    pub disabled_until: Option<Timestamp>,
    pub entries: usize,
    /// The entries whose writes the API server refuses while the webhook does not respond.
    pub fail_closed: usize,
    pub trust: Trust,
}

/// How long the API server trusts the CA certificates of a configuration, or why it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The expiry of the CA certificate that expires last. While a CA is replaced, the caBundle contains the old and the new
    /// certificate.
    Until {
        expires: Timestamp,
        certificates: usize,
    },
    /// An entry has no caBundle, so the API server trusts only the CA certificates of its host.
    NoBundle,
    Unreadable,
    /// The entries have different caBundles.
    Differs,
}

/// The Pods of kcp-webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pods {
    Read {
        ready: usize,
        total: usize,
    },
    /// Why the Pods could not be read.
    Unread(String),
    /// The configurations name no Service, so the namespace of the Pods is unknown.
    Unknown,
}

/// What `kcp-webhook manage` has recorded in its Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Canary {
    /// The registration has no canary: the manager does not manage it.
    Absent,
    Read {
        /// When the webhook last answered a canary, which an API server had sent to it.
        answered: Option<Timestamp>,
        problem: Option<String>,
    },
    /// Why the Lease could not be read.
    Unread(String),
}

/// If the webhook has answered no canary for longer than this, `problems` reports it. The manager sends a canary every ten seconds,
/// so several in succession have then had no answer.
const CANARY_LIMIT: SignedDuration = SignedDuration::from_mins(2);

/// The state of kcp-webhook as the API server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookState {
    pub registrations: [Registration; 2],
    /// The namespace of the Service that the configurations name.
    pub namespace: Option<String>,
    pub pods: Pods,
    pub canary: Canary,
    pub others: Vec<order::OtherWebhook>,
}

impl WebhookState {
    /// Why the webhook does not review all writes, or will soon refuse them; empty if it works as far as can be seen.
    pub fn problems(&self, now: Timestamp) -> Vec<String> {
        let mut problems: Vec<String> = self
            .registrations
            .iter()
            .flat_map(|registration| registration.problems(now))
            .collect();
        match &self.pods {
            Pods::Read { ready: 0, total } if self.is_called() => problems.push(format!(
                "no Pod is ready ({total} exist): the API server refuses writes to control planes"
            )),
            Pods::Read { .. } | Pods::Unread(_) | Pods::Unknown => {}
        }
        problems.extend(self.canary_problem(now));
        problems
    }

    fn canary_problem(&self, now: Timestamp) -> Option<String> {
        let Canary::Read { answered, problem } = &self.canary else {
            return None;
        };
        let is_recent = answered.is_some_and(|answered| now.duration_since(answered) <= CANARY_LIMIT);
        match problem {
            Some(problem) => Some(format!("kcp-webhook manage reports: {problem}")),
            None if is_recent || !self.is_called() => None,
            None => Some(format!(
                "the API server does not reach the webhook, or kcp-webhook manage is not running: the webhook has answered no \
                 update of Lease {CANARY_LEASE} in the last two minutes"
            )),
        }
    }

    /// Whether the API server calls the webhook for any write.
    pub fn is_called(&self) -> bool {
        let registered = self
            .registrations
            .iter()
            .filter_map(|registration| registration.registered.as_ref());
        registered
            .into_iter()
            .any(|registered| matches!(registered.switch, Switch::On | Switch::Partial))
    }
}

impl Registered {
    /// Says that somebody has disabled the configuration, since when, why and until when. `None` if it is enabled.
    pub fn switched_off(&self, kind: HookKind, now: Timestamp) -> Option<String> {
        let title = kind.title();
        match self.switch {
            Switch::On | Switch::Empty => None,
            Switch::Partial => Some(format!(
                "the {title} configuration is disabled in part: disable or enable it again"
            )),
            Switch::Off => {
                let note = self.disabled_note.as_ref();
                let note = note.map_or_else(String::new, |note| format!(" since {note}"));
                let end = match self.disabled_until {
                    Some(until) if until <= now => format!(
                        "; it should have been enabled again at {until}: check kcp-webhook manage, or run: kubectl kcp webhook \
                         enable"
                    ),
                    Some(until) => format!("; kcp-webhook manage enables it again at {until}"),
                    None => String::new(),
                };
                Some(format!("the {title} configuration is disabled{note}{end}"))
            }
        }
    }
}

impl Registration {
    fn problems(&self, now: Timestamp) -> Vec<String> {
        let title = self.kind.title();
        let Some(registered) = &self.registered else {
            return vec![format!(
                "the {title} configuration does not exist: the API server does not call this webhook"
            )];
        };
        let mut problems: Vec<String> = registered.switched_off(self.kind, now).into_iter().collect();
        match (registered.switch, &registered.disabled_note) {
            (Switch::On, Some(note)) => problems.push(format!(
                "the {title} configuration says that it is disabled, but it is not ({note}): disable or enable it again"
            )),
            (Switch::Empty, _) => problems.push(format!("the {title} configuration has no entries")),
            (Switch::On | Switch::Off | Switch::Partial, _) => {}
        }
        let untrusted = match &registered.trust {
            Trust::Until { expires, .. } if *expires <= now => {
                Some(format!("the CA certificate expired at {expires}"))
            }
            Trust::Until { .. } => None,
            Trust::NoBundle => Some("an entry has no caBundle".to_owned()),
            Trust::Unreadable => Some("the caBundle contains no valid certificates".to_owned()),
            Trust::Differs => Some("its entries have different caBundles".to_owned()),
        };
        problems.extend(untrusted.map(|why| format!("the {title} configuration: {why}")));
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-12-01T12:00:00Z".parse().expect("a time")
    }

    fn registered() -> Registered {
        Registered {
            switch: Switch::On,
            disabled_note: None,
            disabled_until: None,
            entries: 8,
            fail_closed: 3,
            trust: Trust::Until {
                expires: "2027-12-01T12:00:00Z".parse().expect("a time"),
                certificates: 1,
            },
        }
    }

    fn state(change: impl FnOnce(&mut WebhookState)) -> WebhookState {
        let registration = |kind| Registration {
            kind,
            registered: Some(registered()),
        };
        let mut state = WebhookState {
            registrations: HookKind::ALL.map(registration),
            namespace: Some("kcp-webhook-system".to_owned()),
            pods: Pods::Read { ready: 2, total: 2 },
            canary: Canary::Absent,
            others: Vec::new(),
        };
        change(&mut state);
        state
    }

    fn canary(answered: &str, problem: Option<&str>) -> Canary {
        Canary::Read {
            answered: Some(answered.parse().expect("a time")),
            problem: problem.map(str::to_owned),
        }
    }

    fn with(change: impl FnOnce(&mut Registered)) -> WebhookState {
        state(|state| {
            if let Some(registered) = &mut state.registrations[1].registered {
                change(registered);
            }
        })
    }

    #[test]
    fn each_problem_is_named() {
        let expired = "2026-12-01T12:00:00Z".parse().expect("a time");
        for (name, state, expected) in [
            ("works", state(|_| {}), &[][..]),
            (
                "pods unread",
                state(|state| state.pods = Pods::Unread("forbidden".to_owned())),
                &[],
            ),
            (
                "one pod",
                state(|state| state.pods = Pods::Read { ready: 1, total: 2 }),
                &[],
            ),
            (
                "no pod",
                state(|state| state.pods = Pods::Read { ready: 0, total: 2 }),
                &["no Pod is ready (2 exist): the API server refuses writes to control planes"],
            ),
            (
                "canary answered",
                state(|state| state.canary = canary("2026-12-01T11:58:00Z", None)),
                &[],
            ),
            (
                "canary unread",
                state(|state| state.canary = Canary::Unread("forbidden".to_owned())),
                &[],
            ),
            (
                "canary unanswered",
                state(|state| state.canary = canary("2026-12-01T11:57:59Z", None)),
                &[
                    "the API server does not reach the webhook, or kcp-webhook manage is not running: the webhook has answered no \
                     update of Lease kcp-webhook-canary in the last two minutes",
                ],
            ),
            (
                "the manager waits",
                state(|state| state.canary = canary("2026-12-01T11:58:00Z", Some("Pod a is old"))),
                &["kcp-webhook manage reports: Pod a is old"],
            ),
            (
                "absent",
                state(|state| state.registrations[0].registered = None),
                &["the mutating configuration does not exist: the API server does not call this webhook"],
            ),
            (
                "disabled",
                with(|registered| {
                    registered.switch = Switch::Off;
                    registered.disabled_note = Some("2026-12-01T11:00:00Z: upgrade".to_owned());
                }),
                &["the validating configuration is disabled since 2026-12-01T11:00:00Z: upgrade"],
            ),
            (
                "disabled for a time",
                with(|registered| {
                    registered.switch = Switch::Off;
                    registered.disabled_until = "2026-12-01T13:00:00Z".parse().ok();
                }),
                &[
                    "the validating configuration is disabled; kcp-webhook manage enables it again at 2026-12-01T13:00:00Z",
                ],
            ),
            (
                "disabled for too long",
                with(|registered| {
                    registered.switch = Switch::Off;
                    registered.disabled_until = Some(now());
                }),
                &[
                    "the validating configuration is disabled; it should have been enabled again at 2026-12-01T12:00:00Z: check \
                     kcp-webhook manage, or run: kubectl kcp webhook enable",
                ],
            ),
            (
                "disabled in part",
                with(|registered| registered.switch = Switch::Partial),
                &["the validating configuration is disabled in part: disable or enable it again"],
            ),
            (
                "expired",
                with(|registered| {
                    registered.trust = Trust::Until {
                        expires: expired,
                        certificates: 1,
                    }
                }),
                &["the validating configuration: the CA certificate expired at 2026-12-01T12:00:00Z"],
            ),
            (
                "no bundle",
                with(|registered| registered.trust = Trust::NoBundle),
                &["the validating configuration: an entry has no caBundle"],
            ),
        ] {
            assert_eq!(state.problems(now()), expected, "{name}");
        }
    }

    #[test]
    fn without_ready_pods_a_webhook_that_is_off_refuses_nothing() {
        let off = state(|state| {
            state.pods = Pods::Read { ready: 0, total: 0 };
            for registration in &mut state.registrations {
                registration.registered = None;
            }
        });
        assert!(!off.is_called());
        assert_eq!(off.problems(now()).len(), 2, "{:?}", off.problems(now()));
    }
}
