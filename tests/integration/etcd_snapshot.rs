//! `kubectl kcp etcd snapshot` on real etcd members, through the real port-forward. The real etcdutl restores the snapshot,
//! and a real etcd serves it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::addresses::free_port;
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::process::Process;
use kcp_tests::{resources, wait};
use serde_json::Value;

use crate::schema;
use crate::shared::with_controllers;

const NAMESPACE: &str = "etcd-snapshot";
const NAME: &str = "edge";

/// Large values, so that a snapshot takes long enough to be interrupted.
const VALUES: usize = 48;
const VALUE_BYTES: usize = 1 << 20;

/// The arguments of etcdctl that list every key with its value.
pub(crate) const EVERY_KEY: [&str; 3] = ["get", "", "--prefix"];

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_snapshot_is_whole_or_absent_and_can_be_restored() {
    with_controllers(NAMESPACE, saved);
}

async fn saved(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let etcd = workload.etcd().await?;
    let value = "v".repeat(VALUE_BYTES);
    for number in 0..VALUES {
        etcd.put(&format!("snapshot/{number}"), &value).await?;
    }
    let folder = management.run().subfolder("etcd-snapshot")?;
    let member = is_recorded_and_restored(management, &workload, &folder).await?;
    is_encrypted(management, &workload, &folder).await?;
    a_killed_command_leaves_no_file(management, &folder).await?;
    is_saved_before_a_change(management, &folder).await?;
    a_member_that_dies_leaves_no_file(management, &workload, &member, &folder).await?;
    cluster.delete().await
}

fn command<'a>(file: &'a Path, more: &[&'a str]) -> Result<Vec<&'a str>> {
    let file = file.to_str().context("the folder's name is text")?;
    let fixed = [
        "kcp",
        "etcd",
        "snapshot",
        NAME,
        "-n",
        NAMESPACE,
        "--timeout=60s",
        "--output-file",
        file,
    ];
    Ok([&fixed[..], more].concat())
}

/// Saves and restores a snapshot. Returns the member that has sent it.
async fn is_recorded_and_restored(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    folder: &Path,
) -> Result<String> {
    let file = folder.join("whole.db");
    let saved = management
        .kubectl()
        .succeed(command(&file, &["-o", "json"])?)
        .await?;
    let document: Value = serde_json::from_str(&saved.stdout)?;
    schema::holds("etcdsnapshot.json", &document)?;
    let metadata = fs::metadata(&file)?;
    ensure!(
        document.pointer("/snapshot/bytes").and_then(Value::as_u64) == Some(metadata.len())
            && metadata.len() > (VALUES * VALUE_BYTES) as u64,
        "{saved}"
    );
    ensure!(metadata.permissions().mode() & 0o777 == 0o600, "{metadata:?}");
    let member = document.pointer("/snapshot/member").and_then(Value::as_str);
    let member = member.context("no member")?;
    let status = json(&workload_etcdctl(management, workload, &["endpoint", "status"]).await?)?;
    let listed = json(&workload_etcdctl(management, workload, &["member", "list"]).await?)?;
    let listed = listed
        .pointer("/members")
        .and_then(Value::as_array)
        .context("no members")?;
    let leader = listed
        .iter()
        .find(|listed| listed.get("ID") == status.pointer("/0/Status/leader"));
    let leader = leader.context("no leader")?;
    ensure!(
        leader.get("name").and_then(Value::as_str) != Some(member),
        "the leader {member} has sent the snapshot"
    );

    let control_planes = resources::control_planes(management.client(), NAMESPACE);
    let control_plane = control_planes.get(NAME).await?;
    let annotations = control_plane.metadata.annotations.unwrap_or_default();
    let recorded = annotations
        .get("kubectl-kcp.dev/etcd-snapshot")
        .context("no record")?;
    ensure!(
        Some(&serde_json::from_str::<Value>(recorded)?) == document.get("snapshot"),
        "{recorded}"
    );

    let again = management.kubectl().run(command(&file, &[])?).await?;
    ensure!(again.code == 2 && again.stderr.contains("whole.db: "), "{again}");
    is_equal_to_the_source(management, workload, &file).await?;
    Ok(member.to_owned())
}

/// The snapshot on stdout, piped to the real age as the book says, is whole when age decrypts it.
async fn is_encrypted(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    folder: &Path,
) -> Result<()> {
    let text = |path: &Path| path.to_str().map(str::to_owned).context("text");
    let (key, file, decrypted) = (
        text(&folder.join("key.txt"))?,
        folder.join("secret.db.age"),
        folder.join("decrypted.db"),
    );
    run_program(management, "age-keygen", &["-o", &key]).await?;
    let public_key = run_program(management, "age-keygen", &["-y", &key]).await?;
    let age = text(&Assets::locate()?.program("age"))?;
    let script = format!(
        "set -o pipefail; kubectl {} | {age} -r {} -o {}",
        command(Path::new("-"), &[])?.join(" "),
        public_key.trim(),
        file.display()
    );
    let saved = management.kubectl().script("bash", ["-c", &script]).await?;
    ensure!(
        saved.code == 0 && saved.stderr.contains("snapshot of etcd member "),
        "{saved}"
    );
    let encrypted = fs::read(&file)?;
    ensure!(
        encrypted.starts_with(b"age-encryption.org/v1\n")
            && !encrypted.chunks_exact(64).any(|part| part == [b'v'; 64]),
        "{} contains a value of etcd",
        file.display()
    );
    let decrypt = ["--decrypt", "-i", &key, "-o", &text(&decrypted)?, &text(&file)?];
    run_program(management, "age", &decrypt).await?;
    is_equal_to_the_source(management, workload, &decrypted).await
}

/// Runs a program of the assets. Returns what it prints.
async fn run_program(management: &ManagementCluster, name: &str, arguments: &[&str]) -> Result<String> {
    let program = Assets::locate()?.program(name);
    let program = program.to_str().context("text")?;
    let ended = management
        .kubectl()
        .script(program, arguments.iter().copied())
        .await?;
    ensure!(ended.code == 0, "{ended}");
    Ok(ended.stdout)
}

/// Restores a snapshot with etcdutl, serves it with etcd, and compares each key with the source at the same revision.
pub(crate) async fn is_equal_to_the_source(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    file: &Path,
) -> Result<()> {
    let restored = restored(management, file).await?;
    let revision = format!(
        "--rev={}",
        restored.pointer("/header/revision").context("no revision")?
    );
    let source =
        json(&workload_etcdctl(management, workload, &[&EVERY_KEY[..], &[&revision]].concat()).await?)?;
    let count = restored.get("kvs").and_then(Value::as_array).map_or(0, Vec::len);
    ensure!(count > VALUES, "{count} keys");
    ensure!(
        restored.get("kvs") == source.get("kvs"),
        "the snapshot differs from its source at {revision}"
    );
    Ok(())
}

/// Restores a snapshot with etcdutl, serves it with etcd, and returns every key, as etcdctl prints them.
pub(crate) async fn restored(management: &ManagementCluster, file: &Path) -> Result<Value> {
    let assets = Assets::locate()?;
    let data = file.with_extension("restored");
    let restore = [
        "snapshot",
        "restore",
        file.to_str().context("text")?,
        "--data-dir",
        data.to_str().context("text")?,
    ];
    run_program(management, "etcdutl", &restore).await?;
    let (clients, peers) = (free_port()?, free_port()?);
    let clients = format!("http://127.0.0.1:{clients}");
    let arguments = [
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peers}"),
    ];
    let run: &Arc<_> = management.run();
    let _etcd = Process::start(
        run,
        "etcd-restored",
        &assets.program("etcd"),
        arguments,
        &[] as &[(&str, &str)],
    )?;
    let endpoint = format!("--endpoints={clients}");
    wait::until("the restored etcd serves", || async {
        json(&etcdctl(management, std::slice::from_ref(&endpoint), &EVERY_KEY).await?)
    })
    .await
}

/// The spec of the control plane, and its record of a snapshot.
async fn spec_and_record(management: &ManagementCluster) -> Result<(Value, Option<String>)> {
    let output = management
        .kubectl()
        .succeed(["get", "kubeadmcontrolplane", NAME, "-n", NAMESPACE, "-o", "json"])
        .await?;
    let control_plane: Value = serde_json::from_str(&output.stdout)?;
    let record = control_plane.pointer("/metadata/annotations/kubectl-kcp.dev~1etcd-snapshot");
    let record = record.and_then(Value::as_str).map(str::to_owned);
    Ok((control_plane.get("spec").cloned().unwrap_or_default(), record))
}

/// `upgrade` and `rollout start` warn without a recent snapshot, save one with `--snapshot`, and change nothing if that fails.
async fn is_saved_before_a_change(management: &ManagementCluster, folder: &Path) -> Result<()> {
    const WARNING: &str =
        "warning: no snapshot of etcd is recorded; to save a snapshot before the change, use --snapshot FILE";
    let kubectl = management.kubectl();
    let folder = folder.join("first");
    fs::create_dir(&folder)?;
    let name_in = |folder: &Path| folder.to_str().map(str::to_owned).context("text");
    let start = ["kcp", "rollout", "start", NAME, "-n", NAMESPACE, "--yes"];
    let upgrade = ["kcp", "upgrade", NAME, "-n", NAMESPACE, "--to=v1.34.3", "--yes"];
    let recent = kubectl.run(start.iter().chain(&["--dry-run=server"])).await?;
    ensure!(
        recent.code == 0 && !recent.stderr.contains("snapshot"),
        "{recent}"
    );
    let forget = "kubectl-kcp.dev/etcd-snapshot-";
    kubectl
        .succeed(["annotate", "kubeadmcontrolplane", NAME, "-n", NAMESPACE, forget])
        .await?;
    for command in [&start[..], &upgrade[..]] {
        let warned = kubectl.run(command.iter().chain(&["--dry-run=server"])).await?;
        ensure!(warned.code == 0 && warned.stderr.contains(WARNING), "{warned}");
    }

    let nowhere = name_in(&folder.join("absent/edge.db"))?;
    let before = spec_and_record(management).await?;
    for command in [&start[..], &upgrade[..]] {
        let failed = kubectl
            .run(command.iter().chain(&["--snapshot", nowhere.as_str()]))
            .await?;
        ensure!(
            failed.code == 2
                && failed
                    .stderr
                    .contains("nothing was changed, because no snapshot of etcd could be saved: "),
            "{failed}"
        );
    }
    ensure!(
        spec_and_record(management).await? == before,
        "{before:?} has changed"
    );

    // Planned, so that no Machine is replaced.
    let place = name_in(&folder)?;
    let planned = ["--at=2099-01-01T00:00:00Z", "--snapshot", place.as_str()];
    let planned = kubectl.run(start.iter().chain(&planned)).await?;
    ensure!(
        planned.code == 0
            && planned.stderr.contains("snapshot of etcd member ")
            && !planned.stderr.contains("no snapshot of etcd"),
        "{planned}"
    );
    let files: Vec<PathBuf> = fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    let [file] = files.as_slice() else {
        bail!("{files:?}");
    };
    let (_, record) = spec_and_record(management).await?;
    let record: Value = serde_json::from_str(&record.context("no record")?)?;
    ensure!(
        record.get("bytes").and_then(Value::as_u64) == Some(fs::metadata(file)?.len()),
        "{record}"
    );
    Ok(())
}

async fn workload_etcdctl(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    arguments: &[&str],
) -> Result<String> {
    etcdctl(management, &workload.etcdctl_flags()?, arguments).await
}

pub(crate) async fn etcdctl(
    management: &ManagementCluster,
    flags: &[String],
    arguments: &[&str],
) -> Result<String> {
    let flags = flags.iter().map(String::as_str);
    let arguments: Vec<&str> = flags
        .chain(["-w", "json"])
        .chain(arguments.iter().copied())
        .collect();
    run_program(management, "etcdctl", &arguments).await
}

fn json(text: &str) -> Result<Value> {
    Ok(serde_json::from_str(text)?)
}

/// The temporary file of a snapshot, once it contains data.
async fn part_of(folder: &Path, name: &str) -> Result<PathBuf> {
    wait::until("the snapshot has begun", || async {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let found = entry
                .file_name()
                .to_string_lossy()
                .starts_with(&format!(".{name}."));
            if found && entry.metadata()?.len() > 0 {
                return Ok(entry.path());
            }
        }
        bail!("no data in {}", folder.display())
    })
    .await
}

async fn a_killed_command_leaves_no_file(management: &ManagementCluster, folder: &Path) -> Result<()> {
    let file = folder.join("killed.db");
    let running = management.kubectl().spawn(command(&file, &[])?)?;
    let part = part_of(folder, "killed.db").await?;
    // Kills it.
    drop(running);
    wait::until("the command is gone", || async {
        let before = fs::metadata(&part).map(|metadata| metadata.len());
        tokio::task::yield_now().await;
        ensure!(
            fs::metadata(&part).map(|metadata| metadata.len()).ok() == before.ok(),
            "it still writes"
        );
        Ok(())
    })
    .await?;
    ensure!(!file.exists(), "{} exists", file.display());
    Ok(())
}

async fn a_member_that_dies_leaves_no_file(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    member: &str,
    folder: &Path,
) -> Result<()> {
    let file = folder.join("dead.db");
    let kubectl = management.kubectl();
    let running = kubectl.run(command(&file, &["--member", member])?);
    let killed = async {
        part_of(folder, "dead.db").await?;
        workload.inflict(Fault::Kill, member).await
    };
    let (ended, killed) = tokio::join!(running, killed);
    killed?;
    let ended = ended?;
    ensure!(
        ended.code == 2 && ended.stderr.contains(&format!("etcd member {member}: ")),
        "{ended}"
    );
    let remains: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .filter(|path: &Result<PathBuf>| {
            path.as_ref()
                .is_ok_and(|path| path.to_string_lossy().contains("dead.db"))
        })
        .collect::<Result<_>>()?;
    ensure!(remains.is_empty(), "{remains:?}");
    // Another member sends the next snapshot.
    let saved = kubectl.succeed(command(&file, &[])?).await?;
    ensure!(!saved.stdout.contains(member), "{saved}");
    workload.inflict(Fault::Restart, member).await
}
