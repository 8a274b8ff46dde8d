//! The decision of `etcd compact`: up to which revision etcd deletes its history.
//!
//! etcd does not know when a revision was written. kube-apiserver compacts every five minutes
//! (`--etcd-compaction-interval`), and each round writes [`ROUND_KEY`]. The next round compacts to the revision of this
//! write (`pkg/storage/etcd3/compact.go`, `Compact`, in k8s.io/apiserver). A full database rejects the write, and then
//! kube-apiserver never compacts again.

use kcp_etcd::KeyRevision;

use crate::{
    change::decision::Refusal,
    snapshot::{Snapshot, etcd::QueriedMember},
    verbs::etcd::members::{EtcdCluster, refusal},
};

/// The key that each compaction round of kube-apiserver writes.
pub const ROUND_KEY: &[u8] = b"compact_rev_key";

/// How many revisions a compaction keeps besides the newest while no kube-apiserver has begun a round, because it is new or
/// its `--etcd-compaction-interval` is 0.
const REVISIONS_WITHOUT_ROUND: i64 = 1_000;

/// The history that a compaction keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptHistory {
    /// The history since kube-apiserver's last compaction round, or [`REVISIONS_WITHOUT_ROUND`].
    SinceLastRound,
    /// This number of revisions.
    Revisions(i64),
    /// The history from this revision on.
    From(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The oldest revision that etcd keeps.
    pub oldest_revision: i64,
    /// The newest revision.
    pub newest_revision: i64,
    /// The member to which the call is sent.
    pub member: QueriedMember,
}

/// Selects the member that compacts, and from which [`ROUND_KEY`] is read. Fails if etcd would reject a compaction, or the
/// compaction would delete the history that is needed to find corrupt data.
pub fn select_member(observed: &Snapshot) -> Result<QueriedMember, Refusal> {
    let cluster = EtcdCluster::new(observed)?;
    // The hashes of the members are compared by revision, so the history shows which member is wrong.
    cluster.refuse_corruption()?;
    Ok(cluster.select_voter()?.queried.clone())
}

/// Decides up to which revision etcd deletes its history. `round` is the state of [`ROUND_KEY`]; none if the key does not
/// exist. Fails if the revision is unknown or in the future, or no member can compact.
pub fn decide(
    observed: &Snapshot,
    kept: KeptHistory,
    round: Option<KeyRevision>,
) -> Result<Compaction, Refusal> {
    let member = select_member(observed)?;
    let cluster = EtcdCluster::new(observed)?;
    let newest = cluster
        .healthy_voters()
        .map(|(_, healthy)| healthy.status.revision);
    let current = newest.max().unwrap_or_default();
    let oldest = |count: i64| current.saturating_sub(count).max(1);
    let revision = match (kept, round) {
        (KeptHistory::From(revision), _) => revision,
        (KeptHistory::Revisions(count), _) => oldest(count),
        (KeptHistory::SinceLastRound, Some(round)) => round.modified,
        (KeptHistory::SinceLastRound, None) => oldest(REVISIONS_WITHOUT_ROUND),
    };
    // The key may have been written after the status was read.
    let current = current.max(round.map_or(0, |round| round.modified));
    if revision > current {
        let mut refusal = refusal(format!(
            "revision {revision} is in the future: the newest revision is {current}"
        ));
        refusal
            .remedies
            .push("to keep a given number of revisions, use --keep-revisions".to_owned());
        return Err(refusal);
    }
    Ok(Compaction {
        oldest_revision: revision,
        newest_revision: current,
        member,
    })
}

impl Compaction {
    /// What the command is about to do, for its question. `None` if it deletes no revision.
    pub fn goal(&self, control_plane: &str) -> Option<String> {
        let Self {
            oldest_revision,
            newest_revision,
            ..
        } = self;
        self.deletes_revisions().then(|| {
            format!(
                "delete etcd's revisions up to {} in control plane {control_plane} (keeps revisions {oldest_revision} to \
                 {newest_revision})",
                oldest_revision - 1
            )
        })
    }

    /// Whether there are revisions before those that stay.
    pub const fn deletes_revisions(&self) -> bool {
        self.oldest_revision > 1
    }

    /// How many revisions etcd keeps besides the newest.
    pub const fn kept_revisions(&self) -> i64 {
        self.newest_revision - self.oldest_revision
    }
}

#[cfg(test)]
mod tests {
    use kcp_etcd::{Alarm, AlarmKind, KeyRevision};

    use super::{KeptHistory, decide};
    use crate::{
        snapshot::{Snapshot, etcd::Alarms},
        testing::snapshot::observed,
    };

    const ROUND: KeyRevision = KeyRevision { modified: 98_000 };

    fn decided(
        observed: &Snapshot,
        kept: KeptHistory,
        round: Option<KeyRevision>,
    ) -> Result<(i64, i64, String), String> {
        match decide(observed, kept, round) {
            Ok(compaction) => Ok((
                compaction.oldest_revision,
                compaction.kept_revisions(),
                compaction.member.name,
            )),
            Err(refusal) => Err(refusal.why.join("; ")),
        }
    }

    #[test]
    fn keeps_the_stated_history() {
        use KeptHistory::{From, Revisions, SinceLastRound};
        let well = observed();
        let future = |revision: i64| {
            Err(format!(
                "revision {revision} is in the future: the newest revision is 100000"
            ))
        };
        for (history, round, expected) in [
            (SinceLastRound, Some(ROUND), Ok((98_000, 2_000))),
            (SinceLastRound, None, Ok((99_000, 1_000))),
            (Revisions(0), None, Ok((100_000, 0))),
            (Revisions(99), None, Ok((99_901, 99))),
            (Revisions(200_000), None, Ok((1, 99_999))),
            (From(100_000), None, Ok((100_000, 0))),
            (From(100_001), Some(ROUND), future(100_001)),
        ] {
            let expected = expected.map(|(revision, count)| (revision, count, "node-m2".to_owned()));
            assert_eq!(decided(&well, history, round), expected, "{history:?} {round:?}");
        }
        // A round that began after the members were queried.
        let late = KeyRevision { modified: 100_007 };
        assert_eq!(
            decided(&well, SinceLastRound, Some(late)),
            Ok((100_007, 0, "node-m2".to_owned()))
        );
    }

    #[test]
    fn the_goal_names_what_is_deleted_and_what_is_kept() {
        for (history, goal) in [
            (
                99,
                Some(
                    "delete etcd's revisions up to 99900 in control plane c1 (keeps revisions 99901 to 100000)",
                ),
            ),
            (
                0,
                Some(
                    "delete etcd's revisions up to 99999 in control plane c1 (keeps revisions 100000 to 100000)",
                ),
            ),
            (
                99_998,
                Some("delete etcd's revisions up to 1 in control plane c1 (keeps revisions 2 to 100000)"),
            ),
            (99_999, None),
            (200_000, None),
        ] {
            let compaction =
                decide(&observed(), KeptHistory::Revisions(history), None).expect("a compaction");
            assert_eq!(compaction.goal("c1").as_deref(), goal, "{history}");
        }
    }

    #[test]
    fn the_newest_revision_is_that_of_any_healthy_member() {
        let mut observed = observed();
        observed.status(2).revision = 99_000;
        let history = KeptHistory::Revisions(0);
        assert_eq!(
            decided(&observed, history, None),
            Ok((100_000, 0, "node-m2".to_owned()))
        );
    }

    #[test]
    fn a_full_database_is_compacted_and_a_corrupt_one_is_not() {
        let mut observed = observed();
        let mut raise = |kind| {
            let alarm = Alarm { member_id: 2, kind };
            observed.survey().alarms = Alarms::Listed(vec![alarm]);
            decided(&observed, KeptHistory::Revisions(9), None)
        };
        assert_eq!(raise(AlarmKind::NoSpace), Ok((99_991, 9, "node-m2".to_owned())));
        assert_eq!(
            raise(AlarmKind::Corrupt),
            Err(
                "etcd member node-m2 has raised the alarm CORRUPT: its data differs from that of the other members"
                    .to_owned()
            )
        );
    }

    #[test]
    fn without_quorum_nothing_is_compacted() {
        let mut observed = observed();
        observed.kill(2);
        let history = KeptHistory::Revisions(9);
        assert_eq!(
            decided(&observed, history, None),
            Ok((99_991, 9, "node-m3".to_owned()))
        );
        observed.kill(3);
        assert_eq!(
            decided(&observed, history, None),
            Err(
                "etcd has no quorum: 1 of 3 voting members healthy, 2 needed for quorum; etcd member node-m2 does not respond: cannot \
                 connect: connection refused; etcd member node-m3 does not respond: cannot connect: connection refused"
                    .to_owned()
            )
        );
    }
}
