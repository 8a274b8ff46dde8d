//! The real machines of an infrastructure provider.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use tokio::sync::Mutex;

use super::{Machine, Site};

/// The script of [`Fleet::damage_next`] on a machine.
const DAMAGE: &str = "/root/damage.sh";

/// Machines that bootstrap data turns into nodes of one workload cluster, whose endpoint is the site's load balancer.
pub struct Fleet {
    site: Arc<Site>,
    machines: Mutex<BTreeMap<String, Arc<Machine>>>,
    /// The archives of the images that each new machine gets.
    images: Mutex<Vec<PathBuf>>,
    /// The script that damages the next machine.
    damage: Mutex<Option<String>>,
    has_disks: AtomicBool,
}

impl Fleet {
    pub(crate) fn new(site: &Arc<Site>) -> Self {
        Self {
            site: site.clone(),
            machines: Mutex::default(),
            images: Mutex::default(),
            damage: Mutex::default(),
            has_disks: AtomicBool::default(),
        }
    }

    pub(crate) fn endpoint(&self) -> (String, u16) {
        self.site.endpoint()
    }

    /// Imports archives of container images to each machine that is created from now on, as a machine image would contain them.
    pub async fn add_images(&self, archives: impl IntoIterator<Item = PathBuf>) {
        self.images.lock().await.extend(archives);
    }

    /// Lets the next new machine run a script as root, before the first command of its bootstrap data. The files of the data exist
    /// then.
    pub async fn damage_next(&self, script: &str) {
        *self.damage.lock().await = Some(script.to_owned());
    }

    /// Gives a disk of its own to each machine that is created from now on, see [`Site::machine_with_disk`].
    pub fn give_disks(&self) {
        self.has_disks.store(true, Ordering::Relaxed);
    }

    /// Creates a machine and switches it on. Returns its address. cloud-init and kubeadm are still running then, as in a cloud.
    pub(crate) async fn boot(&self, name: &str, data: &str) -> Result<String> {
        let machine = if self.has_disks.load(Ordering::Relaxed) {
            self.site.machine_with_disk(name).await?
        } else {
            self.site.machine(name)?
        };
        match self.damage.lock().await.take() {
            Some(script) => {
                machine.write(DAMAGE, &script)?;
                let first = format!("\nruncmd:\n  - sh {DAMAGE}\n");
                let damaged = data.replacen("\nruncmd:\n", &first, 1);
                ensure!(damaged != data, "the bootstrap data has no runcmd");
                machine.bootstrap_with(&damaged)?;
            }
            None => machine.bootstrap_with(data)?,
        }
        self.machines
            .lock()
            .await
            .insert(name.to_owned(), machine.clone());
        machine.power_on().await?;
        for archive in self.images.lock().await.clone() {
            machine.import_image(&archive).await?;
        }
        Ok(machine.address())
    }

    /// Switches a machine off and removes its disk.
    pub(crate) async fn end(&self, name: &str) -> Result<()> {
        let machine = self.machines.lock().await.remove(name);
        match machine {
            Some(machine) => machine.wipe().await,
            None => Ok(()),
        }
    }

    pub async fn machine(&self, name: &str) -> Result<Arc<Machine>> {
        let machines = self.machines.lock().await;
        machines
            .get(name)
            .cloned()
            .with_context(|| format!("there is no machine {name}"))
    }

    pub async fn machines(&self) -> Vec<Arc<Machine>> {
        self.machines.lock().await.values().cloned().collect()
    }
}
