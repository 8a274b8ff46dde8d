//! The CAs of etcd and of the front proxy and the keys of service accounts are rotated on three machines of Cluster API, in three
//! rollouts. The command is killed between its writes. Then nothing serves, trusts or accepts anything of the old keys.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kcp_api::names::{annotation, lease};
use kcp_tests::cluster::Cluster;
use kcp_tests::etcd::EtcdClient;
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::machines::real::{Machine, Site};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::pki::{Authority, KeyPairFiles, Subject};
use kcp_tests::process::Process;
use kcp_tests::wait;
use kube::Api;
use serde_json::json;

use crate::objects::written;
use crate::real_machines::full::cluster_api::{
    NAME, NAMESPACE, changes_are_as_planned, is_healthy, kcp, three_machines,
};
use crate::real_machines::full::recovery::is_killed;
use crate::real_machines::full::{Clock, etcd_on, with_cluster_api, workload_kubeconfig};

const ROTATE: [&str; 6] = [
    "certificates",
    "rotate",
    NAME,
    "--ca",
    "etcd,front-proxy,service-account",
    "--yes",
];

/// The suffixes of the Secrets.
const SECRETS: [&str; 3] = ["etcd", "proxy", "sa"];

const PHASES: [&str; 3] = [
    "phase 1 of 3, trust both keys",
    "phase 2 of 3, sign with the new key",
    "phase 3 of 3, trust only the new key",
];

/// The extension API server.
const GROUP: &str = "kcp.test";
const PORT: u16 = 7444;

/// The time after which the command is killed, and by how much it grows until the command has written a Secret, in milliseconds. The
/// rollout begins two seconds later.
const FIRST_KILL: u64 = 400;
const KILL_STEP: u64 = 300;

#[test]
#[ignore = "needs root: make test-machines PART=full"]
fn cas_are_rotated_while_the_cluster_runs() {
    with_cluster_api("ca-rotation", rotates);
}

async fn rotates(site: &Arc<Site>, management: &ManagementCluster) -> Result<()> {
    let mut clock = Clock::start();
    let cluster = three_machines(management, &mut clock).await?;
    let refused = kcp(
        management,
        &["certificates", "rotate", NAME, "--ca", "kubernetes", "--yes"],
    )
    .await?;
    ensure!(
        refused.code == 1 && refused.words().contains("(kubernetes/kubeadm#1350)"),
        "{refused}"
    );
    let workload = workload_kubeconfig(site, management, &cluster).await?;
    let bench = Bench {
        management,
        cluster: &cluster,
        folder: site.folder().to_owned(),
        workload: Kubectl::new(site.run(), site.assets(), workload)?,
        old: Old::save(site, management).await?,
    };
    let old_token = bench.token().await?;
    bench.accepts(&old_token).await?;
    bench.register_extension(&site.endpoint().0).await?;
    bench.extension_answers(site).await?;
    clock.lap("an extension API server answers");

    bench.begins(0, &[]).await?;
    bench.refuses_during_the_rollout().await?;
    bench.rolled_out(&mut clock, 0).await?;
    bench.old.is_accepted(&bench.machines().await?).await?;
    bench.accepts(&old_token).await?;
    bench.extension_answers(site).await?;

    bench.is_killed_before_the_rollout().await?;
    clock.lap("the command is killed between its writes");
    let ended = bench.rotate(&[]).await?;
    ensure!(
        ended.code == 0 && ended.stdout.contains("rollout started"),
        "{ended}"
    );
    ensure!(bench.phases().await? == vec![Some(1); 3], "{ended}");
    bench.rolled_out(&mut clock, 1).await?;
    bench.old.is_accepted(&bench.machines().await?).await?;
    bench.accepts(&old_token).await?;
    bench.extension_answers(site).await?;

    bench.waits_for_the_controller_and_the_tokens().await?;
    management.restart_controllers(NAMESPACE).await?;
    bench.controller_leads_since(Timestamp::now()).await?;
    clock.lap("the controllers have restarted");
    let new_token = bench.token().await?;
    bench.begins(2, &["--tokens-renewed"]).await?;
    bench.rolled_out(&mut clock, 2).await?;

    let ended = bench.rotate(&[]).await?;
    let complete = "every Machine has trusted only the new key of the etcd CA since";
    ensure!(ended.code == 0 && ended.words().contains(complete), "{ended}");
    bench.accepts(&new_token).await?;
    bench.refuses(&old_token).await?;
    bench.old.is_refused(&bench.machines().await?).await?;
    bench.has_only_the_new_keys().await?;
    bench.forgets_the_old_front_proxy().await?;
    bench.extension_answers(site).await?;
    clock.lap("nothing uses or accepts the old keys");
    changes_are_as_planned(management, &cluster, &mut clock).await
}

/// What the first Machines had.
struct Old {
    etcd_authority: PathBuf,
    etcd_client: KeyPairFiles,
    front_proxy: String,
}

impl Old {
    async fn save(site: &Site, management: &ManagementCluster) -> Result<Self> {
        let machines = management.machines().fleet()?.machines().await;
        let machine = machines.first().context("there is no machine")?;
        let copy = |path: &str, name: &str| {
            let copy = site.folder().join(name);
            let file = machine.file(path);
            fs::copy(&file, &copy).with_context(|| format!("copying {}", file.display()))?;
            anyhow::Ok(copy)
        };
        let proxy = copy("/etc/kubernetes/pki/front-proxy-ca.crt", "old-proxy.crt")?;
        Ok(Self {
            etcd_authority: copy("/etc/kubernetes/pki/etcd/ca.crt", "old-etcd.crt")?,
            etcd_client: KeyPairFiles {
                certificate: copy(
                    "/etc/kubernetes/pki/etcd/healthcheck-client.crt",
                    "old-client.crt",
                )?,
                key: copy(
                    "/etc/kubernetes/pki/etcd/healthcheck-client.key",
                    "old-client.key",
                )?,
            },
            front_proxy: fs::read_to_string(proxy)?,
        })
    }

    /// Each etcd member accepts the old client certificate.
    async fn is_accepted(&self, machines: &[Arc<Machine>]) -> Result<()> {
        for machine in machines {
            let authority = machine.file("/etc/kubernetes/pki/etcd/ca.crt");
            self.status(machine, &authority, &self.etcd_client).await?;
        }
        Ok(())
    }

    /// No etcd member accepts the old client certificate, and no member has a certificate of the old CA.
    async fn is_refused(&self, machines: &[Arc<Machine>]) -> Result<()> {
        for machine in machines {
            etcd_on(machine).await?.status().await?;
            let authority = machine.file("/etc/kubernetes/pki/etcd/ca.crt");
            let old_client = self.status(machine, &authority, &self.etcd_client).await;
            ensure!(old_client.is_err(), "{} accepts the old client", machine.name());
            let file = |name: &str| machine.file(&format!("/etc/kubernetes/pki/etcd/{name}"));
            let new_client = KeyPairFiles {
                certificate: file("healthcheck-client.crt"),
                key: file("healthcheck-client.key"),
            };
            self.status(machine, &authority, &new_client).await?;
            let old_server = self.status(machine, &self.etcd_authority, &new_client).await;
            ensure!(old_server.is_err(), "{} is trusted by the old CA", machine.name());
        }
        Ok(())
    }

    async fn status(&self, machine: &Machine, authority: &Path, client: &KeyPairFiles) -> Result<()> {
        let address = machine.address().parse()?;
        EtcdClient::new(address, authority, client)
            .await?
            .status()
            .await?;
        Ok(())
    }
}

struct Bench<'b> {
    management: &'b ManagementCluster,
    cluster: &'b Cluster,
    folder: PathBuf,
    /// kubectl for the workload cluster.
    workload: Kubectl,
    old: Old,
}

impl Bench<'_> {
    async fn machines(&self) -> Result<Vec<Arc<Machine>>> {
        Ok(self.management.machines().fleet()?.machines().await)
    }

    async fn rotate(&self, more: &[&str]) -> Result<CommandOutput> {
        kcp(self.management, &[&ROTATE[..], more].concat()).await
    }

    /// Begins the phase with this index.
    async fn begins(&self, phase: usize, more: &[&str]) -> Result<()> {
        let dry = self.rotate(&[more, &["--dry-run=server"]].concat()).await?;
        let title = PHASES.get(phase).context("a phase")?;
        ensure!(dry.code == 0 && dry.stdout.contains(title), "{dry}");
        ensure!(
            self.phases().await? == vec![phase.checked_sub(1); 3],
            "a dry run has written"
        );
        let ended = self.rotate(more).await?;
        for suffix in SECRETS {
            let changed = format!("secret/{NAME}-{suffix} changed: {title}\n");
            ensure!(ended.code == 0 && ended.stdout.contains(&changed), "{ended}");
        }
        ensure!(ended.stdout.contains("rollout started"), "{ended}");
        ensure!(self.phases().await? == vec![Some(phase); 3], "{ended}");
        Ok(())
    }

    /// The index of the phase on each Secret.
    async fn phases(&self) -> Result<Vec<Option<usize>>> {
        let mut phases = Vec::new();
        for suffix in SECRETS {
            let record = self.secret(suffix).await?.metadata.annotations;
            let record = record.and_then(|mut all| all.remove(annotation::CA_ROTATION));
            let names = ["trustBoth", "signWithNew", "trustOnlyNew"];
            phases.push(record.and_then(|record| names.iter().position(|name| record.contains(name))));
        }
        Ok(phases)
    }

    async fn secret(&self, suffix: &str) -> Result<Secret> {
        let secrets: Api<Secret> = Api::namespaced(self.management.client().clone(), NAMESPACE);
        Ok(secrets.get(&format!("{NAME}-{suffix}")).await?)
    }

    async fn refuses_during_the_rollout(&self) -> Result<()> {
        let refused = self.rotate(&[]).await?;
        let words = refused.words();
        ensure!(
            refused.code == 1 && words.contains("the rollout of the etcd CA: phase 1 of 3, trust both keys"),
            "{refused}"
        );
        ensure!(self.phases().await? == vec![Some(0); 3], "{refused}");
        Ok(())
    }

    async fn rolled_out(&self, clock: &mut Clock, phase: usize) -> Result<()> {
        wait::until("the rollout is complete", || async {
            let status = kcp(self.management, &["rollout", "status", NAME]).await?;
            ensure!(status.code == 0, "{status}");
            Ok(())
        })
        .await?;
        self.cluster.settled(3).await?;
        is_healthy(self.management, self.cluster, 3).await?;
        clock.lap(&format!(
            "a rollout with {}",
            PHASES.get(phase).context("a phase")?
        ));
        Ok(())
    }

    /// Kills the command after it has changed a Secret, and before the rollout has started.
    async fn is_killed_before_the_rollout(&self) -> Result<()> {
        let before = self.cluster.get().await?;
        let mut milliseconds = FIRST_KILL;
        while self.phases().await? == vec![Some(0); 3] {
            let limit = format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000);
            let killed = ["--signal=KILL", limit.as_str(), "kubectl", "kcp"];
            let command = killed.iter().chain(&ROTATE).chain(&["-n", NAMESPACE]);
            let ended = self.management.kubectl().script("timeout", command).await?;
            ensure!(is_killed(&ended), "it ended after {milliseconds} ms: {ended}");
            milliseconds += KILL_STEP;
        }
        let after = self.cluster.get().await?;
        let generation = "/metadata/generation";
        ensure!(
            before.pointer(generation) == after.pointer(generation),
            "killed after {milliseconds} ms, when the rollout had started"
        );
        let phases = self.phases().await?;
        ensure!(phases.contains(&Some(1)), "{phases:?}");
        Ok(())
    }

    async fn waits_for_the_controller_and_the_tokens(&self) -> Result<()> {
        let refused = self.rotate(&[]).await?;
        let words = refused.words();
        for why in [
            "Secret edge-etcd: it is unknown whether the control plane controller has restarted since",
            "Secret edge-sa: tokens that the old key signed may still be in use: the kubelets renew the tokens of Pods",
        ] {
            ensure!(refused.code == 1 && words.contains(why), "{refused}");
        }
        let long_ago: Timestamp = "2020-01-01T00:00:00Z".parse()?;
        self.controller_leads_since(long_ago).await?;
        let refused = self
            .rotate(&["--tokens-renewed", "--controller-restarted"])
            .await?;
        let why = "the control plane controller has been the leader since 2020-01-01T00:00:00Z";
        ensure!(refused.code == 1 && refused.words().contains(why), "{refused}");
        ensure!(self.phases().await? == vec![Some(1); 3], "{refused}");
        Ok(())
    }

    /// Writes the Lease that the controller of these tests does not have.
    async fn controller_leads_since(&self, time: Timestamp) -> Result<()> {
        let (namespace, name) = (lease::CONTROL_PLANE_NAMESPACE, lease::CONTROL_PLANE);
        let micro = |time: Timestamp| format!("{time:.6}");
        let objects = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "holderIdentity": "stand-in",
                    "acquireTime": micro(time),
                    "renewTime": micro(Timestamp::now()),
                    "leaseDurationSeconds": 3600,
                },
            }),
        ];
        written(self.management.kubectl(), "apply", &objects, &[])
            .await
            .map(drop)
    }

    /// A token that the key of today has signed.
    async fn token(&self) -> Result<String> {
        let created = ["create", "token", "default", "--duration=24h"];
        Ok(self.workload.succeed(created).await?.stdout.trim().to_owned())
    }

    /// Asks each API server who the owner of a token is. `Err` if the servers do not agree.
    async fn is_accepted(&self, token: &str) -> Result<bool> {
        let mut accepted = Vec::new();
        for machine in self.machines().await? {
            let server = format!("--server=https://{}:6443", machine.address());
            let token = format!("--token={token}");
            // The client certificate of the kubeconfig would be accepted instead.
            let authority = machine.file("/etc/kubernetes/pki/ca.crt");
            let authority = format!("--certificate-authority={}", authority.display());
            let asked = [
                "--kubeconfig=/dev/null",
                &server,
                &token,
                &authority,
                "auth",
                "whoami",
            ];
            let answer = self.workload.run(asked).await?;
            let unauthorized =
                answer.stderr.contains("Unauthorized") || answer.stderr.contains("must be logged in");
            ensure!(answer.code == 0 || unauthorized, "{answer}");
            accepted.push(answer.code == 0);
        }
        let first = accepted.first().copied().context("there is no machine")?;
        ensure!(accepted.iter().all(|one| *one == first), "{accepted:?}");
        Ok(first)
    }

    async fn accepts(&self, token: &str) -> Result<()> {
        ensure!(self.is_accepted(token).await?, "the token is refused");
        Ok(())
    }

    async fn refuses(&self, token: &str) -> Result<()> {
        ensure!(!self.is_accepted(token).await?, "the token is accepted");
        Ok(())
    }

    /// Registers an API server outside the cluster for a group.
    async fn register_extension(&self, host: &str) -> Result<()> {
        let objects = [
            json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "extension", "namespace": "default"},
                "spec": {"type": "ExternalName", "externalName": host, "ports": [{"port": PORT}]},
            }),
            json!({
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": format!("v1.{GROUP}")},
                "spec": {
                    "group": GROUP,
                    "version": "v1",
                    "groupPriorityMinimum": 1000,
                    "versionPriority": 10,
                    "insecureSkipTLSVerify": true,
                    "service": {"name": "extension", "namespace": "default", "port": PORT},
                },
            }),
        ];
        written(&self.workload, "apply", &objects, &[]).await.map(drop)
    }

    /// An extension API server that trusts only the CA in the ConfigMap of the cluster, and that requires a client certificate of it,
    /// answers through each API server.
    async fn extension_answers(&self, site: &Arc<Site>) -> Result<()> {
        let authority = self.request_header_ca().await?;
        let _server = self.serve_extension(site, &authority)?;
        for machine in self.machines().await? {
            let server = format!("--server=https://{}:6443", machine.address());
            let path = format!("/apis/{GROUP}/v1");
            wait::until("the extension API server answers", || async {
                let answer = self.workload.run(["get", "--raw", &path, &server]).await?;
                ensure!(answer.code == 0 && answer.stdout.contains("s_server"), "{answer}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    fn serve_extension(&self, site: &Arc<Site>, authority: &str) -> Result<Process> {
        let trusted = self.folder.join("extension-trusts.crt");
        fs::write(&trusted, authority)?;
        let subject = Subject {
            common_name: "extension",
            ..Subject::default()
        };
        let own = Authority::new("extension")?.issue(&self.folder, "extension", &subject)?;
        let arguments = [
            "s_server".to_owned(),
            "-accept".to_owned(),
            PORT.to_string(),
            "-cert".to_owned(),
            own.certificate.display().to_string(),
            "-key".to_owned(),
            own.key.display().to_string(),
            "-CAfile".to_owned(),
            trusted.display().to_string(),
            "-no-CApath".to_owned(),
            "-no-CAstore".to_owned(),
            "-Verify".to_owned(),
            "2".to_owned(),
            "-verify_return_error".to_owned(),
            "-www".to_owned(),
        ];
        let none: &[(&str, &str)] = &[];
        Process::start(site.run(), "extension", Path::new("openssl"), &arguments, none)
    }

    /// The CA with which extension API servers verify API servers.
    async fn request_header_ca(&self) -> Result<String> {
        let read = [
            "get",
            "configmap",
            "extension-apiserver-authentication",
            "-n",
            "kube-system",
            "-o",
            r"jsonpath={.data.requestheader-client-ca-file}",
        ];
        Ok(self.workload.succeed(read).await?.stdout)
    }

    /// The API servers add to the ConfigMap, but remove nothing from it, until it is deleted.
    async fn forgets_the_old_front_proxy(&self) -> Result<()> {
        let old = self.old.front_proxy.trim();
        let before = self.request_header_ca().await?;
        ensure!(
            before.contains(old),
            "the API servers have removed the old CA by themselves"
        );
        let delete = [
            "delete",
            "configmap",
            "extension-apiserver-authentication",
            "-n",
            "kube-system",
        ];
        let command = ["kcp", "kubectl", NAME, "-n", NAMESPACE, "--"];
        let deleted = self
            .management
            .kubectl()
            .run(command.iter().chain(&delete))
            .await?;
        ensure!(deleted.code == 0, "{deleted}");
        wait::until("the API servers have created the ConfigMap again", || async {
            let after = self.request_header_ca().await?;
            ensure!(
                !after.contains(old) && after.matches("BEGIN").count() == 1,
                "{after}"
            );
            Ok(())
        })
        .await
    }

    /// The files of each machine are those of the Secrets, and what kubeadm has issued is verified by them.
    async fn has_only_the_new_keys(&self) -> Result<()> {
        for (suffix, path) in [("etcd", "etcd/ca"), ("proxy", "front-proxy-ca"), ("sa", "sa")] {
            let secret = self.secret(suffix).await?;
            let data = secret.data.context("the Secret has no data")?;
            ensure!(
                data.keys().eq(["tls.crt", "tls.key"]),
                "{suffix}: {:?}",
                data.keys()
            );
            let extension = if suffix == "sa" { "pub" } else { "crt" };
            for machine in self.machines().await? {
                for (key, extension) in [("tls.crt", extension), ("tls.key", "key")] {
                    let file = machine.file(&format!("/etc/kubernetes/pki/{path}.{extension}"));
                    let content = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
                    let expected = data.get(key).map(|value| value.0.trim_ascii());
                    ensure!(expected == Some(content.trim_ascii()), "{}", file.display());
                }
            }
        }
        for machine in self.machines().await? {
            for (authority, certificate) in [
                ("etcd/ca", "etcd/server"),
                ("etcd/ca", "etcd/peer"),
                ("etcd/ca", "apiserver-etcd-client"),
                ("front-proxy-ca", "front-proxy-client"),
            ] {
                let [authority, certificate] =
                    [authority, certificate].map(|name| format!("/etc/kubernetes/pki/{name}.crt"));
                let verify = ["openssl", "verify", "-CAfile", &authority, &certificate];
                machine.succeed(verify).await?;
            }
        }
        Ok(())
    }
}
