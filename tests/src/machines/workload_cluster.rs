//! One workload cluster: its addresses, its certificates and the processes that are its machines.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context as _, Result};
use kube::Client;
use tokio::sync::{Mutex, OnceCell, watch};

use super::bootstrap_data::BootstrapData;
use super::etcd_route::EtcdRoute;
use super::member::Member;
use super::peer_network::PeerNetwork;
use crate::addresses::{MachineAddresses, free_port};
use crate::assets::Assets;
use crate::controller_manager::{ControllerManager, ControllerManagers};
use crate::etcd::{CLIENT_PORT, EtcdClient};
use crate::pki::{Authority, KeyPairFiles, Subject};
use crate::process::Process;
use crate::run::Run;

pub struct WorkloadCluster {
    pub(super) run: Arc<Run>,
    pub(super) assets: Assets,
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) addresses: MachineAddresses,
    pub(super) api_port: u16,
    pub(super) members: Mutex<BTreeMap<String, Member>>,
    /// By machine.
    pub(super) controller_managers: Mutex<BTreeMap<String, ControllerManager>>,
    /// What the controller managers of machines need, from the first of them.
    pub(super) controller_manager_files: OnceCell<ControllerManagers>,
    pub(super) peer_network: Arc<PeerNetwork>,
    pub(super) etcd_route: EtcdRoute,
    /// The programs of members that do not run the etcd of the assets, by machine.
    pub(super) etcd_programs: std::sync::Mutex<BTreeMap<String, PathBuf>>,
    /// The quota of members that start from now on, in bytes. Zero for etcd's default.
    pub(super) etcd_quota: AtomicU64,
    /// Whether learners are promoted when they are in sync.
    pub(super) promotes: watch::Sender<bool>,
    /// Whether machines whose member votes get a Node.
    pub(super) gets_nodes: watch::Sender<bool>,
    /// From the first machine's bootstrap data.
    pub(super) certificates: OnceCell<Certificates>,
    /// From the first machine's boot.
    pub(super) services: OnceCell<Services>,
}

/// What Cluster API generated for the cluster, and what we issued with it.
pub(super) struct Certificates {
    pub(super) authority: Authority,
    pub(super) authority_file: PathBuf,
    pub(super) etcd_authority: Authority,
    pub(super) etcd_authority_file: PathBuf,
    /// A client certificate with all permissions in etcd.
    pub(super) etcd_client: KeyPairFiles,
    pub(super) signing_key: PathBuf,
    pub(super) verification_key: PathBuf,
}

/// The processes that all machines of the cluster share; see `api_server` and `kwok`.
pub(super) struct Services {
    pub(super) client: Client,
    pub(super) api_server: Mutex<Process>,
    pub(super) _kwok: Process,
}

impl WorkloadCluster {
    pub(super) fn new(run: &Arc<Run>, assets: &Assets, namespace: &str, name: &str) -> Result<Self> {
        let name = format!("{namespace}-{name}");
        Ok(Self {
            run: run.clone(),
            assets: assets.clone(),
            folder: run.subfolder(&format!("workload-{name}"))?,
            name,
            addresses: MachineAddresses::find(CLIENT_PORT)?,
            api_port: free_port()?,
            members: Mutex::default(),
            controller_managers: Mutex::default(),
            controller_manager_files: OnceCell::new(),
            peer_network: Arc::default(),
            etcd_route: EtcdRoute::new()?,
            etcd_programs: std::sync::Mutex::default(),
            etcd_quota: AtomicU64::new(0),
            promotes: watch::Sender::new(true),
            gets_nodes: watch::Sender::new(true),
            certificates: OnceCell::new(),
            services: OnceCell::new(),
        })
    }

    /// A client with all permissions in the workload cluster.
    pub fn client(&self) -> Result<&Client> {
        Ok(&self.services()?.client)
    }

    pub(super) fn services(&self) -> Result<&Services> {
        let services = self.services.get();
        services.context("the workload cluster has no machine yet")
    }

    pub(super) fn certificates(&self) -> Result<&Certificates> {
        self.certificates
            .get()
            .context("the workload cluster's first machine has not booted")
    }

    /// A client certificate for etcd with its key, like those that kubeadm stores on each control plane host.
    pub fn etcd_client_files(&self) -> Result<&KeyPairFiles> {
        Ok(&self.certificates()?.etcd_client)
    }

    /// A number that no machine has, and with it an address.
    pub(super) fn free_number(members: &BTreeMap<String, Member>) -> Result<u8> {
        let taken = |number| members.values().any(|member| member.number == number);
        (1..=MachineAddresses::COUNT)
            .find(|number| !taken(*number))
            .with_context(|| format!("all {} addresses are taken", MachineAddresses::COUNT))
    }

    /// A client for a voting member without a fault.
    pub async fn etcd(&self) -> Result<EtcdClient> {
        let member = self.etcd_route.member();
        self.etcd_at(member.with_context(|| format!("every etcd member of {} has a fault", self.name))?)
            .await
    }

    /// The name of the leading member, which is the name of its Machine.
    pub async fn leader(&self) -> Result<String> {
        let etcd = self.etcd().await?;
        let (status, members) = (etcd.status().await?, etcd.members().await?);
        let mut members = members.into_iter();
        let leader = members.find(|member| member.id == status.leader);
        Ok(leader.context("no member leads")?.name)
    }

    /// The flags with which etcdctl reaches a voting member without a fault.
    pub fn etcdctl_flags(&self) -> Result<Vec<String>> {
        let member = self.etcd_route.member();
        let address = member.with_context(|| format!("every etcd member of {} has a fault", self.name))?;
        let certificates = self.certificates()?;
        let flag = |name: &str, file: &Path| format!("--{name}={}", file.display());
        Ok(vec![
            format!("--endpoints=https://{address}:{CLIENT_PORT}"),
            flag("cacert", &certificates.etcd_authority_file),
            flag("cert", &certificates.etcd_client.certificate),
            flag("key", &certificates.etcd_client.key),
        ])
    }

    pub(super) async fn etcd_at(&self, address: Ipv4Addr) -> Result<EtcdClient> {
        let certificates = self.certificates()?;
        EtcdClient::new(
            address,
            &certificates.etcd_authority_file,
            &certificates.etcd_client,
        )
        .await
    }
}

impl Certificates {
    pub(super) fn from_bootstrap_data(data: &BootstrapData, folder: &Path) -> Result<Self> {
        let authority = Authority::load(data.pki("ca.crt")?, data.pki("ca.key")?)?;
        let etcd_authority = Authority::load(data.pki("etcd/ca.crt")?, data.pki("etcd/ca.key")?)?;
        let signing_key = folder.join("sa.key");
        let verification_key = folder.join("sa.pub");
        std::fs::write(&signing_key, data.pki("sa.key")?).context("writing sa.key")?;
        std::fs::write(&verification_key, data.pki("sa.pub")?).context("writing sa.pub")?;
        Ok(Self {
            authority_file: authority.write(folder, "ca")?.certificate,
            etcd_authority_file: etcd_authority.write(folder, "etcd-ca")?.certificate,
            etcd_client: etcd_authority.issue(
                folder,
                "apiserver-etcd-client",
                &Subject {
                    common_name: "kube-apiserver-etcd-client",
                    ..Subject::default()
                },
            )?,
            authority,
            etcd_authority,
            signing_key,
            verification_key,
        })
    }
}

/// The address of everything in a workload cluster except its etcd members.
pub(super) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
