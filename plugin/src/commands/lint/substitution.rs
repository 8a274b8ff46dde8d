//! Recognizes the placeholders of templates, and fills the variables of a clusterctl template, as `clusterctl generate` does with the
//! library `drone/envsubst`: `${NAME}`, `${NAME:=default}` and `${NAME:-default}`. `$$` stands for `$`.

use std::collections::BTreeSet;

/// Why a template cannot be filled.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SubstitutionError {
    #[error(
        "no value for {}; set environment variables with these names",
        names.iter().cloned().collect::<Vec<_>>().join(", ")
    )]
    Missing { names: BTreeSet<String> },
    #[error(
        "line {line}: lint cannot fill this expression; use the form ${{NAME}} or ${{NAME:=default}}, or write $${{ for ${{"
    )]
    Unsupported { line: usize },
}

/// What only Helm charts contain.
const CHART: [&str; 9] = [
    "{{-",
    ".Values",
    ".Release.",
    "{{ include ",
    "{{ template ",
    "{{ if ",
    "{{ range ",
    "{{ with ",
    "{{ end ",
];

/// What actions of Go templates and Jinja begin with. Text in double braces that begins otherwise may belong to cloud-init, or to
/// the naming templates of Machines.
const ACTIONS: [&str; 4] = ["{{ .", "{{.", "{{ $", "{%"];

/// The operators before a default. The library treats all of them alike: the default replaces an empty or missing value.
const OPERATORS: [&str; 5] = [":=", ":-", ":?", ":+", "="];

/// The maximum depth of nested variables: the default of a variable can contain another variable with a default.
const MAX_DEPTH: usize = 16;

/// Whether text that is not YAML is a template. `line` is the line of the syntax error.
pub(super) fn is_template(text: &[u8], line: Option<u64>) -> bool {
    let text = String::from_utf8_lossy(text);
    let index = line.and_then(|line| usize::try_from(line.checked_sub(1)?).ok());
    let faulty = index.and_then(|index| text.lines().nth(index));
    let is_faulty = |line: &str| has_variable(line) || ACTIONS.iter().any(|action| line.contains(action));
    CHART.iter().any(|part| text.contains(part)) || faulty.is_some_and(is_faulty)
}

/// Whether another program replaces a part of the text before an API server gets it: clusterctl, Helm or Cluster API's patches.
pub(super) fn is_placeholder(text: &str) -> bool {
    has_variable(text) || text.contains("{{")
}

/// Whether text has a variable of clusterctl, such as `${NAME}`.
fn has_variable(text: &str) -> bool {
    let name = text.split_once("${").map(|(_, rest)| rest.trim_start());
    name.is_some_and(|rest| rest.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

/// Fills each variable with its value in `environment`, or else with its default.
pub(super) fn substitute(
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<String, SubstitutionError> {
    let mut filler = Filler {
        rest: text,
        environment,
        missing: BTreeSet::new(),
    };
    match filler.text(0) {
        Some(_) if !filler.missing.is_empty() => Err(SubstitutionError::Missing {
            names: filler.missing,
        }),
        Some(text) => Ok(text),
        None => {
            let read = text.len() - filler.rest.len();
            let before = text.get(..read).unwrap_or_default();
            Err(SubstitutionError::Unsupported {
                line: before.matches('\n').count() + 1,
            })
        }
    }
}

struct Filler<'t> {
    rest: &'t str,
    environment: &'t dyn Fn(&str) -> Option<String>,
    missing: BTreeSet<String>,
}

impl<'t> Filler<'t> {
    /// Reads text up to the end; inside a default, up to the closing brace. `None` if an expression is not supported.
    fn text(&mut self, depth: usize) -> Option<String> {
        let mut filled = String::new();
        loop {
            let stop = |c: char| c == '$' || (depth > 0 && c == '}');
            let end = self.rest.find(stop).unwrap_or(self.rest.len());
            filled.push_str(self.take(end));
            if self.skip("$$") {
                filled.push('$');
            } else if self.rest.starts_with("${") {
                filled.push_str(&self.variable(depth)?);
            } else if self.rest.starts_with('$') {
                filled.push_str(self.take(1));
            } else {
                return (depth > 0 || self.rest.is_empty()).then_some(filled);
            }
        }
    }

    fn variable(&mut self, depth: usize) -> Option<String> {
        let start = self.rest;
        let filled = self.expression(depth);
        if filled.is_none() {
            self.rest = start;
        }
        filled
    }

    fn expression(&mut self, depth: usize) -> Option<String> {
        self.take(2);
        // clusterctl accepts spaces here, for old templates.
        self.rest = self.rest.trim_start();
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let end = self.rest.find(|c| !is_name(c)).filter(|end| *end > 0)?;
        let name = self.take(end);
        let value = (self.environment)(name);
        let is_empty = value.as_deref().is_none_or(str::is_empty);
        let operator = OPERATORS.into_iter().find(|operator| self.skip(operator));
        let default = match operator {
            Some(_) if depth < MAX_DEPTH => {
                let missing = self.missing.clone();
                let default = self.text(depth + 1)?;
                if !is_empty {
                    // An unused default needs no value.
                    self.missing = missing;
                }
                Some(default)
            }
            Some(_) => return None,
            None => {
                self.rest = self.rest.trim_start();
                None
            }
        };
        if !self.skip("}") {
            return None;
        }
        if value.is_none() && default.is_none() {
            self.missing.insert(name.to_owned());
        }
        Some(default.filter(|_| is_empty).or(value).unwrap_or_default())
    }

    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn skip(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{SubstitutionError, substitute};

    fn filled(text: &str) -> Result<String, SubstitutionError> {
        substitute(text, &|name| match name {
            "NAME" => Some("edge".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn fills_what_clusterctl_fills() {
        for (text, expected) in [
            ("name: ${NAME}-cp", "name: edge-cp"),
            ("${ NAME }", "edge"),
            ("${NAME:=x} ${ABSENT:=3} ${ABSENT:-v1.34.1}", "edge 3 v1.34.1"),
            ("${ABSENT=3} ${ABSENT:=\"a: b\"}", "3 \"a: b\""),
            ("${EMPTY:=x}/${EMPTY}", "x/"),
            ("${ABSENT:=}", ""),
            ("${ABSENT:=${NAME}-md}", "edge-md"),
            ("${ABSENT:=a${OTHER:=b}c}", "abc"),
            // Shells in files.
            ("$${HOSTNAME} $HOME $(id) $$$$ $", "${HOSTNAME} $HOME $(id) $$ $"),
            ("${NAME:=${ABSENT}}", "edge"),
            (
                "{{ ds.meta_data.local_hostname }}",
                "{{ ds.meta_data.local_hostname }}",
            ),
            ("", ""),
        ] {
            assert_eq!(filled(text), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn names_what_it_cannot_fill() {
        for (text, expected) in [
            (
                "${B} ${A} ${B}",
                "no value for A, B; set environment variables with these names",
            ),
            (
                "${ABSENT:=${OTHER}}",
                "no value for OTHER; set environment variables with these names",
            ),
            (
                "a\n${NAME^^}",
                "line 2: lint cannot fill this expression; use the form ${NAME} or ${NAME:=default}, or write $${ for ${",
            ),
            (
                "${NAME",
                "line 1: lint cannot fill this expression; use the form ${NAME} or ${NAME:=default}, or write $${ for ${",
            ),
        ] {
            assert_eq!(filled(text).unwrap_err().to_string(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>()) {
            let _ = filled(&text);
        }

        #[test]
        fn text_without_variables_is_unchanged(text in "[^$]*") {
            assert_eq!(filled(&text), Ok(text));
        }
    }
}
