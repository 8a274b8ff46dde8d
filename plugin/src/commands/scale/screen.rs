//! The text of `scale`.

use owo_colors::OwoColorize as _;

use kcp_control_plane::verbs::scale::number;

use crate::{
    arguments::DryRun,
    terminal::{escape, style::BAD, with_lines},
};

/// The spec asks for that already.
pub fn unchanged(name: &str, replicas: i64) -> String {
    format!(
        "kubeadmcontrolplane/{} unchanged: replicas is {replicas} already\n",
        escape(name)
    )
}

/// It was written; what comes of it, a line each.
pub fn scaled(
    name: &str,
    from: Option<i64>,
    to: i64,
    dry_run: Option<DryRun>,
    consequences: &[String],
) -> String {
    let (name, from, mark) = (escape(name), number(from), DryRun::mark(dry_run));
    let heading = format!("kubeadmcontrolplane/{name} scaled from {from} to {to}{mark}\n");
    with_lines(heading, consequences)
}

/// It was followed to its end.
pub fn done(name: &str, replicas: i64) -> String {
    let machines = if replicas == 1 { "Machine" } else { "Machines" };
    format!(
        "kubeadmcontrolplane/{} has {replicas} {machines}, ready and up to date\n",
        escape(name)
    )
}

/// How to follow it again without scaling it: by then others may ask for another number.
pub fn follow_up(name: &str, namespace: &str, replicas: i64) -> String {
    format!(
        "the scaling goes on by itself; follow it with: kubectl kcp scale {name} -n {namespace} --replicas {replicas} \
         --current-replicas {replicas} --wait"
    )
}

/// It was refused, by the rules or by the server.
pub fn refused(name: &str, from: Option<i64>, to: i64, by: &str, why: &[String]) -> String {
    let heading = format!(
        "kubeadmcontrolplane/{} {} from {} to {to}: refused by {by}\n",
        escape(name),
        "not scaled".style(BAD),
        number(from)
    );
    with_lines(heading, why)
}

/// Others have scaled it meanwhile.
pub fn overtaken(name: &str, to: i64, what: &[String]) -> String {
    let heading = format!(
        "kubeadmcontrolplane/{} {} to {to}: others were faster\n",
        escape(name),
        "not scaled".style(BAD),
    );
    with_lines(heading, what)
}

#[cfg(test)]
mod tests {
    use super::{done, follow_up, overtaken, refused, scaled, unchanged};
    use crate::{arguments::DryRun, terminal::plain};

    #[test]
    fn one_line_says_what_was_done() {
        assert_eq!(
            unchanged("c1-cp", 3),
            "kubeadmcontrolplane/c1-cp unchanged: replicas is 3 already\n"
        );
        assert_eq!(
            scaled("c1-cp", Some(1), 3, None, &[]),
            "kubeadmcontrolplane/c1-cp scaled from 1 to 3\n"
        );
        assert_eq!(
            scaled("c1-cp", None, 3, Some(DryRun::Server), &[]),
            "kubeadmcontrolplane/c1-cp scaled from an unset number to 3 (server dry run)\n"
        );
    }

    #[test]
    fn one_line_says_that_it_is_done() {
        assert_eq!(
            done("c1-cp", 3),
            "kubeadmcontrolplane/c1-cp has 3 Machines, ready and up to date\n"
        );
        assert_eq!(
            done("c1-cp", 1),
            "kubeadmcontrolplane/c1-cp has 1 Machine, ready and up to date\n"
        );
    }

    #[test]
    fn who_follows_it_again_does_not_scale_it_again() {
        assert_eq!(
            follow_up("c1-cp", "d", 5),
            "the scaling goes on by itself; follow it with: kubectl kcp scale c1-cp -n d --replicas 5 --current-replicas 5 \
             --wait"
        );
    }

    #[test]
    fn says_what_comes_of_it_and_what_others_did() {
        let consequences = ["etcd cannot lose a member until step 2 is done".to_owned()];
        insta::assert_snapshot!(scaled("c1-cp", Some(1), 3, None, &consequences), @r"
        kubeadmcontrolplane/c1-cp scaled from 1 to 3
          etcd cannot lose a member until step 2 is done
        ");
        let what = ["spec.replicas was 3 when judged and is 5 now, by kubectl-kcp".to_owned()];
        insta::assert_snapshot!(plain(&overtaken("c1-cp", 7, &what)), @r"
        kubeadmcontrolplane/c1-cp not scaled to 7: others were faster
          spec.replicas was 3 when judged and is 5 now, by kubectl-kcp
        ");
    }

    #[test]
    fn a_refusal_gives_every_reason() {
        let why = ["spec.replicas: Forbidden: 4: even".to_owned(), "more".to_owned()];
        insta::assert_snapshot!(plain(&refused("c1-cp", Some(3), 4, "the rules", &why)), @r"
        kubeadmcontrolplane/c1-cp not scaled from 3 to 4: refused by the rules
          spec.replicas: Forbidden: 4: even
          more
        ");
    }
}
