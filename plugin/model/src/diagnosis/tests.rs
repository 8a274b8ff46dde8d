use super::{Diagnosis, diagnose, steps::StepState, without_itself};
use crate::{
    diagnosis::MachineRecords,
    testing::{diagnosis::cases, objects::now},
};

/// The steps that are not done, who acts, and where to look next.
fn summary(name: &str, diagnosis: &Diagnosis) -> String {
    let steps = diagnosis
        .steps
        .iter()
        .filter(|step| step.state != StepState::Done);
    let steps: Vec<String> = steps
        .map(|step| {
            let actor = step
                .actor
                .map_or_else(String::new, |actor| format!(" ({})", actor.name()));
            format!("  {} {}{actor}\n", step.step.as_str(), step.state.as_str())
        })
        .collect();
    let actor = diagnosis
        .actor
        .map_or("nobody", crate::checks::actor::Actor::name);
    let cause = diagnosis.explanation.cause.as_ref().map(|cause| cause.check);
    let cause = cause.map_or_else(String::new, |check| format!(", because of {check}"));
    let next = diagnosis.next_command.as_ref();
    let next = next.map_or_else(String::new, |next| {
        let place = if next.on_host { "on the host: " } else { "" };
        format!("  {place}{}\n", next.command)
    });
    format!(
        "{name}: {:?}, {actor}{cause}\n{}{next}",
        diagnosis.state,
        steps.concat()
    )
}

#[test]
fn the_missing_step_names_who_acts_and_where_to_look() {
    let summaries: Vec<String> = cases()
        .iter()
        .map(|(name, records)| summary(name, &diagnose(records, now())))
        .collect();
    insta::assert_snapshot!(summaries.concat());
}

fn case(name: &str) -> MachineRecords {
    let mut cases = cases().into_iter();
    let (_, records) = cases.find(|(known, _)| *known == name).expect("a case");
    records
}

#[test]
fn the_command_on_the_host_begins_when_the_step_was_due() {
    for (name, command) in [
        (
            "worker_without_node",
            "journalctl -u kubeadm.service -u kubelet.service --since \"2026-08-21 11:55:00 UTC\" --no-pager",
        ),
        (
            "worker_whose_kubelet_is_silent",
            "journalctl -u kubelet --since \"2026-08-21 11:40:00 UTC\" --no-pager",
        ),
        ("kubeadm_runs", "tail -n 100 /var/log/cloud-init-output.log"),
    ] {
        let next = diagnose(&case(name), now()).next_command.expect(name);
        assert_eq!((next.on_host, next.command.as_str()), (true, command), "{name}");
    }
}

#[test]
fn what_could_not_be_read_is_listed_once_and_is_not_well() {
    for (name, unread) in [
        ("healthy", 0),
        ("api_server_unreachable", 1),
        ("no_permission_for_secrets", 1),
        ("worker_of_another_control_plane", 1),
        ("infrastructure_is_gone_and_events_are_denied", 2),
    ] {
        let found = diagnose(&case(name), now());
        assert_eq!(found.unread.len(), unread, "{name}: {:?}", found.unread);
        assert_eq!(found.state == crate::why::WhyState::Unknown, unread > 0, "{name}");
    }
}

#[test]
fn events_of_both_clusters_are_in_the_order_of_time() {
    let mut records = case("infrastructure_fails");
    records.workload_events = crate::snapshot::Reading::Read(vec![crate::rollout_events::ReportedEvent {
        reason: "Starting".to_owned(),
        first_reported: crate::testing::objects::minutes_ago(9),
        last_reported: crate::testing::objects::minutes_ago(9),
        ..crate::rollout_events::ReportedEvent::default()
    }]);
    let entries = diagnose(&records, now()).events;
    let reasons: Vec<&str> = entries
        .iter()
        .filter_map(|entry| entry.what.split_once(": ").map(|(reason, _)| reason))
        .collect();
    assert_eq!(reasons, ["SuccessfulCreate", "Starting", "FailedCreate"]);
}

#[test]
fn a_hint_does_not_lead_back() {
    let itself = "see: kubectl kcp machine diagnose m -n d";
    assert_eq!(without_itself(itself), None);
    assert_eq!(
        without_itself(&format!("{itself}; write it back")).as_deref(),
        Some("write it back")
    );
}
