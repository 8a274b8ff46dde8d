//! Join scripts: the bootstrap token authenticates at a real API server, the real kube-controller-manager signs cluster-info
//! with it, and bash runs the script with the real curl. kubeadm and the kubelet are stand-ins here.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{Timestamp, ToSpan as _, Unit};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kcp_tests::controller_manager::{ControllerManager, ControllerManagers, Identity, Locks, Program};
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::wait;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, from_value, json};

use super::{BareCluster, HOSTILE, OPERATOR, exists, hostile_options};
use crate::objects;
use crate::shared::with_run;

const HOST: &str = "worker-7";

#[test]
fn a_script_joins_until_its_token_expires_or_is_revoked() {
    with_run(async |run| {
        let flags = ["--enable-bootstrap-token-auth=true"];
        let cluster = BareCluster::start(run, "node-join", &flags).await.unwrap();
        joined(&cluster).await.unwrap();
    });
}

async fn joined(cluster: &BareCluster) -> Result<()> {
    create_cluster_info(cluster).await?;
    only_tokens_are_written(cluster).await?;
    let mut signer = start_signer(cluster).await?;
    hostile_values_create_no_token(cluster).await?;
    machines_are_refused(cluster).await?;

    let (file, script) = written(cluster, "first.sh").await?;
    let token = token_of(&script)?;
    secrets_are_kept(cluster, &file).await?;
    authenticates(cluster, &token).await?;
    the_hash_is_that_of_openssl(cluster, &script)?;

    let host = StandInHost::new(cluster, &cluster.kubectl.server_version().await?)?;
    host.is_checked(cluster, &file)?;
    host.joins(&file, &token)?;
    cluster.create_node(HOST, &json!({}), &json!({})).await?;
    host.is_refused(&file, &format!("the cluster already has a Node {HOST}"))?;
    let occupied = cluster.node(&["join-script", "--hostname", HOST]).await?;
    ensure!(
        occupied.code == 1
            && occupied
                .stderr
                .contains(&format!("the cluster already has a Node {HOST}")),
        "{occupied}"
    );
    cluster.nodes().delete(HOST, &DeleteParams::default()).await?;

    expires(cluster, &host).await?;
    is_revoked(cluster, &host, &file, &token).await?;

    signer.kill().await?;
    without_a_signature_no_token_is_left(cluster).await
}

/// Creates what `kubeadm init` creates for joins: cluster-info, and the permission to read Nodes.
async fn create_cluster_info(cluster: &BareCluster) -> Result<()> {
    let ca = fs::read(cluster.api.folder().join("ca.crt"))?;
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "", "cluster": {
            "server": cluster.api.url(), "certificate-authority-data": STANDARD.encode(ca)}}],
        "contexts": [],
        "users": [],
    });
    let map = json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": kubeconfig.to_string()}});
    cluster_info(cluster)
        .create(&PostParams::default(), &from_value(map)?)
        .await?;
    let group = "--group=system:bootstrappers:kubeadm:default-node-token";
    for command in [
        "create clusterrole kubeadm:get-nodes --verb=get --resource=nodes",
        &format!("create clusterrolebinding kubeadm:get-nodes --clusterrole=kubeadm:get-nodes {group}"),
    ] {
        cluster.kubectl.succeed(command.split(' ')).await?;
    }
    Ok(())
}

/// Without the shipped policy, the operator would be an administrator: with a token of a `ServiceAccount` of kube-system.
async fn only_tokens_are_written(cluster: &BareCluster) -> Result<()> {
    let secret = |name: &str, kind: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": kind,
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "default"}}})
    };
    let stranger = secret("stranger", "Opaque");
    let create = async |object: &Value, user: &str| {
        let arguments = ["-n", "kube-system", "--dry-run=server", "--as", user];
        objects::write(
            &cluster.kubectl,
            "create",
            std::slice::from_ref(object),
            &arguments,
        )
        .await
    };
    let why = "the Role kcp-node-operator allows to write only bootstrap tokens";
    for object in [
        secret("admin", "kubernetes.io/service-account-token"),
        secret("bootstrap-token-abcdef", "Opaque"),
        secret("admin", "bootstrap.kubernetes.io/token"),
    ] {
        wait::until("the API server follows the policy", || async {
            let refused = create(&object, OPERATOR).await?;
            ensure!(
                refused.code == 1 && refused.stderr.contains(why),
                "{object}: {refused}"
            );
            Ok(())
        })
        .await?;
    }
    let token = create(
        &secret("bootstrap-token-abcdef", "bootstrap.kubernetes.io/token"),
        OPERATOR,
    )
    .await?;
    ensure!(token.code == 0, "{token}");

    objects::written(&cluster.kubectl, "create", &[stranger], &["-n", "kube-system"]).await?;
    let delete = ["delete", "secret", "stranger", "-n", "kube-system"];
    let refused = cluster
        .kubectl
        .run(delete.iter().chain(&["--as", OPERATOR]))
        .await?;
    ensure!(refused.code == 1 && refused.stderr.contains(why), "{refused}");
    cluster.kubectl.succeed(delete).await?;
    let list = ["get", "secrets", "-n", "kube-system", "--as", OPERATOR];
    let refused = cluster.kubectl.run(list).await?;
    ensure!(refused.stderr.contains("Forbidden"), "{refused}");
    Ok(())
}

fn cluster_info(cluster: &BareCluster) -> Api<ConfigMap> {
    Api::namespaced(cluster.api.client().clone(), "kube-public")
}

fn secrets(cluster: &BareCluster) -> Api<Secret> {
    Api::namespaced(cluster.api.client().clone(), "kube-system")
}

async fn tokens(cluster: &BareCluster) -> Result<Vec<String>> {
    let listed = secrets(cluster)
        .list(&ListParams::default().fields("type=bootstrap.kubernetes.io/token"))
        .await?;
    Ok(listed
        .items
        .into_iter()
        .filter_map(|secret| secret.metadata.name)
        .collect())
}

/// Starts the real controllers that sign cluster-info and delete expired tokens.
async fn start_signer(cluster: &BareCluster) -> Result<ControllerManager> {
    let managers = ControllerManagers::beside(&cluster.run, &cluster.assets, &cluster.api, "join")?;
    let locks = Locks::in_namespace(cluster.api.client(), "kube-system");
    let mut flags = managers.flags(Program::Kube, Identity::Administrator, &locks);
    flags.push("--controllers=bootstrap-signer-controller,token-cleaner-controller".to_owned());
    managers.start(Program::Kube, "signer", &flags).await
}

/// Creates a script with every option, and returns its file and its text.
async fn written(cluster: &BareCluster, name: &str) -> Result<(String, String)> {
    let file = cluster.file(name);
    let created = cluster.node(&join_script(cluster, &file)).await?;
    ensure!(
        created.code == 0 && created.stdout == format!("join script written to {file}\n"),
        "{created}"
    );
    let script = fs::read_to_string(&file)?;
    let (id, secret) = token_of(&script)?;
    ensure!(
        created.stderr.contains(&format!("token {id} expires at ")) && !created.stderr.contains(&secret),
        "{created}"
    );
    Ok((file, script))
}

fn join_script(cluster: &BareCluster, file: &str) -> Vec<String> {
    let socket = format!("unix://{}", cluster.file("runtime.sock"));
    let words = [
        "join-script",
        "--hostname",
        HOST,
        "--labels",
        "rack=r1,pool=batch",
        "--taints",
        "dedicated=batch:NoSchedule",
        "--cri-socket",
        &socket,
        "--ignore-preflight-errors",
        "Swap,Port-10250",
        "--ready-timeout",
        "1s",
        "--timeout",
        "10m",
        "--output-file",
        file,
    ];
    words.map(str::to_owned).to_vec()
}

/// The id and the secret part in a script.
pub(crate) fn token_of(script: &str) -> Result<(String, String)> {
    let value = |name: &str| {
        let line = script
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}='")));
        let value = line.and_then(|line| line.split('\'').next());
        value
            .map(str::to_owned)
            .with_context(|| format!("the script has no {name}"))
    };
    Ok((value("token_id")?, value("token_secret")?))
}

async fn secrets_are_kept(cluster: &BareCluster, file: &str) -> Result<()> {
    let mode = fs::metadata(file)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "{file} has mode {mode:o}");
    // The file is not replaced.
    let again = cluster.node(&join_script(cluster, file)).await?;
    ensure!(again.code == 2 && tokens(cluster).await?.len() == 1, "{again}");

    let file = cluster.file("summary.sh");
    let mut words = join_script(cluster, &file);
    words.extend(["-o", "json", "-v", "9"].map(str::to_owned));
    let summary = cluster.node(&words).await?;
    let (id, secret) = token_of(&fs::read_to_string(&file)?)?;
    let document: Value = serde_json::from_str(&summary.stdout).with_context(|| format!("{summary}"))?;
    ensure!(
        summary.code == 0
            && document.pointer("/token/id") == Some(&json!(id))
            && !format!("{summary}").contains(&secret),
        "{summary}"
    );
    let revoke = format!("kubectl -n kube-system delete secret bootstrap-token-{id}");
    ensure!(
        summary
            .stderr
            .contains(&format!("revoke it earlier with: {revoke}\n")),
        "{summary}"
    );
    revoked(cluster, &id).await
}

/// Revokes a token as the plugin says.
async fn revoked(cluster: &BareCluster, id: &str) -> Result<()> {
    let name = format!("bootstrap-token-{id}");
    let delete = ["-n", "kube-system", "delete", "secret", &name, "--as", OPERATOR];
    cluster.kubectl.succeed(delete).await?;
    Ok(())
}

async fn who(cluster: &BareCluster, (id, secret): &(String, String)) -> Result<CommandOutput> {
    let kubectl = cluster.kubectl_with_token(&format!("{id}.{secret}"))?;
    kubectl.run(["auth", "whoami", "-o", "json"]).await
}

async fn authenticates(cluster: &BareCluster, token: &(String, String)) -> Result<()> {
    let found = who(cluster, token).await?;
    let review: Value = serde_json::from_str(&found.stdout).with_context(|| format!("{found}"))?;
    let user = review.pointer("/status/userInfo");
    let name = user.and_then(|user| user.get("username"));
    let groups = user.and_then(|user| user.get("groups")).and_then(Value::as_array);
    let is_bootstrapper = groups
        .is_some_and(|groups| groups.contains(&json!("system:bootstrappers:kubeadm:default-node-token")));
    ensure!(
        name == Some(&json!(format!("system:bootstrap:{}", token.0))) && is_bootstrapper,
        "{found}"
    );
    let signed = cluster_info(cluster).get("cluster-info").await?;
    let key = format!("jws-kubeconfig-{}", token.0);
    ensure!(
        signed.data.is_some_and(|data| data.contains_key(&key)),
        "not signed"
    );
    Ok(())
}

fn the_hash_is_that_of_openssl(cluster: &BareCluster, script: &str) -> Result<()> {
    let ca = cluster.api.folder().join("ca.crt");
    let pipeline = format!(
        "openssl x509 -pubkey -noout -in {} | openssl pkey -pubin -outform der | sha256sum | cut -d' ' -f1",
        ca.display()
    );
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", &pipeline])
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let hash = format!("\"sha256:{}\"", String::from_utf8(output.stdout)?.trim());
    ensure!(script.contains(&hash), "the script does not contain {hash}");
    Ok(())
}

async fn hostile_values_create_no_token(cluster: &BareCluster) -> Result<()> {
    for (flag, value) in hostile_options() {
        let refused = cluster.node(&["join-script", flag, &value]).await?;
        ensure!(refused.code == 2 && refused.stdout.is_empty(), "{refused}");
    }
    for hostile in HOSTILE {
        let info = cluster_info(cluster);
        let map = info.get("cluster-info").await?;
        let kubeconfig = map.data.as_ref().and_then(|data| data.get("kubeconfig"));
        let good = kubeconfig.context("no kubeconfig")?.clone();
        let mut bad: Value = serde_json::from_str(&good)?;
        let server = bad
            .pointer_mut("/clusters/0/cluster/server")
            .context("no server")?;
        *server = json!(format!("{}{hostile}", cluster.api.url()));
        set_kubeconfig(cluster, &bad.to_string()).await?;
        let refused = cluster.node(&["join-script"]).await?;
        set_kubeconfig(cluster, &good).await?;
        ensure!(
            refused.code == 2
                && refused
                    .stderr
                    .contains("the server in its kubeconfig is not https://HOST:PORT"),
            "{refused}"
        );
    }
    let tokens = tokens(cluster).await?;
    ensure!(tokens.is_empty(), "{tokens:?}");
    Ok(())
}

async fn set_kubeconfig(cluster: &BareCluster, text: &str) -> Result<()> {
    let patch = json!({"data": {"kubeconfig": text}});
    let info = cluster_info(cluster);
    info.patch("cluster-info", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// A control plane of Cluster API must not get a member without a Machine. On another cluster with uploaded certificates, the command
/// writes the script.
async fn machines_are_refused(cluster: &BareCluster) -> Result<()> {
    let key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    let key_file = cluster.file("certificate-key");
    fs::write(&key_file, format!("{key}\n"))?;
    let control_plane = json!({"node-role.kubernetes.io/control-plane": ""});
    let of_machine =
        json!({"cluster.x-k8s.io/machine": "edge-1", "cluster.x-k8s.io/cluster-namespace": "fleet"});
    cluster.create_node("cp-1", &control_plane, &of_machine).await?;
    let words = [
        "join-script",
        "--control-plane",
        "--certificate-key-file",
        &key_file,
        "--timeout",
        "10m",
    ];
    let refused = cluster.node(&words).await?;
    ensure!(
        refused.code == 1
            && refused.stderr.contains("such as Machine fleet/edge-1")
            && refused
                .stderr
                .contains("kubectl kcp scale NAME --replicas N -n fleet")
            && tokens(cluster).await?.is_empty(),
        "{refused}"
    );
    cluster.nodes().delete("cp-1", &DeleteParams::default()).await?;
    let expires = certificates_are_needed(cluster, &words).await?;
    let accepted = cluster.node(&words).await?;
    let warning =
        format!("warning: run the script before {expires}, because Kubernetes then deletes the certificates");
    let unknown = "warning: it is unknown whether etcd lists a dead member";
    ensure!(
        accepted.code == 0
            && accepted.stdout.contains(key)
            && !accepted.stderr.contains(key)
            && accepted.stdout.contains("\netcd_folder='/var/lib/etcd' ")
            && accepted
                .stdout
                .contains(&format!("\ncertificates_expire='{expires}' "))
            && accepted.stderr.contains(&warning)
            && accepted.stderr.contains(unknown),
        "{accepted}"
    );
    let (id, _) = token_of(&accepted.stdout)?;
    revoked(cluster, &id).await?;
    secrets(cluster)
        .delete("bootstrap-token-uplded", &DeleteParams::default())
        .await?;
    secrets(cluster)
        .delete("kubeadm-certs", &DeleteParams::default())
        .await?;
    Ok(())
}

/// Without the certificates that kubeadm uploads, no script is written. Returns when the certificates
/// of the cluster expire, which is before the token of a script does.
async fn certificates_are_needed(cluster: &BareCluster, words: &[&str]) -> Result<String> {
    let is_refused = async |why: &str| {
        let refused = cluster.node(words).await?;
        let upload = "kubeadm init phase upload-certs --upload-certs";
        ensure!(
            refused.code == 1
                && refused.stderr.contains(why)
                && refused.stderr.contains(upload)
                && refused.stdout.is_empty(),
            "{refused}"
        );
        Ok(())
    };
    is_refused("Secret kube-system/kubeadm-certs, which does not exist").await?;
    // As `UploadCerts` of kubeadm creates them.
    let expires = (Timestamp::now() + 30.minutes()).round(Unit::Second)?.to_string();
    let token = json!({
        "metadata": {"name": "bootstrap-token-uplded"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "uplded", "token-secret": "0123456789abcdef", "expiration": expires},
    });
    let token = secrets(cluster)
        .create(&PostParams::default(), &from_value(token)?)
        .await?;
    let owner = json!([{
        "apiVersion": "v1", "kind": "Secret", "name": "bootstrap-token-uplded", "uid": token.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let certificates = json!({"metadata": {"name": "kubeadm-certs", "ownerReferences": owner}});
    secrets(cluster)
        .create(&PostParams::default(), &from_value(certificates)?)
        .await?;
    Ok(expires)
}

async fn expires(cluster: &BareCluster, host: &StandInHost) -> Result<()> {
    let (file, script) = written(cluster, "expired.sh").await?;
    let token = token_of(&script)?;
    let past = json!({"stringData": {"expiration": "2020-01-01T00:00:00Z"}});
    let name = format!("bootstrap-token-{}", token.0);
    // The real token cleaner may delete the token at once.
    secrets(cluster)
        .patch(&name, &PatchParams::default(), &Patch::Merge(&past))
        .await?;
    kcp_tests::wait::until("the API server rejects the expired token", || async {
        let found = who(cluster, &token).await?;
        ensure!(found.code != 0, "{found}");
        Ok(())
    })
    .await?;
    host.is_refused(&file, "the API server rejects the token")
}

async fn is_revoked(
    cluster: &BareCluster,
    host: &StandInHost,
    file: &str,
    token: &(String, String),
) -> Result<()> {
    revoked(cluster, &token.0).await?;
    kcp_tests::wait::until("the API server rejects the revoked token", || async {
        let found = who(cluster, token).await?;
        ensure!(found.code != 0, "{found}");
        Ok(())
    })
    .await?;
    host.is_refused(file, "the API server rejects the token")
}

async fn without_a_signature_no_token_is_left(cluster: &BareCluster) -> Result<()> {
    let file = cluster.file("unsigned.sh");
    let words = ["join-script", "--timeout", "5s", "--output-file", &file];
    let ended = cluster.node(&words).await?;
    ensure!(
        ended.code == 1
            && ended
                .stderr
                .contains("did not sign ConfigMap kube-public/cluster-info")
            && !exists(&file)
            && tokens(cluster).await?.is_empty(),
        "{ended}"
    );
    Ok(())
}

/// A host on which programs of the same names stand in for kubeadm and the kubelet. curl and bash are real.
struct StandInHost {
    programs: String,
    joined: String,
    folder: String,
    _runtime: UnixListener,
}

impl StandInHost {
    /// Its kubeadm and its kubelet have `version`.
    fn new(cluster: &BareCluster, version: &str) -> Result<Self> {
        let programs = cluster.file("programs");
        fs::create_dir(&programs)?;
        let joined = cluster.file("joined.json");
        for (name, script) in [
            // The tests need not run as root.
            ("id", "echo 0".to_owned()),
            ("uname", format!("echo {HOST}")),
            ("kubelet", format!("echo Kubernetes {version}")),
            (
                "kubeadm",
                format!(
                    "case $1 in version) echo {version} ;; join) cat \"$3\" >{joined} ;; *) exit 1 ;; esac"
                ),
            ),
        ] {
            write_program(&programs, name, &script)?;
        }
        let folder = cluster.file("host");
        fs::create_dir(&folder)?;
        Ok(Self {
            programs,
            joined,
            folder,
            _runtime: UnixListener::bind(cluster.file("runtime.sock"))?,
        })
    }

    /// Each fault of the host is found before anything changes.
    fn is_checked(&self, cluster: &BareCluster, file: &str) -> Result<()> {
        for (name, script, why) in [
            (
                "uname",
                "echo worker-8",
                "the name of this host is worker-8, but the script is for worker-7",
            ),
            // With two arguments, the script reads the time of the host.
            (
                "date",
                "if [ $# -eq 2 ]; then echo 0; else PATH=/usr/bin:/bin exec date \"$@\"; fi",
                "the clock of this host differs from the API server's by ",
            ),
            (
                "kubelet",
                "echo Kubernetes v1.20.15",
                "the kubelet (v1.20.15) does not work with API servers of version ",
            ),
            (
                "kubeadm",
                "echo v1.20.15",
                "kubeadm v1.20.15 cannot join a cluster of version ",
            ),
        ] {
            let path = format!("{}/{name}", self.programs);
            let healthy = fs::read(&path).ok();
            write_program(&self.programs, name, script)?;
            self.is_refused(file, why)?;
            match healthy {
                Some(healthy) => fs::write(&path, healthy)?,
                None => fs::remove_file(&path)?,
            }
        }
        let (socket, elsewhere) = (cluster.file("runtime.sock"), cluster.file("elsewhere.sock"));
        fs::rename(&socket, &elsewhere)?;
        self.is_refused(
            file,
            &format!("no container runtime listens at unix://{socket}: start it"),
        )?;
        fs::rename(&elsewhere, &socket)?;
        Ok(())
    }

    /// Runs a script, and returns whether it succeeded, and its messages.
    fn run(&self, file: &str) -> Result<(bool, String)> {
        let path = std::env::var("PATH")?;
        let output = Command::new("bash")
            .arg(file)
            .env("PATH", format!("{}:{path}", self.programs))
            .env("TMPDIR", &self.folder)
            .output()?;
        ensure!(output.stdout.is_empty(), "{output:?}");
        let left = fs::read_dir(&self.folder)?.count();
        ensure!(left == 0, "the script left {left} files");
        Ok((output.status.success(), String::from_utf8(output.stderr)?))
    }

    /// kubeadm gets the configuration. The kubelet of the host never starts, so its Node does not become Ready.
    fn joins(&self, file: &str, (id, secret): &(String, String)) -> Result<()> {
        let (succeeded, messages) = self.run(file)?;
        ensure!(
            !succeeded
                && messages.contains("node worker-7 has joined; waiting until it is Ready")
                && messages.contains("error: node worker-7 has joined, but is not Ready after 1 seconds"),
            "{messages}"
        );
        let configuration: Value = serde_json::from_str(&fs::read_to_string(&self.joined)?)?;
        let discovery = configuration.pointer("/discovery/bootstrapToken/token");
        // kubeadm's v1beta4 has a list of arguments, v1beta3 a map.
        let labels = ["0/value", "node-labels"]
            .iter()
            .find_map(|key| configuration.pointer(&format!("/nodeRegistration/kubeletExtraArgs/{key}")));
        ensure!(
            discovery == Some(&json!(format!("{id}.{secret}")))
                && labels == Some(&json!("rack=r1,pool=batch")),
            "{configuration}"
        );
        fs::remove_file(&self.joined)?;
        Ok(())
    }

    fn is_refused(&self, file: &str, why: &str) -> Result<()> {
        let (succeeded, messages) = self.run(file)?;
        let is_said = messages.contains(why) && messages.ends_with("nothing was changed on this host\n");
        if succeeded || !is_said || exists(&self.joined) {
            bail!("{messages}");
        }
        Ok(())
    }
}

fn write_program(folder: &str, name: &str, script: &str) -> Result<()> {
    let path = format!("{folder}/{name}");
    fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
