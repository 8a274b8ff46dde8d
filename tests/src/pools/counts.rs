//! The counts of randomized runs.

use std::fmt;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    pub runs: u64,
    pub commands: u64,
    /// Commands that were killed.
    pub killed: u64,
    /// Answers that were cut off.
    pub cut: u64,
    /// Answers that were replaced by a timeout.
    pub timed_out: u64,
    /// Successful leases.
    pub leased: u64,
    /// Refused leases because no entry was free.
    pub exhausted: u64,
    /// Commands that could not decide.
    pub undecided: u64,
    /// Lessees that died.
    pub dead: u64,
    /// Commands whose wall clock was ten minutes off.
    pub shifted: u64,
    /// Entries that passed from one lessee to another because a lease had ended.
    pub reclaimed: u64,
    /// Renewed leases.
    pub renewed: u64,
    /// Commands that were refused because they named another lease.
    pub wrong_ids: u64,
    /// Clusters that were created.
    pub clusters: u64,
    /// Clusters that were created again within the grace period.
    pub recreated: u64,
    /// Entries that were restored without their status.
    pub restored: u64,
    /// Clusters that lessees got by claims.
    pub claimed: u64,
    /// Claims that commands left behind, and that ended at their lifetime.
    pub claims_left: u64,
    /// Leases of two entries at once.
    #[serde(default)]
    pub sets: u64,
    /// Times that a janitor's command cleaned an entry.
    #[serde(default)]
    pub cleaned: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        let Self {
            runs,
            commands,
            killed,
            cut,
            timed_out,
            leased,
            exhausted,
            undecided,
            dead,
            shifted,
            reclaimed,
            renewed,
            wrong_ids,
            clusters,
            recreated,
            restored,
            claimed,
            claims_left,
            sets,
            cleaned,
        } = other;
        self.runs += runs;
        self.commands += commands;
        self.killed += killed;
        self.cut += cut;
        self.timed_out += timed_out;
        self.leased += leased;
        self.exhausted += exhausted;
        self.undecided += undecided;
        self.dead += dead;
        self.shifted += shifted;
        self.reclaimed += reclaimed;
        self.renewed += renewed;
        self.wrong_ids += wrong_ids;
        self.clusters += clusters;
        self.recreated += recreated;
        self.restored += restored;
        self.claimed += claimed;
        self.claims_left += claims_left;
        self.sets += sets;
        self.cleaned += cleaned;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            runs,
            commands,
            killed,
            cut,
            timed_out,
            leased,
            exhausted,
            undecided,
            dead,
            shifted,
            reclaimed,
            renewed,
            wrong_ids,
            clusters,
            recreated,
            restored,
            claimed,
            claims_left,
            sets,
            cleaned,
        } = self;
        write!(
            f,
            "{runs} runs: {commands} commands, of which {killed} killed, {cut} cut off, {timed_out} timed out; \
             {leased} leases, {exhausted} times none free, {undecided} undecided, {dead} lessees dead; {shifted} with a \
             wrong clock, {reclaimed} reclaimed, {renewed} renewed, {wrong_ids} wrong ids refused, {clusters} clusters, \
             {recreated} of them again, {restored} entries restored; {claimed} clusters claimed, {claims_left} claims left until their end; \
             {sets} times two entries at once; {cleaned} entries cleaned"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn every_count_is_added() {
        let counts: Counts = serde_json::from_str(
            r#"{"runs":1,"commands":2,"killed":3,"cut":4,"timed_out":5,"leased":6,"exhausted":7,"undecided":8,"dead":9,
                "shifted":10,"reclaimed":11,"renewed":12,"wrong_ids":13,"clusters":14,"recreated":15,"restored":16,"claimed":17,"claims_left":18,"sets":19,"cleaned":20}"#,
        )
        .unwrap();
        let mut sum = counts;
        sum += counts;
        assert_eq!(
            sum.to_string(),
            "2 runs: 4 commands, of which 6 killed, 8 cut off, 10 timed out; 12 leases, 14 times none free, \
             16 undecided, 18 lessees dead; 20 with a wrong clock, 22 reclaimed, 24 renewed, 26 wrong ids refused, \
             28 clusters, 30 of them again, 32 entries restored; 34 clusters claimed, 36 claims left until their end; 38 times two entries at once; 40 entries cleaned"
        );
    }
}
