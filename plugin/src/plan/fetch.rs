//! Reads what a plan is made from: a control plane with its Cluster, its Machines, and what those were made from.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    time::Duration,
};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    observed::{Bootstrap, Cluster, ConfigSpec, Etcd, Infrastructure, Observed},
    wire::{PlannedControlPlane, PlannedMachine, Reference, WireCluster, WireConfig, WireInfrastructure},
};
use crate::{
    cluster::{Action, Error, KUBEADM_CONFIG},
    control_plane::{Reader, label},
};

/// What was read of a control plane.
#[derive(Debug)]
pub struct Fetched {
    /// The control plane as the server wrote it.
    pub object: String,
    /// What a plan is made from. Etcd's members are not read.
    pub observed: Observed,
    /// What could not be read.
    pub unread: Vec<Unread>,
}

/// A part of [`Observed`] that could not be read.
#[derive(Debug)]
pub struct Unread {
    /// Which.
    pub part: Part,
    /// Why.
    pub error: Error,
}

/// A part of [`Observed`] that may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// [`Observed::cluster`]: it is taken for ready, without failure domains.
    Cluster,
    /// The bootstrap configurations: all are [`Bootstrap::Missing`].
    Bootstrap,
    /// Infrastructure Machines of one kind: they are [`Infrastructure::Missing`].
    Infrastructure,
}

/// Reads a control plane and what surrounds it. Each read may take as long as `limit`.
///
/// # Errors
/// When the control plane or its Machines cannot be read.
pub async fn fetch(
    reader: &Reader<'_>,
    namespace: &str,
    name: &str,
    limit: Duration,
) -> Result<Fetched, Error> {
    let reads = Reads {
        reader,
        namespace,
        limit,
    };
    let (object, planned) = reads.control_plane(name).await?;
    let PlannedControlPlane {
        control_plane,
        spec,
        remediation_in_progress,
    } = planned;
    let mut observed = Observed {
        etcd: if control_plane.external_etcd {
            Etcd::External
        } else {
            Etcd::Unread
        },
        control_plane,
        spec,
        remediation_in_progress,
        cluster: Cluster::default(),
        machines: Vec::new(),
    };
    let mut unread = Vec::new();
    // Not linked to a Cluster yet: it cannot have Machines.
    if let Some(cluster) = observed.control_plane.cluster.clone() {
        let selector = format!("{}={cluster},{}", label::CLUSTER_NAME, label::CONTROL_PLANE);
        let (cluster, machines, configs) = tokio::join!(
            Box::pin(reads.cluster(&cluster)),
            Box::pin(reads.machines(&selector)),
            Box::pin(reads.configs(&selector))
        );
        let mut machines = machines?;
        machines.retain(|planned| observed.control_plane.has(&planned.machine.machine));
        let infrastructure = reads.infrastructure(&machines, &selector, &mut unread).await;
        observed.cluster = cluster.unwrap_or_else(|error| {
            unread.push(Unread {
                part: Part::Cluster,
                error,
            });
            Cluster {
                infrastructure_ready: true,
                has_endpoint: true,
                ..Cluster::default()
            }
        });
        let configs = configs.unwrap_or_else(|error| {
            unread.push(Unread {
                part: Part::Bootstrap,
                error,
            });
            BTreeMap::new()
        });
        observed.machines = machines
            .into_iter()
            .map(|planned| joined(planned, &configs, &infrastructure))
            .collect();
        observed
            .machines
            .sort_by(|a, b| a.machine.name.cmp(&b.machine.name));
    }
    Ok(Fetched {
        object,
        observed,
        unread,
    })
}

/// Gives a Machine what it refers to.
fn joined(
    planned: PlannedMachine,
    configs: &BTreeMap<String, ConfigSpec>,
    infrastructure: &BTreeMap<Reference, Infrastructure>,
) -> super::observed::Machine {
    let mut machine = planned.machine;
    machine.bootstrap = match planned.config.filter(|config| !config.name.is_empty()) {
        None => Bootstrap::Unreferenced,
        Some(reference) => configs
            .get(&reference.name)
            .map_or(Bootstrap::Missing, |config| Bootstrap::Config(config.clone())),
    };
    machine.infrastructure = planned
        .infrastructure
        .and_then(|reference| infrastructure.get(&reference).cloned())
        .unwrap_or_default();
    machine
}

struct Reads<'r> {
    reader: &'r Reader<'r>,
    namespace: &'r str,
    limit: Duration,
}

impl Reads<'_> {
    async fn within<T>(
        &self,
        action: Action,
        read: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.limit, read).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Timeout {
                action: Box::new(action.in_namespace(self.namespace)),
                server: self.reader.connection.server.clone(),
                after: self.limit,
            }),
        }
    }

    async fn control_plane(&self, name: &str) -> Result<(String, PlannedControlPlane), Error> {
        let resource = &self.reader.control_planes;
        let action = Action::new("get", resource).named(name);
        let read = self.reader.connection.get_text(resource, self.namespace, name);
        let text = self.within(action.clone(), read).await?;
        let decoded =
            serde_json::from_str::<Value>(&text).and_then(|object| PlannedControlPlane::decode(&object));
        match decoded {
            Ok(planned) => Ok((text, planned)),
            Err(source) => Err(Error::Malformed {
                action: action.in_namespace(self.namespace),
                source,
            }),
        }
    }

    async fn cluster(&self, name: &str) -> Result<Cluster, Error> {
        let resource = &self.reader.clusters;
        let read = self
            .reader
            .connection
            .get::<WireCluster>(resource, self.namespace, name);
        let cluster = self
            .within(Action::new("get", resource).named(name), read)
            .await?;
        Ok(cluster.into())
    }

    async fn machines(&self, selector: &str) -> Result<Vec<PlannedMachine>, Error> {
        let resource = &self.reader.machines;
        let read = self
            .reader
            .connection
            .list(resource, Some(self.namespace), Some(selector));
        self.within(Action::new("list", resource), read).await
    }

    /// The specs of bootstrap configurations, by name.
    async fn configs(&self, selector: &str) -> Result<BTreeMap<String, ConfigSpec>, Error> {
        let resource = self.reader.served.resource(&KUBEADM_CONFIG)?;
        let read = self
            .reader
            .connection
            .list::<WireConfig>(&resource, Some(self.namespace), Some(selector));
        let configs = self.within(Action::new("list", &resource), read).await?;
        let configs = configs.into_iter();
        Ok(configs.map(|config| config.named(&resource.version)).collect())
    }

    /// What infrastructure Machines were cloned from; a list per kind, of which there is one, if nobody changes it.
    async fn infrastructure(
        &self,
        machines: &[PlannedMachine],
        selector: &str,
        unread: &mut Vec<Unread>,
    ) -> BTreeMap<Reference, Infrastructure> {
        let references = || {
            machines
                .iter()
                .filter_map(|planned| planned.infrastructure.as_ref())
        };
        let kinds: BTreeSet<(&str, &str)> = references()
            .map(|reference| (reference.group(), reference.kind.as_str()))
            .collect();
        let mut found = BTreeMap::new();
        for (group, kind) in kinds {
            match self.metadata::<WireInfrastructure>(group, kind, selector).await {
                Ok(list) => {
                    let named: BTreeMap<_, _> = list.into_iter().map(WireInfrastructure::named).collect();
                    let of_kind =
                        references().filter(|reference| reference.group() == group && reference.kind == kind);
                    found.extend(of_kind.filter_map(|reference| {
                        let infrastructure = named.get(&reference.name)?;
                        Some((reference.clone(), infrastructure.clone()))
                    }));
                }
                Err(error) => unread.push(Unread {
                    part: Part::Infrastructure,
                    error,
                }),
            }
        }
        found
    }

    async fn metadata<T: DeserializeOwned>(
        &self,
        group: &str,
        kind: &str,
        selector: &str,
    ) -> Result<Vec<T>, Error> {
        let resource = self.reader.served.referenced(group, kind)?;
        let read = self
            .reader
            .connection
            .list_metadata(&resource, Some(self.namespace), Some(selector));
        self.within(Action::new("list", &resource), read).await
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use serde_json::{Value, json};

    use super::{Fetched, Part, Reads, fetch};
    use crate::{
        cluster::{Action, Connection, Error, canned::failure},
        control_plane::Reader,
        plan::{
            example::template,
            observed::{Bootstrap, Cluster, Etcd, Infrastructure},
        },
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

    /// What the server has at a path.
    fn object(path: &str) -> Value {
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
                json!({"items": [{"metadata": {"name": "m1-config"}, "spec": {"verbosity": 3}}]})
            }
            "dockermachines" => json!({"items": [{"metadata": {"name": "m2-infra", "annotations": {
                "cluster.x-k8s.io/cloned-from-name": "t1",
                "cluster.x-k8s.io/cloned-from-groupkind": template("t1").group_kind}}}]}),
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
        fetch(&reader, "d", "c1-cp", Duration::from_secs(10)).await
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(future)
    }

    #[test]
    fn each_machine_gets_what_it_refers_to() {
        let fetched = run(fetched("/nothing")).expect("it is read");
        assert!(fetched.unread.is_empty());
        assert!(fetched.object.contains("c1-cp"));
        let observed = fetched.observed;
        assert_eq!((observed.spec.replicas, &observed.etcd), (3, &Etcd::Unread));
        assert!(observed.cluster.paused && !observed.cluster.infrastructure_ready);
        let machines: Vec<_> = observed
            .machines
            .iter()
            .map(|machine| {
                let config = matches!(&machine.bootstrap, Bootstrap::Config(config)
                    if config.version == "v1beta2" && config.fields == json!({"verbosity": 3}));
                let is_missing = machine.bootstrap == Bootstrap::Missing;
                (
                    machine.machine.name.as_str(),
                    config,
                    is_missing,
                    machine.infrastructure.clone(),
                )
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
        let ready = Cluster {
            infrastructure_ready: true,
            has_endpoint: true,
            ..Cluster::default()
        };
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
            assert_eq!(observed.cluster == ready, part == Part::Cluster);
            let all = |is: fn(&super::super::observed::Machine) -> bool| observed.machines.iter().all(is);
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
    #[test]
    fn a_read_that_does_not_end_is_given_up() {
        let error = run(async {
            let connection = Connection::canned(|_, _| (200, groups()));
            let reader = Reader::discover(&connection).await?;
            let reads = Reads {
                reader: &reader,
                namespace: "d",
                limit: Duration::ZERO,
            };
            let action = Action::new("list", &reader.machines);
            reads.within(action, pending::<Result<(), Error>>()).await
        });
        assert_eq!(
            error.expect_err("no answer").to_string(),
            "cannot list machines in namespace \"d\": no answer from https://s within 0s"
        );
    }
}
