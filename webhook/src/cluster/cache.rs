//! The cached objects of one kind, and whether they are up to date.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::limits::MAX_CACHED_BYTES;

/// The part of an object that is cached.
pub(crate) trait Cached: Clone + Send + Sync + Sized + 'static {
    fn decode(object: &str) -> serde_json::Result<Self>;

    /// Returns how many bytes of text the cache keeps of the object. 0 for kinds whose text is always short.
    fn bytes(&self) -> usize {
        0
    }
}

/// Whether a cache is up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheState {
    /// The first list is not complete yet.
    Starting,
    /// The cache is up to date, except for events that have not arrived yet.
    Synced,
    /// The API server does not serve the kind, so there are no objects of it.
    Absent,
    /// The list or the watch fails, for this reason.
    Failing(&'static str),
}

impl CacheState {
    /// Whether the cache can be used.
    pub(crate) const fn is_known(self) -> bool {
        matches!(self, Self::Synced | Self::Absent)
    }
}

impl fmt::Display for CacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("not synced: starting"),
            Self::Synced => f.write_str("synced"),
            Self::Absent => f.write_str("absent: the API server does not serve this kind"),
            Self::Failing(reason) => write!(f, "not synced: {reason}"),
        }
    }
}

/// The cached objects of one kind.
pub(crate) struct Cache<T>(Mutex<Contents<T>>);

struct Contents<T> {
    state: CacheState,
    /// The API version in which the objects were read.
    version: String,
    /// The objects by namespace and name. `None` means that only the name is cached, because the object cannot be decoded or
    /// the cache is full.
    objects: HashMap<Box<str>, BTreeMap<Box<str>, Option<T>>>,
    count: usize,
    bytes: usize,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::new(Contents {
            state: CacheState::Starting,
            version: String::new(),
            objects: HashMap::new(),
            count: 0,
            bytes: 0,
        }))
    }
}

/// Methods that read. `None` means that the cache cannot answer, and that the caller must read from the API server.
impl<T: Cached> Cache<T> {
    /// The object with this name; `Some(None)` if it does not exist.
    #[expect(
        clippy::option_option,
        reason = "an object that does not exist differs from an object that is unknown"
    )]
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Option<T>> {
        let contents = self.known()?;
        let cached = contents
            .objects
            .get(namespace)
            .and_then(|objects| objects.get(name));
        match cached {
            None => Some(None),
            Some(Some(object)) => Some(Some(object.clone())),
            Some(None) => None,
        }
    }

    /// The last known state of an object, if it was read in this API version. Works even if the cache is out of date.
    pub(crate) fn last_seen(&self, version: &str, namespace: &str, name: &str) -> Option<T> {
        let contents = Some(self.contents()).filter(|contents| contents.version == version)?;
        contents.objects.get(namespace)?.get(name)?.clone()
    }

    pub(crate) fn all(&self, namespace: &str) -> Option<Vec<T>> {
        let contents = self.known()?;
        let objects = contents.objects.get(namespace);
        objects.into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    pub(crate) fn names(&self, namespace: &str) -> Option<Vec<String>> {
        let contents = self.known()?;
        let objects = contents.objects.get(namespace);
        let names = objects.into_iter().flat_map(BTreeMap::keys);
        Some(names.map(ToString::to_string).collect())
    }

    /// The matching objects of all namespaces, and the number of all cached objects.
    pub(crate) fn matching(&self, matches: impl Fn(&T) -> bool) -> Option<(Vec<T>, usize)> {
        let contents = self.known()?;
        let mut found = Vec::new();
        for object in contents.objects.values().flat_map(BTreeMap::values) {
            // An object of which only the name is cached could match, so the result is unknown.
            let object = object.as_ref()?;
            if matches(object) {
                found.push(object.clone());
            }
        }
        Some((found, contents.count))
    }

    /// Calls `visit` with the namespace, the name and the cached part of each object. Does nothing while the cache is out of
    /// date.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&str, &str, &T)) {
        let Some(contents) = self.known() else { return };
        for (namespace, objects) in &contents.objects {
            for (name, object) in objects {
                if let Some(object) = object {
                    visit(namespace, name, object);
                }
            }
        }
    }

    fn known(&self) -> Option<MutexGuard<'_, Contents<T>>> {
        Some(self.contents()).filter(|contents| contents.state.is_known())
    }
}

/// Methods that update the cache.
impl<T: Cached> Cache<T> {
    /// The state of the cache, and the number of objects in it.
    pub(crate) fn state(&self) -> (CacheState, usize) {
        let contents = self.contents();
        (contents.state, contents.count)
    }

    /// Sets the state of the cache, and returns the previous state.
    pub(super) fn set(&self, state: CacheState) -> CacheState {
        std::mem::replace(&mut self.contents().state, state)
    }

    /// Removes all objects, before the watch lists them again in this API version. The cache cannot be used until it is synced
    /// again.
    pub(super) fn clear(&self, version: &str) {
        let mut contents = self.contents();
        if contents.state.is_known() {
            contents.state = CacheState::Starting;
        }
        version.clone_into(&mut contents.version);
        contents.objects = HashMap::new();
        (contents.count, contents.bytes) = (0, 0);
    }

    /// Adds or replaces an object, given as JSON.
    pub(super) fn put(&self, namespace: &str, name: &str, object: &str) {
        let mut cached = T::decode(object).ok();
        self.remove(namespace, name);
        let mut contents = self.contents();
        let bytes = cached.as_ref().map_or(0, T::bytes);
        if contents.bytes + bytes > MAX_CACHED_BYTES {
            cached = None;
        } else {
            contents.bytes += bytes;
        }
        contents.count += 1;
        // Clone the namespace only for its first object.
        if let Some(objects) = contents.objects.get_mut(namespace) {
            objects.insert(name.into(), cached);
        } else {
            contents
                .objects
                .insert(namespace.into(), BTreeMap::from([(name.into(), cached)]));
        }
    }

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
