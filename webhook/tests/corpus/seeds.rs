//! The fuzzers' seeds: the cases of the rules, and the samples.

use std::{fs, path::Path};

use kcp_rules::{
    testing::{
        case::{Base, Case, Write},
        cases::written_cases,
    },
    topics::rules,
};
use serde_json::{Value, json};

use crate::ROOT;

/// A named input for a fuzz target.
pub(crate) struct Seed {
    pub(crate) target: &'static str,
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

pub(crate) fn seeds() -> Vec<Seed> {
    let rows = written_cases();
    let mut seeds: Vec<Seed> = rows
        .flat_map(|case| case.bases.iter().flat_map(move |base| of_row(case, *base)))
        .collect();
    for folder in [
        "manifests/samples/good",
        "manifests/samples/bad",
        "tests/fixtures/documents",
    ] {
        for entry in fs::read_dir(Path::new(ROOT).join(folder)).unwrap() {
            let file = entry.unwrap().path();
            seeds.push(Seed {
                target: "lint_yaml",
                name: format!("sample-{}", file.file_stem().unwrap().to_string_lossy()),
                content: fs::read(&file).unwrap(),
            });
        }
    }
    let sample = Path::new(ROOT).join("manifests/samples/admission-configuration.yaml");
    seeds.push(Seed {
        target: "configuration",
        name: "sample".to_owned(),
        content: fs::read(sample).unwrap(),
    });
    for (rule, action) in rules().zip(["off", "audit", "warn", "deny"].into_iter().cycle()) {
        let configuration = json!({
            "apiVersion": "kubectl-kcp.dev/v1alpha1",
            "kind": "AdmissionConfiguration",
            "rules": {rule.id: action},
            "featureGates": {"ignition": true, "machineTaints": false},
        });
        seeds.push(seed("configuration", rule.id.to_owned(), &configuration));
    }
    seeds.extend(leader_migrations());
    seeds
}

/// Upgrades between two minor versions, with each way to set up leader migration.
fn leader_migrations() -> Vec<Seed> {
    const FILE: &str = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n\
                        leaderName: migration\ncontrollerLeaders:\n- {name: node-ipam-controller, component: \"*\"}\n";
    const FLAGS: [(&str, &str); 4] = [
        ("off", "--allocate-node-cidrs"),
        ("default", "--allocate-node-cidrs --enable-leader-migration"),
        (
            "file",
            "--allocate-node-cidrs --service-account-private-key-file=k --enable-leader-migration \
             --leader-migration-config=f",
        ),
        (
            "other",
            "--cloud-provider=demo --controllers=*,-nodeipam,-route --leader-elect=false \
             --leader-elect-resource-name=migration",
        ),
    ];
    let mut seeds = Vec::new();
    for (from, to) in [(27, 28), (30, 31), (35, 36), (36, 37)] {
        for (now, old) in FLAGS {
            for (then, new) in FLAGS {
                let text = format!("{from} {old}\n\n{to} {new}\n{to} {new}\n{FILE}");
                seeds.push(Seed {
                    target: "leader_migration",
                    name: format!("{from}-{now}-{to}-{then}"),
                    content: text.into_bytes(),
                });
            }
        }
    }
    seeds
}

fn seed(target: &'static str, name: String, content: &Value) -> Seed {
    Seed {
        target,
        name,
        content: content.to_string().into_bytes(),
    }
}

fn of_row(case: &Case, base: Base) -> Vec<Seed> {
    let name = || format!("{}-{}", case.name, base.version());
    let (operation, old, new) = written(case, base);
    let mut seeds = Vec::new();
    if let (Some(old), Some(new), false) = (&old, &new, matches!(case.write, Write::Scale(..))) {
        seeds.push(seed(
            "lint_yaml",
            format!("{}-change", name()),
            &json!([old, new]),
        ));
    }
    for object in [&old, &new].into_iter().flatten() {
        seeds.push(seed("lint_yaml", name(), object));
        for pointer in [
            "/spec/installConfigPatches",
            "/spec/installerManifestPatches/0/patches",
        ] {
            seeds.extend(
                object
                    .pointer(pointer)
                    .map(|patches| seed("patch", name(), patches)),
            );
        }
    }
    seeds.extend(
        review(base, operation, case, old.as_ref(), new.as_ref())
            .map(|review| seed("review", name(), &review)),
    );
    seeds
}

/// The write of a case: the operation, the stored object and the new one.
fn written(case: &Case, base: Base) -> (&'static str, Option<Value>, Option<Value>) {
    let patched = |object: &Value, patch: &str| {
        let mut object = object.clone();
        json_patch::merge(&mut object, &serde_json::from_str(patch).unwrap());
        object
    };
    let whole = base.object();
    match case.write {
        Write::Create(new) => ("CREATE", None, Some(patched(&whole, new))),
        Write::Update(old, new) => {
            let old = patched(&whole, old);
            let new = patched(&old, new);
            ("UPDATE", Some(old), Some(new))
        }
        Write::Delete(old) => ("DELETE", Some(patched(&whole, old)), None),
        Write::Scale(old, replicas) => {
            let scale =
                json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": replicas}});
            ("UPDATE", Some(patched(&whole, old)), Some(scale))
        }
    }
}

fn review(
    base: Base,
    operation: &str,
    case: &Case,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Option<Value> {
    let (group, resource) = match base {
        Base::ControlPlane(_) => ("controlplane.cluster.x-k8s.io", "kubeadmcontrolplanes"),
        Base::Template(_) => ("controlplane.cluster.x-k8s.io", "kubeadmcontrolplanetemplates"),
        Base::ClusterPool => ("hive.openshift.io", "clusterpools"),
        Base::Customization => ("hive.openshift.io", "clusterdeploymentcustomizations"),
        Base::ClusterDeployment => ("hive.openshift.io", "clusterdeployments"),
        Base::Cluster => return None,
    };
    let is_scale = matches!(case.write, Write::Scale(..));
    Some(json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "resource": {"group": group, "version": base.version(), "resource": resource},
            "subResource": if is_scale { "scale" } else { "" },
            "name": "example",
            "namespace": "default",
            "operation": operation,
            "userInfo": {"username": case.writer},
            "options": {"fieldManager": case.field_manager},
            "object": new,
            "oldObject": old,
        }
    }))
}
