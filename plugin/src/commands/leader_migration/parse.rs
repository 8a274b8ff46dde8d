//! Parses the values of flags.

use kcp_control_plane::plan::options::with_leading_v;
use kcp_rules::syntax::parse_version;

/// The migration lock of the default configuration.
pub(super) const DEFAULT_LEADER_NAME: &str = "cloud-provider-extraction-migration";

pub(super) fn parse_service_account(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("expected NAMESPACE/NAME, such as kube-system/cloud-controller-manager".to_owned()),
    }
}

/// A Kubernetes version such as `v1.36.0`, with the leading `v`.
pub(super) fn parse_full_version(text: &str) -> Result<String, String> {
    match parse_version(text) {
        Ok(version) if version.major == 1 => Ok(with_leading_v(text)),
        _ => Err("expected a Kubernetes 1.x version, such as v1.36.0".to_owned()),
    }
}

/// The minor version of a Kubernetes version such as `v1.36.0` or `1.36`.
pub(super) fn parse_minor(text: &str) -> Result<u64, String> {
    let dots = text.bytes().filter(|byte| *byte == b'.').count();
    let full = if dots == 1 {
        format!("{text}.0")
    } else {
        text.to_owned()
    };
    match parse_version(&full) {
        Ok(version) if version.major == 1 => Ok(version.minor),
        _ => Err("expected a Kubernetes 1.x version, such as v1.36.0".to_owned()),
    }
}

pub(super) fn parse_lease(text: &str) -> Result<String, String> {
    const IN_USE: [&str; 3] = [
        "kube-controller-manager",
        "cloud-controller-manager",
        "kube-scheduler",
    ];
    if IN_USE.contains(&text) {
        return Err("a Kubernetes component uses the Lease with this name; choose another name".to_owned());
    }
    if !kcp_rules::syntax::is_dns1123_subdomain(text.as_bytes()) {
        return Err("expected a valid Lease name: lower-case letters, digits, - and .".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{parse_full_version, parse_lease, parse_minor};

    #[test]
    fn versions_and_names_are_parsed() {
        for (text, expected) in [
            ("v1.36.0", Some(36)),
            ("1.35", Some(35)),
            ("v2.0.0", None),
            ("x", None),
        ] {
            assert_eq!(parse_minor(text).ok(), expected, "{text}");
        }
        for (text, expected) in [
            ("v1.36.0", Some("v1.36.0")),
            ("1.36.0", Some("v1.36.0")),
            ("1.36", None),
            ("v2.0.0", None),
        ] {
            assert_eq!(parse_full_version(text).ok().as_deref(), expected, "{text}");
        }
        assert!(parse_lease("ipam-migration").is_ok());
        assert!(parse_lease("kube-scheduler").is_err());
        assert!(parse_lease("Bad_Name").is_err());
    }
}
