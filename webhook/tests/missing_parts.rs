//! The server relies on a promise of [`kcp_rules::view::View`]: an evaluation without other objects names all those that the
//! rules need.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: they may panic")]

use std::collections::BTreeSet;

use kcp_rules::{
    Change, Context, HasRules, Judgement,
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, KubeadmControlPlane,
        KubeadmControlPlaneTemplate, decode,
    },
    judge,
    testing::{
        case::{Base, Case, NOW, Write},
        cases::cases_of,
        row::Row,
    },
    topics,
    view::{Part, View},
};

/// A view with only these parts.
fn only(parts: &BTreeSet<Part>, mut all: View) -> View {
    let mut view = View::default();
    for &part in parts {
        view.take(part, &mut all);
    }
    view
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

/// For each of `clusters`, compares evaluations as in the server, of which the first may know the Cluster, with one
/// evaluation on a complete view.
fn evaluate_twice<T: HasRules>(case: &Case, new: &T, old: Option<&T>, clusters: &[fn() -> View]) {
    for cluster in clusters {
        let complete = evaluate(case, new, old, &cluster());
        for cached in [BTreeSet::new(), BTreeSet::from([Part::Cluster])] {
            let first = evaluate(case, new, old, &only(&cached, cluster()));
            let twice = if first.needs.is_empty() {
                first
            } else {
                let parts = &first.needs | &cached;
                let twice = evaluate(case, new, old, &only(&parts, cluster()));
                assert!(twice.needs.is_subset(&parts), "{}: {:?}", case.name, twice.needs);
                twice
            };
            assert_eq!(found(&twice), found(&complete), "{}", case.name);
        }
    }
}

#[test]
fn the_second_evaluation_needs_nothing_beyond_the_first() {
    for topic in topics::TOPICS {
        let clusters: Vec<fn() -> View> = cases_of(topic).iter().map(|case| case.view).collect();
        for case in cases_of(topic) {
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
