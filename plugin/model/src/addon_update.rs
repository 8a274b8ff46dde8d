//! Whether Cluster API's controller can update kube-proxy and `CoreDNS` in the workload cluster. If it cannot, its reconciles
//! fail at this late step: Machines are still created and deleted, but `status.observedGeneration` stays behind, and new
//! Machines get no record of when their certificates expire.
//!
//! Source: Cluster API v1.14.2, `controlplane/kubeadm/pkg`: `UpdateKubeProxyImageInfo`, `UpdateCoreDNS`.

use kcp_api::{KubeadmControlPlane, KubeadmControlPlaneSpec, Object as _};
use kcp_rules::topics::{coredns::CorefileMigration, images::parse_tag_version};
use serde_json::Value;

use crate::snapshot::{Reading, Snapshot, workload::Addon};

/// With this annotation on a control plane, Cluster API does not update kube-proxy.
pub const SKIP_KUBE_PROXY: &str = "controlplane.cluster.x-k8s.io/skip-kube-proxy";
/// With this annotation on a control plane, Cluster API does not update `CoreDNS`.
pub const SKIP_CORE_DNS: &str = "controlplane.cluster.x-k8s.io/skip-coredns";

/// An update of an add-on that the controller cannot make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpossibleUpdate {
    /// The add-on as `Kind/name`.
    pub object: &'static str,
    /// What runs, and why the controller cannot update it.
    pub message: String,
    /// What to do instead of skipping the add-on.
    remedy: String,
    skip: &'static str,
    /// Whether a newer Cluster API might make the update.
    pub depends_on_version: bool,
}

impl ImpossibleUpdate {
    pub fn hint(&self, control_plane: &KubeadmControlPlane) -> String {
        format!(
            "{}, or let Cluster API skip the add-on: kubectl annotate kcp {} -n {} {}=",
            self.remedy,
            control_plane.name(),
            control_plane.namespace(),
            self.skip
        )
    }

    /// The update as a warning about a change.
    pub fn warning(&self) -> String {
        format!(
            "{}: {}; the reconciles of Cluster API's controller fail after the Machines are up to date",
            self.object, self.message
        )
    }
}

/// The updates of add-ons that the controller cannot make with this spec. `patch` is the
/// planned change of the control plane, if any. It can add the annotation with which Cluster API skips an add-on.
pub fn impossible_updates(
    observed: &Snapshot,
    spec: &KubeadmControlPlaneSpec,
    patch: Option<&Value>,
) -> Vec<ImpossibleUpdate> {
    let is_skipped = |annotation: &str| {
        let annotations = patch.and_then(|patch| patch.pointer("/metadata/annotations"));
        match annotations.and_then(|annotations| annotations.get(annotation)) {
            Some(value) => !value.is_null(),
            None => observed.control_plane.has_annotation(annotation),
        }
    };
    let Some(workload) = observed.workload.value() else {
        return Vec::new();
    };
    let kube_proxy = addon_image(&workload.kube_proxy).filter(|_| !is_skipped(SKIP_KUBE_PROXY));
    let core_dns = addon_image(&workload.core_dns).filter(|_| !is_skipped(SKIP_CORE_DNS));
    let kube_proxy = kube_proxy.and_then(impossible_kube_proxy);
    let core_dns = core_dns.and_then(|image| impossible_core_dns(image, &spec.kubeadm_config_spec.fields));
    kube_proxy.into_iter().chain(core_dns).collect()
}

/// The add-ons that Cluster API does not update, because of an annotation: one line for each.
pub fn kept_addons(control_plane: &KubeadmControlPlane) -> Vec<String> {
    [("kube-proxy", SKIP_KUBE_PROXY), ("CoreDNS", SKIP_CORE_DNS)]
        .into_iter()
        .filter(|(_, annotation)| control_plane.has_annotation(annotation))
        .map(|(addon, annotation)| {
            format!("because of annotation {annotation}, Cluster API does not update {addon}: update {addon} yourself")
        })
        .collect()
}

/// The image that the controller would update. `None` if the add-on was not read, or the controller does not update it.
fn addon_image(addon: &Reading<Option<Addon>>) -> Option<&str> {
    let addon = addon.value()?.as_ref()?;
    addon.image.as_deref().filter(|_| !addon.lacks_config)
}

/// The controller cannot set the tag of an image with a digest (`ModifyImageTag`).
fn impossible_kube_proxy(image: &str) -> Option<ImpossibleUpdate> {
    image.contains('@').then(|| ImpossibleUpdate {
        object: "DaemonSet/kube-proxy",
        message: format!(
            "runs image {image}, and Cluster API cannot change the tag of an image with a digest"
        ),
        remedy: "remove the digest from the image of the DaemonSet".to_owned(),
        skip: SKIP_KUBE_PROXY,
        depends_on_version: false,
    })
}

fn impossible_core_dns(image: &str, config: &Value) -> Option<ImpossibleUpdate> {
    const TAG: &str = "spec.kubeadmConfigSpec.clusterConfiguration.dns.imageTag";
    let cluster = config.get("clusterConfiguration")?.as_object()?;
    let text = |value: Option<&Value>| {
        let text = value.and_then(Value::as_str).filter(|text| !text.is_empty());
        text.map(|text| text.trim_end_matches('/').to_owned())
    };
    let dns = |field: &str| text(cluster.get("dns").and_then(|dns| dns.get(field)));
    let impossible = |message: String, remedy: String, depends_on_version| {
        Some(ImpossibleUpdate {
            object: "Deployment/coredns",
            message,
            remedy,
            skip: SKIP_CORE_DNS,
            depends_on_version,
        })
    };
    let Some(from) = image_tag(image).filter(|tag| parse_tag_version(tag).is_ok()) else {
        let message = format!("runs image {image}, and Cluster API cannot read a version from its tag");
        let remedy = "use an image of CoreDNS whose tag is its version".to_owned();
        return impossible(message, remedy, false);
    };
    let to = dns("imageTag").unwrap_or_else(|| from.to_owned());
    let repository = dns("imageRepository").or_else(|| text(cluster.get("imageRepository")));
    if to == from && repository.is_none_or(|repository| is_in_repository(image, &repository, from)) {
        return None;
    }
    let fix = format!("set {TAG} to {from} or a later version");
    match CorefileMigration::between(from, &to)? {
        CorefileMigration::Possible => None,
        CorefileMigration::Downgrade => impossible(
            format!("runs {from}, and Cluster API never lowers CoreDNS, but the spec requires {to}"),
            fix,
            false,
        ),
        CorefileMigration::Unsupported => impossible(
            format!("runs {from}, and Cluster API cannot migrate the configuration of this version"),
            "update CoreDNS yourself".to_owned(),
            false,
        ),
        CorefileMigration::Unknown => impossible(
            format!(
                "runs {from}, the spec requires {to}, and Cluster API 1.14.2 cannot migrate the configuration between these \
                 versions"
            ),
            "use versions of CoreDNS that your Cluster API knows".to_owned(),
            true,
        ),
    }
}

/// Whether the image stays the same with this repository. Cluster API changes the name `coredns` to `coredns/coredns` in the
/// registry of Kubernetes.
fn is_in_repository(image: &str, repository: &str, tag: &str) -> bool {
    ["coredns", "coredns/coredns"]
        .iter()
        .any(|name| image == format!("{repository}/{name}:{tag}"))
}

/// The tag of an image, such as `v1.34.1` for `registry.k8s.io/kube-proxy:v1.34.1`. `None` for an image without a tag.
pub fn image_tag(image: &str) -> Option<&str> {
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    let (_, tag) = name.rsplit_once(':')?;
    (!tag.contains('/')).then_some(tag)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ImpossibleUpdate, impossible_updates};
    use crate::{
        snapshot::{Reading, Snapshot},
        testing::snapshot::observed,
    };

    /// The object, the message, and whether it concerns a later step.
    type Expected<'e> = &'e [(&'e str, &'e str, bool)];

    fn with(core_dns: &str, kube_proxy: &str, config: Value) -> Snapshot {
        let mut observed = observed();
        observed.control_plane.spec.kubeadm_config_spec.fields["clusterConfiguration"] = config;
        for (image, tag) in [("core_dns", core_dns), ("kube_proxy", kube_proxy)] {
            let workload = observed.workload();
            let addon = if image == "core_dns" {
                &mut workload.core_dns
            } else {
                &mut workload.kube_proxy
            };
            if let Reading::Read(Some(addon)) = addon {
                addon.image = Some(tag.to_owned());
            }
        }
        observed
    }

    fn messages(observed: &Snapshot, patch: Option<&Value>) -> Vec<(&'static str, String, bool)> {
        let found = impossible_updates(observed, &observed.control_plane.spec, patch);
        let described = |update: ImpossibleUpdate| (update.object, update.message, update.depends_on_version);
        found.into_iter().map(described).collect()
    }

    #[test]
    fn finds_the_updates_that_the_controller_cannot_make() {
        const PROXY: &str = "registry.k8s.io/kube-proxy:v1.34.1";
        const OLD: &str = "registry.k8s.io/coredns/coredns:v1.12.1";
        const VENDOR: &str = "vendor.example/dns/coredns:v1.12.99-vendor";
        let core_dns = "Deployment/coredns";
        let unknown = "runs v1.12.99-vendor, the spec requires v1.12.99-vendor, and Cluster API 1.14.2 cannot migrate the configuration between these versions";
        let tag = |tag: &str| json!({"dns": {"imageTag": tag}});
        let cases: &[(&str, &str, &str, Value, Expected<'_>)] = &[
            ("no tag in the spec", OLD, PROXY, json!({"apiServer": {}}), &[]),
            ("the tag that runs", OLD, PROXY, tag("v1.12.1"), &[]),
            ("an upgrade", OLD, PROXY, tag("v1.13.1"), &[]),
            (
                "a downgrade",
                OLD,
                PROXY,
                tag("v1.11.3"),
                &[(
                    core_dns,
                    "runs v1.12.1, and Cluster API never lowers CoreDNS, but the spec requires v1.11.3",
                    false,
                )],
            ),
            ("no configuration of the cluster", OLD, PROXY, json!(null), &[]),
            (
                "another repository",
                OLD,
                PROXY,
                json!({"dns": {"imageRepository": "a.example"}}),
                &[],
            ),
            (
                "a vendor's version that stays",
                VENDOR,
                PROXY,
                json!({"apiServer": {}}),
                &[],
            ),
            (
                "a vendor's version in its repository",
                VENDOR,
                PROXY,
                json!({"dns": {"imageRepository": "vendor.example/dns"}}),
                &[],
            ),
            (
                "a vendor's version in another repository",
                VENDOR,
                PROXY,
                json!({"imageRepository": "a.example/b"}),
                &[(core_dns, unknown, true)],
            ),
            (
                "too old",
                "a.example/coredns:1.0.6",
                PROXY,
                tag("v1.12.1"),
                &[(
                    core_dns,
                    "runs 1.0.6, and Cluster API cannot migrate the configuration of this version",
                    false,
                )],
            ),
            (
                "a digest",
                "a.example/coredns@sha256:0",
                "a.example/kube-proxy:v1@sha256:0",
                json!({"apiServer": {}}),
                &[
                    (
                        "DaemonSet/kube-proxy",
                        "runs image a.example/kube-proxy:v1@sha256:0, and Cluster API cannot change the tag of an image \
                         with a digest",
                        false,
                    ),
                    (
                        core_dns,
                        "runs image a.example/coredns@sha256:0, and Cluster API cannot read a version from its tag",
                        false,
                    ),
                ],
            ),
        ];
        for (name, core_dns, kube_proxy, config, expected) in cases {
            let expected: Vec<_> = expected
                .iter()
                .map(|(object, message, later)| (*object, (*message).to_owned(), *later))
                .collect();
            let observed = with(core_dns, kube_proxy, config.clone());
            assert_eq!(messages(&observed, None), expected, "{name}");
        }
    }

    #[test]
    fn finds_nothing_that_the_controller_does_not_update() {
        let lower = json!({"dns": {"imageTag": "v1.11.3"}});
        let mut observed = with("a.example/coredns:v1.12.1", "a.example/kube-proxy:v1.34.1", lower);
        let patch = |value: Value| json!({"metadata": {"annotations": {super::SKIP_CORE_DNS: value}}});
        assert_eq!(messages(&observed, Some(&json!({}))).len(), 1);
        assert_eq!(messages(&observed, Some(&patch(json!("")))), []);
        if let Reading::Read(Some(addon)) = &mut observed.workload().core_dns {
            addon.lacks_config = true;
        }
        assert_eq!(messages(&observed, None), []);
        let annotations = observed
            .control_plane
            .metadata
            .annotations
            .get_or_insert_default();
        annotations.insert(super::SKIP_CORE_DNS.to_owned(), String::new());
        if let Reading::Read(Some(addon)) = &mut observed.workload().core_dns {
            addon.lacks_config = false;
        }
        assert_eq!(messages(&observed, None), []);
        assert_eq!(messages(&observed, Some(&patch(Value::Null))).len(), 1);
    }

    #[test]
    fn the_tag_of_an_image_is_its_version() {
        for (image, expected) in [
            (
                "registry.k8s.io/cluster-api/cluster-api-controller:v1.14.1",
                Some("v1.14.1"),
            ),
            ("localhost:5000/kcp-webhook:0.1.0@sha256:0123", Some("0.1.0")),
            ("localhost:5000/kcp-webhook@sha256:0123", None),
            ("localhost:5000/kcp-webhook", None),
            ("kcp-webhook", None),
        ] {
            assert_eq!(super::image_tag(image), expected, "{image}");
        }
    }
}
