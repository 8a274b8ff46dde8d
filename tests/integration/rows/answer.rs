//! An API server's answer to a row, and the expected one.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;

use anyhow::{Result, ensure};
use kcp_rules::testing::case::{Answer, Base};
use kcp_rules::testing::row::Row;
use kcp_rules::topics::rules;
use kcp_rules::{Action, Finding};
use serde_json::Value;

use super::seed::Place;

/// Messages of our rules, each with its field path.
type Told = BTreeSet<String>;

pub(super) struct Answered {
    pub(super) code: u16,
    /// The object or a Status.
    pub(super) body: Value,
    /// The warnings of all webhooks.
    pub(super) warnings: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Expected {
    Denied {
        causes: Told,
        warnings: Told,
    },
    Admitted {
        warnings: Told,
        /// Defaulted fields as JSON pointers, with their admitted values.
        mended: Vec<(String, Value)>,
    },
    /// Denied by Cluster API's webhook.
    ByClusterApi,
    /// Rejected or removed by the schema, for these fields.
    BySchema(BTreeSet<String>),
}

/// The answer that the row expects.
pub(super) fn expected(row: Row<'_>) -> Result<Expected> {
    let findings = row.judge()?;
    let told = |action: Action, seen: &dyn Fn(&Finding) -> bool| -> Told {
        findings
            .iter()
            .filter(|finding| finding.action == action && seen(finding))
            .map(|finding| format!("{}: {}", finding.fault.field, finding.message()))
            .collect()
    };
    let everything = |_: &Finding| true;
    Ok(match row.answer()? {
        Answer::Schema(fields) => Expected::BySchema(fields.iter().map(|&field| field.to_owned()).collect()),
        Answer::ClusterApi => Expected::ByClusterApi,
        Answer::Deny => {
            // The mutating webhook denies first, and only for rules about the object alone.
            let alone = |finding: &Finding| finding.rule.reads().is_empty();
            let first = told(Action::Deny, &alone);
            if first.is_empty() {
                Expected::Denied {
                    causes: told(Action::Deny, &everything),
                    warnings: told(Action::Warn, &everything),
                }
            } else {
                Expected::Denied {
                    causes: first,
                    warnings: told(Action::Warn, &alone),
                }
            }
        }
        Answer::Mutation(value) => {
            let value: Value = serde_json::from_str(value)?;
            let mut warnings = Told::new();
            let mut mended = Vec::new();
            for finding in &findings {
                let pointer = pointer(&finding.fault.field);
                // A defaulted value that replaces a given one causes a warning.
                if row.base == Base::Customization {
                    let (field, rule) = (&finding.fault.field, finding.rule.id);
                    warnings.insert(format!(
                        "{field}: added the leading slash that a JSON pointer must have ({rule})"
                    ));
                }
                mended.push((pointer, value.clone()));
            }
            ensure!(!mended.is_empty(), "nothing is at fault");
            Expected::Admitted { warnings, mended }
        }
        Answer::Warn => Expected::Admitted {
            warnings: told(Action::Warn, &everything),
            mended: Vec::new(),
        },
        Answer::Admitted => Expected::Admitted {
            warnings: Told::new(),
            mended: Vec::new(),
        },
    })
}

impl fmt::Debug for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self
            .body
            .get("message")
            .and_then(Value::as_str)
            .unwrap_or_default();
        write!(
            f,
            "answered {} {message}, warnings {:?}",
            self.code, self.warnings
        )
    }
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Error for Answered {}

impl Answered {
    /// The object, if the answer has one.
    pub(super) fn succeeded(self) -> Result<Value, Self> {
        if self.is_success() {
            Ok(self.body)
        } else {
            Err(self)
        }
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether one of our rules denied the write.
    pub(super) fn finds(&self, rule: &str) -> bool {
        self.denials().iter().any(|told| rule_of(told) == Some(rule))
    }

    /// Compares the answer with the expected one.
    pub(super) fn is(&self, expected: &Expected, place: Place<'_>) -> Result<()> {
        match expected {
            Expected::Denied { causes, warnings } => {
                ensure!(self.code == 422, "expected {causes:?}: {self:?}");
                same(causes, &self.denials(), place)?;
                same(warnings, &self.our_warnings(), place)?;
            }
            Expected::Admitted { warnings, mended } => {
                ensure!(self.is_success(), "{self:?}");
                same(warnings, &self.our_warnings(), place)?;
                for (pointer, value) in mended {
                    let admitted = self.body.pointer(pointer);
                    ensure!(
                        admitted == Some(value),
                        "expected {pointer} {value}, found {admitted:?}"
                    );
                }
            }
            Expected::ByClusterApi => {
                let message = self.body.get("message").and_then(Value::as_str);
                let theirs = message.is_some_and(|message| {
                    message.starts_with("admission webhook \"")
                        && message.contains(".cluster.x-k8s.io\" denied")
                });
                ensure!(theirs, "{self:?}");
            }
            Expected::BySchema(fields) => {
                ensure!(self.is_success() || self.code == 422, "{self:?}");
                let found = self.against_the_schema();
                ensure!(found == *fields, "expected {fields:?}, found {found:?}: {self:?}");
            }
        }
        Ok(())
    }

    fn causes(&self) -> impl Iterator<Item = (&str, &str)> {
        let causes = self.body.pointer("/details/causes").and_then(Value::as_array);
        causes
            .into_iter()
            .flatten()
            .filter_map(|cause| Some((cause["field"].as_str()?, cause["message"].as_str()?)))
    }

    fn denials(&self) -> Told {
        let ours = self.causes().filter(|(_, message)| is_ours(message));
        ours.map(|(field, message)| format!("{field}: {message}"))
            .collect()
    }

    fn our_warnings(&self) -> Told {
        let ours = self.warnings.iter().filter(|warning| is_ours(warning));
        ours.cloned().collect()
    }

    /// The fields that the schema rejects.
    fn against_the_schema(&self) -> BTreeSet<String> {
        let unknown = self.warnings.iter().filter_map(|warning| {
            let field = warning.strip_prefix("unknown field \"")?;
            field.strip_suffix('"')
        });
        let refused = self.causes().filter(|(_, message)| !is_ours(message));
        let refused = refused.map(|(field, _)| field);
        unknown.chain(refused).map(str::to_owned).collect()
    }
}

/// Rows whose messages cannot match on a real API server: it removes fields that the definition lacks before it calls
/// us, and sets a Machine's creation time itself.
const WORDED_OTHERWISE: [&str; 2] = ["inventory-not-a-list", "rollout-after-past"];

/// Compares the messages completely, except that long warnings are truncated.
fn same(expected: &Told, told: &Told, place: Place<'_>) -> Result<()> {
    let told: Told = told.iter().map(|told| place.back(told)).collect();
    let alike = |expected: &str, told: &str| match (told.split_once('…'), rule_of(expected)) {
        (_, Some(rule)) if WORDED_OTHERWISE.contains(&rule) => {
            let field = |message: &str| message.split_once(": ").map(|(field, _)| field.to_owned());
            rule_of(told) == Some(rule) && field(told) == field(expected)
        }
        (Some((start, end)), _) => expected.starts_with(start) && expected.ends_with(end),
        (None, _) => expected == told,
    };
    let all = expected.len() == told.len()
        && expected
            .iter()
            .zip(&told)
            .all(|(expected, told)| alike(expected, told));
    ensure!(all, "expected {expected:#?}, found {told:#?}");
    Ok(())
}

/// A field path as a JSON pointer.
fn pointer(field: &str) -> String {
    format!("/{}", field.replace(['.', '['], "/").replace(']', ""))
}

/// Whether a message ends with one of our rules.
fn is_ours(message: &str) -> bool {
    rule_of(message).is_some()
}

/// The rule at the end of a message.
pub(super) fn rule_of(message: &str) -> Option<&'static str> {
    let id = message.strip_suffix(')')?.rsplit_once('(')?.1;
    rules().map(|rule| rule.id).find(|known| *known == id)
}
