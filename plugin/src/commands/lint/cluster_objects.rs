//! Reads from a cluster the objects that `lint --cluster` checks.

use kcp_api::{Kind, Machine, kind::MACHINE};
use serde_json::value::RawValue;

use crate::commands::lint::{input::Input, report::ObjectSource, subject::Subject};
use crate::session::Session;
use kcp_client::{Connection, Error, ServedVersions};

/// The kinds that `lint --cluster` checks, in the order of the report.
const SUBJECTS: [Subject; 6] = [
    Subject::Cluster,
    Subject::ControlPlane,
    Subject::Template,
    Subject::ClusterPool,
    Subject::Customization,
    Subject::ClusterDeployment,
];

/// Connects to the cluster that `--cluster` names, or without a name to the cluster of the current context.
pub(super) async fn connect(session: &Session) -> Result<Connection, Error> {
    let mut flags = session.global.connection();
    flags.cluster = flags.cluster.filter(|name| !name.is_empty());
    Connection::open(&flags, session.request_log()).await
}

/// Reads, from one namespace or from all namespaces, every object that admission rules check or read.
pub(super) async fn read(connection: &Connection, namespace: Option<&str>) -> Result<Input, Error> {
    let mut input = Input::new(&connection.namespace, ObjectSource::Cluster);
    let served = ServedVersions::discover(connection).await?;
    for subject in SUBJECTS {
        let kind = subject.resource();
        let objects: Option<Vec<Box<RawValue>>> = list(connection, &served, &kind, namespace).await?;
        match objects {
            Some(objects) => {
                if subject == Subject::ClusterPool && !objects.is_empty() {
                    let keeps = connection.keeps_field(&kind, "v1", &["spec", "inventory"]);
                    input.drops_inventory = keeps.await.ok().flatten().map(|keeps| !keeps);
                }
                let texts = objects.into_iter().map(|object| object.get().to_owned());
                input.add_listed(subject, texts);
            }
            None => input.add_unserved_kind(format!("{}.{}", kind.plural, kind.group)),
        }
    }
    let machines: Option<Vec<Machine>> = list(connection, &served, &MACHINE, namespace).await?;
    input.add_listed_machines(machines.unwrap_or_default());
    Ok(input)
}

/// Lists the objects of a kind; `None` if the cluster does not serve the kind.
async fn list<T: serde::de::DeserializeOwned>(
    connection: &Connection,
    served: &ServedVersions,
    kind: &Kind,
    namespace: Option<&str>,
) -> Result<Option<Vec<T>>, Error> {
    let listed = match served.resource(kind) {
        Ok(resource) => connection.list(&resource, namespace, None).await,
        Err(error) => Err(error),
    };
    match listed {
        Ok(objects) => Ok(Some(objects)),
        // The cluster serves the API group, but not this kind.
        Err(Error::NotServed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
