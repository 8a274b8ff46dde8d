//! `kubectl kcp bundle` on a control plane with a secret in each place where one can stand: none of them is in the
//! archive, which the real tar unpacks. With a permission less, the archive says which part is missing.

mod secrets;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use kcp_tests::{
    cluster::Cluster, kubectl::CommandOutput, management_cluster::ManagementCluster, run::random, wait,
};
use serde_json::{Value, json};

use crate::{objects::written, roles, schema, shared::with_controllers};
use secrets::Planted;

const NAMESPACE: &str = "debug-bundle";
const NAME: &str = "edge";
const VERSION: &str = "v1.34.2";

/// A user with the shipped roles only.
const HELPER: &str = "debug-bundle-helper";

/// The roles in `manifests/reader` without which the archive lacks parts.
const ROLES: [&str; 4] = [
    "clusterrole.yaml",
    "secrets.yaml",
    "webhook.yaml",
    "versions.yaml",
];

/// The files of a complete archive.
const FILES: [&str; 26] = [
    "index.json",
    "management/clusters.json",
    "management/events.json",
    "management/infrastructure/standinmachine.json",
    "management/kubeadmconfigs.json",
    "management/kubeadmcontrolplanes.json",
    "management/leases.json",
    "management/machinedeployments.json",
    "management/machinehealthchecks.json",
    "management/machines.json",
    "management/mutatingwebhookconfigurations.json",
    "management/validatingwebhookconfigurations.json",
    "plan.json",
    "status.json",
    "version.json",
    "webhook.json",
    "why.json",
    "workload/events.json",
    "workload/leases.json",
    "workload/logs/MACHINE/etcd.log",
    "workload/logs/MACHINE/kube-apiserver.log",
    "workload/logs/MACHINE/kube-controller-manager.log",
    "workload/logs/MACHINE/kube-scheduler.log",
    "workload/nodeleases.json",
    "workload/nodes.json",
    "workload/pods.json",
];

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_bundle_contains_no_secret_and_says_what_it_lacks() {
    with_controllers(NAMESPACE, bundled);
}

async fn bundled(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create_without_control_plane(management.client(), NAMESPACE, NAME).await?;
    let mut planted = Planted::default();
    planted.in_control_plane(management).await?;
    cluster.settled(1).await?;
    cluster.check_health().await?;
    planted.in_objects(management, &cluster).await?;
    planted.in_logs(management, &cluster).await?;
    planted.read_those_of_cluster_api(management).await?;

    let folder = management.run().subfolder("debug-bundle")?;
    is_complete_and_clean(management, &folder, &planted).await?;
    names_a_missing_part(management, &folder, &planted).await?;
    replaces_no_file(management, &folder).await?;
    cluster.delete().await
}

/// An archive that was unpacked.
struct Unpacked {
    /// The files below the only folder, by their paths.
    files: BTreeMap<String, String>,
    index: Value,
}

impl Unpacked {
    /// Runs the command with these flags, and unpacks the archive.
    async fn of(management: &ManagementCluster, folder: &Path, flags: &[&str]) -> Result<Self> {
        let folder = folder.join(format!("{:016x}", random()));
        fs::create_dir(&folder)?;
        let archive = folder.join("edge.tar.gz");
        let ended = run(management, &archive, flags).await?;
        ensure!(ended.code == 0, "{ended}");
        let printed: Value = serde_json::from_str(&ended.stdout).with_context(|| format!("{ended}"))?;
        schema::holds("debugbundle.json", &printed)?;
        let mode = fs::metadata(&archive)?.permissions().mode();
        ensure!(mode & 0o777 == 0o600, "mode {mode:o}");
        let [archive, into] = [&archive, &folder].map(|path| path.display().to_string());
        let unpacked = management
            .kubectl()
            .script("tar", ["-xzf", &archive, "-C", &into])
            .await?;
        ensure!(unpacked.code == 0, "{unpacked}");
        let root = folder.join("debug-bundle");
        let mut files = BTreeMap::new();
        read_files(&root, &root, &mut files)?;
        let index = files.get("index.json").context("no index")?;
        let index: Value = serde_json::from_str(index)?;
        schema::holds("debugbundle.json", &index)?;
        ensure!(
            printed.get("parts") == index.get("parts") && index.get("file").is_none(),
            "{printed:#}\n{index:#}"
        );
        Ok(Self { files, index })
    }

    /// The parts in which something could not be read, and the messages.
    fn unread(&self) -> BTreeMap<String, Vec<String>> {
        let parts = self.index.get("parts").and_then(Value::as_array);
        let parts = parts.into_iter().flatten().map(|part| {
            let path = part.get("path").and_then(Value::as_str).unwrap_or_default();
            let unread = part.get("unread").and_then(Value::as_array);
            let messages = unread.into_iter().flatten().map(|unread| {
                let message = unread.get("message").and_then(Value::as_str);
                message.unwrap_or_default().to_owned()
            });
            (path.to_owned(), messages.collect::<Vec<_>>())
        });
        parts.filter(|(_, messages)| !messages.is_empty()).collect()
    }

    /// The items of a file.
    fn items(&self, file: &str) -> Result<Vec<Value>> {
        let text = self.files.get(file).with_context(|| format!("no {file}"))?;
        let list: Value = serde_json::from_str(text)?;
        let items = list.get("items").and_then(Value::as_array);
        Ok(items.with_context(|| format!("{file} is no list"))?.clone())
    }
}

async fn run(management: &ManagementCluster, archive: &Path, flags: &[&str]) -> Result<CommandOutput> {
    let archive = archive.display().to_string();
    let words = [
        "kcp",
        "bundle",
        NAME,
        "-n",
        NAMESPACE,
        "-o",
        "json",
        "--timeout=2m",
        "--output-file",
        &archive,
    ];
    management.kubectl().run(words.iter().chain(flags)).await
}

fn read_files(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            read_files(root, &path, files)?;
        } else {
            let name = path.strip_prefix(root)?.display().to_string();
            files.insert(name, fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

async fn is_complete_and_clean(
    management: &ManagementCluster,
    folder: &Path,
    planted: &Planted,
) -> Result<()> {
    // Cluster API may still be writing when the control plane is settled.
    let bundle = wait::until("the bundle is complete", || async {
        let bundle = Unpacked::of(management, folder, &[]).await?;
        ensure!(bundle.unread().is_empty(), "{:?}", bundle.unread());
        Ok(bundle)
    })
    .await?;
    let machine = bundle.items("management/machines.json")?;
    let machine = machine
        .first()
        .and_then(|machine| machine.pointer("/metadata/name"));
    let machine = machine.and_then(Value::as_str).context("no Machine")?;
    let names = bundle.files.keys().map(|name| name.replace(machine, "MACHINE"));
    let names: Vec<String> = names.collect();
    ensure!(names == FILES, "{names:?}");
    planted.is_absent_from(&bundle.files)?;
    let log = format!("workload/logs/{machine}/etcd.log");
    let log = bundle.files.get(&log).context("no log")?;
    let lines: Vec<&str> = log.lines().collect();
    ensure!(
        matches!(lines[..], [token, key] if token.ends_with("Z joins with <redacted>") && key.ends_with("Z <redacted>")),
        "{log}"
    );

    // What helps is there: names, versions, conditions and harmless flags.
    let control_planes = bundle.items("management/kubeadmcontrolplanes.json")?;
    let control_plane = control_planes.first().context("no control plane")?;
    let value = |pointer: &str| control_plane.pointer(pointer).cloned().unwrap_or_default();
    ensure!(
        value("/spec/version") == json!(VERSION)
            && value("/spec/kubeadmConfigSpec/files/0/path") == json!("/etc/planted/plain")
            && value("/spec/kubeadmConfigSpec/files/0/content") == json!("<redacted>")
            && value("/status/conditions/0/type").is_string(),
        "{control_plane:#}"
    );
    let pods = bundle.items("workload/pods.json")?;
    let flags = pods.iter().flat_map(|pod| {
        let command = pod
            .pointer("/spec/containers/0/command")
            .and_then(Value::as_array);
        command.cloned().unwrap_or_default()
    });
    let flags: Vec<Value> = flags.collect();
    ensure!(
        flags.contains(&json!("--advertise-address=127.0.0.1")) && flags.contains(&json!("<redacted>")),
        "{flags:?}"
    );
    for (file, count) in [
        ("management/clusters.json", 1),
        ("management/machines.json", 1),
        ("management/kubeadmconfigs.json", 1),
        ("management/infrastructure/standinmachine.json", 1),
        ("management/machinehealthchecks.json", 1),
        ("workload/nodes.json", 1),
    ] {
        let items = bundle.items(file)?;
        ensure!(items.len() == count, "{file}: {items:#?}");
    }
    ensure!(!bundle.items("management/events.json")?.is_empty(), "no Events");
    Ok(())
}

/// Without one of the shipped roles, exactly one part is missing, and the archive is as clean as before.
async fn names_a_missing_part(
    management: &ManagementCluster,
    folder: &Path,
    planted: &Planted,
) -> Result<()> {
    let user = format!("--as={HELPER}");
    let refused = run(management, &folder.join("refused.tar.gz"), &[&user]).await?;
    ensure!(
        refused.code == 2 && refused.stdout.is_empty() && !folder.join("refused.tar.gz").exists(),
        "{refused}"
    );
    let [_, _, _, missing] = ROLES;
    for file in ROLES.iter().filter(|file| **file != missing) {
        bind(management, file).await?;
    }
    let bundle = wait::until("exactly one part is missing", || async {
        let bundle = Unpacked::of(management, folder, &[&user]).await?;
        let unread = bundle.unread();
        let parts: Vec<&str> = unread.keys().map(String::as_str).collect();
        let mut messages = unread.values().flatten();
        let forbidden = format!("forbidden for user \"{HELPER}\"");
        ensure!(
            parts == ["version.json"] && messages.all(|message| message.contains(&forbidden)),
            "{unread:?}"
        );
        Ok(bundle)
    })
    .await?;
    planted.is_absent_from(&bundle.files)?;

    bind(management, missing).await?;
    wait::until("no part is missing", || async {
        let bundle = Unpacked::of(management, folder, &[&user]).await?;
        ensure!(bundle.unread().is_empty(), "{:?}", bundle.unread());
        Ok(())
    })
    .await
}

/// Binds the shipped role in this file of `manifests/reader`, under a name of this test.
async fn bind(management: &ManagementCluster, file: &str) -> Result<()> {
    for mut role in roles::shipped(file)? {
        let name = format!("debug-bundle-{}", file.trim_end_matches(".yaml"));
        let fields = role.as_object_mut().context("the role is not an object")?;
        fields.insert("metadata".to_owned(), json!({"name": name}));
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": HELPER}],
        });
        written(management.kubectl(), "apply", &[role, binding], &[]).await?;
    }
    Ok(())
}

async fn replaces_no_file(management: &ManagementCluster, folder: &Path) -> Result<()> {
    let archive = folder.join("theirs.tar.gz");
    fs::write(&archive, "theirs")?;
    let refused = run(management, &archive, &[]).await?;
    ensure!(
        refused.code == 2
            && refused
                .stderr
                .contains("theirs.tar.gz: a file with this name already exists"),
        "{refused}"
    );
    ensure!(fs::read_to_string(&archive)? == "theirs", "the file was replaced");
    Ok(())
}
