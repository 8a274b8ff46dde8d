//! What plans look at in objects as the API server sends them. The fields of v1beta1 and v1beta2 stand side by side:
//! each object has one or the other.
//!
//! - [`control_plane`]: a control plane and what it asks for
//! - [`machine`]: a Machine and what it was made from
//! - [`cluster`]: its Cluster

pub mod cluster;
pub mod control_plane;
pub mod machine;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::plan::{
    observed::{Cluster, Etcd, Observed, Remediation},
    spec::TemplateRef,
};
pub use cluster::WireCluster;
pub use control_plane::PlannedControlPlane;
pub use machine::{PlannedMachine, WireConfig, WireInfrastructure};

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRemediation {
    machine: String,
    timestamp: Option<Timestamp>,
    #[serde(default)]
    retry_count: i64,
}

impl Metadata {
    fn has(&self, annotation: &str) -> bool {
        self.annotations.contains_key(annotation)
    }

    /// A note that cannot be read tells of a remediation all the same.
    fn remediation(&self, annotation: &str) -> Option<Remediation> {
        let note = self.annotations.get(annotation)?;
        let wire = serde_json::from_str(note).unwrap_or(WireRemediation {
            machine: String::new(),
            timestamp: None,
            retry_count: 0,
        });
        Some(Remediation {
            machine: wire.machine,
            time: wire.timestamp,
            retries: wire.retry_count,
        })
    }
}

/// A reference to an object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    /// v1beta2.
    api_group: Option<String>,
    /// v1beta1.
    api_version: Option<String>,
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    pub name: String,
}

impl Reference {
    pub fn group(&self) -> &str {
        let group = self
            .api_version
            .as_deref()
            .and_then(|version| version.split_once('/'));
        self.api_group
            .as_deref()
            .unwrap_or_else(|| group.map_or("", |(group, _)| group))
    }

    fn template(&self) -> TemplateRef {
        TemplateRef {
            group_kind: format!("{}.{}", self.kind, self.group()),
            name: self.name.clone(),
        }
    }
}

impl From<PlannedControlPlane> for Observed {
    /// Before anything else was read.
    fn from(
        PlannedControlPlane {
            control_plane,
            spec,
            remediation_in_progress,
        }: PlannedControlPlane,
    ) -> Self {
        Self {
            etcd: if control_plane.external_etcd {
                Etcd::External
            } else {
                Etcd::Unread
            },
            control_plane,
            spec,
            remediation_in_progress,
            cluster: Cluster::default(),
            machines: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Metadata, Reference};
    use crate::plan::{example::template, observed::Remediation};

    #[test]
    fn a_note_of_a_remediation_counts_whatever_it_says() {
        let note = |machine: &str, time: Option<&str>, retries| Remediation {
            machine: machine.to_owned(),
            time: time.and_then(|time| time.parse().ok()),
            retries,
        };
        for (text, expected) in [
            (
                r#"{"machine":"m1","timestamp":"2026-08-21T09:00:00Z","retryCount":2}"#,
                note("m1", Some("2026-08-21T09:00:00Z"), 2),
            ),
            (r#"{"machine":"m1"}"#, note("m1", None, 0)),
            ("garbage", note("", None, 0)),
        ] {
            let metadata = json!({"annotations": {"a": text}});
            let metadata: Metadata = serde_json::from_value(metadata).expect("decodes");
            assert_eq!(metadata.remediation("a"), Some(expected), "{text}");
            assert_eq!(metadata.remediation("b"), None);
        }
    }

    #[test]
    fn both_versions_of_a_reference_name_the_same() {
        let (group, kind) = ("infrastructure.cluster.x-k8s.io", "DockerMachineTemplate");
        for reference in [
            json!({"apiGroup": group, "kind": kind, "name": "t1"}),
            json!({"apiVersion": format!("{group}/v1beta1"), "kind": kind, "name": "t1"}),
        ] {
            let reference: Reference = serde_json::from_value(reference).expect("decodes");
            assert_eq!((reference.group(), reference.template()), (group, template("t1")));
        }
    }
}
