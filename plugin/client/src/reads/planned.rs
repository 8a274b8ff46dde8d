//! Reads the facts for a plan: a control plane, its Cluster, its Machines, and their infrastructure and bootstrap
//! objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    time::Duration,
};

use kcp_api::{
    Cluster, Kind, KubeadmConfig, KubeadmConfigSpec, KubeadmControlPlane, Machine, Object as _,
    PartialObjectMetadata, Reference, decode,
    kind::{CLUSTER, KUBEADM_CONFIG, MACHINE},
    machine::{Bootstrap, Infrastructure},
    names::label,
};
use kcp_control_plane::snapshot::{Reading, Snapshot, change::Part};

use crate::{Action, Error, ReadLimit, reader::Reader};

#[derive(Debug)]
pub struct Fetched {
    /// The JSON of the control plane.
    pub json: String,
    /// The facts about the control plane, without the workload cluster and etcd.
    pub observed: Snapshot,
    /// The parts of the snapshot that could not be read.
    pub unread: Vec<Unread>,
}

/// A part of a control plane's [`Snapshot`] that could not be read, and why.
#[derive(Debug)]
pub struct Unread {
    pub part: Part,
    /// The kind of the objects that could not be read.
    pub kind: String,
    pub error: Error,
}

/// Reads a control plane and its related objects in the management cluster.
pub async fn fetch(
    reader: &Reader<'_>,
    namespace: &str,
    name: &str,
    limit: ReadLimit,
) -> Result<Fetched, Error> {
    let reads = Reads {
        reader,
        namespace,
        limit,
    };
    let (object, planned) = reads.read_control_plane(name).await?;
    let mut fetched = reads.read_related_objects(object, planned, |_| ()).await;
    let machines = fetched
        .unread
        .iter()
        .position(|unread| unread.part == Part::Machines);
    match machines {
        Some(machines) => Err(fetched.unread.swap_remove(machines).error),
        None => Ok(fetched),
    }
}

#[derive(Clone, Copy)]
pub struct Reads<'r> {
    pub reader: &'r Reader<'r>,
    pub namespace: &'r str,
    pub limit: ReadLimit,
}

/// The Machines of a Cluster's control planes, and the templates of their infrastructure.
struct Machines {
    own: Vec<Machine>,
    others: Vec<Machine>,
    infrastructure: BTreeMap<Reference, Infrastructure>,
    unread: Vec<Unread>,
}

impl Reads<'_> {
    /// Reads a control plane. Returns its JSON and the decoded object.
    pub async fn read_control_plane(&self, name: &str) -> Result<(String, KubeadmControlPlane), Error> {
        let resource = &self.reader.control_plane_resource;
        let action = Action::new("get", resource)
            .in_namespace(self.namespace)
            .with_name(name);
        let read = self.reader.connection.get_text(resource, self.namespace, name);
        let connection = self.reader.connection;
        let text = connection
            .run_with_limit(self.limit.for_first_read(), &action, read)
            .await?;
        match decode(&text) {
            Ok(control_plane) => Ok((text, control_plane)),
            Err(source) => Err(Error::malformed(action, source)),
        }
    }

    /// Reads the related objects of a control plane. Errors go to [`Fetched::unread`]. Calls `machines_known` as soon
    /// as the Machines are listed, before their infrastructure and bootstrap objects are read.
    pub async fn read_related_objects(
        &self,
        object: String,
        control_plane: KubeadmControlPlane,
        machines_known: impl FnOnce(&[Machine]),
    ) -> Fetched {
        let mut fetched = Fetched {
            json: object,
            observed: control_plane.into(),
            unread: Vec::new(),
        };
        let control_plane = &fetched.observed.control_plane;
        // A control plane without a Cluster has no Machines.
        let Some(cluster) = control_plane.cluster().map(str::to_owned) else {
            return fetched;
        };
        let selector = format!("{}={cluster},{}", label::CLUSTER_NAME, label::CONTROL_PLANE);
        let (cluster, machines, configs, template, controller_version) = tokio::join!(
            Box::pin(self.read_cluster(&cluster)),
            Box::pin(self.machines(&selector, control_plane, machines_known)),
            Box::pin(self.configs(&selector)),
            Box::pin(self.template_exists(&control_plane.spec.infrastructure_ref)),
            Box::pin(self.reader.controller_version(self.limit))
        );
        let template = template.map(|exists| (control_plane.spec.infrastructure_ref.clone(), exists));
        let mut unread = |part, kind: &Kind, error| {
            let kind = kind.kind.to_owned();
            fetched.unread.push(Unread { part, kind, error });
        };
        fetched.observed.templates.extend(template);
        fetched.observed.controller_version = controller_version;
        match cluster {
            Ok(cluster) => fetched.observed.cluster = Reading::Read(cluster),
            Err(error) => unread(Part::Cluster, &CLUSTER, error),
        }
        let configs = configs.unwrap_or_else(|error| {
            unread(Part::Bootstrap, &KUBEADM_CONFIG, error);
            BTreeMap::new()
        });
        match machines {
            Ok(machines) => {
                fetched.unread.extend(machines.unread);
                let mut own = machines.own;
                for machine in &mut own {
                    attach_references(machine, &configs, &machines.infrastructure);
                }
                own.sort_by(|a, b| a.name().cmp(b.name()));
                fetched.observed.machines = own;
                fetched.observed.machines_of_other_owners = machines.others;
            }
            Err(error) => unread(Part::Machines, &MACHINE, error),
        }
        fetched
    }

    async fn run_with_limit<T>(
        &self,
        action: &Action,
        read: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.reader
            .connection
            .run_with_limit(self.limit, action, read)
            .await
    }

    /// Reads a Cluster.
    pub async fn read_cluster(&self, name: &str) -> Result<Cluster, Error> {
        let resource = &self.reader.cluster_resource;
        let action = Action::new("get", resource)
            .in_namespace(self.namespace)
            .with_name(name);
        let read = self.reader.connection.get(resource, self.namespace, name);
        self.run_with_limit(&action, read).await
    }

    async fn machines(
        &self,
        selector: &str,
        control_plane: &KubeadmControlPlane,
        machines_known: impl FnOnce(&[Machine]),
    ) -> Result<Machines, Error> {
        let resource = &self.reader.machine_resource;
        let action = Action::new("list", resource).in_namespace(self.namespace);
        let read = self
            .reader
            .connection
            .list(resource, Some(self.namespace), Some(selector));
        let mut own: Vec<Machine> = self.run_with_limit(&action, read).await?;
        let others = own
            .extract_if(.., |machine| !control_plane.has_machine(machine))
            .collect();
        machines_known(&own);
        let mut unread = Vec::new();
        let infrastructure = self.infrastructure(&own, selector, &mut unread).await;
        Ok(Machines {
            own,
            others,
            infrastructure,
            unread,
        })
    }

    /// Reads the specs of `KubeadmConfigs`, and returns them by the name of the object.
    async fn configs(&self, selector: &str) -> Result<BTreeMap<String, KubeadmConfigSpec>, Error> {
        // The version is that of the control plane, because specs of different versions cannot be compared.
        let version = &self.reader.control_plane_resource.version;
        let resource = self.reader.served.resource_in(&KUBEADM_CONFIG, version)?;
        let action = Action::new("list", &resource).in_namespace(self.namespace);
        let read =
            self.reader
                .connection
                .list::<KubeadmConfig>(&resource, Some(self.namespace), Some(selector));
        let configs = self.run_with_limit(&action, read).await?.into_iter();
        Ok(configs
            .map(|config| (config.name().to_owned(), config.spec))
            .collect())
    }

    /// Reads which template each infrastructure machine was cloned from, with one list for each kind (normally one).
    async fn infrastructure(
        &self,
        machines: &[Machine],
        selector: &str,
        unread: &mut Vec<Unread>,
    ) -> BTreeMap<Reference, Infrastructure> {
        let references = || {
            machines
                .iter()
                .filter_map(|machine| machine.spec.infrastructure_ref.as_ref())
        };
        let kinds: BTreeSet<(&str, &str)> = references()
            .map(|reference| (reference.group.as_str(), reference.kind.as_str()))
            .collect();
        let mut found = BTreeMap::new();
        for (group, kind) in kinds {
            match self.metadata(group, kind, selector).await {
                Ok(list) => {
                    found.extend(list.iter().map(|object| {
                        let reference = Reference {
                            group: group.to_owned(),
                            kind: kind.to_owned(),
                            name: object.name().to_owned(),
                        };
                        let template = Reference::cloned_from(&object.metadata);
                        let infrastructure =
                            template.map_or(Infrastructure::Unannotated, Infrastructure::ClonedFrom);
                        (reference, infrastructure)
                    }));
                }
                Err(error) => unread.push(Unread {
                    part: Part::Infrastructure,
                    kind: kind.to_owned(),
                    error,
                }),
            }
        }
        found
    }

    async fn metadata(
        &self,
        group: &str,
        kind: &str,
        selector: &str,
    ) -> Result<Vec<PartialObjectMetadata>, Error> {
        let resource = self.reader.served.resource_of_reference(group, kind)?;
        let action = Action::new("list", &resource).in_namespace(self.namespace);
        let read = self
            .reader
            .connection
            .list_metadata(&resource, Some(self.namespace), Some(selector));
        self.run_with_limit(&action, read).await
    }
}

fn attach_references(
    machine: &mut Machine,
    configs: &BTreeMap<String, KubeadmConfigSpec>,
    infrastructure: &BTreeMap<Reference, Infrastructure>,
) {
    let config = machine.spec.bootstrap_config_ref.as_ref();
    machine.bootstrap = match config.filter(|config| !config.name.is_empty()) {
        None => Bootstrap::Unreferenced,
        Some(reference) => configs
            .get(&reference.name)
            .map_or(Bootstrap::Missing, |config| Bootstrap::Config(config.clone())),
    };
    let reference = machine.spec.infrastructure_ref.as_ref();
    machine.infrastructure = reference
        .and_then(|reference| infrastructure.get(reference).cloned())
        .unwrap_or_default();
}

/// Reads whether the infrastructure template of a control plane exists, and the Events about Machines that the controller could
/// not create or delete, and adds the results to the snapshot. `limit` applies to each read.
pub async fn add_obstacles(reader: &Reader<'_>, snapshot: &mut Snapshot, limit: Duration) {
    let reads = Reads {
        reader,
        namespace: &reader.connection.namespace,
        limit: ReadLimit::per_read(limit),
    };
    let template = snapshot.control_plane.spec.infrastructure_ref.clone();
    let (exists, failed_writes) = tokio::join!(
        Box::pin(reads.template_exists(&template)),
        Box::pin(reads.read_failed_writes(&snapshot.control_plane))
    );
    snapshot.templates.extend(exists.map(|exists| (template, exists)));
    snapshot.failed_writes = failed_writes;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcp_api::{
        Object as _,
        machine::{Bootstrap, Infrastructure},
    };
    use serde_json::{Value, json};

    use super::{Fetched, fetch};
    use crate::{Connection, Error, ReadLimit, reader::Reader, testing::failure};
    use kcp_control_plane::{
        snapshot::{EtcdMembers, Reading, change::Part},
        testing::plan::template,
    };

    const GROUPS: [(&str, &str); 4] = [
        ("cluster.x-k8s.io", "v1beta2"),
        ("controlplane.cluster.x-k8s.io", "v1beta2"),
        ("bootstrap.cluster.x-k8s.io", "v1beta2"),
        ("infrastructure.cluster.x-k8s.io", "v1beta1"),
    ];

    fn groups() -> Value {
        let groups = GROUPS.map(|(name, version)| {
            let version = json!({"groupVersion": format!("{name}/{version}"), "version": version});
            json!({"name": name, "versions": [version], "preferredVersion": version})
        });
        json!({"groups": groups})
    }

    fn machine(name: &str, owner: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "d", "ownerReferences": [
                {"kind": "KubeadmControlPlane", "name": owner}]},
            "spec": {"clusterName": "c1",
                "bootstrap": {"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig",
                    "name": format!("{name}-config")}},
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerMachine",
                    "name": format!("{name}-infra")}},
        })
    }

    fn object(path: &str) -> Value {
        if path.contains("/deployments") {
            return json!({"metadata": {}, "spec": {"template": {"spec": {"containers": [{"image": "c:v1.14.2"}]}}}});
        }
        let kind = path.rsplit_once("/namespaces/d/").map_or("", |(_, kind)| kind);
        match kind {
            "kubeadmcontrolplanes/c1-cp" => json!({
                "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
                "metadata": {"name": "c1-cp", "namespace": "d", "labels": {"cluster.x-k8s.io/cluster-name": "c1"}},
                "spec": {"replicas": 3, "version": "v1.34.1"},
            }),
            "clusters/c1" => json!({"metadata": {"name": "c1"}, "spec": {"paused": true}}),
            "machines" => {
                json!({"items": [machine("m2", "c1-cp"), machine("m1", "c1-cp"), machine("m0", "other")]})
            }
            "kubeadmconfigs" => {
                json!({"items": [{"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "metadata": {"name": "m1-config"}, "spec": {"verbosity": 3}}]})
            }
            "dockermachines" => json!({"items": [{"metadata": {"name": "m2-infra", "annotations": {
                "cluster.x-k8s.io/cloned-from-name": "t1",
                "cluster.x-k8s.io/cloned-from-groupkind": template("t1").group_kind()}}}]}),
            _ => panic!("{path} is not asked for"),
        }
    }

    async fn fetched(without: &'static str) -> Result<Fetched, Error> {
        let connection = Connection::canned(move |_, path| match path {
            "/apis" => (200, groups()),
            path if path.contains(without) => failure(403, "Forbidden", "not you"),
            path => (200, object(path)),
        });
        let reader = Reader::discover(&connection).await?;
        let limit = ReadLimit::per_read(Duration::from_secs(10));
        fetch(&reader, "d", "c1-cp", limit).await
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(future)
    }

    #[test]
    fn each_machine_gets_what_it_refers_to() {
        let fetched = run(fetched("/nothing")).expect("it is read");
        assert!(fetched.unread.is_empty());
        assert!(fetched.json.contains("c1-cp"));
        let observed = fetched.observed;
        assert_eq!(
            (observed.control_plane.spec.replicas, &observed.etcd_members),
            (Some(3), &EtcdMembers::Unread)
        );
        assert!(observed.is_cluster_paused() && !observed.is_infrastructure_ready());
        assert_eq!(
            observed.controller_version,
            Reading::Read(Some("v1.14.2".to_owned()))
        );
        let machines: Vec<_> = observed
            .machines
            .iter()
            .map(|machine| {
                let config = matches!(&machine.bootstrap, Bootstrap::Config(config)
                    if config.version == "v1beta2" && config.fields == json!({"verbosity": 3}));
                let is_missing = machine.bootstrap == Bootstrap::Missing;
                (machine.name(), config, is_missing, machine.infrastructure.clone())
            })
            .collect();
        assert_eq!(
            machines,
            [
                ("m1", true, false, Infrastructure::Missing),
                ("m2", false, true, Infrastructure::ClonedFrom(template("t1")))
            ]
        );
    }

    #[test]
    fn a_part_that_cannot_be_read_is_named() {
        for (path, part) in [
            ("/clusters/", Part::Cluster),
            ("/kubeadmconfigs", Part::Bootstrap),
            ("/dockermachines", Part::Infrastructure),
        ] {
            let Fetched { observed, unread, .. } = run(fetched(path)).expect("the rest is read");
            let [unread] = unread.as_slice() else {
                panic!("{path}: {unread:?}");
            };
            assert_eq!(unread.part, part);
            assert!(
                matches!(unread.error, Error::Forbidden { .. }),
                "{:?}",
                unread.error
            );
            assert_eq!(observed.cluster.value().is_none(), part == Part::Cluster);
            assert_eq!(observed.is_infrastructure_ready(), part == Part::Cluster);
            assert_eq!(observed.has_endpoint(), part == Part::Cluster);
            let all = |is: fn(&kcp_api::Machine) -> bool| observed.machines.iter().all(is);
            assert_eq!(
                all(|machine| machine.bootstrap == Bootstrap::Missing),
                part == Part::Bootstrap
            );
            assert_eq!(
                all(|machine| machine.infrastructure == Infrastructure::Missing),
                part == Part::Infrastructure
            );
        }
        for path in ["/kubeadmcontrolplanes/", "/machines"] {
            let error = run(fetched(path)).expect_err(path);
            assert!(matches!(error, Error::Forbidden { .. }), "{error:?}");
        }
    }
}
