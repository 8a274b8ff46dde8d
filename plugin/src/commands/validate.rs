//! `kubectl kcp validate`: checks with a Pod on each Node that a cluster works. The cluster is a workload cluster, or that of the
//! current context.
//!
//! - [`pods`]: creates the Pods, waits for them, reads their logs and deletes them
//! - [`report`]: what the command prints

mod pods;
mod report;

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use clap::{ArgGroup, Args};
use kcp_client::{
    Connection,
    reads::{
        self, WorkloadTarget,
        time_limits::remaining,
        validation::{ClusterNodes, read_plain_nodes, read_workload_nodes},
        versions::{DeploymentName, deployed},
    },
    validation::ValidationPods,
};
use kcp_control_plane::{
    snapshot::Failure,
    validation::{NodeResult, ProbePods},
};
use kcp_pool::lease::generated_name;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_namespace, parse_timeout},
    change::arguments::FIELD_MANAGER,
    commands::validate::{pods::Run, report::ValidationReport},
    output::{OutputArguments, print},
    session::Session,
    signal::EndSignal,
    verdict::Verdict,
};

/// The Deployment whose image the Pods run by default.
const WEBHOOK: DeploymentName = DeploymentName {
    namespace: kcp_rules::registration::NAMESPACE,
    name: "kcp-webhook",
    provider: None,
};

/// Check that each Node is ready, and that a Pod on it resolves names and reaches the API server.
#[derive(Debug, Args)]
#[command(
    after_help = "The command creates one Pod for each ready Node. The Pod runs `kcp-webhook probe`: it resolves the names of \
        --resolve, asks the API server for its version, and prints a text that only this Pod was given. The command reads the \
        logs through the kubelets, and deletes the Pods, even if it fails, times out or is interrupted. If the command is \
        killed, the Pods end by themselves.

With --this-cluster, the command validates the cluster of the current context.

Exits with 0 if all checks pass, with 1 if one fails, and with 2 if none fails and one is unknown, or if a Pod could not be \
deleted.

Examples:
  kubectl kcp validate edge
  kubectl kcp validate edge --resolve kubernetes.default.svc,registry.example.com
  kubectl kcp validate --this-cluster --image registry.example.com/kcp-webhook:0.1.0 -o json"
)]
#[command(group(ArgGroup::new("which").required(true).args(["name", "this_cluster"])))]
pub struct ValidateArguments {
    /// Control plane whose workload cluster is validated, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_name = "CONTROL-PLANE", value_parser = parse_control_plane)]
    pub name: Option<ControlPlaneName>,

    /// Validate the cluster of the current context, instead of that of a control plane
    #[arg(long)]
    pub this_cluster: bool,

    /// Image of the Pods, whose entrypoint is kcp-webhook [default: that of Deployment kcp-webhook in the cluster of the
    /// current context]
    #[arg(long, value_name = "IMAGE", value_parser = parse_word)]
    pub image: Option<String>,

    /// Names that each Pod resolves
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = parse_word,
          default_value = "kubernetes.default.svc")]
    pub resolve: Vec<String>,

    /// Namespace of the Pods; `manifests/operator/validator.yaml` creates the default one
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace, default_value = "kcp-validation")]
    pub pod_namespace: String,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for reading the Nodes, and for the Pods to run and end
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "3m")]
    pub timeout: Duration,
}

/// Parses a value that becomes part of a Pod: one word.
fn parse_word(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return Err("expected one word without spaces".to_owned());
    }
    Ok(text.to_owned())
}

pub async fn run(arguments: &ValidateArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + arguments.timeout;
    let terminal = &session.terminal;
    let connection = session.connect_within(arguments.timeout).await?;
    let image = choose_image(arguments, &connection).await?;
    let cluster = Box::pin(read_nodes(&connection, arguments.name.as_ref(), end)).await?;
    if cluster.nodes.is_empty() {
        bail!("the cluster {} has no Nodes", cluster.connection.server);
    }
    let template = ProbePods {
        run: generated_name::generate(""),
        image,
        names: arguments.resolve.clone(),
        timeout: remaining(end),
    };
    let run = Run {
        pods: ValidationPods {
            connection: &cluster.connection,
            namespace: &arguments.pod_namespace,
            run: &template.run,
            field_manager: FIELD_MANAGER,
        },
        template: &template,
        nodes: &cluster.nodes,
        end,
        terminal,
    };
    // Before this line, a signal ends the process. This is safe, because no Pod exists yet.
    let mut signal = EndSignal::listen().context("cannot receive signals")?;
    let probed = tokio::select! {
        probed = Box::pin(run.probe()) => Some(probed),
        () = signal.wait() => None,
    };
    terminal.stop_spinning();
    if probed.is_none() {
        terminal.note("interrupted: deleting the Pods");
    }
    let left = Box::pin(run.clean_up()).await;
    if let Err(left) = &left {
        terminal.error(&anyhow!(left.clone()), Some(&run.deletion_hint()));
    }
    let Some(probed) = probed else {
        return Ok(Verdict::Interrupted);
    };
    let now = cluster.connection.now();
    let results = cluster.nodes.iter().zip(&probed).enumerate();
    let results = results
        .map(|(number, (node, probe))| NodeResult::new(node, probe, &template.nonce(number), now))
        .collect();
    let report = ValidationReport {
        control_plane: cluster.control_plane,
        server: &cluster.connection.server,
        image: &template.image,
        nodes: results,
    };
    print(&report, &arguments.output, terminal)?;
    Ok(match left {
        Ok(()) => report.verdict(),
        Err(_) => Verdict::worst([report.verdict(), Verdict::Undecided]),
    })
}

/// The image that the user names, or that of the webhook.
async fn choose_image(arguments: &ValidateArguments, connection: &Connection) -> anyhow::Result<String> {
    if let Some(image) = &arguments.image {
        return Ok(image.clone());
    }
    let DeploymentName { namespace, name, .. } = WEBHOOK;
    let read = tokio::time::timeout(arguments.timeout, deployed(connection, WEBHOOK)).await;
    let found = read.with_context(|| format!("could not read Deployment {namespace}/{name} in time"))?;
    let found = found
        .with_context(|| format!("could not read Deployment {namespace}/{name}, whose image the Pods run unless --image names another"))?
        .with_context(|| {
            format!("there is no Deployment {namespace}/{name}, whose image the Pods would run; specify an image with --image")
        })?;
    Ok(found.image)
}

/// A cluster to validate, and its Nodes.
struct ValidatedCluster {
    /// The namespace and the name. `None` for the cluster of the current context.
    control_plane: Option<(String, String)>,
    connection: Connection,
    nodes: Vec<kcp_control_plane::validation::NodeFacts>,
}

async fn read_nodes(
    connection: &Connection,
    name: Option<&ControlPlaneName>,
    end: Instant,
) -> anyhow::Result<ValidatedCluster> {
    let (control_plane, read) = match name {
        None => (None, Box::pin(read_plain_nodes(connection, end)).await),
        Some(name) => {
            let reader = reads::discover(connection, reads::list_limit(remaining(end))).await?;
            let namespace = &connection.namespace;
            let limit = reads::limit_per_control_plane(remaining(end));
            let name = name.read(&reader, limit).await?;
            let observed = Box::pin(reads::read_from_management(&reader, namespace, &name, limit)).await?;
            let target = WorkloadTarget::new(&observed.control_plane)
                .context("the control plane has no Cluster yet")?;
            let read = Box::pin(read_workload_nodes(connection, &target, end)).await;
            (Some((namespace.clone(), name)), read)
        }
    };
    let ClusterNodes { connection, nodes } = read.map_err(|failure| unread(&failure))?;
    Ok(ValidatedCluster {
        control_plane,
        connection,
        nodes,
    })
}

fn unread(failure: &Failure) -> anyhow::Error {
    let hint = failure.hint.as_ref().map(|hint| format!("; {hint}"));
    anyhow!(
        "cannot read the Nodes: {}{}",
        failure.text(),
        hint.unwrap_or_default()
    )
}
