//! Compares the infrastructure template of a planned change with the current template.

use kcp_api::Reference;
use kcp_client::{Error, reads::planned::Reads};
use kcp_control_plane::{
    plan::{Desired, effect::template_changes},
    snapshot::{Reading, Snapshot},
};
use serde_json::Value;

/// Adds to the plan the fields that the new infrastructure template changes, and whether that template
/// exists. `in_file` is the template that the manifest contains. Returns a warning if the changes are
/// unknown, or if there are none.
pub(super) async fn compare(
    reads: &Reads<'_>,
    observed: &mut Snapshot,
    desired: &mut Desired,
    in_file: Option<&Value>,
) -> Option<String> {
    let current = &observed.control_plane.spec.infrastructure_ref;
    let new = &desired.spec.infrastructure_ref;
    if current == new {
        return None;
    }
    let read = match in_file {
        Some(object) => Ok(object.clone()),
        None => reads.read_template(new).await,
    };
    let exists = match &read {
        Ok(_) => Some(true),
        Err(Error::NotFound { .. }) => Some(false),
        Err(_) => None,
    };
    let result = match (read, exists) {
        (_, Some(false)) => None,
        (Err(error), _) => Some(unknown_changes(new, new, &error)),
        (Ok(object), _) => match reads.read_template(current).await {
            Err(error) => Some(unknown_changes(new, current, &error)),
            Ok(before) => {
                let changes = template_changes(&before, &object, new);
                let is_equal = changes.is_empty();
                desired.changes.extend(changes);
                is_equal.then(|| {
                    format!(
                        "{} has the same spec as {}, so the rollout creates identical machines",
                        display_reference(new),
                        display_reference(current)
                    )
                })
            }
        },
    };
    let exists = exists.map(|exists| (new.clone(), Reading::Read(exists)));
    observed.templates.extend(exists);
    result
}

fn unknown_changes(new: &Reference, unread: &Reference, error: &Error) -> String {
    format!(
        "could not read {}: {error}; the plan does not show the fields that {} changes",
        display_reference(unread),
        display_reference(new)
    )
}

fn display_reference(template: &Reference) -> String {
    format!("{} {}", template.kind, template.name)
}
