//! `kubectl kcp status` reads all objects of a control plane from the management cluster, and needs exactly the shipped
//! permissions.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use kcp_api::Reference;
use kcp_api::machine::{Bootstrap, Infrastructure};
use kcp_api::metadata::Object as _;
use kcp_client::{Connection, ConnectionFlags, Error, reads};
use kcp_control_plane::snapshot::{
    Failure, Forbidden, HealthCheck, Reading, Snapshot, management::RemediationTrigger,
};
use kcp_tests::fleet::Fleet;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{products, wait};
use serde_json::{Value, json};

use crate::objects::{cluster, written};
use crate::roles;
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "status-read";
const NAME: &str = "edge";

/// For reads on a machine of any speed.
const TIMEOUT: Duration = Duration::from_secs(60);

async fn connect(kubeconfig: PathBuf) -> Result<Connection> {
    let flags = ConnectionFlags {
        kubeconfig: Some(kubeconfig),
        namespace: Some(NAMESPACE.to_owned()),
        ..ConnectionFlags::default()
    };
    Ok(Connection::open(&flags, None).await?)
}

async fn named(connection: &Connection, name: &str) -> Result<Snapshot, Error> {
    let limit = reads::limit_per_control_plane(TIMEOUT);
    let reader = reads::discover(connection, limit).await?;
    reads::read_from_management(&reader, NAMESPACE, name, limit).await
}

async fn listed(connection: &Connection, namespace: Option<&str>) -> Result<Vec<Snapshot>, Error> {
    let limit = reads::list_limit(TIMEOUT);
    let reader = reads::discover(connection, limit).await?;
    reads::list(&reader, namespace, None, limit).await
}

/// Creates a control plane without controllers, with one Machine and the objects that the Machine refers to.
async fn furnish(management: &ManagementCluster) -> Result<()> {
    management.create_namespace(NAMESPACE).await?;
    let of_cluster = json!({"cluster.x-k8s.io/cluster-name": NAME, "cluster.x-k8s.io/control-plane": ""});
    let machine = format!("{NAME}-1");
    let mut objects = cluster(NAME, 3, "v1.34.1");
    for object in &mut objects {
        if object.pointer("/metadata/name").and_then(Value::as_str) == Some(&machine)
            && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        {
            let config =
                json!({"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": machine});
            let infrastructure = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "StandInMachine", "name": machine});
            spec.insert("bootstrap".to_owned(), json!({"configRef": config}));
            spec.insert("infrastructureRef".to_owned(), infrastructure);
        }
    }
    objects.extend([
        json!({
            "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfig",
            "metadata": {"name": machine, "labels": of_cluster},
            "spec": {"joinConfiguration": {"nodeRegistration": {"name": "n1"}}},
        }),
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "StandInMachine",
            "metadata": {"name": machine, "labels": of_cluster, "annotations": {
                "cluster.x-k8s.io/cloned-from-name": "t1",
                "cluster.x-k8s.io/cloned-from-groupkind": "StandInMachineTemplate.infrastructure.cluster.x-k8s.io"}},
            "spec": {},
        }),
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck", "metadata": {"name": "watch"},
            "spec": {
                "clusterName": NAME, "selector": {"matchLabels": {"cluster.x-k8s.io/control-plane": ""}},
                "checks": {"unhealthyNodeConditions": [{"type": "Ready", "status": "False", "timeoutSeconds": 300}]},
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{NAME}-kubeconfig")},
            "stringData": {"value": "no kubeconfig"},
        }),
    ]);
    written(management.kubectl(), "apply", &objects, &["-n", NAMESPACE]).await?;
    Ok(())
}

#[test]
fn reads_everything_with_the_shipped_role_only() {
    with_management_cluster(async |management| {
        furnish(management).await.unwrap();
        let administrator = connect(management.api().kubeconfig()).await.unwrap();
        let whole = named(&administrator, NAME).await.unwrap();
        is_whole(&whole).unwrap();
        let limit = reads::limit_per_control_plane(TIMEOUT);
        let reader = reads::discover(&administrator, limit).await.unwrap();
        let found = reads::read_control_plane_name(&reader, NAMESPACE, NAME, limit).await;
        assert_eq!(found.unwrap(), NAME);

        let list = listed(&administrator, Some(NAMESPACE)).await.unwrap();
        let role = shipped_role().unwrap();
        let reader = Person::bound(management, "reader", &role).await.unwrap();
        reader
            .sees(&whole, &list)
            .await
            .context("with the shipped role")
            .unwrap();
        for missing in roles::permissions(&role) {
            without(management, &role, &missing).await.unwrap();
        }
    });
}

fn is_whole(management: &Snapshot) -> Result<()> {
    let machine = format!("{NAME}-1");
    let cluster = management.cluster.value().context("the Cluster was not read")?;
    assert_eq!(cluster.name(), NAME);
    assert_eq!(cluster.control_plane(), Some(NAME));
    assert_eq!(cluster.spec.control_plane_endpoint, None);
    assert_eq!(management.unowned_machines().count(), 0);
    assert_eq!(
        management.health_checks,
        Reading::Read(vec![HealthCheck {
            name: "watch".to_owned(),
            targets: BTreeSet::from([machine.clone()]),
            trigger: Some(RemediationTrigger::AtMostPercent(100)),
            timeouts: vec![kcp_api::machine_health_check::UnhealthyCondition {
                is_node_condition: true,
                type_: "Ready".to_owned(),
                status: kcp_api::ConditionStatus::False,
                timeout: Duration::from_secs(300),
            }],
            node_startup_timeout: Some(Duration::from_secs(600)),
            ..HealthCheck::default()
        }])
    );
    let secrets = BTreeSet::from([format!("{NAME}-kubeconfig")]);
    assert_eq!(management.secrets, Reading::Read(secrets));
    assert_eq!(management.failed_reads, []);
    let [observed] = management.machines.as_slice() else {
        bail!("{:?}", management.machines);
    };
    assert_eq!(observed.name(), machine);
    assert_eq!(
        observed.infrastructure,
        Infrastructure::ClonedFrom(Reference {
            group: "infrastructure.cluster.x-k8s.io".to_owned(),
            kind: "StandInMachineTemplate".to_owned(),
            name: "t1".to_owned(),
        })
    );
    let Bootstrap::Config(config) = &observed.bootstrap else {
        bail!("{:?}", observed.bootstrap);
    };
    assert_eq!(
        config.fields.pointer("/joinConfiguration/nodeRegistration/name"),
        Some(&json!("n1"))
    );
    Ok(())
}

/// One role with the permissions of those for objects and for Secrets. Without the second one, a list still reads everything.
fn shipped_role() -> Result<Value> {
    let mut roles = roles::shipped("clusterrole.yaml")?;
    roles.extend(roles::shipped("secrets.yaml")?);
    let [mut role, secrets] = <[Value; 2]>::try_from(roles).map_err(|roles| anyhow!("{roles:?}"))?;
    let more = secrets.get("rules").and_then(Value::as_array).cloned();
    let all = role.get_mut("rules").and_then(Value::as_array_mut);
    all.context("no rules")?.extend(more.context("no rules")?);
    Ok(role)
}

/// A `ServiceAccount` with one role in one namespace.
struct Person {
    connection: Connection,
}

impl Person {
    async fn bound(management: &ManagementCluster, name: &str, role: &Value) -> Result<Self> {
        let mut role = role.clone();
        let role_name = format!("{NAMESPACE}-{name}");
        role.as_object_mut()
            .context("the role is not an object")?
            .insert("metadata".to_owned(), json!({"name": role_name}));
        let objects = [
            role,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role_name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
            }),
        ];
        let kubectl = management.kubectl();
        written(kubectl, "apply", &objects, &["-n", NAMESPACE]).await?;
        let token = kubectl
            .succeed(["create", "token", name, "-n", NAMESPACE])
            .await?
            .stdout;
        let kubeconfig = kubectl.scratch_file(&format!("{role_name}.kubeconfig"));
        management
            .api()
            .write_token_kubeconfig(&kubeconfig, token.trim())?;
        Ok(Self {
            connection: connect(kubeconfig).await?,
        })
    }

    async fn sees(&self, whole: &Snapshot, list: &[Snapshot]) -> Result<()> {
        wait::until("the role allows all", || async {
            let mut seen = named(&self.connection, NAME).await?;
            version_is_denied(&seen)?;
            seen.controller_version = whole.controller_version.clone();
            ensure!(seen == *whole, "{seen:?}");
            let mut seen = listed(&self.connection, Some(NAMESPACE)).await?;
            for (seen, listed) in seen.iter_mut().zip(list) {
                version_is_denied(seen)?;
                seen.controller_version = listed.controller_version.clone();
            }
            ensure!(seen == list, "{seen:?}");
            Ok(())
        })
        .await
    }
}

/// A `RoleBinding` does not allow a read of the controller's Deployment, which is in another namespace.
fn version_is_denied(seen: &Snapshot) -> Result<()> {
    let failure = seen.controller_version.failure();
    let is_denied = failure.is_some_and(|failure| failure.forbidden.is_some());
    let note = seen.version_note();
    let expected = "Cluster API's version could not be read, so the predictions assume v1.14.2";
    ensure!(is_denied && note.as_deref() == Some(expected), "{note:?}");
    Ok(())
}

/// Without a permission, exactly the reads that need it fail.
async fn without(management: &ManagementCluster, role: &Value, missing: &roles::Permission) -> Result<()> {
    let (resource, verb) = missing;
    let who = format!("without-{verb}-{}", resource.replace('*', "infrastructure"));
    let person = Person::bound(management, &who, &roles::without(role, missing)).await?;
    let (full, by_name, by_list) = needed(resource, verb)?;
    let expected = |needs: bool| -> BTreeSet<Forbidden> {
        let forbidden = Forbidden {
            verb: verb.clone(),
            resource: full.to_owned(),
            namespace: Some(NAMESPACE.to_owned()),
            is_from_workload_cluster: false,
        };
        needs.then_some(forbidden).into_iter().collect()
    };
    wait::until(&format!("the role holds {who}"), || async {
        let of_name = refused(named(&person.connection, NAME).await.map(|one| vec![one]))?;
        ensure!(of_name == expected(by_name), "NAME: {of_name:?}");
        let of_list = refused(listed(&person.connection, Some(NAMESPACE)).await)?;
        ensure!(of_list == expected(by_list), "list: {of_list:?}");
        Ok(())
    })
    .await
}

/// The resource with its group, and whether reading one control plane or a list needs the permission.
fn needed(resource: &str, verb: &str) -> Result<(&'static str, bool, bool)> {
    Ok(match (resource, verb) {
        ("kubeadmcontrolplanes", "get") => {
            ("kubeadmcontrolplanes.controlplane.cluster.x-k8s.io", true, false)
        }
        ("kubeadmcontrolplanes", "list") => {
            ("kubeadmcontrolplanes.controlplane.cluster.x-k8s.io", false, true)
        }
        ("clusters", "get") => ("clusters.cluster.x-k8s.io", true, false),
        ("clusters", "list") => ("clusters.cluster.x-k8s.io", false, true),
        ("machines", "list") => ("machines.cluster.x-k8s.io", true, true),
        ("machinehealthchecks", "list") => ("machinehealthchecks.cluster.x-k8s.io", true, true),
        ("kubeadmconfigs", "list") => ("kubeadmconfigs.bootstrap.cluster.x-k8s.io", true, false),
        // The Deployment is in another namespace, for which the RoleBinding allows nothing.
        ("deployments", "get") => ("deployments.apps", false, false),
        // Read only if the controller has not processed the spec.
        ("leases", "get") => ("leases.coordination.k8s.io", false, false),
        // Read only for a Cluster with a managed topology.
        ("machinedeployments", "list") => ("machinedeployments.cluster.x-k8s.io", false, false),
        // Read only by `machine diagnose` for a worker.
        ("machinesets", "list") => ("machinesets.cluster.x-k8s.io", false, false),
        ("machinepools", "list") => ("machinepools.cluster.x-k8s.io", false, false),
        ("clusterclasses", "get") => ("clusterclasses.cluster.x-k8s.io", false, false),
        // Read only while a change is pending.
        ("events", "list") => ("events.events.k8s.io", false, false),
        ("*", "get") => (
            "standinmachinetemplates.infrastructure.cluster.x-k8s.io",
            true,
            false,
        ),
        ("*", "list") => ("standinmachines.infrastructure.cluster.x-k8s.io", true, false),
        ("secrets", "get") => ("secrets", true, false),
        other => bail!("the role has {other:?}, which nothing needs"),
    })
}

/// All missing permissions that the read reports.
fn refused(read: Result<Vec<Snapshot>, Error>) -> Result<BTreeSet<Forbidden>> {
    let failures = match read {
        Ok(read) => read.iter().flat_map(failures).cloned().collect(),
        Err(Error::Forbidden { action, .. }) => vec![Failure {
            object: String::new(),
            message: String::new(),
            hint: None,
            forbidden: Some(Forbidden {
                verb: action.verb.to_owned(),
                resource: action.resource,
                namespace: action.namespace,
                is_from_workload_cluster: false,
            }),
            ..Failure::default()
        }],
        Err(error) => return Err(error.into()),
    };
    failures
        .into_iter()
        .map(|failure| failure.forbidden.clone().with_context(|| format!("{failure:?}")))
        .collect()
}

fn failures(management: &Snapshot) -> impl Iterator<Item = &Failure> {
    let parts = [
        management.cluster.failure(),
        management.health_checks.failure(),
        management.secrets.failure(),
    ];
    let templates = management.templates.values().filter_map(Reading::failure);
    parts
        .into_iter()
        .flatten()
        .chain(&management.failed_reads)
        .chain(templates)
}

#[test]
fn a_list_reads_all_pages() {
    with_management_cluster(async |management| {
        // There are 520 Machines, and a page has 500.
        let fleet = Fleet {
            control_planes: 0..260,
            machines_of_each: 2,
        };
        let plurals = [
            "kubeadmcontrolplanes",
            "machines",
            "clusters",
            "machinehealthchecks",
        ];
        let api = management
            .another_with_definitions("status-fleet", &plurals)
            .await
            .unwrap();
        fleet.create(api.client(), "default").await.unwrap();
        let connection = connect(api.kubeconfig()).await.unwrap();
        let listed = listed(&connection, None).await.unwrap();
        assert_eq!(listed.len(), fleet.control_planes.len());
        for (number, management) in listed.iter().enumerate() {
            let name = format!("edge-{number:05}");
            let machines = management.machines.iter();
            let machines: Vec<_> = machines.map(|machine| machine.name().to_owned()).collect();
            assert_eq!(management.control_plane.name(), name);
            assert_eq!(machines, [format!("{name}-0"), format!("{name}-1")]);
            assert_eq!(failures(management).collect::<Vec<_>>(), Vec::<&Failure>::new());
            let checks = management.health_checks.value().unwrap();
            assert_eq!(checks.len(), 1, "{name}");
            assert_eq!(checks[0].targets, machines.into_iter().collect(), "{name}");
        }
    });
}

#[test]
fn the_shipped_reader_role_can_be_applied() {
    with_management_cluster(async |management| {
        let kubectl = management.kubectl();
        let file = |path: &str| products::workspace().join(path).display().to_string();
        for arguments in [
            ["apply", "--dry-run=server", "-k", &file("manifests/reader")],
            [
                "apply",
                "--dry-run=server",
                "-f",
                &file("manifests/reader/workload-cluster.yaml"),
            ],
            [
                "apply",
                "--dry-run=server",
                "-f",
                &file("manifests/reader/auditor.yaml"),
            ],
        ] {
            kubectl.succeed(arguments).await.unwrap();
        }
    });
}
