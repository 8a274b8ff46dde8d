//! `pool status`.

mod document;
mod printer;

use std::fmt::Display;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kcp_pool::status::{ClusterUse, EntryUse, PoolState, pool_states};

use crate::{
    arguments::parse_cluster_pool,
    document::{text, yaml},
    session::Session,
    terminal::{Size, Terminal},
    verdict::Verdict,
    watch::{Observation, watch},
};
use document::{PoolStatus, PoolStatusList};
use printer::Layout;

/// Arguments of `pool status`.
#[derive(Debug, Args)]
pub struct PoolStatusArguments {
    /// Cluster pool to show; all pools of the namespace if absent
    #[arg(value_parser = parse_cluster_pool, conflicts_with = "all_namespaces")]
    pub pool: Option<String>,

    /// Show the pools of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Keep running and show changes: in place on a terminal, one line each elsewhere
    #[arg(short, long)]
    pub watch: bool,

    /// Output format [default: text for people]
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<PoolStatusOutput>,
}

/// Output formats of `pool status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PoolStatusOutput {
    /// Text with all columns, not cut to the terminal
    Wide,
    /// A JSON document: `PoolStatus` with POOL, `PoolStatusList` without
    Json,
    /// The same document as YAML
    Yaml,
    /// Each pool as RESOURCE/NAME
    Name,
}

impl PoolStatusArguments {
    /// Arguments that cannot be combined.
    fn contradiction(&self) -> Option<&'static str> {
        match self.output {
            Some(PoolStatusOutput::Json | PoolStatusOutput::Yaml | PoolStatusOutput::Name) if self.watch => {
                Some("--watch shows text: leave out --output, or set it to wide")
            }
            _ => None,
        }
    }
}

/// Runs `pool status`.
///
/// # Errors
/// If the cluster cannot be read, or the result cannot be written.
pub(crate) async fn run(arguments: PoolStatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    if let Some(contradiction) = arguments.contradiction() {
        bail!(contradiction);
    }
    let connection = session.connect().await?;
    let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
    let is_wide = arguments.output == Some(PoolStatusOutput::Wide);
    let screen = |pools: &[PoolState], now: Timestamp, layout: Layout| match (&arguments.pool, pools) {
        (Some(_), [only]) => printer::one(only, now, layout),
        _ => printer::list(pools, namespace, layout),
    };
    let look = || pool_states(&connection, arguments.all_namespaces, arguments.pool.as_deref());
    if arguments.watch {
        let look = async || Ok(look().await?);
        let screen = |pools: &Vec<PoolState>, now: Timestamp, size: Size| {
            let width = Some(size.width);
            screen(pools, now, Layout { width, is_wide })
        };
        return Box::pin(watch(&session.terminal, look, screen)).await;
    }
    let pools = look().await?;
    let layout = Layout {
        width: Terminal::size().map(|size| size.width),
        is_wide,
    };
    let printed = match (arguments.output, &arguments.pool, pools.as_slice()) {
        (None | Some(PoolStatusOutput::Wide), ..) => screen(&pools, Timestamp::now(), layout),
        (Some(PoolStatusOutput::Json), Some(_), [only]) => text(&PoolStatus::of(only))?,
        (Some(PoolStatusOutput::Json), ..) => text(&PoolStatusList::of(&pools))?,
        (Some(PoolStatusOutput::Yaml), Some(_), [only]) => yaml(&PoolStatus::of(only))?,
        (Some(PoolStatusOutput::Yaml), ..) => yaml(&PoolStatusList::of(&pools))?,
        (Some(PoolStatusOutput::Name), ..) => names(&pools),
    };
    session
        .terminal
        .print(&printed)
        .context("cannot write to stdout")?;
    Ok(pools.verdict())
}

impl Observation for Vec<PoolState> {
    fn changes(before: Option<&Self>, after: &Self) -> Vec<String> {
        changes(before.map(Vec::as_slice), after)
    }

    fn verdict(&self) -> Verdict {
        Verdict::worst(self.iter().map(verdict))
    }
}

fn names(pools: &[PoolState]) -> String {
    pools.iter().fold(String::new(), |text, pool| {
        text + "clusterpool.hive.openshift.io/" + &pool.name + "\n"
    })
}

fn verdict(pool: &PoolState) -> Verdict {
    if pool.problems().is_empty() {
        Verdict::Met
    } else {
        Verdict::Negative
    }
}

/// One line for each change, with the pool's name; without an earlier observation, one line for each pool.
pub(crate) fn changes(before: Option<&[PoolState]>, after: &[PoolState]) -> Vec<String> {
    let Some(before) = before else {
        return after.iter().map(first).collect();
    };
    let same = |pools: &[PoolState], pool: &PoolState| {
        let is_it = |other: &&PoolState| (&other.namespace, &other.name) == (&pool.namespace, &pool.name);
        pools.iter().find(is_it).cloned()
    };
    let mut lines = Vec::new();
    for pool in after {
        let Some(old) = same(before, pool) else {
            lines.push(first(pool));
            continue;
        };
        let changes = of_pool(&old, pool);
        lines.extend(
            changes
                .into_iter()
                .map(|change| format!("{}: {change}", name(pool))),
        );
    }
    let gone = before.iter().filter(|pool| same(after, pool).is_none());
    lines.extend(gone.map(|pool| format!("{}: gone", name(pool))));
    lines
}

fn name(pool: &PoolState) -> String {
    format!("{}/{}", pool.namespace, pool.name)
}

fn first(pool: &PoolState) -> String {
    let entries = counted(pool.entries.len(), "entry", "entries");
    let problems = counted(pool.problems().len(), "problem", "problems");
    format!("{}: {entries}, {problems}", name(pool))
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn of_pool(old: &PoolState, new: &PoolState) -> Vec<String> {
    let mut lines = Vec::new();
    let mut report = |what: String, before: Option<String>, after: Option<String>| {
        if before != after {
            let text = |text: Option<String>| text.unwrap_or_else(|| "absent".to_owned());
            lines.push(format!("{what}: {} -> {}", text(before), text(after)));
        }
    };
    for (what, before, after) in pairs(&old.entries, &new.entries, |entry| entry.name.clone()) {
        report(
            format!("entry {what}"),
            before.map(described),
            after.map(described),
        );
    }
    for (what, before, after) in pairs(&old.clusters, &new.clusters, |cluster| cluster.name.clone()) {
        let state = |cluster: &ClusterUse| {
            let stale = if cluster.stale.is_some() { ", stale" } else { "" };
            format!("{}{stale}", cluster.state.as_str())
        };
        report(format!("cluster {what}"), before.map(state), after.map(state));
    }
    report(
        "claims waiting".to_owned(),
        Some(old.waiting.len().to_string()),
        Some(new.waiting.len().to_string()),
    );
    report(
        "problems".to_owned(),
        Some(old.problems().len().to_string()),
        Some(new.problems().len().to_string()),
    );
    lines
}

fn described(entry: &EntryUse) -> String {
    let holder = entry
        .holder
        .as_ref()
        .map_or(String::new(), |holder| format!(" for {holder}"));
    format!("{}{holder}", entry.state.as_str())
}

/// The elements of both lists by their key, those of `new` first.
fn pairs<'p, T, K: PartialEq + Display>(
    old: &'p [T],
    new: &'p [T],
    key: fn(&T) -> K,
) -> Vec<(K, Option<&'p T>, Option<&'p T>)> {
    let find = |all: &'p [T], wanted: &K| all.iter().find(|one| key(one) == *wanted);
    let of_new = new.iter().map(|one| (key(one), find(old, &key(one)), Some(one)));
    let gone = old.iter().filter(|one| find(new, &key(one)).is_none());
    of_new
        .chain(gone.map(|one| (key(one), Some(one), None)))
        .collect()
}

#[cfg(test)]
mod tests {
    use kcp_pool::testing::{
        objects::{NOW, entry},
        states::{busy, claims, state, states},
    };

    use super::{changes, verdict};

    #[test]
    fn what_is_wrong_is_a_negative_verdict() {
        let verdicts: Vec<_> = states().iter().map(|(_, state)| verdict(state).code()).collect();
        assert_eq!(verdicts, [1, 0, 0]);
    }

    #[test]
    fn a_line_for_each_change() {
        let before = [state(&busy(), &claims())];
        let mut objects = busy();
        objects.entries[2] = {
            let mut free = entry("True", None, NOW);
            free["metadata"]["name"] = "host-3".into();
            free
        };
        objects.records.truncate(1);
        objects.clusters.remove(1);
        objects.clusters[1]["spec"]["installed"] = true.into();
        let after = [state(&objects, &claims()[1..])];
        assert_eq!(changes(Some(&before), &before), Vec::<String>::new());
        assert_eq!(
            changes(Some(&before), &after),
            [
                "d/pool: entry host-3: reserved for oslo -> free",
                "d/pool: cluster kyiv: installing -> installed",
                "d/pool: cluster bern: installed, stale -> absent",
                "d/pool: claims waiting: 2 -> 1",
                "d/pool: problems: 5 -> 4",
            ]
        );
        assert_eq!(changes(Some(&before), &[]), ["d/pool: gone"]);
        assert_eq!(changes(None, &before), ["d/pool: 6 entries, 5 problems"]);
    }
}
