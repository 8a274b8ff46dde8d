//! A machine's etcd member, with the certificates and flags that kubeadm gives it.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use tokio::time::timeout;

use super::peer_network::{Uplink, peer_address, peer_url};
use super::workload_cluster::{LOOPBACK, WorkloadCluster};
use crate::assets::Assets;
use crate::etcd::{self, CLIENT_PORT, METRICS_PORT, PEER_PORT};
use crate::pki::{KeyPairFiles, Subject};
use crate::process::Process;
use crate::wait;

/// The file name of a member's serving certificate and key.
const SERVER: &str = "server";

/// How long one try waits for a member that accepts connections, but may not respond yet.
const RESPONSE: Duration = Duration::from_millis(300);

/// A started member.
pub(super) struct Member {
    /// The number of its address among the cluster's addresses.
    pub(super) number: u8,
    /// False while it is a learner.
    pub(super) votes: bool,
    pub(super) process: Process,
    _uplink: Uplink,
}

/// The etcd cluster that a new member belongs to.
pub(super) enum Founding {
    /// Its own, new cluster.
    Alone,
    /// A cluster with these members, in the format of `--initial-cluster`.
    Joining(String),
    /// The cluster of its data, without all other members (`--force-new-cluster`).
    Forced,
}

impl WorkloadCluster {
    /// Starts the first member of a new etcd cluster, and returns the machine's address.
    pub(super) async fn start_first_member(&self, machine: &str) -> Result<Ipv4Addr> {
        let mut members = self.members.lock().await;
        let number = Self::free_number(&members)?;
        let mut member = self.start_member(machine, number, &Founding::Alone).await?;
        member.votes = true;
        let address = self.addresses.machine(number);
        let etcd = self.etcd_at(address).await?;
        let what = format!("the first etcd member of {} leads", self.name);
        wait::until_served(&what, &mut member.process, || etcd.has_leader()).await?;
        self.etcd_route.offer(number, address);
        members.insert(machine.to_owned(), member);
        Ok(address)
    }

    /// Adds a member as kubeadm does: as a learner that is promoted when it is in sync. Returns the machine's address.
    ///
    /// etcd accepts a new member only when its own members have been connected for five seconds, and later while it
    /// removes one.
    pub(super) async fn join_member(&self, machine: &str) -> Result<Ipv4Addr> {
        let number = Self::free_number(&*self.members.lock().await)?;
        let added = wait::until("etcd accepts another member", || async {
            self.etcd().await?.add_learner(&peer_url(number)).await
        })
        .await?;
        let founding = Founding::Joining(initial_cluster(&added.members, machine));
        let member = self.start_member(machine, number, &founding).await?;
        self.members.lock().await.insert(machine.to_owned(), member);
        self.publish_again(machine, number, &founding).await?;
        self.promotion_allowed().await?;
        let id = &added.member.id;
        wait::until("etcd promotes the learner", || async {
            self.etcd().await?.promote(id).await
        })
        .await?;
        let address = self.answering(number).await?;
        if let Some(member) = self.members.lock().await.get_mut(machine) {
            member.votes = true;
            self.etcd_route.offer(number, address);
        }
        Ok(address)
    }

    /// Restarts a new member that has received its data as a snapshot: its first request to publish its name is lost
    /// with the snapshot, and it repeats the request after seven seconds (`publishV3` in `server/etcdserver/server.go`).
    pub(super) async fn publish_again(&self, machine: &str, number: u8, founding: &Founding) -> Result<()> {
        let folder = self.database_folder(machine);
        let etcd = self.etcd_at(self.addresses.machine(number)).await?;
        let is_lost = wait::until("the new etcd member has data", || async {
            if has_applied_snapshot(&folder)? {
                return Ok(true);
            }
            // The member accepts connections before it responds.
            timeout(RESPONSE, etcd.status()).await??;
            Ok(false)
        });
        if is_lost.await? {
            self.kill_member(machine).await?;
            self.restart_member(machine, founding).await?;
        }
        Ok(())
    }

    /// Waits until a member answers clients, as a kubelet does before it reports that the pod is ready.
    pub(super) async fn answering(&self, number: u8) -> Result<Ipv4Addr> {
        let address = self.addresses.machine(number);
        wait::until("the etcd member answers", || async {
            self.etcd_at(address).await?.status().await
        })
        .await?;
        Ok(address)
    }

    /// Starts a member's process, with the data that it already has.
    pub(super) async fn start_member(
        &self,
        machine: &str,
        number: u8,
        founding: &Founding,
    ) -> Result<Member> {
        let address = self.addresses.machine(number);
        let uplink = self.peer_network.connect(number, address).await?;
        let certificates = self.certificates()?;
        let folder = self.folder.join(machine);
        let server = self.issue_certificate(machine, number)?;
        let peer = self.with_subject(machine, number, |subject| {
            certificates.etcd_authority.issue(&folder, "peer", subject)
        })?;
        let authority = certificates.etcd_authority_file.display();
        let clients = format!("https://{address}:{CLIENT_PORT}");
        let peers = peer_url(number);
        let (members, state) = match founding {
            Founding::Alone => (format!("{machine}={peers}"), "new"),
            Founding::Joining(members) => (members.clone(), "existing"),
            Founding::Forced => (format!("{machine}={peers}"), "existing"),
        };
        let arguments = [
            format!("--name={machine}"),
            format!("--data-dir={}", data(&folder).display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls=https://{address}:{PEER_PORT}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--listen-metrics-urls=http://{address}:{METRICS_PORT}"),
            format!("--initial-cluster={members}"),
            format!("--initial-cluster-state={state}"),
            "--client-cert-auth=true".to_owned(),
            "--peer-client-cert-auth=true".to_owned(),
            format!("--trusted-ca-file={authority}"),
            format!("--peer-trusted-ca-file={authority}"),
            format!("--cert-file={}", server.certificate.display()),
            format!("--key-file={}", server.key.display()),
            format!("--peer-cert-file={}", peer.certificate.display()),
            format!("--peer-key-file={}", peer.key.display()),
            "--snapshot-count=10000".to_owned(),
            format!("--quota-backend-bytes={}", self.etcd_quota.load(Relaxed)),
            "--unsafe-no-fsync=true".to_owned(),
            "--log-level=warn".to_owned(),
            format!("--force-new-cluster={}", matches!(founding, Founding::Forced)),
        ];
        let log = format!("{}-etcd-{machine}", self.name);
        let program = self.etcd_programs()?.get(machine).cloned();
        let program = program.unwrap_or_else(|| self.assets.program("etcd"));
        Ok(Member {
            number,
            votes: false,
            process: Process::start(&self.run, &log, &program, arguments, &uplink.environment())?,
            _uplink: uplink,
        })
    }

    /// Sets the version of etcd that a machine runs. `None` for that of the assets.
    pub(super) fn choose_etcd(&self, machine: &str, version: Option<&str>) -> Result<()> {
        let Some(version) = version else { return Ok(()) };
        let program = Assets::old_etcd(version)?;
        self.etcd_programs()?.insert(machine.to_owned(), program);
        Ok(())
    }

    fn etcd_programs(&self) -> Result<MutexGuard<'_, BTreeMap<String, PathBuf>>> {
        let programs = self.etcd_programs.lock();
        programs.map_err(|_| anyhow!("another task has panicked"))
    }

    /// Issues a member's serving certificate. etcd reads the files for each connection.
    pub(super) fn issue_certificate(&self, machine: &str, number: u8) -> Result<KeyPairFiles> {
        let authority = &self.certificates()?.etcd_authority;
        self.with_subject(machine, number, |subject| {
            authority.issue(&self.folder.join(machine), SERVER, subject)
        })
    }

    /// Replaces a member's serving certificate by an expired one.
    pub(super) fn expire_certificate(&self, machine: &str, number: u8) -> Result<()> {
        let authority = &self.certificates()?.etcd_authority;
        let expired = self.with_subject(machine, number, |subject| {
            authority.issue_expired(&self.folder.join(machine), SERVER, subject)
        });
        expired.map(drop)
    }

    fn with_subject<T>(&self, machine: &str, number: u8, issue: impl FnOnce(&Subject<'_>) -> T) -> T {
        let address = self.addresses.machine(number);
        issue(&Subject {
            common_name: machine,
            names: &[machine, "localhost"],
            addresses: &[IpAddr::V4(address), IpAddr::V4(peer_address(number)), LOOPBACK],
            ..Subject::default()
        })
    }

    /// Ends a machine's member, if it has one, and deletes its data.
    pub(super) async fn stop_member(&self, machine: &str) -> Result<()> {
        // The address stays in use until the process has ended.
        let mut members = self.members.lock().await;
        if let Some(member) = members.remove(machine) {
            self.etcd_route.withdraw(member.number);
            member.process.stop().await?;
            self.peer_network.reconnect(member.number);
            remove(&self.folder.join(machine))?;
        }
        Ok(())
    }

    /// Sets the quota in bytes of the databases of members that start from now on.
    pub fn set_etcd_quota(&self, bytes: u64) {
        self.etcd_quota.store(bytes, Relaxed);
    }

    /// The folder with the database of a machine's member.
    pub fn database_folder(&self, machine: &str) -> PathBuf {
        data(&self.folder.join(machine)).join("member/snap")
    }

    /// Deletes the data of a member that does not run.
    pub(super) fn remove_data(&self, machine: &str) -> Result<()> {
        remove(&data(&self.folder.join(machine)))
    }
}

/// The value of `--initial-cluster` for a member that joins: all members including itself.
pub(super) fn initial_cluster(members: &[etcd::Member], joining: &str) -> String {
    // Only the member that joins has no name yet.
    let members = members.iter().filter_map(|member| {
        let name = if member.name.is_empty() {
            joining
        } else {
            &member.name
        };
        Some(format!("{name}={}", member.peer_urls.first()?))
    });
    members.collect::<Vec<_>>().join(",")
}

/// Whether a member has replaced its database by one that it received. Its folder then has the file of the snapshot,
/// and no longer the database that came with it.
fn has_applied_snapshot(folder: &Path) -> Result<bool> {
    let mut is_received = false;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".snap.db") {
            return Ok(false);
        }
        is_received |= name.ends_with(".snap");
    }
    Ok(is_received)
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        // A member that could not join has no data.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| format!("removing {}", folder.display())),
    }
}
