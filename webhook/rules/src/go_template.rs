//! A parser for the simple Go templates of Machine names: text, and fields such as `{{ .cluster.name }}`.
//!
//! Functions, pipes, conditions and comments are also valid in Go templates, but for these, this parser returns
//! [`TemplateError::Unsupported`].

/// A part of a Go template: literal text, or a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplatePart<'t> {
    Text(&'t str),
    Field {
        /// The path of the field with its leading dot, such as `.cluster.name`.
        path: &'t str,
        /// The text of the field in the template, with its braces.
        action: &'t str,
    },
}

/// Why this parser cannot parse a Go template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateError<'t> {
    /// The template is not valid in Go, for this reason.
    Malformed(&'static str),
    /// The template contains an action that may be valid in Go, but that this parser does not support.
    Unsupported(&'t str),
}

/// Parses a template. The error is the first action that is not a field.
pub fn parse(template: &str) -> Result<Vec<TemplatePart<'_>>, TemplateError<'_>> {
    let mut parts = Vec::new();
    let mut rest = template;
    let mut trim_start = false;
    while let Some((text, opened)) = rest.split_once("{{") {
        let (inside, after) = opened
            .split_once("}}")
            .ok_or(TemplateError::Malformed("{{ is not closed by }}"))?;
        let action = rest
            .get(text.len()..text.len() + inside.len() + 4)
            .unwrap_or_default();
        // A trim marker is a minus with white space on its inner side.
        let (inside, trims_before) = match inside.strip_prefix('-') {
            Some(trimmed) if trimmed.starts_with(SPACE) => (trimmed, true),
            _ => (inside, false),
        };
        let (inside, trims_after) = match inside.strip_suffix('-') {
            Some(trimmed) if trimmed.ends_with(SPACE) => (trimmed, true),
            _ => (inside, false),
        };
        push_text(&mut parts, text, trim_start, trims_before);
        let path = inside.trim_matches(SPACE);
        if path.is_empty() {
            return Err(TemplateError::Malformed("{{ }} is empty"));
        }
        if !is_field(path) {
            return Err(TemplateError::Unsupported(action));
        }
        parts.push(TemplatePart::Field { path, action });
        rest = after;
        trim_start = trims_after;
    }
    push_text(&mut parts, rest, trim_start, false);
    Ok(parts)
}

/// White space in Go templates.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

fn push_text<'t>(parts: &mut Vec<TemplatePart<'t>>, text: &'t str, trim_start: bool, trim_end: bool) {
    let text = if trim_start {
        text.trim_start_matches(SPACE)
    } else {
        text
    };
    let text = if trim_end {
        text.trim_end_matches(SPACE)
    } else {
        text
    };
    if !text.is_empty() {
        parts.push(TemplatePart::Text(text));
    }
}

fn is_field(path: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    path.strip_prefix('.')
        .is_some_and(|names| names.split('.').all(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_text_and_fields() {
        assert_eq!(
            parse("a-{{ .b.c }}{{.d}}-e"),
            Ok(vec![
                TemplatePart::Text("a-"),
                TemplatePart::Field {
                    path: ".b.c",
                    action: "{{ .b.c }}"
                },
                TemplatePart::Field {
                    path: ".d",
                    action: "{{.d}}"
                },
                TemplatePart::Text("-e"),
            ])
        );
    }

    #[test]
    fn trim_markers_remove_adjacent_white_space() {
        let text = |template| -> String {
            let parts = parse(template).unwrap();
            parts
                .iter()
                .map(|piece| match piece {
                    TemplatePart::Text(text) => text,
                    TemplatePart::Field { .. } => "X",
                })
                .collect()
        };
        assert_eq!(text("a \n{{- .b -}} \t c"), "aXc");
        assert_eq!(text("a {{ .b }} c"), "a X c");
        assert_eq!(text("a {{- .b }} {{ .c -}} d"), "aX Xd");
    }

    #[test]
    fn rejects_malformed_templates() {
        assert_eq!(
            parse("{{ .a"),
            Err(TemplateError::Malformed("{{ is not closed by }}"))
        );
        assert_eq!(parse("{{}}"), Err(TemplateError::Malformed("{{ }} is empty")));
        assert_eq!(parse("{{- }}"), Err(TemplateError::Malformed("{{ }} is empty")));
    }

    #[test]
    fn rejects_unsupported_actions() {
        for action in [
            "{{ .a | printf \"%.5s\" }}",
            "{{/* a */}}",
            "{{-.a}}",
            "{{ if .a }}",
            "{{ . }}",
            "{{ .a.}}",
            "{{ .1 }}",
            "{{ $a }}",
            "{{ .ä }}",
        ] {
            assert_eq!(parse(action), Err(TemplateError::Unsupported(action)), "{action}");
        }
    }
}
