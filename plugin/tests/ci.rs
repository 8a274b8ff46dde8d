//! The GitHub Action and the pre-commit hook around `lint`.

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
    process::{Command, Output},
};

use serde_json::Value;

const BAD: &str = "manifests/samples/bad/replicas-even.yaml";
const GOOD: &str = "manifests/samples/good/kubeadmcontrolplane-three-replicas.yaml";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn action() -> PathBuf {
    workspace().join(".github/actions/lint")
}

fn yaml(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_saphyr::from_str(&text).expect("YAML")
}

/// Runs the script of the action with these inputs, and without the others.
fn lint(inputs: &[(&str, &str)]) -> Output {
    let mut command = Command::new(action().join("lint"));
    command
        .current_dir(workspace())
        .env("KCP_PROGRAM", env!("CARGO_BIN_EXE_kubectl-kcp"))
        .env("KCP_RECURSIVE", "true");
    for name in ["KCP_FILES", "KCP_OLD", "KCP_CONFIGURATION", "KCP_SARIF_FILE"] {
        command.env(name, "");
    }
    command.envs(inputs.iter().copied()).output().expect("bash runs")
}

#[test]
fn the_action_annotates_and_fails() {
    let both = format!("{GOOD}\n\n{BAD}\n");
    for (case, inputs, code, annotations) in [
        ("good", &[("KCP_FILES", GOOD)][..], 0, 0),
        ("bad", &[("KCP_FILES", BAD)], 1, 1),
        ("both", &[("KCP_FILES", both.as_str())], 1, 1),
        ("a folder", &[("KCP_FILES", "manifests/samples/good")], 0, 0),
        (
            "an update that changes nothing",
            &[("KCP_FILES", BAD), ("KCP_OLD", BAD)],
            0,
            0,
        ),
        ("a missing file", &[("KCP_FILES", "no-such.yaml")], 2, 1),
        ("no file", &[], 2, 0),
        ("a typo", &[("KCP_FILES", GOOD), ("KCP_RECURSIVE", "yes")], 2, 0),
    ] {
        let output = lint(inputs);
        let text = String::from_utf8_lossy(&output.stdout);
        let found = text.lines().filter(|line| line.starts_with("::error ")).count();
        assert_eq!(
            (output.status.code(), found),
            (Some(code), annotations),
            "{case}: {output:?}"
        );
    }
}

#[test]
fn the_action_writes_a_sarif_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lint.sarif");
    let name = file.to_str().expect("UTF-8");
    let output = lint(&[("KCP_FILES", BAD), ("KCP_SARIF_FILE", name)]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let log: Value = serde_json::from_slice(&fs::read(&file).expect("the log")).expect("JSON");
    let results = log["runs"][0]["results"].as_array().expect("results");
    let found: Vec<_> = results
        .iter()
        .map(|result| {
            let place = &result["locations"][0]["physicalLocation"];
            (
                &result["ruleId"],
                &result["level"],
                &place["artifactLocation"]["uri"],
                &place["region"]["startLine"],
            )
        })
        .collect();
    let expected = ["replicas-even", "error", BAD].map(Value::from);
    assert_eq!(
        found,
        [(&expected[0], &expected[1], &expected[2], &Value::from(7))]
    );
}

/// Stands in for GitHub's program. It copies the archive beside it, and finds a signed statement if `SIGNED` is set.
const STAND_IN_GH: &str = r#"#!/bin/sh
case "$1 $2" in
    "release download") cp "${0%/*}/archive" kubectl-kcp_1.2.3_linux_amd64.tar.gz ;;
    "attestation verify") [ -n "$SIGNED" ] ;;
    *) exit 3 ;;
esac
"#;

/// Runs the script that downloads the plugin, and returns its output and the path that it reports.
fn install(version: &str, system: &str, signed: &str) -> (Output, String) {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("gh"), STAND_IN_GH).expect("the stand-in");
    fs::set_permissions(path("gh"), fs::Permissions::from_mode(0o755)).expect("the stand-in");
    fs::write(path("kubectl-kcp"), "program").expect("the program");
    let archive = Command::new("tar")
        .arg("-czf")
        .arg(path("archive"))
        .arg("-C")
        .arg(folder.path())
        .arg("kubectl-kcp")
        .status();
    assert!(archive.expect("tar runs").success());
    let search = std::env::var("PATH").expect("PATH");
    let output = Command::new(action().join("install"))
        .env("PATH", format!("{}:{search}", folder.path().display()))
        .env("KCP_REPOSITORY", "example/kcp")
        .env("KCP_VERSION", version)
        .env("RUNNER_OS", system)
        .env("RUNNER_ARCH", "X64")
        .env("RUNNER_TEMP", folder.path())
        .env("GITHUB_OUTPUT", path("output"))
        .env("SIGNED", signed)
        .output()
        .expect("bash runs");
    let reported = fs::read_to_string(path("output")).unwrap_or_default();
    let relative = reported.replace(&folder.path().display().to_string(), "TEMP");
    (output, relative)
}

#[test]
fn the_action_installs_only_what_the_release_workflow_built() {
    for (version, system, signed, code, expected) in [
        (
            "v1.2.3",
            "Linux",
            "yes",
            0,
            "program=TEMP/kubectl-kcp-v1.2.3/kubectl-kcp\n",
        ),
        ("v1.2.3", "Linux", "", 1, ""),
        ("main", "Linux", "yes", 2, ""),
        ("v1.2.3", "Windows", "yes", 2, ""),
    ] {
        let (output, reported) = install(version, system, signed);
        assert_eq!(
            (output.status.code(), reported.as_str()),
            (Some(code), expected),
            "{version} {system} {signed}: {output:?}"
        );
    }
}

/// The names of the environment variables of the action in a text.
fn variables(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
    words.filter(|word| word.starts_with("KCP_")).collect()
}

#[test]
fn every_input_of_the_action_reaches_a_script() {
    let file = action().join("action.yml");
    let definition = yaml(&file);
    let text = fs::read_to_string(&file).expect("the action");
    for (name, input) in definition["inputs"].as_object().expect("inputs") {
        assert!(text.contains(&format!("${{{{ inputs.{name}")), "{name}");
        assert!(input["description"].is_string(), "{name}");
        assert_ne!(input["default"].is_string(), input["required"] == true, "{name}");
    }
    let steps = definition["runs"]["steps"].as_array().expect("steps");
    let scripts: Vec<String> = ["install", "lint"]
        .iter()
        .map(|name| fs::read_to_string(action().join(name)).expect("a script"))
        .collect();
    for (step, script) in steps.iter().zip(&scripts) {
        let given = step["env"].to_string();
        assert_eq!(variables(&given), variables(script));
    }
    assert_eq!(steps.len(), scripts.len());
}

#[test]
fn the_pre_commit_hook_runs_the_plugin() {
    let hooks = yaml(&workspace().join(".pre-commit-hooks.yaml"));
    for hook in hooks.as_array().expect("hooks") {
        let entry = hook["entry"].as_str().expect("an entry");
        let arguments = entry.strip_prefix("kubectl-kcp ").expect(entry);
        for (files, code) in [(&[GOOD][..], 0), (&[GOOD, BAD], 1)] {
            let output = Command::new(env!("CARGO_BIN_EXE_kubectl-kcp"))
                .current_dir(workspace())
                .args(arguments.split(' '))
                .args(files)
                .output()
                .expect("the plugin runs");
            assert_eq!(output.status.code(), Some(code), "{entry} {files:?}: {output:?}");
        }
    }
}
