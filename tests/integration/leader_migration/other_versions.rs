//! The start-up table of leader migration on kube-controller-manager 1.30, 1.35 and 1.37, for `make test-migration`.
//!
//! Every row of 1.36 is also a row of these versions. [`DIFFERENT`] lists what they do differently.

#![expect(clippy::print_stdout, reason = "the number of rows is part of the result")]

use anyhow::{Context as _, Result};
use kcp_tests::assets::Assets;
use kcp_tests::controller_manager::Program::Kube;
use kcp_tests::management_cluster::ManagementCluster;

use super::source_rows::BY_SOURCE;
use super::start::{Start, all_started};
use super::start_rows::{Expected, KUBE_ORPHANS, KUBE_RUNS, ROWS, Row, exits, row};
use crate::shared::with_management_cluster;

/// The versions that `tests/envtest/managers` builds.
const VERSIONS: [(u64, &str); 3] = [(30, "v1.30.14"), (35, "v1.35.4"), (37, "v1.37.0")];

/// What some versions do differently than 1.36, by the name of the row.
struct Different {
    minors: &'static [u64],
    names: &'static [&'static str],
    expected: Expected,
    /// Why the model says something else than the program does.
    differs: &'static str,
}

const fn different(minors: &'static [u64], names: &'static [&'static str], expected: Expected) -> Different {
    Different {
        minors,
        names,
        expected,
        differs: "",
    }
}

/// kube-controller-manager 1.36 registers the name of its informers once for each lock and exits. Older versions do not
/// register it.
const MIGRATES: &[&str] = &[
    "default configuration",
    "an underscore in a flag",
    "valid configuration",
    "valid beta configuration",
    "no controllers",
    "a second document",
    "the main lock as migration lock",
];

const DIFFERENT: &[Different] = &[
    different(&[30, 35], MIGRATES, KUBE_RUNS),
    different(&[35], &["emulated 1.35"], KUBE_RUNS),
    Different {
        differs: "the model does not know in which versions this flag exists",
        ..different(
            &[30],
            &["emulated 1.35"],
            exits("unknown flag: --emulated-version"),
        )
    },
    different(&[30], &["an in-tree cloud"], exits("unknown cloud provider")),
    different(&[30, 35], &["a name that no Lease can have"], KUBE_ORPHANS),
    different(&[30], &["the feature gate of in-tree clouds"], KUBE_RUNS),
    different(
        &[30],
        &["no key for tokens"],
        Expected::Runs(&["node-ipam-controller"]),
    ),
    // Decoding is strict from 1.32 on.
    different(&[30], &["resourceLock in v1", "a duplicate field"], KUBE_RUNS),
    different(
        &[30],
        &["a field in the wrong case"],
        exits("leaderName: Required value"),
    ),
    different(
        &[37],
        &["the names of cloud loops"],
        exits("is not in the list of known controllers"),
    ),
    different(
        &[37],
        &["a flag for the service controller"],
        exits("unknown flag: --concurrent-service-syncs"),
    ),
];

/// Rows that only one version has: 1.30 is the last one with controllers of a cloud.
const ONLY: &[(u64, Row)] = &[
    (
        30,
        row(
            "a cloud in the program",
            Kube,
            "--cloud-provider=demo --controllers=service-lb-controller,node-route-controller",
            Expected::Runs(&[
                "serviceaccount-token-controller",
                "node-ipam-controller",
                "service-lb-controller",
                "node-route-controller",
            ]),
        ),
    ),
    (
        30,
        row(
            "a cloud in the program, with leader migration",
            Kube,
            "--cloud-provider=demo --controllers=service-lb-controller,node-route-controller --enable-leader-migration",
            Expected::Runs(&[
                "serviceaccount-token-controller",
                "node-ipam-controller",
                "service-lb-controller",
                "node-route-controller",
            ]),
        ),
    ),
];

#[test]
#[ignore = "needs kube-controller-managers that take half an hour to build: make test-migration"]
fn controller_managers_of_other_versions_start_or_exit_as_the_model_says() {
    with_management_cluster(async |management| started(management).await.unwrap());
}

async fn started(management: &ManagementCluster) -> Result<()> {
    let assets = Assets::locate()?;
    let mut differences = Vec::new();
    for (minor, version) in VERSIONS {
        let program = assets.kube_controller_manager(version)?;
        let same = ROWS.iter().filter(|row| row.program == Kube);
        let rows = same.map(|row| at(minor, row)).chain(only(minor));
        let starts: Vec<Start> = rows
            .map(|row| Start {
                minor,
                program: program.clone(),
                row,
            })
            .collect();
        let all = all_started(management, &format!("start-{minor}"), &starts).await;
        differences.extend(all.with_context(|| format!("kube-controller-manager {version}"))?);
        println!("kube-controller-manager {version}: {} rows run", starts.len());
    }
    for row in BY_SOURCE {
        let (first, last) = (row.minors.start(), row.minors.end());
        println!(
            "by source: {} 1.{first} to 1.{last} {}: {}",
            row.component, row.flags, row.source
        );
    }
    println!("{} rows by source", BY_SOURCE.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

/// A row of 1.36 at another minor version.
fn at(minor: u64, row: &Row) -> Row {
    let different = DIFFERENT
        .iter()
        .find(|different| different.minors.contains(&minor) && different.names.contains(&row.name));
    match different {
        Some(Different {
            expected, differs, ..
        }) => Row {
            expected: *expected,
            differs,
            ..*row
        },
        None => *row,
    }
}

fn only(minor: u64) -> impl Iterator<Item = Row> {
    let only = ONLY.iter().filter(move |(row_minor, _)| *row_minor == minor);
    only.map(|(_, row)| *row)
}

#[test]
fn each_difference_of_a_version_is_about_a_row() {
    for different in DIFFERENT {
        for name in different.names {
            let is_row = |row: &&Row| row.program == Kube && row.name == *name;
            assert_eq!(ROWS.iter().filter(is_row).count(), 1, "{name}");
        }
    }
}
