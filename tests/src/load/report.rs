//! The results of the reviews.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Plan;

/// The number of lost and wrong answers that the report quotes.
const QUOTED: usize = 5;

/// The result of one review: no answer, a wrong one, or a right one with its verdict.
pub(super) struct ReviewResult {
    pub(super) answered: Result<Result<&'static str>>,
    /// Connections that were closed before anything of the review was written to them.
    pub(super) retries: u64,
    /// Since the review was due.
    pub(super) latency: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Outcomes {
    right: BTreeMap<&'static str, u64>,
    wrong: Vec<String>,
    lost: Vec<String>,
    retried: u64,
    latencies: Vec<Duration>,
    pub(super) connections: u64,
    pub(super) seconds: f64,
}

impl Outcomes {
    pub(super) fn add(&mut self, fate: ReviewResult) {
        self.retried += fate.retries;
        match fate.answered {
            Ok(Ok(verdict)) => *self.right.entry(verdict).or_default() += 1,
            Ok(Err(wrong)) => self.wrong.push(format!("{wrong:#}")),
            Err(lost) => self.lost.push(format!("{lost:#}")),
        }
        self.latencies.push(fate.latency);
    }

    /// The latency below which this percentage of the reviews stays. `latencies` are sorted.
    fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.latencies.len() * percent).div_ceil(100);
        self.latencies
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }
}

/// The counts of a server over its restarts.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// Answered requests. Those of an ended process were counted before it received the signal to end.
    pub(super) reviews: u64,
    /// Key pairs read by each of its processes, including the first pair.
    pub(super) key_pairs: Vec<u64>,
}

#[derive(Debug)]
pub struct Report {
    rate: u32,
    outcomes: Outcomes,
    lives: Vec<Life>,
}

impl Report {
    pub(super) fn new(plan: &Plan, mut outcomes: Outcomes, lives: Vec<Life>) -> Self {
        outcomes.latencies.sort_unstable();
        Self {
            rate: plan.rate,
            outcomes,
            lives,
        }
    }

    /// Fails if a review was lost or answered wrongly. The error quotes some of them.
    pub fn nothing_lost_or_wrong(&self) -> Result<()> {
        let Outcomes { wrong, lost, .. } = &self.outcomes;
        let some: Vec<_> = wrong
            .iter()
            .take(QUOTED)
            .chain(lost.iter().take(QUOTED))
            .cloned()
            .collect();
        ensure!(
            some.is_empty(),
            "{} wrong, {} lost:\n{}",
            wrong.len(),
            lost.len(),
            some.join("\n")
        );
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcomes {
            right,
            wrong,
            lost,
            retried,
            latencies,
            connections,
            seconds,
        } = &self.outcomes;
        let answered = latencies.len() - lost.len();
        writeln!(
            f,
            "{} reviews/s for {seconds:.1} s: sent {}, answered {answered}, wrong {}, lost {}",
            self.rate,
            latencies.len(),
            wrong.len(),
            lost.len()
        )?;
        let right: Vec<_> = right
            .iter()
            .map(|(verdict, count)| format!("{count} {verdict}"))
            .collect();
        writeln!(f, "right: {}", right.join(", "))?;
        writeln!(
            f,
            "{connections} connections; retried before anything was sent, for the connection had ended: {retried}"
        )?;
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
        writeln!(
            f,
            "latency: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
            millis(self.outcomes.percentile(50)),
            millis(self.outcomes.percentile(99)),
            millis(self.outcomes.percentile(100))
        )?;
        for (number, life) in (1..).zip(&self.lives) {
            let rotations: Vec<_> = life
                .key_pairs
                .iter()
                .map(|read| read.saturating_sub(1).to_string())
                .collect();
            writeln!(
                f,
                "server {number}: restarts {}, rotations seen {}, requests {}",
                life.key_pairs.len().saturating_sub(1),
                rotations.join(" + "),
                life.reviews
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::anyhow;

    use super::{Life, Outcomes, Report, ReviewResult};
    use crate::load::Plan;

    #[test]
    fn tells_lost_from_wrong_from_right() {
        let fate = |answered, millis, retries| ReviewResult {
            answered,
            retries,
            latency: Duration::from_millis(millis),
        };
        let plan = Plan {
            rate: 7,
            duration: Duration::from_secs(1),
            arguments: Vec::new(),
        };
        let mut outcomes = Outcomes::default();
        for millis in (1..=198).rev() {
            outcomes.add(fate(Ok(Ok("allowed")), millis, 0));
        }
        assert!(
            Report::new(&plan, outcomes, Vec::new())
                .nothing_lost_or_wrong()
                .is_ok()
        );

        let mut outcomes = Outcomes::default();
        outcomes.add(fate(Ok(Ok("denied")), 4, 0));
        for millis in (1..=3).rev() {
            outcomes.add(fate(Ok(Ok("allowed")), millis, 1));
        }
        outcomes.add(fate(Ok(Err(anyhow!("503"))), 9, 0));
        outcomes.add(fate(Err(anyhow!("reset")), 70, 0));
        outcomes.connections = 5;
        outcomes.seconds = 1.25;
        let lives = vec![
            Life {
                reviews: 4,
                key_pairs: vec![3],
            },
            Life {
                reviews: 2,
                key_pairs: vec![2, 1],
            },
        ];
        let report = Report::new(&plan, outcomes, lives);
        assert_eq!(
            report.to_string(),
            "7 reviews/s for 1.2 s: sent 6, answered 5, wrong 1, lost 1\n\
             right: 3 allowed, 1 denied\n\
             5 connections; retried before anything was sent, for the connection had ended: 3\n\
             latency: p50 3.0 ms, p99 70.0 ms, max 70.0 ms\n\
             server 1: restarts 0, rotations seen 2, requests 4\n\
             server 2: restarts 1, rotations seen 1 + 0, requests 2\n"
        );
        let error = report.nothing_lost_or_wrong().unwrap_err();
        assert_eq!(error.to_string(), "1 wrong, 1 lost:\n503\nreset");
    }
}
