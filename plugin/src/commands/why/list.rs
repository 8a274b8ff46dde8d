//! Explains several control planes: one sentence for each that is not well. The others are counted.

use std::{cmp::Reverse, fmt::Write as _};

use jiff::Timestamp;
use kcp_api::{Object as _, kind::KUBEADM_CONTROL_PLANE};
use kcp_control_plane::{
    audit::evidence::some_of,
    inspection::{Basis, Inspection},
    snapshot::Snapshot,
    why::{Explanation, WhyState, explain},
};
use owo_colors::OwoColorize as _;
use serde::Serialize;

use super::{
    WhyReport,
    document::ExplanationDocument,
    screen::{rules_off, sentence},
};
use crate::{
    commands::status::screen::{is_by_conditions, state_style},
    document::{Document, Versioned, resource_name},
    fleet::no_control_planes,
    output::Report,
    terminal::{style::GOOD, table::Layout},
    verdict::Verdict,
};

/// The maximum number of names in one line, unless the output is wide.
const MAX_NAMES: usize = 5;

/// The answer for one control plane.
pub(super) struct Answer {
    observed: Snapshot,
    basis: Basis,
    explanation: Explanation,
}

/// What `why` prints about several control planes.
pub(super) struct WhyListReport {
    /// `None` for all namespaces.
    pub(super) namespace: Option<String>,
    pub(super) answers: Vec<Answer>,
    /// A text that says that kcp-webhook is disabled, as in [`WhyReport`].
    pub(super) webhook_off: Option<String>,
    pub(super) now: Timestamp,
}

/// Why nothing happens on several control planes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ExplanationDocumentList<'w> {
    /// The control planes that are well, too.
    items: Vec<Versioned<ExplanationDocument<'w>>>,
}

impl Document for ExplanationDocumentList<'_> {
    const KIND: &'static str = "ControlPlaneExplanationList";
}

impl Answer {
    pub(super) fn new(observed: Snapshot, inspection: &Inspection, now: Timestamp) -> Self {
        Self {
            explanation: explain(&observed, inspection, now),
            basis: inspection.basis,
            observed,
        }
    }

    /// Whether etcd was not queried, so that an answer without a problem is not verified.
    const fn is_unverified(&self) -> bool {
        is_by_conditions(&self.observed)
    }
}

impl WhyListReport {
    pub(super) fn verdict(&self) -> Verdict {
        let states = self.answers.iter().map(|answer| answer.explanation.state);
        Verdict::worst(states.map(Verdict::from))
    }

    /// The control planes that are not well. Those for which a person must act come first.
    fn not_well(&self) -> Vec<&Answer> {
        let mut answers: Vec<&Answer> = self
            .answers
            .iter()
            .filter(|answer| !answer.explanation.is_well())
            .collect();
        answers.sort_by_key(|answer| {
            let state = answer.explanation.state;
            Reverse((state == WhyState::PersonNeeded, state == WhyState::Unknown))
        });
        answers
    }

    fn one<'a>(&'a self, answer: &'a Answer) -> WhyReport<'a> {
        WhyReport {
            observed: &answer.observed,
            basis: answer.basis,
            explanation: &answer.explanation,
            webhook_off: self.webhook_off.as_deref(),
            now: self.now,
        }
    }

    fn name(&self, answer: &Answer) -> String {
        let control_plane = &answer.observed.control_plane;
        match self.namespace {
            Some(_) => control_plane.name().to_owned(),
            None => format!("{}/{}", control_plane.namespace(), control_plane.name()),
        }
    }

    /// The names of some control planes, each as `name` returns it.
    fn some_names(&self, layout: Layout, name: impl Fn(&Answer) -> Option<String>) -> Option<String> {
        let names: Vec<String> = self.answers.iter().filter_map(name).collect();
        let shown = if layout.is_wide { names.len() } else { MAX_NAMES };
        (!names.is_empty()).then(|| some_of(names.iter().map(String::as_str), shown))
    }
}

impl Report for WhyListReport {
    fn table(&self, layout: Layout) -> String {
        if self.answers.is_empty() {
            return no_control_planes(self.namespace.as_deref());
        }
        let not_well = self.not_well();
        let unverified = self.some_names(layout, |answer| answer.is_unverified().then(|| self.name(answer)));
        let all = self.answers.len();
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = match (not_well.len(), all, &unverified) {
            (0, 1, None) => writeln!(text, "{}", "the only control plane is well".style(GOOD)),
            (0, all, None) => writeln!(
                text,
                "{}",
                format!("all {all} control planes are well").style(GOOD)
            ),
            (0, all, Some(_)) => writeln!(text, "no known problems in {all} control planes"),
            (bad, all, _) => writeln!(text, "not well: {bad} of {all} control planes"),
        };
        for answer in &not_well {
            let line = format!("{}: {}", self.name(answer), sentence(&self.one(answer)));
            let style = state_style(answer.explanation.state);
            for (index, line) in layout.wrap_lines(&line, 2).iter().enumerate() {
                let indent = if index == 0 { "" } else { "  " };
                let _ = writeln!(text, "{indent}{}", line.style(style));
            }
        }
        let mut remark = |remark: &str| {
            for line in layout.wrap_lines(remark, 0) {
                let _ = writeln!(text, "{line}");
            }
        };
        let warning = |answer: &Answer| {
            let explanation = Some(&answer.explanation).filter(|explanation| explanation.is_well())?;
            let cause = explanation.cause.as_ref()?;
            Some(format!("{} ({})", self.name(answer), cause.check))
        };
        if let Some(names) = self.some_names(layout, warning) {
            remark(&format!("with a warning: {names}"));
        }
        if let Some(names) = unverified {
            remark(&format!(
                "based only on conditions, because etcd was not queried: {names}; to query etcd, use --deep"
            ));
        }
        if let Some(off) = &self.webhook_off {
            remark(&rules_off(off));
        }
        if !not_well.is_empty() {
            remark("since when, and what to do: kubectl kcp why NAME -n NAMESPACE");
        }
        text
    }

    fn document(&self) -> impl Serialize {
        Versioned(ExplanationDocumentList {
            items: self
                .answers
                .iter()
                .map(|answer| Versioned(ExplanationDocument::new(&self.one(answer))))
                .collect(),
        })
    }

    /// The control planes that are not well.
    fn names(&self) -> Vec<String> {
        self.not_well()
            .into_iter()
            .map(|answer| resource_name(&KUBEADM_CONTROL_PLANE, answer.observed.control_plane.name()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use kcp_control_plane::{
        inspection::inspect,
        snapshot::{Reading, Snapshot},
        testing::{
            objects::{change_spec, minutes_ago, now, pause},
            snapshot::failure,
        },
    };

    use super::{Answer, ExplanationDocumentList, WhyListReport};
    use crate::{
        commands::status::screen::example::{healthy, member_dead},
        output::Report as _,
        terminal::{plain, table::Layout},
        testing::{assert_every_format, schema},
        verdict::Verdict,
    };

    fn placed(namespace: &str, mut observed: Snapshot) -> Snapshot {
        observed.control_plane.metadata.namespace = Some(namespace.to_owned());
        observed
    }

    fn unverified(mut observed: Snapshot) -> Snapshot {
        observed.etcd = Reading::Excluded { flag: "--no-etcd" };
        observed
    }

    fn paused(mut observed: Snapshot) -> Snapshot {
        pause(&mut observed.control_plane.metadata);
        observed
    }

    fn scaled(mut observed: Snapshot) -> Snapshot {
        observed.control_plane.spec.replicas = Some(5);
        change_spec(&mut observed.control_plane.metadata, minutes_ago(1));
        observed
    }

    fn unread(mut observed: Snapshot) -> Snapshot {
        observed
            .failed_reads
            .push(failure("Machine", "no answer within 2s"));
        observed
    }

    fn report(namespace: Option<&str>, observed: Vec<Snapshot>) -> WhyListReport {
        WhyListReport {
            namespace: namespace.map(str::to_owned),
            answers: observed
                .into_iter()
                .map(|observed| {
                    let inspection = inspect(&observed, now());
                    Answer::new(observed, &inspection, now())
                })
                .collect(),
            webhook_off: None,
            now: now(),
        }
    }

    fn every_state() -> WhyListReport {
        WhyListReport {
            webhook_off: Some(
                "the mutating configuration is disabled since 2026-12-01T11:00:00Z: upgrade".to_owned(),
            ),
            ..report(
                None,
                vec![
                    placed("well", healthy().observed),
                    placed("paused", paused(healthy().observed)),
                    placed("grows", scaled(healthy().observed)),
                    placed("hangs", unread(healthy().observed)),
                    placed("by-conditions", unverified(healthy().observed)),
                    placed("broken", member_dead().observed),
                ],
            )
        }
    }

    #[test]
    fn the_screen_of_several_control_planes() {
        let layout = Layout {
            width: Some(100),
            ..Layout::default()
        };
        let two = || vec![placed("a", healthy().observed), placed("b", healthy().observed)];
        let screens = [
            ("none", report(Some("d"), vec![])),
            ("one is well", report(Some("d"), vec![healthy().observed])),
            ("all are well", report(Some("d"), two())),
            (
                "all are well by conditions",
                report(None, two().into_iter().map(unverified).collect()),
            ),
            ("every state", every_state()),
        ]
        .map(|(name, report)| format!("# {name}\n{}", plain(&report.table(layout))));
        insta::assert_snapshot!(screens.join("\n"));
    }

    #[test]
    fn the_worst_state_decides_the_exit_code() {
        assert_eq!(every_state().verdict(), Verdict::Undecided);
        let broken = || vec![healthy().observed, member_dead().observed];
        assert_eq!(report(None, broken()).verdict(), Verdict::Negative);
        assert_eq!(
            report(None, vec![scaled(healthy().observed)]).verdict(),
            Verdict::Met
        );
        assert_eq!(report(None, vec![]).verdict(), Verdict::Met);
    }

    #[test]
    fn names_are_those_that_are_not_well_and_the_document_has_all() {
        let report = every_state();
        let name = "kubeadmcontrolplane.controlplane.cluster.x-k8s.io/c1-cp";
        assert_eq!(report.names(), [name; 3]);
        let not_well: Vec<String> = report
            .not_well()
            .into_iter()
            .map(|answer| report.name(answer))
            .collect();
        assert_eq!(not_well, ["broken/c1-cp", "hangs/c1-cp", "grows/c1-cp"]);
        let document = serde_json::to_value(report.document()).expect("serializes");
        let items = document.pointer("/items").and_then(serde_json::Value::as_array);
        assert_eq!(items.map(Vec::len), Some(6));
        assert_every_format(&report);
    }

    #[test]
    fn the_schema_is_checked_in() {
        schema::checked_in::<ExplanationDocumentList<'_>>("controlplaneexplanationlist.json");
        let report = every_state();
        let items = report.answers.iter().map(|answer| report.one(answer));
        schema::conforms(&ExplanationDocumentList {
            items: items
                .map(|one| super::Versioned(super::ExplanationDocument::new(&one)))
                .collect(),
        });
    }
}
