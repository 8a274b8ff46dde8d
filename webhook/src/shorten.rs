//! Text cut to a length.

use std::borrow::Cow;

/// `text` in at most `limit` characters; what is cut off shows as `…`, and `tail` is kept.
pub(crate) fn shorten<'a>(text: &'a str, limit: usize, tail: &str) -> Cow<'a, str> {
    if text.chars().nth(limit).is_none() {
        return Cow::Borrowed(text);
    }
    let kept = limit.saturating_sub(tail.chars().count() + 1);
    Cow::Owned(text.chars().take(kept).chain(['…']).chain(tail.chars()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_by_characters_and_only_what_is_too_long() {
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
