//! Reads the facts about one control plane from the management cluster.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use kcp_api::{
    Cluster, KubeadmControlPlane, Machine, MachineHealthCheck,
    kind::{KUBEADM_CONTROL_PLANE, MACHINE_HEALTH_CHECK, SECRET},
};

use crate::{
    Action, Error, ReadLimit,
    reader::Reader,
    reads::{
        certificates::{SecretCertificate, read_secret},
        failure,
        planned::{Fetched, Reads, Unread},
    },
};
use kcp_control_plane::{
    certificates::{Certificate, Purpose},
    snapshot::{Deletion, Failure, HealthCheck, Reading, Snapshot, change::Part},
};

/// What a Cluster's Secrets are for.
const PURPOSES: [Purpose; 6] = [
    Purpose::AdminKubeconfig,
    Purpose::ClusterCa,
    Purpose::EtcdCa,
    Purpose::FrontProxyCa,
    Purpose::ServiceAccountKeys,
    Purpose::EtcdClient,
];

/// Reads the name of the control plane to which a Cluster refers.
pub async fn read_control_plane_name(
    reader: &Reader<'_>,
    namespace: &str,
    cluster: &str,
    limit: ReadLimit,
) -> Result<String, Error> {
    let action = Action::new("get", &reader.cluster_resource)
        .in_namespace(namespace)
        .with_name(cluster);
    let read = reader
        .connection
        .get::<Cluster>(&reader.cluster_resource, namespace, cluster);
    let read = reader
        .connection
        .run_with_limit(limit.for_first_read(), &action, read)
        .await?;
    match (read.control_plane(), &read.spec.control_plane_ref) {
        (Some(name), _) if !name.is_empty() => Ok(name.to_owned()),
        (_, reference) => Err(Error::NoControlPlane {
            cluster: cluster.to_owned(),
            namespace: namespace.to_owned(),
            kind: reference
                .as_ref()
                .map(|reference| reference.kind.clone())
                .filter(|kind| !kind.is_empty() && kind != KUBEADM_CONTROL_PLANE.kind),
        }),
    }
}

/// Reads a control plane and its related objects in the management cluster.
pub async fn read_from_management(
    reader: &Reader<'_>,
    namespace: &str,
    name: &str,
    limit: ReadLimit,
) -> Result<Snapshot, Error> {
    let reads = Reads {
        reader,
        namespace,
        limit,
    };
    let (object, control_plane) = reads.read_control_plane(name).await?;
    Ok(read_related(&reads, object, control_plane, |_| ()).await)
}

/// Reads the related objects of a control plane. Calls `machines_known` as soon as the Machines are listed.
pub async fn read_related(
    reads: &Reads<'_>,
    object: String,
    control_plane: KubeadmControlPlane,
    machines_known: impl FnOnce(&[Machine]),
) -> Snapshot {
    let Some(cluster) = control_plane.cluster().map(str::to_owned) else {
        return reads
            .read_related_objects(object, control_plane, machines_known)
            .await
            .observed;
    };
    let (fetched, health_checks, secrets) = tokio::join!(
        Box::pin(reads.read_related_objects(object, control_plane, machines_known)),
        Box::pin(health_checks(reads)),
        Box::pin(secrets(reads, &cluster))
    );
    let mut snapshot = assemble(fetched, health_checks.as_deref());
    secrets.add_to(&mut snapshot, &format!("{cluster}-kubeconfig"));
    snapshot
}

/// Combines the facts about a control plane, except those about its Secrets.
fn assemble(fetched: Fetched, health_checks: Result<&[MachineHealthCheck], &Error>) -> Snapshot {
    let mut snapshot = fetched.observed;
    for Unread { part, kind, error } in fetched.unread {
        match part {
            Part::Cluster => {
                let object = failure::object_name(&kind, snapshot.control_plane.cluster());
                snapshot.cluster = Reading::Failed(failure::from_error(object, &error));
            }
            Part::Machines | Part::Bootstrap | Part::Infrastructure => {
                let unread = failure::from_error(failure::object_name(&kind, None), &error);
                snapshot.failed_reads.push(unread);
            }
        }
    }
    let health_checks = match health_checks {
        Ok(all) => Reading::Read(all),
        Err(error) => Reading::Failed(failure::of_kind(&MACHINE_HEALTH_CHECK, error)),
    };
    add_cluster_facts(snapshot, health_checks)
}

/// Adds the facts that concern the whole Cluster: the `MachineHealthChecks` that select the control plane's Machines,
/// and what blocks the deletion of Machines.
pub fn add_cluster_facts(mut snapshot: Snapshot, health_checks: Reading<&[MachineHealthCheck]>) -> Snapshot {
    snapshot.health_checks = of_control_plane(&snapshot, health_checks);
    snapshot.deletions = snapshot
        .machines
        .iter()
        .filter_map(Deletion::from_machine)
        .collect();
    let flag = super::NO_NAME_ARGUMENT;
    snapshot.secrets = Reading::Excluded { flag };
    snapshot.certificates = Reading::Excluded { flag };
    snapshot
}

/// The `MachineHealthChecks` of the control plane's Cluster.
pub(super) fn of_control_plane(
    snapshot: &Snapshot,
    health_checks: Reading<&[MachineHealthCheck]>,
) -> Reading<Vec<HealthCheck>> {
    let cluster = snapshot.control_plane.cluster();
    health_checks.map(|all| {
        let about_it = all
            .iter()
            .filter(|check| Some(check.spec.cluster_name.as_str()) == cluster);
        about_it
            .map(|check| HealthCheck::new(check, &snapshot.machines))
            .collect()
    })
}

pub(super) async fn health_checks(reads: &Reads<'_>) -> Result<Vec<MachineHealthCheck>, Error> {
    let resource = reads.reader.served.resource(&MACHINE_HEALTH_CHECK)?;
    let action = Action::new("list", &resource).in_namespace(reads.namespace);
    let connection = reads.reader.connection;
    let read = connection.list(&resource, Some(reads.namespace), None);
    connection.run_with_limit(reads.limit, &action, read).await
}

/// The names of a Cluster's Secrets, grouped by whether the Secrets exist, and their certificates.
#[derive(Default)]
struct Secrets {
    existing: BTreeSet<String>,
    /// The existing Secrets that have no owner reference.
    unowned: BTreeSet<String>,
    absent: BTreeSet<String>,
    unread: Vec<Failure>,
    certificates: Vec<Certificate>,
}

impl Secrets {
    fn add_to(self, snapshot: &mut Snapshot, kubeconfig: &str) {
        let exists = |name: &str| {
            if self.existing.contains(name) {
                Some(true)
            } else {
                self.absent.contains(name).then_some(false)
            }
        };
        snapshot.has_kubeconfig = exists(kubeconfig);
        if let Some(cluster) = snapshot.control_plane.cluster() {
            snapshot.has_etcd_ca = exists(&format!("{cluster}-etcd"));
        }
        let is_unread = self.existing.is_empty() && self.absent.is_empty();
        snapshot.unowned_secrets = self.unowned;
        let mut unread = self.unread.into_iter();
        (snapshot.secrets, snapshot.certificates) = match unread.next() {
            Some(first) if is_unread => (Reading::Failed(first.clone()), Reading::Failed(first)),
            first => {
                snapshot.failed_reads.extend(first);
                (Reading::Read(self.existing), Reading::Read(self.certificates))
            }
        };
        snapshot.failed_reads.extend(unread.filter(|_| !is_unread));
    }
}

/// Reads the certificates in a Cluster's Secrets. Private keys are not decoded.
async fn secrets(reads: &Reads<'_>, cluster: &str) -> Secrets {
    let read = PURPOSES.map(async |purpose| {
        let name = format!("{cluster}-{}", purpose.secret_suffix()?);
        let read = read_secret(reads.reader, reads.namespace, purpose, &name, reads.limit).await;
        Some((name, read))
    });
    let mut secrets = Secrets::default();
    for (name, read) in join_all(read).await.into_iter().flatten() {
        match read {
            Ok(SecretCertificate {
                certificate,
                has_owner,
            }) => {
                if !has_owner {
                    secrets.unowned.insert(name.clone());
                }
                secrets.existing.insert(name);
                secrets.certificates.push(certificate);
            }
            Err(Error::NotFound { .. }) => {
                secrets.absent.insert(name);
            }
            Err(error) => {
                let object = failure::object_name(SECRET.kind, Some(&name));
                secrets.unread.push(failure::from_error(object, &error));
            }
        }
    }
    secrets
}

#[cfg(test)]
mod tests;
