//! The real programs that the tests run: built once by `tests/envtest/assets`, which says where they are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::products;

/// Programs that envtest's `KUBEBUILDER_ASSETS` holds by convention.
const KUBERNETES: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

/// The finished folder.
#[derive(Debug, Clone)]
pub struct Assets {
    folder: PathBuf,
    kubernetes: PathBuf,
}

impl Assets {
    /// Finds the programs, building them first when this machine has not done so yet.
    pub fn locate() -> Result<Self> {
        let script = products::workspace().join("tests/envtest/assets");
        // Its progress goes to our standard error; a build takes ten minutes and must not look like a hang.
        let output = Command::new(&script)
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
        let folder = String::from_utf8(output.stdout).context("reading the name of the assets folder")?;
        let folder = PathBuf::from(folder.trim());
        let kubernetes = env::var_os("KUBEBUILDER_ASSETS").map_or_else(|| folder.clone(), PathBuf::from);
        Ok(Self { folder, kubernetes })
    }

    /// The path of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        if KUBERNETES.contains(&name) {
            self.kubernetes.join(name)
        } else {
            self.folder.join(name)
        }
    }

    /// The folder of `kubectl`, which goes first on PATH: a machine's own may be years older.
    pub fn kubectl_folder(&self) -> &Path {
        &self.kubernetes
    }

    /// What Cluster API ships for a provider: `kind` is `crd` or `webhook`.
    pub fn cluster_api(&self, provider: &str, kind: &str) -> PathBuf {
        self.folder.join("cluster-api").join(provider).join(kind)
    }

    /// A file of kwok's configuration.
    pub fn kwok(&self, file: &str) -> PathBuf {
        self.folder.join("kwok-config").join(file)
    }
}
