//! Escapes text from a cluster or a manifest. Control characters in it could otherwise control the terminal.

use std::borrow::Cow;

/// Escapes every control character, including line breaks.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_each(text, is_unsafe)
}

/// Escapes every control character except line breaks and tabs.
pub fn escape_text(text: &str) -> Cow<'_, str> {
    escape_each(text, |c| is_unsafe(c) && c != '\n' && c != '\t')
}

fn escape_each(text: &str, is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().any(&is_unsafe) {
        let escaped = text.chars().flat_map(|c| {
            let (escape, plain) = if is_unsafe(c) {
                (Some(c.escape_default()), None)
            } else {
                (None, Some(c))
            };
            escape.into_iter().flatten().chain(plain)
        });
        Cow::Owned(escaped.collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// The lines of `text`, escaped.
pub fn escape_lines(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    text.lines().map(escape)
}

/// Whether a character is a control character (C0, C1) or a Unicode bidirectional control.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{escape, escape_lines, escape_text};

    #[test]
    fn escapes_control_characters_only() {
        for (text, shown) in [
            ("c1-cp", "c1-cp"),
            ("größe — 日本", "größe — 日本"),
            ("a\u{1b}[31mb", "a\\u{1b}[31mb"),
            ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
            ("a\u{9b}b", "a\\u{9b}b"),
            ("a\u{202e}b", "a\\u{202e}b"),
        ] {
            assert_eq!(escape(text), shown);
        }
    }

    #[test]
    fn a_text_has_lines_and_tabs() {
        assert_eq!(escape_text("a\tb\n\u{1b}[2Jc\r"), "a\tb\n\\u{1b}[2Jc\\r");
    }

    #[test]
    fn keeps_lines_apart() {
        let lines: Vec<_> = escape_lines("* one\n  * two\u{7}").collect();
        assert_eq!(lines, ["* one", "  * two\\u{7}"]);
    }

    proptest! {
        #[test]
        fn leaves_no_control_character(text in any::<String>()) {
            assert!(!escape(&text).chars().any(char::is_control));
        }
    }
}
