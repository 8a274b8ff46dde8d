//! What keeps Cluster API's topology controller from continuing an upgrade, although it works: lifecycle hooks, annotations of
//! the Cluster, and annotations of workers in the topology.
//!
//! Source: Cluster API v1.14, `core/reconcilers/topology/cluster/status.go` and `exp/topology/desiredstate`.

use kcp_api::{
    Cluster, Condition, KubeadmControlPlaneSpec, Object as _,
    cluster::{Topology, TopologyWorker},
    kind::{MACHINE_DEPLOYMENT, MACHINE_POOL},
    names::annotation,
};

use kcp_rules::syntax::parse_version;
use serde::Serialize;

use crate::{
    problem::{Problem, TopologyError},
    snapshot::{Reading, Snapshot, workers::Worker},
};

/// The message until the topology controller has seen a change of its Cluster.
pub const UNSEEN_TOPOLOGY: &str =
    "Cluster API's topology controller has not seen the change of the Cluster yet";

/// The end of the reasons of `TopologyReconciled` while annotations keep workers at the old version, and nothing else happens.
const DEFERRED: &str = "UpgradeDeferred";

/// The hook that annotations of the Cluster delay, too.
const BEFORE_CLUSTER_UPGRADE: &str = "BeforeClusterUpgrade";

/// The last hook of an upgrade.
const AFTER_CLUSTER_UPGRADE: &str = "AfterClusterUpgrade";

/// The maximum number of minor versions by which an upgrade of workers may go at once.
const MAX_SKIPPED: usize = 3;

/// What precedes the names and messages of hooks in the message of `TopologyReconciled`
/// (`exp/topology/scope/hookresponsetracker.go`).
const BLOCKING_HOOKS: &str = "Following hooks are blocking ";

/// What precedes the name of a handler of a runtime extension that failed (`internal/runtime/client/client.go`). The name ends with
/// that of the `ExtensionConfig`, as in `before-upgrade.backup`.
const FAILED_HANDLER: &str = "failed to call extension handler \"";

/// What the topology controller says of a version that it cannot reach, such as one that the control plane has left behind
/// (`exp/topology/desiredstate/upgrade_plan.go`).
const INVALID_PLAN: &str = "invalid ControlPlane upgrade plan";

/// Whether the topology controller waits only for workers that an annotation keeps at the old version.
pub fn is_deferred(condition: &Condition) -> bool {
    condition.is_false() && condition.reason.ends_with(DEFERRED)
}

/// The hooks that block the topology controller, with the messages of their runtime extensions.
fn blocking_hooks(message: &str) -> Vec<(String, Option<String>)> {
    let mut lines = message.lines();
    let listed = lines.find_map(|line| line.split_once(BLOCKING_HOOKS));
    let listed = listed.and_then(|(_, rest)| rest.split_once(':'));
    let mut hooks: Vec<(String, Option<String>)> = Vec::new();
    for part in listed.map_or("", |(_, hooks)| hooks).split("; ") {
        let (hook, text) = part
            .split_once(": ")
            .map_or((part, None), |(hook, text)| (hook, Some(text)));
        let hook = hook.trim();
        let is_hook = hook.starts_with(char::is_uppercase) && hook.chars().all(char::is_alphanumeric);
        match hooks.last_mut() {
            _ if is_hook => hooks.push((hook.to_owned(), text.map(|text| text.trim().to_owned()))),
            // The message of the previous hook contains the separator.
            Some((_, Some(before))) => {
                before.push_str("; ");
                before.push_str(part);
            }
            Some(_) | None => {}
        }
    }
    hooks
}

/// The condition with which the topology controller explains what it waits for. `None` if it waits for nothing, has failed, or
/// has not seen the latest change of the Cluster.
pub fn pending_condition(cluster: &Cluster) -> Option<&Condition> {
    let condition = cluster.status.topology_reconciled.as_ref()?;
    let is_current = cluster.is_topology_seen() && cluster.topology_error().is_none();
    (is_current && condition.is_false()).then_some(condition)
}

/// The error that keeps the topology controller from changing the objects of the Cluster.
pub fn failed(observed: &Snapshot) -> Option<Problem> {
    let cluster = observed.cluster.value()?;
    let error = cluster.topology_error()?;
    let handler = error.message.split_once(FAILED_HANDLER);
    let handler = handler.and_then(|(_, rest)| rest.split_once('"'));
    let extension = handler.and_then(|(handler, _)| handler.split_once('.'));
    let cause = match extension {
        Some((_, name)) => TopologyError::Extension {
            name: name.to_owned(),
        },
        None if error.message.contains(INVALID_PLAN) && is_version_lowered(observed) => {
            TopologyError::LowerVersion {
                version: observed.control_plane.spec.version().to_owned(),
                cluster: cluster.name().to_owned(),
            }
        }
        None => TopologyError::Other,
    };
    Some(Problem::TopologyFailed {
        message: error.message_or_reason(),
        cause,
    })
}

/// Removes the error of the topology controller, which tries again after a change of the Cluster. Returns a warning with the error.
pub fn remove_error(observed: &mut Snapshot) -> Option<String> {
    let problem = failed(observed)?.message();
    if let Reading::Read(cluster) = &mut observed.cluster {
        cluster.status.topology_reconciled = None;
    }
    Some(format!("before this change: {problem}"))
}

/// Whether the topology has a lower version than the control plane, pre-release and build included.
fn is_version_lowered(observed: &Snapshot) -> bool {
    let wanted = observed
        .topology()
        .and_then(|topology| topology.version.as_deref());
    let wanted = wanted.and_then(|version| parse_version(version).ok());
    let current = parse_version(observed.control_plane.spec.version()).ok();
    wanted
        .zip(current)
        .is_some_and(|(wanted, current)| wanted < current)
}

/// The hooks and annotations for which the topology controller waits, and then those that come later.
pub fn unfinished_hooks(cluster: &Cluster) -> Vec<String> {
    let mut hooks: Vec<String> = Vec::new();
    let names = blocking(cluster).into_iter().filter_map(|problem| match problem {
        Problem::LifecycleHook { hook, .. } => Some(hook),
        Problem::UpgradeAnnotation { annotation, .. } => Some(annotation),
        _ => None,
    });
    let known = cluster.pending_hooks().chain(cluster.before_upgrade_hooks());
    for hook in names.chain(known.map(str::to_owned)) {
        if !hooks.contains(&hook) {
            hooks.push(hook);
        }
    }
    hooks
}

/// The hooks and annotations for which the topology controller waits.
pub fn blocking(cluster: &Cluster) -> Vec<Problem> {
    let message = pending_condition(cluster).map_or("", |condition| &condition.message);
    let mut problems = Vec::new();
    for (hook, message) in blocking_hooks(message) {
        let delaying = cluster
            .before_upgrade_hooks()
            .map(|annotation| Problem::UpgradeAnnotation {
                annotation: annotation.to_owned(),
                cluster: cluster.name().to_owned(),
            });
        let before = problems.len();
        if hook == BEFORE_CLUSTER_UPGRADE {
            // Cluster API calls the hook only once the annotations are gone.
            problems.extend(delaying);
        }
        if problems.len() == before {
            problems.push(Problem::LifecycleHook { hook, message });
        }
    }
    problems
}

/// The annotations of the Cluster that delay an upgrade to another version, if it has not begun: one line for each. Cluster API marks
/// `AfterClusterUpgrade` as pending when the upgrade begins (`exp/topology/desiredstate/lifecycle_hooks.go`).
pub fn delaying_annotations(observed: &Snapshot, desired: &KubeadmControlPlaneSpec) -> Vec<String> {
    let is_upgrade = desired.version() != observed.control_plane.spec.version();
    let cluster = observed
        .cluster
        .value()
        .filter(|_| is_upgrade && observed.topology().is_some());
    let has_begun = |cluster: &Cluster| cluster.pending_hooks().any(|hook| hook == AFTER_CLUSTER_UPGRADE);
    let cluster = cluster.filter(|cluster| !has_begun(cluster) && blocking(cluster).is_empty());
    let annotations = cluster.into_iter().flat_map(Cluster::before_upgrade_hooks);
    annotations
        .map(|annotation| {
            format!(
                "if Cluster API's feature gate RuntimeSDK is on, annotation {annotation} of the Cluster delays the upgrade until \
                 the annotation's owner removes it"
            )
        })
        .collect()
}

/// The workers that an annotation in the topology keeps at a version that the control plane no longer has.
pub fn held_workers(observed: &Snapshot) -> Vec<Problem> {
    let Some((cluster, topology)) = observed.cluster.value().zip(observed.topology()) else {
        return Vec::new();
    };
    let read = observed.workers.as_deref().map(|workers| &workers.workers);
    let is_reported = pending_condition(cluster).is_some_and(is_deferred);
    let mut problems = Vec::new();
    for (kind, list) in worker_lists(topology) {
        for TopologyWorker { name, .. } in list {
            let mut of_name = read
                .into_iter()
                .flatten()
                .filter(|worker| is_named(worker, kind, name));
            let version = of_name.next().map(|worker| worker.version.as_str());
            let is_behind = version.map_or(is_reported, |version| {
                version != observed.control_plane.spec.version()
            });
            if let Some((annotation, holder)) = holding_annotation(list, name).filter(|_| is_behind) {
                problems.push(Problem::WorkersHeld {
                    workers: format!("{kind} {name}"),
                    version: version.map(str::to_owned),
                    annotation,
                    holder: holder.to_owned(),
                    cluster: cluster.name().to_owned(),
                });
            }
        }
    }
    problems
}

/// The annotation in the topology that keeps workers at their version, and the name of the workers that have it.
pub fn annotation_holding<'t>(topology: &'t Topology, worker: &Worker) -> Option<(&'static str, &'t str)> {
    let name = worker.machines.as_ref()?.topology_name.as_deref()?;
    let mut lists = worker_lists(topology).into_iter();
    let (_, list) = lists.find(|(kind, _)| is_named(worker, kind, name))?;
    holding_annotation(list, name)
}

const fn worker_lists(topology: &Topology) -> [(&'static str, &Vec<TopologyWorker>); 2] {
    [
        (MACHINE_DEPLOYMENT.kind, &topology.workers.machine_deployments),
        (MACHINE_POOL.kind, &topology.workers.machine_pools),
    ]
}

fn is_named(worker: &Worker, kind: &str, name: &str) -> bool {
    let of_kind = worker.object.split('/').next() == Some(kind);
    let machines = worker.machines.as_ref();
    of_kind && machines.and_then(|machines| machines.topology_name.as_deref()) == Some(name)
}

/// The annotation that keeps the workers with this name at their version, and the name of the workers that have it. Follows
/// `isMachineDeploymentDeferred` and `isMachinePoolDeferred` of Cluster API.
fn holding_annotation<'t>(list: &'t [TopologyWorker], name: &str) -> Option<(&'static str, &'t str)> {
    let own = list.iter().position(|worker| worker.name == name)?;
    let mut until = list.iter().take(own + 1);
    let has = |worker: &TopologyWorker, key: &str| worker.metadata.annotations.contains_key(key);
    let deferred = list
        .get(own)
        .filter(|worker| has(worker, annotation::DEFER_UPGRADE));
    deferred
        .map(|worker| (annotation::DEFER_UPGRADE, worker.name.as_str()))
        .or_else(|| {
            let holder = until.find(|worker| has(worker, annotation::HOLD_UPGRADE_SEQUENCE))?;
            Some((annotation::HOLD_UPGRADE_SEQUENCE, holder.name.as_str()))
        })
}

/// A part of the upgrade of a topology, which ends at one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct UpgradeStep {
    pub version: String,
    /// Whether the control plane is upgraded to this version. If not, it has it already.
    pub control_plane: bool,
    /// Whether the workers are upgraded to this version, after the control plane. `None` if this is unknown.
    pub workers: Option<bool>,
}

impl UpgradeStep {
    pub fn text(&self) -> String {
        let Self { version, .. } = self;
        let what = match (self.control_plane, self.workers) {
            (true, Some(true)) => "control plane, then workers",
            (true, Some(false)) => "control plane",
            (true, None) => "control plane; it is unknown whether the workers follow",
            (false, _) => "workers",
        };
        format!("{version} ({what})")
    }
}

/// The steps of the upgrade of a topology over these versions of the control plane. The workers skip versions as far as
/// Kubernetes supports it, unless Cluster API reports other versions (`DefaultAndValidateUpgradePlans`).
pub fn upgrade_steps(observed: &Snapshot, versions: &[String]) -> Vec<UpgradeStep> {
    let current = observed.control_plane.spec.version();
    let reported = observed.cluster.value().map(|cluster| &cluster.status);
    let reported = reported
        .filter(|status| !status.worker_upgrades.is_empty() && status.control_plane_upgrades == versions);
    let of_workers = reported.map_or_else(
        || worker_versions(observed, current, versions),
        |status| Some(status.worker_upgrades.clone()),
    );
    let includes = |version: &str| {
        let upgraded = of_workers.as_ref()?;
        Some(upgraded.iter().any(|upgraded| upgraded == version))
    };
    let before = (includes(current) == Some(true)).then(|| UpgradeStep {
        version: current.to_owned(),
        control_plane: false,
        workers: Some(true),
    });
    let steps = versions.iter().map(|version| UpgradeStep {
        version: version.clone(),
        control_plane: true,
        workers: includes(version),
    });
    before.into_iter().chain(steps).collect()
}

/// The versions over which Cluster API upgrades the workers: as few as possible, none more than three minor versions after the one
/// before. Empty if there are no workers. `None` if some workers could not be read.
fn worker_versions(observed: &Snapshot, current: &str, versions: &[String]) -> Option<Vec<String>> {
    let parse = |version: &str| parse_version(version).ok();
    let workers = observed.workers.as_deref()?;
    if !workers.read_failures.is_empty() {
        return None;
    }
    let oldest = workers.workers.iter().filter_map(|worker| parse(&worker.version));
    let target = versions.last().and_then(|last| Some((last, parse(last)?)));
    let Some((oldest, (last, target))) = oldest
        .min()
        .zip(target)
        .filter(|(oldest, (_, target))| oldest != target)
    else {
        return Some(Vec::new());
    };
    let known = || std::iter::once(current).chain(versions.iter().map(String::as_str));
    let of_minor =
        |minor: u64| known().rfind(|version| parse(version).is_some_and(|version| version.minor == minor));
    let stops = (oldest.minor..target.minor)
        .skip(MAX_SKIPPED)
        .step_by(MAX_SKIPPED);
    let mut stops: Vec<String> = stops.filter_map(of_minor).map(str::to_owned).collect();
    stops.push(last.clone());
    Some(stops)
}

#[cfg(test)]
mod tests {
    use kcp_api::names::annotation;

    use super::{blocking_hooks, delaying_annotations, upgrade_steps};
    use crate::{
        snapshot::Workers,
        testing::{
            objects::annotate,
            plan::{spec, with_version, worker},
            snapshot::observed,
        },
    };

    #[test]
    fn an_annotation_delays_an_upgrade_that_has_not_begun() {
        const BACKUP: &str = "before-upgrade.hook.cluster.cluster.x-k8s.io/backup";
        let next = with_version(spec(), "v1.35.0");
        let mut observed = observed();
        observed.set_topology("v1.34.1");
        assert_eq!(delaying_annotations(&observed, &next), [""; 0]);
        annotate(&mut observed.cluster_mut().metadata, BACKUP, "");
        assert_eq!(
            delaying_annotations(&observed, &next),
            [
                "if Cluster API's feature gate RuntimeSDK is on, annotation before-upgrade.hook.cluster.cluster.x-k8s.io/backup of \
                 the Cluster delays the upgrade until the annotation's owner removes it"
            ]
        );
        let current = with_version(spec(), observed.control_plane.spec.version());
        assert_eq!(delaying_annotations(&observed, &current), [""; 0]);
        let metadata = &mut observed.cluster_mut().metadata;
        annotate(metadata, annotation::PENDING_HOOKS, "AfterClusterUpgrade");
        assert_eq!(delaying_annotations(&observed, &next), [""; 0]);
    }

    #[test]
    fn the_hooks_of_a_message() {
        const UPGRADE: &str = "Cluster is upgrading to v1.35.0\n  * Following hooks are blocking upgrade: ";
        for (message, expected) in [
            ("", &[][..]),
            ("Following hooks are blocking upgrade: ", &[]),
            (
                "Following hooks are blocking delete: BeforeClusterDelete",
                &[("BeforeClusterDelete", None)],
            ),
            (
                &format!(
                    "{UPGRADE}AfterWorkersUpgrade: 2 jobs left; wait\n  * KubeadmControlPlane upgrading"
                ),
                &[("AfterWorkersUpgrade", Some("2 jobs left; wait"))],
            ),
            (
                &format!("{UPGRADE}A: https://a.example: no answer; B; C: x"),
                &[
                    ("A", Some("https://a.example: no answer")),
                    ("B", None),
                    ("C", Some("x")),
                ],
            ),
        ] {
            let hooks = blocking_hooks(message);
            let hooks: Vec<_> = hooks
                .iter()
                .map(|(hook, text)| (hook.as_str(), text.as_deref()))
                .collect();
            assert_eq!(hooks, expected, "{message}");
        }
    }

    #[test]
    fn workers_follow_the_control_plane_in_as_few_steps_as_possible() {
        const FIVE: &str = "v1.35.2 v1.36.0 v1.37.1 v1.38.0 v1.39.3";
        type Case = (&'static str, &'static str, &'static str);
        let cases: [Case; 6] = [
            (
                "",
                "v1.35.2 v1.36.0",
                "v1.35.2 (control plane), v1.36.0 (control plane)",
            ),
            (
                "v1.34.1",
                "v1.35.2 v1.36.0",
                "v1.35.2 (control plane), v1.36.0 (control plane, then workers)",
            ),
            ("v1.36.0 v1.36.0", "v1.36.0", "v1.36.0 (control plane)"),
            (
                "v1.31.4 v1.33.0",
                "v1.35.2",
                "v1.34.1 (workers), v1.35.2 (control plane, then workers)",
            ),
            (
                "v1.33.0",
                FIVE,
                "v1.35.2 (control plane), v1.36.0 (control plane, then workers), v1.37.1 (control plane), v1.38.0 (control \
                 plane), v1.39.3 (control plane, then workers)",
            ),
            ("v1.33.0", "", ""),
        ];
        for (workers, versions, expected) in cases {
            let mut observed = observed();
            let names = workers.split_whitespace();
            observed.workers = Some(Box::new(Workers {
                workers: names.map(|version| worker("md-0", version)).collect(),
                read_failures: Vec::new(),
            }));
            let versions: Vec<String> = versions.split_whitespace().map(str::to_owned).collect();
            let steps = upgrade_steps(&observed, &versions);
            let texts: Vec<String> = steps.iter().map(super::UpgradeStep::text).collect();
            assert_eq!(texts.join(", "), expected, "{workers}: {versions:?}");
        }
    }

    #[test]
    fn workers_that_could_not_be_read_are_unknown() {
        let mut observed = observed();
        observed.workers = Some(Box::new(Workers {
            workers: vec![worker("md-0", "v1.34.1")],
            read_failures: vec!["MachinePools: forbidden".to_owned()],
        }));
        let steps = upgrade_steps(&observed, &["v1.36.0".to_owned()]);
        let texts: Vec<String> = steps.iter().map(super::UpgradeStep::text).collect();
        assert_eq!(
            texts,
            ["v1.36.0 (control plane; it is unknown whether the workers follow)"]
        );
    }

    #[test]
    fn the_versions_that_cluster_api_reports_count() {
        let mut observed = observed();
        observed.set_topology("v1.36.0");
        let versions = ["v1.35.2", "v1.36.0"].map(str::to_owned);
        let status = &mut observed.cluster_mut().status;
        status.control_plane_upgrades = versions.to_vec();
        status.worker_upgrades = versions.to_vec();
        let steps = upgrade_steps(&observed, &versions);
        assert!(
            steps
                .iter()
                .all(|step| step.control_plane && step.workers == Some(true)),
            "{steps:?}"
        );
    }
}
