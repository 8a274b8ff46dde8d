//! Decides which kubelet versions an API server supports.
//!
//! Source: Kubernetes, Version Skew Policy, kubelet: <https://kubernetes.io/releases/version-skew-policy/#kubelet>.

use kcp_rules::syntax::parse_version;

use crate::snapshot::workers::Worker;

/// The maximum number of minor versions by which a kubelet may lag behind an API server.
const MAX_LAG: u64 = 3;
/// Like [`MAX_LAG`], for kubelets older than v1.25.
const MAX_LAG_BEFORE_1_25: u64 = 2;
/// The minor version of the oldest kubelets that may lag behind by [`MAX_LAG`].
const FIRST_MINOR_WITH_MAX_LAG: u64 = 25;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skew {
    /// The kubelet is too many minor versions behind the API server.
    TooOld { lag: u64, allowed: u64 },
    /// The kubelet is newer than the API server.
    TooNew,
}

/// Returns the version skew between a kubelet and an API server if Kubernetes does not support it. `None` if it does, or
/// if a version is not a semantic version.
pub fn skew(kubelet: &str, server: &str) -> Option<Skew> {
    let (kubelet, server) = (parse_version(kubelet).ok()?, parse_version(server).ok()?);
    if (kubelet.major, kubelet.minor) > (server.major, server.minor) {
        return Some(Skew::TooNew);
    }
    let allowed = max_lag(kubelet.minor);
    let lag = server.minor.saturating_sub(kubelet.minor);
    (kubelet.major == server.major && lag > allowed).then_some(Skew::TooOld { lag, allowed })
}

/// The number of minor versions by which a kubelet lags behind an API server; 0 if the kubelet is newer. `None` if a version is not
/// a semantic version.
pub fn minors_behind(kubelet: &str, server: &str) -> Option<u64> {
    let (kubelet, server) = (parse_version(kubelet).ok()?, parse_version(server).ok()?);
    (kubelet.major == server.major).then(|| server.minor.saturating_sub(kubelet.minor))
}

const fn max_lag(kubelet_minor: u64) -> u64 {
    if kubelet_minor < FIRST_MINOR_WITH_MAX_LAG {
        MAX_LAG_BEFORE_1_25
    } else {
        MAX_LAG
    }
}

/// Returns the oldest minor version of kubelets that an API server supports, such as `v1.32`. `None` if `server` is not a
/// semantic version.
pub fn oldest_supported(server: &str) -> Option<String> {
    let server = parse_version(server).ok()?;
    let mut minors = server.minor.saturating_sub(MAX_LAG)..=server.minor;
    let oldest = minors.find(|minor| server.minor.saturating_sub(*minor) <= max_lag(*minor))?;
    Some(format!("v{}.{oldest}", server.major))
}

/// Returns the workers that an API server of `version` does not support.
pub fn unsupported_workers<'w>(workers: &'w [Worker], version: &str) -> Vec<(&'w Worker, Skew)> {
    let workers = workers.iter();
    workers
        .filter_map(|worker| Some((worker, skew(&worker.version, version)?)))
        .collect()
}

pub fn message((worker, skew): &(&Worker, Skew), version: &str) -> String {
    let Worker {
        object,
        version: kubelet,
        ..
    } = worker;
    match skew {
        Skew::TooOld { lag, allowed } => format!(
            "{object}: kubelet {kubelet} would be {lag} minor versions behind API server {version}, but Kubernetes \
            supports at most {allowed}; upgrade the worker nodes first"
        ),
        Skew::TooNew => {
            format!(
                "{object}: kubelet {kubelet} is newer than API server {version}, which Kubernetes does not support"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Skew, Worker, message, oldest_supported, skew, unsupported_workers};
    use crate::{
        snapshot::{Failure, Reading, Workers, Workload, workload::Node},
        testing::plan::machine,
    };

    fn worker(version: &str) -> Worker {
        Worker {
            object: "Node/w1".to_owned(),
            version: version.to_owned(),
            machines: None,
        }
    }

    #[test]
    fn how_far_a_kubelet_may_be_behind() {
        let too_old = |lag, allowed| Some(Skew::TooOld { lag, allowed });
        for (kubelet, server, expected) in [
            ("v1.34.1", "v1.34.2", None),
            ("v1.31.0", "v1.34.2", None),
            ("v1.30.9", "v1.34.2", too_old(4, 3)),
            ("v1.25.0", "v1.28.0", None),
            ("v1.24.17", "v1.26.0", None),
            ("v1.24.17", "v1.27.0", too_old(3, 2)),
            ("v1.35.0", "v1.34.2", Some(Skew::TooNew)),
            ("v1.34.9", "v1.34.2", None),
            ("v1.31.0-rc.1+build", "v1.35.0", too_old(4, 3)),
            ("unknown", "v1.34.2", None),
            ("v1.30.0", "latest", None),
        ] {
            let workers = [worker(kubelet)];
            let found = unsupported_workers(&workers, server).pop().map(|(_, skew)| skew);
            assert_eq!(found, expected, "{kubelet} and {server}");
        }
    }

    #[test]
    fn the_oldest_supported_kubelet_is_supported_and_the_one_before_is_not() {
        for minor in 4..60_u64 {
            let server = format!("v1.{minor}.0");
            let oldest = oldest_supported(&server).expect("a version");
            assert_eq!(skew(&format!("{oldest}.0"), &server), None, "{server}");
            let before: u64 = oldest["v1.".len()..].parse().expect("a minor version");
            let before = format!("v1.{}.9", before - 1);
            assert!(
                matches!(skew(&before, &server), Some(Skew::TooOld { .. })),
                "{server}"
            );
        }
        assert_eq!(oldest_supported("v1.34.2").as_deref(), Some("v1.31"));
        assert_eq!(oldest_supported("latest"), None);
    }

    #[test]
    fn a_message_says_what_to_do() {
        let (old, new) = (worker("v1.30.9"), worker("v1.35.0"));
        insta::assert_snapshot!(message(&(&old, Skew::TooOld { lag: 4, allowed: 3 }), "v1.34.2"),
            @"Node/w1: kubelet v1.30.9 would be 4 minor versions behind API server v1.34.2, but Kubernetes supports at most 3; upgrade the worker nodes first");
        insta::assert_snapshot!(message(&(&new, Skew::TooNew), "v1.34.2"),
            @"Node/w1: kubelet v1.35.0 is newer than API server v1.34.2, which Kubernetes does not support");
    }

    fn known(object: &str, version: &str) -> Worker {
        Worker {
            object: object.to_owned(),
            version: version.to_owned(),
            machines: None,
        }
    }

    fn workload(nodes: Reading<Vec<Node>>) -> Reading<Workload> {
        Reading::Read(Workload {
            server: "https://c1".to_owned(),
            nodes,
            static_pods: Reading::NotYet,
            kube_proxy: Reading::NotYet,
            core_dns: Reading::NotYet,
            kubeadm_config: Reading::NotYet,
            leases: Reading::NotYet,
            join_reports: Vec::new(),
            connection_risks: Vec::new(),
        })
    }

    #[test]
    fn nodes_of_the_control_plane_are_no_workers() {
        let node = |name: &str, has_control_plane_label| Node {
            name: name.to_owned(),
            kubelet_version: "v1.31.0".to_owned(),
            has_control_plane_label,
            ..Node::default()
        };
        let nodes = vec![node("node-m1", false), node("w1", false), node("other", true)];
        let workers =
            Workers::default().with_nodes(&workload(Reading::Read(nodes)), &[machine("m1", "a", 1)]);
        assert_eq!(workers.workers, [known("Node/w1", "v1.31.0")]);
        assert_eq!(workers.read_failures, Vec::<String>::new());
    }

    #[test]
    fn nodes_that_were_not_read_are_reported() {
        let failure = Failure {
            object: "Node".to_owned(),
            message: "forbidden".to_owned(),
            hint: None,
            ..Failure::default()
        };
        for (reading, line) in [
            (
                Reading::Failed(failure.clone()),
                "could not read the kubelet versions of the nodes: forbidden",
            ),
            (
                workload(Reading::Failed(failure)),
                "could not read the kubelet versions of the nodes: forbidden",
            ),
            (
                Reading::NotYet,
                "could not read the kubelet versions of the nodes: the workload cluster was not read",
            ),
        ] {
            let workers = Workers::default().with_nodes(&reading, &[]);
            assert_eq!(
                (workers.workers, workers.read_failures),
                (vec![], vec![line.to_owned()])
            );
        }
    }
}
