//! `pool-leases` measures concurrent `kubectl kcp pool lease` commands, as many as the pool has entries (16, 64 and
//! 256), and 64 naive clients that list the entries and write to the first free one. It adds the result to
//! `target/bench.json`. Exit code 1: two lessees hold one entry, or a limit is exceeded.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use kcp_tests::bench_report::{self, rounded};
use kcp_tests::kubeconfig;
use kcp_tests::pools::naive::{NaiveLessee, Precondition};
use kcp_tests::pools::pool::{POOL, Pool};
use kcp_tests::pools::server::PoolServer;
use kcp_tests::products;
use kcp_tests::run::Run;
use serde_json::json;
use tokio::process::Command;
use tokio::runtime::Runtime;

/// Concurrent lessees, each for one entry.
const LESSEES: [usize; 3] = [16, 64, 256];

/// The number of concurrent naive clients. Their writes grow with its square.
const NAIVE_LESSEES: usize = 64;

/// The number of rounds, of which the median counts.
const ROUNDS: usize = 3;

/// The limit of status writes per lease with 64 concurrent lessees, including refused writes.
const MAX_STATUS_WRITES: f64 = 2.0;

/// The limit of the time of a lease among 256 lessees, relative to one among 16.
const MAX_GROWTH: f64 = 1.5;

/// The exit code if the measurement failed.
const UNDECIDED: u8 = 2;

/// The argument with which this program runs itself as one naive client. The client's name and the pool's namespace
/// follow.
const NAIVE: &str = "naive-lessee";

const CUSTOMIZATIONS: &str = "clusterdeploymentcustomizations";

/// The client that leases.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Ours,
    /// [`NaiveLessee`], also in a process of its own.
    Naive,
}

/// The result for a number of concurrent leases.
struct Figures {
    lessees: usize,
    wall_ms: f64,
    /// The average.
    status_writes: f64,
    double_holders: usize,
}

fn main() -> ExitCode {
    match run() {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            for sentence in wrong {
                eprintln!("error: {sentence}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(UNDECIDED)
        }
    }
}

fn run() -> Result<Vec<String>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let runtime = Runtime::new()?;
    match arguments.as_slice() {
        [] => runtime.block_on(benchmark()),
        [naive, name, namespace] if naive == NAIVE => {
            runtime.block_on(lease_naively(name, namespace))?;
            Ok(Vec::new())
        }
        _ => anyhow::bail!("usage: pool-leases"),
    }
}

async fn lease_naively(name: &str, namespace: &str) -> Result<()> {
    let kubeconfig: PathBuf = env::var_os("KUBECONFIG").context("KUBECONFIG is not set")?.into();
    let lessee = NaiveLessee {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        precondition: Precondition::ResourceVersion,
    };
    let entry = lessee.lease(&kubeconfig::client_of(&kubeconfig).await?).await?;
    println!("{}", entry.context("no entry is free")?);
    Ok(())
}

/// The limits that the figures exceed.
async fn benchmark() -> Result<Vec<String>> {
    let run = Run::begin()?;
    let measured = measured(&run).await;
    run.ended().await?;
    let (ours, naive) = measured?;
    let growth = growth(&ours).context("nothing was measured")?;
    let entry = json!({
        "name": "pool-leases",
        "ours": ours.iter().map(Figures::json).collect::<Vec<_>>(),
        "naive": naive.json(),
        "growth": rounded(growth),
    });
    println!("{}", serde_json::to_string_pretty(&entry)?);
    bench_report::add(entry)?;
    run.forget();
    Ok(wrong(&ours, growth))
}

async fn measured(run: &Arc<Run>) -> Result<(Vec<Figures>, Figures)> {
    let server = PoolServer::start(run).await?;
    let mut ours = Vec::new();
    for lessees in LESSEES {
        ours.push(middle(&server, Client::Ours, lessees).await?);
    }
    Ok((ours, middle(&server, Client::Naive, NAIVE_LESSEES).await?))
}

/// The round with the median time, the most status writes of all rounds, and the double holders of all rounds.
async fn middle(server: &PoolServer, client: Client, lessees: usize) -> Result<Figures> {
    let mut rounds = Vec::new();
    for round in 1..=ROUNDS {
        rounds.push(at_once(server, client, lessees, round).await?);
    }
    let double_holders = rounds.iter().map(|round| round.double_holders).sum();
    let status_writes = rounds.iter().map(|round| round.status_writes).fold(0.0, f64::max);
    rounds.sort_by(|one, other| one.wall_ms.total_cmp(&other.wall_ms));
    let middle = rounds.into_iter().nth(ROUNDS / 2).context("no round")?;
    Ok(Figures {
        status_writes,
        double_holders,
        ..middle
    })
}

/// Runs one round in a pool of its own.
async fn at_once(server: &PoolServer, client: Client, lessees: usize, round: usize) -> Result<Figures> {
    let who = client.name();
    let pool = Pool::create(server, &format!("{who}-{lessees}-{round}"), lessees).await?;
    let api = server.serving().await;
    let program = match client {
        Client::Ours => products::under_test("kubectl-kcp")?,
        Client::Naive => env::current_exe()?,
    };
    let started = Instant::now();
    let leases = (1..=lessees).map(async |number| {
        let lessee = format!("cluster-{number}");
        let output = Command::new(&program)
            .args(client.arguments(&lessee, pool.namespace()))
            .env("KUBECONFIG", api.kubeconfig())
            .env("HOME", api.folder())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{lessee}: {}: {errors}", output.status);
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    });
    let entries = try_join_all(leases)
        .await
        .with_context(|| pool.namespace().to_owned())?;
    let wall_ms = started.elapsed().as_secs_f64() * 1000.0;
    let different: BTreeSet<_> = entries.iter().collect();
    let status_writes = api.status_writes(pool.namespace(), CUSTOMIZATIONS)?;
    Ok(Figures {
        lessees,
        wall_ms,
        status_writes: ratio(status_writes, lessees),
        double_holders: lessees - different.len(),
    })
}

impl Client {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Naive => "naive",
        }
    }

    /// Prints the entry's name at the end, and otherwise nothing that depends on the entry.
    fn arguments<'a>(self, lessee: &'a str, namespace: &'a str) -> Vec<&'a str> {
        match self {
            Self::Ours => vec![
                "pool",
                "lease",
                POOL,
                "-n",
                namespace,
                "--cluster-deployment",
                lessee,
                "-o",
                "name",
            ],
            Self::Naive => vec![NAIVE, lessee, namespace],
        }
    }
}

impl Figures {
    fn json(&self) -> serde_json::Value {
        json!({
            "lessees": self.lessees,
            "wall_ms": rounded(self.wall_ms),
            "status_writes_of_a_lease": rounded(self.status_writes),
            "double_holders": self.double_holders,
        })
    }

    fn ms_of_a_lease(&self) -> f64 {
        self.wall_ms * ratio(1, self.lessees)
    }
}

/// The time of a lease among the most lessees, relative to one among the fewest.
fn growth(figures: &[Figures]) -> Option<f64> {
    Some(figures.last()?.ms_of_a_lease() / figures.first()?.ms_of_a_lease())
}

fn wrong(ours: &[Figures], growth: f64) -> Vec<String> {
    let mut wrong = Vec::new();
    for figures in ours {
        let lessees = figures.lessees;
        if figures.double_holders > 0 {
            wrong.push(format!(
                "{} of {lessees} lessees have another's entry",
                figures.double_holders
            ));
        }
        if figures.status_writes > MAX_STATUS_WRITES {
            let writes = figures.status_writes;
            wrong.push(format!(
                "a lease of {lessees} took {writes:.2} writes of a status, and at most {MAX_STATUS_WRITES} are allowed"
            ));
        }
    }
    if growth > MAX_GROWTH {
        wrong.push(format!(
            "a lease among the most lessees took {growth:.2} times one among the fewest, and at most {MAX_GROWTH} are \
             allowed"
        ));
    }
    wrong
}

fn ratio(part: usize, whole: usize) -> f64 {
    let float = |number: usize| u32::try_from(number).map_or(f64::NAN, f64::from);
    float(part) / float(whole)
}

#[cfg(test)]
mod tests {
    use super::{Figures, growth, wrong};

    fn figures(lessees: usize, wall_ms: f64, status_writes: f64, double_holders: usize) -> Figures {
        Figures {
            lessees,
            wall_ms,
            status_writes,
            double_holders,
        }
    }

    #[test]
    fn what_is_allowed_is_not_wrong() {
        let figures = [figures(16, 100.0, 1.0, 0), figures(256, 2400.0, 2.0, 0)];
        let growth = growth(&figures).unwrap();
        assert_eq!(
            (growth.to_bits(), wrong(&figures, growth).len()),
            (1.5_f64.to_bits(), 0)
        );
    }

    #[test]
    fn each_excess_is_told() {
        let figures = [figures(16, 100.0, 2.5, 0), figures(64, 1.0, 1.0, 3)];
        assert_eq!(
            wrong(&figures, 2.0),
            [
                "a lease of 16 took 2.50 writes of a status, and at most 2 are allowed",
                "3 of 64 lessees have another's entry",
                "a lease among the most lessees took 2.00 times one among the fewest, and at most 1.5 are allowed",
            ]
        );
    }
}
