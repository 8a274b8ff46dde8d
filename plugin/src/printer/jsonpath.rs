//! `JSONPath` templates as in kubectl's `-o jsonpath=`: `{range .items[*]}{.metadata.name}{"\n"}{end}`.
//!
//! - [`parser`]: parses a template
//! - [`evaluate`]: evaluates a template on a document
//!
//! Alternatives considered (2026-11): jsonpath-rust and `serde_json_path` implement RFC 9535. kubectl's dialect is
//! older and differs: paths without `$`, names with `-`, `\.` in a name, comparisons of single values, errors for an
//! index out of bounds, and text and loops around paths. A translation to RFC 9535 would need more code than the
//! evaluation. `kubectl_answers/jsonpath.json` contains kubectl's own output.

mod evaluate;
mod parser;

use serde_json::Value;

use super::value;

#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    source: String,
    parts: Vec<TemplatePart>,
}

/// A template that does not match the document, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error executing jsonpath {template:?}: {reason}")]
pub struct TemplateError {
    template: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq)]
enum TemplatePart {
    /// Text outside braces, or a path in braces.
    Path(Path),
    /// `{range PATH}…{end}`
    Range {
        over: Path,
        body: Vec<TemplatePart>,
        /// Whether the template contains `{end}`. Without it, kubectl runs the rest of the template for each element, and
        /// then once more.
        is_closed: bool,
    },
}

type Path = Vec<PathStep>;

#[derive(Clone, Debug, PartialEq)]
enum PathStep {
    /// `.name`, `['name']`
    Field(String),
    /// `.*`
    Wildcard,
    /// `..`
    Descend,
    /// `[0]`, `[-1]`
    Index(i64),
    /// `[start:end:step]`, `[*]`
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: Option<i64>,
    },
    /// `[0,2]`, `['a','b']`
    Union(Vec<Path>),
    /// `[?(@.a)]`
    Exists(Path),
    /// `[?(@.a=="b")]`
    Compare {
        left: Path,
        operator: Comparison,
        right: Path,
    },
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
}

impl Template {
    /// Parses a jsonpath template.
    pub fn parse(source: &str) -> Result<Self, String> {
        Ok(Self {
            source: source.to_owned(),
            parts: parser::parse(source)?,
        })
    }

    /// The values that each part of the template selects. A missing field selects nothing. Fails if an index is out of bounds, or
    /// a value has the wrong type.
    pub fn find<'v>(&'v self, document: &'v Value) -> Result<Vec<Vec<&'v Value>>, TemplateError> {
        evaluate::find(&self.parts, document).map_err(|reason| TemplateError {
            template: self.source.clone(),
            reason,
        })
    }

    /// The output of `-o jsonpath=`, without a newline at the end.
    pub fn text(&self, document: &Value) -> Result<String, TemplateError> {
        let parts = self.find(document)?;
        let texts = parts.into_iter().map(|values| {
            let values: Vec<_> = values.into_iter().map(value::text).collect();
            values.join(" ")
        });
        Ok(texts.collect())
    }

    /// The output of `-o jsonpath-as-json=`: an array for each part.
    pub fn json(&self, document: &Value) -> anyhow::Result<String> {
        let mut text = String::new();
        for values in self.find(document)? {
            text.push_str(&value::json_array(&values)?);
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::Value;

    use super::Template;

    #[derive(Deserialize)]
    struct Answers {
        document: Value,
        answers: Vec<Answer>,
    }

    /// `kubectl patch --local -f DOCUMENT -p '{}' --type=merge -o FORMAT`
    #[derive(Deserialize)]
    struct Answer {
        format: String,
        #[serde(flatten)]
        outcome: Outcome,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Outcome {
        Stdout(String),
        /// The last part of the message, because the words before it differ.
        Error(String),
    }

    fn printed(format: &str, document: &Value) -> Result<String, String> {
        let (name, source) = format.split_once('=').unwrap();
        let template = Template::parse(source)?;
        match name {
            "jsonpath" => template.text(document).map_err(|why| why.to_string()),
            _ => template.json(document).map_err(|why| why.to_string()),
        }
    }

    #[test]
    fn matches_the_output_of_kubectl() {
        let answers: Answers = serde_json::from_str(include_str!("kubectl_answers/jsonpath.json")).unwrap();
        for Answer { format, outcome } in answers.answers {
            match (printed(&format, &answers.document), outcome) {
                (Ok(ours), Outcome::Stdout(theirs)) => assert_eq!(ours, theirs, "{format}"),
                // kubectl's message contains Go types.
                (Err(ours), Outcome::Error(theirs)) if theirs.contains("is not array or slice") => {
                    assert!(ours.contains("is not an array"), "{format}: {ours}");
                }
                (Err(ours), Outcome::Error(theirs)) => {
                    assert!(ours.ends_with(&theirs), "{format}: {ours}, and not: {theirs}");
                }
                (ours, _) => panic!("{format}: {ours:?}"),
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(template in "[{}\\[\\].,:?()@$\"'\\\\*=<!0-9a-c \\-]{0,24}") {
            let document = serde_json::json!({"a": [{"b": 1}, {"b": [2, null]}], "c": {"a": "b"}});
            if let Ok(template) = Template::parse(&template) {
                let _ = template.text(&document);
            }
        }
    }
}
