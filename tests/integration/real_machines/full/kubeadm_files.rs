//! The fields that `kubectl kcp generate anchor` and `kubectl kcp generate api-proxy` print, in a control plane of Cluster API: each new
//! machine runs kcp-webhook and the proxy as static Pods. On machines that have joined already, somebody does what these fields say.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::machines::real::{HAPROXY, KubeadmCluster, Machine, Site, haproxy_image, webhook_image};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::pki::{Authority, Subject};
use kcp_tests::{manifests, wait};
use serde_json::{Value, json};

use crate::objects::control_plane;
use crate::real_machines::full::{kubelet_uses_proxy, listed_servers, servers_of, workload_kubeconfig};

/// Adds both to the control plane, waits until Cluster API has replaced every machine, and checks each new machine.
pub(super) async fn reach_new_machines(
    site: &Arc<Site>,
    management: &ManagementCluster,
    cluster: &Cluster,
) -> Result<()> {
    let fleet = management.machines().fleet()?;
    fleet
        .add_images([webhook_image(site)?, haproxy_image(site)?])
        .await;
    let kubeconfig = workload_kubeconfig(site, management, cluster).await?;
    let workload = Kubectl::new(site.run(), site.assets(), kubeconfig)?;
    workload.apply_kustomization("manifests/api-proxy").await?;
    // No Node runs its Pods: the command reads only the DaemonSet.
    management
        .kubectl()
        .apply_kustomization("manifests/anchor")
        .await?;
    create_certificate(site, management.kubectl(), cluster.namespace()).await?;

    let before: BTreeSet<_> = cluster.machines().await?.into_iter().collect();
    let mut fields = cluster.get().await?;
    // The API servers of today would all be gone when a later Machine starts.
    let endpoint = endpoint(site);
    let discovery = discovery_files(&endpoint);
    let printed = [
        management
            .kubectl()
            .succeed(["kcp", "generate", "anchor"])
            .await?,
        workload.succeed(discovery).await?,
    ];
    for printed in printed {
        for document in manifests::parse(&printed.stdout)? {
            add(&mut fields, document);
        }
    }
    let fields = fields
        .pointer("/spec/kubeadmConfigSpec")
        .context("the control plane has no kubeadmConfigSpec")?;
    cluster
        .patch(&json!({"spec": {"kubeadmConfigSpec": fields}}))
        .await?;
    wait::until("every machine is a new one", || async {
        cluster.is_settled(3).await?;
        let now = cluster.machines().await?;
        ensure!(now.iter().all(|name| !before.contains(name)), "{now:?}");
        Ok(())
    })
    .await?;

    let machines = fleet.machines().await;
    let servers = servers_of(machines.iter().map(|machine| &**machine));
    for machine in &machines {
        judges(machine).await.with_context(|| machine.name().to_owned())?;
        has_a_proxy(machine, &servers)
            .await
            .with_context(|| machine.name().to_owned())?;
    }
    Ok(())
}

fn endpoint(site: &Site) -> String {
    let (host, port) = site.endpoint();
    format!("{host}:{port}")
}

const fn discovery_files(endpoint: &str) -> [&str; 7] {
    [
        "kcp",
        "generate",
        "api-proxy",
        "--proxy-image",
        HAPROXY,
        "--api-server",
        endpoint,
    ]
}

/// Puts the proxy on machines that have joined already, with the files and commands for new ones, and waits until each lists all
/// API servers. kube-proxy uses it too.
pub(super) async fn install_proxies(
    site: &Arc<Site>,
    cluster: &KubeadmCluster,
    machines: &[Arc<Machine>],
) -> Result<()> {
    let kubectl = cluster.kubectl();
    let endpoint = endpoint(site);
    let printed = kubectl.succeed(discovery_files(&endpoint)).await?.stdout;
    let document = manifests::parse(&printed)?.pop().context("nothing is printed")?;
    let list = |name: &str| {
        let list = document.pointer(&format!("/spec/kubeadmConfigSpec/{name}"));
        let list = list.and_then(Value::as_array);
        list.with_context(|| format!("there are no {name}: {printed}"))
    };
    let image = haproxy_image(site)?;
    for machine in machines {
        machine.import_image(&image).await?;
        for file in list("files")? {
            let text = |key: &str| {
                file.get(key)
                    .and_then(Value::as_str)
                    .context("a file is incomplete")
            };
            machine.write(text("path")?, text("content")?)?;
            machine
                .succeed(["chmod", text("permissions")?, text("path")?])
                .await?;
        }
        for command in list("preKubeadmCommands")?
            .iter()
            .chain(list("postKubeadmCommands")?)
        {
            let command = command.as_str().context("a command is no text")?;
            machine.succeed(["sh", "-c", command]).await?;
        }
        let label = ["label", "node", machine.name(), "kubectl-kcp.dev/api-proxy="];
        kubectl.succeed(label).await?;
    }
    kubectl.apply_kustomization("manifests/api-proxy").await?;

    let config = [
        "get",
        "configmap",
        "kube-proxy",
        "-n",
        "kube-system",
        "-o",
        "json",
    ];
    let config = kubectl.succeed(config).await?.stdout;
    let server = format!("server: https://{endpoint}\\n");
    ensure!(config.contains(&server), "{config}");
    let proxy = "server: https://127.0.0.1:7445\\n    tls-server-name: kubernetes.default.svc\\n";
    let file = site.folder().join("kube-proxy.json");
    fs::write(&file, config.replace(&server, proxy))
        .with_context(|| format!("writing {}", file.display()))?;
    kubectl
        .succeed(["replace", "-f", &file.display().to_string()])
        .await?;
    for verb in ["restart", "status"] {
        let rollout = ["rollout", verb, "daemonset/kube-proxy", "-n", "kube-system"];
        kubectl.succeed(rollout).await?;
    }
    let servers = servers_of(machines.iter().map(|machine| &**machine));
    for machine in machines {
        has_a_proxy(machine, &servers)
            .await
            .with_context(|| machine.name().to_owned())?;
    }
    Ok(())
}

/// Adds fields as the commands ask for: lists to the lists that are there.
fn add(fields: &mut Value, added: Value) {
    match (fields, added) {
        (Value::Object(fields), Value::Object(added)) => {
            for (key, value) in added {
                add(fields.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(fields), Value::Array(added)) => fields.extend(added),
        (fields, added) => *fields = added,
    }
}

/// Creates the Secret to which the files refer, as a copy of the Secret that the manager renews.
async fn create_certificate(site: &Site, kubectl: &Kubectl, namespace: &str) -> Result<()> {
    let loopback = std::net::Ipv4Addr::LOCALHOST.into();
    let subject = Subject {
        common_name: "kcp-webhook",
        addresses: &[loopback],
        ..Subject::default()
    };
    let files = Authority::new("kcp-webhook")?.issue(&site.folder().join("kcp-webhook"), "tls", &subject)?;
    let read = |file: &std::path::Path| {
        fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
    };
    let both = site.folder().join("kcp-webhook/tls.pem");
    fs::write(&both, read(&files.certificate)? + &read(&files.key)?)
        .with_context(|| format!("writing {}", both.display()))?;
    let from = format!("--from-file={}", both.display());
    let create = [
        "create",
        "secret",
        "generic",
        "kcp-webhook-tls",
        "-n",
        namespace,
        &from,
    ];
    kubectl.succeed(create).await.map(drop)
}

/// Waits until the static Pod of kcp-webhook denies an even number of replicas.
async fn judges(machine: &Machine) -> Result<()> {
    let kind = json!({"group": "controlplane.cluster.x-k8s.io", "version": "v1beta2", "kind": "KubeadmControlPlane"});
    let resource = json!({"group": "controlplane.cluster.x-k8s.io", "version": "v1beta2", "resource": "kubeadmcontrolplanes"});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
        "name": "even", "namespace": "default", "operation": "CREATE", "userInfo": {"username": "test"},
        "object": control_plane("even", 4, "v1.34.2"), "oldObject": null, "dryRun": true, "options": null,
    }});
    machine.write("/root/review.json", &review.to_string())?;
    let post = [
        "curl",
        "--silent",
        "--insecure",
        "--header",
        "Content-Type: application/json",
        "--data",
        "@/root/review.json",
        "https://127.0.0.1:11443/mutate",
    ];
    wait::until("kcp-webhook denies an even number", || async {
        let answer = machine.succeed(post).await?.stdout;
        ensure!(answer.contains("(replicas-even)"), "{answer}");
        Ok(())
    })
    .await
}

/// Waits until the kubelet uses the proxy, the proxy lists exactly these API servers, and one of them responds through it.
async fn has_a_proxy(machine: &Machine, expected: &BTreeSet<String>) -> Result<()> {
    let through = [
        "curl",
        "--silent",
        "--cacert",
        "/etc/kubernetes/pki/ca.crt",
        "--connect-to",
        "kubernetes.default.svc:443:127.0.0.1:7445",
        "https://kubernetes.default.svc/readyz",
    ];
    wait::until("the proxy serves", || async {
        kubelet_uses_proxy(machine)?;
        let listed = listed_servers(machine)?;
        ensure!(listed == *expected, "it has {listed:?}");
        let ready = machine.succeed(through).await?.stdout;
        ensure!(ready == "ok", "{ready:?}");
        Ok(())
    })
    .await
}
