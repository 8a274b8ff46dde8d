//! Every way in which controller managers can hold their locks, and which of them then run a controller.

use super::{Assignment, Component, Controller, Lock, Manager};

/// The maximum number of controller managers to consider: two components, each before and after an upgrade.
const MAX_MANAGERS: usize = 4;

/// A controller manager, and the locks (Leases) for which it competes.
struct Candidate {
    component: Component,
    /// The index of the main lock in the list of all locks. `None` if the controller manager elects no
    /// leader, so that it always runs its controllers.
    main: Option<usize>,
    /// The index of the migration lock in the list of all locks. `None` if the controller manager never takes one.
    migration: Option<usize>,
    assignment: Assignment,
}

/// How many controller managers can run a controller at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunnerCount {
    /// The lowest number, once every free lock is taken.
    pub(super) min: usize,
    /// The highest number.
    pub(super) max: usize,
}

/// Counts how many controller managers can run a controller at the same time. Considers every way in which
/// the controller managers that start can hold their locks: only the holder of a main lock takes a migration
/// lock, and no lock stays free if a controller manager can take it.
pub(super) fn count_runners(managers: &[&Manager], controller: &Controller) -> RunnerCount {
    let mut locks: Vec<Lock> = Vec::new();
    let mut index_of = |lock: Lock| {
        locks.iter().position(|known| *known == lock).unwrap_or_else(|| {
            locks.push(lock);
            locks.len() - 1
        })
    };
    let candidates: Vec<Candidate> = managers
        .iter()
        .filter(|manager| manager.starts())
        .take(MAX_MANAGERS)
        .map(|manager| Candidate {
            component: manager.component,
            main: manager.elects_leader().then(|| index_of(manager.main_lock())),
            migration: manager
                .migration_lock()
                .filter(|_| manager.can_hold_migration_lock())
                .map(&mut index_of),
            assignment: manager.assignment(controller),
        })
        .collect();
    let mut found = RunnerCount {
        min: usize::MAX,
        max: 0,
    };
    let mut holders = Vec::new();
    visit(&candidates, locks.len(), &mut holders, &mut |holders| {
        let count = count(&candidates, holders);
        found.min = found.min.min(count);
        found.max = found.max.max(count);
    });
    found.min = found.min.min(found.max);
    found
}

/// Calls `seen` for every stable state, with the holder of each lock.
fn visit(
    candidates: &[Candidate],
    locks: usize,
    holders: &mut Vec<Option<usize>>,
    seen: &mut impl FnMut(&[Option<usize>]),
) {
    if holders.len() == locks {
        if is_stable(candidates, holders) {
            seen(holders);
        }
        return;
    }
    for holder in (0..candidates.len()).map(Some).chain([None]) {
        holders.push(holder);
        visit(candidates, locks, holders, seen);
        holders.pop();
    }
}

fn holds(holders: &[Option<usize>], lock: usize, candidate: usize) -> bool {
    holders.get(lock) == Some(&Some(candidate))
}

/// Whether a candidate holds its main lock, or needs none.
fn leads(candidate: &Candidate, index: usize, holders: &[Option<usize>]) -> bool {
    candidate.main.is_none_or(|main| holds(holders, main, index))
}

/// Whether each holder of a lock may hold it, and no candidate could take a free lock.
fn is_stable(candidates: &[Candidate], holders: &[Option<usize>]) -> bool {
    holders.iter().enumerate().all(|(lock, holder)| {
        let mut able = candidates.iter().enumerate().filter(|(index, candidate)| {
            candidate.main == Some(lock)
                || (candidate.migration == Some(lock) && leads(candidate, *index, holders))
        });
        match holder {
            Some(holder) => able.any(|(index, _)| index == *holder),
            None => able.next().is_none(),
        }
    })
}

fn count(candidates: &[Candidate], holders: &[Option<usize>]) -> usize {
    let runs = |(index, candidate): &(usize, &Candidate)| match candidate.assignment {
        Assignment::Absent | Assignment::Unowned | Assignment::Unknown => false,
        Assignment::NonMigrated => leads(candidate, *index, holders),
        Assignment::Migrated => {
            leads(candidate, *index, holders)
                && candidate
                    .migration
                    .is_some_and(|migration| holds(holders, migration, *index))
        }
    };
    let running: Vec<&Candidate> = candidates
        .iter()
        .enumerate()
        .filter(runs)
        .map(|(_, candidate)| candidate)
        .collect();
    let count = |component| {
        let of_component: Vec<_> = running
            .iter()
            .filter(|candidate| candidate.component == component)
            .collect();
        // Without leader election, a component runs on every Machine, before and after an upgrade. Such a component counts as one
        // runner.
        if of_component.iter().all(|candidate| candidate.main.is_some()) {
            of_component.len()
        } else {
            1
        }
    };
    count(Component::Kube) + count(Component::Cloud)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Component, Flags},
        *,
    };

    fn manager(component: Component, minor: u64, leader_name: &str, more: &str) -> Manager {
        let file = format!(
            "{{apiVersion: controllermanager.config.k8s.io/v1, kind: LeaderMigrationConfiguration, leaderName: \
             {leader_name}, controllerLeaders: [{{name: node-ipam-controller, component: \"*\"}}]}}"
        );
        let command = format!("--allocate-node-cidrs --service-account-private-key-file=k {more}");
        Manager::new(
            component,
            minor,
            Flags::from_command(command.split(' ')),
            Some(&file),
        )
    }

    #[test]
    fn one_lock_lets_one_controller_manager_run() {
        const MIGRATE: &str = "--enable-leader-migration --leader-migration-config=f";
        let kube = |name, more| manager(Component::Kube, 35, name, more);
        let cloud = |name, more: &str| {
            manager(
                Component::Cloud,
                36,
                name,
                &format!("--cloud-provider=gce {more}"),
            )
        };
        let node_ipam = Controller::find("nodeipam").unwrap();
        for (case, managers, min, max) in [
            ("none", vec![], 0, 0),
            ("one", vec![kube("m", "")], 1, 1),
            ("replicas", vec![kube("m", ""), kube("m", "")], 1, 1),
            ("two main locks", vec![kube("m", ""), cloud("m", "")], 2, 2),
            (
                "the same lock",
                vec![kube("m", MIGRATE), cloud("m", MIGRATE)],
                1,
                1,
            ),
            (
                "two migration locks",
                vec![kube("m", MIGRATE), cloud("other", MIGRATE)],
                2,
                2,
            ),
            (
                "the migration lock of another namespace",
                vec![
                    kube("m", MIGRATE),
                    cloud("m", &format!("{MIGRATE} --leader-elect-resource-namespace=other")),
                ],
                2,
                2,
            ),
            // Fact 12: kube-controller-manager without the flag next to a migrating cloud-controller-manager.
            (
                "one component migrates",
                vec![kube("m", ""), cloud("m", MIGRATE)],
                2,
                2,
            ),
            // The main lock separates an old kube-controller-manager from a new one, whatever their configurations.
            (
                "a migration starts",
                vec![kube("m", ""), kube("m", MIGRATE)],
                1,
                1,
            ),
            (
                "the other holder of the migration lock does not have the controller",
                vec![
                    kube("m", MIGRATE),
                    cloud("m", &format!("{MIGRATE} --controllers=*,-nodeipam")),
                ],
                0,
                1,
            ),
            (
                "a lock that no Lease can have",
                vec![kube("Bad_Name", MIGRATE)],
                0,
                0,
            ),
            (
                "the main lock of the other component",
                vec![kube("m", MIGRATE), cloud("kube-controller-manager", MIGRATE)],
                1,
                1,
            ),
            (
                "one component without leader election",
                vec![kube("m", "--leader-elect=false"), kube("m", "")],
                1,
                1,
            ),
            (
                "two components, of which one has no leader election",
                vec![kube("m", "--leader-elect=false"), cloud("m", "")],
                2,
                2,
            ),
            (
                "one that exits at startup",
                vec![kube("m", "--controllers=unknown"), cloud("m", "")],
                1,
                1,
            ),
        ] {
            let managers: Vec<&Manager> = managers.iter().collect();
            assert_eq!(
                count_runners(&managers, node_ipam),
                RunnerCount { min, max },
                "{case}"
            );
        }
    }
}
