//! All three machines of Cluster API lose the data of etcd. A snapshot from a real S3 server is restored on one of them by one script,
//! which is killed at random moments, and one command brings back three healthy members with every key of the snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kcp_api::names::lease;
use kcp_tests::assets::Assets;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::real::{Machine, Site};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::run::random;
use kcp_tests::s3::{Capacity, S3Server};
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::etcd_snapshot::{EVERY_KEY, etcdctl, restored};
use crate::real_machines::full::cluster_api::{
    NAME, NAMESPACE, changes_are_as_planned, is_healthy, kcp, three_machines,
};
use crate::real_machines::full::recovery::{CONTINUE, STATE, is_killed};
use crate::real_machines::full::{Clock, etcd_on, with_cluster_api};
use crate::schema;

const SCRIPT: &str = "/var/tmp/restore.sh";
const MANIFEST: &str = "/etc/kubernetes/manifests/etcd.yaml";

/// How much newer the revisions of a restored etcd are.
const BUMP_REVISION: i64 = 1_000_000_000;

/// How often the script is killed, each time after a random number of seconds up to a limit.
const KILLS: usize = 6;
const LONGEST: u64 = 12;

/// Written before the snapshot and after it.
const BEFORE: &str = "before-the-snapshot";
const AFTER: &str = "after-the-snapshot";

/// The keys that the control plane writes or deletes while it runs, although nobody changes anything: Nodes, their Pods and what counts
/// them, the addresses and the Leases of API servers and controllers, Events that expire, and the tokens of Machines that join. Every
/// other key of the snapshot must be equal.
const WRITTEN_AFTERWARDS: &[&str] = &[
    "/registry/configmaps/kube-public/cluster-info",
    "/registry/csinodes/",
    "/registry/daemonsets/",
    "/registry/deployments/",
    "/registry/endpointslices/",
    "/registry/events/",
    "/registry/leases/",
    "/registry/masterleases/",
    "/registry/minions/",
    "/registry/peerserverleases/",
    "/registry/pods/",
    "/registry/replicasets/",
    "/registry/secrets/kube-system/bootstrap-token-",
    "/registry/services/endpoints/",
    "compact_rev_key",
];

#[test]
#[ignore = "needs root: make test-machines PART=full"]
fn a_snapshot_is_restored_when_every_machine_has_lost_its_data() {
    with_cluster_api("restore", restores);
}

async fn restores(site: &Arc<Site>, management: &ManagementCluster) -> Result<()> {
    let mut clock = Clock::start();
    let cluster = three_machines(management, &mut clock).await?;
    let bench = Bench {
        server: S3Server::start(management.run(), "s3", Capacity::Disk).await?,
        management,
        folder: site.folder().to_owned(),
    };
    bench.is_not_prepared_without_a_snapshot().await?;
    let mut machines = management.machines().fleet()?.machines().await;
    let chosen = usize::try_from(random() % 3)?;
    let survivor = machines.swap_remove(chosen);
    etcd_on(&survivor).await?.put(BEFORE, "1").await?;
    bench.create_leases().await?;
    let snapshot = bench.save().await?;
    etcd_on(&survivor).await?.put(AFTER, "1").await?;
    bench.is_prepared().await?;
    clock.lap("a snapshot in S3, and everything is prepared");

    for machine in machines.iter().chain([&survivor]) {
        machine.power_off().await?;
        let data = machine.file("/var/lib/etcd");
        fs::remove_dir_all(&data).with_context(|| format!("removing {}", data.display()))?;
        machine.power_on().await?;
    }
    clock.lap("every machine has lost its power and the data of etcd");
    bench.writes_the_script(&survivor, &snapshot).await?;
    let others = the_script_refuses_until_the_others_are_stopped(&survivor, &machines).await?;
    clock.lap("the script refuses until the other members are stopped");
    let kills = script_is_killed(&survivor, &others).await?;
    clock.lap(&format!("the script, killed {kills} times"));
    let first = bench.keys_are_equal(&survivor, &snapshot).await?;
    clock.lap(&format!("every key is that of the snapshot, of {first}"));

    let recovered = kcp(management, &CONTINUE).await?;
    ensure!(
        recovered.code == 0 && recovered.words().contains("every etcd member is healthy"),
        "{recovered}"
    );
    is_healthy(management, &cluster, 3).await?;
    clock.lap("three healthy members");
    bench.keys_are_equal(&survivor, &snapshot).await?;
    the_second_run_restores_nothing(&survivor, &others).await?;
    changes_are_as_planned(management, &cluster, &mut clock).await
}

struct Bench<'b> {
    server: S3Server,
    management: &'b ManagementCluster,
    folder: PathBuf,
}

impl Bench<'_> {
    async fn kcp(&self, arguments: &[&str]) -> Result<CommandOutput> {
        let command = ["kubectl", "kcp", "etcd"].iter().chain(arguments);
        let command = command.chain(&["-n", NAMESPACE]).map(ToString::to_string);
        // etcd is beside kubectl, and etcdutl is not.
        let etcdutl = Assets::locate()?.program("etcdutl");
        let folder = etcdutl.parent().and_then(Path::to_str).context("text")?;
        let path = self.management.kubectl().path();
        let path = format!("PATH={folder}:{}", path.to_str().context("text")?);
        let environment = self.server.environment().into_iter().chain([path]);
        let words: Vec<String> = environment.chain(command).collect();
        self.management.kubectl().script("/usr/bin/env", &words).await
    }

    /// Saves a snapshot, and returns the file of the object.
    async fn save(&self) -> Result<PathBuf> {
        let saved = self
            .kcp(&[
                "snapshot",
                NAME,
                "--output-file",
                "s3://backups/prod/",
                "-o",
                "json",
            ])
            .await?;
        ensure!(saved.code == 0, "{saved}");
        let document: Value = serde_json::from_str(&saved.stdout)?;
        let place = document.pointer("/snapshot/place").and_then(Value::as_str);
        let key = place.and_then(|place| place.strip_prefix("s3://backups/"));
        self.server.object(key.context("no place")?)
    }

    async fn drill(&self) -> Result<(CommandOutput, BTreeSet<String>)> {
        let drill = self.kcp(&["recover", NAME, "--drill", "-o", "json"]).await?;
        let document: Value = serde_json::from_str(&drill.stdout).with_context(|| drill.to_string())?;
        schema::holds("etcdrecoverydrill.json", &document)?;
        let needs = document
            .get("needs")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let missing = needs.filter(|need| need.get("answer") != Some(&"yes".into()));
        let ids = missing.filter_map(|need| Some(need.get("id")?.as_str()?.to_owned()));
        let ids = ids.collect();
        Ok((drill, ids))
    }

    async fn is_not_prepared_without_a_snapshot(&self) -> Result<()> {
        let (drill, missing) = self.drill().await?;
        let expected = ["controller-runs", "snapshot-intact", "snapshot-recent"].map(str::to_owned);
        ensure!(drill.code == 1 && missing == expected.into(), "{drill}");
        Ok(())
    }

    /// The controllers of the tests take part in no election.
    async fn create_leases(&self) -> Result<()> {
        let leases = [
            (lease::CONTROL_PLANE_NAMESPACE, lease::CONTROL_PLANE),
            (lease::CORE_NAMESPACE, lease::CORE),
            (lease::BOOTSTRAP_NAMESPACE, lease::BOOTSTRAP),
        ];
        let objects = leases.iter().flat_map(|(namespace, name)| {
            let spec = json!({
                "holderIdentity": "stand-in",
                "renewTime": format!("{:.6}", Timestamp::now()),
                "leaseDurationSeconds": 3600,
            });
            [
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
                json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": spec,
                }),
            ]
        });
        let objects: Vec<Value> = objects.collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let file = self.folder.join("leases.json");
        fs::write(&file, list.to_string())?;
        let path = file.to_str().context("text")?;
        self.management
            .kubectl()
            .succeed(["apply", "-f", path])
            .await
            .map(drop)
    }

    async fn is_prepared(&self) -> Result<()> {
        let (drill, missing) = self.drill().await?;
        ensure!(drill.code == 0 && missing.is_empty(), "{drill}");
        Ok(())
    }

    /// Writes the script and the snapshot, and copies both to the host.
    async fn writes_the_script(&self, survivor: &Machine, snapshot: &Path) -> Result<()> {
        let script = self.folder.join("restore.sh");
        let path = script.to_str().context("text")?;
        let from = ["--from", "s3://backups/prod/"];
        let command = [
            "restore",
            NAME,
            "--survivor",
            survivor.name(),
            "--output-file",
            path,
        ];
        let command: Vec<&str> = command.into_iter().chain(from).collect();
        let written = self.kcp(&command).await?;
        let place = format!("the script restores the snapshot on Node {}", survivor.name());
        ensure!(
            written.code == 0
                && written.words().contains(&place)
                && written
                    .words()
                    .contains("every write after the snapshot s3://backups/prod/"),
            "{written}"
        );
        let text = fs::read_to_string(&script)?;
        survivor.write(SCRIPT, &text)?;
        let missing = survivor.exec(["bash", SCRIPT]).await?;
        ensure!(
            missing.code == 1
                && missing
                    .stderr
                    .contains("copy the snapshot to this host, beside this script"),
            "{missing}"
        );
        let name = snapshot.file_name().context("a name")?;
        let copy = script.with_file_name(name);
        ensure!(
            fs::read(&copy)? == fs::read(snapshot)?,
            "{} differs",
            copy.display()
        );
        fs::copy(&copy, survivor.file("/var/tmp").join(name))?;
        Ok(())
    }

    /// Succeeds if each key of the snapshot has its value, or was written since. Returns the number of keys.
    async fn keys_are_equal(&self, survivor: &Machine, snapshot: &Path) -> Result<usize> {
        let file = self.folder.join("compared.db");
        fs::copy(snapshot, &file)?;
        let expected = restored(self.management, &file).await?;
        fs::remove_dir_all(file.with_extension("restored"))?;
        let folder = survivor.file("/etc/kubernetes/pki/etcd");
        let flag = |name: &str, file: &str| format!("--{name}={}", folder.join(file).display());
        let flags = [
            format!("--endpoints=https://{}:2379", survivor.address()),
            flag("cacert", "ca.crt"),
            flag("cert", "healthcheck-client.crt"),
            flag("key", "healthcheck-client.key"),
        ];
        let found = wait::until("etcd lists every key", || async {
            let text = etcdctl(self.management, &flags, &EVERY_KEY).await?;
            Ok(serde_json::from_str::<Value>(&text)?)
        })
        .await?;
        let revision = expected.pointer("/header/revision").and_then(Value::as_i64);
        let bumped = revision.context("no revision")? + BUMP_REVISION;
        let (expected, found) = (pairs(&expected)?, pairs(&found)?);
        let (mut written, mut strays) = (BTreeMap::new(), Vec::new());
        for (key, (value, _)) in &expected {
            let is_equal = match found.get(key) {
                Some((own, _)) if own == value => true,
                Some((_, modified)) => {
                    ensure!(
                        *modified > bumped,
                        "{key} has another value of revision {modified}"
                    );
                    false
                }
                None => false,
            };
            if !is_equal {
                let prefix = WRITTEN_AFTERWARDS.iter().find(|prefix| key.starts_with(**prefix));
                match prefix {
                    Some(prefix) => *written.entry(*prefix).or_insert(0) += 1,
                    None => strays.push(key),
                }
            }
        }
        eprintln!(
            "{} keys, of which these were written or deleted since: {written:?}",
            expected.len()
        );
        ensure!(strays.is_empty(), "written or deleted since: {strays:#?}");
        ensure!(found.contains_key(BEFORE), "{BEFORE} is lost");
        ensure!(!found.contains_key(AFTER), "{AFTER} is there");
        Ok(expected.len())
    }
}

/// Each key with its value in base64, and the revision of its last change.
fn pairs(listed: &Value) -> Result<BTreeMap<String, (String, i64)>> {
    let pairs = listed.get("kvs").and_then(Value::as_array).context("no keys")?;
    let pairs = pairs.iter().map(|pair| {
        let text = |name: &str| {
            pair.get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let key = String::from_utf8(STANDARD.decode(text("key"))?)?;
        let modified = pair
            .get("mod_revision")
            .and_then(Value::as_i64)
            .context("no revision")?;
        Ok((key, (text("value"), modified)))
    });
    pairs.collect()
}

/// Returns the names of the other members, as the script wants them.
async fn the_script_refuses_until_the_others_are_stopped(
    survivor: &Machine,
    others: &[Arc<Machine>],
) -> Result<String> {
    let names: Vec<&str> = others.iter().map(|machine| machine.name()).collect();
    let unstopped = names.join(",");
    let refused = survivor.exec(["bash", SCRIPT, "--lost", &unstopped]).await?;
    ensure!(
        refused.code == 1
            && refused.stderr.contains("stop it")
            && refused.stderr.contains("nothing was changed on this host\n"),
        "{refused}"
    );
    for machine in others {
        machine.succeed(["mv", MANIFEST, "/root/"]).await?;
        // Its kubelet has reached no API server since the loss of power, and so stops nothing.
        machine.exec(["pkill", "-x", "etcd"]).await?;
    }
    let checked = wait::until("the script finds nothing wrong", || async {
        let checked = survivor.exec(["bash", SCRIPT]).await?;
        ensure!(checked.code == 0, "{checked}");
        Ok(checked.stdout)
    })
    .await?;
    eprintln!("{checked}");
    ensure!(
        checked.contains("snapshot: /var/tmp/") && names.iter().all(|name| checked.contains(name)),
        "{checked}"
    );
    let state = survivor.file(STATE);
    ensure!(!state.exists(), "{} exists", state.display());
    Ok(format!("{}:stopped", names.join(":stopped,")))
}

/// Runs the script until it has succeeded. Returns how often it was killed.
async fn script_is_killed(survivor: &Machine, others: &str) -> Result<usize> {
    let mut kills = 0;
    for _ in 0..KILLS {
        let limit = (1 + random() % LONGEST).to_string();
        let command = [
            "timeout",
            "--signal=KILL",
            &limit,
            "bash",
            SCRIPT,
            "--lost",
            others,
        ];
        kills += usize::from(is_killed(&survivor.exec(command).await?));
    }
    // The programs that a killed script has started may not have ended yet.
    let ended = wait::until("the script succeeds", || async {
        let ended = survivor.exec(["bash", SCRIPT, "--lost", others]).await?;
        ensure!(ended.code == 0, "{ended}");
        Ok(ended)
    })
    .await?;
    let last = "serves, and so does its API server; next: ";
    ensure!(ended.stderr.contains(last), "{ended}");
    for left in ["/var/lib/kcp-etcdutl", "/var/lib/kcp-etcd-image", STATE] {
        ensure!(!survivor.file(left).exists(), "{left} is left");
    }
    Ok(kills)
}

async fn the_second_run_restores_nothing(survivor: &Machine, others: &str) -> Result<()> {
    let again = survivor.exec(["bash", SCRIPT, "--lost", others]).await?;
    ensure!(
        again.code == 0
            && again
                .stderr
                .contains("this snapshot was restored on this host already"),
        "{again}"
    );
    Ok(())
}
