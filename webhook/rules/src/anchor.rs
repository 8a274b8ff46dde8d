//! The static Pod of kcp-webhook beside an API server, and the files on its host. `kcp-webhook anchor` writes them, and
//! `kubectl kcp generate anchor` prints them for the `files` of a `KubeadmControlPlane`.
//!
//! The kubelet runs a static Pod from a file, so that after a power failure the webhook serves before the API server does. A
//! static Pod can use neither Secrets nor a service account (Kubernetes documentation, "Create static Pods"). So the static Pod
//! reads files of its host: those in [`FOLDER`], and the CA certificate of the API server.

use serde_json::{Value, json};

/// The folder from which the kubelet runs static Pods: the `staticPodPath` of kubeadm.
pub const MANIFEST_FOLDER: &str = "/etc/kubernetes/manifests";

/// The file in [`MANIFEST_FOLDER`].
pub const MANIFEST: &str = "kcp-webhook.yaml";

/// The folder on the host with the files of the static Pod, at the same path in its container.
pub const FOLDER: &str = "/etc/kubernetes/kcp-webhook";

/// The file that marks [`FOLDER`] as written for the static Pod. Without it, the anchor changes nothing in the folder.
pub const STAMP: &str = "written-by-kcp-webhook-anchor";

/// The content of [`STAMP`].
pub const STAMP_TEXT: &str = "kcp-webhook anchor writes and removes the files in this folder.\n";

/// The file with the certificate and its private key. If these were two files, a power failure between the two writes could leave
/// the new certificate beside the old private key.
pub const KEY_PAIR: &str = "tls.pem";
pub const CONFIGURATION: &str = "configuration.yaml";
pub const KUBECONFIG: &str = "kubeconfig";
pub const TOKEN: &str = "token";

/// The token before the anchor has requested one. The API server rejects it, and the webhook then reads no objects.
pub const NO_TOKEN: &str = "none";

/// The folder on the host from which an API server of Kubernetes 1.36 or newer loads webhook configurations at its start
/// (Kubernetes documentation, "Manifest-Based Admission Control"). The folder contains [`ADMISSION_CONFIGURATION`] and a folder
/// for each of [`ADMISSION_KINDS`]. The API server does not start if this file or one of these folders is missing, so the anchor
/// never removes them.
pub const ADMISSION_FOLDER: &str = "/etc/kubernetes/kcp-webhook-admission";
pub const ADMISSION_CONFIGURATION: &str = "admission.yaml";

/// Each kind of webhook configuration, its folder in [`ADMISSION_FOLDER`], and the plugin of the API server that loads it.
pub const ADMISSION_KINDS: [(&str, &str, &str); 2] = [
    (
        "MutatingWebhookConfiguration",
        "mutating",
        "MutatingAdmissionWebhook",
    ),
    (
        "ValidatingWebhookConfiguration",
        "validating",
        "ValidatingAdmissionWebhook",
    ),
];

/// The flag of the anchor with the path of [`ADMISSION_FOLDER`] in its container.
const ADMISSION_FLAG: &str = "admission-folder";

/// The annotation of the static Pod by which the anchor recognizes its manifest.
pub const WRITTEN_BY: &str = "kubectl-kcp.dev/written-by";
pub const ANCHOR: &str = "kcp-webhook-anchor";

/// The name of the static Pod in its manifest. The name of its mirror Pod also has a hyphen and the name of the Node.
pub const NAME: &str = "kcp-webhook";

/// The value of the label `app.kubernetes.io/name` on the static Pods. It differs from the value on the Pods of the Deployment,
/// so that the Service of the Deployment sends no reviews to the static Pods.
pub const STATIC_POD: &str = "kcp-webhook-static";

/// The annotation of an anchor's Pod: the port of the static Pod, and the serial number of the certificate with which it has
/// passed its self-test, separated by a space.
pub const SERVES: &str = "kubectl-kcp.dev/serves";

/// The annotation of an anchor's Pod while the static Pod does not serve, or is about to stop. No API server should call the
/// static Pod then.
pub const STOPS: &str = "kubectl-kcp.dev/static-pod-stops";

/// The user and the group of the static Pod, who may read its files.
pub const USER: u32 = 65532;

/// The default ports on 127.0.0.1. They are below the ports that Linux and Kubernetes assign by themselves (30000 and above),
/// and no component of Kubernetes listens on them.
pub const PORT: u16 = 11443;
pub const HEALTH_PORT: u16 = 11081;

/// The port of an API server that kubeadm configures.
pub const API_SERVER_PORT: u16 = 6443;

/// The CA certificate of the API server on a host that kubeadm has configured.
pub(crate) const CLUSTER_CA: &str = "/etc/kubernetes/pki/ca.crt";

/// The command that lets the user of a static Pod read the CA certificate of the API server. kubeadm lets everybody read it, but the
/// bootstrap data of Cluster API writes it for root alone.
pub(crate) fn readable_cluster_ca() -> String {
    format!("chmod 0644 {CLUSTER_CA}")
}

/// The settings of the static Pod that differ between installations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticPod {
    pub namespace: String,
    pub image: String,
    pub port: u16,
    pub health_port: u16,
    /// More arguments of `kcp-webhook serve`.
    pub arguments: Vec<String>,
}

impl StaticPod {
    /// The arguments of its container.
    pub fn serve_arguments(&self) -> Vec<String> {
        let file = |name: &str| format!("{FOLDER}/{name}");
        let mut arguments = vec![
            "serve".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port),
            format!("--health-port={}", self.health_port),
            format!("--tls-cert-file={}", file(KEY_PAIR)),
            format!("--tls-private-key-file={}", file(KEY_PAIR)),
            format!("--configuration={}", file(CONFIGURATION)),
            format!("--kubeconfig={}", file(KUBECONFIG)),
        ];
        arguments.extend(self.arguments.iter().cloned());
        arguments
    }

    /// The manifest. It depends only on the fields of this value, so that the kubelet restarts the Pod only if one of them
    /// changes.
    pub fn manifest(&self) -> Value {
        let probe = |path: &str| {
            json!({
                "httpGet": {"host": "127.0.0.1", "path": path, "port": self.health_port},
                "periodSeconds": 5,
            })
        };
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": NAME,
                "namespace": self.namespace,
                "labels": {"app.kubernetes.io/name": STATIC_POD, "app.kubernetes.io/part-of": "kubectl-kcp"},
                "annotations": {WRITTEN_BY: ANCHOR},
            },
            "spec": static_pod_spec(FOLDER, &json!({
                "name": "kcp-webhook",
                "image": self.image,
                "args": self.serve_arguments(),
                "livenessProbe": probe("/livez"),
                "readinessProbe": probe("/readyz"),
                "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
                "volumeMounts": [
                    {"name": "files", "mountPath": FOLDER, "readOnly": true},
                    {"name": "cluster-ca", "mountPath": CLUSTER_CA, "readOnly": true},
                ],
            }), &json!({"terminationGracePeriodSeconds": 40})),
        })
    }

    /// Returns the files that an anchor writes to its host, if the container of the anchor has this image and these arguments.
    pub fn of_anchor(namespace: &str, image: &str, arguments: &[String]) -> HostFiles {
        let values = |flag: &str| -> Vec<String> {
            let prefix = format!("--{flag}=");
            let values = arguments
                .iter()
                .filter_map(|argument| argument.strip_prefix(&prefix));
            values.map(str::to_owned).collect()
        };
        let port = |flag: &str, default: u16| {
            let value = values(flag).pop().and_then(|value| value.parse().ok());
            value.unwrap_or(default)
        };
        let static_pod = Self {
            namespace: namespace.to_owned(),
            image: image.to_owned(),
            port: port("port", PORT),
            health_port: port("health-port", HEALTH_PORT),
            arguments: values("serve-argument"),
        };
        HostFiles {
            static_pod,
            api_server_port: port("api-server-port", API_SERVER_PORT),
            has_admission_manifests: !values(ADMISSION_FLAG).is_empty(),
        }
    }
}

/// What an anchor writes to its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFiles {
    pub static_pod: StaticPod,
    pub api_server_port: u16,
    /// Whether the API server of the host loads webhook configurations from [`ADMISSION_FOLDER`].
    pub has_admission_manifests: bool,
}

impl HostFiles {
    /// The part of a `KubeadmControlPlane` with which a new Machine runs the static Pod from its first boot on. The certificate
    /// and the key come from a Secret in the namespace of the control plane, so that a new certificate causes no rollout.
    pub fn control_plane(&self, configuration: Option<&str>, secret: &str) -> Value {
        let own = |name: &str, content: (&str, Value)| {
            control_plane_file(&format!("{FOLDER}/{name}"), "0600", content)
        };
        let key_pair = json!({"secret": {"name": secret, "key": KEY_PAIR}});
        let mut files = vec![
            own(STAMP, ("content", json!(STAMP_TEXT))),
            own(KEY_PAIR, ("contentFrom", key_pair)),
        ];
        files.extend(configuration.map(|text| own(CONFIGURATION, ("content", json!(text)))));
        files.push(own(
            KUBECONFIG,
            ("content", json!(text(&kubeconfig(self.api_server_port, None)))),
        ));
        files.push(own(TOKEN, ("content", json!(NO_TOKEN))));
        let manifest = ("content", json!(text(&self.static_pod.manifest())));
        files.push(control_plane_file(
            &format!("{MANIFEST_FOLDER}/{MANIFEST}"),
            "0644",
            manifest,
        ));
        let mut fields = json!({
            // cloud-init knows users by name only, and the user of the static Pod has none.
            "preKubeadmCommands": [format!("chown -R {USER}:{USER} {FOLDER}"), readable_cluster_ca()],
            // Without this entry, kubeadm join fails, because the folder of static Pods is not empty.
            "joinConfiguration": {"nodeRegistration": {
                "ignorePreflightErrors": ["DirAvailable--etc-kubernetes-manifests"],
            }},
        });
        if self.has_admission_manifests {
            let file = |(path, content): (String, String)| {
                control_plane_file(&path, "0644", ("content", json!(content)))
            };
            files.extend(admission_files().map(file));
            let api_server = json!({"clusterConfiguration": {"apiServer": admission_api_server()}});
            json_patch::merge(&mut fields, &api_server);
        }
        json_patch::merge(&mut fields, &json!({"files": files}));
        json!({"spec": {"kubeadmConfigSpec": fields}})
    }
}

/// The paths and contents of the files that an API server needs at its start if it loads webhook configurations from
/// [`ADMISSION_FOLDER`]. The API server loads no webhook configuration until the anchor writes one. The stamps only make the
/// folders exist; the API server ignores them.
pub fn admission_files() -> impl Iterator<Item = (String, String)> {
    let plugins = ADMISSION_KINDS.map(|(_, folder, plugin)| {
        json!({"name": plugin, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "staticManifestsDir": format!("{ADMISSION_FOLDER}/{folder}"),
        }})
    });
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins});
    let stamps = ADMISSION_KINDS.map(|(_, folder, _)| {
        (
            format!("{ADMISSION_FOLDER}/{folder}/{STAMP}"),
            STAMP_TEXT.to_owned(),
        )
    });
    let configuration = (
        format!("{ADMISSION_FOLDER}/{ADMISSION_CONFIGURATION}"),
        text(&configuration),
    );
    std::iter::once(configuration).chain(stamps)
}

/// The fields of `apiServer` in kubeadm's `ClusterConfiguration` for an API server that loads [`admission_files`].
pub fn admission_api_server() -> Value {
    json!({
        "extraArgs": [
            {"name": "admission-control-config-file", "value": format!("{ADMISSION_FOLDER}/{ADMISSION_CONFIGURATION}")},
            {"name": "feature-gates", "value": "ManifestBasedAdmissionControlConfig=true"},
        ],
        "extraVolumes": [{
            "name": "kcp-webhook-admission",
            "hostPath": ADMISSION_FOLDER,
            "mountPath": ADMISSION_FOLDER,
            "readOnly": true,
            "pathType": "Directory",
        }],
    })
}

/// The spec of a static Pod that uses the network of its host. `container` adds fields to the only container, and `own` adds
/// fields to the spec. The volume `files` contains `folder` of the host, and the volume `cluster-ca` contains the CA certificate
/// of the cluster.
pub(crate) fn static_pod_spec(folder: &str, container: &Value, own: &Value) -> Value {
    let shared_by_containers = json!({
        // After a power failure, a registry may be unreachable.
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    });
    let shared = json!({
        "hostNetwork": true,
        // For other Pods, the API server sets `priority` from the PriorityClass. The kubelet runs a static Pod without the API
        // server, so the manifest needs both fields, as in kubeadm's static Pods (cmd/kubeadm/app/util/staticpod/utils.go).
        "priorityClassName": "system-node-critical",
        "priority": 2_000_001_000,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [merged(shared_by_containers, container)],
        "volumes": [
            {"name": "files", "hostPath": {"path": folder, "type": "Directory"}},
            {"name": "cluster-ca", "hostPath": {"path": CLUSTER_CA, "type": "File"}},
        ],
    });
    merged(shared, own)
}

fn merged(mut object: Value, more: &Value) -> Value {
    json_patch::merge(&mut object, more);
    object
}

/// An entry of `files` in a `KubeadmConfigSpec`. `source` is `content` or `contentFrom`.
pub(crate) fn control_plane_file(path: &str, permissions: &str, (source, value): (&str, Value)) -> Value {
    json!({"path": path, "owner": "root:root", "permissions": permissions, source: value})
}

/// An object as YAML.
pub fn text(object: &Value) -> String {
    // JSON is YAML, too.
    serde_saphyr::to_string(object).unwrap_or_else(|_| object.to_string())
}

/// The kubeconfig of the static Pod: the API server on its own host, and a token in a file that the anchor renews. `authority`
/// is the CA certificate of the API server in base64. Without `authority`, the static Pod reads `CLUSTER_CA` on the host, and
/// fails if the permissions of this file do not allow this.
pub fn kubeconfig(api_server_port: u16, authority: Option<&Value>) -> Value {
    let (key, authority) = match authority {
        Some(data) => ("certificate-authority-data", data.clone()),
        None => ("certificate-authority", json!(CLUSTER_CA)),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "local",
        "clusters": [{"name": "local", "cluster": {
            "server": format!("https://127.0.0.1:{api_server_port}"),
            // kubeadm's certificate has this name, but not the address 127.0.0.1.
            "tls-server-name": "kubernetes.default.svc",
            key: authority,
        }}],
        "users": [{"name": "kcp-webhook", "user": {"tokenFile": format!("{FOLDER}/{TOKEN}")}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "kcp-webhook"}}],
    })
}

/// Whether a manifest is one that was written for the anchor, and not somebody's own file of the same name.
pub fn is_written_by_anchor(manifest: &str) -> bool {
    let parsed: Result<Value, _> = serde_saphyr::from_str(manifest);
    parsed.is_ok_and(|manifest| {
        let annotations = manifest.pointer("/metadata/annotations");
        annotations.and_then(|annotations| annotations.get(WRITTEN_BY)) == Some(&json!(ANCHOR))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn static_pod() -> StaticPod {
        StaticPod {
            namespace: "kcp-webhook-system".to_owned(),
            image: "registry.example.com/kcp-webhook:0.1.0".to_owned(),
            port: PORT,
            health_port: HEALTH_PORT,
            arguments: vec!["--log-format=json".to_owned()],
        }
    }

    #[test]
    fn the_manifest_is_as_reviewed() {
        insta::assert_snapshot!(text(&static_pod().manifest()));
    }

    #[test]
    fn the_arguments_of_the_anchor_are_those_of_the_static_pod() {
        let arguments = [
            "anchor",
            "--port=1",
            "--serve-argument=--log-format=json",
            "--api-server-port=3",
        ]
        .map(str::to_owned);
        let expected = HostFiles {
            static_pod: StaticPod {
                namespace: "n".to_owned(),
                image: "i".to_owned(),
                port: 1,
                health_port: HEALTH_PORT,
                arguments: vec!["--log-format=json".to_owned()],
            },
            api_server_port: 3,
            has_admission_manifests: false,
        };
        assert_eq!(StaticPod::of_anchor("n", "i", &arguments), expected);
        let folder = ["--admission-folder=/host/admission".to_owned()];
        assert!(StaticPod::of_anchor("n", "i", &folder).has_admission_manifests);
    }

    #[test]
    fn a_new_machine_gets_the_same_files() {
        let host_files = |has_admission_manifests| HostFiles {
            static_pod: static_pod(),
            api_server_port: API_SERVER_PORT,
            has_admission_manifests,
        };
        let control_plane = host_files(false).control_plane(Some("rules: {}\n"), "kcp-webhook-tls");
        insta::assert_snapshot!(text(&control_plane));
        let mut more = host_files(true).control_plane(Some("rules: {}\n"), "kcp-webhook-tls");
        let (fields, before) = (
            "/spec/kubeadmConfigSpec",
            control_plane["spec"]["kubeadmConfigSpec"].clone(),
        );
        let files = more
            .pointer_mut(&format!("{fields}/files"))
            .unwrap()
            .as_array_mut()
            .unwrap();
        files.drain(..before["files"].as_array().unwrap().len());
        let more = more.pointer(fields).unwrap();
        insta::assert_snapshot!(text(
            &json!({"files": more["files"], "clusterConfiguration": more["clusterConfiguration"]})
        ));
    }

    #[test]
    fn the_kubeconfig_contains_the_authority_or_its_path() {
        let cluster =
            |authority: Option<Value>| kubeconfig(6443, authority.as_ref())["clusters"][0]["cluster"].clone();
        let embedded = cluster(Some(json!("Q0E=")));
        assert_eq!(
            (
                &embedded["certificate-authority-data"],
                embedded.get("certificate-authority")
            ),
            (&json!("Q0E="), None)
        );
        let external = cluster(None);
        let path = json!("/etc/kubernetes/pki/ca.crt");
        assert_eq!(
            (
                &external["certificate-authority"],
                external.get("certificate-authority-data")
            ),
            (&path, None)
        );
    }

    #[test]
    fn a_static_pod_uses_no_object_of_the_api_server() {
        let manifest = static_pod().manifest();
        let spec = &manifest["spec"];
        assert_eq!(spec.get("serviceAccountName"), None);
        for volume in spec["volumes"].as_array().unwrap() {
            let sources: Vec<&String> = volume.as_object().unwrap().keys().collect();
            assert_eq!(sources, ["hostPath", "name"], "{volume}");
        }
        assert_eq!(spec["containers"][0].get("env"), None);
        assert_eq!(spec["containers"][0].get("envFrom"), None);
    }

    #[test]
    fn only_the_annotation_makes_a_manifest_ours() {
        let written = text(&static_pod().manifest());
        let foreign = written.replace(ANCHOR, "somebody");
        for (manifest, expected) in [
            (written.as_str(), true),
            (foreign.as_str(), false),
            ("apiVersion: v1\nkind: Pod\n", false),
            ("", false),
            ("{", false),
        ] {
            assert_eq!(is_written_by_anchor(manifest), expected, "{manifest}");
        }
    }
}
