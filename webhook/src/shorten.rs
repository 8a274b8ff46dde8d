//! Shortens text to a limit.

use std::borrow::Cow;

/// Shortens `text` to at most `limit` characters. Shortened text ends in `…` and `tail`.
pub(crate) fn shorten<'a>(text: &'a str, limit: usize, tail: &str) -> Cow<'a, str> {
    // Text with few bytes has few characters, and need not be counted.
    if text.len() <= limit || text.chars().nth(limit).is_none() {
        return Cow::Borrowed(text);
    }
    let kept = limit.saturating_sub(tail.chars().count() + 1);
    Cow::Owned(text.chars().take(kept).chain(['…']).chain(tail.chars()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_only_text_that_is_too_long() {
        for (text, limit, tail, expected) in [
            ("abc", 3, "", "abc"),
            ("abcd", 3, "", "ab…"),
            ("\u{e4}\u{e4}\u{e4}\u{e4}", 3, "", "\u{e4}\u{e4}…"),
            ("abcdefgh (id)", 10, " (id)", "abcd… (id)"),
            ("", 0, "", ""),
        ] {
            assert_eq!(shorten(text, limit, tail), expected, "{text}");
        }
    }
}
