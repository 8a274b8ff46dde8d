//! What the dependencies are allowed to be: their licences, their source, and the Rust version that they need.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy knows tests by their attribute, and these helpers have none"
)]

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use serde_json::Value;

/// Licences that allow to ship a program under Apache-2.0 with no more than a notice.
const LICENCES: [&str; 9] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Crates that must not come back, and why.
const BANNED: [(&str, &str); 5] = [
    (
        "aws-lc-rs",
        "needs cmake, and gathers entropy for 30 ms at start; ring does neither",
    ),
    (
        "aws-lc-sys",
        "needs cmake, and gathers entropy for 30 ms at start; ring does neither",
    ),
    ("openssl-sys", "links a library of the machine; rustls does not"),
    ("native-tls", "links a library of the machine; rustls does not"),
    ("serde_yaml", "unmaintained; serde-saphyr replaces it"),
];

/// The packages of the workspace and everything that they depend on, on this platform.
fn packages() -> Vec<Value> {
    let metadata = Command::new(env!("CARGO"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .args([
            "metadata",
            "--locked",
            "--offline",
            "--all-features",
            "--format-version",
            "1",
        ])
        // Only the crates of this platform are on the machine.
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .expect("cargo runs");
    assert!(
        metadata.status.success(),
        "{}",
        String::from_utf8_lossy(&metadata.stderr)
    );
    let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages").clone();
    assert!(packages.len() > 100, "{} packages", packages.len());
    packages
}

fn name(package: &Value) -> String {
    let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
    format!("{} {}", text("name"), text("version"))
}

/// Whether the terms of one of the alternatives of an SPDX expression are all allowed. `/` is an old form of `OR`.
fn is_allowed(expression: &str) -> bool {
    let plain = expression.replace(" / ", " OR ").replace('/', " OR ");
    // No expression in use nests further: `(A OR B) AND C`.
    plain.split(" AND ").all(|part| {
        let part = part.trim().trim_start_matches('(').trim_end_matches(')');
        part.split(" OR ")
            .any(|licence| LICENCES.contains(&licence.trim()))
    })
}

#[test]
fn licences_are_permissive() {
    let denied: Vec<String> = packages()
        .iter()
        .filter(|package| !is_allowed(package["license"].as_str().unwrap_or_default()))
        .map(|package| format!("{}: {}", name(package), package["license"]))
        .collect();
    assert!(denied.is_empty(), "{denied:#?}");
}

#[test]
fn expressions_are_read() {
    for (expression, expected) in [
        ("MIT OR Apache-2.0", true),
        ("MIT/Apache-2.0", true),
        ("Apache-2.0 / MIT", true),
        ("Apache-2.0 OR GPL-2.0-only", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("Apache-2.0 AND GPL-3.0-only", false),
        ("GPL-3.0-only", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression), expected, "{expression}");
    }
}

/// Each text in quotes between `start` and the next line that is `]`, in the configuration of cargo-deny.
fn quoted(start: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deny.toml");
    let text = fs::read_to_string(file).expect("deny.toml");
    let (_, list) = text.split_once(start).expect(start);
    let (list, _) = list.split_once("\n]").expect("the end of the list");
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn cargo_deny_has_the_same_lists() {
    assert_eq!(quoted("\nallow = ["), LICENCES);
    let banned: Vec<&str> = BANNED.iter().flat_map(|(name, why)| [*name, *why]).collect();
    assert_eq!(quoted("\ndeny = ["), banned);
}

#[test]
fn every_dependency_comes_from_crates_io() {
    let foreign: Vec<String> = packages()
        .iter()
        .filter(|package| !package["source"].is_null() && package["source"] != CRATES_IO)
        .map(|package| format!("{}: {}", name(package), package["source"]))
        .collect();
    assert!(foreign.is_empty(), "{foreign:#?}");
}

#[test]
fn no_banned_crate_is_linked() {
    let packages = packages();
    let names: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    for (banned, why) in BANNED {
        assert!(!names.contains(banned), "{banned}: {why}");
    }
}

/// The compiler of `rust-version` refuses a dependency that needs a newer one.
#[test]
fn no_dependency_needs_a_newer_compiler() {
    let number = |version: &str| -> Vec<u64> {
        version
            .split('.')
            .map(|part| part.parse().expect(version))
            .collect()
    };
    let newest = number(env!("CARGO_PKG_RUST_VERSION"));
    let newer: Vec<String> = packages()
        .iter()
        .filter(|package| {
            let needed = package["rust_version"].as_str().map(number);
            needed.is_some_and(|needed| needed.iter().take(2).gt(newest.iter().take(2)))
        })
        .map(name)
        .collect();
    assert!(newer.is_empty(), "{newer:#?}");
}
