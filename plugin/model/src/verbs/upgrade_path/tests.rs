use proptest::{collection::vec, prelude::*};
use serde_json::json;

use super::{
    NextStep, OldWorker, PathOptions, PathState, UpgradePath, chained_versions, parse_full_version,
    upgrade_path,
};
use crate::{
    kubelet_skew::skew,
    snapshot::{Reading, Snapshot, Workers, workers::Worker},
    testing::{objects::now, plan::with_version, snapshot},
};

fn worker(object: &str, version: &str) -> Worker {
    Worker {
        object: object.to_owned(),
        version: version.to_owned(),
        machines: None,
    }
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// A control plane at `version`, complete, with these workers.
fn state<'s>(version: &'s str, workers: &[Worker]) -> PathState<'s> {
    static CONFIG: std::sync::LazyLock<serde_json::Value> = std::sync::LazyLock::new(|| json!({}));
    PathState {
        version,
        config: &CONFIG,
        rollout_problems: Vec::new(),
        add_on_problems: Vec::new(),
        workers: workers.to_vec(),
        read_failures: Vec::new(),
    }
}

fn path(state: &PathState<'_>, to: &str, via: &[&str]) -> Result<UpgradePath, Vec<String>> {
    let via = owned(via);
    let options = PathOptions {
        to,
        via: &via,
        force: false,
    };
    upgrade_path(state, options).map_err(|refusal| [refusal.why, refusal.remedies].concat())
}

fn versions(path: &UpgradePath) -> Vec<&str> {
    path.steps.iter().map(|step| step.version.as_str()).collect()
}

#[test]
fn a_path_has_one_version_for_each_minor() {
    let all = ["v1.35.6", "v1.36.3"];
    for (from, to, via, expected) in [
        (
            "v1.34.2",
            "v1.37.1",
            &all[..],
            &["v1.35.6", "v1.36.3", "v1.37.1"][..],
        ),
        (
            "v1.34.2",
            "v1.37.1",
            &["v1.36.3", "v1.35.6"],
            &["v1.35.6", "v1.36.3", "v1.37.1"],
        ),
        // Minor versions that the control plane has passed are ignored, whichever patch version it had.
        ("v1.35.6", "v1.37.1", &all, &["v1.36.3", "v1.37.1"]),
        ("v1.35.1", "v1.37.1", &all, &["v1.36.3", "v1.37.1"]),
        ("v1.36.9", "v1.37.1", &all, &["v1.37.1"]),
        ("v1.37.1", "v1.37.1", &all, &[]),
        ("v1.37.0", "v1.37.1", &all, &["v1.37.1"]),
        ("v1.34.2", "v1.35.0", &[], &["v1.35.0"]),
    ] {
        let path = path(&state(from, &[]), to, via).expect("a path");
        assert_eq!(versions(&path), expected, "{from} {to} {via:?}");
        let next = expected
            .first()
            .map_or(NextStep::Complete, |next| NextStep::Upgrade((*next).to_owned()));
        assert_eq!(path.next, next, "{from} {to} {via:?}");
    }
}

#[test]
fn what_could_not_be_read_stops_the_path_unless_it_is_forced() {
    let mut state = state("v1.34.2", &[]);
    state.read_failures = owned(&["Nodes: forbidden"]);
    let refused = path(&state, "v1.35.0", &[]).expect_err("refused");
    assert_eq!(
        refused,
        [
            "it is unknown whether the workers and add-ons are ready: Nodes: forbidden",
            "run the command again when the workers and add-ons can be read, or use --force to continue \
             without this information"
        ]
    );
    // Nothing is left to do, or the rollout comes first.
    assert_eq!(
        path(&state, "v1.34.2", &[]).expect("a path").next,
        NextStep::Complete
    );
    let forced = PathOptions {
        to: "v1.35.0",
        via: &[],
        force: true,
    };
    let next = upgrade_path(&state, forced).expect("a path").next;
    assert_eq!(next, NextStep::Upgrade("v1.35.0".to_owned()));
}

#[test]
fn no_path() {
    let images = "with patch versions for which your infrastructure provider has images";
    let between = |minor: &str, from: &str, to: &str| {
        format!("--via names no version of {minor}, which is between the current version {from} and {to}")
    };
    for (from, to, via, expected) in [
        (
            "v1.34.2",
            "v1.37.1",
            &["v1.36.3"][..],
            vec![
                between("v1.35", "v1.34.2", "v1.37.1"),
                format!("add --via v1.35.PATCH {images}"),
            ],
        ),
        (
            "v1.34.2",
            "v1.37.1",
            &[],
            vec![
                between("v1.35", "v1.34.2", "v1.37.1"),
                between("v1.36", "v1.34.2", "v1.37.1"),
                format!("add --via v1.35.PATCH,v1.36.PATCH {images}"),
            ],
        ),
        (
            "v1.34.2",
            "v1.33.9",
            &[],
            owned(&[
                "v1.33.9 is older than the current version v1.34.2, and Kubernetes does not support \
                downgrades",
            ]),
        ),
        (
            "v1.34.2",
            "v2.0.0",
            &[],
            owned(&["v2.0.0 has a different major version than the current version v1.34.2"]),
        ),
        (
            "v1.34.2",
            "v1.36.0",
            &["v1.35.6", "v1.36.0"],
            owned(&[
                "--via v1.36.0 must have the same major version as --to v1.36.0, and a lower minor \
                version",
            ]),
        ),
        (
            "v1.34.2",
            "v1.36.0",
            &["v0.35.6"],
            owned(&[
                "--via v0.35.6 must have the same major version as --to v1.36.0, and a lower minor \
                version",
            ]),
        ),
        (
            "v1.34.2",
            "v1.36.0",
            &["v1.35.6", "v1.35.7"],
            owned(&["--via has two versions of v1.35: v1.35.6 and v1.35.7"]),
        ),
        (
            "latest",
            "v1.36.0",
            &[],
            owned(&[
                "latest is not a Kubernetes version: unexpected character 'l' while parsing major version number",
            ]),
        ),
    ] {
        assert_eq!(
            path(&state(from, &[]), to, via),
            Err(expected),
            "{from} {to} {via:?}"
        );
    }
    let far = path(&state("v1.34.2", &[]), &format!("v1.{}.0", u64::MAX), &[]);
    assert_eq!(far.expect_err("too far").len(), 6);
}

#[test]
fn the_next_step_waits_for_whatever_must_come_first() {
    let old = worker("MachineDeployment/md-0", "v1.31.4");
    let too_old = |step: &str, oldest: &str, newest: &str| OldWorker {
        worker: old.clone(),
        api_server_version: step.to_owned(),
        oldest_supported: oldest.to_owned(),
        newest_supported: newest.to_owned(),
    };
    let (unfinished, add_ons) = (
        owned(&["Machines ready: 0 of 1"]),
        owned(&["Deployment/coredns 0 of 2 pods are ready"]),
    );
    let path = |state: &PathState<'_>| path(state, "v1.36.3", &["v1.35.6"]).expect("a path");
    let start = state("v1.34.2", std::slice::from_ref(&old));
    let stopped = path(&start);
    assert_eq!(
        stopped.next,
        NextStep::UpgradeWorkers(vec![too_old("v1.35.6", "v1.32", "v1.34.2")])
    );
    // Later steps also name the workers that they need.
    let later = stopped.steps.last().map(|step| step.workers.clone());
    assert_eq!(later, Some(vec![too_old("v1.36.3", "v1.33", "v1.35.6")]));

    let rollout = PathState {
        rollout_problems: unfinished.clone(),
        add_on_problems: add_ons.clone(),
        ..start.clone()
    };
    assert_eq!(path(&rollout).next, NextStep::AwaitRollout(unfinished.clone()));
    let without_workers = PathState {
        add_on_problems: add_ons.clone(),
        ..state("v1.34.2", &[])
    };
    assert_eq!(
        path(&without_workers).next,
        NextStep::AwaitAddOns(add_ons.clone())
    );
    let forced = PathOptions {
        to: "v1.35.6",
        via: &[],
        force: true,
    };
    let forced = upgrade_path(&without_workers, forced).expect("a path");
    assert_eq!(forced.next, NextStep::Upgrade("v1.35.6".to_owned()));
    // After the last step, the Machines count, and the add-ons do not.
    let last = PathState {
        rollout_problems: unfinished.clone(),
        ..state("v1.36.3", &[])
    };
    assert_eq!(path(&last).next, NextStep::AwaitRollout(unfinished));
    let last = PathState {
        add_on_problems: add_ons,
        ..state("v1.36.3", std::slice::from_ref(&old))
    };
    assert_eq!(path(&last).next, NextStep::Complete);
    insta::assert_snapshot!(too_old("v1.35.6", "v1.32", "v1.34.2").message(),
        @"MachineDeployment/md-0: upgrade from v1.31.4 to at least v1.32 and at most v1.34.2; API server v1.35.6 does not support older kubelets");
}

#[test]
fn a_step_reports_what_its_version_changes() {
    let config = json!({"clusterConfiguration": {
        "apiServer": {"extraArgs": [{"name": "cloud-provider", "value": "external"}]}}});
    let state = PathState {
        config: &config,
        ..state("v1.32.1", &[])
    };
    let path = path(&state, "v1.34.2", &["v1.33.6"]).expect("a path");
    let messages: Vec<Vec<&str>> = path
        .steps
        .iter()
        .map(|step| {
            step.notices
                .iter()
                .map(|notice| notice.message.as_str())
                .collect()
        })
        .collect();
    let first = "v1.33 no longer serves SelfSubjectReview in authentication.k8s.io/v1beta1: stop using it";
    let second = "v1.34 no longer serves ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding in \
                  admissionregistration.k8s.io/v1beta1: stop using them";
    assert_eq!(messages, [[first], [second]]);
}

#[test]
fn a_full_version_has_a_patch() {
    for (text, expected) in [
        ("v1.37.1", Ok("v1.37.1")),
        ("1.37.1", Ok("v1.37.1")),
        ("v1.37.0-rc.1", Ok("v1.37.0-rc.1")),
        (
            "v1.37",
            Err(
                "the patch version is missing: specify a version for which your infrastructure provider has images, such as v1.37.0",
            ),
        ),
        (
            "latest",
            Err(
                "not a Kubernetes version such as v1.34.2: unexpected character 'l' while parsing major version number",
            ),
        ),
    ] {
        let parsed = parse_full_version(text);
        assert_eq!(parsed.as_deref().map_err(String::as_str), expected, "{text}");
    }
}

#[test]
fn a_class_lists_the_versions_of_a_chain() {
    let listed = |versions: &str| -> Vec<String> { versions.split(' ').map(str::to_owned).collect() };
    for (from, to, versions, expected) in [
        (
            "v1.33.6",
            "v1.35.0",
            "v1.33.6 v1.34.1 v1.34.2 v1.35.0",
            "v1.34.2 v1.35.0",
        ),
        (
            "v1.33.6",
            "v1.36.3",
            "v1.34.2 v1.35.0 v1.35.4 v1.36.3",
            "v1.34.2 v1.35.4 v1.36.3",
        ),
        ("v1.33.6", "v1.34.2", "v1.34.2", "v1.34.2"),
        // A minor version, or the version itself, is not listed.
        ("v1.33.6", "v1.35.0", "v1.33.6 v1.35.0", ""),
        ("v1.33.6", "v1.35.1", "v1.34.2 v1.35.0", ""),
        ("v1.33.6", "v2.0.0", "v1.34.2 v2.0.0", ""),
        ("v1.33.6", "next", "v1.34.2", ""),
    ] {
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert_eq!(
            chained_versions(from, to, &listed(versions)),
            expected,
            "{from} {to} {versions}"
        );
    }
}

#[test]
fn the_state_of_a_cluster() {
    let healthy = snapshot::observed();
    let problems = |observed: &Snapshot| {
        let state = PathState::new(observed, Workers::default(), now());
        (state.rollout_problems, state.add_on_problems)
    };
    assert_eq!(problems(&healthy), (vec![], vec![]));
    let mut changed = healthy.clone();
    changed.control_plane.spec = with_version(changed.control_plane.spec, "v1.35.0");
    let (unfinished, _) = problems(&changed);
    assert!(!unfinished.is_empty(), "the Machines have another version");
    let mut broken = healthy;
    let Reading::Read(workload) = &mut broken.workload else {
        panic!("not read");
    };
    let Reading::Read(Some(core_dns)) = &mut workload.core_dns else {
        panic!("not read");
    };
    core_dns.ready_pods = 0;
    assert_eq!(problems(&broken).1, ["Deployment/coredns 0 of 2 pods are ready"]);
}

proptest! {
    /// Takes each step of the path, and runs the same command again after it. Upgrades workers only when the path says so.
    #[test]
    fn a_path_skips_no_minor_and_leaves_no_worker_behind(
        from in 24..40_u64,
        minors in 0..6_u64,
        lags in vec(0..4_u64, 0..4),
        to_newest in any::<bool>(),
    ) {
        let version = |minor: u64| format!("v1.{minor}.3");
        let (mut current, to) = (version(from), version(from + minors));
        let via: Vec<String> = (from + 1..from + minors).map(version).collect();
        let minor = |version: &str| -> u64 { version.split('.').nth(1).expect("a minor").parse().expect("a number") };
        let mut workers: Vec<Worker> = lags
            .iter()
            .enumerate()
            .map(|(index, lag)| worker(&format!("Node/w{index}"), &version(from - lag)))
            .filter(|worker| skew(&worker.version, &current).is_none())
            .collect();
        let mut unfinished = Vec::new();
        // At most: a rollout, a stop and an upgrade for each minor.
        for _ in 0..3 * (minors + 1) {
            let state = PathState { rollout_problems: unfinished.clone(), ..state(&current, &workers) };
            let options = PathOptions { to: &to, via: &via, force: false };
            let next = upgrade_path(&state, options).expect("a path").next;
            match next {
                NextStep::Complete => break,
                NextStep::Upgrade(next) => {
                    prop_assert_eq!(minor(&next), minor(&current) + 1);
                    for worker in &workers {
                        prop_assert_eq!(skew(&worker.version, &next), None);
                    }
                    current = next;
                    unfinished = vec!["Machines up to date: 0 of 1".to_owned()];
                }
                NextStep::AwaitRollout(_) => unfinished.clear(),
                NextStep::UpgradeWorkers(old) => {
                    prop_assert!(!old.is_empty());
                    for OldWorker { worker, oldest_supported: oldest, newest_supported: newest, .. } in old {
                        let upgraded = if to_newest { newest } else { format!("{oldest}.0") };
                        prop_assert_eq!(skew(&upgraded, &current), None);
                        for known in workers.iter_mut().filter(|known| known.object == worker.object) {
                            known.version.clone_from(&upgraded);
                        }
                    }
                }
                NextStep::AwaitAddOns(_) => unreachable!("none is broken"),
            }
        }
        prop_assert_eq!(current, to);
    }
}
