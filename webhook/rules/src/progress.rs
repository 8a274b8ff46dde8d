//! Finds out whether a control plane has a rollout or an adoption of Machines in progress, or is paused, before a
//! change.

use jiff::{SignedDuration, Timestamp};
use kcp_api::names::annotation;
use semver::Version;

use crate::{
    action::{Action, DowngradeReason},
    api::{KubeadmControlPlane, control_plane::KubeadmControlPlaneStatus},
    change::Change,
    fault::{Fault, Faults},
    syntax::parse_version,
    view::{Cluster, Machine},
};

/// A time counts as now if it differs from the current time by at most this duration. Clocks differ, and it
/// takes a moment to apply a manifest.
pub(crate) const NOW_TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// Whether the control plane or its Cluster is paused, so that the controller does nothing. A person may then be recovering the
/// control plane by hand, so rules warn instead of denying (2019 proposal, Scale Down). If overrides need a permission, only a
/// control plane that was paused before the write counts.
fn is_paused(change: &Change<'_, KubeadmControlPlane<'_>>) -> bool {
    let own = if change.context.authorizes_overrides {
        change.old
    } else {
        Some(change.new)
    };
    let cluster = change.context.view.and_then(|view| view.cluster.as_ref());
    own.is_some_and(|own| own.metadata.has_annotation(annotation::PAUSED))
        || matches!(cluster, Some(Some(Cluster { paused: true, .. })))
}

/// Adds a fault whose action is at most `action`. While the control plane is paused, it is a warning.
pub(crate) fn push_unless_paused(
    change: &Change<'_, KubeadmControlPlane<'_>>,
    faults: &mut Faults,
    action: Action,
    fault: Fault,
) {
    if is_paused(change) {
        return faults.push_downgraded(DowngradeReason::Paused, action, fault);
    }
    if change
        .context
        .view
        .is_none_or(|view| view.cluster.as_ref().is_none())
    {
        faults.unread();
    }
    faults.push_at_most(action, fault);
}

/// Records that a rule could not check the Machines. If the control plane is paused, the rule only warns about this, unless
/// overrides need a permission.
pub(crate) fn unread_unless_paused(
    change: &Change<'_, KubeadmControlPlane<'_>>,
    faults: &mut Faults,
    action: Action,
) {
    let may_pass = is_paused(change) && !change.context.authorizes_overrides;
    faults.unread_at_most(if may_pass {
        action.min(Action::Warn)
    } else {
        action
    });
}

/// The Machines of the control plane; `None` if they are unknown. Cluster API finds Machines by the name of the Cluster,
/// so a stored control plane without a Cluster has no Machines.
pub(crate) fn machines<'c>(change: &Change<'c, KubeadmControlPlane<'_>>) -> Option<&'c [Machine]> {
    let machines = change.context.view.and_then(|view| view.machines.as_ref());
    machines.map(Vec::as_slice).or_else(|| {
        let old = change.old?;
        let has_no_cluster = old.metadata.cluster_name().is_none() && is_stored(old);
        (has_no_cluster && reported_machines(old) == 0).then_some(&[])
    })
}

/// Whether the control plane has no Machine yet. In this state the observed generation does not count: Cluster API does
/// not observe a control plane without a Cluster, and its first reconciles may fail.
pub(crate) fn is_before_first_machine(
    change: &Change<'_, KubeadmControlPlane<'_>>,
    faults: &mut Faults,
) -> bool {
    let reports_none = |old| is_stored(old) && reported_machines(old) == 0;
    if !change.old.is_some_and(reports_none) {
        return false;
    }
    let machines = machines(change);
    if machines.is_none() {
        faults.unread();
    }
    machines.is_none_or(<[Machine]>::is_empty)
}

/// Whether an API server has stored the object. A manifest has no generation.
fn is_stored(control_plane: &KubeadmControlPlane<'_>) -> bool {
    control_plane.metadata.generation.is_some()
}

fn reported_machines(control_plane: &KubeadmControlPlane<'_>) -> i64 {
    let status = control_plane.status.as_ref();
    status.and_then(|status| status.replicas).unwrap_or(0)
}

/// How long a change may wait until a reconcile has compared the Machines with it. The controller normally does so within
/// seconds, and a restart of the controller takes a minute or two. If it takes longer, the controller does not run, or fails
/// before the comparison.
const COMPARISON_LIMIT: SignedDuration = SignedDuration::from_mins(5);

/// The last change of the spec, while `status.observedGeneration` does not include it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnobservedChange {
    pub(crate) generation: i64,
    pub(crate) observed: Option<i64>,
    pub(crate) stage: Stage,
}

/// How far the controller has got with an unobserved change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The change is recent, and no reconcile has compared the Machines with it. So the status does not show whether the
    /// change starts a rollout.
    Waiting,
    /// No reconcile has compared the Machines with the change for longer than [`COMPARISON_LIMIT`].
    Ignored,
    /// A reconcile has compared the Machines with the change. So the status shows whether a rollout is in progress. There are two
    /// possible causes. The reconciles fail at a later step. Or a reconcile has succeeded, and the controller has not recorded
    /// this: from Cluster API 1.13 on, its patch helper writes nothing, not even `observedGeneration`, if nothing else has
    /// changed.
    Compared,
}

/// The last change of the spec, if `status.observedGeneration` does not include it; otherwise `None`.
pub(crate) fn unobserved_change(
    change: &Change<'_, KubeadmControlPlane<'_>>,
    faults: &mut Faults,
) -> Option<UnobservedChange> {
    let old = change.old.filter(|_| !is_before_first_machine(change, faults))?;
    let generation = old.metadata.generation?;
    let status = old.status.as_ref();
    let observed = status.and_then(|status| status.observed_generation);
    if observed == Some(generation) {
        return None;
    }
    let written = old.metadata.last_write_of_spec();
    let lasts = written.and_then(|written| Some(change.context.now?.duration_since(written)));
    let is_recent = lasts.is_none_or(|lasts| lasts <= COMPARISON_LIMIT);
    // The controller writes conditions shortly before it counts Machines, so RollingOut may be more recent than the counts.
    let rolling = status.is_some_and(|status| status.is_true("RollingOut"));
    let stage = match status.is_some_and(|status| has_compared_machines(status, generation)) {
        true if !(rolling && is_recent) => Stage::Compared,
        _ if is_recent => Stage::Waiting,
        _ => Stage::Ignored,
    };
    Some(UnobservedChange {
        generation,
        observed,
        stage,
    })
}

/// Whether a reconcile has compared the Machines with this generation of the spec. Each reconcile does so just before it sets
/// this condition (Cluster API 1.11 to 1.14, `reconcileControlPlaneAndMachinesConditions`). It writes the result and the
/// condition even if it fails later.
fn has_compared_machines(status: &KubeadmControlPlaneStatus<'_>, generation: i64) -> bool {
    status.observes("ControlPlaneComponentsHealthy", generation)
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
