//! Hosts join and leave by the scripts of `kubectl kcp node`, as they are: refused joins leave nothing, a worker leaves in spite of
//! a PodDisruptionBudget, and the first machine of the control plane becomes a worker.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::real::{Addons, IGNORED_CHECK, Images, KubeadmCluster, Machine, Site};
use kcp_tests::wait;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, from_value, json};

use crate::node::hostile_options;
use crate::node::join_script::token_of;
use crate::real_machines::full::{Clock, file_on};
use crate::real_machines::on_machines;
use crate::real_machines::scripts::{hash_of, refuses, run, tears_down};

/// The configuration of the network plugin, which a teardown removes. The DaemonSet of a real plugin would write it again.
const NETWORK: &str = "/etc/cni/net.d/10-machine.conflist";

#[test]
#[ignore = "needs root: make test-machines PART=full"]
fn hosts_join_and_leave_by_scripts() {
    on_machines("nodes", Images::ControlPlane, async |site| {
        let mut scene = Scene::start(site).await?;
        scene.refused_joins_leave_nothing().await?;
        scene.a_worker_joins().await?;
        scene.a_worker_joins_by_cloud_init().await?;
        scene.a_budget_delays_a_removal().await?;
        scene.the_control_plane_grows().await?;
        scene.a_host_of_the_control_plane_is_lost().await?;
        scene.the_first_machine_becomes_a_worker().await
    });
}

struct Scene {
    site: Arc<Site>,
    cluster: KubeadmCluster,
    first: Arc<Machine>,
    worker: Arc<Machine>,
    /// The machines that joined the control plane.
    others: Vec<Arc<Machine>>,
    /// The `--install` of a kubeadm, and its hash.
    download: (String, String),
    /// The number of scripts that were created.
    scripts: u32,
    clock: Clock,
}

impl Scene {
    async fn start(site: &Arc<Site>) -> Result<Self> {
        let mut clock = Clock::start();
        let (first, worker) = (site.machine("first")?, site.machine("worker")?);
        tokio::try_join!(first.power_on(), worker.power_on())?;
        let cluster = KubeadmCluster::init(&first, Addons::None).await?;
        cluster.ready(&["first"]).await?;
        clock.lap("kubeadm init");
        Ok(Self {
            site: site.clone(),
            cluster,
            first,
            worker,
            others: Vec::new(),
            download: serve_kubeadm(site)?,
            scripts: 0,
            clock,
        })
    }

    /// Each script is refused on the host that joins afterwards.
    async fn refused_joins_leave_nothing(&mut self) -> Result<()> {
        let before = self.tokens().await?;
        for (option, value) in hostile_options() {
            let refused = self.kcp_node(&["join-script", option, &value]).await?;
            ensure!(refused.code == 2 && refused.stdout.is_empty(), "{refused}");
        }
        ensure!(self.tokens().await? == before, "a refused script has a token");

        let (download, hash) = self.download.clone();
        let other_hash = "0".repeat(hash.len());
        let script = self
            .join_script(&["--install", &download.replace(&hash, &other_hash)])
            .await?;
        let refusal = format!("does not have the SHA-256 {other_hash}");
        self.is_refused(&script, &["error: kubeadm from http://", &refusal])
            .await?;

        let script = self.join_script(&[]).await?;
        let (id, secret) = token_of(&script)?;
        let hash = hash_of(&script)?;
        self.is_refused(
            &script.replace(&hash, &"8".repeat(hash.len())),
            &["are pinned", "error: this host did not join the cluster"],
        )
        .await?;
        let other_secret = "0".repeat(secret.len());
        // kubeadm alone gets the wrong secret.
        self.is_refused(
            &script.replace(&format!("{id}.{secret}"), &format!("{id}.{other_secret}")),
            &["JWS", "error: this host did not join the cluster"],
        )
        .await?;
        let rejected = format!("error: the API server rejects the token {id}");
        let unchanged = "nothing was changed on this host";
        self.is_refused(&script.replace(&secret, &other_secret), &[&rejected, unchanged])
            .await?;

        let expired = self.join_script(&[]).await?;
        let (expired_id, expired_secret) = token_of(&expired)?;
        self.expire(&expired_id).await?;
        self.is_rejected(&format!("{expired_id}.{expired_secret}"))
            .await?;
        let rejected_expired =
            format!("error: the API server rejects the token {expired_id}: it has expired");
        self.is_refused(&expired, &[&rejected_expired, unchanged]).await?;

        let name = format!("bootstrap-token-{id}");
        let delete = ["-n", "kube-system", "delete", "secret", &name];
        self.cluster.kubectl().succeed(delete).await?;
        self.is_rejected(&format!("{id}.{secret}")).await?;
        self.is_refused(&script, &[&rejected, unchanged]).await?;

        let taken = from_value(json!({"metadata": {"name": self.worker.name()}}))?;
        self.nodes().create(&PostParams::default(), &taken).await?;
        let script = self.join_script(&[]).await?;
        let wanted = format!("error: the cluster already has a Node {}", self.worker.name());
        self.refuses_on_host(&script, &[&wanted, unchanged]).await?;
        self.nodes()
            .delete(self.worker.name(), &DeleteParams::default())
            .await?;
        self.clock.lap("refused joins");
        Ok(())
    }

    async fn a_worker_joins(&mut self) -> Result<()> {
        let (download, hash) = self.download.clone();
        let options = [
            "--hostname",
            "worker",
            "--labels",
            "rack=r1,pool=batch",
            "--install",
            &download,
        ];
        self.joins(&self.worker.clone(), &options).await?;
        self.cluster.ready(&["first", "worker"]).await?;
        let installed = self
            .worker
            .succeed(["sha256sum", "/usr/local/bin/kubeadm"])
            .await?;
        ensure!(installed.stdout.starts_with(&hash), "{installed}");
        let node = self.nodes().get("worker").await?;
        let labels = node.metadata.labels.unwrap_or_default();
        ensure!(
            labels.get("rack").map(String::as_str) == Some("r1")
                && labels.get("pool").map(String::as_str) == Some("batch"),
            "{labels:?}"
        );
        self.clock.lap("a worker joins by a script");
        Ok(())
    }

    /// Debian's cloud-init runs the script at the first boot.
    async fn a_worker_joins_by_cloud_init(&mut self) -> Result<()> {
        let host = self.site.machine("clouded")?;
        host.bootstrap_with(&self.join_script(&["-o", "cloud-init"]).await?)?;
        host.power_on().await?;
        self.cluster.ready(&["clouded", "first", "worker"]).await?;
        self.clock.lap("a worker joins by cloud-init");
        self.leaves(&host, &[]).await?;
        host.wipe().await?;
        self.cluster.ready(&["first", "worker"]).await?;
        self.clock.lap("it leaves");
        Ok(())
    }

    async fn a_budget_delays_a_removal(&mut self) -> Result<()> {
        let pod = self.run_shop().await?;
        let before = self.nodes().get("worker").await?;
        let file = self.file("never-written.sh");
        let removal = [
            "remove",
            "worker",
            "--yes",
            "--timeout",
            "10s",
            "--output-file",
            &file,
        ];
        let stopped = self.kcp_node(&removal).await?;
        let expected = format!(
            "node/worker not removed: pods are left after 10s; only the cordon remains, and evicted pods run elsewhere\n  \
             PodDisruptionBudget default/shop allows no disruption of pod default/{pod}\n"
        );
        ensure!(stopped.code == 1 && stopped.stdout == expected, "{stopped}");
        ensure!(fs::metadata(&file).is_err(), "{file} was written");
        let mut after = self
            .nodes()
            .get("worker")
            .await?
            .spec
            .context("a Node has a spec")?;
        ensure!(after.unschedulable == Some(true), "the Node is not cordoned");
        ensure!(self.shop_pods().await? == [pod], "the pod has left");
        after.unschedulable = None;
        let taints = after.taints.take().unwrap_or_default();
        ensure!(
            taints
                .iter()
                .all(|taint| taint.key == "node.kubernetes.io/unschedulable"),
            "{taints:?}"
        );
        ensure!(
            Some(after) == before.spec
                && before.metadata.labels == self.nodes().get("worker").await?.metadata.labels,
            "more than the cordon remains"
        );
        self.clock.lap("a budget that allows nothing");

        let kubectl = self.cluster.kubectl();
        kubectl.succeed(["delete", "poddisruptionbudget", "shop"]).await?;
        let network = file_on(&self.worker, NETWORK)?;
        self.leaves(&self.worker.clone(), &[]).await?;
        kubectl.succeed(["delete", "deployment", "shop"]).await?;
        self.cluster.ready(&["first"]).await?;
        // The host is as before the first join.
        self.worker.write(NETWORK, &network)?;
        self.joins(&self.worker.clone(), &[]).await?;
        self.cluster.ready(&["first", "worker"]).await?;
        self.clock.lap("the worker leaves, and joins again");
        Ok(())
    }

    async fn the_control_plane_grows(&mut self) -> Result<()> {
        self.has_members(&self.first, &["first"]).await?;
        let key = self.file("certificate-key");
        fs::write(&key, self.cluster.certificate_key()).with_context(|| format!("writing {key}"))?;
        let options = ["--control-plane", "--certificate-key-file", &key];
        for (name, members) in [
            ("second", ["first", "second"].as_slice()),
            ("third", &["first", "second", "third"]),
        ] {
            let machine = self.site.machine(name)?;
            machine.power_on().await?;
            let script = self.join_script(&options).await?;
            let expired = set_value(&script, "certificates_expire", "2020-01-01T00:00:00Z")?;
            let why = "error: the cluster has deleted the certificates that this host needs, at 2020-01-01T00:00:00Z";
            refuses(&machine, &expired, &[why, "nothing was changed on this host\n"]).await?;
            self.joins(&machine, &options).await?;
            self.has_members(&self.first, members).await?;
            self.others.push(machine);
        }
        self.cluster
            .ready(&["first", "second", "third", "worker"])
            .await?;
        self.clock.lap("two control plane hosts join by scripts");
        Ok(())
    }

    /// Its Node is deleted, but etcd still lists its member: the real kubeadm lets no other host join until the member is removed.
    async fn a_host_of_the_control_plane_is_lost(&mut self) -> Result<()> {
        let lost = self.others.pop().context("no machine has joined")?;
        let name = lost.name().to_owned();
        // A wiped machine would give its address to the next.
        lost.power_off().await?;
        self.nodes().delete(&name, &DeleteParams::default()).await?;
        let fourth = self.site.machine("fourth")?;
        fourth.power_on().await?;
        let key = self.file("certificate-key");
        let options = ["--control-plane", "--certificate-key-file", &key];
        let script = self.join_script(&options).await?;
        let refused = refuses(&fourth, &script, &["error: this host did not join the cluster"]).await?;
        // kubeadm's own check, or else etcd's, if kubeadm connects only to the other members.
        let reasons = ["etcd cluster is not healthy", "etcdserver: unhealthy cluster"];
        ensure!(
            reasons.iter().any(|reason| refused.to_string().contains(reason)),
            "{refused}"
        );
        self.clock.lap("a join beside a member without a Node fails");

        let files = self.etcd_files();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let refused = self
            .kcp_node(&[["join-script"].as_slice(), &options, &files].concat())
            .await?;
        let why = format!("etcd lists the member {name}, but the cluster has no Node {name}");
        ensure!(refused.code == 1 && refused.stderr.contains(&why), "{refused}");
        let removed = self
            .kcp_node(&[["remove", &name, "--yes"].as_slice(), &files].concat())
            .await?;
        ensure!(removed.code == 0, "{removed}");
        self.has_members(&self.first, &["first", "second"]).await?;
        self.joins(&fourth, &[options.as_slice(), &files].concat())
            .await?;
        self.has_members(&self.first, &["first", "fourth", "second"])
            .await?;
        self.others.push(fourth);
        self.clock.lap("the member is removed, and the host joins");
        Ok(())
    }

    /// The options with the files of etcd on the first machine.
    fn etcd_files(&self) -> [String; 6] {
        let file = |name: &str| {
            self.first
                .file(&format!("/etc/kubernetes/pki/etcd/{name}"))
                .display()
                .to_string()
        };
        [
            "--etcd-ca".to_owned(),
            file("ca.crt"),
            "--etcd-certificate".to_owned(),
            file("healthcheck-client.crt"),
            "--etcd-key".to_owned(),
            file("healthcheck-client.key"),
        ]
    }

    async fn the_first_machine_becomes_a_worker(&mut self) -> Result<()> {
        let network = file_on(&self.first, NETWORK)?;
        let second = self
            .others
            .first()
            .context("only one machine has a member")?
            .clone();
        let files = self.etcd_files();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let script = self.remove(&self.first, &files).await?;
        self.has_members(&second, &["fourth", "second"]).await?;
        tears_down(&self.first, &script).await?;
        let left = file_names(&self.first, "/var/lib/etcd")?;
        ensure!(left.is_empty(), "etcd's data remains: {left:?}");
        self.has_members(&second, &["fourth", "second"]).await?;
        self.cluster.ready(&["fourth", "second", "worker"]).await?;
        self.clock.lap("the first machine leaves");

        self.first.write(NETWORK, &network)?;
        self.joins(&self.first.clone(), &["--hostname", "first"]).await?;
        self.has_members(&second, &["fourth", "second"]).await?;
        self.cluster
            .ready(&["first", "fourth", "second", "worker"])
            .await?;
        let labels = self
            .nodes()
            .get("first")
            .await?
            .metadata
            .labels
            .unwrap_or_default();
        ensure!(
            !labels.contains_key("node-role.kubernetes.io/control-plane"),
            "{labels:?}"
        );
        self.clock.lap("it joins again as a worker");
        Ok(())
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client().clone())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.cluster.client().clone(), "kube-system")
    }

    /// The path of a file that our plugin writes.
    fn file(&self, name: &str) -> String {
        self.site.folder().join(name).display().to_string()
    }

    async fn kcp_node(&self, arguments: &[&str]) -> Result<CommandOutput> {
        let command = ["kcp", "node"].iter().chain(arguments);
        self.cluster.kubectl().run(command).await
    }

    async fn tokens(&self) -> Result<BTreeSet<String>> {
        let tokens = ListParams::default().fields("type=bootstrap.kubernetes.io/token");
        let names = self.secrets().list(&tokens).await?.items.into_iter();
        Ok(names.filter_map(|secret| secret.metadata.name).collect())
    }

    /// Sets the end of a token to the past. The real token cleaner may delete the token at once.
    async fn expire(&self, id: &str) -> Result<()> {
        let past = json!({"stringData": {"expiration": "2020-01-01T00:00:00Z"}});
        let name = format!("bootstrap-token-{id}");
        self.secrets()
            .patch(&name, &PatchParams::default(), &Patch::Merge(&past))
            .await?;
        Ok(())
    }

    /// Waits until the API server rejects a token, which it learns from a watch.
    async fn is_rejected(&self, token: &str) -> Result<()> {
        let (host, port) = self.site.endpoint();
        let (header, url) = (
            format!("Authorization: Bearer {token}"),
            format!("https://{host}:{port}/version"),
        );
        let request = [
            "curl",
            "--silent",
            "--insecure",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
        ];
        wait::until("the API server rejects the token", || async {
            let command = request.iter().copied().chain(["--header", &header, &url]);
            let code = self.worker.exec(command).await?.stdout;
            ensure!(code == "401", "{code}");
            Ok(())
        })
        .await
    }

    /// The text of a new script. While a host joins or leaves the control plane, the load balancer may close a connection, and a
    /// person would repeat the command.
    async fn join_script(&mut self, options: &[&str]) -> Result<String> {
        self.scripts += 1;
        let file = self.file(&format!("join-{}", self.scripts));
        let fixed = [
            "join-script",
            "--ignore-preflight-errors",
            IGNORED_CHECK,
            "--output-file",
            &file,
        ];
        let arguments: Vec<&str> = fixed.iter().chain(options).copied().collect();
        wait::until("a join script is created", || async {
            let created = self.kcp_node(&arguments).await?;
            ensure!(created.code == 0, "{created}");
            Ok(())
        })
        .await?;
        fs::read_to_string(&file).with_context(|| format!("reading {file}"))
    }

    /// Creates a script and runs it on a host, which must join.
    async fn joins(&mut self, host: &Machine, options: &[&str]) -> Result<()> {
        let script = self.join_script(options).await?;
        let joined = run(host, &script).await?;
        let last = format!("node {} is Ready\n", host.name());
        ensure!(joined.code == 0 && joined.stderr.ends_with(&last), "{joined}");
        Ok(())
    }

    /// Removes a Node, and runs the script for its host.
    async fn leaves(&self, host: &Machine, options: &[&str]) -> Result<()> {
        let script = self.remove(host, options).await?;
        tears_down(host, &script).await.map(drop)
    }

    /// Removes a Node, and returns the script for its host.
    async fn remove(&self, host: &Machine, options: &[&str]) -> Result<String> {
        let file = self.file(&format!("teardown-{}-{}", host.name(), self.scripts));
        let fixed = ["remove", host.name(), "--yes", "--output-file", &file];
        let arguments: Vec<&str> = fixed.iter().chain(options).copied().collect();
        let removed = self.kcp_node(&arguments).await?;
        let expected = format!("node/{} removed", host.name());
        ensure!(
            removed.code == 0 && removed.stdout.starts_with(&expected),
            "{removed}"
        );
        fs::read_to_string(&file).with_context(|| format!("reading {file}"))
    }

    /// The host refuses, no file of it changes, and no Node appears.
    async fn is_refused(&self, script: &str, messages: &[&str]) -> Result<()> {
        self.refuses_on_host(script, messages).await?;
        let nodes = self.nodes().list(&ListParams::default()).await?.items;
        let names: Vec<_> = nodes.into_iter().filter_map(|node| node.metadata.name).collect();
        ensure!(names == ["first"], "the Nodes are {names:?}");
        Ok(())
    }

    async fn refuses_on_host(&self, script: &str, messages: &[&str]) -> Result<()> {
        let before = files(&self.worker).await?;
        let refused = refuses(&self.worker, script, messages).await?;
        ensure!(
            files(&self.worker).await? == before,
            "files have changed after: {refused}"
        );
        Ok(())
    }

    /// Waits until these are the members of etcd, by the real etcdctl from one of them.
    async fn has_members(&self, member: &Machine, expected: &[&str]) -> Result<()> {
        let certificates = "/etc/kubernetes/pki/etcd";
        let file = |name: &str| {
            member
                .file(&format!("{certificates}/{name}"))
                .display()
                .to_string()
        };
        let list = [
            format!("--endpoints=https://{}:2379", member.address()),
            format!("--cacert={}", file("ca.crt")),
            format!("--cert={}", file("healthcheck-client.crt")),
            format!("--key={}", file("healthcheck-client.key")),
            "member".to_owned(),
            "list".to_owned(),
            "--write-out=json".to_owned(),
        ];
        let etcdctl = self.site.assets().program("etcdctl").display().to_string();
        wait::until(&format!("etcd's members are {}", expected.join(", ")), || async {
            let listed = self.cluster.kubectl().script(&etcdctl, &list).await?;
            ensure!(listed.code == 0, "{listed}");
            let members: Value = serde_json::from_str(&listed.stdout).with_context(|| listed.to_string())?;
            let members = members.get("members").and_then(Value::as_array);
            let mut names: Vec<_> = members
                .into_iter()
                .flatten()
                .filter(|member| member.get("isLearner") != Some(&json!(true)))
                .filter_map(|member| member.get("name")?.as_str())
                .collect();
            names.sort_unstable();
            ensure!(names == expected, "{listed}");
            Ok(())
        })
        .await
    }

    /// Runs a pod that a PodDisruptionBudget protects on the worker. Returns its name.
    async fn run_shop(&self) -> Result<String> {
        let labels = json!({"app": "shop"});
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"},
                "spec": {"selector": {"matchLabels": labels}, "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeSelector": {"rack": "r1"},
                        "containers": [{"name": "pause", "image": self.site.sandbox_image()}],
                    },
                }},
            },
            {
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "shop"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
            },
        ]});
        let file = self.file("shop.json");
        fs::write(&file, objects.to_string()).with_context(|| format!("writing {file}"))?;
        let kubectl = self.cluster.kubectl();
        kubectl.succeed(["create", "-f", &file]).await?;
        kubectl
            .succeed(["rollout", "status", "deployment/shop", "--timeout=5m"])
            .await?;
        wait::until("the budget has a status", || async {
            let healthy = "jsonpath={.status.currentHealthy}";
            let found = kubectl
                .succeed(["get", "pdb", "shop", "-o", healthy])
                .await?
                .stdout;
            ensure!(found == "1", "{found} pods are healthy");
            Ok(())
        })
        .await?;
        self.shop_pods().await?.pop().context("there is no pod")
    }

    async fn shop_pods(&self) -> Result<Vec<String>> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client().clone(), "default");
        let pods = pods.list(&ListParams::default().labels("app=shop")).await?.items;
        Ok(pods.into_iter().filter_map(|pod| pod.metadata.name).collect())
    }
}

/// Serves a kubeadm with another hash than that of the machines, by HTTP at the address of the load balancer, as long as this process
/// runs. Returns the value for `--install`, and the hash.
fn serve_kubeadm(site: &Site) -> Result<(String, String)> {
    let mut program = fs::read(site.program("kubeadm")).context("reading kubeadm")?;
    // Linux ignores what follows an ELF file.
    program.push(0);
    let copy = site.folder().join("kubeadm");
    fs::write(&copy, &program).context("writing kubeadm")?;
    let hashed = Command::new("sha256sum").arg(&copy).output()?;
    let hashed = String::from_utf8(hashed.stdout)?;
    let hash = hashed.split_whitespace().next().context("no hash")?.to_owned();

    let listener = TcpListener::bind((site.endpoint().0, 0)).context("listening")?;
    let url = format!("http://{}/kubeadm", listener.local_addr()?);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = BufReader::new(&stream).lines().map_while(Result::ok);
            let _ = request.find(String::is_empty);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                program.len()
            );
            // A client that has gone does not need the rest.
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(&program));
        }
    });
    Ok((format!("kubeadm={url},sha256={hash}"), hash))
}

fn file_names(host: &Machine, folder: &str) -> Result<Vec<String>> {
    let entries = fs::read_dir(host.file(folder)).with_context(|| format!("listing {folder}"))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// The paths and the hashes of the files that a join could leave.
async fn files(host: &Machine) -> Result<String> {
    let list = "find /etc /root /tmp /run/systemd/system /var/lib/kubelet /var/lib/etcd /usr/local -type f \
                -exec sha256sum {} + 2>/dev/null | sort";
    Ok(host.exec(["sh", "-c", list]).await?.stdout)
}

/// The script with another value of a variable.
fn set_value(script: &str, name: &str, value: &str) -> Result<String> {
    let (before, rest) = script
        .split_once(&format!("\n{name}='"))
        .with_context(|| format!("the script has no {name}"))?;
    let (_, after) = rest.split_once('\'').context("no end of the value")?;
    Ok(format!("{before}\n{name}='{value}'{after}"))
}
