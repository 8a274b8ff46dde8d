//! `kubectl kcp certificates`: shows when the certificates of control planes expire, and who or what renews them.

mod document;
pub mod rotate;
mod screen;

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use futures_util::stream::{self, StreamExt as _};
use jiff::Timestamp;
use kcp_api::kind::KUBEADM_CONTROL_PLANE;
use kcp_client::{
    Action, Connection, Error,
    reads::{self, certificates::read_certificates},
};
use kcp_control_plane::{
    certificates::{Certificates, Urgency},
    snapshot::Snapshot,
};
use rotate::RotateArguments;
use serde::Serialize;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_timeout},
    document::{Versioned, resource_name},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};

/// The maximum number of control planes whose certificates are read at the same time. Each control plane needs up to six
/// requests.
const MAX_CONCURRENT_READS: usize = 4;

/// Show when the certificates of control planes expire, and who or what renews them.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "The command neither decodes nor prints private keys. It adds (soon) to a certificate that expires \
        within 30 days, and to a CA that expires within 180 days. A short-lived certificate gets (soon) in the last \
        third of its lifetime. The exit code is 1 if a certificate has expired or is missing, and otherwise 2 if one \
        is unread.

Examples:
  kubectl kcp certificates
  kubectl kcp certificates edge
  kubectl kcp certificates -A -o json"
)]
pub struct CertificatesArguments {
    /// A subcommand; without one, the command lists the certificates
    #[command(subcommand)]
    pub command: Option<CertificatesCommand>,

    /// Control plane to show, as NAME, kcp/NAME or cluster/NAME [default: all in the namespace]
    #[arg(value_parser = parse_control_plane, conflicts_with = "all_namespaces")]
    pub name: Option<ControlPlaneName>,

    /// Show the control planes of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Show the control planes that match this label selector, such as team=edge,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "name")]
    pub selector: Option<String>,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for reading, such as 30s or 2m; in a list, for each control plane
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub enum CertificatesCommand {
    /// Replace CAs and the keys of service accounts in three phases, each with a rollout
    Rotate(RotateArguments),
}

/// The certificates of one or several control planes, as they were read.
pub(super) struct CertificatesReport {
    control_planes: Vec<Certificates>,
    now: Timestamp,
    /// Whether the user requested a list, rather than one control plane by name.
    is_list: bool,
    all_namespaces: bool,
}

pub async fn run(arguments: CertificatesArguments, session: &Session) -> anyhow::Result<Verdict> {
    if let Some(CertificatesCommand::Rotate(arguments)) = &arguments.command {
        return Box::pin(rotate::run(arguments, session)).await;
    }
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    let control_planes = Box::pin(read(&connection, &arguments, end)).await?;
    let report = CertificatesReport {
        control_planes,
        now: connection.now(),
        is_list: arguments.name.is_none(),
        all_namespaces: arguments.all_namespaces,
    };
    print(&report, &arguments.output, &session.terminal)?;
    Ok(report.verdict())
}

async fn read(
    connection: &Connection,
    arguments: &CertificatesArguments,
    end: Instant,
) -> Result<Vec<Certificates>, Error> {
    let remaining = || end.saturating_duration_since(Instant::now());
    let reader = reads::discover(connection, reads::list_limit(remaining())).await?;
    let observed: Vec<Snapshot> = if let Some(name) = &arguments.name {
        let namespace = &connection.namespace;
        let limit = reads::limit_per_control_plane(remaining());
        let name = &name.read(&reader, limit).await?;
        let action = Action::new("get", &reader.control_plane_resource)
            .in_namespace(namespace)
            .with_name(name);
        let snapshot = reader.read_snapshot(namespace, name);
        vec![connection.run_with_limit(limit, &action, snapshot).await?]
    } else {
        let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
        let selector = arguments.selector.as_deref();
        let limit = reads::list_limit(remaining());
        let listed = reads::list(&reader, namespace, selector, limit).await?;
        if let (Some(namespace), [], None) = (namespace, listed.as_slice(), selector) {
            reads::check_namespace_exists(connection, namespace, limit).await?;
        }
        listed
    };
    let reads = observed.iter().map(async |observed| {
        // The time limit applies to each control plane of a list, not to the whole list.
        let timeout = if arguments.name.is_some() {
            remaining()
        } else {
            arguments.timeout
        };
        read_certificates(&reader, observed, reads::limit_per_control_plane(timeout)).await
    });
    Ok(stream::iter(reads).buffered(MAX_CONCURRENT_READS).collect().await)
}

impl CertificatesReport {
    fn verdict(&self) -> Verdict {
        let verdicts = self
            .control_planes
            .iter()
            .map(|entry| match entry.urgency(self.now) {
                Urgency::Expired | Urgency::Missing => Verdict::Negative,
                _ if entry.is_any_unread() => Verdict::Undecided,
                Urgency::Valid
                | Urgency::NoExpiry
                | Urgency::NoCertificate
                | Urgency::Unread
                | Urgency::NotRenewed
                | Urgency::ExpiresSoon => Verdict::Met,
            });
        Verdict::worst(verdicts)
    }
}

impl Report for CertificatesReport {
    fn table(&self, layout: Layout) -> String {
        screen::render(self, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(document::CertificatesDocument::new(self))
    }

    fn names(&self) -> Vec<String> {
        let control_planes = self.control_planes.iter();
        control_planes
            .map(|entry| resource_name(&KUBEADM_CONTROL_PLANE, &entry.name))
            .collect()
    }
}

#[cfg(test)]
mod tests;
