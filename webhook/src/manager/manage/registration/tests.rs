use kcp_rules::registration::{
    DISABLED_ANNOTATION, DISABLED_UNTIL_ANNOTATION, Switch, calls_static_pods, switch,
};

use super::*;
use crate::manager::manage::authorities::{CA_VALIDITY, KeyedCa};

fn now() -> Timestamp {
    "2026-12-01T00:00:00Z".parse().unwrap()
}

fn ca() -> String {
    KeyedCa::create(now(), CA_VALIDITY).unwrap().certificate.pem
}

fn owner(uid: &str) -> Owner {
    Owner {
        name: "kcp-webhook".to_owned(),
        uid: uid.to_owned(),
    }
}

fn place() -> Place {
    Place {
        namespace: "edge-admission".to_owned(),
        port: 8443,
        static_pod_port: None,
        control_plane_version: "v1beta2",
    }
}

fn desired(hook: Hook, bundle: &str) -> Value {
    hook.desired(&place(), bundle, Some(&owner("u1"))).unwrap()
}

fn desired_for_static_pods(hook: Hook, bundle: &str) -> Value {
    let place = Place {
        static_pod_port: Some(11443),
        ..place()
    };
    hook.desired(&place, bundle, Some(&owner("u1"))).unwrap()
}

/// What an API server returns after it has stored a configuration: with its defaults and its own metadata.
fn stored(mut configuration: Value) -> Value {
    configuration["metadata"]["resourceVersion"] = json!("7");
    configuration["metadata"]["uid"] = json!("c");
    for entry in configuration["webhooks"].as_array_mut().unwrap() {
        entry["objectSelector"] = json!({});
        entry["reinvocationPolicy"] = json!("Never");
    }
    configuration
}

#[test]
fn the_shipped_configurations_are_for_the_service_in_its_namespace() {
    for hook in Hook::ALL {
        let configuration = desired(hook, "CA");
        assert_eq!(configuration["kind"], hook.kind());
        assert_eq!(configuration["metadata"]["name"], CONFIGURATION);
        let owners = json!([{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "kcp-webhook",
            "uid": "u1"}]);
        assert_eq!(configuration["metadata"]["ownerReferences"], owners);
        let entries = configuration["webhooks"].as_array().unwrap();
        assert!(entries.len() >= 6);
        for entry in entries {
            assert_eq!(entry["clientConfig"]["caBundle"], "Q0E=");
            let service = &entry["clientConfig"]["service"];
            assert_eq!(
                (&service["namespace"], &service["port"]),
                (&json!("edge-admission"), &json!(8443))
            );
            let selector = &entry["namespaceSelector"];
            if entry["name"] == CANARY_ENTRY {
                assert_eq!(entry["failurePolicy"], "Ignore");
                let own = json!({"matchLabels": {"kubernetes.io/metadata.name": "edge-admission"}});
                assert_eq!(*selector, own);
            } else {
                let excluded = &selector["matchExpressions"][0]["values"];
                assert_eq!(*excluded, json!(["kube-system"]), "{entry}");
            }
        }
        let canaries = entries.iter().filter(|entry| entry["name"] == CANARY_ENTRY);
        assert_eq!(canaries.count(), usize::from(hook == Hook::Validate));
    }
}

#[test]
fn the_canary_is_registered_alone_and_then_with_the_rest() {
    let wanted = desired(Hook::Validate, &ca());
    let alone = stored(only_canary(wanted.clone()));
    assert_eq!(alone["webhooks"].as_array().unwrap().len(), 1);
    let is_current = |is_current| Registration::OnlyCanary { is_current };
    assert_eq!(compare(Some(&alone), &wanted, now()), is_current(true));
    let other_ca = desired(Hook::Validate, &ca());
    assert_eq!(compare(Some(&alone), &other_ca, now()), is_current(false));
    let all = merge(&alone, &wanted, now());
    assert_eq!(compare(Some(&all), &wanted, now()), Registration::Current);
    // A registration of an earlier version, which has no canary.
    let mut before = stored(wanted.clone());
    let entries = before["webhooks"].as_array_mut().unwrap();
    entries.retain(|entry| entry["name"] != CANARY_ENTRY);
    assert_eq!(
        compare(Some(&before), &wanted, now()),
        Registration::Outdated { trusts_any: true }
    );
}

#[test]
fn control_planes_are_registered_in_the_newest_served_version() {
    for version in ["v1beta2", "v1beta1"] {
        for hook in Hook::ALL {
            let place = Place {
                control_plane_version: version,
                ..place()
            };
            let configuration = hook.desired(&place, "CA", None).unwrap();
            for entry in configuration["webhooks"].as_array().unwrap() {
                let rule = &entry["rules"][0];
                let groups = [json!([group::CONTROL_PLANE]), json!(["cluster.x-k8s.io"])];
                let expected = if groups.contains(&rule["apiGroups"]) {
                    version
                } else {
                    "v1"
                };
                assert_eq!(rule["apiVersions"], json!([expected]), "{entry}");
                assert_eq!(entry["matchPolicy"], "Equivalent");
            }
        }
    }
}

#[test]
fn api_servers_change_from_the_service_to_static_pods_and_back() {
    for (hook, url) in [
        (Hook::Mutate, "https://127.0.0.1:11443/mutate"),
        (Hook::Validate, "https://127.0.0.1:11443/validate"),
    ] {
        let (service, static_pods) = (desired(hook, "CA"), desired_for_static_pods(hook, "CA"));
        let with_service = stored(service.clone());
        assert!(!calls_static_pods(&with_service, None));
        let outdated = Registration::Outdated { trusts_any: false };
        assert_eq!(compare(Some(&with_service), &static_pods, now()), outdated);
        let with_static_pods = merge(&with_service, &static_pods, now());
        for entry in with_static_pods["webhooks"].as_array().unwrap() {
            assert_eq!(entry["clientConfig"], json!({"caBundle": "Q0E=", "url": url}));
        }
        assert!(calls_static_pods(&with_static_pods, Some(11443)));
        assert_eq!(
            compare(Some(&with_static_pods), &static_pods, now()),
            Registration::Current
        );
        assert_eq!(merge(&with_static_pods, &service, now()), with_service);
    }
}

#[test]
fn a_configuration_is_compared_with_what_it_should_be() {
    for hook in Hook::ALL {
        let (old, new) = (ca(), ca());
        let wanted = desired(hook, &old);
        let live = stored(wanted.clone());
        assert_eq!(compare(None, &wanted, now()), Registration::Absent);
        assert_eq!(compare(Some(&live), &wanted, now()), Registration::Current);
        let outdated = Registration::Outdated { trusts_any: true };
        assert_eq!(
            compare(Some(&live), &desired(hook, &(old.clone() + &new)), now()),
            outdated
        );
        let later = now() + CA_VALIDITY;
        assert_eq!(
            compare(Some(&live), &desired(hook, &new), later),
            Registration::Outdated { trusts_any: false }
        );
        let mut changed = live.clone();
        changed["webhooks"][0]["failurePolicy"] = json!("Ignore");
        changed["webhooks"][1]["timeoutSeconds"] = json!(30);
        assert_eq!(compare(Some(&changed), &wanted, now()), outdated);
        assert_eq!(merge(&changed, &wanted, now()), live);
        let mut injected = live.clone();
        injected["metadata"]["annotations"] = json!({INJECTED: "n/c"});
        assert_eq!(compare(Some(&injected), &wanted, now()), Registration::Injected);
    }
}

#[test]
fn an_upgrade_keeps_what_users_added_and_removes_entries_of_the_old_version() {
    let wanted = desired(Hook::Validate, &ca());
    let mut live = stored(wanted.clone());
    live["webhooks"][0]["objectSelector"] = json!({"matchLabels": {"team": "edge"}});
    live["metadata"]["labels"]["team"] = json!("edge");
    assert_eq!(compare(Some(&live), &wanted, now()), Registration::Current);
    let mut old = live.clone();
    let entries = old["webhooks"].as_array_mut().unwrap();
    let removed = json!({"name": "removed.validate.kubectl-kcp.dev"});
    entries.insert(0, removed);
    entries.pop();
    let merged = merge(&old, &wanted, now());
    assert_eq!(
        merged["webhooks"].as_array().unwrap().len(),
        wanted["webhooks"].as_array().unwrap().len()
    );
    assert_eq!(merged["webhooks"][0], live["webhooks"][0]);
    assert_eq!(merged["metadata"], live["metadata"]);
}

#[test]
fn a_disabled_configuration_stays_disabled_and_gets_the_new_ca() {
    let (old, new) = (ca(), ca());
    let mut live = stored(desired(Hook::Validate, &old));
    live["webhooks"] = json!(disabled_entries(&live));
    live["metadata"]["annotations"] = json!({DISABLED_ANNOTATION: "2026-12-01T00:00:00Z: upgrade"});
    assert_eq!(
        compare(Some(&live), &desired(Hook::Validate, &old), now()),
        Registration::Current
    );
    let both = old + &new;
    let wanted = desired(Hook::Validate, &both);
    assert_eq!(
        compare(Some(&live), &wanted, now()),
        Registration::Outdated { trusts_any: true }
    );
    let merged = merge(&live, &wanted, now());
    assert_eq!(switch(&merged), Switch::Off);
    assert_eq!(bundles(&merged), [both]);
    assert_eq!(merged["metadata"]["annotations"], live["metadata"]["annotations"]);
    assert_eq!(compare(Some(&merged), &wanted, now()), Registration::Current);
}

#[test]
fn a_disabled_configuration_is_enabled_at_its_end() {
    let wanted = desired(Hook::Validate, &ca());
    let enabled = stored(wanted.clone());
    let mut live = enabled.clone();
    live["webhooks"] = json!(disabled_entries(&live));
    for (until, is_current) in [("2999-01-01T00:00:00Z", true), ("2000-01-01T00:00:00Z", false)] {
        live["metadata"]["annotations"] = json!({
            "team": "edge",
            DISABLED_ANNOTATION: "1999-12-01T00:00:00Z: upgrade",
            DISABLED_UNTIL_ANNOTATION: until,
        });
        let compared = compare(Some(&live), &wanted, now());
        assert_eq!(compared == Registration::Current, is_current, "{compared:?}");
    }
    let merged = merge(&live, &wanted, now());
    assert_eq!(merged["webhooks"], enabled["webhooks"]);
    assert_eq!(merged["metadata"]["annotations"], json!({"team": "edge"}));
}

#[test]
fn the_owner_of_an_earlier_installation_is_replaced() {
    let wanted = desired(Hook::Mutate, &ca());
    let other = json!({"apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": "n1"});
    for (owners, expected) in [
        (json!(null), json!(["u1"])),
        (json!([owner("u1").reference()]), json!(["u1"])),
        (json!([owner("u0").reference()]), json!(["u1"])),
        (json!([other, owner("u0").reference()]), json!(["n1", "u1"])),
        (json!([owner("u1").reference(), other]), json!(["u1", "n1"])),
    ] {
        let mut live = stored(wanted.clone());
        live["metadata"]["ownerReferences"] = owners;
        let merged = merge(&live, &wanted, now());
        let uids: Vec<_> = merged["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .iter()
            .map(|reference| reference["uid"].clone())
            .collect();
        assert_eq!(json!(uids), expected, "{live}");
    }
}
