//! The objects of a cluster.

use kcp_rules::view::object::MachineObject;
use serde_json::value::RawValue;

use crate::commands::lint::{input::Input, report::Place, subject::Subject};
use crate::session::Session;
use kcp_client::{CLUSTER, Connection, Error, KUBEADM_CONTROL_PLANE, Kind, MACHINE, Served};

const TEMPLATE: Kind = Kind {
    kind: "KubeadmControlPlaneTemplate",
    plural: "kubeadmcontrolplanetemplates",
    ..KUBEADM_CONTROL_PLANE
};

const fn hive(kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group: "hive.openshift.io",
        kind,
        plural,
        versions: &["v1"],
        product: "Hive",
    }
}

/// What is judged, in the order of the report.
const SUBJECTS: [(Subject, Kind); 6] = [
    (Subject::Cluster, CLUSTER),
    (Subject::ControlPlane, KUBEADM_CONTROL_PLANE),
    (Subject::Template, TEMPLATE),
    (Subject::ClusterPool, hive("ClusterPool", "clusterpools")),
    (
        Subject::Customization,
        hive(
            "ClusterDeploymentCustomization",
            "clusterdeploymentcustomizations",
        ),
    ),
    (
        Subject::ClusterDeployment,
        hive("ClusterDeployment", "clusterdeployments"),
    ),
];

/// Connects. Without a name, `--cluster` does not choose a cluster of the kubeconfig.
pub(super) async fn connect(session: &Session) -> Result<Connection, Error> {
    let mut flags = session.global.connection();
    flags.cluster = flags.cluster.filter(|name| !name.is_empty());
    Connection::open(&flags, session.request_log()).await
}

/// Reads all objects of a namespace, or of all of them, that rules judge or look at.
///
/// # Errors
/// When there is anything that the cluster serves and does not let us read: what cannot be seen may be at fault.
pub(super) async fn read(connection: &Connection, namespace: Option<&str>) -> Result<Input, Error> {
    let mut input = Input::new(&connection.namespace, Place::Cluster);
    let served = Served::discover(connection).await?;
    for (subject, kind) in SUBJECTS {
        let objects: Option<Vec<Box<RawValue>>> = list(connection, &served, &kind, namespace).await?;
        match objects {
            Some(objects) => {
                let texts = objects.into_iter().map(|object| object.get().to_owned());
                input.list(subject, texts);
            }
            None => input.not_served(format!("{}.{}", kind.plural, kind.group)),
        }
    }
    let machines: Option<Vec<MachineObject>> = list(connection, &served, &MACHINE, namespace).await?;
    input.list_machines(machines.unwrap_or_default());
    Ok(input)
}

/// None for a kind that the cluster does not have.
async fn list<T: serde::de::DeserializeOwned>(
    connection: &Connection,
    served: &Served,
    kind: &Kind,
    namespace: Option<&str>,
) -> Result<Option<Vec<T>>, Error> {
    let listed = match served.resource(kind) {
        Ok(resource) => connection.list(&resource, namespace, None).await,
        Err(error) => Err(error),
    };
    match listed {
        Ok(objects) => Ok(Some(objects)),
        // The group may be served without the kind.
        Err(Error::NotServed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
