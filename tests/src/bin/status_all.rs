//! `status-all` creates 1,000 control planes with 3,000 Machines, reads them alternately with `kubectl kcp status -A`
//! and `kubectl get`, and adds the result to `bench.json` in the target folder. Exit code 1: `status -A` exceeded a limit.

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
use kcp_tests::fleet::Fleet;
use kcp_tests::products;
use kcp_tests::run::Run;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, sink};
use tokio::process::Command;
use tokio::runtime::Runtime;

const FLEET: Fleet = Fleet {
    control_planes: 1000,
    machines_of_each: 3,
};

/// The number of rounds, of which the median counts.
const ROUNDS: usize = 7;

/// The limits of `status -A`: its time relative to kubectl's, and its memory in mebibytes.
const MAX_RATIO: f64 = 1.5;
const MAX_PEAK_MIB: f64 = 100.0;

const GET: [&str; 5] = ["get", "kubeadmcontrolplanes,machines", "-A", "-o", "json"];
const STATUS: [&str; 4] = ["status", "-A", "-o", "json"];

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
    let Figures { ratio, peak_mib, .. } = figures;
    if ratio > MAX_RATIO || peak_mib > MAX_PEAK_MIB {
        eprintln!(
            "error: at most {MAX_RATIO} times the time of kubectl get and {MAX_PEAK_MIB} MiB are allowed"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run() -> Result<Figures> {
    Runtime::new()?.block_on(async {
        let run = Run::begin()?;
        let figures = measured(&run).await;
        run.ended().await?;
        let figures = figures?;
        let entry = json!({
            "name": "status-all",
            "control_planes": FLEET.control_planes,
            "machines": FLEET.control_planes * FLEET.machines_of_each,
            "wall_ms": rounded(figures.wall_ms),
            "kubectl_wall_ms": rounded(figures.kubectl_wall_ms),
            "ratio": rounded(figures.ratio),
            "peak_mib": rounded(figures.peak_mib),
        });
        println!("{}", serde_json::to_string_pretty(&entry)?);
        bench_report::add(entry)?;
        run.forget();
        Ok(figures)
    })
}

async fn measured(run: &Arc<Run>) -> Result<Figures> {
    let assets = Assets::locate()?;
    let etcd = Etcd::start(run, &assets, "etcd")?;
    let api = ApiServer::start(run, &assets, &etcd, "fleet").await?;
    cluster_api::install_unconverted(api.client(), &assets, &DEFINITIONS).await?;
    FLEET
        .create(api.client(), "default")
        .await
        .context("making the fleet")?;

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
    let peak_mib = peak_mib(command(&ours, &STATUS)).await?;
    let mut turns = Vec::new();
    for _ in 0..ROUNDS {
        let theirs = wall_ms(command(&kubectl, &GET)).await?;
        turns.push((wall_ms(command(&ours, &STATUS)).await?, theirs));
    }
    Ok(Figures {
        wall_ms: median(turns.iter().map(|(ours, _)| *ours)),
        kubectl_wall_ms: median(turns.iter().map(|(_, theirs)| *theirs)),
        ratio: median(turns.iter().map(|(ours, theirs)| ours / theirs)),
        peak_mib,
    })
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
async fn peak_mib(mut command: Command) -> Result<f64> {
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
    let list: Value = serde_json::from_slice(&text).context("its output")?;
    let items = list.get("items").and_then(Value::as_array).map_or(0, Vec::len);
    ensure!(items == FLEET.control_planes, "it names {items} control planes");
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
