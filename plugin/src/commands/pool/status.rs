//! Runs `kubectl kcp pool status`.

mod document;
mod printer;

use std::{collections::BTreeSet, fmt::Display};

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use kcp_pool::status::{ClusterUse, EntryUse, EntryUseState, PoolSelection, PoolState, pool_states};
use serde::Serialize;

use crate::{
    arguments::parse_cluster_pool,
    commands::pool::{HiveArgument, resource_name},
    document::Versioned,
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::{Size, table::Layout},
    verdict::Verdict,
    watch::{Observation, watch},
};
use document::{PoolStatus, PoolStatusList};

/// Arguments of `pool status`.
#[derive(Debug, Args)]
#[command(after_help = "-o name prints the free entries that are not cordoned.

Exits with 1 if a pool has a problem, and with 2 if it has none, but its clusters or claims could not be read.

Examples:
  kubectl kcp pool status hosts
  kubectl kcp pool status -A -l team=edge")]
pub struct PoolStatusArguments {
    /// Cluster pool to show; all pools of the namespace if omitted
    #[arg(value_parser = parse_cluster_pool, conflicts_with = "all_namespaces")]
    pub pool: Option<String>,

    /// Show the pools of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Watch for changes: redraw on a terminal, otherwise print a line for each change
    #[arg(short, long)]
    pub watch: bool,

    /// Show the pools that match this label selector, such as team=edge,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "pool")]
    pub selector: Option<String>,

    /// Whether Hive manages the pools
    #[arg(long, value_enum, default_value = "auto")]
    pub hive: HiveArgument,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

impl PoolStatusArguments {
    /// The error message, if two of the arguments contradict each other.
    fn contradiction(&self) -> Option<&'static str> {
        let is_contradiction = self.watch && !self.output.is_text();
        is_contradiction.then_some("--watch prints text only: omit --output, or set it to wide")
    }
}

pub(crate) async fn run(arguments: PoolStatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    if let Some(contradiction) = arguments.contradiction() {
        bail!(contradiction);
    }
    let connection = session.connect().await?;
    let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
    let selection = PoolSelection {
        includes_all_namespaces: arguments.all_namespaces,
        pool: arguments.pool.as_deref(),
        labels: arguments.selector.as_deref(),
        hive: arguments.hive.into(),
    };
    let look = || pool_states(&connection, selection);
    if arguments.watch {
        let look = async || Ok(look().await?);
        let screen = |pools: &Vec<PoolState>, _, size: Size| {
            let layout = arguments.output.layout(Some(size.width));
            PoolStatusReport::new(pools, &arguments, namespace, connection.now()).table(layout)
        };
        return Box::pin(watch(&session.terminal, look, screen)).await;
    }
    let pools = look().await?;
    let report = PoolStatusReport::new(&pools, &arguments, namespace, connection.now());
    let unseen: BTreeSet<&String> = pools.iter().flat_map(|pool| &pool.unread_kinds).collect();
    for unseen in unseen {
        session.terminal.warning(unseen);
    }
    print(&report, &arguments.output, &session.terminal)?;
    Ok(pools.verdict())
}

/// The states of the pools that one poll has read.
struct PoolStatusReport<'p> {
    pools: &'p [PoolState],
    /// Whether the user named one pool.
    is_one: bool,
    /// The namespace of the pools; `None` for all namespaces.
    namespace: Option<&'p str>,
    now: Timestamp,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PoolStatusDocument {
    One(Box<Versioned<PoolStatus>>),
    List(Versioned<PoolStatusList>),
}

impl<'p> PoolStatusReport<'p> {
    fn new(
        pools: &'p [PoolState],
        arguments: &PoolStatusArguments,
        namespace: Option<&'p str>,
        now: Timestamp,
    ) -> Self {
        Self {
            pools,
            is_one: arguments.pool.is_some(),
            namespace,
            now,
        }
    }

    fn only(&self) -> Option<&PoolState> {
        match self.pools {
            [only] if self.is_one => Some(only),
            _ => None,
        }
    }
}

impl Report for PoolStatusReport<'_> {
    fn table(&self, layout: Layout) -> String {
        match self.only() {
            Some(only) => printer::render_pool(only, self.now, layout),
            None => printer::render_pools(self.pools, self.namespace, self.now, layout),
        }
    }

    fn document(&self) -> impl Serialize {
        match self.only() {
            Some(only) => PoolStatusDocument::One(Box::new(Versioned(PoolStatus::new(only)))),
            None => PoolStatusDocument::List(Versioned(PoolStatusList::new(self.pools))),
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = self.pools.iter().flat_map(|pool| &pool.entries);
        let free =
            entries.filter(|entry| entry.state == EntryUseState::Free && entry.cordon_reason.is_none());
        free.map(|entry| resource_name(&entry.name.as_str().into()))
            .collect()
    }
}

impl Observation for Vec<PoolState> {
    fn changes(before: Option<&Self>, after: &Self) -> Vec<String> {
        changes(before.map(Vec::as_slice), after)
    }

    fn verdict(&self) -> Verdict {
        Verdict::worst(self.iter().map(verdict))
    }
}

/// What a lessee's role does not allow to read, such as the Secrets of a pool that Hive manages, does not change the verdict.
fn verdict(pool: &PoolState) -> Verdict {
    let is_read = pool.clusters.is_some() && pool.claims.is_some();
    if !pool.problems().is_empty() {
        Verdict::Negative
    } else if is_read {
        Verdict::Met
    } else {
        Verdict::Undecided
    }
}

/// One line for each change since the last poll, with the pool's name. Without a last poll, one line for each pool.
pub(crate) fn changes(before: Option<&[PoolState]>, after: &[PoolState]) -> Vec<String> {
    let Some(before) = before else {
        return after.iter().map(initial_line).collect();
    };
    let same = |pools: &[PoolState], pool: &PoolState| {
        let is_it = |other: &&PoolState| (&other.namespace, &other.name) == (&pool.namespace, &pool.name);
        pools.iter().find(is_it).cloned()
    };
    let mut lines = Vec::new();
    for pool in after {
        let Some(old) = same(before, pool) else {
            lines.push(initial_line(pool));
            continue;
        };
        let changes = pool_changes(&old, pool);
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

fn initial_line(pool: &PoolState) -> String {
    let entries = count_with_noun(pool.entries.len(), "entry", "entries");
    let problems = count_with_noun(pool.problems().len(), "problem", "problems");
    format!("{}: {entries}, {problems}", name(pool))
}

fn count_with_noun(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn clusters(pool: &PoolState) -> &[ClusterUse] {
    pool.clusters.as_deref().unwrap_or_default()
}

fn pool_changes(old: &PoolState, new: &PoolState) -> Vec<String> {
    let mut lines = Vec::new();
    let mut report = |what: String, before: Option<String>, after: Option<String>| {
        if before != after {
            let text = |text: Option<String>| text.unwrap_or_else(|| "absent".to_owned());
            lines.push(format!("{what}: {} -> {}", text(before), text(after)));
        }
    };
    for (what, before, after) in pair_by_key(&old.entries, &new.entries, |entry| entry.name.clone()) {
        report(
            format!("entry {what}"),
            before.map(describe_entry),
            after.map(describe_entry),
        );
    }
    for (what, before, after) in pair_by_key(clusters(old), clusters(new), |cluster| cluster.name.clone()) {
        let state = |cluster: &ClusterUse| {
            let stale = if cluster.staleness.is_some() {
                ", stale"
            } else {
                ""
            };
            format!("{}{stale}", cluster.state.as_str())
        };
        report(format!("cluster {what}"), before.map(state), after.map(state));
    }
    let claims = |pool: &PoolState| {
        let claims = pool.claims.as_ref();
        claims.map(|_| pool.waiting_claims().count().to_string())
    };
    report("claims waiting".to_owned(), claims(old), claims(new));
    report(
        "lessees waiting".to_owned(),
        old.queue.as_ref().map(|queue| queue.len().to_string()),
        new.queue.as_ref().map(|queue| queue.len().to_string()),
    );
    report(
        "problems".to_owned(),
        Some(old.problems().len().to_string()),
        Some(new.problems().len().to_string()),
    );
    lines
}

fn describe_entry(entry: &EntryUse) -> String {
    let holder = entry
        .holder
        .as_ref()
        .map_or(String::new(), |holder| format!(" for {holder}"));
    format!("{}{holder}", entry.state.as_str())
}

/// Pairs the elements of the old and the new list that have the same key, in the order of `new`, followed by the elements
/// that only the old list has.
fn pair_by_key<'p, T, K: PartialEq + Display>(
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
    use kcp_pool::{
        status::PoolState,
        testing::{
            objects::{NOW, Objects, entry},
            states::{busy, claims, state, states},
        },
    };

    use super::{PoolStatusReport, changes, verdict};
    use crate::{output::Report as _, testing::assert_every_format};

    #[test]
    fn every_format_is_printed() {
        let pools: Vec<_> = states().into_iter().map(|(_, state)| state).collect();
        for (pools, is_one) in [(&pools[..], false), (&pools[..1], true), (&[], false)] {
            assert_every_format(&PoolStatusReport {
                pools,
                is_one,
                namespace: None,
                now: NOW.parse().unwrap(),
            });
        }
    }

    #[test]
    fn the_names_are_those_of_entries_that_can_be_leased() {
        let mut objects = busy();
        objects.entries.truncate(2);
        objects.clusters.clear();
        for (host, name) in objects.entries.iter_mut().zip(["host-1", "host-2"]) {
            *host = entry("True", None);
            host["metadata"]["name"] = name.into();
        }
        let mut pools = [state(&objects, &[])];
        let report = |pools: &[PoolState]| {
            let report = PoolStatusReport {
                pools,
                is_one: true,
                namespace: None,
                now: NOW.parse().unwrap(),
            };
            report.names()
        };
        let name = |entry: &str| format!("clusterdeploymentcustomization.hive.openshift.io/{entry}");
        assert_eq!(report(&pools), [name("host-1"), name("host-2")]);
        pools[0].entries[0].cordon_reason = Some("fan".to_owned());
        assert_eq!(report(&pools), [name("host-2")]);
    }

    #[test]
    fn a_problem_makes_the_verdict_negative() {
        let verdicts: Vec<_> = states().iter().map(|(_, state)| verdict(state).code()).collect();
        assert_eq!(verdicts, [1, 1, 1, 0, 0, 1, 1, 0]);
    }

    #[test]
    fn without_a_problem_what_could_not_be_read_makes_the_verdict_undecided() {
        let unread: [fn(&mut PoolState); 2] = [|pool| pool.clusters = None, |pool| pool.claims = None];
        for (name, expected) in [("quiet", 2), ("busy", 1)] {
            for (number, forget) in unread.iter().enumerate() {
                let mut pool = states().into_iter().find(|(found, _)| *found == name).unwrap().1;
                forget(&mut pool);
                assert_eq!(verdict(&pool).code(), expected, "{name}, {number}");
            }
        }
        let mut other = state(&Objects::entry(entry("True", None)), &[]);
        other.unread_kinds.push("cannot list copies".to_owned());
        other.queue = None;
        assert_eq!(verdict(&other).code(), 0);
    }

    #[test]
    fn a_line_for_each_change() {
        let before = [state(&busy(), &claims())];
        let mut objects = busy();
        objects.entries[2] = {
            let mut free = entry("True", None);
            free["metadata"]["name"] = "host-3".into();
            free
        };
        objects.clusters.remove(1);
        objects.clusters[1]["spec"]["installed"] = true.into();
        let after = [state(&objects, &claims()[1..])];
        assert_eq!(changes(Some(&before), &before), Vec::<String>::new());
        assert_eq!(
            changes(Some(&before), &after),
            [
                "d/pool: entry host-3: expired for oslo -> free",
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
