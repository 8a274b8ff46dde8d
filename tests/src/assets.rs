//! The real programs that the tests run. `tests/envtest/assets` builds them once and prints their folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

use anyhow::{Context as _, Result, ensure};

use crate::products;

/// Builds what the demo and the tests run.
const ASSETS: &str = "tests/envtest/assets";

/// The programs that envtest's `KUBEBUILDER_ASSETS` contains by convention.
const KUBERNETES: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

/// The other programs that the demo runs. Those that only the tests run are in the subfolder `tests`.
const DEMO: [&str; 4] = ["capi-core", "capi-bootstrap", "capi-control-plane", "kwok"];

/// Builds kube-controller-manager of the minor versions that `assets` does not build.
const OTHER_MANAGERS: &str = "tests/envtest/managers";

/// Builds etcd 3.5.
const OLD_ETCD: &str = "tests/envtest/old-etcd";

/// Builds what real machines run.
const MACHINES: &str = "tests/envtest/machines";

/// Builds a server of S3.
const S3: &str = "tests/envtest/s3";

/// Builds tools such as crane.
const TOOL: &str = "manifests/release/tool";

/// Builds Helm.
const HELM: &str = "tests/helm/helm";

const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// The minor version of the Kubernetes programs in the folder.
const MINOR: &str = "36";

/// The minor version of Cluster API in the folder, unless the folder names another one.
const CLUSTER_API_MINOR: u32 = 14;

/// The folder of the programs.
#[derive(Debug, Clone)]
pub struct Assets {
    folder: PathBuf,
    kubernetes: PathBuf,
}

impl Assets {
    /// Finds all programs. Builds them first if this machine has not done so yet.
    pub fn locate() -> Result<Self> {
        printed_with(ASSETS, &["all"]).map(Self::in_folder)
    }

    /// Finds what `make demo` runs, which a new machine builds in about half of the time.
    pub fn locate_for_demo() -> Result<Self> {
        printed_by(ASSETS).map(Self::in_folder)
    }

    fn in_folder(folder: PathBuf) -> Self {
        let kubernetes = env::var_os("KUBEBUILDER_ASSETS").map_or_else(|| folder.clone(), PathBuf::from);
        Self { folder, kubernetes }
    }

    /// kube-controller-manager of a Kubernetes version, with or without `v`. All versions of a minor version are the same
    /// program. Builds it if it is not that of [`Self::program`] and if this machine has not done so yet.
    pub fn kube_controller_manager(&self, version: &str) -> Result<PathBuf> {
        let minor = version.trim_start_matches('v').split('.').nth(1);
        match minor.with_context(|| format!("{version} is not a version"))? {
            MINOR => Ok(self.program(CONTROLLER_MANAGER)),
            minor => {
                let program = printed_by(OTHER_MANAGERS)?.join(format!("{CONTROLLER_MANAGER}-1.{minor}"));
                ensure!(
                    program.exists(),
                    "{OTHER_MANAGERS} does not build kube-controller-manager 1.{minor}"
                );
                Ok(program)
            }
        }
    }

    /// etcd of version 3.5. Builds it if this machine has not done so yet.
    pub(crate) fn old_etcd(version: &str) -> Result<PathBuf> {
        let program = printed_by(OLD_ETCD)?.join(format!("etcd-{version}"));
        ensure!(program.exists(), "{OLD_ETCD} does not build etcd {version}");
        Ok(program)
    }

    pub fn program(&self, name: &str) -> PathBuf {
        if KUBERNETES.contains(&name) {
            self.kubernetes.join(name)
        } else if DEMO.contains(&name) {
            self.folder.join(name)
        } else {
            self.folder.join("tests").join(name)
        }
    }

    /// A program that real machines run, if this machine has built it for some version of Kubernetes.
    pub fn node_program(&self, name: &str) -> Option<PathBuf> {
        let folders = fs::read_dir(self.folder.parent()?).ok()?;
        let is_node = |entry: &fs::DirEntry| {
            let folder = entry.file_name().into_string();
            folder.is_ok_and(|folder| folder.starts_with("node-") && !folder.contains('.'))
        };
        let programs = folders.filter_map(Result::ok).filter(is_node);
        programs
            .map(|entry| entry.path().join(name))
            .find(|program| program.exists())
    }

    /// The folder of `kubectl`. It is first on PATH, because the machine's own kubectl may be years older.
    pub fn kubectl_folder(&self) -> &Path {
        &self.kubernetes
    }

    /// The manifests that Cluster API ships for a provider. `kind` is `crd` or `webhook`.
    pub fn cluster_api(&self, provider: &str, kind: &str) -> PathBuf {
        self.folder.join("cluster-api").join(provider).join(kind)
    }

    /// The minor version of Cluster API. The folders of `tests/envtest/claimed-versions` have other versions.
    pub(crate) fn cluster_api_minor(&self) -> Result<u32> {
        let file = self.folder.join("cluster-api/minor");
        match fs::read_to_string(&file) {
            Ok(minor) => minor
                .trim()
                .parse()
                .with_context(|| format!("reading {}", file.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(CLUSTER_API_MINOR),
            Err(error) => Err(error).with_context(|| format!("reading {}", file.display())),
        }
    }

    /// Whether the folder has the release of Cluster API that `assets` builds.
    pub fn has_default_cluster_api(&self) -> Result<bool> {
        Ok(self.cluster_api_minor()? == CLUSTER_API_MINOR)
    }

    /// The version of Cluster API, with `v`, from Go's build information in the kubeadm control plane manager.
    pub(crate) fn cluster_api_version(&self) -> Result<String> {
        const MODULE: &str = "\tsigs.k8s.io/cluster-api\tv";
        let program = self.program("capi-control-plane");
        let content = fs::read(&program).with_context(|| format!("reading {}", program.display()))?;
        let text = String::from_utf8_lossy(&content);
        let (_, rest) = text
            .split_once(MODULE)
            .with_context(|| format!("{} names no version of Cluster API", program.display()))?;
        let version = rest.split(char::is_whitespace).next().unwrap_or_default();
        Ok(format!("v{version}"))
    }

    pub fn kwok(&self, file: &str) -> PathBuf {
        self.folder.join("kwok-config").join(file)
    }
}

/// The container images that a real machine has.
#[derive(Debug, Clone, Copy)]
pub enum Images {
    /// What a control plane needs. Nodes become ready without more.
    ControlPlane,
    /// kube-proxy and `CoreDNS` too, which take minutes to build once.
    All,
}

/// The programs and container images of real machines.
#[derive(Debug, Clone)]
pub struct MachineAssets {
    folder: PathBuf,
    version: String,
    sandbox_image: String,
}

impl MachineAssets {
    /// Finds the programs and images. Builds them first if this machine has not done so yet.
    pub fn locate(images: Images) -> Result<Self> {
        let folder = match images {
            Images::ControlPlane => printed_by(MACHINES)?,
            Images::All => printed_with(MACHINES, &["all"])?,
        };
        let kubeadm = folder.join("usr/local/bin/kubeadm");
        let version = output_of(&kubeadm, &["version", "--output=short"])?;
        let images = output_of(
            &kubeadm,
            &["config", "images", "list", "--kubernetes-version", &version],
        )?;
        let sandbox_image = images.lines().find(|image| image.contains("/pause:"));
        Ok(Self {
            sandbox_image: sandbox_image
                .context("kubeadm lists no image of a pod's sandbox")?
                .to_owned(),
            folder,
            version,
        })
    }

    /// What is in the `/usr` of machines and not in the host's.
    pub fn usr(&self) -> PathBuf {
        self.folder.join("usr")
    }

    /// The folder of a containerd that has unpacked all images. Only copies of it may be used.
    pub fn containerd(&self) -> PathBuf {
        self.folder.join("containerd")
    }

    /// The version of Kubernetes, with `v`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The name of the image of a pod's sandbox.
    pub fn sandbox_image(&self) -> &str {
        &self.sandbox_image
    }
}

fn output_of(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("running {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{} {}: {}",
        program.display(),
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)
        .context("reading its output")?
        .trim()
        .to_owned())
}

/// Finds versitygw, a server of S3. Builds it first if this machine has not done so yet.
pub(crate) fn s3_server() -> Result<PathBuf> {
    printed_by(S3)
}

/// Finds Helm. Builds it first if this machine has not done so yet.
pub fn helm() -> Result<PathBuf> {
    printed_by(HELM)
}

/// A tool such as crane. Builds it if this machine has not done so yet.
pub fn tool(name: &str) -> Result<PathBuf> {
    printed_with(TOOL, &[name])
}

/// The path that a script of the workspace prints when it is complete.
fn printed_by(script: &str) -> Result<PathBuf> {
    printed_with(script, &[])
}

fn printed_with(script: &str, arguments: &[&str]) -> Result<PathBuf> {
    let script = products::workspace().join(script);
    // A build takes minutes and must not look like a hang, so its progress is printed to our standard error.
    let output = Command::new(&script)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", script.display()))?;
    ensure!(
        output.status.success(),
        "{} ended with {}",
        script.display(),
        output.status
    );
    let folder = String::from_utf8(output.stdout).context("reading the name of the folder")?;
    Ok(PathBuf::from(folder.trim()))
}
