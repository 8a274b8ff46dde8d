//! Runs `kubectl kcp pool lease`.

pub(crate) mod document;

use std::{num::NonZeroUsize, time::Duration};

use anyhow::Context as _;
use clap::{ArgGroup, Args};
use jiff::Timestamp;
use kcp_pool::{
    acquire::{
        LeaseRequest, Selection, acquire,
        answer::{LeaseOutcome, LeaseResult},
        claim::{ClaimRequest, DEFAULT_WAIT, claim, read_kubeconfig},
        create::create,
        turn::QueuedLessee,
        wait::{Timeout, WaitLimit, wait_for},
    },
    install_config::InstallConfig,
    lease::{
        Ttl,
        generated_name::{self, generate_lease_id},
        queue::Place,
    },
    objects::{ClusterName, Holder},
    store::Store,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    arguments::{parse_cluster_pool, parse_duration, parse_object_name},
    commands::pool::{
        HiveArgument, InstallConfigSource, WaitProgress, claim_failed, claim_ttl, parse_ttl, parse_wait,
        reported, verdict,
    },
    document::Versioned,
    output::{CommandFormat, OutputArguments, OutputFormat, OutputFormats, Report, print},
    session::Session,
    signal::EndSignal,
    terminal::table::Layout,
    verdict::Verdict,
};
use document::PoolLease;

/// Arguments of `pool lease`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp pool lease hosts --cluster-deployment paris --ttl 2h --wait=30m
  kubectl kcp pool lease hosts --generate-name ci- --no-cluster -o env
  kubectl kcp pool lease hosts --cluster-deployment paris --count 3 --wait=1h -o name
  kubectl kcp pool lease hosts --cluster-deployment paris --create --install-config install-config.yaml
  kubectl kcp pool lease hosts --cluster-deployment paris --claim --wait=1h")]
#[command(group = ArgGroup::new("lessee").required(true))]
#[command(mut_arg("output", |output| {
    output.value_parser(OutputFormats::LEASE).hide_possible_values(false).requires_if("install-config", "install_config").requires_if("kubeconfig", "claim")
}))]
pub struct LeaseArguments {
    /// Name of the cluster pool
    #[arg(value_parser = parse_cluster_pool)]
    pub pool: String,

    #[command(flatten)]
    pub holder: HolderArguments,

    /// How long the lease or claim lasts, such as 2h; 0 means until the lease is released. Without --ttl, or if it ends later, an
    /// existing lease or claim keeps its end time [default: 24h, or --lifetime]
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl)]
    pub ttl: Option<Ttl>,

    /// Declare that the holder creates no cluster deployment, so that the lease ends without a grace period
    #[arg(long, conflicts_with_all = ["create", "claim"])]
    pub no_cluster: bool,

    /// Lease this number of customizations, all or none. Each has a lease with its own end. Not with --install-config, because the
    /// output contains only one [default: 1]
    #[arg(long, value_name = "NUMBER")]
    #[arg(conflicts_with_all = ["create", "claim", "customization", "install_config"])]
    pub count: Option<NonZeroUsize>,

    /// Lease this customization only
    #[arg(long, value_name = "NAME", value_parser = parse_object_name)]
    pub customization: Option<String>,

    /// Lease a customization that matches this label selector, such as rack=b,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,

    /// Wait in the queue of the pool until a customization is free (with --count, until enough are) or, with --claim, until Hive has assigned a cluster, for at
    /// most the given duration; without a duration, for ever [default with --claim: 1h]
    #[arg(long, value_name = "DURATION", value_parser = parse_wait)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub wait: Option<WaitLimit>,

    /// Apply the customization's patches to this install-config: a file, - for stdin, or secret/NAME with the key
    /// install-config.yaml
    #[arg(long, value_name = "FILE|secret/NAME")]
    pub install_config: Option<InstallConfigSource>,

    /// Also create the cluster: its namespace, install-config (by default from the pool's template), customization and
    /// cluster deployment; only in pools that Hive does not manage
    #[arg(long, conflicts_with_all = ["wait", "claim"])]
    pub create: bool,

    #[command(flatten)]
    pub claim: ClaimArguments,

    /// Keep the claim even if it gets no cluster
    #[arg(long, requires = "claim")]
    pub keep: bool,

    /// Whether Hive manages the pool
    #[arg(long, value_enum, default_value = "auto")]
    pub hive: HiveArgument,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

/// The flags that request a cluster from Hive instead of a lease.
#[derive(Clone, Debug, Args)]
pub struct ClaimArguments {
    /// Request a cluster from Hive with a cluster claim that has the holder's name, and wait for the cluster
    #[arg(long, conflicts_with_all = ["install_config", "customization", "selector"])]
    pub claim: bool,

    /// Maximum lifetime of the claim and its cluster, such as 8h30m, no matter how often the command renews the claim
    #[arg(long, value_name = "DURATION", requires = "claim", value_parser = parse_lifetime)]
    pub lifetime: Option<Duration>,

    /// Who may use the claim's cluster: user:NAME, group:NAME or serviceaccount:NAMESPACE:NAME; may be repeated
    #[arg(long, value_name = "SUBJECT", requires = "claim", value_parser = parse_subject)]
    pub subject: Vec<Value>,
}

/// The flags that name the holder of the lease.
#[derive(Clone, Debug, Args)]
pub struct HolderArguments {
    /// Name of the cluster deployment that holds the lease
    #[arg(long, value_name = "NAME", value_parser = parse_object_name, group = "lessee")]
    pub cluster_deployment: Option<String>,

    /// Prefix of a generated name, instead of --cluster-deployment
    #[arg(long, value_name = "PREFIX", value_parser = generated_name::parse_prefix, group = "lessee")]
    pub generate_name: Option<String>,

    /// Fail if the cluster deployment already has a lease or claim, which another process may use
    #[arg(long)]
    pub new: bool,
}

/// Parses an RBAC subject, such as `user:jane`.
fn parse_subject(text: &str) -> Result<Value, String> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let named = |kind: &str, name: &str| json!({"apiGroup": GROUP, "kind": kind, "name": name});
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        ["user", rest @ ..] if !rest.concat().is_empty() => Ok(named("User", &rest.join(":"))),
        ["group", rest @ ..] if !rest.concat().is_empty() => Ok(named("Group", &rest.join(":"))),
        ["serviceaccount", namespace, name] if !namespace.is_empty() && !name.is_empty() => {
            Ok(json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}))
        }
        _ => Err("write user:NAME, group:NAME or serviceaccount:NAMESPACE:NAME".to_owned()),
    }
}

impl HolderArguments {
    /// The name of the holder, given or generated; `None` if neither flag is set.
    pub(crate) fn name(&self) -> Option<String> {
        let generated = || Some(generated_name::generate(self.generate_name.as_deref()?));
        self.cluster_deployment.clone().or_else(generated)
    }
}

impl LeaseArguments {
    /// Whether the command waits in the queue of the pool, which it leaves if it is interrupted.
    pub(crate) const fn is_queued(&self) -> bool {
        self.wait.is_some() && !self.claim.claim
    }
}

pub(crate) async fn run(arguments: LeaseArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let store = Store::new(&connection, &arguments.field_manager);
    let cluster_deployment = arguments
        .holder
        .name()
        .context("use --cluster-deployment or --generate-name")?;
    let install_config = match &arguments.install_config {
        Some(source) => Some(source.read(&connection).await?),
        None => None,
    };
    let namespace = &connection.namespace;
    let id = generate_lease_id();
    let holder = Holder {
        pool: &arguments.pool,
        cluster_deployment: &cluster_deployment,
    };
    session.terminal.set_interrupt_note(if arguments.claim.claim {
        format!(
            "interrupted: a ClusterClaim may have been created; delete it with: kubectl kcp pool release {} \
             --cluster-deployment {cluster_deployment} --id {id} --delete-cluster -n {namespace}",
            arguments.pool
        )
    } else {
        format!("interrupted: {}", possible_lease(holder, namespace))
    });
    // As in Hive, a cluster's namespace has the cluster's name.
    let cluster = ClusterName::new(&cluster_deployment, &cluster_deployment);
    let request = LeaseRequest {
        holder,
        count: arguments.count.map_or(1, NonZeroUsize::get),
        ttl: arguments.ttl,
        cluster: (!arguments.no_cluster).then_some(&cluster),
        install_config: install_config.as_ref(),
        must_be_new: arguments.holder.new,
        selection: Selection {
            customization: arguments.customization.as_deref(),
            labels: arguments.selector.as_deref(),
        },
        hive: arguments.hive.into(),
        overtaken: &[],
    };
    let timeout = |limit| Timeout {
        started_at: Timestamp::now(),
        limit,
    };
    let progress = WaitProgress(&session.terminal);
    let answer = if arguments.claim.claim {
        let timeout = timeout(arguments.wait.unwrap_or(WaitLimit::AtMost(DEFAULT_WAIT)));
        let claimed = ClaimRequest {
            holder,
            id: &id,
            timeout,
            keep_failed_claim: arguments.keep,
            must_be_new: arguments.holder.new,
            ttl: arguments.ttl.map(claim_ttl).transpose()?,
            limit: arguments.claim.lifetime,
            subjects: &arguments.claim.subject,
            hive: arguments.hive.into(),
        };
        claim(&store, &claimed, &progress).await.map_err(claim_failed)?
    } else if arguments.create {
        create(&store, request).await.map_err(reported)?
    } else if let Some(limit) = arguments.wait {
        let is_name_given = arguments.holder.cluster_deployment.is_some();
        let turn = QueuedLessee::new(&store, request, is_name_given);
        let Some(answer) = wait_in_queue(&store, request, turn, timeout(limit), &progress).await? else {
            session.terminal.print_interrupt_note();
            return Ok(Verdict::Interrupted);
        };
        answer
    } else {
        acquire(&store, request).await.map_err(reported)?
    };
    let result = PrintedLease {
        lease: PoolLease::new(&answer),
        install_config: document::install_config(&answer),
        kubeconfig: match (&answer.outcome, &arguments.output.output) {
            (LeaseOutcome::Claimed(_), Some(OutputFormat::Special(CommandFormat::Kubeconfig))) => Some(
                String::from_utf8(read_kubeconfig(&store, &answer.cluster_deployment).await?)?,
            ),
            _ => None,
        },
    };
    for warning in result.lease.warnings() {
        session.terminal.warning(warning);
    }
    for end in result.lease.end_sentences() {
        session.terminal.note(&end);
    }
    print(&result, &arguments.output, &session.terminal)?;
    Ok(verdict(result.lease.refusal(), &session.terminal))
}

/// What an interrupted command may have left, and how to remove it.
pub(super) fn possible_lease(holder: Holder<'_>, namespace: &str) -> String {
    format!(
        "a lease may have been acquired; release it with: kubectl kcp pool release {} --cluster-deployment {} -n {namespace}",
        holder.pool, holder.cluster_deployment
    )
}

/// Waits until an entry is free. `None` if a signal ends the wait.
async fn wait_in_queue(
    store: &Store<'_>,
    request: LeaseRequest<'_>,
    turn: QueuedLessee<'_, Store<'_>>,
    timeout: Timeout,
    progress: &WaitProgress<'_>,
) -> anyhow::Result<Option<LeaseResult>> {
    let attempt = async |overtaken: Vec<Place>| acquire(store, request.overtaking(&overtaken)).await;
    let listen = || EndSignal::listen().context("cannot receive signals");
    let (mut first, mut second) = (listen()?, listen()?);
    let waited = wait_for(attempt, turn, timeout, first.wait(), progress);
    tokio::select! {
        biased;
        waited = waited => Ok(waited.map_err(reported)?.ok()),
        () = second.wait_for_second() => Ok(None),
    }
}

/// The result of `pool lease`, with the files that `-o` can print instead of the JSON document.
pub(crate) struct PrintedLease<'a> {
    pub(crate) lease: PoolLease,
    pub(crate) install_config: Option<&'a InstallConfig>,
    /// The kubeconfig of the claim's cluster; `None` unless `-o kubeconfig` requests it.
    pub(crate) kubeconfig: Option<String>,
}

impl Report for PrintedLease<'_> {
    fn table(&self, _: Layout) -> String {
        let sentences = self.lease.sentences().into_iter();
        sentences.map(|sentence| sentence + "\n").collect()
    }

    fn document(&self) -> impl Serialize {
        Versioned(&self.lease)
    }

    fn names(&self) -> Vec<String> {
        self.lease.resource_names()
    }

    fn special(&self, format: CommandFormat) -> Option<anyhow::Result<String>> {
        match format {
            CommandFormat::Env => Some(shell_variables(&self.lease)),
            CommandFormat::InstallConfig => {
                let yaml = self.install_config.map(InstallConfig::to_yaml);
                Some(yaml.unwrap_or_else(|| Ok(String::new())).map_err(Into::into))
            }
            CommandFormat::Kubeconfig => Some(Ok(self.kubeconfig.clone().unwrap_or_default())),
            CommandFormat::Github
            | CommandFormat::Sarif
            | CommandFormat::Script
            | CommandFormat::CloudInit
            | CommandFormat::Ignition => None,
        }
    }
}

/// Shell variables that describe the leases, for `eval`. Values are quoted, because names of objects may contain any
/// character.
fn shell_variables(lease: &PoolLease) -> anyhow::Result<String> {
    let variables = lease.variables().unwrap_or_default();
    let lines = variables
        .iter()
        .map(|(name, value)| Ok(format!("{name}={}\n", shlex::try_quote(value)?)));
    lines.collect()
}

/// Parses a lifetime, which must not be zero: Hive would delete the claim as soon as it has a cluster.
fn parse_lifetime(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("a claim must last at least 1 s".to_owned()),
        lifetime => Ok(lifetime),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcp_pool::lease::Ttl;

    use super::parse_subject;
    use crate::commands::pool::parse_ttl;

    #[test]
    fn a_ttl_has_a_unit() {
        let hours = |hours: u64| Ok(Ttl::For(Duration::from_secs(hours * 3600)));
        for (text, expected) in [
            ("24h", hours(24)),
            ("60m", hours(1)),
            ("0", Ok(Ttl::Never)),
            ("24", Err("the unit is missing: write 24s, 24m or 24h".to_owned())),
            (
                "0s",
                Err("a lease must last at least 1 s; 0 means until the lease is released".to_owned()),
            ),
        ] {
            assert_eq!(parse_ttl(text), expected, "{text}");
        }
        assert!(parse_ttl("soon").is_err());
    }

    #[test]
    fn subjects_are_those_of_rbac() {
        let user = parse_subject("user:system:admin").unwrap();
        assert_eq!(
            (user["kind"].as_str(), user["name"].as_str()),
            (Some("User"), Some("system:admin"))
        );
        let account = parse_subject("serviceaccount:ci:runner").unwrap();
        assert_eq!(account["namespace"], "ci");
        for text in ["jane", "user:", "serviceaccount:runner", ""] {
            assert!(parse_subject(text).is_err(), "{text}");
        }
    }
}
