//! The disk of a new machine: a root folder with a copy of the host's `/etc`, and containerd with unpacked images.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::site::PREFIX;
use crate::assets::MachineAssets;
use crate::run::random;

/// Units that need hardware or the kernel of the host, which a machine does not have.
const MASKED: [&str; 23] = [
    "dev-hugepages.mount",
    "kmod-static-nodes.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-journald-audit.socket",
    "systemd-modules-load.service",
    "systemd-pstore.service",
    "systemd-random-seed.service",
    "systemd-repart.service",
    "systemd-sysctl.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udevd.service",
    "systemd-update-utmp.service",
    "systemd-networkd.socket",
    "systemd-resolved.service",
];

/// What the machine starts at boot.
const TARGET: &str = "\
[Unit]
Requires=basic.target
Wants=containerd.service kubelet.service
AllowIsolate=yes
";

/// The unit of Kubernetes' packages, which restarts sooner here: until kubeadm has configured the kubelet, it exits.
const KUBELET: &str = "\
[Unit]
Wants=network-online.target
After=network-online.target containerd.service
StartLimitIntervalSec=0
[Service]
ExecStart=/usr/local/bin/kubelet
Restart=always
RestartSec=1
[Install]
WantedBy=machine.target
";

/// The drop-in file of Kubernetes' packages.
const KUBELET_OF_KUBEADM: &str = r#"[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/local/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"#;

/// The kubelet's flags for this host, where Kubernetes' packages have them, so that no configuration of kubeadm needs them:
///
/// - The host has cgroups of version 1.
/// - Without `CAP_SYS_RESOURCE` no process can protect itself from the kernel's OOM killer.
/// - A disk of the host that is almost full must not make Nodes unready, nor delete images, because there is no registry.
const KUBELET_FLAGS: &str = "KUBELET_EXTRA_ARGS=--fail-cgroupv1=false --cgroup-driver=cgroupfs --oom-score-adj=0 \
    --eviction-hard=imagefs.available<0%,nodefs.available<0%,nodefs.inodesFree<0% --image-gc-high-threshold=100\n";

/// The folder in which containerd looks for the address of a registry.
pub(super) const REGISTRIES: &str = "/etc/containerd/certs.d";

/// containerd's databases, which it changes in place.
const DATABASES: [&str; 2] = [
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
];

pub(super) fn create(folder: &Path, name: &str, number: u8, assets: &MachineAssets) -> Result<()> {
    let root = folder.join("root");
    for path in ["usr/upper", "usr/work"] {
        create_folder(&folder.join(path))?;
    }
    for path in [
        "usr",
        "var/lib",
        "var/log",
        "var/tmp",
        "var/cache",
        "proc",
        "sys",
        "dev",
        "run",
        "tmp",
        "root",
        "opt/cni",
        "mnt",
        "home",
        "srv",
        "boot",
        "media",
    ] {
        create_folder(&root.join(path))?;
    }
    for path in ["bin", "sbin", "lib", "lib64"] {
        link(&format!("usr/{path}"), &root.join(path))?;
    }
    link("/run", &root.join("var/run"))?;
    link("/usr/lib/cni", &root.join("opt/cni/bin"))?;
    for path in ["tmp", "var/tmp"] {
        let path = root.join(path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777))
            .with_context(|| format!("permitting everyone to write to {}", path.display()))?;
    }
    copy(&["-a"], Path::new("/etc"), &root.join("etc"))?;
    configure(&root.join("etc"), name, number, assets)?;
    install_images(&root.join("var/lib/containerd"), assets)
}

fn configure(etc: &Path, name: &str, number: u8, assets: &MachineAssets) -> Result<()> {
    // What the host starts, mounts and is called.
    for path in ["systemd/system", "kubernetes", "containerd", "cni", "cloud"] {
        remove(fs::remove_dir_all(etc.join(path)))?;
    }
    for path in [
        "resolv.conf",
        "fstab",
        "machine-id",
        "hostname",
        "hosts",
        "default/kubelet",
    ] {
        remove(fs::remove_file(etc.join(path)))?;
    }
    let write = |path: &str, content: &str| {
        let file = etc.join(path);
        create_folder(file.parent().unwrap_or(etc))?;
        fs::write(&file, content).with_context(|| format!("writing {}", file.display()))
    };
    let address = format!("{PREFIX}.{number}");
    write("hostname", &format!("{name}\n"))?;
    write("machine-id", &format!("{:016x}{:016x}\n", random(), random()))?;
    write("hosts", &format!("127.0.0.1 localhost\n{address} {name}\n"))?;
    // Nothing answers there. Without a server the resolver would ask 127.0.0.1, and CoreDNS would ask itself.
    write("resolv.conf", &format!("nameserver {address}\n"))?;
    write("systemd/system/machine.target", TARGET)?;
    link("machine.target", &etc.join("systemd/system/default.target"))?;
    for unit in MASKED {
        link("/dev/null", &etc.join("systemd/system").join(unit))?;
    }
    write("systemd/system/kubelet.service", KUBELET)?;
    write(
        "systemd/system/kubelet.service.d/10-kubeadm.conf",
        KUBELET_OF_KUBEADM,
    )?;
    write("default/kubelet", KUBELET_FLAGS)?;
    write("containerd/config.toml", &containerd(assets.sandbox_image()))?;
    write("cni/net.d/10-machine.conflist", &network(number))?;
    create_folder(&etc.join("kubernetes/manifests"))
}

/// - `restrict_oom_score_adj`: without `CAP_SYS_RESOURCE` no process can protect itself from the kernel's OOM killer.
/// - `config_path`: the folder of [`super::Machine::add_registry`].
fn containerd(sandbox_image: &str) -> String {
    format!(
        r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{REGISTRIES}"
"#
    )
}

/// Pods get addresses in 10.244.NUMBER.0/24, to which `boot.sh` has routes on every machine.
fn network(number: u8) -> String {
    serde_json::json!({
        "cniVersion": "0.4.0",
        "name": "machine",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": format!("10.244.{number}.0/24")}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
    .to_string()
}

/// containerd never changes a file of an image, so that hard links to them are enough. They need the same filesystem.
fn install_images(folder: &Path, assets: &MachineAssets) -> Result<()> {
    let unpacked = assets.containerd();
    if copy(&["-al"], &unpacked, folder).is_err() {
        remove(fs::remove_dir_all(folder))?;
        return copy(&["-a"], &unpacked, folder);
    }
    for database in DATABASES {
        let file = folder.join(database);
        fs::remove_file(&file)
            .and_then(|()| fs::copy(unpacked.join(database), &file))
            .with_context(|| format!("copying {}", file.display()))?;
    }
    Ok(())
}

fn copy(options: &[&str], from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    let output = command.args(options).arg(from).arg(to).output();
    let output = output.context("running cp")?;
    ensure!(
        output.status.success(),
        "copying {} to {}: {}",
        from.display(),
        to.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))
}

fn link(to: &str, path: &Path) -> Result<()> {
    symlink(to, path).with_context(|| format!("linking {}", path.display()))
}

/// What was not there need not be removed.
fn remove(removed: std::io::Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("removing a file"),
        _ => Ok(()),
    }
}
