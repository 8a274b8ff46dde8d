//! Describes the changes of a control plane since the last poll, one line each.

use kcp_api::{Machine, Object as _};
use kcp_control_plane::snapshot::Snapshot;

/// The changes between two polls, one line each. Without an earlier poll, the counts of Machines.
pub fn changes(before: Option<&Snapshot>, after: &Snapshot) -> Vec<String> {
    let counts = counts(after);
    let Some(before) = before else {
        return vec![counts];
    };
    let events = machine_changes(&before.machines, &after.machines);
    if events.is_empty() && self::counts(before) != counts {
        return vec![counts];
    }
    events
        .into_iter()
        .map(|event| format!("{counts}  {event}"))
        .collect()
}

pub fn machine_changes<'m>(
    before: impl IntoIterator<Item = &'m Machine>,
    after: impl IntoIterator<Item = &'m Machine>,
) -> Vec<String> {
    let before: Vec<&Machine> = before.into_iter().collect();
    let after: Vec<&Machine> = after.into_iter().collect();
    let mut events = Vec::new();
    for machine in &after {
        let known = before.iter().find(|known| known.name() == machine.name());
        events.extend(machine_events(known.copied(), machine));
    }
    for machine in &before {
        if !after.iter().any(|left| left.name() == machine.name()) {
            events.push(format!("Machine {} no longer exists", machine.name()));
        }
    }
    events
}

/// Counts the Machines themselves, because the counts in the control plane's status lag behind and would contradict the
/// rest of the line.
fn counts(snapshot: &Snapshot) -> String {
    let Snapshot {
        control_plane,
        machines,
        ..
    } = snapshot;
    let ready = machines.iter().filter(|machine| machine.ready() == Some(true));
    let reports = machines.iter().filter_map(Machine::up_to_date);
    let up_to_date = if reports.clone().next().is_some() {
        reports.filter(|is_up_to_date| *is_up_to_date).count()
    } else {
        // Machines of old versions of Cluster API do not report whether they are up to date.
        usize::try_from(control_plane.status.up_to_date_replicas).unwrap_or_default()
    };
    format!(
        "{}/{} Machines, {} ready, {up_to_date} up to date",
        machines.len(),
        control_plane.desired_replicas(),
        ready.count()
    )
}

fn machine_events(before: Option<&Machine>, after: &Machine) -> Vec<String> {
    let name = &after.name();
    let mut events = Vec::new();
    if before.is_none() {
        events.push(format!("Machine {name} appeared"));
    }
    if let (Some(node), None) = (
        &after.status.node_name,
        before.and_then(|before| before.status.node_name.as_ref()),
    ) {
        events.push(format!("Machine {name} has node {node}"));
    }
    if after.deletion_timestamp().is_some() {
        if before.is_none_or(|before| before.deletion_timestamp().is_none()) {
            events.push(format!("Machine {name} is being deleted"));
        }
        // Leave out that the Machine is no longer ready, which follows from its deletion.
        return events;
    }
    match (before.and_then(Machine::ready), after.ready()) {
        (None | Some(false), Some(true)) => events.push(format!("Machine {name} is ready")),
        (Some(true), Some(false)) => events.push(format!("Machine {name} is no longer ready")),
        _ => {}
    }
    events
}

#[cfg(test)]
mod tests {
    use kcp_api::{ConditionStatus::False, metadata::Time};
    use kcp_control_plane::testing::objects::{condition, healthy, machine, minutes_ago, new_machine, set};

    use super::changes;

    #[test]
    fn prints_one_line_for_each_change() {
        let one = healthy(1);
        assert_eq!(changes(None, &one), ["1/1 Machines, 1 ready, 1 up to date"]);
        assert_eq!(changes(Some(&one), &one), Vec::<String>::new());

        let mut asked = one.clone();
        asked.control_plane.spec.replicas = Some(3);
        assert_eq!(
            changes(Some(&one), &asked),
            ["1/3 Machines, 1 ready, 1 up to date"]
        );

        let mut second = asked.clone();
        second.control_plane.status.replicas = 2;
        second.machines.push(new_machine("c1-cp-m2"));
        assert_eq!(
            changes(Some(&asked), &second),
            ["2/3 Machines, 1 ready, 1 up to date  Machine c1-cp-m2 appeared"]
        );

        let mut ready = second.clone();
        ready.control_plane.status.ready_replicas = 2;
        ready.control_plane.status.up_to_date_replicas = 2;
        ready.machines[1] = machine("c1-cp-m2");
        assert_eq!(
            changes(Some(&second), &ready),
            [
                "2/3 Machines, 2 ready, 2 up to date  Machine c1-cp-m2 has node node-c1-cp-m2",
                "2/3 Machines, 2 ready, 2 up to date  Machine c1-cp-m2 is ready"
            ]
        );

        let mut leaving = ready.clone();
        leaving.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(0)));
        set(
            &mut leaving.machines[0].status.conditions,
            condition("Ready", False, "deleting"),
        );
        assert_eq!(
            changes(Some(&ready), &leaving),
            ["2/3 Machines, 1 ready, 2 up to date  Machine c1-cp-m1 is being deleted"]
        );

        let mut gone = leaving.clone();
        gone.machines.remove(0);
        assert_eq!(
            changes(Some(&leaving), &gone),
            ["1/3 Machines, 1 ready, 1 up to date  Machine c1-cp-m1 no longer exists"]
        );
    }
}
