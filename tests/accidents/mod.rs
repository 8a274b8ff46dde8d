//! Accidents of control planes and pools that people reported in public, and the tests that replay them.
//! `plugin/tests/accidents.rs` checks each row, and makes `docs/src/reference/accidents.md` from them.

mod certificates;
mod etcd;
mod machines;
mod pools;
mod spec;
mod topology;
mod upgrades;

/// The accidents, in the order of the page.
pub(crate) const TOPICS: [Topic; 7] = [
    topology::TOPIC,
    spec::TOPIC,
    upgrades::TOPIC,
    etcd::TOPIC,
    machines::TOPIC,
    certificates::TOPIC,
    pools::TOPIC,
];

/// `tests/envtest/go.mod` pins the versions.
pub(crate) const CLUSTER_API: Seen = Seen::With("Cluster API 1.14.2");
pub(crate) const ETCD: Seen = Seen::With("etcd 3.6.8");
pub(crate) const KUBERNETES: Seen = Seen::With("Kubernetes 1.36.3");

/// On real machines.
pub(crate) const KUBEADM: Seen = Seen::With("kubeadm 1.36.3");

pub(crate) struct Topic {
    pub(crate) title: &'static str,
    pub(crate) accidents: &'static [Accident],
}

pub(crate) struct Accident {
    /// The public threads about it, as `owner/repository#number`.
    pub(crate) references: &'static [&'static str],
    /// What the person did.
    pub(crate) done: &'static str,
    pub(crate) seen: Seen,
    /// What happens without kcp-webhook and the plugin.
    pub(crate) outcome: &'static str,
    /// `None` if upstream has not fixed it.
    pub(crate) fixed: Option<Fixed>,
    /// What happens with them, the best first.
    pub(crate) with: &'static [With],
    pub(crate) proof: Proof,
}

/// Who says what happens without kcp-webhook and the plugin.
#[derive(Clone, Copy)]
pub(crate) enum Seen {
    /// A test, with the real controllers or the real program of this release.
    With(&'static str),
    /// Only the thread, for this release or at this time.
    Reported(&'static str),
}

pub(crate) struct Fixed {
    /// The release with the fix.
    pub(crate) release: &'static str,
    /// Whether the test also runs on a release without the fix.
    pub(crate) is_tested: bool,
}

/// What happens with kcp-webhook and the plugin. The sentences are parts of what they print.
#[derive(Clone, Copy)]
pub(crate) enum With {
    /// A rule denies the write.
    Denied {
        rule: &'static str,
        sentence: &'static str,
    },
    /// A rule only warns.
    Warned {
        rule: &'static str,
        sentence: &'static str,
    },
    /// A check of `status` and `why` finds it.
    Named {
        check: &'static str,
        sentence: &'static str,
    },
    /// Another command, or a script that it prints, says it or refuses because of it.
    Said {
        command: &'static str,
        sentence: &'static str,
    },
    /// A command leads to health.
    Undone { command: &'static str },
    /// None of these, because of this.
    Neither { reason: &'static str },
    /// None of these: upstream has fixed it.
    Upstream,
}

pub(crate) enum Proof {
    /// The path of a test function in `tests/integration`.
    Test(&'static str),
    /// Why no test replays the accident, and what was tried.
    NotReplayed(&'static str),
}
