//! The images that the manifests name, and the files from which they are built; and the roles of the manifests, which the reference of
//! the permissions names.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy knows tests by their attribute, and these helpers have none"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// The folders with a Containerfile. An image has the name of the program in it.
const FOLDERS: [&str; 2] = ["plugin", "webhook"];

/// The tag of the images that the manifests name.
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        // The chart has links to other folders of the manifests.
        match entry.file_type().expect("a type") {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// The YAML files of a folder.
fn yaml_files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    files(folder)
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "yaml"))
}

/// The images that the YAML files of a folder name, without their registry, as `NAME:TAG`. An image of the values of the chart has
/// no tag.
fn images(folder: &str) -> BTreeSet<String> {
    let texts: Vec<String> = yaml_files(&workspace().join(folder))
        .map(|file| read(&file))
        .collect();
    let values = texts.iter().flat_map(|text| text.lines()).filter_map(|line| {
        let line = line.trim().trim_start_matches("- ");
        let value = line
            .strip_prefix("image: ")
            .or_else(|| line.strip_prefix("repository: "))?;
        Some(value.rsplit('/').next().unwrap_or(value).to_owned())
    });
    values.collect()
}

/// The instructions of a Containerfile, with the lines of each joined.
fn instructions(folder: &str) -> Vec<String> {
    let text = read(&workspace().join(folder).join("Containerfile")).replace("\\\n", " ");
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// The program that an image runs, from its `ENTRYPOINT`.
fn program(instructions: &[String]) -> &str {
    let entrypoint = instructions
        .iter()
        .find_map(|line| line.strip_prefix("ENTRYPOINT [\"/")?.strip_suffix("\"]"));
    entrypoint.expect("an entrypoint")
}

#[test]
fn every_image_of_a_manifest_has_a_containerfile() {
    let built: BTreeMap<String, &str> = FOLDERS
        .iter()
        .map(|folder| (program(&instructions(folder)).to_owned(), *folder))
        .collect();
    let mut named = images("manifests");
    named.extend(images("certs"));
    let expected: BTreeSet<String> = [
        "kcp-webhook".to_owned(),
        format!("kcp-webhook:{VERSION}"),
        "kubectl-kcp".to_owned(),
        format!("kubectl-kcp:{VERSION}"),
    ]
    .into();
    assert_eq!(named, expected);
    for image in named {
        let name = image.split(':').next().unwrap_or_default();
        assert!(built.contains_key(name), "{image}: {built:?}");
    }
}

/// An image has one static program, and runs as a user without privileges.
#[test]
fn every_image_is_minimal_and_labelled() {
    for folder in FOLDERS {
        let instructions = instructions(folder);
        let program = program(&instructions);
        let build = instructions
            .iter()
            .find(|line| line.starts_with("RUN cargo build "))
            .expect("a build");
        for part in ["--release", "--locked", &format!("--package {program}")] {
            assert!(build.contains(part), "{folder}: {part}");
        }
        let last = instructions.iter().rposition(|line| line.starts_with("FROM "));
        let (_, image) = instructions.split_at(last.expect("a stage"));
        assert_eq!(
            image.first().map(String::as_str),
            Some("FROM scratch"),
            "{folder}"
        );
        assert!(image.iter().any(|line| line == "USER 65532:65532"), "{folder}");
        let label = image
            .iter()
            .find_map(|line| line.strip_prefix("LABEL "))
            .expect("labels");
        for (key, value) in [
            ("title", program),
            ("version", VERSION),
            ("licenses", "Apache-2.0"),
        ] {
            let expected = format!("org.opencontainers.image.{key}=\"{value}\"");
            assert!(label.contains(&expected), "{folder}: {expected}");
        }
        let notices = "COPY --from=build /out/LICENSE /out/THIRD-PARTY-NOTICES /licenses/";
        assert!(image.iter().any(|line| line == notices), "{folder}");
    }
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
    let roles: BTreeSet<String> = yaml_files(&workspace().join("manifests"))
        .flat_map(|file| roles(&file))
        .collect();
    assert!(roles.contains("kcp-reader"), "{roles:?}");
    let missing: Vec<String> = roles
        .into_iter()
        .filter(|role| !page.contains(&format!("`{role}`")))
        .collect();
    assert_eq!(missing, Vec::<String>::new());
}

/// The documents of a YAML file.
fn documents(file: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&read(&workspace().join(file))).expect("YAML")
}

#[test]
fn the_pods_of_the_webhook_are_restricted() {
    for file in [
        "manifests/base/deployment.yaml",
        "manifests/managed/deployment.yaml",
    ] {
        let deployments = documents(file);
        let pods: Vec<_> = deployments
            .iter()
            .filter_map(|object| object.pointer("/spec/template/spec"))
            .collect();
        assert_eq!(pods.len(), 1, "{file}");
        for pod in pods {
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{file}");
            for container in pod["containers"].as_array().expect("containers") {
                let context = &container["securityContext"];
                assert_eq!(context["readOnlyRootFilesystem"], true, "{file}");
                assert_eq!(context["allowPrivilegeEscalation"], false, "{file}");
                assert_eq!(
                    context["capabilities"]["drop"],
                    serde_json::json!(["ALL"]),
                    "{file}"
                );
            }
        }
    }
}

#[test]
fn the_role_of_the_webhook_only_reads_and_reads_no_secrets() {
    let objects = documents("manifests/base/rbac.yaml");
    let rules = objects.iter().filter_map(|object| object["rules"].as_array());
    let mut count = 0;
    for rule in rules.flatten() {
        count += 1;
        let list = |field: &str| rule[field].as_array().expect("a list").clone();
        let reads = |verb: &Value| ["get", "list", "watch"].iter().any(|read| verb == read);
        assert!(list("verbs").iter().all(reads), "{rule}");
        assert!(
            !list("resources")
                .iter()
                .any(|resource| resource == "secrets" || resource == "*"),
            "{rule}"
        );
    }
    assert!(count > 5, "{count}");
}
