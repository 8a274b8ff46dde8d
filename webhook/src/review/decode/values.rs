//! Counts the values in JSON text. A decoded value needs many times the memory of its text, and a rule may report every value.

use memchr::memchr2;

use crate::limits::MAX_VALUES;

/// How many bytes are counted at a time, at most 255. The compiler counts so few bytes with vector instructions of one byte a lane.
const PART: usize = 128;

/// An upper bound of the number of values in well-formed JSON text. It is exact if it exceeds [`MAX_VALUES`].
pub(crate) fn count_values(text: &[u8]) -> usize {
    // This counts the characters in strings too, but takes a tenth of the time.
    let separators = |part: &[u8]| -> u8 {
        let found = part
            .iter()
            .map(|byte| u8::from(matches!(byte, b',' | b'[' | b'{')));
        found.sum()
    };
    let count = text.chunks(PART).map(|part| usize::from(separators(part))).sum();
    if count <= MAX_VALUES {
        count
    } else {
        count_outside_strings(text)
    }
}

/// Returns how many opening brackets, opening braces and commas are outside of strings.
fn count_outside_strings(text: &[u8]) -> usize {
    let mut count = 0;
    let mut rest = text;
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
    while let Some(index) = memchr2(b'"', b'\\', rest) {
        match rest.get(index..) {
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
            assert_eq!(count_outside_strings(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn counts_exactly_above_the_limit() {
        let object = format!("[{:?}]", ",".repeat(MAX_VALUES));
        assert_eq!(count_values(object.as_bytes()), 1);
        assert_eq!(count_values(br#"[",",1]"#), 3);
    }
}
