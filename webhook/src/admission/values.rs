//! How many values an object has: decoded, each takes many times the bytes of its text, and a rule may find a fault in
//! each.

use memchr::memchr2;

use crate::limits::VALUES;

/// Whether a JSON text has more than [`VALUES`] values. The text is well-formed: a review that is not has been
/// answered.
pub(super) fn too_many(text: &str) -> bool {
    // A value and what parts it from the next take two bytes at least.
    text.len() > 2 * VALUES && count(text) > VALUES
}

/// Values, as many as there are beginnings of lists and objects, and commas.
fn count(text: &str) -> usize {
    let mut count = 0;
    let mut rest = text.as_bytes();
    // What is outside of strings is looked at byte by byte: it is short, and most of a large object is one string.
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

/// What follows a string whose opening quote was read.
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
    fn what_stands_in_strings_does_not_count() {
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
    fn the_limit_itself_is_allowed() {
        let list = |values: usize| format!("[{}10]", "10,".repeat(values - 1));
        assert!(!too_many(&list(VALUES)));
        assert!(too_many(&list(VALUES + 1)));
        assert!(!too_many(&format!("{:?}", ",".repeat(3 * VALUES))));
    }
}
