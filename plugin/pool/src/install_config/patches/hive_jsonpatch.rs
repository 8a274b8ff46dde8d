//! Applies a patch as Hive's library does: Go's json-patch (gopkg.in/evanphx/json-patch.v4, v4.13.0), which accepts
//! more than RFC 6902. No I/O.

use std::fmt;

use kcp_rules::api::hive::PatchEntity;
use serde_json::{Map, Value};

/// The result for a patch that Hive's library also refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// A way in which Hive's library deviates from RFC 6902.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deviation {
    /// Hive's library ignores the first part of a pointer that does not begin with `/`.
    DropsFirstPart,
    /// Hive's library keeps a `~` that is neither `~0` nor `~1`.
    LeavesTilde,
    /// Hive's library takes the index `-1` as the last item of a list.
    CountsFromEnd,
    /// Hive's library reads the index `01` or `+1` as 1.
    ReadsIndex,
    /// Hive's library adds the field if `replace` refers to a missing field.
    AddsAbsent,
    /// Hive's library treats a missing field as null in `test`.
    TestsAbsent,
    /// Hive's library copies a missing field as null.
    CopiesAbsent,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DropsFirstPart => "the path does not begin with /, and Hive would drop its first part",
            Self::LeavesTilde => {
                "the path has a ~ that is neither ~0 nor ~1, and Hive would leave this ~ unchanged; write \
                 ~0 for \
                 a tilde"
            }
            Self::CountsFromEnd => {
                "RFC 6902 has no index -1, although Hive reads it as the last item of a list; write the item's \
                 index, counted from 0"
            }
            Self::ReadsIndex => {
                "an index must not have a sign or a leading zero, although Hive accepts them; remove the \
                 sign or the zero"
            }
            Self::AddsAbsent => {
                "the field does not exist, and Hive would add it; to add the field, use op \
                add"
            }
            Self::TestsAbsent => "the field does not exist, and Hive would treat it as null",
            Self::CopiesAbsent => "the field that `from` names does not exist, and Hive would write null",
        })
    }
}

/// Applies a patch as Hive's library does. Returns the first deviation from RFC 6902, if there is one. `value` is the value
/// that the patch adds, sets or tests for.
pub(super) fn apply_as_hive(
    mut document: Value,
    patch: &PatchEntity,
    value: Value,
) -> Result<(Value, Option<Deviation>), Refused> {
    let mut library = GoJsonPatch::default();
    let target = patch.path.as_str();
    let source = || patch.from.as_deref().ok_or(Refused);
    match patch.op.as_str() {
        "add" => library.add(&mut document, target, value)?,
        "remove" => drop(library.remove(&mut document, target)?),
        "replace" => library.replace(&mut document, target, value)?,
        "move" => {
            let moved = library.remove(&mut document, source()?)?;
            library.add(&mut document, target, moved)?;
        }
        "copy" => {
            let copied = library.get(&mut document, source()?)?.cloned();
            let copied = copied.unwrap_or_else(|| library.absent_as_null(Deviation::CopiesAbsent));
            library.add(&mut document, target, copied)?;
        }
        "test" => library.test(&mut document, target, &value)?,
        _ => return Err(Refused),
    }
    Ok((document, library.deviation))
}

#[derive(Default)]
struct GoJsonPatch {
    deviation: Option<Deviation>,
}

enum Container<'d> {
    Fields(&'d mut Map<String, Value>),
    Items(&'d mut Vec<Value>),
}

impl<'d> Container<'d> {
    fn new(value: &'d mut Value) -> Result<Self, Refused> {
        match value {
            Value::Object(fields) => Ok(Self::Fields(fields)),
            Value::Array(items) => Ok(Self::Items(items)),
            _ => Err(Refused),
        }
    }
}

impl GoJsonPatch {
    fn note_deviation(&mut self, deviation: Deviation) {
        self.deviation.get_or_insert(deviation);
    }

    fn absent_as_null(&mut self, deviation: Deviation) -> Value {
        self.note_deviation(deviation);
        Value::Null
    }

    fn add(&mut self, document: &mut Value, pointer: &str, value: Value) -> Result<(), Refused> {
        match self.find(document, pointer)? {
            (Container::Fields(fields), key) => drop(fields.insert(key, value)),
            (Container::Items(items), key) if key == "-" => items.push(value),
            (Container::Items(items), key) => {
                let index = self.index(&key, items.len() + 1)?;
                items.insert(index, value);
            }
        }
        Ok(())
    }

    fn remove(&mut self, document: &mut Value, pointer: &str) -> Result<Value, Refused> {
        match self.find(document, pointer)? {
            (Container::Fields(fields), key) => fields.remove(&key).ok_or(Refused),
            (Container::Items(items), key) => {
                let index = self.index(&key, items.len())?;
                Ok(items.remove(index))
            }
        }
    }

    fn replace(&mut self, document: &mut Value, pointer: &str, value: Value) -> Result<(), Refused> {
        if pointer.is_empty() {
            *document = value;
            return Container::new(document).map(|_| ());
        }
        match self.find(document, pointer)? {
            (Container::Fields(fields), key) => {
                if fields.insert(key, value).is_none() {
                    self.note_deviation(Deviation::AddsAbsent);
                }
            }
            (Container::Items(items), key) => {
                let index = self.index(&key, items.len())?;
                *items.get_mut(index).ok_or(Refused)? = value;
            }
        }
        Ok(())
    }

    fn test(&mut self, document: &mut Value, pointer: &str, value: &Value) -> Result<(), Refused> {
        let is_equal = if pointer.is_empty() {
            document == value
        } else {
            match self.get(document, pointer)? {
                Some(found) => found == value,
                None => *value == self.absent_as_null(Deviation::TestsAbsent),
            }
        };
        is_equal.then_some(()).ok_or(Refused)
    }

    /// The value at a pointer; `None` if a mapping on the path lacks the next field.
    fn get<'d>(&mut self, document: &'d mut Value, pointer: &str) -> Result<Option<&'d mut Value>, Refused> {
        let (container, key) = self.find(document, pointer)?;
        self.child(container, &key)
    }

    /// The mapping or list that contains the value at a pointer, and the last part of the pointer.
    fn find<'d>(
        &mut self,
        document: &'d mut Value,
        pointer: &str,
    ) -> Result<(Container<'d>, String), Refused> {
        let (first, rest) = pointer.split_once('/').ok_or(Refused)?;
        if !first.is_empty() {
            self.note_deviation(Deviation::DropsFirstPart);
        }
        let (parents, last) = rest
            .rsplit_once('/')
            .map_or((None, rest), |(parents, last)| (Some(parents), last));
        let mut container = Container::new(document)?;
        for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
            let key = self.key(part);
            let child = self.child(container, &key)?.ok_or(Refused)?;
            container = Container::new(child)?;
        }
        Ok((container, self.key(last)))
    }

    fn child<'d>(&mut self, container: Container<'d>, key: &str) -> Result<Option<&'d mut Value>, Refused> {
        match container {
            Container::Fields(fields) => Ok(fields.get_mut(key)),
            Container::Items(items) => {
                let index = self.index(key, items.len())?;
                Ok(items.get_mut(index))
            }
        }
    }

    fn key(&mut self, part: &str) -> String {
        let is_escape = |rest: &str| rest.starts_with(['0', '1']);
        if !part.split('~').skip(1).all(is_escape) {
            self.note_deviation(Deviation::LeavesTilde);
        }
        part.replace("~1", "/").replace("~0", "~")
    }

    /// Parses an index of a list. The index must be below `end`, and a negative index counts back from `end`.
    fn index(&mut self, key: &str, end: usize) -> Result<usize, Refused> {
        let number: i64 = key.parse().map_err(|_| Refused)?;
        let distance = usize::try_from(number.unsigned_abs()).map_err(|_| Refused)?;
        if number < 0 {
            self.note_deviation(Deviation::CountsFromEnd);
            return end.checked_sub(distance).ok_or(Refused);
        }
        if key != number.to_string() {
            self.note_deviation(Deviation::ReadsIndex);
        }
        (distance < end).then_some(distance).ok_or(Refused)
    }
}
