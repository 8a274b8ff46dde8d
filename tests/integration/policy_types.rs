//! The policies as `rules export` prints them, applied as the README says, and type-checked against the definitions. At
//! run time an expression meets objects without types: what it reads of a field that is not there would go unseen.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyStatus,
};
use kcp_tests::wait;
use kube::api::{Api, ListParams};

use crate::shared::with_management_cluster;

/// The schema of a control plane is read anew for each of its policies.
const TYPE_CHECKED: Duration = Duration::from_secs(120);

#[test]
fn expressions_have_the_types_of_the_definitions() {
    with_management_cluster(async |management| {
        let cluster = management.another_without_ours("policy-types").await.unwrap();
        let exported = cluster
            .kubectl()
            .succeed(["kcp", "rules", "export", "--format", "vap"]);
        let file = cluster.api().folder().join("policies.yaml");
        fs::write(&file, exported.await.unwrap().stdout).unwrap();
        let file = file.display().to_string();
        cluster.kubectl().succeed(["apply", "-f", &file]).await.unwrap();

        let _checker = management.type_check_policies(cluster.api()).unwrap();
        let api: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client().clone());
        let checked = wait::until("all policies are type-checked", TYPE_CHECKED, || {
            type_checked(&api)
        });
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

/// The status of every policy, once each has one.
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
