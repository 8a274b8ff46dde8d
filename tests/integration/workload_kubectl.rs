//! `kubectl kcp kubectl` under a real kubectl and a real API server of a workload cluster. The user has the shipped roles
//! only.

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kcp_tests::{kubectl::CommandOutput, management_cluster::ManagementCluster, products};
use kube::{Api, ResourceExt as _, api::ListParams};

use crate::{
    rollouts::{OPERATOR, Subject},
    shared::with_controllers,
};

const NAMESPACE: &str = "workload-kubectl";

#[test]
fn kubectl_runs_against_the_workload_cluster_of_a_control_plane() {
    with_controllers(NAMESPACE, async |management| {
        let subject = Subject::create(management, NAMESPACE).await?;
        it_asks_the_workload_cluster(management).await?;
        it_passes_on_stdin_and_the_exit_code(management).await?;
        the_kubeconfig_is_in_no_file(management).await?;
        a_missing_kubectl_is_an_error(management).await?;
        subject.cluster.delete().await
    });
}

async fn kubectl(management: &ManagementCluster, name: &str, arguments: &[&str]) -> Result<CommandOutput> {
    let place = ["kcp", "kubectl", name, "-n", NAMESPACE, "--as", OPERATOR, "--"];
    management.kubectl().run(place.iter().chain(arguments)).await
}

/// Runs a script whose variable `kcp` is the command before the arguments of kubectl.
async fn script(management: &ManagementCluster, script: &str, arguments: &[&str]) -> Result<CommandOutput> {
    let kcp = format!("kcp='kubectl kcp kubectl edge -n {NAMESPACE} --as {OPERATOR} --'; {script}");
    let words = ["-euc", &kcp, "script"];
    management
        .kubectl()
        .script("bash", words.iter().chain(arguments))
        .await
}

async fn it_asks_the_workload_cluster(management: &ManagementCluster) -> Result<()> {
    let workload = management.machines().cluster(NAMESPACE, "edge").await?;
    let nodes: Api<Node> = Api::all(workload.client()?.clone());
    let nodes = nodes.list(&ListParams::default()).await?;
    let names = nodes.iter().map(|node| format!("node/{}", node.name_any()));
    let names: Vec<String> = names.collect();
    ensure!(!names.is_empty(), "no Node");
    let expected = names.join("\n") + "\n";
    for name in ["edge", "kcp/edge", "cluster/edge"] {
        let listed = kubectl(management, name, &["get", "nodes", "-o", "name"]).await?;
        ensure!(
            listed.code == 0 && listed.stdout == expected && listed.stderr.is_empty(),
            "{listed}"
        );
    }
    let unknown = kubectl(management, "no-such", &["get", "nodes"]).await?;
    ensure!(
        unknown.code == 2 && unknown.stderr.contains("not found"),
        "{unknown}"
    );
    Ok(())
}

async fn it_passes_on_stdin_and_the_exit_code(management: &ManagementCluster) -> Result<()> {
    let missing = kubectl(
        management,
        "edge",
        &["get", "configmap", "no-such", "-n", "default"],
    )
    .await?;
    ensure!(
        missing.code == 1 && missing.stderr.contains("NotFound"),
        "{missing}"
    );
    let applied = script(
        management,
        "kubectl create configmap stdin -n default --from-literal=a=b --dry-run=client -o yaml | $kcp apply -f -",
        &[],
    )
    .await?;
    ensure!(
        applied.code == 0 && applied.stdout == "configmap/stdin created\n",
        "{applied}"
    );
    let workload = management.machines().cluster(NAMESPACE, "edge").await?;
    let stored: Api<ConfigMap> = Api::namespaced(workload.client()?.clone(), "default");
    stored.get("stdin").await.context("the ConfigMap")?;
    let in_management: Api<ConfigMap> = Api::namespaced(management.client().clone(), "default");
    ensure!(
        in_management.get_opt("stdin").await?.is_none(),
        "it is in the wrong cluster"
    );
    Ok(())
}

/// kubectl reads a file in memory, and gets the signals.
async fn the_kubeconfig_is_in_no_file(management: &ManagementCluster) -> Result<()> {
    const WATCH: &str = r#"
        export HOME=$1 TMPDIR=$1
        $kcp get nodes -o name --watch > "$1/nodes" &
        pid=$!
        for _ in $(seq 1200); do
            [ -s "$1/nodes" ] && break
            sleep 0.1
        done
        tr '\0' '\n' < /proc/$pid/environ | grep ^KUBECONFIG=
        for fd in /proc/$pid/fd/*; do readlink "$fd"; done | grep kubeconfig
        kill -TERM $pid
        wait $pid || echo "exit code $?"
        grep -rFl -e "$2" "$1" || echo "in no file"
    "#;
    let secrets: Api<Secret> = Api::namespaced(management.client().clone(), NAMESPACE);
    let secret = secrets.get("edge-kubeconfig").await?;
    let data = secret.data.unwrap_or_default();
    let kubeconfig = data.get("value").context("no kubeconfig")?;
    let kubeconfig = String::from_utf8(kubeconfig.0.clone())?;
    let key = kubeconfig
        .lines()
        .find_map(|line| line.trim().strip_prefix("client-key-data: "))
        .context("no key")?;
    ensure!(STANDARD.decode(key)?.starts_with(b"-----BEGIN"), "not a key");
    let home = management.kubectl().scratch_file("workload-kubectl-home");
    std::fs::create_dir(&home)?;
    let home = home.to_str().context("text")?;
    let ended = script(management, WATCH, &[home, key]).await?;
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let [variable, file, exit, found] = lines.as_slice() else {
        anyhow::bail!("{ended}");
    };
    ensure!(variable.starts_with("KUBECONFIG=/proc/self/fd/"), "{ended}");
    ensure!(*file == "/memfd:kubeconfig (deleted)", "{ended}");
    // With --watch, kubectl exits with 1 after the signal TERM.
    ensure!([*exit, *found] == ["exit code 1", "in no file"], "{ended}");
    Ok(())
}

async fn a_missing_kubectl_is_an_error(management: &ManagementCluster) -> Result<()> {
    let plugin = products::folder()?.join("kubectl-kcp");
    let run = format!(
        "PATH=/nowhere exec {} kubectl edge -n {NAMESPACE} -- get nodes",
        plugin.display()
    );
    let ended = script(management, &run, &[]).await?;
    ensure!(
        ended.code == 2
            && ended.stderr
                == "error: cannot run kubectl: No such file or directory (os error 2)\nhint: install kubectl, or add its \
                    folder to PATH\n",
        "{ended}"
    );
    Ok(())
}
