//! The text of `upgrade`.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;

use crate::{
    arguments::DryRun,
    commands::plan::screen,
    terminal::{
        escape,
        style::{BAD, FAINT, HEADING},
        with_lines,
    },
};
use kcp_control_plane::plan::outlook::Plan;
use kcp_control_plane::verbs::upgrade::assessment::Assessment;

/// What an upgrade comes to.
pub fn outlook(plan: &Plan, assessment: &Assessment) -> String {
    let mut text = screen::screen(plan);
    if !assessment.notices.is_empty() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{}", "What the upgrade brings:".style(HEADING));
    }
    for notice in &assessment.notices {
        let _ = writeln!(text, "  {}", escape(&notice.message));
        if let Some(source) = notice.source {
            let _ = writeln!(text, "    {} {source}", "see".style(FAINT));
        }
    }
    text
}

/// The spec asks for that already.
pub fn unchanged(name: &str, version: &str) -> String {
    let (name, version) = (escape(name), escape(version));
    format!("kubeadmcontrolplane/{name} unchanged: version is {version} already\n")
}

/// It was written; what comes of it, a line each.
pub fn upgraded(
    name: &str,
    from: &str,
    to: &str,
    dry_run: Option<DryRun>,
    consequences: &[String],
) -> String {
    let (name, from, to, mark) = (escape(name), escape(from), escape(to), DryRun::mark(dry_run));
    let heading = format!("kubeadmcontrolplane/{name} upgraded from {from} to {to}{mark}\n");
    with_lines(heading, consequences)
}

/// It was followed to its end.
pub fn done(name: &str, version: &str) -> String {
    let (name, version) = (escape(name), escape(version));
    format!("kubeadmcontrolplane/{name} is at {version}, every Machine ready and up to date\n")
}

/// It was refused, or others were faster: `why` begins the line, and the rest follows.
pub fn not_upgraded(name: &str, to: &str, why: &str, lines: &[String]) -> String {
    let heading = format!(
        "kubeadmcontrolplane/{} {} to {}: {why}\n",
        escape(name),
        "not upgraded".style(BAD),
        escape(to)
    );
    with_lines(heading, lines)
}

/// What is asked before it is written.
pub fn question(name: &str, from: &str, to: &str) -> String {
    format!("upgrade {name} from {from} to {to}?")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{done, not_upgraded, outlook, question, unchanged, upgraded};
    use crate::{arguments::DryRun, terminal::plain};
    use kcp_control_plane::{
        change::example::situation,
        control_plane::example::now,
        plan::{ask::asked, outlook::plan},
        verbs::upgrade::{assessment::assess, workers::Workers},
    };

    #[test]
    fn what_an_upgrade_comes_to() {
        let situation = situation();
        let patch = json!({"spec": {"version": "v1.35.0"}});
        let asked = asked(&situation.object, &patch, &[]).expect("decodes");
        let plan = plan(&situation.observed, &asked, now());
        let config = json!({
            "clusterConfiguration": {"etcd": {"local": {"imageTag": "3.5.21-0"}}},
            "joinConfiguration": {"nodeRegistration": {"kubeletExtraArgs": [
                {"name": "pod-infra-container-image", "value": "pause:3.9"}]}}});
        let workers = Workers {
            known: Vec::new(),
            unread: vec!["the nodes' kubelets were not read: no answer".to_owned()],
        };
        let assessment = assess("v1.34.2", "v1.35.0", &config, &workers);
        insta::assert_snapshot!(plain(&outlook(&plan, &assessment)));
    }

    #[test]
    fn one_line_says_what_was_done() {
        insta::assert_snapshot!(unchanged("c1-cp", "v1.34.2"), @"kubeadmcontrolplane/c1-cp unchanged: version is v1.34.2 already");
        insta::assert_snapshot!(upgraded("c1-cp", "v1.34.2", "v1.35.0", Some(DryRun::Server), &[]), @"kubeadmcontrolplane/c1-cp upgraded from v1.34.2 to v1.35.0 (server dry run)");
        insta::assert_snapshot!(done("c1-cp", "v1.35.0"), @"kubeadmcontrolplane/c1-cp is at v1.35.0, every Machine ready and up to date");
        assert_eq!(
            question("c1-cp", "v1.34.2", "v1.35.0"),
            "upgrade c1-cp from v1.34.2 to v1.35.0?"
        );
    }

    #[test]
    fn a_refusal_gives_every_reason() {
        let why = ["EtcdPodHealthy of Machine m2 is False: crashed".to_owned()];
        insta::assert_snapshot!(plain(&not_upgraded("c1-cp", "v1.35.0", "refused by the preflight", &why)), @r"
        kubeadmcontrolplane/c1-cp not upgraded to v1.35.0: refused by the preflight
          EtcdPodHealthy of Machine m2 is False: crashed
        ");
    }
}
