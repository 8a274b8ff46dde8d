//! The processes of Cluster API's three managers.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::task::JoinSet;

use super::{PROVIDERS, Provider};
use crate::addresses::free_port;
use crate::api_server::{ApiServer, ready};
use crate::assets::Assets;
use crate::kubeconfig::User;
use crate::pki::Subject;
use crate::process::Process;
use crate::run::Run;
use crate::{kubeconfig, manifests, wait};

/// The managers' own namespace, which must exist.
pub(crate) const NAMESPACE: &str = "capi-system";

/// A value of the label `cluster.x-k8s.io/watch-filter` that no object has.
const NOTHING: &str = "nothing";

/// The prefix of the flag that opens and closes feature gates.
const GATES: &str = "--feature-gates=";

/// Feature gates, and the minor version of Cluster API that introduced each: `feature/feature.go` of its releases.
const NEW_GATES: [(&str, u32); 2] = [("ReconcilerRateLimiting", 12), ("MachineTaintPropagation", 12)];

/// A set of the three managers.
pub struct Managers {
    run: Arc<Run>,
    assets: Assets,
    members: Vec<Manager>,
    /// The certificate of the CA that signed the managers' certificates, as PEM.
    authority: String,
}

struct Manager {
    provider: &'static Provider,
    log: String,
    arguments: Vec<String>,
    webhook_port: u16,
    health_port: u16,
    process: Option<Process>,
}

impl Managers {
    /// A set that serves webhooks and reconciles nothing.
    pub fn for_admission(run: &Arc<Run>, assets: &Assets, api: &ApiServer, flags: &[&str]) -> Result<Self> {
        let name = format!("{}-admission", api.name());
        let filter = format!("--watch-filter={NOTHING}");
        let flags: Vec<&str> = flags.iter().copied().chain([filter.as_str()]).collect();
        Self::prepare(run, assets, api, &name, &flags)
    }

    /// A set that reconciles `namespace`, or all namespaces if it is empty.
    pub(super) fn reconciling(
        run: &Arc<Run>,
        assets: &Assets,
        api: &ApiServer,
        namespace: &str,
        flags: &[&str],
    ) -> Result<Self> {
        let name = if namespace.is_empty() { "all" } else { namespace };
        let scope = format!("--namespace={namespace}");
        let flags: Vec<&str> = flags.iter().copied().chain([scope.as_str()]).collect();
        Self::prepare(run, assets, api, name, &flags)
    }

    fn prepare(run: &Arc<Run>, assets: &Assets, api: &ApiServer, name: &str, flags: &[&str]) -> Result<Self> {
        let certificates = api.folder().join("cluster-api").join(name);
        let loopback = std::net::Ipv4Addr::LOCALHOST.into();
        let subject = Subject {
            common_name: "cluster-api",
            addresses: &[loopback],
            ..Subject::default()
        };
        // The managers look for files of this name.
        api.authority().issue(&certificates, "tls", &subject)?;
        let minor = assets.cluster_api_minor()?;
        let mut members = Vec::new();
        for provider in &PROVIDERS {
            let (webhook_port, health_port) = (free_port()?, free_port()?);
            let user = Subject {
                common_name: provider.user,
                organization: Some("system:masters"),
                ..Subject::default()
            };
            let user = api.authority().issue(&certificates, provider.name, &user)?;
            let kubeconfig = certificates.join(format!("{}.kubeconfig", provider.name));
            api.write_kubeconfig(&kubeconfig, &User::Certificate(&user))?;
            let mut arguments = vec![
                format!("--kubeconfig={}", kubeconfig.display()),
                "--leader-elect=false".to_owned(),
                format!("--webhook-port={webhook_port}"),
                format!("--webhook-cert-dir={}", certificates.display()),
                format!("--health-addr=127.0.0.1:{health_port}"),
                "--diagnostics-address=0".to_owned(),
                // New definitions have one stored version only.
                "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields".to_owned(),
                // Without the limit of one reconcile per second and object, tests wait less.
                "--feature-gates=ReconcilerRateLimiting=false,ClusterTopology=true".to_owned(),
                "-v=2".to_owned(),
            ];
            arguments.extend(provider.flags.iter().chain(flags).map(|flag| (*flag).to_owned()));
            for argument in &mut arguments {
                *argument = without_unknown_gates(argument, minor);
            }
            let log = format!("cluster-api-{name}-{}", provider.name);
            members.push(Manager {
                provider,
                log,
                arguments,
                webhook_port,
                health_port,
                process: None,
            });
        }
        let authority = api.authority().certificate().to_owned();
        Ok(Self {
            run: run.clone(),
            assets: assets.clone(),
            members,
            authority,
        })
    }

    /// Starts all three and waits until they are ready. Their definitions must be installed.
    pub async fn start(&mut self) -> Result<()> {
        for member in &mut self.members {
            let program = self.assets.program(member.provider.program);
            // By these a manager detects whether it runs in the cluster that it manages.
            let environment = [
                ("POD_NAMESPACE", NAMESPACE),
                ("POD_NAME", "none"),
                ("POD_UID", "none"),
            ];
            member.process = Some(Process::start(
                &self.run,
                &member.log,
                &program,
                &member.arguments,
                &environment,
            )?);
        }
        for member in &mut self.members {
            let client = kubeconfig::plain_client(&format!("http://127.0.0.1:{}", member.health_port))?;
            if let Some(process) = &mut member.process {
                let what = format!("{} is ready", member.log);
                wait::until_served(&what, process, || ready(&client)).await?;
            }
        }
        Ok(())
    }

    /// Stops the three managers and starts them again.
    pub(super) async fn restart(&mut self) -> Result<()> {
        self.stop().await?;
        self.start().await
    }

    /// Stops the three managers and waits until they have ended.
    pub(super) async fn stop(&mut self) -> Result<()> {
        let mut ending = JoinSet::new();
        for process in self.members.iter_mut().filter_map(|member| member.process.take()) {
            ending.spawn(process.stop());
        }
        while let Some(ended) = ending.join_next().await {
            ended.context("stopping a manager")??;
        }
        Ok(())
    }

    /// The process of the kubeadm control plane manager.
    pub(super) fn control_plane(&mut self) -> Result<&mut Process> {
        let mut members = self.members.iter_mut();
        let manager = members.find(|member| member.provider.name == "control-plane");
        let process = manager.and_then(|manager| manager.process.as_mut());
        process.context("the kubeadm control plane manager does not run")
    }

    /// The log files of the three managers.
    pub(super) fn logs(&self) -> impl Iterator<Item = PathBuf> {
        let logs = self.run.logs();
        self.members
            .iter()
            .map(move |member| logs.join(format!("{}.log", member.log)))
    }

    /// The client configuration of the provider's webhook at `path`.
    pub(super) fn client_config(&self, provider: &Provider, path: &str) -> Result<Value> {
        let member = self
            .members
            .iter()
            .find(|member| member.provider.name == provider.name);
        let port = member
            .with_context(|| format!("no manager {}", provider.name))?
            .webhook_port;
        manifests::local_client_config(port, path, &self.authority)
    }
}

/// The same argument without the feature gates with which a manager of this minor version would exit.
fn without_unknown_gates(argument: &str, minor: u32) -> String {
    let Some(gates) = argument.strip_prefix(GATES) else {
        return argument.to_owned();
    };
    let is_known = |gate: &&str| {
        let name = gate.split('=').next();
        let introduced = NEW_GATES.iter().find(|(new, _)| Some(*new) == name);
        introduced.is_none_or(|(_, introduced)| *introduced <= minor)
    };
    let known: Vec<_> = gates.split(',').filter(is_known).collect();
    format!("{GATES}{}", known.join(","))
}

#[cfg(test)]
mod tests {
    use super::without_unknown_gates;

    #[test]
    fn old_managers_get_no_gate_that_they_do_not_know() {
        let gates = "--feature-gates=ReconcilerRateLimiting=false,ClusterTopology=true";
        assert_eq!(without_unknown_gates(gates, 14), gates);
        assert_eq!(
            without_unknown_gates(gates, 11),
            "--feature-gates=ClusterTopology=true"
        );
        assert_eq!(without_unknown_gates("--namespace=a", 10), "--namespace=a");
    }
}
