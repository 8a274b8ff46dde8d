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

/// What to do with the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Write those that differ.
    Write,
    /// Leave them as they are until no API server calls the static Pod.
    LeaveUntilUnused(Cause),
    Remove(Cause),
}

/// `is_called`: a webhook configuration has the address of the static Pod. `has_api_server`: an API server runs on this host as a
/// static Pod.
pub(crate) const fn decide(membership: Membership, is_called: bool, has_api_server: bool) -> Action {
    match membership {
        Membership::Selected => Action::Write,
        // No API server of another host reaches 127.0.0.1 of this one.
        Membership::Ended(cause) if is_called && has_api_server => Action::LeaveUntilUnused(cause),
        Membership::Ended(cause) => Action::Remove(cause),
    }
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
    use super::*;

    #[test]
    fn files_are_removed_only_if_no_api_server_needs_them() {
        let ended = Membership::Ended;
        for (membership, is_called, has_api_server, expected) in [
            (Membership::Selected, true, true, Action::Write),
            (Membership::Selected, false, false, Action::Write),
            (
                ended(Cause::NotSelected),
                true,
                true,
                Action::LeaveUntilUnused(Cause::NotSelected),
            ),
            (
                ended(Cause::NotSelected),
                true,
                false,
                Action::Remove(Cause::NotSelected),
            ),
            (
                ended(Cause::NotSelected),
                false,
                true,
                Action::Remove(Cause::NotSelected),
            ),
            (
                ended(Cause::NodeDeleted),
                true,
                true,
                Action::LeaveUntilUnused(Cause::NodeDeleted),
            ),
            (
                ended(Cause::NodeDeleted),
                true,
                false,
                Action::Remove(Cause::NodeDeleted),
            ),
            (
                ended(Cause::Uninstalled),
                true,
                true,
                Action::LeaveUntilUnused(Cause::Uninstalled),
            ),
            (
                ended(Cause::Uninstalled),
                false,
                true,
                Action::Remove(Cause::Uninstalled),
            ),
        ] {
            let decided = decide(membership, is_called, has_api_server);
            assert_eq!(decided, expected, "{membership:?} {is_called} {has_api_server}");
        }
    }
}
