//! Which of the things that etcd's members tell prevails, where they contradict each other.
//!
//! Of lists of one cluster that of those who follow a leader: raft has a leader only while most of its voters follow it
//! (etcd's raft, `CheckQuorum`). Of several such, or of none, the list that most tell. Of clusters the one that most are
//! of, unless only another has a leader: one who has founded a cluster of its own leads it, and knows nothing of the data.
//! Of equals none prevails: whoever is taken for wrong may be the one who holds the data.

use std::collections::{BTreeMap, BTreeSet};

use kcp_etcd::Members;

use crate::snapshot::etcd::{Answer, EtcdSurvey};

/// The etcd cluster; none where no member has told one, or none prevails.
pub fn cluster_id(survey: &EtcdSurvey) -> Option<u64> {
    let told = survey.answers().map(|(_, answer)| answer);
    let standings = standings(told.filter_map(|answer| Some((answer.cluster_id()?, is_led(answer)))));
    cluster_of(&standings)
}

fn cluster_of<T: Ord + Copy>(standings: &BTreeMap<T, Standing>) -> Option<T> {
    let led = first(standings, |standing| (standing.is_led, standing.tellers))?;
    let most = first(standings, |standing| standing.tellers)?;
    (led == most).then_some(*led)
}

/// Its list of members; none where no member has told one, or none prevails.
pub fn list(survey: &EtcdSurvey) -> Option<&Members> {
    let cluster_id = cluster_id(survey)?;
    let told = || {
        let answers = survey.answers().map(|(_, answer)| answer);
        answers.filter(move |answer| answer.tells_list_of(cluster_id))
    };
    let list = |answer: &'_ Answer| answer.members.as_ref().ok().map(ids);
    let standings = standings(told().filter_map(|answer| Some((list(answer)?, is_led(answer)))));
    let prevailing = first(&standings, |standing| (standing.is_led, standing.tellers))?;
    told()
        .filter_map(|answer| answer.members.as_ref().ok())
        .find(|list| ids(list) == *prevailing)
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

/// Who tells something.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// Whether one of them follows a leader.
    is_led: bool,
    tellers: usize,
}

/// Of what members tell, each with whether the one that tells it is led.
fn standings<T: Ord>(told: impl Iterator<Item = (T, bool)>) -> BTreeMap<T, Standing> {
    let mut standings: BTreeMap<T, Standing> = BTreeMap::new();
    for (value, is_led) in told {
        let standing = standings.entry(value).or_default();
        standing.is_led |= is_led;
        standing.tellers += 1;
    }
    standings
}

/// The one that ranks before all others; none where two rank the same.
fn first<T, R: Ord>(standings: &BTreeMap<T, Standing>, rank: impl Fn(&Standing) -> R) -> Option<&T> {
    let best = standings.values().map(&rank).max()?;
    let mut of_best = standings.iter().filter(|(_, standing)| rank(standing) == best);
    let (first, _) = of_best.next()?;
    of_best.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::{cluster_of, first, standings};

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
            let standings = standings(told.iter().copied());
            let of_lists = first(&standings, |standing| (standing.is_led, standing.tellers));
            assert_eq!(
                (of_lists.copied(), cluster_of(&standings)),
                (list, cluster),
                "{told:?}"
            );
        }
    }
}
