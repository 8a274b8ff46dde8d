//! Decides on writes to an object itself, not to a subresource.

use kcp_rules::{
    Change, Context, Judgement,
    api::{DecodeError, Metadata, decode},
    defaulting::Defaulted,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{evaluator::Evaluator, kind::Kind};
use crate::{
    decision::Decision,
    limits::MAX_NAME_CHARS,
    review::{Operation, Request},
    shorten::shorten,
};

/// Evaluates all rules on a write to an object.
pub(super) async fn validate<'a, T: Kind<'a>>(request: &Request<'a>, evaluator: &Evaluator) -> Decision {
    if request.operation == Operation::Delete {
        return validate_deletion::<T>(request, evaluator).await;
    }
    let Some(object) = request.object else {
        return Decision::missing_field("object");
    };
    if request.operation == Operation::Create {
        return match decode::<Box<T>>(object.get()) {
            Ok(new) => evaluate_change(request, Change::create(&*new), evaluator).await,
            Err(error) => undecodable::<T>(request, error),
        };
    }
    let Some(old_object) = request.old_object else {
        return Decision::missing_field("oldObject");
    };
    let new = decode::<Box<T>>(object.get());
    let old = decode_old::<T>(old_object, new.as_deref().ok());
    if is_deleting(&old, old_object) {
        return Decision::allowed();
    }
    let new = match new {
        Ok(new) => new,
        Err(error) => return undecodable::<T>(request, error),
    };
    match &old {
        Ok(old) => evaluate_change(request, Change::update(&**old, &*new), evaluator).await,
        Err(error) => {
            // Do not deny the update because of the stored object, which could then never be corrected.
            let mut decision = evaluate_change(request, update_without_old(&*new), evaluator).await;
            decision.other_warnings.push(format!(
                "{}: cannot decode the stored object, so kcp-webhook checked only the new object, and did not \
                 compare the two",
                error.field
            ));
            decision
        }
    }
}

/// Evaluates the rules on a deletion. Allows the deletion of an object that cannot be decoded.
async fn validate_deletion<'a, T: Kind<'a>>(request: &Request<'a>, evaluator: &Evaluator) -> Decision {
    match request.old_object.map(|old| decode::<Box<T>>(old.get())) {
        Some(Ok(object)) => evaluate_change(request, Change::delete(&*object), evaluator).await,
        Some(Err(_)) | None => Decision::allowed(),
    }
}

/// The result of the mutating webhook, before the exemptions of the configuration apply.
pub(super) enum Mutation {
    Decided(Decision),
    Judged {
        group: &'static str,
        kind: &'static str,
        /// The name of the object; empty unless the write is denied.
        name: String,
        judgement: Judgement,
        defaults: Defaulted,
    },
}

impl Mutation {
    pub(super) async fn decision(self, request: &Request<'_>, evaluator: &Evaluator) -> Decision {
        match self {
            Self::Decided(decision) => decision,
            Self::Judged {
                group,
                kind,
                name,
                mut judgement,
                defaults,
            } => {
                if judgement.is_denied() {
                    evaluator
                        .apply_configured_exemptions(request, &mut judgement)
                        .await;
                }
                // If the write is allowed, return no warnings, because the validating webhook returns them.
                Decision::from_judgement(group, kind, || name, judgement)
                    .denial()
                    .unwrap_or_else(|| Decision::defaulted(defaults))
            }
        }
    }
}

/// Sets defaults, and denies a write that is still invalid with them: this webhook runs before schema validation
/// and before every validating webhook, and a user sees only the first denial.
///
/// Allows an update if the new or the stored object cannot be decoded. The validating webhook finds out which
/// of the two cannot be decoded.
pub(super) fn mutate<'a, T: Kind<'a>>(request: &Request<'a>, evaluator: &Evaluator) -> Mutation {
    let Some(object) = request.object else {
        return Mutation::Decided(Decision::missing_field("object"));
    };
    if request.operation == Operation::Create {
        return match decode::<Box<T>>(object.get()) {
            Ok(new) => judge_with_defaults(request, new, None, evaluator),
            Err(error) => Mutation::Decided(undecodable::<T>(request, error)),
        };
    }
    let Some(old_object) = request.old_object else {
        return Mutation::Decided(Decision::missing_field("oldObject"));
    };
    let new = decode::<Box<T>>(object.get());
    match (decode_old::<T>(old_object, new.as_deref().ok()), new) {
        (Ok(old), Ok(new)) if !old.metadata().is_deleting() => {
            judge_with_defaults(request, new, Some(&old), evaluator)
        }
        // Set no defaults: they must not replace a stored value that cannot be read.
        _ => Mutation::Decided(Decision::allowed()),
    }
}

fn judge_with_defaults<'a, T: Kind<'a>>(
    request: &Request<'a>,
    mut new: Box<T>,
    old: Option<&T>,
    evaluator: &Evaluator,
) -> Mutation {
    let defaults = new.set_defaults(old);
    let judgement = evaluator.evaluate_object(request, change_of(&*new, old));
    let name = if judgement.is_denied() {
        name(request, new.metadata())
    } else {
        String::new()
    };
    Mutation::Judged {
        group: T::GROUP,
        kind: T::KIND,
        name,
        judgement,
        defaults,
    }
}

/// Decodes the stored object of an update. Shares what `new` has unchanged.
fn decode_old<'a, T: Kind<'a>>(old: &'a RawValue, new: Option<&T>) -> Result<Box<T>, DecodeError> {
    new.map_or_else(|| decode(old.get()), |new| T::decode_old(old, new).map(Box::new))
}

/// The update of `old`, or the creation if there is none.
fn change_of<'c, T>(new: &'c T, old: Option<&'c T>) -> Change<'c, T> {
    old.map_or(Change::create(new), |old| Change::update(old, new))
}

async fn evaluate_change<'a, T: Kind<'a>>(
    request: &Request<'a>,
    change: Change<'_, T>,
    evaluator: &Evaluator,
) -> Decision {
    let reads = evaluator.cluster.start_reads(request.read_limits);
    let evaluation = evaluator.evaluate(request, change, &reads).await;
    evaluation.decision(T::GROUP, T::KIND, || name(request, change.new.metadata()))
}

fn undecodable<'a, T: Kind<'a>>(request: &Request<'_>, error: DecodeError) -> Decision {
    let name = name(request, &Metadata::default());
    Decision::undecodable(T::GROUP, T::KIND, name, error)
}

const fn update_without_old<T>(new: &T) -> Change<'_, T> {
    Change {
        operation: kcp_rules::Operation::Update,
        subresource: None,
        new,
        old: None,
        context: Context::UNKNOWN,
    }
}

/// Whether the stored object is being deleted. Writes to such an object are allowed, so that its controller can
/// always finish the deletion. The deletion timestamp of the new object is ignored, because any client can set it.
fn is_deleting<'a, T: Kind<'a>>(old: &Result<Box<T>, DecodeError>, text: &'a RawValue) -> bool {
    #[derive(Deserialize)]
    struct WithMetadata<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    match old {
        Ok(old) => old.metadata().is_deleting(),
        Err(_) => {
            serde_json::from_str::<WithMetadata<'_>>(text.get()).is_ok_and(|old| old.metadata.is_deleting())
        }
    }
}

/// The name of the object for a message, or the `generateName` if the API server generates the name.
fn name(request: &Request<'_>, metadata: &Metadata<'_>) -> String {
    let in_object = || metadata.name.as_deref().or(metadata.generate_name.as_deref());
    let name = match &*request.name {
        "" => in_object().unwrap_or_default(),
        name => name,
    };
    shorten(name, MAX_NAME_CHARS, "").into_owned()
}
