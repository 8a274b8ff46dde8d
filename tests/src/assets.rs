//! The real programs that the tests run. `tests/envtest/assets` builds them once and prints their folder.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::products;

/// The programs that envtest's `KUBEBUILDER_ASSETS` contains by convention.
const KUBERNETES: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

/// The folder of the programs.
#[derive(Debug, Clone)]
pub struct Assets {
    folder: PathBuf,
    kubernetes: PathBuf,
}

impl Assets {
    /// Finds the programs. Builds them first if this machine has not done so yet.
    pub fn locate() -> Result<Self> {
        let script = products::workspace().join("tests/envtest/assets");
        // The build takes minutes and must not look like a hang, so its progress is printed to our standard error.
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

    pub fn program(&self, name: &str) -> PathBuf {
        if KUBERNETES.contains(&name) {
            self.kubernetes.join(name)
        } else {
            self.folder.join(name)
        }
    }

    /// The folder of `kubectl`. It is first on PATH, because the machine's own kubectl may be years older.
    pub fn kubectl_folder(&self) -> &Path {
        &self.kubernetes
    }

    /// The manifests that Cluster API ships for a provider. `kind` is `crd` or `webhook`.
    pub fn cluster_api(&self, provider: &str, kind: &str) -> PathBuf {
        self.folder.join("cluster-api").join(provider).join(kind)
    }

    pub fn kwok(&self, file: &str) -> PathBuf {
        self.folder.join("kwok-config").join(file)
    }
}
