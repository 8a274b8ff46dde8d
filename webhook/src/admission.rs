//! Asks the rules.

mod object;
mod scale;
mod values;

use std::sync::Arc;

use jiff::Timestamp;
use kcp_rules::{
    Action, Change, Context, Judged, Judgement, Scope,
    api::{
        ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, KubeadmControlPlane,
        KubeadmControlPlaneTemplate,
    },
    judge,
    view::View,
};

use serde_json::value::RawValue;

use crate::{
    cluster::{Cluster, LiveReads, Source, Subject},
    configuration::CurrentConfiguration,
    decision::{Decision, RefusalKind},
    hook::Hook,
    limits::{QUOTED_CHARS, VALUES},
    review::{Operation, Request},
    shorten::shorten,
};

/// What a review is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    ControlPlane,
    ControlPlaneScale,
    Template,
    ClusterPool,
    Customization,
    ClusterDeployment,
    /// The status of one of these kinds. No rule reads one.
    Status,
}

impl Target {
    fn of(request: &Request<'_>) -> Option<Self> {
        let resource = &request.resource;
        match (&*resource.group, &*resource.plural, &*request.sub_resource) {
            (object::CLUSTER_API, "kubeadmcontrolplanes", "") => Some(Self::ControlPlane),
            (object::CLUSTER_API, "kubeadmcontrolplanes", "scale") => Some(Self::ControlPlaneScale),
            (object::CLUSTER_API, "kubeadmcontrolplanetemplates", "") => Some(Self::Template),
            (object::HIVE, "clusterpools", "") => Some(Self::ClusterPool),
            (object::HIVE, "clusterdeploymentcustomizations", "") => Some(Self::Customization),
            (object::HIVE, "clusterdeployments", "") => Some(Self::ClusterDeployment),
            (object::CLUSTER_API, "kubeadmcontrolplanes", "status")
            | (object::HIVE, "clusterpools" | "clusterdeploymentcustomizations", "status") => {
                Some(Self::Status)
            }
            _ => None,
        }
    }
}

/// Decides on reviews.
pub(crate) struct Admission {
    cluster: Cluster,
    configuration: Arc<CurrentConfiguration>,
}

impl Admission {
    pub(crate) fn new(cluster: Cluster, configuration: Arc<CurrentConfiguration>) -> Self {
        Self {
            cluster,
            configuration,
        }
    }

    /// Decides on one review.
    ///
    /// A resource that is none of ours is refused, not let through: whoever registered it believes that it is judged.
    /// A status is let through, for there is nothing to judge in it, and a controller that cannot write one is lost.
    pub(crate) async fn decide(&self, hook: Hook, request: &Request<'_>) -> Decision {
        let Some(target) = Target::of(request) else {
            return not_ours(request);
        };
        if target == Target::Status || request.operation == Operation::Connect {
            return Decision::allowed();
        }
        if let Some(decision) = too_large(request) {
            return decision;
        }
        match (hook, target) {
            (_, Target::Status) => Decision::allowed(),
            (Hook::Mutate, _) if request.operation == Operation::Delete => Decision::allowed(),
            (Hook::Mutate, Target::ControlPlane) => object::mutate::<KubeadmControlPlane<'_>>(request, self),
            (Hook::Mutate, Target::Customization) => {
                object::mutate::<ClusterDeploymentCustomization<'_>>(request, self)
            }
            (Hook::Mutate, Target::ControlPlaneScale) => scale::mutate(request, self).await,
            (Hook::Mutate, Target::Template) => {
                object::mutate::<KubeadmControlPlaneTemplate<'_>>(request, self)
            }
            (Hook::Mutate, Target::ClusterPool) => object::mutate::<ClusterPool<'_>>(request, self),
            (Hook::Mutate, Target::ClusterDeployment) => {
                object::mutate::<ClusterDeployment<'_>>(request, self)
            }
            (Hook::Validate, Target::ControlPlane) => {
                object::validate::<KubeadmControlPlane<'_>>(request, self).await
            }
            (Hook::Validate, Target::ControlPlaneScale) => scale::validate(request, self).await,
            (Hook::Validate, Target::Template) => {
                object::validate::<KubeadmControlPlaneTemplate<'_>>(request, self).await
            }
            (Hook::Validate, Target::ClusterPool) => object::validate::<ClusterPool<'_>>(request, self).await,
            (Hook::Validate, Target::ClusterDeployment) => {
                object::validate::<ClusterDeployment<'_>>(request, self).await
            }
            (Hook::Validate, Target::Customization) => {
                object::validate::<ClusterDeploymentCustomization<'_>>(request, self).await
            }
        }
    }

    /// Puts a change to the rules. What they ask for of the cluster is put together, and they are asked again: see
    /// [`kcp_rules::view`]. Most reviews need nothing.
    ///
    /// What is kept of the cluster is a little behind. It is enough to let a write through that no rule speaks
    /// against, for the next moment can bring the same as the last. It neither denies nor lifts a denial, nor
    /// warns: that is judged again on live reads. A deletion is judged on those alone.
    async fn judge<T: Judged>(
        &self,
        request: &Request<'_>,
        change: Change<'_, T>,
        reads: &LiveReads<'_>,
    ) -> Seen {
        let configuration = self.configuration.get();
        let context = context(request);
        let judge = |view: &View| {
            judge(
                &change.within(Context {
                    view: Some(view),
                    ..context
                }),
                &configuration,
            )
        };
        let nothing = View::default();
        let blind = judge(&nothing);
        let wanted = nothing.missing();
        if !wanted.any() || !self.cluster.has_access() {
            return blind.into();
        }
        // The object as it is, where there is one: a client can leave owners and labels out of what it writes.
        let metadata = change.old.unwrap_or(change.new).metadata();
        let subject = Subject::new(&request.namespace, &request.name, metadata.cluster_name());
        let Some(subject) = subject else {
            return blind.into();
        };
        let source = match change.operation {
            kcp_rules::Operation::Delete => Source::LiveReads,
            kcp_rules::Operation::Create | kcp_rules::Operation::Update => Source::Caches,
        };
        // Boxed, for it is large and most reviews never come here.
        let mut filled = Box::pin(reads.view(wanted, &subject, source)).await;
        let mut judgement = judge(&filled.view);
        if filled.from_caches && (blind.is_denied() || speaks_of_the_cluster(&judgement)) {
            filled = Box::pin(reads.view(wanted, &subject, Source::LiveReads)).await;
            judgement = judge(&filled.view);
        }
        Seen {
            judgement,
            unread: filled.unread,
        }
    }

    /// Puts a change to those rules that need nothing of the cluster.
    fn judge_alone<T: Judged>(&self, request: &Request<'_>, change: Change<'_, T>) -> Judgement {
        let mut judgement = judge(&change.within(context(request)), &self.configuration.get());
        judgement
            .findings
            .retain(|finding| finding.rule.scope != Scope::Cluster);
        judgement
    }
}

/// What rules say of a change, and what they could not look at.
#[derive(Debug)]
struct Seen {
    judgement: Judgement,
    unread: Vec<String>,
}

impl From<Judgement> for Seen {
    fn from(judgement: Judgement) -> Self {
        Self {
            judgement,
            unread: Vec::new(),
        }
    }
}

impl Seen {
    fn decision(self, group: &'static str, kind: &'static str, name: impl FnOnce() -> String) -> Decision {
        let mut decision = Decision::of(group, kind, name, self.judgement);
        decision.notes.extend(self.unread);
        decision
    }
}

fn speaks_of_the_cluster(judgement: &Judgement) -> bool {
    let mut findings = judgement.findings.iter();
    findings.any(|finding| finding.action == Action::Deny || finding.rule.scope == Scope::Cluster)
}

fn context<'r>(request: &'r Request<'_>) -> Context<'r> {
    Context {
        writer: request.user_info.username.as_deref(),
        field_manager: request
            .options
            .as_ref()
            .and_then(|options| options.field_manager.as_deref()),
        now: Some(Timestamp::now()),
        ..Context::UNKNOWN
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

/// An object that is too large to be judged is refused; one that is so already can be made smaller, and be deleted.
fn too_large(request: &Request<'_>) -> Option<Decision> {
    if request.values <= VALUES {
        return None;
    }
    let is_too_large =
        |object: Option<&RawValue>| object.is_some_and(|object| values::too_many(object.get()));
    if is_too_large(request.object) {
        return Some(Decision::refused(
            RefusalKind::TooLarge,
            format!(
                "the object has more than {VALUES} values, and is not judged; split it into smaller ones"
            ),
        ));
    }
    is_too_large(request.old_object).then(|| {
        let mut allowed = Decision::allowed();
        allowed.notes.push(format!(
            "the object had more than {VALUES} values, and its change was not judged"
        ));
        allowed
    })
}

fn missing(field: &str) -> Decision {
    Decision::refused(
        RefusalKind::BadRequest,
        format!("the review has no request.{field}"),
    )
}

#[cfg(test)]
mod tests;
