//! A Machine, its control plane and what surrounds both, at one time.

use crate::verbs::machine::object::MachineObject;
use crate::{
    change::situation::Situation,
    control_plane::MachineHealthCheck,
    plan::observed::{Machine, Observed},
};

/// What a change of a Machine is judged on.
#[derive(Debug)]
pub struct MachineSituation {
    /// The Machine.
    pub object: MachineObject,
    /// Its control plane, with the Machines as they were last.
    pub situation: Situation,
    /// The `MachineHealthChecks` of its Cluster that select it; none where they were not asked for.
    pub health_checks: Vec<MachineHealthCheck>,
}

impl MachineSituation {
    /// The facts about its control plane.
    pub const fn observed(&self) -> &Observed {
        &self.situation.observed
    }

    /// The facts about it.
    pub fn machine(&self) -> Option<&Machine> {
        let mut machines = self.observed().machines.iter();
        machines.find(|machine| machine.machine.name == self.object.name)
    }

    /// Who keeps the controllers from working on it, a line each.
    pub fn pauses(&self) -> Vec<String> {
        let Observed {
            control_plane,
            cluster,
            ..
        } = self.observed();
        let is_paused = control_plane.paused || (control_plane.is("Paused") && !cluster.paused);
        [
            (self.object.is_paused(), "the Machine is paused"),
            (is_paused, "the control plane is paused"),
            (cluster.paused, "the Cluster is paused"),
        ]
        .into_iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, what)| what.to_owned())
        .collect()
    }
}
