//! What is known of one kind, and whether it may be relied on.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::limits::KEPT_BYTES;

/// What is kept of an object.
pub(crate) trait Kept: Clone + Send + Sync + Sized + 'static {
    /// Reads it from an object's JSON.
    fn read(object: &str) -> serde_json::Result<Self>;

    /// Bytes of text that it holds, where those are many.
    fn bytes(&self) -> usize {
        0
    }
}

/// How far a cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing was read yet.
    Starting,
    /// It holds what the API server has, but for what is on its way.
    Synced,
    /// The API server does not serve the kind: there are no such objects, and that is known.
    Absent,
    /// It cannot be kept up to date, for this reason.
    Failing(&'static str),
}

impl State {
    /// Whether what a cache holds is what there is.
    pub(crate) const fn is_known(self) -> bool {
        matches!(self, Self::Synced | Self::Absent)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("not synced: starting"),
            Self::Synced => f.write_str("synced"),
            Self::Absent => f.write_str("absent: the API server does not serve this kind"),
            Self::Failing(reason) => write!(f, "not synced: {reason}"),
        }
    }
}

/// The objects of one kind.
pub(crate) struct Cache<T>(Mutex<Contents<T>>);

struct Contents<T> {
    state: State,
    /// The version of the API in which the objects were read.
    version: String,
    /// By namespace and name. An object that cannot be read, or is too large to be kept, has its name alone.
    objects: HashMap<Box<str>, BTreeMap<Box<str>, Option<T>>>,
    count: usize,
    bytes: usize,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::new(Contents {
            state: State::Starting,
            version: String::new(),
            objects: HashMap::new(),
            count: 0,
            bytes: 0,
        }))
    }
}

/// Of what a cache is asked: each answer is None where it does not know.
impl<T: Kept> Cache<T> {
    /// One object; `Some(None)` when there is none of this name.
    #[expect(clippy::option_option, reason = "that there is none is known, or not known")]
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Option<T>> {
        let contents = self.known()?;
        let kept = contents
            .objects
            .get(namespace)
            .and_then(|objects| objects.get(name));
        match kept {
            None => Some(None),
            Some(Some(object)) => Some(Some(object.clone())),
            Some(None) => None,
        }
    }

    /// One object as it was last seen, if it was read in this version of the API; whether there is a newer one is not
    /// said.
    pub(crate) fn last_seen(&self, version: &str, namespace: &str, name: &str) -> Option<T> {
        let contents = Some(self.contents()).filter(|contents| contents.version == version)?;
        contents.objects.get(namespace)?.get(name)?.clone()
    }

    /// All objects of a namespace.
    pub(crate) fn all(&self, namespace: &str) -> Option<Vec<T>> {
        let contents = self.known()?;
        let objects = contents.objects.get(namespace);
        objects.into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// The names of a namespace.
    pub(crate) fn names(&self, namespace: &str) -> Option<Vec<String>> {
        let contents = self.known()?;
        let objects = contents.objects.get(namespace);
        let names = objects.into_iter().flat_map(BTreeMap::keys);
        Some(names.map(ToString::to_string).collect())
    }

    fn known(&self) -> Option<MutexGuard<'_, Contents<T>>> {
        Some(self.contents()).filter(|contents| contents.state.is_known())
    }
}

/// Of what keeps it up to date.
impl<T: Kept> Cache<T> {
    /// How far it is, and how many objects it holds.
    pub(crate) fn state(&self) -> (State, usize) {
        let contents = self.contents();
        (contents.state, contents.count)
    }

    /// Sets how far it is; gives how far it was.
    pub(super) fn set(&self, state: State) -> State {
        std::mem::replace(&mut self.contents().state, state)
    }

    /// Forgets everything, to be filled anew in this version. What it held is not relied on meanwhile.
    pub(super) fn clear(&self, version: &str) {
        let mut contents = self.contents();
        if contents.state.is_known() {
            contents.state = State::Starting;
        }
        version.clone_into(&mut contents.version);
        contents.objects = HashMap::new();
        (contents.count, contents.bytes) = (0, 0);
    }

    /// Takes in an object as it is now, by its JSON.
    pub(super) fn put(&self, namespace: &str, name: &str, object: &str) {
        // An object of a type that its definition does not have is as unknown as one that is too large.
        let mut kept = T::read(object).ok();
        self.remove(namespace, name);
        let mut contents = self.contents();
        let bytes = kept.as_ref().map_or(0, T::bytes);
        if contents.bytes + bytes > KEPT_BYTES {
            kept = None;
        } else {
            contents.bytes += bytes;
        }
        contents.count += 1;
        // Most objects are alone in their namespace, or come after those that have it.
        if let Some(objects) = contents.objects.get_mut(namespace) {
            objects.insert(name.into(), kept);
        } else {
            contents
                .objects
                .insert(namespace.into(), BTreeMap::from([(name.into(), kept)]));
        }
    }

    /// Forgets an object that is gone.
    pub(super) fn remove(&self, namespace: &str, name: &str) {
        let mut contents = self.contents();
        let Some(objects) = contents.objects.get_mut(namespace) else {
            return;
        };
        let removed = objects.remove(name);
        if objects.is_empty() {
            contents.objects.remove(namespace);
        }
        if let Some(object) = removed {
            contents.count -= 1;
            contents.bytes -= object.as_ref().map_or(0, T::bytes);
        }
    }

    fn contents(&self) -> MutexGuard<'_, Contents<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
