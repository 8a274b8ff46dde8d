//! Real controller managers: kube-controller-manager, and a cloud-controller-manager of Kubernetes' library with a cloud
//! provider that has no cloud (`envtest/cloud-controller-manager`).
//!
//! They run beside the API server, with the flags that kubeadm sets. Their locks are in a namespace per test or per row, so
//! that many of them share one API server.

mod cloud_pod;
mod locks;
mod process;

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};

use crate::addresses::free_port;
use crate::api_server::{ApiServer, NO_ENVIRONMENT};
use crate::assets::Assets;
use crate::kubeconfig::{self, User};
use crate::pki::{Authority, KeyPairFiles, Subject};
use crate::process::Process;
use crate::run::Run;

pub use cloud_pod::{CLOUD_POD, CloudPod};
pub use locks::Locks;
pub use process::{ControllerManager, End};

/// A program of this folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// kube-controller-manager.
    Kube,
    /// cloud-controller-manager.
    Cloud,
}

impl Program {
    /// The name of the program, which is also the name of its main lock.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kube => "kube-controller-manager",
            Self::Cloud => "cloud-controller-manager",
        }
    }

    /// The name of its user in Kubernetes.
    pub const fn user(self) -> &'static str {
        match self {
            Self::Kube => "system:kube-controller-manager",
            Self::Cloud => "system:cloud-controller-manager",
        }
    }
}

/// With which permissions a controller manager runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// All permissions. Bootstrap policy lets a controller manager take locks in kube-system only.
    Administrator,
    /// Those of [`Program::user`].
    Own,
}

/// Flags that every row can have: short leases, and the controllers of leader migration.
///
/// kube-controller-manager runs as few controllers as possible. The garbage collector and the controllers of Nodes and Pods
/// would delete what other tests create.
const KUBE: &[&str] = &["--controllers=serviceaccount-token-controller,node-ipam-controller"];
/// Our program has Node IPAM. The model knows that only if a flag names it.
const CLOUD: &[&str] = &["--cloud-provider=demo", "--controllers=*,node-ipam-controller"];
pub(crate) const CONTROLLERS: &str = "--controllers=";
const BOTH: &[&str] = &["--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16"];

/// The API server of controller managers. Its folder has the files `kubeconfig`, `ca.crt` and `sa.key`.
pub(crate) struct Server<'s> {
    pub(crate) url: &'s str,
    pub(crate) folder: &'s Path,
    pub(crate) authority: &'s Authority,
    pub(crate) administrator: &'s KeyPairFiles,
}

/// What controller managers of one test need: certificates, kubeconfigs and programs.
pub struct ControllerManagers {
    run: Arc<Run>,
    assets: Assets,
    name: String,
    folder: PathBuf,
    api: PathBuf,
    serving: KeyPairFiles,
    administrator: KeyPairFiles,
}

impl ControllerManagers {
    /// For an API server of a test. `name` names the folder and the logs.
    pub fn beside(run: &Arc<Run>, assets: &Assets, api: &ApiServer, name: &str) -> Result<Self> {
        let server = Server {
            url: api.url(),
            folder: api.folder(),
            authority: api.authority(),
            administrator: api.administrator(),
        };
        Self::new(run, assets, &server, name)
    }

    /// Prepares a folder with certificates. `name` names the folder and the logs.
    pub(crate) fn new(run: &Arc<Run>, assets: &Assets, server: &Server<'_>, name: &str) -> Result<Self> {
        let folder = run.subfolder(&format!("controller-managers-{name}"))?;
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let serving = Subject {
            common_name: "controller-manager",
            addresses: &[loopback],
            ..Subject::default()
        };
        let serving = server.authority.issue(&folder, "serving", &serving)?;
        for program in [Program::Kube, Program::Cloud] {
            let subject = Subject {
                common_name: program.user(),
                ..Subject::default()
            };
            let user = server.authority.issue(&folder, program.name(), &subject)?;
            let path = folder.join(format!("{}.kubeconfig", program.name()));
            let ca = server.folder.join("ca.crt");
            kubeconfig::write(&path, server.url, &ca, &User::Certificate(&user))?;
        }
        Ok(Self {
            run: run.clone(),
            assets: assets.clone(),
            name: name.to_owned(),
            folder,
            api: server.folder.to_owned(),
            serving,
            administrator: server.administrator.clone(),
        })
    }

    /// Writes a file for a flag, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// The flags of every controller manager, for the locks in a namespace. Flags of a test come afterwards and replace them,
    /// except that the values of several `--controllers` add up.
    pub fn flags(&self, program: Program, identity: Identity, locks: &Locks) -> Vec<String> {
        let kubeconfig = match identity {
            Identity::Administrator => self.api.join("kubeconfig"),
            Identity::Own => self.folder.join(format!("{}.kubeconfig", program.name())),
        };
        let mut flags = Vec::new();
        for flag in [
            "kubeconfig",
            "authentication-kubeconfig",
            "authorization-kubeconfig",
        ] {
            flags.push(flag_of(flag, &kubeconfig));
        }
        let ca = self.api.join("ca.crt");
        flags.extend([
            flag_of("client-ca-file", &ca),
            flag_of("requestheader-client-ca-file", &ca),
            flag_of("tls-cert-file", &self.serving.certificate),
            flag_of("tls-private-key-file", &self.serving.key),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--leader-elect-resource-namespace={}", locks.namespace()),
        ]);
        let mine = match program {
            Program::Kube => KUBE,
            Program::Cloud => CLOUD,
        };
        flags.extend(mine.iter().chain(BOTH).map(|flag| (*flag).to_owned()));
        if program == Program::Kube {
            flags.extend([
                flag_of("root-ca-file", &ca),
                flag_of("service-account-private-key-file", &self.api.join("sa.key")),
            ]);
        }
        flags
    }

    /// Starts a program with exactly these flags, apart from its port. `name` names its log.
    pub async fn start(&self, program: Program, name: &str, flags: &[String]) -> Result<ControllerManager> {
        let program = self.assets.program(program.name());
        self.start_program(&program, name, flags).await
    }

    /// Starts the cloud-controller-manager of a Pod, with only the controllers that the Pod names.
    pub async fn start_cloud(
        &self,
        port: u16,
        name: &str,
        pod: &CloudPod<'_>,
        (identity, locks): (Identity, &Locks),
        more: &[&str],
    ) -> Result<ControllerManager> {
        let mut flags = self.flags(Program::Cloud, identity, locks);
        // The values would add up, and the cloud-node-controller of our provider gives a Node an address at which the API
        // server does not reach kwok.
        flags.retain(|flag| !flag.starts_with(CONTROLLERS));
        flags.push(format!("{CONTROLLERS}{}", pod.controllers));
        if let Some(configuration) = pod.configuration {
            let file = self.file(&format!("{name}.yaml"), configuration)?;
            flags.push("--enable-leader-migration=true".to_owned());
            flags.push(flag_of("leader-migration-config", &file));
        }
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        self.start_on(port, Program::Cloud, name, &flags).await
    }

    /// [`Self::start`] on this port.
    pub async fn start_on(
        &self,
        port: u16,
        program: Program,
        name: &str,
        flags: &[String],
    ) -> Result<ControllerManager> {
        let program = self.assets.program(program.name());
        self.start_program_on(port, &program, name, flags).await
    }

    /// [`Self::start`] for another build of a program.
    pub async fn start_program(
        &self,
        program: &Path,
        name: &str,
        flags: &[String],
    ) -> Result<ControllerManager> {
        self.start_program_on(free_port()?, program, name, flags).await
    }

    /// [`Self::start_program`] on this port.
    pub async fn start_program_on(
        &self,
        port: u16,
        program: &Path,
        name: &str,
        flags: &[String],
    ) -> Result<ControllerManager> {
        let log = format!("{}-{name}", self.name);
        let port_flag = format!("--secure-port={port}");
        let arguments = flags.iter().chain([&port_flag]);
        let process = Process::start(&self.run, &log, program, arguments, NO_ENVIRONMENT)?;
        let url = format!("https://127.0.0.1:{port}");
        let user = User::Certificate(&self.administrator);
        let client = kubeconfig::client(&url, &self.api.join("ca.crt"), &user).await?;
        Ok(ControllerManager::new(process, client))
    }
}

fn flag_of(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
