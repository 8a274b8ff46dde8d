//! Decodes what a controller manager says about itself on `/healthz?verbose`, `/configz` and `/flagz`.

use std::collections::BTreeSet;

use kcp_rules::{
    components,
    leader_migration::{Component, Flags, Manager, flags::CONFIGURATION_FLAG},
};
use serde_json::{Value, json};

/// The name of the check of `/healthz` that is not a controller.
const ELECTION_CHECK: &str = "leaderElection";

/// The minor version that is assumed if the tag of the image is not a version. Names and flags have been the same since 1.32.
fn assumed_minor() -> u64 {
    components::minors(components::Component::ControllerManager).1
}

/// Returns the controllers in the response of `/healthz?verbose`, which has lines such as
/// `[+]node-ipam-controller ok` and `[-]node-ipam-controller failed: reason withheld`. A controller whose
/// check fails has also been started. `None` if the response is not such a list.
pub fn controllers_in_healthz(response: &str) -> Option<BTreeSet<String>> {
    let is_list = response.trim_end().ends_with("healthz check passed")
        || response.trim_end().ends_with("healthz check failed");
    let checks = response.lines().filter_map(|line| {
        let check = line.strip_prefix("[+]").or_else(|| line.strip_prefix("[-]"))?;
        check.split_whitespace().next()
    });
    is_list.then(|| {
        checks
            .filter(|check| *check != ELECTION_CHECK)
            .map(str::to_owned)
            .collect()
    })
}

/// Returns a controller manager with the effective configuration in the response of `/configz`. The error says what is missing in
/// the response.
pub fn manager_in_configz(
    component: Component,
    minor: Option<u64>,
    response: &str,
) -> Result<Manager, String> {
    let unexpected = || "/configz does not contain the configuration of a controller manager".to_owned();
    let all: Value = serde_json::from_str(response).map_err(|_| unexpected())?;
    let mut configurations = all.as_object().into_iter().flat_map(serde_json::Map::values);
    let (configuration, generic) = configurations
        .find_map(|configuration| Some((configuration, field(configuration, "generic")?)))
        .ok_or_else(unexpected)?;
    let election = field(generic, "leaderElection");
    let shared = field(configuration, "kubeCloudShared");
    let setting = |parent: Option<&Value>, name: &str| parent.and_then(|parent| scalar(field(parent, name)?));
    let provider = shared.and_then(|shared| field(shared, "cloudProvider"));
    let mut flags: Vec<(&str, String)> = [
        ("leader-elect", setting(election, "leaderElect")),
        ("leader-elect-resource-name", setting(election, "resourceName")),
        (
            "leader-elect-resource-namespace",
            setting(election, "resourceNamespace"),
        ),
        ("leader-elect-lease-duration", setting(election, "leaseDuration")),
        ("leader-elect-retry-period", setting(election, "retryPeriod")),
        ("allocate-node-cidrs", setting(shared, "allocateNodeCIDRs")),
        ("configure-cloud-routes", setting(shared, "configureCloudRoutes")),
        ("cloud-provider", setting(provider, "name")),
        (
            "enable-leader-migration",
            setting(Some(generic), "leaderMigrationEnabled"),
        ),
        ("controllers", field(generic, "controllers").and_then(list)),
    ]
    .into_iter()
    .filter_map(|(flag, value)| Some((flag, value?)))
    .collect();
    let migration = field(generic, "leaderMigration");
    let text = migration.map(|migration| text_of(migration).to_string());
    if text.is_some() {
        flags.push((CONFIGURATION_FLAG, "/configz".to_owned()));
    }
    Ok(manager(
        component,
        minor,
        Flags::from_pairs(flags),
        text.as_deref(),
    ))
}

/// Returns the flags in the response of `/flagz`, which is JSON. The error says what is missing in the response.
pub fn flags_in_flagz(response: &str) -> Result<Flags, String> {
    let unexpected = || "/flagz does not contain flags as JSON".to_owned();
    let document: Value = serde_json::from_str(response).map_err(|_| unexpected())?;
    let values = document
        .get("flags")
        .and_then(Value::as_object)
        .ok_or_else(unexpected)?;
    // pflag prints a list in brackets.
    let plain = |value: &str| value.trim_start_matches('[').trim_end_matches(']').to_owned();
    let pairs = values
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), plain(value.as_str()?))));
    Ok(Flags::from_pairs(pairs))
}

/// Returns a controller manager with these flags, and with `file` as the text of its leader migration configuration.
pub fn manager(component: Component, minor: Option<u64>, flags: Flags, file: Option<&str>) -> Manager {
    Manager::new(component, minor.unwrap_or_else(assumed_minor), flags, file)
}

/// Returns the leader migration configuration in API version `controllermanager.config.k8s.io/v1`, with the fields that this API
/// version has.
fn text_of(migration: &Value) -> Value {
    let leaders = field(migration, "controllerLeaders").and_then(Value::as_array);
    let leaders: Vec<Value> = leaders
        .into_iter()
        .flatten()
        .map(|leader| json!({"name": field(leader, "name"), "component": field(leader, "component")}))
        .collect();
    json!({
        "apiVersion": "controllermanager.config.k8s.io/v1",
        "kind": "LeaderMigrationConfiguration",
        "leaderName": field(migration, "leaderName"),
        "controllerLeaders": leaders,
    })
}

/// Returns a field, whatever the case of its name: `/configz` has `LeaderName` in some versions, and
/// `leaderName` in others.
fn field<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
    let fields = object.as_object()?;
    let found = fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value).filter(|value| !value.is_null())
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

fn list(value: &Value) -> Option<String> {
    let items: Vec<&str> = value.as_array()?.iter().filter_map(Value::as_str).collect();
    Some(items.join(","))
}

#[cfg(test)]
mod tests {
    use kcp_rules::leader_migration::{Assignment, Controller};

    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn healthz_lists_started_controllers() {
        for (response, expected) in [
            (
                "[+]leaderElection ok\n[+]node-ipam-controller ok\n[-]route failed: reason withheld\nhealthz check failed\n",
                Some(names(&["node-ipam-controller", "route"])),
            ),
            ("[+]leaderElection ok\nhealthz check passed\n", Some(names(&[]))),
            ("ok", None),
            ("<html>", None),
        ] {
            assert_eq!(controllers_in_healthz(response), expected, "{response}");
        }
    }

    /// The responses of 1.35 and 1.36, whose field names differ in case.
    #[test]
    fn configz_has_the_effective_configuration_in_any_case() {
        let node_ipam = Controller::find("nodeipam").unwrap();
        let of_1_35 = r#"{"kubecontrollermanager.config.k8s.io": {
            "Generic": {"LeaderElection": {"LeaderElect": true, "LeaseDuration": "15s", "ResourceName": "kcm",
                "ResourceNamespace": "kube-system"}, "Controllers": ["*", "-route"], "LeaderMigrationEnabled": true,
                "LeaderMigration": {"LeaderName": "m", "ResourceLock": "leases",
                    "ControllerLeaders": [{"Name": "node-ipam-controller", "Component": "*"}]}},
            "KubeCloudShared": {"CloudProvider": {"Name": "external"}, "AllocateNodeCIDRs": true}}}"#;
        let of_1_36 = r#"{"cloudcontrollermanager.config.k8s.io": {
            "Generic": {"LeaderElection": {"leaderElect": true, "resourceName": "ccm", "resourceNamespace": "kube-system"},
                "Controllers": ["*"], "LeaderMigrationEnabled": false,
                "LeaderMigration": {"leaderName": "", "resourceLock": "", "controllerLeaders": null}},
            "KubeCloudShared": {"CloudProvider": {}, "AllocateNodeCIDRs": true, "ConfigureCloudRoutes": null}}}"#;
        let migrating = manager_in_configz(Component::Kube, Some(35), of_1_35).unwrap();
        assert_eq!(migrating.assignment(node_ipam), Assignment::Migrated);
        assert_eq!(migrating.main_lock().name, "kcm");
        assert_eq!(migrating.migration_lock().unwrap().name, "m");
        let plain = manager_in_configz(Component::Cloud, None, of_1_36).unwrap();
        assert_eq!(plain.assignment(node_ipam), Assignment::Unknown);
        assert_eq!(
            (plain.main_lock().name.as_str(), plain.migration_lock()),
            ("ccm", None)
        );
        assert_eq!(
            manager_in_configz(Component::Kube, None, "{}").unwrap_err(),
            "/configz does not contain the configuration of a controller manager"
        );
    }

    #[test]
    fn flagz_has_flags() {
        let flags = flags_in_flagz(
            r#"{"kind": "Flagz", "flags": {"controllers": "[*,-route]", "enable-leader-migration": "true"}}"#,
        );
        let flags = flags.unwrap();
        assert_eq!(flags.list("controllers").collect::<Vec<_>>(), ["*", "-route"]);
        assert!(flags.is_leader_migration_enabled());
        assert_eq!(
            flags_in_flagz("kube-controller-manager flagz").unwrap_err(),
            "/flagz does not contain flags as JSON"
        );
    }
}
