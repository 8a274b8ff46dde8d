//! Follows the tutorials of the book: runs their commands in order, on a control plane like that of the demo. Each line of a screen
//! must be in the output, except for what differs from run to run: numbers, times, and names that a program generates. A screen
//! without [`LEFT_OUT`] must also name the same rules and checks as the output.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::assets::Assets;
use kcp_tests::cluster::{Cluster, SHORTEST_CONTROL_PLANE};
use kcp_tests::kubectl::Kubectl;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::products;
use kcp_tests::wait;

use crate::shared::with_controllers;

/// The control plane in each tutorial, as in the demo.
const NAME: &str = "edge";

/// The line of a screen that stands for lines that the tutorial leaves out.
const LEFT_OUT: &str = "...";

/// The end of the heading of steps that need another cluster than that of the demo.
const ELSEWHERE: &str = "On a cluster of yours";

#[test]
fn first_refusal() {
    follow("first-refusal");
}

#[test]
fn dead_member() {
    follow("dead-member");
}

#[test]
fn upgrade() {
    follow("upgrade");
}

#[test]
fn pool_in_ci() {
    follow("pool-in-ci");
}

#[test]
fn leader_migration() {
    follow("leader-migration");
}

#[test]
fn power_off() {
    follow("power-off");
}

fn follow(page: &str) {
    let namespace = format!("tutorial-{page}");
    with_controllers(&namespace, async |management| {
        let path = products::workspace().join(format!("docs/src/tutorials/{page}.md"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut reader = Reader::new(management, &namespace).await?;
        for step in steps(&text) {
            reader
                .takes(&step)
                .await
                .with_context(|| format!("$ {}", step.command))?;
        }
        reader.cluster.delete().await
    });
}

/// A command of a tutorial and its output.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    command: String,
    output: String,
}

impl Step {
    /// Whether the lines after the command belong to it up to the line `END`.
    fn is_open(&self) -> bool {
        self.command.contains("<<END") && !self.command.ends_with("\nEND")
    }

    /// Whether the command only reads, so that it can run again until its output is the expected one.
    fn only_reads(&self) -> bool {
        ["status", "why", "audit", "plan", "pool list", "pool repair"]
            .iter()
            .any(|verb| self.command.starts_with(&format!("kubectl kcp {verb}")))
    }
}

/// The steps in the blocks of a page that begin with `console`, up to the heading of those for a cluster of one's own.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_console = false;
    let demo = page.lines().take_while(|line| !line.ends_with(ELSEWHERE));
    for line in demo {
        if line.starts_with("```") {
            is_console = line == "```console";
            continue;
        }
        if !is_console {
            continue;
        }
        let open = steps.last_mut().filter(|step| step.is_open());
        if let Some(step) = open {
            step.command += "\n";
            step.command += line;
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_owned(),
                output: String::new(),
            });
        } else if let Some(step) = steps.last_mut() {
            step.output += line;
            step.output.push('\n');
        }
    }
    steps
}

/// The ids of all rules and checks.
static IDS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let rules = kcp_rules::topics::rules().map(|rule| rule.id);
    let checks = kcp_control_plane::checks::all().map(|check| check.id);
    rules.chain(checks).collect()
});

/// The rules and the checks that a text names, those of an audit with their results.
fn named(text: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for line in text.lines() {
        let words: Vec<&str> = line
            .split(|character: char| !character.is_ascii_alphanumeric() && character != '-')
            .filter(|word| !word.is_empty())
            .collect();
        if let [result @ ("PASS" | "FAIL" | "UNKNOWN"), check, ..] = words.as_slice() {
            named.insert(format!("{result} {check}"));
        }
        let ids = words.iter().filter(|word| IDS.contains(*word));
        named.extend(ids.map(|id| (*id).to_owned()));
    }
    named
}

/// Whether a word is the name of a Machine, here or in the tutorial.
fn is_machine(word: &str) -> bool {
    let suffix = word.strip_prefix("edge-").unwrap_or_default();
    suffix.len() == 5 && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The words of a text without what differs from run to run.
fn masked(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(masked_word).collect();
    words.join(" ")
}

fn masked_word(word: &str) -> String {
    let is_part_of_name = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let mut masked = String::new();
    let mut rest = word;
    while !rest.is_empty() {
        let end = rest
            .find(|character| !is_part_of_name(character))
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        masked += &masked_name(name);
        let mut after = after.chars();
        masked.extend(after.next());
        rest = after.as_str();
    }
    masked
}

fn masked_name(name: &str) -> String {
    const LEASE_ID_BYTES: usize = 16;
    const MACHINE_BYTES: usize = 10;
    let of_pod = name
        .len()
        .checked_sub(MACHINE_BYTES)
        .map(|start| name.split_at(start));
    if let Some((component, machine)) = of_pod
        && is_machine(machine)
    {
        return format!("{component}MACHINE");
    }
    if ["sample-foo", "sample-bar"].contains(&name) {
        return "ENTRY".to_owned();
    }
    let is_duration = name.starts_with(|first: char| first.is_ascii_digit())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b"dhms".contains(&byte));
    if is_duration {
        return "#".to_owned();
    }
    let is_lease = name.len() == LEASE_ID_BYTES
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if is_lease {
        return "LEASE".to_owned();
    }
    let mut masked = String::new();
    for character in name.chars() {
        match character.is_ascii_digit() {
            true if masked.ends_with('#') => {}
            true => masked.push('#'),
            false => masked.push(character),
        }
    }
    masked
}

/// The first line of a screen that is not in the output, or the ids that only one of them names; `None` if they agree.
fn difference(screen: &str, output: &str) -> Option<String> {
    let found = masked(output);
    let mut lines = screen.lines().filter(|line| *line != LEFT_OUT);
    if let Some(line) = lines.find(|line| !found.contains(&masked(line))) {
        return Some(format!("the output does not have the line: {line}"));
    }
    let (of_screen, of_output) = (named(screen), named(output));
    let is_whole = !screen.lines().any(|line| line == LEFT_OUT);
    (is_whole && of_screen != of_output)
        .then(|| format!("the output names {of_output:?}, the tutorial {of_screen:?}"))
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
}

impl Reader {
    async fn new(management: &ManagementCluster, namespace: &str) -> Result<Self> {
        let folder = management.run().subfolder(namespace)?;
        for name in ["manifests", "target"] {
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
        })
    }

    async fn takes(&mut self, step: &Step) -> Result<()> {
        let command = self.with_own_machines(&step.command).await?;
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["make", ..] => Ok(()),
            ["target/debug/fault", machine, fault] => self.workload.inflict(fault.parse()?, machine).await,
            _ if step.only_reads() => {
                wait::until("the output is that of the tutorial", || {
                    self.prints(&command, &step.output)
                })
                .await
            }
            _ => self.prints(&command, &step.output).await,
        }
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

    async fn prints(&self, command: &str, screen: &str) -> Result<()> {
        let script = format!("cd {} && {command}", self.folder.display());
        let ended = self.kubectl.script("bash", ["-c", &script]).await?;
        let output = format!("{}{}", ended.stdout, ended.stderr).replace(&self.namespace, "default");
        if let Some(difference) = difference(screen, &output) {
            bail!("{difference}\n{ended}");
        }
        // 2 means that the command has no result.
        ensure!([0, 1].contains(&ended.code), "{ended}");
        Ok(())
    }
}

#[test]
fn steps_are_the_commands_and_their_screens() {
    let page = "text\n```text\n$ not a step\n```\n```console\n$ cat > a <<END\n$ b\nEND\n$ kubectl get pods\nNAME\n...\n```\n\
                ## 7. On a cluster of yours\n```console\n$ kubectl delete pods --all\n```\n";
    let step = |command: &str, output: &str| Step {
        command: command.to_owned(),
        output: output.to_owned(),
    };
    let expected = [
        step("cat > a <<END\n$ b\nEND", ""),
        step("kubectl get pods", "NAME\n...\n"),
    ];
    assert_eq!(steps(page), expected);
}

#[test]
fn what_differs_from_run_to_run_is_masked() {
    for (text, expected) in [
        ("21:43:29  3/3 Machines", "#:#:# #/# Machines"),
        ("pod etcd-edge-6lg29, edge-abcde.", "pod etcd-MACHINE, MACHINE."),
        ("(17s ago), in 1h2m", "(# ago), in #"),
        ("at 2026-11-25T21:44:28Z of v1.34.2", "at #-#-#T#:#:#Z of v#.#.#"),
        ("lease k4x7qzbm2v9cdfhj of sample-foo", "lease LEASE of ENTRY"),
        ("edge-kubeconfig  edge", "edge-kubeconfig edge"),
    ] {
        assert_eq!(masked(text), expected, "{text}");
    }
}

#[test]
fn a_screen_that_differs_from_the_output_is_found() {
    let output = "edge   3/3   Degraded   etcd-no-leader\nFAIL  webhooks-deadlock\n  a b\n";
    for (screen, expected) in [
        (output, None),
        (
            "edge 5/5 Degraded etcd-no-leader\nFAIL webhooks-deadlock a\nb",
            None,
        ),
        ("edge 3/3\n...\n", None),
        (
            "edge 3/3 Healthy\n...\n",
            Some("the output does not have the line: edge 3/3 Healthy"),
        ),
        (
            "edge 3/3 Degraded\n",
            Some("the output names {\"FAIL webhooks-deadlock\", \"etcd-no-leader\"}, the tutorial {}"),
        ),
    ] {
        assert_eq!(difference(screen, output).as_deref(), expected, "{screen}");
    }
}
