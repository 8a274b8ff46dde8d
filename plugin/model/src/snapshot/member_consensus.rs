//! Which report to believe where etcd's members contradict each other.
//!
//! Of several lists of one cluster: the list of the members that follow a leader, because raft has a leader only while most
//! voters follow it (etcd's raft, `CheckQuorum`). With several such lists or none, the list that most members report. Of
//! several clusters: the one that most members belong to, unless only another has a leader; a member that has created a
//! cluster of its own leads it without the data. Of equals none: the one that is taken for wrong may have the data.

use std::collections::{BTreeMap, BTreeSet};

use kcp_etcd::Members;

use crate::snapshot::etcd::{Answer, EtcdSurvey};

/// None if no member reports one, or it is unclear which is right.
pub fn cluster_id(survey: &EtcdSurvey) -> Option<u64> {
    let told = survey.answers().map(|(_, answer)| answer);
    let supports = supports(told.filter_map(|answer| Some((answer.cluster_id()?, is_led(answer)))));
    cluster_of(&supports)
}

fn cluster_of<T: Ord + Copy>(supports: &BTreeMap<T, Support>) -> Option<T> {
    let led = first(supports, |support| (support.is_led, support.members))?;
    let most = first(supports, |support| support.members)?;
    (led == most).then_some(*led)
}

/// The list of members of that cluster; none if no member reports one, or it is unclear which is right.
pub fn list(survey: &EtcdSurvey) -> Option<&Members> {
    let cluster_id = cluster_id(survey)?;
    let told = || {
        let answers = survey.answers().map(|(_, answer)| answer);
        answers.filter(move |answer| answer.tells_list_of(cluster_id))
    };
    let list = |answer: &'_ Answer| answer.members.as_ref().ok().map(ids);
    let supports = supports(told().filter_map(|answer| Some((list(answer)?, is_led(answer)))));
    let best = first(&supports, |support| (support.is_led, support.members))?;
    told()
        .filter_map(|answer| answer.members.as_ref().ok())
        .find(|list| ids(list) == *best)
}

/// The members of a list, by id.
pub fn ids(list: &Members) -> BTreeSet<u64> {
    list.members.iter().map(|member| member.id).collect()
}

/// Whether a member follows a leader who, as far as it says, votes.
fn is_led(answer: &Answer) -> bool {
    let status = answer.status.as_ref().ok();
    let Some(leader) = status.and_then(|status| status.leader) else {
        return false;
    };
    answer.members.as_ref().map_or(true, |list| {
        let mut members = list.members.iter();
        members.any(|member| member.id == leader && !member.is_learner)
    })
}

/// The members that report the same.
#[derive(Clone, Copy, Debug, Default)]
struct Support {
    /// Whether one of them follows a leader.
    is_led: bool,
    members: usize,
}

/// From reports, each with whether the member that reports it follows a leader.
fn supports<T: Ord>(told: impl Iterator<Item = (T, bool)>) -> BTreeMap<T, Support> {
    let mut supports: BTreeMap<T, Support> = BTreeMap::new();
    for (value, is_led) in told {
        let support = supports.entry(value).or_default();
        support.is_led |= is_led;
        support.members += 1;
    }
    supports
}

/// The one that ranks before all others; none where two rank the same.
fn first<T, R: Ord>(supports: &BTreeMap<T, Support>, rank: impl Fn(&Support) -> R) -> Option<&T> {
    let best = supports.values().map(&rank).max()?;
    let mut of_best = supports.iter().filter(|(_, support)| rank(support) == best);
    let (first, _) = of_best.next()?;
    of_best.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::{cluster_of, first, supports};

    #[test]
    fn a_leader_decides_between_lists_and_not_against_most_between_clusters() {
        for (told, list, cluster) in [
            (&[][..], None, None),
            (&[(1, false)], Some(1), Some(1)),
            (&[(1, false), (2, false)], None, None),
            (&[(1, true), (2, true)], None, None),
            (&[(1, false), (2, true)], Some(2), None),
            (&[(1, false), (1, false), (2, true)], Some(2), None),
            (&[(1, false), (1, false), (2, false)], Some(1), Some(1)),
            (&[(1, true), (2, true), (2, false)], Some(2), Some(2)),
            (&[(1, true), (2, true), (2, true), (3, false)], Some(2), Some(2)),
        ] {
            let supports = supports(told.iter().copied());
            let of_lists = first(&supports, |support| (support.is_led, support.members));
            assert_eq!(
                (of_lists.copied(), cluster_of(&supports)),
                (list, cluster),
                "{told:?}"
            );
        }
    }
}
