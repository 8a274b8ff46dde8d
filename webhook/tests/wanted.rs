//! What [`kcp_rules::view::View`] promises, and the server builds on: a review that is judged with nothing read says all
//! that it wants to have read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: they may panic")]

use kcp_rules::{
    Change, Context, Judged, Judgement,
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

/// A view with the parts that are wanted, and no other.
fn only(wanted: MissingParts, all: View) -> View {
    macro_rules! parts {
        ($($part:ident),+) => {
            View { $($part: if wanted.$part { all.$part } else { Default::default() }),+ }
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
        lease
    )
}

/// The parts that are wanted now and were not before.
fn wanted_late(before: MissingParts, now: MissingParts) -> Vec<&'static str> {
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
        lease
    );
    parts
        .into_iter()
        .filter(|(_, late)| *late)
        .map(|(part, _)| part)
        .collect()
}

fn judged<T: Judged>(case: &Case, new: &T, old: Option<&T>, view: &View) -> Judgement {
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
    judge(&change.within(context), &case.configuration())
}

fn found(judgement: &Judgement) -> Vec<String> {
    let findings = judgement.findings.iter();
    findings
        .map(|finding| format!("{:?} {}", finding.action, finding.message()))
        .collect()
}

/// Judges twice, as the server does, in each of `clusters`, and once with all of a cluster known.
fn judge_twice<T: Judged>(case: &Case, new: &T, old: Option<&T>, clusters: &[fn() -> View]) {
    let nothing = View::default();
    judged(case, new, old, &nothing);
    let wanted = nothing.missing();
    for cluster in clusters {
        let read = only(wanted, cluster());
        let twice = judged(case, new, old, &read);
        assert_eq!(wanted_late(wanted, read.missing()), [""; 0], "{}", case.name);
        let knowing_all = judged(case, new, old, &cluster());
        assert_eq!(found(&twice), found(&knowing_all), "{}", case.name);
    }
}

#[test]
fn the_second_judgement_wants_nothing_that_the_first_did_not() {
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
                        judge_twice(case, &new, old.as_ref(), &clusters);
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
