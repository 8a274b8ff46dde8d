//! Writes to the scale subresource of a control plane.

use kcp_rules::{
    Change,
    api::{KubeadmControlPlane, decode},
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
    spec: ScaleSpec,
}

#[derive(Default, Deserialize)]
struct ScaleSpec {
    /// Go leaves out a zero (k8s.io/api, `autoscaling/v1/types.go`): absent is 0, not unknown.
    #[serde(default)]
    replicas: i64,
}

/// Judges the control plane as it would become. A Scale carries the number alone, so that the control plane is read.
pub(super) async fn validate(request: &Request<'_>, admission: &Admission) -> Decision {
    let Some(object) = request.object else {
        return missing("object");
    };
    let name = shorten(&request.name, NAME_CHARS, "").into_owned();
    let scale: Scale = match decode(object.get()) {
        Ok(scale) => scale,
        Err(error) => return Decision::undecodable(object::CLUSTER_API, KIND, name, error),
    };
    let reads = admission.cluster.reads();
    let read = reads
        .control_plane(&request.resource.version, &request.namespace, &request.name)
        .await;
    let answer = match read {
        Ok(answer) => answer,
        Err(error) => return unreadable(&name, &error),
    };
    let text = match answer.as_text() {
        Ok(text) => text,
        Err(error) => return unreadable(&name, &ReadError::Unusable(error.to_string())),
    };
    let old: KubeadmControlPlane<'_> = match decode(text) {
        Ok(old) => old,
        Err(error) => return unreadable(&name, &ReadError::Unusable(error.to_string())),
    };
    if old.metadata.is_deleting() {
        return Decision::allowed();
    }
    let new = old.scaled_to(scale.spec.replicas);
    let judgement = admission.judge(request, Change::scale(&old, &new), &reads).await;
    Decision::of(object::CLUSTER_API, KIND, || name, judgement)
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
