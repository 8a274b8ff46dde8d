use kcp_api::Object as _;
use kcp_control_plane::{
    diagnosis::{MachineRecords, diagnose},
    rollout_events::ReportedEvent,
    snapshot::Reading,
    testing::{
        diagnosis::cases,
        objects::{minutes_ago, now},
    },
};

use super::{DiagnosisReport, MachineDiagnosis};
use crate::{
    document::ObjectName,
    output::Report as _,
    terminal::{plain, table::Layout},
    testing::{assert_every_format, schema},
};

fn with_report<T>(records: &MachineRecords, use_it: impl FnOnce(&DiagnosisReport<'_>) -> T) -> T {
    use_it(&DiagnosisReport {
        machine: ObjectName {
            name: records.machine.name().to_owned(),
            namespace: "d".to_owned(),
        },
        observed: records.control_plane.value().map(AsRef::as_ref),
        diagnosis: &diagnose(records, now()),
        now: now(),
    })
}

fn screen(records: &MachineRecords, layout: Layout) -> String {
    with_report(records, |report| plain(&report.table(layout)))
}

#[test]
fn the_screen_of_each_case() {
    let layout = Layout {
        width: Some(100),
        ..Layout::default()
    };
    for (name, records) in cases() {
        insta::assert_snapshot!(name, screen(&records, layout));
    }
}

#[test]
fn the_page_of_the_book_shows_a_screen() {
    let page = include_str!("../../../../../docs/src/commands/machine.md");
    let mut cases = cases().into_iter();
    let is_shown = |(name, _): &(&str, MachineRecords)| *name == "api_server_crashes_without_a_message";
    let (_, records) = cases.find(is_shown).unwrap();
    let layout = Layout {
        width: Some(80),
        ..Layout::default()
    };
    let screen = screen(&records, layout);
    assert!(
        page.contains(&format!("$ kubectl kcp machine diagnose m3\n{screen}```\n")),
        "{screen}"
    );
}

#[test]
fn a_wide_screen_shows_all_conditions_and_events() {
    let (_, mut records) = cases().swap_remove(0);
    let event = |minutes| ReportedEvent {
        reason: format!("Event{minutes}"),
        first_reported: minutes_ago(minutes),
        last_reported: minutes_ago(minutes),
        ..ReportedEvent::default()
    };
    records.events = Reading::Read((1..=25).map(event).collect());
    let wide = screen(
        &records,
        Layout {
            is_wide: true,
            ..Layout::default()
        },
    );
    let narrow = screen(&records, Layout::default());
    assert!(wide.contains("EtcdMemberHealthy") && !narrow.contains("EtcdMemberHealthy"));
    assert!(
        wide.contains("Event25") && !narrow.contains("Event25"),
        "{narrow}"
    );
    assert!(narrow.contains("Event20") && narrow.contains("5 earlier Events are shown with -o wide"));
}

#[test]
fn the_schema_is_checked_in() {
    schema::checked_in::<MachineDiagnosis<'_>>("machinediagnosis.json");
    for (_, records) in cases() {
        with_report(&records, |report| {
            schema::conforms(&report.content());
            assert_every_format(report);
        });
    }
}
