//! The first boot of a machine that an infrastructure provider creates: Debian's cloud-init runs the bootstrap data.

use anyhow::{Context as _, Result};
use std::os::unix::fs::symlink;

use super::machine::Machine;

/// The data is on the machine's disk, as on a disk of configuration of a hypervisor. cloud-init runs only what bootstrap data
/// uses, because the machine has a name, a network and users already.
const CLOUD_INIT: &str = "\
datasource_list: [NoCloud]
network: {config: disabled}
cloud_init_modules: [write-files]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts-user]
system_info: {distro: debian, paths: {cloud_dir: /var/lib/cloud, templates_dir: /etc/cloud/templates}}
";

/// cloud-init runs at every boot, and the bootstrap data at the first only. The journal is lost with the machine, but not this log
/// on its disk.
const UNIT: &str = "\
[Unit]
After=containerd.service
Requires=containerd.service
[Service]
Type=oneshot
RemainAfterExit=yes
StandardOutput=append:/var/log/cloud-init-output.log
StandardError=inherit
ExecStart=/usr/bin/cloud-init init --local
ExecStart=/usr/bin/cloud-init init
ExecStart=/usr/bin/cloud-init modules --mode config
ExecStart=/usr/bin/cloud-init modules --mode final
";

impl Machine {
    /// Puts bootstrap data on the disk of a machine that has never been on.
    pub fn bootstrap_with(&self, data: &str) -> Result<()> {
        let name = self.name();
        self.write("/var/lib/cloud/seed/nocloud/user-data", data)?;
        self.write(
            "/var/lib/cloud/seed/nocloud/meta-data",
            &format!("instance-id: {name}\nlocal-hostname: {name}\n"),
        )?;
        self.write("/etc/cloud/cloud.cfg", CLOUD_INIT)?;
        self.write("/etc/cloud/templates/README", "no template is used\n")?;
        self.write("/etc/systemd/system/first-boot.service", UNIT)?;
        let wants = self.file("/etc/systemd/system/machine.target.wants");
        std::fs::create_dir_all(&wants)
            .and_then(|()| symlink("../first-boot.service", wants.join("first-boot.service")))
            .with_context(|| format!("linking a file in {}", wants.display()))
    }
}
