//! Real machines: systemd, containerd, kubelet and kubeadm in namespaces of this host. They need root and the packages that
//! `tests/real-machines` installs.
//!
//! A [`Site`] is a network of its own, with a switch and a load balancer. A test lives in that network, so that kubectl, our
//! programs and the test itself reach every machine, and no packet leaves the run:
//!
//! ```ignore
//! Site::enter(run, "join", Images::ControlPlane, async |site| {
//!     let (first, worker) = (site.machine("first")?, site.machine("worker")?);
//!     tokio::try_join!(first.power_on(), worker.power_on())?;
//!     let cluster = KubeadmCluster::init(&first, Addons::None).await?;
//!     cluster.kubectl().succeed(["kcp", "status", "-A"]).await?; // the real kubectl, with our plugin
//!     worker.write("/root/join.sh", &script)?;
//!     let joined = worker.exec(["sh", "/root/join.sh"]).await?;  // any exit code, with both outputs
//!     cluster.ready(&["first", "worker"]).await?;
//!     first.power_off().await?;                                  // kills every process of the machine at once
//!     first.power_on().await?;                                   // its disk is as it was, see `cut_power`
//!     worker.wipe().await                                        // off, and its disk is gone
//! })
//! ```
//!
//! Nothing of it outlives the test process: see `boot.sh` for namespaces, and [`cgroups`] for what does not end with them.

mod cgroups;
mod disk;
mod ext4;
mod first_boot;
mod fleet;
mod kubeadm;
mod load_balancer;
mod machine;
mod program_images;
mod site;

pub(crate) use self::cgroups::remove_of_run;
pub use self::fleet::Fleet;
pub(crate) use self::kubeadm::kubeadm_config;
pub use self::kubeadm::{Addons, IGNORED_CHECK, Join, KubeadmCluster};
pub use self::machine::Machine;
pub(crate) use self::program_images::program_image;
pub use self::program_images::{HAPROXY, haproxy_image, webhook_image};
pub use self::site::Site;
pub use crate::assets::Images;
