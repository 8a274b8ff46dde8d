//! Lessees that wait for the few entries of a pool, each in a process of its own: in which order they get one, how long they
//! wait, and how many writes this takes.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::pool::{POOL, Pool};
use super::server::PoolServer;
use crate::bench_report::rounded;
use crate::products;

/// How long each lessee holds its entry.
const HOLD: Duration = Duration::from_secs(3);

/// The time between the starts of two lessees.
const BETWEEN_STARTS: Duration = Duration::from_millis(100);

/// The largest pool.
const MAX_ENTRIES: usize = 8;

/// The limit of pairs in which the later lessee is served first, in percent.
const MAX_OVERTAKEN: f64 = 2.0;

/// The limit of the longest wait, relative to the longest wait if all were served in order and without delay.
const MAX_WAIT_RATIO: f64 = 1.3;

/// The limit of writes per lease of [`LIMITED`] lessees, including refused writes, without the write that releases the entry. In a
/// smaller pool, a release removes fewer places with one write.
const MAX_WRITES: f64 = 2.2;

/// The number of lessees up to which the other limits apply. More lessees saturate the machine.
pub const LIMITED: usize = 256;

/// When one lessee asked for an entry, and when it got one, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Served {
    asked: f64,
    got: f64,
}

/// The result for a number of lessees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitFigures {
    lessees: usize,
    entries: usize,
    /// Of all pairs, those in which the lessee that asked later was served first, in percent.
    overtaken: f64,
    longest_s: f64,
    ideal_longest_s: f64,
    writes: f64,
    /// Those of the queue among them.
    queue_writes: f64,
}

/// Starts lessees one after the other. Each waits for an entry, holds it for three seconds, and releases it.
pub async fn measure(server: &PoolServer, lessees: usize) -> Result<WaitFigures> {
    let entries = (lessees / 16).clamp(3, MAX_ENTRIES);
    let pool = Pool::create(server, &format!("waiting-{lessees}"), entries).await?;
    let api = server.serving().await;
    let program = products::under_test("kubectl-kcp")?;
    let command = format!("date +%s.%N; exec sleep {}", HOLD.as_secs());
    let begun = tokio::time::Instant::now();
    let runs = (0..lessees).map(async |number| {
        let nth = u32::try_from(number)?;
        tokio::time::sleep_until(begun + BETWEEN_STARTS * nth).await;
        let asked = seconds(Timestamp::now());
        let name = format!("cluster-{number}");
        let line = [
            "pool",
            "exec",
            POOL,
            "-n",
            pool.namespace(),
            "--cluster-deployment",
            &name,
            "--wait=1h",
            "--request-timeout=5m",
            "--",
            "sh",
            "-c",
            &command,
        ];
        let got = api.succeed(&program, &line).await?.parse()?;
        anyhow::Ok(Served { asked, got })
    });
    let waits = try_join_all(runs)
        .await
        .with_context(|| pool.namespace().to_owned())?;
    let status_writes = api.status_writes(pool.namespace(), "clusterdeploymentcustomizations")?;
    let queue_writes = api.user_agents(pool.namespace(), "leases")?.len();
    let count = float(lessees);
    Ok(WaitFigures {
        lessees,
        entries,
        overtaken: overtaken(&waits),
        longest_s: longest(&waits),
        ideal_longest_s: longest(&ideal(&waits, entries)),
        writes: (float(status_writes) + float(queue_writes) - count) / count,
        queue_writes: float(queue_writes) / count,
    })
}

fn seconds(time: Timestamp) -> f64 {
    time.as_duration().as_secs_f64()
}

fn float(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::NAN, f64::from)
}

/// The percentage of pairs in which the lessee that asked later was served first.
fn overtaken(served: &[Served]) -> f64 {
    let pairs = served
        .iter()
        .enumerate()
        .flat_map(|(number, first)| served.iter().skip(number + 1).map(move |second| (first, second)));
    let (mut all, mut wrong) = (0_u32, 0_u32);
    for (first, second) in pairs {
        all += 1;
        wrong += u32::from((first.asked < second.asked) != (first.got < second.got));
    }
    100.0 * f64::from(wrong) / f64::from(all.max(1))
}

fn longest(served: &[Served]) -> f64 {
    served.iter().map(|one| one.got - one.asked).fold(0.0, f64::max)
}

/// When each lessee is served if all are served in the order in which they asked, and each release is followed by a lease at
/// once.
fn ideal(served: &[Served], entries: usize) -> Vec<Served> {
    let mut asked: Vec<f64> = served.iter().map(|one| one.asked).collect();
    asked.sort_by(f64::total_cmp);
    let mut ends: Vec<f64> = vec![f64::MIN; entries];
    asked
        .into_iter()
        .map(|asked| {
            ends.sort_by(f64::total_cmp);
            let got = ends.first().map_or(asked, |end| end.max(asked));
            if let Some(end) = ends.first_mut() {
                *end = got + HOLD.as_secs_f64();
            }
            Served { asked, got }
        })
        .collect()
}

impl WaitFigures {
    fn wait_ratio(&self) -> f64 {
        self.longest_s / self.ideal_longest_s
    }

    pub fn json(&self) -> Value {
        json!({
            "lessees": self.lessees,
            "entries": self.entries,
            "pairs_overtaken_percent": rounded(self.overtaken),
            "longest_wait_s": rounded(self.longest_s),
            "ideal_longest_wait_s": rounded(self.ideal_longest_s),
            "longest_wait_ratio": rounded(self.wait_ratio()),
            "writes_of_a_lease": rounded(self.writes),
            "of_which_of_the_queue": rounded(self.queue_writes),
        })
    }

    /// The limits that the figures exceed.
    pub fn exceeded_limits(&self) -> Vec<String> {
        if self.lessees > LIMITED {
            return Vec::new();
        }
        let figures = [
            (
                "percent of all pairs are overtaken",
                self.overtaken,
                MAX_OVERTAKEN,
            ),
            (
                "times the ideal is the longest wait",
                self.wait_ratio(),
                MAX_WAIT_RATIO,
            ),
            (
                "writes take a lease",
                self.writes,
                if self.lessees == LIMITED {
                    MAX_WRITES
                } else {
                    f64::MAX
                },
            ),
        ];
        let exceeded = figures.iter().filter(|(_, figure, limit)| figure > limit);
        exceeded
            .map(|(what, figure, limit)| {
                format!(
                    "{} waiting: {figure:.2} {what}, and at most {limit} are allowed",
                    self.lessees
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Served, WaitFigures, ideal, longest, overtaken};

    fn served(times: &[(f64, f64)]) -> Vec<Served> {
        times.iter().map(|&(asked, got)| Served { asked, got }).collect()
    }

    #[test]
    fn counts_the_pairs_in_which_the_later_lessee_is_first() {
        for (times, expected) in [
            (&[(0.0, 0.0), (1.0, 3.0), (2.0, 6.0)][..], "0"),
            (&[(2.0, 6.0), (0.0, 0.0), (1.0, 3.0)], "0"),
            (
                &[(0.0, 3.0), (1.0, 2.0), (2.0, 6.0), (3.0, 9.0), (4.0, 12.0)],
                "10",
            ),
            (&[(0.0, 6.0), (1.0, 3.0), (2.0, 2.0)], "100"),
            (&[(0.0, 1.0)], "0"),
        ] {
            assert_eq!(overtaken(&served(times)).to_string(), expected, "{times:?}");
        }
    }

    #[test]
    fn the_ideal_serves_in_order_and_without_delay() {
        let asked = served(&[(0.0, 9.0), (1.0, 20.0), (1.5, 9.0), (9.0, 9.0)]);
        assert_eq!(
            ideal(&asked, 2),
            served(&[(0.0, 0.0), (1.0, 1.0), (1.5, 3.0), (9.0, 9.0)])
        );
        assert_eq!(longest(&ideal(&asked, 1)).to_string(), "4.5");
    }

    #[test]
    fn each_excess_is_reported() {
        let good = WaitFigures {
            lessees: 256,
            entries: 8,
            overtaken: 2.0,
            longest_s: 52.0,
            ideal_longest_s: 40.0,
            writes: 2.2,
            queue_writes: 1.1,
        };
        assert_eq!(good.exceeded_limits(), Vec::<String>::new());
        let bad = WaitFigures {
            overtaken: 43.0,
            longest_s: 200.0,
            writes: 3.0,
            ..good
        };
        assert_eq!(
            bad.exceeded_limits(),
            [
                "256 waiting: 43.00 percent of all pairs are overtaken, and at most 2 are allowed",
                "256 waiting: 5.00 times the ideal is the longest wait, and at most 1.3 are allowed",
                "256 waiting: 3.00 writes take a lease, and at most 2.2 are allowed",
            ]
        );
        let few = WaitFigures {
            lessees: 16,
            writes: 3.0,
            ..good
        };
        assert_eq!(few.exceeded_limits(), Vec::<String>::new());
        let many = WaitFigures { lessees: 1024, ..bad };
        assert_eq!(many.exceeded_limits(), Vec::<String>::new());
    }
}
