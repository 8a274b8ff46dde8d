//! Finds out whether a control plane has a rollout or an adoption of Machines in progress, or is paused, before a
//! change.

use jiff::{SignedDuration, Timestamp};
use semver::Version;

use crate::{
    api::{KubeadmControlPlane, control_plane::KubeadmControlPlaneStatus},
    change::Change,
    syntax::parse_version,
    view::{Cluster, Machine},
};

/// The annotation that pauses an object. Cluster API checks only its presence.
const PAUSED: &str = "cluster.x-k8s.io/paused";

/// A time counts as now if it differs from the current time by at most this duration. Clocks differ, and it
/// takes a moment to apply a manifest.
pub(crate) const NOW_TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// Requests all other objects that the functions of this module read. Every rule that uses this module calls this
/// function first, because rules run only twice: before and after the webhook reads the requested objects.
pub(crate) fn request_objects(change: &Change<'_, KubeadmControlPlane<'_>>) {
    if let Some(view) = change.context.view {
        view.machines.get();
        view.cluster.get();
    }
}

/// Whether the control plane or its Cluster is paused, so that the controller does nothing.
pub(crate) fn is_paused(change: &Change<'_, KubeadmControlPlane<'_>>) -> bool {
    let cluster = change.context.view.and_then(|view| view.cluster.get());
    change.new.metadata.has_annotation(PAUSED) || matches!(cluster, Some(Some(Cluster { paused: true, .. })))
}

/// The Machines of the control plane; `None` if they are unknown. Cluster API finds Machines by the name of the Cluster,
/// so a stored control plane without a Cluster has no Machines.
pub(crate) fn machines<'c>(change: &Change<'c, KubeadmControlPlane<'_>>) -> Option<&'c [Machine]> {
    let machines = change.context.view.and_then(|view| view.machines.get());
    machines.map(Vec::as_slice).or_else(|| {
        let old = change.old?;
        let has_no_cluster = old.metadata.cluster_name().is_none() && is_stored(old);
        (has_no_cluster && reported_machines(old) == 0).then_some(&[])
    })
}

/// Whether the control plane has no Machine yet. In this state the observed generation does not count: Cluster API does
/// not observe a control plane without a Cluster, and its first reconciles may fail.
pub(crate) fn is_before_first_machine(change: &Change<'_, KubeadmControlPlane<'_>>) -> bool {
    let machines = change.context.view.and_then(|view| view.machines.get());
    change.old.is_some_and(|old| {
        is_stored(old) && reported_machines(old) == 0 && machines.is_none_or(Vec::is_empty)
    })
}

/// Whether an API server has stored the object. A manifest has no generation.
fn is_stored(control_plane: &KubeadmControlPlane<'_>) -> bool {
    control_plane.metadata.generation.is_some()
}

fn reported_machines(control_plane: &KubeadmControlPlane<'_>) -> i64 {
    let status = control_plane.status.as_ref();
    status.and_then(|status| status.replicas).unwrap_or(0)
}

/// The current generation of a control plane, and the last one that its controller has processed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GenerationLag {
    pub(crate) generation: i64,
    pub(crate) observed: Option<i64>,
}

/// The generations of a control plane if its controller has not processed the last change yet; otherwise
/// `None`. Until then, the status does not show whether that change starts a rollout. The lag persists if the
/// controller is down or its reconciles fail.
pub(crate) fn generation_lag(control_plane: &KubeadmControlPlane<'_>) -> Option<GenerationLag> {
    let generation = control_plane.metadata.generation?;
    let observed = control_plane
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    (observed != Some(generation)).then_some(GenerationLag { generation, observed })
}

/// The evidence that a rollout is in progress, if there is any.
///
/// If the status has the number of Machines that match the spec, this number decides. The condition
/// `UpToDate` of Machines does not decide, because it also compares the version that the kubelet reports, and
/// stays False with a vendor's kubelet.
pub(crate) fn rollout_evidence(control_plane: &KubeadmControlPlane<'_>) -> Option<String> {
    let status = control_plane.status.as_ref()?;
    let version = control_plane.spec.version.as_deref();
    if let (Some(lowest), Some(version)) = (status.version.as_deref(), version)
        && !is_same_release(lowest, version)
    {
        return Some(format!("a Machine is still at {lowest}, not {version}"));
    }
    match status.matching_replicas() {
        Some(matching) => outdated_machines(matching, status),
        None => status
            .up_to_date_replicas
            .and_then(|matching| outdated_machines(matching, status))
            .or_else(|| {
                let rolling = status.is_true("RollingOut");
                rolling.then(|| "condition RollingOut is True".to_owned())
            }),
    }
}

fn outdated_machines(matching: i64, status: &KubeadmControlPlaneStatus<'_>) -> Option<String> {
    let replicas = status.replicas?;
    (matching < replicas).then(|| format!("{matching} of {replicas} Machines are up to date"))
}

/// Whether two versions are equal except for a vendor's suffix.
fn is_same_release(one: &str, other: &str) -> bool {
    let release = |version: Version| (version.major, version.minor, version.patch);
    match (parse_version(one), parse_version(other)) {
        (Ok(one), Ok(other)) => release(one) == release(other),
        _ => one == other,
    }
}

/// The first Machine that the control plane has not adopted yet.
pub(crate) fn machine_to_adopt<'c>(change: &Change<'c, KubeadmControlPlane<'_>>) -> Option<&'c Machine> {
    machines(change)?.iter().find(|machine| !machine.has_controller)
}

/// The rollout time, if this write sets it to now or the past and so starts a rollout. `None` if no Machine is older
/// than the time.
pub(crate) fn immediate_rollout_time(change: &Change<'_, KubeadmControlPlane<'_>>) -> Option<Timestamp> {
    let (after, now) = (change.new.rollout_after()?, change.context.now?);
    if change.old.and_then(KubeadmControlPlane::rollout_after) == Some(after)
        || after.duration_since(now) > NOW_TOLERANCE
    {
        return None;
    }
    let is_older = |machine: &Machine| machine.created.is_none_or(|created| created < after);
    machines(change)
        .is_none_or(|machines| machines.iter().any(is_older))
        .then_some(after)
}
