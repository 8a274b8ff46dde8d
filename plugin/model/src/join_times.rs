//! How long the Machines of a control plane took to join, as an estimate for new Machines.
//!
//! The times come from the objects. Conditions such as `NodeHealthy` change again after a Machine has joined,
//! so they do not show when the Machine joined. `status.lastUpdated` shows this time: Cluster API sets it
//! when the phase changes, and a Machine whose node has joined keeps the phase `Running` until it is deleted
//! or updated in place (`setMachinePhaseAndLastUpdated` in Cluster API v1.14).

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::{Machine, Object as _, names::annotation};
use serde::Serialize;

use crate::{
    duration::{format_duration, parse_duration},
    snapshot::{HealthCheck, Snapshot},
};

/// How long a node may take to join after the creation of its Machine, if nothing says more about the hosts. In Cluster API's quick
/// start, nodes join within five minutes; cloud providers document ten at most. Bare metal takes longer.
pub const DEFAULT_JOIN_LIMIT: Duration = Duration::from_secs(10 * 60);

/// A new Machine may take this many times as long as the slowest of the earlier Machines.
const JOIN_FACTOR: u32 = 2;

/// From this duration, the message shows whole minutes.
const SHOWN_IN_MINUTES: Duration = Duration::from_secs(120);

/// The API stores times in whole seconds, so the times of two changes in one reconciliation can be this far
/// apart.
const SAME_RECONCILIATION: Duration = Duration::from_secs(1);

/// The shortest and the longest time from the creation of a Machine until its node had joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JoinTimes {
    pub shortest_seconds: u64,
    pub longest_seconds: u64,
    /// The number of Machines whose times are known.
    pub machines: usize,
}

/// How long the node of a new Machine may take to join. After this time, a Machine without a node has a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinLimit {
    pub limit: Duration,
    /// What sets the limit, as text for parentheses.
    pub source: String,
}

impl JoinLimit {
    /// Returns the limit from the first of these sources: the annotation of the control plane; the longest `nodeStartupTimeout` of
    /// its `MachineHealthChecks`; [`JOIN_FACTOR`] times the longest time that an earlier Machine took, if this is more than the
    /// default; the default.
    pub fn of(observed: &Snapshot) -> Self {
        let value = observed.control_plane.annotation(annotation::JOIN_LIMIT);
        let annotated = value.map(parse_duration);
        if let Some(Ok(limit)) = annotated
            && !limit.is_zero()
        {
            return Self {
                limit,
                source: format!("annotation {}", annotation::JOIN_LIMIT),
            };
        }
        let checks = observed.health_checks.value().into_iter().flatten();
        let timeouts = checks.filter_map(|check| {
            let timeout = check.node_startup_timeout.filter(|_| !check.targets.is_empty())?;
            Some((timeout, &check.name))
        });
        if let Some((limit, name)) = timeouts.max() {
            return Self {
                limit,
                source: format!("nodeStartupTimeout of MachineHealthCheck {name}"),
            };
        }
        let longest = JoinTimes::measure(&observed.machines)
            .map(|times| whole_minutes(Duration::from_secs(times.longest_seconds), 59));
        let earlier = longest.map(|longest| (longest.saturating_mul(JOIN_FACTOR), longest));
        match earlier {
            Some((limit, longest)) if limit > DEFAULT_JOIN_LIMIT => Self {
                limit,
                source: format!("twice the {} of an earlier Machine", format_duration(longest)),
            },
            _ => Self {
                limit: DEFAULT_JOIN_LIMIT,
                source: match annotated {
                    Some(_) => format!(
                        "the default: annotation {} is not a duration above zero",
                        annotation::JOIN_LIMIT
                    ),
                    None => "the default".to_owned(),
                },
            },
        }
    }
}

/// When the node of a Machine had joined. `None` if the Machine does not record it.
pub fn joined_at(machine: &Machine) -> Option<Timestamp> {
    Join::of(machine).map(|join| join.joined)
}

/// When a Machine was created, and when its node had joined.
#[derive(Clone, Copy)]
struct Join {
    created: Timestamp,
    joined: Timestamp,
}

impl JoinTimes {
    /// Measures the Machines of a control plane. `None` if the time of no Machine is known.
    ///
    /// The controller creates a Machine only after the earlier ones have joined. If the times of several
    /// Machines overlap, `clusterctl move` or a backup has created the objects again, and the creation times
    /// of the objects are not those of the machines.
    pub fn measure(machines: &[Machine]) -> Option<Self> {
        let joins: Vec<Join> = machines.iter().filter_map(Join::of).collect();
        let is_alone = |(index, join): &(usize, &Join)| {
            let mut others = joins.iter().enumerate().filter(|(other, _)| other != index);
            !others.any(|(_, other)| join.created < other.joined && other.created < join.joined)
        };
        let alone = joins.iter().enumerate().filter(is_alone);
        let seconds: Vec<u64> = alone.map(|(_, join)| join.duration().as_secs()).collect();
        Some(Self {
            shortest_seconds: *seconds.iter().min()?,
            longest_seconds: *seconds.iter().max()?,
            machines: seconds.len(),
        })
    }

    /// A warning if Machines took longer to join than the `MachineHealthCheck` lets them. `None` if they did not.
    pub fn exceeds(&self, check: &HealthCheck) -> Option<String> {
        let longest = Duration::from_secs(self.longest_seconds);
        let timeout = check.node_startup_timeout.filter(|timeout| longest > *timeout)?;
        Some(format!(
            "an earlier Machine took {} to join, but MachineHealthCheck {} makes Cluster API delete a Machine that has no node \
             after {} (nodeStartupTimeout)",
            format_duration(whole_minutes(longest, 59)),
            check.name,
            format_duration(timeout)
        ))
    }

    /// The estimate in one line.
    pub fn message(&self) -> String {
        let shortest = Duration::from_secs(self.shortest_seconds);
        let longest = Duration::from_secs(self.longest_seconds);
        let (from, to) = (whole_minutes(shortest, 0), whole_minutes(longest, 59));
        let (from, to) = (format_duration(from), format_duration(to));
        let range = if from == to {
            from
        } else {
            format!("{from} to {to}")
        };
        let earlier = match self.machines {
            1 => "1 earlier Machine".to_owned(),
            machines => format!("{machines} earlier Machines"),
        };
        format!("each new Machine takes about {range} to join, based on {earlier}")
    }
}

/// Adds this number of seconds to a long duration, and then rounds it down to whole minutes.
fn whole_minutes(duration: Duration, seconds: u64) -> Duration {
    if duration < SHOWN_IN_MINUTES {
        return duration;
    }
    Duration::from_secs((duration.as_secs() + seconds) / 60 * 60)
}

impl Join {
    /// `None` if the objects do not say when the Machine joined.
    fn of(machine: &Machine) -> Option<Self> {
        if machine.is_deleting() || machine.status.phase.as_deref() != Some("Running") {
            return None;
        }
        let join = Self {
            created: machine.creation_timestamp()?,
            joined: machine.status.last_updated?,
        };
        if join.joined <= join.created {
            return None;
        }
        // The controller sets these conditions to False when it first sees the Machine. It changes Updating
        // at the start and at the end of an update in place. At the end, the phase is Running again. Before
        // Cluster API v1.12, there are no such updates and no such condition.
        let mut conditions = ["Updating", "Deleting"].into_iter();
        let seen = conditions.find_map(|kind| machine.condition(kind))?;
        let changed = seen.last_transition_time?;
        let before = join.joined.duration_since(changed);
        (before > SAME_RECONCILIATION.try_into().ok()?).then_some(join)
    }

    fn duration(self) -> Duration {
        self.joined
            .duration_since(self.created)
            .try_into()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::{SignedDuration, Timestamp};
    use kcp_api::{ConditionStatus::False, Machine, metadata::Time};

    use super::{HealthCheck, JoinLimit, JoinTimes};
    use crate::{
        snapshot::{Reading, Snapshot},
        testing::{
            objects::{condition, machine, minutes_ago, now, set},
            snapshot::observed,
        },
    };

    /// A Machine that was created this many minutes ago, and joined this many seconds later.
    fn joined(name: &str, minutes: i64, seconds: i64) -> Machine {
        let mut machine = machine(name);
        let created = minutes_ago(minutes);
        machine.metadata.creation_timestamp = Some(Time(created));
        machine.status.phase = Some("Running".to_owned());
        machine.status.last_updated = Some(created + SignedDuration::from_secs(seconds));
        updated_in_place_until(&mut machine, created);
        machine
    }

    fn updated_in_place_until(machine: &mut Machine, time: Timestamp) {
        let mut updating = condition("Updating", False, "");
        updating.last_transition_time = Some(time);
        set(&mut machine.status.conditions, updating);
    }

    #[test]
    fn measures_only_machines_whose_times_are_known() {
        type Case = (&'static str, fn(&mut Vec<Machine>), Option<(u64, u64, usize)>);
        let cases: &[Case] = &[
            ("all", |_| {}, Some((240, 420, 3))),
            ("none", Vec::clear, None),
            ("one", |machines| machines.truncate(1), Some((240, 240, 1))),
            (
                "being_deleted",
                |machines| machines[1].metadata.deletion_timestamp = Some(Time(now())),
                Some((240, 300, 2)),
            ),
            (
                "not_joined",
                |machines| machines[1].status.phase = Some("Provisioned".to_owned()),
                Some((240, 300, 2)),
            ),
            (
                "phase_without_a_time",
                |machines| machines[1].status.last_updated = None,
                Some((240, 300, 2)),
            ),
            (
                "updated_in_place",
                |machines| {
                    machines[1].status.last_updated = Some(minutes_ago(30));
                    updated_in_place_until(&mut machines[1], minutes_ago(30));
                },
                Some((240, 300, 2)),
            ),
            (
                "never_seen_before_it_joined",
                |machines| {
                    let joined = machines[1].status.last_updated.expect("a time");
                    updated_in_place_until(&mut machines[1], joined - SignedDuration::from_secs(1));
                },
                Some((240, 300, 2)),
            ),
            (
                "of_a_controller_without_updates_in_place",
                |machines| {
                    for machine in machines {
                        let conditions = &mut machine.status.conditions;
                        conditions.retain(|condition| condition.type_ == "Updating");
                        conditions[0].type_ = "Deleting".to_owned();
                    }
                },
                Some((240, 420, 3)),
            ),
            (
                "without_conditions",
                |machines| {
                    for machine in machines {
                        machine.status.conditions.clear();
                    }
                },
                None,
            ),
            (
                "joined_before_it_was_created",
                |machines| machines[1].status.last_updated = Some(minutes_ago(400)),
                Some((240, 300, 2)),
            ),
            (
                "moved_to_another_management_cluster",
                |machines| *machines = ["m1", "m2", "m3"].map(|name| joined(name, 60, 20)).to_vec(),
                None,
            ),
            (
                "two_overlap",
                |machines| machines[2] = joined("m3", 198, 300),
                Some((240, 240, 1)),
            ),
        ];
        for (name, change, expected) in cases {
            let mut machines = vec![
                joined("m1", 300, 240),
                joined("m2", 200, 420),
                joined("m3", 100, 300),
            ];
            change(&mut machines);
            let times = JoinTimes::measure(&machines);
            let times = times.map(|times| (times.shortest_seconds, times.longest_seconds, times.machines));
            assert_eq!(times, *expected, "{name}");
        }
    }

    #[test]
    fn the_limit_says_where_it_is_from() {
        fn annotate(observed: &mut Snapshot, value: &str) {
            let annotations = &mut observed.control_plane.metadata.annotations;
            annotations
                .get_or_insert_default()
                .insert("kubectl-kcp.dev/join-limit".to_owned(), value.to_owned());
        }
        fn check(observed: &mut Snapshot, checks: &[(&str, Option<u64>, &[&str])]) {
            let checks = checks.iter().map(|(name, minutes, targets)| HealthCheck {
                name: (*name).to_owned(),
                node_startup_timeout: minutes.map(|minutes| Duration::from_secs(60 * minutes)),
                targets: targets.iter().map(ToString::to_string).collect(),
                ..HealthCheck::default()
            });
            observed.health_checks = Reading::Read(checks.collect());
        }
        type Case = (fn(&mut Snapshot), u64, &'static str);
        let cases: &[Case] = &[
            (|_| {}, 10, "the default"),
            (
                |observed| observed.machines = vec![joined("m1", 300, 240)],
                10,
                "the default",
            ),
            (
                |observed| observed.machines = vec![joined("m1", 300, 240), joined("m2", 200, 1710)],
                58,
                "twice the 29m of an earlier Machine",
            ),
            (
                |observed| {
                    observed.machines = vec![joined("m2", 200, 1710)];
                    check(
                        observed,
                        &[
                            ("slow", Some(30), &["m2"]),
                            ("fast", Some(5), &["m2"]),
                            ("endless", None, &["m2"]),
                            ("of-workers", Some(90), &[]),
                        ],
                    );
                },
                30,
                "nodeStartupTimeout of MachineHealthCheck slow",
            ),
            (
                |observed| {
                    check(observed, &[("slow", Some(30), &["m2"])]);
                    annotate(observed, "45m");
                },
                45,
                "annotation kubectl-kcp.dev/join-limit",
            ),
            (
                |observed| annotate(observed, "0s"),
                10,
                "the default: annotation kubectl-kcp.dev/join-limit is not a duration above zero",
            ),
            (
                |observed| annotate(observed, "45"),
                10,
                "the default: annotation kubectl-kcp.dev/join-limit is not a duration above zero",
            ),
        ];
        for (change, minutes, source) in cases {
            let mut observed = observed();
            observed.machines.clear();
            observed.health_checks = Reading::Read(Vec::new());
            change(&mut observed);
            let expected = JoinLimit {
                limit: Duration::from_secs(60 * minutes),
                source: (*source).to_owned(),
            };
            assert_eq!(JoinLimit::of(&observed), expected);
        }
    }

    #[test]
    fn a_health_check_deletes_machines_that_join_as_slowly_as_an_earlier_one() {
        let times = JoinTimes {
            shortest_seconds: 240,
            longest_seconds: 700,
            machines: 2,
        };
        let warning = "an earlier Machine took 12m to join, but MachineHealthCheck h makes Cluster API delete a Machine that \
                       has no node after 10m (nodeStartupTimeout)";
        for (seconds, expected) in [(Some(600), Some(warning)), (Some(700), None), (None, None)] {
            let check = HealthCheck {
                name: "h".to_owned(),
                node_startup_timeout: seconds.map(Duration::from_secs),
                ..HealthCheck::default()
            };
            assert_eq!(times.exceeds(&check).as_deref(), expected, "{seconds:?}");
        }
    }

    #[test]
    fn the_message_is_a_range() {
        for (shortest_seconds, longest_seconds, machines, expected) in [
            (240, 420, 3, "4m to 7m to join, based on 3 earlier Machines"),
            (250, 361, 2, "4m to 7m to join, based on 2 earlier Machines"),
            (300, 300, 1, "5m to join, based on 1 earlier Machine"),
            (5, 8, 2, "5s to 8s to join, based on 2 earlier Machines"),
            (90, 150, 2, "1m30s to 3m to join, based on 2 earlier Machines"),
        ] {
            let times = JoinTimes {
                shortest_seconds,
                longest_seconds,
                machines,
            };
            assert_eq!(
                times.message(),
                format!("each new Machine takes about {expected}")
            );
        }
    }
}
