//! Real controller managers of a workload cluster. They run beside its API server; port-forwards to their pods reach them.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::boot::NewMachine;
use super::bootstrap_data::BootstrapData;
use super::node::{self, CONTROLLER_MANAGER, ensure_exists, forward, forwards};
use super::static_pod::{StaticPod, below};
use super::workload_cluster::WorkloadCluster;
use crate::addresses::free_port;
use crate::controller_manager::{CONTROLLERS, ControllerManagers, Identity, Locks, Program, Server};
use crate::pki::Subject;

/// The port of kube-controller-manager in its pod.
const PORT: u16 = 10257;

/// As kubeadm does: each controller has a service account of its own.
const OWN_ACCOUNTS: &str = "--use-service-account-credentials=true";

/// The flags of a machine's kube-controller-manager.
pub struct MachineFlags {
    /// Those of the process.
    pub process: Vec<String>,
    /// Those that its pod shows.
    pub pod: Vec<String>,
}

impl WorkloadCluster {
    /// Controller managers for this cluster, whose first machine has booted.
    pub fn controller_managers(&self) -> Result<ControllerManagers> {
        let authority = &self.certificates()?.authority;
        let administrator = Subject {
            common_name: "controller-managers",
            organization: Some("system:masters"),
            ..Subject::default()
        };
        let administrator = authority.issue(&self.folder, "controller-managers", &administrator)?;
        let server = Server {
            url: &format!("https://127.0.0.1:{}", self.api_port),
            folder: &self.folder,
            authority,
            administrator: &administrator,
        };
        ControllerManagers::new(&self.run, &self.assets, &server, &self.name)
    }

    /// Starts the kube-controller-manager of a machine that boots, with the flags, volumes and files that the control plane
    /// asks for. Returns the flags that its pod shows. If it exits, it is not started again.
    pub(super) async fn start_controller_manager(
        &self,
        machine: &NewMachine<'_>,
        data: &BootstrapData,
    ) -> Result<Vec<String>> {
        let root = self.files_of(machine.name, data.files())?;
        // kubeadm reads it from the cluster when it joins, and stored it there when it created the first machine.
        let pod = StaticPod::of(&node::cluster_configuration(self.client()?).await?)?;
        let flags = self.flags_below(&root, &pod).await?;
        let program = self.assets.kube_controller_manager(machine.version)?;
        let port = free_port()?;
        self.forward(&format!("{CONTROLLER_MANAGER}-{}", machine.name), PORT, port)
            .await?;
        let name = format!("kube-{}", machine.name);
        let files = self.controller_manager_files().await?;
        let manager = files
            .start_program_on(port, &program, &name, &flags.process)
            .await?;
        let mut running = self.controller_managers.lock().await;
        running.insert(machine.name.to_owned(), manager);
        Ok(flags.pod)
    }

    /// The flags of kube-controller-manager on a machine with this `kubeadmConfigSpec`, whose files are written for it. No
    /// machine boots. `name` names the folder of the files.
    pub async fn flags_for(&self, name: &str, kubeadm_config_spec: &Value) -> Result<MachineFlags> {
        let files = kubeadm_config_spec.get("files").and_then(Value::as_array);
        let files = files.into_iter().flatten().filter_map(|file| {
            let text = |field: &str| file.get(field).and_then(Value::as_str);
            text("path").zip(text("content"))
        });
        let root = self.files_of(name, files)?;
        let configuration = kubeadm_config_spec.get("clusterConfiguration");
        let configuration = configuration.context("the spec has no clusterConfiguration")?;
        // JSON is YAML.
        self.flags_below(&root, &StaticPod::of(&configuration.to_string())?)
            .await
    }

    /// Writes the files of a machine below a folder, and returns the folder.
    fn files_of<'f>(
        &self,
        machine: &str,
        files: impl Iterator<Item = (&'f str, &'f str)>,
    ) -> Result<PathBuf> {
        let root = self.folder.join("machines").join(machine);
        for (path, content) in files {
            let path = below(&root, path);
            let folder = path.parent().context("a file has no folder")?;
            fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
            fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(root)
    }

    async fn flags_below(&self, root: &Path, pod: &StaticPod) -> Result<MachineFlags> {
        let locks = Locks::in_namespace(self.client()?, node::NAMESPACE);
        let files = self.controller_manager_files().await?;
        let mut process = files.flags(Program::Kube, Identity::Own, &locks);
        process.push(OWN_ACCOUNTS.to_owned());
        let asked = pod.flags_below(root);
        if asked.iter().any(|flag| flag.starts_with(CONTROLLERS)) {
            // The values of several flags would add up.
            process.retain(|flag| !flag.starts_with(CONTROLLERS));
        }
        process.extend(asked);
        let shown = ["--allocate-node-cidrs=true", "--leader-elect=true", OWN_ACCOUNTS];
        let shown = shown.map(str::to_owned).into_iter();
        Ok(MachineFlags {
            process,
            pod: shown.chain(pod.flags()).collect(),
        })
    }

    async fn controller_manager_files(&self) -> Result<&ControllerManagers> {
        let files = self
            .controller_manager_files
            .get_or_try_init(async || self.controller_managers());
        files.await
    }

    /// Ends the kube-controller-manager of a machine, if it has one. It releases no Lease.
    pub(super) async fn stop_controller_manager(&self, machine: &str) -> Result<()> {
        let manager = self.controller_managers.lock().await.remove(machine);
        match manager {
            Some(mut manager) => manager.kill().await,
            None => Ok(()),
        }
    }

    /// The controllers that the kube-controller-manager of a machine has started. Fails unless it is healthy.
    pub async fn controllers_of(&self, machine: &str) -> Result<BTreeSet<String>> {
        let running = self.controller_managers.lock().await;
        let manager = running.get(machine);
        let manager = manager.with_context(|| format!("{machine} has no kube-controller-manager"))?;
        manager.controllers().await
    }

    /// The machines whose kube-controller-manager was started.
    pub async fn machines_with_controller_managers(&self) -> Vec<String> {
        self.controller_managers.lock().await.keys().cloned().collect()
    }

    /// Lets port-forwards to a port of a pod in kube-system reach a local port.
    pub async fn forward(&self, pod: &str, port: u16, target: u16) -> Result<()> {
        let forward = forward(pod, port, Ipv4Addr::LOCALHOST, target);
        ensure_exists(&forwards(self.client()?), forward).await
    }
}
