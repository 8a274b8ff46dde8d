//! Decides on writes of the topology of a Cluster, as changes of its control plane (see [`kcp_rules::topology`]).
//!
//! If the control plane cannot be read, only the values themselves are judged. The rules of the control plane stand behind this
//! review: the topology controller writes it next.

use std::sync::Arc;

use kcp_api::kind::CLUSTER;
use kcp_rules::{
    Change, Context,
    api::{Cluster, DecodeError, KubeadmControlPlane, cluster::ClusterTopology, decode},
    context::OfTopology,
    topology,
};

use super::evaluator::Evaluator;
use crate::{
    cluster::{LiveReads, ReadError},
    decision::Decision,
    limits::{MAX_NAME_CHARS, shorten},
    net::body::BufferedBody,
    review::decode::{ObjectTexts, Operation, Request},
};

/// The object that has the configuration of the control plane.
enum Source {
    ControlPlane(Arc<BufferedBody>),
    /// The template of the class, and whether patches may change it.
    Template(Arc<BufferedBody>, bool),
    Unknown(Option<ReadError>),
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
    let reads = evaluator.cluster.start_reads(request.read_limits);
    let stored = old.as_ref().unwrap_or(&new);
    let source = read_source(request, stored, asked, &reads).await;
    let of_topology = OfTopology {
        knows_configuration: match &source {
            Source::ControlPlane(_) => stored.topology().and_then(ClusterTopology::class) == asked.class(),
            Source::Template(_, is_patched) => !is_patched,
            Source::Unknown(_) => false,
        },
        is_copy: request.operation == Operation::Create && new.is_moved(),
    };
    let was = old.as_ref().and_then(|old| topology::before(old, &new));
    let was = was.as_ref();
    let (before, after) = match control_planes(&source, &new, was, asked) {
        Ok(control_planes) => control_planes,
        Err(error) => return unread(&ReadError::BadField(error.field)),
    };
    let change = before
        .as_ref()
        .map_or(Change::create(&after), |before| Change::update(before, &after));
    let context = Context {
        topology: Some(of_topology),
        ..Context::UNKNOWN
    };
    let evaluation = evaluator
        .evaluate(request, change.with_context(context), &reads)
        .await;
    let mut decision = evaluation.decision(CLUSTER, || name);
    if let Source::Unknown(Some(error)) = &source {
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
) -> Source {
    if let Some(name) = stored.control_plane_name() {
        match reads.read_own_control_plane(&request.namespace, name).await {
            Ok(Some(control_plane)) => return Source::ControlPlane(control_plane),
            Ok(None) => {}
            Err(error) => return Source::Unknown(Some(error)),
        }
    }
    let Some((namespace, class)) = asked.class() else {
        return Source::Unknown(None);
    };
    let namespace = namespace.unwrap_or(&request.namespace);
    match reads.read_class_template(namespace, class).await {
        Ok(Some(template)) => Source::Template(template.text, template.is_patched),
        // The class may be created after its Clusters.
        Ok(None) | Err(ReadError::NotFound) => Source::Unknown(None),
        Err(error) => Source::Unknown(Some(error)),
    }
}

/// The control plane before the write, if there is one, and after it.
fn control_planes<'a>(
    source: &'a Source,
    new: &Cluster<'a>,
    was: Option<&ClusterTopology<'a>>,
    asked: &ClusterTopology<'a>,
) -> Result<(Option<KubeadmControlPlane<'a>>, KubeadmControlPlane<'a>), DecodeError> {
    let text = |body: &'a BufferedBody| body.as_text().unwrap_or_default();
    Ok(match source {
        Source::ControlPlane(body) => {
            let (before, after) = topology::changed(&decode(text(body))?, was, asked);
            (Some(before), after)
        }
        Source::Template(body, _) => {
            let template = decode(text(body))?;
            (None, topology::created(new, was, asked, Some(&template))?)
        }
        // Without the control plane, the old topology says what it has.
        Source::Unknown(Some(_)) if let Some(was) = was => {
            let known = topology::created(new, None, was, None)?;
            let (before, after) = topology::changed(&known, Some(was), asked);
            (Some(before), after)
        }
        Source::Unknown(_) => (None, topology::created(new, was, asked, None)?),
    })
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
