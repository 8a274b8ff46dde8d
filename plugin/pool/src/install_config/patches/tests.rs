//! Tables of patches, and the exact install-configs that result from them.

use serde_json::{Value, json};

use crate::install_config::{
    InstallConfig,
    patches::{PatchProblem, patch_install_config},
};

const INSTALL_CONFIG: &str = "
apiVersion: v1
baseDomain: example.com
metadata:
  name: generated
compute:
- name: worker
  replicas: 3
pullSecret: sesame
";

fn config() -> InstallConfig {
    InstallConfig::parse(INSTALL_CONFIG.as_bytes(), "f").unwrap()
}

/// The whole patched document, or why a patch cannot be applied.
fn apply(patches: &Value) -> Result<Value, PatchProblem> {
    patch_install_config(&config(), &json!({ "installConfigPatches": patches }))
        .map(|patched| patched.install_config.value().clone())
}

/// The document after the patches.
fn at(pointer: &str, patches: &Value) -> Option<Value> {
    apply(patches).unwrap().pointer(pointer).cloned()
}

#[test]
fn values_are_read_as_hive_reads_them() {
    for (patch, pointer, expected) in [
        (
            json!({"op": "replace", "path": "/metadata/name", "value": "foo"}),
            "/metadata/name",
            json!("foo"),
        ),
        (
            json!({"op": "add", "path": "/compute/0/replicas", "value": "5"}),
            "/compute/0/replicas",
            json!("5"),
        ),
        (
            json!({"op": "add", "path": "/compute/0/replicas", "valueJSON": "5"}),
            "/compute/0/replicas",
            json!(5),
        ),
        (
            json!({"op": "add", "path": "/x", "value": "lost", "valueJSON": "{\"a\": [1]}"}),
            "/x",
            json!({"a": [1]}),
        ),
        (
            json!({"op": "add", "path": "/x", "valueJSON": ""}),
            "/x",
            json!(""),
        ),
        (json!({"op": "add", "path": "/x"}), "/x", json!("")),
        (
            json!({"op": "add", "path": "/x", "value": "\"a\"\tä\n\\\u{1F600}"}),
            "/x",
            json!("\"a\"\tä\n\\\u{1F600}"),
        ),
        (
            json!({"op": "copy", "from": "/metadata/name", "path": "/x"}),
            "/x",
            json!("generated"),
        ),
        (
            json!({"op": "add", "path": "/compute/-", "valueJSON": "{}"}),
            "/compute/1",
            json!({}),
        ),
    ] {
        assert_eq!(at(pointer, &json!([patch])), Some(expected), "{patch}");
    }
}

#[test]
fn patches_are_applied_in_order() {
    let patches = json!([
        {"op": "test", "path": "/metadata/name", "value": "generated"},
        {"op": "remove", "path": "/compute"},
        {"op": "move", "from": "/metadata/name", "path": "/metadata/was"},
        {"op": "add", "path": "/metadata/name", "value": "foo"},
    ]);
    let expected = json!({
        "apiVersion": "v1", "baseDomain": "example.com", "pullSecret": "sesame",
        "metadata": {"name": "foo", "was": "generated"},
    });
    assert_eq!(apply(&patches).unwrap(), expected);
}

/// The example in the design document, without changes.
#[test]
fn the_example_of_the_design_document_names_the_cluster_foo() {
    let spec = json!({"installConfigPatches": [{"op": "replace", "path": "metadata/name", "value": "foo"}]});
    let patched = patch_install_config(&config(), &spec).unwrap();
    assert_eq!(
        patched.install_config.value().pointer("/metadata/name"),
        Some(&json!("foo"))
    );
    assert_eq!(patched.install_config.value().get("name"), None);
    assert_eq!(
        patched.warnings,
        [
            "spec.installConfigPatches[0] (replace \"metadata/name\"): the path \"metadata/name\" does not \
             begin with /, so kubectl-kcp reads it as \"/metadata/name\"; add the /, because Hive would \
                 drop the first part"
        ]
    );
}

#[test]
fn rejects_patches_that_neither_the_rfc_nor_hive_applies() {
    for (patch, why) in [
        (
            json!({"op": "remove", "path": "/metadata/nmae"}),
            "(remove \"/metadata/nmae\"): the field that `path` names does not exist",
        ),
        (
            json!({"op": "add", "path": "/nowhere/name", "value": "foo"}),
            "(add \"/nowhere/name\"): the field that `path` names does not exist",
        ),
        (
            json!({"op": "replace", "path": "/compute/1", "value": "foo"}),
            "(replace \"/compute/1\"): the field that `path` names does not exist",
        ),
        (
            json!({"op": "replace", "path": "/nowhere/name", "value": "foo"}),
            "(replace \"/nowhere/name\"): the field that `path` names does not exist",
        ),
        (
            json!({"op": "copy", "from": "/nowhere/name", "path": "/x"}),
            "(copy \"/x\"): the field that `from` names does not exist",
        ),
        (
            json!({"op": "move", "path": "/x"}),
            "(move \"/x\"): `from` is not set",
        ),
        (
            json!({"op": "test", "path": "/pullSecret", "value": "swordfish"}),
            "(test \"/pullSecret\"): the value in the document differs from the value in the patch",
        ),
        (
            json!({"op": "add", "path": "/x", "valueJSON": "swordfish"}),
            "(add \"/x\"): valueJSON must be exactly one valid JSON value",
        ),
        (
            json!({"op": "add", "path": "/x", "value": "swordfish\u{7f}"}),
            "(add \"/x\"): value has a control character that Hive cannot write in JSON; use valueJSON",
        ),
        (
            json!({"op": "paint", "path": "/x"}),
            "(paint \"/x\"): the op is not an operation of RFC 6902",
        ),
    ] {
        let expected = PatchProblem::Broken(format!("spec.installConfigPatches[0] {why}"));
        assert_eq!(apply(&json!([patch])), Err(expected), "{patch}");
    }
}

/// Each patch was tested with gopkg.in/evanphx/json-patch.v4 v4.13.0, which applies it.
#[test]
fn reports_patches_that_only_hive_applies() {
    const ABSENT: &str = "the field does not exist, and Hive would add it; to add the field, use op add";
    const END: &str = "RFC 6902 has no index -1, although Hive reads it as the last item of a list; write the item's index, \
         counted from 0";
    const INDEX: &str = "an index must not have a sign or a leading zero, although Hive accepts them; remove the sign or \
         the zero";
    const TILDE: &str = "the path has a ~ that is neither ~0 nor ~1, and Hive would leave this ~ unchanged; write ~0 for a \
         tilde";
    for (patch, why) in [
        (
            json!({"op": "replace", "path": "/metadata/nmae", "value": "foo"}),
            ABSENT,
        ),
        (json!({"op": "replace", "path": "/nmae", "value": "foo"}), ABSENT),
        (
            json!({"op": "replace", "path": "/metadata/", "value": "foo"}),
            ABSENT,
        ),
        (
            json!({"op": "replace", "path": "/compute/-1", "value": "foo"}),
            END,
        ),
        (
            json!({"op": "replace", "path": "/compute/-1/name", "value": "foo"}),
            END,
        ),
        (json!({"op": "remove", "path": "/compute/-1"}), END),
        (json!({"op": "add", "path": "/compute/-2", "value": "foo"}), END),
        (
            json!({"op": "replace", "path": "/compute/00", "value": "foo"}),
            INDEX,
        ),
        (json!({"op": "add", "path": "/compute/+1", "value": "foo"}), INDEX),
        (
            json!({"op": "test", "path": "/nmae", "valueJSON": "null"}),
            "the field does not exist, and Hive would treat it as null",
        ),
        (
            json!({"op": "copy", "from": "/nmae", "path": "/x"}),
            "the field that `from` names does not exist, and Hive would write null",
        ),
        (
            json!({"op": "add", "path": "/metadata/a~2b", "value": "foo"}),
            TILDE,
        ),
        (json!({"op": "add", "path": "/metadata~", "value": "foo"}), TILDE),
        (
            json!({"op": "remove", "path": "nowhere/metadata"}),
            "the path does not begin with /, and Hive would drop its first part",
        ),
    ] {
        let place = format!(
            "spec.installConfigPatches[0] ({} {})",
            patch["op"].as_str().unwrap(),
            patch["path"]
        );
        let expected = PatchProblem::ForbiddenByRfc(format!("{place}: {why}"));
        assert_eq!(apply(&json!([patch])), Err(expected), "{patch}");
    }
}

/// The same library rejects these patches. RFC 6902 allows some of them.
#[test]
fn rejects_patches_that_hive_refuses() {
    for (patch, why) in [
        (
            json!({"op": "replace", "path": "", "value": "foo"}),
            "the result is not a YAML mapping, but an install-config must be one",
        ),
        (
            json!({"op": "replace", "path": "", "valueJSON": "null"}),
            "the result is not a YAML mapping, but an install-config must be one",
        ),
        (
            json!({"op": "replace", "path": "//metadata/name", "value": "foo"}),
            "the field that `path` names does not exist",
        ),
        (
            json!({"op": "add", "path": "", "valueJSON": "{}"}),
            "Hive allows a patch of the whole document only with op replace or test",
        ),
        (
            json!({"op": "copy", "from": "", "path": "/x"}),
            "Hive allows a patch of the whole document only with op replace or test",
        ),
        (
            json!({"op": "replace", "path": "/compute/-2", "value": "foo"}),
            "the field that `path` names does not exist",
        ),
        (
            json!({"op": "add", "path": "/compute/02", "value": "foo"}),
            "the field that `path` names does not exist",
        ),
        (
            json!({"op": "replace", "path": "/compute/-", "value": "foo"}),
            "the field that `path` names does not exist",
        ),
        (
            json!({"op": "test", "path": "/nmae", "value": ""}),
            "the field that `path` names does not exist",
        ),
        (
            json!({"op": "move", "from": "/nmae", "path": "/x"}),
            "the field that `from` names does not exist",
        ),
        (
            json!({"op": "move", "from": "/metadata", "path": "/metadata/x"}),
            "a field cannot be moved into itself",
        ),
    ] {
        let place = format!(
            "spec.installConfigPatches[0] ({} {})",
            patch["op"].as_str().unwrap(),
            patch["path"]
        );
        let expected = PatchProblem::Broken(format!("{place}: {why}"));
        assert_eq!(apply(&json!([patch])), Err(expected), "{patch}");
    }
}

#[test]
fn rejects_patches_that_leave_no_mapping() {
    let whole = |json: &str| json!({"op": "replace", "path": "", "valueJSON": json});
    let why =
        "spec.installConfigPatches: the result is not a YAML mapping, but an install-config must be one";
    assert_eq!(
        apply(&json!([whole("[1]")])),
        Err(PatchProblem::Broken(why.to_owned()))
    );
    assert_eq!(
        apply(&json!([whole("[1]"), whole("{\"a\": 1}")])),
        Ok(json!({"a": 1}))
    );
}

/// Hive would stop at the second patch.
#[test]
fn a_broken_patch_is_reported_before_one_that_only_hive_applies() {
    let patches = json!([
        {"op": "replace", "path": "/metadata/nmae", "value": "foo"},
        {"op": "remove", "path": "/nowhere"},
    ]);
    let why = "spec.installConfigPatches[1] (remove \"/nowhere\"): the patch cannot be applied";
    assert_eq!(apply(&patches), Err(PatchProblem::Broken(why.to_owned())));
    let patches = json!([
        {"op": "replace", "path": "/metadata/nmae", "value": "foo"},
        {"op": "remove", "path": "/metadata/nmae"},
    ]);
    assert!(matches!(apply(&patches), Err(PatchProblem::ForbiddenByRfc(_))));
}

#[test]
fn a_message_shows_the_beginning_of_a_long_path() {
    let patches = json!([{"op": "remove", "path": format!("/{}", "ä".repeat(33_000))}]);
    let why = format!(
        "spec.installConfigPatches[0] (remove \"/{}...\"): the field that `path` names does not exist",
        "ä".repeat(119)
    );
    assert_eq!(apply(&patches), Err(PatchProblem::Broken(why)));
}

#[test]
fn patches_of_manifests_are_checked_and_returned() {
    let manifest = |glob: &str, op: &str| json!({"manifestSelector": {"glob": glob}, "patches": [{"op": op, "path": "/a"}]});
    let good = json!({"installerManifestPatches": [manifest("manifests/*.yaml", "remove")]});
    assert_eq!(
        patch_install_config(&config(), &good).unwrap().manifest_patches,
        [manifest("manifests/*.yaml", "remove")]
    );
    for (glob, op, field) in [
        (
            "manifests/[a",
            "remove",
            "spec.installerManifestPatches[0].manifestSelector.glob",
        ),
        (
            "../a",
            "remove",
            "spec.installerManifestPatches[0].manifestSelector.glob",
        ),
        ("a", "paint", "spec.installerManifestPatches[0].patches[0].op"),
        ("a", "copy", "spec.installerManifestPatches[0].patches[0].from"),
    ] {
        let result = patch_install_config(
            &config(),
            &json!({"installerManifestPatches": [manifest(glob, op)]}),
        );
        let Err(PatchProblem::Broken(why)) = result else {
            panic!("{glob} {op}: {result:?}");
        };
        assert!(why.starts_with(&format!("{field}: ")), "{why}");
    }
}

#[test]
fn a_customization_without_patches_changes_nothing() {
    for spec in [Value::Null, json!({})] {
        let patched = patch_install_config(&config(), &spec).unwrap();
        assert_eq!(patched.install_config, config());
        assert!(patched.manifest_patches.is_empty() && patched.warnings.is_empty());
    }
}
