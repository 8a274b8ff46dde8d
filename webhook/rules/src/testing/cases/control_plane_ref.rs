//! Cases of the rules in [`crate::topics::control_plane_ref`].

use crate::{
    testing::case::Case,
    topics::control_plane_ref::FIELD,
    view::{self, View},
};

fn control_planes(names: &[&str]) -> View {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    View {
        control_planes: names.into(),
        ..View::default()
    }
}

fn cluster_of(control_plane: &str) -> View {
    let cluster = view::Cluster {
        name: "example".to_owned(),
        control_plane: Some(control_plane.to_owned()),
        ..view::Cluster::default()
    };
    View {
        cluster: Some(cluster).into(),
        ..View::default()
    }
}

pub(super) const CASES: &[Case] = &[
    Case::cluster("accepts_existing_control_plane", "{}", &[]).with_view(|| control_planes(&["example"])),
    Case::cluster("accepts_when_control_planes_are_unknown", "{}", &[]),
    Case::cluster(
        "accepts_another_kind",
        r#"{"spec":{"controlPlaneRef":{"kind":"AcmeControlPlane","name":"other"}}}"#,
        &[],
    )
    .with_view(|| control_planes(&["example"])),
    Case::cluster(
        "rejects_missing_control_plane",
        "{}",
        &[("control-plane-ref-unknown", FIELD)],
    )
    .with_view(|| control_planes(&["another"])),
    Case::create("accepts_control_plane_of_its_cluster", "{}", &[]).with_view(|| cluster_of("example")),
    Case::create(
        "warns_of_control_plane_that_its_cluster_does_not_refer_to",
        "{}",
        &[("control-plane-ref-other", "spec")],
    )
    .with_view(|| cluster_of("another")),
];
