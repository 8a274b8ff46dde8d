//! Parses a manifest into a tree of values, each with its line number.

use std::{fmt, iter};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Location, Options, Spanned, UserMessageFormatter};

use crate::{commands::lint::substitution::is_template, file::MAX_FILE_BYTES};

/// The maximum nesting depth of a manifest. In a debug build, a stack of 2 MiB, the default of a thread, suffices for 80.
const MAX_DEPTH: usize = 64;

/// The maximum number of values that the aliases of one file may repeat in total.
const MAX_REPEATED: usize = 100_000;

/// The longest line, in bytes, in which the text of a scalar is looked up. A longer line is JSON on one line, in which YAML reads
/// each scalar as it is written.
const MAX_LINE: usize = 1_000;

/// What YAML 1.1 reads as null or a boolean, in lower case.
const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// A value in a manifest and its line number. The line of a field is the line of its name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LocatedValue {
    /// The line number, counted from 1.
    pub(crate) line: u64,
    pub(crate) node: YamlNode,
    /// A number or a boolean as the file has it, such as `0644` or `yes`.
    pub(crate) written: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum YamlNode {
    /// A YAML scalar: a string, a number, a boolean or null.
    Scalar(Value),
    List(Vec<LocatedValue>),
    /// An object, with unique names in the order of the file.
    Object(Vec<(String, LocatedValue)>),
}

/// A value as the parser returns it, with its places.
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Self>>),
    Object(Vec<(Spanned<String>, Self)>),
}

/// A part of a file, in which the text of scalars is looked up.
struct Source<'t> {
    lines: Vec<&'t [u8]>,
    lines_before: u64,
}

/// A manifest that is not valid YAML, or that exceeds a limit.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct SyntaxError {
    /// The line number of the error, counted from 1; `None` if unknown.
    pub(crate) line: Option<u64>,
    message: String,
    /// The document as kubectl reads it, if the error is a field that occurs twice.
    pub(crate) tolerated: Option<Box<LocatedValue>>,
    /// Whether the document has the actions of a template.
    pub(crate) is_template: bool,
}

/// Parses the documents of a YAML or JSON stream. Skips empty documents. After a syntax error, continues with the next document.
pub(crate) fn parse(text: &[u8]) -> Vec<Result<LocatedValue, SyntaxError>> {
    let mut documents = Vec::new();
    let mut lines_before = 0;
    let parts = parts(text);
    let max_repeated = MAX_REPEATED / parts.len();
    for part in parts {
        let source = Source {
            lines: part.split(|byte| *byte == b'\n').collect(),
            lines_before,
        };
        let read = read(part, DuplicateKeyPolicy::Error, max_repeated).into_iter();
        documents.extend(read.map(|document| match document {
            Ok(document) => Ok(source.locate(document)),
            Err(error) => Err(SyntaxError::new(&error, part, &source)),
        }));
        lines_before += part.iter().map(|byte| u64::from(*byte == b'\n')).sum::<u64>();
    }
    documents
}

fn read(
    mut text: &[u8],
    duplicate_keys: DuplicateKeyPolicy,
    max_repeated: usize,
) -> Vec<Result<Spanned<Node>, serde_saphyr::Error>> {
    serde_saphyr::read_with_options(&mut text, options(duplicate_keys, max_repeated)).collect()
}

/// The parts of a stream. Each part begins with a line that begins a document. In YAML, such a line begins a document everywhere,
/// even in a block of text.
fn parts(text: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let (mut rest, mut length, mut has_content) = (text, 0, false);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let after_dashes = line.strip_prefix(b"---");
        let begins = after_dashes.is_some_and(|after| after.first().is_none_or(u8::is_ascii_whitespace));
        if begins && has_content {
            let (part, after) = rest.split_at(length);
            parts.push(part);
            (rest, length) = (after, 0);
        }
        // Directives belong to the document after them.
        has_content |= begins || !matches!(line.trim_ascii_start().first(), None | Some(b'#' | b'%'));
        length += line.len();
    }
    parts.push(rest);
    parts
}

impl LocatedValue {
    /// Drops the fields that are null, as an API server does.
    pub(super) fn drop_nulls(&mut self) {
        match &mut self.node {
            YamlNode::Scalar(_) => {}
            YamlNode::List(items) => items.iter_mut().for_each(Self::drop_nulls),
            YamlNode::Object(fields) => {
                fields.retain(|(_, value)| !matches!(value.node, YamlNode::Scalar(Value::Null)));
                for (_, value) in fields {
                    value.drop_nulls();
                }
            }
        }
    }
}

impl Source<'_> {
    fn locate(&self, spanned: Spanned<Node>) -> LocatedValue {
        let text = self.rest_of_line(&spanned.defined);
        self.located(spanned.value, &spanned.referenced, text)
    }

    /// A value with its place, and the text from where a scalar begins to the end of the line.
    fn located(&self, node: Node, place: &Location, rest: Option<&str>) -> LocatedValue {
        let (node, written) = match node {
            Node::Scalar(value) => {
                let end = |c: char| c.is_whitespace() || [',', ']', '}'].contains(&c);
                let (value, written) = resolve(value, rest.and_then(|rest| rest.split(end).next()));
                (YamlNode::Scalar(value), written.map(Box::from))
            }
            Node::List(items) => {
                let items = items.into_iter().map(|item| self.locate(item));
                (YamlNode::List(items.collect()), None)
            }
            Node::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| {
                    let rest = self.rest_of_line(&name.defined);
                    let rest = rest.and_then(|rest| after_name(rest, &name.value));
                    let value = self.located(value, &name.referenced, rest);
                    (name.value, value)
                });
                (YamlNode::Object(fields.collect()), None)
            }
        };
        LocatedValue {
            line: place.line() + self.lines_before,
            node,
            written,
        }
    }

    fn rest_of_line(&self, place: &Location) -> Option<&str> {
        let index = |number: u64| usize::try_from(number.checked_sub(1)?).ok();
        let line = self.lines.get(index(place.line())?)?;
        let line = str::from_utf8(line).ok().filter(|line| line.len() <= MAX_LINE)?;
        let (start, _) = line.char_indices().nth(index(place.column())?)?;
        line.get(start..)
    }
}

/// What is after the name of a field; `None` if the value is on another line.
fn after_name<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let quotes = ['"', '\''];
    let text = text.trim_start_matches(quotes).strip_prefix(name)?;
    Some(
        text.trim_start_matches(quotes)
            .trim_start()
            .strip_prefix(':')?
            .trim_start(),
    )
}

/// What kubectl makes of a scalar with this text, and the text if it is a number or a boolean. Unlike kubectl, the parser also
/// takes `yEs` for true.
fn resolve(value: Value, text: Option<&str>) -> (Value, Option<&str>) {
    let text = text.filter(|text| match value {
        Value::Bool(_) | Value::Null => WORDS.iter().any(|word| text.eq_ignore_ascii_case(word)),
        Value::Number(_) => text.starts_with(|c: char| c.is_ascii_digit() || ['+', '-', '.'].contains(&c)),
        _ => false,
    });
    let is_mixed = |text: &&str| {
        let has_lower = text.contains(|c: char| c.is_ascii_lowercase());
        has_lower && text.chars().skip(1).any(|c| c.is_ascii_uppercase())
    };
    match text.filter(is_mixed) {
        Some(word) if !value.is_number() => (Value::from(word), None),
        _ => (value, text),
    }
}

impl SyntaxError {
    fn new(error: &serde_saphyr::Error, part: &[u8], source: &Source<'_>) -> Self {
        let cause = error.without_snippet();
        let is_duplicate = matches!(cause, serde_saphyr::Error::DuplicateMappingKey { .. });
        let tolerated = is_duplicate.then(|| {
            let documents = read(part, DuplicateKeyPolicy::LastWins, MAX_REPEATED);
            documents.into_iter().next()?.ok()
        });
        let line = error
            .location()
            .map(|location| location.line())
            .filter(|line| *line > 0);
        let message = cause.render_with_formatter(&UserMessageFormatter);
        Self {
            line: line.map(|line| line + source.lines_before),
            message: match str::from_utf8(part) {
                Ok(_) => without_position(&message).to_owned(),
                Err(_) => "not a manifest: the file is not text in UTF-8".to_owned(),
            },
            tolerated: tolerated
                .flatten()
                .map(|document| Box::new(source.locate(document))),
            is_template: is_template(part, line),
        }
    }
}

/// Removes the suffix that parsers append to their messages, such as ` at line 2, column 4`.
fn without_position(message: &str) -> &str {
    match message.rsplit_once(" at line ") {
        Some((text, place)) if place.starts_with(|c: char| c.is_ascii_digit()) => text,
        _ => message,
    }
}

/// The parser's options. They read YAML as kubectl does (YAML 1.1: `yes` is true, `0755` is octal), but reject duplicate
/// fields, of which kubectl uses the last, unless the caller tolerates them.
fn options(duplicate_keys: DuplicateKeyPolicy, max_repeated: usize) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_reader_input_bytes: usize::try_from(MAX_FILE_BYTES).ok(),
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: max_repeated },
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

impl LocatedValue {
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        match &self.node {
            YamlNode::Object(fields) => fields
                .iter()
                .find_map(|(field, value)| (field == name).then_some(value)),
            _ => None,
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.node == YamlNode::Scalar(Value::Null)
    }

    /// The text of a field that contains a string; `None` if it contains something else.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match &self.get(name)?.node {
            YamlNode::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The line number of a field such as `spec.inventory[1].name` or `metadata.labels[example.com/a]`. If the field does not
    /// exist, the line of its closest parent that does.
    pub(crate) fn line_of(&self, path: &str) -> u64 {
        let mut found = self;
        for step in steps(path) {
            match found.child(step) {
                Some(child) => found = child,
                None => break,
            }
        }
        found.line
    }

    /// The value of a field; `None` if it does not exist.
    pub(crate) fn value_at(&self, path: &str) -> Option<&Self> {
        steps(path).try_fold(self, Self::child)
    }

    fn child(&self, step: &str) -> Option<&Self> {
        match &self.node {
            YamlNode::List(items) => items.get(step.parse::<usize>().ok()?),
            _ => self.get(step),
        }
    }

    /// The value as JSON, without line numbers.
    pub(crate) fn to_json(&self) -> Value {
        match &self.node {
            YamlNode::Scalar(value) => value.clone(),
            YamlNode::List(items) => items.iter().map(Self::to_json).collect(),
            YamlNode::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.clone(), value.to_json()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

/// The names, the indices and the keys of maps in a path. A key in brackets may contain dots.
fn steps(mut path: &str) -> impl Iterator<Item = &str> {
    iter::from_fn(move || {
        if path.is_empty() {
            return None;
        }
        let bracket = path.strip_prefix('[');
        let (step, rest) = bracket.and_then(|key| key.split_once(']')).unwrap_or_else(|| {
            let name = bracket.unwrap_or(path);
            name.split_at(name.find(['.', '[']).unwrap_or(name.len()))
        });
        path = rest.strip_prefix('.').unwrap_or(rest);
        Some(step)
    })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        // kubectl writes 3.0 as 3.
        if let Ok(integer) = value.to_string().parse::<i64>() {
            return self.visit_i64(integer);
        }
        let number = Number::from_f64(value).ok_or_else(|| {
            E::custom("infinity and NaN are not allowed, because JSON cannot represent them")
        })?;
        Ok(Node::Scalar(Value::Number(number)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = access.next_entry()? {
            fields.push(field);
        }
        Ok(Node::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::{any, proptest};
    use serde_json::{Value, json};

    use super::{LocatedValue, MAX_DEPTH, parse};

    fn only(text: &str) -> LocatedValue {
        let mut documents = parse(text.as_bytes());
        assert_eq!(documents.len(), 1, "{documents:?}");
        documents.remove(0).unwrap()
    }

    const MANIFEST: &str = "\
# A comment.
kind: ClusterPool
spec:
  inventory:
  - name: foo
  -
    name: bar
  size: 1
  labels:
    a.example.com/b: c
    other: d
";

    #[test]
    fn finds_the_line_of_each_field() {
        let document = only(MANIFEST);
        for (path, line) in [
            ("kind", 2),
            ("spec", 3),
            ("spec.inventory", 4),
            ("spec.inventory[0]", 5),
            ("spec.inventory[0].name", 5),
            ("spec.inventory[1].name", 7),
            ("spec.size", 8),
            ("spec.labels[a.example.com/b]", 10),
            ("spec.labels[other]", 11),
        ] {
            assert_eq!(document.line_of(path), line, "{path}");
        }
    }

    #[test]
    fn finds_the_closest_parent_of_a_missing_field() {
        let document = only(MANIFEST);
        for (path, line) in [
            ("spec.inventory[0].kind", 5),
            ("spec.inventory[7].name", 4),
            ("spec.platform", 3),
            ("spec.labels[a.example.com/c]", 9),
            ("spec.labels[", 9),
            (".", 2),
            ("", 2),
        ] {
            assert_eq!(document.line_of(path), line, "{path}");
        }
    }

    #[test]
    fn reads_values_as_kubectl_does() {
        for (text, value) in [
            ("a: yes", json!({"a": true})),
            ("a: 'yes'", json!({"a": "yes"})),
            ("a: off", json!({"a": false})),
            ("a: 0755", json!({"a": 493})),
            ("a: ~", json!({"a": null})),
            ("a:", json!({"a": null})),
            ("a: 1.5", json!({"a": 1.5})),
            ("a: -3", json!({"a": -3})),
            ("a: 2020-11-05", json!({"a": "2020-11-05"})),
            ("a: v1.2.3", json!({"a": "v1.2.3"})),
            ("1: a", json!({"1": "a"})),
            ("a: &x {b: 1}\nc: *x", json!({"a": {"b": 1}, "c": {"b": 1}})),
            (
                "a: &x {b: 1}\nc:\n  <<: *x\n  d: 2",
                json!({"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
            ),
            ("a: |\n  one\n  two\n", json!({"a": "one\ntwo\n"})),
            (
                "{\n\t\"a\": [\n\t\t1,\n\t\t\"\\u00e9\"\n\t]\n}",
                json!({"a": [1, "é"]}),
            ),
        ] {
            assert_eq!(only(text).to_json(), value, "{text}");
        }
    }

    /// The integration tests compare the same table with kubectl.
    #[test]
    fn reads_each_scalar_as_kubectl_does() {
        let table = include_str!("../../../../tests/fixtures/scalars.tsv");
        for (text, value) in table.lines().map(|row| row.split_once('\t').unwrap()) {
            let value: Value = serde_json::from_str(value).unwrap();
            for manifest in [format!("a: {text}\n"), format!("- {{a: {text}}}\n")] {
                let document = only(&manifest);
                let read = document.value_at("a").or_else(|| document.value_at("[0].a"));
                assert_eq!(read.unwrap().to_json(), value, "{manifest}");
            }
        }
    }

    #[test]
    fn keeps_the_text_of_numbers_and_booleans() {
        for (text, written) in [
            ("yes", Some("yes")),
            ("0644", Some("0644")),
            ("1.10", Some("1.10")),
            ("'yes'", None),
            ("\"3\"", None),
            ("!!int '3'", None),
            ("text", None),
            ("~", None),
        ] {
            for (manifest, path) in [
                (format!("a: {text}  # a\n"), "a"),
                (format!("{{é: 1, \"a\" : {text}}}\n"), "a"),
                (format!("a: [é, {text}]\n"), "a[1]"),
            ] {
                let document = only(&manifest);
                let read = document.value_at(path).unwrap();
                assert_eq!(read.written.as_deref(), written, "{manifest}");
            }
        }
    }

    #[test]
    fn reads_a_stream_and_skips_empty_documents() {
        let documents = parse(b"---\na: 1\n---\n---\n# nothing\n---\nb: 2\n...\n");
        let lines: Vec<_> = documents
            .into_iter()
            .map(|document| document.unwrap().line)
            .collect();
        assert_eq!(lines, [2, 7]);
    }

    #[test]
    fn says_where_the_syntax_is_wrong() {
        for (text, line) in [
            ("a: 1\nb: [1,\nc: }", 2),
            ("a: 1\na: 2", 2),
            ("a: *nowhere", 1),
            ("leaders:\n  - component: *", 2),
            ("a: 'x", 1),
        ] {
            let documents = parse(text.as_bytes());
            let error = documents.into_iter().find_map(Result::err).unwrap();
            assert_eq!(error.line, Some(line), "{text}: {error}");
        }
    }

    /// The parser's own messages name its options.
    #[test]
    fn syntax_errors_are_written_for_users() {
        let documents = parse(b"kind: A\nkind: B\n");
        let error = documents.into_iter().find_map(Result::err).unwrap();
        assert_eq!(error.to_string(), "duplicate mapping key: kind not allowed here");
    }

    #[test]
    fn keeps_the_documents_around_a_syntax_error() {
        let documents = parse(b"a: 1\n---\nb: [\n--- # c\nc: 2\n---\n--- {d: 3}\n%\n---x: [\n");
        let lines: Vec<_> = documents
            .iter()
            .map(|document| match document {
                Ok(document) => (true, document.line),
                Err(error) => (false, error.line.unwrap()),
            })
            .collect();
        assert_eq!(lines, [(true, 1), (false, 3), (true, 5), (true, 7), (false, 8)]);
        let directive = parse(b"# first\n%YAML 1.2\n---\na: 1\n");
        assert!(matches!(directive.as_slice(), [Ok(_)]), "{directive:?}");
    }

    #[test]
    fn tolerates_a_field_that_occurs_twice() {
        let documents = parse(b"a: 1\n---\nb: 1\nc: 2\nb: 3\n");
        let [Ok(_), Err(error)] = documents.as_slice() else {
            panic!("{documents:?}")
        };
        assert_eq!(error.line, Some(5));
        let tolerated = error.tolerated.as_ref().unwrap();
        assert_eq!(tolerated.to_json(), json!({"b": 3, "c": 2}));
        assert_eq!(tolerated.line_of("c"), 4);
    }

    #[test]
    fn rejects_repeated_aliases_and_deep_nesting() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..10 {
            let tenfold = vec![format!("*a{}", level - 1); 10].join(",");
            writeln!(bomb, "a{level}: &a{level} [{tenfold}]").unwrap();
        }
        assert!(parse(bomb.as_bytes()).iter().any(Result::is_err));
        let nested = |depth: usize| {
            let lines = (0..depth).map(|level| format!("{}a:\n", " ".repeat(level)));
            format!("{}{}1", lines.collect::<String>(), " ".repeat(depth))
        };
        assert!(parse(nested(MAX_DEPTH - 1).as_bytes()).iter().all(Result::is_ok));
        assert!(parse(nested(MAX_DEPTH + 1).as_bytes()).iter().any(Result::is_err));
        let tower = format!("a: {}1{}", "[".repeat(5000), "]".repeat(5000));
        assert!(parse(tower.as_bytes()).iter().any(Result::is_err));
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<Vec<u8>>(), path in any::<String>()) {
            for document in parse(&text).into_iter().flatten() {
                document.line_of(&path);
                document.to_json();
            }
        }

        #[test]
        fn json_is_read_unchanged(name in "[a-z]{1,8}", text in any::<String>(), number in any::<i64>()) {
            let value = json!({name: [text, number, {"a.b/c": null}]});
            let read = only(&serde_json::to_string_pretty(&value).unwrap());
            assert_eq!(read.to_json(), value);
        }
    }
}
