//! `etcd-snapshot` saves a snapshot of an etcd with 1 GiB of data, alternately with `kubectl kcp etcd snapshot` and with
//! etcdctl through `kubectl port-forward`, and adds the results to `bench.json` in the target folder. Then it kills ten
//! snapshots at random moments, restores a whole one with etcdutl, and compares every key. Exit code 1: a limit is exceeded.
//! It needs 6 GB of disk.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use kcp_tests::addresses::free_port;
use kcp_tests::assets::Assets;
use kcp_tests::bench_report::{self, rounded};
use kcp_tests::cluster::Cluster;
use kcp_tests::etcd::CLIENT_PORT;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::process::Process;
use kcp_tests::run::Run;
use kcp_tests::s3::{Capacity, S3Server};
use kcp_tests::{products, wait};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::runtime::Runtime;
use tokio::time::{MissedTickBehavior, interval, timeout};

const NAMESPACE: &str = "default";
const NAME: &str = "edge";

/// The number of values, and the size of each in bytes: 1 GiB.
const VALUES: usize = 1024;
const VALUE_BYTES: usize = 1 << 20;

/// The number of rounds, of which the median counts.
const ROUNDS: usize = 3;

const INTERRUPTIONS: usize = 10;

/// How many values are compared at once.
const CHUNK: usize = 32;

/// The limits: our time relative to etcdctl's, and our memory in mebibytes.
const MAX_RATIO: f64 = 2.0;
const MAX_PEAK_MIB: f64 = 64.0;

/// The exit code if the measurement failed.
const UNDECIDED: u8 = 2;

struct Figures {
    bytes: u64,
    wall_ms: f64,
    etcdctl_wall_ms: f64,
    ratio: f64,
    peak_mib: f64,
    /// The time to S3, relative to etcdctl and curl, which need a disk between them; and the most memory.
    s3_wall_ms: f64,
    s3_theirs_ms: f64,
    s3_ratio: f64,
    s3_peak_mib: f64,
    /// How many bytes each killed snapshot had written.
    killed_at: Vec<u64>,
    keys: usize,
}

fn main() -> ExitCode {
    match run() {
        Ok(figures)
            if figures.ratio.max(figures.s3_ratio) > MAX_RATIO
                || figures.peak_mib.max(figures.s3_peak_mib) > MAX_PEAK_MIB =>
        {
            eprintln!(
                "error: at most {MAX_RATIO} times the time of etcdctl and {MAX_PEAK_MIB} MiB are allowed"
            );
            ExitCode::FAILURE
        }
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(UNDECIDED)
        }
    }
}

fn run() -> Result<Figures> {
    Runtime::new()?.block_on(async {
        let run = Run::begin()?;
        let figures = measured(&run).await;
        run.ended().await?;
        let figures = figures?;
        let entry = json!({
            "name": "etcd-snapshot",
            "bytes": figures.bytes,
            "wall_ms": rounded(figures.wall_ms),
            "etcdctl_wall_ms": rounded(figures.etcdctl_wall_ms),
            "ratio": rounded(figures.ratio),
            "peak_mib": rounded(figures.peak_mib),
            "s3_wall_ms": rounded(figures.s3_wall_ms),
            "s3_etcdctl_and_curl_wall_ms": rounded(figures.s3_theirs_ms),
            "s3_ratio": rounded(figures.s3_ratio),
            "s3_peak_mib": rounded(figures.s3_peak_mib),
            "killed_at_bytes": figures.killed_at,
            "equal_keys": figures.keys,
        });
        println!("{}", serde_json::to_string_pretty(&entry)?);
        bench_report::add(entry)?;
        run.forget();
        Ok(figures)
    })
}

async fn measured(run: &Arc<Run>) -> Result<Figures> {
    let assets = Assets::locate()?;
    let management = ManagementCluster::start(run, assets.clone()).await?;
    management.start_controllers(&[]).await?;
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, "v1.34.2").await?;
    cluster.settled(1).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let bench = Bench {
        run,
        assets,
        management: &management,
        workload: &workload,
        machine: cluster.machines().await?.pop().context("no Machine")?,
        folder: run.subfolder("etcd-snapshot")?,
    };
    eprintln!("writing {VALUES} values of 1 MiB");
    for number in 0..VALUES {
        // Each value differs, so that a lost or repeated part is found.
        bench
            .put(&key(number), &format!("{number:08}").repeat(VALUE_BYTES / 8))
            .await?;
    }
    let forward = bench.forward().await?;
    let server = S3Server::start(run, "s3", Capacity::Disk).await?;
    let mut s3_turns = Vec::new();
    let mut turns = Vec::new();
    let mut bytes = 0;
    for round in 0..ROUNDS {
        let theirs = bench.etcdctl_ms(&forward).await?;
        let ours = bench.ours(&bench.folder.join("ours.db")).await?;
        eprintln!(
            "round {round}: {:.0} ms, {:.1} MiB; etcdctl {theirs:.0} ms",
            ours.wall_ms, ours.peak_mib
        );
        bytes = ours.bytes;
        turns.push((ours, theirs));
        let theirs = bench.etcdctl_and_curl_ms(&forward, &server).await?;
        let ours = bench.ours_to_s3(&server, round).await?;
        eprintln!(
            "round {round} to S3: {:.0} ms, {:.1} MiB; etcdctl and curl {theirs:.0} ms",
            ours.wall_ms, ours.peak_mib
        );
        s3_turns.push((ours, theirs));
    }
    drop(server);
    drop(forward);
    let wall_ms = median(turns.iter().map(|(ours, _)| ours.wall_ms));
    let killed_at = bench
        .interrupted(Duration::from_secs_f64(wall_ms / 1000.0))
        .await?;
    let keys = bench.restored_and_compared().await?;
    management.stop_controllers(None).await?;
    Ok(Figures {
        bytes,
        wall_ms,
        etcdctl_wall_ms: median(turns.iter().map(|(_, theirs)| *theirs)),
        ratio: median(turns.iter().map(|(ours, theirs)| ours.wall_ms / theirs)),
        peak_mib: turns.iter().map(|(ours, _)| ours.peak_mib).fold(0.0, f64::max),
        s3_wall_ms: median(s3_turns.iter().map(|(ours, _)| ours.wall_ms)),
        s3_theirs_ms: median(s3_turns.iter().map(|(_, theirs)| *theirs)),
        s3_ratio: median(s3_turns.iter().map(|(ours, theirs)| ours.wall_ms / theirs)),
        s3_peak_mib: s3_turns.iter().map(|(ours, _)| ours.peak_mib).fold(0.0, f64::max),
        killed_at,
        keys,
    })
}

fn key(number: usize) -> String {
    format!("snapshot/{number:04}")
}

struct Bench<'b> {
    run: &'b Arc<Run>,
    assets: Assets,
    management: &'b ManagementCluster,
    workload: &'b WorkloadCluster,
    machine: String,
    folder: PathBuf,
}

/// `kubectl port-forward` to the member, through which etcdctl connects.
struct Forward {
    port: u16,
    _kubectl: Child,
}

struct Ours {
    wall_ms: f64,
    peak_mib: f64,
    bytes: u64,
}

impl Bench<'_> {
    async fn forward(&self) -> Result<Forward> {
        let port = free_port()?;
        let kubectl = Command::new(self.assets.program("kubectl"))
            .args(["port-forward", "-n", "kube-system"])
            .arg(format!("pod/etcd-{}", self.machine))
            .arg(format!("{port}:{CLIENT_PORT}"))
            .env("KUBECONFIG", self.workload.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        wait::until("the port-forward listens", || async {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
            Ok(())
        })
        .await?;
        Ok(Forward {
            port,
            _kubectl: kubectl,
        })
    }

    /// Writes with etcdctl, because the JSON gateway is slow with large values.
    async fn put(&self, key: &str, value: &str) -> Result<()> {
        let mut child = Command::new(self.assets.program("etcdctl"))
            .args(self.workload.etcdctl_flags()?)
            .args(["put", key])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        stdin.write_all(value.as_bytes()).await?;
        drop(stdin);
        let status = child.wait().await?;
        ensure!(status.success(), "etcdctl put {key}: {status}");
        Ok(())
    }

    /// The flags of etcdctl without the member's own address.
    fn credentials(&self) -> Result<Vec<String>> {
        let mut flags = self.workload.etcdctl_flags()?;
        flags.retain(|flag| !flag.starts_with("--endpoints="));
        Ok(flags)
    }

    /// The time of etcdctl, which writes to a file and syncs it, as we do.
    async fn etcdctl_ms(&self, forward: &Forward) -> Result<f64> {
        let file = self.folder.join("theirs.db");
        let wall_ms = self.etcdctl_to(forward, &file).await?;
        fs::remove_file(&file)?;
        Ok(wall_ms)
    }

    /// The time of etcdctl, and then of curl, which uploads the file.
    async fn etcdctl_and_curl_ms(&self, forward: &Forward, server: &S3Server) -> Result<f64> {
        let file = self.folder.join("theirs.db");
        let saved_ms = self.etcdctl_to(forward, &file).await?;
        let started = Instant::now();
        let output = server.upload(&file, "theirs.db").output().await?;
        let uploaded_ms = milliseconds(started);
        ensure!(
            output.status.success(),
            "curl: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        fs::remove_file(&file)?;
        fs::remove_file(server.object("theirs.db")?)?;
        Ok(saved_ms + uploaded_ms)
    }

    async fn etcdctl_to(&self, forward: &Forward, file: &Path) -> Result<f64> {
        let started = Instant::now();
        let output = Command::new(self.assets.program("etcdctl"))
            .args(self.credentials()?)
            .arg(format!("--endpoints=https://127.0.0.1:{}", forward.port))
            .args(["snapshot", "save"])
            .arg(file)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let wall_ms = milliseconds(started);
        ensure!(
            output.status.success(),
            "etcdctl: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(wall_ms)
    }

    fn command(&self, file: &Path) -> Result<Command> {
        let mut command = Command::new(products::under_test("kubectl-kcp")?);
        command
            .args([
                "etcd",
                "snapshot",
                NAME,
                "-n",
                NAMESPACE,
                "--timeout=60s",
                "--output-file",
            ])
            .arg(file)
            .env("KUBECONFIG", self.management.kubectl().kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        Ok(command)
    }

    async fn ours(&self, file: &Path) -> Result<Ours> {
        self.measured_to(self.command(file)?, file).await
    }

    async fn ours_to_s3(&self, server: &S3Server, round: usize) -> Result<Ours> {
        let object = format!("ours-{round}.db");
        let place = format!("s3://{}/{object}", S3Server::BUCKET);
        let mut command = self.command(Path::new(&place))?;
        for variable in server.environment() {
            let (name, value) = variable.split_once('=').context("no value")?;
            command.env(name, value);
        }
        self.measured_to(command, &server.object(&object)?).await
    }

    /// Runs a command that creates a file, and removes the file.
    async fn measured_to(&self, mut command: Command, file: &Path) -> Result<Ours> {
        let started = Instant::now();
        let mut child = command.spawn()?;
        let id = child.id().context("it has ended")?;
        let mut clock = interval(Duration::from_millis(20));
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut peak_mib = 0.0;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status?,
                // The process may have ended between the two.
                _ = clock.tick() => peak_mib = peak_of(id).unwrap_or(peak_mib),
            }
        };
        let wall_ms = milliseconds(started);
        ensure!(status.success(), "kubectl kcp: {status}");
        let bytes = fs::metadata(file)?.len();
        fs::remove_file(file)?;
        Ok(Ours {
            wall_ms,
            peak_mib,
            bytes,
        })
    }

    /// Kills snapshots at random moments of the usual time. Returns how many bytes each had written.
    async fn interrupted(&self, usual: Duration) -> Result<Vec<u64>> {
        let seed = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)?
            .as_nanos();
        let mut random = Random(u64::try_from(seed & u128::from(u64::MAX))? | 1);
        let mut killed_at = Vec::new();
        while killed_at.len() < INTERRUPTIONS {
            let file = self.folder.join("killed.db");
            let mut child = self.command(&file)?.spawn()?;
            let moment = usual.mul_f64(random.fraction());
            if let Ok(status) = timeout(moment, child.wait()).await {
                // It was faster than usual, so it is whole.
                ensure!(status?.success() && file.exists(), "a snapshot failed");
                fs::remove_file(&file)?;
                continue;
            }
            // SIGKILL. The process has ended when this returns.
            child.kill().await?;
            ensure!(!file.exists(), "a killed snapshot has its name after {moment:?}");
            let mut written = 0;
            for entry in fs::read_dir(&self.folder)? {
                let entry = entry?;
                written = entry.metadata()?.len();
                fs::remove_file(entry.path())?;
            }
            killed_at.push(written);
        }
        Ok(killed_at)
    }

    /// Restores a snapshot with etcdutl, serves it with etcd, and compares every key. Returns the number of keys.
    async fn restored_and_compared(&self) -> Result<usize> {
        let (file, data) = (self.folder.join("whole.db"), self.folder.join("restored"));
        let saved = self.command(&file)?.status().await?;
        ensure!(saved.success(), "kubectl kcp: {saved}");
        let restored = Command::new(self.assets.program("etcdutl"))
            .args(["snapshot", "restore"])
            .arg(&file)
            .arg("--data-dir")
            .arg(&data)
            .stdin(Stdio::null())
            .output()
            .await?;
        ensure!(
            restored.status.success(),
            "etcdutl: {}",
            String::from_utf8_lossy(&restored.stderr)
        );
        fs::remove_file(&file)?;
        let (clients, peers) = (free_port()?, free_port()?);
        let clients = format!("http://127.0.0.1:{clients}");
        let arguments = [
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peers}"),
        ];
        let program = self.assets.program("etcd");
        let none: &[(&str, &str)] = &[];
        let _etcd = Process::start(self.run, "etcd-restored", &program, arguments, none)?;
        let (source, copy) = (
            self.workload.etcdctl_flags()?,
            vec![format!("--endpoints={clients}")],
        );
        let first = wait::until("the restored etcd serves", || {
            self.get(&copy, &["get", "snapshot/0000"])
        })
        .await?;
        let revision = format!(
            "--rev={}",
            first.pointer("/header/revision").context("no revision")?
        );
        // The values, and what is before and after them.
        let mut ranges: Vec<(String, String)> = (0..VALUES)
            .step_by(CHUNK)
            .map(|start| (key(start), key(start + CHUNK)))
            .collect();
        ranges.push((" ".to_owned(), "snapshot/".to_owned()));
        ranges.push(("snapshot0".to_owned(), "~".to_owned()));
        let mut keys = 0;
        for (start, end) in &ranges {
            let range = ["get", start, end, &revision];
            let (theirs, ours) = (self.get(&source, &range).await?, self.get(&copy, &range).await?);
            ensure!(
                theirs.get("kvs") == ours.get("kvs"),
                "the keys from {start} to {end} differ"
            );
            keys += ours.get("kvs").and_then(Value::as_array).map_or(0, Vec::len);
        }
        ensure!(keys > VALUES, "{keys} keys");
        fs::remove_dir_all(&data)?;
        Ok(keys)
    }

    async fn get(&self, flags: &[String], arguments: &[&str]) -> Result<Value> {
        let output = Command::new(self.assets.program("etcdctl"))
            .args(flags)
            .args(["-w", "json"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .await?;
        ensure!(
            output.status.success(),
            "etcdctl: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// The most memory that a process has used so far, in mebibytes.
fn peak_of(id: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = peak.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Marsaglia's xorshift, which is random enough to choose moments.
struct Random(u64);

impl Random {
    /// At least 0 and less than 1.
    #[expect(clippy::cast_precision_loss, reason = "a moment needs few digits")]
    fn fraction(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::{Random, median};

    #[test]
    fn the_middle_one_counts() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()).to_bits(), 2.0_f64.to_bits());
    }

    #[test]
    fn moments_are_spread() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let moments: Vec<f64> = (0..1000).map(|_| random.fraction()).collect();
        assert!(moments.iter().all(|moment| (0.0..1.0).contains(moment)));
        let early = moments.iter().filter(|moment| **moment < 0.5).count();
        assert!((400..600).contains(&early), "{early}");
    }
}
