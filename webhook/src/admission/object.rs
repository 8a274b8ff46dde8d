//! Writes to an object itself.

use kcp_rules::{
    Change, Context, Judged, Judgement, Operation as Asked,
    api::{
        ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, DecodeError, KubeadmControlPlane,
        KubeadmControlPlaneTemplate, Metadata, decode, decode_part,
    },
    defaulting::{Defaulted, apply, default_control_plane, default_customization},
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Admission, missing};
use crate::{
    decision::Decision,
    limits::NAME_CHARS,
    review::{Operation, Request},
    shorten::shorten,
};

/// The group of control planes.
pub(super) const CLUSTER_API: &str = "controlplane.cluster.x-k8s.io";
/// The group of pools and customizations.
pub(super) const HIVE: &str = "hive.openshift.io";

/// A kind that rules judge, as reviews and messages name it.
pub(super) trait Kind<'a>: Judged + Deserialize<'a> {
    const GROUP: &'static str;
    const KIND: &'static str;

    /// Decodes an object as it would become, beside itself as it is, if that could be read.
    fn decode_beside(_old: Option<&Self>, object: &'a RawValue) -> Result<Self, DecodeError> {
        decode_part(object)
    }
}

impl<'a> Kind<'a> for KubeadmControlPlane<'a> {
    const GROUP: &'static str = CLUSTER_API;
    const KIND: &'static str = "KubeadmControlPlane";

    fn decode_beside(old: Option<&Self>, object: &'a RawValue) -> Result<Self, DecodeError> {
        match old {
            Some(old) => Self::decode_beside(old, object),
            None => decode_part(object),
        }
    }
}

macro_rules! kind {
    ($type:ident, $group:expr) => {
        impl<'a> Kind<'a> for $type<'a> {
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($type);
        }
    };
}

kind!(KubeadmControlPlaneTemplate, CLUSTER_API);
kind!(ClusterPool, HIVE);
kind!(ClusterDeploymentCustomization, HIVE);
kind!(ClusterDeployment, HIVE);

/// Puts a write to the rules.
pub(super) async fn validate<'a, T: Kind<'a>>(request: &Request<'a>, admission: &Admission) -> Decision {
    if request.operation == Operation::Delete {
        return delete::<T>(request, admission).await;
    }
    let Some(object) = request.object else {
        return missing("object");
    };
    if request.operation == Operation::Create {
        return match decode_part::<T>(object) {
            Ok(new) => judged(request, Change::create(&new), admission).await,
            Err(error) => undecodable::<T>(request, error),
        };
    }
    let Some(old_object) = request.old_object else {
        return missing("oldObject");
    };
    let old = decode_part::<T>(old_object);
    if is_deleting(&old, old_object) {
        return Decision::allowed();
    }
    let new = match T::decode_beside(old.as_ref().ok(), object) {
        Ok(new) => new,
        Err(error) => return undecodable::<T>(request, error),
    };
    match &old {
        Ok(old) => judged(request, Change::update(old, &new), admission).await,
        Err(error) => {
            // To blame the new object for the old one would leave the old one for ever.
            let mut decision = judged(request, update_of_unknown(&new), admission).await;
            decision.notes.push(format!(
                "{}: the object as it was cannot be read, and the change to it was not judged",
                error.field
            ));
            decision
        }
    }
}

/// What cannot be read can still be deleted.
async fn delete<'a, T: Kind<'a>>(request: &Request<'a>, admission: &Admission) -> Decision {
    match request.old_object.map(|object| decode_part::<T>(object)) {
        Some(Ok(object)) => judged(request, Change::delete(&object), admission).await,
        Some(Err(_)) | None => Decision::allowed(),
    }
}

/// How the objects of a kind are completed before they are judged.
pub(super) trait Completed<'a>: Kind<'a> {
    /// Objects of this kind as they are decoded from a text of another life than the review's.
    type Of<'b>: Completed<'b>;

    fn complete(change: &Change<'_, Self>) -> Defaulted;
}

macro_rules! completed {
    ($type:ident, $complete:path) => {
        impl<'a> Completed<'a> for $type<'a> {
            type Of<'b> = $type<'b>;

            fn complete(change: &Change<'_, Self>) -> Defaulted {
                $complete(change)
            }
        }
    };
}

completed!(KubeadmControlPlane, default_control_plane);
completed!(ClusterDeploymentCustomization, default_customization);
completed!(KubeadmControlPlaneTemplate, as_written);
completed!(ClusterPool, as_written);
completed!(ClusterDeployment, as_written);

/// Nothing is filled in.
fn as_written<T>(_: &Change<'_, T>) -> Defaulted {
    Defaulted::default()
}

/// Completes an object, and refuses what is at fault in spite of that: this webhook answers before the schema, and
/// before every validating webhook, of which a person sees the one that answers first. An update that cannot be read is
/// let through: what is there may be as unreadable, and the validating webhook tells the one from the other.
pub(super) fn mutate<'a, T: Completed<'a>>(request: &Request<'a>, admission: &Admission) -> Decision {
    let Some(object) = request.object else {
        return missing("object");
    };
    if request.operation == Operation::Create {
        return match decode_part::<T>(object) {
            Ok(new) => completed(request, object, None, &Change::create(&new), admission),
            Err(error) => undecodable::<T>(request, error),
        };
    }
    let Some(old_object) = request.old_object else {
        return missing("oldObject");
    };
    // What was there before, where it is not known, must not be replaced by a default.
    let Ok(old) = decode_part::<T>(old_object) else {
        return Decision::allowed();
    };
    if old.metadata().is_deleting() {
        return Decision::allowed();
    }
    T::decode_beside(Some(&old), object).map_or_else(
        |_| Decision::allowed(),
        |new| {
            let change = Change::update(&old, &new);
            completed(request, object, Some(old_object), &change, admission)
        },
    )
}

fn completed<'a, T: Completed<'a>>(
    request: &Request<'a>,
    object: &RawValue,
    old_object: Option<&RawValue>,
    change: &Change<'_, T>,
    admission: &Admission,
) -> Decision {
    let defaulted = T::complete(change);
    let decision = if defaulted.operations.is_empty() {
        decision(request, change.new, admission.judge_alone(request, *change))
    } else {
        let judged = apply(object.get(), &defaulted.operations)
            .and_then(|text| judged_alone::<T::Of<'_>>(request, &text, old_object, admission));
        let Some(decision) = judged else {
            return Decision::allowed();
        };
        decision
    };
    // Of what is allowed, the validating webhook warns: one of the two is enough.
    decision
        .denial()
        .unwrap_or_else(|| Decision::completed(defaulted))
}

fn judged_alone<'b, T: Kind<'b>>(
    request: &Request<'_>,
    text: &'b str,
    old_object: Option<&'b RawValue>,
    admission: &Admission,
) -> Option<Decision> {
    let new = decode::<T>(text).ok()?;
    let old = old_object.map(|old| decode_part::<T>(old)).transpose().ok()?;
    let change = old
        .as_ref()
        .map_or(Change::create(&new), |old| Change::update(old, &new));
    Some(decision(request, &new, admission.judge_alone(request, change)))
}

async fn judged<'a, T: Kind<'a>>(
    request: &Request<'a>,
    change: Change<'_, T>,
    admission: &Admission,
) -> Decision {
    let reads = admission.cluster.reads();
    let seen = admission.judge(request, change, &reads).await;
    seen.decision(T::GROUP, T::KIND, || name(request, change.new.metadata()))
}

fn decision<'a, T: Kind<'a>>(request: &Request<'_>, object: &T, judgement: Judgement) -> Decision {
    Decision::of(T::GROUP, T::KIND, || name(request, object.metadata()), judgement)
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
        context: Context::UNKNOWN,
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
