//! What a lease is given back by: the pool that it was taken from, or the customization itself.

use std::str::FromStr;

use crate::arguments::{parse_cluster_pool, parse_object_name};

/// What a lease is given back by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// All that the holder has from a pool.
    FromPool(String),
    /// One customization.
    Customization(String),
}

impl FromStr for Held {
    type Err = String;

    /// `NAME`, `clusterpool/NAME` and its other spellings; `cdc/NAME`, the group after a dot or not.
    fn from_str(text: &str) -> Result<Self, String> {
        let named = text.split_once('/').filter(|(kind, _)| is_customization(kind));
        match named {
            Some((_, name)) => parse_object_name(name).map(Self::Customization),
            None => parse_cluster_pool(text).map(Self::FromPool).map_err(|why| {
                why.replace(
                    "write NAME or clusterpool/NAME",
                    "write NAME, clusterpool/NAME or cdc/NAME",
                )
            }),
        }
    }
}

/// Hive gives it the short name `cdc`.
fn is_customization(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    let plain = kind.strip_suffix(".hive.openshift.io").unwrap_or(&kind);
    matches!(
        plain,
        "cdc" | "clusterdeploymentcustomization" | "clusterdeploymentcustomizations"
    )
}

#[cfg(test)]
mod tests {
    use super::Held;

    #[test]
    fn a_pool_or_a_customization() {
        for (text, expected) in [
            ("hosts", Ok(Held::FromPool("hosts".to_owned()))),
            ("clusterpool/hosts", Ok(Held::FromPool("hosts".to_owned()))),
            ("cdc/a", Ok(Held::Customization("a".to_owned()))),
            (
                "ClusterDeploymentCustomizations.hive.openshift.io/a",
                Ok(Held::Customization("a".to_owned())),
            ),
            (
                "pod/a",
                Err("pod is not a cluster pool: write NAME, clusterpool/NAME or cdc/NAME".to_owned()),
            ),
        ] {
            assert_eq!(text.parse::<Held>(), expected);
        }
        assert!("cdc/..".parse::<Held>().is_err());
    }
}
