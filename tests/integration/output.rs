//! `-o` beside kubectl's own: the same objects, printed by both.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::kubectl::Kubectl;
use kcp_tests::products;
use serde::Deserialize;
use serde_json::Value;

use crate::objects::{cluster, written};
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "output";
const VERSION: &str = "v1.34.2";

/// What `kubectl get` and our commands print of an object.
const FORMATS: &[&str] = &[
    "name",
    "jsonpath={.metadata.name}",
    r#"jsonpath={.kind}/{.metadata.name}{"\t"}{.spec.replicas}{"\n"}"#,
    "jsonpath={.spec.machineTemplate}",
    "jsonpath={.spec.missing.deeper}",
    r"jsonpath={.metadata.labels.cluster\.x-k8s\.io/cluster-name}",
    "jsonpath={.metadata['name','namespace']}",
    "jsonpath={..certSANs[*]}",
    "jsonpath={.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.certSANs[-1:]}",
    r#"jsonpath={range .status.conditions[*]}{.type}={.status}{"\n"}{end}"#,
    r#"jsonpath={.status.conditions[?(@.type=="Available")].status}"#,
    r#"jsonpath={.status.conditions[?(@.status!="True")].type}"#,
    "jsonpath-as-json={.status.conditions[*].type}",
    "jsonpath-as-json={.spec.machineTemplate}",
];

/// A control plane that is not paused is printed as it is by `rollout resume`.
#[test]
fn an_object_is_printed_as_kubectl_prints_it() {
    with_management_cluster(async |management| {
        management.create_namespace(NAMESPACE).await.unwrap();
        let kubectl = management.kubectl();
        let objects = cluster("printed", 3, VERSION);
        written(kubectl, "create", &objects, &["-n", NAMESPACE])
            .await
            .unwrap();
        let conditions = r#"{"status":{"conditions":[
            {"type":"Available","status":"True","reason":"R","message":"a <b> & c","lastTransitionTime":"2026-11-22T00:00:00Z"},
            {"type":"Paused","status":"False","reason":"R","message":"","lastTransitionTime":"2026-11-22T00:00:00Z"}]}}"#;
        let patch = [
            "patch",
            "kcp",
            "printed",
            "-n",
            NAMESPACE,
            "--subresource=status",
            "--type=merge",
            "-p",
            conditions,
        ];
        kubectl.succeed(patch).await.unwrap();
        for format in FORMATS {
            same(kubectl, format).await.unwrap();
        }
    });
}

async fn same(kubectl: &Kubectl, format: &str) -> Result<()> {
    let get = ["get", "kcp", "printed"];
    let resume = ["kcp", "rollout", "resume", "printed"];
    let flags = ["-n", NAMESPACE, "-o", format];
    let theirs = kubectl.succeed(get.iter().chain(&flags)).await?;
    let ours = kubectl.succeed(resume.iter().chain(&flags)).await?;
    ensure!(ours.stdout == theirs.stdout, "{ours}\n{theirs}");
    Ok(())
}

#[derive(Deserialize)]
struct Answers {
    document: Value,
    answers: Vec<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    format: String,
    stdout: Option<String>,
    error: Option<String>,
}

/// The plugin's own tests compare with these answers; they are those of the kubectl that is tested with.
#[test]
fn the_recorded_answers_are_kubectls() {
    with_management_cluster(async |management| {
        recorded(management.kubectl()).await.unwrap();
    });
}

async fn recorded(kubectl: &Kubectl) -> Result<()> {
    let recorded = products::workspace().join("plugin/src/printer/kubectl_answers/jsonpath.json");
    let text = std::fs::read(&recorded).with_context(|| format!("reading {}", recorded.display()))?;
    let Answers { document, answers } = serde_json::from_slice(&text)?;
    let file = kubectl.scratch_file("output.json");
    std::fs::write(&file, document.to_string())?;
    let file = file.display().to_string();
    for Answer {
        format,
        stdout,
        error,
    } in answers
    {
        let patch = [
            "patch",
            "--local",
            "-f",
            &file,
            "-p",
            "{}",
            "--type=merge",
            "-o",
            &format,
        ];
        let ended = kubectl.run(patch).await?;
        let is_same = match (&stdout, &error) {
            (Some(stdout), _) if format.contains("..") => {
                ended.code == 0 && words(&ended.stdout) == words(stdout)
            }
            (Some(stdout), _) => ended.code == 0 && ended.stdout == *stdout,
            (None, Some(error)) => ended.code == 1 && ended.stderr.contains(error),
            (None, None) => false,
        };
        ensure!(is_same, "{ended}\nrecorded: {stdout:?} {error:?}");
    }
    Ok(())
}

/// The words of a text, sorted: kubectl walks the fields of an object in a random order where a template has `..`.
fn words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    words.sort_unstable();
    words
}
