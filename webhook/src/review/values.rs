//! Counts the values in JSON text. A decoded value needs many times the memory of its text, and a rule may report every value.

use memchr::memchr2;

/// The number of values in well-formed JSON text: the openings of lists and objects, and the commas.
pub(crate) fn count_values(text: &str) -> usize {
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
            assert_eq!(count_values(text), expected, "{text}");
        }
    }
}
