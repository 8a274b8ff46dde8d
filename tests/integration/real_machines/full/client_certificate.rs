//! The example of the guide, step by step: kubeadm gives the API server a client certificate, and kcp-webhook trusts only it.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Context as _, Result, anyhow, ensure};
use kcp_rules::testing::case::Base;
use kcp_rules::testing::row::merge;
use kcp_tests::machines::real::{Addons, Images, KubeadmCluster, Machine, Site, webhook_image};
use kcp_tests::{hive, manifests, products, wait};
use serde_json::{Value, json};

use crate::objects::{write, written};
use crate::real_machines::full::Clock;
use crate::real_machines::on_machines;

const FOLDER: &str = "/etc/kubernetes/kcp-webhook-client";

#[test]
#[ignore = "needs root: make test-machines PART=full"]
fn the_guide_gives_the_api_server_of_kubeadm_a_client_certificate() {
    on_machines("client-certificate", Images::All, async |site| {
        let mut clock = Clock::start();
        let guide = fs::read_to_string(products::workspace().join("docs/src/guides/trusted-clients.md"))?;
        let [issue, give] = blocks(&guide, "console")?;
        run(site, &issue.replace("$ ", "")).await?;
        let first = site.machine("first")?;
        let cluster = start(site, &first, blocks(&guide, "yaml")?).await?;
        clock.lap("kubeadm init");

        let kubectl = cluster.kubectl();
        hive::install_definitions(cluster.client()).await?;
        manifests::definitions_served(cluster.client()).await?;
        first.import_image(&webhook_image(site)?).await?;
        let installation = site.folder().join("kustomization.yaml");
        let components = "[manifests/single-node, manifests/components/client-certificates]";
        fs::write(
            &installation,
            format!("resources: [manifests/managed]\ncomponents: {components}\n"),
        )?;
        symlink(
            products::workspace().join("manifests"),
            site.folder().join("manifests"),
        )?;
        let folder = site.folder().display().to_string();
        kubectl.succeed(["apply", "-k", &folder]).await?;
        let authority = format!("--from-file=ca.crt={}", site.folder().join("ca.crt").display());
        let give = give.replace("--from-file=ca.crt", &authority);
        kubectl
            .succeed(give.split(' ').skip_while(|word| *word != "-n"))
            .await?;

        written(kubectl, "create", &[pool("first")], &["-n", "default"]).await?;
        wait::until("the API server's review is based on reads", || async {
            let second = write(
                kubectl,
                "create",
                &[pool("second")],
                &["-n", "default", "--dry-run=server"],
            )
            .await?;
            ensure!(second.stderr.contains("(inventory-shared)"), "{second}");
            Ok(())
        })
        .await?;
        clock.lap("kcp-webhook reviews for the API server");
        first.wipe().await
    });
}

/// Starts a control plane with the files and the settings of the guide.
async fn start(
    site: &Site,
    first: &Machine,
    [configuration, kubeconfig, kubeadm]: [String; 3],
) -> Result<KubeadmCluster> {
    let issued =
        |name: &str| fs::read_to_string(site.folder().join(name)).with_context(|| format!("reading {name}"));
    for (name, content) in [
        ("configuration.yaml", configuration),
        ("kubeconfig.yaml", kubeconfig),
        ("tls.crt", issued("tls.crt")?),
        ("tls.key", issued("tls.key")?),
    ] {
        first.write(&format!("{FOLDER}/{name}"), &content)?;
    }
    first.power_on().await?;
    let settings = manifests::parse(&kubeadm)?.pop().context("an empty block")?;
    let api_server = settings.get("apiServer").context("no apiServer")?;
    let cluster = KubeadmCluster::init_with(first, Addons::All, api_server).await?;
    cluster.ready(&["first"]).await?;
    Ok(cluster)
}

/// The code blocks in a language, without their indentation.
fn blocks<const COUNT: usize>(guide: &str, language: &str) -> Result<[String; COUNT]> {
    let opening = format!("```{language}\n");
    let blocks = guide.split(&opening).skip(1).map(|block| {
        let lines = block.lines().take_while(|line| line.trim() != "```");
        let lines: Vec<_> = lines
            .map(|line| line.strip_prefix("   ").unwrap_or(line))
            .collect();
        lines.join("\n")
    });
    let blocks: Vec<_> = blocks.collect();
    <[String; COUNT]>::try_from(blocks).map_err(|found| anyhow!("{} blocks of {language}", found.len()))
}

/// Runs commands in the folder of the site.
async fn run(site: &Site, commands: &str) -> Result<()> {
    let script = format!("cd {}\n{commands}", site.folder().display());
    let ended = tokio::process::Command::new("bash")
        .args(["-ec", &script])
        .output()
        .await?;
    ensure!(
        ended.status.success(),
        "{commands}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    Ok(())
}

fn pool(name: &str) -> Value {
    let mut pool = Base::ClusterPool.object();
    merge(&mut pool, &json!({"metadata": {"name": name, "namespace": null}}));
    pool
}
