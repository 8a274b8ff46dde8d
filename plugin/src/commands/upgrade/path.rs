//! `kubectl kcp upgrade --via`: upgrades a control plane across several minor versions, one at a time.
//!
//! Each round reads the cluster again and writes at most one upgrade, so the same command continues after an interruption.

use std::{fmt::Write as _, time::Duration};

use anyhow::ensure;
use kcp_api::Object as _;
use kcp_client::{
    ReadLimit,
    reads::{change::LIMIT, workers::read_workers},
};
use kcp_control_plane::{
    change::decision::{Refusal, RefusedBy},
    snapshot::change::{ChangeSnapshot, ReadScope},
    verbs::upgrade_path::{NextStep, OldWorker, PathOptions, PathState, UpgradePath, upgrade_path},
};
use owo_colors::OwoColorize as _;
use tokio::time::{Instant, sleep};

use super::{Target, UpgradeArguments, push_notices, upgrade_and_wait, wait_for};
use crate::{
    change::engine::{ChangeOutcome, Changed, Engine, Verb},
    commands::etcd::stored::is_folder,
    terminal::{escape, style::HEADING},
    verdict::Verdict,
    wait::deadline,
};

/// The time between two reads while an add-on is not ready. Each read covers the Machines, the workload cluster and
/// etcd.
const ADD_ON_INTERVAL: Duration = Duration::from_secs(5);

/// Upgrades until the control plane is at `to`, or until it cannot continue. Without `--wait`, writes one upgrade at most.
pub(super) async fn run(
    arguments: &UpgradeArguments,
    name: &str,
    to: &str,
    engine: &Engine<'_>,
) -> anyhow::Result<Verdict> {
    if let Some(place) = &arguments.snapshot.snapshot {
        ensure!(
            is_folder(place),
            "--snapshot {place} is not an existing folder; with --via, specify an existing folder, because each upgrade \
             saves its own snapshot"
        );
    }
    let (mut is_first, mut has_waited) = (true, false);
    let mut add_on_deadline: Option<Instant> = None;
    loop {
        let snapshot = Box::pin(engine.read(name, ReadScope::All)).await?;
        let path = match next(arguments, to, &snapshot, engine).await {
            Ok(path) => path,
            Err(refusal) => return stop(to, &snapshot, refusal, engine).await,
        };
        if is_first && !path.steps.is_empty() {
            engine.print_text(&text(&path))?;
        }
        is_first = false;
        match (&path.next, arguments.wait.limit()) {
            (NextStep::Complete, _) if has_waited => return Ok(Verdict::Met),
            (NextStep::Complete, _) => {
                let why = format!("the version is already {to}, with all Machines ready and up to date");
                let outcome = ChangeOutcome::Unchanged(why);
                return report(to, &snapshot, outcome, engine).await;
            }
            (NextStep::AwaitRollout(_), Some(timeout)) => {
                let on_interrupt = on_interrupt(&path.from);
                let waited = wait_for(name, &path.from, timeout, None, on_interrupt, engine);
                let verdict = Box::pin(waited).await?;
                if verdict != Verdict::Met {
                    return Ok(verdict);
                }
                has_waited = true;
            }
            (NextStep::AwaitAddOns(problems), Some(timeout))
                if Instant::now()
                    < *add_on_deadline
                        .get_or_insert_with(|| deadline((!timeout.is_zero()).then_some(timeout))) =>
            {
                engine.terminal.set_interrupt_note(on_interrupt(&path.from));
                engine.terminal.spin(&problems.join(", "));
                sleep(ADD_ON_INTERVAL).await;
            }
            (NextStep::Upgrade(version), wait) => {
                engine.terminal.stop_spinning();
                add_on_deadline = None;
                let upgraded = upgrade_and_wait(
                    arguments,
                    name,
                    Target::only(version),
                    on_interrupt(version),
                    engine,
                );
                let verdict = Box::pin(upgraded).await?;
                if verdict != Verdict::Met {
                    return Ok(verdict);
                }
                if wait.is_none() {
                    if arguments.write.dry_run.is_none() {
                        engine.print_text(&after(&path, version))?;
                    }
                    return Ok(verdict);
                }
                has_waited = true;
            }
            (NextStep::AwaitRollout(_) | NextStep::AwaitAddOns(_) | NextStep::UpgradeWorkers(_), _) => {
                engine.terminal.stop_spinning();
                let refusal = refusal(&path, name, engine);
                return stop(to, &snapshot, refusal, engine).await;
            }
        }
    }
}

async fn next(
    arguments: &UpgradeArguments,
    to: &str,
    snapshot: &ChangeSnapshot,
    engine: &Engine<'_>,
) -> Result<UpgradePath, Refusal> {
    let limit = ReadLimit::per_read(LIMIT);
    let workers = read_workers(engine.reader, snapshot.control_plane(), limit).await;
    let state = PathState::new(&snapshot.observed, workers, engine.now());
    let options = PathOptions {
        to,
        via: &arguments.via,
        force: arguments.force,
    };
    upgrade_path(&state, options)
}

/// Why the next upgrade cannot start yet, and what to do.
fn refusal(path: &UpgradePath, name: &str, engine: &Engine<'_>) -> Refusal {
    let namespace = &engine.reader.connection.namespace;
    let from = &path.from;
    let (why, remedy) = match &path.next {
        NextStep::AwaitRollout(missing) => (
            missing
                .iter()
                .map(|line| format!("the rollout of {from} is not complete: {line}"))
                .collect(),
            format!(
                "run the same command again once the rollout is complete, or now with --wait; watch the rollout with: \
                 kubectl kcp rollout status {name} -n {namespace}"
            ),
        ),
        NextStep::UpgradeWorkers(workers) => (
            workers.iter().map(OldWorker::message).collect(),
            "upgrade these workers, then run the same command again".to_owned(),
        ),
        NextStep::AwaitAddOns(problems) => (
            problems.clone(),
            "run the same command again once the add-ons are ready, or now with --wait; use --force to upgrade anyway"
                .to_owned(),
        ),
        NextStep::Complete | NextStep::Upgrade(_) => (Vec::new(), String::new()),
    };
    Refusal {
        remedies: vec![remedy],
        ..Refusal::new(RefusedBy::Command, why)
    }
}

async fn stop(
    to: &str,
    snapshot: &ChangeSnapshot,
    refusal: Refusal,
    engine: &Engine<'_>,
) -> anyhow::Result<Verdict> {
    report(to, snapshot, ChangeOutcome::Refused(refusal), engine).await
}

async fn report(
    to: &str,
    snapshot: &ChangeSnapshot,
    outcome: ChangeOutcome,
    engine: &Engine<'_>,
) -> anyhow::Result<Verdict> {
    let verb = Verb {
        name: snapshot.control_plane().name(),
        infinitive: "upgrade",
        not_done: &format!("not upgraded to {to}"),
        force_effect: None,
        waits_for_replacement: true,
    };
    engine
        .report(&verb, &Changed::without_write(snapshot, outcome))
        .await
}

fn on_interrupt(version: &str) -> String {
    format!(
        "the rollout of {version} continues; run the same command again to continue with the next minor version"
    )
}

/// The remaining versions, and what each of them needs.
fn text(path: &UpgradePath) -> String {
    let heading = format!(
        "Upgrades from {}, one minor version at a time:",
        escape(&path.from)
    );
    let mut text = format!("{}\n", heading.style(HEADING));
    for step in &path.steps {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}", escape(&step.version));
        // The preview shows the changes of the next upgrade.
        if !matches!(&path.next, NextStep::Upgrade(next) if *next == step.version) {
            for worker in &step.workers {
                let _ = writeln!(text, "    first, {}", escape(&worker.message()));
            }
            push_notices(&mut text, &step.notices, "    ");
        }
    }
    text.push('\n');
    text
}

/// What to do after an upgrade that the command does not wait for.
fn after(path: &UpgradePath, version: &str) -> String {
    let mut rest = path.steps.iter().map(|step| step.version.as_str());
    match rest.find(|step| *step != version) {
        Some(next) => format!(
            "next: {}; run the same command again once the rollout of {} is complete\n",
            escape(next),
            escape(version)
        ),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{after, text};
    use crate::terminal::plain;
    use kcp_control_plane::{
        snapshot::workers::Worker,
        verbs::upgrade_path::{PathOptions, PathState, upgrade_path},
    };
    use serde_json::json;

    #[test]
    fn shows_the_path() {
        let config = json!({"clusterConfiguration": {
            "apiServer": {"extraArgs": [{"name": "cloud-provider", "value": "external"}]}}});
        let worker = Worker {
            object: "MachineDeployment/md-0".to_owned(),
            version: "v1.30.14".to_owned(),
            machines: None,
        };
        let state = PathState {
            version: "v1.31.4",
            config: &config,
            rollout_problems: Vec::new(),
            add_on_problems: Vec::new(),
            workers: vec![worker],
            read_failures: Vec::new(),
        };
        let via = ["v1.32.9".to_owned(), "v1.33.6".to_owned()];
        let options = PathOptions {
            to: "v1.34.2",
            via: &via,
            force: false,
        };
        let path = upgrade_path(&state, options).expect("a path");
        insta::assert_snapshot!(plain(&text(&path)));
        assert_eq!(
            after(&path, "v1.32.9"),
            "next: v1.33.6; run the same command again once the rollout of v1.32.9 is complete\n"
        );
        let last = PathOptions {
            to: "v1.32.9",
            via: &[],
            ..options
        };
        let path = upgrade_path(&state, last).expect("a path");
        assert_eq!(after(&path, "v1.32.9"), "");
    }
}
