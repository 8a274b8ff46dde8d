//! Checks whether the API server accepts what the control plane controller writes. The controller repeats a write that fails,
//! and reports it only in an Event (`scaleUpControlPlane`, `scaleDownControlPlane` in Cluster API v1.14).

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckResult, Finding, NoResult, require},
        rollout::has_pending_change,
    },
    snapshot::{FailedWrite, Reading, Snapshot},
    staleness::{OBSERVATION_LIMIT, age},
};

pub const CHECKS: &[Check] = &[Check::new(
    "write-refused",
    "The controller tries to create or delete a Machine, but the write fails.",
    check_write_refused,
    Responsible::StepBy(who_refuses),
)
.usually_within(OBSERVATION_LIMIT)
.effect_of(&[&["infrastructure-template-missing"]])
.blocking()];

/// How long after its last Event a write may still be failing. The controller tries again within 17 minutes
/// (controller-runtime's maximum delay is 1000 s).
const RETRY_LIMIT: Duration = Duration::from_secs(20 * 60);

const LIST_WEBHOOKS: &str = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations";

/// A part of admission that refused a write, and its reason.
#[derive(Debug, PartialEq, Eq)]
enum Refusal<'m> {
    Webhook { name: &'m str, why: &'m str },
    UnansweredWebhook { name: &'m str, why: &'m str },
    Policy { name: &'m str, why: &'m str },
}

impl<'m> Refusal<'m> {
    /// Finds the API server's message in the message of an Event. The formats are those of `statuserror.go`
    /// and `pkg/util/webhook/error.go` of k8s.io/apiserver, and `plugin/policy/validating/dispatcher.go`.
    fn parse(message: &'m str) -> Option<Self> {
        let quoted = |before: &str, quote: char, between: &str| {
            let (_, rest) = message.split_once(before)?;
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

/// The kind of write that failed last, and since when the controller has repeated it.
struct Failing<'o> {
    latest: &'o FailedWrite,
    since: Timestamp,
}

/// None if a Machine has been created or deleted since the last failure, or if the controller has not tried
/// again.
fn failing(observed: &Snapshot, now: Timestamp) -> Option<Failing<'_>> {
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
    // An Event can count failures from before the last success.
    let since = succeeded.map_or(first, |succeeded| first.max(succeeded));
    Some(Failing { latest, since })
}

pub fn check_write_refused(observed: &Snapshot, now: Timestamp) -> CheckResult {
    if !has_pending_change(observed, now) {
        return Ok(Vec::new());
    }
    if matches!(observed.failed_writes, Reading::NotYet) {
        return Err(NoResult::skipped("the Events of the control plane were not read"));
    }
    require(&observed.failed_writes, "the Events of the control plane")?;
    let Some(Failing { latest, since }) = failing(observed, now) else {
        return Ok(Vec::new());
    };
    // After each error, the controller waits longer before it tries again. Nothing tells it that the cause is gone.
    let retry = format!(
        "then end the controller's wait, which takes up to ten minutes: {}",
        observed.reconcile_command()
    );
    let action = if latest.is_deletion { "delete" } else { "create" };
    let object = observed.object_name();
    let because = |why: &str| match why {
        "" => String::new(),
        why => format!(": {why}"),
    };
    let finding = match Refusal::parse(&latest.message) {
        Some(Refusal::Webhook { name, why }) => Finding::fail(
            object,
            format!(
                "webhook {name} does not let the controller {action} a Machine{}",
                because(why)
            ),
        )
        .with_hint(format!(
            "change the webhook, or change the control plane so that its Machines comply; {retry}; list the webhooks with: \
             {LIST_WEBHOOKS}"
        )),
        Some(Refusal::UnansweredWebhook { name, why }) => Finding::fail(
            object,
            format!(
                "the controller cannot {action} a Machine, because webhook {name} does not respond{}",
                because(why)
            ),
        )
        .with_hint(format!(
            "start the webhook, or remove its configuration; {retry}; list the webhooks with: {LIST_WEBHOOKS}"
        )),
        Some(Refusal::Policy { name, why }) => Finding::fail(
            object,
            format!(
                "ValidatingAdmissionPolicy {name} does not let the controller {action} a Machine{}",
                because(why)
            ),
        )
        .with_hint(format!(
            "change the policy, or change the control plane so that its Machines comply; {retry}; see the policy with: \
             kubectl get validatingadmissionpolicy {name} -o yaml"
        )),
        None => {
            let message = format!("the controller cannot {action} a Machine: {}", latest.message);
            let finding = if age(since, now) > OBSERVATION_LIMIT {
                Finding::fail(object, message)
            } else {
                Finding::info(object, message)
            };
            finding.with_hint(format!(
                "see the Events: kubectl describe kcp {} -n {}",
                observed.control_plane.name(),
                observed.control_plane.namespace()
            ))
        }
    };
    Ok(vec![finding.with_since(Some(since))])
}

/// Admission, if it refused the write. Otherwise the controller, which retries the write.
fn who_refuses(observed: &Snapshot, _: &Finding, now: Timestamp) -> Actor {
    let failing = failing(observed, now);
    match failing.and_then(|failing| Refusal::parse(&failing.latest.message)) {
        Some(_) => Actor::Admission,
        None => Actor::ControlPlaneController,
    }
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::metadata::Time;

    use crate::{
        checks::tests::Case,
        snapshot::{FailedWrite, Reading, Snapshot},
        testing::{objects::minutes_ago, snapshot::failure},
    };

    fn fails(observed: &mut Snapshot, is_deletion: bool, error: &str) {
        observed.control_plane().spec.replicas = Some(5);
        let what = if is_deletion {
            "delete"
        } else {
            "create additional"
        };
        observed.failed_writes = Reading::Read(vec![FailedWrite {
            is_deletion,
            message: format!("Failed to {what} control plane Machine for cluster d/c1: {error}"),
            first_reported: minutes_ago(5),
            last_reported: minutes_ago(1),
        }]);
    }

    const DENIED: &str = "failed to create Machine: admission webhook \"machines.example.com\" denied the request: no Machine today";

    pub(crate) const CASES: &[Case] = &[
        ("write-refused", "by_a_webhook", |o| fails(o, false, DENIED)),
        ("write-refused", "by_a_webhook_without_a_reason", |o| {
            fails(o, true, "admission webhook \"m.example.com\" denied the request");
        }),
        ("write-refused", "by_a_webhook_that_does_not_respond", |o| {
            fails(
                o,
                true,
                "Internal error occurred: failed calling webhook \"m.example.com\": failed to call webhook: Post \
                 \"https://m.example.com:443/\": connection refused",
            );
        }),
        ("write-refused", "by_a_policy", |o| {
            fails(
                o,
                false,
                "machines.cluster.x-k8s.io \"m4\" is forbidden: ValidatingAdmissionPolicy 'freeze' with binding 'freeze' denied \
                 request: no Machine today",
            );
        }),
        ("write-refused", "by_something_else_for_long", |o| {
            fails(o, false, "exceeded quota");
        }),
        ("write-refused", "by_something_else_just_now", |o| {
            fails(o, false, "connection refused");
            let Reading::Read(writes) = &mut o.failed_writes else {
                panic!("they were read");
            };
            writes[0].first_reported = minutes_ago(2);
        }),
        ("write-refused", "before_a_machine_was_created", |o| {
            fails(o, false, DENIED);
            o.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(0)));
        }),
        ("write-refused", "since_the_last_success", |o| {
            fails(o, false, DENIED);
            o.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(2)));
        }),
        ("write-refused", "long_ago", |o| {
            fails(o, false, DENIED);
            let Reading::Read(writes) = &mut o.failed_writes else {
                panic!("they were read");
            };
            writes[0].last_reported = minutes_ago(21);
        }),
        ("write-refused", "without_a_change", |o| {
            fails(o, false, DENIED);
            o.control_plane().spec.replicas = Some(3);
        }),
        ("write-refused", "events_not_read", |o| {
            fails(o, false, DENIED);
            o.failed_writes = Reading::Failed(failure("Event", "no answer within 2s"));
        }),
    ];
}
