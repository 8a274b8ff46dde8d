//! Reads the objects of a control plane in the management cluster, the Events about them, and other objects that affect writes:
//! webhook configurations and the Leases of Cluster API's controllers.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use kcp_api::{
    Kind, Object as _,
    kind::{
        CLUSTER, EVENT, KUBEADM_CONFIG, KUBEADM_CONTROL_PLANE, LEASE, MACHINE, MACHINE_DEPLOYMENT,
        MACHINE_HEALTH_CHECK, MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION,
    },
    names::{label, lease},
};
use kcp_control_plane::{
    bundle::selection::{ObjectNames, events_about, object_name, reviews_cluster_api},
    snapshot::{Failure, Snapshot},
};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::ObjectList;
use crate::{
    Action, Error,
    reads::{failure, planned::Reads},
};

/// The maximum number of pages of a list, each of 500 objects, so that a namespace with very many Events takes little memory.
const MAX_PAGES: usize = 10;

/// The Leases of Cluster API's controllers, by namespace and name.
const LEASES: [[&str; 2]; 3] = [
    [lease::CONTROL_PLANE_NAMESPACE, lease::CONTROL_PLANE],
    [lease::CORE_NAMESPACE, lease::CORE],
    [lease::BOOTSTRAP_NAMESPACE, lease::BOOTSTRAP],
];

/// Reads the objects of the management cluster. Each list that cannot be read has its failure.
pub async fn read_management_objects(reads: &Reads<'_>, observed: &Snapshot) -> Vec<ObjectList> {
    let control_plane = &observed.control_plane;
    let name = control_plane.name();
    let (own, of_cluster, webhooks, leases) = tokio::join!(
        Box::pin(reads.named_object(&KUBEADM_CONTROL_PLANE, name)),
        Box::pin(reads.objects_of_cluster(observed)),
        Box::pin(reads.webhook_configurations()),
        Box::pin(reads.controller_leases())
    );
    let mut lists = vec![own];
    lists.extend(of_cluster);
    let names: ObjectNames = lists
        .iter()
        .flat_map(|list| list.objects.iter().filter_map(object_name))
        .collect();
    // The Events are read last, because the names of the objects select them.
    lists.push(Box::pin(reads.events_of(&names)).await);
    lists.extend(webhooks);
    lists.push(leases);
    lists
}

/// The objects of a list.
struct Listed {
    objects: Vec<Value>,
    /// Whether the list has no more pages than [`MAX_PAGES`].
    is_complete: bool,
}

impl Reads<'_> {
    async fn named_object(&self, kind: &Kind, name: &str) -> ObjectList {
        let read = async {
            let resource = self.reader.served.resource(kind)?;
            let object = self.object(&resource, self.namespace, name).await?;
            Ok(Listed {
                objects: vec![object],
                is_complete: true,
            })
        };
        let described = failure::object_name(kind.kind, Some(name));
        object_list(&file(kind.plural), described, read.await)
    }

    async fn object(&self, resource: &ApiResource, namespace: &str, name: &str) -> Result<Value, Error> {
        let connection = self.reader.connection;
        let action = Action::new("get", resource)
            .in_namespace(namespace)
            .with_name(name);
        let read = connection.get::<Value>(resource, namespace, name);
        let object = connection.run_with_limit(self.limit, &action, read).await?;
        Ok(with_kind(resource, object))
    }

    /// Reads the objects that belong to the Cluster; empty if there is no Cluster yet.
    async fn objects_of_cluster(&self, observed: &Snapshot) -> Vec<ObjectList> {
        let Some(cluster) = observed.control_plane.cluster() else {
            return Vec::new();
        };
        let selector = format!("{}={cluster}", label::CLUSTER_NAME);
        let selector = Some(selector.as_str());
        // Users create the health checks and the MachineDeployments, and may have left out the label. So filter these by
        // `spec.clusterName`.
        let is_of_cluster =
            |object: &Value| object.pointer("/spec/clusterName").and_then(Value::as_str) == Some(cluster);
        let (object, machines, configs, checks, deployments, infrastructure) = tokio::join!(
            Box::pin(self.named_object(&CLUSTER, cluster)),
            Box::pin(self.list_of_kind(&MACHINE, selector, |_| true)),
            Box::pin(self.list_of_kind(&KUBEADM_CONFIG, selector, |_| true)),
            Box::pin(self.list_of_kind(&MACHINE_HEALTH_CHECK, None, is_of_cluster)),
            Box::pin(self.list_of_kind(&MACHINE_DEPLOYMENT, None, is_of_cluster)),
            Box::pin(self.infrastructure_machines(observed, selector))
        );
        let mut lists = vec![object, machines, configs, checks, deployments];
        lists.extend(infrastructure);
        lists
    }

    async fn list_of_kind(
        &self,
        kind: &Kind,
        selector: Option<&str>,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> ObjectList {
        let read = async {
            let resource = self.reader.served.resource(kind)?;
            let mut listed = self.list(&resource, Some(self.namespace), selector).await?;
            listed.objects.retain(is_wanted);
            Ok(listed)
        };
        object_list(&file(kind.plural), kind.kind.to_owned(), read.await)
    }

    /// Reads the infrastructure machines, with one list for each kind (normally one).
    async fn infrastructure_machines(&self, observed: &Snapshot, selector: Option<&str>) -> Vec<ObjectList> {
        let machines = observed.machines.iter();
        let references = machines.filter_map(|machine| machine.spec.infrastructure_ref.as_ref());
        let kinds: BTreeSet<(&str, &str)> = references
            .map(|reference| (reference.group.as_str(), reference.kind.as_str()))
            .collect();
        let lists = kinds.into_iter().map(|(group, kind)| async move {
            let read = async {
                let resource = self.reader.served.resource_of_reference(group, kind)?;
                self.list(&resource, Some(self.namespace), selector).await
            };
            object_list(&infrastructure_file(kind), kind.to_owned(), read.await)
        });
        join_all(lists).await
    }

    async fn webhook_configurations(&self) -> [ObjectList; 2] {
        let read = |kind: Kind| async move {
            let resource = kind.api_resource("v1");
            let mut listed = self.list(&resource, None, None).await;
            if let Ok(listed) = &mut listed {
                listed.objects.retain(reviews_cluster_api);
            }
            object_list(&file(kind.plural), kind.kind.to_owned(), listed)
        };
        let (mutating, validating) = tokio::join!(
            Box::pin(read(MUTATING_WEBHOOK_CONFIGURATION)),
            Box::pin(read(VALIDATING_WEBHOOK_CONFIGURATION))
        );
        [mutating, validating]
    }

    async fn events_of(&self, about: &ObjectNames) -> ObjectList {
        let resource = EVENT.api_resource("v1");
        let listed = self.list(&resource, Some(self.namespace), None).await;
        let mut list = object_list(&file(EVENT.plural), EVENT.kind.to_owned(), listed);
        list.objects = events_about(about, list.objects);
        list
    }

    /// Reads the Leases of Cluster API's controllers. A Lease that does not exist is left out, because the controller may run in
    /// another namespace.
    async fn controller_leases(&self) -> ObjectList {
        let resource = LEASE.api_resource("v1");
        let reads = LEASES.map(|[namespace, name]| {
            let resource = &resource;
            async move { (name, self.object(resource, namespace, name).await) }
        });
        let mut list = ObjectList::new(&file(LEASE.plural), Ok(Vec::new()));
        for (name, read) in join_all(reads).await {
            match read {
                Ok(lease) => list.objects.push(lease),
                Err(Error::NotFound { .. }) => {}
                Err(error) => {
                    let described = failure::object_name(LEASE.kind, Some(name));
                    list.failures.push(failure::from_error(described, &error));
                }
            }
        }
        list
    }

    async fn list(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Listed, Error> {
        let connection = self.reader.connection;
        let mut pages = connection.pages(resource, namespace, selector);
        let action = pages.action().clone();
        let read = async {
            let mut objects = Vec::new();
            for _ in 0..MAX_PAGES {
                let Some(page) = pages.next::<Value>().await? else {
                    break;
                };
                objects.extend(page.into_iter().map(|object| with_kind(resource, object)));
            }
            Ok(Listed {
                objects,
                is_complete: pages.is_complete(),
            })
        };
        connection
            .run_with_limit(self.limit, &action, Box::pin(read))
            .await
    }
}

/// `described` names the objects in the failures.
fn object_list(file: &str, described: String, read: Result<Listed, Error>) -> ObjectList {
    match read {
        Ok(Listed { objects, is_complete }) => {
            let mut list = ObjectList::new(file, Ok(objects));
            if !is_complete {
                list.failures.push(Failure {
                    object: described,
                    message: format!("the list has more pages than the {MAX_PAGES} that were read"),
                    hint: None,
                    ..Failure::default()
                });
            }
            list
        }
        Err(error) => ObjectList::new(file, Err(failure::from_error(described, &error))),
    }
}

/// Adds `apiVersion` and `kind`, which the API server leaves out of the items of a list.
fn with_kind(resource: &ApiResource, mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!(resource.api_version));
        fields.insert("kind".to_owned(), json!(resource.kind));
    }
    object
}

fn file(plural: &str) -> String {
    format!("management/{plural}.json")
}

/// The file of a provider's kind. The kind comes from a field of a Machine, so only its letters and digits become part of the
/// path.
fn infrastructure_file(kind: &str) -> String {
    const MAX_LETTERS: usize = 63;
    let letters = kind.chars().filter(char::is_ascii_alphanumeric);
    let name: String = letters.take(MAX_LETTERS).collect();
    format!("management/infrastructure/{}.json", name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{Failure, MAX_PAGES, infrastructure_file, read_management_objects};
    use crate::{
        Connection, ReadLimit,
        reader::Reader,
        reads::{
            bundle::ObjectList,
            planned::{Reads, fetch},
        },
        testing::{
            example::{answer, groups},
            failure,
        },
    };

    fn event(kind: &str, name: &str) -> Value {
        json!({"metadata": {"name": "e"}, "regarding": {"kind": kind, "name": name}})
    }

    async fn read(denied: &'static str) -> Vec<ObjectList> {
        let connection = Connection::canned(move |_, path| match path {
            "/apis" => (200, groups()),
            path if !denied.is_empty() && path.ends_with(denied) => failure(403, "Forbidden", "no"),
            path if path.ends_with("/events") => {
                let events = [event("Machine", "m1"), event("Machine", "other")];
                (200, json!({"items": events}))
            }
            path if path.ends_with("/machinedeployments") => {
                let deployment =
                    |cluster: &str| json!({"metadata": {"name": cluster}, "spec": {"clusterName": cluster}});
                (200, json!({"items": [deployment("c1"), deployment("c2")]}))
            }
            path if path.ends_with("webhookconfigurations") => {
                let configuration = |name: &str, group: &str| json!({"metadata": {"name": name}, "webhooks": [{"rules": [{"apiGroups": [group]}]}]});
                let items = [
                    configuration("ours", "cluster.x-k8s.io"),
                    configuration("other", "apps"),
                ];
                (200, json!({"items": items}))
            }
            path => answer(path),
        });
        read_from(&connection, "c1-cp").await
    }

    async fn read_from(connection: &Connection, name: &str) -> Vec<ObjectList> {
        let reader = Reader::discover(connection).await.expect("groups");
        let limit = ReadLimit::per_read(Duration::from_secs(10));
        let observed = fetch(&reader, "d", name, limit).await.expect("read").observed;
        let reads = Reads {
            reader: &reader,
            namespace: "d",
            limit,
        };
        read_management_objects(&reads, &observed).await
    }

    /// The file, and the kind and name of each object, and the failures.
    fn summary(list: &ObjectList) -> String {
        let text = |object: &Value, pointer: &str| {
            let text = object.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or("none").to_owned()
        };
        let objects = list.objects.iter().map(|object| {
            let subject = object.pointer("/regarding/name").and_then(Value::as_str);
            let name = subject.map_or_else(|| text(object, "/metadata/name"), str::to_owned);
            format!("{}/{name}", text(object, "/kind"))
        });
        let failures = list.failures.iter().map(|failure| failure.message.clone());
        let words: Vec<String> = objects.chain(failures).collect();
        format!("{}: {}", list.file, words.join(" "))
    }

    #[tokio::test]
    async fn the_objects_of_a_control_plane_are_read() {
        let lists = read("").await;
        let read: Vec<String> = lists.iter().map(summary).collect();
        assert_eq!(
            read,
            [
                "management/kubeadmcontrolplanes.json: KubeadmControlPlane/c1-cp",
                "management/clusters.json: Cluster/c1",
                "management/machines.json: Machine/m3 Machine/m2 Machine/m1 Machine/m0",
                "management/kubeadmconfigs.json: ",
                "management/machinehealthchecks.json: MachineHealthCheck/h1",
                "management/machinedeployments.json: MachineDeployment/c1",
                "management/infrastructure/dockermachine.json: ",
                "management/events.json: Event/m1",
                "management/mutatingwebhookconfigurations.json: MutatingWebhookConfiguration/ours",
                "management/validatingwebhookconfigurations.json: ValidatingWebhookConfiguration/ours",
                "management/leases.json: ",
            ]
        );
    }

    #[tokio::test]
    async fn a_list_that_may_not_be_read_says_why_and_hides_no_other() {
        for (denied, file) in [
            ("/machinehealthchecks", "management/machinehealthchecks.json"),
            ("/events", "management/events.json"),
            (
                "/validatingwebhookconfigurations",
                "management/validatingwebhookconfigurations.json",
            ),
            (
                "/leases/controller-leader-election-capi",
                "management/leases.json",
            ),
        ] {
            let lists = read(denied).await;
            let unread: Vec<&str> = lists
                .iter()
                .filter(|list| !list.failures.is_empty())
                .map(|list| list.file.as_str())
                .collect();
            assert_eq!(unread, [file]);
            let messages = lists.iter().flat_map(|list| &list.failures);
            for failure in messages {
                assert!(failure.message.contains("forbidden"), "{}", failure.message);
            }
        }
    }

    #[tokio::test]
    async fn an_endless_list_ends_and_says_so() {
        let connection = Connection::canned(|_, path| match path {
            "/apis" => (200, groups()),
            path if path.ends_with("/events") => {
                let events = [event("KubeadmControlPlane", "alone")];
                (200, json!({"metadata": {"continue": "more"}, "items": events}))
            }
            path => answer(path),
        });
        let lists = read_from(&connection, "alone").await;
        let list = lists.iter().find(|list| list.file.ends_with("/events.json"));
        let list = list.expect("Events");
        assert_eq!(list.objects.len(), MAX_PAGES);
        let failures: Vec<String> = list.failures.iter().map(Failure::text).collect();
        assert_eq!(failures, ["the list has more pages than the 10 that were read"]);
    }

    #[test]
    fn a_kind_cannot_lead_to_another_path() {
        for (kind, expected) in [
            ("DockerMachine", "management/infrastructure/dockermachine.json"),
            ("../../x", "management/infrastructure/x.json"),
        ] {
            assert_eq!(infrastructure_file(kind), expected);
        }
        assert!(infrastructure_file(&"x".repeat(300)).len() < 100);
    }
}
