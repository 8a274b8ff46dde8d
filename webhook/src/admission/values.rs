//! Counts the values in an object. A decoded value needs many times the memory of its text, and a rule may report
//! every value.

use memchr::memchr2;

use crate::limits::MAX_VALUES;

/// Whether a JSON text has more than [`MAX_VALUES`] values. The text must be well-formed.
pub(super) fn has_too_many_values(text: &str) -> bool {
    // A value and its separator have at least two bytes.
    text.len() > 2 * MAX_VALUES && count(text) > MAX_VALUES
}

/// Counts the openings of lists and objects, and the commas.
fn count(text: &str) -> usize {
    let mut count = 0;
    let mut rest = text.as_bytes();
    // Read only text outside of strings byte by byte, because most of a large object is one string.
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => rest = after_string(rest),
            b',' | b'[' | b'{' => count += 1,
            _ => {}
        }
    }
    count
}

/// The text after a string. `rest` begins after the opening quote.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr2(b'"', b'\\', rest) {
        match rest.get(at..) {
            Some([b'"', after @ ..]) => return after,
            Some([_, _, after @ ..]) => rest = after,
            _ => break,
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_the_content_of_strings() {
        for (text, expected) in [
            ("7", 0),
            ("[1,2,3]", 3),
            (r#"{"a":[],"b":{}}"#, 4),
            (r#"["[,{","\"[,","\\",[]]"#, 5),
        ] {
            assert_eq!(count(text), expected, "{text}");
        }
    }

    #[test]
    fn accepts_exactly_the_limit() {
        let list = |values: usize| format!("[{}10]", "10,".repeat(values - 1));
        assert!(!has_too_many_values(&list(MAX_VALUES)));
        assert!(has_too_many_values(&list(MAX_VALUES + 1)));
        assert!(!has_too_many_values(&format!("{:?}", ",".repeat(3 * MAX_VALUES))));
    }
}
