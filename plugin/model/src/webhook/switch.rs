//! Disables and enables the webhook, as JSON merge patches of its configurations.

use jiff::Timestamp;
use kcp_rules::registration::{
    DISABLED_ANNOTATION, DISABLED_UNTIL_ANNOTATION, Switch, disabled_entries, disabled_note, disabled_until,
    enabled_entries, switch,
};
use serde_json::{Value, json};

/// The patch that disables a configuration until a time. `None` if it is disabled until then or longer, or if it has no entries to
/// disable.
///
/// The patch replaces the whole list of entries, because a merge patch cannot change a part of a list. It must therefore
/// be written with the resource version of `configuration`.
pub fn disable(configuration: &Value, reason: &str, now: Timestamp, until: Timestamp) -> Option<Value> {
    let is_off = matches!(switch(configuration), Switch::Off | Switch::Empty);
    // The annotation has no fractions of a second.
    let until = Timestamp::from_second(until.as_second()).unwrap_or(until);
    let lasts = disabled_until(configuration).is_some_and(|end| end >= until);
    if is_off && lasts && disabled_note(configuration).is_some() {
        return None;
    }
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ");
    // The first reason stays, because it says since when the webhook has been off.
    let note = disabled_note(configuration).map_or_else(|| format!("{time}: {reason}"), str::to_owned);
    Some(json!({
        "metadata": {"annotations": {
            DISABLED_ANNOTATION: note,
            DISABLED_UNTIL_ANNOTATION: until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }},
        "webhooks": disabled_entries(configuration),
    }))
}

/// The patch that enables a configuration. `None` if it is enabled already.
///
/// Like the patch of [`disable`], it replaces the whole list of entries and must be written with the resource version of
/// `configuration`.
pub fn enable(configuration: &Value) -> Option<Value> {
    let is_on = matches!(switch(configuration), Switch::On | Switch::Empty);
    if is_on && disabled_note(configuration).is_none() {
        return None;
    }
    Some(json!({
        "metadata": {"annotations": {DISABLED_ANNOTATION: null, DISABLED_UNTIL_ANNOTATION: null}},
        "webhooks": enabled_entries(configuration),
    }))
}

#[cfg(test)]
mod tests {
    use kcp_rules::registration::is_disabled;

    use super::*;

    fn now() -> Timestamp {
        "2026-12-01T12:00:00.5Z".parse().expect("a time")
    }

    fn until(hours: i64) -> Timestamp {
        now() + jiff::SignedDuration::from_hours(hours)
    }

    fn configuration() -> Value {
        json!({
            "metadata": {"name": "admission.kubectl-kcp.dev", "annotations": {"team": "edge"}},
            "webhooks": [
                {"name": "a", "clientConfig": {"caBundle": "Q0E="},
                    "matchConditions": [{"name": "c", "expression": "true"}]},
                {"name": "b"},
            ],
        })
    }

    fn patched(mut object: Value, patch: &Value) -> Value {
        crate::merge_patch::apply(&mut object, patch);
        object
    }

    #[test]
    fn disable_and_enable_restore_the_configuration() {
        let before = configuration();
        let patch = disable(&before, "capi upgrade", now(), until(2)).expect("a patch");
        let off = patched(before.clone(), &patch);
        assert!(is_disabled(&off));
        assert_eq!(switch(&off), Switch::Off);
        assert_eq!(disabled_note(&off), Some("2026-12-01T12:00:00Z: capi upgrade"));
        let enabled = patched(off.clone(), &enable(&off).expect("a patch"));
        assert_eq!(enabled, before);
    }

    #[test]
    fn a_second_time_changes_nothing() {
        let before = configuration();
        assert_eq!(enable(&before), None);
        let off = patched(
            before.clone(),
            &disable(&before, "first", now(), until(2)).expect("a patch"),
        );
        for hours in [1, 2] {
            assert_eq!(disable(&off, "second", now(), until(hours)), None);
        }
        let longer = patched(
            off.clone(),
            &disable(&off, "second", now(), until(3)).expect("a patch"),
        );
        assert_eq!(disabled_note(&longer), disabled_note(&off));
        assert_eq!(
            longer["metadata"]["annotations"][DISABLED_UNTIL_ANNOTATION],
            "2026-12-01T15:00:00Z"
        );
    }

    #[test]
    fn a_new_entry_of_a_disabled_configuration_is_disabled_with_the_first_reason() {
        let before = configuration();
        let mut off = patched(
            before.clone(),
            &disable(&before, "first", now(), until(2)).expect("a patch"),
        );
        off["webhooks"]
            .as_array_mut()
            .expect("a list")
            .push(json!({"name": "new"}));
        let again = patched(
            off.clone(),
            &disable(&off, "second", now(), until(2)).expect("a patch"),
        );
        assert_eq!(switch(&again), Switch::Off);
        assert_eq!(disabled_note(&again), Some("2026-12-01T12:00:00Z: first"));
    }
}
