//! Measures, shortens and wraps text for a terminal. Expects escaped text.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

const ELLIPSIS: char = '…';

/// The width of text without styles, in cells.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Shortens a name by removing its middle, because generated names differ at the end and host names at the
/// start.
pub fn shorten(name: &str, limit: usize) -> Cow<'_, str> {
    if width(name) <= limit {
        return Cow::Borrowed(name);
    }
    let room = limit.saturating_sub(1);
    let host = name.split_once('.').map_or(0, |(host, _)| width(host));
    let tail = room - (room - room / 2).max(host).min(room);
    let head = take(name.chars(), room - tail);
    let mut end: Vec<char> = take(name.chars().rev(), tail).chars().collect();
    end.reverse();
    Cow::Owned(head.chars().chain([ELLIPSIS]).chain(end).collect())
}

fn take(characters: impl Iterator<Item = char>, limit: usize) -> String {
    let mut used = 0;
    characters
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= limit
        })
        .collect()
}

/// Wraps text at spaces. Words that are wider than a line are broken.
pub fn wrap(text: &str, limit: usize) -> Vec<String> {
    wrap_words(text.split(' '), limit, true)
}

/// Wraps a hint like [`wrap`], but never breaks a command, so that users can paste it.
pub fn wrap_hint(text: &str, limit: usize) -> Vec<String> {
    let (words, command) = match text.find("kubectl ") {
        Some(start) => text.split_at_checked(start).unwrap_or((text, "")),
        None => (text, ""),
    };
    let words = words.split(' ').chain([command]).filter(|word| !word.is_empty());
    wrap_words(words, limit, false)
}

fn wrap_words<'t>(words: impl Iterator<Item = &'t str>, limit: usize, breaks_words: bool) -> Vec<String> {
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
        let mut rest = word;
        while breaks_words && width(rest) > limit {
            let part = take(rest.chars(), limit);
            let Some(after) = rest.get(part.len()..).filter(|_| !part.is_empty()) else {
                break;
            };
            rest = after;
            lines.push(part);
        }
        line.push_str(rest);
    }
    lines.push(line);
    lines
}

/// Cuts a styled line to a width, without breaking its styles.
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
    use super::{cut, shorten, wrap, wrap_hint};

    #[test]
    fn a_name_keeps_its_ends() {
        for (name, limit, shown) in [
            ("edge-x7k2p", 10, "edge-x7k2p"),
            ("edge-control-plane-x7k2p", 15, "edge-co…e-x7k2p"),
            ("edge-control-plane-x7k2p", 1, "…"),
            (
                "ip-10-0-12-4.eu-central-1.compute.internal",
                15,
                "ip-10-0-12-4…al",
            ),
            ("ip-10-0-12-4.eu-central-1.compute.internal", 9, "ip-10-0-…"),
            ("日本日本日本", 8, "日本…本"),
        ] {
            assert_eq!(shorten(name, limit), shown);
        }
    }

    #[test]
    fn text_is_broken_at_blanks() {
        for (text, limit, lines) in [
            ("", 10, vec![""]),
            ("one two three", 20, vec!["one two three"]),
            ("one two three", 7, vec!["one two", "three"]),
            ("one two three", 6, vec!["one", "two", "three"]),
            ("one incomprehensible", 8, vec!["one", "incompre", "hensible"]),
            ("日本", 1, vec!["日本"]),
        ] {
            assert_eq!(wrap(text, limit), lines, "{text} {limit}");
        }
    }

    #[test]
    fn a_command_stays_whole() {
        let hint = "see all of it: kubectl describe machine edge-x7k2p -n default";
        assert_eq!(
            wrap_hint(hint, 30),
            ["see all of it:", "kubectl describe machine edge-x7k2p -n default"]
        );
        assert_eq!(wrap_hint(hint, 80), [hint]);
        assert_eq!(wrap_hint("wait for it", 8), ["wait for", "it"]);
    }

    #[test]
    fn a_cut_line_ends_its_styles() {
        assert_eq!(cut("\u{1b}[31mabc\u{1b}[0m", 3), "\u{1b}[31mabc\u{1b}[0m");
        assert_eq!(cut("\u{1b}[31mabcd\u{1b}[0m", 3), "\u{1b}[31mab…\u{1b}[0m");
        assert_eq!(cut("abcd", 3), "ab…");
    }
}
