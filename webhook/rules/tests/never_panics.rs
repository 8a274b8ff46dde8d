//! With any text in any field, rules do not panic, messages stay short, and secrets are not shown.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: they may panic"
)]

use std::{fs, path::Path, sync::LazyLock};

use kcp_rules::{
    Change, Configuration, Context, HasRules,
    api::{
        ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, KubeadmControlPlane,
        KubeadmControlPlaneTemplate, decode,
    },
    feature_gates::FeatureGates,
    judge,
    testing::case::{Base, NOW, V1BETA1, V1BETA2},
    view::{self, View},
};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

/// Every string field of every kind in every version.
static FIELDS: LazyLock<Vec<(Base, String)>> = LazyLock::new(|| {
    let mut fields = Vec::new();
    for (kind, version, base) in [
        ("kubeadmcontrolplane", V1BETA1, Base::ControlPlane(V1BETA1)),
        ("kubeadmcontrolplane", V1BETA2, Base::ControlPlane(V1BETA2)),
        ("kubeadmcontrolplanetemplate", V1BETA1, Base::Template(V1BETA1)),
        ("kubeadmcontrolplanetemplate", V1BETA2, Base::Template(V1BETA2)),
        ("clusterpool", "v1", Base::ClusterPool),
        ("clusterdeploymentcustomization", "v1", Base::Customization),
        ("clusterdeployment", "v1", Base::ClusterDeployment),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/fixtures/fields")
            .join(format!("{kind}-{version}.txt"));
        for line in fs::read_to_string(path).unwrap().lines() {
            let mut columns = line.split('\t');
            let (field, kind) = (columns.next().unwrap(), columns.next());
            if field.starts_with("spec") && kind == Some("string") {
                fields.push((base, field.to_owned()));
            }
        }
        fields.push((base, "metadata.name".to_owned()));
    }
    fields
});

/// Sets the text at a generic path such as `spec.files[].path`. In a map, the text is both key and value.
fn put(object: &mut Value, path: &str, text: &str) {
    let steps = path.replace("[]", ".[]").replace("{}", ".{}");
    let mut place = object;
    for step in steps.split('.') {
        if step == "[]" {
            if !place.is_array() {
                *place = json!([{}]);
            }
            place = &mut place[0];
        } else {
            if !place.is_object() {
                *place = json!({});
            }
            place = &mut place[if step == "{}" { text } else { step }];
        }
    }
    *place = json!(text);
}

fn messages<T: HasRules>(old: &T, new: &T) -> Vec<String> {
    let configuration = Configuration {
        feature_gates: FeatureGates {
            ignition: true,
            machine_taints: true,
        },
        ..Configuration::default()
    };
    let view = View {
        pools: vec![view::Pool::default()].into(),
        customizations: Vec::new().into(),
        cluster_deployments: Vec::new().into(),
        customization: Some(None),
        namespace_terminating: false.into(),
        ..View::default()
    };
    let context = Context {
        now: Some(NOW.parse().unwrap()),
        view: Some(&view),
        ..Context::UNKNOWN
    };
    [Change::create(new), Change::update(old, new), Change::delete(new)]
        .into_iter()
        .flat_map(|change| judge(&change.with_context(context), &configuration).findings)
        .map(|finding| format!("{}: {}", finding.fault.field, finding.message()))
        .collect()
}

fn judged(base: Base, field: &str, text: &str) -> Vec<String> {
    let mut old = base.object();
    if base == Base::Customization {
        let patch = json!({"op": "move", "path": "/a", "from": "/b"});
        old["spec"] = json!({
            "installConfigPatches": [patch],
            "installerManifestPatches": [{"manifestSelector": {"glob": "*"}, "patches": [patch]}],
        });
    }
    let mut new = old.clone();
    put(&mut new, field, text);
    let (old, new) = (old.to_string(), new.to_string());
    match base {
        Base::Template(_) => decoded::<KubeadmControlPlaneTemplate>(&old, &new),
        Base::ClusterPool => decoded::<ClusterPool>(&old, &new),
        Base::Customization => decoded::<ClusterDeploymentCustomization>(&old, &new),
        Base::ClusterDeployment => decoded::<ClusterDeployment>(&old, &new),
        _ => decoded::<KubeadmControlPlane>(&old, &new),
    }
}

/// An object that cannot be decoded has no findings, such as a patch without `op` or an invalid time.
fn decoded<'a, T: HasRules + Deserialize<'a>>(old: &'a str, new: &'a str) -> Vec<String> {
    decode(new).map_or_else(|_| Vec::new(), |new: T| messages(&decode(old).unwrap(), &new))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_anywhere(index in any::<prop::sample::Index>(), text in "(?s).{0,80}") {
        let (base, field) = index.get(&FIELDS);
        judged(*base, field, &text);
    }

    #[test]
    fn any_naming_template(text in r"([a-zA-Z.-]|\{\{|\}\}|-| |\.cluster\.name|\.random|ä|[0-9]{40}){0,12}") {
        judged(Base::ControlPlane(V1BETA2), "spec.machineNaming.template", &text);
    }

    #[test]
    fn any_image_tag(from in "[v0-9._+-]{0,12}", to in "[v0-9._+-]{0,12}") {
        let tag = |tag: &str| {
            let mut object = Base::ControlPlane(V1BETA2).object();
            put(&mut object, "spec.kubeadmConfigSpec.clusterConfiguration.dns.imageTag", tag);
            object.to_string()
        };
        let (old, new) = (tag(&from), tag(&to));
        let (old, new): (KubeadmControlPlane, KubeadmControlPlane) = (decode(&old).unwrap(), decode(&new).unwrap());
        messages(&old, &new);
    }
}

#[test]
fn long_text_does_not_make_messages_long() {
    for (base, field) in FIELDS.iter() {
        // The schema limits the length of versions and enumerations.
        if ["version", "type", "maxSurge"]
            .iter()
            .any(|end| field.ends_with(end))
        {
            continue;
        }
        for message in judged(*base, field, &"A b+".repeat(5_000)) {
            assert!(
                message.len() < 1200,
                "{field}: {} {:.1200}",
                message.len(),
                message
            );
        }
    }
}

#[test]
fn secrets_are_not_shown() {
    for secret in ["content", "passwd", "token", "additionalConfig", "value"] {
        let fields = FIELDS
            .iter()
            .filter(|(_, field)| field.ends_with(&format!(".{secret}")));
        for (base, field) in fields {
            for message in judged(*base, field, "hunter2") {
                assert!(!message.contains("hunter2"), "{message}");
            }
        }
    }
}
