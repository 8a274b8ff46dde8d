//! The text of `machine`.

use owo_colors::OwoColorize as _;

use crate::{
    arguments::DryRun,
    terminal::{escape, style::BAD, with_lines},
};

/// It was as wanted.
pub(super) fn unchanged(machine: &str, why: &str) -> String {
    format!("machine/{} unchanged: {}\n", escape(machine), escape(why))
}

/// It was done; what comes of it, a line each.
pub(super) fn made(machine: &str, done: &str, dry_run: Option<DryRun>, consequences: &[String]) -> String {
    let heading = format!("machine/{} {done}{}\n", escape(machine), DryRun::mark(dry_run));
    with_lines(heading, consequences)
}

/// It was refused, here or by the server.
pub(super) fn refused(machine: &str, undone: &str, by: &str, why: &[String]) -> String {
    let heading = format!(
        "machine/{} {}: refused by {by}\n",
        escape(machine),
        undone.style(BAD)
    );
    with_lines(heading, why)
}

/// It was followed to its end.
pub(super) fn replaced(machine: &str, control_plane: &str) -> String {
    format!(
        "machine/{} is gone, and the Machines of kubeadmcontrolplane/{} are ready\n",
        escape(machine),
        escape(control_plane)
    )
}

#[cfg(test)]
mod tests {
    use super::{made, refused, replaced, unchanged};
    use crate::{arguments::DryRun, terminal::plain};

    #[test]
    fn says_what_was_done_and_what_comes_of_it() {
        let lines = [
            "another takes its place in failure domain b".to_owned(),
            "etcd cannot lose a member until another has taken its place".to_owned(),
        ];
        let done = "deleted: its control plane replaces it";
        insta::assert_snapshot!(made("edge-x", done, None, &lines), @r"
        machine/edge-x deleted: its control plane replaces it
          another takes its place in failure domain b
          etcd cannot lose a member until another has taken its place
        ");
        insta::assert_snapshot!(
            made("edge-x", done, Some(DryRun::Server), &[]),
            @"machine/edge-x deleted: its control plane replaces it (server dry run)"
        );
        insta::assert_snapshot!(
            unchanged("edge-x", "it is being deleted already"),
            @"machine/edge-x unchanged: it is being deleted already"
        );
        insta::assert_snapshot!(
            replaced("edge-x", "edge"),
            @"machine/edge-x is gone, and the Machines of kubeadmcontrolplane/edge are ready"
        );
    }

    #[test]
    fn a_refusal_gives_every_reason() {
        let why = [
            "without it etcd would have no quorum: 1 of 2 voting members healthy, 2 needed".to_owned(),
            "etcd member edge-z of Machine edge-z is not healthy: no answer within 2s".to_owned(),
        ];
        insta::assert_snapshot!(plain(&refused("edge-x", "not replaced", "kubectl kcp", &why)), @r"
        machine/edge-x not replaced: refused by kubectl kcp
          without it etcd would have no quorum: 1 of 2 voting members healthy, 2 needed
          etcd member edge-z of Machine edge-z is not healthy: no answer within 2s
        ");
    }
}
