//! What the rules say about a flag is what the component does: it exits, or it starts. The components are the real programs.

mod rows;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::assets::Assets;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use rows::{API_SERVER, CONTROLLER_MANAGER, ETCD, KUBELET, Row, SCHEDULER};

use crate::objects::{cluster, control_plane, written};
use crate::shared::with_management_cluster;

/// The version of the programs in the assets.
const VERSION: &str = "v1.36.3";

/// A busy machine starts a program in seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// A program, its flags in the tests, what it says if it accepts the flags of a row, and the field with its flags.
struct Program<'p> {
    name: &'p str,
    flags: &'p [&'p str],
    accepts: &'p str,
    field: &'p str,
    rows: &'static [Row],
}

const PROGRAMS: [Program<'_>; 5] = [
    Program {
        name: "kube-apiserver",
        flags: &["--service-account-issuer=https://a.example"],
        accepts: "err=\"[--etcd-servers must be specified, either `--service-account-key-file` or `--service-account-signing-endpoint` \
                  must be set, --service-account-signing-key-file, --service-account-issuer, and --api-audiences should be specified \
                  together]\"",
        field: "/clusterConfiguration/apiServer",
        rows: API_SERVER,
    },
    Program {
        name: "kube-controller-manager",
        flags: &["--kubeconfig=/nonexistent"],
        accepts: "/nonexistent: no such file or directory",
        field: "/clusterConfiguration/controllerManager",
        rows: CONTROLLER_MANAGER,
    },
    Program {
        name: "kube-scheduler",
        flags: &["--kubeconfig=/nonexistent"],
        accepts: "/nonexistent: no such file or directory",
        field: "/clusterConfiguration/scheduler",
        rows: SCHEDULER,
    },
    Program {
        name: "kubelet",
        flags: &[
            "--kubeconfig=/nonexistent",
            "--fail-cgroupv1=false",
            "--root-dir=DATA",
            "--cert-dir=DATA",
        ],
        accepts: "/nonexistent: no such file or directory",
        field: "/joinConfiguration/nodeRegistration",
        rows: KUBELET,
    },
    Program {
        name: "etcd",
        flags: &[
            "--listen-peer-urls=http://192.0.2.1:1",
            "--listen-client-urls=http://192.0.2.1:2",
            "--advertise-client-urls=http://192.0.2.1:2",
            "--data-dir=DATA",
        ],
        accepts: "cannot assign requested address",
        field: "/clusterConfiguration/etcd/local",
        rows: ETCD,
    },
];

#[test]
fn components_do_what_the_rules_say() {
    with_management_cluster(async |management| {
        let assets = Assets::locate().unwrap();
        let data = management
            .run()
            .folder()
            .join("startup-etcd")
            .display()
            .to_string();
        let mut differences = Vec::new();
        let mut number = 0;
        for program in PROGRAMS {
            // The rows are about one version, and the support matrix has others. Only real machines have some of the programs.
            let Some(path) = path_of(&assets, program.name).await.unwrap() else {
                continue;
            };
            for (flags, expected) in program.rows {
                number += 1;
                let told = exits_with(&path, &program, flags, &data).await.unwrap();
                let found = lint(management, &program, flags, number).await.unwrap();
                let (rule, refusal) =
                    expected.map_or((None, None), |(rule, refusal)| (Some(rule), Some(refusal)));
                let is_as_expected = told.contains(refusal.unwrap_or(program.accepts))
                    && (refusal.is_some() || !told.contains("rror: "));
                if !is_as_expected || found.as_deref() != rule {
                    differences.push(format!(
                        "{} {flags:?}: rule {found:?}, program: {told}",
                        program.name
                    ));
                }
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    });
}

/// The program, if this machine has it in the version of the rows.
async fn path_of(assets: &Assets, name: &str) -> Result<Option<PathBuf>> {
    let path = match name {
        "kubelet" | "kube-scheduler" => assets.node_program(name),
        _ => Some(assets.program(name)),
    };
    let api_server = assets.program("kube-apiserver");
    for program in path.iter().chain([&api_server]).filter(|_| name != "etcd") {
        let printed = Command::new(program).arg("--version").output().await;
        let printed = printed.with_context(|| format!("running {}", program.display()))?;
        if !String::from_utf8_lossy(&printed.stdout).contains(VERSION) {
            return Ok(None);
        }
    }
    Ok(path)
}

/// What a program prints before it exits.
async fn exits_with(path: &Path, program: &Program<'_>, flags: &[&str], data: &str) -> Result<String> {
    let own = program.flags.iter().map(|flag| flag.replace("DATA", data));
    let output = Command::new(path)
        .args(own)
        .args(flags.iter().map(|flag| format!("--{flag}")))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(LIMIT, output)
        .await
        .with_context(|| format!("{} with {flags:?} does not exit", path.display()))?
        .with_context(|| format!("running {}", path.display()))?;
    let text = String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into_owned();
    ensure!(
        !output.status.success(),
        "{} did not exit with an error: {text}",
        path.display()
    );
    Ok(text)
}

/// The rule with which `lint` denies a control plane with these flags.
async fn lint(
    management: &ManagementCluster,
    program: &Program<'_>,
    flags: &[&str],
    number: usize,
) -> Result<Option<String>> {
    let mut object = control_plane("edge", 1, VERSION);
    let extra_args: Vec<Value> = flags
        .iter()
        .map(|flag| flag.split_once('=').unwrap_or((flag, "")))
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let list = match program.name {
        "kubelet" => "kubeletExtraArgs",
        _ => "extraArgs",
    };
    let mut config = object
        .pointer_mut("/spec/kubeadmConfigSpec")
        .context("no kubeadmConfigSpec")?;
    for part in program.field.split('/').skip(1) {
        let fields = config.as_object_mut().context("the parent is no object")?;
        config = fields.entry(part).or_insert_with(|| json!({}));
    }
    *config = json!({list: extra_args});
    let kubectl = management.kubectl();
    let file = kubectl.scratch_file(&format!("startup-{number}.json"));
    fs::write(&file, object.to_string()).context("writing the object")?;
    let file = file.display().to_string();
    let linted = kubectl.run(["kcp", "lint", "-f", &file, "-o", "json"]).await?;
    let report: Value = serde_json::from_str(&linted.stdout).with_context(|| linted.to_string())?;
    let findings = report
        .get("findings")
        .and_then(Value::as_array)
        .context("no findings")?;
    let text = |finding: &Value, field: &str| finding.get(field).and_then(Value::as_str).map(str::to_owned);
    let denied = findings
        .iter()
        .find(|finding| text(finding, "action").as_deref() == Some("deny"));
    Ok(denied.and_then(|finding| text(finding, "rule")))
}

/// kube-controller-manager 1.37 exits with this flag, which 1.36 knows.
const REMOVED: &str = "concurrent-service-syncs";

#[test]
fn an_upgrade_with_which_a_component_exits_is_refused() {
    with_management_cluster(async |management| an_upgrade_is_refused(management).await.unwrap());
}

async fn an_upgrade_is_refused(management: &ManagementCluster) -> Result<()> {
    const NAMESPACE: &str = "startup";
    management.create_namespace(NAMESPACE).await?;
    let mut objects = cluster("edge", 1, VERSION);
    let configuration = "/spec/kubeadmConfigSpec/clusterConfiguration";
    for configuration in objects
        .iter_mut()
        .filter_map(|object| object.pointer_mut(configuration))
    {
        *configuration = json!({"controllerManager": {"extraArgs": [{"name": REMOVED, "value": "2"}]}});
    }
    let kubectl = management.kubectl();
    written(kubectl, "create", &objects, &["-n", NAMESPACE]).await?;
    let patch = [
        "patch",
        "kubeadmcontrolplane",
        "edge",
        "-n",
        NAMESPACE,
        "--type=merge",
        "-p",
        r#"{"spec":{"version":"v1.37.2"}}"#,
    ];
    let words = "kube-controller-manager 1.37 and later do not know the flag --concurrent-service-syncs, and exit at startup; \
                 remove --concurrent-service-syncs (component-flag-unknown)";
    let denied = kubectl.run(patch).await?;
    ensure!(denied.code == 1 && denied.stderr.contains(words), "{denied}");
    for flags in [&["--yes"][..], &["--yes", "--force"]] {
        let upgrade = ["kcp", "upgrade", "edge", "-n", NAMESPACE, "--to", "v1.37.2"];
        wait::until("the upgrade is refused for the flag", || async {
            let refused = kubectl.run(upgrade.iter().chain(flags)).await?;
            let text = refused.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
            ensure!(
                refused.code == 1 && text.contains("(component-flag-unknown)"),
                "{refused}"
            );
            Ok(())
        })
        .await?;
    }
    let version = [
        "get",
        "kubeadmcontrolplane",
        "edge",
        "-n",
        NAMESPACE,
        "-o",
        "jsonpath={.spec.version}",
    ];
    let version = kubectl.succeed(version).await?;
    ensure!(version.stdout == VERSION, "{version}");
    Ok(())
}
