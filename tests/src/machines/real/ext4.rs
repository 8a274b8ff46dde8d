//! A disk of a machine's own: an image file with ext4 on a loop device, from which a power cut takes every write that was not synced.
//!
//! The disk is mounted in a mount namespace of its own, which a sleeping process holds. So nothing has to be cleaned up: when that
//! process and the machine have ended, however that happens, the kernel unmounts the disk and detaches the loop device.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::sync::Mutex;

use crate::api_server::NO_ENVIRONMENT;
use crate::process::Process;
use crate::run::Run;
use crate::wait;

/// The size of the image, which has holes where nothing was written.
const BYTES: u64 = 16 << 30;

/// `commit`: without a sync, ext4 commits metadata only after this number of seconds instead of 5, so that a power cut loses more. The
/// kernel writes other unsynced data after half a minute (`vm.dirty_expire_centisecs`).
const OPTIONS: &str = "loop,commit=60";

/// Calls `FS_IOC_SHUTDOWN` of `linux/fs.h` with `EXT4_GOING_FLAGS_NOLOGFLUSH`: from now on ext4 sends nothing to the disk, neither data
/// nor its journal, and each sync fails. The file system tests of Linux cut the power in this way, too.
const SHUT_DOWN: &str = r#"
open(my $folder, "<", $ARGV[0]) or die "$ARGV[0]: $!\n";
ioctl($folder, 0x8004587d, my $flags = pack("L", 2)) or die "FS_IOC_SHUTDOWN: $!\n";
"#;

const LOOP_DEVICES: &str = "/sys/block";

pub(super) struct Ext4Disk {
    run: Arc<Run>,
    name: String,
    image: PathBuf,
    /// Where it is mounted in its own mount namespace.
    folder: PathBuf,
    mounted: Mutex<Option<Process>>,
    /// The process whose mount namespace has the disk.
    holder: std::sync::Mutex<u32>,
}

impl Ext4Disk {
    /// Creates an empty disk and mounts it. `name` names its log.
    pub(super) async fn create(run: &Arc<Run>, name: &str, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        // As the kernel names it.
        let folder = fs::canonicalize(folder).with_context(|| format!("finding {}", folder.display()))?;
        let image = folder.with_extension("ext4");
        File::create_new(&image)
            .and_then(|file| file.set_len(BYTES))
            .with_context(|| format!("creating {}", image.display()))?;
        succeed(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let disk = Self {
            run: run.clone(),
            name: name.to_owned(),
            image,
            folder,
            mounted: Mutex::default(),
            holder: std::sync::Mutex::default(),
        };
        disk.mount().await?;
        Ok(disk)
    }

    /// A machine boots in the mount namespace of this process.
    pub(super) fn holder(&self) -> u32 {
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of the disk in the mount namespace of this process. It changes when the power is cut.
    pub(super) fn folder(&self) -> PathBuf {
        folder_in(self.holder(), &self.folder)
    }

    /// Mounts it. After a power cut, ext4 replays its journal.
    pub(super) async fn mount(&self) -> Result<()> {
        let mut mounted = self.mounted.lock().await;
        ensure!(mounted.is_none(), "{} is mounted", self.image.display());
        let number = self.folder.with_extension("holder");
        let script = format!(
            "set -eu; rm -f {number}; mount -t ext4 -o {OPTIONS} {image} {folder}; echo $$ >{number}; exec sleep infinity",
            image = self.image.display(),
            folder = self.folder.display(),
            number = number.display(),
        );
        let arguments = ["--mount", "--propagation", "private", "sh", "-c", &script];
        let name = format!("disk-{}", self.name);
        let mut process = Process::start(&self.run, &name, Path::new("unshare"), arguments, NO_ENVIRONMENT)?;
        let what = format!("{} is mounted", self.image.display());
        let holder = wait::until_served(&what, &mut process, || async {
            let text =
                fs::read_to_string(&number).with_context(|| format!("reading {}", number.display()))?;
            let holder = text.trim().parse().context("no process yet")?;
            // Every ext4 has it. The file can be from an earlier mount.
            let found = folder_in(holder, &self.folder).join("lost+found");
            ensure!(found.exists(), "{} is missing", found.display());
            Ok(holder)
        })
        .await?;
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = holder;
        *mounted = Some(process);
        Ok(())
    }

    /// Unmounts it. Nothing else may use it.
    pub(super) async fn unmount(&self) -> Result<()> {
        if let Some(mut process) = self.mounted.lock().await.take() {
            process.kill().await?;
        }
        wait::until(
            &format!("{} has no loop device", self.image.display()),
            || async {
                match loop_device_of(Path::new(LOOP_DEVICES), &self.image)? {
                    Some(device) => bail!("{device} has it"),
                    None => Ok(()),
                }
            },
        )
        .await
    }

    /// Writes everything to the disk.
    pub(super) fn sync(&self) -> Result<()> {
        let folder = self.folder();
        File::open(&folder)
            .and_then(|file| rustix::fs::syncfs(file).map_err(Into::into))
            .with_context(|| format!("syncing {}", folder.display()))
    }

    /// Cuts off the disk: it keeps what it has, and what is only in the page cache is lost.
    pub(super) fn cut_off(&self) -> Result<()> {
        succeed(Command::new("perl").args(["-e", SHUT_DOWN]).arg(self.folder()))
    }
}

/// A path in the mount namespace of a process.
fn folder_in(process: u32, folder: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{process}/root"));
    root.join(folder.strip_prefix("/").unwrap_or(folder))
}

/// The loop device whose file is `image`, as `/sys/block` lists them.
fn loop_device_of(devices: &Path, image: &Path) -> Result<Option<String>> {
    let listing = || format!("listing {}", devices.display());
    for device in fs::read_dir(devices).with_context(listing)? {
        let device = device.with_context(listing)?;
        // A device without a file has no such attribute, and other kinds of devices never have it.
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        if file.is_ok_and(|file| Path::new(file.trim_end_matches('\n')) == image) {
            return Ok(Some(device.file_name().to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{folder_in, loop_device_of};
    use crate::run::random;

    #[test]
    fn finds_the_loop_device_of_an_image() {
        let devices = std::env::temp_dir().join(format!("kcp-block-{:x}", random()));
        for device in ["sda", "loop0", "loop1/loop", "loop2/loop"] {
            fs::create_dir_all(devices.join(device)).unwrap();
        }
        fs::write(devices.join("loop1/loop/backing_file"), "/tmp/disk.ext4.old\n").unwrap();
        fs::write(devices.join("loop2/loop/backing_file"), "/tmp/disk.ext4\n").unwrap();
        for (image, expected) in [
            ("/tmp/disk.ext4", Some("loop2")),
            ("/tmp/disk.ext4.old", Some("loop1")),
            ("/tmp/disk", None),
        ] {
            let found = loop_device_of(&devices, Path::new(image)).unwrap();
            assert_eq!(found.as_deref(), expected, "{image}");
        }
        fs::remove_dir_all(devices).unwrap();
    }

    #[test]
    fn finds_a_folder_in_the_namespace_of_a_process() {
        let found = folder_in(7, Path::new("/tmp/disk"));
        assert_eq!(found, Path::new("/proc/7/root/tmp/disk"));
    }
}
