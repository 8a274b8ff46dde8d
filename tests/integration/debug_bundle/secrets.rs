//! Random secrets in each place where one can stand, and the search for them.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::run::random;
use kube::Api;
use serde_json::{Value, json};

use super::{NAME, NAMESPACE, VERSION};
use crate::component_logs::serve;
use crate::objects::{control_plane, written};

/// The annotation with the manifest of the last `kubectl apply`, and any other.
const ANNOTATIONS: [&str; 2] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "example.com/note",
];

/// The shortest text for which the files are searched. A shorter text might be there by chance.
const MIN_LENGTH: usize = 16;

/// The secrets, by their places.
#[derive(Default)]
pub(super) struct Planted(Vec<(String, String)>);

impl Planted {
    fn secret(&mut self, place: impl Into<String>) -> String {
        let secret = format!("s3cr3t{:016x}", random());
        self.0.push((place.into(), secret.clone()));
        secret
    }

    fn bootstrap_token(&mut self, place: &str) -> String {
        let token = format!("{:06x}.{:016x}", random() & 0xff_ffff, random());
        self.0.push((place.to_owned(), token.clone()));
        token
    }

    fn annotations(&mut self, object: &str) -> Value {
        let annotations = ANNOTATIONS.map(|name| (name.to_owned(), self.secret(format!("{object} {name}"))));
        json!(BTreeMap::from(annotations))
    }

    /// Makes kwok serve logs that quote a token and a key.
    pub(super) async fn in_logs(&mut self, management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
        let workload = management.machines().cluster(NAMESPACE, NAME).await?;
        let folder = management.run().subfolder("debug-bundle-logs")?;
        let machines = cluster.machines().await?;
        let machine = machines.first().context("no Machine")?;
        for component in [
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
        ] {
            let file = folder.join(format!("{component}.log"));
            let (token, key) = (self.bootstrap_token("log"), self.secret("key in a log"));
            let text = format!(
                "2026-01-01T12:00:00Z stderr F joins with {token}\n\
                 2026-01-01T12:00:01Z stderr F -----BEGIN KEY----- {key} -----END KEY-----\n"
            );
            fs::write(&file, text)?;
            serve(&workload, component, machine, [&file, &file]).await?;
        }
        Ok(())
    }

    /// Creates the control plane.
    pub(super) async fn in_control_plane(&mut self, management: &ManagementCluster) -> Result<()> {
        let in_base64 = STANDARD.encode(self.secret("content of a file in base64"));
        let spec = json!({
            "files": [
                {"path": "/etc/planted/plain", "content": format!("password: {}\n", self.secret("content of a file"))},
                {"path": "/etc/planted/encoded", "encoding": "base64", "content": in_base64},
            ],
            "users": [{"name": "planted", "passwd": self.secret("passwd"), "gecos": self.secret("gecos"),
                "sshAuthorizedKeys": [self.secret("SSH key")]}],
            "preKubeadmCommands": [format!("echo {}", self.secret("preKubeadmCommands"))],
            "postKubeadmCommands": [format!("echo {}", self.secret("postKubeadmCommands"))],
            "mounts": [["//host/share", "/mnt", "cifs", format!("password={}", self.secret("mounts"))]],
            "clusterConfiguration": {
                "apiServer": {"certSANs": ["127.0.0.1"], "extraEnvs": [{"name": "A", "value": self.secret("extraEnvs")}]},
            },
            "initConfiguration": {"bootstrapTokens": [{"token": self.bootstrap_token("bootstrapTokens"),
                "description": self.secret("description of a token")}]},
            "joinConfiguration": {
                "nodeRegistration": {"kubeletExtraArgs": [{"name": "storage-driver-password", "value": self.secret("extraArgs")}]},
                "discovery": {
                    "tlsBootstrapToken": self.bootstrap_token("tlsBootstrapToken"),
                    "bootstrapToken": {"token": self.bootstrap_token("discovery.bootstrapToken"),
                        "unsafeSkipCAVerification": true, "apiServerEndpoint": "127.0.0.1:6443"},
                },
            },
        });
        let mut object = control_plane(NAME, 1, VERSION);
        let annotations = self.annotations("KubeadmControlPlane");
        for (pointer, field, value) in [
            ("/spec", "kubeadmConfigSpec", spec),
            ("/metadata", "annotations", annotations),
        ] {
            let fields = object.pointer_mut(pointer).and_then(Value::as_object_mut);
            fields.context("no such field")?.insert(field.to_owned(), value);
        }
        written(management.kubectl(), "create", &[object], &["-n", NAMESPACE]).await?;
        Ok(())
    }

    /// Plants secrets in objects that exist, in a Secret, and in a Pod of the workload cluster.
    pub(super) async fn in_objects(
        &mut self,
        management: &ManagementCluster,
        cluster: &Cluster,
    ) -> Result<()> {
        let kubectl = management.kubectl();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "planted"},
            "stringData": {"password": self.secret("Secret")}});
        written(kubectl, "create", &[secret], &["-n", NAMESPACE]).await?;

        let machines = cluster.machines().await?;
        let machine = machines.first().context("no Machine")?;
        let machine = format!("machine/{machine}");
        self.patch(kubectl, &machine, json!({})).await?;
        self.patch(kubectl, &format!("cluster/{NAME}"), json!({})).await?;
        let reference = "jsonpath={.spec.infrastructureRef.name}";
        let reference = ["get", "-n", NAMESPACE, &machine, "-o", reference];
        let infrastructure = kubectl.succeed(reference).await?.stdout;
        let spec = json!({"userData": self.secret("userData"), "metadata": {"labels": {"a": self.secret("metadata")}}});
        self.patch(
            kubectl,
            &format!("standinmachine/{infrastructure}"),
            json!({"spec": spec}),
        )
        .await?;
        self.in_workload_cluster(management).await
    }

    /// Adds annotations with secrets, and the fields of `patch`.
    async fn patch(&mut self, kubectl: &Kubectl, object: &str, mut patch: Value) -> Result<()> {
        let annotations = self.annotations(object);
        let fields = patch.as_object_mut().context("the patch is not an object")?;
        fields.insert("metadata".to_owned(), json!({"annotations": annotations}));
        let patch = patch.to_string();
        let words = ["patch", "-n", NAMESPACE, object, "--type=merge", "-p", &patch];
        kubectl.succeed(words).await?;
        Ok(())
    }

    /// Creates a Pod that looks like one of the control plane.
    async fn in_workload_cluster(&mut self, management: &ManagementCluster) -> Result<()> {
        let workload = management.machines().cluster(NAMESPACE, NAME).await?;
        let kubectl = Kubectl::new(management.run(), &Assets::locate()?, workload.kubeconfig())?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "planted"},
            "stringData": {"password": self.secret("Secret of the workload cluster")}});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "planted", "labels": {"tier": "control-plane"}, "annotations": self.annotations("Pod")},
            "spec": {"containers": [{
                "name": "planted", "image": "planted",
                "command": ["planted", format!("--password={}", self.secret("flag")), self.secret("argument")],
                "args": [self.secret("args")],
                "env": [{"name": "PASSWORD", "value": self.secret("env")}],
                "livenessProbe": {"httpGet": {"port": 1,
                    "httpHeaders": [{"name": "Authorization", "value": self.secret("header")}]}},
            }]},
        });
        written(&kubectl, "create", &[secret, pod], &["-n", "kube-system"]).await?;
        Ok(())
    }

    /// Adds the keys and the kubeconfig that Cluster API has created.
    pub(super) async fn read_those_of_cluster_api(&mut self, management: &ManagementCluster) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(management.client().clone(), NAMESPACE);
        for (purpose, key) in [
            ("ca", "tls.key"),
            ("etcd", "tls.key"),
            ("sa", "tls.key"),
            ("proxy", "tls.key"),
            ("kubeconfig", "value"),
        ] {
            let name = format!("{NAME}-{purpose}");
            let data = secrets.get(&name).await?.data.unwrap_or_default();
            let value = data
                .get(key)
                .with_context(|| format!("{name} has no key {key}"))?;
            let text = String::from_utf8(value.0.clone())?;
            for line in secret_lines(&text)? {
                self.0.push((name.clone(), line));
            }
        }
        Ok(())
    }

    /// Fails if a secret is in one of the files, plain or in base64.
    pub(super) fn is_absent_from(&self, files: &BTreeMap<String, String>) -> Result<()> {
        ensure!(self.0.len() > 60, "only {} secrets were planted", self.0.len());
        for (place, secret) in &self.0 {
            ensure!(secret.len() >= MIN_LENGTH, "{place}: {secret}");
            for (name, content) in files {
                ensure!(!is_in(secret, content), "{name} contains the secret of {place}");
            }
        }
        Ok(())
    }
}

/// The lines of a key in PEM format, or of the private key in a kubeconfig.
fn secret_lines(text: &str) -> Result<Vec<String>> {
    let of_kubeconfig = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("client-key-data: "));
    if let Some(key) = of_kubeconfig {
        let pem = String::from_utf8(STANDARD.decode(key)?)?;
        return Ok([vec![key.to_owned()], key_lines(&pem)].concat());
    }
    Ok(key_lines(text))
}

fn key_lines(pem: &str) -> Vec<String> {
    let lines = pem.lines().filter(|line| line.len() >= MIN_LENGTH);
    let lines = lines.filter(|line| !line.starts_with("-----"));
    lines.map(str::to_owned).collect()
}

/// Whether a text contains the secret, plain or in base64.
fn is_in(secret: &str, text: &str) -> bool {
    text.contains(secret) || in_base64(secret).iter().any(|form| text.contains(form))
}

#[test]
fn a_secret_is_found_in_each_form() {
    const SECRET_TEXT: &str = "s3cr3t0123456789";
    assert!(is_in(SECRET_TEXT, &format!("a{SECRET_TEXT}b")));
    assert!(!is_in(SECRET_TEXT, "s3cr3t012345678"));
    for before in 0..7 {
        let text = format!("{}{SECRET_TEXT}{}", "x".repeat(before), "y".repeat(6 - before));
        assert!(is_in(SECRET_TEXT, &STANDARD.encode(&text)), "{text}");
    }
}

/// The part of a text in base64 that does not depend on what stands before and after it, for each number of bytes before it.
fn in_base64(text: &str) -> [String; 3] {
    [0, 1, 2].map(|before| {
        let encoded = STANDARD.encode(" ".repeat(before) + text);
        // Each character has six bits of the bytes, and the last characters may be padding.
        let start = (before * 8).div_ceil(6);
        let end = (before + text.len()) * 8 / 6;
        encoded.get(start..end).unwrap_or_default().to_owned()
    })
}
