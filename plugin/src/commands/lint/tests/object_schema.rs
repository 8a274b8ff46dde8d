//! What an API server rejects or drops, in whole manifests.

use std::fmt::Write as _;

use serde_json::json;

use super::{Base, V1BETA1, V1BETA2, control_plane, found, lint_update, lint_yaml, plain};
use crate::{document::Versioned, terminal::table::Layout, verdict::Verdict};

/// A control plane in v1beta2 with fields of v1beta1.
const HALF_MIGRATED: &str = r"
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: a}
spec:
  replicas: 3
  version: v1.34.1
  kubeadmConfigSpec:
    clusterConfiguration:
      apiServer:
        extraArgs: {authorization-mode: 'Node,RBAC'}
    initConfiguration: {nodeRegistration: {kubeletExtraArgs: {cloud-provider: external}}}
    joinConfiguration: {nodeRegistration: {kubeletExtraArgs: {cloud-provider: external}}}
  rolloutStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0}}
  machineTemplate:
    nodeDrainTimeout: 5m
    infrastructureRef: {apiVersion: i.x/v1, kind: M, name: a}
";

#[test]
fn text_of_a_half_migrated_control_plane() {
    let report = lint_yaml(HALF_MIGRATED);
    assert_eq!(report.verdict(), Verdict::Negative);
    insta::assert_snapshot!(plain(&report.text(Layout::default())));
}

/// The findings of a manifest, as `action rule field`.
fn findings(manifest: &str) -> Vec<String> {
    let report = lint_yaml(manifest);
    let json: serde_json::Value =
        serde_json::from_str(&crate::printer::json(&Versioned(&report)).unwrap()).unwrap();
    let findings = json["findings"].as_array().unwrap().iter();
    let text = |finding: &serde_json::Value, field: &str| finding[field].as_str().unwrap().to_owned();
    findings
        .map(|finding| {
            ["action", "rule", "field"]
                .map(|field| text(finding, field))
                .join(" ")
        })
        .collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_problem_is_reported_once() {
    const V1BETA1_KCP: &str =
        "apiVersion: controlplane.cluster.x-k8s.io/v1beta1\nkind: KubeadmControlPlane\nmetadata: {name: a}";
    const V1BETA2_KCP: &str =
        "apiVersion: controlplane.cluster.x-k8s.io/v1beta2\nkind: KubeadmControlPlane\nmetadata: {name: a}";
    const SECTIONS: &str = "clusterConfiguration: {imageRepository: x}, initConfiguration: {nodeRegistration: {name: a}}, \
        joinConfiguration: {nodeRegistration: {name: a}}";
    let v1beta1 = format!(
        "{V1BETA1_KCP}\nspec:\n  replicas: 3\n  version: v1.34.1\n  kubeadmConfigSpec: {{{SECTIONS}}}\n  \
         machineTemplate: {{infrastructureRef: {{apiVersion: i.x/v1, kind: M, name: a}}}}\n"
    );
    let changed = |old: &str, new: &str| {
        assert!(v1beta1.contains(old), "{old}");
        v1beta1.replace(old, new)
    };
    for (case, manifest, expected) in [
        ("valid", v1beta1.clone(), vec![]),
        (
            "flags without a value",
            changed(
                "imageRepository: x",
                "apiServer: {extraArgs: {profiling: , foo-bar: }}",
            ),
            vec![],
        ),
        (
            "a flag with a number",
            changed("imageRepository: x", "apiServer: {extraArgs: {v: 2}}"),
            vec![
                "deny field-invalid spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[v]",
            ],
        ),
        (
            "fields of v1beta1 that the conversion to v1beta2 loses",
            changed(
                "imageRepository: x",
                "networking: {podSubnet: 10.0.0.0/8}, kubernetesVersion: v1.33.0, clusterName: ",
            ),
            vec![
                "warn field-moved spec.kubeadmConfigSpec.clusterConfiguration.networking",
                "warn field-moved spec.kubeadmConfigSpec.clusterConfiguration.kubernetesVersion",
            ],
        ),
        (
            "a field with a wrong name",
            changed("  version:", "  versoin:"),
            vec!["warn field-unknown spec.versoin", "deny field-invalid spec.version"],
        ),
        (
            "v1alpha3's reference in v1beta1",
            changed(
                "machineTemplate: {infrastructureRef: {apiVersion: i.x/v1, kind: M, name: a}}",
                "infrastructureTemplate: {apiVersion: i.x/v1, kind: M, name: a}",
            ),
            vec!["deny field-moved spec.infrastructureTemplate"],
        ),
        (
            "a reference with apiVersion in v1beta2",
            format!(
                "{V1BETA2_KCP}\nspec:\n  replicas: 3\n  version: v1.34.1\n  kubeadmConfigSpec: {{{SECTIONS}}}\n  \
                 machineTemplate: {{spec: {{infrastructureRef: {{apiVersion: i.x/v1, kind: M, name: a}}}}}}\n"
            ),
            vec!["deny field-moved spec.machineTemplate.spec.infrastructureRef.apiVersion"],
        ),
        (
            "a reference that is missing",
            format!("{V1BETA2_KCP}\nspec:\n  replicas: 3\n  version: v1.34.1\n  kubeadmConfigSpec: {{{SECTIONS}}}\n"),
            vec!["deny infrastructure-ref-incomplete spec.machineTemplate.spec.infrastructureRef"],
        ),
        (
            "a number of replicas that is no number",
            changed("replicas: 3", "replicas: three"),
            vec!["deny object-undecodable spec.replicas"],
        ),
        (
            "an old version",
            changed("v1beta1", "v1alpha4"),
            vec!["deny api-version-unserved apiVersion"],
        ),
        (
            "a version that does not exist",
            changed("v1beta1", "v1beta3"),
            vec![
                "deny api-version-unserved apiVersion",
                "deny infrastructure-ref-incomplete spec.machineTemplate.spec.infrastructureRef",
            ],
        ),
        (
            "another group",
            changed("controlplane.cluster", "cluster"),
            vec!["deny api-version-unserved apiVersion"],
        ),
        (
            "no value",
            changed("{name: a}", "{name: <no value>}"),
            vec!["deny field-invalid metadata.name"],
        ),
        (
            "no name",
            changed("metadata: {name: a}", "metadata: {}"),
            vec!["deny field-invalid metadata.name"],
        ),
        (
            "a template with a map",
            "apiVersion: controlplane.cluster.x-k8s.io/v1beta2\nkind: KubeadmControlPlaneTemplate\nmetadata: {name: a}\n\
             spec: {template: {spec: {kubeadmConfigSpec: {clusterConfiguration: {apiServer: {extraArgs: {v: '1'}}}}}}}"
                .to_owned(),
            vec![
                "deny field-moved spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs",
            ],
        ),
        (
            "a KubeadmConfig of the wrong group",
            "apiVersion: cluster.x-k8s.io/v1beta1\nkind: KubeadmConfig\nmetadata: {name: a}\nspec: {}".to_owned(),
            vec!["deny api-version-unserved apiVersion"],
        ),
        (
            "a MachineDeployment",
            "apiVersion: cluster.x-k8s.io/v1beta1\nkind: MachineDeployment\nmetadata: {name: a}\nspec: {replica: 1, clusterName: b}".to_owned(),
            vec![
                "warn field-unknown spec.replica",
                "deny field-invalid spec.selector",
                "deny field-invalid spec.template",
            ],
        ),
        (
            "a Cluster of another product",
            "apiVersion: provisioning.cattle.io/v1\nkind: Cluster\nmetadata: {name: a}\nspec: {foo: 1}".to_owned(),
            vec![],
        ),
        (
            "metadata of Hive's kinds",
            "apiVersion: hive.openshift.io/v1\nkind: ClusterDeploymentCustomization\nmetadata: {name: A b}\n\
             spec: {installConfigPatches: []}"
                .to_owned(),
            vec!["deny field-invalid metadata.name"],
        ),
    ] {
        assert_eq!(findings(&manifest), expected, "{case}");
    }
}

#[test]
fn a_wrong_version_names_the_right_one() {
    let mut object = control_plane(3);
    object["apiVersion"] = json!("cluster.x-k8s.io/v1beta1");
    let text = lint_update(None, &object).text(Layout::default());
    let expected = "Invalid value: \"cluster.x-k8s.io/v1beta1\": Cluster API serves KubeadmControlPlane only in \
        controlplane.cluster.x-k8s.io/v1beta2 and controlplane.cluster.x-k8s.io/v1beta1; write \
        controlplane.cluster.x-k8s.io/v1beta2, and check the fields (api-version-unserved)";
    assert!(plain(&text).contains(expected), "{text}");
}

/// One line for all objects, because a manifest in v1beta1 is correct.
#[test]
fn says_once_that_a_version_will_not_be_served() {
    let bases =
        |count: usize, version| vec![Base::ControlPlane(version).object().to_string(); count].join("\n---\n");
    for (manifest, expected) in [
        (bases(2, V1BETA2), None),
        (
            bases(1, V1BETA1),
            Some("1 object has v1beta1, which Cluster API 1.16 (planned for April 2027) no longer serves"),
        ),
        (
            bases(2, V1BETA1),
            Some("2 objects have v1beta1, which Cluster API 1.16 (planned for April 2027) no longer serves"),
        ),
    ] {
        let report = lint_yaml(&manifest);
        assert_eq!(report.deprecation_note().as_deref(), expected);
        assert_eq!(found(&report), []);
    }
}

/// An API server tolerates what it has accepted before its schema changed.
#[test]
fn an_update_may_keep_what_it_does_not_change() {
    let mut old = control_plane(3);
    old["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["imageRepository"] = json!("");
    let mut scaled = old.clone();
    scaled["spec"]["replicas"] = json!(5);
    assert_eq!(found(&lint_update(Some(&old), &scaled)), []);
    let mut emptied = scaled;
    emptied["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["certificatesDir"] = json!("");
    let expected = "spec.kubeadmConfigSpec.clusterConfiguration.certificatesDir";
    let found = found(&lint_update(Some(&old), &emptied));
    assert_eq!(found, [("field-invalid".to_owned(), expected.to_owned())]);
}

/// The messages of a control plane in v1beta2 with this change.
fn messages(old: &str, new: &str) -> Vec<String> {
    const BASE: &str = r#"
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: edge}
spec:
  replicas: 3
  version: v1.34.2
  machineTemplate: {spec: {infrastructureRef: {apiGroup: i.io, kind: M, name: a}}}
  kubeadmConfigSpec:
    clusterConfiguration:
      apiServer: {extraArgs: [{name: profiling, value: "false"}]}
    files: [{path: /a, content: b, permissions: "0600"}]
    users: [{name: a, passwd: b}]
    format: cloud-config
  rollout: {strategy: {type: RollingUpdate}}
"#;
    assert!(BASE.contains(old), "{old}");
    let report = lint_yaml(&BASE.replace(old, new));
    let json: serde_json::Value =
        serde_json::from_str(&crate::printer::json(&Versioned(&report)).unwrap()).unwrap();
    let findings = json["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| {
            format!(
                "{}: {}",
                finding["field"].as_str().unwrap(),
                finding["message"].as_str().unwrap()
            )
        })
        .collect()
}

#[test]
fn messages_show_the_value_and_how_to_write_it() {
    let mut text = String::new();
    for (old, new) in [
        ("replicas: 3", "replicas: three"),
        ("replicas: 3", "replicas: \"3\""),
        ("replicas: 3", "replicas: 3.5"),
        ("replicas: 3", "replicas: 3.0"),
        ("replicas: 3", "replicas: 0o3"),
        ("replicas: 3", "replicas: [3]"),
        ("replicas: 3", "replicas: 2147483648"),
        ("replicas: 3", "replicas:"),
        ("replicas: 3", "replica: 3"),
        ("version: v1.34.2", "version: 1.30"),
        ("version: v1.34.2", "versoin: v1.34.2"),
        ("value: \"false\"", "value: off"),
        ("value: \"false\"", "value: 12"),
        ("permissions: \"0600\"", "permissions: 0600"),
        ("content: b", "content: 12345"),
        ("passwd: b", "passwd: 0123"),
        ("format: cloud-config", "format: cloudconfig"),
        ("format: cloud-config", "format: none"),
        ("type: RollingUpdate", "type: Rolling"),
        ("strategy: {type: RollingUpdate}", "after: tomorrow"),
        (
            "strategy: {type: RollingUpdate}",
            "before: {certificatesExpiryDays: 6}",
        ),
        ("{strategy: {type: RollingUpdate}}", "{}"),
        ("name: edge", "name: Edge_1"),
        ("{name: edge}", "{name: edge, labels: {a: yes}}"),
        ("{name: edge}", "{name: edge, labels: {a: }}"),
        (
            "extraArgs: [",
            "extraArgs: [{name: profiling, value: \"false\"}, ",
        ),
        (
            "extraArgs: [{name: profiling, value: \"false\"}]",
            "extraArgs: {profiling: \"false\"}",
        ),
        ("rollout: {", "rolloutStrategy: {type: RollingUpdate}\n  x: {"),
        (
            "machineTemplate: {spec: {",
            "machineTemplate: {spec: {deletion: {nodeDrainTimeoutSeconds: 5m}, ",
        ),
        (
            "strategy: {type: RollingUpdate}",
            "strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: yes}}",
        ),
        (
            "machineTemplate: {spec: {",
            "machineTemplate: {nodeDrainTimeout: 5m, spec: {",
        ),
        ("apiGroup: i.io", "apiVersion: i.io/v1"),
    ] {
        writeln!(text, "{new}").unwrap();
        for message in messages(old, new) {
            writeln!(text, "  {message}").unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_duration_in_v1beta1_must_be_one_that_go_parses() {
    let manifest = |duration: &str| {
        format!(
            "apiVersion: cluster.x-k8s.io/v1beta1\nkind: MachineHealthCheck\nmetadata: {{name: a}}\nspec:\n  \
             clusterName: a\n  selector: {{matchLabels: {{a: b}}}}\n  nodeStartupTimeout: {duration}\n"
        )
    };
    let denial = vec!["deny field-invalid spec.nodeStartupTimeout".to_owned()];
    for (duration, expected) in [
        ("10m", vec![]),
        ("\"0\"", vec![]),
        ("1d", denial.clone()),
        ("20", denial.clone()),
        ("${TIMEOUT}", vec![]),
    ] {
        assert_eq!(findings(&manifest(duration)), expected, "{duration}");
    }
}

#[test]
fn a_kind_that_is_almost_a_known_one_is_mistyped() {
    const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io/v1beta2";
    let kind_of = |api_version: &str, kind: &str| {
        findings(&format!(
            "apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n"
        ))
    };
    for (api_version, kind, is_mistyped) in [
        (CONTROL_PLANE, "KubeadmControlplane", true),
        (CONTROL_PLANE, "kubeadmControlPlane", true),
        (CONTROL_PLANE, "KubeadmControlPlanes", true),
        (CONTROL_PLANE, "RKE2ControlPlane", false),
        ("cluster.x-k8s.io/v1beta2", "ClusterClass", false),
        ("cluster.x-k8s.io/v1beta2", "MachinPool", true),
        ("addons.cluster.x-k8s.io/v1beta2", "ClusterResourceSets", false),
        ("hive.openshift.io/v1", "ClusterPools", true),
        ("hive.openshift.io/v1", "ClusterImageSet", false),
        ("example.com/v1", "ClusterPools", false),
    ] {
        let expected: Vec<_> = is_mistyped
            .then(|| "deny api-version-unserved kind".to_owned())
            .into_iter()
            .collect();
        assert_eq!(kind_of(api_version, kind), expected, "{api_version} {kind}");
    }
}
