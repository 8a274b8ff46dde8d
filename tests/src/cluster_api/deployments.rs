//! The three managers as Deployments of a cluster on real machines, behind Services, with the names that `clusterctl init` gives
//! them.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use serde_json::{Value, json, to_value};

use super::{PROVIDERS, Provider, definitions, webhooks};
use crate::admission::apply;
use crate::machines;
use crate::machines::real::{KubeadmCluster, Machine, program_image};
use crate::pki::{Authority, Subject};
use crate::wait;

/// The folder in which a manager looks for the certificate of its webhook server.
const CERTIFICATE_FOLDER: &str = "/tmp/k8s-webhook-server/serving-certs";

impl Provider {
    /// Its image on real machines.
    fn image(&self) -> String {
        format!("docker.io/library/{}:test", self.program)
    }
}

/// Installs Cluster API in a cluster: its definitions and those of an infrastructure provider that does not run, a Deployment of one
/// Pod for each manager, and the webhooks, which the API servers call through Services. Any of `machines` may run the Pods. Waits
/// until the Pods are ready.
///
/// It differs from `clusterctl init` in two points: cert-manager does not run, so the certificates are ours, and each manager has
/// all permissions.
pub async fn install_deployments(cluster: &KubeadmCluster, machines: &[Arc<Machine>]) -> Result<()> {
    let site = cluster.site();
    let authority = Authority::new("cluster-api")?;
    let bundle = to_value(ByteString(authority.certificate().as_bytes().to_vec()))?;
    let client_config = |provider: &Provider, path: &str| {
        Ok(json!({"caBundle": bundle, "service": {
            "namespace": provider.namespace(), "name": provider.name_of("webhook-service"), "path": path}}))
    };
    definitions::install(cluster.client(), site.assets(), client_config).await?;
    machines::definitions::install(cluster.client()).await?;
    for provider in &PROVIDERS {
        let program = site.assets().program(provider.program);
        let image = program_image(site, &provider.image(), &program, "/manager")?;
        for machine in machines {
            machine.import_image(&image).await?;
        }
        let file = site.folder().join(format!("{}.json", provider.program));
        apply(cluster.kubectl(), &file, &objects(cluster, &authority, provider)?).await?;
    }
    for provider in &PROVIDERS {
        let deployment = format!("deployment/{}", provider.name_of("controller-manager"));
        let namespace = provider.namespace();
        wait::until(&format!("{deployment} is available"), || async {
            let available = [
                "wait",
                "--for=condition=Available",
                "--timeout=5s",
                &deployment,
                "-n",
                &namespace,
            ];
            cluster.kubectl().succeed(available).await.map(drop)
        })
        .await?;
    }
    webhooks::install(cluster.client(), site.assets(), client_config).await
}

fn objects(cluster: &KubeadmCluster, authority: &Authority, provider: &Provider) -> Result<Vec<Value>> {
    let namespace = provider.namespace();
    let metadata = |name: &str| json!({"name": provider.name_of(name), "namespace": namespace});
    let account = provider.name_of("manager");
    let service = provider.name_of("webhook-service");
    let labels = json!({"control-plane": provider.name_of("controller-manager")});
    Ok(vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("manager")}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": account},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": metadata("webhook-service-cert"),
            "stringData": certificate(cluster, authority, &format!("{service}.{namespace}.svc"))?,
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata("webhook-service"),
            "spec": {"selector": labels, "ports": [{"port": 443, "targetPort": "webhook-server"}]},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("controller-manager"),
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "serviceAccountName": account,
                    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
                    "containers": [container(provider)],
                    "volumes": [{"name": "cert", "secret": {"secretName": provider.name_of("webhook-service-cert")}}],
                }},
            },
        }),
    ])
}

fn container(provider: &Provider) -> Value {
    let of_pod =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    json!({
        "name": "manager",
        "image": provider.image(),
        // There is no registry.
        "imagePullPolicy": "Never",
        "args": ["--leader-elect", "--diagnostics-address=0"],
        "env": [
            of_pod("POD_NAMESPACE", "metadata.namespace"),
            of_pod("POD_NAME", "metadata.name"),
            of_pod("POD_UID", "metadata.uid"),
        ],
        "ports": [{"name": "webhook-server", "containerPort": 9443}, {"name": "healthz", "containerPort": 9440}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "healthz"}},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "healthz"}},
        "securityContext": {"runAsUser": 65532, "runAsGroup": 65532},
        "volumeMounts": [{"name": "cert", "mountPath": CERTIFICATE_FOLDER, "readOnly": true}],
    })
}

/// The data of the Secret with the certificate for `host`.
fn certificate(cluster: &KubeadmCluster, authority: &Authority, host: &str) -> Result<Value> {
    let subject = Subject {
        common_name: "cluster-api",
        names: &[host],
        ..Subject::default()
    };
    let files = authority.issue(&cluster.site().folder().join(host), "tls", &subject)?;
    let read = |file: &std::path::Path| {
        std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
    };
    Ok(json!({"tls.crt": read(&files.certificate)?, "tls.key": read(&files.key)?}))
}
