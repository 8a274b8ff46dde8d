//! Finds what a Kubernetes upgrade changes for clients: API versions that are no longer served, and pinned images that are too
//! old. Admission rules find the flags and feature gates with which a component does not start.

use std::collections::BTreeMap;

use kcp_rules::{components::removed_kinds, syntax::parse_version, topics::images};
use serde_json::Value;

/// What Kubernetes says about each removal.
pub const API_GUIDE: &str = "https://kubernetes.io/docs/reference/using-api/deprecation-guide/";

/// One line for each API version that Kubernetes no longer serves after an upgrade, because it is unknown which of them clients
/// use. Leaves out alpha versions, which API servers do not serve by default.
pub fn removals(from: &str, to: &str) -> Vec<String> {
    let (Ok(from), Ok(to)) = (parse_version(from), parse_version(to)) else {
        return Vec::new();
    };
    let removed = removed_kinds(&from, &to);
    let served = removed.iter().filter(|kind| !kind.api_version.contains("alpha"));
    let mut kinds: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for kind in served {
        let key = (kind.removed_in, kind.api_version, kind.replacement);
        kinds.entry(key).or_default().push(kind.kind);
    }
    let lines = kinds.into_iter().map(|((minor, version, replacement), kinds)| {
        let remedy = match (replacement, kinds.len()) {
            ("", 1) => "stop using it".to_owned(),
            ("", _) => "stop using them".to_owned(),
            (replacement, _) => format!("use {replacement}"),
        };
        format!(
            "v1.{minor} no longer serves {} in {version}: {remedy}",
            kinds.join(", ")
        )
    });
    lines.collect()
}

/// kubeadm's default image tags in the first release of a minor version. Later patch releases have the same or newer tags.
#[derive(Clone, Copy, Debug)]
struct DefaultTags {
    minor: u64,
    core_dns: &'static str,
    etcd: &'static str,
}

/// The source is `CoreDNSVersion` and `DefaultEtcdVersion` in `cmd/kubeadm/app/constants/constants.go` of Kubernetes.
const DEFAULTS: &[DefaultTags] = &[
    defaults(31, "v1.11.1", "3.5.15-0"),
    defaults(32, "v1.11.3", "3.5.16-0"),
    defaults(33, "v1.12.0", "3.5.21-0"),
    defaults(34, "v1.12.1", "3.6.4-0"),
    defaults(35, "v1.13.1", "3.6.6-0"),
    defaults(36, "v1.14.2", "3.6.8-0"),
];

const fn defaults(minor: u64, core_dns: &'static str, etcd: &'static str) -> DefaultTags {
    DefaultTags {
        minor,
        core_dns,
        etcd,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutdatedTag {
    /// The name of the image: `CoreDNS` or `etcd`.
    pub image: &'static str,
    /// The path of the image's tag below `spec.kubeadmConfigSpec`.
    pub field: &'static str,
    pub tag: String,
    pub default: &'static str,
}

/// Returns the pinned image tags in a `kubeadmConfigSpec` that are older than kubeadm's defaults. Empty if the defaults
/// of `version` are unknown.
pub fn outdated_tags(config: &Value, version: &str) -> Vec<OutdatedTag> {
    let defaults = parse_version(version)
        .ok()
        .filter(|version| version.major == 1)
        .and_then(|version| DEFAULTS.iter().find(|defaults| defaults.minor == version.minor));
    let Some(defaults) = defaults else {
        return Vec::new();
    };
    let pinned = [
        ("CoreDNS", "clusterConfiguration.dns.imageTag", defaults.core_dns),
        ("etcd", "clusterConfiguration.etcd.local.imageTag", defaults.etcd),
    ];
    let outdated = pinned.into_iter().filter_map(|(image, field, default)| {
        let pointer = format!("/{}", field.replace('.', "/"));
        let tag = config.pointer(&pointer)?.as_str()?;
        let is_older = images::parse_tag_version(tag).ok()? < images::parse_tag_version(default).ok()?;
        is_older.then(|| OutdatedTag {
            image,
            field,
            tag: tag.to_owned(),
            default,
        })
    });
    outdated.collect()
}

impl OutdatedTag {
    pub fn message(&self, version: &str) -> String {
        let Self {
            image,
            field,
            tag,
            default,
        } = self;
        format!(
            "{field} pins {image} at {tag}, but kubeadm {version} installs {default} or newer by default: use a newer \
             tag, or remove the field"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DEFAULTS, outdated_tags, removals};

    #[test]
    fn an_upgrade_lists_the_apis_that_it_removes() {
        let flow_schemas = "v1.32 no longer serves FlowSchema, PriorityLevelConfiguration in \
                            flowcontrol.apiserver.k8s.io/v1beta3: use flowcontrol.apiserver.k8s.io/v1";
        for (from, to, expected) in [
            ("v1.31.9", "v1.32.0", vec![flow_schemas]),
            ("v1.31.9", "v1.32.0-rc.1", vec![flow_schemas]),
            ("v1.31.0", "v1.31.4", vec![]),
            ("nonsense", "v1.32.0", vec![]),
        ] {
            assert_eq!(removals(from, to), expected, "{from} to {to}");
        }
    }

    #[test]
    fn older_pinned_tags_are_listed() {
        for (name, core_dns, etcd, version, expected) in [
            ("not_pinned", None, None, "v1.34.2", vec![]),
            (
                "both_older",
                Some("v1.11.3"),
                Some("3.5.21-0"),
                "v1.34.2",
                vec!["v1.11.3", "3.5.21-0"],
            ),
            ("as_brought", Some("v1.12.1"), Some("3.6.4-0"), "v1.34.2", vec![]),
            ("newer", Some("v1.13.0"), Some("3.6.10-0"), "v1.34.2", vec![]),
            ("without_v", Some("1.11.1"), None, "v1.34.2", vec!["1.11.1"]),
            (
                "built_by_others",
                Some("v1.11.3_vmware.7"),
                None,
                "v1.34.2",
                vec!["v1.11.3_vmware.7"],
            ),
            ("no_version", Some("latest"), Some(""), "v1.34.2", vec![]),
            ("unknown_minor", Some("v1.0.0"), Some("3.0.0"), "v1.99.0", vec![]),
        ] {
            let config = json!({"clusterConfiguration": {
                "dns": {"imageTag": core_dns}, "etcd": {"local": {"imageTag": etcd}}}});
            let tags: Vec<String> = outdated_tags(&config, version)
                .into_iter()
                .map(|found| found.tag)
                .collect();
            assert_eq!(tags, expected, "{name}");
        }
    }

    #[test]
    fn a_message_says_what_to_do() {
        let config = json!({"clusterConfiguration": {"etcd": {"local": {"imageTag": "3.5.21-0"}}}});
        let found = outdated_tags(&config, "v1.34.2");
        insta::assert_snapshot!(found[0].message("v1.34.2"), @"clusterConfiguration.etcd.local.imageTag pins etcd at 3.5.21-0, but kubeadm v1.34.2 installs 3.6.4-0 or newer by default: use a newer tag, or remove the field");
    }

    #[test]
    fn tags_never_go_back() {
        let version = |tag| kcp_rules::topics::images::parse_tag_version(tag).expect("a version");
        assert!(DEFAULTS.is_sorted_by_key(|defaults| defaults.minor));
        assert!(DEFAULTS.is_sorted_by_key(|defaults| version(defaults.core_dns)));
        assert!(DEFAULTS.is_sorted_by_key(|defaults| version(defaults.etcd)));
    }
}
