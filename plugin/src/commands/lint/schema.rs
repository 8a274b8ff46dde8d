//! Finds what an API server with Cluster API's definitions rejects or drops, before a webhook sees the object.
//!
//! - [`structural`]: the schemas of the kinds
//! - [`validate`]: compares an object with a schema
//! - [`moved`]: the fields that differ between v1beta1 and v1beta2

mod moved;
mod structural;
mod validate;

use kcp_api::names::group;
use kcp_control_plane::bundle::is_secret;
use kcp_rules::{Action, syntax::parse_go_duration, topics::misspelled};
use serde_json::Value;

use crate::commands::lint::{
    document::LocatedValue,
    finding::{Fault, LintRule, shown},
};
use moved::{Moved, Versions};
pub(super) use structural::served_versions;
use structural::{Schema, Type};
use validate::{Violation, ViolationKind, check_duration, violations};

/// The `apiVersion` that Cluster API no longer serves from release 1.16 on, planned for April 2027: `reference/versions.md` in the
/// book of Cluster API 1.14.
const DEPRECATED_VERSION: &str = "v1beta1";

/// The kinds of Cluster API 1.14. Other products have more kinds in its groups.
const CLUSTER_API_KINDS: &str = "Cluster ClusterClass ClusterResourceSet ClusterResourceSetBinding ExtensionConfig IPAddress \
    IPAddressClaim KubeadmConfig KubeadmConfigTemplate KubeadmControlPlane KubeadmControlPlaneTemplate Machine MachineDeployment \
    MachineDrainRule MachineHealthCheck MachinePool MachineSet";

const HIVE_KINDS: &str = "Checkpoint ClusterClaim ClusterDeployment ClusterDeploymentCustomization ClusterDeprovision ClusterImageSet \
    ClusterPool ClusterProvision ClusterRelocate ClusterState DNSZone HiveConfig MachinePool MachinePoolNameLease \
    SelectorSyncIdentityProvider SelectorSyncSet SyncIdentityProvider SyncSet";

/// Adds what an API server rejects or drops to the problems that the rules found. `old` is the object before an update. `false` if
/// the kind has no schema, and no rules either.
pub(super) fn check(
    located: &LocatedValue,
    old: Option<&LocatedValue>,
    has_rules: bool,
    faults: &mut Vec<Fault>,
) -> bool {
    let kind = located.text("kind").unwrap_or_default();
    let api_version = located.text("apiVersion").unwrap_or_default();
    // An object with a wrong `apiVersion` may have the fields of any version.
    let has_wrong_version = faults
        .iter()
        .any(|fault| [LintRule::KindMissing.id(), LintRule::VersionUnserved.id()].contains(&fault.rule));
    match (
        Schema::of_kind(api_version, kind),
        Versions::new(api_version, kind),
    ) {
        (Some(schema), Some(versions)) if !has_wrong_version => {
            let mut found = violations(schema, located, "");
            if let Some(old) = old {
                let unchanged = violations(schema, old, "");
                found.retain(|violation| !unchanged.iter().any(|old| is_tolerated(violation, old)));
            }
            let metadata = located.get("metadata");
            let has_name = |field| {
                let value = metadata.and_then(|metadata| metadata.get(field));
                value.is_some_and(|value| !value.is_null())
            };
            if !has_name("name") && !has_name("generateName") {
                found.push(Violation {
                    path: "metadata.name".to_owned(),
                    value: located,
                    problem: ViolationKind::Missing,
                });
            }
            explain_undecodable(&found, faults);
            add(kind, &versions, &found, faults);
            faults.extend(
                versions
                    .lost(located)
                    .into_iter()
                    .map(|Moved { path, message, .. }| {
                        Fault::from_lint(LintRule::FieldMoved, path, &message)
                    }),
            );
            true
        }
        _ if has_rules => {
            let metadata = Schema::of_metadata().zip(located.get("metadata"));
            let found = metadata.map(|(schema, metadata)| violations(schema, metadata, "metadata"));
            faults.extend(
                found
                    .into_iter()
                    .flatten()
                    .filter_map(|violation| invalid(&violation)),
            );
            true
        }
        _ => {
            let unserved = unserved(kind, api_version, &served_versions(kind));
            let unserved = unserved.or_else(|| mistyped(kind, api_version));
            let is_unserved = unserved.is_some();
            faults.extend(unserved);
            is_unserved
        }
    }
}

/// Replaces the message about a value that cannot be decoded by that of the schema, which names the value and says how to write it.
fn explain_undecodable(found: &[Violation<'_>], faults: &mut [Fault]) {
    for fault in faults {
        let is_same = |violation: &&Violation<'_>| is_same_field(&violation.path, &fault.field);
        if fault.rule == LintRule::Undecodable.id()
            && let Some(violation) = found.iter().find(is_same)
            && let Some(message) = rejection(violation)
        {
            *fault = Fault::from_lint(LintRule::Undecodable, fault.field.clone(), &message);
        }
    }
}

/// Whether two paths name the same field. The decoder writes `labels.a` for `labels[a]`.
fn is_same_field(path: &str, other: &str) -> bool {
    let plain = |path: &str| path.replace('[', ".").replace(']', "");
    plain(path) == plain(other)
}

/// Whether a planned release of Cluster API no longer serves the `apiVersion` of the object.
pub(super) fn has_deprecated_version(located: &LocatedValue) -> bool {
    let kind = located.text("kind").unwrap_or_default();
    let given = located.text("apiVersion").unwrap_or_default();
    given.ends_with(DEPRECATED_VERSION) && served_versions(kind).contains(&given)
}

/// What to say about this number of objects with a deprecated `apiVersion`.
pub(super) fn deprecation_note(objects: usize) -> Option<String> {
    let subject = match objects {
        0 => return None,
        1 => "1 object has".to_owned(),
        objects => format!("{objects} objects have"),
    };
    Some(format!(
        "{subject} {DEPRECATED_VERSION}, which Cluster API 1.16 (planned for April 2027) no longer serves"
    ))
}

/// The problem of an `apiVersion` in which no API server serves the kind. `None` if one does, or if another product may have a kind
/// with this name.
pub(super) fn unserved(kind: &str, given: &str, served: &[&str]) -> Option<Fault> {
    let preferred = served.first()?;
    let group = |api_version: &str| {
        api_version
            .rsplit_once('/')
            .map_or("", |(group, _)| group)
            .to_owned()
    };
    let (of_given, of_served) = (group(given), group(preferred));
    let of_cluster_api = |group: &str| group.ends_with("cluster.x-k8s.io");
    let is_meant = kind.starts_with("Kubeadm")
        || of_given == of_served
        || (of_cluster_api(&of_given) && of_cluster_api(&of_served))
        // Only Kubernetes has kinds without a group. But other tools use the kind Cluster in files that no API server gets.
        || (of_given.is_empty() && kind != "Cluster");
    if served.contains(&given) || !is_meant {
        return None;
    }
    let product = if of_cluster_api(&of_served) {
        "Cluster API"
    } else {
        "Hive"
    };
    let message = format!(
        "Invalid value: {given:?}: {product} serves {kind} only in {}; write {preferred}, and check the fields",
        served.join(" and ")
    );
    Some(Fault::from_lint(
        LintRule::VersionUnserved,
        "apiVersion",
        &message,
    ))
}

/// The problem of a kind that no API server knows, but whose name is almost that of another one in the group.
fn mistyped(kind: &str, api_version: &str) -> Option<Fault> {
    let (group, _) = api_version.rsplit_once('/')?;
    let known = match group {
        group::CLUSTER | group::BOOTSTRAP | group::CONTROL_PLANE => CLUSTER_API_KINDS,
        group::HIVE => HIVE_KINDS,
        _ => return None,
    };
    let meant = misspelled(kind, known.split(' ')).filter(|meant| *meant != kind)?;
    let message = format!(
        "Invalid value: {kind:?}: the API server knows no kind {kind} in {api_version}; write {meant}"
    );
    Some(Fault::from_lint(LintRule::VersionUnserved, "kind", &message))
}

/// Adds violations as problems. If several problems have the same cause, only the one that says most remains.
fn add(kind: &str, versions: &Versions, found: &[Violation<'_>], faults: &mut Vec<Fault>) {
    let moved: Vec<Moved> = found
        .iter()
        .flat_map(|violation| moved_of(versions, violation))
        .collect();
    let mut added: Vec<Fault> = found
        .iter()
        .filter(|violation| moved_of(versions, violation).is_empty())
        .filter(|violation| !is_known(violation, faults))
        .filter_map(|violation| unknown(kind, versions, violation).or_else(|| invalid(violation)))
        .collect();
    for Moved {
        path,
        target,
        message,
    } in moved
    {
        // The path is the same, so the value has another type. The API server rejects the value instead of dropping it.
        let is_rejected = target.as_ref() == Some(&path);
        let mut fault = Fault::from_lint(LintRule::FieldMoved, path, &message);
        // The field at the new path is only missing because the value is at the old path.
        let is_explained = |other: &Fault| {
            other.message.starts_with("Required value")
                && target
                    .as_deref()
                    .is_some_and(|target| is_within(target, &other.field) || is_within(&other.field, target))
        };
        let denies = |faults: &[Fault]| {
            let mut explained = faults.iter().filter(|other| is_explained(other));
            explained.any(|other| other.action == Action::Deny)
        };
        if is_rejected || denies(faults) || denies(&added) {
            fault.action = Action::Deny;
        }
        faults.retain(|other| !is_explained(other));
        added.retain(|other| !is_explained(other));
        faults.push(fault);
    }
    faults.append(&mut added);
}

/// Whether an API server tolerates a violation, because it is in a part of the object that the update does not change.
fn is_tolerated(violation: &Violation<'_>, old: &Violation<'_>) -> bool {
    !matches!(violation.problem, ViolationKind::Unknown { .. })
        && (&violation.path, &violation.problem) == (&old.path, &old.problem)
        && violation.value.to_json() == old.value.to_json()
}

/// The fields of another version that explain this violation.
fn moved_of(versions: &Versions, violation: &Violation<'_>) -> Vec<Moved> {
    match violation.problem {
        ViolationKind::Unknown { .. } => versions.moved(&violation.path, violation.value),
        ViolationKind::Type { .. } => versions
            .retyped(&violation.path, violation.value)
            .into_iter()
            .collect(),
        _ => Vec::new(),
    }
}

/// Whether a denial names the same field. If the field is missing or occurs twice, a denial of a field inside it counts too.
fn is_known(violation: &Violation<'_>, faults: &[Fault]) -> bool {
    let is_same = |fault: &Fault| match violation.problem {
        ViolationKind::Missing | ViolationKind::Duplicate(_) => is_within(&fault.field, &violation.path),
        _ => is_same_field(&fault.field, &violation.path),
    };
    faults
        .iter()
        .any(|fault| fault.action == Action::Deny && is_same(fault))
}

/// Whether a path is the outer one, or inside of it.
fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn unknown(kind: &str, versions: &Versions, violation: &Violation<'_>) -> Option<Fault> {
    let ViolationKind::Unknown { nearest } = &violation.problem else {
        return None;
    };
    let remedy = match nearest {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => "remove it".to_owned(),
    };
    let message = format!(
        "{kind} {} has no such field, and the API server drops it; {remedy}",
        versions.own
    );
    Some(Fault::from_lint(
        LintRule::FieldUnknown,
        violation.path.clone(),
        &message,
    ))
}

/// A value that an API server rejects.
fn invalid(violation: &Violation<'_>) -> Option<Fault> {
    let message = rejection(violation)?;
    Some(Fault::from_lint(
        LintRule::FieldInvalid,
        violation.path.clone(),
        &message,
    ))
}

/// Why an API server rejects a value; `None` if it drops the field instead.
fn rejection(violation: &Violation<'_>) -> Option<String> {
    let Violation { path, value, problem } = violation;
    let given = shown(path, &value.to_json());
    Some(match problem {
        ViolationKind::Unknown { .. } => return None,
        ViolationKind::Missing => "Required value: the field is missing; add it".to_owned(),
        ViolationKind::Type { expected } => {
            let remedy = type_remedy(path, value, expected).unwrap_or_default();
            format!("Invalid value: {given}: must be {expected}{remedy}")
        }
        ViolationKind::Unsupported(allowed) => {
            format!("Unsupported value: {given}: must be {}", one_of(allowed, &given))
        }
        ViolationKind::Duplicate([]) => {
            format!("Duplicate value: {given}: an earlier item of the list is equal; remove one of them")
        }
        ViolationKind::Duplicate(keys) => {
            let values = keys.iter().filter_map(|key| {
                let value = value.get(key)?.to_json();
                Some(format!("{key} {}", shown(&format!("{path}.{key}"), &value)))
            });
            format!(
                "Duplicate value: {}: an earlier item of the list has the same {}; remove one of them",
                values.collect::<Vec<_>>().join(", "),
                keys.join(" and ")
            )
        }
        ViolationKind::Value(why) => format!("Invalid value: {given}: {why}"),
    })
}

/// The values that a field may have, and the one that was probably meant.
fn one_of(allowed: &[Value], given: &str) -> String {
    let names: Vec<_> = allowed.iter().filter_map(Value::as_str).collect();
    match (
        names.as_slice(),
        misspelled(given.trim_matches('"'), names.iter().copied()),
    ) {
        ([only], _) => (*only).to_owned(),
        (all, None) => format!("one of {}", all.join(", ")),
        (all, Some(meant)) => format!("one of {}; did you mean {meant}?", all.join(", ")),
    }
}

/// How to write a scalar so that it has another type. YAML reads text without quotes as a number or a boolean if it can.
fn type_remedy(path: &str, value: &LocatedValue, expected: &str) -> Option<String> {
    let json = value.to_json();
    let plain = json.to_string();
    match &json {
        Value::Bool(_) | Value::Number(_) if expected == "a string" => Some(match value.written.as_deref() {
            _ if is_secret(path) => "; write it in quotes".to_owned(),
            // As a string, a version of two numbers is denied, too.
            written if path.ends_with(".version") && json.is_f64() => {
                format!(
                    "; write the patch version, too: \"v{}.0\"",
                    written.unwrap_or(&plain)
                )
            }
            Some(written) if plain != written => {
                format!("; YAML reads {written} as {plain}, so write {written:?}")
            }
            _ => format!("; write {plain:?}"),
        }),
        Value::Number(_) if expected.starts_with("a duration") => {
            let why = check_duration(&plain).err()?;
            Some(format!(";{}", why.split_once(';')?.1))
        }
        Value::String(text) if path.ends_with("Seconds") => {
            let duration = parse_go_duration(text).filter(|duration| duration.subsec_nanos() == 0)?;
            Some(format!("; write {}", duration.as_secs()))
        }
        Value::String(text) if expected != "a string" => {
            let meant: Value = serde_json::from_str(text).ok()?;
            (Type::of(&meant).name() == expected).then(|| format!("; write {text} without quotes"))
        }
        _ => None,
    }
}
