//! What belongs to a host, and not to kubeadm, outlives a join that fails, a join and a teardown: an etcd that runs as a service,
//! static pods, volumes. kubeadm and etcd are real.

use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::real::{Addons, IGNORED_CHECK, Images, KubeadmCluster, Machine, Site};
use serde_json::json;

use crate::real_machines::on_machines;
use crate::real_machines::scripts::{CREATED_BY_KUBEADM, hash_of, refuses, run, tears_down};

/// The unit of a distribution's package of etcd, with the same folder as kubeadm.
const ETCD: &str = "\
[Service]
Type=notify
ExecStart=/opt/etcd --data-dir=/var/lib/etcd --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379
";

const PUT: &str = "for key in $(seq 20); do /opt/etcdctl put key$key value$key || exit; done";

/// A volume, with a blank as in the names of some volumes, and what kubeadm must not delete in it.
const VOLUME: &str = "/var/lib/kubelet/pods/volume of shop";
const PRECIOUS: &str = "/srv/volume/precious";

#[test]
#[ignore = "needs root: make test-machines PART=short"]
fn a_host_keeps_what_is_not_of_kubeadm() {
    on_machines("hosts", Images::ControlPlane, async |site| {
        let scene = Scene::start(site).await?;
        scene.a_join_is_refused_beside_an_etcd().await?;
        scene.a_failed_join_deletes_no_etcd().await?;
        scene.a_failed_join_deletes_no_earlier_files().await?;
        scene.a_long_name_is_refused().await?;
        let teardown = scene.the_host_joins_and_is_removed().await?;
        scene.a_busy_volume_stops_the_teardown(&teardown).await?;
        scene.the_teardown_deletes_no_etcd(&teardown).await?;
        scene
            .the_teardown_empties_the_folder_of_the_manifest(&teardown)
            .await
    });
}

struct Scene {
    site: Arc<Site>,
    cluster: KubeadmCluster,
    _first: Arc<Machine>,
    /// The host with an etcd of its own.
    store: Arc<Machine>,
    /// All keys of that etcd with their values.
    keys: String,
}

impl Scene {
    async fn start(site: &Arc<Site>) -> Result<Self> {
        let (first, store) = (site.machine("first")?, site.machine("store")?);
        tokio::try_join!(first.power_on(), store.power_on())?;
        let cluster = KubeadmCluster::init(&first, Addons::None).await?;
        fs::create_dir_all(store.file("/opt"))?;
        for program in ["etcd", "etcdctl"] {
            fs::copy(
                site.assets().program(program),
                store.file(&format!("/opt/{program}")),
            )
            .with_context(|| format!("copying {program}"))?;
        }
        store.write("/etc/systemd/system/etcd.service", ETCD)?;
        store.succeed(["systemctl", "daemon-reload"]).await?;
        store.succeed(["systemctl", "start", "etcd"]).await?;
        store.succeed(["sh", "-c", PUT]).await?;
        let keys = keys(&store).await?;
        ensure!(keys.lines().count() == 40, "{keys}");
        Ok(Self {
            site: site.clone(),
            cluster,
            _first: first,
            store,
            keys,
        })
    }

    async fn a_join_is_refused_beside_an_etcd(&self) -> Result<()> {
        let script = self.join_script("refused", IGNORED_CHECK).await?;
        let why = "error: /var/lib/etcd is not empty, so this host may run an etcd of its own";
        let unchanged = "nothing was changed on this host\n";
        let refused = refuses(&self.store, &script, &[why, unchanged]).await?;
        ensure!(!refused.stderr.contains("[reset]"), "{refused}");
        self.has_all_keys().await
    }

    async fn a_failed_join_deletes_no_etcd(&self) -> Result<()> {
        let script = self.failing_script("failed").await?;
        let messages = ["[reset] Deleting contents of directories", NOT_JOINED];
        refuses(&self.store, &script, &messages).await?;
        self.has_all_keys().await
    }

    async fn a_failed_join_deletes_no_earlier_files(&self) -> Result<()> {
        let (manifest, content) = ("/etc/kubernetes/manifests/own.yaml", "# of this host\n");
        self.store.write(manifest, content)?;
        let script = self.failing_script("beside-a-manifest").await?;
        let why = "kubeadm reset would also delete the files that were in /etc/kubernetes/manifests before";
        let refused = refuses(&self.store, &script, &[NOT_JOINED, why]).await?;
        ensure!(!refused.stderr.contains("[reset]"), "{refused}");
        let file = self.store.file(manifest);
        ensure!(fs::read_to_string(&file)? == content, "{manifest} has changed");
        fs::remove_file(file)?;
        Ok(())
    }

    async fn a_long_name_is_refused(&self) -> Result<()> {
        // The longest name that Linux allows.
        let name = "a".repeat(64);
        self.store.succeed(["hostname", &name]).await?;
        let script = self.join_script("long", &beside_etcd()).await?;
        let why = "the name of this host has 64 characters, more than the 63 that the kubelet's label kubernetes.io/hostname can have";
        refuses(&self.store, &script, &[why, "nothing was changed on this host\n"]).await?;
        self.store.succeed(["hostname", self.store.name()]).await?;
        Ok(())
    }

    /// Returns the script for the host.
    async fn the_host_joins_and_is_removed(&self) -> Result<String> {
        let script = self.join_script("join", &beside_etcd()).await?;
        let joined = run(&self.store, &script).await?;
        let last = format!("node {} is Ready\n", self.store.name());
        ensure!(joined.code == 0 && joined.stderr.ends_with(&last), "{joined}");
        self.has_all_keys().await?;
        let file = self.file("teardown.sh");
        let removed = self
            .kcp_node(&["remove", self.store.name(), "--yes", "--output-file", &file])
            .await?;
        ensure!(removed.code == 0, "{removed}");
        fs::read_to_string(&file).with_context(|| format!("reading {file}"))
    }

    async fn a_busy_volume_stops_the_teardown(&self, teardown: &str) -> Result<()> {
        self.store.write(PRECIOUS, "data")?;
        self.store.succeed(["mkdir", VOLUME]).await?;
        self.store
            .succeed(["mount", "--bind", "/srv/volume", VOLUME])
            .await?;
        let holder = [
            "systemd-run",
            "--unit=holder",
            "sh",
            "-c",
            "cd \"$0\" && exec sleep infinity",
            VOLUME,
        ];
        self.store.succeed(holder).await?;
        let escaped = VOLUME.replace(' ', "\\ ");
        let why = format!(
            "error: kubeadm reset would delete the files in {escaped}, which is still mounted: umount {escaped}\n"
        );
        let refused = refuses(&self.store, teardown, &[&why]).await?;
        ensure!(!refused.stderr.contains("[reset]"), "{refused}");
        ensure!(self.store.file(CREATED_BY_KUBEADM).exists(), "{refused}");
        ensure!(
            fs::read_to_string(self.store.file(PRECIOUS))? == "data",
            "{refused}"
        );
        self.store.succeed(["systemctl", "stop", "holder"]).await?;
        Ok(())
    }

    async fn the_teardown_deletes_no_etcd(&self, teardown: &str) -> Result<()> {
        // kubeadm unmounts an outer mount first, which fails.
        let volume = ["mount", "--bind", "/srv/volume", VOLUME];
        self.store.succeed(volume).await?;
        let inner = format!("{VOLUME}/inner");
        self.store.succeed(["mkdir", &inner]).await?;
        self.store
            .succeed(["mount", "-t", "tmpfs", "tmpfs", &inner])
            .await?;
        let ended = tears_down(&self.store, teardown).await?;
        ensure!(ended.stderr.contains("/var/lib/etcd stays as it is"), "{ended}");
        ensure!(
            fs::read_to_string(self.store.file(PRECIOUS))? == "data",
            "{ended}"
        );
        self.has_all_keys().await
    }

    /// kubeadm's own manifest of an etcd member in another folder, in which something is mounted.
    async fn the_teardown_empties_the_folder_of_the_manifest(&self, teardown: &str) -> Result<()> {
        let configuration = json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": self.cluster.kubectl().server_version().await?,
            "etcd": {"local": {"dataDir": "/data/etcd"}},
        });
        self.store.write("/root/etcd.yaml", &configuration.to_string())?;
        self.store
            .succeed([
                "kubeadm",
                "init",
                "phase",
                "etcd",
                "local",
                "--config=/root/etcd.yaml",
            ])
            .await?;
        let (member, backups) = ("/data/etcd/member/snap/db", "/data/etcd/backups");
        self.store.write(member, "")?;
        self.store.succeed(["mkdir", backups]).await?;
        self.store
            .succeed(["mount", "--bind", "/srv/volume", backups])
            .await?;
        let why = format!("kubeadm reset would delete the files in {backups}, which is still mounted");
        let refused = refuses(&self.store, teardown, &[&why]).await?;
        ensure!(
            self.store.file(member).exists() && self.store.file(PRECIOUS).exists(),
            "{refused}"
        );
        self.store.succeed(["umount", backups]).await?;
        let ended = tears_down(&self.store, teardown).await?;
        let left: Vec<_> = fs::read_dir(self.store.file("/data/etcd"))?.collect();
        ensure!(left.is_empty(), "{left:?} after {ended}");
        self.has_all_keys().await
    }

    /// Starts the host's etcd again: until then, it would respond even if its files were deleted.
    async fn has_all_keys(&self) -> Result<()> {
        self.store.succeed(["systemctl", "restart", "etcd"]).await?;
        let found = keys(&self.store).await?;
        ensure!(found == self.keys, "etcd has the keys:\n{found}");
        Ok(())
    }

    /// A script whose join fails soon, because the hash of the CA is another one.
    async fn failing_script(&self, name: &str) -> Result<String> {
        let script = self.join_script(name, &beside_etcd()).await?;
        let hash = hash_of(&script)?;
        let script = script.replace(&hash, &"8".repeat(hash.len()));
        Ok(script.replace("\"discovery\": \"1m0s\"", "\"discovery\": \"2s\""))
    }

    async fn join_script(&self, name: &str, ignored: &str) -> Result<String> {
        let file = self.file(&format!("{name}.sh"));
        let created = self
            .kcp_node(&[
                "join-script",
                "--ignore-preflight-errors",
                ignored,
                "--output-file",
                &file,
            ])
            .await?;
        ensure!(created.code == 0, "{created}");
        fs::read_to_string(&file).with_context(|| format!("reading {file}"))
    }

    async fn kcp_node(&self, arguments: &[&str]) -> Result<CommandOutput> {
        let command = ["kcp", "node"].iter().chain(arguments);
        self.cluster.kubectl().run(command).await
    }

    fn file(&self, name: &str) -> String {
        self.site.folder().join(name).display().to_string()
    }
}

const NOT_JOINED: &str = "error: this host did not join the cluster";

fn beside_etcd() -> String {
    format!("{IGNORED_CHECK},DirAvailable--var-lib-etcd")
}

async fn keys(host: &Machine) -> Result<String> {
    Ok(host
        .succeed(["/opt/etcdctl", "get", "--prefix", "key"])
        .await?
        .stdout)
}
