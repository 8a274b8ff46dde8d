//! The part of Go's templates that names of Machines are written in: text, and fields such as `{{ .cluster.name }}`.
//!
//! What lies beyond it (functions, pipes, conditions, comments) is a template too: [`Beyond`] says that we cannot tell.

/// A piece of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'t> {
    /// As it stands.
    Text(&'t str),
    /// A field, such as `.cluster.name`, and the action as it is written.
    Field {
        /// With its leading dot.
        path: &'t str,
        /// With its braces.
        action: &'t str,
    },
}

/// Why a template is not pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread<'t> {
    /// Go does not parse it either.
    Broken(&'static str),
    /// An action that Go may well understand, and we do not.
    Beyond(&'t str),
}

/// Reads a template.
///
/// # Errors
/// [`Unread`] for the first action that is no field.
pub fn parse(template: &str) -> Result<Vec<Piece<'_>>, Unread<'_>> {
    let mut pieces = Vec::new();
    let mut rest = template;
    let mut trim_start = false;
    while let Some((text, opened)) = rest.split_once("{{") {
        let (inside, after) = opened
            .split_once("}}")
            .ok_or(Unread::Broken("{{ is not closed by }}"))?;
        let action = rest
            .get(text.len()..text.len() + inside.len() + 4)
            .unwrap_or_default();
        // A marker is a minus with white space on its inner side.
        let (inside, trims_before) = match inside.strip_prefix('-') {
            Some(trimmed) if trimmed.starts_with(SPACE) => (trimmed, true),
            _ => (inside, false),
        };
        let (inside, trims_after) = match inside.strip_suffix('-') {
            Some(trimmed) if trimmed.ends_with(SPACE) => (trimmed, true),
            _ => (inside, false),
        };
        push_text(&mut pieces, text, trim_start, trims_before);
        let path = inside.trim_matches(SPACE);
        if path.is_empty() {
            return Err(Unread::Broken("{{ }} is empty"));
        }
        if !is_field(path) {
            return Err(Unread::Beyond(action));
        }
        pieces.push(Piece::Field { path, action });
        rest = after;
        trim_start = trims_after;
    }
    push_text(&mut pieces, rest, trim_start, false);
    Ok(pieces)
}

/// What Go's templates take for white space.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

fn push_text<'t>(pieces: &mut Vec<Piece<'t>>, text: &'t str, trim_start: bool, trim_end: bool) {
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
        pieces.push(Piece::Text(text));
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
    fn text_and_fields() {
        assert_eq!(
            parse("a-{{ .b.c }}{{.d}}-e"),
            Ok(vec![
                Piece::Text("a-"),
                Piece::Field {
                    path: ".b.c",
                    action: "{{ .b.c }}"
                },
                Piece::Field {
                    path: ".d",
                    action: "{{.d}}"
                },
                Piece::Text("-e"),
            ])
        );
    }

    #[test]
    fn markers_trim_the_text_beside_them() {
        let text = |template| -> String {
            let pieces = parse(template).unwrap();
            pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) => text,
                    Piece::Field { .. } => "X",
                })
                .collect()
        };
        assert_eq!(text("a \n{{- .b -}} \t c"), "aXc");
        assert_eq!(text("a {{ .b }} c"), "a X c");
        assert_eq!(text("a {{- .b }} {{ .c -}} d"), "aX Xd");
    }

    #[test]
    fn what_go_refuses() {
        assert_eq!(parse("{{ .a"), Err(Unread::Broken("{{ is not closed by }}")));
        assert_eq!(parse("{{}}"), Err(Unread::Broken("{{ }} is empty")));
        assert_eq!(parse("{{- }}"), Err(Unread::Broken("{{ }} is empty")));
    }

    #[test]
    fn what_we_do_not_read() {
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
            assert_eq!(parse(action), Err(Unread::Beyond(action)), "{action}");
        }
    }
}
