use kcp_control_plane::{
    inspection::inspect,
    snapshot::Snapshot,
    testing::objects::{minutes_ago, now, pause},
    why::explain,
};

use super::{WhyReport, document::ExplanationDocument, screen::render};
use crate::{
    commands::status::screen::example::{healthy, member_dead},
    terminal::{plain, table::Layout},
    testing::{assert_every_format, schema},
};

fn with_report<T>(observed: &Snapshot, use_it: impl FnOnce(&WhyReport<'_>) -> T) -> T {
    let inspection = inspect(observed, now());
    let explanation = explain(observed, &inspection, now());
    let is_scaled = observed.control_plane.spec.replicas == Some(5);
    use_it(&WhyReport {
        observed,
        basis: inspection.basis,
        explanation: &explanation,
        webhook_off: is_scaled
            .then_some("the mutating configuration is disabled since 2026-12-01T11:00:00Z: upgrade"),
        now: now(),
    })
}

fn scaled() -> Snapshot {
    let mut observed = healthy().observed;
    observed.control_plane.spec.replicas = Some(5);
    observed
}

fn paused() -> Snapshot {
    let mut observed = healthy().observed;
    pause(&mut observed.control_plane.metadata);
    observed
}

fn unprocessed(minutes: i64) -> Snapshot {
    let mut observed = healthy().observed;
    let control_plane = &mut observed.control_plane;
    control_plane.metadata.generation = Some(7);
    control_plane.status.observed_generation = Some(6);
    kcp_control_plane::testing::objects::change_spec(&mut control_plane.metadata, minutes_ago(minutes));
    observed
}

fn examples() -> Vec<(&'static str, Snapshot)> {
    vec![
        ("healthy", healthy().observed),
        ("a dead member", member_dead().observed),
        ("scaled", scaled()),
        ("paused", paused()),
        ("unprocessed", unprocessed(1)),
        ("stopped", unprocessed(5)),
    ]
}

#[test]
fn the_screen_of_each_state() {
    let layout = Layout {
        width: Some(100),
        ..Layout::default()
    };
    let screens: Vec<String> = examples()
        .iter()
        .map(|(name, observed)| {
            let text = with_report(observed, |report| render(report, layout));
            format!("# {name}\n{}", plain(&text))
        })
        .collect();
    insta::assert_snapshot!(screens.join("\n"));
}

#[test]
fn every_format_is_printed() {
    for (_, observed) in examples() {
        with_report(&observed, |report| assert_every_format(report));
    }
}

#[test]
fn the_schema_is_checked_in() {
    schema::checked_in::<ExplanationDocument<'_>>("controlplaneexplanation.json");
    for (_, observed) in examples() {
        with_report(&observed, |report| {
            schema::conforms(&ExplanationDocument::new(report));
        });
    }
}
