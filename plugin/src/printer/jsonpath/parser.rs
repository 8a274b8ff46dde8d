//! Parses a jsonpath template as kubectl's parser does.

use serde_json::Value;

use super::{Comparison, Path, PathStep, TemplatePart};

/// Parses a whole jsonpath template.
pub(super) fn parse(source: &str) -> Result<Vec<TemplatePart>, String> {
    let (parts, is_ended) = Parser { rest: source }.parts()?;
    if is_ended {
        return Err("not in range, nothing to end".to_owned());
    }
    Ok(parts)
}

struct Parser<'t> {
    rest: &'t str,
}

/// Parses a path without braces, such as the left side of a comparison.
fn path_without_braces(text: &str) -> Result<Path, String> {
    Parser { rest: text }.path(false)
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut characters = self.rest.chars();
        let next = characters.next();
        self.rest = characters.as_str();
        next
    }

    fn skip_prefix(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes the text up to a position; `None` takes all of the remaining text.
    fn take(&mut self, end: Option<usize>) -> &'t str {
        let end = end.unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Parses the parts of a template up to `{end}`. Also returns whether `{end}` was found.
    fn parts(&mut self) -> Result<(Vec<TemplatePart>, bool), String> {
        let mut parts = Vec::new();
        while !self.rest.is_empty() {
            let text = self.take(self.rest.find('{'));
            if !text.is_empty() {
                parts.push(TemplatePart::Path(vec![PathStep::Literal(text.into())]));
            }
            if !self.skip_prefix("{") {
                break;
            }
            let action = self.rest.trim_start_matches(' ');
            let word = action.split(is_terminator).next();
            if word == Some("range") || word == Some("end") {
                self.rest = action.trim_start_matches(char::is_alphabetic);
            }
            let path = self.path(true)?;
            parts.push(match word {
                Some("end") => return Ok((parts, true)),
                Some("range") => {
                    let (body, is_closed) = self.parts()?;
                    TemplatePart::Range {
                        over: path,
                        body,
                        is_closed,
                    }
                }
                _ => TemplatePart::Path(path),
            });
        }
        Ok((parts, false))
    }

    /// Parses the steps of a path up to a closing brace. If `is_braced` is false, up to the end of the text.
    fn path(&mut self, is_braced: bool) -> Result<Path, String> {
        let mut path = Vec::new();
        loop {
            if self.skip_prefix("}") || (self.rest.is_empty() && !is_braced) {
                return Ok(path);
            }
            if self.skip_prefix("[?(") {
                path.push(self.filter()?);
            } else if self.skip_prefix("..") {
                if path.last() == Some(&PathStep::Descend) {
                    return Err("invalid multiple recursive descent".to_owned());
                }
                path.push(PathStep::Descend);
                if self.peek().is_some_and(is_alphanumeric) {
                    path.push(self.field());
                }
            } else if self
                .peek()
                .is_some_and(|c| c.is_numeric() || c == '+' || c == '-')
            {
                path.push(self.number()?);
            } else if self.peek().is_some_and(is_alphanumeric) {
                path.push(match self.take(self.rest.find(is_terminator)) {
                    "true" => PathStep::Literal(true.into()),
                    "false" => PathStep::Literal(false.into()),
                    word => return Err(format!("unrecognized identifier {word}")),
                });
            } else {
                match self.next() {
                    None | Some('\r' | '\n') => return Err("unclosed action".to_owned()),
                    // `$` and `@` have no effect, because every path starts at the current value.
                    Some(' ' | '@' | '$') => {}
                    Some('.') => path.push(self.field()),
                    Some('[') => path.extend(self.subscript()?),
                    Some(quote @ ('"' | '\'')) => path.push(self.quoted(quote)?),
                    Some(c) => return Err(unrecognized(c)),
                }
            }
        }
    }

    fn field(&mut self) -> PathStep {
        let mut is_escaped = false;
        let end = self.rest.find(|c| {
            let is_end = !is_escaped && is_terminator(c);
            is_escaped = !is_escaped && c == '\\';
            is_end
        });
        match self.take(end) {
            "*" => PathStep::Wildcard,
            name => PathStep::Field(name.replace('\\', "")),
        }
    }

    fn number(&mut self) -> Result<PathStep, String> {
        let sign = usize::from(self.rest.starts_with(['+', '-']));
        let mut characters = self.rest.char_indices().skip(sign);
        let end = characters.find(|(_, c)| *c != '.' && !c.is_numeric());
        let text = self.take(end.map(|(end, _)| end));
        let integer = text.parse::<i64>().ok().map(Value::from);
        let number = integer.or_else(|| text.parse::<f64>().ok().map(Value::from));
        let literal = number.map(PathStep::Literal);
        literal.ok_or_else(|| format!("cannot parse number {text}"))
    }

    fn quoted(&mut self, quote: char) -> Result<PathStep, String> {
        let mut before = quote;
        let end = self.rest.find(|c| {
            let is_end = c == '\n' || (c == quote && before != '\\');
            before = c;
            is_end
        });
        let text = self.take(end);
        if self.next() != Some(quote) {
            return Err("unterminated quoted string".to_owned());
        }
        let unquoted = unquote(text, quote).map(|text| PathStep::Literal(text.into()));
        unquoted.ok_or_else(|| format!("unquote string {quote}{text}{quote} error invalid syntax"))
    }

    /// Parses what follows an opening bracket, up to the closing one.
    fn subscript(&mut self) -> Result<Path, String> {
        let text = self.take(self.rest.find([']', '\n']));
        if self.next() != Some(']') {
            return Err("unterminated array".to_owned());
        }
        if text.contains(',') {
            let parts = text.split(',').map(|part| part.trim_matches(' '));
            let union: Result<_, _> = parts
                .map(|part| path_without_braces(&format!("[{part}]")))
                .collect();
            return Ok(vec![PathStep::Union(union?)]);
        }
        let quoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        match quoted.filter(|name| !name.contains('\'')) {
            // Like kubectl, parse the name as if a dot preceded it: `['a.b']` is two fields.
            Some(name) => path_without_braces(&format!(".{name}")),
            None => Ok(vec![index_or_slice(text)?]),
        }
    }

    fn filter(&mut self) -> Result<PathStep, String> {
        let text = self.take(Some(closing_parenthesis(self.rest)?));
        self.next();
        if self.next() != Some(']') {
            return Err("unclosed array expect ]".to_owned());
        }
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let compared = text.find(is_operator).and_then(|mid| text.split_at_checked(mid));
        let Some((left, right)) = compared.filter(|(left, right)| !left.is_empty() && right.len() > 1) else {
            return path_without_braces(text).map(PathStep::Exists);
        };
        // Like kubectl, require a right side of the comparison, even if it looks like an operator.
        let end = right.find(|c| !is_operator(c)).unwrap_or(right.len() - 1);
        let (operator, right) = right.split_at_checked(end).unwrap_or_default();
        let (left, right) = (path_without_braces(left)?, path_without_braces(right)?);
        let operator = match operator {
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            "==" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            ">=" => Comparison::GreaterOrEqual,
            ">" => Comparison::Greater,
            other => return Err(format!("unrecognized filter operator {other}")),
        };
        Ok(PathStep::Compare {
            left,
            operator,
            right,
        })
    }
}

/// The position of the parenthesis that closes a filter. Parentheses in quotes do not count.
fn closing_parenthesis(text: &str) -> Result<usize, String> {
    let mut quote = None;
    let mut is_quoted = false;
    let mut before = '(';
    let end = text.find(|c| {
        match quote {
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                is_quoted = true;
            }
            Some(quote) if c == quote && before != '\\' => is_quoted = false,
            _ => {}
        }
        before = c;
        c == '\n' || (c == ')' && !is_quoted)
    });
    end.filter(|end| text.get(*end..).is_some_and(|rest| rest.starts_with(')')))
        .ok_or_else(|| "unterminated filter".to_owned())
}

fn index_or_slice(text: &str) -> Result<PathStep, String> {
    let text = if text == "*" { ":" } else { text };
    let invalid = || format!("invalid array index {text}");
    let numbers = text.split(':').map(|number| {
        let digits = number.strip_prefix('-').unwrap_or(number);
        if !digits.chars().all(|c| c.is_ascii_digit()) {
            return Err(invalid());
        }
        let number = (!number.is_empty()).then(|| number.parse()).transpose();
        number.map_err(|_| format!("array index {text} is not a number"))
    });
    let numbers: Vec<_> = numbers.collect::<Result<_, _>>()?;
    match *numbers.as_slice() {
        [index] => Ok(PathStep::Index(index.unwrap_or(0))),
        [start, end] => Ok(PathStep::Slice {
            start,
            end,
            step: None,
        }),
        [start, end, step] => Ok(PathStep::Slice { start, end, step }),
        _ => Err(invalid()),
    }
}

/// Resolves Go's escape sequences in a quoted string, except numeric ones; `None` if one is invalid.
fn unquote(text: &str, quote: char) -> Option<String> {
    let mut unquoted = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        unquoted.push(match c {
            '\\' => match characters.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                '\\' => '\\',
                c if c == quote => c,
                _ => return None,
            },
            c => c,
        });
    }
    Some(unquoted)
}

fn unrecognized(c: char) -> String {
    let shown = if c.is_control() {
        String::new()
    } else {
        format!(" '{c}'")
    };
    format!("unrecognized character in action: U+{:04X}{shown}", u32::from(c))
}

fn is_terminator(c: char) -> bool {
    " \t\r\n.,[]$@{}".contains(c)
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
