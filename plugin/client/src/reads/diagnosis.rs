//! Reads all that is known about one Machine. Each part is read separately.

use std::time::Instant;

use futures_util::future::join_all;
use k8s_openapi::api::events::v1::Event;
use kcp_api::{
    ConditionedObject, Machine, Object as _, Reference,
    kind::{EVENT, KUBEADM_CONTROL_PLANE, MACHINE},
};
use kcp_control_plane::{
    diagnosis::{MachineRecords, RelatedObject},
    rollout_events::ReportedEvent,
    snapshot::{Failure, Reading, Snapshot, workload::Component},
};
use kube::api::ListParams;

use crate::{
    Action, Error,
    reader::Reader,
    reads::{
        Excluded, failure, limit_per_control_plane,
        machine::{ReadMachineError, no_such_machine},
        management::read_control_plane_name,
        observe::observe,
        planned::Reads,
        rollout_events::reported,
        secret::Secrets,
        time_limits::remaining,
        workload::{KUBE_SYSTEM, WorkloadCluster},
    },
};

/// The namespace of the Events about Nodes.
const NODE_EVENTS: &str = "default";

/// Reads a Machine, the objects that it consists of, its control plane with the workload cluster and etcd, and the Events about all
/// of them. Stops reading at `end`. Fails only if the Machine itself cannot be read.
pub async fn read_diagnosis(
    reader: &Reader<'_>,
    name: &str,
    end: Instant,
) -> Result<MachineRecords, ReadMachineError> {
    let reads = Reads {
        reader,
        namespace: &reader.connection.namespace,
        limit: limit_per_control_plane(remaining(end)),
    };
    let Some(machine) = reads.machine(name).await? else {
        let action = Action::new("get", &reader.machine_resource);
        let action = action.in_namespace(reads.namespace).with_name(name);
        let error = Error::NotFound { action };
        return Err(no_such_machine(reader, name, error).await.into());
    };
    let owner = machine.controller().map(Reference::from);
    let parts = [
        &machine.spec.bootstrap_config_ref,
        &machine.spec.infrastructure_ref,
    ];
    let parts: Vec<Reference> = parts.into_iter().flatten().cloned().collect();
    let own = Reference {
        kind: MACHINE.kind.to_owned(),
        name: name.to_owned(),
        ..Reference::default()
    };
    let with_events: Vec<&Reference> = [&own].into_iter().chain(&parts).collect();
    let related = owner
        .iter()
        .chain(&parts)
        .map(|reference| reads.related(reference));
    let (related, control_plane, events) = tokio::join!(
        Box::pin(join_all(related)),
        Box::pin(reads.control_plane_of(&machine, end)),
        Box::pin(reads.events_about(&with_events))
    );
    let workload_events = match &control_plane {
        Reading::Read(observed) => Box::pin(reads.workload_events(observed, &machine, end)).await,
        _ => Reading::NotYet,
    };
    Ok(MachineRecords {
        machine,
        related,
        control_plane,
        events,
        workload_events,
    })
}

impl Reads<'_> {
    /// Lists by name, because kcp-reader may list Machines. `None` if the Machine does not exist.
    async fn machine(&self, name: &str) -> Result<Option<Machine>, Error> {
        let resource = &self.reader.machine_resource;
        let action = Action::new("list", resource).in_namespace(self.namespace);
        let fields = format!("metadata.name={name}");
        let connection = self.reader.connection;
        let list = connection.list_by_fields::<Machine>(resource, self.namespace, &fields);
        let machines = connection
            .run_with_limit(self.limit.for_first_read(), &action, list)
            .await?;
        Ok(machines.into_iter().find(|machine| machine.name() == name))
    }

    async fn related(&self, reference: &Reference) -> RelatedObject {
        let read = self.read_related(reference).await;
        let object = failure::object_name(&reference.kind, Some(&reference.name));
        RelatedObject {
            reference: reference.clone(),
            object: match read {
                Ok(object) => Reading::Read(object),
                Err(error) => Reading::Failed(failure::from_error(object, &error)),
            },
        }
    }

    async fn read_related(&self, reference: &Reference) -> Result<Option<ConditionedObject>, Error> {
        let Reference { group, kind, name } = reference;
        let resource = self.reader.served.resource_of_reference(group, kind)?;
        let action = Action::new("list", &resource).in_namespace(self.namespace);
        let fields = format!("metadata.name={name}");
        let connection = self.reader.connection;
        let list = connection.list_by_fields::<ConditionedObject>(&resource, self.namespace, &fields);
        let objects = connection.run_with_limit(self.limit, &action, list).await?;
        Ok(objects.into_iter().find(|object| object.name() == name))
    }

    /// The control plane of the Machine's Cluster, with the workload cluster and etcd.
    async fn control_plane_of(&self, machine: &Machine, end: Instant) -> Reading<Box<Snapshot>> {
        let cluster = machine.spec.cluster_name.as_deref().unwrap_or_default();
        let name = match machine.control_plane() {
            Some(name) => Ok(name.to_owned()),
            None => read_control_plane_name(self.reader, self.namespace, cluster, self.limit).await,
        };
        let read = match name {
            Ok(name) => observe(self.reader, self.namespace, &name, Excluded::default(), end).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(observed) => Reading::Read(Box::new(observed)),
            Err(error) => Reading::Failed(failure::of_kind(&KUBEADM_CONTROL_PLANE, &error)),
        }
    }

    async fn events_about(&self, objects: &[&Reference]) -> Reading<Vec<ReportedEvent>> {
        let lists = objects.iter().map(async |object| {
            let fields = fields_about(&object.kind, &object.name);
            self.events(&fields).await
        });
        let read: Result<Vec<Vec<Event>>, Error> = join_all(lists).await.into_iter().collect();
        match read {
            Ok(events) => Reading::Read(events.into_iter().flatten().filter_map(reported).collect()),
            Err(error) => Reading::Failed(failure::of_kind(&EVENT, &error)),
        }
    }

    /// The Events about the Machine's Node and its static Pods. Not read if there is no Node, or if the workload cluster could not be
    /// read.
    async fn workload_events(
        &self,
        observed: &Snapshot,
        machine: &Machine,
        end: Instant,
    ) -> Reading<Vec<ReportedEvent>> {
        let (Some(node), Reading::Read(_)) = (observed.node_of(machine), &observed.workload) else {
            return Reading::NotYet;
        };
        let read = async {
            let secrets = Secrets::of_control_plane(self.reader.connection, &observed.control_plane, end)?;
            let cluster = WorkloadCluster::open(&secrets).await?;
            let of_control_plane = observed.machines.iter().any(|own| own.name() == machine.name());
            let pods = Component::ALL.iter().filter(|_| of_control_plane);
            let pods = pods.map(|component| {
                let pod = format!("{}-{node}", component.as_str());
                (KUBE_SYSTEM, fields_about("Pod", &pod))
            });
            let subjects = [(NODE_EVENTS, fields_about("Node", node))]
                .into_iter()
                .chain(pods);
            let lists = subjects.map(async |(namespace, fields)| {
                let filter = ListParams::default().fields(&fields);
                Box::pin(cluster.objects.list(Some(namespace), &filter, reported)).await
            });
            let read: Result<Vec<Vec<ReportedEvent>>, Error> = join_all(lists).await.into_iter().collect();
            read.map_err(|error| cluster.failures.describe(EVENT.kind, &error))
        };
        let read: Result<Vec<Vec<ReportedEvent>>, Failure> = read.await;
        match read {
            Ok(events) => Reading::Read(events.into_iter().flatten().collect()),
            Err(failure) => Reading::Failed(failure),
        }
    }
}

/// The field selector of the Events about an object.
fn fields_about(kind: &str, name: &str) -> String {
    format!("regarding.kind={kind},regarding.name={name}")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use kcp_control_plane::{diagnosis::MachineRecords, snapshot::Reading};
    use serde_json::{Value, json};

    use super::{ReadMachineError, read_diagnosis};
    use crate::{
        Connection,
        reader::Reader,
        testing::{
            example::{answer, groups},
            failure,
        },
    };

    fn machine(name: &str, owner: &Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "d", "ownerReferences": [owner]},
            "spec": {"clusterName": "c1", "infrastructureRef":
                {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerMachine", "name": name}}})
    }

    async fn read(name: &str, denies_events: bool) -> Result<MachineRecords, ReadMachineError> {
        let connection = Connection::canned(move |_, path| match path {
            "/apis" => (200, groups()),
            path if path.ends_with("/events") && denies_events => failure(403, "Forbidden", "no"),
            path if path.ends_with("/events") => {
                let event = json!({"metadata": {"name": "a"}, "reason": "Created", "note": "n",
                    "regarding": {"kind": "Machine", "name": "m1"},
                    "deprecatedFirstTimestamp": "2026-08-21T11:00:00Z"});
                (200, json!({"items": [event]}))
            }
            path if path.ends_with("/machines") => {
                let group = "controlplane.cluster.x-k8s.io/v1beta2";
                let control_plane = json!({"apiVersion": group, "kind": "KubeadmControlPlane", "name": "c1-cp",
                    "uid": "u", "controller": true});
                let set = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "s",
                    "uid": "u", "controller": true});
                (
                    200,
                    json!({"items": [machine("m1", &control_plane), machine("w1", &set)]}),
                )
            }
            path if path.ends_with("/kubeadmcontrolplanes") || path.ends_with("/machinesets") => {
                let objects = ["c1-cp", "s"].map(|name| {
                    json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "A", "status": "True"}]}})
                });
                (200, json!({"items": objects}))
            }
            path => answer(path),
        });
        let reader = Reader::discover(&connection).await.expect("discovered");
        let end = Instant::now() + Duration::from_secs(10);
        read_diagnosis(&reader, name, end).await
    }

    /// The related objects, and how many conditions each has. `None` if it does not exist.
    fn related(records: &MachineRecords) -> Vec<(String, Option<usize>)> {
        let related = records.related.iter().map(|related| {
            let Reading::Read(object) = &related.object else {
                panic!("{related:?}");
            };
            let conditions = object.as_ref().map(|object| object.conditions.len());
            (
                format!("{}/{}", related.reference.kind, related.reference.name),
                conditions,
            )
        });
        related.collect()
    }

    #[tokio::test]
    async fn the_objects_of_a_machine_and_of_a_worker_are_read() {
        for (name, owner) in [("m1", "KubeadmControlPlane/c1-cp"), ("w1", "MachineSet/s")] {
            let records = read(name, false).await.expect("it is read");
            let expected = [
                (owner.to_owned(), Some(1)),
                (format!("DockerMachine/{name}"), None),
            ];
            assert_eq!(related(&records), expected);
            let observed = records.control_plane.value().expect("a control plane");
            assert_eq!(kcp_api::Object::name(&observed.control_plane), "c1-cp");
            // One for the Machine, and one for its infrastructure.
            assert_eq!(records.events.value().map(Vec::len), Some(2));
            assert_eq!(records.workload_events, Reading::NotYet);
        }
    }

    #[tokio::test]
    async fn events_that_may_not_be_listed_are_a_failure() {
        let records = read("m1", true).await.expect("it is read");
        let failure = records.events.failure().expect("a failure");
        assert!(failure.forbidden.is_some(), "{failure:?}");
    }

    #[tokio::test]
    async fn a_machine_that_does_not_exist_is_an_error_with_known_names() {
        let Err(ReadMachineError::NoSuchMachine(error)) = read("none", false).await else {
            panic!("it does not exist");
        };
        assert_eq!(
            error.to_string(),
            "cannot get machines \"none\" in namespace \"d\": not found"
        );
        assert_eq!(error.hint(), "Machines of control planes in namespace d: m1, w1");
    }
}
