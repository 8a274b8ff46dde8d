//! A network of its own for machines and for the test that uses them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::RangeInclusive;
use std::os::fd::AsFd as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::Mutex;

use super::load_balancer::{self, API_PORT};
use super::machine::Machine;
use crate::assets::{Assets, Images, MachineAssets};
use crate::process::Process;
use crate::run::Run;
use crate::{products, wait};

/// The first three numbers of every address. The network is invisible outside the site, so that all sites use the same.
pub(super) const PREFIX: &str = "172.31.77";
/// The last number of the switch's address, the gateway of all machines.
const SWITCH: u8 = 1;
/// The last number of the load balancer's address.
pub(super) const LOAD_BALANCER: u8 = 10;
/// The last numbers of machines' addresses. `boot.sh` has routes to the pods of these.
pub(super) const NUMBERS: RangeInclusive<u8> = 11..=30;

/// A switch and a load balancer. Dropping it ends them.
pub struct Site {
    pub(super) run: Arc<Run>,
    name: String,
    folder: PathBuf,
    pub(super) assets: Assets,
    pub(super) machine_assets: MachineAssets,
    /// The process whose network namespace contains the switch.
    switch: Process,
    pub(super) switch_id: u32,
    load_balancer: Mutex<Option<Process>>,
    taken: std::sync::Mutex<BTreeSet<u8>>,
}

impl Site {
    /// Calls `live` in a new site. Its thread is in the site's network, as are all threads and programs that it starts. `name`
    /// names the folder and the logs.
    pub fn enter<T: Send>(
        run: &Arc<Run>,
        name: &str,
        images: Images,
        live: impl AsyncFnOnce(&Arc<Self>) -> Result<T> + Send,
    ) -> Result<T> {
        let alive = || {
            // The threads of a runtime would be in the network of the thread that starts them, but one is enough.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("starting a runtime")?;
            runtime.block_on(async {
                let site = Arc::new(Self::open(run, name, images).await?);
                let lived = live(&site).await;
                lived.with_context(|| format!("logs: {}", run.logs().display()))
            })
        };
        // A thread cannot return to another network namespace safely, so this one ends with the site.
        thread::scope(|scope| {
            scope
                .spawn(alive)
                .join()
                .unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    async fn open(run: &Arc<Run>, name: &str, images: Images) -> Result<Self> {
        let assets = Assets::locate()?;
        let machine_assets = MachineAssets::locate(images)?;
        let folder = run.subfolder(&format!("site-{name}"))?;
        let ready = folder.join("switch");
        // kube-apiserver does not start without a default route. This one leads nowhere.
        let script = format!(
            "set -eu; ip link set lo up; ip link add bridge type bridge; \
             ip address add {PREFIX}.{SWITCH}/24 dev bridge; ip address add {PREFIX}.{LOAD_BALANCER}/24 dev bridge; \
             ip link set bridge up; ip route add default dev bridge; touch {}; exec sleep infinity",
            ready.display()
        );
        let mut switch = Process::start(
            run,
            &format!("site-{name}-switch"),
            Path::new("unshare"),
            ["--net", "sh", "-c", &script],
            crate::api_server::NO_ENVIRONMENT,
        )?;
        wait::until_served("the switch is up", &mut switch, || async {
            ensure!(ready.exists(), "{} is missing", ready.display());
            Ok(())
        })
        .await?;
        let switch_id = switch.id()?;
        let namespace = format!("/proc/{switch_id}/ns/net");
        let namespace = File::open(&namespace).with_context(|| format!("opening {namespace}"))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .context("entering the network of the switch")?;
        let load_balancer = load_balancer::start(run, name, &folder)?;
        Ok(Self {
            run: run.clone(),
            name: name.to_owned(),
            folder,
            assets,
            machine_assets,
            switch,
            switch_id,
            load_balancer: Mutex::new(Some(load_balancer)),
            taken: std::sync::Mutex::default(),
        })
    }

    /// Creates a machine, which is off. Its name is its host name.
    pub fn machine(self: &Arc<Self>, name: &str) -> Result<Arc<Machine>> {
        Ok(Arc::new(Machine::create(self, name, self.take_number()?)?))
    }

    /// [`Self::machine`] with a disk of its own, which loses unsynced writes when [`Machine::cut_power`] cuts the power. Creating it
    /// takes seconds, because it has a copy of the images instead of links to them.
    pub async fn machine_with_disk(self: &Arc<Self>, name: &str) -> Result<Arc<Machine>> {
        let machine = Machine::create_with_disk(self, name, self.take_number()?).await?;
        Ok(Arc::new(machine))
    }

    fn take_number(&self) -> Result<u8> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = NUMBERS.clone().find(|number| !taken.contains(number));
        let free = free.context("every address of the site is taken")?;
        taken.insert(free);
        Ok(free)
    }

    /// The address that a wiped machine had can be another's.
    pub(super) fn release(&self, number: u8) {
        self.taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&number);
    }

    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    pub const fn assets(&self) -> &Assets {
        &self.assets
    }

    /// The image of a container that sleeps.
    pub fn sandbox_image(&self) -> &str {
        self.machine_assets.sandbox_image()
    }

    /// A program that every machine has in `/usr/local/bin`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.machine_assets.usr().join("local/bin").join(name)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The host and port of the load balancer, which is the endpoint of the site's control plane.
    pub fn endpoint(&self) -> (String, u16) {
        (format!("{PREFIX}.{LOAD_BALANCER}"), API_PORT)
    }

    /// Ends the load balancer.
    pub async fn stop_load_balancer(&self) -> Result<()> {
        match self.load_balancer.lock().await.take() {
            Some(process) => process.stop().await,
            None => Ok(()),
        }
    }

    /// The script that boots a machine.
    pub(super) fn script(name: &str) -> PathBuf {
        products::workspace().join("tests/src/machines/real").join(name)
    }

    /// The inode of the network namespace of the switch, by which the kernel knows it.
    pub fn network_namespace(&self) -> Result<PathBuf> {
        let link = format!("/proc/{}/ns/net", self.switch.id()?);
        fs::read_link(&link).with_context(|| format!("reading {link}"))
    }
}
