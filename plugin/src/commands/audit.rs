//! `kubectl kcp audit`: checks whether a cluster survives the loss of a Node, and comes back after a power failure.

mod screen;

use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use kcp_client::{
    Action, Connection, Error, ReadLimit,
    reads::{
        self,
        audit::{AuditedCluster, read_plain_cluster, read_workload_cluster},
        versions::api_server_version,
    },
};
use kcp_control_plane::audit::{Assumptions, AuditOutcome, Audited, audit};
use serde::Serialize;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_timeout},
    document::{Document, ObjectName, Versioned},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};

/// Check whether a cluster survives the loss of a Node, and comes back by itself after a power failure.
#[derive(Debug, Args)]
#[command(
    after_help = "With --this-cluster, the command checks the cluster of the current context, such as a cluster that \
        kubeadm created without Cluster API. It then cannot query etcd, and cannot tell when the certificates in \
        /etc/kubernetes/pki expire.

Exits with 0 if all checks pass, with 1 if one fails, and with 2 if none fails and one is unknown. The audit finds what is \
        known to prevent a restart. It does not prove that the cluster restarts.

Examples:
  kubectl kcp audit edge
  kubectl kcp audit edge --power-off 2160h
  kubectl kcp audit --this-cluster -o json"
)]
#[command(group(ArgGroup::new("which").required(true).args(["name", "this_cluster"])))]
pub struct AuditArguments {
    /// Control plane whose workload cluster is checked, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_name = "CONTROL-PLANE", value_parser = parse_control_plane)]
    pub name: Option<ControlPlaneName>,

    /// Check the cluster of the current context, instead of that of a control plane
    #[arg(long)]
    pub this_cluster: bool,

    /// How long the machines stay off, such as 72h; certificates must be valid for longer
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "720h")]
    pub power_off: Duration,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for all reads, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "20s")]
    pub timeout: Duration,
}

/// The results of all checks of one cluster.
pub(super) struct AuditReport {
    /// The namespace and the name of the control plane. None for the cluster of the current context.
    control_plane: Option<(String, String)>,
    /// The URL of the API server. Empty if the cluster could not be read.
    server: String,
    power_off: Duration,
    checks: Vec<Audited>,
}

pub async fn run(arguments: &AuditArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    let (control_plane, cluster) = Box::pin(read(&connection, arguments.name.as_ref(), end)).await?;
    let assumptions = Assumptions {
        now: cluster.now,
        power_off: arguments.power_off,
    };
    let report = AuditReport {
        control_plane,
        power_off: arguments.power_off,
        checks: audit(&cluster.facts, assumptions),
        server: cluster.facts.server,
    };
    print(&report, &arguments.output, &session.terminal)?;
    Ok(report.verdict())
}

async fn read(
    connection: &Connection,
    name: Option<&ControlPlaneName>,
    end: Instant,
) -> Result<(Option<(String, String)>, AuditedCluster), Error> {
    let remaining = || end.saturating_duration_since(Instant::now());
    let Some(name) = name else {
        // A server that does not respond is one error, not one for each check.
        let limit = ReadLimit::per_read(remaining());
        let version = api_server_version(connection);
        let action = Action::path("get", "/version");
        match connection.run_with_limit(limit, &action, version).await {
            Ok(_) | Err(Error::Forbidden { .. } | Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        return Ok((None, Box::pin(read_plain_cluster(connection, end)).await));
    };
    let reader = reads::discover(connection, reads::list_limit(remaining())).await?;
    let namespace = &connection.namespace;
    let name = name
        .read(&reader, reads::limit_per_control_plane(remaining()))
        .await?;
    let cluster = Box::pin(read_workload_cluster(&reader, namespace, &name, end)).await?;
    Ok((Some((namespace.clone(), name)), cluster))
}

/// The result of an audit.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct AuditDocument<'r> {
    /// The control plane. Absent for the cluster of the current context.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<ObjectName>,
    /// The URL of the API server. Empty if the cluster could not be read.
    server: &'r str,
    /// FAIL if a check fails, otherwise UNKNOWN if one is unknown.
    outcome: AuditOutcome,
    /// How long the machines stay off, in seconds.
    power_off_seconds: u64,
    checks: &'r [Audited],
}

impl Document for AuditDocument<'_> {
    const KIND: &'static str = "ResiliencyAudit";
}

impl<'r> AuditDocument<'r> {
    fn new(report: &'r AuditReport) -> Self {
        let metadata = report.control_plane.as_ref().map(|(namespace, name)| ObjectName {
            name: name.clone(),
            namespace: namespace.clone(),
        });
        Self {
            metadata,
            server: &report.server,
            outcome: report.outcome(),
            power_off_seconds: report.power_off.as_secs(),
            checks: &report.checks,
        }
    }
}

impl AuditReport {
    fn count(&self, outcome: AuditOutcome) -> usize {
        self.checks
            .iter()
            .filter(|check| check.outcome == outcome)
            .count()
    }

    /// The most severe outcome of all checks: if no check fails but one is unknown, the audit is unknown.
    fn outcome(&self) -> AuditOutcome {
        let outcomes = self.checks.iter().map(|check| check.outcome);
        outcomes.max().unwrap_or(AuditOutcome::Unknown)
    }

    fn verdict(&self) -> Verdict {
        match self.outcome() {
            AuditOutcome::Pass => Verdict::Met,
            AuditOutcome::Fail => Verdict::Negative,
            AuditOutcome::Unknown => Verdict::Undecided,
        }
    }
}

impl Report for AuditReport {
    fn table(&self, layout: Layout) -> String {
        screen::render(self, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(AuditDocument::new(self))
    }

    /// The checks that do not pass.
    fn names(&self) -> Vec<String> {
        let checks = self
            .checks
            .iter()
            .filter(|check| check.outcome != AuditOutcome::Pass);
        checks.map(|check| format!("check/{}", check.id)).collect()
    }
}

#[cfg(test)]
mod tests;
