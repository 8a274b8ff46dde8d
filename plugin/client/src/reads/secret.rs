//! Reads the Secrets of a Cluster that contain the credentials for the workload cluster and etcd.

use std::time::Instant;

use kcp_api::{KubeadmControlPlane, Object as _, Secret, kind::SECRET};
use kcp_control_plane::snapshot::Failure;

use crate::reads::{failure, time_limits};
use crate::{Action, Connection, Error, ReadLimit};

/// The beginning of the message for a Secret that does not exist. The namespace follows.
const ABSENT: &str = "not found in namespace ";

#[derive(Clone, Copy)]
pub struct Secrets<'s> {
    pub management: &'s Connection,
    pub namespace: &'s str,
    pub cluster: &'s str,
    pub end: Instant,
}

impl<'s> Secrets<'s> {
    /// The Secrets of the control plane's Cluster. Fails if the control plane has no Cluster yet.
    #[expect(clippy::result_large_err, reason = "the failure is moved into a report")]
    pub fn of_control_plane(
        management: &'s Connection,
        control_plane: &'s KubeadmControlPlane,
        end: Instant,
    ) -> Result<Self, Failure> {
        let cluster = control_plane.cluster().ok_or_else(|| Failure {
            object: "Cluster".to_owned(),
            message: "the control plane has no Cluster yet".to_owned(),
            hint: None,
            ..Failure::default()
        })?;
        Ok(Self {
            management,
            namespace: control_plane.namespace(),
            cluster,
            end,
        })
    }

    /// The beginning of a kubectl command for the workload cluster, to which a message appends the arguments of kubectl.
    pub fn kubectl(&self) -> String {
        let (cluster, namespace, arguments) = (self.cluster, self.namespace, "");
        format!("kubectl kcp kubectl cluster/{cluster} -n {namespace} -- {arguments}")
            .trim_end()
            .to_owned()
    }

    /// The command that ends the wait of the control plane controller after an error.
    pub fn reconcile(&self) -> String {
        format!(
            "kubectl kcp reconcile cluster/{} -n {}",
            self.cluster, self.namespace
        )
    }

    /// The name of a Secret of the Cluster, from its suffix: `kubeconfig`, `etcd` or `apiserver-etcd-client`.
    pub fn name(&self, purpose: &str) -> String {
        format!("{}-{purpose}", self.cluster)
    }

    pub async fn read(&self, purpose: &str) -> Result<Secret, Failure> {
        let name = self.name(purpose);
        let resource = SECRET.api_resource("v1");
        let action = Action::new("get", &resource)
            .in_namespace(self.namespace)
            .with_name(&name);
        let limit = ReadLimit::per_read(time_limits::for_secret(time_limits::remaining(self.end)));
        let read = self.management.get(&resource, self.namespace, &name);
        let secret = self.management.run_with_limit(limit, &action, read).await;
        secret.map_err(|error| {
            let failure = failure::from_error(object(&name), &error);
            match error {
                Error::NotFound { .. } => Failure {
                    message: format!("{ABSENT}{}", self.namespace),
                    hint: Some(self.list_hint()),
                    ..failure
                },
                _ => failure,
            }
        })
    }

    /// The failure for a Secret whose content cannot be used.
    pub fn unusable_failure(&self, purpose: &str, message: String) -> Failure {
        Failure {
            object: object(&self.name(purpose)),
            message,
            is_unusable_secret: true,
            ..Failure::default()
        }
    }

    fn list_hint(&self) -> String {
        format!(
            "Cluster API creates the Secrets of a Cluster; list them with: kubectl get secrets -n {} -l \
             cluster.x-k8s.io/cluster-name={}; if the Secret is missing, let the controller create it now: {}",
            self.namespace,
            self.cluster,
            self.reconcile()
        )
    }
}

/// Whether the failure is that the Secret does not exist.
pub fn is_absent(failure: &Failure, secret: &str) -> bool {
    failure.object == object(secret) && failure.message.starts_with(ABSENT)
}

fn object(name: &str) -> String {
    format!("Secret/{name}")
}
