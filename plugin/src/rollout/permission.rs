//! Whether a change that asks the controller for nothing is sent: by the admission rules, and by who owns what it writes.

use kcp_rules::api::DecodeError;
use serde_json::Value;

use crate::{
    change::{
        ownership::{Applied, Ownership, of_topology, ownership},
        situation::Situation,
    },
    edit::{Refusal, RefusedBy},
    judgement::{Judgement, Surroundings, judge_update},
    plan::ask::patched,
};

/// What is said of a merge patch of a control plane where it is sent, a line each.
///
/// # Errors
/// The refusal where it is not, and when the control plane does not have its kind's types.
pub fn permission(
    situation: &Situation,
    patch: &Value,
    surroundings: Surroundings<'_>,
) -> Result<Result<Vec<String>, Refusal>, DecodeError> {
    let Situation { object, .. } = situation;
    let Judgement {
        denials,
        mut warnings,
    } = judge_update(object, &patched(object, patch)?, surroundings)?;
    if !denials.is_empty() {
        return Ok(Err(Refusal {
            why: denials,
            by: RefusedBy::Rules,
        }));
    }
    // Decodes what the server wrote: whether it can be decoded has just been seen.
    match ownership(object, patch, surroundings.field_manager).unwrap_or(Ownership::Free) {
        Ownership::Free => {}
        Ownership::Applied(applied) => warnings.extend(applied.iter().map(Applied::message)),
        Ownership::OfTopology { field, instead } => {
            let cluster = situation.control_plane().cluster.as_deref().unwrap_or_default();
            return Ok(Err(Refusal {
                why: vec![of_topology(&field, instead, cluster)],
                by: RefusedBy::Command,
            }));
        }
    }
    Ok(Ok(warnings))
}
