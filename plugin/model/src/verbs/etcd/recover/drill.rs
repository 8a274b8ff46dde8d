//! Finds out whether everything that a recovery or a restore of etcd needs is available. Changes nothing.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _, snapshot_record::SnapshotRecord};
use kcp_rules::topics::etcd::stacked_version;
use serde::Serialize;

use crate::{
    change::decision::Refusal,
    checks::controller::stopped_holder,
    problem::{Problem, pauses},
    snapshot::{ControllerLease, Failure, Reading, Snapshot},
    staleness::format_age,
    verbs::etcd::{recover::remains::refuse_external, snapshot::RECENT},
};

/// The newest version of etcd whose image is known to lack etcdutl (`cluster/images/etcd/Makefile` in Kubernetes).
const WITHOUT_ETCDUTL: (u64, u64, u64) = (3, 5, 12);

/// The oldest version of etcd whose image is known to contain etcdutl.
const WITH_ETCDUTL: (u64, u64, u64) = (3, 6, 6);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    Yes,
    No,
    Unknown,
}

/// Something that a recovery needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Need {
    /// Which need this is, such as `snapshot-recent`. Needs of each Machine follow each other.
    pub id: &'static str,
    /// Whether it is there.
    pub answer: Answer,
    /// What was found.
    pub found: String,
    /// What to do. Absent if the answer is yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Need {
    const fn met(id: &'static str, found: String) -> Self {
        Self {
            id,
            answer: Answer::Yes,
            found,
            remedy: None,
        }
    }

    const fn unmet(id: &'static str, found: String, remedy: String) -> Self {
        Self {
            id,
            answer: Answer::No,
            found,
            remedy: Some(remedy),
        }
    }

    const fn unknown(id: &'static str, found: String, remedy: String) -> Self {
        Self {
            id,
            answer: Answer::Unknown,
            found,
            remedy: Some(remedy),
        }
    }

    fn of_failure(id: &'static str, failure: &Failure) -> Self {
        let remedy = failure.hint.clone();
        let remedy =
            remedy.unwrap_or_else(|| "make this object readable, and run the command again".to_owned());
        Self::unknown(id, failure.text(), remedy)
    }
}

/// What the command found at the place that the record of the last snapshot names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotContent {
    /// The hash in the snapshot matches its content.
    Intact,
    Damaged {
        why: String,
    },
    Unreadable {
        why: String,
    },
}

/// Lists what a recovery needs, and whether it is there. `content` is `None` if no recorded snapshot has a place. The Lease of the
/// control plane controller must have been read. Fails if etcd is external, because such an etcd cannot be recovered.
pub fn drill(
    observed: &Snapshot,
    content: Option<&SnapshotContent>,
    now: Timestamp,
) -> Result<Vec<Need>, Refusal> {
    refuse_external(observed)?;
    let mut needs = vec![
        recent_snapshot(observed, now),
        intact_snapshot(observed, content, now),
        management_access(observed),
        workload_access(observed),
        controller("control plane", &observed.controller_lease, now),
        controller("core", &observed.machine_leases.core, now),
        controller("bootstrap", &observed.machine_leases.bootstrap, now),
        no_pause(observed),
        template(observed),
    ];
    let machines = observed.machines.iter().filter(|machine| !machine.is_deleting());
    needs.extend(machines.map(|machine| restoring_program(observed, machine)));
    Ok(needs)
}

fn save_command(observed: &Snapshot) -> String {
    let (name, namespace) = (observed.control_plane.name(), observed.control_plane.namespace());
    format!("kubectl kcp etcd snapshot {name} -n {namespace} --output-file s3://BUCKET/PREFIX/")
}

fn status_remedy(observed: &Snapshot) -> String {
    let (name, namespace) = (observed.control_plane.name(), observed.control_plane.namespace());
    format!("see the status of the control plane: kubectl kcp status {name} -n {namespace}")
}

fn recent_snapshot(observed: &Snapshot, now: Timestamp) -> Need {
    const ID: &str = "snapshot-recent";
    let remedy = || {
        format!(
            "save a snapshot, and let a CronJob repeat the command: {}",
            save_command(observed)
        )
    };
    let Some(record) = SnapshotRecord::from_control_plane(&observed.control_plane, now) else {
        return Need::unmet(ID, "no snapshot of etcd is recorded".to_owned(), remedy());
    };
    let found = format!(
        "the last recorded snapshot of etcd is {} old, of member {}",
        format_age(record.completed, now),
        record.member
    );
    if now.duration_since(record.completed) <= RECENT {
        return Need::met(ID, found);
    }
    Need::unmet(ID, found, remedy())
}

fn intact_snapshot(observed: &Snapshot, content: Option<&SnapshotContent>, now: Timestamp) -> Need {
    const ID: &str = "snapshot-intact";
    let record = SnapshotRecord::from_control_plane(&observed.control_plane, now);
    let place = record.and_then(|record| record.place);
    match (place, content) {
        (Some(place), Some(SnapshotContent::Intact)) => Need::met(
            ID,
            format!("the hash of the snapshot at {place} matches its content"),
        ),
        (Some(place), Some(SnapshotContent::Damaged { why })) => Need::unmet(
            ID,
            format!("{place} cannot be restored: {why}"),
            format!("save another snapshot: {}", save_command(observed)),
        ),
        (Some(place), Some(SnapshotContent::Unreadable { why })) => Need::unknown(
            ID,
            format!("{place} could not be read: {why}"),
            "run the command on a machine that can read the snapshot, with the necessary credentials"
                .to_owned(),
        ),
        _ => Need::unknown(
            ID,
            "the control plane does not record where a snapshot is stored".to_owned(),
            format!("save a snapshot to a file or to S3: {}", save_command(observed)),
        ),
    }
}

fn management_access(observed: &Snapshot) -> Need {
    const ID: &str = "management-access";
    let failed = observed.failed_reads.first();
    failed.or_else(|| observed.cluster.failure()).map_or_else(
        || {
            Need::met(
                ID,
                "the control plane, its Cluster and its Machines could be read".to_owned(),
            )
        },
        |failure| Need::of_failure(ID, failure),
    )
}

fn workload_access(observed: &Snapshot) -> Need {
    const ID: &str = "workload-access";
    let workload = observed.workload.failure();
    let nodes = observed
        .workload
        .value()
        .and_then(|workload| workload.nodes.failure());
    if let Some(failure) = workload.or(nodes).or_else(|| observed.etcd.failure()) {
        return Need::of_failure(ID, failure);
    }
    let remedy = || status_remedy(observed);
    let Some(survey) = observed.etcd.value() else {
        return Need::unknown(ID, "the members of etcd were not queried".to_owned(), remedy());
    };
    let mut silent = survey.queried.iter().filter(|queried| queried.status().is_err());
    match silent.next() {
        Some(queried) => Need::unmet(
            ID,
            format!("etcd member {} does not respond", queried.name),
            remedy(),
        ),
        None => Need::met(
            ID,
            "the workload cluster's API server and every etcd member respond".to_owned(),
        ),
    }
}

/// Whether a controller runs, according to its leader election Lease.
fn controller(name: &str, lease: &Reading<Option<ControllerLease>>, now: Timestamp) -> Need {
    const ID: &str = "controller-runs";
    let remedy = || format!("look at the Pods of Cluster API's {name} controller");
    if let Some((holder, renewed)) = stopped_holder(lease, now) {
        let age = format_age(renewed, now);
        let found = format!("{holder} last renewed the Lease of Cluster API's {name} controller {age} ago");
        return Need::unmet(ID, found, remedy());
    }
    match lease {
        Reading::Read(Some(lease)) if lease.holder.is_some() && lease.renewed.is_some() => {
            Need::met(ID, format!("Cluster API's {name} controller renews its Lease"))
        }
        Reading::Failed(failure) | Reading::OutOfReach(failure) => Need::of_failure(ID, failure),
        _ => Need::unknown(
            ID,
            format!("no process holds the Lease of Cluster API's {name} controller"),
            remedy(),
        ),
    }
}

fn no_pause(observed: &Snapshot) -> Need {
    const ID: &str = "not-paused";
    let control_plane = &observed.control_plane;
    let Some(pause) = pauses(observed).into_iter().next() else {
        if let Some(failure) = observed.cluster.failure() {
            return Need::of_failure(ID, failure);
        }
        return Need::met(
            ID,
            "neither the control plane nor its Cluster is paused".to_owned(),
        );
    };
    let hint = pause.hint(control_plane.namespace(), control_plane.name());
    Need::unmet(
        ID,
        pause.message(),
        hint.unwrap_or_else(|| "resume it".to_owned()),
    )
}

fn template(observed: &Snapshot) -> Need {
    const ID: &str = "machines-can-be-created";
    let control_plane = &observed.control_plane;
    let reference = &control_plane.spec.infrastructure_ref;
    let mut failed = observed.failed_writes.value().into_iter().flatten();
    if let Some(write) = failed.find(|write| !write.is_deletion) {
        return Need::unmet(
            ID,
            write.message.clone(),
            "remove the cause that the message names".to_owned(),
        );
    }
    match observed.templates.get(reference) {
        Some(Reading::Read(true)) if let Some(failure) = observed.cluster.failure() => {
            Need::of_failure(ID, failure)
        }
        Some(Reading::Read(true)) if !observed.is_infrastructure_ready() => Need::unmet(
            ID,
            "the infrastructure of the Cluster is not ready".to_owned(),
            status_remedy(observed),
        ),
        Some(Reading::Read(true)) => Need::met(
            ID,
            format!(
                "{} {} exists, and the infrastructure of the Cluster is ready",
                reference.kind, reference.name
            ),
        ),
        Some(Reading::Read(false)) => {
            let problem = Problem::no_template(reference);
            let hint = problem.hint(control_plane.namespace(), control_plane.name());
            Need::unmet(
                ID,
                problem.message(),
                hint.unwrap_or_else(|| "create the template".to_owned()),
            )
        }
        Some(Reading::Failed(failure) | Reading::OutOfReach(failure)) => Need::of_failure(ID, failure),
        _ => Need::unknown(
            ID,
            "it is unknown whether the infrastructure template exists".to_owned(),
            status_remedy(observed),
        ),
    }
}

/// Whether the host of a Machine has the program that restores a snapshot, in the image of its etcd.
fn restoring_program(observed: &Snapshot, machine: &Machine) -> Need {
    const ID: &str = "host-can-restore";
    const INSTALL: &str =
        "on the host of the Machine, install etcdutl, in the version of etcd, in a folder on PATH";
    let name = machine.name();
    let unknown = |why: &str| Need::unknown(ID, format!("Machine {name}: {why}"), INSTALL.to_owned());
    let Some(node) = observed.node_of(machine) else {
        return unknown("it has no Node, so its images are unknown");
    };
    let nodes = observed
        .workload
        .value()
        .and_then(|workload| workload.nodes.value());
    let mut nodes = nodes.into_iter().flatten();
    let Some(node) = nodes.find(|other| other.name == node) else {
        return unknown("its Node could not be read, so its images are unknown");
    };
    let tags = node.etcd_images.iter().filter_map(|image| image.rsplit_once(':'));
    let versions = tags.filter_map(|(_, tag)| stacked_version(Some(tag), 0));
    let Some(version) = versions.max() else {
        return unknown("its Node lists no image of etcd; a kubelet lists at most 50 images");
    };
    let numbers = (version.major, version.minor, version.patch);
    if numbers >= WITH_ETCDUTL {
        return Need::met(
            ID,
            format!("Machine {name} has the image of etcd {version}, with etcdutl"),
        );
    }
    if numbers <= WITHOUT_ETCDUTL {
        let found = format!("Machine {name} has the image of etcd {version}, which has no etcdutl");
        return Need::unmet(ID, found, INSTALL.to_owned());
    }
    unknown(&format!(
        "it is unknown whether the image of etcd {version} has etcdutl"
    ))
}

#[cfg(test)]
mod tests;
