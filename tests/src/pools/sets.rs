//! Lessees that want several entries of one pool at once. Their sets overlap.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use jiff::SignedDuration;

use super::pool::{POOL, Pool};
use super::server::PoolServer;
use super::version::{Entry, Revision, Version};

const ENTRIES: usize = 4;

/// The number of entries that each lessee of a round wants. Together they want more than there are. The rounds take turns.
const COUNTS: [&[usize]; 4] = [&[3, 2], &[2, 3, 2], &[4, 3], &[3, 3, 2]];

/// The set of a lessee, and between which revisions it held the set.
#[derive(Clone, Debug)]
pub struct HeldSet {
    pub lessee: String,
    pub entries: Vec<String>,
    pub first: Revision,
    pub last: Revision,
}

/// In each round, lessees ask for their sets at the same moment, wait, and release them. Fails if one waits for more than two minutes,
/// or if two had an entry at the same time.
pub async fn compete_for_sets(server: &PoolServer, namespace: &str, rounds: usize) -> Result<()> {
    let pool = Pool::create(server, namespace, ENTRIES).await?;
    let mut sets = Vec::new();
    for (round, counts) in (0..rounds).zip(COUNTS.iter().cycle()) {
        let lessees = counts
            .iter()
            .enumerate()
            .map(|(number, count)| hold_set(&pool, format!("lessee-{number}"), *count));
        let held = try_join_all(lessees).await;
        sets.extend(held.with_context(|| format!("round {round} in {namespace}"))?);
    }
    check_sets(&sets, &server.history().take(namespace).await?.entries)
}

async fn hold_set(pool: &Pool<'_>, lessee: String, count: usize) -> Result<HeldSet> {
    let server = pool.server();
    let run = async |line: String| {
        let words = ["pool", "-n", pool.namespace()]
            .into_iter()
            .chain(line.split(' '));
        let words: Vec<_> = words.collect();
        let ended = server.plugin().run(&words, None, SignedDuration::ZERO).await?;
        ensure!(ended.code == Some(0), "{ended}");
        Ok(ended)
    };
    let request = run(format!(
        "lease {POOL} --cluster-deployment {lessee} --count {count} --no-cluster --wait=2m -o json"
    ));
    let leases = request.await?.leases()?;
    ensure!(
        leases.len() == count,
        "{lessee} has {leases:?} instead of {count} entries"
    );
    let revision = server.history().revision().await?;
    run(format!("release {POOL} --cluster-deployment {lessee}")).await?;
    Ok(HeldSet {
        lessee,
        entries: leases.into_iter().map(|(name, _)| name).collect(),
        first: revision,
        last: revision,
    })
}

/// Fails if an entry of a set did not name its lessee throughout, or if a lessee took an entry from another one.
pub fn check_sets(sets: &[HeldSet], versions: &[Version<Entry>]) -> Result<()> {
    for set in sets {
        for name in &set.entries {
            ensure!(
                is_held(set, name, versions),
                "{} does not hold {name}",
                set.lessee
            );
        }
    }
    let mut holders = BTreeMap::new();
    for version in versions {
        let holder = holder(version);
        let before = holders.insert(version.name.as_str(), holder).flatten();
        ensure!(
            before.is_none() || holder.is_none() || before == holder,
            "{version:?} takes the entry from {before:?}"
        );
    }
    Ok(())
}

/// Whether each version of the entry that was current while the lessee had the set names the lessee.
fn is_held(set: &HeldSet, name: &str, versions: &[Version<Entry>]) -> bool {
    let of_entry = versions
        .iter()
        .filter(|version| version.name == name && version.revision <= set.last);
    let (before, during): (Vec<_>, Vec<_>) = of_entry.partition(|version| version.revision <= set.first);
    let mut current = before.last().into_iter().chain(&during).peekable();
    current.peek().is_some() && current.all(|version| holder(version) == Some(&set.lessee))
}

fn holder(version: &Version<Entry>) -> Option<&str> {
    version.object.as_ref()?.cluster_deployment.as_deref()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{HeldSet, check_sets};
    use crate::pools::version::{Entry, Version};

    fn version(revision: u64, name: &str, holder: Option<&str>) -> Version<Entry> {
        Version {
            revision,
            seen: Timestamp::UNIX_EPOCH,
            name: name.to_owned(),
            object: Some(Entry {
                cluster_deployment: holder.map(str::to_owned),
                ..Entry::default()
            }),
        }
    }

    #[test]
    fn each_entry_of_a_set_names_its_lessee() {
        let set = HeldSet {
            lessee: "paris".to_owned(),
            entries: vec!["host-1".to_owned(), "host-2".to_owned()],
            first: 5,
            last: 7,
        };
        let second = version(4, "host-2", Some("paris"));
        for (versions, expected) in [
            (vec![version(3, "host-1", Some("paris"))], None),
            (vec![], Some("paris does not hold host-1")),
            (
                vec![version(3, "host-1", None)],
                Some("paris does not hold host-1"),
            ),
            (vec![version(6, "host-1", Some("paris"))], None),
            (
                vec![version(3, "host-1", Some("paris")), version(6, "host-1", None)],
                Some("paris does not hold host-1"),
            ),
            (
                vec![version(3, "host-1", Some("paris")), version(8, "host-1", None)],
                None,
            ),
        ] {
            let versions: Vec<_> = [second.clone()].into_iter().chain(versions).collect();
            let result = check_sets(std::slice::from_ref(&set), &versions);
            assert_eq!(result.err().map(|error| error.to_string()).as_deref(), expected);
        }
    }

    #[test]
    fn no_entry_passes_from_one_lessee_to_another() {
        let free = version(2, "host-1", None);
        let [paris, rome] =
            [(1, "paris"), (3, "rome")].map(|(revision, holder)| version(revision, "host-1", Some(holder)));
        check_sets(&[], &[paris.clone(), free, rome.clone()]).unwrap();
        let taken = check_sets(&[], &[paris, rome]).unwrap_err().to_string();
        assert!(taken.ends_with("takes the entry from Some(\"paris\")"), "{taken}");
    }
}
