//! `kubectl kcp reconcile`: makes a controller try again now, instead of after its wait.

use clap::Args;
use kcp_client::{ReadLimit, reader::Reader, reads::change::LIMIT};
use kcp_control_plane::{
    snapshot::change::ReadScope,
    verbs::reconcile::{decide, decide_machine},
};

use crate::{
    arguments::{ControlPlaneName, name::MACHINE, parse_control_plane, parse_machine},
    change::{
        arguments::WriteArguments,
        engine::{Engine, MachineScope, Verb},
    },
    session::Session,
    verdict::Verdict,
};

/// Make the controller of a control plane or Machine try again now.
#[derive(Debug, Args)]
#[command(
    after_help = "After an error, a controller waits before it tries again: longer after each error, up to ten minutes with \
        Cluster API's default settings. This command ends the wait. It writes one annotation with the time, and changes nothing \
        else in the object. Use it once you have removed the cause of the error.

Examples:
  kubectl kcp reconcile edge
  kubectl kcp reconcile machine/edge-9hng4"
)]
pub struct ReconcileArguments {
    /// Control plane, as NAME, kcp/NAME or cluster/NAME, or Machine of a control plane, as machine/NAME
    #[arg(value_name = "NAME", value_parser = parse_target)]
    pub target: ReconcileTarget,

    #[command(flatten)]
    pub write: WriteArguments,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileTarget {
    ControlPlane(ControlPlaneName),
    Machine(String),
}

fn parse_target(text: &str) -> Result<ReconcileTarget, String> {
    let is_machine = text
        .split_once('/')
        .is_some_and(|(kind, _)| MACHINE.is_named(kind));
    if is_machine {
        return parse_machine(text).map(ReconcileTarget::Machine);
    }
    let parsed = parse_control_plane(text).map(ReconcileTarget::ControlPlane);
    parsed.map_err(|why| {
        why.replace(
            "write NAME, kcp/NAME or cluster/NAME",
            "write NAME, kcp/NAME, cluster/NAME or machine/NAME",
        )
    })
}

pub async fn run(arguments: ReconcileArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let engine = Engine {
        reader: &reader,
        terminal: &session.terminal,
        arguments: &arguments.write,
        configuration: None,
    };
    let verb = |name| Verb {
        name,
        infinitive: "reconcile",
        not_done: "not written",
        force_effect: None,
        waits_for_replacement: false,
    };
    let name = match &arguments.target {
        ReconcileTarget::Machine(name) => {
            let verb = verb(name);
            let changed = engine.change_machine(&verb, MachineScope::Machine, decide_machine);
            return engine.report(&verb, &Box::pin(changed).await?).await;
        }
        ReconcileTarget::ControlPlane(name) => {
            let limit = ReadLimit::per_read(LIMIT);
            name.read(&reader, limit).await?
        }
    };
    let verb = verb(&name);
    let changed = engine.change_control_plane(&verb, ReadScope::ControlPlane, |snapshot, context| {
        Ok(decide(snapshot, context)?)
    });
    engine.report(&verb, &Box::pin(changed).await?).await
}

#[cfg(test)]
mod tests {
    use super::{ControlPlaneName, ReconcileTarget, parse_target};

    #[test]
    fn a_control_plane_or_a_machine_is_reconciled() {
        let name = || "edge".to_owned();
        for (text, expected) in [
            (
                "edge",
                ReconcileTarget::ControlPlane(ControlPlaneName::Own(name())),
            ),
            (
                "cluster/edge",
                ReconcileTarget::ControlPlane(ControlPlaneName::OfCluster(name())),
            ),
            ("machine/edge", ReconcileTarget::Machine(name())),
            ("ma/edge", ReconcileTarget::Machine(name())),
        ] {
            assert_eq!(parse_target(text), Ok(expected), "{text}");
        }
        assert_eq!(
            parse_target("pod/edge"),
            Err(
                "pod is not a control plane or a cluster: write NAME, kcp/NAME, cluster/NAME or machine/NAME"
                    .to_owned()
            )
        );
    }
}
