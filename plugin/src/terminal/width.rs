//! Measures, wraps and cuts text for a terminal. The text must already be escaped.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

const ELLIPSIS: char = '…';

/// The width of text without styles, in terminal cells.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Wraps text at spaces. A word that is wider than a line is not broken, so that users can paste names.
pub fn wrap(text: &str, limit: usize) -> Vec<String> {
    wrap_words(text.split(' '), limit)
}

/// Wraps a hint like [`wrap`], but never breaks a command, so that users can paste it. A command ends at `; `.
pub fn wrap_hint(text: &str, limit: usize) -> Vec<String> {
    let mut words: Vec<&str> = Vec::new();
    for part in text.split_inclusive("; ") {
        let part = part.trim_end();
        let start = ["kubectl ", "crictl "]
            .into_iter()
            .filter_map(|command| part.find(command))
            .min();
        let (before, command) = match start {
            Some(start) => part.split_at_checked(start).unwrap_or((part, "")),
            None => (part, ""),
        };
        words.extend(before.split(' ').chain([command]).filter(|word| !word.is_empty()));
    }
    wrap_words(words.into_iter(), limit)
}

fn wrap_words<'t>(words: impl Iterator<Item = &'t str>, limit: usize) -> Vec<String> {
    let limit = limit.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in words {
        if !line.is_empty() && width(&line) + 1 + width(word) > limit {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// Cuts a styled line to a width, without cutting its styles.
pub fn cut(line: &str, limit: usize) -> Cow<'_, str> {
    if width(&anstream::adapter::strip_str(line).to_string()) <= limit {
        return Cow::Borrowed(line);
    }
    let room = limit.saturating_sub(1);
    let (mut text, mut used, mut in_style) = (String::new(), 0, false);
    for c in line.chars() {
        if in_style || c == '\u{1b}' {
            in_style = c != 'm';
            text.push(c);
            continue;
        }
        used += c.width().unwrap_or(0);
        if used > room {
            break;
        }
        text.push(c);
    }
    text.push(ELLIPSIS);
    if text.contains('\u{1b}') {
        text.push_str("\u{1b}[0m");
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::{cut, wrap, wrap_hint};

    #[test]
    fn text_wraps_at_spaces() {
        for (text, limit, lines) in [
            ("", 10, vec![""]),
            ("one two three", 20, vec!["one two three"]),
            ("one two three", 7, vec!["one two", "three"]),
            ("one two three", 6, vec!["one", "two", "three"]),
            ("one incomprehensible", 8, vec!["one", "incomprehensible"]),
            ("日本", 1, vec!["日本"]),
        ] {
            assert_eq!(wrap(text, limit), lines, "{text} {limit}");
        }
    }

    #[test]
    fn commands_are_not_wrapped() {
        let hint = "see all of it: kubectl describe machine edge-x7k2p -n default";
        assert_eq!(
            wrap_hint(hint, 30),
            ["see all of it:", "kubectl describe machine edge-x7k2p -n default"]
        );
        assert_eq!(wrap_hint(hint, 80), [hint]);
        assert_eq!(
            wrap_hint("on the host: crictl logs $(crictl ps -q)", 20),
            ["on the host:", "crictl logs $(crictl ps -q)"]
        );
        assert_eq!(
            wrap_hint("first: kubectl kcp a b c; then to do more: kubectl kcp d", 22),
            [
                "first:",
                "kubectl kcp a b c;",
                "then to do more:",
                "kubectl kcp d"
            ]
        );
        assert_eq!(wrap_hint("wait for it", 8), ["wait for", "it"]);
    }

    #[test]
    fn a_cut_line_resets_its_styles() {
        assert_eq!(cut("\u{1b}[31mabc\u{1b}[0m", 3), "\u{1b}[31mabc\u{1b}[0m");
        assert_eq!(cut("\u{1b}[31mabcd\u{1b}[0m", 3), "\u{1b}[31mab…\u{1b}[0m");
        assert_eq!(cut("abcd", 3), "ab…");
    }
}
