//! The configuration file that sets the action of each rule.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{action::Action, feature_gates::FeatureGates, rule::Rule, trusted_users::TrustedUsers};

/// The `apiVersion` of a configuration file.
pub const API_VERSION: &str = "kubectl-kcp.dev/v1alpha1";
/// The `kind` of a configuration file.
pub const KIND: &str = "AdmissionConfiguration";

/// A configuration file. A rule that it does not name has its default action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`KIND`].
    pub kind: String,
    /// Actions by rule id.
    #[serde(default)]
    pub rules: BTreeMap<String, Action>,
    /// The feature gates with which Cluster API runs in the cluster.
    #[serde(default)]
    pub feature_gates: FeatureGates,
    /// The users as which the controllers of Cluster API and Hive write.
    #[serde(default)]
    pub trusted_users: TrustedUsers,
}

/// A configuration that cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigurationError {
    /// The document has another `apiVersion` or `kind`.
    #[error("apiVersion {found_version:?}, kind {found_kind:?}: expected {API_VERSION} {KIND}")]
    Kind {
        /// The `apiVersion` found.
        found_version: String,
        /// The `kind` found.
        found_kind: String,
    },
    /// The document names a rule that does not exist.
    #[error("rules.{id}: no rule has this id; `kubectl kcp rules` lists them")]
    UnknownRule {
        /// The id found.
        id: String,
    },
}

impl Configuration {
    /// Validates what decoding does not: the type of the document and the rule ids.
    ///
    /// # Errors
    /// [`ConfigurationError`] for another type of document or an unknown rule.
    pub fn checked(self, is_rule: impl Fn(&str) -> bool) -> Result<Self, ConfigurationError> {
        if self.api_version != API_VERSION || self.kind != KIND {
            return Err(ConfigurationError::Kind {
                found_version: self.api_version,
                found_kind: self.kind,
            });
        }
        match self.rules.keys().find(|id| !is_rule(id)) {
            Some(id) => Err(ConfigurationError::UnknownRule { id: id.clone() }),
            None => Ok(self),
        }
    }

    /// The action on findings of a rule.
    pub fn action(&self, rule: &Rule) -> Action {
        self.rules.get(rule.id).copied().unwrap_or(rule.action)
    }
}
