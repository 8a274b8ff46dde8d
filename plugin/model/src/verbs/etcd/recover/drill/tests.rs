//! Each need, if it is there, missing or unknown.

use kcp_api::{metadata::Time, names::annotation, snapshot_record::SnapshotRecord};

use super::{
    Answer::{self, No, Unknown, Yes},
    SnapshotContent, drill,
};
use crate::{
    snapshot::{ControllerLease, Reading, Snapshot},
    testing::{
        objects::{annotate, minutes_ago, now, pause, use_external_etcd},
        snapshot::{failure, observed},
    },
};

fn lease(minutes: i64) -> Reading<Option<ControllerLease>> {
    Reading::Read(Some(ControllerLease {
        name: "lease".to_owned(),
        holder: Some("pod-1".to_owned()),
        renewed: Some(minutes_ago(minutes)),
        acquired: None,
        duration_seconds: Some(15),
    }))
}

fn record(observed: &mut Snapshot, minutes: i64, place: Option<&str>) {
    let record = SnapshotRecord {
        uid: observed.control_plane.metadata.uid.clone().unwrap_or_default(),
        completed: minutes_ago(minutes),
        member: "node-m2".to_owned(),
        bytes: 20_512,
        place: place.map(str::to_owned),
    };
    let text = serde_json::to_string(&record).expect("JSON");
    annotate(
        &mut observed.control_plane.metadata,
        annotation::ETCD_SNAPSHOT,
        &text,
    );
}

/// Everything is there.
fn prepared() -> Snapshot {
    let mut observed = observed();
    record(&mut observed, 60, Some("s3://b/edge.db"));
    observed.controller_lease = lease(0);
    observed.machine_leases.core = lease(0);
    observed.machine_leases.bootstrap = lease(0);
    for node in observed.nodes() {
        node.etcd_images = vec!["registry.k8s.io/etcd:3.6.6-0".to_owned()];
    }
    observed
}

/// The needs whose answer is not yes, with what was found and what to do.
fn missing(observed: &Snapshot, content: Option<&SnapshotContent>) -> Vec<(&'static str, Answer, String)> {
    let needs = drill(observed, content, now()).expect("etcd is stacked");
    assert!(
        needs
            .iter()
            .all(|need| (need.answer == Yes) == need.remedy.is_none())
    );
    let missing = needs.into_iter().filter(|need| need.answer != Yes);
    missing
        .map(|need| {
            let remedy = need.remedy.unwrap_or_default();
            (need.id, need.answer, format!("{}; {remedy}", need.found))
        })
        .collect()
}

#[test]
fn each_need_has_an_answer() {
    let needs = drill(&prepared(), Some(&SnapshotContent::Intact), now()).expect("etcd is stacked");
    let lines = needs
        .iter()
        .map(|need| format!("{:?} {}: {}\n", need.answer, need.id, need.found));
    insta::assert_snapshot!(lines.collect::<String>());
}

/// How the control plane differs from a prepared one, and the needs whose answer is not yes, with the beginning of what is said.
type Case = (
    &'static str,
    fn(&mut Snapshot),
    &'static [(&'static str, Answer, &'static str)],
);

fn assert_missing(cases: &[Case]) {
    for (name, change, expected) in cases {
        let mut observed = prepared();
        change(&mut observed);
        let found = missing(&observed, Some(&SnapshotContent::Intact));
        let answers: Vec<_> = found.iter().map(|(id, answer, _)| (*id, *answer)).collect();
        let expected_answers: Vec<_> = expected.iter().map(|(id, answer, _)| (*id, *answer)).collect();
        assert_eq!(answers, expected_answers, "{name}: {found:#?}");
        for ((id, _, text), (_, _, start)) in found.iter().zip(*expected) {
            let end = match *id {
                "snapshot-recent" | "snapshot-intact" => {
                    "kubectl kcp etcd snapshot c1-cp -n d --output-file s3://BUCKET/PREFIX/"
                }
                "host-can-restore" => {
                    "on the host of the Machine, install etcdutl, in the version of etcd, in a folder on PATH"
                }
                _ => "",
            };
            assert!(text.starts_with(start) && text.ends_with(end), "{name}: {text}");
        }
    }
}

#[test]
fn the_snapshot_is_recent_and_stored() {
    assert_missing(&[
        ("everything is there", |_| {}, &[]),
        (
            "an old snapshot",
            |o| record(o, 60 * 25, Some("s3://b/edge.db")),
            &[(
                "snapshot-recent",
                No,
                "the last recorded snapshot of etcd is 1d1h old, of member node-m2; save a snapshot, and let a CronJob repeat the command: ",
            )],
        ),
        (
            "no snapshot",
            |o| o.control_plane.metadata.annotations = None,
            &[
                (
                    "snapshot-recent",
                    No,
                    "no snapshot of etcd is recorded; save a snapshot, and let a CronJob repeat the command: ",
                ),
                (
                    "snapshot-intact",
                    Unknown,
                    "the control plane does not record where a snapshot is stored; save a snapshot to a file or to S3: ",
                ),
            ],
        ),
        (
            "a snapshot without a place",
            |o| record(o, 60, None),
            &[(
                "snapshot-intact",
                Unknown,
                "the control plane does not record where a snapshot is stored; save a snapshot to a file or to S3: ",
            )],
        ),
    ]);
}

#[test]
fn both_clusters_respond_and_controllers_run() {
    assert_missing(&[
        (
            "a read fails",
            |o| o.failed_reads.push(failure("Machine", "forbidden")),
            &[(
                "management-access",
                Unknown,
                "forbidden; make this object readable, and run the command again",
            )],
        ),
        (
            "the Cluster cannot be read",
            |o| o.cluster = Reading::Failed(failure("Cluster/c1", "forbidden")),
            &[
                (
                    "management-access",
                    Unknown,
                    "Cluster/c1: forbidden; make this object readable, and run the command again",
                ),
                (
                    "not-paused",
                    Unknown,
                    "Cluster/c1: forbidden; make this object readable, and run the command again",
                ),
                (
                    "machines-can-be-created",
                    Unknown,
                    "Cluster/c1: forbidden; make this object readable, and run the command again",
                ),
            ],
        ),
        (
            "the Nodes cannot be read",
            |o| o.workload().nodes = Reading::Failed(failure("Node", "forbidden")),
            &[
                (
                    "workload-access",
                    Unknown,
                    "forbidden; make this object readable, and run the command again",
                ),
                (
                    "host-can-restore",
                    Unknown,
                    "Machine m1: its Node could not be read, so its images are unknown; ",
                ),
                (
                    "host-can-restore",
                    Unknown,
                    "Machine m2: its Node could not be read, so its images are unknown; ",
                ),
                (
                    "host-can-restore",
                    Unknown,
                    "Machine m3: its Node could not be read, so its images are unknown; ",
                ),
            ],
        ),
        (
            "etcd was not asked",
            |o| o.etcd = Reading::NotYet,
            &[(
                "workload-access",
                Unknown,
                "the members of etcd were not queried; see the status of the control plane: kubectl kcp status c1-cp -n d",
            )],
        ),
        (
            "a member does not respond",
            |o| o.kill(3),
            &[(
                "workload-access",
                No,
                "etcd member node-m3 does not respond; see the status of the control plane: kubectl kcp status c1-cp -n d",
            )],
        ),
        (
            "a controller has stopped",
            |o| o.machine_leases.core = lease(60),
            &[(
                "controller-runs",
                No,
                "pod-1 last renewed the Lease of Cluster API's core controller 1h ago; look at the Pods of Cluster API's core \
                 controller",
            )],
        ),
    ]);
}

#[test]
fn machines_can_be_created() {
    assert_missing(&[
        (
            "a Lease that does not exist, and one that cannot be read",
            |o| {
                o.controller_lease = Reading::Read(None);
                o.machine_leases.bootstrap = Reading::Failed(failure("Lease/b", "forbidden"));
            },
            &[
                (
                    "controller-runs",
                    Unknown,
                    "no process holds the Lease of Cluster API's control plane controller; look at the Pods of Cluster API's \
                     control plane controller",
                ),
                (
                    "controller-runs",
                    Unknown,
                    "Lease/b: forbidden; make this object readable, and run the command again",
                ),
            ],
        ),
        (
            "paused",
            |o| pause(&mut o.control_plane.metadata),
            &[(
                "not-paused",
                No,
                "the control plane is paused: no controller reconciles it; resume the control plane: kubectl kcp rollout resume \
                 c1-cp -n d",
            )],
        ),
        (
            "no infrastructure template",
            |o| {
                let reference = o.control_plane.spec.infrastructure_ref.clone();
                o.templates.insert(reference, Reading::Read(false));
            },
            &[("machines-can-be-created", No, "")],
        ),
    ]);
}

#[test]
fn each_host_has_etcdutl() {
    assert_missing(&[
        (
            "the template was not read",
            |o| o.templates.clear(),
            &[(
                "machines-can-be-created",
                Unknown,
                "it is unknown whether the infrastructure template exists; see the status of the control plane: kubectl kcp status c1-cp -n d",
            )],
        ),
        (
            "images of several versions, and a Node without images",
            |o| {
                o.nodes()[0].etcd_images = vec!["r/etcd:3.5.12-0".to_owned()];
                o.nodes()[1].etcd_images = vec!["r/etcd:3.5.12-0".to_owned(), "r/etcd:3.6.5-0".to_owned()];
                o.nodes()[2].etcd_images.clear();
            },
            &[
                (
                    "host-can-restore",
                    No,
                    "Machine m1 has the image of etcd 3.5.12-0, which has no etcdutl; ",
                ),
                (
                    "host-can-restore",
                    Unknown,
                    "Machine m2: it is unknown whether the image of etcd 3.6.5-0 has etcdutl; ",
                ),
                (
                    "host-can-restore",
                    Unknown,
                    "Machine m3: its Node lists no image of etcd; a kubelet lists at most 50 images; ",
                ),
            ],
        ),
        (
            "a Machine that is being deleted, and one without a Node",
            |o| {
                o.machine(1).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
                o.machine(2).status.node_name = None;
            },
            &[(
                "host-can-restore",
                Unknown,
                "Machine m2: it has no Node, so its images are unknown; ",
            )],
        ),
    ]);
}

#[test]
fn an_external_etcd_cannot_be_recovered() {
    let mut observed = prepared();
    use_external_etcd(&mut observed.control_plane.spec);
    for content in [None, Some(&SnapshotContent::Intact)] {
        let refusal = drill(&observed, content, now()).expect_err("etcd is external");
        assert_eq!(
            refusal.why,
            [
                "etcd is external: Cluster API does not manage its members, and no host of the control plane has its data"
            ]
        );
    }
}

#[test]
fn a_snapshot_that_cannot_be_read_is_unknown_and_a_damaged_one_is_none() {
    let why = || "its hash does not match".to_owned();
    for (content, expected, start) in [
        (
            SnapshotContent::Damaged { why: why() },
            No,
            "s3://b/edge.db cannot be restored: its hash does not match; save another snapshot: ",
        ),
        (
            SnapshotContent::Unreadable { why: why() },
            Unknown,
            "s3://b/edge.db could not be read: its hash does not match; run the command on a machine that can read the snapshot",
        ),
    ] {
        let found = missing(&prepared(), Some(&content));
        let [(id, answer, text)] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!((*id, *answer), ("snapshot-intact", expected));
        assert!(text.starts_with(start), "{text}");
    }
}
