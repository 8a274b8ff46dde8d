//! What an upgrade means beyond the control plane's own Machines.

use serde_json::Value;

use crate::{
    kubelet_skew,
    verbs::upgrade::{image_tag, removal::removals, workers::Workers},
};

/// What there is to say of an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    /// Why it is refused, a line each: never overridden.
    pub refusals: Vec<String>,
    /// What to know, and what may have to be changed first.
    pub notices: Vec<Notice>,
}

/// Something to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// For people.
    pub message: String,
    /// Where it is said.
    pub source: Option<&'static str>,
}

/// Assesses an upgrade of a control plane whose `kubeadmConfigSpec` is `config`.
pub fn assess(from: &str, to: &str, config: &Value, workers: &Workers) -> Assessment {
    let unserved = kubelet_skew::unserved(&workers.known, to);
    let removed = removals(from, to, config).into_iter().map(|removal| Notice {
        message: removal.message(),
        source: Some(removal.source),
    });
    let tags = image_tag::outdated(config, to)
        .into_iter()
        .map(|outdated| Notice {
            message: outdated.message(to),
            source: None,
        });
    let unread = workers.unread.iter().map(|line| Notice {
        message: format!("{line}; workers may be too old for {to}"),
        source: None,
    });
    Assessment {
        refusals: unserved
            .iter()
            .map(|skewed| kubelet_skew::message(skewed, to))
            .collect(),
        notices: removed.chain(tags).chain(unread).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Assessment, assess};
    use crate::{kubelet_skew::Worker, verbs::upgrade::workers::Workers};

    #[test]
    fn nothing_to_say() {
        assert_eq!(
            assess("v1.33.6", "v1.34.2", &json!({}), &Workers::default()),
            Assessment::default()
        );
    }

    #[test]
    fn all_there_is_to_say() {
        let config = json!({"clusterConfiguration": {
            "apiServer": {"extraArgs": [{"name": "cloud-provider", "value": "external"}]},
            "dns": {"imageTag": "v1.10.1"}}});
        let workers = Workers {
            known: vec![Worker {
                object: "Node/w1".to_owned(),
                version: "v1.29.3".to_owned(),
            }],
            unread: vec!["MachinePools were not read: forbidden".to_owned()],
        };
        let Assessment { refusals, notices } = assess("v1.32.4", "v1.33.6", &config, &workers);
        assert_eq!(
            refusals,
            [
                "Node/w1: kubelet v1.29.3 would be 4 minor versions behind an API server of v1.33.6, and 3 are allowed; \
              upgrade the workers first"
            ]
        );
        let told: Vec<_> = notices
            .iter()
            .map(|notice| (notice.message.as_str(), notice.source))
            .collect();
        assert_eq!(
            told,
            [
                (
                    "from v1.33 on kube-apiserver does not start with --cloud-provider, which is given: remove it",
                    Some("https://github.com/kubernetes/kubernetes/pull/130162")
                ),
                (
                    "CoreDNS stays at v1.10.1, which clusterConfiguration.dns.imageTag pins; kubeadm of v1.33.6 brings \
                     v1.12.0 or newer: raise or remove the tag",
                    None
                ),
                (
                    "MachinePools were not read: forbidden; workers may be too old for v1.33.6",
                    None
                ),
            ]
        );
    }
}
