//! Cases of the rules in [`crate::topics::manifest_glob`].

use crate::testing::case::Case;

macro_rules! globs {
    ($($glob:literal),+) => {
        concat!(r#"{"spec":{"installerManifestPatches":["#, globs!(@ $($glob),+), "]}}")
    };
    (@ $glob:literal) => {
        concat!(r#"{"manifestSelector":{"glob":""#, $glob, r#""},"patches":[{"op":"remove","path":"/a"}]}"#)
    };
    (@ $glob:literal, $($more:literal),+) => { concat!(globs!(@ $glob), ",", globs!(@ $($more),+)) };
}

const FIRST: &str = "spec.installerManifestPatches[0].manifestSelector.glob";
const SECOND: &str = "spec.installerManifestPatches[1].manifestSelector.glob";

pub(super) const CASES: &[Case] = &[
    Case::customization(
        "accepts_globs",
        globs!(
            "manifests/*.yaml",
            "*/99_openshift-[a-z]?[^0-9].yaml",
            "a/../openshift/\\\\[x\\\\].yaml",
            "./a"
        ),
        &[],
    ),
    Case::customization("rejects_empty_glob", globs!(""), &[("glob-malformed", FIRST)]),
    Case::customization(
        "rejects_unclosed_and_empty_set",
        globs!("manifests/[a-z.yaml", "manifests/[].yaml"),
        &[("glob-malformed", FIRST), ("glob-malformed", SECOND)],
    ),
    Case::customization(
        "rejects_incomplete_range_and_escape",
        globs!("manifests/[a-].yaml", "manifests/a\\\\"),
        &[("glob-malformed", FIRST), ("glob-malformed", SECOND)],
    ),
    Case::customization(
        "rejects_parent_directory",
        globs!("../auth/*", "manifests/../../x"),
        &[("glob-outside", FIRST), ("glob-outside", SECOND)],
    ),
    Case::customization("rejects_absolute", globs!("/etc/*"), &[("glob-outside", FIRST)]),
    Case::customization(
        "warns_of_absolute_in_copy_by_hive",
        globs!("/etc/*"),
        &[("glob-outside", FIRST)],
    )
    .with_writer("system:serviceaccount:hive:hive-controllers"),
];
