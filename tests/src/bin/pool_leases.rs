//! `pool-leases` measures concurrent `kubectl kcp pool lease` commands, as many as the pool has entries (16, 64, 256 and
//! 1,024), and 64 naive clients that list the entries and write to the first free one. Then it measures in which order 16, 64
//! and 256 lessees get the few entries of a pool. It adds the results to `bench.json` in the target folder. Exit code 1: two
//! lessees hold one entry, or a limit is exceeded. `pool-leases waiting NUMBER...` measures only the order, of these numbers of
//! lessees.
//!
//! The CPU time of a lease is that of its process, as the kernel counts it. Every lease lists the whole inventory once,
//! and that list grows with the inventory whatever the client does with it. It is therefore left out: a process of this
//! program receives and parses the same list repeatedly, without keeping any of it, and the time of one list is
//! subtracted. What the lease does with the entries, and what conflicts with other lessees cost, remains.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};
use futures_util::future::try_join_all;
use kcp_tests::api_server::ApiServer;
use kcp_tests::bench_report::{self, rounded};
use kcp_tests::kubeconfig;
use kcp_tests::pools::naive::{NaiveLessee, Precondition};
use kcp_tests::pools::pool::{POOL, Pool};
use kcp_tests::pools::server::PoolServer;
use kcp_tests::pools::waiting;
use kcp_tests::products;
use kcp_tests::run::Run;
use serde::Deserialize;
use serde_json::json;
use tokio::runtime::Runtime;

/// Concurrent lessees, each for one entry.
const LESSEES: [usize; 4] = [16, 64, 256, 1024];

/// Lessees that wait for the few entries of a pool.
const WAITING: [usize; 3] = [16, 64, waiting::LIMITED];

/// The argument with which this program measures only waiting lessees.
const ONLY_WAITING: &str = "waiting";

/// The number of lessees to which the limits apply. Among few lessees, all choose before the first write, so that a third
/// of the writes conflict. More lessees saturate the API server.
const LIMITED: usize = 256;

/// The number of concurrent naive clients. Their writes grow with its square.
const NAIVE_LESSEES: usize = 64;

/// The number of rounds, of which the median counts.
const ROUNDS: usize = 3;

/// The limit of status writes per lease, including refused writes.
const MAX_STATUS_WRITES: f64 = 1.2;

/// The limit of the CPU time of a lease among 256 lessees without its list, relative to one among 16.
const MAX_GROWTH: f64 = 1.3;

/// The rounds of few lessees are repeated for at least this many leases, because the kernel counts CPU time in
/// hundredths of a second.
const MIN_LEASES: usize = 192;

/// How often a process lists the entries to measure one list.
const LISTS: usize = 50;

/// The exit code if the measurement failed.
const UNDECIDED: u8 = 2;

/// A thousand lessees keep an API server on two cores busy for longer than the default of 30 seconds.
const REQUEST_TIMEOUT: &str = "--request-timeout=5m";

/// The argument with which this program runs itself as one naive client. The client's name and the pool's namespace
/// follow.
const NAIVE: &str = "naive-lessee";

/// The argument with which this program lists the entries. The number of lists and the pool's namespace follow.
const LIST: &str = "list-entries";

const CUSTOMIZATIONS: &str = "clusterdeploymentcustomizations";

/// The client that leases.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Ours,
    /// [`NaiveLessee`], also in a process of its own.
    Naive,
}

/// The result for a number of concurrent leases.
#[derive(Clone, Copy)]
struct Figures {
    lessees: usize,
    wall_ms: f64,
    /// The CPU time of a lease, on average.
    cpu_ms: f64,
    /// The CPU time of its list of the entries.
    list_cpu_ms: f64,
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
        [] => runtime.block_on(async {
            let mut exceeded = benchmark().await?;
            exceeded.extend(benchmark_waiting(&WAITING).await?);
            Ok(exceeded)
        }),
        [naive, name, namespace] if naive == NAIVE => {
            runtime.block_on(lease_naively(name, namespace))?;
            Ok(Vec::new())
        }
        [list, times, namespace] if list == LIST => {
            runtime.block_on(list_entries(times.parse()?, namespace))?;
            Ok(Vec::new())
        }
        [waiting, numbers @ ..] if waiting == ONLY_WAITING => {
            let numbers: Vec<usize> = numbers
                .iter()
                .map(|number| number.parse())
                .collect::<Result<_, _>>()?;
            runtime.block_on(benchmark_waiting(&numbers))
        }
        _ => anyhow::bail!("usage: pool-leases [waiting NUMBER...]"),
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

/// Lists the entries of a namespace repeatedly.
async fn list_entries(times: usize, namespace: &str) -> Result<()> {
    let kubeconfig: PathBuf = env::var_os("KUBECONFIG").context("KUBECONFIG is not set")?.into();
    let client = kubeconfig::client_of(&kubeconfig).await?;
    let path = format!("/apis/hive.openshift.io/v1/namespaces/{namespace}/{CUSTOMIZATIONS}?limit=500");
    for _ in 0..times {
        let mut next = String::new();
        loop {
            let request = http::Request::get(format!("{path}&continue={next}")).body(Vec::new())?;
            let page: Page = client.request(request).await?;
            if page.metadata.next.is_empty() {
                break;
            }
            next = page.metadata.next;
        }
    }
    Ok(())
}

/// One page of a list. Its objects are parsed, and nothing of them is kept.
#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue", default)]
    next: String,
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
    Ok(exceeded_limits(&ours, growth))
}

/// The limits that the figures of waiting lessees exceed.
async fn benchmark_waiting(numbers: &[usize]) -> Result<Vec<String>> {
    let run = Run::begin()?;
    let measured = async {
        let server = PoolServer::start(&run).await?;
        let mut all = Vec::new();
        for number in numbers {
            let figures = waiting::measure(&server, *number).await?;
            eprintln!("{}", figures.json());
            all.push(figures);
        }
        anyhow::Ok(all)
    };
    let measured = measured.await;
    run.ended().await?;
    let measured = measured?;
    let figures: Vec<_> = measured.iter().map(waiting::WaitFigures::json).collect();
    bench_report::add(json!({"name": "waiting-lessees", "ours": figures}))?;
    run.forget();
    Ok(measured
        .iter()
        .flat_map(waiting::WaitFigures::exceeded_limits)
        .collect())
}

async fn measured(run: &Arc<Run>) -> Result<(Vec<Figures>, Figures)> {
    let server = PoolServer::start(run).await?;
    let mut ours = Vec::new();
    for lessees in LESSEES {
        ours.push(median_of_rounds(&server, Client::Ours, lessees).await?);
        eprintln!("{}", ours.last().map(Figures::json).unwrap_or_default());
    }
    Ok((
        ours,
        median_of_rounds(&server, Client::Naive, NAIVE_LESSEES).await?,
    ))
}

/// The medians of the times, the average of the status writes, and the double holders of all rounds.
async fn median_of_rounds(server: &PoolServer, client: Client, lessees: usize) -> Result<Figures> {
    let mut rounds = Vec::new();
    let least = MIN_LEASES.div_ceil(lessees);
    // An odd number has a median.
    for round in 1..=ROUNDS.max(least | 1) {
        rounds.push(run_concurrently(server, client, lessees, round).await?);
    }
    let median = |figure: fn(&Figures) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().context("no round")
    };
    Ok(Figures {
        lessees,
        wall_ms: median(|round| round.wall_ms)?,
        cpu_ms: median(|round| round.cpu_ms)?,
        list_cpu_ms: median(|round| round.list_cpu_ms)?,
        status_writes: rounds.iter().map(|round| round.status_writes).sum::<f64>() * ratio(1, rounds.len()),
        double_holders: rounds.iter().map(|round| round.double_holders).sum(),
    })
}

/// Runs one round in a pool of its own.
async fn run_concurrently(
    server: &PoolServer,
    client: Client,
    lessees: usize,
    round: usize,
) -> Result<Figures> {
    let who = client.name();
    let pool = Pool::create(server, &format!("{who}-{lessees}-{round}"), lessees).await?;
    let api = server.serving().await;
    let program = match client {
        Client::Ours => products::under_test("kubectl-kcp")?,
        Client::Naive => env::current_exe()?,
    };
    let before = cpu_ms_of_children()?;
    let started = Instant::now();
    let leases = (1..=lessees).map(async |number| {
        let lessee = format!("cluster-{number}");
        let arguments = client.arguments(&lessee, pool.namespace());
        api.succeed(&program, &arguments).await
    });
    let entries = try_join_all(leases)
        .await
        .with_context(|| pool.namespace().to_owned())?;
    let wall_ms = started.elapsed().as_secs_f64() * 1000.0;
    let cpu_ms = (cpu_ms_of_children()? - before) * ratio(1, lessees);
    let list_cpu_ms = match client {
        Client::Ours => list_cpu_ms(&api, pool.namespace()).await?,
        Client::Naive => 0.0,
    };
    let different: BTreeSet<_> = entries.iter().collect();
    let status_writes = api.status_writes(pool.namespace(), CUSTOMIZATIONS)?;
    Ok(Figures {
        lessees,
        wall_ms,
        cpu_ms,
        list_cpu_ms,
        status_writes: ratio(status_writes, lessees),
        double_holders: lessees - different.len(),
    })
}

/// The CPU time of one list: of a process that lists often, less that of one that only connects.
async fn list_cpu_ms(api: &ApiServer, namespace: &str) -> Result<f64> {
    let mut spent = Vec::new();
    for times in [0, LISTS] {
        let before = cpu_ms_of_children()?;
        api.succeed(env::current_exe()?, &[LIST, &times.to_string(), namespace])
            .await?;
        spent.push(cpu_ms_of_children()? - before);
    }
    let [connecting, listing] = spent.as_slice() else {
        bail!("not measured")
    };
    Ok((listing - connecting) * ratio(1, LISTS))
}

/// The CPU time of all processes that this process has waited for, in milliseconds.
fn cpu_ms_of_children() -> Result<f64> {
    const TICK_MS: u32 = 10;
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, after_name) = stat.rsplit_once(") ").context("no name in /proc/self/stat")?;
    // proc(5): cutime and cstime, the 16th and 17th field; the name is the second.
    let ticks = after_name.split(' ').skip(13).take(2);
    let ticks: u32 = ticks.map(str::parse::<u32>).sum::<Result<_, _>>()?;
    Ok(f64::from(ticks * TICK_MS))
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
                REQUEST_TIMEOUT,
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
            "cpu_ms_of_a_lease": rounded(self.cpu_ms),
            "of_which_its_list": rounded(self.list_cpu_ms),
            "status_writes_of_a_lease": rounded(self.status_writes),
            "double_holders": self.double_holders,
        })
    }

    fn cpu_ms_without_list(&self) -> f64 {
        self.cpu_ms - self.list_cpu_ms
    }

    fn is_limited(&self) -> bool {
        self.lessees == LIMITED
    }
}

/// The CPU time of a lease without its list among the most lessees that are limited, relative to one among the fewest.
fn growth(figures: &[Figures]) -> Option<f64> {
    let limited = figures.iter().find(|figures| figures.is_limited())?;
    Some(limited.cpu_ms_without_list() / figures.first()?.cpu_ms_without_list())
}

fn exceeded_limits(ours: &[Figures], growth: f64) -> Vec<String> {
    let mut exceeded = Vec::new();
    for figures in ours {
        let lessees = figures.lessees;
        if figures.double_holders > 0 {
            exceeded.push(format!(
                "{} of {lessees} lessees have another's entry",
                figures.double_holders
            ));
        }
        if figures.status_writes > MAX_STATUS_WRITES && figures.is_limited() {
            let writes = figures.status_writes;
            exceeded.push(format!(
                "a lease of {lessees} took {writes:.2} writes of a status, and at most {MAX_STATUS_WRITES} are allowed"
            ));
        }
    }
    if growth > MAX_GROWTH {
        exceeded.push(format!(
            "without its list, a lease among {LIMITED} lessees takes {growth:.2} times the CPU time of one among the \
             fewest, and at most {MAX_GROWTH} are allowed"
        ));
    }
    exceeded
}

fn ratio(part: usize, whole: usize) -> f64 {
    let float = |number: usize| u32::try_from(number).map_or(f64::NAN, f64::from);
    float(part) / float(whole)
}

#[cfg(test)]
mod tests {
    use super::{Figures, exceeded_limits, growth};

    fn figures(lessees: usize, cpu_ms: f64, status_writes: f64, double_holders: usize) -> Figures {
        Figures {
            lessees,
            wall_ms: 1.0,
            cpu_ms,
            list_cpu_ms: 2.0,
            status_writes,
            double_holders,
        }
    }

    #[test]
    fn what_is_allowed_is_not_wrong() {
        let figures = [
            figures(16, 12.0, 1.5, 0),
            figures(256, 15.0, 1.2, 0),
            figures(1024, 90.0, 3.0, 0),
        ];
        let growth = growth(&figures).unwrap();
        assert_eq!(
            (growth.to_bits(), exceeded_limits(&figures, growth).len()),
            (1.3_f64.to_bits(), 0)
        );
    }

    #[test]
    fn each_excess_is_reported() {
        let figures = [
            figures(64, 1.0, 1.0, 3),
            figures(256, 1.0, 1.3, 0),
            figures(1024, 1.0, 1.0, 1),
        ];
        assert_eq!(
            exceeded_limits(&figures, 2.0),
            [
                "3 of 64 lessees have another's entry",
                "a lease of 256 took 1.30 writes of a status, and at most 1.2 are allowed",
                "1 of 1024 lessees have another's entry",
                "without its list, a lease among 256 lessees takes 2.00 times the CPU time of one among the fewest, and at \
                 most 1.3 are allowed",
            ]
        );
    }
}
