//! Writes to the scale subresource of a control plane.

use std::sync::Arc;

use kcp_rules::{
    Change,
    api::{KubeadmControlPlane, decode, decode_part},
};
use serde::Deserialize;

use super::{Admission, missing, object};
use crate::{
    cluster::ReadError,
    decision::{Decision, RefusalKind},
    limits::NAME_CHARS,
    review::Request,
    shorten::shorten,
};

const KIND: &str = "KubeadmControlPlane";

/// `Scale`, group `autoscaling/v1`.
#[derive(Deserialize)]
struct Scale {
    #[serde(default)]
    metadata: ScaleMetadata,
    #[serde(default)]
    spec: ScaleSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ScaleMetadata {
    resource_version: Option<String>,
}

#[derive(Default, Deserialize)]
struct ScaleSpec {
    /// Go leaves out a zero (k8s.io/api, `autoscaling/v1/types.go`): absent is 0, not unknown.
    #[serde(default)]
    replicas: i64,
}

/// Judges the control plane as it would become. A Scale carries the number alone, so that the control plane is looked
/// up, and read live where it is not kept.
pub(super) async fn validate(request: &Request<'_>, admission: &Admission) -> Decision {
    let Some(object) = request.object else {
        return missing("object");
    };
    let name = shorten(&request.name, NAME_CHARS, "").into_owned();
    let scale: Scale = match decode_part(object) {
        Ok(scale) => scale,
        Err(error) => return Decision::undecodable(object::CLUSTER_API, KIND, name, error),
    };
    let reads = admission.cluster.reads();
    let (kept, answer);
    let text = if let Some(known) = known(request, admission) {
        kept = known;
        &*kept
    } else {
        let read = reads
            .control_plane(&request.resource.version, &request.namespace, &request.name)
            .await;
        answer = match read {
            Ok(answer) => answer,
            Err(error) => return unreadable(&name, &error),
        };
        match answer.as_text() {
            Ok(text) => text,
            Err(error) => return unreadable(&name, &ReadError::Unusable(error.to_string())),
        }
    };
    let old: KubeadmControlPlane<'_> = match decode(text) {
        Ok(old) => old,
        Err(error) => return unreadable(&name, &ReadError::Unusable(error.to_string())),
    };
    if old.metadata.is_deleting() {
        return Decision::allowed();
    }
    let new = old.scaled_to(scale.spec.replicas);
    let seen = admission.judge(request, Change::scale(&old, &new), &reads).await;
    seen.decision(object::CLUSTER_API, KIND, || name)
}

/// The control plane as it is kept, if that is the very one that is being scaled: a Scale has the resource version of
/// its object.
fn known(request: &Request<'_>, admission: &Admission) -> Option<Arc<str>> {
    let old: Scale = decode_part(request.old_object?).ok()?;
    let resource_version = old
        .metadata
        .resource_version
        .filter(|version| !version.is_empty())?;
    let (version, namespace) = (&request.resource.version, &request.namespace);
    admission
        .cluster
        .control_plane_at(version, namespace, &request.name, &resource_version)
}

/// Refuses at once what the validating webhook would refuse later. What cannot be read is left to that one.
pub(super) async fn mutate(request: &Request<'_>, admission: &Admission) -> Decision {
    validate(request, admission)
        .await
        .denial()
        .unwrap_or_else(Decision::allowed)
}

/// Unlike the API server's own, a 404 here may also mean that we look into another cluster: it is not let through.
fn unreadable(name: &str, error: &ReadError) -> Decision {
    let kind = match error {
        ReadError::NotFound => RefusalKind::NotFound,
        ReadError::BadName => RefusalKind::BadRequest,
        ReadError::NoAccess
        | ReadError::Forbidden(_)
        | ReadError::TooSlow
        | ReadError::Failed(_)
        | ReadError::ClusterUnknown
        | ReadError::TooMany(_)
        | ReadError::TooLarge
        | ReadError::Unusable(_) => RefusalKind::ServiceUnavailable,
    };
    Decision::refused(
        kind,
        format!("scaling {KIND} {name:?} cannot be judged without reading it: {error}"),
    )
}

#[cfg(test)]
mod tests;
