//! The decision of `etcd restore`: whether a snapshot belongs to the cluster of a control plane, and on which host it is restored.
//!
//! A restored snapshot becomes a new etcd cluster, so the id of the etcd cluster says nothing. The CA of the Kubernetes cluster
//! shows where the snapshot comes from: each cluster has a CA of its own, and kube-controller-manager publishes this CA in each
//! namespace, in the `ConfigMap` `kube-root-ca.crt`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::{
    change::decision::Refusal,
    snapshot::Snapshot,
    staleness::format_age,
    verbs::etcd::{
        members::{EtcdCluster, refusal},
        recover::remains::{Remains, choose, hosts, refuse_unsuitable},
    },
};

/// The key of the `ConfigMap` in etcd, unless kube-apiserver has another `--etcd-prefix`.
pub const AUTHORITY_KEY: &str = "/registry/configmaps/kube-system/kube-root-ca.crt";

/// How each value begins that kube-apiserver has encrypted.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// The key of a Node in etcd. The API calls the resource `nodes`, but the keys in etcd still have its first name, `minions`.
pub fn node_key(node: &str) -> String {
    format!("/registry/minions/{node}")
}

/// A snapshot that was read on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestorableSnapshot {
    /// The file or the object.
    pub place: String,
    /// When the snapshot began or was complete. `None` if it is unknown.
    pub taken: Option<Timestamp>,
    pub bytes: u64,
    /// The newest revision in it.
    pub revision: i64,
    pub keys: u64,
    /// The value of [`AUTHORITY_KEY`]. `None` if the snapshot has no such key.
    pub authority: Option<Vec<u8>>,
    /// The Nodes of the control plane's Machines that the snapshot contains.
    pub nodes: BTreeSet<String>,
}

/// Decides whether the snapshot may be restored, and on which host. `authority` is the CA of the Cluster in PEM format, and
/// `requested` the name of the Machine or Node of the host. Fails if the snapshot belongs to another cluster, it is unknown to
/// which cluster it belongs, or no host can take the snapshot.
pub fn decide(
    observed: &Snapshot,
    snapshot: &RestorableSnapshot,
    authority: &[u8],
    requested: Option<&str>,
    now: Timestamp,
) -> Result<Remains, Refusal> {
    refuse_unsuitable(observed)?;
    refuse_other_cluster(observed, snapshot, authority)?;
    let hosts = hosts(observed);
    let contains = |node: &str| snapshot.nodes.contains(node);
    let first = hosts
        .iter()
        .find(|host| !host.is_deleting && contains(&host.node));
    let first = first.map(|host| host.machine.as_str());
    let chosen = choose(observed, &hosts, requested.or(first))?;
    let Some(chosen) = chosen.filter(|host| contains(&host.node)) else {
        let name = requested.unwrap_or("any current Machine");
        let mut refusal = refusal(format!(
            "the snapshot was taken before {name} joined: it does not contain the Node, so Cluster API would not find the member \
             there"
        ));
        let known = hosts
            .iter()
            .filter(|host| !host.is_deleting && contains(&host.node));
        let known: Vec<&str> = known.map(|host| host.machine.as_str()).collect();
        refusal.remedies.push(if known.is_empty() {
            "restore a newer snapshot".to_owned()
        } else {
            format!(
                "restore the snapshot on the host of another Machine, with --survivor: {}",
                known.join(", ")
            )
        });
        return Err(refusal);
    };
    Ok(Remains {
        survivor: Some(chosen.node.clone()),
        losses: losses(observed, snapshot, now),
        hosts,
        doubt: None,
    })
}

/// Fails if the snapshot belongs to another cluster, or it is unknown to which cluster it belongs.
fn refuse_other_cluster(
    observed: &Snapshot,
    snapshot: &RestorableSnapshot,
    authority: &[u8],
) -> Result<(), Refusal> {
    let cluster = observed.control_plane.cluster().unwrap_or_default();
    let unknown = |why: &str| {
        let why = format!("it is unknown whether the snapshot is of Cluster {cluster}: {why}");
        Err(refusal(why))
    };
    let Some(value) = &snapshot.authority else {
        return unknown(&format!("it has no key {AUTHORITY_KEY}"));
    };
    if value.starts_with(ENCRYPTED) {
        return unknown(&format!("the value of its key {AUTHORITY_KEY} is encrypted"));
    }
    let (theirs, own) = (certificates(value), certificates(authority));
    if theirs.is_empty() {
        return unknown(&format!(
            "the value of its key {AUTHORITY_KEY} contains no certificate"
        ));
    }
    if own.is_empty() {
        return unknown(&format!("Secret {cluster}-ca contains no certificate"));
    }
    if theirs.is_disjoint(&own) {
        return Err(refusal(format!(
            "the snapshot is of another cluster: its CA is not the CA of Cluster {cluster}"
        )));
    }
    Ok(())
}

/// The certificates in PEM format in these bytes, each without line breaks. kube-apiserver stores text as it is, between other bytes.
fn certificates(bytes: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(bytes);
    let blocks = text.split("-----BEGIN CERTIFICATE-----").skip(1);
    let blocks = blocks.filter_map(|block| Some(block.split_once("-----END CERTIFICATE-----")?.0));
    blocks
        .map(|block| block.chars().filter(|c| !c.is_whitespace()).collect())
        .collect()
}

fn losses(observed: &Snapshot, snapshot: &RestorableSnapshot, now: Timestamp) -> Vec<String> {
    let taken = match snapshot.taken {
        Some(taken) => format!("it is from {taken}, {} ago", format_age(taken, now)),
        None => "it is unknown when it was taken".to_owned(),
    };
    let mut losses = vec![format!(
        "every write after the snapshot {}: {taken}; the snapshot has revision {} and {} keys",
        snapshot.place, snapshot.revision, snapshot.keys
    )];
    let quorum = EtcdCluster::new(observed).ok();
    let quorum = quorum.filter(|cluster| cluster.select_voter().is_ok());
    let (name, namespace) = (observed.control_plane.name(), observed.control_plane.namespace());
    let replaced = quorum.map_or_else(
        || {
            format!(
                "the data of a member that is left, which may be newer; to continue from that member instead: kubectl kcp etcd \
                 recover {name} -n {namespace}"
            )
        },
        |cluster| {
            let votes = cluster.votes();
            format!("the current data of etcd, which still has a quorum: {votes}")
        },
    );
    losses.push(replaced);
    losses
}

#[cfg(test)]
mod tests {
    use kcp_api::metadata::Time;

    use super::{RestorableSnapshot, decide};
    use crate::{
        snapshot::Snapshot,
        testing::{
            objects::{minutes_ago, now, use_external_etcd},
            snapshot::{lost, observed},
        },
    };

    const OWN: &[u8] = b"-----BEGIN CERTIFICATE-----\nAAAA\nBBBB\n-----END CERTIFICATE-----\n";

    fn restorable() -> RestorableSnapshot {
        RestorableSnapshot {
            place: "s3://b/d_c1-cp_20260821T110000Z.db".to_owned(),
            taken: Some(minutes_ago(60)),
            bytes: 20_512,
            revision: 1234,
            keys: 321,
            authority: Some([b"k8s\0\n\x0c\n\x02v1\x12\tConfigMap\x12\xff\x01", OWN, b"\x1a\0"].concat()),
            nodes: ["node-m1", "node-m2"].map(str::to_owned).into(),
        }
    }

    type Change = fn(&mut Snapshot, &mut RestorableSnapshot);

    /// How the two differ from those of a restore, the requested host, and the chosen one or why there is none.
    type HostCase = (
        &'static str,
        Change,
        Option<&'static str>,
        Result<&'static str, String>,
    );

    fn decided(change: Change, requested: Option<&str>) -> Result<String, String> {
        let (mut observed, mut snapshot) = (lost(), restorable());
        change(&mut observed, &mut snapshot);
        match decide(&observed, &snapshot, OWN, requested, now()) {
            Ok(remains) => Ok(remains.survivor.expect("a host")),
            Err(refusal) => Err([refusal.why, refusal.remedies].concat().join("; ")),
        }
    }

    #[test]
    fn only_a_snapshot_of_the_same_cluster_is_restored() {
        let unknown = "it is unknown whether the snapshot is of Cluster c1: ";
        let key = "key /registry/configmaps/kube-system/kube-root-ca.crt";
        let cases: &[(&str, Change, Result<&str, String>)] = &[
            ("its own", |_, _| {}, Ok("node-m1")),
            (
                "another line length, and another CA beside it",
                |_, s| {
                    let other = b"-----BEGIN CERTIFICATE-----\nZZZZ\n-----END CERTIFICATE-----\n".as_slice();
                    let own = b"-----BEGIN CERTIFICATE-----\nAAAABBBB\n-----END CERTIFICATE-----".as_slice();
                    s.authority = Some([other, own].concat());
                },
                Ok("node-m1"),
            ),
            (
                "another cluster",
                |_, s| {
                    s.authority =
                        Some(b"-----BEGIN CERTIFICATE-----\nAAAABBBC\n-----END CERTIFICATE-----".to_vec());
                },
                Err("the snapshot is of another cluster: its CA is not the CA of Cluster c1".to_owned()),
            ),
            (
                "no ConfigMap",
                |_, s| s.authority = None,
                Err(format!("{unknown}it has no {key}")),
            ),
            (
                "encrypted",
                |_, s| s.authority = Some(b"k8s:enc:secretbox:v1:key:".to_vec()),
                Err(format!("{unknown}the value of its {key} is encrypted")),
            ),
            (
                "no certificate",
                |_, s| s.authority = Some(b"k8s\0".to_vec()),
                Err(format!("{unknown}the value of its {key} contains no certificate")),
            ),
        ];
        for (name, change, expected) in cases {
            let expected = expected.clone().map(str::to_owned);
            assert_eq!(decided(*change, None), expected, "{name}");
        }
        let without_authority = decide(&lost(), &restorable(), b"", None, now());
        let why = without_authority.expect_err("unknown").why.join("; ");
        assert_eq!(why, format!("{unknown}Secret c1-ca contains no certificate"));
    }

    #[test]
    fn the_host_stays_and_its_node_is_in_the_snapshot() {
        let before = "the snapshot was taken before m3 joined: it does not contain the Node, so Cluster API would not find the member there";
        let cases: &[HostCase] = &[
            ("by its Machine", |_, _| {}, Some("m2"), Ok("node-m2")),
            (
                "the first one is being deleted",
                |o, _| o.machine(1).metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                None,
                Ok("node-m2"),
            ),
            (
                "a Machine that joined after the snapshot",
                |_, _| {},
                Some("m3"),
                Err(format!(
                    "{before}; restore the snapshot on the host of another Machine, with --survivor: m1, m2"
                )),
            ),
            (
                "all Machines joined after the snapshot",
                |_, s| s.nodes.clear(),
                Some("m3"),
                Err(format!("{before}; restore a newer snapshot")),
            ),
            (
                "external etcd",
                |o, _| use_external_etcd(&mut o.control_plane.spec),
                None,
                Err(
                    "etcd is external: Cluster API does not manage its members, and no host of the control plane has its data"
                        .to_owned(),
                ),
            ),
        ];
        for (name, change, requested, expected) in cases {
            let expected = expected.clone().map(str::to_owned);
            assert_eq!(decided(*change, *requested), expected, "{name}");
        }
    }

    #[test]
    fn what_is_lost_is_said() {
        let losses = |observed: &Snapshot, snapshot: &RestorableSnapshot| {
            let remains = decide(observed, snapshot, OWN, None, now());
            remains.expect("a host").losses
        };
        let mut snapshot = restorable();
        assert_eq!(
            losses(&lost(), &snapshot),
            [
                "every write after the snapshot s3://b/d_c1-cp_20260821T110000Z.db: it is from 2026-08-21T11:00:00Z, 1h ago; the snapshot has revision 1234 and 321 keys",
                "the data of a member that is left, which may be newer; to continue from that member instead: kubectl kcp etcd recover c1-cp -n d"
            ]
        );
        snapshot.taken = None;
        assert_eq!(
            losses(&observed(), &snapshot),
            [
                "every write after the snapshot s3://b/d_c1-cp_20260821T110000Z.db: it is unknown when it was taken; the snapshot has revision 1234 \
                 and 321 keys",
                "the current data of etcd, which still has a quorum: 3 of 3 voting members healthy, 2 needed for quorum"
            ]
        );
    }
}
