//! The commands that write, as data.

/// A verb of `kubectl-kcp pool` and its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// The command line after `kubectl-kcp pool`, with `{pool}`, `{lessee}`, `{ttl}` and `{id}` as placeholders. The
    /// namespace is added.
    pub line: &'static str,
    /// The effect of a successful command.
    pub effect: Effect,
}

/// The effect of a command on its lessee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It has an entry afterwards. The command prints its name, and when the lease ends.
    Leases,
    /// It has its entry for longer. The command prints when the lease ends.
    Renews,
    /// It has no entry afterwards.
    Releases,
    /// It still has its entry afterwards.
    Keeps,
    /// None: the command affects dead lessees only.
    Repairs,
    /// None: the command affects entries that nobody holds. It prints the name of each entry that it cleans, and the id of its hold.
    Cleans,
}

/// The values of the placeholders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'v> {
    pub(super) pool: &'v str,
    /// The name of its `ClusterDeployment`.
    pub(super) lessee: &'v str,
    pub(super) ttl: &'v str,
    pub(super) id: &'v str,
}

/// The Secret with the install-config of new clusters, in the pool's namespace.
pub(super) const INSTALL_CONFIG: &str = "install-config";

/// The prefix of generated names.
pub(super) const GENERATED: &str = "generated-";

const fn verb(line: &'static str, effect: Effect) -> Verb {
    Verb { line, effect }
}

pub const LEASE: Verb = verb(
    "lease {pool} --cluster-deployment {lessee} --ttl {ttl} -o json",
    Effect::Leases,
);

/// The same lease again, which keeps its end.
pub const LEASE_AGAIN: Verb = verb(
    "lease {pool} --cluster-deployment {lessee} -o json",
    Effect::Leases,
);

/// A lease that is refused to a lessee that has one.
pub const LEASE_NEW: Verb = verb(
    "lease {pool} --cluster-deployment {lessee} --ttl {ttl} --new -o json",
    Effect::Leases,
);

/// A lease that waits until leases of other lessees have ended.
pub const LEASE_WAIT: Verb = verb(
    "lease {pool} --cluster-deployment {lessee} --ttl {ttl} --wait=20s -o json",
    Effect::Leases,
);

/// A lease without a cluster: others may have the entry as soon as it ends.
pub const BORROW: Verb = verb(
    "lease {pool} --cluster-deployment {lessee} --ttl {ttl} --no-cluster -o json",
    Effect::Leases,
);

/// A lease of a lessee that the command names.
pub const GENERATE: Verb = verb(
    "lease {pool} --generate-name generated- --ttl {ttl} --no-cluster -o json",
    Effect::Leases,
);

/// A lease of two entries, of a lessee that the command names. It waits until leases of other lessees have ended.
pub const GENERATE_TWO: Verb = verb(
    "lease {pool} --generate-name generated- --ttl {ttl} --no-cluster --count 2 --wait=10s -o json",
    Effect::Leases,
);

/// A lease of two entries, which is renewed or completed by the same command.
pub const LEASE_TWO: Verb = verb(
    "lease {pool} --cluster-deployment {lessee} --ttl {ttl} --count 2 -o json",
    Effect::Leases,
);

pub const CREATE: Verb = verb(
    "lease {pool} --cluster-deployment {lessee} --create --install-config secret/install-config -o json",
    Effect::Leases,
);

pub const RENEW: Verb = verb(
    "renew {pool} --cluster-deployment {lessee} --ttl 48h -o json",
    Effect::Renews,
);

pub const RENEW_BY_ID: Verb = verb(
    "renew {pool} --cluster-deployment {lessee} --ttl 48h --id {id} -o json",
    Effect::Renews,
);

pub const RELEASE: Verb = verb(
    "release {pool} --cluster-deployment {lessee} -o json",
    Effect::Releases,
);

pub const RELEASE_BY_ID: Verb = verb(
    "release {pool} --cluster-deployment {lessee} --id {id} -o json",
    Effect::Releases,
);

/// A release that must be refused: a cluster uses the entry.
pub const RELEASE_IN_USE: Verb = verb(
    "release {pool} --cluster-deployment {lessee} -o json",
    Effect::Keeps,
);

/// A release that must be refused: the lessee has its entry by a later lease.
pub const RELEASE_TOO_LATE: Verb = verb(
    "release {pool} --cluster-deployment {lessee} --id {id} -o json",
    Effect::Keeps,
);

/// A claim that is refused to a lessee if the name has one.
pub(super) const LEASE_CLAIM: Verb = verb(
    "lease {pool} --cluster-deployment {lessee} --claim --new --hive=yes --wait=2m -o json",
    Effect::Leases,
);

pub(super) const RENEW_CLAIM: Verb = verb(
    "renew {pool} --cluster-deployment {lessee} --id {id} --ttl 24h -o json",
    Effect::Renews,
);

pub(super) const RELEASE_CLAIM: Verb = verb(
    "release {pool} --cluster-deployment {lessee} --id {id} --delete-cluster --yes --hive=yes -o json",
    Effect::Releases,
);

pub(super) const EXEC_CLAIM: Verb = verb(
    "exec {pool} --cluster-deployment {lessee} --claim --hive=yes --wait=2m -- true",
    Effect::Releases,
);

/// Cleans the entries whose leases were released, also those of a janitor that was killed. The script has no spaces, because words
/// are separated by spaces here.
pub const CLEAN: Verb = verb(
    "exec {pool} --clean --ttl 3s --wait=15s -- sh -c echo${IFS}$KCP_CUSTOMIZATION${IFS}$KCP_LEASE_ID",
    Effect::Cleans,
);

/// [`CLEAN`] for a short time, with a script that fails for one entry in four.
pub(super) const CLEAN_OR_FAIL: Verb = verb(
    "exec {pool} --clean --ttl 3s --failures 99 --wait=3s -- \
     sh -c [${IFS}$(($$%4))${IFS}-gt${IFS}0${IFS}]&&echo${IFS}$KCP_CUSTOMIZATION${IFS}$KCP_LEASE_ID",
    Effect::Cleans,
);

pub const CORDON: Verb = verb("cordon host-1 --reason tests", Effect::Repairs);

pub const UNCORDON: Verb = verb("uncordon host-1", Effect::Repairs);

/// Without a grace period. It must not take an entry that is between two writes of a lease.
pub const REPAIR: Verb = verb("repair {pool} --yes --grace 0s -o json", Effect::Repairs);

/// With the grace period [`GRACE`](super::claim::GRACE).
pub const REPAIR_WITH_GRACE: Verb = verb("repair {pool} --yes --grace 3s -o json", Effect::Repairs);

pub const RECREATE: Verb = verb(
    "repair {pool} --recreate --install-config secret/install-config --yes --grace 0s -o json",
    Effect::Keeps,
);

pub(super) const STATUS: Verb = verb("status {pool} -o json", Effect::Repairs);

/// Succeeds if it finds no problem.
pub const FIND: Verb = verb("repair {pool} --grace 0s -o json", Effect::Repairs);

impl Verb {
    pub(super) fn command(&self, namespace: &str, values: &Values<'_>) -> Vec<String> {
        let words = self.line.split(' ').map(|word| match word {
            "{pool}" => values.pool,
            "{lessee}" => values.lessee,
            "{ttl}" => values.ttl,
            "{id}" => values.id,
            other => other,
        });
        let words = ["pool", "-n", namespace].into_iter().chain(words);
        words.map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{CREATE, GENERATE, GENERATE_TWO, GENERATED, INSTALL_CONFIG, RECREATE, RELEASE_BY_ID, Values};

    #[test]
    fn placeholders_are_replaced() {
        let values = Values {
            pool: "p",
            lessee: "a",
            ttl: "1s",
            id: "k4x7",
        };
        assert_eq!(
            RELEASE_BY_ID.command("n", &values).join(" "),
            "pool -n n release p --cluster-deployment a --id k4x7 -o json"
        );
    }

    #[test]
    fn names_are_those_of_the_constants() {
        let secret = format!("secret/{INSTALL_CONFIG}");
        for verb in [CREATE, RECREATE] {
            assert!(verb.line.contains(&secret), "{}", verb.line);
        }
        for verb in [GENERATE, GENERATE_TWO] {
            assert!(verb.line.contains(GENERATED), "{}", verb.line);
        }
    }
}
