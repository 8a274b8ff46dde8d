//! The result of reading one source of a snapshot.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading<T> {
    Read(T),
    Excluded {
        /// The command-line flag that excludes the source, such as `--no-etcd`.
        flag: &'static str,
    },
    /// The source was not read: the control plane is not initialized yet, or the command does not need the source.
    NotYet,
    /// The source is an external etcd to which the user's machine cannot connect. The verdict ignores this source.
    OutOfReach(Failure),
    /// The source could not be read.
    Failed(Failure),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// The object that could not be read, such as `Secret/edge-kubeconfig`, `Node` or `etcd member edge-n1`.
    pub object: String,
    /// The error message, on one line and without secrets.
    pub message: String,
    pub hint: Option<String>,
    pub forbidden: Option<Forbidden>,
    /// Whether the content of `object`, a Secret, is unusable. Cluster API's controllers use the same Secret, so they fail too.
    pub is_unusable_secret: bool,
}

impl Failure {
    /// The failure as text. It names the object only if the object has a name: a kind alone, such as `Node`,
    /// adds nothing to the message.
    pub fn text(&self) -> String {
        if self.object.contains(['/', ' ']) {
            format!("{}: {}", self.object, self.message)
        } else {
            self.message.clone()
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forbidden {
    /// The verb that the user lacks, such as `get`, `list` or `create`.
    pub verb: String,
    /// The resource of the request, such as `secrets`, `pods/portforward` or `machines.cluster.x-k8s.io`.
    pub resource: String,
    /// The namespace of the request. `None` for all namespaces, and for cluster-scoped resources.
    pub namespace: Option<String>,
    /// Whether the workload cluster denied the request. If not, the management cluster did.
    pub is_from_workload_cluster: bool,
}

impl<T> Reading<T> {
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Read(part) => Some(part),
            _ => None,
        }
    }

    pub const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Returns the result of reading one part of this source.
    pub fn part<'r, P>(&'r self, part: impl FnOnce(&'r T) -> &'r Reading<P>) -> Reading<&'r P> {
        self.as_ref().and_then(|whole| part(whole).as_ref())
    }

    pub fn map<P>(self, convert: impl FnOnce(T) -> P) -> Reading<P> {
        self.and_then(|part| Reading::Read(convert(part)))
    }

    pub fn and_then<P>(self, convert: impl FnOnce(T) -> Reading<P>) -> Reading<P> {
        match self {
            Self::Read(part) => convert(part),
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
