//! `kubectl kcp upgrade`: shows the effects of a new Kubernetes version, prompts for confirmation, and writes the version.
//!
//! - [`path`]: `--via`, several minor versions, one after the other

mod path;

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use clap::Args;
use kcp_api::{Reference, kind::KUBEADM_CONTROL_PLANE};
use kcp_client::{
    ReadLimit,
    reader::Reader,
    reads::{
        change::LIMIT, deprecated_apis::read_used_apis, planned::Reads, topology::read_chain,
        workers::read_workers,
    },
};
use kcp_control_plane::{
    change::decision::Decision,
    machine_image::Templates,
    review::ReviewContext,
    snapshot::Workers,
    snapshot::{
        Snapshot,
        change::{ChangeSnapshot, ReadScope},
    },
    verbs::{
        upgrade::{Notice, Upgrade, UpgradeOptions, decide, over_several_versions},
        upgrade_path::{parse_full_version, versions_between},
    },
    wait::WaitCondition,
};
use owo_colors::OwoColorize as _;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane},
    change::{
        arguments::{ReviewArguments, WaitArguments, WriteArguments},
        confirmation::ConfirmArguments,
        engine::{ChangeOutcome, Changed, Engine, FORCE_EFFECT, Verb},
    },
    commands::{etcd::snapshot_first::SnapshotFirstArguments, plan::screen},
    session::Session,
    terminal::{
        escape,
        style::{FAINT, HEADING},
        table::Layout,
    },
    verdict::Verdict,
    wait::Wait,
};

/// Change the Kubernetes version of a control plane, after a preview and a confirmation.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp upgrade edge --to v1.34.2
  kubectl kcp upgrade edge --to v1.34.2 --snapshot edge.db
  kubectl kcp upgrade edge --to v1.34.2 --infrastructure-template edge-1.34
  kubectl kcp upgrade edge --to v1.34.2 --yes --wait=1h
  kubectl kcp upgrade edge --to v1.36.3 --via v1.34.9,v1.35.6 --dry-run
  kubectl kcp upgrade edge --to v1.36.3 --via v1.34.9,v1.35.6 --snapshot backups/ --yes --wait")]
pub struct UpgradeArguments {
    /// Control plane to upgrade, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// New Kubernetes version, such as v1.34.2
    #[arg(long, value_name = "VERSION", value_parser = parse_full_version)]
    pub to: String,

    /// Write this infrastructure template in the same update. The template must exist, and have the kind of the current
    /// template. The flag is necessary if the provider's templates name an image
    #[arg(long, value_name = "NAME", conflicts_with = "via")]
    pub infrastructure_template: Option<String>,

    /// The versions on the way, one for each minor version between the current version and the new one. Without --wait,
    /// write only the next upgrade; run the same command again to continue
    #[arg(long, value_name = "VERSION,...", value_parser = parse_full_version, value_delimiter = ',')]
    pub via: Vec<String>,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    /// Upgrade even if the preflight blocks the first step; admission rules still apply, etcd must still keep its
    /// quorum, and the new version must still support the kubelets of the workers. With --via, also upgrade while an
    /// add-on (kube-proxy or coredns) is not ready
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub wait: WaitArguments,

    #[command(flatten)]
    pub snapshot: SnapshotFirstArguments,

    #[command(flatten)]
    pub write: WriteArguments,

    #[command(flatten)]
    pub review: ReviewArguments,
}

pub async fn run(arguments: UpgradeArguments, session: &Session) -> anyhow::Result<Verdict> {
    let configuration = arguments.review.read()?;
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let engine = Engine {
        reader: &reader,
        terminal: &session.terminal,
        arguments: &arguments.write,
        configuration: configuration.as_ref(),
    };
    let name = &arguments.name.read(&reader, ReadLimit::per_read(LIMIT)).await?;
    if !arguments.via.is_empty() {
        return Box::pin(path::run(&arguments, name, &arguments.to, &engine)).await;
    }
    let namespace = &connection.namespace;
    let on_interrupt =
        format!("the upgrade continues; watch with: kubectl kcp rollout status {name} -n {namespace}");
    let observed = reader.read_snapshot(namespace, name).await?;
    let chain = read_chain(&reader, &observed, &arguments.to).await?;
    let target = Target {
        first: chain.first().unwrap_or(&arguments.to),
        last: &arguments.to,
    };
    if chain.len() > 1 {
        let text = format!(
            "Cluster API upgrades the control plane through {}, the versions of the ClusterClass. This is the first of these \
             upgrades:\n\n",
            escape(&chain.join(", "))
        );
        engine.print_text(&text)?;
    }
    Box::pin(upgrade_and_wait(&arguments, name, target, on_interrupt, &engine)).await
}

/// The version of the next upgrade, and the version to which the Cluster's topology then continues.
#[derive(Clone, Copy, Debug)]
struct Target<'t> {
    first: &'t str,
    last: &'t str,
}

impl<'t> Target<'t> {
    const fn only(version: &'t str) -> Self {
        Self {
            first: version,
            last: version,
        }
    }
}

/// Upgrades the control plane to one version. With `--wait`, waits until the upgrade is complete.
async fn upgrade_and_wait(
    arguments: &UpgradeArguments,
    name: &str,
    target: Target<'_>,
    on_interrupt: String,
    engine: &Engine<'_>,
) -> anyhow::Result<Verdict> {
    let namespace = &engine.reader.connection.namespace;
    let before = match arguments.wait.limit() {
        Some(_) => Some(engine.reader.read_snapshot(namespace, name).await?),
        None => None,
    };
    let verdict = Box::pin(upgrade(arguments, name, target, engine)).await?;
    match (verdict, arguments.wait.limit()) {
        (Verdict::Met, Some(timeout)) => {
            Box::pin(wait_for(name, target.last, timeout, before, on_interrupt, engine)).await
        }
        _ => Ok(verdict),
    }
}

/// Waits until all Machines are ready and up to date with this version in the spec.
async fn wait_for(
    name: &str,
    version: &str,
    timeout: Duration,
    before: Option<Snapshot>,
    on_interrupt: String,
    engine: &Engine<'_>,
) -> anyhow::Result<Verdict> {
    let done = format!(
        "kubeadmcontrolplane/{} is at {}, with all Machines ready and up to date\n",
        escape(name),
        escape(version)
    );
    let wait = Wait {
        name,
        condition: WaitCondition::Version(version.to_owned()),
        timeout,
        before,
        interrupt_message: on_interrupt,
        done_message: done,
    };
    Box::pin(wait.run(engine.reader, engine.terminal)).await
}

/// Shows a preview of the upgrade, asks the user to confirm, and writes the version.
async fn upgrade(
    arguments: &UpgradeArguments,
    name: &str,
    Target { first: version, last }: Target<'_>,
    engine: &Engine<'_>,
) -> anyhow::Result<Verdict> {
    let write = &arguments.write;
    let verb = Verb {
        name,
        infinitive: "upgrade",
        not_done: &format!("not upgraded to {last}"),
        force_effect: Some(FORCE_EFFECT),
        waits_for_replacement: true,
    };
    let snapshot = Box::pin(engine.read(name, ReadScope::All)).await?;
    if let Some(refusal) = engine.refusal_during_replacement(&verb, &snapshot, None) {
        let changed = Changed::without_write(&snapshot, ChangeOutcome::Refused(refusal));
        return engine.report(&verb, &changed).await;
    }
    let control_plane = snapshot.control_plane();
    let mut workers = read_workers(engine.reader, control_plane, ReadLimit::per_read(LIMIT)).await;
    let templates = Box::pin(read_templates(arguments, &snapshot, engine)).await?;
    let end = Instant::now() + LIMIT;
    let used_apis = read_used_apis(engine.reader.connection, &snapshot.observed, version, end);
    let used_apis = Box::pin(used_apis).await;
    let decide = |snapshot: &ChangeSnapshot, context: ReviewContext<'_>, workers: &Workers| {
        let view = snapshot.view();
        let context = ReviewContext {
            view: &view,
            ..context
        };
        let options = UpgradeOptions {
            version,
            force: arguments.force,
            workers,
            templates: &templates,
            used_apis: &used_apis,
            api_version: &engine.reader.control_plane_resource.api_version,
        };
        decide(snapshot, options, context)
    };
    let view = snapshot.view();
    let shown = decide(&snapshot, engine.context(&view), &workers)?;
    if !matches!(shown.decision, Decision::Unchanged(_)) {
        engine.print_text(&preview(&shown, write.output.layout(None)))?;
    }
    let outcome = match &shown.decision {
        Decision::Unchanged(why) => Some(ChangeOutcome::Unchanged(why.clone())),
        Decision::Refused(refusal) => {
            let mut refusal = refusal.clone();
            let from = snapshot.observed.control_plane.spec.version();
            refusal.remedies.extend(versions_between(from, version));
            Some(ChangeOutcome::Refused(refusal))
        }
        Decision::Write(_) => None,
    };
    if let Some(outcome) = outcome {
        let changed = Changed::without_write(&snapshot, outcome);
        return engine.report(&verb, &changed).await;
    }
    if let Decision::Write(proposal) = &shown.decision {
        engine.warn(&proposal.warnings);
    }
    let asks = write.dry_run.is_none() && !arguments.confirm.yes;
    arguments
        .snapshot
        .warn(control_plane, engine.now(), engine.terminal);
    if asks {
        let goal = format!(
            "upgrade control plane {name} from {} to {last}",
            snapshot.observed.control_plane.spec.version()
        );
        let place = engine.reader.connection.describe_target();
        if !arguments
            .confirm
            .confirm(&goal, &place, false, engine.terminal)
            .await?
        {
            let changed = Changed::unconfirmed(
                &KUBEADM_CONTROL_PLANE,
                name,
                &snapshot.json,
                snapshot.control_plane(),
            );
            return engine.report(&verb, &changed).await;
        }
        // Read the workers again, because they may have changed while the user read the preview.
        workers = read_workers(engine.reader, control_plane, ReadLimit::per_read(LIMIT)).await;
    }
    let saved = arguments
        .snapshot
        .save(control_plane, engine.reader, engine.terminal);
    Box::pin(saved).await?;
    let changed = engine.change_control_plane(&verb, ReadScope::All, |snapshot, context| {
        let upgrade = decide(snapshot, context, &workers)?;
        let decision = upgrade.into_confirmed_decision(asks.then_some(&shown));
        Ok(if version == last {
            decision
        } else {
            over_several_versions(decision, snapshot.control_plane().spec.version(), last)
        })
    });
    let changed = Box::pin(changed).await?;
    engine.report(&verb, &changed).await
}

/// Reads the current infrastructure template of the control plane, and the new one, which must exist.
async fn read_templates(
    arguments: &UpgradeArguments,
    snapshot: &ChangeSnapshot,
    engine: &Engine<'_>,
) -> anyhow::Result<Templates> {
    let reads = Reads {
        reader: engine.reader,
        namespace: &engine.reader.connection.namespace,
        limit: ReadLimit::per_read(LIMIT),
    };
    let current = &snapshot.observed.control_plane.spec.infrastructure_ref;
    let new = match &arguments.infrastructure_template {
        None => None,
        Some(name) => {
            let reference = Reference {
                name: name.clone(),
                ..current.clone()
            };
            Some((name.clone(), reads.read_template(&reference).await?))
        }
    };
    let current = reads.read_template(current).await;
    Ok(Templates {
        current: current.map_err(|error| error.to_string()),
        new,
    })
}

/// The preview of an upgrade: the planned steps, and what changes in the new Kubernetes version.
fn preview(Upgrade { plan, assessment, .. }: &Upgrade, layout: Layout) -> String {
    let mut text = screen::render(plan, layout);
    if !assessment.notices.is_empty() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{}", "Changes in the new version:".style(HEADING));
    }
    push_notices(&mut text, &assessment.notices, "  ");
    text
}

fn push_notices(text: &mut String, notices: &[Notice], indent: &str) {
    for notice in notices {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{indent}{}", escape(&notice.message));
        if let Some(source) = notice.source {
            let _ = writeln!(text, "{indent}  {} {source}", "see".style(FAINT));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Layout, Upgrade, preview};
    use crate::terminal::plain;
    use kcp_control_plane::{
        change::decision::Decision,
        plan::{options::desired, plan},
        snapshot::Workers,
        testing::{change::snapshot, objects::now},
        verbs::upgrade::assess,
    };

    #[test]
    fn shows_the_preview_of_an_upgrade() {
        let snapshot = snapshot();
        let patch = json!({"spec": {"version": "v1.35.0"}});
        let desired = desired(&snapshot.json, &patch, &[]).expect("decodes");
        let config = json!({
            "clusterConfiguration": {"etcd": {"local": {"imageTag": "3.5.21-0"}}},
            "joinConfiguration": {"nodeRegistration": {"kubeletExtraArgs": [
                {"name": "pod-infra-container-image", "value": "pause:3.9"}]}}});
        let workers = Workers {
            workers: Vec::new(),
            read_failures: vec!["could not read the kubelet versions of the nodes: no answer".to_owned()],
        };
        let upgrade = Upgrade {
            plan: plan(&snapshot.observed, &desired, now()),
            assessment: assess("v1.34.2", "v1.35.0", &config, &workers, None),
            decision: Decision::Unchanged(String::new()),
        };
        insta::assert_snapshot!(plain(&preview(&upgrade, Layout::default())));
    }
}
