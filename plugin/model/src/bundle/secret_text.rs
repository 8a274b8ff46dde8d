//! Finds secrets in messages by their form, in case a controller or a server has quoted one: bootstrap tokens, private keys
//! and certificates in PEM format, and JSON Web Tokens.

use std::borrow::Cow;

use crate::bundle::REDACTED;

/// The lengths of the two parts of a bootstrap token, `ID.SECRET`.
const TOKEN_PARTS: [usize; 2] = [6, 16];

/// How each JSON Web Token begins: `{"` in base64.
const WEB_TOKEN_START: &str = "eyJ";

const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";
const PEM_DASHES: &str = "-----";

/// Replaces each secret in a message. A text without a space is a name or a path, and stays as it is.
pub(super) fn without_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_whitespace) {
        return text.into();
    }
    let without_blocks = without_pem(text);
    let mut result = String::new();
    let mut is_changed = false;
    for word in without_blocks.split_inclusive(|letter: char| !is_of_token(letter)) {
        let end = word
            .find(|letter: char| !is_of_token(letter))
            .unwrap_or(word.len());
        let (token, rest) = word.split_at(end);
        if is_bootstrap_token(token) || token.starts_with(WEB_TOKEN_START) {
            result.push_str(REDACTED);
            is_changed = true;
        } else {
            result.push_str(token);
        }
        result.push_str(rest);
    }
    if is_changed { result.into() } else { without_blocks }
}

/// Whether a character can be part of a token. With `-` and `_`, a name such as `x-abcdef.0123456789abcdef` is one word.
fn is_of_token(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || ['.', '-', '_'].contains(&letter)
}

fn is_bootstrap_token(word: &str) -> bool {
    // A sentence may end after the token.
    let word = word.strip_suffix('.').unwrap_or(word);
    let is_part = |part: &str, length: usize| {
        part.len() == length
            && part
                .chars()
                .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
    };
    let [id, secret] = TOKEN_PARTS;
    word.split_once('.')
        .is_some_and(|(before, after)| is_part(before, id) && is_part(after, secret))
}

/// Replaces each block in PEM format. If the end of a block is missing, replaces the rest of the text.
fn without_pem(text: &str) -> Cow<'_, str> {
    let (mut rest, mut result) = (text, String::new());
    while let Some((before, block)) = rest.split_once(PEM_BEGIN) {
        rest = block
            .split_once(PEM_END)
            .and_then(|(_, label)| label.split_once(PEM_DASHES))
            .map_or("", |(_, after)| after);
        result.push_str(before);
        result.push_str(REDACTED);
    }
    if result.is_empty() {
        return text.into();
    }
    result.push_str(rest);
    result.into()
}

/// Replaces what may be the end of a block in PEM format whose beginning was cut off.
pub(super) fn without_cut_pem(text: &str) -> Cow<'_, str> {
    let end = text.find(PEM_END);
    let is_cut = end.is_some_and(|end| text.find(PEM_BEGIN).is_none_or(|begin| end < begin));
    match text.split_once(PEM_END).filter(|_| is_cut) {
        Some((_, label)) => {
            let after = label.split_once(PEM_DASHES).map_or("", |(_, after)| after);
            format!("{REDACTED}{after}").into()
        }
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{without_cut_pem, without_secrets};

    #[test]
    fn secrets_are_known_by_their_form() {
        for (text, expected) in [
            ("Machine edge-1 is not ready", "Machine edge-1 is not ready"),
            (
                "could not use token abcdef.0123456789abcdef.",
                "could not use token <redacted>",
            ),
            (
                "--token=abcdef.0123456789abcdef: \"abcdef.0123456789abcdef\"",
                "--token=<redacted>: \"<redacted>\"",
            ),
            (
                "event edge-abcdef.0123456789abcdef stays",
                "event edge-abcdef.0123456789abcdef stays",
            ),
            (
                "abcdef.0123456789abcdeF abcde.0123456789abcdef",
                "abcdef.0123456789abcdeF abcde.0123456789abcdef",
            ),
            ("Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln", "Bearer <redacted>"),
            (
                "a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nb",
                "a <redacted>\nb",
            ),
            ("a -----BEGIN PRIVATE KEY-----\nMII", "a <redacted>"),
            (
                "-----BEGIN A-----\n1\n-----END A----- and -----BEGIN B-----\n2\n-----END B-----",
                "<redacted> and <redacted>",
            ),
            // A name of an Event.
            ("worker.17a2b3c4d5e6f7a8", "worker.17a2b3c4d5e6f7a8"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(text), expected, "{text}");
        }
    }

    #[test]
    fn the_end_of_a_block_is_known_without_its_beginning() {
        for (text, expected) in [
            ("MII\n-----END PRIVATE KEY-----\nb", "<redacted>\nb"),
            (
                "-----BEGIN A-----\n1\n-----END A-----",
                "-----BEGIN A-----\n1\n-----END A-----",
            ),
            ("a", "a"),
        ] {
            assert_eq!(without_cut_pem(text), expected, "{text}");
        }
    }
}
