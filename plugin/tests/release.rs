//! The scripts and the workflow that make a release.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy knows tests by their attribute, and these helpers have none"
)]

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

const VERSION: &str = "1.2.3";
const URL: &str = "https://example.com/v1.2.3";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a script of the release with this text on stdin.
fn run(script: &str, arguments: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(workspace().join("manifests/release").join(script))
        .args(arguments)
        .env("CARGO_NET_OFFLINE", "true")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the script runs");
    let written = child.stdin.take().expect("stdin").write_all(stdin.as_bytes());
    written.expect("the script reads stdin");
    child.wait_with_output().expect("the script ends")
}

/// Runs a script that must succeed.
fn printed(script: &str, arguments: &[&str], stdin: &str) -> String {
    let output = run(script, arguments, stdin);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A checksum, which begins with a digit and looks like a number in YAML.
fn sum(number: usize) -> String {
    format!("{number}e{number:062}")
}

fn checksums(platforms: &[&str]) -> String {
    let lines = platforms
        .iter()
        .enumerate()
        .map(|(number, platform)| format!("{}  kubectl-kcp_{VERSION}_{platform}.tar.gz\n", sum(number)));
    lines.collect::<String>() + &format!("{}  kcp-webhook_{VERSION}_linux_amd64.tar.gz\n", sum(9))
}

const PLATFORMS: [&str; 4] = ["linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"];

/// The rules of <https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/>. krew itself does not run here.
#[test]
fn the_manifests_follow_the_rules_of_krew() {
    for name in ["kcp", "controlplane"] {
        let text = printed("krew", &[name, VERSION, URL], &checksums(&PLATFORMS));
        let manifest: Value = serde_saphyr::from_str(&text).expect("YAML");
        assert_eq!(
            manifest["apiVersion"],
            "krew.googlecontainertools.github.com/v1alpha2"
        );
        assert_eq!(manifest["kind"], "Plugin");
        assert_eq!(manifest["metadata"]["name"], name);
        let spec = &manifest["spec"];
        assert_eq!(spec["version"], format!("v{VERSION}"));
        for field in ["homepage", "shortDescription", "description", "caveats"] {
            assert!(spec[field].is_string(), "{field}");
        }
        let short = spec["shortDescription"].as_str().expect("a text");
        assert!(short.len() <= 50 && !short.ends_with('.'), "{short}");
        let description = spec["description"].as_str().expect("a text");
        assert!(description.lines().all(|line| line.len() <= 80), "{description}");
        let caveats = spec["caveats"].as_str().expect("a text");
        assert!(
            caveats.contains(&format!("kubectl {name} completion")),
            "{caveats}"
        );
        let platforms = spec["platforms"].as_array().expect("platforms");
        let found: Vec<String> = platforms
            .iter()
            .map(|platform| {
                let labels = &platform["selector"]["matchLabels"];
                format!("{}_{}", labels["os"], labels["arch"]).replace('"', "")
            })
            .collect();
        assert_eq!(found, PLATFORMS);
        for (number, (platform, name)) in platforms.iter().zip(PLATFORMS).enumerate() {
            let uri = format!("{URL}/kubectl-kcp_{VERSION}_{name}.tar.gz");
            assert_eq!(platform["uri"], uri);
            assert_eq!(platform["sha256"], sum(number));
            assert_eq!(platform["bin"], "kubectl-kcp");
            // krew requires that the licence is installed.
            let files: BTreeSet<&str> = platform["files"]
                .as_array()
                .expect("files")
                .iter()
                .filter_map(|file| file["from"].as_str())
                .collect();
            assert_eq!(files, ["LICENSE", "THIRD-PARTY-NOTICES", "kubectl-kcp"].into());
        }
    }
}

#[test]
fn a_manifest_needs_an_archive() {
    for (script, arguments) in [("krew", &["kcp", VERSION, URL][..]), ("formula", &[VERSION, URL])] {
        let output = run(script, arguments, &checksums(&[]));
        assert_eq!(output.status.code(), Some(1), "{script}: {output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            error, "error: the checksums contain no archive of kubectl-kcp 1.2.3\n",
            "{script}"
        );
    }
}

#[test]
fn the_formula_has_the_platforms_that_were_built() {
    let formula = printed(
        "formula",
        &[VERSION, URL],
        &checksums(&["linux_amd64", "darwin_arm64"]),
    );
    let archive = |block: &str, platform: &str, number: usize| {
        format!(
            "    {block} do\n      url \"{URL}/kubectl-kcp_{VERSION}_{platform}.tar.gz\"\n      sha256 \"{}\"\n    end\n",
            sum(number)
        )
    };
    let expected = format!(
        "\n  on_macos do\n{}  end\n\n  on_linux do\n{}  end\n",
        archive("on_arm", "darwin_arm64", 1),
        archive("on_intel", "linux_amd64", 0)
    );
    assert!(formula.contains(&expected), "{formula}");
    assert!(
        formula.starts_with("class KubectlKcp < Formula\n") && formula.ends_with("\nend\n"),
        "{formula}"
    );
}

/// The check of a release looks at the files in target/dist, so it must know which ones to expect.
#[test]
fn a_check_needs_the_archives_of_its_platforms() {
    for (platforms, code, expected) in [
        (&["plan9_amd64"][..], 1, "FAILED: there is no "),
        (&[], 2, "usage: "),
    ] {
        let output = run("check", platforms, "");
        assert_eq!(output.status.code(), Some(code), "{platforms:?}: {output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.starts_with(expected), "{platforms:?}: {error}");
    }
}

#[test]
fn the_workflow_builds_and_checks_every_platform() {
    let text = read(&workspace().join(".github/workflows/release.yaml"));
    let workflow: Value = serde_saphyr::from_str(&text).expect("YAML");
    let builds = &workflow["jobs"]["build"]["strategy"]["matrix"]["include"];
    let built: Vec<&str> = builds
        .as_array()
        .expect("builds")
        .iter()
        .filter_map(|build| build["platform"].as_str())
        .collect();
    assert_eq!(built, PLATFORMS);
    let steps = workflow["jobs"]["publish"]["steps"].as_array().expect("steps");
    let check = format!("manifests/release/check {}", PLATFORMS.join(" "));
    assert!(steps.iter().any(|step| step["run"] == check.as_str()), "{check}");
}

/// Every crate that the plugin links on this platform.
fn linked() -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .current_dir(workspace())
        .args([
            "tree",
            "--locked",
            "--offline",
            "--package",
            "kubectl-kcp",
            "--edges",
            "normal",
        ])
        .args(["--prefix", "none", "--format", "{p}"])
        .output()
        .expect("cargo runs");
    assert!(tree.status.success(), "{tree:?}");
    let text = String::from_utf8_lossy(&tree.stdout);
    let lines = text.lines().filter(|line| !line.contains("(/"));
    lines
        .filter_map(|line| {
            let (name, rest) = line.split_once(" v")?;
            Some(format!("{name} {}", rest.split(' ').next()?))
        })
        .collect()
}

#[test]
fn the_notices_have_every_crate_and_the_texts_of_their_licences() {
    let notices = printed("notices", &["kubectl-kcp"], "");
    let lines: BTreeSet<&str> = notices.lines().collect();
    let linked = linked();
    assert!(linked.len() > 100, "{linked:?}");
    let missing: Vec<&String> = linked
        .iter()
        .filter(|name| !lines.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    for text in [
        "Permission is hereby granted, free of charge",
        "Apache License",
        "Redistribution and use",
    ] {
        assert!(notices.contains(text), "{text}");
    }
}

/// Every job of the workflows has only the permissions that it names, a time limit, and actions pinned to a commit.
#[test]
fn the_workflows_are_restricted() {
    for entry in fs::read_dir(workspace().join(".github/workflows")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let workflow: Value = serde_saphyr::from_str(&read(&path)).expect("YAML");
        assert_eq!(
            workflow["permissions"],
            serde_json::json!({}),
            "{}",
            path.display()
        );
        for (name, job) in workflow["jobs"].as_object().expect("jobs") {
            assert!(
                job["permissions"].is_object() && job["timeout-minutes"].is_number(),
                "{name}"
            );
            for step in job["steps"].as_array().expect("steps") {
                let Some(action) = step["uses"].as_str() else {
                    // An expression in a script is an injection.
                    let script = step["run"].as_str().expect("a script");
                    assert!(!script.contains("${{"), "{name}: {script}");
                    continue;
                };
                let (_, commit) = action.split_once('@').expect(action);
                let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
                assert!(is_commit, "{name}: {action}");
            }
        }
    }
}

/// Releases, tests and users use the versions in Cargo.lock.
#[test]
fn every_build_is_locked() {
    let files = [
        "manifests/release/build",
        "manifests/release/notices",
        "plugin/Containerfile",
        "webhook/Containerfile",
        ".github/workflows/release.yaml",
        "Makefile",
        "README.md",
        "docs/src/install.md",
    ];
    for file in files {
        let text = read(&workspace().join(file)).replace("\\\n", " ");
        let commands = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        for command in [
            "cargo build",
            "cargo auditable build",
            "cargo test",
            "cargo bench",
            "cargo clippy",
            "cargo tree",
            "cargo install",
            "cargo fetch",
        ] {
            for line in commands.clone().filter(|line| line.contains(command)) {
                assert!(line.contains("--locked"), "{file}: {line}");
            }
        }
    }
}
