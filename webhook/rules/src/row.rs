//! A case on one of its bases: what is written, and what the rules say of it.

use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    action::Action,
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, DecodeError,
        KubeadmControlPlane, KubeadmControlPlaneTemplate, decode,
    },
    case::{Answer, Base, Case, NOW, Write},
    change::Change,
    context::Context,
    finding::Finding,
    judge::{Judged, judge},
};

/// A case on one of its bases.
#[derive(Clone, Copy, Debug)]
pub struct Row<'c> {
    /// The case.
    pub case: &'c Case,
    /// What it starts from here.
    pub base: Base,
}

/// A case that is none.
#[derive(Debug, Error)]
pub enum CaseError {
    /// A patch is not JSON.
    #[error("a patch of the case is not JSON: {0}")]
    Patch(#[from] serde_json::Error),
    /// A patch makes an object that does not have its kind's types.
    #[error("the object of the case does not decode: {0}")]
    Object(#[from] DecodeError),
}

impl Case {
    /// The case on each of its bases.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.bases.iter().map(|&base| Row { case: self, base })
    }
}

impl Row<'_> {
    /// The object before the write; none for a creation.
    ///
    /// # Errors
    /// When a patch is not JSON.
    pub fn old(&self) -> serde_json::Result<Option<Value>> {
        match self.case.write {
            Write::Create(_) => Ok(None),
            Write::Update(old, _) | Write::Scale(old, _) | Write::Delete(old) => {
                self.patched(&[old]).map(Some)
            }
        }
    }

    /// The object after the write.
    ///
    /// # Errors
    /// When a patch is not JSON.
    pub fn new_object(&self) -> serde_json::Result<Value> {
        match self.case.write {
            Write::Create(patch) | Write::Delete(patch) => self.patched(&[patch]),
            Write::Update(old, new) => self.patched(&[old, new]),
            Write::Scale(old, replicas) => {
                self.patched(&[old, &json!({ "spec": { "replicas": replicas } }).to_string()])
            }
        }
    }

    /// What all rules say of it.
    ///
    /// # Errors
    /// When a patch is not JSON, or makes an object that does not have its kind's types.
    pub fn judge(&self) -> Result<Vec<Finding>, CaseError> {
        let new = self.new_object()?.to_string();
        let old = self.old()?.map(|old| old.to_string());
        macro_rules! judged_as {
            ($kind:ident) => {{
                let new: $kind<'_> = decode(&new)?;
                let old: Option<$kind<'_>> = old.as_deref().map(decode).transpose()?;
                self.findings(&new, old.as_ref())
            }};
        }
        Ok(match self.base {
            Base::ControlPlane(_) => judged_as!(KubeadmControlPlane),
            Base::Template(_) => judged_as!(KubeadmControlPlaneTemplate),
            Base::Cluster => judged_as!(Cluster),
            Base::ClusterPool => judged_as!(ClusterPool),
            Base::Customization => judged_as!(ClusterDeploymentCustomization),
            Base::ClusterDeployment => judged_as!(ClusterDeployment),
        })
    }

    fn findings<T: Judged>(&self, new: &T, old: Option<&T>) -> Vec<Finding> {
        let change = match (self.case.write, old) {
            (Write::Update(..), Some(old)) => Change::update(old, new),
            (Write::Scale(..), Some(old)) => Change::scale(old, new),
            (Write::Delete(_), Some(old)) => Change::delete(old),
            (Write::Create(_), _) | (_, None) => Change::create(new),
        };
        let view = (self.case.view)();
        let context = Context {
            writer: self.case.writer,
            field_manager: self.case.field_manager,
            now: NOW.parse().ok(),
            view: Some(&view),
            ..Context::UNKNOWN
        };
        judge(&change.within(context), &self.case.configuration()).findings
    }

    /// Who answers it at an API server.
    ///
    /// # Errors
    /// As [`Self::judge`].
    pub fn answer(&self) -> Result<Answer, CaseError> {
        if let Some(answer) = self.case.answer {
            return Ok(answer);
        }
        let action = self.judge()?.iter().map(|finding| finding.action).max();
        Ok(match action {
            Some(Action::Deny) => Answer::Deny,
            Some(Action::Warn) => Answer::Warn,
            Some(Action::Audit | Action::Off) | None => Answer::Admitted,
        })
    }

    fn patched(&self, patches: &[&str]) -> serde_json::Result<Value> {
        let mut object = self.base.object();
        for patch in patches {
            merge(&mut object, &serde_json::from_str(patch)?);
        }
        Ok(object)
    }
}

/// RFC 7386, section 2.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}
