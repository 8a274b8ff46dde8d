//! Prints the state of pools as text.

use jiff::Timestamp;
use kcp_pool::{
    hive::HiveEvidence,
    inventory::staleness::Staleness,
    status::{ClaimUse, ClusterUse, EntryUse, EntryUseState, PoolState},
};
use owo_colors::{OwoColorize as _, Style};

use crate::{
    arguments::format_duration,
    terminal::{
        escape,
        style::{BAD, GOOD, HEADING, WARN},
        table::{Cell, Column, Layout, Table},
    },
};

/// The maximum number of claims and lessees that wait which the text names.
const MAX_WAITING_NAMED: usize = 10;

const ENTRY_COLUMNS: &[Column] = &[
    Column::new("NAMESPACE"),
    Column::new("POOL"),
    Column::new("ENTRY"),
    Column::new("STATE"),
    Column::new("HOLDER"),
    Column::new("FOR").expendable(3),
    Column::new("AGE").expendable(1),
    Column::new("ENDS").expendable(2),
    Column::new("LEASE ID").expendable(5),
    Column::new("USER").expendable(4),
    Column::new("LAST RESULT"),
];

const CLUSTER_COLUMNS: &[Column] = &[
    Column::new("CLUSTER"),
    Column::new("ENTRY"),
    Column::new("CLAIM"),
    Column::new("STATE"),
    Column::new("POWER").expendable(2),
    Column::new("AGE").expendable(1),
    Column::new("STALE"),
];

const CLAIM_COLUMNS: &[Column] = &[
    Column::new("CLAIM"),
    Column::new("USER"),
    Column::new("CLUSTER"),
    Column::new("AGE").expendable(1),
    Column::new("ENDS"),
];

const POOL_COLUMNS: &[Column] = &[
    Column::new("NAMESPACE"),
    Column::new("NAME"),
    Column::new("SIZE"),
    Column::new("MAX").expendable(1),
    Column::new("CLUSTERS").expendable(2),
    Column::new("ENTRIES"),
    Column::new("FREE"),
    Column::new("WAITING"),
    Column::new("STALE"),
    Column::new("PROBLEMS"),
];

const PROBLEM_COLUMNS: &[Column] = &[
    Column::new("OBJECT"),
    Column::new("PROBLEM"),
    Column::new("DETAILS"),
];

/// The screen for one pool.
pub(crate) fn render_pool(pool: &PoolState, now: Timestamp, layout: Layout) -> String {
    let mut parts = vec![summary(pool, now)];
    parts.extend(entries(std::slice::from_ref(pool), |_| ["", ""], now, layout));
    if let Some(clusters) = pool.clusters.as_ref().filter(|clusters| !clusters.is_empty()) {
        let mut table = Table::with_columns(CLUSTER_COLUMNS.iter().copied());
        for cluster in clusters {
            table.add_row(cluster_row(cluster, now));
        }
        parts.push(table.render(layout));
    }
    let claims = pool.claims.iter().flatten();
    let mut claims = claims
        .filter_map(|claim| Some((claim, claim.cluster.as_deref()?)))
        .peekable();
    if claims.peek().is_some() {
        let mut table = Table::with_columns(CLAIM_COLUMNS.iter().copied());
        for (claim, cluster) in claims {
            table.add_row(claim_row(claim, cluster, now));
        }
        parts.push(table.render(layout));
    }
    let problems = pool.problems();
    if !problems.is_empty() {
        let mut table = Table::with_columns(PROBLEM_COLUMNS.iter().copied());
        for problem in &problems {
            table.add_row([
                Cell::from(&problem.object),
                Cell::styled(problem.kind, BAD),
                Cell::from(&problem.message).extend_to_line_end(),
            ]);
        }
        parts.push(table.render(layout));
    }
    if problems
        .iter()
        .any(|problem| ["leaked", "left", "stale"].contains(&problem.kind))
    {
        parts.push(format!(
            "to see what a repair would do: kubectl kcp pool repair {} -n {}\n",
            pool.name, pool.namespace
        ));
    }
    parts.join("\n")
}

/// The tables of several pools and of their entries, one line each. `namespace` is `None` for all namespaces.
pub(crate) fn render_pools<'p>(
    pools: &'p [PoolState],
    namespace: Option<&str>,
    now: Timestamp,
    layout: Layout,
) -> String {
    if pools.is_empty() {
        return match namespace {
            Some(namespace) => format!("No cluster pools found in {} namespace.\n", escape(namespace)),
            None => "No cluster pools found.\n".to_owned(),
        };
    }
    let namespace_of = |pool: &'p PoolState| {
        if namespace.is_none() {
            pool.namespace.as_str()
        } else {
            ""
        }
    };
    let mut table = Table::with_columns(POOL_COLUMNS.iter().copied());
    for pool in pools {
        let problems = pool.problems();
        let mut kinds: Vec<&str> = problems.iter().map(|problem| problem.kind).collect();
        kinds.dedup();
        let limit = |limit: Option<usize>| limit.map_or(String::new(), |limit| limit.to_string());
        let number = |number: usize| {
            if number > 0 {
                number.to_string()
            } else {
                String::new()
            }
        };
        let queue = pool.queue.as_ref().filter(|_| pool.claims.is_some());
        let waiting = queue.map_or_else(
            || "unknown".to_owned(),
            |queue| number(pool.waiting_claims().count() + queue.len()),
        );
        table.add_row([
            Cell::from(namespace_of(pool)),
            Cell::from(&pool.name),
            Cell::from(pool.capacity.size.to_string()),
            Cell::from(limit(pool.capacity.max_size)),
            Cell::from(pool.capacity.clusters.to_string()),
            Cell::from(limit(pool.capacity.inventory)),
            Cell::from(pool.count(EntryUseState::Free).to_string()),
            Cell::from(waiting),
            Cell::from(number(pool.count_stale_clusters())),
            Cell::styled(kinds.join(", "), BAD).extend_to_line_end(),
        ]);
    }
    let place = |pool: &'p PoolState| [namespace_of(pool), pool.name.as_str()];
    let entries = entries(pools, place, now, layout);
    [table.render(layout)]
        .into_iter()
        .chain(entries)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The table of the pools' entries, if there are any. `place` returns the namespace and the name of a pool, or empty texts.
fn entries<'p>(
    pools: &'p [PoolState],
    place: impl Fn(&'p PoolState) -> [&'p str; 2],
    now: Timestamp,
    layout: Layout,
) -> Option<String> {
    let mut table = Table::with_columns(ENTRY_COLUMNS.iter().copied());
    let mut is_empty = true;
    for pool in pools {
        for entry in &pool.entries {
            is_empty = false;
            let place = place(pool).map(Cell::from).into_iter();
            table.add_row(place.chain(entry_row(entry, &pool.name, now)));
        }
    }
    (!is_empty).then(|| table.render(layout))
}

fn summary(pool: &PoolState, now: Timestamp) -> String {
    let capacity = &pool.capacity;
    let manager = if pool.hive.evidence == HiveEvidence::Unreadable {
        format!("unknown ({})", pool.hive.evidence)
    } else if pool.hive.is_managed {
        format!("Hive ({})", pool.hive.evidence)
    } else {
        format!("people and scripts, not Hive ({})", pool.hive.evidence)
    };
    let deleting = if pool.is_deleting { ", being deleted" } else { "" };
    let limit =
        |name: &str, limit: Option<usize>| limit.map_or(String::new(), |limit| format!(", {name} {limit}"));
    let lines = [
        ("Pool", format!("{}/{}{deleting}", pool.namespace, pool.name)),
        ("Managed by", manager),
        (
            "Clusters",
            format!(
                "{} unclaimed of {} desired, {} in total{}{}",
                capacity.unclaimed,
                capacity.size,
                capacity.clusters,
                limit("maxSize", capacity.max_size),
                limit("maxConcurrent", capacity.max_concurrent),
            ),
        ),
        ("Inventory", inventory(pool)),
        ("Version", version(pool)),
        ("Waiting", waiting(pool, now)),
    ];
    let shown = lines.iter().filter(|(_, text)| !text.is_empty());
    shown.fold(String::new(), |text, (title, value)| {
        let title = format!("{title}:");
        text + &format!("{:<11} {}\n", title.style(HEADING), escape(value))
    })
}

fn inventory(pool: &PoolState) -> String {
    let Some(entries) = pool.capacity.inventory else {
        let lost = &pool.lost_inventory;
        return match lost.explanation() {
            _ if lost.problem().is_some() => {
                "no inventory, although the manifest that was last applied has one".to_owned()
            }
            Some(why) => format!("no inventory: {why}"),
            None => "no inventory: all clusters are the same".to_owned(),
        };
    };
    let states = [
        EntryUseState::Free,
        EntryUseState::Held,
        EntryUseState::InUse,
        EntryUseState::ClusterGone,
        EntryUseState::Expired,
        EntryUseState::Cleaning,
        EntryUseState::Reserved,
        EntryUseState::Unreadable,
        EntryUseState::Deleting,
        EntryUseState::Missing,
    ];
    let counts: Vec<String> = states
        .iter()
        .map(|state| (pool.count(*state), state.as_str()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, state)| format!("{count} {state}"))
        .collect();
    let entries = if entries == 1 {
        "1 entry".to_owned()
    } else {
        format!("{entries} entries")
    };
    [&[entries][..], &counts].concat().join(", ")
}

fn version(pool: &PoolState) -> String {
    let version = pool
        .version
        .as_deref()
        .unwrap_or("unknown (spec.platform has a field that only a newer Hive knows)");
    match pool.count_stale_clusters() {
        0 => version.to_owned(),
        1 => format!("{version}, 1 cluster is stale"),
        stale => format!("{version}, {stale} clusters are stale"),
    }
}

fn waiting(pool: &PoolState, now: Timestamp) -> String {
    let claims = pool
        .waiting_claims()
        .map(|claim| (claim.name.clone(), claim.created));
    let lessees = pool.queue.iter().flatten().map(|place| {
        let name = match place.count {
            0 | 1 => place.holder.clone(),
            count => format!("{} for {count} entries", place.holder),
        };
        (name, Some(place.since))
    });
    let waiting: Vec<String> = claims
        .chain(lessees)
        .map(|(name, since)| format!("{name} ({})", age(since, now)))
        .collect();
    let (named, others) = waiting
        .split_at_checked(MAX_WAITING_NAMED)
        .unwrap_or((&waiting, &[]));
    let named = named.join(", ");
    if others.is_empty() {
        named
    } else {
        format!("{named} and {} more", others.len())
    }
}

fn entry_row(entry: &EntryUse, pool: &str, now: Timestamp) -> Vec<Cell> {
    let style = match entry.state {
        EntryUseState::Free => GOOD,
        EntryUseState::Held | EntryUseState::InUse | EntryUseState::Reserved | EntryUseState::Deleting => {
            Style::new()
        }
        EntryUseState::ClusterGone | EntryUseState::Expired | EntryUseState::Cleaning => WARN,
        EntryUseState::Missing | EntryUseState::Unreadable => BAD,
    };
    let cleaning = entry.cleaning.as_ref();
    let mut state = entry.state.as_str().to_owned();
    for (is_so, what) in [
        (!entry.is_in_inventory, ", dropped"),
        (cleaning.is_some_and(|cleaning| cleaning.failures > 0), ", failed"),
        (entry.cordon_reason.is_some(), ", cordoned"),
    ] {
        if is_so {
            state.push_str(what);
        }
    }
    let leased_for_pool = entry
        .leased_for_pool
        .as_deref()
        .filter(|leased_for_pool| *leased_for_pool != pool);
    let lease = entry.lease.as_ref();
    let janitor = cleaning.and_then(|cleaning| cleaning.janitor.as_ref());
    let ends = lease.map(|lease| lease.deadline);
    let ends = ends.or(janitor.map(|janitor| Some(janitor.deadline)));
    let ends = ends.map_or(String::new(), |deadline| end(deadline, now));
    let holder = entry.holder.as_ref();
    let holder = holder.or(cleaning.and_then(|cleaning| cleaning.holder.as_ref()));
    let id = lease
        .map(|lease| &lease.id)
        .or(janitor.map(|janitor| &janitor.id));
    let user = lease.map_or(cleaning.map(|cleaning| &cleaning.user), |lease| Some(&lease.user));
    let last = entry.last_use.as_ref();
    let is_good = last.is_some_and(|last| last.status == "True");
    vec![
        Cell::from(&entry.name),
        Cell::styled(state, style),
        Cell::from(holder.map_or("", String::as_str)),
        Cell::from(leased_for_pool.unwrap_or_default()),
        Cell::from(
            entry
                .changed_at
                .map_or(String::new(), |since| age(Some(since), now)),
        ),
        Cell::from(ends),
        Cell::from(id.map_or("", String::as_str)),
        Cell::from(user.and_then(Option::as_deref).unwrap_or_default()),
        Cell::styled(
            last.map_or("", |last| last.reason.as_str()),
            if is_good { GOOD } else { WARN },
        ),
    ]
}

/// The time until `end`, or since `end` if it has passed. `None` means that there is no end.
fn end(end: Option<Timestamp>, now: Timestamp) -> String {
    match end {
        None => "never".to_owned(),
        Some(end) if end <= now => format!("{} ago", age(Some(end), now)),
        Some(end) => format!("in {}", age(Some(now), end)),
    }
}

fn claim_row(claim: &ClaimUse, cluster: &str, now: Timestamp) -> Vec<Cell> {
    vec![
        Cell::from(&claim.name),
        Cell::from(claim.user.as_deref().unwrap_or("-")),
        Cell::from(cluster),
        Cell::from(age(claim.created, now)),
        Cell::from(if claim.is_deleting {
            "deleting".to_owned()
        } else {
            end(claim.ends, now)
        }),
    ]
}

fn cluster_row(cluster: &ClusterUse, now: Timestamp) -> Vec<Cell> {
    let stale = match &cluster.staleness {
        None if cluster.has_unknown_version => "unknown".to_owned(),
        None => String::new(),
        Some(Staleness::Version {
            made_from: Some(version),
        }) => format!("created from {version}"),
        Some(Staleness::Version { made_from: None }) => "has no version".to_owned(),
        Some(Staleness::DroppedFromInventory { .. }) => "its entry was removed".to_owned(),
    };
    vec![
        Cell::from(&cluster.name),
        Cell::from(cluster.customization.as_deref().unwrap_or_default()),
        Cell::from(cluster.claim.as_deref().unwrap_or_default()),
        Cell::from(cluster.state.as_str()),
        Cell::from(cluster.power.as_deref().unwrap_or("-")),
        Cell::from(age(cluster.created, now)),
        Cell::styled(stale, WARN),
    ]
}

fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(
        || "-".to_owned(),
        |since| format_duration(now.duration_since(since).try_into().unwrap_or_default()),
    )
}

#[cfg(test)]
mod tests {
    use kcp_pool::testing::{objects::NOW, states::states};

    use super::{Layout, render_pool, render_pools};
    use crate::terminal::plain;

    #[test]
    fn screens() {
        let layout = Layout {
            width: Some(80),
            ..Layout::default()
        };
        for (name, state) in states() {
            insta::with_settings!({snapshot_path => "../snapshots"}, {
                insta::assert_snapshot!(name, plain(&render_pool(&state, NOW.parse().unwrap(), layout)));
            });
        }
        let now = NOW.parse().unwrap();
        let all: Vec<_> = states().into_iter().map(|(_, state)| state).collect();
        let lists = [
            render_pools(&all, Some("d"), now, layout),
            render_pools(&all, None, now, layout),
            render_pools(&[], Some("d"), now, layout),
            render_pools(&[], None, now, layout),
        ];
        insta::with_settings!({snapshot_path => "../snapshots"}, {
            insta::assert_snapshot!("lists", plain(&lists.join("\n")));
        });
    }
}
