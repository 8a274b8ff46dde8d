//! Takes the steps of a migration as a user does: with kubectl, and with the commands that `generate` prints beside the
//! permissions and the patch.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;

use super::MIGRATION;

/// The flags of `start` that migrate Node IPAM.
pub(super) const NODE_IPAM: [&str; 5] = ["--to", "v1.36.3", "--node-ipam", "--leader-name", MIGRATION];

/// The control plane whose controllers migrate.
pub(super) struct Steps<'s> {
    pub(super) management: &'s ManagementCluster,
    /// For the workload cluster.
    pub(super) workload: &'s Kubectl,
    pub(super) namespace: &'static str,
    pub(super) name: &'static str,
}

impl Steps<'_> {
    /// Runs `generate` for a step.
    pub(super) async fn generate(&self, step: &str, more: &[&str]) -> Result<CommandOutput> {
        let arguments = [
            "kcp",
            "leader-migration",
            "generate",
            self.name,
            "-n",
            self.namespace,
            "--step",
            step,
        ];
        self.management.kubectl().run(arguments.iter().chain(more)).await
    }

    /// Succeeds if `generate` refuses a step for this reason, and prints nothing to apply.
    pub(super) async fn is_refused(&self, step: &str, more: &[&str], reason: &str) -> Result<()> {
        let ended = self.generate(step, more).await?;
        ensure!(
            ended.code == 1 && ended.stdout.is_empty() && ended.stderr.contains(reason),
            "{step}: {reason}: {ended}"
        );
        Ok(())
    }

    /// Takes a step. Returns the command of the workload cluster that removes what only the migration used, after `finish`.
    pub(super) async fn take(&self, step: &str, more: &[&str]) -> Result<Option<Vec<String>>> {
        if ["start", "upgrade"].contains(&step) {
            for command in self.commands(step, "rbac", more).await? {
                // The API server applies a new Role once its watch has seen it.
                wait::until("the permissions are granted", || self.workload.succeed(&command)).await?;
            }
        }
        let mut commands = self.commands(step, "patch", more).await?.into_iter();
        let patch = commands.next().context("no command")?;
        self.management.kubectl().succeed(&patch).await?;
        Ok(commands.next())
    }

    /// The arguments of each kubectl command that `generate` prints above a part.
    pub(super) async fn commands(&self, step: &str, part: &str, more: &[&str]) -> Result<Vec<Vec<String>>> {
        let name = format!("{}-{step}-{part}.yaml", self.namespace);
        let file = self.management.kubectl().scratch_file(&name);
        if file.exists() {
            fs::remove_file(&file).context("removing the part of an earlier step")?;
        }
        let path = file.display().to_string();
        let to_file = [more, &["-o", part, "--output-file", &path]].concat();
        let ended = self.generate(step, &to_file).await?;
        ensure!(ended.code == 0, "{ended}");
        let text = fs::read_to_string(&file).context("reading the part")?;
        let commands = text.lines().filter_map(|line| line.strip_prefix("#   kubectl "));
        let words = |command: &str| command.split(' ').map(str::to_owned).collect();
        Ok(commands.map(words).collect())
    }
}
