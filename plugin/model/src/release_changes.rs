//! Finds what a Kubernetes upgrade changes: API versions that are no longer served, and an image tag that keeps etcd at an old
//! version. Admission rules find the flags and feature gates with which a component does not start.

use std::collections::{BTreeMap, BTreeSet};

use kcp_rules::{components::removed_kinds, syntax::parse_version, topics::etcd::stacked_version};
use serde_json::Value;

use crate::etcd_upgrade::image_tag;

/// What Kubernetes says about each removal.
pub const API_GUIDE: &str = "https://kubernetes.io/docs/reference/using-api/deprecation-guide/";

/// The metric with the deprecated APIs that clients have requested since the API server started.
const METRIC: &str = "apiserver_requested_deprecated_apis{";

/// A deprecated API that a client has requested.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestedApi {
    /// The resource, such as `flowschemas`.
    pub resource: String,
    /// The API version, such as `flowcontrol.apiserver.k8s.io/v1beta3`.
    pub api_version: String,
    /// The first minor version that does not serve the API. `None` if no removal is planned.
    pub removed_in: Option<u64>,
}

/// The deprecated APIs that clients use, as far as the API servers were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedApis {
    pub requested: BTreeSet<RequestedApi>,
    /// The API servers that could not be read: one line for each.
    pub unread: Vec<String>,
}

impl UsedApis {
    pub fn unread(why: String) -> Self {
        Self {
            unread: vec![why],
            ..Self::default()
        }
    }

    /// The resources that clients use in an API version.
    fn resources(&self, api_version: &str) -> Vec<&str> {
        let used = self.requested.iter().filter(|api| api.api_version == api_version);
        used.map(|api| api.resource.as_str()).collect()
    }
}

/// The deprecated APIs in the metrics of an API server.
pub fn requested_apis(metrics: &str) -> impl Iterator<Item = RequestedApi> {
    let samples = metrics.lines().filter_map(|line| line.strip_prefix(METRIC));
    samples.filter_map(|sample| requested_api(sample.split_once('}')?.0))
}

/// Parses the labels of one sample. Kubernetes restricts the characters in the values of these labels, so no value is escaped.
fn requested_api(labels: &str) -> Option<RequestedApi> {
    let label = |name: &str| {
        let mut labels = labels.split(',').filter_map(|label| label.split_once('='));
        let (_, quoted) = labels.find(|(other, _)| *other == name)?;
        Some(quoted.trim_matches('"'))
    };
    let minor = label("removed_release").and_then(|release| release.strip_prefix("1."));
    Some(RequestedApi {
        resource: label("resource")?.to_owned(),
        api_version: match label("group")? {
            "" => label("version")?.to_owned(),
            group => format!("{group}/{}", label("version")?),
        },
        removed_in: minor.and_then(|minor| minor.parse().ok()),
    })
}

/// The API versions that Kubernetes no longer serves after an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removals {
    /// One line for each API version that clients use or may use, and for each API server that could not be read.
    pub in_use: Vec<String>,
    /// The API versions that no client uses, on one line. `None` if there are none.
    pub unused: Option<String>,
}

/// The API versions that Kubernetes no longer serves after the upgrade. Without `used`, each of them counts as one that clients may
/// use. Leaves out alpha versions, which API servers do not serve by default.
pub fn removals(from: &str, to: &str, used: Option<&UsedApis>) -> Removals {
    let (Ok(from), Ok(to)) = (parse_version(from), parse_version(to)) else {
        return Removals::default();
    };
    let removed = removed_kinds(&from, &to);
    let served = removed.iter().filter(|kind| !kind.api_version.contains("alpha"));
    let mut kinds: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for kind in served {
        let key = (kind.removed_in, kind.api_version, kind.replacement);
        kinds.entry(key).or_default().push(kind.kind);
    }
    if kinds.is_empty() {
        return Removals::default();
    }
    let (mut in_use, mut unused): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for ((minor, version, replacement), kinds) in kinds {
        let resources = used.map_or_else(Vec::new, |used| used.resources(version));
        if resources.is_empty() && used.is_some_and(|used| used.unread.is_empty()) {
            unused.push(version);
            continue;
        }
        let remedy = match (replacement, kinds.len()) {
            ("", 1) => "stop using it".to_owned(),
            ("", _) => "stop using them".to_owned(),
            (replacement, _) => format!("use {replacement}"),
        };
        let clients = if resources.is_empty() {
            String::new()
        } else {
            format!("; clients still use {}", resources.join(", "))
        };
        in_use.push(format!(
            "v1.{minor} no longer serves {} in {version}: {remedy}{clients}",
            kinds.join(", ")
        ));
    }
    let unread = used.into_iter().flat_map(|used| &used.unread);
    in_use.extend(unread.map(|why| format!("could not read which of these APIs clients use: {why}")));
    Removals {
        in_use,
        unused: (!unused.is_empty()).then(|| {
            format!(
                "v{}.{} no longer serves {}; no client has requested these APIs since the API servers started",
                to.major,
                to.minor,
                unused.join(", ")
            )
        }),
    }
}

/// Says that the spec keeps etcd below the minor version that kubeadm runs by default. `config` is the `kubeadmConfigSpec`.
pub fn outdated_etcd(config: &Value, version: &str) -> Option<String> {
    let tag = image_tag(config)?;
    let kubernetes = parse_version(version).ok()?;
    let pinned = stacked_version(Some(tag), kubernetes.minor)?;
    let default = stacked_version(None, kubernetes.minor)?;
    ((pinned.major, pinned.minor) < (default.major, default.minor)).then(|| {
        format!(
            "clusterConfiguration.etcd.local.imageTag keeps etcd at {tag}, but kubeadm {version} runs etcd {}.{} by default: use a \
             newer tag, or remove the field",
            default.major, default.minor
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Removals, RequestedApi, UsedApis, outdated_etcd, removals, requested_apis};

    const V1BETA3: &str = "flowcontrol.apiserver.k8s.io/v1beta3";

    fn used(resource: &str, api_version: &str, removed_in: Option<u64>) -> RequestedApi {
        RequestedApi {
            resource: resource.to_owned(),
            api_version: api_version.to_owned(),
            removed_in,
        }
    }

    #[test]
    fn an_upgrade_lists_the_removed_apis_that_clients_use_or_may_use() {
        let line = "v1.32 no longer serves FlowSchema, PriorityLevelConfiguration in \
                    flowcontrol.apiserver.k8s.io/v1beta3: use flowcontrol.apiserver.k8s.io/v1";
        let in_use = format!("{line}; clients still use flowschemas");
        let unused = "v1.32 no longer serves flowcontrol.apiserver.k8s.io/v1beta3; no client has requested these APIs since the API servers started";
        let unread = "could not read which of these APIs clients use: kube-apiserver-n2: not served";
        let no_apis = UsedApis::default();
        let one = UsedApis {
            requested: [
                used("flowschemas", V1BETA3, Some(32)),
                used("endpoints", "v1", None),
            ]
            .into(),
            unread: Vec::new(),
        };
        let one_of_two = UsedApis {
            unread: vec!["kube-apiserver-n2: not served".to_owned()],
            ..one.clone()
        };
        let none_of_two = UsedApis::unread("kube-apiserver-n2: not served".to_owned());
        for (from, to, apis, expected) in [
            ("v1.31.9", "v1.32.0", None, vec![line]),
            ("v1.31.9", "v1.32.0", Some(&no_apis), vec![unused]),
            ("v1.31.9", "v1.32.0-rc.1", Some(&one), vec![in_use.as_str()]),
            (
                "v1.31.9",
                "v1.32.0",
                Some(&one_of_two),
                vec![in_use.as_str(), unread],
            ),
            ("v1.31.9", "v1.32.0", Some(&none_of_two), vec![line, unread]),
            ("v1.31.0", "v1.31.4", Some(&none_of_two), vec![]),
            ("nonsense", "v1.32.0", Some(&no_apis), vec![]),
        ] {
            let Removals { in_use, unused } = removals(from, to, apis);
            let lines: Vec<String> = in_use.into_iter().chain(unused).collect();
            assert_eq!(lines, expected, "{from} to {to}");
        }
    }

    #[test]
    fn requested_apis_are_those_in_the_metrics() {
        let metrics = "\
# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group=\"\",removed_release=\"\",resource=\"endpoints\",subresource=\"\",version=\"v1\"} 1
apiserver_requested_deprecated_apis{group=\"flowcontrol.apiserver.k8s.io\",removed_release=\"1.32\",resource=\"flowschemas\",subresource=\"status\",version=\"v1beta3\"} 1
apiserver_requested_deprecated_apis{group=\"broken\"
apiserver_request_total{group=\"\",resource=\"pods\",version=\"v1\"} 4
";
        let found: Vec<_> = requested_apis(metrics).collect();
        assert_eq!(
            found,
            [
                used("endpoints", "v1", None),
                used("flowschemas", V1BETA3, Some(32))
            ]
        );
    }

    #[test]
    fn an_older_minor_version_of_etcd_is_reported() {
        let notice = |tag: Option<&str>, version: &str| {
            let config = json!({"clusterConfiguration": {"etcd": {"local": {"imageTag": tag}}}});
            outdated_etcd(&config, version)
        };
        for (tag, version) in [
            (None, "v1.34.2"),
            (Some(""), "v1.34.2"),
            (Some("latest"), "v1.34.2"),
            (Some("3.6.0-0"), "v1.34.2"),
            (Some("3.7.1-0"), "v1.34.2"),
            (Some("3.5.21-0"), "v1.33.2"),
            (Some("3.0.0"), "v1.99.0"),
        ] {
            assert_eq!(notice(tag, version), None, "{tag:?} {version}");
        }
        insta::assert_snapshot!(notice(Some("3.5.26-0"), "v1.34.2").expect("a notice"), @"clusterConfiguration.etcd.local.imageTag keeps etcd at 3.5.26-0, but kubeadm v1.34.2 runs etcd 3.6 by default: use a newer tag, or remove the field");
    }
}
