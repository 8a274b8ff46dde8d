use super::*;

/// A JSON string. Other values do not decode.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Text(String);

impl Cached for Text {
    fn decode(object: &str) -> serde_json::Result<Self> {
        serde_json::from_str(object).map(Self)
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }
}

fn text(text: &str) -> Text {
    Text(text.to_owned())
}

fn synced() -> Cache<Text> {
    let cache = Cache::default();
    cache.clear("v1");
    cache.put("prod", "a", "\"one\"");
    cache.put("prod", "b", "\"two\"");
    cache.put("test", "a", "\"three\"");
    cache.set(CacheState::Synced);
    cache
}

#[test]
fn finds_objects_by_namespace_and_name() {
    let cache = synced();
    assert_eq!(cache.get("prod", "a"), Some(Some(text("one"))));
    assert_eq!(cache.get("test", "b"), Some(None));
    assert_eq!(cache.get("nowhere", "a"), Some(None));
    assert_eq!(cache.all("prod"), Some(vec![text("one"), text("two")]));
    assert_eq!(cache.all("nowhere"), Some(vec![]));
    assert_eq!(cache.names("prod"), Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(cache.state(), (CacheState::Synced, 3));
}

#[test]
fn answers_only_while_synced_or_absent() {
    for (state, known) in [
        (CacheState::Starting, false),
        (CacheState::Synced, true),
        (CacheState::Absent, true),
        (CacheState::Failing("forbidden"), false),
    ] {
        let cache = synced();
        cache.set(state);
        assert_eq!(cache.get("prod", "a").is_some(), known, "{state}");
        assert_eq!(cache.all("prod").is_some(), known, "{state}");
        assert_eq!(cache.names("prod").is_some(), known, "{state}");
        assert_eq!(cache.last_seen("v1", "prod", "a"), Some(text("one")), "{state}");
    }
    let cache = synced();
    cache.clear("v1");
    assert_eq!(cache.get("prod", "a"), None);
    assert_eq!(cache.state(), (CacheState::Starting, 0));
}

#[test]
fn caches_only_the_name_of_an_object_that_does_not_decode() {
    let cache = synced();
    cache.put("prod", "a", "[]");
    assert_eq!(cache.get("prod", "a"), None);
    assert_eq!(cache.all("prod"), None);
    assert_eq!(cache.get("prod", "b"), Some(Some(text("two"))));
    assert_eq!(cache.names("prod"), Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(cache.state(), (CacheState::Synced, 3));
}

#[test]
fn counts_replaced_and_removed_objects_correctly() {
    let cache = synced();
    cache.put("prod", "a", "\"new\"");
    assert_eq!(cache.get("prod", "a"), Some(Some(text("new"))));
    assert_eq!(cache.state().1, 3);
    cache.remove("prod", "a");
    cache.remove("prod", "a");
    cache.remove("nowhere", "a");
    assert_eq!(cache.get("prod", "a"), Some(None));
    assert_eq!(cache.state().1, 2);
}

#[test]
fn caches_only_names_once_the_byte_limit_is_reached() {
    let cache = synced();
    let large = format!(
        "{:?}",
        "x".repeat(MAX_CACHED_BYTES - "one".len() - "two".len() - "three".len())
    );
    cache.put("prod", "large", &large);
    assert!(cache.get("prod", "large").is_some());
    cache.put("prod", "small", "\"x\"");
    assert_eq!(cache.get("prod", "small"), None);
    assert_eq!(cache.state().1, 5);
    cache.remove("prod", "large");
    cache.put("prod", "small", "\"x\"");
    assert_eq!(cache.get("prod", "small"), Some(Some(text("x"))));
}

#[test]
fn does_not_return_an_object_read_in_another_api_version() {
    assert_eq!(synced().last_seen("v2", "prod", "a"), None);
}
