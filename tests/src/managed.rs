//! kcp-webhook with its manager, installed from `manifests/managed` or with Helm.
//!
//! Of the shipped objects, only the Service differs: it has an external name and a port on this machine, where a balancer
//! stands in for kube-proxy. The API server and the manager find it as they find any Service, and expect the host name of the
//! Service in its certificate. The manager runs with the permissions of its shipped roles.
//!
//! No kubelet and no `ReplicaSet` controller run. This stand-in starts the servers as local processes, writes their Pods, and
//! copies the Secret to the folder that a server reads, a moment after it changes.

pub mod tunnel;
pub mod writer;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::addresses::free_port;
use crate::admission::container::{Container, Ports};
use crate::admission::{apply, kind, kustomized, token};
use crate::api_server::{ApiServer, NO_ENVIRONMENT, ready};
use crate::kubectl::Kubectl;
use crate::load::balancer::{Backend, Balancer};
use crate::process::Process;
use crate::run::Run;
use crate::volume::Volume;
use crate::{kubeconfig, products, wait};

pub const NAMESPACE: &str = "kcp-webhook-system";
pub const CONFIGURATION: &str = "admission.kubectl-kcp.dev";
const CA_SECRET: &str = "kcp-webhook-ca";
const TLS_SECRET: &str = "kcp-webhook-tls";

/// Short delays of the manager, so that a rotation takes seconds.
const QUICK: [&str; 3] = [
    "--ca-trust-delay=3s",
    "--interval=500ms",
    "--registration-delay=1s",
];

const TLS_VOLUME: &str = "tls";
const CONFIGURATION_VOLUME: &str = "configuration";
const KEYS: [&str; 2] = ["tls.crt", "tls.key"];

/// The interval at which the stand-in for the kubelet reads the Secret.
const SYNC: Duration = Duration::from_millis(200);

/// The kinds of webhook configurations.
pub const KINDS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    (
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    ),
];

/// The installation. Dropping it ends its processes.
pub struct Managed {
    run: Arc<Run>,
    client: Client,
    name: String,
    servers: Vec<Server>,
    server_container: Container,
    manager_container: Container,
    manager: Option<Process>,
    balancer: Balancer,
    kubelet: JoinHandle<()>,
    kubeconfigs: [PathBuf; 2],
    have_api_access: bool,
}

/// One server and its Pod.
pub struct Server {
    pod: String,
    ports: Ports,
    volumes: PathBuf,
    health: Client,
    process: Option<Process>,
}

impl Drop for Managed {
    fn drop(&mut self) {
        self.kubelet.abort();
    }
}

impl Managed {
    /// Applies the manifests. Neither the manager nor a server runs yet, as on a cluster that cannot pull their image.
    /// `servers` is the number of servers that can be started later.
    pub async fn install(run: &Arc<Run>, api: &ApiServer, kubectl: &Kubectl, servers: usize) -> Result<Self> {
        let file = api.folder().join("objects.json");
        Self::install_with(run, api, servers, async |service| {
            let mut objects = kustomized(kubectl, "manifests/managed").await?;
            for object in objects.iter_mut().filter(|object| kind(object) == "Service") {
                let object = object.as_object_mut().context("a Service is not an object")?;
                object.insert("spec".to_owned(), service.clone());
            }
            apply(kubectl, &file, &objects).await?;
            Ok(objects)
        })
        .await
    }

    /// Like [`Self::install`]. `apply` gets the spec of the Service, applies the objects, and returns them.
    pub async fn install_with(
        run: &Arc<Run>,
        api: &ApiServer,
        servers: usize,
        apply: impl AsyncFnOnce(Value) -> Result<Vec<Value>>,
    ) -> Result<Self> {
        let folder = api.folder().join("managed");
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let mut all = Vec::new();
        for number in 1..=servers {
            all.push(Server::new(&folder, number)?);
        }
        let balancer = Balancer::start(all.iter().map(Server::backend).collect()).await?;
        let objects = apply(json!({
            "type": "ExternalName", "externalName": Ipv4Addr::LOCALHOST.to_string(),
            "ports": [{"name": "webhook", "port": balancer.address().port()}],
        }))
        .await?;
        ensure!(
            !objects
                .iter()
                .any(|object| kind(object).ends_with("WebhookConfiguration")),
            "an installation with the manager registers a webhook that has not passed its self-test"
        );
        let [server_container, manager_container] = containers(&objects)?;
        let kubeconfigs = ["kcp-webhook", "kcp-webhook-manager"].map(|account| folder.join(account));
        for (account, file) in ["kcp-webhook", "kcp-webhook-manager"]
            .into_iter()
            .zip(&kubeconfigs)
        {
            api.write_token_kubeconfig(file, &token(api, account).await?)?;
        }
        let volumes = all.iter().map(|server| server.volumes.join(TLS_VOLUME)).collect();
        Ok(Self {
            run: run.clone(),
            client: api.client().clone(),
            name: api.name().to_owned(),
            server_container,
            manager_container,
            kubelet: tokio::spawn(mount(api.client().clone(), volumes)),
            servers: all,
            manager: None,
            balancer,
            kubeconfigs,
            have_api_access: true,
        })
    }

    /// Starts processes with the arguments of these Deployments from now on.
    pub fn deploy(&mut self, objects: &[Value]) -> Result<()> {
        [self.server_container, self.manager_container] = containers(objects)?;
        Ok(())
    }

    /// Starts servers without API access from now on, for reviews whose answers depend on nothing else.
    pub const fn without_api_access(mut self) -> Self {
        self.have_api_access = false;
        self
    }

    /// The address that the Service has.
    pub const fn address(&self) -> SocketAddr {
        self.balancer.address()
    }

    /// Starts the manager with the arguments of its Deployment, and with short delays.
    pub fn start_manager(&mut self) -> Result<()> {
        self.manager = Some(self.another_manager()?);
        Ok(())
    }

    /// Starts a manager that logs to the same file and ends when it is dropped.
    pub fn another_manager(&self) -> Result<Process> {
        let mut arguments = self.manager_container.plain_arguments();
        for argument in &mut arguments {
            *argument = argument.replace("$(POD_NAMESPACE)", NAMESPACE);
        }
        let [_, kubeconfig] = &self.kubeconfigs;
        arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
        arguments.extend(QUICK.map(str::to_owned));
        let program = products::under_test("kcp-webhook")?;
        let log = format!("{}-kcp-webhook-manager", self.name);
        Process::start(&self.run, &log, &program, arguments, NO_ENVIRONMENT)
    }

    /// Sends SIGTERM to the manager and waits until it ends.
    pub async fn stop_manager(&mut self) -> Result<()> {
        let mut manager = self.manager.take().context("the manager does not run")?;
        let how = manager.terminate().await?;
        ensure!(how == "exit status: 0", "the manager ended with {how}");
        Ok(())
    }

    /// What the manager has logged.
    pub fn manager_log(&self) -> Result<String> {
        let log = self
            .run
            .logs()
            .join(format!("{}-kcp-webhook-manager.log", self.name));
        fs::read_to_string(&log).with_context(|| format!("reading {}", log.display()))
    }

    /// What a server has logged.
    pub fn server_log(&self, number: usize) -> Result<String> {
        let log = self
            .run
            .logs()
            .join(format!("{}-kcp-webhook-{number}.log", self.name));
        fs::read_to_string(&log).with_context(|| format!("reading {}", log.display()))
    }

    /// Starts a server, counted from 1, once its Secret exists, as a kubelet does. Waits until it is ready.
    pub async fn start_server(&mut self, number: usize) -> Result<()> {
        let volumes = self.server(number)?.volumes.clone();
        wait::until("the Secret of the Pods is mounted", || async {
            for key in KEYS {
                let file = volumes.join(TLS_VOLUME).join(key);
                ensure!(file.exists(), "{} is missing", file.display());
            }
            Ok(())
        })
        .await?;
        let [kubeconfig, _] = self.kubeconfigs.clone();
        let ports = self.server(number)?.ports;
        let mut arguments = self.server_container.arguments(&volumes, ports)?;
        arguments.extend([
            "--bind-address=127.0.0.1".to_owned(),
            "--tls-reload-interval=500ms".to_owned(),
            "--shutdown-delay=2s".to_owned(),
        ]);
        if self.have_api_access {
            arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
        }
        let program = products::under_test("kcp-webhook")?;
        let log = format!("{}-kcp-webhook-{number}", self.name);
        let mut process = Process::start(&self.run, &log, &program, arguments, NO_ENVIRONMENT)?;
        let health = self.server(number)?.health.clone();
        wait::until_served(&format!("{log} is ready"), &mut process, || ready(&health)).await?;
        let client = self.client.clone();
        let server = self.server(number)?;
        server.process = Some(process);
        server.write_pod(&client).await
    }

    /// Sends SIGTERM to a server, waits until it ends, and deletes its Pod.
    pub async fn stop_server(&mut self, number: usize) -> Result<()> {
        let mut process = self
            .server(number)?
            .process
            .take()
            .context("the server does not run")?;
        let how = process.terminate().await?;
        ensure!(how == "exit status: 0", "server {number} ended with {how}");
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let now = DeleteParams::default().grace_period(0);
        let name = self.server(number)?.pod.clone();
        pods.delete(&name, &now).await.context("deleting a Pod")?;
        Ok(())
    }

    /// Kills a server with SIGKILL. Its Pod remains, as after a crash.
    pub async fn kill_server(&mut self, number: usize) -> Result<()> {
        let server = self.server(number)?;
        let mut process = server.process.take().context("the server does not run")?;
        process.kill().await
    }

    /// The configuration of a server, as a kubelet mounts its `ConfigMap`.
    pub fn configuration(&mut self, number: usize) -> Result<Volume> {
        self.volume(number, CONFIGURATION_VOLUME)
    }

    /// A volume of a server, by its name in the Deployment.
    pub fn volume(&mut self, number: usize, name: &str) -> Result<Volume> {
        Ok(Volume::at(self.server(number)?.volumes.join(name)))
    }

    fn server(&mut self, number: usize) -> Result<&mut Server> {
        let index = number.checked_sub(1).context("servers are counted from 1")?;
        self.servers
            .get_mut(index)
            .with_context(|| format!("there is no server {number}"))
    }

    /// The two webhook configurations, each None if it does not exist.
    pub async fn configurations(&self) -> Result<[Option<DynamicObject>; 2]> {
        let mut found = Vec::new();
        for (kind, plural) in KINDS {
            found.push(
                configurations(&self.client, kind, plural)
                    .get_opt(CONFIGURATION)
                    .await?,
            );
        }
        found.try_into().ok().context("two configurations")
    }

    /// Waits until both configurations exist.
    pub async fn registered(&self) -> Result<[DynamicObject; 2]> {
        wait::until("both webhook configurations exist", || async {
            let log = || self.manager_log().unwrap_or_default();
            match self.configurations().await? {
                [Some(mutating), Some(validating)] => Ok([mutating, validating]),
                _ => Err(anyhow::anyhow!("the manager logged:\n{}", log())),
            }
        })
        .await
    }

    /// The certificates in the caBundle of the entries of both configurations, which must all be equal.
    pub async fn bundle(&self) -> Result<Vec<String>> {
        let mut bundles = Vec::new();
        for configuration in self.configurations().await?.into_iter().flatten() {
            let entries = configuration.data.get("webhooks").and_then(Value::as_array);
            for entry in entries.into_iter().flatten() {
                let bundle = entry.pointer("/clientConfig/caBundle").context("no caBundle")?;
                let bundle: ByteString = serde_json::from_value(bundle.clone())?;
                bundles.push(String::from_utf8(bundle.0)?);
            }
        }
        bundles.dedup();
        ensure!(
            bundles.len() == 1,
            "the entries have {} different caBundles",
            bundles.len()
        );
        let bundle = bundles.pop().unwrap_or_default();
        Ok(bundle
            .split_inclusive("-----END CERTIFICATE-----\n")
            .map(str::to_owned)
            .collect())
    }

    /// The Secret with the CAs.
    pub async fn ca_secret(&self) -> Result<Option<Secret>> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        Ok(secrets.get_opt(CA_SECRET).await?)
    }

    /// Writes a Pod of a server that has ended, so that nobody listens at its address.
    pub async fn write_pod_that_is_not_ready(&self, name: &str) -> Result<()> {
        write_pod(&self.client, name, free_port()?, "False").await
    }

    /// The resource versions of the Secrets and the configurations that the manager writes.
    pub async fn resource_versions(&self) -> Result<Vec<Option<String>>> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut versions = Vec::new();
        for name in [CA_SECRET, TLS_SECRET] {
            versions.push(secrets.get(name).await?.metadata.resource_version);
        }
        let configurations = self.configurations().await?.into_iter().flatten();
        versions.extend(configurations.map(|configuration| configuration.metadata.resource_version));
        Ok(versions)
    }

    /// Asks the manager for a new CA, as the book describes it.
    pub async fn request_rotation(&self) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let patch = json!({"metadata": {"annotations": {"kubectl-kcp.dev/rotate": "now"}}});
        secrets
            .patch(CA_SECRET, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context("annotating the Secret with the CAs")?;
        Ok(())
    }

    /// The `ClusterRole` that owns the configurations.
    pub async fn owner(&self) -> Result<ClusterRole> {
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        roles.get("kcp-webhook").await.context("reading the ClusterRole")
    }

    /// Deletes the `ClusterRole`, and then what it owns. **Stand-in** for the garbage collector of
    /// kube-controller-manager: it deletes the configurations because of their owner references, and nothing else.
    pub async fn delete_owner_and_what_it_owns(&self) -> Result<usize> {
        let owner = self.owner().await?;
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        roles.delete("kcp-webhook", &DeleteParams::default()).await?;
        let mut deleted = 0;
        for ((kind, plural), found) in KINDS.into_iter().zip(self.configurations().await?) {
            let Some(found) = found else { continue };
            let references = found.metadata.owner_references.unwrap_or_default();
            let is_owned = !references.is_empty()
                && references.iter().all(|reference| {
                    reference.kind == "ClusterRole" && Some(&reference.uid) == owner.metadata.uid.as_ref()
                });
            if is_owned {
                let api = configurations(&self.client, kind, plural);
                api.delete(CONFIGURATION, &DeleteParams::default()).await?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }
}

/// The containers of the server and of the manager.
fn containers(objects: &[Value]) -> Result<[Container; 2]> {
    let deployments = objects
        .iter()
        .filter(|object| kind(object) == "Deployment")
        .cloned();
    let (managers, servers): (Vec<Value>, Vec<Value>) = deployments
        .partition(|object| object.pointer("/metadata/name") == Some(&json!("kcp-webhook-manager")));
    Ok([
        Container::of_deployment(&servers)?,
        Container::of_deployment(&managers)?,
    ])
}

fn configurations(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, plural))
}

impl Server {
    fn new(folder: &Path, number: usize) -> Result<Self> {
        let ports = Ports {
            secure: free_port()?,
            health: free_port()?,
        };
        let volumes = folder.join(format!("server-{number}"));
        for volume in [TLS_VOLUME, CONFIGURATION_VOLUME] {
            fs::create_dir_all(volumes.join(volume))
                .with_context(|| format!("creating {}", volumes.display()))?;
        }
        Ok(Self {
            pod: format!("kcp-webhook-{number}"),
            ports,
            volumes,
            health: kubeconfig::plain_client(&format!("http://127.0.0.1:{}", ports.health))?,
            process: None,
        })
    }

    fn backend(&self) -> Backend {
        Backend {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.secure)),
            health: self.health.clone(),
            is_ready: Arc::new(AtomicBool::new(false)),
        }
    }

    async fn write_pod(&self, client: &Client) -> Result<()> {
        write_pod(client, &self.pod, self.ports.secure, "True").await
    }
}

/// Writes the Pod that a `ReplicaSet` would have created, and the status that a kubelet would have written.
async fn write_pod(client: &Client, name: &str, port: u16, ready: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "kcp-webhook"}},
        "spec": {
            "nodeName": "stand-in", "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "kcp-webhook", "image": "kcp-webhook:0.1.0",
                "ports": [{"name": "webhook", "containerPort": port}],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    });
    let apply = PatchParams::apply("stand-in-kubelet").force();
    pods.patch(name, &apply, &Patch::Apply(&pod))
        .await
        .context("writing a Pod")?;
    let status = json!({"status": {
        "phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
        "conditions": [{"type": "Ready", "status": ready}],
    }});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .context("writing the status of a Pod")?;
    Ok(())
}

/// Copies the Secret to the volumes whenever it changes.
async fn mount(client: Client, volumes: Vec<PathBuf>) {
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let mut mounted: Option<[String; 2]> = None;
    loop {
        if let Ok(Some(secret)) = secrets.get_opt(TLS_SECRET).await
            && let Some(content) = content(&secret)
            && mounted.as_ref() != Some(&content)
        {
            let [certificate, key] = &content;
            let entries = [(KEYS[0], certificate.as_str()), (KEYS[1], key.as_str())];
            let all: Result<Vec<()>> = volumes
                .iter()
                .map(|folder| Volume::at(folder.clone()).replace(&entries))
                .collect();
            if all.is_ok() {
                mounted = Some(content);
            }
        }
        tokio::time::sleep(SYNC).await;
    }
}

fn content(secret: &Secret) -> Option<[String; 2]> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    Some([text(KEYS[0])?, text(KEYS[1])?])
}
