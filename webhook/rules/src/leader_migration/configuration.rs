//! `LeaderMigrationConfiguration`, group `controllermanager.config.k8s.io`: the file that `--leader-migration-config` names.
//!
//! Sources: `k8s.io/controller-manager`, `config` and `pkg/leadermigration/config`.

use serde_json::{Map, Value};
use serde_saphyr::DuplicateKeyPolicy;
use thiserror::Error;

use crate::syntax::is_dns1123_subdomain;

/// The controllers that migrate, and the Lease under which they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderMigrationConfiguration {
    /// The name of the Lease that is the migration lock.
    pub leader_name: String,
    /// The controllers that migrate. Of two entries with the same name, the last one counts.
    pub controller_leaders: Vec<ControllerLeader>,
}

/// A controller that migrates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerLeader {
    /// The name of the controller, compared without aliases.
    pub name: String,
    /// The controller manager that runs the controller, or `*` for any.
    pub component: String,
}

/// Why a controller manager would not start with a configuration, or would never hold its migration lock. The messages
/// contain no text of the configuration, which may be secret, apart from names of fields.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigurationProblem {
    #[error("the text is not valid YAML{}", hint(*.unquoted_star))]
    NotYaml {
        /// Whether the text has an unquoted `*`, which starts an alias in YAML. The samples of the KEP have one.
        unquoted_star: bool,
    },
    /// A field does not have the type that the configuration requires.
    #[error("{path} must be {expected}")]
    Type {
        path: String,
        /// The required type with its article, such as `a list`.
        expected: &'static str,
    },
    /// The `apiVersion` is missing, or controller managers do not know it.
    #[error("apiVersion must be {GROUP}/v1, {GROUP}/v1beta1 or {GROUP}/v1alpha1")]
    ApiVersion,
    /// The `kind` is missing, or is not `LeaderMigrationConfiguration`.
    #[error("kind must be {KIND}")]
    Kind,
    /// A required field is not set.
    #[error("{0} must be set")]
    Missing(String),
    /// From 1.32 on, an unknown field is an error.
    #[error("{parent} has {field}; the known fields are {known}")]
    UnknownField {
        /// The path of the object that contains the unknown field.
        parent: String,
        /// The text `the unknown field NAME`, or `an unknown field` if the name does not look like the name of a field and so may
        /// be secret.
        field: String,
        /// The names of the fields that the object may have.
        known: String,
    },
    /// Controller managers do not start with this value of `resourceLock`.
    #[error("resourceLock must be leases")]
    ResourceLock,
    /// No Lease can have the name in `leaderName`, so no controller manager ever acquires the migration lock.
    #[error(
        "leaderName must be a valid Lease name, which contains only lower-case letters, digits, '-' and \
             '.'"
    )]
    LeaderName,
    /// The migration lock would be the main lock of a component.
    #[error("leaderName must not be {0}: {0} uses the Lease of that name as its main lock")]
    LeaderNameInUse(&'static str),
}

const GROUP: &str = "controllermanager.config.k8s.io";
const KIND: &str = "LeaderMigrationConfiguration";

/// The first minor version whose controller managers reject unknown fields.
const STRICT_SINCE: u64 = 32;

/// Leases of control plane components in `kube-system`.
const COMPONENT_LEASES: [&str; 3] = [
    "kube-controller-manager",
    "cloud-controller-manager",
    "kube-scheduler",
];

/// The largest configuration that is parsed, in bytes: the limit of `files[].content`.
const MAX_BYTES: usize = 10 * 1024;

fn hint(unquoted_star: bool) -> &'static str {
    if unquoted_star {
        "; write \"*\" in quotes"
    } else {
        ""
    }
}

impl ConfigurationProblem {
    /// Whether a controller manager with this problem exits at startup. With any other problem it runs, but never holds
    /// a migration lock of its own.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::LeaderName | Self::LeaderNameInUse(_))
    }
}

/// What a controller manager does with a controller (`k8s.io/controller-manager`, `pkg/leadermigration/filter.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// The controller manager starts the controller while it holds the migration lock.
    Migrated,
    /// The controller manager does not start the controller, because another component runs it.
    Unowned,
    /// The controller manager starts the controller while it holds its main lock.
    NonMigrated,
}

/// A configuration with which a controller manager starts, and the problems of the configuration.
pub type Parsed = (LeaderMigrationConfiguration, Vec<ConfigurationProblem>);

impl LeaderMigrationConfiguration {
    /// The default configuration at a minor version, which applies without `--leader-migration-config`. From 1.28 on,
    /// two of its names are no longer names of controllers (`pkg/leadermigration/config/default.go`).
    pub fn default_at(minor: u64) -> Self {
        let names = if minor >= 28 {
            [
                "route-controller",
                "service-controller",
                "cloud-node-lifecycle-controller",
            ]
        } else {
            ["route", "service", "cloud-node-lifecycle"]
        };
        Self {
            leader_name: "cloud-provider-extraction-migration".to_owned(),
            controller_leaders: names
                .into_iter()
                .map(|name| ControllerLeader {
                    name: name.to_owned(),
                    component: "*".to_owned(),
                })
                .collect(),
        }
    }

    /// Parses the first YAML document, as a controller manager of the minor version does. If the version is
    /// unknown, unknown fields are errors. The error has all problems; if the text is not YAML, it has only
    /// [`ConfigurationProblem::NotYaml`].
    pub fn parse(text: &str, minor: Option<u64>) -> Result<Self, Vec<ConfigurationProblem>> {
        match Self::parse_leniently(text, minor)? {
            (configuration, problems) if problems.is_empty() => Ok(configuration),
            (_, problems) => Err(problems),
        }
    }

    /// Like [`parse`](Self::parse), but if a controller manager starts with the configuration, returns it together with its
    /// problems. Fails with all problems if at least one of them is fatal.
    pub fn parse_leniently(text: &str, minor: Option<u64>) -> Result<Parsed, Vec<ConfigurationProblem>> {
        let strict = minor.is_none_or(|minor| minor >= STRICT_SINCE);
        let Some(document) = first_document(text, strict) else {
            return Err(vec![ConfigurationProblem::NotYaml {
                unquoted_star: text.lines().any(|line| line.trim_end().ends_with(": *")),
            }]);
        };
        let mut reader = Reader {
            strict,
            problems: Vec::new(),
        };
        let configuration = reader.configuration(&document);
        if reader.problems.iter().any(ConfigurationProblem::is_fatal) {
            Err(reader.problems)
        } else {
            Ok((configuration, reader.problems))
        }
    }

    /// What a component does with a controller. Of two entries with the same name, the last one counts, and aliases do not
    /// match (`pkg/leadermigration/migrator.go`).
    pub fn filter(&self, component: &str, controller: &str) -> Filter {
        let leaders = self.controller_leaders.iter().rev();
        let Some(leader) = leaders.into_iter().find(|leader| leader.name == controller) else {
            return Filter::NonMigrated;
        };
        if leader.component == component || leader.component == "*" {
            Filter::Migrated
        } else {
            Filter::Unowned
        }
    }

    /// Whether leader migration selects a controller with this name.
    pub fn selects(&self, name: &str) -> bool {
        self.controller_leaders.iter().any(|leader| leader.name == name)
    }
}

fn first_document(text: &str, strict: bool) -> Option<Value> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 16, max_events: 20_000 },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 1_000 },
        duplicate_keys: if strict { DuplicateKeyPolicy::Error } else { DuplicateKeyPolicy::LastWins },
        with_snippet: false,
    };
    let mut bytes = text.as_bytes();
    serde_saphyr::read_with_options(&mut bytes, options).next()?.ok()
}

struct Reader {
    strict: bool,
    problems: Vec<ConfigurationProblem>,
}

impl Reader {
    fn configuration(&mut self, document: &Value) -> LeaderMigrationConfiguration {
        let empty = Map::new();
        let fields = self.object(document, "the document").unwrap_or(&empty);
        let version = fields
            .get("apiVersion")
            .and_then(Value::as_str)
            .and_then(|version| {
                let version = version.strip_prefix(GROUP)?.strip_prefix('/')?;
                ["v1", "v1beta1", "v1alpha1"]
                    .into_iter()
                    .find(|known| *known == version)
            });
        if version.is_none() {
            self.problems.push(ConfigurationProblem::ApiVersion);
        }
        if fields.get("kind").and_then(Value::as_str) != Some(KIND) {
            self.problems.push(ConfigurationProblem::Kind);
        }
        let known: &[&str] = match version {
            Some("v1") => &["apiVersion", "kind", "leaderName", "controllerLeaders"],
            _ => &[
                "apiVersion",
                "kind",
                "leaderName",
                "resourceLock",
                "controllerLeaders",
            ],
        };
        self.unknown(fields, "the document", known);
        if known.contains(&"resourceLock")
            && fields.get("resourceLock").and_then(Value::as_str) != Some("leases")
        {
            self.problems.push(ConfigurationProblem::ResourceLock);
        }
        let leader_name = self.text(fields, "", "leaderName");
        self.leader_name(&leader_name);
        let leaders = match fields.get("controllerLeaders") {
            None | Some(Value::Null) => &[][..],
            Some(Value::Array(leaders)) => leaders.as_slice(),
            Some(_) => {
                self.wrong_type("controllerLeaders", "a list");
                &[]
            }
        };
        let controller_leaders = leaders
            .iter()
            .enumerate()
            .filter_map(|(index, leader)| {
                let path = format!("controllerLeaders[{index}]");
                let fields = self.object(leader, &path)?;
                self.unknown(fields, &path, &["name", "component"]);
                Some(ControllerLeader {
                    name: self.text(fields, &path, "name"),
                    component: self.text(fields, &path, "component"),
                })
            })
            .collect();
        LeaderMigrationConfiguration {
            leader_name,
            controller_leaders,
        }
    }

    fn object<'v>(&mut self, value: &'v Value, path: &str) -> Option<&'v Map<String, Value>> {
        let fields = value.as_object();
        if fields.is_none() {
            self.wrong_type(path, "an object");
        }
        fields
    }

    fn unknown(&mut self, fields: &Map<String, Value>, parent: &str, known: &[&str]) {
        let unknown = fields.keys().find(|field| !known.contains(&field.as_str()));
        if let Some(name) = unknown.filter(|_| self.strict) {
            let is_field_name = name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_alphabetic());
            self.problems.push(ConfigurationProblem::UnknownField {
                parent: parent.to_owned(),
                field: if is_field_name {
                    format!("the unknown field {name}")
                } else {
                    "an unknown field".to_owned()
                },
                known: known.join(", "),
            });
        }
    }

    /// Reads a required text field. Records a problem if the field is missing, empty or not a string.
    fn text(&mut self, fields: &Map<String, Value>, parent: &str, name: &str) -> String {
        let path = || match parent {
            "" => name.to_owned(),
            parent => format!("{parent}.{name}"),
        };
        match fields.get(name) {
            Some(Value::String(text)) if !text.is_empty() => return text.clone(),
            None | Some(Value::Null | Value::String(_)) => {
                self.problems.push(ConfigurationProblem::Missing(path()));
            }
            Some(_) => self.wrong_type(&path(), "a string"),
        }
        String::new()
    }

    fn leader_name(&mut self, name: &str) {
        if name.is_empty() {
            return;
        }
        if let Some(lease) = COMPONENT_LEASES.into_iter().find(|lease| *lease == name) {
            self.problems.push(ConfigurationProblem::LeaderNameInUse(lease));
        } else if !is_dns1123_subdomain(name.as_bytes()) {
            self.problems.push(ConfigurationProblem::LeaderName);
        }
    }

    fn wrong_type(&mut self, path: &str, expected: &'static str) {
        self.problems.push(ConfigurationProblem::Type {
            path: path.to_owned(),
            expected,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: ipam-migration
controllerLeaders:
- name: node-ipam-controller
  component: \"*\"
";

    fn problems(text: &str, minor: u64) -> Vec<String> {
        match LeaderMigrationConfiguration::parse(text, Some(minor)) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn a_valid_configuration_is_read() {
        assert_eq!(
            LeaderMigrationConfiguration::parse(VALID, Some(35)),
            Ok(LeaderMigrationConfiguration {
                leader_name: "ipam-migration".to_owned(),
                controller_leaders: vec![ControllerLeader {
                    name: "node-ipam-controller".to_owned(),
                    component: "*".to_owned(),
                }],
            })
        );
    }

    /// The rows of `migrator_test.go`, and an entry that repeats.
    #[test]
    fn the_last_entry_with_exactly_the_name_decides() {
        let configuration = |leaders: &[(&str, &str)]| LeaderMigrationConfiguration {
            leader_name: "migration".to_owned(),
            controller_leaders: leaders
                .iter()
                .map(|(name, component)| ControllerLeader {
                    name: (*name).to_owned(),
                    component: (*component).to_owned(),
                })
                .collect(),
        };
        for (leaders, expected) in [
            (&[("route", "kube-controller-manager")][..], Filter::Migrated),
            (&[("route", "cloud-controller-manager")], Filter::Unowned),
            (&[("route", "*")], Filter::Migrated),
            (&[("route", "other")], Filter::Unowned),
            (&[("node-route-controller", "*")], Filter::NonMigrated),
            (&[], Filter::NonMigrated),
            (
                &[("route", "*"), ("route", "cloud-controller-manager")],
                Filter::Unowned,
            ),
            (
                &[("route", "cloud-controller-manager"), ("route", "*")],
                Filter::Migrated,
            ),
        ] {
            assert_eq!(
                configuration(leaders).filter("kube-controller-manager", "route"),
                expected,
                "{leaders:?}"
            );
        }
    }

    #[test]
    fn a_controller_manager_starts_with_a_lock_that_no_lease_can_have() {
        for (name, problem) in [
            ("Bad_Name", ConfigurationProblem::LeaderName),
            (
                "cloud-controller-manager",
                ConfigurationProblem::LeaderNameInUse("cloud-controller-manager"),
            ),
        ] {
            let text = VALID.replace("ipam-migration", name);
            let (configuration, problems) =
                LeaderMigrationConfiguration::parse_leniently(&text, Some(35)).unwrap();
            assert_eq!(
                (configuration.leader_name.as_str(), problems),
                (name, vec![problem])
            );
        }
        assert!(LeaderMigrationConfiguration::parse_leniently("{}", Some(35)).is_err());
    }

    /// One row for each statement of `k8s.io/controller-manager`, `pkg/leadermigration/config/config.go`, and for what a
    /// real controller manager did.
    #[test]
    fn problems_are_those_of_a_controller_manager() {
        let beta = VALID.replace("/v1\n", "/v1beta1\n");
        for (text, minor, expected) in [
            (VALID.to_owned(), 31, &[][..]),
            // An empty list is valid.
            (
                VALID.split("controllerLeaders").next().unwrap().to_owned(),
                35,
                &[],
            ),
            (format!("{VALID}---\nanything: else\n"), 35, &[]),
            (
                VALID.replace("\"*\"", "*"),
                35,
                &["the text is not valid YAML; write \"*\" in quotes"],
            ),
            (": :\n- {".to_owned(), 35, &["the text is not valid YAML"]),
            (
                "a string".to_owned(),
                35,
                &[
                    "the document must be an object",
                    "apiVersion must be controllermanager.config.k8s.io/v1, controllermanager.config.k8s.io/v1beta1 or \
                 controllermanager.config.k8s.io/v1alpha1",
                    "kind must be LeaderMigrationConfiguration",
                    "resourceLock must be leases",
                    "leaderName must be set",
                ],
            ),
            (
                VALID.replace("ipam-migration", "\"\""),
                35,
                &["leaderName must be set"],
            ),
            (
                VALID.replace("ipam-migration", "7"),
                35,
                &["leaderName must be a string"],
            ),
            (
                VALID.replace("ipam-migration", "Bad_Name"),
                35,
                &[
                    "leaderName must be a valid Lease name, which contains only lower-case letters, digits, \
                   '-' and '.'",
                ],
            ),
            (
                VALID.replace("ipam-migration", "kube-controller-manager"),
                35,
                &[
                    "leaderName must not be kube-controller-manager: kube-controller-manager uses the Lease of that name as its main lock",
                ],
            ),
            (
                VALID.replace("  component: \"*\"\n", ""),
                35,
                &["controllerLeaders[0].component must be set"],
            ),
            // The sample of the KEP: `resourceLock` in v1. It fails from 1.32 on.
            (
                VALID.replace("leaderName", "resourceLock: leases\nleaderName"),
                31,
                &[],
            ),
            (
                VALID.replace("leaderName", "resourceLock: leases\nleaderName"),
                32,
                &[
                    "the document has the unknown field resourceLock; the known fields are apiVersion, kind, leaderName, \
                     controllerLeaders",
                ],
            ),
            (
                VALID.replace("leaderName", "leaderName: first\nleaderName"),
                31,
                &[],
            ),
            (
                VALID.replace("leaderName", "leaderName: first\nleaderName"),
                32,
                &["the text is not valid YAML"],
            ),
            (
                VALID.replace("leaderName", "leadername"),
                31,
                &["leaderName must be set"],
            ),
            (beta.clone(), 35, &["resourceLock must be leases"]),
            (format!("{beta}resourceLock: leases\n"), 35, &[]),
            (
                format!("{beta}resourceLock: endpoints\n"),
                35,
                &["resourceLock must be leases"],
            ),
        ] {
            assert_eq!(problems(&text, minor), expected, "1.{minor}:\n{text}");
        }
    }

    #[test]
    fn a_hostile_text_is_not_expanded() {
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
                    d: [*c,*c,*c,*c,*c,*c,*c,*c]\n";
        assert_eq!(problems(bomb, 35), ["the text is not valid YAML"]);
        assert_eq!(problems(&"[".repeat(5_000), 35), ["the text is not valid YAML"]);
    }

    #[test]
    fn the_default_protects_one_controller_from_1_28_on() {
        use crate::leader_migration::CONTROLLERS;

        let protected = |minor| {
            let default = LeaderMigrationConfiguration::default_at(minor);
            CONTROLLERS
                .iter()
                .map(|controller| controller.name_at(minor))
                .filter(|name| default.selects(name))
                .collect::<Vec<_>>()
        };
        assert_eq!(protected(27), ["route", "service", "cloud-node-lifecycle"]);
        assert_eq!(protected(28), ["cloud-node-lifecycle-controller"]);
    }
}
