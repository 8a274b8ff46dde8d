//! Writes the join script, and wraps it for cloud-init and Ignition.

use std::{collections::BTreeSet, net::SocketAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kcp_client::{Token, bootstrap_token::BootstrapToken, reads::cluster_info::ClusterInfo};
use kcp_rules::{
    anchor::text,
    api_proxy::{NODE_LABEL, kubelet_edit},
};
use serde_json::{Value, json};

use crate::{
    commands::node::{
        join_script::{
            arguments::{Download, JoinScriptArguments, Label, Taint},
            control_plane::ControlPlane,
        },
        shell::fill,
    },
    output::CommandFormat,
};

const TEMPLATE: &str = include_str!("join.sh");

/// How long kubeadm tries to read cluster-info. Its default is five minutes.
const DISCOVERY_TIMEOUT: &str = "1m0s";

/// The first minor version whose kubeadm knows the API v1beta4, as does the kubeadm of the minor version before it.
const FIRST_V1BETA4_MINOR: u64 = 32;

/// The path of the script on a host that cloud-init or Ignition configures.
const SCRIPT_PATH: &str = "/etc/kubectl-kcp/join.sh";

/// What a script needs beside the arguments. Its token and certificate key are secret.
pub(super) struct JoinValues<'v> {
    pub(super) arguments: &'v JoinScriptArguments,
    pub(super) cluster: &'v ClusterInfo,
    /// The version of the API server without a leading v, such as 1.36.3, and its minor version.
    pub(super) version: &'v str,
    pub(super) minor: u64,
    pub(super) token: &'v BootstrapToken,
    /// When the token expires, in RFC 3339 format.
    pub(super) expires: &'v str,
    pub(super) certificate_key: Option<&'v Token>,
    /// `None` for a worker.
    pub(super) control_plane: Option<&'v ControlPlane>,
    /// The API servers of the proxy. `None`: the host runs no proxy.
    pub(super) api_servers: Option<&'v BTreeSet<SocketAddr>>,
}

impl JoinValues<'_> {
    /// The script, in the format for the host. `format` is `Script`, `CloudInit` or `Ignition`.
    pub(super) fn write(&self, format: CommandFormat) -> anyhow::Result<String> {
        let script = self.script()?;
        let hostname = self.arguments.hostname.as_deref();
        Ok(match format {
            CommandFormat::CloudInit => cloud_init(&script, hostname),
            CommandFormat::Ignition => ignition(&script, hostname)?,
            _ => script,
        })
    }

    fn script(&self) -> anyhow::Result<String> {
        let arguments = self.arguments;
        let (id, secret) = self.token.expose().split_once('.').unwrap_or_default();
        let downloads = arguments.install.iter();
        let downloads =
            downloads.map(|Download { program, url, sha256 }| format!("{program} {sha256} {url}"));
        let proxy = arguments.proxy.proxy();
        let etcd_folder = self.control_plane.and_then(|read| read.etcd_folder.clone());
        let certificates = self.control_plane.and_then(|read| read.certificates.expire());
        let with_proxy =
            |value: &dyn Fn(&BTreeSet<SocketAddr>) -> String| self.api_servers.map(value).unwrap_or_default();
        let values = [
            ("token_id", id.to_owned()),
            ("token_secret", secret.to_owned()),
            ("token_expires", self.expires.to_owned()),
            ("endpoint", self.cluster.endpoint.clone()),
            ("ca", self.cluster.ca.clone()),
            ("expected_name", arguments.hostname.clone().unwrap_or_default()),
            ("cluster_version", self.version.to_owned()),
            (
                "is_control_plane",
                if arguments.control_plane { "yes" } else { "no" }.to_owned(),
            ),
            ("etcd_folder", etcd_folder.unwrap_or_default()),
            (
                "certificates_expire",
                certificates.map(|time| time.to_string()).unwrap_or_default(),
            ),
            ("cri_socket", arguments.cri_socket.clone().unwrap_or_default()),
            ("ignored_errors", arguments.ignore_preflight_errors.join(",")),
            ("downloads", downloads.collect::<Vec<_>>().join("\n")),
            (
                "join_configuration",
                serde_json::to_string_pretty(&self.configuration())?,
            ),
            ("proxy_port", with_proxy(&|_| proxy.port.to_string())),
            (
                "proxy_health_port",
                with_proxy(&|_| proxy.health_port.to_string()),
            ),
            (
                "proxy_configuration",
                with_proxy(&|servers| proxy.configuration(servers)),
            ),
            ("proxy_manifest", with_proxy(&|_| text(&proxy.manifest()))),
            ("kubelet_edit", with_proxy(&|_| kubelet_edit(proxy.port))),
            ("ready_seconds", arguments.ready_timeout.as_secs().to_string()),
        ];
        fill(TEMPLATE, &values)
    }

    /// kubeadm's `JoinConfiguration`.
    fn configuration(&self) -> Value {
        let is_v1beta4 = self.minor >= FIRST_V1BETA4_MINOR;
        let token = json!({
            "apiServerEndpoint": self.cluster.endpoint,
            "token": self.token.expose(),
            "caCertHashes": self.cluster.ca_hashes,
        });
        let (version, discovery, timeouts) = if is_v1beta4 {
            let timeouts = json!({"discovery": DISCOVERY_TIMEOUT});
            ("v1beta4", json!({ "bootstrapToken": token }), Some(timeouts))
        } else {
            let discovery = json!({"bootstrapToken": token, "timeout": DISCOVERY_TIMEOUT});
            ("v1beta3", discovery, None)
        };
        let control_plane = self.arguments.control_plane.then(|| {
            let key = self.certificate_key.map(Token::expose);
            json!({ "certificateKey": key })
        });
        object([
            ("apiVersion", Some(json!(format!("kubeadm.k8s.io/{version}")))),
            ("kind", Some(json!("JoinConfiguration"))),
            ("discovery", Some(discovery)),
            ("nodeRegistration", Some(self.registration(is_v1beta4))),
            ("timeouts", timeouts),
            ("controlPlane", control_plane),
        ])
    }

    fn registration(&self, is_v1beta4: bool) -> Value {
        let JoinScriptArguments {
            labels,
            taints,
            cri_socket,
            ignore_preflight_errors,
            ..
        } = self.arguments;
        let of_proxy = self.api_servers.map(|_| format!("{NODE_LABEL}="));
        let labels = labels.iter().map(|Label { key, value }| format!("{key}={value}"));
        let labels: Vec<String> = labels.chain(of_proxy).collect();
        let kubelet_arguments = (!labels.is_empty()).then(|| {
            let labels = labels.join(",");
            if is_v1beta4 {
                json!([{"name": "node-labels", "value": labels}])
            } else {
                json!({ "node-labels": labels })
            }
        });
        // Without this field, kubeadm taints a Node of the control plane.
        let taints = (!taints.is_empty()).then(|| {
            let taints = taints.iter();
            let taints = taints
                .map(|Taint { key, value, effect }| json!({"key": key, "value": value, "effect": effect}));
            taints.collect()
        });
        let ignored = (!ignore_preflight_errors.is_empty()).then(|| json!(ignore_preflight_errors));
        object([
            ("kubeletExtraArgs", kubelet_arguments),
            ("taints", taints),
            ("criSocket", cri_socket.as_ref().map(|socket| json!(socket))),
            ("ignorePreflightErrors", ignored),
        ])
    }
}

/// An object with the fields that have a value.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let fields = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(fields.collect())
}

fn cloud_init(script: &str, hostname: Option<&str>) -> String {
    let hostname = hostname.map_or_else(String::new, |name| format!("hostname: {name}\n"));
    format!(
        "#cloud-config
{hostname}write_files:
- path: {SCRIPT_PATH}
  owner: root:root
  permissions: \"0700\"
  encoding: b64
  content: {}
runcmd:
- [bash, {SCRIPT_PATH}]
- [rm, -f, {SCRIPT_PATH}]
",
        STANDARD.encode(script)
    )
}

/// The unit that runs the script at each start of the host, so that a join that did not end does not stay unnoticed. With an expired
/// token, the script changes nothing.
const UNIT: &str = "[Unit]
Description=Join this host to a Kubernetes cluster
ConditionPathExists=/etc/kubectl-kcp/join.sh
Wants=network-online.target
After=network-online.target containerd.service crio.service

[Service]
Type=oneshot
ExecStart=/bin/bash /etc/kubectl-kcp/join.sh
ExecStartPost=/bin/rm -f /etc/kubectl-kcp/join.sh

[Install]
WantedBy=multi-user.target
";

fn ignition(script: &str, hostname: Option<&str>) -> anyhow::Result<String> {
    let file = |path: &str, mode: u32, content: &str| {
        let source = format!(
            "data:text/plain;charset=utf-8;base64,{}",
            STANDARD.encode(content)
        );
        json!({"path": path, "mode": mode, "overwrite": true, "contents": {"source": source}})
    };
    let hostname = hostname.map(|name| file("/etc/hostname", 0o644, &format!("{name}\n")));
    let files: Vec<Value> = [file(SCRIPT_PATH, 0o700, script)]
        .into_iter()
        .chain(hostname)
        .collect();
    let configuration = json!({
        "ignition": {"version": "3.3.0"},
        "storage": {"files": files},
        "systemd": {"units": [{"name": "kubectl-kcp-join.service", "enabled": true, "contents": UNIT}]},
    });
    Ok(serde_json::to_string_pretty(&configuration)? + "\n")
}
