//! The configuration file that sets the action of each rule.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    action::Action,
    exemption::{Exemption, Selector},
    feature_gates::FeatureGates,
    rule::{OnUnread, Rule},
    trusted_users::TrustedUsers,
};

/// The `apiVersion` of a configuration file.
pub const API_VERSION: &str = "kubectl-kcp.dev/v1alpha1";
/// The `kind` of a configuration file.
pub const KIND: &str = "AdmissionConfiguration";

/// The key of the ConfigMap from which the Pods mount the configuration file.
const KEY: &str = "configuration.yaml";

/// A manifest of the ConfigMap that contains the configuration file, as users apply it.
#[derive(Debug, Deserialize)]
pub struct ConfigurationMap {
    kind: String,
    data: BTreeMap<String, String>,
}

impl ConfigurationMap {
    /// The configuration file; `None` if the manifest is of another kind or has no file.
    pub fn into_file(mut self) -> Option<String> {
        (self.kind == "ConfigMap")
            .then(|| self.data.remove(KEY))
            .flatten()
    }
}

/// A configuration file. A rule that is not in `rules` has its default action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    /// The API version of the document, `kubectl-kcp.dev/v1alpha1`.
    pub api_version: String,
    /// The kind of the document, `AdmissionConfiguration`.
    pub kind: String,
    /// The actions for the findings of rules, by rule id.
    #[serde(default)]
    pub rules: BTreeMap<String, Action>,
    /// What happens to a write if a rule cannot read the objects that it needs, by rule id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub on_unread: BTreeMap<String, OnUnread>,
    /// Cluster API's feature gates in this cluster.
    #[serde(default)]
    pub feature_gates: FeatureGates,
    /// The users that the controllers of Cluster API and Hive authenticate as.
    #[serde(default)]
    pub trusted_users: TrustedUsers,
    /// Whether an override of a rule needs the verb `override` on the object. The server then needs the permission to create
    /// subjectaccessreviews.
    #[serde(default)]
    pub authorize_overrides: bool,
    /// Whether the server records each denial as an Event on the object. The server records the same denial at most once in ten
    /// minutes. It records no denial of a dry run, except a dry run of Cluster API's topology controller. If this is true, the
    /// server needs the permission to create events.
    #[serde(default)]
    pub denial_events: bool,
    /// Writes whose findings are only recorded in the audit log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exemptions: Vec<Exemption>,
    /// A label selector for the namespaces in which kcp-webhook warns instead of denying.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_only: Option<Selector>,
}

/// Why a configuration cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigurationError {
    #[error(
        "apiVersion is {found_version:?} and kind is {found_kind:?}; set them to {API_VERSION} and {KIND}"
    )]
    Kind {
        found_version: String,
        found_kind: String,
    },
    #[error(
        "exemptions[{index}]: this entry would exempt every write; add users, groups or \
        namespaceSelector"
    )]
    UnlimitedExemption { index: usize },
    #[error("rules.{id}: no rule has this id; list the ids with: kubectl kcp rules")]
    UnknownRule { id: String },
}

impl Configuration {
    /// Validates what decoding does not check: the `apiVersion`, the `kind`, the rule ids and the exemptions. Fails for an
    /// unexpected `apiVersion` or `kind`, an unknown rule, or an exemption without limits.
    pub fn validate(self, is_rule: impl Fn(&str) -> bool) -> Result<Self, ConfigurationError> {
        if self.api_version != API_VERSION || self.kind != KIND {
            return Err(ConfigurationError::Kind {
                found_version: self.api_version,
                found_kind: self.kind,
            });
        }
        if let Some(index) = self
            .exemptions
            .iter()
            .position(|exemption| !exemption.is_limited())
        {
            return Err(ConfigurationError::UnlimitedExemption { index });
        }
        let unknown = self.rule_ids().find(|id| !is_rule(id)).cloned();
        match unknown {
            Some(id) => Err(ConfigurationError::UnknownRule { id }),
            None => Ok(self),
        }
    }

    /// Every rule id in the configuration.
    pub fn rule_ids(&self) -> impl Iterator<Item = &String> {
        let exempted = self
            .exemptions
            .iter()
            .filter_map(|exemption| exemption.rules.as_ref());
        let settings = self.rules.keys().chain(self.on_unread.keys());
        settings.chain(exempted.flatten())
    }

    /// Removes rule ids that no rule has, and returns them. An exemption that lists only removed ids then
    /// exempts no rule.
    pub fn remove_unknown_rules(&mut self, is_rule: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let unknown = self.rule_ids().filter(|id| !is_rule(id)).cloned().collect();
        self.rules.retain(|id, _| is_rule(id));
        self.on_unread.retain(|id, _| is_rule(id));
        for exemption in &mut self.exemptions {
            if let Some(rules) = &mut exemption.rules {
                rules.retain(|id| is_rule(id));
            }
        }
        unknown
    }

    /// Whether the labels of a namespace can change the consequence of a finding.
    pub fn reads_namespaces(&self) -> bool {
        self.warn_only.is_some()
            || self
                .exemptions
                .iter()
                .any(|exemption| exemption.namespace_selector.is_some())
    }

    /// The action for the findings of a rule.
    pub fn action(&self, rule: &Rule) -> Action {
        self.rules.get(rule.id).copied().unwrap_or(rule.action)
    }

    /// Whether a rule that cannot read the objects that it needs denies the write.
    pub fn denies_unread(&self, rule: &Rule) -> bool {
        let configured = self.on_unread.get(rule.id).copied();
        configured.or_else(|| rule.on_unread()) == Some(OnUnread::Deny)
    }
}
