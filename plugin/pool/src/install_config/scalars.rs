//! Finds unquoted YAML values (plain scalars) that Hive reads differently from this program. Hive uses sigs.k8s.io/yaml
//! (v1.6.0), which mostly follows YAML 1.1.

use serde_json::Value;
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle};

/// Up to this number, 2^53, a float represents every whole number exactly.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// The line and column, both counted from 1, of the first plain scalar that Hive reads differently from `read`.
pub(super) fn find_misread_scalar(
    text: &str,
    read: impl Fn(&str) -> Option<Value>,
) -> Option<(usize, usize)> {
    let mut levels: Vec<OpenNode> = Vec::new();
    // Ignore a syntax error here, because the parser of the document reports it.
    for (event, place) in Parser::new_from_str(text).map_while(Result::ok) {
        match event {
            Event::Scalar(text, style, _, tag) => {
                let is_key = begin_node(&mut levels);
                let is_plain = style == ScalarStyle::Plain && tag.is_none();
                if is_plain && is_misread(&text, is_key, &read) {
                    return Some((place.start.line(), place.start.col() + 1));
                }
            }
            Event::Alias(_) => drop(begin_node(&mut levels)),
            Event::SequenceStart(..) => {
                begin_node(&mut levels);
                levels.push(OpenNode::List);
            }
            Event::MappingStart(..) => {
                begin_node(&mut levels);
                levels.push(OpenNode::Mapping { is_key_next: true });
            }
            Event::SequenceEnd | Event::MappingEnd => drop(levels.pop()),
            _ => {}
        }
    }
    None
}

/// A list or mapping that the parser has begun, but not finished.
enum OpenNode {
    List,
    Mapping { is_key_next: bool },
}

/// Records that the parser begins a node, and returns whether this node is the key of a mapping.
fn begin_node(levels: &mut [OpenNode]) -> bool {
    match levels.last_mut() {
        Some(OpenNode::Mapping { is_key_next }) => {
            *is_key_next = !*is_key_next;
            !*is_key_next
        }
        Some(OpenNode::List) | None => false,
    }
}

fn is_misread(text: &str, is_key: bool, read: &impl Fn(&str) -> Option<Value>) -> bool {
    // Hive and this program both read text with spaces as text, and `<<` as the merge of a mapping.
    if text.contains(char::is_whitespace) || text == "<<" {
        return false;
    }
    let meant = value_that_hive_reads(text);
    match (is_key, meant) {
        (true, Value::String(_)) => false,
        // The keys of a mapping are text in JSON: Hive uses the JSON form of the scalar, this program its original text.
        (true, meant) => {
            let json = meant.to_string();
            meant.is_null() || json != text
        }
        (false, meant) => {
            // Parse the text as a list item, because `---` on its own starts a document.
            let items = read(&format!("- {text}"));
            items.as_ref().and_then(|items| items.get(0)) != Some(&meant)
        }
    }
}

/// The value that Hive reads from a plain scalar, as in go.yaml.in/yaml/v2 (v2.4.2, `resolve.go`).
fn value_that_hive_reads(text: &str) -> Value {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => true.into(),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => false.into(),
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        _ => number(text).unwrap_or_else(|| text.into()),
    }
}

fn number(text: &str) -> Option<Value> {
    if text.starts_with('.') {
        return float(text);
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-') {
        return None;
    }
    let plain = text.replace('_', "");
    integer(&plain).or_else(|| float(&plain))
}

/// Parses a whole number. Both `0` (YAML 1.1) and `0o` (YAML 1.2) begin an octal number.
fn integer(text: &str) -> Option<Value> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let after = |prefix: [&str; 2]| prefix.iter().find_map(|prefix| digits.strip_prefix(prefix));
    let (radix, digits) = if let Some(digits) = after(["0x", "0X"]) {
        (16, digits)
    } else if let Some(digits) = after(["0o", "0O"]) {
        (8, digits)
    } else if let Some(digits) = after(["0b", "0B"]) {
        (2, digits)
    } else {
        match digits.strip_prefix('0') {
            Some(digits) if !digits.is_empty() => (8, digits),
            _ => (10, digits),
        }
    };
    // A number with two signs is text.
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if is_negative {
        return 0_i64.checked_sub_unsigned(magnitude).map(Value::from);
    }
    Some(magnitude.into())
}

fn float(text: &str) -> Option<Value> {
    // Reject words such as `inf`, which Rust's parser also accepts.
    if text.contains(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E')) {
        return None;
    }
    let mut value = Value::from(text.parse::<f64>().ok().filter(|number| number.is_finite())?);
    replace_whole_floats(&mut value);
    Some(value)
}

/// Replaces floats such as `1.0` with whole numbers, because Go's JSON encoder writes `1`.
pub(super) fn replace_whole_floats(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(replace_whole_floats),
        Value::Object(fields) => fields.values_mut().for_each(replace_whole_floats),
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().and_then(whole) {
                *value = whole.into();
            }
        }
        _ => {}
    }
}

fn whole(number: f64) -> Option<i64> {
    let is_whole = number.fract() == 0.0 && number.abs() < MAX_EXACT_INTEGER;
    #[allow(clippy::cast_possible_truncation, reason = "below 2^53")]
    is_whole.then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::install_config::InstallConfig;

    fn read(yaml: &str) -> Result<Value, String> {
        match InstallConfig::parse(yaml.as_bytes(), "f") {
            Ok(config) => Ok(config.value().clone()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn refused(column: usize) -> String {
        format!(
            "cannot use f as an install-config: Hive reads the unquoted value at line 1, column {column} \
             differently from \
             YAML 1.2; put it in quotes"
        )
    }

    /// Each value was read with sigs.k8s.io/yaml v1.6.0.
    #[test]
    fn plain_scalars_as_hive_reads_them() {
        for (scalar, expected) in [
            ("0777", json!(511)),
            ("-0777", json!(-511)),
            ("+0777", json!(511)),
            ("07_7", json!(63)),
            ("00", json!(0)),
            ("0o17", json!(15)),
            ("0O7", json!(7)),
            ("0x1F", json!(31)),
            ("-0x1F", json!(-31)),
            ("0b101", json!(5)),
            ("-0b11", json!(-3)),
            ("089", json!(89)),
            ("012e3", json!(12000)),
            ("1_000", json!(1000)),
            ("+12", json!(12)),
            ("-0", json!(0)),
            ("1.0", json!(1)),
            ("1.", json!(1)),
            ("1e3", json!(1000)),
            (".5", json!(0.5)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("99999999999999999999999", json!(1e23)),
            ("1:30", json!("1:30")),
            ("190:20:30", json!("190:20:30")),
            ("2026-11-21", json!("2026-11-21")),
            ("2026-11-21T05:00:00Z", json!("2026-11-21T05:00:00Z")),
            ("4.15.3", json!("4.15.3")),
            ("10.0.0.0/16", json!("10.0.0.0/16")),
            ("_10", json!("_10")),
            ("---", json!("---")),
            ("https://a:1/?b#c", json!("https://a:1/?b#c")),
            ("=", json!("=")),
            ("yes", json!(true)),
            ("y", json!(true)),
            ("on", json!(true)),
            ("NO", json!(false)),
            ("Off", json!(false)),
            ("~", json!(null)),
            ("Null", json!(null)),
            ("", json!(null)),
            ("\"0777\"", json!("0777")),
            ("'yes'", json!("yes")),
            ("!!str 0777", json!("0777")),
        ] {
            assert_eq!(
                read(&format!("a: {scalar}")),
                Ok(json!({ "a": expected })),
                "{scalar}"
            );
        }
    }

    #[test]
    fn rejects_scalars_that_hive_reads_differently() {
        for scalar in ["yEs", "tRue", "nUll", "1__0", "10_", "1_0.5"] {
            assert_eq!(read(&format!("a: {scalar}")), Err(refused(4)), "{scalar}");
            assert_eq!(read(&format!("a: [b, {scalar}]")), Err(refused(8)), "{scalar}");
        }
        for key in ["yes", "n", "True", "0777", "1.0"] {
            assert_eq!(read(&format!("{key}: x")), Err(refused(1)), "{key}");
            assert_eq!(
                read(&format!("a: {{b: {{}}, {key}: x}}")),
                Err(refused(12)),
                "{key}"
            );
            assert_eq!(read(&format!("'{key}': x")), Ok(json!({ key: "x" })));
        }
        let keys = json!({"1": "x", "true": "w", "1.5": "z", "b": {"c": 1}, "a": {"c": 1, "d": "no news"}});
        let yaml = "1: x\ntrue: w\n1.5: z\nb: &b {c: 1}\na:\n  <<: *b\n  d: no news\n";
        assert_eq!(read(yaml), Ok(keys));
    }
}
