//! Decides on admission reviews.
//!
//! - `object`: writes to an object
//! - `scale`: writes to the scale subresource of a control plane
//! - `topology`: writes of the topology of a Cluster
//! - `evaluator`: evaluates rules, and reads the other objects that they need
//! - `kind`: the kinds that rules check

mod evaluator;
mod kind;
mod object;
mod scale;
mod topology;

use std::{mem, sync::Arc};

use kcp_api::names::group;
use kcp_rules::{
    api::{
        ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, KubeadmControlPlane,
        KubeadmControlPlaneTemplate,
    },
    registration::{CANARY_ANNOTATION, CANARY_LEASE, canary_warning},
};
use serde_json::{Value, value::RawValue};

use self::evaluator::Evaluator;
use super::decode::{CONTROL_PLANES, ObjectTexts, Objects, Operation, Request, Review, count_values};
use crate::{
    cluster::ClusterReader,
    configuration::CurrentConfiguration,
    decision::{Decision, RefusalKind, ReviewResult},
    hook::Hook,
    limits::{MAX_QUOTED_CHARS, MAX_VALUES, shorten},
};

/// The maximum length in bytes of the nonce of a canary, so that its warning stays short.
const MAX_NONCE: usize = 64;

/// The resource that a review is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReviewedResource {
    ControlPlane,
    ControlPlaneScale,
    Template,
    /// A Cluster, of which only the topology is reviewed.
    Cluster,
    ClusterPool,
    Customization,
    ClusterDeployment,
    /// The status subresource of one of these kinds, which no rule reads.
    Status,
    /// The Lease of the manager, whose writes show that the API server reaches this webhook.
    Canary,
}

impl ReviewedResource {
    fn from_request(request: &Request<'_>) -> Option<Self> {
        let resource = &request.resource;
        match (&*resource.group, &*resource.plural, &*request.sub_resource) {
            (group::CONTROL_PLANE, CONTROL_PLANES, "") => Some(Self::ControlPlane),
            (group::CONTROL_PLANE, CONTROL_PLANES, "scale") => Some(Self::ControlPlaneScale),
            (group::CONTROL_PLANE, "kubeadmcontrolplanetemplates", "") => Some(Self::Template),
            (group::CLUSTER, "clusters", "") => Some(Self::Cluster),
            (group::HIVE, "clusterpools", "") => Some(Self::ClusterPool),
            (group::HIVE, "clusterdeploymentcustomizations", "") => Some(Self::Customization),
            (group::HIVE, "clusterdeployments", "") => Some(Self::ClusterDeployment),
            (group::CONTROL_PLANE, CONTROL_PLANES, "status")
            | (group::HIVE, "clusterpools" | "clusterdeploymentcustomizations", "status") => {
                Some(Self::Status)
            }
            ("coordination.k8s.io", "leases", "") if *request.name == *CANARY_LEASE => Some(Self::Canary),
            _ => None,
        }
    }
}

/// Evaluates the rules on each review, and decides whether to allow, deny or refuse the write.
pub(crate) struct Admission {
    evaluator: Evaluator,
}

impl Admission {
    pub(crate) fn new(cluster: ClusterReader, configuration: Arc<CurrentConfiguration>) -> Self {
        Self {
            evaluator: Evaluator::new(cluster, configuration),
        }
    }

    /// Decides on one review.
    ///
    /// Refuses a write to a resource that kcp-webhook does not review, so that a wrong webhook configuration is
    /// noticed. Allows every write of a status, because no rule checks a status, and a controller must always be able
    /// to write one.
    pub(crate) async fn decide(&self, hook: Hook, review: &mut Review<'_>) -> Decision {
        let request = &review.request;
        let Some(target) = ReviewedResource::from_request(request) else {
            return not_reviewed(request);
        };
        if target == ReviewedResource::Status || request.operation == Operation::Connect {
            return Decision::allowed();
        }
        let objects = mem::take(&mut review.objects);
        if review.values > MAX_VALUES
            && let Objects::Texts(texts) = objects
            && let Some(decision) = too_large(texts)
        {
            return decision;
        }
        let is_deletion = request.operation == Operation::Delete;
        if is_deletion && (hook == Hook::Mutate || target == ReviewedResource::Cluster) {
            return Decision::allowed();
        }
        let decision = self.decide_on(target, hook, request, objects).await;
        // Only for a denial, because decoding the two versions takes time.
        let is_denied = !matches!(decision.verdict, ReviewResult::Allowed);
        if hook == Hook::Mutate && is_denied && is_stale(review) {
            return Decision::allowed();
        }
        decision
    }

    async fn decide_on<'a>(
        &self,
        target: ReviewedResource,
        hook: Hook,
        request: &Request<'a>,
        objects: Objects<'a>,
    ) -> Decision {
        let evaluator = &self.evaluator;
        let texts = match (target, objects) {
            (ReviewedResource::ControlPlane, Objects::ControlPlane { new, stored }) => {
                return object::decide_on(hook, request, Ok(new), stored.map(Ok), evaluator).await;
            }
            (_, Objects::ControlPlane { .. }) => return not_reviewed(request),
            (_, Objects::Texts(texts)) => texts,
        };
        match target {
            ReviewedResource::ControlPlane => {
                object::decide::<KubeadmControlPlane<'_>>(hook, request, texts, evaluator).await
            }
            ReviewedResource::ControlPlaneScale => scale::decide(hook, request, texts, evaluator).await,
            ReviewedResource::Template => {
                object::decide::<KubeadmControlPlaneTemplate<'_>>(hook, request, texts, evaluator).await
            }
            ReviewedResource::Cluster => topology::decide(request, texts, evaluator).await,
            ReviewedResource::ClusterPool => {
                object::decide::<ClusterPool<'_>>(hook, request, texts, evaluator).await
            }
            ReviewedResource::Customization => {
                object::decide::<ClusterDeploymentCustomization<'_>>(hook, request, texts, evaluator).await
            }
            ReviewedResource::ClusterDeployment => {
                object::decide::<ClusterDeployment<'_>>(hook, request, texts, evaluator).await
            }
            ReviewedResource::Canary => canary(texts),
            ReviewedResource::Status => Decision::allowed(),
        }
    }
}

/// Allows the write, and repeats its nonce in a warning, which the API server returns to the manager.
fn canary(texts: ObjectTexts<'_>) -> Decision {
    let lease: Option<Value> = texts
        .new
        .and_then(|object| serde_json::from_str(object.get()).ok());
    let nonce = lease.as_ref().and_then(|lease| {
        let annotations = lease.pointer("/metadata/annotations")?;
        annotations.get(CANARY_ANNOTATION)?.as_str()
    });
    let nonce = nonce.filter(|nonce| nonce.len() <= MAX_NONCE);
    Decision {
        other_warnings: nonce.map(canary_warning).into_iter().collect(),
        is_canary: true,
        ..Decision::allowed()
    }
}

/// Whether the client read the object before its last change. The API server refuses such an update with 409 Conflict, so that
/// the client reads the object again. But it calls the mutating webhooks first, and their denial would blame the client for
/// undoing a change that it has not seen.
fn is_stale(review: &Review<'_>) -> bool {
    // Compare numbers, as the API server does: it accepts 07 for version 7.
    let [sent, stored] = review
        .identities()
        .map(|identity| identity?.resource_version?.parse::<u64>().ok());
    sent.zip(stored).is_some_and(|(sent, stored)| sent != stored)
}

fn not_reviewed(request: &Request<'_>) -> Decision {
    let resource = &request.resource;
    let mut name = resource.plural.to_string();
    if !resource.group.is_empty() {
        name = format!("{name}.{}", resource.group);
    }
    if !request.sub_resource.is_empty() {
        name = format!("{name}, subresource {}", request.sub_resource);
    }
    Decision::refused(
        RefusalKind::BadRequest,
        format!(
            "kcp-webhook does not review {}; remove the resource from the rules of the webhook configuration",
            shorten(&name, MAX_QUOTED_CHARS, "")
        ),
    )
}

/// Refuses a new object that has too many values to check. If only the stored object has too many, allows the write with a
/// warning, so that users can make the object smaller or delete it.
fn too_large(texts: ObjectTexts<'_>) -> Option<Decision> {
    let is_too_large = |object: Option<&RawValue>| {
        object.is_some_and(|object| count_values(object.get().as_bytes()) > MAX_VALUES)
    };
    if is_too_large(texts.new) {
        return Some(Decision::refused(
            RefusalKind::TooLarge,
            format!(
                "the object has more than {MAX_VALUES} values, too many to check; split it into smaller objects"
            ),
        ));
    }
    is_too_large(texts.stored).then(|| {
        let mut allowed = Decision::allowed();
        allowed.other_warnings.push(format!(
            "the stored object has more than {MAX_VALUES} values, too many to check; kcp-webhook evaluated \
             no rule"
        ));
        allowed
    })
}

#[cfg(test)]
mod tests;
