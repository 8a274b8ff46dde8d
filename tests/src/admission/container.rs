//! The container of the shipped Deployment, as a local process.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

/// The server's container in the manifests.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Container {
    args: Vec<String>,
    #[serde(default)]
    ports: Vec<Port>,
    #[serde(default)]
    volume_mounts: Vec<Mount>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    name: String,
    container_port: u16,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    name: String,
    mount_path: PathBuf,
}

/// The local ports of the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) secure: u16,
    pub(crate) health: u16,
}

impl Container {
    /// The only container of the only Deployment in `objects`.
    pub(crate) fn of_deployment(objects: &[Value]) -> Result<Self> {
        let mut deployments = objects
            .iter()
            .filter(|object| object.get("kind").is_some_and(|kind| kind == "Deployment"));
        let (Some(deployment), None) = (deployments.next(), deployments.next()) else {
            bail!("not exactly one Deployment")
        };
        let containers = deployment
            .pointer("/spec/template/spec/containers")
            .and_then(Value::as_array);
        let Some([container]) = containers.map(Vec::as_slice) else {
            bail!("the Deployment has not exactly one container")
        };
        Self::deserialize(container).context("reading the Deployment's container")
    }

    /// Its arguments as shipped.
    pub(crate) fn plain_arguments(&self) -> Vec<String> {
        self.args.clone()
    }

    /// Its arguments as shipped, except that ports are local and that volumes are at `volumes/NAME`.
    pub(crate) fn arguments(&self, volumes: &Path, ports: Ports) -> Result<Vec<String>> {
        let mut arguments = Vec::new();
        for argument in &self.args {
            arguments.push(match argument.split_once('=') {
                Some((flag @ "--secure-port", port)) => {
                    self.is_declared("webhook", port)?;
                    format!("{flag}={}", ports.secure)
                }
                Some((flag @ "--health-port", port)) => {
                    self.is_declared("health", port)?;
                    format!("{flag}={}", ports.health)
                }
                Some((flag, path)) if path.starts_with('/') => {
                    format!("{flag}={}", self.here(volumes, Path::new(path))?.display())
                }
                _ => argument.clone(),
            });
        }
        for flag in ["--secure-port=", "--health-port="] {
            ensure!(
                arguments.iter().any(|argument| argument.starts_with(flag)),
                "the Deployment does not set {flag}"
            );
        }
        Ok(arguments)
    }

    /// The Service and the probes refer to the port by name.
    fn is_declared(&self, name: &str, port: &str) -> Result<()> {
        let declared = self.ports.iter().find(|declared| declared.name == name);
        let declared = declared.with_context(|| format!("the Deployment has no port {name}"))?;
        ensure!(
            declared.container_port.to_string() == port,
            "the Deployment's port {name} is {}, and the server listens at {port}",
            declared.container_port
        );
        Ok(())
    }

    fn here(&self, volumes: &Path, path: &Path) -> Result<PathBuf> {
        let mounted = self.volume_mounts.iter().find_map(|mount| {
            Some(
                volumes
                    .join(&mount.name)
                    .join(path.strip_prefix(&mount.mount_path).ok()?),
            )
        });
        mounted.with_context(|| format!("the Deployment mounts nothing at {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::{Container, Ports};

    const PORTS: Ports = Ports { secure: 1, health: 2 };

    fn deployment(args: &[&str]) -> Value {
        json!({"kind": "Deployment", "spec": {"template": {"spec": {"containers": [{
            "args": args,
            "ports": [{"name": "webhook", "containerPort": 9443}, {"name": "health", "containerPort": 8081}],
            "volumeMounts": [{"name": "tls", "mountPath": "/etc/tls"}, {"name": "rules", "mountPath": "/etc/rules"}],
        }]}}}})
    }

    fn arguments(args: &[&str]) -> anyhow::Result<Vec<String>> {
        Container::of_deployment(&[deployment(args)])?.arguments(Path::new("/run"), PORTS)
    }

    #[test]
    fn replaces_paths_and_ports_alone() {
        let shipped = [
            "serve",
            "--secure-port=9443",
            "--health-port=8081",
            "--tls-cert-file=/etc/tls/tls.crt",
            "--configuration=/etc/rules/configuration.yaml",
            "--log=info",
        ];
        let here = [
            "serve",
            "--secure-port=1",
            "--health-port=2",
            "--tls-cert-file=/run/tls/tls.crt",
            "--configuration=/run/rules/configuration.yaml",
            "--log=info",
        ];
        assert_eq!(arguments(&shipped).unwrap(), here);
    }

    #[test]
    fn refuses_what_no_pod_could_serve() {
        let wrong = |args: &[&str]| arguments(args).unwrap_err().to_string();
        assert_eq!(
            wrong(&["--secure-port=9444"]),
            "the Deployment's port webhook is 9443, and the server listens at 9444"
        );
        assert_eq!(
            wrong(&["--tls-cert-file=/etc/tsl/tls.crt"]),
            "the Deployment mounts nothing at /etc/tsl/tls.crt"
        );
        assert_eq!(
            wrong(&["--secure-port=9443"]),
            "the Deployment does not set --health-port="
        );
        let two = [deployment(&[]), deployment(&[])];
        let error = Container::of_deployment(&two).unwrap_err();
        assert_eq!(error.to_string(), "not exactly one Deployment");
    }
}
