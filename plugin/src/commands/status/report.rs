//! Collects what `status` prints about one or several control planes.

use jiff::Timestamp;
use kcp_api::{Object as _, kind::KUBEADM_CONTROL_PLANE};
use serde::Serialize;

use crate::commands::status::{
    document::{ControlPlaneStatus, ControlPlaneStatusList},
    screen::{Layout, ListRow, Screen, control_plane_screen, list},
};
use crate::{
    document::{Versioned, resource_name},
    fleet::UnreadContext,
    output::Report,
    verdict::Verdict,
};
use kcp_control_plane::{inspection::Inspection, snapshot::Snapshot};

/// A control plane as it was read, and the results of its checks.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspected {
    /// The kubeconfig context; `None` unless the command reads several contexts.
    pub context: Option<String>,
    pub observed: Snapshot,
    pub inspection: Inspection,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    One(Box<Inspected>),
    /// Several control planes of one namespace; `namespace` is `None` for all namespaces and for several contexts.
    Several {
        namespace: Option<String>,
        inspected: Vec<Inspected>,
        /// The contexts whose control planes could not be listed.
        unread: Vec<UnreadContext>,
    },
}

impl Subject {
    pub fn inspected(&self) -> &[Inspected] {
        match self {
            Self::One(inspected) => std::slice::from_ref(inspected),
            Self::Several { inspected, .. } => inspected,
        }
    }

    pub fn into_inspected(self) -> Vec<Inspected> {
        match self {
            Self::One(inspected) => vec![*inspected],
            Self::Several { inspected, .. } => inspected,
        }
    }

    /// The contexts whose control planes could not be listed.
    pub fn unread_contexts(&self) -> &[UnreadContext] {
        match self {
            Self::One(_) => &[],
            Self::Several { unread, .. } => unread,
        }
    }

    /// The screen for one control plane, or a table for several.
    pub fn screen(&self, now: Timestamp, layout: Layout) -> Screen {
        match self {
            Self::One(inspected) => {
                control_plane_screen(&inspected.observed, &inspected.inspection, now, layout)
            }
            Self::Several { namespace, .. } => {
                let inspected = self.inspected().iter();
                let rows = inspected.map(|entry| {
                    ListRow::new(&entry.observed, &entry.inspection).in_context(entry.context.clone())
                });
                let rows = rows.chain(self.unread_contexts().iter().map(ListRow::unread_context));
                list(rows, namespace.as_deref(), now, layout)
            }
        }
    }

    pub fn verdict(&self) -> Verdict {
        let verdicts = self.inspected().iter();
        let verdicts = verdicts.map(|inspected| Verdict::from(inspected.inspection.health));
        let unread = self.unread_contexts().iter().map(|_| Verdict::Undecided);
        Verdict::worst(verdicts.chain(unread))
    }
}

/// What `status` prints. Ages in it are relative to `now`.
#[derive(Clone, Copy, Debug)]
pub struct StatusReport<'s> {
    pub subject: &'s Subject,
    pub now: Timestamp,
}

#[derive(Serialize)]
#[serde(untagged)]
enum StatusDocument {
    One(Box<Versioned<ControlPlaneStatus>>),
    List(Versioned<ControlPlaneStatusList>),
}

impl Report for StatusReport<'_> {
    fn table(&self, layout: Layout) -> String {
        self.subject.screen(self.now, layout).text()
    }

    fn document(&self) -> impl Serialize {
        match self.subject {
            Subject::One(one) => {
                let status = ControlPlaneStatus::new(&one.observed, &one.inspection);
                StatusDocument::One(Box::new(Versioned(status)))
            }
            Subject::Several {
                inspected, unread, ..
            } => {
                let inspected = inspected.iter();
                let inspected =
                    inspected.map(|entry| (entry.context.as_deref(), &entry.observed, &entry.inspection));
                StatusDocument::List(Versioned(ControlPlaneStatusList::new(inspected, unread)))
            }
        }
    }

    fn names(&self) -> Vec<String> {
        let inspected = self.subject.inspected().iter();
        let control_planes = inspected.map(|inspected| &inspected.observed.control_plane);
        control_planes
            .map(|control_plane| resource_name(&KUBEADM_CONTROL_PLANE, control_plane.name()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Inspected, Layout, Report as _, StatusReport, Subject, UnreadContext, Verdict};
    use crate::{
        commands::status::screen::example::{healthy, member_dead},
        output::{OutputFormat, text},
        terminal::plain,
        testing::assert_every_format,
    };
    use kcp_control_plane::testing::objects::now;

    fn one() -> Subject {
        let example = healthy();
        Subject::One(Box::new(Inspected {
            context: None,
            observed: example.observed,
            inspection: example.inspection,
        }))
    }

    fn several() -> Subject {
        let inspected = [healthy(), member_dead()].map(|example| Inspected {
            context: None,
            observed: example.observed,
            inspection: example.inspection,
        });
        Subject::Several {
            namespace: None,
            inspected: inspected.to_vec(),
            unread: Vec::new(),
        }
    }

    /// Two contexts, of which one could not be read.
    fn of_contexts() -> Subject {
        let mut inspected = several().into_inspected();
        for (inspected, context) in inspected.iter_mut().zip(["east", "west"]) {
            inspected.context = Some(context.to_owned());
        }
        Subject::Several {
            namespace: None,
            inspected,
            unread: vec![UnreadContext {
                context: "north".to_owned(),
                error: "cannot reach https://north: connection refused".to_owned(),
            }],
        }
    }

    #[test]
    fn one_table_for_all_contexts() {
        let subject = of_contexts();
        insta::assert_snapshot!(plain(&subject.screen(now(), Layout::default()).text()));
        assert_eq!(subject.verdict(), Verdict::Undecided);
        let report = StatusReport {
            subject: &subject,
            now: now(),
        };
        let document = serde_json::to_value(report.document()).expect("serializes");
        let contexts = [
            "/items/0/context",
            "/items/1/context",
            "/unreadContexts/0/context",
        ]
        .map(|field| document.pointer(field).and_then(serde_json::Value::as_str));
        assert_eq!(contexts, [Some("east"), Some("west"), Some("north")]);
    }

    fn first_line(subject: &Subject, format: &OutputFormat) -> String {
        let layout = Layout {
            is_wide: *format == OutputFormat::Wide,
            ..Layout::default()
        };
        let report = StatusReport { subject, now: now() };
        let text = text(&report, format, layout).expect("reports");
        plain(&text).lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn every_format_is_printed() {
        for subject in [one(), several(), of_contexts()] {
            assert_every_format(&StatusReport {
                subject: &subject,
                now: now(),
            });
        }
    }

    #[test]
    fn the_output_of_each_format() {
        for (format, of_one, of_several) in [
            (
                OutputFormat::Table,
                "Control plane: d/c1-cp",
                "NAMESPACE   NAME    CLUSTER   VERSION",
            ),
            (
                OutputFormat::Wide,
                "Control plane: d/c1-cp",
                "NAMESPACE   NAME    CLUSTER   VERSION   THERE",
            ),
            (OutputFormat::Json, "{", "{"),
            (
                OutputFormat::Yaml,
                "apiVersion: kubectl-kcp.dev/v1alpha1",
                "apiVersion: kubectl-kcp.dev/v1alpha1",
            ),
            (
                OutputFormat::Name,
                "kubeadmcontrolplane.controlplane.cluster.x-k8s.io/c1-cp",
                "kubeadmcontrolplane.controlplane.cluster.x-k8s.io/c1-cp",
            ),
        ] {
            assert_eq!(first_line(&one(), &format), of_one);
            let line = first_line(&several(), &format);
            assert!(line.starts_with(of_several), "{line}");
        }
    }
}
