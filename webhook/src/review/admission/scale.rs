//! Decides on writes to the scale subresource of a control plane.

use std::sync::Arc;

use kcp_api::kind::KUBEADM_CONTROL_PLANE;
use kcp_rules::{
    Change,
    api::{KubeadmControlPlane, decode},
};
use serde::Deserialize;

use super::evaluator::Evaluator;
use crate::{
    cluster::ReadError,
    decision::{Decision, RefusalKind},
    hook::Hook,
    limits::{MAX_NAME_CHARS, shorten},
    review::decode::{ObjectTexts, Request},
};

/// A `Scale` of `autoscaling/v1`.
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
    /// The number of replicas. If it is absent, it is 0, because Go omits a zero (k8s.io/api,
    /// `autoscaling/v1/types.go`).
    #[serde(default)]
    replicas: i64,
}

/// Decides on a write of a Scale. The mutating webhook denies what the validating webhook would deny later.
pub(super) async fn decide(
    hook: Hook,
    request: &Request<'_>,
    texts: ObjectTexts<'_>,
    evaluator: &Evaluator,
) -> Decision {
    let decision = validate(request, texts, evaluator).await;
    match hook {
        // If the control plane cannot be read, the validating webhook refuses the write.
        Hook::Mutate => decision.denial().unwrap_or_else(Decision::allowed),
        Hook::Validate => decision,
    }
}

/// Evaluates the rules on the control plane with its new number of replicas. A Scale contains only this number, so
/// the control plane is read from the cache or, if it is not cached, from the API server.
async fn validate(request: &Request<'_>, texts: ObjectTexts<'_>, evaluator: &Evaluator) -> Decision {
    let Some(object) = texts.new else {
        return Decision::missing_field("object");
    };
    let name = shorten(&request.name, MAX_NAME_CHARS, "").into_owned();
    let scale: Scale = match decode(object.get()) {
        Ok(scale) => scale,
        Err(error) => return Decision::undecodable(KUBEADM_CONTROL_PLANE, name, error),
    };
    let reads = evaluator.cluster.start_reads(request.read_limits);
    let (cached, answer);
    let text = if let Some(control_plane) = cached_control_plane(request, texts, evaluator) {
        cached = control_plane;
        &*cached
    } else {
        let read = reads
            .read_control_plane(&request.resource.version, &request.namespace, &request.name)
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
        // Omit the decoder's message, because it quotes the value, which can be a secret.
        Err(error) => return unreadable(&name, &ReadError::BadField(error.field)),
    };
    if old.metadata.is_deleting() {
        return Decision::allowed();
    }
    let new = old.scaled_to(scale.spec.replicas);
    let evaluation = evaluator
        .evaluate(request, Change::scale(&old, &new), &reads)
        .await;
    evaluation.decision(KUBEADM_CONTROL_PLANE, || name)
}

/// The cached control plane, if its resource version equals that of the Scale. If so, the cached object is exactly
/// the object that is being scaled.
fn cached_control_plane(
    request: &Request<'_>,
    texts: ObjectTexts<'_>,
    evaluator: &Evaluator,
) -> Option<Arc<str>> {
    let old: Scale = decode(texts.stored?.get()).ok()?;
    let resource_version = old
        .metadata
        .resource_version
        .filter(|version| !version.is_empty())?;
    let (version, namespace) = (&request.resource.version, &request.namespace);
    evaluator
        .cluster
        .cached_control_plane(version, namespace, &request.name, &resource_version)
}

/// Refuses a write because the control plane cannot be read. This includes a 404, because the webhook may have the
/// kubeconfig of another cluster.
fn unreadable(name: &str, error: &ReadError) -> Decision {
    let kind = match error {
        ReadError::NotFound => RefusalKind::NotFound,
        ReadError::BadName => RefusalKind::BadRequest,
        ReadError::NoAccess
        | ReadError::Unverified
        | ReadError::Forbidden(_)
        | ReadError::TooSlow
        | ReadError::Busy(_)
        | ReadError::Failed(_)
        | ReadError::ClusterUnknown
        | ReadError::TooMany(_)
        | ReadError::TooLarge
        | ReadError::Unusable(_)
        | ReadError::BadField(_) => RefusalKind::ServiceUnavailable,
    };
    Decision::refused(
        kind,
        format!(
            "cannot check the scale of {} {name:?}: {error}",
            KUBEADM_CONTROL_PLANE.kind
        ),
    )
}

#[cfg(test)]
mod tests;
