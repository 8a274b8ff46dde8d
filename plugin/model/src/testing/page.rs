//! Files that are generated from the code, and pages of the book of which a part is.

use std::{env, fs, path::Path};

/// The line of a page below which everything is generated.
const MARKER: &str =
    "<!-- What is below this line is generated from the code: CONTRIBUTING.md says how. -->\n";

/// Compares the generated part of a page with the text; with `UPDATE_DOCS` in the environment, writes the text into the
/// page first.
///
/// `page` is a path in `docs/src`.
pub fn assert_generated(page: &str, text: &str) {
    let path = format!("../../docs/src/{page}");
    let written = read(&path);
    let (head, _) = written
        .split_once(MARKER)
        .unwrap_or_else(|| panic!("{page} does not have the line {MARKER}"));
    assert_written(&path, &format!("{head}{MARKER}{text}"));
}

/// Compares a file with the text; with `UPDATE_DOCS` in the environment, writes the file first.
///
/// `file` is a path relative to this crate.
pub fn assert_written(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    assert!(
        read(file) == text,
        "{file} has drifted: run this test with UPDATE_DOCS=1"
    );
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text in Markdown: escapes the characters that Markdown would read as markup, except in code between backticks.
pub fn markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut is_code = false;
    for character in text.chars() {
        is_code ^= character == '`';
        if !is_code && matches!(character, '\\' | '*' | '<' | '[') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::markdown;

    #[test]
    fn markup_is_escaped_except_in_code() {
        for (text, expected) in [
            ("a plain text.", "a plain text."),
            ("--controllers=*,-nodeipam", "--controllers=\\*,-nodeipam"),
            ("Secret <cluster>-etcd", "Secret \\<cluster>-etcd"),
            ("a `<b>[c]*` [d]", "a `<b>[c]*` \\[d]"),
            ("C:\\", "C:\\\\"),
        ] {
            assert_eq!(markdown(text), expected, "{text}");
        }
    }
}
