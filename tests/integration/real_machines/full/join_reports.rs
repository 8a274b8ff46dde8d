//! New machines on which kubeadm fails, one failure after the other: what `why` says, with and without the report of the host, and how
//! soon after the machine was switched on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::machines::real::{Fleet, Machine, Site};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{manifests, wait};
use serde_json::{Value, json};

use crate::real_machines::full::cluster_api::{NAME, NAMESPACE, VERSION, kcp};
use crate::real_machines::full::{Clock, with_cluster_api, workload_kubeconfig};

/// How long a kubeadm may run without a report.
const SLOW_AFTER: &str = "30s";

/// The namespace of the reports.
const REPORTS: &str = "kcp-join-reports";

/// kubeadm gives up much sooner, see [`add_report`].
const REPORT_LIMIT: Duration = Duration::from_secs(240);

/// Cluster API must notice that the earlier Machine is gone.
const REPLACE_LIMIT: Duration = Duration::from_secs(120);

/// A failure of kubeadm on a new machine.
struct Failure {
    name: &'static str,
    /// What damages the machine, as a shell script. FIRST is the name of the first machine, and SERVER its address.
    damage: &'static str,
    shown: Shown,
    /// Whether kubeadm adds a learner to etcd before it fails.
    leaves_learner: bool,
    /// What the report says.
    says: &'static str,
}

/// Where a report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// The host can create an Event.
    Why,
    /// The host cannot, so it writes to its console.
    Console,
}

const FAILURES: [Failure; 7] = [
    Failure {
        name: "an image that cannot be pulled",
        damage: "sed -i 's/imagePullPolicy: Never/imagePullPolicy: IfNotPresent/' /run/kubeadm/kubeadm-join-config.yaml
ctr -n k8s.io images ls -q | grep kube-scheduler | xargs ctr -n k8s.io images rm",
        shown: Shown::Why,
        leaves_learner: false,
        says: "kubeadm has failed in its phase preflight: an image cannot be pulled: [ERROR ImagePull]: failed to pull image \
               registry.k8s.io/kube-scheduler:v1.36.3",
    },
    Failure {
        name: "a host name that is taken",
        damage: "hostname FIRST; sed -i -E 's/^( *name:).*/\\1 FIRST/' /run/kubeadm/kubeadm-join-config.yaml",
        shown: Shown::Why,
        leaves_learner: false,
        says: "kubeadm has failed in its phase kubelet-start: the cluster already has a Node with the name of this host",
    },
    Failure {
        name: "a full disk",
        damage: "mkdir -p /var/lib/kubelet; mount -t tmpfs -o size=64k tmpfs /var/lib/kubelet
dd if=/dev/zero of=/var/lib/kubelet/filler bs=4k || true",
        shown: Shown::Why,
        leaves_learner: false,
        says: "kubeadm has failed in its phase kubelet-start: a disk of the host is full",
    },
    Failure {
        name: "a wrong flag of the kubelet",
        damage: "sed -i 's/EXTRA_ARGS=/&--no-such-flag /' /etc/default/kubelet",
        shown: Shown::Why,
        leaves_learner: true,
        says: "a program on the host does not know one of its flags",
    },
    Failure {
        name: "no route to the endpoint",
        damage: "ip route add unreachable \"$(sed -n 's/^ *apiServerEndpoint: \\(.*\\):.*/\\1/p' /run/kubeadm/kubeadm-join-config.yaml)\"",
        shown: Shown::Console,
        leaves_learner: false,
        says: "kubeadm has failed in its phase preflight: the control plane endpoint cannot be reached",
    },
    Failure {
        name: "an expired token",
        // What is left of a token that has expired: the API server and the signer of cluster-info do not know it.
        damage: "sed -i -E 's/^( *token: ).*/\\1abcdef.0123456789abcdef/' /run/kubeadm/kubeadm-join-config.yaml",
        shown: Shown::Console,
        leaves_learner: false,
        says: "kubeadm has failed in its phase preflight: the bootstrap token has expired, or the cluster does not know it",
    },
    Failure {
        // No machine has a clock of its own. To a host whose clock is in the past, certificates are from the future, and so is the
        // one that this host gets at the endpoint.
        name: "a wrong clock",
        damage: "cd /root; mkdir ca; : >ca/index.txt; pki=/etc/kubernetes/pki
host=$(sed -n 's/^ *apiServerEndpoint: \\(.*\\):.*/\\1/p' /run/kubeadm/kubeadm-join-config.yaml)
printf '[ca]\\ndefault_ca=d\\n[d]\\ndatabase=ca/index.txt\\nnew_certs_dir=ca\\nrand_serial=yes\\ndefault_md=sha256\\npolicy=p\\n[p]\\n\
CN=supplied\\n[e]\\nsubjectAltName=IP:%s\\n' \"$host\" >ca.cnf
openssl req -newkey rsa:2048 -nodes -keyout future.key -subj /CN=kube-apiserver -out future.csr
openssl ca -batch -config ca.cnf -extensions e -in future.csr -out future.crt -cert $pki/ca.crt -keyfile $pki/ca.key \
-startdate 20400101000000Z -enddate 20410101000000Z -notext
systemd-run --unit=future socat OPENSSL-LISTEN:7443,bind=127.0.0.1,fork,reuseaddr,cert=/root/future.crt,key=/root/future.key,verify=0 \
OPENSSL:SERVER:6443,verify=0
iptables -t nat -A OUTPUT -p tcp -d \"$host\" --dport 6443 -j REDIRECT --to-ports 7443",
        shown: Shown::Console,
        leaves_learner: false,
        says: "kubeadm has failed in its phase preflight: a certificate is not valid at the time of the host's clock",
    },
];

#[test]
#[ignore = "needs root: make test-machines PART=full"]
fn hosts_report_why_they_do_not_join() {
    with_cluster_api("join-reports", async |site, management| {
        let mut scene = Scene::start(site, management).await?;
        for failure in &FAILURES {
            scene.fails(failure).await.context(failure.name)?;
        }
        scene.joins().await
    });
}

struct Scene<'m> {
    management: &'m ManagementCluster,
    cluster: Cluster,
    fleet: Arc<Fleet>,
    workload: Kubectl,
    first: Arc<Machine>,
    /// The Machines that have been seen.
    known: BTreeSet<String>,
    /// The Machine on which kubeadm has failed last, and whether it has added a learner to etcd before.
    failed: Option<(String, bool)>,
    clock: Clock,
}

impl<'m> Scene<'m> {
    async fn start(site: &Arc<Site>, management: &'m ManagementCluster) -> Result<Self> {
        let mut clock = Clock::start();
        let fields = generated(management.kubectl(), "control-plane").await?;
        let change = |kubeadm: &mut Value| add_report(kubeadm, &fields);
        let cluster =
            Cluster::create_on_real_machines_with(management.client(), (NAMESPACE, NAME), VERSION, change)
                .await?;
        cluster.settled(1).await?;
        let fleet = management.machines().fleet()?.clone();
        let machines = fleet.machines().await;
        let first = machines.first().context("there is no machine")?.clone();
        let workload = Kubectl::new(
            site.run(),
            site.assets(),
            workload_kubeconfig(site, management, &cluster).await?,
        )?;
        let words = ["kcp", "generate", "join-report", "--part", "workload-cluster"];
        let objects = management.kubectl().succeed(words).await?.stdout;
        let file = site.folder().join("join-reports.yaml");
        std::fs::write(&file, objects).with_context(|| format!("writing {}", file.display()))?;
        workload
            .succeed(["apply", "-f", &file.display().to_string()])
            .await?;
        clock.lap("one machine of Cluster API, which reports nothing");
        Ok(Self {
            management,
            known: [first.name().to_owned()].into(),
            cluster,
            fleet,
            workload,
            first,
            failed: None,
            clock,
        })
    }

    /// Creates a machine with a failure, and waits for its report.
    async fn fails(&mut self, failure: &Failure) -> Result<()> {
        let first = self.first.name();
        let damage = failure
            .damage
            .replace("FIRST", first)
            .replace("SERVER", &self.first.address());
        // The machine has no serial port, so a file is its console.
        self.fleet
            .damage_next(&format!(": >>/dev/console\n{damage}\n"))
            .await;
        let machine = self.next_machine().await?;
        let began = Instant::now();
        let name = machine.name().to_owned();
        let reported = match failure.shown {
            Shown::Why => self.why_says(&name, failure.says).await,
            Shown::Console => console_says(&machine, failure.says).await,
        };
        let seconds = began.elapsed().as_secs();
        if reported.is_err() {
            eprintln!("{}", on_host(&machine).await?);
        }
        let reported = reported?;
        let place = match failure.shown {
            Shown::Why => "why",
            Shown::Console => "console",
        };
        let what = failure.name;
        eprintln!("{seconds:>5} s  {place}: {what}: {reported}");
        // Neither the token, nor a key.
        let token = machine
            .succeed([
                "sed",
                "-n",
                "s/^ *token: //p",
                "/run/kubeadm/kubeadm-join-config.yaml",
            ])
            .await?;
        let reports = self
            .workload
            .succeed(["get", "events", "-n", REPORTS, "-o", "yaml"])
            .await?
            .stdout;
        let (_, secret) = token.stdout.trim().split_once('.').context("no token")?;
        ensure!(
            !secret.is_empty() && !reports.contains(secret),
            "a report has a secret"
        );

        // Without the report.
        let delete = ["delete", "events", "-n", REPORTS, "--all"];
        self.workload.succeed(delete).await?;
        let unreported = self.why().await?;
        let (_, cause) = failure.says.rsplit_once(": ").unwrap_or(("", failure.says));
        ensure!(
            unreported.code == 0
                && unreported
                    .words()
                    .starts_with("kubeadm on the new Machine acts next: ")
                && !unreported.words().contains(cause),
            "{unreported}"
        );
        self.failed = Some((name, failure.leaves_learner));
        self.clock.lap(failure.name);
        Ok(())
    }

    /// A machine without a failure joins, and reports nothing.
    async fn joins(&mut self) -> Result<()> {
        let machine = self.next_machine().await?;
        self.cluster.settled(3).await?;
        let unit = ["systemctl", "is-active", "kcp-join-report"];
        wait::until("the reporter has ended", || async {
            let state = machine.exec(unit).await?;
            ensure!(state.stdout.trim() == "inactive", "{state}");
            Ok(())
        })
        .await?;
        let events = ["get", "events", "-n", REPORTS, "-o", "name"];
        let events = self.workload.succeed(events).await?;
        ensure!(events.stdout.is_empty(), "{events}");
        self.clock.lap("two machines join, and report nothing");
        Ok(())
    }

    /// Lets Cluster API create a machine: the second one, or one instead of that on which kubeadm has failed.
    async fn next_machine(&mut self) -> Result<Arc<Machine>> {
        match self.failed.take() {
            None => self.cluster.patch(&json!({"spec": {"replicas": 3}})).await?,
            Some((failed, has_learner)) => {
                // As the hint says.
                let replace = ["machine", "replace", &failed, "--yes", "--force"];
                let unforced = replace.get(..4).unwrap_or(&replace);
                wait::until_within("the failed Machine may be replaced", REPLACE_LIMIT, || async {
                    let mut replaced = kcp(self.management, unforced).await?;
                    if has_learner {
                        // It could still become a voter, and take the quorum of the only other member.
                        let risk = "does not vote yet: if kubeadm lets it vote before the host is gone, etcd loses its quorum";
                        ensure!(replaced.code == 1 && replaced.words().contains(risk), "{replaced}");
                        replaced = kcp(self.management, &replace).await?;
                    }
                    ensure!(replaced.code == 0, "{replaced}");
                    Ok(())
                })
                .await?;
            }
        }
        let machine = wait::until("there is a new machine", || async {
            let machines = self.fleet.machines().await;
            let mut new = machines
                .into_iter()
                .filter(|machine| !self.known.contains(machine.name()));
            let machine = new.next().context("there is none")?;
            ensure!(machine.is_on().await, "it is off");
            Ok(machine)
        })
        .await?;
        self.known.insert(machine.name().to_owned());
        Ok(machine)
    }

    async fn why(&self) -> Result<CommandOutput> {
        kcp(self.management, &["why", NAME]).await
    }

    /// Waits until `why` and `machine diagnose` name the cause.
    async fn why_says(&self, machine: &str, text: &str) -> Result<String> {
        let why = wait::until_within("why names the cause", REPORT_LIMIT, || async {
            let why = self.why().await?;
            let said = format!("A person must act: Machine/{machine}: its host ");
            let words = why.words();
            ensure!(
                why.code == 1 && words.starts_with(&said) && words.contains(text),
                "{why}"
            );
            Ok(words)
        })
        .await?;
        // A command that cannot read the reports in time says the same as without them.
        wait::until_within(
            "machine diagnose and status name the cause",
            REPORT_LIMIT,
            || async {
                let diagnosed = kcp(self.management, &["machine", "diagnose", machine]).await?;
                ensure!(
                    diagnosed.code == 1 && diagnosed.words().contains(text),
                    "{diagnosed}"
                );
                let status = kcp(self.management, &["status", NAME]).await?;
                ensure!(status.code == 1 && status.words().contains(text), "{status}");
                Ok(())
            },
        )
        .await?;
        Ok(why)
    }
}

async fn console_says(machine: &Machine, text: &str) -> Result<String> {
    wait::until_within("the console names the cause", REPORT_LIMIT, || async {
        let console = machine.exec(["cat", "/dev/console"]).await?.stdout;
        let said = format!("kcp-join-report: {}: {text}", machine.name());
        let mut lines = console.lines();
        let line = lines.find(|line| line.starts_with(&said));
        line.map(str::to_owned)
            .with_context(|| format!("the console has {console:?}"))
    })
    .await
}

/// What the host of a report that is not as expected knows.
async fn on_host(machine: &Machine) -> Result<String> {
    let script = "tail -n 40 /var/log/cloud-init-output.log; journalctl -u kcp-join-report --no-pager -n 40; cat /dev/console";
    let known = machine.exec(["sh", "-c", script]).await?;
    Ok(format!("{}{}", known.stdout, known.stderr))
}

/// The document of a part that `generate join-report` prints.
async fn generated(kubectl: &Kubectl, part: &str) -> Result<Value> {
    let words = [
        "kcp",
        "generate",
        "join-report",
        "--part",
        part,
        "--slow-after",
        SLOW_AFTER,
    ];
    let printed = kubectl.succeed(words).await?;
    let mut documents = manifests::parse(&printed.stdout)?;
    documents.pop().context("no document")
}

/// Appends the printed lists, and lets kubeadm give up sooner than after minutes.
fn add_report(kubeadm: &mut Value, printed: &Value) {
    let Some(fields) = kubeadm.as_object_mut() else {
        return;
    };
    for list in ["files", "preKubeadmCommands"] {
        let items = printed.pointer(&format!("/spec/kubeadmConfigSpec/{list}"));
        let items = items.and_then(Value::as_array).cloned().unwrap_or_default();
        let all = fields.entry(list).or_insert_with(|| json!([]));
        if let Some(all) = all.as_array_mut() {
            all.extend(items);
        }
    }
    let timeouts =
        json!({"discoverySeconds": 20, "kubeletHealthCheckSeconds": 40, "tlsBootstrapSeconds": 40});
    if let Some(join) = fields.get_mut("joinConfiguration").and_then(Value::as_object_mut) {
        join.insert("timeouts".to_owned(), timeouts);
    }
}
