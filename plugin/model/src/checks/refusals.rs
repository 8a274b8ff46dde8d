//! Checks whether the API server accepts what the control plane controller writes.

use jiff::Timestamp;

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckOutcome, CheckResult, Finding, NoResult, require},
        rollout::has_pending_change,
    },
    snapshot::{Reading, Snapshot},
    staleness::{OBSERVATION_LIMIT, refused_write::RefusedWrite},
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

pub fn check_write_refused(observed: &Snapshot, now: Timestamp) -> CheckResult {
    if !has_pending_change(observed, now) {
        return Ok(Vec::new());
    }
    if matches!(observed.failed_writes, Reading::NotYet) {
        return Err(NoResult::skipped("the Events of the control plane were not read"));
    }
    require(&observed.failed_writes, "the Events of the control plane")?;
    let finding = RefusedWrite::find(observed, now).map(|write| {
        let outcome = if write.needs_person(now) {
            CheckOutcome::Fail
        } else {
            CheckOutcome::Info
        };
        Finding::new(outcome, observed.object_name(), write.message())
            .with_hint(write.hint(observed))
            .with_since(Some(write.since))
    });
    Ok(finding.into_iter().collect())
}

/// Returns admission if it refuses the write until a person acts, and otherwise the controller, which retries the write.
fn who_refuses(observed: &Snapshot, _: &Finding, now: Timestamp) -> Actor {
    let write = RefusedWrite::find(observed, now);
    if write.is_some_and(|write| write.is_refused_by_admission() && write.needs_person(now)) {
        Actor::Admission
    } else {
        Actor::ControlPlaneController
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
        (
            "write-refused",
            "by_a_webhook_that_has_not_responded_for_a_moment",
            |o| {
                let error = "failed calling webhook \"m.example.com\": connection refused";
                fails(o, true, error);
                let Reading::Read(writes) = &mut o.failed_writes else {
                    panic!("they were read");
                };
                writes[0].first_reported = minutes_ago(2);
            },
        ),
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
