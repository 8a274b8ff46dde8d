//! Decides whether the files of the static Pod stay on a host. Pure: everything that was read is an argument.

use std::fmt;

/// Whether the DaemonSet wants its Pod on the Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    Selected,
    Ended(Cause),
}

/// Why the DaemonSet does not want its Pod on the Node any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The Node does not have the labels that the DaemonSet selects.
    NotSelected,
    /// The Node does not exist, or is being deleted.
    NodeDeleted,
    /// The DaemonSet does not exist, or is being deleted.
    Uninstalled,
}

/// Whether the static Pod may stop. `is_called`: whether a webhook configuration has the address of the static Pods.
/// `has_api_server`: whether an API server runs on this host as a static Pod. Only such an API server can reach the static Pod,
/// which listens on 127.0.0.1 of this host.
pub(crate) const fn may_stop(is_called: bool, has_api_server: bool) -> bool {
    !(is_called && has_api_server)
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSelected => "the Node does not have the labels that the DaemonSet selects",
            Self::NodeDeleted => "the Node has been deleted",
            Self::Uninstalled => "the DaemonSet has been deleted",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::may_stop;

    #[test]
    fn a_static_pod_stops_only_if_no_api_server_calls_it() {
        for (is_called, has_api_server, expected) in [
            (true, true, false),
            (true, false, true),
            (false, true, true),
            (false, false, true),
        ] {
            assert_eq!(may_stop(is_called, has_api_server), expected);
        }
    }
}
