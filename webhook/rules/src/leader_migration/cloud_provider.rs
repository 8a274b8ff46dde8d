//! The cloud providers that Kubernetes contained ("in-tree") until 1.30.

/// In-tree cloud providers, each with the last minor version that has it
/// (`pkg/cloudprovider/providers/providers.go`).
const CLOUD_PROVIDERS: [(&str, u64); 5] = [
    ("openstack", 25),
    ("aws", 26),
    ("azure", 29),
    ("vsphere", 29),
    ("gce", 30),
];

/// The last minor version with any in-tree cloud provider.
pub const LAST_IN_TREE: u64 = 30;

/// From this minor version on, the feature gate `DisableCloudProviders` is on by default. It is locked from 1.31 on.
const DISABLED_SINCE: u64 = 29;

/// Whether a value of `--cloud-provider` names an in-tree cloud provider.
pub fn is_in_tree(provider: &str) -> bool {
    !provider.is_empty() && provider != "external"
}

/// Why a component of a minor version exits at startup with a value of `--cloud-provider`; `None` if it
/// starts. `minor` is `None` in a template, which has no version.
pub fn startup_error(provider: &str, gates: &str, minor: Option<u64>) -> Option<String> {
    if !is_in_tree(provider) {
        return None;
    }
    let Some(minor) = minor.filter(|minor| *minor <= LAST_IN_TREE) else {
        return Some("Kubernetes 1.31 and later have no in-tree cloud providers".to_owned());
    };
    // A name that is not in the table is not an error, because a custom build of Kubernetes can contain other providers.
    let (_, last) = CLOUD_PROVIDERS.iter().find(|(name, _)| *name == provider)?;
    let is_enabled = gates
        .split(',')
        .any(|gate| gate.trim() == "DisableCloudProviders=false");
    if minor > *last {
        Some(format!(
            "Kubernetes 1.{} and later do not have this cloud provider",
            last + 1
        ))
    } else if minor >= DISABLED_SINCE && !is_enabled {
        Some(format!(
            "Kubernetes 1.{minor} disables in-tree cloud providers unless the feature gate DisableCloudProviders is false"
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the sources of 1.27 to 1.37, and from binaries of 1.30.
    #[test]
    fn in_tree_cloud_providers_end_one_by_one() {
        for (provider, gates, minor, expected) in [
            ("", "", 37, false),
            ("external", "", 37, false),
            ("aws", "", 26, false),
            ("aws", "", 27, true),
            ("aws", "DisableCloudProviders=false", 29, true),
            ("azure", "", 28, false),
            ("azure", "", 29, true),
            ("azure", "DisableCloudProviders=false", 29, false),
            ("azure", "DisableCloudProviders=false", 30, true),
            ("gce", "A=true,DisableCloudProviders=false", 30, false),
            ("gce", "DisableCloudProviders=false", 31, true),
            ("demo", "", 30, false),
            ("demo", "", 31, true),
        ] {
            assert_eq!(
                startup_error(provider, gates, Some(minor)).is_some(),
                expected,
                "{provider} at 1.{minor} with {gates}"
            );
        }
    }
}
