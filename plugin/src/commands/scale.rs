//! Runs `kubectl kcp scale`, which changes the number of Machines of a control plane.

use clap::Args;
use kcp_client::{ReadLimit, reader::Reader, reads::change::LIMIT};
use kcp_control_plane::{
    verbs::scale::{ScaleOptions, decide, question},
    wait::WaitCondition,
};

use crate::{
    arguments::{ControlPlaneName, parse_control_plane},
    change::{
        arguments::{ReviewArguments, WaitArguments, WriteArguments},
        confirmation::ConfirmArguments,
        engine::{Engine, FORCE_EFFECT, Verb},
    },
    session::Session,
    terminal::escape,
    verdict::Verdict,
    wait::Wait,
};

/// Change the number of Machines of a control plane.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp scale edge --replicas 3 --wait
  kubectl kcp scale edge --replicas 1 --yes
  kubectl kcp scale edge --replicas 5 --current-replicas 3 --dry-run=server")]
pub struct ScaleArguments {
    /// Control plane to scale, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// Desired number of Machines
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_replicas)]
    pub replicas: i64,

    /// Scale only if spec.replicas currently has this value
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_replicas)]
    pub current_replicas: Option<i64>,

    /// Scale even if the preflight blocks the first step; admission rules still apply, and etcd must still keep its
    /// quorum
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    #[command(flatten)]
    pub wait: WaitArguments,

    #[command(flatten)]
    pub write: WriteArguments,

    #[command(flatten)]
    pub review: ReviewArguments,
}

pub async fn run(arguments: ScaleArguments, session: &Session) -> anyhow::Result<Verdict> {
    let replicas = &arguments.replicas;
    let configuration = arguments.review.read()?;
    let connection = session.connect().await?;
    let namespace = &connection.namespace;
    let reader = Reader::discover(&connection).await?;
    let name = &arguments.name.read(&reader, ReadLimit::per_read(LIMIT)).await?;
    let before = match arguments.wait.limit() {
        Some(_) => Some(reader.read_snapshot(namespace, name).await?),
        None => None,
    };
    let engine = Engine {
        reader: &reader,
        terminal: &session.terminal,
        arguments: &arguments.write,
        configuration: configuration.as_ref(),
    };
    let verb = Verb {
        name,
        infinitive: "scale",
        not_done: &format!("not scaled to {replicas}"),
        force_effect: Some(FORCE_EFFECT),
        waits_for_replacement: true,
    };
    let options = ScaleOptions {
        replicas: *replicas,
        current: arguments.current_replicas,
        force: arguments.force,
    };
    let changed = engine.change_control_plane_if_confirmed(
        &verb,
        arguments.confirm,
        |snapshot| question(snapshot, *replicas),
        |snapshot, context| Ok(decide(snapshot, options, context)?),
    );
    let verdict = engine.report(&verb, &Box::pin(changed).await?).await?;
    let (Verdict::Met, Some(timeout)) = (verdict, arguments.wait.limit()) else {
        return Ok(verdict);
    };
    let machines = if *replicas == 1 { "Machine" } else { "Machines" };
    let wait = Wait {
        name,
        condition: WaitCondition::Replicas(*replicas),
        timeout,
        before,
        // The command in this hint contains --current-replicas, because another client may have scaled again by the time
        // the user runs it.
        interrupt_message: format!(
            "scaling continues; wait for it with: kubectl kcp scale {name} -n {namespace} --replicas {replicas} \
             --current-replicas {replicas} --wait"
        ),
        done_message: format!(
            "kubeadmcontrolplane/{} has {replicas} {machines}, ready and up to date\n",
            escape(name)
        ),
    };
    Box::pin(wait.run(&reader, &session.terminal)).await
}

/// Parses the number of Machines. Checks only that it is a whole number, because admission rules check the value.
pub(crate) fn parse_replicas(text: &str) -> Result<i64, String> {
    // Kubernetes' API stores the number as a 32-bit integer.
    match text.parse::<i32>() {
        Ok(replicas) if replicas >= 0 => Ok(replicas.into()),
        _ => Err(format!(
            "expected a whole number of Machines, from 0 to {}",
            i32::MAX
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_replicas;

    #[test]
    fn accepts_numbers_that_the_api_can_hold() {
        for (text, replicas) in [("0", 0), ("3", 3), ("2147483647", 2_147_483_647)] {
            assert_eq!(parse_replicas(text), Ok(replicas), "{text}");
        }
    }

    #[test]
    fn rejects_anything_else() {
        let error = "expected a whole number of Machines, from 0 to 2147483647".to_owned();
        for text in ["-1", "2147483648", "99999999999999999999", "1.5", "abc", ""] {
            assert_eq!(parse_replicas(text), Err(error.clone()), "{text}");
        }
    }
}
