//! Decides on writes of the topology of a Cluster, as changes of its control plane (see [`kcp_rules::topology`]).
//!
//! If the control plane cannot be read, the webhook judges only the values of the topology. The topology controller writes them
//! to the control plane next, and the webhook then judges that write.

use std::sync::Arc;

use kcp_api::kind::CLUSTER;
use kcp_rules::{
    api::{Cluster, cluster::ClusterTopology, decode},
    topology::{ControlPlaneChange, Source},
};

use super::evaluator::Evaluator;
use crate::{
    cluster::{ClassTemplate, LiveReads, ReadError},
    decision::Decision,
    limits::{MAX_NAME_CHARS, shorten},
    net::body::BufferedBody,
    review::decode::{ObjectTexts, Request},
};

/// What was read of the control plane.
enum Found {
    ControlPlane(Arc<BufferedBody>),
    Template(ClassTemplate),
    /// The class creates another kind of control plane.
    OtherKind,
    Nothing,
    Unread(ReadError),
}

impl Found {
    fn source(&self) -> Source<'_> {
        match self {
            Self::ControlPlane(body) => Source::ControlPlane(body.as_text().unwrap_or_default()),
            Self::Template(template) => Source::Template {
                text: template.text.as_text().unwrap_or_default(),
                is_patched: template.is_patched,
            },
            Self::OtherKind => Source::OtherKind,
            Self::Nothing | Self::Unread(_) => Source::Unknown,
        }
    }
}

pub(super) async fn decide(request: &Request<'_>, texts: ObjectTexts<'_>, evaluator: &Evaluator) -> Decision {
    let Some(object) = texts.new else {
        return Decision::missing_field("object");
    };
    let name = shorten(&request.name, MAX_NAME_CHARS, "").into_owned();
    let new: Cluster<'_> = match decode(object.get()) {
        Ok(new) => new,
        Err(error) => return Decision::undecodable(CLUSTER, name, error),
    };
    // Do not deny the update because of the stored object, which could then never be corrected.
    let old: Option<Cluster<'_>> = texts.stored.and_then(|old| decode(old.get()).ok());
    let Some(asked) = new.topology() else {
        return Decision::allowed();
    };
    if old.as_ref().is_some_and(|old| old.metadata.is_deleting()) {
        return Decision::allowed();
    }
    if new.has_other_control_plane() {
        return Decision::allowed();
    }
    let reads = evaluator.cluster.start_reads(request.read_limits);
    let stored = old.as_ref().unwrap_or(&new);
    let found = read_source(request, stored, asked, &reads).await;
    let change = match ControlPlaneChange::new(found.source(), old.as_ref(), &new) {
        Ok(Some(change)) => change,
        Ok(None) => return Decision::allowed(),
        Err(error) => return unread(&ReadError::BadField(error.field)),
    };
    let evaluation = evaluator.evaluate(request, change.change(), &reads).await;
    let mut decision = evaluation.decision(CLUSTER, || name);
    if let Found::Unread(error) = &found {
        decision.other_warnings.extend(unread(error).other_warnings);
    }
    decision
}

/// Reads the control plane, or the template of the class if there is no control plane yet.
async fn read_source(
    request: &Request<'_>,
    stored: &Cluster<'_>,
    asked: &ClusterTopology<'_>,
    reads: &LiveReads<'_>,
) -> Found {
    if let Some(name) = stored.control_plane_name() {
        match reads.read_own_control_plane(&request.namespace, name).await {
            Ok(Some(control_plane)) => return Found::ControlPlane(control_plane),
            Ok(None) => {}
            Err(error) => return Found::Unread(error),
        }
    }
    let Some((namespace, class)) = asked.class() else {
        return Found::Nothing;
    };
    let namespace = namespace.unwrap_or(&request.namespace);
    match reads.read_class_template(namespace, class).await {
        Ok(Some(template)) => Found::Template(template),
        Ok(None) => Found::OtherKind,
        // The class may be created after its Clusters.
        Err(ReadError::NotFound) => Found::Nothing,
        Err(error) => Found::Unread(error),
    }
}

fn unread(error: &ReadError) -> Decision {
    Decision {
        other_warnings: vec![format!(
            "could not read the control plane: {}; kcp-webhook checked only the values of the topology, and checks the control \
             plane when the topology controller writes it",
            error.label()
        )],
        ..Decision::allowed()
    }
}
