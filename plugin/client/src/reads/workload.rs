//! Reads the workload cluster through the kubeconfig that Cluster API stores for it. Each part is read separately.

pub mod failure;
pub mod objects;

use std::time::{Duration, Instant};

use http::Request;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    coordination::v1::Lease,
    core::v1::{self, ConfigMap, Pod},
};
use kube::api::ListParams;
use tokio::{sync::oneshot, time::timeout};

pub use crate::reads::workload::failure::{ExpiredCertificate, FailureContext};
use crate::reads::{
    certificates::client_certificate_expiry, failure::one_line, secret::Secrets, time_limits,
};
use crate::{
    Connection, Error,
    workload::{
        ApiServer, ComponentResponse, ComponentServer, KubeconfigError, Objects, api_server,
        kubeconfig::portable,
    },
};
use kcp_api::{KubeadmControlPlane, Secret};
use kcp_control_plane::snapshot::{
    EndpointCertificate, Failure, Reading, Workload,
    workload::{Addon, Component, ControllerLease, JoinReport, KubeadmConfigMap, Node, StaticPod},
};

/// The namespace into which kubeadm installs all its objects.
pub const KUBE_SYSTEM: &str = "kube-system";

/// The namespace of the Leases of kubelets.
pub const NODE_LEASES: &str = "kube-node-lease";

/// The leader election Leases of kube-controller-manager and kube-scheduler.
pub(super) const LEASES: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// The suffix of the Secret with the workload cluster's kubeconfig.
const KUBECONFIG_SECRET: &str = "kubeconfig";
const KUBECONFIG_KEY: &str = "value";

/// The result of reading the nodes. The etcd query waits for it.
#[derive(Debug)]
pub enum Nodes {
    Read(Vec<Node>),
    Unread,
    /// The workload cluster's API server cannot be reached at all.
    NoServer(Failure),
}

/// A workload cluster whose kubeconfig has been read.
#[derive(Clone)]
pub struct WorkloadCluster {
    pub server: ApiServer,
    pub failures: FailureContext,
    pub(super) objects: Objects,
    pub(super) limit: Duration,
    /// How a person runs kubectl against this cluster.
    kubectl: String,
}

/// Reads the kubeconfig of the workload cluster for another program, as JSON. It refers to no local file or program.
pub async fn read_kubeconfig(
    management: &Connection,
    control_plane: &KubeadmControlPlane,
    end: Instant,
) -> Result<Vec<u8>, Failure> {
    let secrets = Secrets::of_control_plane(management, control_plane, end)?;
    let secret = secrets.read(KUBECONFIG_SECRET).await?;
    let kubeconfig = portable(
        &full_name(&secrets),
        KUBECONFIG_KEY,
        kubeconfig(&secrets, &secret)?,
    );
    kubeconfig.map_err(|error| unusable(&secrets, &secret, &error))
}

fn full_name(secrets: &Secrets<'_>) -> String {
    format!("{}/{}", secrets.namespace, secrets.name(KUBECONFIG_SECRET))
}

#[expect(clippy::result_large_err, reason = "the failure is moved into a report")]
fn kubeconfig<'s>(secrets: &Secrets<'_>, secret: &'s Secret) -> Result<&'s [u8], Failure> {
    secret.value(KUBECONFIG_KEY).ok_or_else(|| {
        let message = format!("the Secret has no key {KUBECONFIG_KEY:?}");
        secrets.unusable_failure(KUBECONFIG_SECRET, message)
    })
}

fn unusable(secrets: &Secrets<'_>, secret: &Secret, error: &KubeconfigError) -> Failure {
    Failure {
        hint: Some(renewal_hint(secrets, secret.is_managed_by_control_plane())),
        // client-go accepts kubeconfigs that this program does not accept, so Cluster API may still be able to use the Secret.
        is_unusable_secret: false,
        ..secrets.unusable_failure(KUBECONFIG_SECRET, error.to_string())
    }
}

impl WorkloadCluster {
    /// Reads the kubeconfig of the workload cluster. Sends no request to the workload cluster itself.
    pub async fn open(secrets: &Secrets<'_>) -> Result<Self, Failure> {
        let secret = secrets.read(KUBECONFIG_SECRET).await?;
        let time_left = time_limits::remaining(secrets.end);
        let kubeconfig = kubeconfig(secrets, &secret)?;
        let server = api_server(&full_name(secrets), KUBECONFIG_KEY, kubeconfig, time_left)
            .await
            .map_err(|error| unusable(secrets, &secret, &error))?;
        let limit = time_limits::for_workload(time_left);
        let (client, url) = (server.client.clone(), server.url.clone());
        let cluster = secrets.management.with_client(client, url, secrets.kubectl());
        Ok(Self {
            objects: Objects::new(cluster, limit),
            failures: FailureContext {
                kubeconfig: secrets.name(KUBECONFIG_SECRET),
                expired: expired_certificate(secrets, &secret, kubeconfig),
            },
            server,
            limit,
            kubectl: secrets.kubectl(),
        })
    }

    /// A connection to the workload cluster, with the settings of the connection to the management cluster.
    pub(super) fn connection(&self, management: &Connection) -> Connection {
        let ApiServer { client, url, .. } = &self.server;
        management.with_client(client.clone(), url.clone(), self.kubectl.clone())
    }

    /// Reads all parts of the workload cluster at the same time. Sends the nodes on `nodes_known` as soon as they have
    /// been read.
    pub async fn read(
        &self,
        nodes_known: oneshot::Sender<Nodes>,
    ) -> (Reading<Workload>, Reading<EndpointCertificate>) {
        let nodes = async {
            let nodes = self.nodes().await;
            // Sending fails only if etcd is not queried.
            let _ = nodes_known.send(match &nodes {
                Ok(nodes) => Nodes::Read(nodes.clone()),
                Err(error) if fails_every_request(error) => {
                    Nodes::NoServer(self.failures.describe("Node", error))
                }
                Err(_) => Nodes::Unread,
            });
            nodes
        };
        let (
            endpoint_certificate,
            nodes,
            static_pods,
            kube_proxy,
            core_dns,
            kubeadm_config,
            leases,
            join_reports,
        ) = tokio::join!(
            Box::pin(self.endpoint_certificate()),
            Box::pin(nodes),
            Box::pin(self.static_pods()),
            Box::pin(self.kube_proxy()),
            Box::pin(self.core_dns()),
            Box::pin(self.objects.get::<ConfigMap>(KUBE_SYSTEM, "kubeadm-config")),
            Box::pin(self.leases()),
            Box::pin(self.join_reports()),
        );
        if let Err(error) = &nodes
            && !matches!(error, Error::Forbidden { .. })
            && static_pods.is_err()
            && kube_proxy.is_err()
            && core_dns.is_err()
            && kubeadm_config.is_err()
            && leases.is_err()
        {
            return (
                Reading::Failed(self.failures.describe_all(error)),
                endpoint_certificate,
            );
        }
        let workload = Workload {
            server: self.server.url.clone(),
            nodes: self.reading_of("Node", nodes),
            static_pods: self.reading_of("Pod", static_pods),
            kube_proxy: self.reading_of("DaemonSet/kube-proxy", kube_proxy),
            core_dns: self.reading_of("Deployment/coredns", core_dns),
            kubeadm_config: self.kubeadm_config(kubeadm_config),
            leases: self.reading_of("Lease", leases),
            join_reports: join_reports.unwrap_or_default(),
            connection_risks: self.server.risks.clone(),
        };
        (Reading::Read(workload), endpoint_certificate)
    }

    /// Asks the API server's `/livez` whether etcd fails to respond. The API server responds within two seconds even
    /// without etcd.
    pub async fn reports_etcd_failure(&self) -> bool {
        let Ok(request) = Request::get("/livez?verbose").body(Vec::new()) else {
            return false;
        };
        let asked = timeout(self.limit, self.server.client.request_text(request)).await;
        matches!(asked, Ok(Err(kube::Error::Api(status))) if objects::reports_failed_etcd(&status.message))
    }

    async fn nodes(&self) -> Result<Vec<Node>, Error> {
        self.objects
            .list(None, &ListParams::default(), |node: v1::Node| {
                Some(objects::node(node))
            })
            .await
    }

    async fn static_pods(&self) -> Result<Vec<StaticPod>, Error> {
        let components = Component::ALL.map(Component::as_str).join(",");
        let selector = format!("tier=control-plane,component in ({components})");
        let filter = ListParams::default().labels(&selector);
        self.objects
            .list(Some(KUBE_SYSTEM), &filter, |pod: Pod| objects::static_pod(pod))
            .await
    }

    async fn kube_proxy(&self) -> Result<Option<Addon>, Error> {
        let object: Option<DaemonSet> = Box::pin(self.objects.get(KUBE_SYSTEM, "kube-proxy")).await?;
        Ok(object.map(objects::daemon_set_addon))
    }

    async fn core_dns(&self) -> Result<Option<Addon>, Error> {
        let (object, config) = tokio::join!(
            Box::pin(self.objects.get::<Deployment>(KUBE_SYSTEM, "coredns")),
            Box::pin(self.objects.get::<ConfigMap>(KUBE_SYSTEM, "coredns")),
        );
        // A ConfigMap that could not be read counts as existing, as kubeadm creates it.
        let lacks_config = matches!(config, Ok(None));
        Ok(object?.map(|object| objects::deployment_addon(object, lacks_config)))
    }

    async fn leases(&self) -> Result<Vec<ControllerLease>, Error> {
        let [first, second] = LEASES;
        let (first, second) = tokio::join!(
            self.objects.get::<Lease>(KUBE_SYSTEM, first),
            self.objects.get::<Lease>(KUBE_SYSTEM, second)
        );
        Ok([first?, second?]
            .into_iter()
            .flatten()
            .map(objects::lease)
            .collect())
    }

    async fn join_reports(&self) -> Result<Vec<JoinReport>, Error> {
        let filter = ListParams::default();
        self.objects
            .list(Some(JoinReport::NAMESPACE), &filter, objects::join_report)
            .await
    }

    async fn endpoint_certificate(&self) -> Reading<EndpointCertificate> {
        let failed = |message| {
            Reading::Failed(Failure {
                object: self.server.url.clone(),
                message,
                hint: None,
                ..Failure::default()
            })
        };
        match timeout(self.limit, self.server.certificate.read_expiry()).await {
            Ok(Ok(expires)) => Reading::Read(EndpointCertificate {
                server: self.server.url.clone(),
                expires_at: expires,
            }),
            Ok(Err(error)) => failed(error.to_string()),
            Err(_) => {
                failed("the API server did not present its certificate within the time limit".to_owned())
            }
        }
    }

    fn kubeadm_config(&self, config: Result<Option<ConfigMap>, Error>) -> Reading<KubeadmConfigMap> {
        self.reading_of("ConfigMap/kubeadm-config", config)
            .map(|config| objects::kubeadm_config(config.as_ref()))
    }

    fn reading_of<T>(&self, object: &str, read: Result<T, Error>) -> Reading<T> {
        match read {
            Ok(part) => Reading::Read(part),
            Err(error) => Reading::Failed(self.failures.describe(object, &error)),
        }
    }
}

/// Says how to get a new kubeconfig. Tells the user to back up the old one first, because it may be the only
/// access to the cluster.
fn renewal_hint(secrets: &Secrets<'_>, is_managed: bool) -> String {
    if is_managed {
        format!(
            "back up the Secret, then run: kubectl delete secret {} -n {}; then let the control plane controller create \
             it again, with the CA key in Secret {}: {}",
            secrets.name(KUBECONFIG_SECRET),
            secrets.namespace,
            secrets.name("ca"),
            secrets.reconcile()
        )
    } else {
        "back up the Secret before you replace it: the control plane controller did not create it and does not \
         recreate it"
            .to_owned()
    }
}

/// The client certificate of a kubeconfig, if it has expired.
fn expired_certificate(
    secrets: &Secrets<'_>,
    secret: &Secret,
    kubeconfig: &[u8],
) -> Option<ExpiredCertificate> {
    let read_at = secrets.management.now();
    let expired_at = client_certificate_expiry(kubeconfig).filter(|expires| *expires <= read_at)?;
    Some(ExpiredCertificate {
        expired_at,
        read_at,
        renewal: renewal_hint(secrets, secret.is_managed_by_control_plane()),
    })
}

/// Whether all requests to this server would fail with the same error.
pub(super) const fn fails_every_request(error: &Error) -> bool {
    matches!(
        error,
        Error::Unreachable { .. }
            | Error::Tls { .. }
            | Error::Unauthorized { .. }
            | Error::Credentials { .. }
    )
}

/// The text that a component responds with on a path; otherwise why there is none.
pub async fn get_text(server: &ComponentServer<'_>, path: &str, accept: &str) -> Result<String, String> {
    match server.get(path, accept).await {
        Ok(ComponentResponse { code: 200, text }) => Ok(text),
        Ok(ComponentResponse { code, .. }) => Err(http_error(path, code)),
        Err(error) => Err(one_line(&error.to_string())),
    }
}

/// Describes a response of a component with a code other than 200.
pub fn http_error(path: &str, code: u16) -> String {
    match code {
        401 => format!("GET {path}: the server rejected the client certificate of the kubeconfig"),
        403 => format!("GET {path}: forbidden; the user needs the verb get on the nonResourceURL {path}"),
        404 => format!("GET {path}: not served"),
        code => format!("GET {path}: the server responded with {code}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use http::Method;
    use serde_json::{Value, json};
    use tokio::sync::oneshot;

    use super::{
        ApiServer, Component, EndpointCertificate, Failure, FailureContext, KubeadmConfigMap, Node, Nodes,
        Objects, Reading, Secrets, StaticPod, Workload, WorkloadCluster,
    };
    use crate::{
        Connection, ServerClock,
        testing::failure,
        workload::{ComponentTls, ServingCertificate},
    };

    /// A cluster with a fake API server, at whose URL no process listens.
    fn cluster(answer: impl Fn(&Method, &str) -> (u16, Value) + Send + 'static) -> WorkloadCluster {
        let connection = Connection::canned(answer);
        let limit = Duration::from_secs(10);
        WorkloadCluster {
            server: ApiServer {
                client: connection.client.clone(),
                url: "https://s".to_owned(),
                certificate: ServingCertificate::new("http://s".parse().expect("a URL")),
                clock: ServerClock::default(),
                component_tls: ComponentTls::anonymous().expect("TLS"),
                risks: Vec::new(),
            },
            failures: FailureContext {
                kubeconfig: "edge-kubeconfig".to_owned(),
                expired: None,
            },
            objects: Objects::new(connection, limit),
            limit,
            kubectl: "kubectl".to_owned(),
        }
    }

    fn list(kind: &str, items: &Value) -> (u16, Value) {
        let list = json!({"kind": kind, "apiVersion": "v1", "metadata": {}, "items": items});
        (200, list)
    }

    async fn read(cluster: &WorkloadCluster) -> ((Reading<Workload>, Reading<EndpointCertificate>), Nodes) {
        let (nodes_known, nodes) = oneshot::channel();
        let read = cluster.read(nodes_known).await;
        (read, nodes.await.expect("the nodes were told"))
    }

    #[tokio::test]
    async fn each_part_may_fail_alone() {
        let cluster = cluster(|_, path| match path {
            "/api/v1/nodes" => list("NodeList", &json!([{"metadata": {"name": "n1"}}])),
            "/api/v1/namespaces/kube-system/pods" => {
                let pod =
                    json!({"metadata": {"name": "etcd-n1"}, "spec": {"nodeName": "n1", "containers": []}});
                list("PodList", &json!([pod]))
            }
            "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy" => failure(
                403,
                "Forbidden",
                "daemonsets.apps is forbidden: User \"bob\" cannot get",
            ),
            "/api/v1/namespaces/kube-system/configmaps/kubeadm-config" => {
                let object =
                    json!({"metadata": {}, "data": {"ClusterConfiguration": "kubernetesVersion: v1.34.2"}});
                (200, object)
            }
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler" => {
                failure(500, "InternalError", "etcdserver: request timed out")
            }
            path => {
                let (code, mut status) = failure(404, "NotFound", path);
                status["details"] = json!({"name": "x"});
                (code, status)
            }
        });
        let (read, nodes) = read(&cluster).await;
        let n1 = Node {
            name: "n1".to_owned(),
            ..Node::default()
        };
        assert!(matches!(nodes, Nodes::Read(nodes) if nodes == [n1.clone()]));
        let (Reading::Read(workload), endpoint_certificate) = read else {
            panic!("it was read: {read:?}");
        };
        assert_eq!(workload.nodes, Reading::Read(vec![n1]));
        assert_eq!(
            workload.static_pods,
            Reading::Read(vec![StaticPod {
                component: Component::Etcd,
                node: "n1".to_owned(),
                phase: String::new(),
                ready: false,
                ready_since: None,
                is_deleting: false,
                message: None,
                restarts: 0,
                last_exit: None,
                crash_loop: None,
                forces_new_cluster: false,
            }])
        );
        assert_eq!(workload.core_dns, Reading::Read(None));
        assert_eq!(
            workload.kubeadm_config,
            Reading::Read(KubeadmConfigMap::Usable {
                version: Some("v1.34.2".to_owned())
            })
        );
        let failures = [
            workload.kube_proxy.failure(),
            workload.leases.failure(),
            endpoint_certificate.failure(),
        ];
        let messages = failures.map(|failure| {
            let failure = failure.expect("it failed");
            (failure.object.as_str(), failure.message.as_str())
        });
        assert_eq!(
            messages,
            [
                (
                    "DaemonSet/kube-proxy",
                    "cannot get daemonsets \"kube-proxy\" in namespace \"kube-system\": forbidden for user \"bob\""
                ),
                (
                    "Lease",
                    "cannot get leases \"kube-scheduler\" in namespace \"kube-system\": the server responded with \
                     500: etcdserver: request timed out"
                ),
                ("https://s", "the API server does not serve TLS"),
            ]
        );
    }

    /// The hint about a Secret of this type, with this owner, whose kubeconfig is invalid.
    async fn hint(kind: &'static str, owner: &'static str) -> String {
        let management = Connection::canned(move |_, _| {
            let metadata =
                json!({"name": "edge-kubeconfig", "ownerReferences": [{"kind": owner, "name": "edge"}]});
            let data = json!({"value": k8s_openapi::ByteString(b"[1, 2".to_vec())});
            (200, json!({"metadata": metadata, "type": kind, "data": data}))
        });
        let secrets = Secrets {
            management: &management,
            namespace: "d",
            cluster: "edge",
            end: Instant::now() + Duration::from_secs(10),
        };
        let Err(failure) = WorkloadCluster::open(&secrets).await else {
            panic!("it is no kubeconfig");
        };
        failure.hint.expect("a hint")
    }

    #[tokio::test]
    async fn a_kubeconfig_that_nobody_would_write_anew_is_not_to_be_deleted() {
        const GIVEN: &str = "back up the Secret before you replace it: the control plane controller did not create \
                             it and does not recreate it";
        const MADE: &str = "back up the Secret, then run: kubectl delete secret edge-kubeconfig -n d; then let the \
                            control plane controller create it again, with the CA key in Secret edge-ca: kubectl kcp \
                            reconcile cluster/edge -n d";
        for (kind, owner, expected) in [
            ("cluster.x-k8s.io/secret", "KubeadmControlPlane", MADE),
            ("cluster.x-k8s.io/secret", "Cluster", GIVEN),
            ("Opaque", "KubeadmControlPlane", GIVEN),
        ] {
            assert_eq!(hint(kind, owner).await, expected, "{kind} {owner}");
        }
    }

    #[tokio::test]
    async fn a_server_that_answers_nothing_is_one_failure() {
        let cluster = cluster(|_, _| failure(500, "InternalError", "broken\nby a proxy"));
        let ((read, _), nodes) = read(&cluster).await;
        assert!(matches!(nodes, Nodes::Unread));
        assert_eq!(
            read,
            Reading::Failed(Failure {
                object: "Secret/edge-kubeconfig".to_owned(),
                message:
                    "cannot list nodes in all namespaces: the server responded with 500: broken by a proxy"
                        .to_owned(),
                hint: None,
                ..Failure::default()
            })
        );
    }

    #[tokio::test]
    async fn a_server_that_does_not_know_us_is_not_asked_for_members() {
        let cluster = cluster(|_, _| failure(401, "Unauthorized", "Unauthorized"));
        let (_, nodes) = read(&cluster).await;
        let Nodes::NoServer(failure) = nodes else {
            panic!("there is no server for us: {nodes:?}");
        };
        assert_eq!(
            failure.message,
            "the API server at https://s rejected the credentials"
        );
        assert_eq!(
            failure.hint.as_deref(),
            Some(
                "check the credentials in the kubeconfig in Secret edge-kubeconfig; if it contains a client certificate, this has not \
                 expired, but the API server may trust another CA"
            )
        );
    }
}
