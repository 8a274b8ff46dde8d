//! The commands that write, as data.

/// A command of `kubectl-kcp` that takes, gives back or mends leases.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// For messages.
    pub name: &'static str,
    /// With [`POOL`] and [`LESSEE`] for names. The namespace is added.
    pub arguments: &'static [&'static str],
    /// What it does when all goes well.
    pub effect: Effect,
}

/// What becomes of a lessee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It has an entry afterwards, whose name is at `/customization/name` of what it is told.
    Leases,
    /// It has none afterwards.
    Releases,
    /// It keeps the entry that it has.
    Keeps,
    /// It is about none: whoever lives keeps what it has.
    Repairs,
}

/// Stands for the pool's name.
pub const POOL: &str = "{pool}";
/// Stands for the lessee's name, which is that of its `ClusterDeployment`.
pub const LESSEE: &str = "{lessee}";

/// The Secret of the install-config that clusters are made from, in the pool's namespace.
pub(super) const INSTALL_CONFIG: &str = "install-config";

/// `pool lease`, for longer than any run takes.
pub const LEASE: Verb = Verb {
    name: "lease",
    arguments: &[
        "pool",
        "lease",
        POOL,
        "--cluster-deployment",
        LESSEE,
        "--ttl",
        "24h",
        "-o",
        "json",
    ],
    effect: Effect::Leases,
};

/// `pool lease --create`
pub const CREATE: Verb = Verb {
    name: "create",
    arguments: &[
        "pool",
        "lease",
        POOL,
        "--cluster-deployment",
        LESSEE,
        "--create",
        "--install-config",
        "secret/install-config",
        "-o",
        "json",
    ],
    effect: Effect::Leases,
};

/// `pool release`
pub const RELEASE: Verb = Verb {
    name: "release",
    arguments: &[
        "pool",
        "release",
        POOL,
        "--cluster-deployment",
        LESSEE,
        "-o",
        "json",
    ],
    effect: Effect::Releases,
};

/// `pool repair --yes`, which takes nothing that it sees for a moment between two writes.
pub const REPAIR: Verb = Verb {
    name: "repair",
    arguments: &["pool", "repair", POOL, "--yes", "--grace", "0s", "-o", "json"],
    effect: Effect::Repairs,
};

/// The same with clusters made anew.
pub const RECREATE: Verb = Verb {
    name: "recreate",
    arguments: &[
        "pool",
        "repair",
        POOL,
        "--recreate",
        "--install-config",
        "secret/install-config",
        "--yes",
        "--grace",
        "0s",
        "-o",
        "json",
    ],
    effect: Effect::Keeps,
};

/// `pool repair`, which succeeds when nothing is wrong.
pub const FIND: Verb = Verb {
    name: "find",
    arguments: &["pool", "repair", POOL, "--grace", "0s", "-o", "json"],
    effect: Effect::Repairs,
};

impl Verb {
    /// The command line of one lessee.
    pub(super) fn command(&self, namespace: &str, pool: &str, lessee: &str) -> Vec<String> {
        let arguments = self.arguments.iter().map(|argument| match *argument {
            POOL => pool,
            LESSEE => lessee,
            other => other,
        });
        arguments.chain(["-n", namespace]).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{CREATE, INSTALL_CONFIG, RECREATE, RELEASE};

    #[test]
    fn names_stand_where_they_belong() {
        assert_eq!(
            RELEASE.command("n", "p", "a"),
            [
                "pool",
                "release",
                "p",
                "--cluster-deployment",
                "a",
                "-o",
                "json",
                "-n",
                "n"
            ]
        );
    }

    #[test]
    fn the_install_config_is_the_one_that_the_pool_has() {
        let secret = format!("secret/{INSTALL_CONFIG}");
        for verb in [CREATE, RECREATE] {
            assert!(verb.arguments.contains(&secret.as_str()), "{}", verb.name);
        }
    }
}
