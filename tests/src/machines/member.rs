//! A machine's etcd member, with the certificates and flags that kubeadm gives it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::workload_cluster::{LOOPBACK, WorkloadCluster};
use crate::api_server::NO_ENVIRONMENT;
use crate::etcd::{CLIENT_PORT, METRICS_PORT, PEER_PORT};
use crate::pki::Subject;
use crate::process::Process;
use crate::wait;

/// A first member elects itself in a second.
const START: Duration = Duration::from_secs(30);

/// etcd refuses a new member until its own have been connected for five seconds, and longer while one is
/// being removed.
const JOIN: Duration = Duration::from_secs(60);

/// A member that was started.
pub(super) struct Member {
    /// Which of the cluster's addresses is its own.
    pub(super) number: u8,
    /// False as long as it is a learner.
    pub(super) votes: bool,
    pub(super) process: Process,
}

impl WorkloadCluster {
    /// Starts the first member of a new etcd cluster. Returns the machine's address.
    pub(super) async fn start_first_member(&self, machine: &str) -> Result<Ipv4Addr> {
        let mut members = self.members.lock().await;
        let number = Self::free_number(&members)?;
        let address = self.addresses.machine(number);
        let alone = format!("{machine}={}", peer_url(address));
        let mut process = self.start_etcd(machine, address, &alone, "new")?;
        let etcd = self.etcd_at(address).await?;
        let what = format!("the first etcd member of {} leads", self.name);
        wait::until_served(&what, START, &mut process, || etcd.has_leader()).await?;
        members.insert(
            machine.to_owned(),
            Member {
                number,
                votes: true,
                process,
            },
        );
        Ok(address)
    }

    /// Adds a member the way kubeadm does: as a learner, which is promoted once it is in sync. Returns the
    /// machine's address.
    pub(super) async fn join_member(&self, machine: &str) -> Result<Ipv4Addr> {
        let number = Self::free_number(&*self.members.lock().await)?;
        let address = self.addresses.machine(number);
        let added = wait::until("etcd accepts another member", JOIN, || async {
            self.etcd().await?.add_learner(&peer_url(address)).await
        })
        .await?;
        // A member that has not started has no name yet: that is this one.
        let members = added.members.iter().filter_map(|member| {
            let name = if member.name.is_empty() {
                machine
            } else {
                &member.name
            };
            Some(format!("{name}={}", member.peer_urls.first()?))
        });
        let members = members.collect::<Vec<_>>().join(",");
        let process = self.start_etcd(machine, address, &members, "existing")?;
        let member = Member {
            number,
            votes: false,
            process,
        };
        self.members.lock().await.insert(machine.to_owned(), member);
        let id = &added.member.id;
        wait::until("etcd promotes the learner", JOIN, || async {
            self.etcd().await?.promote(id).await
        })
        .await?;
        if let Some(member) = self.members.lock().await.get_mut(machine) {
            member.votes = true;
        }
        Ok(address)
    }

    fn start_etcd(&self, machine: &str, address: Ipv4Addr, members: &str, state: &str) -> Result<Process> {
        let certificates = self.certificates()?;
        let folder = self.folder.join(machine);
        let subject = Subject {
            common_name: machine,
            names: &[machine, "localhost"],
            addresses: &[IpAddr::V4(address), LOOPBACK],
            ..Subject::default()
        };
        let server = certificates.etcd_authority.issue(&folder, "server", &subject)?;
        let peer = certificates.etcd_authority.issue(&folder, "peer", &subject)?;
        let authority = certificates.etcd_authority_file.display();
        let clients = format!("https://{address}:{CLIENT_PORT}");
        let peers = peer_url(address);
        let arguments = [
            format!("--name={machine}"),
            format!("--data-dir={}", folder.join("data").display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
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
            "--unsafe-no-fsync=true".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        let log = format!("{}-etcd-{machine}", self.name);
        Process::start(
            &self.run,
            &log,
            &self.assets.program("etcd"),
            arguments,
            NO_ENVIRONMENT,
        )
    }

    /// Ends a machine's member, if it has one, and removes what it stored.
    pub(super) async fn stop_member(&self, machine: &str) -> Result<()> {
        // Its address stays taken until its process is gone.
        let mut members = self.members.lock().await;
        if let Some(member) = members.remove(machine) {
            member.process.stop().await?;
            let folder = self.folder.join(machine);
            std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        Ok(())
    }
}

fn peer_url(address: Ipv4Addr) -> String {
    format!("https://{address}:{PEER_PORT}")
}
