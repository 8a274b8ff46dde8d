//! Parses object names as kubectl does: `NAME` or `KIND/NAME`. Accepted names are safe in URLs.

use kcp_api::{
    Kind,
    kind::{self, CLUSTER_DEPLOYMENT_CUSTOMIZATION, KUBEADM_CONTROL_PLANE},
};
use kcp_client::{
    Connection, Error, ReadLimit,
    reader::Reader,
    reads::{discover, read_control_plane_name},
};
use kcp_rules::syntax::is_dns1123_subdomain;

/// A kind that the user may write before the slash of `KIND/NAME`.
#[derive(Clone, Copy, Debug)]
pub struct NamedKind {
    /// The kind with its article, for messages, such as `a control plane`.
    title: &'static str,
    /// The forms of a name that are accepted, for the error message.
    spellings: &'static str,
    pub kind: Kind,
    /// The singular, the plural and the short name of the kind.
    names: [&'static str; 3],
}

/// The kind KubeadmControlPlane, whose short name is `kcp`.
const CONTROL_PLANE: NamedKind = NamedKind {
    title: "a control plane",
    spellings: "NAME or kcp/NAME",
    kind: KUBEADM_CONTROL_PLANE,
    names: ["kubeadmcontrolplane", "kubeadmcontrolplanes", "kcp"],
};

/// The kind ClusterPool, whose short name is `cp`.
const CLUSTER_POOL: NamedKind = NamedKind {
    title: "a cluster pool",
    spellings: "NAME or clusterpool/NAME",
    kind: kind::CLUSTER_POOL,
    names: ["clusterpool", "clusterpools", "cp"],
};

/// [`CONTROL_PLANE`], with the error message of commands that also accept the Cluster of a control plane.
const CONTROL_PLANE_OR_CLUSTER: NamedKind = NamedKind {
    title: "a control plane or a cluster",
    spellings: "NAME, kcp/NAME or cluster/NAME",
    ..CONTROL_PLANE
};

/// The kind Cluster, whose short name is `cl`.
const CLUSTER: NamedKind = NamedKind {
    title: "a cluster",
    spellings: "NAME or cluster/NAME",
    kind: kind::CLUSTER,
    names: ["cluster", "clusters", "cl"],
};

/// The kind Machine, whose short name is `ma`.
pub const MACHINE: NamedKind = NamedKind {
    title: "a Machine",
    spellings: "NAME or machine/NAME",
    kind: kind::MACHINE,
    names: ["machine", "machines", "ma"],
};

/// The kind Node, whose short name is `no`.
const NODE: NamedKind = NamedKind {
    title: "a Node",
    spellings: "NAME or node/NAME",
    kind: kind::NODE,
    names: ["node", "nodes", "no"],
};

/// The kind ClusterDeploymentCustomization, whose short name is `cdc`.
const CUSTOMIZATION: NamedKind = NamedKind {
    title: "a customization",
    spellings: "NAME or cdc/NAME",
    kind: CLUSTER_DEPLOYMENT_CUSTOMIZATION,
    names: [
        "clusterdeploymentcustomization",
        "clusterdeploymentcustomizations",
        "cdc",
    ],
};

/// The kinds whose names completion lists; Node is not one of them. If an argument accepts several kinds, a name without a kind is
/// taken to be of the kind that comes first here.
pub const KINDS: [&NamedKind; 5] = [&CONTROL_PLANE, &CLUSTER_POOL, &MACHINE, &CUSTOMIZATION, &CLUSTER];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlPlaneName {
    Own(String),
    OfCluster(String),
}

impl ControlPlaneName {
    /// The name of the control plane. Reads the Cluster if the user named the Cluster instead.
    pub async fn read(&self, reader: &Reader<'_>, limit: ReadLimit) -> Result<String, Error> {
        match self {
            Self::Own(name) => Ok(name.clone()),
            Self::OfCluster(cluster) => {
                let namespace = &reader.connection.namespace;
                read_control_plane_name(reader, namespace, cluster, limit).await
            }
        }
    }

    /// Like [`Self::read`], without a reader. Sends no request if the user gave the name of the control plane.
    pub async fn resolve(&self, connection: &Connection, limit: ReadLimit) -> Result<String, Error> {
        if let Self::Own(name) = self {
            return Ok(name.clone());
        }
        let reader = discover(connection, limit).await?;
        self.read(&reader, limit).await
    }
}

impl NamedKind {
    fn parse(&self, text: &str) -> Result<String, String> {
        let Some((kind, name)) = text.split_once('/') else {
            return parse_object_name(text);
        };
        if self.is_named(kind) {
            return parse_object_name(name);
        }
        let Self { title, spellings, .. } = self;
        Err(format!(
            "{} is not {title}: write {spellings}",
            kind.to_ascii_lowercase()
        ))
    }

    /// The kind without its article, such as `control plane`.
    pub fn noun(&self) -> &'static str {
        self.title.split_once(' ').map_or(self.title, |(_, noun)| noun)
    }

    pub const fn short_name(&self) -> &'static str {
        let [_, _, short] = self.names;
        short
    }

    /// Whether `kind` is one of the kind's names, optionally with `.GROUP`.
    pub fn is_named(&self, kind: &str) -> bool {
        let kind = kind.to_ascii_lowercase();
        let plain = kind
            .strip_suffix(self.kind.group)
            .and_then(|kind| kind.strip_suffix('.'))
            .unwrap_or(&kind);
        self.names.contains(&plain)
    }
}

/// Parses the name of a control plane (`NAME`, `kcp/NAME` or `kubeadmcontrolplane/NAME`) or of its Cluster (`cluster/NAME`).
/// `.GROUP` may follow each kind.
pub fn parse_control_plane(text: &str) -> Result<ControlPlaneName, String> {
    let named = text.split_once('/').filter(|(kind, _)| CLUSTER.is_named(kind));
    if let Some((_, name)) = named {
        return parse_object_name(name).map(ControlPlaneName::OfCluster);
    }
    CONTROL_PLANE_OR_CLUSTER.parse(text).map(ControlPlaneName::Own)
}

/// Parses the name of a cluster pool: `NAME`, `cp/NAME` or `clusterpool/NAME`, optionally with `.GROUP`.
pub fn parse_cluster_pool(text: &str) -> Result<String, String> {
    CLUSTER_POOL.parse(text)
}

/// Parses the name of a Machine: `NAME`, `machine/NAME` or `ma/NAME`, optionally with `.GROUP`.
pub fn parse_machine(text: &str) -> Result<String, String> {
    MACHINE.parse(text)
}

/// Parses the name of a Node: `NAME`, `node/NAME` or `no/NAME`.
pub fn parse_node(text: &str) -> Result<String, String> {
    NODE.parse(text)
}

/// Parses the name of a customization, an entry of a pool's inventory: `NAME`, `cdc/NAME` or
/// `clusterdeploymentcustomization/NAME`, optionally with `.GROUP`.
pub fn parse_customization(text: &str) -> Result<String, String> {
    CUSTOMIZATION.parse(text)
}

/// Parses the name of any object: a DNS subdomain, as most kinds require.
pub fn parse_object_name(text: &str) -> Result<String, String> {
    if is_dns1123_subdomain(text.as_bytes()) {
        return Ok(text.to_owned());
    }
    Err(
        "a name must be at most 253 characters long and contain only lowercase letters, digits, '-' and '.'; each part \
         between dots must begin and end with a letter or digit"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use kcp_client::parse_namespace;

    use super::{
        ControlPlaneName, parse_cluster_pool, parse_control_plane, parse_customization, parse_machine,
    };

    #[test]
    fn accepts_a_name_with_or_without_its_kind() {
        for text in [
            "c1-cp",
            "kcp/c1-cp",
            "kubeadmcontrolplane/c1-cp",
            "KubeadmControlPlane/c1-cp",
            "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io/c1-cp",
        ] {
            let name = ControlPlaneName::Own("c1-cp".to_owned());
            assert_eq!(parse_control_plane(text), Ok(name), "{text}");
        }
        for text in [
            "p.1",
            "cp/p.1",
            "clusterpool/p.1",
            "ClusterPool/p.1",
            "clusterpools.hive.openshift.io/p.1",
        ] {
            assert_eq!(parse_cluster_pool(text).as_deref(), Ok("p.1"), "{text}");
        }
        // `-o name` prints the last form.
        for text in ["a", "cdc/a", "clusterdeploymentcustomization.hive.openshift.io/a"] {
            assert_eq!(parse_customization(text).as_deref(), Ok("a"), "{text}");
        }
        for text in ["m.1", "machine/m.1", "ma/m.1", "machines.cluster.x-k8s.io/m.1"] {
            assert_eq!(parse_machine(text).as_deref(), Ok("m.1"), "{text}");
        }
    }

    #[test]
    fn accepts_a_control_plane_by_its_cluster() {
        for text in ["cluster/edge", "cl/edge", "Clusters.cluster.x-k8s.io/edge"] {
            let name = ControlPlaneName::OfCluster("edge".to_owned());
            assert_eq!(parse_control_plane(text), Ok(name), "{text}");
        }
        assert!(parse_control_plane("cluster/..").is_err());
    }

    #[test]
    fn rejects_other_kinds() {
        assert_eq!(
            parse_control_plane("Pod/c1"),
            Err("pod is not a control plane or a cluster: write NAME, kcp/NAME or cluster/NAME".to_owned())
        );
        assert_eq!(
            parse_cluster_pool("cdc/p"),
            Err("cdc is not a cluster pool: write NAME or clusterpool/NAME".to_owned())
        );
        assert_eq!(
            parse_customization("pod/a"),
            Err("pod is not a customization: write NAME or cdc/NAME".to_owned())
        );
        assert_eq!(
            parse_machine("kcp/m"),
            Err("kcp is not a Machine: write NAME or machine/NAME".to_owned())
        );
        for text in [
            "kcphive.openshift.io/a",
            "kcp.hive.openshift.io/a",
            "cp.controlplane.cluster.x-k8s.io/a",
        ] {
            assert!(parse_control_plane(text).is_err(), "{text}");
            assert!(parse_cluster_pool(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rejects_impossible_names() {
        for name in [
            "",
            ".",
            "..",
            "../c1",
            "a/b",
            "a..b",
            "-a",
            "a-",
            "C1",
            "c1?x=y",
            "..%2f",
            "c1\u{1b}[31m",
            &"a".repeat(254),
        ] {
            assert!(parse_control_plane(name).is_err(), "{name}");
            assert!(parse_control_plane(&format!("kcp/{name}")).is_err(), "{name}");
            assert!(parse_cluster_pool(name).is_err(), "{name}");
            assert!(parse_cluster_pool(&format!("cp/{name}")).is_err(), "{name}");
            assert!(parse_namespace(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_namespace_has_no_dots() {
        assert_eq!(parse_namespace("kube-system").as_deref(), Ok("kube-system"));
        assert!(parse_namespace("a.b").is_err());
        assert!(parse_namespace(&"a".repeat(64)).is_err());
    }
}
