//! What `status` reads of a workload cluster and its etcd: everything of a healthy cluster, and an error for each fault
//! of the access to it.

mod broken_server;
mod reader;

use std::future::ready;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kcp_api::metadata::Object as _;
use kcp_client::reads::{self, Excluded, MachineByNode, WorkloadTarget};
use kcp_client::{Connection, ConnectionFlags};
use kcp_control_plane::snapshot::{
    EndpointCertificate, EtcdMembers, EtcdSurvey, Failure, Reading, Snapshot, Workload,
    etcd::{Alarms, QueriedMember},
    workload::{Component, KubeadmConfigMap, Node, StaticPod},
};
use kcp_tests::addresses::free_port;
use kcp_tests::cluster::Cluster;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::pki::{Authority, Subject};
use kcp_tests::wait;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use self::broken_server::{Behavior, BrokenServer};
use crate::shared::with_controllers;

const NAMESPACE: &str = "status-workload";

/// The name of the cluster.
const NAME: &str = "edge";

const VERSION: &str = "v1.34.2";

/// For reads that no server delays, on a machine of any speed.
const TIMEOUT: Duration = Duration::from_secs(120);

/// For reads that wait for a server that never answers.
const SHORT_TIMEOUT: Duration = Duration::from_secs(4);

/// The command's default, for reads that need answers while one server never answers.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// A read ends within its timeout. The rest is for a busy machine to notice.
const TOLERANCE: Duration = Duration::from_secs(10);

#[test]
fn a_workload_cluster_and_its_etcd_are_read() {
    with_controllers(NAMESPACE, reads);
}

async fn reads(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, VERSION).await?;
    cluster.settled(3).await?;
    let mut machines = cluster.machines().await?;
    machines.sort();
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let observer = Observer::find(management).await?;

    observer.is_read_whole(&workload, &machines).await?;
    reader::needs_each_permission(&observer, management).await?;
    observer.reports_faults_of_a_kubeconfig().await?;
    observer.reports_faults_of_a_server().await?;
    observer.reports_a_wrong_authority(management, &machines).await?;
    observer.uses_a_given_certificate(management).await?;
    observer.waits_for_no_member(&workload, &machines).await?;
    cluster.delete().await
}

/// A user with the management cluster's kubeconfig, and the control plane that the user reads.
struct Observer {
    connection: Connection,
    secrets: Api<Secret>,
    snapshot: Snapshot,
    target: WorkloadTarget,
    machines: MachineByNode,
}

type Read = (
    Reading<Workload>,
    Reading<EndpointCertificate>,
    Reading<EtcdSurvey>,
);

impl Observer {
    async fn find(management: &ManagementCluster) -> Result<Self> {
        let flags = ConnectionFlags {
            kubeconfig: Some(management.kubectl().kubeconfig().to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ConnectionFlags::default()
        };
        let connection = Connection::open(&flags, None).await?;
        let limit = reads::limit_per_control_plane(TIMEOUT);
        let reader = reads::discover(&connection, limit).await?;
        let snapshot = reads::read_from_management(&reader, NAMESPACE, NAME, limit).await?;
        let target =
            WorkloadTarget::new(&snapshot.control_plane).context("the control plane has no Cluster")?;
        let machines = snapshot.machines.iter();
        Ok(Self {
            machines: machines
                .filter_map(|machine| Some((machine.node()?.to_owned(), machine.name().to_owned())))
                .collect(),
            connection,
            secrets: Api::namespaced(management.client().clone(), NAMESPACE),
            target,
            snapshot,
        })
    }

    /// Reads the cluster with the Secrets of another cluster name. Fails if that takes longer than the timeout.
    async fn read_as(&self, cluster: &str, timeout: Duration) -> Result<Read> {
        let target = WorkloadTarget {
            cluster: cluster.to_owned(),
            ..self.target.clone()
        };
        let began = Instant::now();
        let machines = ready(self.machines.clone());
        let (excluded, end) = (Excluded::default(), began + timeout);
        let read = reads::read_workload_and_etcd(&self.connection, &target, machines, excluded, end).await;
        let taken = began.elapsed();
        ensure!(taken <= timeout + TOLERANCE, "{cluster}: reading took {taken:?}");
        Ok(read)
    }

    async fn secret(&self, purpose: &str, key: &str) -> Result<Vec<u8>> {
        let secret = self.secrets.get(&format!("{NAME}-{purpose}")).await?;
        let value = secret.data.and_then(|mut data| data.remove(key));
        Ok(value
            .with_context(|| format!("{NAME}-{purpose} has no key {key}"))?
            .0)
    }

    async fn create_secret(&self, cluster: &str, purpose: &str, data: &[(&str, &[u8])]) -> Result<()> {
        let data = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec())));
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(format!("{cluster}-{purpose}")),
                ..ObjectMeta::default()
            },
            data: Some(data.collect()),
            ..Secret::default()
        };
        self.secrets.create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    async fn is_read_whole(&self, workload: &WorkloadCluster, machines: &[String]) -> Result<()> {
        let ready = |nodes: &[Node]| nodes.iter().all(|node| node.ready == Some(true));
        let (read, certificate, etcd) = wait::until("all Nodes are ready", || async {
            let (read, certificate, etcd) = self.read_as(NAME, TIMEOUT).await?;
            let nodes = read.value().and_then(|read| read.nodes.value());
            ensure!(nodes.is_some_and(|nodes| ready(nodes)), "{read:?}");
            Ok((read, certificate, etcd))
        })
        .await?;
        let Reading::Read(read) = read else {
            bail!("{read:?}");
        };
        let node = |name: &String| Node {
            name: name.clone(),
            kubelet_version: VERSION.to_owned(),
            ready: Some(true),
            ready_since: None,
            has_control_plane_label: true,
            has_control_plane_taint: true,
            is_unreachable: false,
            problems: Vec::new(),
            taints: vec!["node-role.kubernetes.io/control-plane:NoSchedule".to_owned()],
            created: None,
            provider_id: None,
            machine: None,
            etcd_images: Vec::new(),
        };
        // The API server sets the creation time, kwok the time of the condition, and the machine the providerID. Cluster API
        // records the Machine.
        let nodes: Option<Vec<Node>> = read.nodes.value().map(|nodes| {
            let nodes = nodes.iter().cloned();
            nodes
                .map(|node| Node {
                    created: None,
                    ready_since: None,
                    provider_id: None,
                    machine: None,
                    ..node
                })
                .collect()
        });
        ensure!(nodes == Some(machines.iter().map(node).collect()), "{read:?}");
        let pods = [
            Component::Etcd,
            Component::ApiServer,
            Component::ControllerManager,
            Component::Scheduler,
        ]
        .into_iter()
        .flat_map(|component| {
            machines.iter().map(move |node| StaticPod {
                component,
                node: node.clone(),
                phase: "Running".to_owned(),
                ready: true,
                ready_since: None,
                is_deleting: false,
                message: None,
                restarts: 0,
                last_exit: None,
                crash_loop: None,
                forces_new_cluster: false,
            })
        });
        let read_pods: Option<Vec<StaticPod>> = read.static_pods.value().map(|pods| {
            let pods = pods.iter().cloned();
            pods.map(|pod| StaticPod {
                ready_since: None,
                ..pod
            })
            .collect()
        });
        ensure!(read_pods == Some(pods.collect()), "{read:?}");
        // The stand-in machines have neither controllers nor addons.
        ensure!(read.kube_proxy == Reading::Read(None), "{read:?}");
        ensure!(read.core_dns == Reading::Read(None), "{read:?}");
        ensure!(read.leases == Reading::Read(Vec::new()), "{read:?}");
        ensure!(
            read.kubeadm_config
                == Reading::Read(KubeadmConfigMap::Usable {
                    version: Some(VERSION.to_owned())
                }),
            "{read:?}"
        );
        ensure!(read.server.starts_with("https://127.0.0.1:"), "{read:?}");
        let expires = certificate.value().context("no certificate")?;
        ensure!(is_in_a_year(expires.expires_at)?, "{expires:?}");
        self.is_surveyed(etcd, workload, machines).await
    }

    async fn is_surveyed(
        &self,
        etcd: Reading<EtcdSurvey>,
        workload: &WorkloadCluster,
        machines: &[String],
    ) -> Result<()> {
        let Reading::Read(survey) = etcd else {
            bail!("{etcd:?}");
        };
        ensure!(survey.stacked && survey.used_ca_key, "{survey:?}");
        ensure!(survey.alarms == Alarms::Listed(Vec::new()), "{survey:?}");
        ensure!(survey.queried.len() == machines.len(), "{survey:?}");
        let mut leaders = Vec::new();
        for (asked, machine) in survey.queried.iter().zip(machines) {
            ensure!(
                asked.name == *machine && asked.machine.as_ref() == Some(machine),
                "{asked:?}"
            );
            let answer = asked.response.as_ref().map_err(unexpected)?;
            let status = answer.status.as_ref().map_err(unexpected)?;
            let directly = workload.etcd_of(machine).await?.status().await?;
            ensure!(
                status.member_id.to_string() == directly.header.member_id,
                "{status:?}"
            );
            ensure!(
                status.cluster_id.to_string() == directly.header.cluster_id,
                "{status:?}"
            );
            ensure!(!status.is_learner && status.errors.is_empty(), "{status:?}");
            leaders.push(status.leader);
            let members = answer.members.as_ref().map_err(unexpected)?;
            let mut names: Vec<_> = members.members.iter().map(|member| &member.name).collect();
            names.sort();
            ensure!(names == machines.iter().collect::<Vec<_>>(), "{members:?}");
            ensure!(answer.has_matching_name, "{answer:?}");
            let expires = answer.certificate_expires_at.context("no certificate")?;
            ensure!(is_in_a_year(expires)?, "{expires}");
        }
        leaders.dedup();
        let [Some(_)] = leaders.as_slice() else {
            bail!("the leaders are {leaders:?}");
        };
        let EtcdMembers::Read(members) = survey.members(&[]) else {
            bail!("{survey:?}");
        };
        let mut names: Vec<_> = members.iter().map(|member| member.name.clone()).collect();
        names.sort();
        ensure!(names == machines, "{members:?}");
        ensure!(
            members.iter().filter(|member| member.is_leader).count() == 1,
            "{members:?}"
        );
        Ok(())
    }

    async fn reports_faults_of_a_kubeconfig(&self) -> Result<()> {
        let authority = [("tls.crt", self.secret("etcd", "tls.crt").await?)];
        let authority = authority.each_ref().map(|(key, value)| (*key, value.as_slice()));
        let nowhere = kubeconfig(&format!("https://127.0.0.1:{}", free_port()?));
        let outside =
            kubeconfig("https://127.0.0.1:1").replace("user: {}", "user: {tokenFile: /etc/hostname}");
        let unusable = |cluster: &str, fault: &str| {
            format!(
                "cannot use the kubeconfig in key \"value\" of Secret {NAMESPACE}/{cluster}-kubeconfig: \
                 {fault}"
            )
        };
        let cases: [(&str, &str, &[u8], String); 4] = [
            (
                "keyless",
                "wrong",
                b"",
                "the Secret has no key \"value\"".to_owned(),
            ),
            (
                "garbage",
                "value",
                b"\xff{]",
                unusable("garbage", "not a valid kubeconfig"),
            ),
            (
                "outside",
                "value",
                outside.as_bytes(),
                unusable(
                    "outside",
                    "the kubeconfig refers to a token file, which is not allowed; embed certificates, keys and tokens in the \
                     kubeconfig",
                ),
            ),
            (
                "nowhere",
                "value",
                nowhere.as_bytes(),
                "cannot reach the API server at ".to_owned(),
            ),
        ];
        for (cluster, key, value, message) in cases {
            self.create_secret(cluster, "kubeconfig", &[(key, value)]).await?;
            self.create_secret(cluster, "etcd", &authority).await?;
            self.create_secret(cluster, "apiserver-etcd-client", &[]).await?;
            self.says(cluster, TIMEOUT, &message).await?;
        }
        let missing = format!("not found in namespace {NAMESPACE}");
        self.says("missing", TIMEOUT, &missing).await
    }

    async fn reports_faults_of_a_server(&self) -> Result<()> {
        let lists = "cannot list nodes in all namespaces: ";
        for (cluster, behavior, timeout, message) in [
            (
                "failing",
                Behavior::Fails,
                TIMEOUT,
                format!("{lists}the server responded with 500: an HTML page"),
            ),
            (
                "hanging",
                Behavior::Hangs,
                SHORT_TIMEOUT,
                format!("{lists}no response from http://127.0.0.1:"),
            ),
            (
                "flooding",
                Behavior::Floods,
                TIMEOUT,
                format!("{lists}no response from http://127.0.0.1:"),
            ),
        ] {
            let server = BrokenServer::start(behavior).await?;
            let kubeconfig = kubeconfig(&server.url());
            self.create_secret(cluster, "kubeconfig", &[("value", kubeconfig.as_bytes())])
                .await?;
            self.says(cluster, timeout, &message).await?;
            if matches!(behavior, Behavior::Floods) {
                let (workload, _, _) = self.read_as(cluster, TIMEOUT).await?;
                let failure = workload.failure().context("it did not fail")?;
                ensure!(
                    failure.message.ends_with(": the response is larger than 32 MiB"),
                    "{failure:?}"
                );
            }
        }
        Ok(())
    }

    /// Checks that the error names the kubeconfig's Secret, that its message starts with this, and that nothing else is
    /// read.
    async fn says(&self, cluster: &str, timeout: Duration, message: &str) -> Result<()> {
        let (workload, _, etcd) = self.read_as(cluster, timeout).await?;
        let failure = workload.failure().with_context(|| format!("{workload:?}"))?;
        ensure!(
            failure.object == format!("Secret/{cluster}-kubeconfig"),
            "{failure:?}"
        );
        ensure!(
            failure.message.starts_with(message),
            "{failure:?} does not start with {message}"
        );
        ensure!(etcd.failure().is_some(), "{etcd:?}");
        Ok(())
    }

    async fn reports_a_wrong_authority(
        &self,
        management: &ManagementCluster,
        machines: &[String],
    ) -> Result<()> {
        let kubeconfig = self.secret("kubeconfig", "value").await?;
        self.create_secret("stranger", "kubeconfig", &[("value", &kubeconfig)])
            .await?;
        let authority = Authority::new("etcd-ca")?;
        let folder = management.run().subfolder("strange-etcd-authority")?;
        let files = authority.write(&folder, "stranger")?;
        let key = std::fs::read(&files.key)?;
        let pair = [("tls.crt", authority.certificate().as_bytes()), ("tls.key", &key)];
        self.create_secret("stranger", "etcd", &pair).await?;
        let (workload, _, etcd) = self.read_as("stranger", TIMEOUT).await?;
        ensure!(workload.value().is_some(), "{workload:?}");
        let survey = etcd.value().with_context(|| format!("{etcd:?}"))?;
        ensure!(survey.alarms == Alarms::FromStatus, "{survey:?}");
        let refused = |machine: &String| {
            QueriedMember {
            name: machine.clone(),
            machine: Some(machine.clone()),
            certificate_expired_at: None,
            response: Err(Failure {
                object: "Secret/stranger-etcd".to_owned(),
                message: "contains a CA that did not issue the certificate of any etcd member, so neither this command nor \
                          Cluster API can connect to etcd"
                    .to_owned(),
                hint: Some(
                    "put etcd's CA back into the keys tls.crt and tls.key of the Secret: on every control plane node, it is in \
                     /etc/kubernetes/pki/etcd/ca.crt and ca.key"
                        .to_owned(),
                ),
                is_unusable_secret: true,
                ..Failure::default()
            }),
        }
        };
        ensure!(
            survey.queried == machines.iter().map(refused).collect::<Vec<_>>(),
            "{survey:?}"
        );
        Ok(())
    }

    /// Without the CA's key, a client certificate is given in a Secret.
    async fn uses_a_given_certificate(&self, management: &ManagementCluster) -> Result<()> {
        let kubeconfig = self.secret("kubeconfig", "value").await?;
        let certificate = self.secret("etcd", "tls.crt").await?;
        let key = self.secret("etcd", "tls.key").await?;
        let authority = Authority::load(&String::from_utf8(certificate.clone())?, &String::from_utf8(key)?)?;
        let folder = management.run().subfolder("given-etcd-client")?;
        let client = authority.issue(
            &folder,
            "client",
            &Subject {
                common_name: "kube-apiserver-etcd-client",
                ..Subject::default()
            },
        )?;
        let (client_certificate, client_key) =
            (std::fs::read(client.certificate)?, std::fs::read(client.key)?);
        self.create_secret("given", "kubeconfig", &[("value", &kubeconfig)])
            .await?;
        self.create_secret("given", "etcd", &[("tls.crt", &certificate)])
            .await?;
        let pair = [
            ("tls.crt", client_certificate.as_slice()),
            ("tls.key", client_key.as_slice()),
        ];
        self.create_secret("given", "apiserver-etcd-client", &pair)
            .await?;
        let (_, _, etcd) = self.read_as("given", TIMEOUT).await?;
        let survey = etcd.value().with_context(|| format!("{etcd:?}"))?;
        ensure!(!survey.used_ca_key, "{survey:?}");
        for asked in &survey.queried {
            let answer = asked.response.as_ref().map_err(unexpected)?;
            answer.status.as_ref().map_err(unexpected)?;
        }
        Ok(())
    }

    /// A member that accepts connections but never answers affects no other member.
    async fn waits_for_no_member(&self, workload: &WorkloadCluster, machines: &[String]) -> Result<()> {
        let [_, frozen, _] = machines else {
            bail!("the Machines are {machines:?}");
        };
        workload.inflict(Fault::Freeze, frozen).await?;
        // On a busy machine the other members may need several tries to answer within their share of the timeout.
        wait::until("all members but the frozen one answer", || async {
            let (_, _, etcd) = self.read_as(NAME, DEFAULT_TIMEOUT).await?;
            let survey = etcd.value().with_context(|| format!("{etcd:?}"))?;
            survey
                .queried
                .iter()
                .try_for_each(|asked| answers_unless(asked, frozen))
        })
        .await?;
        workload.inflict(Fault::Thaw, frozen).await
    }
}

/// Whether a member answered, except for the frozen one, which must not.
fn answers_unless(asked: &QueriedMember, frozen: &str) -> Result<()> {
    match &asked.response {
        Err(failure) if asked.name == frozen => {
            ensure!(
                failure.message.starts_with("TLS handshake: no response within ") && failure.hint.is_some(),
                "{failure:?}"
            );
        }
        Ok(answer) if asked.name != frozen => {
            answer.status.as_ref().map_err(unexpected)?;
            answer.members.as_ref().map_err(unexpected)?;
        }
        _ => bail!("{asked:?}"),
    }
    Ok(())
}

fn kubeconfig(server: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: '{server}'}}}}], users: [{{name: u, user: {{}}}}]}}"
    )
}

/// The validity of the stand-in machines' certificates, give or take the end of a month.
fn is_in_a_year(time: Timestamp) -> Result<bool> {
    let days = |days: i64| Timestamp::now().checked_add((24 * days).hours());
    Ok(days(360)? < time && time < days(366)?)
}

fn unexpected(failure: &Failure) -> anyhow::Error {
    anyhow::anyhow!("{failure:?}")
}
