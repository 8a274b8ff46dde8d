//! The boot of a machine.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use tokio::sync::Mutex;

use super::bootstrap_data::{Action, BootstrapData};
use super::node::{self, ControlPlaneNode, NodeDescription};
use super::workload_cluster::{Certificates, Services, WorkloadCluster};
use crate::cluster_api::Controllers;

pub(super) struct NewMachine<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// The Kubernetes version, with `v`.
    pub(super) version: &'a str,
    pub(super) provider_id: &'a str,
    /// Whether it runs a real kube-controller-manager.
    pub(super) has_controller_manager: bool,
}

impl NewMachine<'_> {
    const fn node(&self) -> NodeDescription<'_> {
        NodeDescription {
            name: self.name,
            provider_id: self.provider_id,
            version: self.version,
        }
    }
}

impl WorkloadCluster {
    /// Does what kubeadm would do, and returns the machine's address.
    pub(super) async fn boot(
        &self,
        machine: &NewMachine<'_>,
        data: &BootstrapData,
        controllers: &Controllers,
    ) -> Result<Ipv4Addr> {
        let address = match data.action()? {
            Action::Init => self.init(machine, data, controllers).await?,
            Action::JoinControlPlane => self.join_member(machine.name).await?,
            Action::JoinWorker => {
                node::create_worker(self.client()?, &machine.node()).await?;
                return Ok(Ipv4Addr::LOCALHOST);
            }
        };
        self.node_allowed().await?;
        ensure!(
            self.machines().await.iter().any(|name| name == machine.name),
            "the machine was deleted before its Node appeared"
        );
        let controller_manager_flags = if machine.has_controller_manager {
            self.start_controller_manager(machine, data).await?
        } else {
            Vec::new()
        };
        let description = ControlPlaneNode {
            node: machine.node(),
            address,
            api_port: self.api_port,
            controller_manager_flags,
        };
        node::create_control_plane(self.client()?, &description).await?;
        Ok(address)
    }

    async fn init(
        &self,
        machine: &NewMachine<'_>,
        data: &BootstrapData,
        controllers: &Controllers,
    ) -> Result<Ipv4Addr> {
        let certificates = Certificates::from_bootstrap_data(data, &self.folder)?;
        let again = self.certificates.set(certificates);
        again.ok().context("this cluster was already initialized")?;
        let address = self.start_first_member(machine.name).await?;
        let (api_server, client) = self.start_api_server().await?;
        let configuration = data.cluster_configuration()?;
        let (kwok, reconnected) = tokio::join!(
            self.prepare_for_nodes(&client, configuration),
            controllers.reconnect(machine.namespace)
        );
        let services = Services {
            client,
            api_server: Mutex::new(api_server),
            _kwok: kwok?,
        };
        self.services
            .set(services)
            .ok()
            .context("this cluster was already initialized")?;
        reconnected?;
        Ok(address)
    }

    async fn prepare_for_nodes(
        &self,
        client: &Client,
        configuration: &str,
    ) -> Result<crate::process::Process> {
        node::create_kubeadm_config(client, configuration).await?;
        self.start_kwok(client).await
    }
}
