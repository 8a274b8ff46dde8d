//! The local proxy in front of all API servers: HAProxy as a static Pod, at an address that can be reached only on its own node.
//! The kubelet of the node connects to the proxy, and so needs no load balancer. `kubectl kcp generate api-proxy` and `kubectl
//! kcp node join-script` place the proxy on a host, and `kcp-webhook api-proxy` rewrites its list of API servers when they
//! change.
//!
//! Promenade, document 004, "Resiliency", asks for a local discovery of API servers on each node, and names HAProxy for it.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use serde_json::{Value, json};
use thiserror::Error;

use crate::anchor::{
    CLUSTER_CA, MANIFEST_FOLDER, USER, control_plane_file, readable_cluster_ca, static_pod_spec, text,
};

/// The folder on the host with the files of the static Pod, at the same path in its container.
pub const FOLDER: &str = "/etc/kubernetes/kcp-api-proxy";
pub const CONFIGURATION: &str = "haproxy.cfg";

/// HAProxy's master process reads commands from this socket in [`FOLDER`]: HAProxy Management Guide, "Master CLI".
pub const SOCKET: &str = "master.sock";

/// The file in [`MANIFEST_FOLDER`].
pub const MANIFEST: &str = "kcp-api-proxy.yaml";

/// The name of the static Pod in its manifest, and of the DaemonSet that updates it.
pub const NAME: &str = "kcp-api-proxy";

/// The label of each Node with the proxy, which the DaemonSet selects. Its value is empty.
pub const NODE_LABEL: &str = "kubectl-kcp.dev/api-proxy";

/// A version of HAProxy with long-term support. The commands of its master process need version 2.2 or newer.
pub const IMAGE: &str = "docker.io/library/haproxy:3.2-alpine";

/// The default ports on 127.0.0.1. Talos Linux also uses 7445 for such a proxy.
pub const PORT: u16 = 7445;
pub const HEALTH_PORT: u16 = 7446;

/// By default, kubeadm's certificate of an API server has this name, but not the address 127.0.0.1.
pub const SERVER_NAME: &str = "kubernetes.default.svc";

/// The highest number of API servers in a configuration. A longer list is certainly wrong.
const MAX_SERVERS: usize = 64;

/// The line of the configuration after which there are only API servers.
const SERVERS: &str = "    # API servers. kcp-webhook api-proxy rewrites the lines below.";

/// The settings of the proxy that differ between installations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiProxy {
    pub image: String,
    pub port: u16,
    pub health_port: u16,
}

impl ApiProxy {
    /// HAProxy's configuration. HAProxy requests /readyz of each API server, and verifies its certificate with the CA of the
    /// cluster. An API server that does not let anonymous clients read /readyz answers 401 or 403, and then counts as ready.
    pub fn configuration(&self, servers: &BTreeSet<SocketAddr>) -> String {
        let (port, health_port) = (self.port, self.health_port);
        let head = format!(
            "# HAProxy in front of all API servers of the cluster.
global
    log stdout format raw local0 notice
    maxconn 4096

defaults
    mode tcp
    log global
    timeout connect 3s
    timeout check 3s
    timeout client 1h
    timeout server 1h

frontend health
    mode http
    bind 127.0.0.1:{health_port}
    monitor-uri /livez

frontend api
    bind 127.0.0.1:{port}
    default_backend api-servers

backend api-servers
    balance leastconn
    option httpchk GET /readyz
    http-check expect rstatus ^(200|401|403)$
    default-server check check-ssl verify required ca-file {CLUSTER_CA} inter 2s fall 2 rise 1 on-marked-down shutdown-sessions
{SERVERS}
"
        );
        head + &server_lines(servers)
    }

    /// The manifest of the static Pod.
    pub fn manifest(&self) -> Value {
        let probe = json!({
            "httpGet": {"host": "127.0.0.1", "path": "/livez", "port": self.health_port},
            "periodSeconds": 5,
        });
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": NAME,
                "namespace": "kube-system",
                "labels": {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "kubectl-kcp"},
            },
            "spec": static_pod_spec(FOLDER, &json!({
                "name": "haproxy",
                "image": self.image,
                "command": [
                    "haproxy", "-W", "-db",
                    "-S", format!("{FOLDER}/{SOCKET}"),
                    "-f", format!("{FOLDER}/{CONFIGURATION}"),
                ],
                "livenessProbe": probe,
                "readinessProbe": probe,
                "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
                "volumeMounts": [
                    {"name": "files", "mountPath": FOLDER},
                    {"name": "cluster-ca", "mountPath": CLUSTER_CA, "readOnly": true},
                ],
            }), &json!({})),
        })
    }

    /// The fields of a `kubeadmConfigSpec`, or of the `spec` of a `KubeadmConfig`, that make a new Machine run the proxy and make
    /// its kubelet connect to the proxy.
    pub fn kubeadm_config(&self, servers: &BTreeSet<SocketAddr>) -> Value {
        let registration = json!({"nodeRegistration": {
            "kubeletExtraArgs": [{"name": "node-labels", "value": format!("{NODE_LABEL}=")}],
        }});
        json!({
            "files": [
                control_plane_file(
                    &format!("{FOLDER}/{CONFIGURATION}"), "0600", ("content", json!(self.configuration(servers)))
                ),
                // kubeadm fails if the folder of static Pods is not empty, so a command moves the manifest there after kubeadm
                // has ended.
                control_plane_file(
                    &format!("{FOLDER}/{MANIFEST}"), "0644", ("content", json!(text(&self.manifest())))),
            ],
            // cloud-init knows users by name only, and the user of the static Pod has none.
            "preKubeadmCommands": [format!("chown -R {USER}:{USER} {FOLDER}")],
            "postKubeadmCommands": [
                readable_cluster_ca(),
                format!("mv {FOLDER}/{MANIFEST} {MANIFEST_FOLDER}/{MANIFEST}"),
                kubelet_edit(self.port),
                "systemctl restart kubelet",
            ],
            "initConfiguration": registration,
            "joinConfiguration": registration,
        })
    }
}

/// The namespace and the name of the `EndpointSlice` to which all API servers write their addresses: k8s.io/kubernetes,
/// pkg/controlplane/reconcilers.
pub const API_SERVERS: (&str, &str) = ("default", "kubernetes");

/// The API servers of an `EndpointSlice` with these addresses and ports.
pub fn api_servers<'a>(
    addresses: impl Iterator<Item = &'a String>,
    ports: impl Iterator<Item = i32> + Clone,
) -> BTreeSet<SocketAddr> {
    let ports = ports.filter_map(|port| u16::try_from(port).ok());
    addresses
        .filter_map(|address| address.parse::<IpAddr>().ok())
        .flat_map(|address| ports.clone().map(move |port| SocketAddr::new(address, port)))
        .collect()
}

/// Returns the list unchanged if its length is plausible for the API servers of one cluster. Fails if the list is empty, or has
/// more than `MAX_SERVERS` API servers.
pub fn check_count(servers: BTreeSet<SocketAddr>) -> Result<BTreeSet<SocketAddr>, CountError> {
    if servers.is_empty() || servers.len() > MAX_SERVERS {
        return Err(CountError(servers.len()));
    }
    Ok(servers)
}

/// The length of a list that cannot be the list of all API servers of a cluster.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("the list has {0} API servers, and the proxy takes 1 to {MAX_SERVERS}")]
pub struct CountError(usize);

/// A command that lets the kubelet of a host use the proxy. It changes nothing if it runs again.
pub fn kubelet_edit(port: u16) -> String {
    format!(
        "sed -i -E -e '/^ *tls-server-name:/d' -e 's|^( *)server: .*|\\1server: https://127.0.0.1:{port}\\n\\1tls-server-name: \
         {SERVER_NAME}|' /etc/kubernetes/kubelet.conf"
    )
}

/// Returns the configuration with `servers` instead of the API servers that it lists. The other lines stay as they are. `None` if
/// the configuration has no line that marks the API servers.
pub fn with_servers(configuration: &str, servers: &BTreeSet<SocketAddr>) -> Option<String> {
    let (head, _) = configuration.split_once(SERVERS)?;
    Some(format!("{head}{SERVERS}\n{}", server_lines(servers)))
}

fn server_lines(servers: &BTreeSet<SocketAddr>) -> String {
    let mut lines = String::new();
    for (number, server) in servers.iter().enumerate() {
        _ = writeln!(lines, "    server api-{number} {server}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy() -> ApiProxy {
        ApiProxy {
            image: IMAGE.to_owned(),
            port: PORT,
            health_port: HEALTH_PORT,
        }
    }

    fn servers(texts: &[&str]) -> BTreeSet<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_configuration_is_as_reviewed() {
        insta::assert_snapshot!(proxy().configuration(&servers(&[
            "10.0.0.2:6443",
            "10.0.0.1:6443",
            "[fd00::1]:6443"
        ])));
    }

    #[test]
    fn a_new_machine_gets_these_files() {
        insta::assert_snapshot!(text(&proxy().kubeadm_config(&servers(&["10.0.0.1:6443"]))));
    }

    #[test]
    fn each_address_of_the_slice_has_its_port() {
        let addresses = ["10.0.0.2", "nonsense", "10.0.0.1"].map(str::to_owned);
        let found = api_servers(addresses.iter(), [6443, -1].into_iter());
        assert_eq!(found, servers(&["10.0.0.1:6443", "10.0.0.2:6443"]));
        assert_eq!(api_servers(addresses.iter(), [].into_iter()), BTreeSet::new());
    }

    #[test]
    fn a_list_has_one_to_sixty_four_api_servers() {
        let list = |count: u16| {
            (0..count)
                .map(|port| SocketAddr::from(([10, 0, 0, 1], port)))
                .collect()
        };
        assert_eq!(check_count(list(0)), Err(CountError(0)));
        assert_eq!(check_count(list(1)), Ok(list(1)));
        assert_eq!(check_count(list(64)), Ok(list(64)));
        assert_eq!(
            check_count(list(65)).unwrap_err().to_string(),
            "the list has 65 API servers, and the proxy takes 1 to 64"
        );
    }

    #[test]
    fn only_the_api_servers_are_replaced() {
        let before = proxy()
            .configuration(&servers(&["10.0.0.1:6443"]))
            .replace("1h", "2h");
        let after = with_servers(&before, &servers(&["10.0.0.2:6443", "10.0.0.3:6443"])).unwrap();
        let added: Vec<&str> = after.lines().filter(|line| !before.contains(line)).collect();
        assert_eq!(
            added,
            ["    server api-0 10.0.0.2:6443", "    server api-1 10.0.0.3:6443"]
        );
        assert_eq!(with_servers(&after, &servers(&["10.0.0.1:6443"])), Some(before));
        assert_eq!(
            with_servers("backend theirs\n", &servers(&["10.0.0.1:6443"])),
            None
        );
    }

    #[test]
    fn the_kubelet_uses_the_proxy_however_often_the_command_runs() {
        let folder = std::env::temp_dir().join(format!("kcp-kubelet-edit-{}", std::process::id()));
        let kubeconfig = "clusters:\n- cluster:\n    certificate-authority-data: QQ==\n    server: https://lb:6443\n  name: c\n";
        std::fs::write(&folder, kubeconfig).unwrap();
        let command =
            kubelet_edit(PORT).replace("/etc/kubernetes/kubelet.conf", &folder.display().to_string());
        for _ in 0..2 {
            let status = std::process::Command::new("sh")
                .args(["-c", &command])
                .status()
                .unwrap();
            assert!(status.success());
            assert_eq!(
                std::fs::read_to_string(&folder).unwrap(),
                "clusters:\n- cluster:\n    certificate-authority-data: QQ==\n    server: https://127.0.0.1:7445\n    \
                 tls-server-name: kubernetes.default.svc\n  name: c\n"
            );
        }
        std::fs::remove_file(&folder).unwrap();
    }
}
