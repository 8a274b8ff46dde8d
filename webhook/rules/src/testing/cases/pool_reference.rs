//! Cases of the rules in [`crate::topics::pool_reference`].

use crate::{
    testing::case::Case,
    topics::pool_reference::{CLAIM, CUSTOMIZATION, NAMESPACE, POOL, REFERENCE},
};

const CLAIMED: &str = r#"{"spec":{"clusterPoolRef":{"claimName":"us"}}}"#;
const NO_POOL: &str = r#"{"spec":{"clusterPoolRef":null}}"#;
const POOL_ADDED: &str = r#"{"spec":{"clusterPoolRef":{"namespace":"default","poolName":"example","clusterDeploymentCustomization":null}}}"#;

pub(super) const CASES: &[Case] = &[
    Case::cluster_deployment("accepts_cluster_of_a_pool", "{}", &[]),
    Case::cluster_deployment("accepts_cluster_without_pool", NO_POOL, &[]),
    Case::cluster_deployment(
        "rejects_claim_on_creation",
        CLAIMED,
        &[("claim-name-given", CLAIM)],
    ),
    Case::cluster_deployment(
        "accepts_claim_of_restored_cluster",
        r#"{"metadata":{"labels":{"hive.openshift.io/disable-creation-webhook-for-dr":"true"}},
            "spec":{"clusterPoolRef":{"claimName":"us"}}}"#,
        &[],
    ),
    Case::cluster_deployment_update("accepts_claim", "{}", CLAIMED, &[]),
    Case::cluster_deployment_update(
        "accepts_other_change",
        CLAIMED,
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
        &[],
    ),
    Case::cluster_deployment_update(
        "accepts_empty_names",
        r#"{"spec":{"clusterPoolRef":{"clusterDeploymentCustomization":null}}}"#,
        r#"{"spec":{"clusterPoolRef":{"claimName":"","clusterDeploymentCustomization":{"name":""}}}}"#,
        &[],
    ),
    Case::cluster_deployment_update(
        "rejects_another_claim",
        CLAIMED,
        r#"{"spec":{"clusterPoolRef":{"claimName":"them"}}}"#,
        &[("claim-name-changed", CLAIM)],
    ),
    Case::cluster_deployment_update(
        "rejects_removed_claim",
        CLAIMED,
        r#"{"spec":{"clusterPoolRef":{"claimName":null}}}"#,
        &[("claim-name-changed", CLAIM)],
    ),
    Case::cluster_deployment_update(
        "rejects_added_pool",
        NO_POOL,
        POOL_ADDED,
        &[("pool-ref-changed", REFERENCE)],
    ),
    Case::cluster_deployment_update(
        "rejects_removed_pool",
        CLAIMED,
        NO_POOL,
        &[("pool-ref-changed", REFERENCE)],
    ),
    Case::cluster_deployment_update(
        "rejects_another_pool_and_customization",
        "{}",
        r#"{"spec":{"clusterPoolRef":{"namespace":"other","poolName":"other","clusterDeploymentCustomization":{"name":"bar"}}}}"#,
        &[
            ("pool-ref-changed", NAMESPACE),
            ("pool-ref-changed", POOL),
            ("pool-ref-changed", CUSTOMIZATION),
        ],
    ),
    Case::cluster_deployment_update(
        "rejects_removed_customization",
        "{}",
        r#"{"spec":{"clusterPoolRef":{"clusterDeploymentCustomization":null}}}"#,
        &[("pool-ref-changed", CUSTOMIZATION)],
    ),
];
