//! The commands that write, as data: a new one is a row.

/// A command of `kubectl-kcp` that takes or gives back leases.
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
}

/// Stands for the pool's name.
pub const POOL: &str = "{pool}";
/// Stands for the lessee's name, which is that of its `ClusterDeployment`.
pub const LESSEE: &str = "{lessee}";

/// `pool lease`
pub const LEASE: Verb = Verb {
    name: "lease",
    arguments: &[
        "pool",
        "lease",
        POOL,
        "--cluster-deployment",
        LESSEE,
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

/// All that write.
pub const VERBS: [Verb; 2] = [LEASE, RELEASE];

/// Frees what the dead have left behind, given the name of one.
pub const RECOVERY: Verb = RELEASE;

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
    use super::LEASE;

    #[test]
    fn names_stand_where_they_belong() {
        assert_eq!(
            LEASE.command("n", "p", "a"),
            [
                "pool",
                "lease",
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
}
