//! The management cluster, about one control plane.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use kcp_api::{
    Cluster, KubeadmControlPlane, Machine, MachineHealthCheck, Object as _,
    kind::{KUBEADM_CONTROL_PLANE, MACHINE_HEALTH_CHECK, SECRET},
};
use serde::de::IgnoredAny;

use crate::{
    Action, Error, ReadLimit,
    reader::Reader,
    reads::{
        failure,
        planned::{Fetched, Reads, Unread},
    },
};
use kcp_control_plane::snapshot::{Deletion, Failure, HealthCheck, Reading, Snapshot, change::Part};

/// What the names of a Cluster's Secrets end in, after its own name and a hyphen.
const SECRETS: [&str; 6] = ["kubeconfig", "ca", "etcd", "proxy", "sa", "apiserver-etcd-client"];

/// The control plane that a Cluster refers to.
///
/// # Errors
/// When the Cluster is not there or cannot be read, or refers to no `KubeadmControlPlane`.
pub async fn control_plane_of(
    reader: &Reader<'_>,
    namespace: &str,
    cluster: &str,
    limit: ReadLimit,
) -> Result<String, Error> {
    let action = Action::new("get", &reader.clusters)
        .in_namespace(namespace)
        .named(cluster);
    let read = reader
        .connection
        .get::<Cluster>(&reader.clusters, namespace, cluster);
    let read = reader
        .connection
        .within(limit.for_the_first(), &action, read)
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

/// Reads what the management cluster says about a control plane.
///
/// # Errors
/// When the control plane itself is not there or cannot be read.
pub async fn management(
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
    let (object, control_plane) = reads.control_plane(name).await?;
    Ok(around(&reads, object, control_plane, |_| ()).await)
}

/// Reads what surrounds a control plane. `machines_known` is told the Machines as soon as they are listed.
pub async fn around(
    reads: &Reads<'_>,
    object: String,
    control_plane: KubeadmControlPlane,
    machines_known: impl FnOnce(&[Machine]),
) -> Snapshot {
    let Some(cluster) = control_plane.cluster().map(str::to_owned) else {
        return reads
            .context(object, control_plane, machines_known)
            .await
            .observed;
    };
    let (fetched, health_checks, secrets) = tokio::join!(
        Box::pin(reads.context(object, control_plane, machines_known)),
        Box::pin(health_checks(reads)),
        Box::pin(secrets(reads, &cluster))
    );
    let mut snapshot = assembled(fetched, health_checks.as_deref());
    secrets.put_into(&mut snapshot, &format!("{cluster}-kubeconfig"));
    snapshot
}

/// What was read of one control plane, its Secrets left out.
fn assembled(fetched: Fetched, health_checks: Result<&[MachineHealthCheck], &Error>) -> Snapshot {
    let mut snapshot = fetched.observed;
    for Unread { part, kind, error } in fetched.unread {
        match part {
            Part::Cluster => {
                let object = failure::object(&kind, snapshot.control_plane.cluster());
                snapshot.cluster = Reading::Failed(failure::of(object, &error));
            }
            Part::Machines | Part::Bootstrap | Part::Infrastructure => {
                let unread = failure::of(failure::object(&kind, None), &error);
                snapshot.unread.push(unread);
            }
        }
    }
    let health_checks = match health_checks {
        Ok(all) => Reading::Read(all),
        Err(error) => Reading::Failed(failure::of_all(&MACHINE_HEALTH_CHECK, error)),
    };
    linked(snapshot, health_checks)
}

/// Adds what is known of a control plane that is linked to a Cluster; of all `MachineHealthChecks` of its namespace those
/// that are about it.
pub fn linked(mut snapshot: Snapshot, health_checks: Reading<&[MachineHealthCheck]>) -> Snapshot {
    let machines = &snapshot.machines;
    let cluster_name = snapshot.control_plane.cluster();
    snapshot.health_checks = health_checks.map(|all| {
        let about_it = all
            .iter()
            .filter(|check| Some(check.spec.cluster_name.as_str()) == cluster_name);
        about_it.map(|check| HealthCheck::new(check, machines)).collect()
    });
    let unowned = machines.iter().filter(|machine| machine.controller().is_none());
    snapshot.unowned = unowned.map(|machine| machine.name().to_owned()).collect();
    snapshot.deletions = machines.iter().filter_map(Deletion::from_machine).collect();
    snapshot.secrets = Reading::Excluded {
        flag: super::WITHOUT_NAME,
    };
    snapshot
}

async fn health_checks(reads: &Reads<'_>) -> Result<Vec<MachineHealthCheck>, Error> {
    let resource = reads.reader.served.resource(&MACHINE_HEALTH_CHECK)?;
    let action = Action::new("list", &resource).in_namespace(reads.namespace);
    let connection = reads.reader.connection;
    let read = connection.list(&resource, Some(reads.namespace), None);
    connection.within(reads.limit, &action, read).await
}

/// A Cluster's Secrets, as far as could be told.
#[derive(Default)]
struct Secrets {
    there: BTreeSet<String>,
    absent: BTreeSet<String>,
    unread: Vec<Failure>,
}

impl Secrets {
    fn put_into(self, snapshot: &mut Snapshot, kubeconfig: &str) {
        snapshot.has_kubeconfig = if self.there.contains(kubeconfig) {
            Some(true)
        } else {
            self.absent.contains(kubeconfig).then_some(false)
        };
        let is_unread = self.there.is_empty() && self.absent.is_empty();
        let mut unread = self.unread.into_iter();
        snapshot.secrets = match unread.next() {
            Some(first) if is_unread => Reading::Failed(first),
            first => {
                snapshot.unread.extend(first);
                Reading::Read(self.there)
            }
        };
        snapshot.unread.extend(unread.filter(|_| !is_unread));
    }
}

/// Which of a Cluster's Secrets are there. Their content is not sent.
async fn secrets(reads: &Reads<'_>, cluster: &str) -> Secrets {
    let names = SECRETS.map(|suffix| format!("{cluster}-{suffix}"));
    let read = join_all(names.iter().map(|name| is_there(reads, name))).await;
    let mut secrets = Secrets::default();
    for (name, is_there) in names.into_iter().zip(read) {
        match is_there {
            Ok(true) => {
                secrets.there.insert(name);
            }
            Ok(false) => {
                secrets.absent.insert(name);
            }
            Err(error) => {
                let object = failure::object(SECRET.kind, Some(&name));
                secrets.unread.push(failure::of(object, &error));
            }
        }
    }
    secrets
}

async fn is_there(reads: &Reads<'_>, secret: &str) -> Result<bool, Error> {
    let resource = SECRET.at("v1");
    let action = Action::new("get", &resource)
        .in_namespace(reads.namespace)
        .named(secret);
    let connection = reads.reader.connection;
    let read = connection.get_metadata::<IgnoredAny>(&resource, reads.namespace, secret);
    match connection.within(reads.limit, &action, read).await {
        Ok(_) => Ok(true),
        Err(Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
