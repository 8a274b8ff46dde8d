//! Cases of the rules in [`crate::topics::hive_names`].

use crate::testing::case::Case;

pub(super) const CASES: &[Case] = &[
    Case::pool(
        "accepts_pool_name_of_63_characters",
        r#"{"metadata":{"name":"pool-5678901234567890123456789012345678901234567890123456789012"}}"#,
        &[],
    ),
    Case::pool(
        "rejects_pool_name_of_64_characters",
        r#"{"metadata":{"name":"pool-56789012345678901234567890123456789012345678901234567890123"}}"#,
        &[("pool-name-too-long", "metadata.name")],
    ),
    Case::pool_update(
        "accepts_existing_pool_with_long_name",
        r#"{"metadata":{"name":"pool-56789012345678901234567890123456789012345678901234567890123"}}"#,
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
        &[],
    ),
    Case::customization(
        "accepts_customization_name_of_63_characters",
        r#"{"metadata":{"name":"foo-45678901234567890123456789012345678901234567890123456789012"}}"#,
        &[],
    ),
    Case::customization(
        "rejects_customization_name_of_64_characters",
        r#"{"metadata":{"name":"foo-456789012345678901234567890123456789012345678901234567890123"}}"#,
        &[("customization-name-too-long", "metadata.name")],
    ),
];
