//! Reads the workload cluster and etcd. The members of a stacked etcd are reached through the workload cluster.

use std::{
    collections::BTreeMap,
    future::{Future, ready},
    time::Instant,
};

use kcp_api::{KubeadmControlPlane, Object as _};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::Connection;
use crate::reads::{
    etcd::{self, Access},
    secret::Secrets,
    time_limits,
    workload::{Nodes, WorkloadCluster},
};
use kcp_control_plane::snapshot::{EndpointCertificate, EtcdSurvey, Failure, Reading, Workload};

/// The facts about a control plane that say where its workload cluster and etcd are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadTarget {
    pub namespace: String,
    pub cluster: String,
    /// Whether the control plane is initialized. Until then, its workload cluster cannot be read.
    pub initialized: bool,
    /// The endpoints of an external etcd, as `https://host:port`. `None` for a stacked etcd.
    pub external_etcd: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    /// Whether `--no-workload` is set.
    pub workload: bool,
    /// Whether `--no-etcd` is set.
    pub etcd: bool,
}

impl WorkloadTarget {
    /// Finds out where to read. `None` if the control plane has no Cluster yet.
    pub fn new(control_plane: &KubeadmControlPlane) -> Option<Self> {
        let config = &control_plane.spec.kubeadm_config_spec;
        let endpoints = config
            .fields
            .pointer("/clusterConfiguration/etcd/external/endpoints");
        let endpoints = endpoints.and_then(Value::as_array).into_iter().flatten();
        Some(Self {
            namespace: control_plane.namespace().to_owned(),
            cluster: control_plane.cluster().map(str::to_owned)?,
            initialized: control_plane.status.initialized,
            external_etcd: config
                .has_external_etcd()
                .then(|| endpoints.filter_map(Value::as_str).map(str::to_owned).collect()),
        })
    }
}

/// What was read from the workload cluster, from the serving certificate at its endpoint, and from etcd.
pub type WorkloadAndEtcd = (
    Reading<Workload>,
    Reading<EndpointCertificate>,
    Reading<EtcdSurvey>,
);

/// The names of Machines, by the names of their nodes.
pub type MachineByNode = BTreeMap<String, String>;

/// Reads the workload cluster and etcd, and stops reading at `end`. A part that takes longer fails separately.
/// Only the etcd query waits for `machines`, because the etcd members run on the Machines' nodes.
pub async fn read_workload_and_etcd(
    management: &Connection,
    target: &WorkloadTarget,
    machines: impl Future<Output = MachineByNode>,
    excluded: Excluded,
    end: Instant,
) -> WorkloadAndEtcd {
    let secrets = Secrets {
        management,
        namespace: &target.namespace,
        cluster: &target.cluster,
        end,
    };
    if !target.initialized {
        return (
            read_unless(excluded.workload, NO_WORKLOAD, Reading::NotYet),
            read_unless(excluded.workload, NO_WORKLOAD, Reading::NotYet),
            read_unless(excluded.etcd, NO_ETCD, Reading::NotYet),
        );
    }
    match (&target.external_etcd, excluded.workload) {
        (Some(endpoints), _) => {
            let workload = async {
                if excluded.workload {
                    let flag = NO_WORKLOAD;
                    return (Reading::Excluded { flag }, Reading::Excluded { flag });
                }
                match WorkloadCluster::open(&secrets).await {
                    Ok(cluster) => Box::pin(cluster.read(oneshot::channel().0)).await,
                    Err(failure) => (Reading::Failed(failure.clone()), Reading::Failed(failure)),
                }
            };
            let etcd = async {
                if excluded.etcd {
                    return Reading::Excluded { flag: NO_ETCD };
                }
                external_etcd(&secrets, endpoints).await
            };
            let ((workload, endpoint_certificate), etcd) = tokio::join!(workload, etcd);
            (workload, endpoint_certificate, etcd)
        }
        (None, true) => (
            Reading::Excluded { flag: NO_WORKLOAD },
            Reading::Excluded { flag: NO_WORKLOAD },
            Reading::Excluded {
                flag: if excluded.etcd { NO_ETCD } else { NO_WORKLOAD },
            },
        ),
        (None, false) => Box::pin(workload_and_stacked_etcd(&secrets, machines, excluded.etcd)).await,
    }
}

const NO_WORKLOAD: &str = "--no-workload";
const NO_ETCD: &str = "--no-etcd";

fn read_unless<T>(excluded: bool, flag: &'static str, reading: Reading<T>) -> Reading<T> {
    if excluded {
        Reading::Excluded { flag }
    } else {
        reading
    }
}

async fn external_etcd(secrets: &Secrets<'_>, endpoints: &[String]) -> Reading<EtcdSurvey> {
    if endpoints.is_empty() {
        return Reading::Failed(Failure {
            object: "etcd".to_owned(),
            message: "etcd is external, but clusterConfiguration.etcd.external.endpoints is empty".to_owned(),
            hint: None,
            ..Failure::default()
        });
    }
    let access = match Access::read(secrets, false).await {
        Ok(access) => access,
        Err(failure) => return Reading::Failed(failure),
    };
    let failures = etcd::FailureContext::of_cluster(secrets, false, "");
    let timeouts = time_limits::for_etcd(time_limits::remaining(secrets.end));
    etcd::survey(etcd::external_queries(endpoints), &access, &failures, timeouts).await
}

async fn workload_and_stacked_etcd(
    secrets: &Secrets<'_>,
    machines: impl Future<Output = MachineByNode>,
    without_etcd: bool,
) -> WorkloadAndEtcd {
    let access = async {
        if without_etcd {
            None
        } else {
            Some(Access::read(secrets, true).await)
        }
    };
    let (cluster, access) = tokio::join!(WorkloadCluster::open(secrets), access);
    let cluster = match cluster {
        Ok(cluster) => cluster,
        Err(failure) => {
            let etcd = if without_etcd {
                Reading::Excluded { flag: NO_ETCD }
            } else {
                Reading::Failed(etcd_out_of_reach(&failure))
            };
            return (Reading::Failed(failure.clone()), Reading::Failed(failure), etcd);
        }
    };
    let access = match &access {
        None => Err(Reading::Excluded { flag: NO_ETCD }),
        Some(Err(failure)) => Err(Reading::Failed(failure.clone())),
        Some(Ok(access)) => Ok(access),
    };
    read_opened(secrets, &cluster, access, machines).await
}

/// The credentials for a workload cluster and its stacked etcd, for several reads. A connection does not stay open between reads that
/// are further apart than the time limit of one, because the limit also ends a connection that is idle.
pub struct WorkloadAccess {
    cluster: WorkloadCluster,
    etcd: Access,
}

impl WorkloadAccess {
    /// Reads the credentials. Sends no request to the workload cluster itself.
    pub async fn open(secrets: &Secrets<'_>) -> Result<Self, Failure> {
        let (cluster, etcd) = tokio::join!(WorkloadCluster::open(secrets), Access::read(secrets, true));
        Ok(Self {
            cluster: cluster?,
            etcd: etcd?,
        })
    }

    /// Reads the workload cluster and etcd, until the end of the time limit in `secrets`. Reads no Secret.
    pub async fn read(&self, secrets: &Secrets<'_>, machines: MachineByNode) -> WorkloadAndEtcd {
        Box::pin(read_opened(
            secrets,
            &self.cluster,
            Ok(&self.etcd),
            ready(machines),
        ))
        .await
    }
}

/// Reads a workload cluster and its stacked etcd. Without `access`, the reading of etcd is the one in its place.
async fn read_opened(
    secrets: &Secrets<'_>,
    cluster: &WorkloadCluster,
    access: Result<&Access, Reading<EtcdSurvey>>,
    machines: impl Future<Output = MachineByNode>,
) -> WorkloadAndEtcd {
    let without_etcd = matches!(access, Err(Reading::Excluded { .. }));
    let (nodes_known, nodes) = oneshot::channel();
    let etcd = async {
        let access = match access {
            Ok(access) => access,
            Err(unread) => return unread,
        };
        let (nodes, machines) = tokio::join!(nodes, machines);
        let labelled = match nodes {
            Ok(Nodes::Read(nodes)) => nodes,
            Ok(Nodes::NoServer(failure)) => return Reading::Failed(etcd_out_of_reach(&failure)),
            Ok(Nodes::Unread) | Err(_) => Vec::new(),
        };
        let labelled = labelled.into_iter().filter(|node| node.has_control_plane_label);
        let queries =
            etcd::stacked_queries(&cluster.server.client, &machines, labelled.map(|node| node.name));
        let failures = etcd::FailureContext::of_cluster(secrets, true, &cluster.server.url);
        let timeouts = time_limits::for_etcd(time_limits::remaining(secrets.end));
        etcd::survey(queries, access, &failures, timeouts).await
    };
    let lacks_etcd = async { !without_etcd && cluster.reports_etcd_failure().await };
    let ((workload, endpoint_certificate), mut etcd, api_server_lacks_etcd) = tokio::join!(
        Box::pin(cluster.read(nodes_known)),
        Box::pin(etcd),
        Box::pin(lacks_etcd)
    );
    if let Reading::Read(survey) = &mut etcd {
        survey.api_server_lacks_etcd = api_server_lacks_etcd;
    }
    (workload, endpoint_certificate, etcd)
}

/// Describes that the etcd members cannot be reached, because the API server that forwards the connections is unreachable.
fn etcd_out_of_reach(failure: &Failure) -> Failure {
    Failure {
        object: "etcd".to_owned(),
        message: format!(
            "cannot reach the etcd members, because the workload cluster is not accessible: {}",
            failure.text()
        ),
        ..failure.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        time::{Duration, Instant},
    };

    use kcp_api::names::label;
    use serde_json::json;

    use super::{Excluded, Failure, MachineByNode, Reading, WorkloadTarget, read_workload_and_etcd};
    use crate::{Connection, testing::failure};
    use kcp_control_plane::{snapshot::Snapshot, testing::plan};

    #[test]
    fn a_control_plane_tells_where_to_read() {
        let target = |observed: &Snapshot| WorkloadTarget::new(&observed.control_plane);
        let mut observed = plan::observed();
        let labels = [(label::CLUSTER_NAME.to_owned(), "edge".to_owned())];
        observed.control_plane.metadata.labels = Some(labels.into());
        observed.control_plane.status.initialized = true;
        let stacked = WorkloadTarget {
            namespace: "d".to_owned(),
            cluster: "edge".to_owned(),
            initialized: true,
            external_etcd: None,
        };
        assert_eq!(target(&observed), Some(stacked.clone()));

        observed.control_plane.spec.kubeadm_config_spec.fields =
            json!({"clusterConfiguration": {"etcd": {"external": {"endpoints": ["https://e:2379"]}}}});
        assert_eq!(
            target(&observed),
            Some(WorkloadTarget {
                external_etcd: Some(vec!["https://e:2379".to_owned()]),
                ..stacked
            })
        );

        observed.control_plane.metadata.labels = None;
        assert_eq!(target(&observed), None);
    }

    /// Why the workload cluster and etcd of a control plane without Secrets were not read.
    async fn unread(target: &WorkloadTarget, excluded: Excluded) -> [String; 2] {
        let management = Connection::canned(|_, path| {
            let (code, mut status) = failure(404, "NotFound", path);
            status["details"] = json!({"name": "x"});
            (code, status)
        });
        let end = Instant::now() + Duration::from_secs(10);
        let (workload, endpoint_certificate, etcd) =
            read_workload_and_etcd(&management, target, ready(MachineByNode::new()), excluded, end).await;
        assert_eq!(short(&endpoint_certificate), short(&workload));
        [short(&workload), short(&etcd)]
    }

    fn short<T>(reading: &Reading<T>) -> String {
        match reading {
            Reading::Read(_) => "read".to_owned(),
            Reading::Excluded { flag } => (*flag).to_owned(),
            Reading::NotYet => "not yet".to_owned(),
            Reading::OutOfReach(Failure { object, .. }) => format!("out of reach: {object}"),
            Reading::Failed(Failure { object, message, .. }) => format!("{object}: {message}"),
        }
    }

    #[tokio::test]
    async fn what_is_left_out_is_not_read_and_what_is_missing_is_named() {
        const KUBECONFIG: &str = "Secret/edge-kubeconfig: not found in namespace d";
        const BEHIND: &str = "etcd: cannot reach the etcd members, because the workload cluster is not accessible: \
            Secret/edge-kubeconfig: not found in namespace d";
        const AUTHORITY: &str = "Secret/edge-etcd: not found in namespace d";
        let target = |initialized, external: bool| WorkloadTarget {
            namespace: "d".to_owned(),
            cluster: "edge".to_owned(),
            initialized,
            external_etcd: external.then(|| vec!["https://e:2379".to_owned()]),
        };
        let excluded = |workload, etcd| Excluded { workload, etcd };
        for (initialized, external, skipped, expected) in [
            (false, false, excluded(false, false), ["not yet", "not yet"]),
            (false, false, excluded(true, true), ["--no-workload", "--no-etcd"]),
            (true, false, excluded(false, false), [KUBECONFIG, BEHIND]),
            (true, false, excluded(false, true), [KUBECONFIG, "--no-etcd"]),
            (
                true,
                false,
                excluded(true, false),
                ["--no-workload", "--no-workload"],
            ),
            (true, false, excluded(true, true), ["--no-workload", "--no-etcd"]),
            (true, true, excluded(false, false), [KUBECONFIG, AUTHORITY]),
            (true, true, excluded(true, false), ["--no-workload", AUTHORITY]),
            (true, true, excluded(false, true), [KUBECONFIG, "--no-etcd"]),
        ] {
            let found = unread(&target(initialized, external), skipped).await;
            assert_eq!(found, expected, "{initialized} {external} {skipped:?}");
        }
        let without_endpoint = WorkloadTarget {
            external_etcd: Some(Vec::new()),
            ..target(true, true)
        };
        assert_eq!(
            unread(&without_endpoint, excluded(true, false)).await,
            [
                "--no-workload",
                "etcd: etcd is external, but clusterConfiguration.etcd.external.endpoints is empty"
            ]
        );
    }
}
