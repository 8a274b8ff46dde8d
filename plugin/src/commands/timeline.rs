//! `kubectl kcp timeline`: lists what happened to a control plane, in the order of time.

use std::time::Duration;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use kcp_api::kind::KUBEADM_CONTROL_PLANE;
use kcp_client::{
    ReadLimit,
    reader::Reader,
    reads::{
        change::LIMIT,
        planned::{Reads, fetch},
    },
};
use kcp_control_plane::{
    ownership::field_writers,
    timeline::{EventReach, Records, Timeline, TimelineEntry, timeline},
};
use owo_colors::Style;
use serde::Serialize;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_timeout},
    document::{Document, ObjectName, Versioned, resource_name},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::{
        style::WARN,
        table::{Cell, Column, Layout, Table},
    },
    verdict::Verdict,
};

/// Show what happened to a control plane and its Machines, in the order of time, and who did it.
#[derive(Debug, Args)]
#[command(
    after_help = "The list combines what objects record, the last change of each condition, and Events. Kubernetes deletes Events \
        after an hour, unless kube-apiserver has another --event-ttl. Below the list, the command says what the list cannot know.

Examples:
  kubectl kcp timeline edge
  kubectl kcp timeline edge --since 24h
  kubectl kcp timeline edge -o jsonpath={.entries[*].what}"
)]
pub struct TimelineArguments {
    /// Control plane to show, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// Show only what happened in this time, such as 30m or 24h [default: everything]
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout)]
    pub since: Option<Duration>,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// What `timeline` prints.
struct TimelineReport {
    control_plane: ObjectName,
    since: Option<Timestamp>,
    /// `None` if the Events could not be read.
    events: Option<EventReach>,
    timeline: Timeline,
}

/// What happened to a control plane and its Machines.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ControlPlaneTimeline<'t> {
    metadata: &'t ObjectName,
    /// The time of `--since`. Absent if everything is listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// Oldest first.
    entries: &'t [TimelineEntry],
    /// The Events of the namespace. Absent if they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<EventReach>,
    /// What the timeline cannot show, one sentence each.
    unknown: &'t [String],
}

impl Document for ControlPlaneTimeline<'_> {
    const KIND: &'static str = "ControlPlaneTimeline";
}

pub async fn run(arguments: TimelineArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let limit = ReadLimit::per_read(LIMIT);
    let name = arguments.name.read(&reader, limit).await?;
    let fetched = Box::pin(fetch(&reader, &connection.namespace, &name, limit)).await?;
    let reads = Reads {
        reader: &reader,
        namespace: &connection.namespace,
        limit,
    };
    let (events, reach, cluster_writers) = tokio::join!(
        Box::pin(reads.read_rollout_events(&fetched.observed.control_plane, &fetched.json)),
        Box::pin(reads.read_event_reach()),
        Box::pin(reads.read_topology_writers(&fetched.observed)),
    );
    let now = connection.now();
    let since = arguments
        .since
        .and_then(|since| now.checked_sub(SignedDuration::try_from(since).ok()?).ok());
    let records = Records {
        observed: &fetched.observed,
        writers: &field_writers(&fetched.json)?,
        cluster_writers: &cluster_writers,
        events: &events,
        reach: &reach,
    };
    let report = TimelineReport {
        control_plane: ObjectName::from(&fetched.observed.control_plane),
        since,
        events: reach.value().copied(),
        timeline: timeline(&records, since, now),
    };
    print(&report, &arguments.output, &session.terminal)?;
    Ok(Verdict::Met)
}

impl TimelineReport {
    fn content(&self) -> ControlPlaneTimeline<'_> {
        ControlPlaneTimeline {
            metadata: &self.control_plane,
            since: self.since,
            entries: &self.timeline.entries,
            events: self.events,
            unknown: &self.timeline.unknown,
        }
    }
}

impl Report for TimelineReport {
    fn table(&self, layout: Layout) -> String {
        let table = entries_table(&self.timeline.entries);
        let text = match self.since {
            Some(since) if self.timeline.entries.is_empty() => {
                format!("nothing is recorded since {}\n", second(since))
            }
            _ => table.render(layout),
        };
        layout.append_paragraphs(text + "\nWhat this list cannot know:\n", &self.timeline.unknown)
    }

    fn document(&self) -> impl Serialize {
        Versioned(self.content())
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(&KUBEADM_CONTROL_PLANE, &self.control_plane.name)]
    }
}

pub(in crate::commands) fn entries_table(entries: &[TimelineEntry]) -> Table {
    let mut table = Table::with_columns([
        Column::new("TIME"),
        Column::new("OBJECT"),
        Column::new("WHO"),
        Column::new("WHAT"),
    ]);
    for entry in entries {
        let again = entry
            .until
            .map_or_else(String::new, |last| format!(" (last at {})", second(last)));
        let style = if entry.warning { WARN } else { Style::new() };
        table.add_row([
            Cell::from(second(entry.at)),
            Cell::from(entry.object.as_str()),
            Cell::from(entry.who.as_deref().unwrap_or_default()),
            Cell::styled(format!("{}{again}", entry.what), style).extend_to_line_end(),
        ]);
    }
    table
}

/// A time such as `2026-08-21 11:00:00Z`.
pub(in crate::commands) fn second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use kcp_api::metadata::Time;
    use kcp_control_plane::{
        rollout_events::{RolloutEvent, RolloutEvents},
        snapshot::Reading,
        testing::objects::{healthy, minutes_ago, now},
    };

    use super::{ControlPlaneTimeline, EventReach, ObjectName, Records, TimelineReport, timeline};
    use crate::{
        output::Report as _,
        terminal::{plain, table::Layout},
        testing::{assert_every_format, schema},
    };

    fn report(since: Option<i64>) -> TimelineReport {
        let mut observed = healthy(1);
        observed.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(3)));
        let events = RolloutEvents {
            events: vec![RolloutEvent {
                first: minutes_ago(20),
                last: minutes_ago(10),
                kind: "KubeadmControlPlane".to_owned(),
                name: "c1-cp".to_owned(),
                deleted: false,
                warning: true,
                reason: "Denied".to_owned(),
                note: "denied update by jane: spec.replicas: Invalid value: 4 (replicas-even)".to_owned(),
                reporter: Some("kubectl-kcp.dev/kcp-webhook".to_owned()),
            }],
            ..RolloutEvents::default()
        };
        let reach = EventReach {
            count: 240,
            has_more: false,
            oldest: Some(minutes_ago(60)),
        };
        let since = since.map(minutes_ago);
        let records = Records {
            observed: &observed,
            writers: &[],
            cluster_writers: &Reading::NotYet,
            events: &Reading::Read(events),
            reach: &Reading::Read(reach),
        };
        TimelineReport {
            control_plane: ObjectName::from(&observed.control_plane),
            since,
            events: Some(reach),
            timeline: timeline(&records, since, now()),
        }
    }

    #[test]
    fn the_screen() {
        let layout = |width| Layout {
            width,
            ..Layout::default()
        };
        let screens = [
            report(None).table(layout(None)),
            report(Some(15)).table(layout(Some(80))),
            report(Some(1)).table(layout(Some(80))),
        ];
        insta::assert_snapshot!(screens.map(|screen| plain(&screen)).join("\n"));
    }

    #[test]
    fn the_schema_is_checked_in() {
        schema::checked_in::<ControlPlaneTimeline<'_>>("controlplanetimeline.json");
        schema::conforms(&report(None).content());
        assert_every_format(&report(None));
    }
}
