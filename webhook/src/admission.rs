//! Asks the rules.

mod object;
mod scale;

use kcp_rules::api::{ClusterDeploymentCustomization, ClusterPool, KubeadmControlPlane};

use crate::{
    cluster::Cluster,
    decision::{Decision, RefusalKind},
    limits::QUOTED_CHARS,
    response::shorten,
    review::{Operation, Request},
};

/// Which of the two webhooks is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// Fills in defaults, and refuses what they do not mend.
    Mutate,
    /// Judges.
    Validate,
}

impl Hook {
    pub(crate) const ALL: [Self; 2] = [Self::Mutate, Self::Validate];

    /// The path that it is served at.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Mutate => "/mutate",
            Self::Validate => "/validate",
        }
    }

    /// The webhook that is served at a path.
    pub(crate) fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.path() == path)
    }
}

/// What a review is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    ControlPlane,
    ControlPlaneScale,
    ClusterPool,
    Customization,
    /// The status of one of these kinds. No rule reads one.
    Status,
}

impl Target {
    fn of(request: &Request<'_>) -> Option<Self> {
        let resource = &request.resource;
        match (&*resource.group, &*resource.plural, &*request.sub_resource) {
            (object::CLUSTER_API, "kubeadmcontrolplanes", "") => Some(Self::ControlPlane),
            (object::CLUSTER_API, "kubeadmcontrolplanes", "scale") => Some(Self::ControlPlaneScale),
            (object::HIVE, "clusterpools", "") => Some(Self::ClusterPool),
            (object::HIVE, "clusterdeploymentcustomizations", "") => Some(Self::Customization),
            (object::CLUSTER_API, "kubeadmcontrolplanes", "status")
            | (object::HIVE, "clusterpools" | "clusterdeploymentcustomizations", "status") => {
                Some(Self::Status)
            }
            _ => None,
        }
    }
}

/// Decides on one review.
///
/// A resource that is none of ours is refused, not let through: whoever registered it believes that it is judged.
/// A status is let through, for there is nothing to judge in it, and a controller that cannot write one is lost.
pub(crate) async fn decide(hook: Hook, request: &Request<'_>, cluster: &Cluster) -> Decision {
    let Some(target) = Target::of(request) else {
        return not_ours(request);
    };
    match request.operation {
        Operation::Create | Operation::Update => {}
        Operation::Delete | Operation::Connect => return Decision::allowed(),
    }
    match (hook, target) {
        (Hook::Mutate, Target::ControlPlane) => object::mutate(request),
        (Hook::Mutate, Target::ControlPlaneScale) => scale::mutate(request, cluster).await,
        (Hook::Mutate, _) | (Hook::Validate, Target::Status) => Decision::allowed(),
        (Hook::Validate, Target::ControlPlane) => object::validate::<KubeadmControlPlane<'_>>(request),
        (Hook::Validate, Target::ControlPlaneScale) => scale::validate(request, cluster).await,
        (Hook::Validate, Target::ClusterPool) => object::validate::<ClusterPool<'_>>(request),
        (Hook::Validate, Target::Customization) => {
            object::validate::<ClusterDeploymentCustomization<'_>>(request)
        }
    }
}

fn not_ours(request: &Request<'_>) -> Decision {
    let resource = &request.resource;
    let mut asked = resource.plural.to_string();
    if !resource.group.is_empty() {
        asked = format!("{asked}.{}", resource.group);
    }
    if !request.sub_resource.is_empty() {
        asked = format!("{asked}, subresource {}", request.sub_resource);
    }
    Decision::refused(
        RefusalKind::BadRequest,
        format!(
            "kcp-webhook does not judge {}; take the resource out of the rules of its webhook configuration",
            shorten(&asked, QUOTED_CHARS, "")
        ),
    )
}

fn missing(field: &str) -> Decision {
    Decision::refused(
        RefusalKind::BadRequest,
        format!("the review has no request.{field}"),
    )
}

#[cfg(test)]
mod tests;
