//! Reads the logs of the components of a control plane: from the kubelets, through the API server of the workload cluster.

use std::time::Instant;

use futures_util::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kcp_api::{KubeadmControlPlane, Machine, Object as _};
use kcp_control_plane::snapshot::{Failure, workload::Component};
use kube::{
    Resource as _,
    api::LogParams,
    core::{ApiResource, Request},
};

use crate::{
    Action, Connection, Error, ReadLimit,
    reads::{
        failure,
        secret::Secrets,
        workload::{KUBE_SYSTEM, WorkloadCluster, fails_every_request},
    },
    request::check_safe_in_url,
    workload::ResponseLimit,
};

/// The maximum size of one log in bytes: 10,000 lines of 800 bytes. The kubelet cuts off the rest, after at most one line more.
const MAX_BYTES: u32 = 8 << 20;
const MAX_RESPONSE: ResponseLimit = ResponseLimit::mebibytes(16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogQuery {
    pub component: Component,
    /// Whether to read the log of the container before the one that runs.
    pub is_previous: bool,
    /// The maximum number of lines, those at the end.
    pub lines: u32,
}

/// The log of a component on one Machine, or why it could not be read.
pub struct MachineLog {
    pub machine: String,
    pub text: Result<String, Failure>,
}

impl MachineLog {
    /// Whether the kubelet has cut off the end of the log, because the log is too large.
    pub fn is_cut(&self) -> bool {
        let text = self.text.as_ref();
        text.is_ok_and(|text| text.len() >= MAX_BYTES as usize)
    }
}

/// The logs of a workload cluster.
pub struct ComponentLogs {
    cluster: WorkloadCluster,
    connection: Connection,
}

impl ComponentLogs {
    /// Reads the credentials. Sends no request to the workload cluster itself.
    pub async fn open(
        management: &Connection,
        control_plane: &KubeadmControlPlane,
        end: Instant,
    ) -> Result<Self, Failure> {
        let secrets = Secrets::of_control_plane(management, control_plane, end)?;
        let cluster = WorkloadCluster::open(&secrets).await?;
        Ok(Self {
            connection: cluster.connection(management),
            cluster,
        })
    }

    /// Reads the logs of a component on all Machines at the same time. `since` is the time of the first line on each Machine; `None`
    /// if the number of lines alone limits the log. Fails only if the API server cannot be reached, or rejects the credentials.
    pub async fn read(
        &self,
        machines: &[Machine],
        query: LogQuery,
        since: impl Fn(&str) -> Option<Timestamp>,
    ) -> Result<Vec<MachineLog>, Failure> {
        let read = machines.iter().map(async |machine| match machine.node() {
            Some(node) => Some(self.read_one(node, query, since(machine.name())).await),
            None => None,
        });
        let read: Vec<Option<Result<String, Error>>> = join_all(read).await;
        let fails_all = |read: &&Option<Result<String, Error>>| matches!(read, Some(Err(error)) if fails_every_request(error));
        if let Some(Some(Err(error))) = read.iter().find(fails_all) {
            return Err(self.cluster.failures.describe_all(error));
        }
        let log = |(machine, read): (&Machine, Option<Result<String, Error>>)| MachineLog {
            machine: machine.name().to_owned(),
            text: match read {
                Some(read) => read.map_err(|error| {
                    let pod = machine.node().map(|node| pod_name(query.component, node));
                    let object = failure::object_name("Pod", pod.as_deref());
                    self.cluster.failures.describe(&object, &error)
                }),
                None => Err(Failure {
                    object: failure::object_name("Machine", Some(machine.name())),
                    message: "the Machine has no Node yet, so no kubelet has its logs".to_owned(),
                    ..Failure::default()
                }),
            },
        };
        Ok(machines.iter().zip(read).map(log).collect())
    }

    async fn read_one(&self, node: &str, query: LogQuery, since: Option<Timestamp>) -> Result<String, Error> {
        let pod = pod_name(query.component, node);
        let action = Action::new("get", &ApiResource::erase::<Pod>(&()))
            .in_namespace(KUBE_SYSTEM)
            .with_name(&pod)
            .subresource("log");
        check_safe_in_url(&action)?;
        let requests = Request::new(Pod::url_path(&(), Some(KUBE_SYSTEM)));
        let parameters = LogParams {
            container: Some(query.component.as_str().to_owned()),
            limit_bytes: Some(MAX_BYTES.into()),
            previous: query.is_previous,
            // The client rounds to whole seconds. Rounded up, lines would be lost; the caller knows the lines that it has.
            since_time: since.and_then(|since| Timestamp::from_second(since.as_second()).ok()),
            tail_lines: Some(query.lines.into()),
            timestamps: true,
            ..LogParams::default()
        };
        let build = || {
            let mut request = requests.logs(&pod, &parameters)?;
            request.extensions_mut().insert(MAX_RESPONSE);
            Ok(request)
        };
        let limit = ReadLimit::per_read(self.cluster.limit);
        let read = self.connection.read_text(&action, &build);
        self.connection
            .run_with_limit(limit, &action, Box::pin(read))
            .await
    }
}

/// The name of the mirror Pod of a component.
fn pod_name(component: Component, node: &str) -> String {
    format!("{}-{node}", component.as_str())
}
