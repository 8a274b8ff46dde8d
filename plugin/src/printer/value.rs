//! Prints single values as kubectl does.

use serde::Serialize as _;
use serde_json::{Serializer, Value, ser::PrettyFormatter};

/// The text of a value in a jsonpath template. Objects and arrays are printed as JSON.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number_text(number),
        Value::Null | Value::Bool(_) => value.to_string(),
        Value::Array(_) | Value::Object(_) => escape_html(&value.to_string()),
    }
}

/// The values as a JSON array with indentation.
pub(super) fn json_array(values: &[&Value]) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(b"    "));
    values.serialize(&mut serializer)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(escape_html(&text) + "\n")
}

/// The text of a number. Go prints a float without a fraction as a whole number.
fn number_text(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => float.to_string(),
        _ => number.to_string(),
    }
}

/// Escapes `<`, `>` and `&` as Go's JSON encoder does. They occur only in strings.
fn escape_html(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{json_array, text};

    #[test]
    fn a_value_as_text() {
        for (value, expected) in [
            (json!("a\nb"), "a\nb"),
            (json!(null), "null"),
            (json!(true), "true"),
            (json!(-3), "-3"),
            (json!(2.0), "2"),
            (json!(2.5), "2.5"),
            (json!([]), "[]"),
            (json!(["a", 1, null]), "[\"a\",1,null]"),
            (
                json!({"b": {"c": "<&>"}, "a": 1}),
                "{\"a\":1,\"b\":{\"c\":\"\\u003c\\u0026\\u003e\"}}",
            ),
        ] {
            assert_eq!(text(&value), expected);
        }
    }

    #[test]
    fn values_as_an_array() {
        let (first, second) = (json!("a"), json!({"b": []}));
        let array = json_array(&[&first, &second]).unwrap();
        assert_eq!(array, "[\n    \"a\",\n    {\n        \"b\": []\n    }\n]\n");
        assert_eq!(json_array(&[]).unwrap(), "[]\n");
    }
}
