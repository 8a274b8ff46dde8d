//! `status-all` creates 1,000 and then 10,000 control planes with three Machines each, reads them alternately with
//! `kubectl kcp status -A` and `kubectl get`, and adds the results to `bench.json` in the target folder. Exit code 1:
//! `status -A` exceeded a limit.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::fs;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::api_server::{ApiServer, Etcd};
use kcp_tests::assets::Assets;
use kcp_tests::bench_report::{self, rounded};
use kcp_tests::cluster_api;
use kcp_tests::cluster_api_alone::create_namespace;
use kcp_tests::fleet::Fleet;
use kcp_tests::products;
use kcp_tests::run::Run;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, sink};
use tokio::process::Command;
use tokio::runtime::Runtime;

/// The numbers of control planes, and of the rounds of which the median counts.
const FLEETS: [(usize, usize); 2] = [(1000, 15), (10_000, 3)];

/// The control planes of each namespace. `status -A` keeps the objects of one namespace in memory.
const OF_EACH_NAMESPACE: usize = 100;

const MACHINES_OF_EACH: usize = 3;

/// The limits of `status -A`: its time relative to kubectl's, and its memory in mebibytes.
const MAX_RATIO: f64 = 0.25;
const MAX_PEAK_MIB: f64 = 100.0;

const GET: [&str; 5] = ["get", "kubeadmcontrolplanes,machines", "-A", "-o", "json"];
const STATUS: [&str; 3] = ["status", "-A", "--timeout=5m"];

/// The definitions of the kinds that are read, and of the one that discovery requests.
const DEFINITIONS: [&str; 5] = [
    "kubeadmcontrolplanes",
    "machines",
    "clusters",
    "machinehealthchecks",
    "kubeadmconfigs",
];

/// The exit code if the measurement failed.
const UNDECIDED: u8 = 2;

struct Figures {
    control_planes: usize,
    wall_ms: f64,
    kubectl_wall_ms: f64,
    ratio: f64,
    peak_mib: f64,
}

fn main() -> ExitCode {
    let figures = match run() {
        Ok(figures) => figures,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(UNDECIDED);
        }
    };
    let exceeds = |figures: &Figures| figures.ratio > MAX_RATIO || figures.peak_mib > MAX_PEAK_MIB;
    if figures.iter().any(exceeds) {
        eprintln!(
            "error: at most {MAX_RATIO} times the time of kubectl get and {MAX_PEAK_MIB} MiB are allowed"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run() -> Result<Vec<Figures>> {
    Runtime::new()?.block_on(async {
        let run = Run::begin()?;
        let figures = measured(&run).await;
        run.ended().await?;
        let figures = figures?;
        let entry = json!({
            "name": "status-all",
            "fleets": figures.iter().map(Figures::json).collect::<Vec<_>>(),
        });
        println!("{}", serde_json::to_string_pretty(&entry)?);
        bench_report::add(entry)?;
        run.forget();
        Ok(figures)
    })
}

impl Figures {
    fn json(&self) -> Value {
        json!({
            "control_planes": self.control_planes,
            "machines": self.control_planes * MACHINES_OF_EACH,
            "wall_ms": rounded(self.wall_ms),
            "kubectl_wall_ms": rounded(self.kubectl_wall_ms),
            "ratio": rounded(self.ratio),
            "peak_mib": rounded(self.peak_mib),
        })
    }
}

async fn measured(run: &Arc<Run>) -> Result<Vec<Figures>> {
    let assets = Assets::locate()?;
    let etcd = Etcd::start(run, &assets, "etcd")?;
    let api = ApiServer::start(run, &assets, &etcd, "fleet").await?;
    cluster_api::install_unconverted(api.client(), &assets, &DEFINITIONS).await?;
    let kubectl = assets.program("kubectl");
    let ours = products::under_test("kubectl-kcp")?;
    let command = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("KUBECONFIG", api.kubeconfig())
            // kubectl's discovery cache must belong to the run.
            .env("HOME", run.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        command
    };
    let mut figures: Vec<Figures> = Vec::new();
    for (control_planes, rounds) in FLEETS {
        let existing = figures.last().map_or(0, |figures| figures.control_planes);
        for start in (existing..control_planes).step_by(OF_EACH_NAMESPACE) {
            let namespace = format!("tenant-{start:05}");
            create_namespace(api.client(), &namespace).await?;
            let fleet = Fleet {
                control_planes: start..start + OF_EACH_NAMESPACE,
                machines_of_each: MACHINES_OF_EACH,
            };
            let created = fleet.create(api.client(), &namespace).await;
            created.with_context(|| format!("creating the fleet of namespace {namespace}"))?;
        }
        let peak_mib = peak_mib(command(&ours, &STATUS), control_planes).await?;
        let mut turns = Vec::new();
        for _ in 0..rounds {
            let theirs = wall_ms(command(&kubectl, &GET)).await?;
            turns.push((wall_ms(command(&ours, &STATUS)).await?, theirs));
        }
        figures.push(Figures {
            control_planes,
            wall_ms: median(turns.iter().map(|(ours, _)| *ours)),
            kubectl_wall_ms: median(turns.iter().map(|(_, theirs)| *theirs)),
            ratio: median(turns.iter().map(|(ours, theirs)| ours / theirs)),
            peak_mib,
        });
        eprintln!("{}", figures.last().map(Figures::json).unwrap_or_default());
    }
    Ok(figures)
}

/// The time from the start of a command to its end. Its output is discarded.
async fn wall_ms(mut command: Command) -> Result<f64> {
    let started = Instant::now();
    let mut child = command.spawn()?;
    let mut output = child.stdout.take().context("no output")?;
    let bytes = tokio::io::copy(&mut output, &mut sink()).await?;
    let status = child.wait().await?;
    // The verdict does not matter.
    ensure!(
        bytes > 0 && status.code().is_some_and(|code| code < 2),
        "{command:?}: {status}"
    );
    Ok(started.elapsed().as_secs_f64() * 1000.0)
}

/// The most memory that it used before it wrote the first byte. Then it has read and rendered everything, and has more
/// to write than a pipe holds.
async fn peak_mib(mut command: Command, control_planes: usize) -> Result<f64> {
    let mut child = command.spawn()?;
    let mut output = child.stdout.take().context("no output")?;
    let mut text = vec![output.read_u8().await.context("it wrote nothing")?];
    let id = child.id().context("it has ended before its output was read")?;
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: f64 = peak
        .and_then(|line| line.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse().ok())
        .context("the kernel does not report VmHWM")?;
    output.read_to_end(&mut text).await?;
    child.wait().await?;
    // The table has a header line.
    let rows = String::from_utf8(text)?.lines().count().saturating_sub(1);
    ensure!(rows == control_planes, "the table has {rows} rows");
    Ok(kib / 1024.0)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_middle_one_counts() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()).to_bits(), 2.0_f64.to_bits());
    }
}
