//! Pinned tags of `CoreDNS` and etcd that are older than kubeadm's defaults.

use kcp_rules::topics::{images, version::parse};
use serde_json::Value;

/// The default tags of the first release of a minor version of kubeadm. Later patches have the same or newer ones.
#[derive(Clone, Copy, Debug)]
struct Defaults {
    minor: u64,
    core_dns: &'static str,
    etcd: &'static str,
}

/// Source: `CoreDNSVersion` and `DefaultEtcdVersion` in `cmd/kubeadm/app/constants/constants.go` of Kubernetes.
const DEFAULTS: &[Defaults] = &[
    defaults(31, "v1.11.1", "3.5.15-0"),
    defaults(32, "v1.11.3", "3.5.16-0"),
    defaults(33, "v1.12.0", "3.5.21-0"),
    defaults(34, "v1.12.1", "3.6.4-0"),
    defaults(35, "v1.13.1", "3.6.6-0"),
    defaults(36, "v1.14.2", "3.6.8-0"),
];

const fn defaults(minor: u64, core_dns: &'static str, etcd: &'static str) -> Defaults {
    Defaults {
        minor,
        core_dns,
        etcd,
    }
}

/// A tag that is older than kubeadm's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outdated {
    /// `CoreDNS` or `etcd`.
    pub image: &'static str,
    /// Below `spec.kubeadmConfigSpec`.
    pub field: &'static str,
    pub tag: String,
    /// kubeadm's.
    pub default: &'static str,
}

/// The pinned tags of a `kubeadmConfigSpec` that are older than the defaults of kubeadm `version`; none if those are
/// unknown.
pub fn outdated(config: &Value, version: &str) -> Vec<Outdated> {
    let defaults = parse(version)
        .ok()
        .filter(|version| version.major == 1)
        .and_then(|version| DEFAULTS.iter().find(|defaults| defaults.minor == version.minor));
    let Some(defaults) = defaults else {
        return Vec::new();
    };
    let pinned = [
        ("CoreDNS", "clusterConfiguration.dns.imageTag", defaults.core_dns),
        (
            "etcd",
            "clusterConfiguration.etcd_members.local.imageTag",
            defaults.etcd,
        ),
    ];
    let outdated = pinned.into_iter().filter_map(|(image, field, default)| {
        let pointer = format!("/{}", field.replace('.', "/"));
        let tag = config.pointer(&pointer)?.as_str()?;
        let is_older = images::version(tag).ok()? < images::version(default).ok()?;
        is_older.then(|| Outdated {
            image,
            field,
            tag: tag.to_owned(),
            default,
        })
    });
    outdated.collect()
}

impl Outdated {
    pub fn message(&self, version: &str) -> String {
        let Self {
            image,
            field,
            tag,
            default,
        } = self;
        format!(
            "{image} stays at {tag}, which {field} pins; kubeadm of {version} brings {default} or newer: raise or remove \
             the tag"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DEFAULTS, outdated};

    #[test]
    fn a_pinned_tag_that_is_older_is_told() {
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
            let tags: Vec<String> = outdated(&config, version)
                .into_iter()
                .map(|found| found.tag)
                .collect();
            assert_eq!(tags, expected, "{name}");
        }
    }

    #[test]
    fn a_message_says_what_to_do() {
        let config = json!({"clusterConfiguration": {"etcd": {"local": {"imageTag": "3.5.21-0"}}}});
        let found = outdated(&config, "v1.34.2");
        insta::assert_snapshot!(found[0].message("v1.34.2"), @"etcd stays at 3.5.21-0, which clusterConfiguration.etcd_members.local.imageTag pins; kubeadm of v1.34.2 brings 3.6.4-0 or newer: raise or remove the tag");
    }

    #[test]
    fn tags_never_go_back() {
        let version = |tag| kcp_rules::topics::images::version(tag).expect("a version");
        assert!(DEFAULTS.is_sorted_by_key(|defaults| defaults.minor));
        assert!(DEFAULTS.is_sorted_by_key(|defaults| version(defaults.core_dns)));
        assert!(DEFAULTS.is_sorted_by_key(|defaults| version(defaults.etcd)));
    }
}
