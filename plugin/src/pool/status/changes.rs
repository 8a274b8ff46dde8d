//! What has changed since the last look, a line each.

use std::fmt::Display;

use super::model::{EntryUse, PoolState};

/// The lines, each of which names its pool; all there is where there was no look before.
pub(super) fn changes(before: Option<&[PoolState]>, after: &[PoolState]) -> Vec<String> {
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
    let problems = pool.problems().len();
    let noun = if pool.entries.len() == 1 {
        "entry"
    } else {
        "entries"
    };
    format!("{}: {} {noun}, {problems} wrong", name(pool), pool.entries.len())
}

fn of_pool(old: &PoolState, new: &PoolState) -> Vec<String> {
    let mut lines = Vec::new();
    let mut tell = |what: String, before: Option<String>, after: Option<String>| {
        if before != after {
            let text = |text: Option<String>| text.unwrap_or_else(|| "not there".to_owned());
            lines.push(format!("{what}: {} -> {}", text(before), text(after)));
        }
    };
    for (what, before, after) in pairs(&old.entries, &new.entries, |entry| entry.name.clone()) {
        tell(
            format!("entry {what}"),
            before.map(described),
            after.map(described),
        );
    }
    for (what, before, after) in pairs(&old.clusters, &new.clusters, |cluster| cluster.name.clone()) {
        let state = |cluster: &super::model::ClusterUse| {
            let stale = if cluster.stale.is_some() { ", stale" } else { "" };
            format!("{}{stale}", cluster.state.as_str())
        };
        tell(format!("cluster {what}"), before.map(state), after.map(state));
    }
    tell(
        "claims waiting".to_owned(),
        Some(old.waiting.len().to_string()),
        Some(new.waiting.len().to_string()),
    );
    tell(
        "wrong".to_owned(),
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

/// Each of both by its key: those of `new` first.
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
    use super::changes;
    use crate::pool::{
        status::example::{busy, claims, state},
        survey_example::{NOW, entry},
    };

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
                "d/pool: cluster bern: installed, stale -> not there",
                "d/pool: claims waiting: 2 -> 1",
                "d/pool: wrong: 5 -> 4",
            ]
        );
        assert_eq!(changes(Some(&before), &[]), ["d/pool: gone"]);
        assert_eq!(changes(None, &before), ["d/pool: 6 entries, 5 wrong"]);
    }
}
