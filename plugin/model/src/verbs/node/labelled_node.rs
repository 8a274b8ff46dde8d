//! A Node with its labels, and the Machine that it belongs to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use kcp_api::{DecodeError, Object as _, PartialObjectMetadata, decode, names::annotation};

/// The Machine of a Node, from the annotations that Cluster API sets on the Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineOfNode {
    /// Empty if the Node does not name a namespace.
    pub namespace: String,
    pub name: String,
}

impl MachineOfNode {
    /// `None` if the Node does not belong to a Machine.
    pub fn new(node: &PartialObjectMetadata) -> Option<Self> {
        let value = |key: &str| node.annotation(key).unwrap_or_default().to_owned();
        let name = value(annotation::NODE_MACHINE);
        (!name.is_empty()).then(|| Self {
            namespace: value(annotation::NODE_CLUSTER_NAMESPACE),
            name,
        })
    }

    /// The namespace for a command that a message shows, or a placeholder for it.
    pub fn namespace_in_command(&self) -> &str {
        match self.namespace.as_str() {
            "" => "NAMESPACE",
            namespace => namespace,
        }
    }
}

impl fmt::Display for MachineOfNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "Machine {}", self.name),
            namespace => write!(f, "Machine {namespace}/{}", self.name),
        }
    }
}

/// The parts of a Node that decide how its labels may change.
#[derive(Clone, Debug)]
pub struct LabelledNode {
    pub json: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub machine: Option<MachineOfNode>,
    /// The keys that Cluster API copied from the Machine.
    pub from_machine: BTreeSet<String>,
}

impl LabelledNode {
    pub fn new(json: String) -> Result<Self, DecodeError> {
        let node: PartialObjectMetadata = decode(&json)?;
        let copied = node
            .annotation(annotation::LABELS_FROM_MACHINE)
            .unwrap_or_default();
        let copied = copied.split(',').filter(|key| !key.is_empty());
        Ok(Self {
            name: node.name().to_owned(),
            machine: MachineOfNode::new(&node),
            from_machine: copied.map(str::to_owned).collect(),
            labels: node.metadata.labels.unwrap_or_default(),
            json,
        })
    }
}
