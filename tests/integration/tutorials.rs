//! Follows the tutorials of the book: runs their commands in order, on a control plane like that of the demo. Each line of a screen
//! must be in the output, except for what differs from run to run: numbers, times, and names that a program generates. A screen
//! without the line `...` must also name the same rules and checks as the output.

mod recording;
mod screen;
pub(crate) mod step;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::assets::Assets;
use kcp_tests::cluster::{Cluster, SHORTEST_CONTROL_PLANE};
use kcp_tests::kubectl::Kubectl;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::named_fault::NamedFault;
use kcp_tests::products;
use kcp_tests::wait;

use crate::shared::with_controllers;
use recording::Shown;
use screen::{difference, is_machine};
use step::{Step, steps};

/// The control plane in each tutorial, as in the demo.
const NAME: &str = "edge";

#[test]
#[ignore = "takes minutes: make test-long"]
fn first_refusal() {
    follow("first-refusal");
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn dead_member() {
    follow("dead-member");
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn upgrade() {
    follow("upgrade");
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn cluster_class() {
    follow("cluster-class");
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn pool_in_ci() {
    follow("pool-in-ci");
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn leader_migration() {
    follow("leader-migration");
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn power_off() {
    follow("power-off");
}

fn follow(page: &str) {
    let namespace = format!("tutorial-{page}");
    with_controllers(&namespace, async |management| {
        let path = products::workspace().join(format!("docs/src/tutorials/{page}.md"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut reader = Reader::new(management, &namespace).await?;
        reader.is_recorded = recording::is_wanted(page);
        let mut shown = Vec::new();
        for step in steps(&text) {
            let of_step = reader.takes(&step).await;
            shown.push(of_step.with_context(|| format!("$ {}", step.command))?);
        }
        if reader.is_recorded {
            recording::write(&shown)?;
        }
        reader.cluster.delete().await
    });
}

/// Someone who follows a tutorial.
struct Reader {
    kubectl: Kubectl,
    cluster: Cluster,
    workload: Arc<WorkloadCluster>,
    namespace: String,
    /// The folder in which the commands run.
    folder: PathBuf,
    /// The Machines by the names that the tutorial has for them.
    machines: BTreeMap<String, String>,
    /// Whether commands print as on a terminal.
    is_recorded: bool,
}

impl Reader {
    async fn new(management: &ManagementCluster, namespace: &str) -> Result<Self> {
        let folder = management.run().subfolder(namespace)?;
        for name in ["manifests", "target", "tests"] {
            symlink(products::workspace().join(name), folder.join(name))?;
        }
        let kubeconfig = folder.join("kubeconfig");
        fs::copy(management.kubectl().kubeconfig(), &kubeconfig)?;
        let kubectl = Kubectl::new(management.run(), &Assets::locate()?, kubeconfig)?;
        let context = ["config", "set-context", "--current", "--namespace", namespace];
        kubectl.succeed(context).await?;
        let pool = products::workspace().join("manifests/samples/good/clusterpool.yaml");
        kubectl
            .succeed(["apply", "-f", &pool.display().to_string()])
            .await?;
        let cluster = Cluster::create_without_control_plane(management.client(), namespace, NAME).await?;
        let control_plane = folder.join("control-plane.yaml");
        fs::write(&control_plane, SHORTEST_CONTROL_PLANE)?;
        kubectl
            .succeed(["apply", "-f", &control_plane.display().to_string()])
            .await?;
        cluster.settled(1).await?;
        Ok(Self {
            kubectl,
            cluster,
            workload: management.machines().cluster(namespace, NAME).await?,
            namespace: namespace.to_owned(),
            folder,
            machines: BTreeMap::new(),
            is_recorded: false,
        })
    }

    async fn takes(&mut self, step: &Step) -> Result<Shown> {
        let command = self.with_own_machines(&step.command).await?;
        let words: Vec<&str> = command.split_whitespace().collect();
        let output = match words.as_slice() {
            ["make", ..] => String::new(),
            ["target/debug/fault", machine, fault] => {
                let fault: Fault = fault.parse()?;
                self.workload.inflict(fault, machine).await?;
                // What the program prints.
                format!("{machine}: {}\n", NamedFault::Machine(fault).effect())
            }
            _ if step.only_reads() => {
                wait::until("the output is that of the tutorial", || {
                    self.prints(&command, &step.output)
                })
                .await?
            }
            _ => self.prints(&command, &step.output).await?,
        };
        Ok(Shown { command, output })
    }

    /// The command with the names of this cluster's Machines.
    async fn with_own_machines(&mut self, command: &str) -> Result<String> {
        let mut own = command.to_owned();
        let words = command.split(|character: char| !character.is_ascii_alphanumeric() && character != '-');
        for word in words.filter(|word| is_machine(word)) {
            if !self.machines.contains_key(word) {
                let existing = self.cluster.machines().await?;
                let machine = existing
                    .into_iter()
                    .find(|machine| !self.machines.values().any(|known| known == machine));
                let machine = machine.context("the tutorial has more Machines than the cluster")?;
                self.machines.insert(word.to_owned(), machine);
            }
            let machine = self.machines.get(word).context("a known Machine")?;
            own = own.replace(word, machine);
        }
        Ok(own)
    }

    /// Runs a command, whose output must have the lines of the screen.
    async fn prints(&self, command: &str, screen: &str) -> Result<String> {
        let command = if self.is_recorded {
            recording::on_terminal(command, &self.folder)?
        } else {
            command.to_owned()
        };
        let script = format!("cd {} && {command}", self.folder.display());
        let ended = self.kubectl.script("bash", ["-c", &script]).await?;
        let output = format!("{}{}", ended.stdout, ended.stderr).replace(&self.namespace, "default");
        if let Some(difference) = difference(screen, &recording::plain(&output)) {
            bail!("{difference}\n{ended}");
        }
        // 2 means that the command has no result.
        ensure!([0, 1].contains(&ended.code), "{ended}");
        Ok(output)
    }
}
