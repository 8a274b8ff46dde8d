//! Reads the Nodes of the cluster that the kubeconfig selects.

use kcp_api::{DecodeError, kind::NODE};
use kcp_control_plane::verbs::node::labelled_node::LabelledNode;
use serde_json::Value;

use crate::{Action, Connection, Error, update::ReadObject};

impl ReadObject for LabelledNode {
    fn object(&self) -> &str {
        &self.json
    }
}

/// Reads one Node, which `decode` decodes from its JSON.
pub async fn read_node<N>(
    connection: &Connection,
    name: &str,
    decode: impl FnOnce(String) -> Result<N, DecodeError>,
) -> Result<N, Error> {
    let resource = NODE.api_resource("v1");
    let json = connection.get_text_in(&resource, None, name).await?;
    decode(json).map_err(|source| Error::malformed(Action::new("get", &resource).with_name(name), source))
}

/// Lists the Nodes that match a label selector, by name. `None` lists all Nodes.
pub async fn list_nodes(connection: &Connection, selector: Option<&str>) -> Result<Vec<LabelledNode>, Error> {
    let resource = NODE.api_resource("v1");
    let listed: Vec<Value> = connection.list(&resource, None, selector).await?;
    let nodes = listed.iter().map(|node| LabelledNode::new(node.to_string()));
    let nodes: Result<_, _> = nodes.collect();
    nodes.map_err(|source| Error::malformed(Action::new("list", &resource), source))
}
