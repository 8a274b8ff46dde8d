//! The reference of the permissions names every role of the manifests.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy knows tests by their attribute, and these helpers have none"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The YAML files of a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    found
}

fn is_role(kind: &str) -> bool {
    matches!(kind, "ClusterRole" | "Role")
}

/// The names of the roles in a file. A template of the chart is not YAML, so only a file with a role is parsed.
fn roles(file: &Path) -> Vec<String> {
    let text = read(file);
    let mut kinds = text.lines().filter_map(|line| line.strip_prefix("kind: "));
    if !kinds.any(is_role) {
        return Vec::new();
    }
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let roles = objects
        .iter()
        .filter(|object| object["kind"].as_str().is_some_and(is_role));
    roles
        .map(|role| role["metadata"]["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn the_reference_names_every_role() {
    let page = read(&workspace().join("docs/src/reference/permissions.md"));
    let files = files(&workspace().join("manifests"));
    let roles: BTreeSet<String> = files.iter().flat_map(|file| roles(file)).collect();
    assert!(roles.contains("kcp-reader"), "{roles:?}");
    let missing: Vec<String> = roles
        .into_iter()
        .filter(|role| !page.contains(&format!("`{role}`")))
        .collect();
    assert_eq!(missing, Vec::<String>::new());
}
