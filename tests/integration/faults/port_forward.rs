//! The connection of `kubectl kcp` to a member: Cluster API's Secrets for the cluster, a port-forward to the member's
//! pod, and a client certificate of the etcd CA.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Secret;
use kcp_client::workload::{self, PortForward};
use kcp_etcd::{ClientCertificate, Connection, Endpoint, Error, Tcp, Timeouts, Tls, Trust};
use kcp_tests::addresses::free_port;
use kcp_tests::assets::Assets;
use kcp_tests::etcd::CLIENT_PORT;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::process::Process;
use kcp_tests::wait;
use kube::core::Status;
use kube::{Api, Client};

use super::{NAME, NAMESPACE};

/// For members that answer, however slowly.
const TIMEOUTS: Timeouts = Timeouts {
    dial: Duration::from_secs(60),
    handshake: Duration::from_secs(60),
    call: Duration::from_secs(60),
};

/// For a member that never answers the TLS handshake.
const FROZEN: Timeouts = Timeouts {
    handshake: Duration::from_secs(2),
    ..TIMEOUTS
};

/// The content of Cluster API's Secrets.
struct Access {
    client: Client,
    tls: Tls,
}

impl Access {
    async fn read(client: &Client) -> Result<Self> {
        let kubeconfig = secret(client, "kubeconfig", "value").await?;
        let name = format!("{NAMESPACE}/{NAME}-kubeconfig");
        let authority = secret(client, "etcd", "tls.crt").await?;
        let key = secret(client, "etcd", "tls.key").await?;
        let certificate = ClientCertificate::issue(&authority, &key, SystemTime::now())?;
        Ok(Self {
            client: workload::client(&name, "value", &kubeconfig, TIMEOUTS.call).await?,
            tls: Tls::new(Trust::new(&authority)?, certificate),
        })
    }

    async fn open(&self, machine: &str) -> Result<Connection, Error> {
        self.open_within(machine, TIMEOUTS).await
    }

    async fn open_within(&self, machine: &str, timeouts: Timeouts) -> Result<Connection, Error> {
        let pod = format!("etcd-{machine}");
        let forward = PortForward::new(self.client.clone(), "kube-system", &pod, CLIENT_PORT);
        Connection::open(&Endpoint::new(forward, [machine]), &self.tls, timeouts).await
    }
}

/// Reaches every member. A faulty member has an error of its own and affects no other member.
pub(super) async fn reaches(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    machines: [&str; 3],
) -> Result<()> {
    let access = Access::read(management.client()).await?;
    for machine in machines {
        is_that_member(&access.open(machine).await?, workload, machine).await?;
    }
    let [_, victim, other] = machines;
    reaches_with_kubectl(management, workload, &access, victim).await?;

    workload.inflict(Fault::Freeze, victim).await?;
    let frozen = refusal(&access, victim, FROZEN).await?;
    ensure!(frozen == "TLS handshake: no response within 2 s", "{frozen}");
    access.open(other).await?.status().await?;
    workload.inflict(Fault::Thaw, victim).await?;
    access.open(victim).await?.status().await?;

    workload.inflict(Fault::Kill, victim).await?;
    let killed = refusal(&access, victim, TIMEOUTS).await?;
    let kubelet = "TLS handshake failed: the connection was closed: error forwarding port 2379 to pod ";
    ensure!(
        killed.starts_with(kubelet) && killed.ends_with(":2379: connect: connection refused"),
        "{killed}"
    );
    workload.inflict(Fault::Restart, victim).await?;
    is_that_member(&access.open(victim).await?, workload, victim).await?;

    match access.open("absent").await {
        Err(Error::Dial(error)) => {
            let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
            let not_found = |status: &Status| status.is_not_found();
            ensure!(
                matches!(cause, Some(kube::Error::Api(status)) if not_found(status)),
                "{error:?}"
            );
        }
        other => bail!("{other:?}"),
    }
    Ok(())
}

/// The error of a connection to a machine's member.
async fn refusal(access: &Access, machine: &str, timeouts: Timeouts) -> Result<String> {
    match access.open_within(machine, timeouts).await {
        Ok(connection) => bail!("{machine} answers: {:?}", connection.status().await),
        Err(error) => Ok(error.to_string()),
    }
}

/// Compares the ids over this connection with those over a direct one.
async fn is_that_member(connection: &Connection, workload: &WorkloadCluster, machine: &str) -> Result<()> {
    ensure!(
        connection.server().matches_endpoint_name,
        "{:?}",
        connection.server()
    );
    let status = connection.status().await?;
    let directly = workload.etcd_of(machine).await?.status().await?.header;
    ensure!(
        status.member_id.to_string() == directly.member_id
            && status.cluster_id.to_string() == directly.cluster_id,
        "{status:?} is not of {directly:?}"
    );
    Ok(())
}

async fn reaches_with_kubectl(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    access: &Access,
    machine: &str,
) -> Result<()> {
    let port = free_port()?;
    let arguments = [
        format!("--kubeconfig={}", workload.kubeconfig().display()),
        "--namespace=kube-system".to_owned(),
        "port-forward".to_owned(),
        format!("pod/etcd-{machine}"),
        format!("{port}:{CLIENT_PORT}"),
    ];
    let kubectl = Assets::locate()?.program("kubectl");
    let name = format!("{NAMESPACE}-port-forward");
    let mut process = Process::start::<_, &str>(management.run(), &name, &kubectl, arguments, &[])?;
    let endpoint = Endpoint::new(Tcp(format!("127.0.0.1:{port}")), [machine]);
    let connection = wait::until_served("kubectl forwards the port", &mut process, async || {
        Ok(Connection::open(&endpoint, &access.tls, TIMEOUTS).await?)
    })
    .await?;
    is_that_member(&connection, workload, machine).await?;
    process.stop().await
}

/// A value of one of Cluster API's Secrets for the cluster.
pub(super) async fn secret(client: &Client, purpose: &str, key: &str) -> Result<Vec<u8>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let secret = secrets.get(&format!("{NAME}-{purpose}")).await?;
    let value = secret.data.and_then(|mut data| data.remove(key));
    Ok(value
        .with_context(|| format!("Secret {NAME}-{purpose} has no key {key}"))?
        .0)
}
