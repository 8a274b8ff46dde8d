//! A part that was read, left out, or could not be read.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading<T> {
    Read(T),
    Excluded {
        /// The flag: `--no-etcd`.
        flag: &'static str,
    },
    /// The cluster has no control plane Machine that is up yet.
    NotYet,
    /// An external etcd that this machine cannot reach. It does not change the verdict.
    OutOfReach(Failure),
    /// It was requested and could not be read.
    Failed(Failure),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// What was asked: `Secret/edge-kubeconfig`, `Node`, `etcd member edge-n1`.
    pub object: String,
    /// What went wrong, on one line, without secrets.
    pub message: String,
    pub hint: Option<String>,
    pub forbidden: Option<Forbidden>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forbidden {
    /// `get`, `list`, `create`.
    pub verb: String,
    /// `secrets`, `pods/portforward`, `machines.cluster.x-k8s.io`.
    pub resource: String,
    /// None for all of them, and for resources without one.
    pub namespace: Option<String>,
    /// Whether the workload cluster refused it, not the management cluster.
    pub in_workload_cluster: bool,
}

impl<T> Reading<T> {
    pub const fn read(&self) -> Option<&T> {
        match self {
            Self::Read(part) => Some(part),
            _ => None,
        }
    }

    /// The failure of a source that was requested.
    pub const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// The reading of a part of it.
    pub fn part<'r, P>(&'r self, part: impl FnOnce(&'r T) -> &'r Reading<P>) -> Reading<&'r P> {
        self.as_ref().and_then(|whole| part(whole).as_ref())
    }

    pub fn map<P>(self, made: impl FnOnce(T) -> P) -> Reading<P> {
        self.and_then(|part| Reading::Read(made(part)))
    }

    fn and_then<P>(self, made: impl FnOnce(T) -> Reading<P>) -> Reading<P> {
        match self {
            Self::Read(part) => made(part),
            Self::Excluded { flag } => Reading::Excluded { flag },
            Self::NotYet => Reading::NotYet,
            Self::OutOfReach(failure) => Reading::OutOfReach(failure),
            Self::Failed(failure) => Reading::Failed(failure),
        }
    }

    pub fn as_ref(&self) -> Reading<&T> {
        match self {
            Self::Read(part) => Reading::Read(part),
            Self::Excluded { flag } => Reading::Excluded { flag },
            Self::NotYet => Reading::NotYet,
            Self::OutOfReach(failure) => Reading::OutOfReach(failure.clone()),
            Self::Failed(failure) => Reading::Failed(failure.clone()),
        }
    }
}
