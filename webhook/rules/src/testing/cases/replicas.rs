//! Cases of the rules in [`crate::topics::replicas`].

use crate::{
    testing::case::{Answer, Case},
    topics::replicas::FIELD,
};

pub(super) const CASES: &[Case] = &[
    Case::create("accepts_seven", r#"{"spec":{"replicas":7}}"#, &[]),
    Case::create(
        "warns_of_nine",
        r#"{"spec":{"replicas":9}}"#,
        &[("replicas-above-seven", FIELD)],
    ),
    Case::create("accepts_one", r#"{"spec":{"replicas":1}}"#, &[]),
    Case::create("accepts_three", r#"{"spec":{"replicas":3}}"#, &[]),
    Case::create(
        "rejects_zero",
        r#"{"spec":{"replicas":0}}"#,
        &[("replicas-not-positive", FIELD)],
    ),
    Case::create(
        "rejects_negative",
        r#"{"spec":{"replicas":-3}}"#,
        &[("replicas-not-positive", FIELD)],
    ),
    Case::create(
        "rejects_two",
        r#"{"spec":{"replicas":2}}"#,
        &[("replicas-even", FIELD)],
    ),
    Case::create(
        "rejects_four",
        r#"{"spec":{"replicas":4}}"#,
        &[("replicas-even", FIELD)],
    ),
    Case::create("accepts_two_with_external_etcd", EXTERNAL_TWO, &[]),
    Case::create("accepts_four_with_external_etcd", EXTERNAL_FOUR, &[]),
    Case::create(
        "rejects_zero_with_external_etcd",
        EXTERNAL_ZERO,
        &[("replicas-not-positive", FIELD)],
    ),
    Case::update(
        "accepts_scale_up",
        r#"{"spec":{"replicas":3}}"#,
        r#"{"spec":{"replicas":5}}"#,
        &[],
    ),
    Case::update(
        "accepts_scale_down",
        r#"{"spec":{"replicas":3}}"#,
        r#"{"spec":{"replicas":1}}"#,
        &[],
    ),
    Case::update(
        "rejects_scale_to_even",
        r#"{"spec":{"replicas":3}}"#,
        r#"{"spec":{"replicas":4}}"#,
        &[("replicas-even", FIELD)],
    ),
    Case::update(
        "rejects_omitted_replicas",
        r#"{"spec":{"replicas":3}}"#,
        r#"{"spec":{"replicas":null}}"#,
        &[("replicas-dropped", FIELD)],
    )
    .answered_by(Answer::Mutation("3")),
    Case::update(
        "accepts_omitted_replicas_if_one",
        r#"{"spec":{"replicas":1}}"#,
        r#"{"spec":{"replicas":null}}"#,
        &[],
    ),
    Case::scale("accepts_scale_subresource", r#"{"spec":{"replicas":3}}"#, 5, &[]),
    Case::scale(
        "rejects_even_scale_subresource",
        r#"{"spec":{"replicas":3}}"#,
        4,
        &[("replicas-even", FIELD)],
    ),
    Case::scale(
        "rejects_zero_scale_subresource",
        r#"{"spec":{"replicas":3}}"#,
        0,
        &[("replicas-not-positive", FIELD)],
    ),
];

const EXTERNAL_ZERO: &str = r#"{"spec":{"replicas":0,"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"external":{
    "endpoints":["https://etcd:2379"],"caFile":"/ca","certFile":"/cert","keyFile":"/key"}}}}}}"#;
const EXTERNAL_TWO: &str = r#"{"spec":{"replicas":2,"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"external":{
    "endpoints":["https://etcd:2379"],"caFile":"/ca","certFile":"/cert","keyFile":"/key"}}}}}}"#;
const EXTERNAL_FOUR: &str = r#"{"spec":{"replicas":4,"kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"external":{
    "endpoints":["https://etcd:2379"],"caFile":"/ca","certFile":"/cert","keyFile":"/key"}}}}}}"#;
