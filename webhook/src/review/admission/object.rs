//! Decides on writes to an object itself, not to a subresource.

use kcp_rules::{
    Change, Context,
    api::{DecodeError, Metadata, decode},
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{evaluator::Evaluator, kind::Kind};
use crate::{
    decision::Decision,
    hook::Hook,
    limits::{MAX_NAME_CHARS, shorten},
    review::decode::{ObjectTexts, Operation, Request},
};

/// Decides on a write to an object that is not decoded yet.
pub(super) async fn decide<'a, T: Kind<'a>>(
    hook: Hook,
    request: &Request<'a>,
    texts: ObjectTexts<'a>,
    evaluator: &Evaluator,
) -> Decision {
    if request.operation == Operation::Delete {
        return validate_deletion::<T>(request, texts, evaluator).await;
    }
    let Some(object) = texts.new else {
        return Decision::missing_field("object");
    };
    let stored = match (request.operation, texts.stored) {
        (Operation::Create, _) => None,
        (_, None) => return Decision::missing_field("oldObject"),
        (_, stored) => stored,
    };
    let new = decode::<Box<T>>(object.get());
    let old = stored.map(|old| decode_old::<T>(old, new.as_deref().ok()));
    if let (Some(text), Some(Err(_))) = (stored, &old)
        && is_deleting(text)
    {
        return Decision::allowed();
    }
    decide_on(hook, request, new, old, evaluator).await
}

/// Decides on a creation, or on an update of `old`.
///
/// Allows a write to an object that is being deleted, so that its controller can always finish the deletion. The deletion timestamp
/// of the new object is ignored, because any client can set it.
pub(super) async fn decide_on<'a, T: Kind<'a>>(
    hook: Hook,
    request: &Request<'a>,
    new: Result<Box<T>, DecodeError>,
    old: Option<Result<Box<T>, DecodeError>>,
    evaluator: &Evaluator,
) -> Decision {
    if let Some(Ok(old)) = &old
        && old.metadata().is_deleting()
    {
        return Decision::allowed();
    }
    match hook {
        Hook::Mutate => mutate(request, new, old, evaluator).await,
        Hook::Validate => validate(request, new, old, evaluator).await,
    }
}

/// Evaluates all rules on a creation, or on an update of `old`.
async fn validate<'a, T: Kind<'a>>(
    request: &Request<'a>,
    new: Result<Box<T>, DecodeError>,
    old: Option<Result<Box<T>, DecodeError>>,
    evaluator: &Evaluator,
) -> Decision {
    let new = match new {
        Ok(new) => new,
        Err(error) => return undecodable::<T>(request, error),
    };
    let change = match &old {
        None => Change::create(&*new),
        Some(Ok(old)) => Change::update(&**old, &*new),
        // Do not deny the update because of the stored object, which could then never be corrected.
        Some(Err(_)) => update_without_old(&*new),
    };
    let mut decision = evaluate_change(request, change, evaluator).await;
    if let Some(Err(error)) = old {
        decision.other_warnings.push(format!(
            "{}: cannot decode the stored object, so kcp-webhook checked only the new object, and did not compare the two",
            error.field
        ));
    }
    decision
}

/// Sets defaults, and denies a write that is still invalid with them: this webhook runs before schema validation
/// and before every validating webhook, and a user sees only the first denial.
///
/// Allows an update if the new or the stored object cannot be decoded. The validating webhook finds out which
/// of the two cannot be decoded.
async fn mutate<'a, T: Kind<'a>>(
    request: &Request<'a>,
    new: Result<Box<T>, DecodeError>,
    old: Option<Result<Box<T>, DecodeError>>,
    evaluator: &Evaluator,
) -> Decision {
    let (mut new, old) = match (new, old.transpose()) {
        (Ok(new), Ok(old)) => (new, old),
        (Err(error), Ok(None)) => return undecodable::<T>(request, error),
        // Set no defaults: they must not replace a stored value that cannot be read.
        _ => return Decision::allowed(),
    };
    let old = old.as_deref();
    let defaults = new.set_defaults(old);
    let change = old.map_or(Change::create(&*new), |old| Change::update(old, &*new));
    let mut judgement = evaluator.evaluate_object(request, change);
    if judgement.is_denied() {
        evaluator
            .apply_configured_exemptions(request, &mut judgement)
            .await;
    }
    // If the write is allowed, return no warnings, because the validating webhook returns them.
    Decision::from_judgement(T::KIND, || name(request, new.metadata()), judgement)
        .denial()
        .unwrap_or_else(|| Decision::defaulted(defaults))
}

/// Evaluates the rules on a deletion. Allows the deletion of an object that cannot be decoded.
async fn validate_deletion<'a, T: Kind<'a>>(
    request: &Request<'a>,
    texts: ObjectTexts<'a>,
    evaluator: &Evaluator,
) -> Decision {
    match texts.stored.map(|old| decode::<Box<T>>(old.get())) {
        Some(Ok(object)) => evaluate_change(request, Change::delete(&*object), evaluator).await,
        Some(Err(_)) | None => Decision::allowed(),
    }
}

/// Decodes the stored object of an update. Takes from `new` the parts that have not changed.
fn decode_old<'a, T: Kind<'a>>(old: &'a RawValue, new: Option<&T>) -> Result<Box<T>, DecodeError> {
    new.map_or_else(|| decode(old.get()), |new| T::decode_old(old, new).map(Box::new))
}

async fn evaluate_change<'a, T: Kind<'a>>(
    request: &Request<'a>,
    change: Change<'_, T>,
    evaluator: &Evaluator,
) -> Decision {
    let reads = evaluator.cluster.start_reads(request.read_limits);
    let evaluation = evaluator.evaluate(request, change, &reads).await;
    evaluation.decision(T::KIND, || name(request, change.new.metadata()))
}

fn undecodable<'a, T: Kind<'a>>(request: &Request<'_>, error: DecodeError) -> Decision {
    let name = name(request, &Metadata::default());
    Decision::undecodable(T::KIND, name, error)
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

/// Whether an object that cannot be decoded is being deleted.
fn is_deleting(text: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct WithMetadata<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    serde_json::from_str::<WithMetadata<'_>>(text.get()).is_ok_and(|old| old.metadata.is_deleting())
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
