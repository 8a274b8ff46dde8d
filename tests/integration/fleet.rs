//! Objects with a fault that were created before our webhooks were installed. A change of other fields is allowed with
//! a warning. A change to a different fault is denied.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::run::random;
use serde_json::{Value, json};

use crate::objects::{adopted, control_plane, written};
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "fleet";

const CONTROL_PLANES: &str = "kubeadmcontrolplanes.v1beta2.controlplane.cluster.x-k8s.io";
const CONTROL_PLANES_V1BETA1: &str = "kubeadmcontrolplanes.v1beta1.controlplane.cluster.x-k8s.io";
const TEMPLATES: &str = "kubeadmcontrolplanetemplates";
const POOLS: &str = "clusterpools";
const CUSTOMIZATIONS: &str = "clusterdeploymentcustomizations";

/// An old object and three changes of its spec, as merge patches.
#[derive(Clone)]
struct Old {
    resource: &'static str,
    rule: &'static str,
    /// The fault that the object has before the webhooks are installed.
    fault: Value,
    /// A change of another field.
    unrelated: Value,
    /// A change to a different fault.
    other_fault: Value,
}

fn old(resource: &'static str, rule: &'static str, fault: Value, other_fault: Value) -> Old {
    let unrelated = match resource {
        TEMPLATES => json!({"template": {"metadata": {"labels": {"note": "x"}}}}),
        POOLS => json!({"labels": {"note": "x"}}),
        CUSTOMIZATIONS if fault.get("installConfigPatches").is_none() => {
            json!({"installConfigPatches": [{"op": "remove", "path": "/proxy"}]})
        }
        CUSTOMIZATIONS => json!({"installerManifestPatches": [{
            "manifestSelector": {"glob": "manifests/*.yaml"}, "patches": [{"op": "remove", "path": "/spec"}],
        }]}),
        _ => json!({"kubeadmConfigSpec": {"preKubeadmCommands": ["true"]}}),
    };
    Old {
        resource,
        rule,
        fault,
        unrelated,
        other_fault,
    }
}

fn fleet() -> Vec<Old> {
    [control_planes(), templates(), pools(), customizations()].concat()
}

fn control_planes() -> Vec<Old> {
    let surge = |value: Value| json!({"rollout": {"strategy": {"rollingUpdate": {"maxSurge": value}}}});
    let expiry = |days: u32| json!({"rollout": {"before": {"certificatesExpiryDays": days}}});
    let surge_v1beta1 = |value: &str| json!({"rolloutStrategy": {"rollingUpdate": {"maxSurge": value}}});
    let expiry_v1beta1 = |days: u32| json!({"rolloutBefore": {"certificatesExpiryDays": days}});
    vec![
        old(
            CONTROL_PLANES,
            "max-surge-unsupported",
            surge(json!("50%")),
            surge(json!("25%")),
        ),
        old(
            CONTROL_PLANES,
            "max-surge-unsupported",
            surge(json!("one")),
            surge(json!("two")),
        ),
        old(
            CONTROL_PLANES,
            "certificates-expiry-days-endless",
            expiry(400),
            expiry(500),
        ),
        old(
            CONTROL_PLANES_V1BETA1,
            "max-surge-unsupported",
            surge_v1beta1("75%"),
            surge_v1beta1("80%"),
        ),
        old(
            CONTROL_PLANES_V1BETA1,
            "certificates-expiry-days-endless",
            expiry_v1beta1(365),
            expiry_v1beta1(366),
        ),
    ]
}

fn templates() -> Vec<Old> {
    let metadata = |metadata: Value| json!({"template": {"metadata": metadata}});
    vec![
        old(
            TEMPLATES,
            "machine-label-invalid",
            metadata(json!({"labels": {"a b": ""}})),
            metadata(json!({"labels": {"a b": null, "a c": ""}})),
        ),
        old(
            TEMPLATES,
            "machine-annotation-invalid",
            metadata(json!({"annotations": {"a/b/c": ""}})),
            metadata(json!({"annotations": {"a/b/c": null, "a/b/d": ""}})),
        ),
        old(
            TEMPLATES,
            "machine-annotations-too-large",
            metadata(json!({"annotations": {"a": "x".repeat(262_144)}})),
            metadata(json!({"annotations": {"a": "x".repeat(262_145)}})),
        ),
    ]
}

fn pools() -> Vec<Old> {
    vec![
        old(
            POOLS,
            "platform-not-one",
            json!({"platform": {"none": null}}),
            json!({"platform": {"none": {}, "aws": {"region": "eu-1"}}}),
        ),
        old(
            POOLS,
            "limits-negative",
            json!({"maxSize": -1}),
            json!({"maxSize": -2}),
        ),
        old(
            POOLS,
            "limits-negative",
            json!({"maxConcurrent": -1}),
            json!({"maxConcurrent": -2}),
        ),
        old(
            POOLS,
            "inventory-name-empty",
            json!({"inventory": [{"name": ""}]}),
            json!({"inventory": [{"name": "host-1"}, {"name": ""}, {"name": ""}]}),
        ),
        old(
            POOLS,
            "inventory-duplicate",
            json!({"inventory": [{"name": "host-2"}, {"name": "host-2"}]}),
            json!({"inventory": [{"name": "host-3"}, {"name": "host-3"}]}),
        ),
    ]
}

fn customizations() -> Vec<Old> {
    let patch = |patch: Value| json!({"installConfigPatches": [patch]});
    let glob = |glob: &str| {
        json!({"installerManifestPatches": [{"manifestSelector": {"glob": glob},
            "patches": [{"op": "remove", "path": "/spec"}]}]})
    };
    vec![
        old(
            CUSTOMIZATIONS,
            "patch-path-invalid",
            patch(json!({"op": "remove", "path": "/a~b"})),
            patch(json!({"op": "remove", "path": "/a~c"})),
        ),
        old(
            CUSTOMIZATIONS,
            "patch-path-invalid",
            patch(json!({"op": "remove", "path": "metadata.name"})),
            patch(json!({"op": "remove", "path": "metadata.labels"})),
        ),
        old(
            CUSTOMIZATIONS,
            "patch-from-missing",
            patch(json!({"op": "copy", "path": "/a"})),
            patch(json!({"op": "move", "path": "/a"})),
        ),
        old(
            CUSTOMIZATIONS,
            "patch-from-invalid",
            patch(json!({"op": "move", "path": "/a/b", "from": "/a"})),
            patch(json!({"op": "move", "path": "/b/c", "from": "/b"})),
        ),
        old(
            CUSTOMIZATIONS,
            "patch-value-json-invalid",
            patch(json!({"op": "add", "path": "/a", "valueJSON": "1 2"})),
            patch(json!({"op": "add", "path": "/a", "valueJSON": "{"})),
        ),
        old(
            CUSTOMIZATIONS,
            "glob-malformed",
            glob("manifests/[a-z.yaml"),
            glob("manifests/[].yaml"),
        ),
        old(
            CUSTOMIZATIONS,
            "glob-outside",
            glob("../auth/*"),
            glob("../tls/*"),
        ),
    ]
}

/// An object without a fault.
fn object(resource: &str, name: &str) -> Value {
    match resource {
        CONTROL_PLANES_V1BETA1 => json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "KubeadmControlPlane",
            "metadata": {"name": name},
            "spec": {
                "replicas": 3, "version": "v1.34.2",
                "machineTemplate": {"infrastructureRef": {
                    "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "StandInMachineTemplate",
                    "name": name}},
                "kubeadmConfigSpec": {"clusterConfiguration": {}, "initConfiguration": {}, "joinConfiguration": {}}
            }
        }),
        TEMPLATES => json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlaneTemplate",
            "metadata": {"name": name},
            "spec": {"template": {"spec": {
                "kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}}}
            }}}
        }),
        POOLS => json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterPool", "metadata": {"name": name},
            "spec": {"platform": {"none": {}}, "baseDomain": "example.com", "imageSetRef": {"name": "release"},
                "size": 0}
        }),
        CUSTOMIZATIONS => json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeploymentCustomization",
            "metadata": {"name": name}, "spec": {}
        }),
        _ => adopted(control_plane(name, 3, "v1.34.2")),
    }
}

#[test]
fn old_faults_cause_warnings_and_new_faults_are_denied() {
    with_management_cluster(async |management| {
        let cluster = management.another_without_ours("fleet").await.unwrap();
        cluster.create_namespace(NAMESPACE).await.unwrap();
        let kubectl = cluster.kubectl();
        let fleet: Vec<_> = (1..).map(|number| format!("old-{number}")).zip(fleet()).collect();
        assert_eq!(fleet.len(), 20);
        let mut objects: Vec<_> = fleet
            .iter()
            .map(|(name, old)| object(old.resource, name))
            .collect();
        objects.extend(["host-1", "host-2", "host-3"].map(|name| object(CUSTOMIZATIONS, name)));
        written(kubectl, "create", &objects, &["-n", NAMESPACE])
            .await
            .unwrap();
        for (name, old) in &fleet {
            let made = change(kubectl, old.resource, name, &json!({"spec": old.fault}))
                .await
                .unwrap();
            assert_eq!(made.code, 0, "{made}");
        }

        let _admission = cluster.install_ours().await.unwrap();
        let mut wrong = Vec::new();
        for (name, old) in &fleet {
            if let Err(error) = judged(kubectl, name, old).await {
                wrong.push(format!("{name}, {}: {error:#}", old.rule));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    });
}

async fn judged(kubectl: &Kubectl, name: &str, old: &Old) -> Result<()> {
    let rule = BTreeSet::from([old.rule]);
    let note = json!({"example.com/note": "x"});
    let metadata = json!({"labels": note, "annotations": note, "finalizers": ["example.com/note"]});
    let passed = change(kubectl, old.resource, name, &json!({"metadata": metadata})).await?;
    ensure!(
        passed.code == 0 && rules(&passed, true).is_empty(),
        "changing its metadata: {passed}"
    );
    let passed = change(kubectl, old.resource, name, &json!({"spec": old.unrelated})).await?;
    ensure!(
        passed.code == 0 && rules(&passed, true) == rule,
        "changing another field: {passed}"
    );
    let refused = change(kubectl, old.resource, name, &json!({"spec": old.other_fault})).await?;
    ensure!(
        refused.code == 1 && rules(&refused, false) == rule,
        "changing the faulty field: {refused}"
    );
    Ok(())
}

/// Applies a merge patch. It is in a file, because it may be too long for an argument.
async fn change(kubectl: &Kubectl, resource: &str, name: &str, patch: &Value) -> Result<CommandOutput> {
    let file = kubectl.scratch_file(&format!("{:016x}.json", random()));
    std::fs::write(&file, patch.to_string()).context("writing the patch")?;
    let file = file.display().to_string();
    let patch = [
        "patch",
        "-n",
        NAMESPACE,
        "--type=merge",
        "--patch-file",
        &file,
        resource,
        name,
    ];
    kubectl.run(patch).await
}

/// The ids of the rules that warned or denied. Each message ends with one in brackets.
fn rules(ended: &CommandOutput, warned: bool) -> BTreeSet<&str> {
    let lines = ended.stderr.lines();
    let lines = lines.filter(|line| line.starts_with("Warning: ") == warned);
    lines
        .filter_map(|line| Some(line.strip_suffix(')')?.rsplit_once('(')?.1))
        .collect()
}
