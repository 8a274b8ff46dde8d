//! The lists of `kubectl kcp status`, `why` and `plan`: of a namespace, of all namespaces, and of several contexts. Also the explanation
//! of each id that they print.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::schema;
use crate::shared::with_controllers;

const NAMESPACE: &str = "lists";

const VERSION: &str = "v1.34.2";

/// Selects the control planes of this test, because other tests use the same management cluster.
const SELECTOR: &str = "kcp-test=lists";

#[test]
fn lists_of_control_planes_show_plans_contexts_and_etcd() {
    with_controllers(NAMESPACE, async |management| {
        let client = management.client();
        let edge = Cluster::create(client, NAMESPACE, "edge", 1, VERSION).await?;
        let rim = Cluster::create(client, NAMESPACE, "rim", 1, VERSION).await?;
        for cluster in [&edge, &rim] {
            cluster.settled(1).await?;
        }
        let label = [
            "label",
            "kubeadmcontrolplanes",
            "--all",
            "-n",
            NAMESPACE,
            SELECTOR,
        ];
        management.kubectl().succeed(label).await?;
        what_is_well_is_counted(management).await?;
        every_id_is_explained(management).await?;
        plans_are_listed(management, &edge).await?;
        provider_updates_are_named(management, &rim).await?;
        contexts_are_listed(management).await?;
        etcd_is_watched(management, &edge).await?;
        edge.pause(false).await?;
        rim.delete().await?;
        edge.delete().await
    });
}

/// Runs the plugin for the control planes of this test, which must end with this exit code.
async fn list(management: &ManagementCluster, command: &str, code: i32) -> Result<CommandOutput> {
    let words = ["kcp"].into_iter().chain(command.split_whitespace());
    let words = words.chain(["-l", SELECTOR]);
    let ended = management.kubectl().run(words).await?;
    ensure!(ended.code == code, "exit code {code} expected: {ended}");
    Ok(ended)
}

fn document(ended: &CommandOutput) -> Result<Value> {
    serde_json::from_str(&ended.stdout).with_context(|| format!("{ended}"))
}

/// The row of the table that begins with these cells.
fn row<'o>(ended: &'o CommandOutput, cells: &[&str]) -> Result<&'o str> {
    let mut rows = ended.stdout.lines();
    let is_row = |row: &&str| row.split_whitespace().take(cells.len()).eq(cells.iter().copied());
    rows.find(is_row)
        .with_context(|| format!("no row {cells:?}: {ended}"))
}

async fn what_is_well_is_counted(management: &ManagementCluster) -> Result<()> {
    let well = list(management, "why -n lists", 0).await?;
    ensure!(
        well.stdout.starts_with("all 2 control planes are well\n"),
        "{well}"
    );
    let names = list(management, "why -n lists -o name", 0).await?;
    ensure!(names.stdout.is_empty(), "{names}");
    let documents = document(&list(management, "why -A -o json", 0).await?)?;
    schema::holds("controlplaneexplanationlist.json", &documents)?;
    let items = documents.pointer("/items").and_then(Value::as_array);
    let states: Vec<&Value> = items
        .into_iter()
        .flatten()
        .filter_map(|item| item.get("state"))
        .collect();
    ensure!(states == ["nothingToDo", "nothingToDo"], "{documents:#}");
    let none = management
        .kubectl()
        .run(["kcp", "why", "-n", NAMESPACE, "-l", "kcp-test=other"])
        .await?;
    ensure!(
        none.code == 0 && none.stdout == "No control planes found in lists namespace.\n",
        "{none}"
    );
    Ok(())
}

/// Each id that `status` and `audit` print about a real control plane, and the id in a denial.
async fn every_id_is_explained(management: &ManagementCluster) -> Result<()> {
    let kubectl = management.kubectl();
    let all = kubectl.succeed(["kcp", "explain", "--all", "-o", "name"]).await?;
    let known: Vec<&str> = all.stdout.lines().collect();
    let status = kubectl
        .run(["kcp", "status", "edge", "-n", NAMESPACE, "-o", "json"])
        .await?;
    let audit = kubectl
        .run(["kcp", "audit", "edge", "-n", NAMESPACE, "-o", "json"])
        .await?;
    for ended in [status, audit] {
        let checks = document(&ended)?;
        let ids = checks.pointer("/checks").and_then(Value::as_array);
        let ids: Vec<&str> = ids
            .into_iter()
            .flatten()
            .filter_map(|check| check.get("id")?.as_str())
            .collect();
        ensure!(
            ids.len() > 20 && ids.iter().all(|id| known.contains(id)),
            "{ids:?} and {known:?}"
        );
    }
    let scale = [
        "scale",
        "kubeadmcontrolplane/edge",
        "--replicas=2",
        "-n",
        NAMESPACE,
    ];
    let denied = kubectl.run(scale).await?;
    let id = denied
        .stderr
        .trim_end()
        .rsplit_once('(')
        .map(|(_, id)| id.trim_end_matches(')'));
    let id = id.with_context(|| format!("no id: {denied}"))?;
    let explained = kubectl.succeed(["kcp", "explain", id]).await?;
    ensure!(
        id == "replicas-even"
            && explained.stdout.starts_with("replicas-even (rule): ")
            && explained
                .stdout
                .contains("https://kubectl-kcp.dev/reference/rules.html#replicas-even"),
        "{denied} {explained}"
    );
    let unknown = kubectl.run(["kcp", "explain", "replicas-evne"]).await?;
    ensure!(
        unknown.code == 2 && unknown.stderr.contains("did you mean replicas-even"),
        "{unknown}"
    );
    Ok(())
}

async fn plans_are_listed(management: &ManagementCluster, edge: &Cluster) -> Result<()> {
    let quiet = list(management, "plan -n lists", 0).await?;
    for name in ["edge", "rim"] {
        ensure!(row(&quiet, &[name])?.contains("none"), "{quiet}");
    }
    // A paused control plane does nothing, although all its Machines are outdated.
    edge.pause(true).await?;
    let after = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    edge.patch(&json!({"spec": {"rollout": {"after": after}}}))
        .await?;
    wait::until("the time of the rollout has passed", || async {
        let blocked = list(management, "plan -A -o json", 1).await?;
        let items = document(&blocked)?;
        let plan_of = |name: &str| {
            let items = items.pointer("/items")?.as_array()?.iter();
            let mut items = items.filter(|item| item.pointer("/metadata/name") == Some(&json!(name)));
            items.next()
        };
        let (edge, rim) = (plan_of("edge").context("edge")?, plan_of("rim").context("rim")?);
        ensure!(
            edge.get("verdict") == Some(&json!("Blocked"))
                && edge.get("nextStep") == Some(&json!("create a Machine"))
                && edge.get("steps") == Some(&json!(2))
                && edge.get("outdated").and_then(Value::as_array).map(Vec::len) == Some(1)
                && rim.get("verdict") == Some(&json!("NothingToDo")),
            "{items:#}"
        );
        Ok(())
    })
    .await?;
    let table = list(management, "plan -A", 1).await?;
    ensure!(
        row(&table, &[NAMESPACE, "edge"])?.contains("paused")
            && row(&table, &[NAMESPACE, "rim"])?.contains("none"),
        "{table}"
    );
    Ok(())
}

/// A newer controller may compare more than the running one, which has reported the Machine as up to date. Here a stopped controller
/// cannot report a difference.
async fn provider_updates_are_named(management: &ManagementCluster, rim: &Cluster) -> Result<()> {
    let machines = rim.machines().await?;
    let [machine] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    let change = async |verbosity: Value| {
        let patch = json!({"spec": {"verbosity": verbosity}}).to_string();
        let patch = [
            "patch",
            "kubeadmconfig",
            machine,
            "-n",
            NAMESPACE,
            "--type=merge",
            "-p",
            &patch,
        ];
        management.kubectl().succeed(patch).await
    };
    management
        .without_control_plane_controller(NAMESPACE, async || {
            change(json!(3)).await?;
            let table = list(management, "plan -n lists", 1).await?;
            let update = format!("an update of Cluster API to v1.14.2 would replace {machine} of lists/rim");
            ensure!(
                table.stdout.contains(&update) && row(&table, &["rim"])?.contains("none"),
                "{update:?} expected: {table}"
            );
            let plan = management
                .kubectl()
                .succeed(["kcp", "plan", "rim", "-n", NAMESPACE])
                .await?;
            let update = format!("would replace {machine}, because the configuration differs in verbosity");
            ensure!(plan.stdout.contains(&update), "{update:?} expected: {plan}");
            change(Value::Null).await.map(drop)
        })
        .await?;
    // A paused controller reports nothing, so the difference counts.
    rim.pause(true).await?;
    change(json!(3)).await?;
    let table = list(management, "plan -n lists", 1).await?;
    ensure!(
        !table.stdout.contains("an update of Cluster API") && !row(&table, &["rim"])?.contains("none"),
        "{table}"
    );
    change(Value::Null).await?;
    rim.pause(false).await
}

/// Three contexts, of which `north` is a port on which nothing listens. The kubeconfig has no context `nowhere`.
async fn contexts_are_listed(management: &ManagementCluster) -> Result<()> {
    let kubectl = management.kubectl();
    let file = kubectl.scratch_file("contexts.kubeconfig");
    fs::copy(kubectl.kubeconfig(), &file)?;
    let path = file.display().to_string();
    let config = async |words: &str| {
        let words = ["config", "--kubeconfig", &path]
            .into_iter()
            .chain(words.split(' '));
        kubectl.succeed(words).await
    };
    let current = config("current-context").await?.stdout;
    let view = config("view -o json").await?;
    let view = document(&view)?;
    let contexts = view.pointer("/contexts").and_then(Value::as_array);
    let context = contexts
        .into_iter()
        .flatten()
        .find(|context| context.get("name").and_then(Value::as_str) == Some(current.trim()))
        .with_context(|| format!("no context {current}: {view:#}"))?;
    let text = |field: &str| context.pointer(field).and_then(Value::as_str).context("a name");
    let (cluster, user) = (text("/context/cluster")?, text("/context/user")?);
    config("set-cluster north --server=https://127.0.0.1:1").await?;
    for (name, cluster) in [("east", cluster), ("west", cluster), ("north", "north")] {
        let set = format!("set-context {name} --cluster={cluster} --user={user} --namespace={NAMESPACE}");
        config(&set).await?;
    }

    let flags = format!("--kubeconfig {path} --contexts east,north,west,nowhere");
    for (command, verdict) in [("status --no-etcd", "Unknown"), ("plan", "not read")] {
        let table = list(management, &format!("{command} {flags}"), 2).await?;
        for context in ["east", "west"] {
            for name in ["edge", "rim"] {
                row(&table, &[context, NAMESPACE, name])?;
            }
        }
        let (north, nowhere) = (row(&table, &["north"])?, row(&table, &["nowhere"])?);
        ensure!(
            north.contains(verdict) && nowhere.contains(verdict) && table.stdout.contains("127.0.0.1:1"),
            "{table}"
        );
        let documents = document(&list(management, &format!("{command} {flags} -o json"), 2).await?)?;
        let texts = |list: &str, field: &str| -> Vec<String> {
            let items = documents.pointer(list).and_then(Value::as_array);
            let texts = items
                .into_iter()
                .flatten()
                .filter_map(|item| item.get(field)?.as_str());
            texts.map(str::to_owned).collect()
        };
        ensure!(
            texts("/items", "context") == ["east", "east", "west", "west"]
                && texts("/unreadContexts", "context") == ["north", "nowhere"],
            "{documents:#}"
        );
    }
    // Without them, the exit code is that of the worst control plane: the pause blocks the rollout of `edge`.
    let flags = format!("--kubeconfig {path} --contexts east,west");
    list(management, &format!("status --no-etcd {flags}"), 1).await?;
    list(management, &format!("plan {flags}"), 1).await.map(drop)
}

/// With `--deep`, a watch of all namespaces asks etcd at each poll: it reports a member that is frozen, of which the conditions of
/// a paused control plane say nothing.
async fn etcd_is_watched(management: &ManagementCluster, edge: &Cluster) -> Result<()> {
    let workload = management.machines().cluster(NAMESPACE, "edge").await?;
    let machines = edge.machines().await?;
    let [machine] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    let command = "kcp status -A --deep -w --timeout 5s -l";
    let words = command.split_whitespace().chain([SELECTOR]);
    let mut watch = management.kubectl().spawn(words)?;
    let mut lines = Vec::new();
    while !lines
        .iter()
        .any(|line: &String| line.contains("lists/rim: Healthy"))
    {
        lines.push(watch.line().await?);
    }
    workload.inflict(Fault::Freeze, machine).await?;
    let is_reported =
        |line: &String| line.contains("lists/edge: ") && line.contains("(etcd-members-unresponsive)");
    while !lines.iter().any(is_reported) {
        lines.push(watch.line().await?);
    }
    let shallow = document(&list(management, "status -A --no-etcd -o json", 1).await?)?;
    let why = list(management, "why -A --timeout 5s", 1).await?;
    ensure!(
        why.stdout
            .starts_with("not well: 1 of 2 control planes\nlists/edge: A person must act: "),
        "{why}"
    );
    let names = list(management, "why -A --timeout 5s -o name", 1).await?;
    ensure!(
        names.stdout == "kubeadmcontrolplane.controlplane.cluster.x-k8s.io/edge\n",
        "{names}"
    );
    workload.inflict(Fault::Thaw, machine).await?;
    drop(watch);
    let items = shallow.pointer("/items").and_then(Value::as_array);
    let verdicts: Vec<&Value> = items
        .into_iter()
        .flatten()
        .filter_map(|item| item.get("etcd"))
        .collect();
    ensure!(
        verdicts.len() == 2 && verdicts.iter().all(|etcd| etcd.is_null()),
        "with --no-etcd, etcd is not asked: {shallow:#}"
    );
    Ok(())
}
