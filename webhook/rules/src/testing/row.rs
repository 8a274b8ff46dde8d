//! A case applied to one of its base objects: the write, and the findings of all rules.

use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    action::Action,
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, DecodeError,
        KubeadmControlPlane, KubeadmControlPlaneTemplate, control_plane::Shape, decode,
    },
    change::Change,
    context::{Context, OfTopology, TOPOLOGY_MANAGER},
    finding::Finding,
    judge::{HasRules, Judgement, judge},
    testing::case::{Answer, Base, Case, NOW, Write},
    view::View,
};

/// A case applied to one of its base objects.
#[derive(Clone, Copy, Debug)]
pub struct Row<'c> {
    pub case: &'c Case,
    /// The valid object that the case modifies.
    pub base: Base,
}

/// Why a case cannot be evaluated.
#[derive(Debug, Error)]
pub enum CaseError {
    #[error("a patch of the case is not JSON: {0}")]
    Patch(#[from] serde_json::Error),
    #[error("the object of the case cannot be decoded: {0}")]
    Object(#[from] DecodeError),
}

impl Case {
    /// The case applied to each of its base objects.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.bases.iter().map(|&base| Row { case: self, base })
    }
}

impl Row<'_> {
    /// The object before the write; `None` on a creation.
    pub fn old(&self) -> serde_json::Result<Option<Value>> {
        match self.case.write {
            Write::Create(_) => Ok(None),
            Write::Update(old, _) | Write::Scale(old, _) | Write::Delete(old) => {
                self.patched(&[old]).map(Some)
            }
        }
    }

    /// The object after the write.
    pub fn new_object(&self) -> serde_json::Result<Value> {
        match self.case.write {
            Write::Create(patch) | Write::Delete(patch) => self.patched(&[patch]),
            Write::Update(old, new) => self.patched(&[old, new]),
            Write::Scale(old, replicas) => {
                self.patched(&[old, &json!({ "spec": { "replicas": replicas } }).to_string()])
            }
        }
    }

    /// The findings of all rules.
    pub fn judge(&self) -> Result<Vec<Finding>, CaseError> {
        Ok(self.judge_in(&(self.case.view)())?.findings)
    }

    /// The judgement of all rules that read this view instead of the case's own.
    pub fn judge_in(&self, view: &View) -> Result<Judgement, CaseError> {
        let new = self.new_object()?.to_string();
        let old = self.old()?.map(|old| old.to_string());
        macro_rules! judge_as {
            ($kind:ident) => {{
                let new: $kind<'_> = decode(&new)?;
                let old: Option<$kind<'_>> = old.as_deref().map(decode).transpose()?;
                self.judgement(&new, old.as_ref(), view)
            }};
        }
        Ok(match self.base {
            Base::ControlPlane(_) => judge_as!(KubeadmControlPlane),
            Base::Template(_) => judge_as!(KubeadmControlPlaneTemplate),
            Base::Cluster => judge_as!(Cluster),
            Base::ClusterPool => judge_as!(ClusterPool),
            Base::Customization => judge_as!(ClusterDeploymentCustomization),
            Base::ClusterDeployment => judge_as!(ClusterDeployment),
        })
    }

    fn judgement<T: HasRules>(&self, new: &T, old: Option<&T>, view: &View) -> Judgement {
        let change = match (self.case.write, old) {
            (Write::Update(..), Some(old)) => Change::update(old, new),
            (Write::Scale(..), Some(old)) => Change::scale(old, new),
            (Write::Delete(_), Some(old)) => Change::delete(old),
            (Write::Create(_), _) | (_, None) => Change::create(new),
        };
        let applied = old.and_then(|old| old.metadata().applied_version(TOPOLOGY_MANAGER));
        let context = Context {
            writer: self.case.writer,
            field_manager: self.case.field_manager,
            now: NOW.parse().ok(),
            view: Some(view),
            topology: self.case.in_topology.then_some(OfTopology {
                knows_configuration: true,
                is_copy: false,
                written_shape: applied.as_deref().map(Shape::from_api_version),
                has_override: false,
            }),
            ..Context::UNKNOWN
        };
        judge(&change.with_context(context), &self.case.configuration())
    }

    /// The response of an API server to the write.
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

/// Applies a merge patch (RFC 7386, section 2).
pub fn merge(target: &mut Value, patch: &Value) {
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
