//! The server relies on a promise of [`kcp_rules::view::View`]: an evaluation with an empty view records all objects that
//! the rules need.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: they may panic")]

use kcp_rules::{
    Change, Context, HasRules, Judgement,
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, KubeadmControlPlane,
        KubeadmControlPlaneTemplate, decode,
    },
    case::{Base, Case, NOW, Write},
    judge,
    row::Row,
    topics,
    view::{MissingParts, View},
};

/// A view with only the missing parts.
fn only(missing: MissingParts, all: View) -> View {
    macro_rules! parts {
        ($($part:ident),+) => {
            View { $($part: if missing.$part { all.$part } else { Default::default() },)+ failures: all.failures, lacks_permission: all.lacks_permission }
        };
    }
    parts!(
        machines,
        cluster,
        worker_machines,
        namespace_terminating,
        control_planes,
        pools,
        customizations,
        cluster_deployments,
        customization,
        migrations,
        may_override
    )
}

/// The parts that are missing now but were not before.
fn missing_later(before: MissingParts, now: MissingParts) -> Vec<&'static str> {
    macro_rules! late {
        ($($part:ident),+) => {
            [$((stringify!($part), now.$part && !before.$part)),+]
        };
    }
    let parts = late!(
        machines,
        cluster,
        worker_machines,
        namespace_terminating,
        control_planes,
        pools,
        customizations,
        cluster_deployments,
        customization,
        migrations,
        may_override
    );
    parts
        .into_iter()
        .filter(|(_, late)| *late)
        .map(|(part, _)| part)
        .collect()
}

fn evaluate<T: HasRules>(case: &Case, new: &T, old: Option<&T>, view: &View) -> Judgement {
    let change = match (case.write, old) {
        (Write::Update(..), Some(old)) => Change::update(old, new),
        (Write::Scale(..), Some(old)) => Change::scale(old, new),
        (Write::Delete(_), Some(old)) => Change::delete(old),
        (Write::Create(_), _) | (_, None) => Change::create(new),
    };
    let context = Context {
        writer: case.writer,
        field_manager: case.field_manager,
        now: NOW.parse().ok(),
        view: Some(view),
        ..Context::UNKNOWN
    };
    judge(&change.with_context(context), &case.configuration())
}

fn found(judgement: &Judgement) -> Vec<String> {
    let findings = judgement.findings.iter();
    findings
        .map(|finding| format!("{:?} {}", finding.action, finding.message()))
        .collect()
}

/// For each of `clusters`, compares two evaluations, as in the server, with one evaluation on a complete view.
fn evaluate_twice<T: HasRules>(case: &Case, new: &T, old: Option<&T>, clusters: &[fn() -> View]) {
    let empty = View::default();
    evaluate(case, new, old, &empty);
    let missing = empty.missing();
    for cluster in clusters {
        let read = only(missing, cluster());
        let twice = evaluate(case, new, old, &read);
        assert_eq!(missing_later(missing, read.missing()), [""; 0], "{}", case.name);
        let complete = evaluate(case, new, old, &cluster());
        assert_eq!(found(&twice), found(&complete), "{}", case.name);
    }
}

#[test]
fn the_second_evaluation_needs_nothing_beyond_the_first() {
    for topic in topics::TOPICS {
        let clusters: Vec<fn() -> View> = topic.cases.iter().map(|case| case.view).collect();
        for case in topic.cases {
            for &base in case.bases {
                let row = Row { case, base };
                let new = row.new_object().unwrap().to_string();
                let old = row.old().unwrap().map(|old| old.to_string());
                macro_rules! twice {
                    ($kind:ident) => {{
                        let new: $kind<'_> = decode(&new).unwrap();
                        let old: Option<$kind<'_>> = old.as_deref().map(|old| decode(old).unwrap());
                        evaluate_twice(case, &new, old.as_ref(), &clusters);
                    }};
                }
                match base {
                    Base::ControlPlane(_) => twice!(KubeadmControlPlane),
                    Base::Template(_) => twice!(KubeadmControlPlaneTemplate),
                    Base::Cluster => twice!(Cluster),
                    Base::ClusterPool => twice!(ClusterPool),
                    Base::Customization => twice!(ClusterDeploymentCustomization),
                    Base::ClusterDeployment => twice!(ClusterDeployment),
                }
            }
        }
    }
}
