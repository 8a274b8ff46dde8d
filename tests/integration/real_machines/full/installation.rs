//! The installation as the book describes it. In a checkout, on two real machines that run Cluster API, a shell runs every command of
//! the pages "Install" and "Upgrade and uninstall", unchanged: it builds the image from the Containerfile and pushes it to a registry,
//! from which containerd pulls it. A client writes a control plane every 100 ms all the time, and no write is refused.
//!
//! This is all that differs from what a reader has:
//!
//! | a reader has | the test has |
//! |---|---|
//! | docker | buildah, by `tests/installation/docker` |
//! | the image `rust:1.95-alpine` | an image of the same name, from scratch, in which this host's Rust, musl and shell are mounted; without network; without optimization, and with what the last run compiled (`tests/installation/docker`) |
//! | a registry named registry.example.com | `crane registry serve`, of the same name: containerd's configuration and `tests/installation/docker` have its address |
//! | `cargo install --locked --path plugin` | the plugin that Cargo has built for all tests |
//! | `clusterctl init` | Cluster API's managers by [`install_deployments`] |
//!
//! [`NOT_RUN`] has the sections whose commands do not run.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kcp_tests::api_server::NO_ENVIRONMENT;
use kcp_tests::assets;
use kcp_tests::cluster_api::install_deployments;
use kcp_tests::machines::real::{Addons, Images, KubeadmCluster, Machine, Site};
use kcp_tests::managed::writer::{Writer, control_planes};
use kcp_tests::process::Process;
use kcp_tests::{products, wait};
use kube::Api;
use kube::api::ListParams;

use super::{Clock, create_control_plane};
use crate::real_machines::on_machines;
use crate::tutorials::step::steps;

const INSTALL: &str = "docs/src/install.md";
const UPGRADE: &str = "docs/src/upgrade-and-uninstall.md";
const NAMESPACE: &str = "kcp-webhook-system";
const REGISTRY: &str = "registry.example.com";

/// The namespace and the name of the control plane that is written.
const WRITTEN: (&str, &str) = ("default", "written");

/// The sections with commands that do not run, and why.
const NOT_RUN: [(&str, &str, &str); 6] = [
    (
        INSTALL,
        "The certificates of the manager",
        "the test of the anchor replaces the CA",
    ),
    (INSTALL, "With cert-manager", CERT_MANAGER),
    (INSTALL, "Register with the chart", CERT_MANAGER),
    (
        INSTALL,
        "The image of the plugin",
        "its Containerfile is that of the webhook, with another program and with CAs",
    ),
    (UPGRADE, "Installed with cert-manager", CERT_MANAGER),
    (UPGRADE, "Exported policies", "no policy is exported"),
];
const CERT_MANAGER: &str = "no registry has the images of cert-manager";

/// The sections in the order in which they run. A chapter ends in a state that the test checks.
const CHAPTERS: [(&[(&str, &str)], Enforced); 5] = [
    (
        &[
            (INSTALL, "The plugin"),
            (INSTALL, "The image of the webhook"),
            (INSTALL, "With its manager"),
            (INSTALL, "Check the installation"),
        ],
        Enforced::Yes,
    ),
    (
        &[
            (UPGRADE, "Upgrade the webhook"),
            (INSTALL, "Check the installation"),
        ],
        Enforced::Yes,
    ),
    (&[(UPGRADE, "Installed with its manager")], Enforced::No),
    (
        &[(INSTALL, "With Helm"), (INSTALL, "Check the installation")],
        Enforced::Yes,
    ),
    (
        &[(UPGRADE, "With Helm"), (UPGRADE, "Uninstall the plugin")],
        Enforced::No,
    ),
];

/// Whether the rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enforced {
    Yes,
    No,
}

/// The command that the webhook must refuse, and the end of what it then says.
const REFUSED: (&str, &str) = (
    "kubectl apply --dry-run=server -f manifests/samples/bad/replicas-even.yaml",
    "(replicas-even)",
);

/// What Cluster API says to an even number of replicas.
const CLUSTER_API_REFUSES: &str = "replicas cannot be an even number when etcd is stacked";

#[test]
#[ignore = "needs root: make test-machines PART=full"]
fn the_book_installs_upgrades_and_uninstalls() {
    // The site has no way to the network, which a first build needs.
    let tools = Tools::built().unwrap();
    on_machines("installation", Images::All, async |site| {
        let mut clock = Clock::start();
        let reader = Reader::new(site, &tools).await?;
        clock.lap("two machines with Cluster API");
        for (sections, enforced) in CHAPTERS {
            for section in sections {
                reader.follows(*section, &mut clock).await?;
            }
            reader.finds(enforced).await?;
        }
        Ok(())
    });
}

#[test]
fn every_section_with_commands_runs_or_has_a_reason() {
    let run = CHAPTERS.iter().flat_map(|(sections, _)| sections.iter().copied());
    let not_run = NOT_RUN.iter().map(|(page, heading, _)| (*page, *heading));
    let known: BTreeSet<_> = run.chain(not_run).collect();
    let texts = [INSTALL, UPGRADE].map(|page| (page, text(page).unwrap()));
    let with_commands = texts.iter().flat_map(|(page, text)| {
        let headings = text.lines().filter_map(heading);
        headings
            .filter(|heading| !steps(&section(text, heading)).is_empty())
            .map(|heading| (*page, heading))
    });
    assert_eq!(with_commands.collect::<BTreeSet<_>>(), known);
}

fn text(page: &str) -> Result<String> {
    fs::read_to_string(products::workspace().join(page)).with_context(|| format!("reading {page}"))
}

/// The title, if the line is a heading.
fn heading(line: &str) -> Option<&str> {
    let title = line.trim_start_matches('#');
    (title.len() < line.len()).then(|| title.strip_prefix(' '))?
}

/// The lines below a heading, up to the next one. A command begins with `$`, so that no comment in a block looks like a heading.
fn section(page: &str, of: &str) -> String {
    let after = page.lines().skip_while(|line| heading(line) != Some(of)).skip(1);
    let lines: Vec<&str> = after.take_while(|line| heading(line).is_none()).collect();
    lines.join("\n")
}

/// The programs that a reader has installed, and the registry.
struct Tools {
    kustomize: PathBuf,
    helm: PathBuf,
    crane: PathBuf,
}

impl Tools {
    fn built() -> Result<Self> {
        Ok(Self {
            kustomize: assets::tool("kustomize")?,
            helm: assets::helm()?,
            crane: assets::tool("crane")?,
        })
    }

    /// Puts the programs, and stand-ins for docker and cargo, into a folder for PATH.
    fn install(&self, folder: &Path) -> Result<()> {
        fs::create_dir(folder).with_context(|| format!("creating {}", folder.display()))?;
        symlink(
            products::workspace().join("tests/installation/docker"),
            folder.join("docker"),
        )?;
        symlink(&self.kustomize, folder.join("kustomize"))?;
        symlink(&self.helm, folder.join("helm"))?;
        let cargo = folder.join("cargo");
        fs::write(
            &cargo,
            "#!/bin/sh\n[ \"$*\" = 'install --locked --path plugin' ]\n",
        )?;
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }
}

/// Someone who follows the pages.
struct Reader {
    cluster: KubeadmCluster,
    /// A copy of the files that are in the repository, or would be with the next commit.
    checkout: PathBuf,
    environment: Vec<(&'static str, String)>,
    writer: Writer,
    _machines: [Arc<Machine>; 2],
    _registry: Process,
}

impl Reader {
    async fn new(site: &Arc<Site>, tools: &Tools) -> Result<Self> {
        let registry = format!("{}:5000", site.endpoint().0);
        let serve = ["registry", "serve", "--address", &registry];
        let serving = Process::start(site.run(), "registry", &tools.crane, serve, NO_ENVIRONMENT)?;

        let machines = [site.machine("first")?, site.machine("worker")?];
        for machine in &machines {
            machine.add_registry(REGISTRY, &registry)?;
            machine.power_on().await?;
        }
        let [first, worker] = &machines;
        let cluster = KubeadmCluster::init(first, Addons::All).await?;
        let joined = cluster.join(worker, &cluster.worker()).await?;
        ensure!(joined.code == 0, "{joined}");
        cluster.ready(&["first", "worker"]).await?;
        install_deployments(&cluster, &machines).await?;
        create_control_plane(&cluster, WRITTEN).await?;

        let folder = site.folder();
        let checkout = folder.join("checkout");
        check_out(&checkout).await?;
        let programs = folder.join("programs");
        tools.install(&programs)?;
        Ok(Self {
            environment: environment(&cluster, &programs, registry)?,
            writer: Writer::begin(control_planes(cluster.client(), WRITTEN.0), WRITTEN.1),
            cluster,
            checkout,
            _machines: machines,
            _registry: serving,
        })
    }

    async fn follows(&self, (page, heading): (&str, &str), clock: &mut Clock) -> Result<()> {
        for step in steps(&section(&text(page)?, heading)) {
            self.runs(&step.command)
                .await
                .with_context(|| format!("{page}, {heading}"))?;
            clock.lap(&format!("$ {}", step.command));
        }
        self.writer.admitted(10).await?;
        self.writer.step().await.none_refused(heading)
    }

    /// A reader repeats the test of the installation until the API server has loaded the new webhook configurations.
    async fn runs(&self, command: &str) -> Result<()> {
        let (refused, reason) = REFUSED;
        if command == refused {
            return wait::until("the webhook refuses a write", || async {
                let (code, output) = self.shell(command).await?;
                ensure!(
                    code == 1 && output.trim_end().ends_with(reason),
                    "$ {command}\n{output}"
                );
                Ok(())
            })
            .await;
        }
        let (code, output) = self.shell(command).await?;
        ensure!(code == 0, "$ {command}\n{output}(exit code {code})");
        eprintln!("{output}");
        Ok(())
    }

    /// The exit code of a command in the checkout, and both outputs. A build may take longer than other commands.
    async fn shell(&self, command: &str) -> Result<(i32, String)> {
        let run = self.cluster.site().run();
        let name = format!("installation-{:016x}", kcp_tests::run::random());
        let script = format!("cd {} && {command}", self.checkout.display());
        let arguments = ["-o", "pipefail", "-c", &script];
        let mut shell = Process::start(run, &name, Path::new("bash"), arguments, &self.environment)?;
        let code = shell.exit_code().await?;
        let output = fs::read(shell.log()).with_context(|| format!("reading the output of {command}"))?;
        Ok((code, String::from_utf8_lossy(&output).into_owned()))
    }

    /// Cluster API refuses an even number of replicas, too. The webhook answers first, because its configuration sorts first.
    async fn finds(&self, enforced: Enforced) -> Result<()> {
        let (namespace, name) = WRITTEN;
        let scale = [
            "scale",
            "kubeadmcontrolplane",
            name,
            "--replicas=4",
            "-n",
            namespace,
        ];
        let scaled = self
            .cluster
            .kubectl()
            .run(scale.iter().chain(&["--dry-run=server"]))
            .await?;
        let (_, of_rule) = REFUSED;
        let reason = match enforced {
            Enforced::Yes => of_rule,
            Enforced::No => CLUSTER_API_REFUSES,
        };
        ensure!(scaled.code == 1 && scaled.stderr.contains(reason), "{scaled}");
        let pods: Api<Pod> = Api::namespaced(self.cluster.client().clone(), NAMESPACE);
        match enforced {
            Enforced::Yes => self.runs_image_of_registry(&pods).await,
            Enforced::No => {
                wait::until("every Pod is gone", || async {
                    let left = pods.list(&ListParams::default()).await?.items.len();
                    ensure!(left == 0, "{left} Pods");
                    Ok(())
                })
                .await
            }
        }
    }

    /// Each container runs an image that its node has pulled. A container that has not started yet has none.
    async fn runs_image_of_registry(&self, pods: &Api<Pod>) -> Result<()> {
        let pulled = format!("{REGISTRY}/kcp-webhook@sha256:");
        wait::until("every Pod runs an image of the registry", || async {
            let found = pods.list(&ListParams::default()).await?;
            let statuses = found
                .iter()
                .filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref());
            let images: Vec<_> = statuses.flatten().map(|status| &status.image_id).collect();
            ensure!(
                images.len() >= 3 && images.iter().all(|image| image.starts_with(&pulled)),
                "{images:?}"
            );
            Ok(())
        })
        .await
    }
}

/// Copies the files of the repository.
async fn check_out(folder: &Path) -> Result<()> {
    fs::create_dir(folder).with_context(|| format!("creating {}", folder.display()))?;
    let script = "git ls-files -z --cached --others --exclude-standard | \
                  tar --create --null --files-from=- --ignore-failed-read | tar --extract --directory \"$0\"";
    let copied = tokio::process::Command::new("bash")
        .args(["-o", "pipefail", "-c", script])
        .arg(folder)
        .current_dir(products::workspace())
        .output()
        .await
        .context("copying the checkout")?;
    ensure!(
        copied.status.success(),
        "copying the checkout: {}",
        String::from_utf8_lossy(&copied.stderr)
    );
    Ok(())
}

/// The environment of the reader's shell, and of the stand-in for docker.
fn environment(
    cluster: &KubeadmCluster,
    programs: &Path,
    registry: String,
) -> Result<Vec<(&'static str, String)>> {
    let kubectl = cluster.kubectl();
    let home = env::var("HOME").context("$HOME")?;
    let of_rust = |variable: &str, folder: &str| env::var(variable).unwrap_or(format!("{home}/{folder}"));
    let storage = cluster.site().folder().join("images");
    let target = products::target()?.join("installation");
    Ok(vec![
        (
            "PATH",
            format!("{}:{}", programs.display(), kubectl.path().display()),
        ),
        ("KUBECONFIG", kubectl.kubeconfig().display().to_string()),
        ("STORAGE", storage.display().to_string()),
        ("TARGET", target.display().to_string()),
        ("REGISTRY", registry),
        ("CARGO_HOME", of_rust("CARGO_HOME", ".cargo")),
        ("RUSTUP_HOME", of_rust("RUSTUP_HOME", ".rustup")),
    ])
}
