//! What an API server answered, and what a row says that it should.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;

use anyhow::{Result, ensure};
use kcp_rules::Action;
use kcp_rules::Scope;
use kcp_rules::case::{Answer, Base};
use kcp_rules::row::Row;
use kcp_rules::topics::rules;
use serde_json::Value;

/// Rule ids and field paths.
type Findings = BTreeSet<(String, String)>;

/// What came back.
pub(super) struct Answered {
    pub(super) code: u16,
    /// The object, or a Status.
    pub(super) body: Value,
    /// Everybody's.
    pub(super) warnings: Vec<String>,
}

/// What should.
#[derive(Debug)]
pub(super) enum Expected {
    Denied(Findings),
    Admitted {
        warnings: Findings,
        /// Fields, as JSON pointers, that are not admitted as they were sent.
        mended: Vec<(String, Value)>,
    },
    /// Denied by Cluster API's webhook.
    ByClusterApi,
    /// Refused, or stripped of what the definition does not have.
    BySchema,
}

/// What the row says.
pub(super) fn expected(row: Row<'_>) -> Result<Expected> {
    let findings = row.judge()?;
    let of = |action: Action| -> Vec<_> {
        findings
            .iter()
            .filter(|finding| finding.action == action)
            .collect()
    };
    let named = |found: Vec<&kcp_rules::Finding>| -> Findings {
        found
            .iter()
            .map(|finding| (finding.rule.id.to_owned(), finding.fault.field.to_string()))
            .collect()
    };
    Ok(match row.answer()? {
        Answer::Schema => Expected::BySchema,
        Answer::ClusterApi => Expected::ByClusterApi,
        Answer::Deny => {
            let mut denials = of(Action::Deny);
            // The mutating webhook refuses first, and looks at nothing but the object.
            let alone = |finding: &&kcp_rules::Finding| finding.rule.scope != Scope::Cluster;
            if row.base != Base::ClusterDeployment && denials.iter().any(alone) {
                denials.retain(alone);
            }
            Expected::Denied(named(denials))
        }
        answer => Expected::Admitted {
            warnings: match (answer, row.base) {
                (Answer::Warn, _) => named(of(Action::Warn)),
                // What is written otherwise than it was asked for is told.
                (Answer::Mutation, Base::Customization) => named(findings.iter().collect()),
                _ => Findings::new(),
            },
            mended: if answer == Answer::Mutation {
                let sent = row.new_object()?;
                let fields = findings.iter().map(|finding| pointer(&finding.fault.field));
                fields
                    .map(|pointer| {
                        let value = sent.pointer(&pointer).cloned().unwrap_or_default();
                        (pointer, value)
                    })
                    .collect()
            } else {
                Vec::new()
            },
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
    /// The object, if there is one.
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

    /// Whether a rule of ours denied it.
    pub(super) fn finds(&self, rule: &str) -> bool {
        self.denials().iter().any(|(id, _)| id == rule)
    }

    /// Holds what came back against what should have.
    pub(super) fn is(&self, expected: &Expected) -> Result<()> {
        match expected {
            Expected::Denied(findings) => {
                ensure!(self.code == 422, "expected {findings:?}: {self:?}");
                let denials = self.denials();
                ensure!(
                    denials == *findings,
                    "expected {findings:?}, found {denials:?}: {self:?}"
                );
            }
            Expected::Admitted { warnings, mended } => {
                ensure!(self.is_success(), "{self:?}");
                let found = self.our_warnings();
                ensure!(
                    found == *warnings,
                    "expected {warnings:?}, found {found:?}: {self:?}"
                );
                for (pointer, sent) in mended {
                    let admitted = self.body.pointer(pointer);
                    ensure!(
                        admitted.is_some_and(|value| value != sent),
                        "{pointer} is still {sent}"
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
            Expected::BySchema => {
                let strange = self
                    .warnings
                    .iter()
                    .any(|warning| warning.starts_with("unknown field"));
                ensure!(
                    strange || self.code == 422 && self.denials().is_empty(),
                    "{self:?}"
                );
            }
        }
        Ok(())
    }

    fn denials(&self) -> Findings {
        let causes = self.body.pointer("/details/causes").and_then(Value::as_array);
        let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
        causes
            .into_iter()
            .flatten()
            .filter_map(|cause| Some((rule_of(&text(cause, "message"))?, text(cause, "field"))))
            .collect()
    }

    fn our_warnings(&self) -> Findings {
        let warnings = self.warnings.iter();
        warnings
            .filter_map(|warning| Some((rule_of(warning)?, warning.split_once(": ")?.0.to_owned())))
            .collect()
    }
}

/// A field path as a JSON pointer.
fn pointer(field: &str) -> String {
    format!("/{}", field.replace(['.', '['], "/").replace(']', ""))
}

/// The rule that a message ends with.
pub(super) fn rule_of(message: &str) -> Option<String> {
    let id = message.strip_suffix(')')?.rsplit_once('(')?.1;
    rules().any(|rule| rule.id == id).then(|| id.to_owned())
}
