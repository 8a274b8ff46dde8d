//! One object put to the rules: what admission would say of its creation.

use kcp_rules::{
    Change, Configuration, Judged,
    api::{
        ClusterDeploymentCustomization, ClusterPool, DecodeError, KubeadmControlPlane,
        KubeadmControlPlaneTemplate, decode,
    },
    defaulting::{PatchOperation, default_control_plane},
    judge as judge_change,
};
use serde_json::Value;

use super::{
    document::{Located, Node},
    finding::{Fault, Finding, ObjectName, OwnRule},
    subject::{Subject, ship_inventory},
};

/// What became of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Its kind has rules, and these are their findings.
    Judged(Vec<Finding>),
    /// It does not say what it is: nothing could be judged.
    Unknown(Vec<Finding>),
    /// Its kind, which has no rules.
    Skipped(String),
}

/// The objects of a document: those of a list, else the document itself.
pub(super) fn objects(document: Located) -> Vec<Located> {
    let is_list = document.text("kind").is_some_and(|kind| kind.ends_with("List"));
    match document {
        Located {
            node: Node::Object(fields),
            ..
        } if is_list => fields
            .into_iter()
            .filter(|(name, _)| name == "items")
            .flat_map(|(_, items)| match items.node {
                Node::List(items) => items,
                _ => Vec::new(),
            })
            .collect(),
        document => vec![document],
    }
}

/// Judges one object.
pub(super) fn judge(file: &str, mut object: Located) -> Outcome {
    let mut faults = Vec::new();
    let subject = Subject::of(&mut object, &mut faults);
    let Some(subject) = subject else {
        return match object.text("kind") {
            Some(kind) => Outcome::Skipped(kind.to_owned()),
            None => Outcome::Unknown(place(file, &object, None, faults)),
        };
    };
    if subject == Subject::ClusterPool {
        faults.extend(ship_inventory(&mut object));
    }
    let text = object.to_json().to_string();
    let found = match subject {
        Subject::ControlPlane => control_plane(&text),
        Subject::Template => decode(&text).map(|object| created::<KubeadmControlPlaneTemplate<'_>>(&object)),
        Subject::ClusterPool => decode(&text).map(|object| created::<ClusterPool<'_>>(&object)),
        Subject::Customization => {
            decode(&text).map(|object| created::<ClusterDeploymentCustomization<'_>>(&object))
        }
    };
    match found {
        Ok(findings) => faults.extend(findings.into_iter().map(Fault::from)),
        Err(error) => faults.push(undecodable(&error)),
    }
    Outcome::Judged(place(file, &object, Some(subject), faults))
}

/// The mutating webhook runs before the validating one: so do its defaults here.
fn control_plane(text: &str) -> Result<Vec<kcp_rules::Finding>, DecodeError> {
    let given: KubeadmControlPlane<'_> = decode(text)?;
    let patch = default_control_plane(&Change::create(&given));
    match patched(text, &patch) {
        Some(text) => Ok(created::<KubeadmControlPlane<'_>>(&decode(&text)?)),
        None => Ok(created(&given)),
    }
}

fn created<T: Judged>(object: &T) -> Vec<kcp_rules::Finding> {
    judge_change(&Change::create(object), &Configuration::default()).findings
}

fn patched(text: &str, patch: &[PatchOperation]) -> Option<String> {
    if patch.is_empty() {
        return None;
    }
    let mut object: Value = serde_json::from_str(text).ok()?;
    let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(patch).ok()?).ok()?;
    json_patch::patch(&mut object, &patch).ok()?;
    Some(object.to_string())
}

fn undecodable(error: &DecodeError) -> Fault {
    let fault = error.fault.as_str();
    let missing = fault
        .strip_prefix("missing field `")
        .and_then(|rest| rest.strip_suffix('`'));
    let Some(field) = missing else {
        let message = format!("Invalid value: {fault}; write a value of that type");
        return Fault::own(OwnRule::Undecodable, error.field.clone(), &message);
    };
    let path = match error.field.as_str() {
        "." => field.to_owned(),
        parent => format!("{parent}.{field}"),
    };
    Fault::own(
        OwnRule::Undecodable,
        path,
        "Required value: the field is missing; add it",
    )
}

fn place(file: &str, object: &Located, subject: Option<Subject>, faults: Vec<Fault>) -> Vec<Finding> {
    let metadata = object.get("metadata");
    let of_metadata = |field| {
        metadata
            .and_then(|metadata| metadata.text(field))
            .map(str::to_owned)
    };
    let kind = object
        .text("kind")
        .or(subject.map(Subject::kind))
        .map(str::to_owned);
    let name = ObjectName {
        kind,
        namespace: of_metadata("namespace"),
        name: of_metadata("name"),
    };
    let placed = faults.into_iter().map(|fault| Finding {
        file: file.to_owned(),
        line: object.line_of(&fault.field),
        object: name.clone(),
        field: fault.field.into_owned(),
        rule: fault.rule,
        action: fault.action,
        message: fault.message,
    });
    placed.collect()
}
