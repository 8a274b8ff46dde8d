//! The commands that write, as data.

/// A command of `kubectl-kcp` that leases, releases or repairs.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    pub name: &'static str,
    /// The arguments, with [`POOL`] and [`LESSEE`] as placeholders. The namespace is added.
    pub arguments: &'static [&'static str],
    /// The effect of a successful command.
    pub effect: Effect,
}

/// The effect of a command on its lessee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It has an entry afterwards. The command prints its name at `/customization/name`.
    Leases,
    /// It has no entry afterwards.
    Releases,
    /// It still has its entry afterwards.
    Keeps,
    /// None: the command affects dead lessees only.
    Repairs,
}

/// The placeholder of the pool's name.
pub const POOL: &str = "{pool}";
/// The placeholder of the lessee's name, which is the name of its `ClusterDeployment`.
pub const LESSEE: &str = "{lessee}";

/// The Secret with the install-config of new clusters, in the pool's namespace.
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

/// `pool renew`.
pub const RENEW: Verb = Verb {
    name: "renew",
    arguments: &[
        "pool",
        "renew",
        POOL,
        "--cluster-deployment",
        LESSEE,
        "--ttl",
        "48h",
        "-o",
        "json",
    ],
    effect: Effect::Keeps,
};

/// `pool lease` for a second, without a cluster: others may have the entry as soon as the command ends.
pub const BORROW: Verb = Verb {
    name: "borrow",
    arguments: &[
        "pool",
        "lease",
        POOL,
        "--cluster-deployment",
        LESSEE,
        "--ttl",
        "1s",
        "--no-cluster",
        "-o",
        "json",
    ],
    effect: Effect::Repairs,
};

/// `pool cordon`.
pub const CORDON: Verb = Verb {
    name: "cordon",
    arguments: &["pool", "cordon", "host-1", "--reason", "by chance"],
    effect: Effect::Repairs,
};

/// `pool uncordon`.
pub const UNCORDON: Verb = Verb {
    name: "uncordon",
    arguments: &["pool", "uncordon", "host-1"],
    effect: Effect::Repairs,
};

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

/// `pool repair --yes` without a grace time. It must not take an entry that is between two writes of a lease.
pub const REPAIR: Verb = Verb {
    name: "repair",
    arguments: &["pool", "repair", POOL, "--yes", "--grace", "0s", "-o", "json"],
    effect: Effect::Repairs,
};

/// `pool repair --recreate`.
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

/// `pool repair`, which succeeds if it finds no problem.
pub const FIND: Verb = Verb {
    name: "find",
    arguments: &["pool", "repair", POOL, "--grace", "0s", "-o", "json"],
    effect: Effect::Repairs,
};

impl Verb {
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
