//! `kubectl kcp logs`: shows the logs of a component on all Machines of a control plane, in the order of their times.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use jiff::Timestamp;
use kcp_api::{Machine, Object as _};
use kcp_client::reads::{
    self,
    component_logs::{ComponentLogs, LogQuery, MachineLog},
};
use kcp_control_plane::{
    component_log::{LogLine, merge, parse},
    plan::messages::join_names,
    snapshot::{Failure, workload::Component},
};
use tokio::time::sleep;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_duration, parse_machine, parse_timeout},
    session::Session,
    terminal::{Terminal, escape},
    verdict::Verdict,
};

/// The maximum number of lines of each Machine.
const MAX_LINES: u32 = 10_000;

/// The time between two reads of `--follow`.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// Show the logs of a component of a control plane on all its Machines, in the order of their times.
#[derive(Debug, Args)]
#[command(
    after_help = "Each line begins with the name of its Machine. The lines come from the kubelets, through the API server of the \
        workload cluster. If it does not respond, read the logs on the hosts of the Machines, with crictl.

Exits with 0 if all logs were read, and with 2 if one could not be read.

Examples:
  kubectl kcp logs edge --component etcd
  kubectl kcp logs edge --component kube-apiserver --machine edge-9hng4 --previous
  kubectl kcp logs cluster/edge --component etcd --since 10m --follow"
)]
pub struct LogsArguments {
    /// Control plane, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    name: ControlPlaneName,

    /// Component whose logs to show
    #[arg(long, value_parser = component_parser())]
    component: Component,

    /// Show only the log of this Machine
    #[arg(long, value_parser = parse_machine)]
    machine: Option<String>,

    /// Show new lines until the command is interrupted. Machines that are created later are not included
    #[arg(short, long, conflicts_with = "previous")]
    follow: bool,

    /// Show the log of the container that ran before the current one
    #[arg(long)]
    previous: bool,

    /// Show only lines that are not older than this, such as 30s or 2h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    since: Option<Duration>,

    /// Show at most this many lines of each Machine, the last ones
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u32).range(1..=MAX_LINES.into()), default_value_t = 500)]
    tail: u32,

    /// Time limit for all reads, such as 30s or 2m; with --follow, for each read
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "30s")]
    timeout: Duration,
}

fn component_parser() -> impl clap::builder::TypedValueParser<Value = Component> {
    let parser = PossibleValuesParser::new(Component::ALL.map(Component::as_str));
    parser.try_map(|name| {
        let mut components = Component::ALL.into_iter();
        components
            .find(|component| component.as_str() == name)
            .ok_or("no such component")
    })
}

pub async fn run(arguments: LogsArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    let reader = reads::discover(&connection, reads::list_limit(arguments.timeout)).await?;
    let limit = reads::list_limit(end.saturating_duration_since(Instant::now()));
    let name = arguments.name.read(&reader, limit).await?;
    let observed = reader.read_snapshot(&connection.namespace, &name).await?;
    let machines = selected(observed.machines, arguments.machine.as_deref())?;
    let logs = match ComponentLogs::open(&connection, &observed.control_plane, end).await {
        Ok(logs) => logs,
        Err(failure) => return Ok(report_unread(&failure, arguments.component, &session.terminal)),
    };
    let since = arguments.since.map(|since| connection.now() - since);
    let query = LogQuery {
        component: arguments.component,
        is_previous: arguments.previous,
        lines: arguments.tail,
    };
    let read = match logs.read(&machines, query, |_| since).await {
        Ok(read) => read,
        Err(failure) => return Ok(report_unread(&failure, arguments.component, &session.terminal)),
    };
    let mut shown = Shown::default();
    let verdict = shown.show(read, &session.terminal)?;
    while arguments.follow && !session.terminal.is_stdout_closed() {
        sleep(FOLLOW_INTERVAL).await;
        let query = LogQuery {
            lines: MAX_LINES,
            ..query
        };
        let new = |machine: &str| shown.last.get(machine).copied().or(since);
        let read = logs.read(&machines, query, new).await;
        match read {
            Ok(read) => drop(shown.show(read, &session.terminal)?),
            Err(failure) => shown.note("", &failure, &session.terminal),
        }
    }
    Ok(verdict)
}

/// The Machine with the name, or all.
fn selected(mut machines: Vec<Machine>, name: Option<&str>) -> anyhow::Result<Vec<Machine>> {
    let known: Vec<String> = machines.iter().map(|machine| machine.name().to_owned()).collect();
    machines.retain(|machine| name.is_none_or(|name| machine.name() == name));
    match name {
        Some(name) if machines.is_empty() => {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            bail!(
                "the control plane has no Machine {name}; it has {}",
                join_names(&known, "and")
            )
        }
        None if machines.is_empty() => {
            bail!("the control plane has no Machine yet; see what it waits for with: kubectl kcp why")
        }
        _ => Ok(machines),
    }
}

/// Says that no log can be read, and how to read one on a host.
fn report_unread(failure: &Failure, component: Component, terminal: &Terminal) -> Verdict {
    let error = anyhow!("cannot read the logs: {}", failure.text());
    let way = format!(
        "on the host of a Machine, run: {}; or look into /var/log/pods/kube-system_{}-*",
        component.log_command_on_host(),
        component.as_str()
    );
    let hint = failure.hint.iter().cloned().chain([way]);
    let hint = hint.collect::<Vec<_>>().join("; ");
    terminal.error(&error, Some(&hint));
    Verdict::Undecided
}

/// What has been shown of each Machine.
#[derive(Default)]
struct Shown {
    last: BTreeMap<String, Timestamp>,
    /// The last message about each Machine.
    noted: BTreeMap<String, String>,
}

impl Shown {
    /// Prints the lines that are newer than those that were printed before, and says which logs could not be read.
    fn show(&mut self, logs: Vec<MachineLog>, terminal: &Terminal) -> anyhow::Result<Verdict> {
        let mut verdict = Verdict::Met;
        // The API server responds again.
        self.noted.remove("");
        let mut lines: Vec<(String, Vec<LogLine>)> = Vec::new();
        for log in logs {
            if log.is_cut() {
                let machine = &log.machine;
                terminal.warning_once(&format!(
                    "the log of Machine {machine} is cut off, because it is too large: lower --tail"
                ));
            }
            match log.text {
                Ok(text) => {
                    let last = self.last.get(&log.machine).copied();
                    let mut new = parse(&text);
                    new.retain(|line| last.is_none_or(|last| line.time > last));
                    self.noted.remove(&log.machine);
                    self.last
                        .extend(new.last().map(|line| (log.machine.clone(), line.time)));
                    lines.push((log.machine, new));
                }
                Err(failure) => {
                    self.note(&log.machine, &failure, terminal);
                    verdict = Verdict::Undecided;
                }
            }
        }
        let lines = lines
            .iter_mut()
            .map(|(machine, lines)| (machine.as_str(), std::mem::take(lines)));
        let mut text = String::new();
        for (machine, line) in merge(lines) {
            text += &[machine, "  ", &escape(&line.text), "\n"].concat();
        }
        terminal.print(&text).context("cannot write to stdout")?;
        Ok(verdict)
    }

    /// Says why a log could not be read, unless this was said before.
    fn note(&mut self, machine: &str, failure: &Failure, terminal: &Terminal) {
        let message = if machine.is_empty() {
            format!("cannot read the logs: {}", failure.text())
        } else {
            format!("cannot read the log of Machine {machine}: {}", failure.text())
        };
        if self.noted.get(machine) != Some(&message) {
            terminal.warning(&message);
            self.noted.insert(machine.to_owned(), message);
        }
    }
}
