//! One machine: its power, its disk and commands in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::sync::Mutex;

use super::ext4::Ext4Disk;
use super::site::{PREFIX, Site};
use super::{cgroups, disk};
use crate::api_server::NO_ENVIRONMENT;
use crate::kubectl::CommandOutput;
use crate::process::{Process, supervised};
use crate::wait;

/// The folder of a machine's disk.
const DISK: &str = "disk";

/// A machine of a [`Site`]. Dropping it switches it off.
pub struct Machine {
    site: Arc<Site>,
    name: String,
    number: u8,
    folder: PathBuf,
    /// None while it is off.
    power: Mutex<Option<Process>>,
    /// None if its disk is a folder of the host.
    ext4: Option<Ext4Disk>,
}

impl Machine {
    pub(super) fn create(site: &Arc<Site>, name: &str, number: u8) -> Result<Self> {
        Self::new(site, name, number, None)
    }

    pub(super) async fn create_with_disk(site: &Arc<Site>, name: &str, number: u8) -> Result<Self> {
        let log = format!("{}-{name}", site.name());
        let ext4 = Ext4Disk::create(&site.run, &log, &site.folder().join(name).join(DISK)).await?;
        let machine = Self::new(site, name, number, Some(ext4))?;
        // An installed system is on its disk.
        machine.ext4.as_ref().map_or(Ok(()), Ext4Disk::sync)?;
        Ok(machine)
    }

    fn new(site: &Arc<Site>, name: &str, number: u8, ext4: Option<Ext4Disk>) -> Result<Self> {
        let machine = Self {
            site: site.clone(),
            name: name.to_owned(),
            number,
            folder: site.folder().join(name),
            power: Mutex::default(),
            ext4,
        };
        disk::create(&machine.disk(), name, number, &site.machine_assets)
            .with_context(|| format!("creating machine {name}"))?;
        Ok(machine)
    }

    /// The path of its disk on this host.
    fn disk(&self) -> PathBuf {
        let folder = || self.folder.join(DISK);
        self.ext4.as_ref().map_or_else(folder, Ext4Disk::folder)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn address(&self) -> String {
        format!("{PREFIX}.{}", self.number)
    }

    pub const fn site(&self) -> &Arc<Site> {
        &self.site
    }

    /// Switches it on, and waits until its container runtime serves. systemd has started the kubelet, which restarts until
    /// kubeadm has configured it.
    pub async fn power_on(&self) -> Result<()> {
        let mut power = self.power.lock().await;
        ensure!(power.is_none(), "{} is on", self.name);
        let name = format!("{}-{}", self.site.name(), self.name);
        let groups = self.folder.join("cgroups");
        fs::write(&groups, cgroups::create(self.site.run.id(), &name)?)
            .with_context(|| format!("writing {}", groups.display()))?;
        let holder = self.ext4.as_ref().map(|disk| disk.holder().to_string());
        let holder = holder.unwrap_or_default();
        // The number of the first process, from an earlier boot.
        let _ = fs::remove_file(self.folder.join("pid"));
        let process = Process::start_with_cleanup(
            &self.site.run,
            &format!("machine-{name}"),
            &Site::script("boot.sh"),
            [
                self.folder.as_os_str(),
                self.name.as_ref(),
                self.address().as_ref(),
                PREFIX.as_ref(),
                self.site.machine_assets.usr().as_os_str(),
                self.site.switch_id.to_string().as_ref(),
                holder.as_ref(),
            ],
            NO_ENVIRONMENT,
            &[Site::script("remove-cgroups.sh").as_os_str(), groups.as_os_str()],
        )?;
        let what = format!("the container runtime of {} serves", self.name);
        // The power can be cut while it boots.
        let process = power.insert(process);
        wait::until_served(&what, process, || async {
            let socket = self.path_of_process("root/run/containerd/containerd.sock")?;
            ensure!(socket.exists(), "{} is missing", socket.display());
            Ok(())
        })
        .await
    }

    /// Cuts the power of a machine that [`Site::machine_with_disk`] has created. At this moment, every write that was not synced is
    /// lost, and every process is killed. Returns when all have ended.
    pub async fn cut_power(&self) -> Result<()> {
        let disk = self.ext4.as_ref();
        let disk = disk.with_context(|| format!("{} has no disk of its own", self.name))?;
        // Before the processes end: the kernel syncs the files of a container when it unmounts them.
        disk.cut_off()?;
        self.power_off().await?;
        disk.unmount().await?;
        disk.mount().await
    }

    /// Switches it off: the kernel kills every process at once. Data in the page cache is not lost, see [`Self::cut_power`]. Returns
    /// when all have ended.
    pub async fn power_off(&self) -> Result<()> {
        match self.power.lock().await.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }

    pub async fn is_on(&self) -> bool {
        self.power.lock().await.as_mut().is_some_and(Process::is_running)
    }

    /// Switches it off and removes its disk. Its address can be another machine's.
    pub async fn wipe(&self) -> Result<()> {
        self.power_off().await?;
        if let Some(disk) = &self.ext4 {
            disk.unmount().await?;
        }
        fs::remove_dir_all(&self.folder).with_context(|| format!("removing {}", self.folder.display()))?;
        self.site.release(self.number);
        Ok(())
    }

    /// Runs a command as root in the machine until it ends, with any exit code. kubectl in it has all permissions of kubeadm's
    /// administrator.
    pub async fn exec<A: AsRef<str>>(&self, command: impl IntoIterator<Item = A>) -> Result<CommandOutput> {
        let words: Vec<String> = command.into_iter().map(|word| word.as_ref().to_owned()).collect();
        let first = self.first_process()?;
        let child = supervised(&self.site.run, Path::new("nsenter"))?
            .arg(format!("--target={first}"))
            .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"])
            .args(["--root", "--wd", "--", "env"])
            .args([
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME=/root",
                "KUBECONFIG=/etc/kubernetes/admin.conf",
            ])
            .args(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("entering {}", self.name))?;
        CommandOutput::of(format!("{}: {}", self.name, words.join(" ")), child).await
    }

    /// Runs a command that must succeed.
    pub async fn succeed<A: AsRef<str>>(
        &self,
        command: impl IntoIterator<Item = A>,
    ) -> Result<CommandOutput> {
        let ended = self.exec(command).await?;
        ensure!(ended.code == 0, "{ended}");
        Ok(ended)
    }

    /// The command with which a person on this host gets a shell in the machine.
    pub fn shell(&self) -> Result<String> {
        Ok(format!(
            "nsenter --target={} --mount --uts --ipc --net --pid --cgroup --root --wd bash --login",
            self.first_process()?
        ))
    }

    /// The path on this host of a file on the machine's disk: `path` is not below `/usr`, `/run`, `/dev` or `/sys`. The path on this
    /// host changes when the power is cut.
    pub fn file(&self, path: &str) -> PathBuf {
        self.disk().join("root").join(path.trim_start_matches('/'))
    }

    /// Writes a file to the machine's disk, whether it is on or off.
    pub fn write(&self, path: &str, content: &str) -> Result<()> {
        let file = self.file(path);
        let folder = file.parent().context("a file has a folder")?;
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&file, content))
            .with_context(|| format!("writing {}", file.display()))
    }

    /// Imports the archive of a container image, as `tests/envtest/image` writes it.
    pub async fn import_image(&self, archive: &Path) -> Result<()> {
        let copy = self.file("/root/image.tar");
        fs::copy(archive, &copy).with_context(|| format!("copying {}", archive.display()))?;
        self.succeed(["ctr", "--namespace=k8s.io", "images", "import", "/root/image.tar"])
            .await?;
        fs::remove_file(&copy).with_context(|| format!("removing {}", copy.display()))
    }

    /// Tells containerd at which address, without TLS, a registry of this name is.
    pub fn add_registry(&self, name: &str, address: &str) -> Result<()> {
        let hosts = format!(
            "server = \"http://{address}\"\n[host.\"http://{address}\"]\ncapabilities = [\"pull\", \"resolve\"]\n"
        );
        self.write(&format!("{}/{name}/hosts.toml", disk::REGISTRIES), &hosts)
    }

    /// The memory that its processes and its page cache use, in bytes, as the kernel charges it.
    pub fn memory(&self) -> Result<u64> {
        let groups = self.folder.join("cgroups");
        let groups = fs::read_to_string(&groups).with_context(|| format!("reading {}", groups.display()))?;
        let memory = groups.lines().find_map(|line| line.strip_prefix("memory "));
        let file =
            Path::new(memory.context("this host has no hierarchy for memory")?).join("memory.usage_in_bytes");
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        text.trim()
            .parse()
            .with_context(|| format!("{} is no number", file.display()))
    }

    /// The kernel's name of its network namespace.
    pub fn network_namespace(&self) -> Result<PathBuf> {
        let link = self.path_of_process("ns/net")?;
        fs::read_link(&link).with_context(|| format!("reading {}", link.display()))
    }

    /// The number by which this host knows its systemd.
    fn first_process(&self) -> Result<u32> {
        let file = self.folder.join("pid");
        let text = fs::read_to_string(&file).with_context(|| format!("{} is off", self.name))?;
        let id = text
            .trim()
            .parse()
            .with_context(|| format!("{} is no number", file.display()))?;
        // Until then it runs boot.sh with the host's files.
        match fs::read_to_string(format!("/proc/{id}/comm")).as_deref() {
            Ok("systemd\n") => Ok(id),
            Ok(_) => bail!("{} is booting", self.name),
            Err(_) => bail!("{} is off", self.name),
        }
    }

    fn path_of_process(&self, path: &str) -> Result<PathBuf> {
        Ok(Path::new("/proc")
            .join(self.first_process()?.to_string())
            .join(path))
    }
}
