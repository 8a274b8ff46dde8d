//! The completion of `kubectl kcp`, through the real kubectl: `kubectl __complete` prints what a shell gets.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{products, wait};
use serde_json::json;
use tokio::net::TcpListener;

use crate::objects::{cluster, written};
use crate::plugin::create_pool;
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "completion";

/// Far more than a completion takes, and less than a request to a server that never responds: 30 s.
const BOUNDED: Duration = Duration::from_secs(15);

/// A user whose PATH starts with a folder that contains only the plugin.
struct Shell<'m> {
    management: &'m ManagementCluster,
    folder: PathBuf,
}

impl<'m> Shell<'m> {
    fn new(management: &'m ManagementCluster) -> Result<Self> {
        let folder = management.kubectl().scratch_file("completion-path");
        fs::create_dir_all(&folder)?;
        symlink(products::under_test("kubectl-kcp")?, folder.join("kubectl-kcp"))?;
        Ok(Self { management, folder })
    }

    async fn kubectl(&self, arguments: &[&str]) -> Result<CommandOutput> {
        let script = "PATH=$0:$PATH exec kubectl \"$@\"";
        let folder = self.folder.to_string_lossy();
        let words = ["-c", script, &folder]
            .into_iter()
            .chain(arguments.iter().copied());
        self.management.kubectl().script("bash", words).await
    }

    /// Completes the last word of a line, and returns the candidates and the directive. kubectl itself writes what it does to
    /// stderr; the plugin must write nothing.
    async fn complete(&self, line: &[&str]) -> Result<Vec<String>> {
        let words: Vec<&str> = ["__complete", "kcp"]
            .into_iter()
            .chain(line.iter().copied())
            .collect();
        let ended = self.kubectl(&words).await?;
        ensure!(ended.code == 0, "{ended}");
        let is_kubectls = |line: &str| line.starts_with("[Debug] ") || line.starts_with("Completion ended");
        ensure!(ended.stderr.lines().all(is_kubectls), "{ended}");
        Ok(ended.stdout.lines().map(str::to_owned).collect())
    }

    /// Repeats until the names have arrived in time, because a busy machine can take longer than completion waits for them.
    async fn completes(&self, line: &[&str], expected: &[&str]) -> Result<()> {
        wait::until("the completion has all names", || async {
            let found = self.complete(line).await?;
            ensure!(found == expected, "{line:?} has {found:?}, not {expected:?}");
            Ok(())
        })
        .await
    }
}

#[test]
fn completes_command_lines_with_names_of_the_cluster() {
    with_management_cluster(async |management| {
        if let Err(error) = run(management).await {
            panic!("{error:#}");
        }
    });
}

async fn run(management: &ManagementCluster) -> Result<()> {
    management.create_namespace(NAMESPACE).await?;
    for (name, version) in [("edge", "v1.34.2"), ("rim", "v1.35.1")] {
        Cluster::create(management.client(), NAMESPACE, name, 3, version).await?;
    }
    // A Machine of the control plane, and a worker, which no command names.
    let mut machines = cluster("edge", 3, "v1.34.2");
    machines.retain(|object| object.get("kind").is_some_and(|kind| kind == "Machine"));
    written(management.kubectl(), "create", &machines, &["-n", NAMESPACE]).await?;
    create_pool(management, NAMESPACE, "hosts", 1).await?;
    let shell = Shell::new(management)?;
    is_installed_once(&shell).await?;
    names_are_completed(&shell).await?;
    a_refused_list_is_empty(&shell).await?;
    a_dead_server_leaves_what_needs_no_server(&shell).await
}

/// Before the link exists, kubectl completes nothing of the plugin.
async fn is_installed_once(shell: &Shell<'_>) -> Result<()> {
    let link = shell.folder.join("kubectl_complete-kcp");
    shell.completes(&["sta"], &[":0"]).await?;
    for what in ["created", "unchanged"] {
        let ended = shell.kubectl(&["kcp", "completion", "--install"]).await?;
        let expected = format!("{} {what}\n", link.display());
        ensure!(ended.code == 0 && ended.stdout == expected, "{ended}");
    }
    ensure!(
        fs::read_link(&link)? == Path::new("kubectl-kcp"),
        "{}",
        link.display()
    );
    Ok(())
}

async fn names_are_completed(shell: &Shell<'_>) -> Result<()> {
    // Without controllers, the control planes do not have the label of their cluster.
    let [edge, rim] = ["edge", "rim"].map(|name| format!("{name}\tcontrol plane"));
    for (line, expected) in [
        (
            &["status", "-n", NAMESPACE, ""][..],
            &[edge.as_str(), &rim, ":4"][..],
        ),
        (&["-n", NAMESPACE, "status", "e"], &[&edge, ":4"]),
        (
            &["scale", "-n", NAMESPACE, "kcp/r"],
            &["kcp/rim\tcontrol plane", ":4"],
        ),
        (
            &["status", "--namespace", "complet"],
            &["completion\tnamespace", ":4"],
        ),
        (
            &["status", "--namespace=complet"],
            &["completion\tnamespace", ":4"],
        ),
        (
            &["upgrade", "edge", "-n", NAMESPACE, "--to", ""],
            &[
                "v1.35.1\tversion of 1 control plane",
                "v1.34.2\tversion of 1 control plane",
                ":4",
            ],
        ),
        (
            &["machine", "replace", "-n", NAMESPACE, ""],
            &["edge-1\tMachine of cluster edge", ":4"],
        ),
        (
            &["pool", "status", "-n", NAMESPACE, ""],
            &["hosts\tcluster pool", ":4"],
        ),
        (
            &["sta"],
            &[
                "status\tShow the health of control planes, their Machines and etcd members",
                ":4",
            ],
        ),
        (&["status", "-n", NAMESPACE, "edge", ""], &[":4"]),
        (&["lint", "-f", ""], &[":0"]),
    ] {
        shell.completes(line, expected).await?;
    }
    Ok(())
}

async fn a_refused_list_is_empty(shell: &Shell<'_>) -> Result<()> {
    let refused = &["status", "-n", NAMESPACE, "--as=nobody", ""];
    shell.completes(refused, &[":4"]).await?;
    // A user who may list only control planes.
    let kubectl = shell.management.kubectl();
    let objects = [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "lists"},
            "rules": [{"apiGroups": ["controlplane.cluster.x-k8s.io"], "resources": ["kubeadmcontrolplanes"], "verbs": ["list"]}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "lists"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lists"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}],
        }),
    ];
    written(kubectl, "apply", &objects, &["-n", NAMESPACE]).await?;
    wait::until("the role allows the list", || async {
        let found = shell.complete(refused).await?;
        ensure!(found.len() == 3, "{found:?}");
        Ok(())
    })
    .await
}

/// One server refuses connections, another one accepts them and never responds.
async fn a_dead_server_leaves_what_needs_no_server(shell: &Shell<'_>) -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let closed = TcpListener::bind("127.0.0.1:0").await?;
    let [silent_url, closed_url] = [&silent, &closed].map(|listener| {
        listener
            .local_addr()
            .map(|address| format!("--server=https://{address}"))
    });
    drop(closed);
    for server in [silent_url?, closed_url?] {
        let started = Instant::now();
        shell.completes(&["status", &server, ""], &[":4"]).await?;
        ensure!(started.elapsed() < BOUNDED, "{server}: {:?}", started.elapsed());
        let flags = shell.complete(&["status", &server, "--no-h"]).await?;
        ensure!(flags.len() == 2, "{flags:?}");
    }
    let context = shell
        .complete(&["status", "--server=https://127.0.0.1:1", "--context="])
        .await?;
    let context = context.first().context("the kubeconfig has a context")?;
    ensure!(context.contains("\tcontext of cluster "), "{context}");
    Ok(())
}
