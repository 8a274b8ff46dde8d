//! `kubectl kcp upgrade --to` under Cluster API's real controllers: several minor versions in one command, its stops, and
//! how the same command continues.

use anyhow::{Result, ensure};

use crate::rollouts::{OLD, Subject};
use crate::shared::with_controllers;

/// A worker of this version may use an API server of v1.34.2, but not one of v1.35.1.
const TOO_OLD: &str = "v1.31.14";

impl Subject<'_> {
    /// The versions from and to which the plugin has upgraded, sorted.
    async fn has_upgraded(&self, expected: &[&str]) -> Result<()> {
        let mut notes = self.events("Upgraded").await?;
        notes.sort();
        let expected: Vec<String> = expected
            .iter()
            .map(|upgrade| format!("upgraded by alice {upgrade}"))
            .collect();
        ensure!(notes == expected, "{notes:?}");
        Ok(())
    }
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn several_minors_are_upgraded_in_one_command_and_after_a_kill() {
    with_controllers("upgrade-paths", async |management| {
        let subject = Subject::create(management, "upgrade-paths").await?;
        let refused = subject
            .says(
                "upgrade edge --to v1.35.1 --yes --wait=10m",
                1,
                "(version-skips-minor)",
            )
            .await?;
        ensure!(
            refused.stderr.contains("hint: add --via v1.34.PATCH"),
            "{refused}"
        );
        let command = "upgrade edge --to v1.35.1 --via v1.34.2 --yes";
        let dry_run = subject
            .says(&format!("{command} --dry-run=server"), 0, "(server dry run)")
            .await?;
        let path = "Upgrades from v1.33.6, one minor version at a time:\n  v1.34.2\n  v1.35.1\n";
        ensure!(dry_run.stdout.contains(path), "{dry_run}");
        subject.has_upgraded(&[]).await?;

        let upgraded = subject
            .says(
                &format!("{command} --wait=10m"),
                0,
                "edge is at v1.34.2, with all Machines ready",
            )
            .await?;
        let end = "edge is at v1.35.1, with all Machines ready and up to date\n";
        ensure!(upgraded.stdout.ends_with(end), "{upgraded}");
        let both = ["from v1.33.6 to v1.34.2", "from v1.34.2 to v1.35.1"];
        subject.has_upgraded(&both).await?;
        subject
            .says(
                &format!("{command} --wait=10m"),
                0,
                "unchanged: the version is already v1.35.1",
            )
            .await?;

        // Killed during the first of two rollouts.
        let command = "upgrade edge --to v1.37.1 --via v1.36.3 --yes --wait=10m";
        let mut killed = subject.spawn(command)?;
        while !killed.line().await?.contains("upgraded from v1.35.1 to v1.36.3") {}
        killed.kill().await?;
        // Without --wait, the command stops at the rollout that is still running.
        let without_wait = command.trim_end_matches(" --wait=10m");
        let stopped = subject
            .says(without_wait, 1, "the rollout of v1.36.3 is not complete")
            .await?;
        ensure!(
            stopped.stderr.contains("hint: run the same command again"),
            "{stopped}"
        );
        let resumed = subject
            .says(command, 0, "upgraded from v1.36.3 to v1.37.1")
            .await?;
        ensure!(
            resumed
                .stdout
                .contains("edge is at v1.36.3, with all Machines ready"),
            "{resumed}"
        );
        let end = "edge is at v1.37.1, with all Machines ready and up to date\n";
        ensure!(resumed.stdout.ends_with(end), "{resumed}");
        let [first, second] = both;
        let all = [
            first,
            second,
            "from v1.35.1 to v1.36.3",
            "from v1.36.3 to v1.37.1",
        ];
        subject.has_upgraded(&all).await?;
        subject.cluster.delete().await
    });
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_path_stops_for_an_old_worker_and_continues_after_its_upgrade() {
    with_controllers("upgrade-path-stops", async |management| {
        let subject = Subject::create(management, "upgrade-path-stops").await?;
        subject.cluster.add_worker(OLD).await?;
        // Cluster API creates no Machine of this version, but the spec is enough.
        subject.worker_version(TOO_OLD).await?;
        let command = "upgrade edge --to v1.35.1 --via v1.34.2 --yes --wait=10m";
        let worker = "MachineDeployment/edge: upgrade from v1.31.14 to at least v1.32 and at most v1.34.2";
        let stopped = subject
            .says(command, 1, "edge is at v1.34.2, with all Machines ready")
            .await?;
        let stopped_text = stopped.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(
            stopped_text.contains(worker)
                && stopped
                    .stderr
                    .contains("hint: upgrade these workers, then run the same command again"),
            "{stopped}"
        );
        subject.has_upgraded(&["from v1.33.6 to v1.34.2"]).await?;
        // Nothing but the worker helps.
        let forced = subject
            .says(&format!("{command} --force"), 1, "not upgraded to v1.35.1")
            .await?;
        ensure!(!forced.stdout.contains("upgraded from"), "{forced}");

        subject.worker_version("v1.34.2").await?;
        let continued = subject
            .says(command, 0, "upgraded from v1.34.2 to v1.35.1")
            .await?;
        let end = "edge is at v1.35.1, with all Machines ready and up to date\n";
        ensure!(continued.stdout.ends_with(end), "{continued}");
        subject
            .has_upgraded(&["from v1.33.6 to v1.34.2", "from v1.34.2 to v1.35.1"])
            .await?;
        subject.cluster.delete().await
    });
}
