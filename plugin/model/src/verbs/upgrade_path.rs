//! The decision of `upgrade --via`, which upgrades a control plane across several minor versions: which
//! versions remain, and what the next step is.
//!
//! The decision depends only on what the cluster shows now, so a command that was interrupted can run again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kcp_rules::syntax::parse_version;
use serde_json::Value;

use crate::{
    change::decision::{Refusal, RefusedBy},
    checks::{
        finding::{CheckOutcome, Finding, NoResult},
        workload::{check_addon_update_impossible, check_coredns_not_ready, check_kube_proxy_not_ready},
    },
    kubelet_skew::{self, Skew},
    snapshot::{Snapshot, Workers, workers::Worker},
    verbs::upgrade::{Notice, assess},
    wait::{WaitCondition, WaitProgress},
};

#[cfg(test)]
mod tests;

/// The maximum number of minor versions that a refusal names as missing in `--via`.
const MISSING_SHOWN: usize = 5;

/// The flags of the command, with the versions as [`parse_full_version`] returns them.
#[derive(Clone, Copy, Debug)]
pub struct PathOptions<'o> {
    pub to: &'o str,
    /// One version for each minor version between the current one and `to`. Versions that the control plane
    /// has passed are ignored, so that the same command can run again.
    pub via: &'o [String],
    /// Whether to upgrade although kube-proxy or `CoreDNS` is not ready, or workers or add-ons could not be read.
    pub force: bool,
}

/// The state that determines the next step.
#[derive(Clone, Debug)]
pub struct PathState<'s> {
    /// `spec.version` of the control plane.
    pub version: &'s str,
    /// The `kubeadmConfigSpec`.
    pub config: &'s Value,
    /// Why the Machines are not all ready and up to date: one line for each reason. Empty if they are.
    pub rollout_problems: Vec<String>,
    /// What is wrong with kube-proxy and `CoreDNS`: one line for each problem.
    pub add_on_problems: Vec<String>,
    pub workers: Vec<Worker>,
    /// The workers and add-ons that could not be read: one line for each source.
    pub read_failures: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradePath {
    pub from: String,
    /// The remaining upgrades. The first is the next.
    pub steps: Vec<PathStep>,
    pub next: NextStep,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStep {
    pub version: String,
    /// The workers that must be upgraded before this step, based on their current versions.
    pub workers: Vec<OldWorker>,
    /// The changes in this version that no earlier step reports.
    pub notices: Vec<Notice>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// The control plane is at the last version, and all its Machines are ready and up to date.
    Complete,
    /// The control plane may be upgraded to this version.
    Upgrade(String),
    /// The Machines must first be ready and up to date. Contains what is missing.
    AwaitRollout(Vec<String>),
    /// Someone must first upgrade these workers.
    UpgradeWorkers(Vec<OldWorker>),
    /// kube-proxy or `CoreDNS` must first be ready. Contains what is wrong.
    AwaitAddOns(Vec<String>),
}

/// A worker whose kubelets are too old for a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldWorker {
    pub worker: Worker,
    /// The version of the step.
    pub api_server_version: String,
    /// The oldest minor version that the step supports, such as `v1.32`.
    pub oldest_supported: String,
    /// The newest version that the worker may have before the step: the version of the control plane.
    pub newest_supported: String,
}

impl OldWorker {
    pub fn message(&self) -> String {
        let Self {
            worker: Worker { object, version, .. },
            api_server_version: server,
            oldest_supported: oldest,
            newest_supported: newest,
        } = self;
        format!(
            "{object}: upgrade from {version} to at least {oldest} and at most {newest}; API server {server} \
             does not support older kubelets"
        )
    }
}

/// Parses a Kubernetes version with its patch version, and adds the leading `v`. The error says what is missing in the text.
pub fn parse_full_version(text: &str) -> Result<String, String> {
    let version = text.strip_prefix('v').unwrap_or(text);
    if version.starts_with('v') {
        return Err("not a Kubernetes version such as v1.34.2".to_owned());
    }
    match parse_version(version) {
        Ok(_) => Ok(format!("v{version}")),
        Err(_) if parse_version(&format!("{version}.0")).is_ok() => Err(format!(
            "the patch version is missing: specify a version for which your infrastructure provider has images, such as \
             v{version}.0"
        )),
        Err(error) => Err(format!("not a Kubernetes version such as v1.34.2: {error}")),
    }
}

impl<'s> PathState<'s> {
    pub fn new(observed: &'s Snapshot, workers: Workers, now: Timestamp) -> Self {
        let control_plane = &observed.control_plane;
        let unfinished = match WaitCondition::RolledOut.progress(observed, None, now) {
            WaitProgress::Met => Vec::new(),
            WaitProgress::WaitingFor(what) => what,
            WaitProgress::Impossible(why) => vec![why],
        };
        let workers = workers.with_nodes(&observed.workload, &observed.machines);
        let mut unread = workers.read_failures;
        let mut add_ons = Vec::new();
        for check in [
            check_addon_update_impossible,
            check_kube_proxy_not_ready,
            check_coredns_not_ready,
        ] {
            match check(observed, now) {
                Ok(findings) => add_ons.extend(problems(findings)),
                Err(NoResult::Unknown(why)) => unread.push(why),
                Err(NoResult::Skipped(_)) => {}
            }
        }
        Self {
            version: control_plane.spec.version(),
            config: &control_plane.spec.kubeadm_config_spec.fields,
            rollout_problems: unfinished,
            add_on_problems: add_ons,
            workers: workers.workers,
            read_failures: unread,
        }
    }
}

/// The problems among the findings of a check: one line for each.
fn problems(findings: Vec<Finding>) -> impl Iterator<Item = String> {
    let problems = findings
        .into_iter()
        .filter(|finding| matches!(finding.outcome, CheckOutcome::Warn | CheckOutcome::Fail));
    problems.map(|finding| format!("{} {}", finding.objects.join(", "), finding.message))
}

/// Decides what the next step is.
pub fn upgrade_path(state: &PathState<'_>, options: PathOptions<'_>) -> Result<UpgradePath, Refusal> {
    let from = state.version;
    let mut steps: Vec<PathStep> = Vec::new();
    for version in versions(from, options)? {
        let before = steps.last().map_or(from, |step| &step.version);
        // A change that concerns several steps is reported with the first.
        let notices = assess(before, &version, state.config, &Workers::default(), None).notices;
        let notices = notices
            .into_iter()
            .filter(|notice| !steps.iter().any(|step| step.notices.contains(notice)))
            .collect();
        let workers = old_workers(&state.workers, &version, before);
        steps.push(PathStep {
            version,
            workers,
            notices,
        });
    }
    if !options.force
        && !steps.is_empty()
        && state.rollout_problems.is_empty()
        && !state.read_failures.is_empty()
    {
        let why = state
            .read_failures
            .iter()
            .map(|line| format!("it is unknown whether the workers and add-ons are ready: {line}"));
        return Err(Refusal {
            remedies: vec![
                "run the command again when the workers and add-ons can be read, or use --force to continue \
                 without this information"
                    .to_owned(),
            ],
            ..Refusal::new(RefusedBy::Command, why.collect())
        });
    }
    let next = match steps.first() {
        _ if !state.rollout_problems.is_empty() => NextStep::AwaitRollout(state.rollout_problems.clone()),
        None => NextStep::Complete,
        Some(step) if !step.workers.is_empty() => NextStep::UpgradeWorkers(step.workers.clone()),
        Some(_) if !options.force && !state.add_on_problems.is_empty() => {
            NextStep::AwaitAddOns(state.add_on_problems.clone())
        }
        Some(step) => NextStep::Upgrade(step.version.clone()),
    };
    Ok(UpgradePath {
        from: from.to_owned(),
        steps,
        next,
    })
}

/// The workers that are too old for an API server of `server`. `before` is the version of the API servers
/// before the upgrade.
fn old_workers(workers: &[Worker], server: &str, before: &str) -> Vec<OldWorker> {
    let Some(oldest) = kubelet_skew::oldest_supported(server) else {
        return Vec::new();
    };
    let unsupported = kubelet_skew::unsupported_workers(workers, server).into_iter();
    let too_old = unsupported.filter(|(_, skew)| matches!(skew, Skew::TooOld { .. }));
    too_old
        .map(|(worker, _)| OldWorker {
            worker: worker.clone(),
            api_server_version: server.to_owned(),
            oldest_supported: oldest.clone(),
            newest_supported: before.to_owned(),
        })
        .collect()
}

/// The versions after `from`, up to the last one: one for each minor version.
fn versions(from: &str, PathOptions { to, via, .. }: PathOptions<'_>) -> Result<Vec<String>, Refusal> {
    if from == to {
        return Ok(Vec::new());
    }
    let refuse = |why: String| Refusal::new(RefusedBy::Command, vec![why]);
    let parse = |version: &str| {
        parse_version(version)
            .map_err(|error| refuse(format!("{version} is not a Kubernetes version: {error}")))
    };
    let (current, last) = (parse(from)?, parse(to)?);
    if last < current {
        return Err(refuse(format!(
            "{to} is older than the current version {from}, and Kubernetes does not support downgrades"
        )));
    }
    if last.major != current.major {
        return Err(refuse(format!(
            "{to} has a different major version than the current version {from}"
        )));
    }
    let mut between: BTreeMap<u64, &String> = BTreeMap::new();
    for stop in via {
        let version = parse(stop)?;
        if version.major != last.major || version.minor >= last.minor {
            return Err(refuse(format!(
                "--via {stop} must have the same major version as --to {to}, and a lower minor version"
            )));
        }
        if let Some(other) = between.insert(version.minor, stop) {
            return Err(refuse(format!(
                "--via has two versions of v{}.{}: {other} and {stop}",
                version.major, version.minor
            )));
        }
    }
    let (mut path, mut missing) = (Vec::new(), Vec::new());
    for minor in current.minor.saturating_add(1)..last.minor {
        match between.get(&minor) {
            Some(stop) => path.push((*stop).clone()),
            None if missing.len() == MISSING_SHOWN => break,
            None => missing.push(format!("v{}.{minor}", last.major)),
        }
    }
    if !missing.is_empty() {
        return Err(missing_stops(from, to, &missing));
    }
    path.push(to.to_owned());
    Ok(path)
}

/// The versions over which the topology controller goes from `from` to `to` if the `ClusterClass` lists these versions: the last
/// patch version of each minor version (`exp/topology/desiredstate/upgrade_plan.go` of Cluster API v1.14). Empty if it does not
/// list one for each minor version in between.
pub fn chained_versions(from: &str, to: &str, listed: &[String]) -> Vec<String> {
    let (Ok(current), Ok(last)) = (parse_version(from), parse_version(to)) else {
        return Vec::new();
    };
    let of_minor = |minor: u64| {
        let listed = listed
            .iter()
            .filter_map(|text| Some((parse_version(text).ok()?, text)));
        let of_minor = listed.filter(|(version, _)| version.major == last.major && version.minor == minor);
        of_minor.max().map(|(_, text)| text.clone())
    };
    let between = current.minor.saturating_add(1)..last.minor;
    let between: Option<Vec<String>> = between.map(of_minor).collect();
    let listed =
        between.filter(|_| current.major == last.major && listed.iter().any(|version| version == to));
    listed.map_or_else(Vec::new, |mut versions| {
        versions.push(to.to_owned());
        versions
    })
}

/// How to upgrade across several minor versions; `None` if there is none in between, or if a version is not valid.
pub fn versions_between(from: &str, to: &str) -> Option<String> {
    let (current, last) = (parse_version(from).ok()?, parse_version(to).ok()?);
    let between = current.minor.saturating_add(1)..last.minor;
    let minors: Vec<String> = between
        .take(MISSING_SHOWN)
        .map(|minor| format!("v{}.{minor}", last.major))
        .collect();
    (current.major == last.major && !minors.is_empty()).then(|| add_via(&minors))
}

fn add_via(missing: &[String]) -> String {
    let examples: Vec<String> = missing.iter().map(|minor| format!("{minor}.PATCH")).collect();
    format!(
        "add --via {} with patch versions for which your infrastructure provider has images",
        examples.join(",")
    )
}

fn missing_stops(from: &str, to: &str, missing: &[String]) -> Refusal {
    Refusal {
        remedies: vec![add_via(missing)],
        ..Refusal::new(
            RefusedBy::Command,
            missing
                .iter()
                .map(|minor| {
                    format!(
                        "--via names no version of {minor}, which is between the current version {from} and {to}"
                    )
                })
                .collect(),
        )
    }
}
