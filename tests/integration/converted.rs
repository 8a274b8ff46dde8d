//! Objects in an API version that is not the stored version. The API server converts them back and forth, so an update
//! may see an old object that lost fields or spells durations differently. Rules must not count these as changes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster_api::FEATURE_GATES;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{manifests, products, wait};
use serde_json::{Value, json};

use crate::objects::write;
use crate::shared::with_management_cluster;

/// The namespace of each `infrastructureRef` in the documents.
const NAMESPACE: &str = "converted";

/// [`FEATURE_GATES`] in our server's configuration.
const OUR_GATES: &str = "\
    apiVersion: kubectl-kcp.dev/v1alpha1\n\
    kind: AdmissionConfiguration\n\
    featureGates: {ignition: true, machineTaints: true}\n";

#[test]
fn accepts_what_cluster_api_accepts_in_v1beta1() {
    with_management_cluster(async |management| {
        let refused = refused_by_ours(management).await.unwrap();
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    });
}

/// Makes the same writes twice: with Cluster API alone, which must accept them all, and then with our webhooks too.
async fn refused_by_ours(management: &ManagementCluster) -> Result<Vec<String>> {
    let cluster = management
        .another_with_managers(NAMESPACE, &[FEATURE_GATES])
        .await?;
    cluster.create_namespace(NAMESPACE).await?;
    let kubectl = cluster.kubectl();
    let alone = refused(kubectl).await?;
    ensure!(alone.is_empty(), "by Cluster API: {}", alone.join("\n"));

    let all = ["kubeadmcontrolplanes,kubeadmcontrolplanetemplates", "--all"];
    let here = ["-n", NAMESPACE];
    kubectl
        .succeed(["delete"].iter().chain(&all).chain(&here))
        .await?;
    let admission = cluster.install_ours().await?;
    admission
        .configuration()
        .replace(&[("configuration.yaml", OUR_GATES)])?;
    wait::until("the gates are open", async || {
        let dry_run = ["-n", NAMESPACE, "--dry-run=server"];
        let created = write(kubectl, "create", &control_planes()?, &dry_run).await?;
        ensure!(!created.stderr.contains("-gate-off)"), "{created}");
        Ok(())
    })
    .await?;
    refused(kubectl).await
}

/// Makes each write on the result of the previous ones, and returns the refused ones with their messages.
async fn refused(kubectl: &Kubectl) -> Result<Vec<String>> {
    let mut refused = Vec::new();
    for object in control_planes()?.into_iter().chain(templates()?) {
        for (write_of, object) in writes_of(&object) {
            let ended = write(kubectl, "apply", &[object], &["-n", NAMESPACE]).await?;
            if ended.code != 0 {
                refused.push(format!("{write_of}: {ended}"));
            }
        }
    }
    Ok(refused)
}

fn writes_of(object: &Value) -> Vec<(&'static str, Value)> {
    let patched = |pointer: &str, value: Value| {
        let mut changed = object.clone();
        let field = changed.pointer_mut(pointer)?;
        *field = value;
        Some(changed)
    };
    let mut writes = vec![("creation", object.clone()), ("the same again", object.clone())];
    let scaled = patched("/spec/replicas", json!(5));
    // Scales back in a separate write, because a scale together with an upgrade is denied.
    writes.extend(
        scaled
            .into_iter()
            .flat_map(|scaled| [("scale", scaled), ("scale back", object.clone())]),
    );
    let upgraded = patched("/spec/version", json!("v1.34.3"));
    writes.extend(upgraded.map(|upgraded| ("upgrade", upgraded)));
    writes
}

fn control_planes() -> Result<Vec<Value>> {
    manifests::read(&fixture("every-field-v1beta1.yaml"))
}

/// Templates with the same fields, as far as templates have them, and with the fields that only templates have.
fn templates() -> Result<Vec<Value>> {
    control_planes()?.into_iter().map(template_of).collect()
}

fn template_of(mut control_plane: Value) -> Result<Value> {
    let mut remove = |pointer: &str, names: &[&str]| {
        let fields = control_plane.pointer_mut(pointer).and_then(Value::as_object_mut);
        let fields = fields.with_context(|| format!("{pointer} is not an object"))?;
        fields.retain(|name, _| !names.contains(&name.as_str()));
        anyhow::Ok(())
    };
    remove("/spec", &["replicas", "version"])?;
    remove("/spec/machineTemplate", &["infrastructureRef", "readinessGates"])?;
    Ok(json!({
        "apiVersion": control_plane.get("apiVersion"),
        "kind": "KubeadmControlPlaneTemplate",
        "metadata": control_plane.get("metadata"),
        "spec": {"template": {
            "metadata": {"labels": {"team": "platform"}, "annotations": {"example.com/owner": "platform"}},
            "spec": control_plane.get("spec"),
        }},
    }))
}

fn fixture(name: &str) -> PathBuf {
    products::workspace().join("tests/fixtures").join(name)
}

/// The writable fields of a served version. `[]` marks a list element and `{}` a map value.
fn fields(kind: &str) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(fixture(&format!("fields/{kind}-v1beta1.txt")))?;
    let paths = text.lines().filter_map(|line| line.split('\t').next());
    let of_spec = paths.filter(|path| path.starts_with("spec"));
    Ok(of_spec.map(str::to_owned).collect())
}

/// Adds the path of each field that is set.
fn set(value: &Value, path: &str, defined: &BTreeSet<String>, paths: &mut BTreeSet<String>) {
    paths.insert(path.to_owned());
    match value {
        Value::Object(fields) => {
            let of_map = format!("{path}{{}}");
            for (name, value) in fields {
                let of_field = format!("{path}.{name}");
                let path = if defined.contains(&of_map) {
                    &of_map
                } else {
                    &of_field
                };
                set(value, path, defined, paths);
            }
        }
        Value::Array(elements) => {
            for element in elements {
                set(element, &format!("{path}[]"), defined, paths);
            }
        }
        _ => {}
    }
}

#[test]
fn the_documents_set_every_field() {
    for (kind, documents) in [
        ("kubeadmcontrolplane", control_planes()),
        ("kubeadmcontrolplanetemplate", templates()),
    ] {
        let defined = fields(kind).unwrap();
        assert!(defined.len() > 300, "{kind} has {} fields", defined.len());
        let mut paths = BTreeSet::new();
        for document in documents.unwrap() {
            set(&document["spec"], "spec", &defined, &mut paths);
        }
        let wrong: Vec<_> = paths.symmetric_difference(&defined).collect();
        assert!(wrong.is_empty(), "{kind}: not set, or not defined: {wrong:#?}");
    }
}
