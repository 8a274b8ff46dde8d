//! Shell scripts from templates, with their values in quotes.

use anyhow::{Context as _, bail};

/// The functions that every script with `kubeadm reset` needs, and the line of a template that they replace.
const RESET: &str = include_str!("reset.sh");
const RESET_MARK: &str = "@@reset.sh";

/// A line of a template with this mark gets a value. The name of the value stands before it; a comment may stand after it.
const MARK: &str = "=@@";

/// Replaces each mark of the template by the value with the name before it, in single quotes, and [`RESET_MARK`] by [`RESET`].
pub(in crate::commands) fn fill(template: &str, values: &[(&str, String)]) -> anyhow::Result<String> {
    let mut text = String::new();
    for line in template.lines() {
        if line == RESET_MARK {
            text += RESET;
            continue;
        }
        let Some((name, rest)) = line.split_once(MARK) else {
            text += line;
            text.push('\n');
            continue;
        };
        let value = values.iter().find(|(known, _)| *known == name);
        let (_, value) = value.with_context(|| format!("the script has no value {name}"))?;
        let value = quote(value)?;
        text.extend([name, "=", &value, rest, "\n"]);
    }
    Ok(text)
}

/// A word that a shell reads as exactly this text.
fn quote(text: &str) -> anyhow::Result<String> {
    if text.contains('\0') {
        bail!("a value contains a NUL character, which a shell cannot read");
    }
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::fill;

    #[test]
    fn bash_reads_each_value_as_it_was_written() {
        for hostile in [
            "; rm -rf /",
            "a\nb",
            "'",
            "'; reboot; '",
            "\"",
            "$(reboot)",
            "`reboot`",
            "${HOME}",
            "\\",
            "!!",
            "a=@@",
            "",
            "\u{e9}\u{202e}",
            "*",
        ] {
            let script = fill(
                "a=@@   # $(false)\nb=@@\nprintf '%s|%s' \"$a\" \"$b\"",
                &[("a", hostile.to_owned()), ("b", "b".to_owned())],
            );
            let output = Command::new("bash")
                .arg("-c")
                .arg(script.unwrap())
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{hostile}|b"));
            assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        }
        assert!(fill("a=@@", &[("a", "\0".to_owned())]).is_err());
        assert!(fill("a=@@", &[]).is_err(), "a value is missing");
    }
}
