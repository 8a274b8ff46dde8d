//! What the rules say about a flag is what the component does: it exits, or it starts. The components are the real programs.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::assets::Assets;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::objects::{cluster, control_plane, written};
use crate::shared::with_management_cluster;

/// The version of the programs in the assets.
const VERSION: &str = "v1.36.3";

const FLAG: &str = "component-flag-unknown";
const VALUE: &str = "component-flag-value-refused";
const CONFLICT: &str = "component-flags-conflict";
const GATE: &str = "feature-gate-unknown";
const GATE_VALUE: &str = "feature-gate-value-refused";
const PLUGIN: &str = "admission-plugin-unknown";
const API: &str = "runtime-config-unknown";

/// A busy machine starts a program in seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// Flags, and the rule that denies them with a part of what the program says before it exits. None: the program accepts them.
type Row = (&'static [&'static str], Option<(&'static str, &'static str)>);

/// Without a server for etcd, kube-apiserver validates its flags and exits.
const API_SERVER: &[Row] = &[
    (
        &["cloud-provider=external"],
        Some((FLAG, "unknown flag: --cloud-provider")),
    ),
    (&["profilling=false"], Some((FLAG, "unknown flag: --profilling"))),
    (&["enable_admission_plugins=PodSecurity"], None),
    (&["event-ttl=60"], Some((VALUE, "missing unit"))),
    (&["event-ttl=1h30m"], None),
    (&["event-ttl=5µs"], None),
    (&["max-requests-inflight=400m"], Some((VALUE, "strconv.ParseInt"))),
    (&["max-requests-inflight=0x190"], None),
    (&["max-requests-inflight=1_000"], None),
    (&["max-requests-inflight=1__0"], Some((VALUE, "strconv.ParseInt"))),
    (&["audit-log-maxage=08"], Some((VALUE, "strconv.ParseInt"))),
    (
        &["max-requests-inflight=99999999999999999999"],
        Some((VALUE, "out of range")),
    ),
    (&["max-requests-inflight="], Some((VALUE, "strconv.ParseInt"))),
    (&["profiling=off"], Some((VALUE, "strconv.ParseBool"))),
    (&["profiling=F"], None),
    (&["goaway-chance=1%"], Some((VALUE, "strconv.ParseFloat"))),
    (&["goaway-chance=.01"], None),
    (&["bind-address=all"], Some((VALUE, "failed to parse IP"))),
    (&["bind-address=::"], None),
    (
        &["feature-gates=NoSuchGate=true"],
        Some((GATE, "unrecognized feature gate: NoSuchGate")),
    ),
    (
        &["feature-gates=InTreePluginvSphereUnregister=true"],
        Some((GATE, "unrecognized feature gate")),
    ),
    (
        &["feature-gates=WatchList=maybe"],
        Some((GATE_VALUE, "invalid value of WatchList")),
    ),
    (
        &["feature-gates=NodeSwap=false"],
        Some((GATE_VALUE, "cannot set feature gate NodeSwap to false")),
    ),
    (&["feature-gates=NodeSwap=true, WatchList = false"], None),
    (&["feature-gates=kube:WatchList=true"], None),
    (
        &["feature-gates=kube:WatchList=true,NodeSwap=true"],
        Some((GATE, "do not mix use")),
    ),
    (
        &["enable-admission-plugins=PodSecurityPolicy"],
        Some((PLUGIN, r#"PodSecurityPolicy\" is unknown"#)),
    ),
    (
        &["enable-admission-plugins=NodeRestriction, PodSecurity"],
        Some((PLUGIN, r#" PodSecurity\" is unknown"#)),
    ),
    (
        &["enable-admission-plugins=NodeRestriction,\"PodSecurity\""],
        None,
    ),
    (
        &[
            "disable-admission-plugins=PodSecurity",
            "enable-admission-plugins=PodSecurity",
        ],
        Some((CONFLICT, "overlapped")),
    ),
    (
        &["runtime-config=batch=true"],
        Some((API, "runtime-config invalid key batch")),
    ),
    (
        &["runtime-config=a.example/v1=true"],
        Some((API, "unknown api groups a.example/v1")),
    ),
    (&["runtime-config=v1=true,api/legacy=true,batch/v1"], None),
    (&["runtime-config=api/all=false,api/ga=true"], None),
    (
        &["runtime-config=api/all=false,flowcontrol.apiserver.k8s.io/v1=true"],
        None,
    ),
    (
        &["runtime-config=api/ga=false"],
        Some((CONFLICT, "conflicts with --enable-priority-and-fairness")),
    ),
    (
        &[
            "runtime-config=api/ga=false",
            "enable-priority-and-fairness=false",
        ],
        None,
    ),
];

/// Without a kubeconfig, kube-controller-manager validates its flags and exits.
const CONTROLLER_MANAGER: &[Row] = &[
    (
        &["pod-eviction-timeout=2m"],
        Some((FLAG, "unknown flag: --pod-eviction-timeout")),
    ),
    (&["cloud-provider=external"], None),
    (&["node-monitor-grace-period=1d"], Some((VALUE, "unknown unit"))),
    (&["concurrent-gc-syncs=2147483648"], Some((VALUE, "out of range"))),
    (&["concurrent-gc-syncs=30"], None),
    (&["kube-api-qps=1e2"], None),
    (
        &["feature-gates=DisableCloudProviders=false"],
        Some((GATE, "unrecognized feature gate")),
    ),
    (&["feature-gates=AllBeta=false"], None),
];

/// etcd cannot listen at this address, which is for documentation only (RFC 5737), and exits.
const ETCD: &[Row] = &[
    (
        &["enable-v2=false"],
        Some((FLAG, "flag provided but not defined: -enable-v2")),
    ),
    (
        &["listen_metrics_urls=http://127.0.0.1:1"],
        Some((FLAG, "flag provided but not defined")),
    ),
    (&["v2-deprecation=not-yet"], Some((VALUE, "invalid value"))),
    (&["v2-deprecation=write-only"], None),
    (&["pre-vote=yes"], Some((VALUE, "invalid boolean value"))),
    (
        &["feature-gates=InitialCorruptCheck=maybe"],
        Some((GATE_VALUE, "invalid value of InitialCorruptCheck")),
    ),
    (
        &["feature-gates=FastLeaseKeepAlive=true"],
        Some((GATE, "unrecognized feature gate")),
    ),
    (
        &[
            "experimental-compaction-batch-limit=9",
            "compaction-batch-limit=9",
        ],
        Some((CONFLICT, "at the same time")),
    ),
    (&["experimental-compaction-batch-limit=9"], None),
    (
        &[
            "experimental-enable-lease-checkpoint=true",
            "feature-gates=LeaseCheckpoint=true",
        ],
        Some((CONFLICT, "at the same time")),
    ),
    (
        &[
            "experimental-initial-corrupt-check=true",
            "feature-gates=CompactHashCheck=true",
        ],
        None,
    ),
];

/// A program, its flags in the tests, what it says if it accepts the flags of a row, and the field with its flags.
struct Program<'p> {
    name: &'p str,
    flags: &'p [&'p str],
    accepts: &'p str,
    field: &'p str,
    rows: &'static [Row],
}

const PROGRAMS: [Program<'_>; 3] = [
    Program {
        name: "kube-apiserver",
        flags: &["--service-account-issuer=https://a.example"],
        accepts: "--etcd-servers must be specified",
        field: "/apiServer",
        rows: API_SERVER,
    },
    Program {
        name: "kube-controller-manager",
        flags: &["--kubeconfig=/nonexistent"],
        accepts: "/nonexistent: no such file or directory",
        field: "/controllerManager",
        rows: CONTROLLER_MANAGER,
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
        field: "/etcd/local",
        rows: ETCD,
    },
];

#[test]
fn components_do_what_the_rules_say() {
    with_management_cluster(async |management| {
        let assets = Assets::locate().unwrap();
        // The rows are about one version, and the support matrix has others.
        let api_server = Command::new(assets.program("kube-apiserver"))
            .arg("--version")
            .output();
        if !String::from_utf8_lossy(&api_server.await.unwrap().stdout).contains(VERSION) {
            return;
        }
        let data = management
            .run()
            .folder()
            .join("startup-etcd")
            .display()
            .to_string();
        let mut differences = Vec::new();
        let mut number = 0;
        for program in PROGRAMS {
            for (flags, expected) in program.rows {
                number += 1;
                let told = exits_with(&assets.program(program.name), &program, flags, &data)
                    .await
                    .unwrap();
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
    let (parent, last) = program.field.rsplit_once('/').context("no field")?;
    let configuration = "/spec/kubeadmConfigSpec/clusterConfiguration";
    let cluster = object
        .pointer_mut(configuration)
        .context("no clusterConfiguration")?;
    let component = json!({"extraArgs": extra_args});
    match (parent, cluster.as_object_mut()) {
        ("", Some(fields)) => fields.insert(last.to_owned(), component),
        (_, Some(fields)) => fields.insert("etcd".to_owned(), json!({last: component})),
        (_, None) => bail!("clusterConfiguration is no object"),
    };
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
