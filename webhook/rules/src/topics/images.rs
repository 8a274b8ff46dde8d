//! Tags of the images that kubeadm runs.

use semver::Version;

use crate::{
    api::{
        ControlPlaneSpec, Text,
        kubeadm_config::{Dns, LocalEtcd},
    },
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, HIDDEN},
    rule::{Check, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "images",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "image-tag-invalid",
        summary: "the image tags of CoreDNS and etcd must be valid",
        why: "The kubelet cannot pull an image with an invalid tag, so the first new Machine never becomes ready.",
        scope: Scope::Object,
        source: "OCI distribution specification, Pulling manifests: the grammar of a tag",
        check: Check::ControlPlaneSpec(tag_invalid),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "dns-image-tag-not-semantic",
        summary: "the image tag of CoreDNS must be the version of CoreDNS",
        why: "Cluster API reads the version of CoreDNS from the tag, to migrate the Corefile (the \
              configuration of CoreDNS). If the tag is not a version, Cluster API stops updating CoreDNS.",
        scope: Scope::Object,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: the tag must parse as a version",
        check: Check::ControlPlaneSpec(dns_tag_not_a_version),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
];

/// The path of the `CoreDNS` image tag below `kubeadmConfigSpec`.
pub const DNS_TAG_PATH: &str = "clusterConfiguration.dns.imageTag";
const ETCD_TAG: &str = "clusterConfiguration.etcd.local.imageTag";

/// The image tag of `CoreDNS`; `None` if it is unset.
pub fn dns_tag<'c>(spec: &ControlPlaneSpec<'c>) -> Option<&'c Text<'c>> {
    let dns: &Dns<'_> = spec.cluster_configuration()?.dns.as_ref()?;
    dns.image_tag.as_ref().filter(|tag| !tag.is_empty())
}

fn etcd_tag<'c>(spec: &ControlPlaneSpec<'c>) -> Option<&'c Text<'c>> {
    let local: &LocalEtcd<'_> = spec.kubeadm_config()?.etcd()?.local.as_ref()?;
    local.image_tag.as_ref().filter(|tag| !tag.is_empty())
}

/// Parses the version in an image tag as Cluster API does. `_` means `+`, which a tag cannot contain. A leading `v` and
/// leading zeros do not matter. Missing numbers are 0.
pub fn parse_tag_version(tag: &str) -> Result<Version, semver::Error> {
    let tag = tag.trim().replace('_', "+");
    let tag = tag.strip_prefix('v').unwrap_or(&tag);
    let mut numbers: Vec<&str> = tag.splitn(3, '.').map(without_leading_zeros).collect();
    let is_plain = numbers.last().is_some_and(|last| !last.contains(['+', '-']));
    while is_plain && numbers.len() < 3 {
        numbers.push("0");
    }
    Version::parse(&numbers.join("."))
}

fn without_leading_zeros(number: &str) -> &str {
    let zeros = number.len() - number.trim_start_matches('0').len();
    let has_more_digits = number.as_bytes().get(zeros).is_some_and(u8::is_ascii_digit);
    let redundant = if has_more_digits {
        zeros
    } else {
        zeros.saturating_sub(1)
    };
    number.get(redundant..).unwrap_or(number)
}

/// What is wrong with an image tag, and what to do; `None` if the tag is valid.
fn tag_fault(tag: &str) -> Option<(&'static str, &'static str)> {
    const CHARACTERS: &str = "use letters, digits, _, . and -";
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if let Some(other) = tag.chars().find(|c| !is_allowed(*c)) {
        let remedy = match other {
            '+' => "write _ instead of +",
            ':' | '@' | '/' => "write only the tag; the image name belongs in imageRepository",
            _ => CHARACTERS,
        };
        Some((
            "an image tag must contain only letters, digits, _, . and -",
            remedy,
        ))
    } else if tag.starts_with(['.', '-']) {
        Some(("an image tag must begin with a letter, a digit or _", CHARACTERS))
    } else if tag.len() > 128 {
        Some((
            "an image tag must have at most 128 characters",
            "use a shorter tag",
        ))
    } else {
        None
    }
}

fn tag_invalid(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    for (field, tag) in [(DNS_TAG_PATH, dns_tag(spec)), (ETCD_TAG, etcd_tag(spec))] {
        let Some((tag, (detail, remedy))) = tag.and_then(|tag| Some((tag, tag_fault(tag)?))) else {
            continue;
        };
        faults.push_redacted(
            tag,
            Fault {
                field: spec.kubeadm_path(field),
                reason: CauseReason::Invalid,
                value: Some(HIDDEN.to_owned()),
                detail: detail.into(),
                remedy: remedy.into(),
            },
        );
    }
}

fn dns_tag_not_a_version(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let Some(tag) = dns_tag(change.new).filter(|tag| tag_fault(tag).is_none()) else {
        return;
    };
    if parse_tag_version(tag).is_err() {
        faults.push_redacted(
            tag,
            Fault {
                field: change.new.kubeadm_path(DNS_TAG_PATH),
                reason: CauseReason::Invalid,
                value: Some(HIDDEN.to_owned()),
                detail: "Cluster API reads the CoreDNS version from the tag, but the tag is not a semantic \
                         version"
                    .into(),
                remedy: "tag the image with its version, such as \"v1.13.1\" or \"v1.13.1_build.2\"".into(),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values of `ParseTolerant` in blang/semver, which Cluster API uses.
    #[test]
    fn tags_are_parsed_as_in_cluster_api() {
        for (tag, expected) in [
            ("v1.13.1", "1.13.1"),
            ("1.13", "1.13.0"),
            ("2", "2.0.0"),
            ("v01.013.001", "1.13.1"),
            ("1.0.00", "1.0.0"),
            ("1.13.1-rc.1", "1.13.1-rc.1"),
            ("v1.13.1_vendor.2", "1.13.1+vendor.2"),
        ] {
            assert_eq!(parse_tag_version(tag).unwrap().to_string(), expected, "{tag}");
        }
        for tag in [
            "",
            "v",
            "latest",
            "1.13-rc.1",
            "1.2.3.4",
            "1.13.1_a_b",
            "99999999999999999999.0.0",
        ] {
            assert!(parse_tag_version(tag).is_err(), "{tag}");
        }
    }
}
