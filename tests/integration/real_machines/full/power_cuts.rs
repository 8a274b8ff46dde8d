//! The only machine of a control plane of Cluster API loses its power twenty times while clients write, and with it every write that
//! was not synced. No other etcd member has the data. Each write that the API server has acknowledged is there afterwards, and so is a
//! snapshot of etcd that was complete right before a cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use kcp_tests::api_server;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubeconfig;
use kcp_tests::machines::real::{Machine, Site};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::run::random;
use kcp_tests::wait;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::etcd_snapshot::restored;
use crate::real_machines::full::cluster_api::{NAME, NAMESPACE, VERSION, is_healthy, kcp};
use crate::real_machines::full::{Clock, with_cluster_api, workload_kubeconfig};

const CUTS: u64 = 20;

/// Right before this cut, a snapshot of etcd is saved.
const WITH_SNAPSHOT: u64 = 10;

/// One in this number of cuts is followed by another one while the machine boots.
const BOOT_CUT: u64 = 4;

/// The most milliseconds between power-on and the second cut.
const LONGEST_BOOT: u64 = 10_000;

/// The clients that write at the same time.
const CLIENTS: u64 = 8;

/// The most writes, of all clients together, that a cut waits for.
const MOST_WRITES: u64 = 500;

/// A write has no answer after this time: the machine has no power.
const ANSWER: Duration = Duration::from_secs(5);

const WRITTEN_TO: &str = "default";
const PREFIX: &str = "acknowledged-";

/// On the disk of the machine.
const FOLDER: &str = "/var/lib/power-cuts";

#[test]
#[ignore = "needs root: make test-machines PART=full"]
fn no_acknowledged_write_is_lost_in_twenty_power_cuts() {
    with_cluster_api("power-cuts", loses_power);
}

async fn loses_power(site: &Arc<Site>, management: &ManagementCluster) -> Result<()> {
    let mut clock = Clock::start();
    let fleet = management.machines().fleet()?;
    fleet.give_disks();
    let cluster = Cluster::create_on_real_machines(management.client(), NAMESPACE, NAME, 1, VERSION).await?;
    cluster.settled(1).await?;
    is_healthy(management, &cluster, 1).await?;
    let [machine] = fleet
        .machines()
        .await
        .try_into()
        .map_err(|machines: Vec<_>| anyhow!("{} machines", machines.len()))?;
    // kubeadm and the kubelet sync hardly anything. The kernel writes it within half a minute.
    machine.succeed(["sync"]).await?;
    let folder = machine.file(FOLDER);
    fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
    clock.lap("one machine of Cluster API");

    let mut cuts = Cuts {
        management,
        site: site.clone(),
        kubeconfig: workload_kubeconfig(site, management, &cluster).await?,
        machine,
        next: Arc::default(),
        acknowledged: BTreeSet::new(),
        unsynced_losses: 0,
    };
    for cut in 1..=CUTS {
        cuts.cut(cut)
            .await
            .with_context(|| format!("cut {cut} of {CUTS}"))?;
    }
    clock.lap(&format!("{CUTS} power cuts"));
    let losses = cuts.unsynced_losses;
    eprintln!("data that was not synced was lost in {losses} cuts");
    ensure!(
        losses * 2 > CUTS,
        "only {losses} cuts lost data that was not synced"
    );
    // The CNI library of containerd does not sync its cache, and cannot end the network of a Pod whose file there is empty. So some Pods
    // with a network of their own, such as those of CoreDNS, never start again. Bottlerocket removes this cache at boot.
    let empty = ["find", "/var/lib/cni/results", "-size", "0", "-print", "-delete"];
    let removed = cuts.machine.succeed(empty).await?.stdout.lines().count();
    eprintln!("the cache of CNI had {removed} empty files");
    is_healthy(management, &cluster, 1).await?;
    clock.lap("the control plane is healthy");
    // Its disk takes gigabytes, which a failure keeps.
    cuts.machine.wipe().await
}

struct Cuts<'c> {
    management: &'c ManagementCluster,
    site: Arc<Site>,
    /// That of the workload cluster.
    kubeconfig: PathBuf,
    machine: Arc<Machine>,
    /// The number of the next write.
    next: Arc<AtomicU64>,
    /// The numbers of the writes that the API server has acknowledged.
    acknowledged: BTreeSet<u64>,
    /// The cuts that lost data that was not synced.
    unsynced_losses: u64,
}

impl Cuts<'_> {
    async fn cut(&mut self, cut: u64) -> Result<()> {
        let (moment, snapshot) = if cut.is_multiple_of(BOOT_CUT) {
            (self.cut_while_it_boots(cut).await?, None)
        } else {
            self.cut_while_clients_write(cut).await?
        };
        let began = Instant::now();
        self.machine.power_on().await?;
        let client = self.ready().await?;
        let seconds = began.elapsed().as_secs_f64();
        self.unsynced_losses += u64::from(self.only_synced_data_is_kept(cut)?);
        let lost = self.lost(client).await?;
        eprintln!(
            "cut {cut:>2} {moment}: {} writes acknowledged, {} lost; the API server is ready after {seconds:.1} s",
            self.acknowledged.len(),
            lost.len(),
        );
        ensure!(lost.is_empty(), "these writes are lost: {lost:?}");
        match snapshot {
            Some(snapshot) => self.is_whole(&snapshot).await,
            None => Ok(()),
        }
    }

    /// Cuts the power, and again at a random moment while the machine boots.
    async fn cut_while_it_boots(&self, cut: u64) -> Result<String> {
        self.machine.cut_power().await?;
        let moment = random() % LONGEST_BOOT;
        let boots = async {
            self.machine.power_on().await?;
            self.ready().await
        };
        if let Ok(Err(error)) = timeout(Duration::from_millis(moment), boots).await {
            return Err(error);
        }
        self.write_and_cut(cut).await?;
        Ok(format!("{moment:>4} ms after power-on"))
    }

    /// Cuts the power at a random moment while clients write. Returns what else was acknowledged before.
    async fn cut_while_clients_write(&mut self, cut: u64) -> Result<(String, Option<Snapshot>)> {
        let target = 1 + random() % MOST_WRITES;
        let (mut inbox, is_cut) = self.begin_to_write().await?;
        let mut count = 0;
        while count < target {
            let number = timeout(wait::LIMIT, inbox.recv()).await;
            self.acknowledged.insert(
                number
                    .context("no write is acknowledged")?
                    .context("no client writes")?,
            );
            count += 1;
        }
        let snapshot = if cut == WITH_SNAPSHOT {
            Some(self.save_a_snapshot().await?)
        } else {
            None
        };
        is_cut.store(true, Ordering::Relaxed);
        self.write_and_cut(cut).await?;
        // Each client ends when its last write has failed.
        while let Some(number) = inbox.recv().await {
            self.acknowledged.insert(number);
            count += 1;
        }
        Ok((format!("after {count:>4} more writes"), snapshot))
    }

    /// Starts clients, whose acknowledged writes come out of a channel. A write that fails after the flag is set ends its client.
    async fn begin_to_write(&self) -> Result<(UnboundedReceiver<u64>, Arc<AtomicBool>)> {
        let (acknowledged, inbox) = unbounded_channel();
        let is_cut = Arc::new(AtomicBool::new(false));
        for _ in 0..CLIENTS {
            let client = kubeconfig::client_of(&self.kubeconfig).await?;
            tokio::spawn(write(
                client,
                self.next.clone(),
                acknowledged.clone(),
                is_cut.clone(),
            ));
        }
        Ok((inbox, is_cut))
    }

    /// Writes a file that is synced and one that is not, and cuts the power.
    async fn write_and_cut(&self, cut: u64) -> Result<()> {
        let [synced, unsynced] = self.files(cut);
        let store = || {
            let mut file = File::create_new(&synced)?;
            std::io::Write::write_all(&mut file, content(cut).as_bytes())?;
            file.sync_all()?;
            fs::write(&unsynced, content(cut))
        };
        store().with_context(|| format!("writing to {}", synced.display()))?;
        self.machine.cut_power().await
    }

    /// Succeeds if the cut has kept the file that was synced. Returns whether it has lost the content of the other one, unless the
    /// kernel synced the whole file system at this moment, as it does when containerd unmounts a container.
    fn only_synced_data_is_kept(&self, cut: u64) -> Result<bool> {
        let [synced, unsynced] = self.files(cut);
        let text = fs::read_to_string(&synced).with_context(|| format!("reading {}", synced.display()))?;
        ensure!(text == content(cut), "{} contains {text:?}", synced.display());
        Ok(fs::metadata(&unsynced).map_or(0, |file| file.len()) == 0)
    }

    fn files(&self, cut: u64) -> [PathBuf; 2] {
        ["synced", "unsynced"].map(|name| self.machine.file(&format!("{FOLDER}/{name}-{cut}")))
    }

    /// Waits until the API server is ready.
    async fn ready(&self) -> Result<Client> {
        // The connections of an earlier client may wait for a machine without power.
        let client = kubeconfig::client_of(&self.kubeconfig).await?;
        wait::until("the API server is ready", || api_server::ready(&client)).await?;
        Ok(client)
    }

    /// The acknowledged writes that are missing or have another content.
    async fn lost(&self, client: Client) -> Result<Vec<u64>> {
        let objects: Api<ConfigMap> = Api::namespaced(client, WRITTEN_TO);
        let listed = wait::until("the API server lists the writes", || async {
            Ok(objects.list(&ListParams::default()).await?)
        })
        .await?;
        let found: BTreeMap<_, _> = listed
            .into_iter()
            .map(|object| (object.name_any(), object.data))
            .collect();
        let is_lost = |number: &u64| {
            let written = config_map(*number);
            found.get(&written.name_any()) != Some(&written.data)
        };
        Ok(self.acknowledged.iter().copied().filter(is_lost).collect())
    }

    /// Saves a snapshot to the disk of the machine.
    async fn save_a_snapshot(&self) -> Result<Snapshot> {
        let path = format!("{FOLDER}/snapshot.db");
        let file = self.machine.file(&path);
        let file = file.to_str().context("text")?;
        let acknowledged = self.acknowledged.clone();
        // The kubelet may not have started the pod of etcd again.
        wait::until("a snapshot is saved", || async {
            let saved = kcp(
                self.management,
                &["etcd", "snapshot", NAME, "--output-file", file],
            )
            .await?;
            ensure!(saved.code == 0, "{saved}");
            Ok(())
        })
        .await?;
        Ok(Snapshot { path, acknowledged })
    }

    /// Succeeds if etcdutl accepts the hash of the snapshot, and if the snapshot has each write that was acknowledged before it.
    async fn is_whole(&self, snapshot: &Snapshot) -> Result<()> {
        let file = self.site.folder().join("snapshot.db");
        fs::copy(self.machine.file(&snapshot.path), &file).context("copying the snapshot")?;
        let keys = keys(&restored(self.management, &file).await?)?;
        let key = |number: &u64| format!("/registry/configmaps/{WRITTEN_TO}/{}", name(*number));
        let expected: BTreeSet<_> = snapshot.acknowledged.iter().map(key).collect();
        let missing: Vec<_> = expected.difference(&keys).collect();
        ensure!(missing.is_empty(), "the snapshot lacks {missing:?}");
        eprintln!(
            "the snapshot is whole: {} bytes, with all {} writes that were acknowledged before it",
            file_size(&file)?,
            expected.len()
        );
        Ok(())
    }
}

struct Snapshot {
    /// On the machine.
    path: String,
    /// The writes that were acknowledged before it began.
    acknowledged: BTreeSet<u64>,
}

fn file_size(file: &Path) -> Result<u64> {
    let metadata = fs::metadata(file).with_context(|| format!("reading {}", file.display()))?;
    Ok(metadata.len())
}

/// The keys that etcdctl lists.
fn keys(listed: &Value) -> Result<BTreeSet<String>> {
    let listed = listed.get("kvs").and_then(Value::as_array).context("no keys")?;
    let key = |pair: &Value| {
        let key = pair.get("key").and_then(Value::as_str).context("no key")?;
        Ok(String::from_utf8(STANDARD.decode(key)?)?)
    };
    listed.iter().map(key).collect()
}

/// The content of the files that are written right before a cut.
fn content(cut: u64) -> String {
    format!("written before cut {cut}\n").repeat(100)
}

fn name(number: u64) -> String {
    format!("{PREFIX}{number:08}")
}

fn config_map(number: u64) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name(number)),
        ..ObjectMeta::default()
    };
    let data = BTreeMap::from([("value".to_owned(), format!("{number:x} ").repeat(50))]);
    ConfigMap {
        metadata,
        data: Some(data),
        ..ConfigMap::default()
    }
}

/// Writes until a write fails after the cut. No number is used twice, because a write without an answer may have been stored.
async fn write(
    client: Client,
    next: Arc<AtomicU64>,
    acknowledged: UnboundedSender<u64>,
    is_cut: Arc<AtomicBool>,
) {
    let objects: Api<ConfigMap> = Api::namespaced(client, WRITTEN_TO);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let parameters = PostParams::default();
        let object = config_map(number);
        match timeout(ANSWER, objects.create(&parameters, &object)).await {
            Ok(Ok(_)) if acknowledged.send(number).is_err() => return,
            Ok(Ok(_)) => {}
            _ if is_cut.load(Ordering::Relaxed) => return,
            _ => {}
        }
    }
}
