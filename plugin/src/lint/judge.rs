//! One object put to the rules: what admission would say of its creation.

use jiff::Timestamp;
use kcp_rules::{
    Change, Configuration, Context, Judged,
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, DecodeError,
        KubeadmControlPlane, KubeadmControlPlaneTemplate, Metadata, decode,
        hive::{ClusterPoolSpec, Inventory},
    },
    defaulting::{apply, default_control_plane, default_customization},
    judge as judge_change,
    view::View,
};
use serde::Deserialize;

use super::{
    document::{Located, Node},
    finding::{Fault, Finding, ObjectName, OwnRule},
    neighbours::Neighbours,
    subject::Subject,
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

/// What objects are judged by.
#[derive(Debug)]
pub(super) struct Court<'l> {
    /// What follows from each rule.
    pub(super) configuration: &'l Configuration,
    /// The objects given, each other's neighbours.
    pub(super) neighbours: &'l Neighbours,
    /// When.
    pub(super) now: Timestamp,
}

impl Court<'_> {
    fn created<T: Judged>(&self, object: &T, view: &View) -> Vec<Fault> {
        let context = Context {
            now: Some(self.now),
            view: Some(view),
            ..Context::UNKNOWN
        };
        let judgement = judge_change(&Change::create(object).within(context), self.configuration);
        judgement.findings.into_iter().map(Fault::from).collect()
    }

    /// The mutating webhook runs before the validating one: so do its defaults here, and what it says of repairs.
    fn control_plane(&self, text: &str, view: &View) -> Result<Vec<Fault>, DecodeError> {
        let given: KubeadmControlPlane<'_> = decode(text)?;
        let defaulted = default_control_plane(&Change::create(&given));
        match apply(text, &defaulted.operations) {
            Some(text) => Ok(self.created::<KubeadmControlPlane<'_>>(&decode(&text)?, view)),
            None => Ok(self.created(&given, view)),
        }
    }

    fn customization(&self, text: &str, view: &View) -> Result<Vec<Fault>, DecodeError> {
        let given: ClusterDeploymentCustomization<'_> = decode(text)?;
        let defaulted = default_customization(&Change::create(&given));
        let mut faults: Vec<Fault> = defaulted.repairs.into_iter().map(Fault::from).collect();
        faults.extend(match apply(text, &defaulted.operations) {
            Some(text) => self.created::<ClusterDeploymentCustomization<'_>>(&decode(&text)?, view),
            None => self.created(&given, view),
        });
        Ok(faults)
    }
}

impl Court<'_> {
    /// Judges the inventory of a pool that is not whole, such as the fragments in a document.
    fn inventory(&self, text: &str, view: &View) -> Vec<Fault> {
        #[derive(Deserialize)]
        struct Fragment {
            spec: FragmentSpec,
        }
        #[derive(Deserialize)]
        struct FragmentSpec {
            inventory: Option<Inventory>,
        }
        let Ok(Fragment { spec }) = decode::<Fragment>(text) else {
            return Vec::new();
        };
        let pool = ClusterPool {
            metadata: Metadata::default(),
            spec: ClusterPoolSpec {
                inventory: spec.inventory,
                ..ClusterPoolSpec::default()
            },
        };
        let mut faults = self.created(&pool, view);
        faults.retain(|fault| fault.field.starts_with("spec.inventory"));
        faults
    }
}

/// Judges one object.
pub(super) fn judge(file: &str, mut object: Located, court: &Court<'_>) -> Outcome {
    let mut faults = Vec::new();
    let subject = Subject::of(&mut object, &mut faults);
    let Some(subject) = subject else {
        return match object.text("kind") {
            Some(kind) => Outcome::Skipped(kind.to_owned()),
            None => Outcome::Unknown(place(file, &object, None, faults)),
        };
    };
    let value = object.to_json();
    let (text, view) = (value.to_string(), court.neighbours.view(&value));
    let found = match subject {
        Subject::ControlPlane => court.control_plane(&text, &view),
        Subject::Template => {
            decode(&text).map(|object| court.created::<KubeadmControlPlaneTemplate<'_>>(&object, &view))
        }
        Subject::Cluster => decode(&text).map(|object| court.created::<Cluster<'_>>(&object, &view)),
        Subject::ClusterPool => decode(&text).map(|object| court.created::<ClusterPool<'_>>(&object, &view)),
        Subject::Customization => court.customization(&text, &view),
        Subject::ClusterDeployment => {
            decode(&text).map(|object| court.created::<ClusterDeployment<'_>>(&object, &view))
        }
    };
    match found {
        Ok(found) => faults.extend(found),
        Err(error) => {
            faults.push(undecodable(&error));
            if subject == Subject::ClusterPool {
                faults.extend(court.inventory(&text, &view));
            }
        }
    }
    Outcome::Judged(place(file, &object, Some(subject), faults))
}

fn undecodable(error: &DecodeError) -> Fault {
    let message = if error.is_missing() {
        "Required value: the field is missing; add it".to_owned()
    } else {
        format!("Invalid value: {}; write a value of that type", error.fault)
    };
    Fault::own(OwnRule::Undecodable, error.field.clone(), &message)
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
