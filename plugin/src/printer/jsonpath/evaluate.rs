//! Evaluates a jsonpath template on a JSON document.

use std::cmp::Ordering;

use serde_json::Value;

use super::{Comparison, Path, PathStep, TemplatePart};

/// The reason why a template does not match a document.
type Mismatch = String;

/// The values that each part of a template selects from the document, in the order of the parts.
pub(super) fn find<'v>(
    parts: &'v [TemplatePart],
    document: &'v Value,
) -> Result<Vec<Vec<&'v Value>>, Mismatch> {
    let mut found = Vec::new();
    collect(parts, document, &mut found)?;
    Ok(found)
}

fn collect<'v>(
    parts: &'v [TemplatePart],
    current: &'v Value,
    found: &mut Vec<Vec<&'v Value>>,
) -> Result<(), Mismatch> {
    for part in parts {
        match part {
            TemplatePart::Path(path) => found.push(follow_path(path, vec![current])?),
            TemplatePart::Range {
                over,
                body,
                is_closed,
            } => {
                for element in follow_path(over, vec![current])? {
                    collect(body, element, found)?;
                }
                if !is_closed {
                    collect(body, current, found)?;
                }
            }
        }
    }
    Ok(())
}

fn follow_path<'v>(path: &'v Path, from: Vec<&'v Value>) -> Result<Vec<&'v Value>, Mismatch> {
    let mut values = from;
    for step in path {
        values = take_step(step, &values)?;
    }
    Ok(values)
}

fn take_step<'v>(step: &'v PathStep, values: &[&'v Value]) -> Result<Vec<&'v Value>, Mismatch> {
    let mut found = Vec::new();
    match step {
        // A string replaces all values that were selected so far; a number replaces each of them.
        PathStep::Literal(literal @ Value::String(_)) => found.push(literal),
        PathStep::Literal(literal) => found.resize(values.len(), literal),
        PathStep::Field(name) => found.extend(values.iter().filter_map(|value| value.get(name))),
        PathStep::Wildcard => found.extend(values.iter().flat_map(|value| children(value))),
        PathStep::Descend => values
            .iter()
            .for_each(|value| collect_descendants(value, &mut found)),
        PathStep::Union(paths) => {
            for path in paths {
                found.extend(follow_path(path, values.to_vec())?);
            }
        }
        PathStep::Index(index) => {
            for array in arrays(values)? {
                let from_start = from_start(*index, array);
                let element = usize::try_from(from_start)
                    .ok()
                    .and_then(|index| array.get(index));
                found.push(element.ok_or_else(|| out_of_bounds(from_start, array))?);
            }
        }
        PathStep::Slice { start, end, step } => {
            for array in arrays(values)? {
                match slice(array, *start, *end)? {
                    // Like kubectl, stop at an empty array, and ignore later arrays.
                    [] if start.is_some() || end.is_some() => return Ok(found),
                    elements => found.extend(elements.iter().step_by(stride(*step)?)),
                }
            }
        }
        PathStep::Exists(path) => {
            for element in elements(values)? {
                if follow_path(path, vec![element]).is_ok_and(|values| !values.is_empty()) {
                    found.push(element);
                }
            }
        }
        PathStep::Compare {
            left,
            operator,
            right,
        } => {
            for element in elements(values)? {
                let left = single(&follow_path(left, vec![element])?)?;
                let right = single(&follow_path(right, vec![element])?)?;
                if let (Some(left), Some(right)) = (left, right)
                    && operator.holds(left, right)?
                {
                    found.push(element);
                }
            }
        }
    }
    Ok(found)
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

/// Collects a value and all values in it, except scalars and empty values, which have no fields to select.
fn collect_descendants<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    let children = children(value);
    if !children.is_empty() || value.as_str().is_some_and(|text| !text.is_empty()) {
        found.push(value);
    }
    for child in children {
        collect_descendants(child, found);
    }
}

/// The selected values as arrays. Null values are skipped.
fn arrays<'v>(values: &[&'v Value]) -> Result<Vec<&'v [Value]>, Mismatch> {
    let values = values.iter().filter(|value| !value.is_null());
    values
        .map(|value| match value {
            Value::Array(items) => Ok(items.as_slice()),
            other => Err(format!("{} is not an array", kind(other))),
        })
        .collect()
}

/// The elements of the selected arrays, to which a filter applies.
fn elements<'v>(values: &[&'v Value]) -> Result<Vec<&'v Value>, Mismatch> {
    let mut elements = Vec::new();
    for value in values {
        match value {
            Value::Array(items) => elements.extend(items),
            other => return Err(format!("{} is not an array and cannot be filtered", kind(other))),
        }
    }
    Ok(elements)
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn length(array: &[Value]) -> i64 {
    i64::try_from(array.len()).unwrap_or(i64::MAX)
}

/// Turns a position into an index. A negative position counts from the end of the array.
fn from_start(position: i64, array: &[Value]) -> i64 {
    if position < 0 {
        position.saturating_add(length(array))
    } else {
        position
    }
}

fn out_of_bounds(index: i64, array: &[Value]) -> Mismatch {
    format!("array index out of bounds: index {index}, length {}", array.len())
}

fn slice(array: &[Value], start: Option<i64>, end: Option<i64>) -> Result<&[Value], Mismatch> {
    let start = from_start(start.unwrap_or(0), array);
    let end = from_start(end.unwrap_or_else(|| length(array)), array);
    if start == end {
        return Ok(&[]);
    }
    if !(0..length(array)).contains(&start) {
        return Err(out_of_bounds(start, array));
    }
    if !(0..=length(array)).contains(&end) {
        return Err(out_of_bounds(end.saturating_sub(1), array));
    }
    let range = usize::try_from(start).unwrap_or(0)..usize::try_from(end).unwrap_or(0);
    let elements = array.get(range);
    elements.ok_or_else(|| format!("starting index {start} is greater than ending index {end}"))
}

fn stride(step: Option<i64>) -> Result<usize, Mismatch> {
    let step = usize::try_from(step.unwrap_or(1)).ok();
    step.filter(|step| *step > 0)
        .ok_or_else(|| "step must be > 0".to_owned())
}

fn single<'v>(values: &[&'v Value]) -> Result<Option<&'v Value>, Mismatch> {
    match *values {
        [] => Ok(None),
        [value] => Ok(Some(value)),
        _ => Err("can only compare one element at a time".to_owned()),
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> Result<bool, Mismatch> {
        let is_equality = matches!(self, Self::Equal | Self::NotEqual);
        let ordering = match (left, right) {
            (Value::String(left), Value::String(right)) => left.cmp(right),
            (Value::Bool(left), Value::Bool(right)) if is_equality => left.cmp(right),
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.cmp(&right),
                (None, None) => left
                    .as_f64()
                    .partial_cmp(&right.as_f64())
                    .unwrap_or(Ordering::Equal),
                _ => return Err("incompatible types for comparison".to_owned()),
            },
            (Value::Null | Value::Array(_) | Value::Object(_), _)
            | (_, Value::Null | Value::Array(_) | Value::Object(_))
            | (Value::Bool(_), Value::Bool(_)) => return Err("invalid type for comparison".to_owned()),
            _ => return Err("incompatible types for comparison".to_owned()),
        };
        Ok(match self {
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::GreaterOrEqual => ordering.is_ge(),
            Self::Greater => ordering.is_gt(),
        })
    }
}
