//! Type-checks the policies that `rules export` prints against the definitions. At run time, expressions have no types,
//! and a wrong field name would go unnoticed.
//!
//! The type checker treats a variable as any type and skips the variables' own expressions. The test therefore also
//! checks copies of the policies with each variable's expression as a validation.

#![expect(
    clippy::indexing_slicing,
    reason = "what is not in a JSON object is null, and all of these are our own"
)]

use std::fs;

use anyhow::{Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyStatus,
};
use kcp_tests::{manifests, wait};
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::shared::with_management_cluster;

/// With all that policies take from a configuration.
const CONFIGURATION: &str = "apiVersion: kubectl-kcp.dev/v1alpha1
kind: AdmissionConfiguration
authorizeOverrides: true
warnOnly: {matchLabels: {env: dev}}
exemptions:
- {users: [a], groups: [b], namespaceSelector: {matchLabels: {env: test}}, until: 2099-12-31T00:00:00Z}
";

#[test]
#[ignore = "takes minutes: make test-long"]
fn expressions_have_the_types_of_the_definitions() {
    with_management_cluster(async |management| {
        let cluster = management.another_without_ours("policy-types").await.unwrap();
        let configuration = cluster.kubectl().scratch_file("policy-types.yaml");
        fs::write(&configuration, CONFIGURATION).unwrap();
        let configuration = format!("--configuration={}", configuration.display());
        let exported =
            cluster
                .kubectl()
                .succeed(["kcp", "rules", "export", "--format", "vap", &configuration]);
        let exported = exported.await.unwrap().stdout;
        let written_out = written_out(manifests::parse(&exported).unwrap());
        for (name, text) in [("exported.yaml", exported), ("written-out.yaml", written_out)] {
            let file = cluster.api().folder().join(name);
            fs::write(&file, text).unwrap();
            let file = file.display().to_string();
            cluster.kubectl().succeed(["apply", "-f", &file]).await.unwrap();
        }

        let _checker = management.type_check_policies(cluster.api()).unwrap();
        let api: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client().clone());
        let checked = wait::until("all policies are type-checked", || type_checked(&api));
        let warnings: Vec<_> = checked
            .await
            .unwrap()
            .into_iter()
            .filter_map(|status| status.type_checking?.expression_warnings)
            .flatten()
            .collect();
        assert!(warnings.is_empty(), "{warnings:#?}");
    });
}

/// The status of each policy, once all have one.
async fn type_checked(api: &Api<ValidatingAdmissionPolicy>) -> Result<Vec<ValidatingAdmissionPolicyStatus>> {
    let policies = api.list(&ListParams::default()).await?.items;
    ensure!(!policies.is_empty(), "there are no policies");
    let mut checked = Vec::new();
    for policy in policies {
        let (status, generation) = (policy.status.unwrap_or_default(), policy.metadata.generation);
        ensure!(
            status.observed_generation == generation && status.type_checking.is_some(),
            "{:?} is not",
            policy.metadata.name
        );
        checked.push(status);
    }
    Ok(checked)
}

/// Variables that are not the faults of a rule.
const COMMON: &[&str] = &[
    "objects",
    "shape",
    "featureGates",
    "overridden",
    "copied",
    "exemption0",
    "path",
    "specs",
];

/// Copies of the policies with other names, with one validation for each rule's variable.
fn written_out(objects: Vec<Value>) -> String {
    let policies = objects
        .into_iter()
        .filter(|object| object["kind"] == "ValidatingAdmissionPolicy");
    let policies: Vec<_> = policies
        .map(|mut policy| {
            let mut common: Vec<(String, String)> = Vec::new();
            let mut validations = Vec::new();
            for variable in policy["spec"]["variables"].as_array().into_iter().flatten() {
                let name = variable["name"].as_str().unwrap_or_default();
                let expression = variable["expression"].as_str().unwrap_or_default().to_owned();
                let expression = common
                    .iter()
                    .fold(expression, |text, (name, value)| text.replace(name, value));
                if COMMON.contains(&name) {
                    common.push((format!("variables.{name}"), format!("({expression})")));
                } else {
                    validations
                        .push(json!({"expression": format!("size({expression}) == 0"), "message": name}));
                }
            }
            let name = format!(
                "written-out.{}",
                policy["metadata"]["name"].as_str().unwrap_or_default()
            );
            policy["metadata"]["name"] = json!(name);
            policy["spec"]["variables"] = json!([]);
            policy["spec"]["validations"] = json!(validations);
            policy
        })
        .collect();
    json!({"apiVersion": "v1", "kind": "List", "items": policies}).to_string()
}
