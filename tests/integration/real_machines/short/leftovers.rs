//! Nothing of a machine outlives the process that switched it on, not even if that process is killed.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::run::{self, random};
use kcp_tests::wait;
use tokio::process::Command;

use crate::leftovers::{gone, left_of, start};
use crate::shared::alone;

#[test]
#[ignore = "needs root: make test-machines PART=short"]
fn killed_program_leaves_no_machine() {
    alone(async {
        let id = format!("killed-{:08x}", random());
        let mut program = Command::new(env!("CARGO_BIN_EXE_real-machine"));
        let (mut program, shell) = start(&mut program, &id).await.unwrap();
        assert!(shell.starts_with("nsenter --target="), "{shell}");

        let left = left_of(&id).await.unwrap();
        for part in [
            " /lib/systemd/systemd --system",
            "/usr/bin/containerd",
            "\n/sys/fs/cgroup/memory/",
            &format!("/kcp-test-{id}\n"),
            "/site-alone/alone/disk /\n",
            "\nloop",
        ] {
            assert!(left.contains(part), "no '{part}' in:\n{left}");
        }
        let networks = networks_of(&left).unwrap();
        // The switch and the machine.
        assert_eq!(networks.len(), 2, "{networks:?}");

        program.kill().await.unwrap();
        gone(&id).await.unwrap();
        wait::until("the networks are gone", || async {
            let left: Vec<_> = networks.intersection(&all_networks()?).cloned().collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await
        .unwrap();
        fs::remove_dir_all(run::folder_of(&id)).unwrap();
    });
}

/// The network namespaces of listed processes, without this process' own.
fn networks_of(left: &str) -> Result<BTreeSet<String>> {
    let processes = left.lines().filter_map(|line| line.split_once(' '));
    let networks = processes.filter_map(|(id, _)| network_of(id));
    let own = network_of("self").context("reading the network namespace of this process")?;
    Ok(networks.filter(|network| *network != own).collect())
}

fn all_networks() -> Result<BTreeSet<String>> {
    let processes = fs::read_dir("/proc").context("listing /proc")?.flatten();
    Ok(processes
        .filter_map(|process| network_of(&process.file_name().to_string_lossy()))
        .collect())
}

/// Processes that end have none.
fn network_of(process: &str) -> Option<String> {
    let link = fs::read_link(format!("/proc/{process}/ns/net")).ok()?;
    Some(link.display().to_string())
}
