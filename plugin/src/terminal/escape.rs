//! Escapes text from a cluster or a manifest. Control characters in it could otherwise control the terminal, and invisible
//! characters could make a name look like another one.

use std::{borrow::Cow, fmt::Write as _, iter};

/// Escapes every control character and every invisible character, including line breaks.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_each(text, |_| false, |c, escaped| escaped.extend(c.escape_default()))
}

/// Like [`escape`], but keeps line breaks and tabs.
pub fn escape_text(text: &str) -> Cow<'_, str> {
    escape_each(text, is_layout, |c, escaped| escaped.extend(c.escape_default()))
}

/// Escapes the same characters as [`escape_text`] in a JSON document. They are inside strings, so the values stay the same.
pub fn escape_json(document: &str) -> Cow<'_, str> {
    escape_each(document, is_layout, |c, escaped| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    })
}

fn escape_each(
    text: &str,
    is_kept: impl Fn(char) -> bool,
    escape: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    let with_previous = || {
        let previous = iter::once(None).chain(text.chars().map(Some));
        previous.zip(text.chars())
    };
    let is_unsafe = |previous, c| is_unsafe(previous, c) && !is_kept(c);
    if !with_previous().any(|(previous, c)| is_unsafe(previous, c)) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for (previous, c) in with_previous() {
        if is_unsafe(previous, c) {
            escape(c, &mut escaped);
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

const fn is_layout(c: char) -> bool {
    matches!(c, '\n' | '\t')
}

/// The lines of `text`, each with its control characters escaped.
pub fn escape_lines(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    text.lines().map(escape)
}

/// Whether a character is a control character (C0, C1), a Unicode bidirectional control, or invisible. With
/// invisible characters, two different names look the same. `previous` is the character before `c`.
fn is_unsafe(previous: Option<char>, c: char) -> bool {
    // Most characters are in this range.
    if matches!(c, ' '..='~') {
        return false;
    }
    c.is_control() || is_invisible(c) || is_variation_selector(c) && !previous.is_some_and(has_variations)
}

/// Unicode's characters with the property `Default_Ignorable_Code_Point`, without variation selectors, and the line and
/// paragraph separators and annotation characters.
const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e00ff}' | '\u{e01f0}'..='\u{e0fff}')
}

/// Whether a character chooses a variant of the character before it.
const fn is_variation_selector(c: char) -> bool {
    matches!(c, '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Whether a variation selector may follow this character, as in an emoji. After an ASCII letter, the
/// selector is invisible.
fn has_variations(c: char) -> bool {
    !c.is_ascii() && !c.is_whitespace() && !c.is_control() && !is_invisible(c) && !is_variation_selector(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{escape, escape_json, escape_lines, escape_text};

    #[test]
    fn escapes_control_characters_and_invisible_characters_only() {
        for (text, shown) in [
            ("c1-cp", "c1-cp"),
            ("größe — 日本", "größe — 日本"),
            ("a\u{1b}[31mb", "a\\u{1b}[31mb"),
            ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
            ("a\u{9b}b", "a\\u{9b}b"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("edge\u{200b}", "edge\\u{200b}"),
            ("a\u{200c}\u{200d}\u{2060}b", "a\\u{200c}\\u{200d}\\u{2060}b"),
            ("a\u{ad}b", "a\\u{ad}b"),
            ("\u{feff}a\u{2028}\u{2029}", "\\u{feff}a\\u{2028}\\u{2029}"),
            ("a\u{e0041}\u{e007f}", "a\\u{e0041}\\u{e007f}"),
            ("a\u{3164}b\u{115f}", "a\\u{3164}b\\u{115f}"),
            // A variation selector alone is invisible; after a symbol it chooses the variant.
            ("edge\u{fe0f}", "edge\\u{fe0f}"),
            ("\u{fe0f}", "\\u{fe0f}"),
            ("\u{2601}\u{fe0f}", "\u{2601}\u{fe0f}"),
            ("\u{2601}\u{fe0f}\u{fe0f}", "\u{2601}\u{fe0f}\\u{fe0f}"),
            ("\u{845b}\u{e0100}", "\u{845b}\u{e0100}"),
            ("a\u{e0100}", "a\\u{e0100}"),
        ] {
            assert_eq!(escape(text), shown);
        }
    }

    #[test]
    fn text_keeps_line_breaks_and_tabs() {
        assert_eq!(escape_text("a\tb\n\u{1b}[2Jc\r"), "a\tb\n\\u{1b}[2Jc\\r");
    }

    #[test]
    fn a_json_document_keeps_its_values() {
        for (text, shown) in [
            ("edge", "edge"),
            ("a\u{9b}b\u{7f}", "a\\u009bb\\u007f"),
            ("a\u{200b}\u{202e}", "a\\u200b\\u202e"),
            ("a\u{e0041}", "a\\udb40\\udc41"),
        ] {
            let document = serde_json::to_string_pretty(&[text]).expect("JSON");
            let escaped = escape_json(&document);
            assert_eq!(escaped, format!("[\n  \"{shown}\"\n]"));
            assert_eq!(
                serde_json::from_str::<[String; 1]>(&escaped).expect("JSON"),
                [text]
            );
        }
    }

    #[test]
    fn escapes_each_line_separately() {
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
