//! How far a Pod of a validation has come.

use k8s_openapi::api::core::v1::{ContainerState, Pod, PodStatus};

/// The state of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The Pod has not ended. The text says what it waits for, if an object says so.
    Waiting(Option<String>),
    /// The container has ended, so its log is complete.
    Ended,
    /// The Pod cannot run. The text says why.
    Failed(String),
}

impl Progress {
    pub fn of(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let state = status
            .container_statuses
            .iter()
            .flatten()
            .find_map(|container| container.state.clone());
        let has_ended = state.as_ref().is_some_and(|state| state.terminated.is_some());
        match status.phase.as_deref() {
            Some("Succeeded") => Self::Ended,
            Some("Failed") if has_ended => Self::Ended,
            Some("Failed") => {
                let why = described(status.reason.as_deref(), status.message.as_deref());
                Self::Failed(why.unwrap_or_else(|| "the Pod failed".to_owned()))
            }
            _ if has_ended => Self::Ended,
            _ => Self::Waiting(waits_for(&status, state)),
        }
    }

    /// Whether nothing will change.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Ended | Self::Failed(_))
    }
}

/// What a Pod waits for: the container, or else the scheduler.
fn waits_for(status: &PodStatus, state: Option<ContainerState>) -> Option<String> {
    let waiting = state.and_then(|state| state.waiting);
    if let Some(waiting) = waiting {
        return described(waiting.reason.as_deref(), waiting.message.as_deref());
    }
    let mut conditions = status.conditions.iter().flatten();
    let unscheduled =
        conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    described(unscheduled.reason.as_deref(), unscheduled.message.as_deref())
}

/// The reason and the message on one line.
fn described(reason: Option<&str>, message: Option<&str>) -> Option<String> {
    let words = [reason, message].into_iter().flatten();
    let words: Vec<String> = words
        .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|text| !text.is_empty())
        .collect();
    (!words.is_empty()).then(|| words.join(": "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::Progress;

    #[test]
    fn a_pod_ends_with_its_container() {
        let container = |state: Value| {
            json!([{"name": "probe", "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": state}])
        };
        let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "no such\nimage"}});
        let terminated = json!({"terminated": {"exitCode": 1}});
        let unscheduled = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes are available"}]);
        let waits = |text: &str| Progress::Waiting(Some(text.to_owned()));
        for (status, expected) in [
            (json!({}), Progress::Waiting(None)),
            (json!({"phase": "Running"}), Progress::Waiting(None)),
            (
                json!({"phase": "Pending", "conditions": unscheduled}),
                waits("Unschedulable: 0/1 nodes are available"),
            ),
            (
                json!({"phase": "Pending", "containerStatuses": container(waiting)}),
                waits("ErrImagePull: no such image"),
            ),
            (json!({"phase": "Succeeded"}), Progress::Ended),
            (
                json!({"phase": "Failed", "containerStatuses": container(terminated.clone())}),
                Progress::Ended,
            ),
            (
                json!({"phase": "Running", "containerStatuses": container(terminated)}),
                Progress::Ended,
            ),
            (
                json!({"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}),
                Progress::Failed("Evicted: the node was low on memory".to_owned()),
            ),
            (
                json!({"phase": "Failed"}),
                Progress::Failed("the Pod failed".to_owned()),
            ),
        ] {
            let pod = from_value(json!({"metadata": {}, "status": status})).expect("a Pod");
            assert_eq!(Progress::of(&pod), expected, "{status}");
        }
    }
}
