//! A write of a Machine that the control plane controller repeats because it fails. The controller reports the error only in an
//! Event (`scaleUpControlPlane`, `scaleDownControlPlane` in Cluster API v1.14).

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::{
    problem::Problem,
    snapshot::{FailedWrite, Snapshot},
    staleness::{OBSERVATION_LIMIT, StuckProblem, age},
};

/// How long after its last Event a write may still be failing. The controller tries again within ten minutes
/// (controller-runtime's maximum delay is 1000 s).
const RETRY_LIMIT: Duration = Duration::from_secs(20 * 60);

const LIST_WEBHOOKS: &str =
    "list the webhooks with: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations";

/// A write that still fails.
#[derive(Debug, PartialEq, Eq)]
pub struct RefusedWrite<'o> {
    latest: &'o FailedWrite,
    /// The part of admission that refuses the write. `None` if something else fails, such as a quota or the connection.
    refusal: Option<AdmissionRefusal<'o>>,
    pub since: Timestamp,
}

/// A part of admission that refused a write, and its reason.
#[derive(Debug, PartialEq, Eq)]
enum AdmissionRefusal<'m> {
    Webhook { name: &'m str, why: &'m str },
    UnansweredWebhook { name: &'m str, why: &'m str },
    Policy { name: &'m str, why: &'m str },
}

impl<'m> AdmissionRefusal<'m> {
    /// Finds the API server's message in the message of an Event. The formats are those of `statuserror.go`
    /// and `pkg/util/webhook/error.go` of k8s.io/apiserver, and `plugin/policy/validating/dispatcher.go`.
    fn parse(message: &'m str) -> Option<Self> {
        let quoted = |start: &str, quote: char, between: &str| {
            let (_, rest) = message.split_once(start)?;
            let (name, rest) = rest.split_once(quote)?;
            let (_, why) = rest.split_once(between)?;
            Some((name, why.trim_start_matches(':').trim()))
        };
        let denied = quoted("admission webhook \"", '"', "denied the request");
        let unanswered = || quoted("failed calling webhook \"", '"', ":");
        let policy = || quoted("ValidatingAdmissionPolicy '", '\'', "denied request");
        denied
            .map(|(name, why)| Self::Webhook { name, why })
            .or_else(|| unanswered().map(|(name, why)| Self::UnansweredWebhook { name, why }))
            .or_else(|| policy().map(|(name, why)| Self::Policy { name, why }))
    }
}

impl<'o> RefusedWrite<'o> {
    /// The kind of write that failed last, and since when the controller has repeated it. `None` if a Machine has been created
    /// or deleted since the last failure, if the controller has not tried again, or if the Events were not read.
    pub fn find(observed: &'o Snapshot, now: Timestamp) -> Option<Self> {
        let machines = observed.machines.iter();
        let succeeded = machines
            .flat_map(|machine| [machine.creation_timestamp(), machine.deletion_timestamp()])
            .flatten()
            .max();
        let is_failing = |write: &&FailedWrite| {
            succeeded.is_none_or(|succeeded| write.last_reported > succeeded)
                && age(write.last_reported, now) <= RETRY_LIMIT
        };
        let writes = || {
            observed
                .failed_writes
                .value()
                .into_iter()
                .flatten()
                .filter(is_failing)
        };
        let latest = writes().max_by_key(|write| write.last_reported)?;
        let same = writes().filter(|write| write.is_deletion == latest.is_deletion);
        let first = same.map(|write| write.first_reported).min()?;
        Some(Self {
            latest,
            refusal: AdmissionRefusal::parse(&latest.message),
            // An Event can count failures from before the last success.
            since: succeeded.map_or(first, |succeeded| first.max(succeeded)),
        })
    }

    pub const fn is_refused_by_admission(&self) -> bool {
        self.refusal.is_some()
    }

    const fn is_denied(&self) -> bool {
        matches!(
            self.refusal,
            Some(AdmissionRefusal::Webhook { .. } | AdmissionRefusal::Policy { .. })
        )
    }

    /// Whether only a person can make the write succeed. A webhook that does not respond may be restarting.
    pub fn needs_person(&self, now: Timestamp) -> bool {
        self.is_denied() || age(self.since, now) > OBSERVATION_LIMIT
    }

    pub fn message(&self) -> String {
        let action = if self.latest.is_deletion {
            "delete"
        } else {
            "create"
        };
        let because = |why: &str| match why {
            "" => String::new(),
            why => format!(": {why}"),
        };
        match &self.refusal {
            Some(AdmissionRefusal::Webhook { name, why }) => format!(
                "webhook {name} does not let the controller {action} a Machine{}",
                because(why)
            ),
            Some(AdmissionRefusal::UnansweredWebhook { name, why }) => format!(
                "the controller cannot {action} a Machine, because webhook {name} does not respond{}",
                because(why)
            ),
            Some(AdmissionRefusal::Policy { name, why }) => format!(
                "ValidatingAdmissionPolicy {name} does not let the controller {action} a Machine{}",
                because(why)
            ),
            None => format!(
                "the controller cannot {action} a Machine: {}",
                self.latest.message
            ),
        }
    }

    pub fn hint(&self, observed: &Snapshot) -> String {
        // After each error, the controller waits longer before it tries again. Nothing tells it that the cause is gone.
        let retry = format!(
            "then let the controller try again, which it otherwise does within ten minutes: {}",
            observed.reconcile_command()
        );
        match &self.refusal {
            Some(AdmissionRefusal::Webhook { .. }) => format!(
                "change the webhook, or change the control plane so that its Machines comply; {retry}; {LIST_WEBHOOKS}"
            ),
            Some(AdmissionRefusal::UnansweredWebhook { .. }) => {
                format!("start the webhook, or remove its configuration; {retry}; {LIST_WEBHOOKS}")
            }
            Some(AdmissionRefusal::Policy { name, .. }) => format!(
                "change the policy, or change the control plane so that its Machines comply; {retry}; see the policy with: \
                 kubectl get validatingadmissionpolicy {name} -o yaml"
            ),
            None => format!(
                "see the Events: kubectl describe kcp {} -n {}",
                observed.control_plane.name(),
                observed.control_plane.namespace()
            ),
        }
    }

    /// The blocker of the change, if only a person can make the write succeed.
    pub fn blocker(observed: &'o Snapshot, now: Timestamp) -> Option<StuckProblem> {
        let write = Self::find(observed, now).filter(|write| write.needs_person(now))?;
        Some(StuckProblem {
            blocker: Problem::WriteRefused {
                message: write.message(),
                remedy: write.hint(observed),
            },
            since: write.since,
        })
    }
}
