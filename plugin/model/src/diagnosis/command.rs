//! Where to look next if the facts that can be read do not name the cause. It is one command.

use jiff::Timestamp;
use kcp_api::Object as _;
use serde::Serialize;

use super::{
    Facts,
    steps::{Step, StepName, StepState},
};
use crate::snapshot::{Reading, workload::Component};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NextCommand {
    /// Whether to run the command on the host of the Machine. If not, run it here.
    pub on_host: bool,
    pub command: String,
}

impl NextCommand {
    fn on_host(command: String) -> Self {
        Self {
            on_host: true,
            command,
        }
    }
}

/// The command for the step that is missing. `None` if none is, or if the facts name the cause or lead to another program than those
/// on the host.
pub(super) fn next_command(facts: &Facts<'_>, missing: Option<&Step>) -> Option<NextCommand> {
    let step = missing?;
    if step.state == StepState::Unknown {
        let is_forbidden = matches!(facts.nodes(), Reading::Failed(failure) if failure.forbidden.is_some());
        // The API server that does not respond may be the one on this host.
        return (facts.of_control_plane && !is_forbidden)
            .then(|| NextCommand::on_host(Component::ApiServer.log_command_on_host()));
    }
    Some(match step.step {
        StepName::BootstrapData | StepName::Infrastructure => return None,
        StepName::NodeRegistered => join_log(facts, step.since),
        StepName::EtcdMemberVotes if facts.member().is_none() => join_log(facts, step.since),
        StepName::EtcdMemberVotes => component_log(facts, Component::Etcd, false)?,
        StepName::StaticPodsReady => of_static_pods(facts, step.since)?,
        StepName::NodeReady => kubelet_log(step.since),
    })
}

/// What kubeadm has printed. Cluster API's Ignition runs it in a unit.
fn join_log(facts: &Facts<'_>, since: Option<Timestamp>) -> NextCommand {
    let config = facts.kubeadm_config();
    let is_ignition = config.is_some_and(|config| config.format.as_deref() == Some("ignition"));
    NextCommand::on_host(if is_ignition {
        format!(
            "journalctl -u kubeadm.service -u kubelet.service{} --no-pager",
            since_flag(since)
        )
    } else {
        "tail -n 100 /var/log/cloud-init-output.log".to_owned()
    })
}

fn kubelet_log(since: Option<Timestamp>) -> NextCommand {
    NextCommand::on_host(format!("journalctl -u kubelet{} --no-pager", since_flag(since)))
}

fn since_flag(since: Option<Timestamp>) -> String {
    let time = since.map(|since| since.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
    time.map_or_else(String::new, |time| format!(" --since \"{time}\""))
}

/// The log of a component, which the kubelet serves. `None` if the control plane is unknown.
fn component_log(facts: &Facts<'_>, component: Component, is_previous: bool) -> Option<NextCommand> {
    let control_plane = &facts.observed?.control_plane;
    let (name, namespace) = (control_plane.name(), control_plane.namespace());
    let (component, machine) = (component.as_str(), facts.machine.name());
    let previous = if is_previous { " --previous" } else { "" };
    Some(NextCommand {
        on_host: false,
        command: format!(
            "kubectl kcp logs {name} -n {namespace} --component {component} --machine {machine}{previous}"
        ),
    })
}

/// The command for the first component that is not ready. `None` if its container says why it ended,
/// or why it waits.
fn of_static_pods(facts: &Facts<'_>, since: Option<Timestamp>) -> Option<NextCommand> {
    let not_ready = |component: &Component| facts.static_pod(*component).is_none_or(|pod| !pod.ready);
    let component = facts.components().find(not_ready)?;
    let Some(pod) = facts.static_pod(component) else {
        return Some(kubelet_log(since));
    };
    match (&pod.last_exit, &pod.message) {
        (Some(exit), _) if exit.contains(": ") => None,
        (Some(_), _) => component_log(facts, component, pod.crash_loop.is_some()),
        (None, Some(_)) => None,
        (None, None) => component_log(facts, component, false),
    }
}
