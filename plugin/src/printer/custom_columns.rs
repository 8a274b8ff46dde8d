//! Prints a table of chosen fields for `-o custom-columns=HEADER:PATH,…`, as `kubectl get` does.

use std::slice;

use serde_json::Value;

use super::{
    jsonpath::{Template, TemplateError},
    value::go_text,
};
use crate::terminal::{escape, width::width};

/// What a cell contains if the object does not have the field.
const NO_VALUE: &str = "<none>";
const COLUMN_GAP: usize = 3;
/// The minimum width of a column, in terminal cells.
const MIN_COLUMN_WIDTH: usize = 6;

/// The columns that the user requested, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomColumns(Vec<CustomColumn>);

#[derive(Clone, Debug, PartialEq)]
struct CustomColumn {
    header: String,
    path: Template,
}

impl CustomColumns {
    /// Parses the column specification `HEADER:PATH,…`.
    ///
    /// # Errors
    /// kubectl's error message.
    pub fn parse(spec: &str) -> Result<Self, String> {
        if spec.is_empty() {
            return Err("custom-columns format specified but no custom columns given".to_owned());
        }
        spec.split(',')
            .map(CustomColumn::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The table of a document: one row for each item of a list, otherwise one row.
    ///
    /// # Errors
    /// A path does not match the document.
    pub fn text(&self, document: &Value, has_header: bool) -> Result<String, TemplateError> {
        let objects = match document.get("items") {
            Some(Value::Array(items)) => items.as_slice(),
            _ => slice::from_ref(document),
        };
        let header = self.0.iter().map(|column| escape(&column.header).into_owned());
        let mut rows = Vec::new();
        if has_header {
            rows.push(header.collect());
        }
        for object in objects {
            let cells = self.0.iter().map(|column| column.cell(object));
            rows.push(cells.collect::<Result<Vec<_>, _>>()?);
        }
        Ok(align_rows(&rows))
    }
}

impl CustomColumn {
    fn parse(spec: &str) -> Result<Self, String> {
        let (header, path) = spec.split_once(':').ok_or_else(|| {
            format!("unexpected custom-columns spec: {spec}, expected <header>:<json-path-expr>")
        })?;
        let source = template_source(path).ok_or(
            "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or \
             '{.name1.name2}'",
        )?;
        Ok(Self {
            header: header.to_owned(),
            path: Template::parse(&source)
                .map_err(|why| format!("error parsing jsonpath {source}, {why}"))?,
        })
    }

    fn cell(&self, object: &Value) -> Result<String, TemplateError> {
        let found = self.path.find(object)?;
        let texts: Vec<_> = found
            .iter()
            .flatten()
            .map(|value| escape(&go_text(value)).into_owned())
            .collect();
        Ok(if texts.is_empty() {
            NO_VALUE.to_owned()
        } else {
            texts.join(",")
        })
    }
}

/// The path as a complete template. The user may leave out the braces and the first dot.
fn template_source(path: &str) -> Option<String> {
    let inside = path
        .strip_prefix('{')
        .and_then(|path| path.strip_suffix('}'))
        .unwrap_or(path);
    if path.is_empty() {
        return Some(String::new());
    }
    let fields = inside.strip_prefix('.').unwrap_or(inside);
    (!fields.is_empty() && !fields.contains(['{', '}'])).then(|| format!("{{.{fields}}}"))
}

/// Aligns the cells of rows as kubectl does with Go's tabwriter, but without spaces after the last cell.
fn align_rows(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widest = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        cells.map(|cell| width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns)
        .map(|index| (widest(index) + COLUMN_GAP).max(MIN_COLUMN_WIDTH))
        .collect();
    let mut text = String::new();
    for row in rows {
        for (index, (cell, column)) in row.iter().zip(&widths).enumerate() {
            text.push_str(cell);
            if index + 1 < columns {
                text.push_str(&" ".repeat(column.saturating_sub(width(cell))));
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::{CustomColumns, template_source};

    #[derive(Deserialize)]
    struct Answers {
        document: Value,
        answers: Vec<Answer>,
    }

    /// `kubectl get RESOURCE -o custom-columns=SPEC` of a server that lists the items of the document.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        spec: String,
        #[serde(default)]
        no_headers: bool,
        #[serde(flatten)]
        outcome: Outcome,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Outcome {
        Stdout(String),
        Error(String),
    }

    #[test]
    fn matches_the_output_of_kubectl() {
        let answers: Answers =
            serde_json::from_str(include_str!("kubectl_answers/custom_columns.json")).unwrap();
        for Answer {
            spec,
            no_headers,
            outcome,
        } in answers.answers
        {
            let text = CustomColumns::parse(&spec).and_then(|columns| {
                let text = columns.text(&answers.document, !no_headers);
                text.map_err(|why| why.to_string())
            });
            match (text, outcome) {
                (Ok(ours), Outcome::Stdout(theirs)) => assert_eq!(ours, theirs, "{spec}"),
                (Err(ours), Outcome::Error(theirs)) => {
                    assert!(ours.ends_with(&theirs), "{spec}: {ours}, and not: {theirs}");
                }
                (ours, _) => panic!("{spec}: {ours:?}"),
            }
        }
    }

    fn text(spec: &str, has_header: bool) -> String {
        let list = json!({"kind": "List", "items": [
            {"metadata": {"name": "a"}, "n": 3, "addresses": [{"ip": "1"}, {"ip": "2"}], "labels": {"x": "y"}},
            {"metadata": {"name": "longer"}, "n": null},
        ]});
        CustomColumns::parse(spec)
            .unwrap()
            .text(&list, has_header)
            .unwrap()
    }

    #[test]
    fn a_row_for_each_item_of_a_list() {
        let spec = "NAME:.metadata.name,N:.n,IPS:{.addresses[*].ip},LABELS:labels";
        assert_eq!(
            text(spec, true),
            "\
NAME     N       IPS      LABELS
a        3       1,2      map[x:y]
longer   <nil>   <none>   <none>
"
        );
        assert_eq!(
            text("N:metadata.name,B:.x", false),
            "a        <none>\nlonger   <none>\n"
        );
    }

    #[test]
    fn one_row_for_an_object() {
        let columns = CustomColumns::parse("K:.kind,V:.version,E:").unwrap();
        let document = json!({"kind": "Plan", "version": "a\u{1b}[2Jb"});
        assert_eq!(
            columns.text(&document, true).unwrap(),
            "K      V             E\nPlan   a\\u{1b}[2Jb   <none>\n"
        );
    }

    #[test]
    fn narrow_columns_have_the_minimum_width() {
        let columns = CustomColumns::parse("A:.a,B:.b").unwrap();
        assert_eq!(
            columns.text(&json!({"a": 1, "b": 2}), true).unwrap(),
            "A     B\n1     2\n"
        );
    }

    #[test]
    fn a_path_may_lack_braces_and_dot() {
        for (path, source) in [
            (".a.b", Some("{.a.b}")),
            ("a.b", Some("{.a.b}")),
            ("{.a.b}", Some("{.a.b}")),
            ("{a}", Some("{.a}")),
            ("", Some("")),
            (".", None),
            ("{}", None),
            ("{.a}{.b}", None),
            ("{.a", None),
        ] {
            assert_eq!(template_source(path).as_deref(), source, "{path}");
        }
    }

    #[test]
    fn errors_match_those_of_kubectl() {
        for (spec, error) in [
            ("", "custom-columns format specified but no custom columns given"),
            (
                "A",
                "unexpected custom-columns spec: A, expected <header>:<json-path-expr>",
            ),
            (
                "A:{.b}{.c}",
                "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or \
                 '{.name1.name2}'",
            ),
            ("A:.b[", "error parsing jsonpath {.b[}, unterminated array"),
        ] {
            assert_eq!(CustomColumns::parse(spec), Err(error.to_owned()), "{spec}");
        }
    }
}
