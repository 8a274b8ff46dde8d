//! What `status` prints, in the format that was asked for.

use jiff::Timestamp;

use crate::commands::status::{
    arguments::StatusOutput,
    document::{ControlPlaneStatus, ControlPlaneStatusList},
    screen::{Layout, Screen, list, one},
};
use crate::{document, terminal::escape, verdict::Verdict};
use kcp_control_plane::{inspection::Inspection, snapshot::Observed};

/// A control plane as it was read and judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspected {
    pub observed: Observed,
    pub inspection: Inspection,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// One control plane, by its name or its Cluster's.
    One(Box<Inspected>),
    /// The control planes of a namespace; none for all of them.
    Several {
        namespace: Option<String>,
        inspected: Vec<Inspected>,
    },
}

/// It could not be written in that format.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// As JSON.
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
    /// As YAML.
    #[error("cannot write YAML")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

impl Subject {
    pub fn inspected(&self) -> &[Inspected] {
        match self {
            Self::One(inspected) => std::slice::from_ref(inspected),
            Self::Several { inspected, .. } => inspected,
        }
    }

    /// What is printed.
    ///
    /// # Errors
    /// When a document cannot be written: never, as far as is known.
    pub fn report(
        &self,
        output: Option<StatusOutput>,
        now: Timestamp,
        width: Option<usize>,
    ) -> Result<String, ReportError> {
        let layout = Layout {
            width,
            is_wide: output == Some(StatusOutput::Wide),
        };
        Ok(match output {
            None | Some(StatusOutput::Wide) => self.screen(now, layout).text(),
            Some(StatusOutput::Name) => self.names(),
            Some(StatusOutput::Json) => match self {
                Self::One(one) => document::text(&ControlPlaneStatus::of(&one.observed, &one.inspection))?,
                Self::Several { .. } => document::text(&ControlPlaneStatusList::of(self.pairs()))?,
            },
            Some(StatusOutput::Yaml) => match self {
                Self::One(one) => {
                    serde_saphyr::to_string(&ControlPlaneStatus::of(&one.observed, &one.inspection))?
                }
                Self::Several { .. } => serde_saphyr::to_string(&ControlPlaneStatusList::of(self.pairs()))?,
            },
        })
    }

    /// The screen of one control plane, or the list of several.
    pub fn screen(&self, now: Timestamp, layout: Layout) -> Screen {
        match self {
            Self::One(inspected) => one(&inspected.observed, &inspected.inspection, now, layout),
            Self::Several { namespace, .. } => list(self.pairs(), namespace.as_deref(), now, layout),
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (&Observed, &Inspection)> {
        let inspected = self.inspected().iter();
        inspected.map(|Inspected { observed, inspection }| (observed, inspection))
    }

    pub fn verdict(&self) -> Verdict {
        let verdicts = self.inspected().iter();
        Verdict::worst(verdicts.map(|inspected| Verdict::from(inspected.inspection.health)))
    }

    /// As `kubectl get -o name` writes them.
    fn names(&self) -> String {
        let names = self.inspected().iter().map(|inspected| {
            let name = &inspected.observed.management.control_plane.control_plane.name;
            format!(
                "kubeadmcontrolplane.controlplane.cluster.x-k8s.io/{}\n",
                escape(name)
            )
        });
        names.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Inspected, StatusOutput, Subject};
    use crate::{
        commands::status::screen::example::{healthy, member_dead},
        terminal::plain,
    };
    use kcp_control_plane::control_plane::example::now;

    fn one() -> Subject {
        let example = healthy();
        Subject::One(Box::new(Inspected {
            observed: example.observed,
            inspection: example.inspection,
        }))
    }

    fn several() -> Subject {
        let inspected = [healthy(), member_dead()].map(|example| Inspected {
            observed: example.observed,
            inspection: example.inspection,
        });
        Subject::Several {
            namespace: None,
            inspected: inspected.to_vec(),
        }
    }

    fn first_line(subject: &Subject, output: Option<StatusOutput>) -> String {
        let text = subject.report(output, now(), None).expect("reports");
        plain(&text).lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn each_format_is_its_own() {
        for (output, of_one, of_several) in [
            (
                None,
                "Control plane: d/c1-cp",
                "NAMESPACE   NAME    CLUSTER   VERSION",
            ),
            (
                Some(StatusOutput::Wide),
                "Control plane: d/c1-cp",
                "NAMESPACE   NAME    CLUSTER   VERSION   THERE",
            ),
            (Some(StatusOutput::Json), "{", "{"),
            (
                Some(StatusOutput::Yaml),
                "apiVersion: kubectl-kcp.dev/v1alpha1",
                "apiVersion: kubectl-kcp.dev/v1alpha1",
            ),
            (
                Some(StatusOutput::Name),
                "kubeadmcontrolplane.controlplane.cluster.x-k8s.io/c1-cp",
                "kubeadmcontrolplane.controlplane.cluster.x-k8s.io/c1-cp",
            ),
        ] {
            assert_eq!(first_line(&one(), output), of_one);
            let line = first_line(&several(), output);
            assert!(line.starts_with(of_several), "{line}");
        }
    }

    #[test]
    fn json_and_yaml_are_the_same_document() {
        for subject in [one(), several()] {
            let report = |output| subject.report(Some(output), now(), None).expect("reports");
            let json: serde_json::Value = serde_json::from_str(&report(StatusOutput::Json)).expect("is JSON");
            let yaml: serde_json::Value =
                serde_saphyr::from_str(&report(StatusOutput::Yaml)).expect("is YAML");
            assert_eq!(json, yaml);
        }
    }
}
