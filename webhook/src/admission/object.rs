//! Writes to an object itself.

use kcp_rules::{
    Change, Finding, Operation as Asked,
    api::{ClusterDeploymentCustomization, ClusterPool, DecodeError, KubeadmControlPlane, Metadata, decode},
    defaulting, judge_cluster_pool, judge_control_plane, judge_customization,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::missing;
use crate::{
    decision::Decision,
    limits::NAME_CHARS,
    response::shorten,
    review::{Operation, Request},
};

/// The group of control planes.
pub(super) const CLUSTER_API: &str = "controlplane.cluster.x-k8s.io";
/// The group of pools and customizations.
pub(super) const HIVE: &str = "hive.openshift.io";

/// A kind that rules judge.
pub(super) trait Kind<'a>: Deserialize<'a> {
    const GROUP: &'static str;
    const KIND: &'static str;
    fn metadata(&self) -> &Metadata<'a>;
    fn judge(change: &Change<'_, Self>) -> Vec<Finding>;
}

macro_rules! kind {
    ($type:ident, $group:expr, $judge:path) => {
        impl<'a> Kind<'a> for $type<'a> {
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($type);

            fn metadata(&self) -> &Metadata<'a> {
                &self.metadata
            }

            fn judge(change: &Change<'_, Self>) -> Vec<Finding> {
                $judge(change)
            }
        }
    };
}

kind!(KubeadmControlPlane, CLUSTER_API, judge_control_plane);
kind!(ClusterPool, HIVE, judge_cluster_pool);
kind!(ClusterDeploymentCustomization, HIVE, judge_customization);

/// Puts a creation or an update to the rules.
pub(super) fn validate<'a, T: Kind<'a>>(request: &Request<'a>) -> Decision {
    let Some(object) = request.object else {
        return missing("object");
    };
    if request.operation == Operation::Create {
        return match decode::<T>(object.get()) {
            Ok(new) => judged(request, &Change::create(&new)),
            Err(error) => undecodable::<T>(request, error),
        };
    }
    let Some(old_object) = request.old_object else {
        return missing("oldObject");
    };
    let old = decode::<T>(old_object.get());
    if is_deleting(&old, old_object) {
        return Decision::allowed();
    }
    let new = match decode::<T>(object.get()) {
        Ok(new) => new,
        Err(error) => return undecodable::<T>(request, error),
    };
    match &old {
        Ok(old) => judged(request, &Change::update(old, &new)),
        Err(error) => {
            // To blame the new object for the old one would leave the old one for ever.
            let mut decision = judged(request, &update_of_unknown(&new));
            decision.notes.push(format!(
                "{}: the object as it was cannot be read, and the change to it was not judged",
                error.field
            ));
            decision
        }
    }
}

/// Fills in the defaults of a control plane. What cannot be read is let through: the schema or the validating webhook
/// says better what is wrong with it.
pub(super) fn mutate(request: &Request<'_>) -> Decision {
    let Some(object) = request.object else {
        return missing("object");
    };
    let Ok(new) = decode::<KubeadmControlPlane<'_>>(object.get()) else {
        return Decision::allowed();
    };
    if request.operation == Operation::Create {
        return Decision::patched(defaulting::default_control_plane(&Change::create(&new)));
    }
    let Some(old_object) = request.old_object else {
        return missing("oldObject");
    };
    let old = decode::<KubeadmControlPlane<'_>>(old_object.get());
    if is_deleting(&old, old_object) {
        return Decision::allowed();
    }
    match &old {
        Ok(old) => Decision::patched(defaulting::default_control_plane(&Change::update(old, &new))),
        // Its replicas are not known, and any other number would scale it.
        Err(_) => Decision::allowed(),
    }
}

fn judged<'a, T: Kind<'a>>(request: &Request<'_>, change: &Change<'_, T>) -> Decision {
    let name = || name(request, change.new.metadata());
    Decision::of(T::GROUP, T::KIND, name, &T::judge(change))
}

fn undecodable<'a, T: Kind<'a>>(request: &Request<'_>, error: DecodeError) -> Decision {
    let name = name(request, &Metadata::default());
    Decision::undecodable(T::GROUP, T::KIND, name, error)
}

const fn update_of_unknown<T>(new: &T) -> Change<'_, T> {
    Change {
        operation: Asked::Update,
        subresource: None,
        new,
        old: None,
    }
}

/// Whether an object is on its way out: a controller must always be able to finish that. The new object's word does
/// not count, for a client can write what it likes there.
fn is_deleting<'a, T: Kind<'a>>(old: &Result<T, DecodeError>, text: &'a RawValue) -> bool {
    #[derive(Deserialize)]
    struct Described<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    match old {
        Ok(old) => old.metadata().is_deleting(),
        Err(_) => {
            serde_json::from_str::<Described<'_>>(text.get()).is_ok_and(|old| old.metadata.is_deleting())
        }
    }
}

/// The object's name, for a message; the prefix where the server has yet to generate one.
fn name(request: &Request<'_>, metadata: &Metadata<'_>) -> String {
    let in_object = || metadata.name.as_deref().or(metadata.generate_name.as_deref());
    let name = match &*request.name {
        "" => in_object().unwrap_or_default(),
        name => name,
    };
    shorten(name, NAME_CHARS, "").into_owned()
}
