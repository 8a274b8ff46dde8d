use jiff::{SignedDuration, Timestamp};
use kcp_api::SecretOwnership;
use kcp_control_plane::certificates::{Certificate, Certificates, Purpose, Validity};

use super::{CertificatesReport, document::CertificatesDocument};
use crate::{
    output::Report as _,
    terminal::{plain, table::Layout},
    testing::{assert_every_format, schema},
    verdict::Verdict,
};

fn now() -> Timestamp {
    "2026-11-22T12:00:00Z".parse().unwrap()
}

fn valid(issued: i64, expires: i64) -> Validity {
    let day = |days: i64| now() + SignedDuration::from_hours(24 * days);
    Validity::Certificate {
        issued: (issued != 0).then(|| day(issued)),
        expires: day(expires),
    }
}

fn report() -> CertificatesReport {
    let unread = Validity::Unread {
        why: "cannot get secrets \"edge-proxy\" in namespace \"d\": forbidden".to_owned(),
    };
    let machine = |name: &str, days| Certificate {
        object: format!("Machine/{name}"),
        ..Certificate::of_machine(
            &kcp_control_plane::testing::plan::observed().control_plane,
            &machine_with(days),
        )
    };
    CertificatesReport {
        control_planes: vec![Certificates {
            namespace: "d".to_owned(),
            name: "edge".to_owned(),
            obstacle: "the control plane is paused: no controller reconciles it".to_owned(),
            certificates: vec![
                Certificate::of_secret(
                    Purpose::ClusterCa,
                    "edge-ca",
                    valid(-3530, 120),
                    Some(SecretOwnership::ControlPlane),
                ),
                Certificate::of_secret(
                    Purpose::EtcdCa,
                    "edge-etcd",
                    valid(-100, 3550),
                    Some(SecretOwnership::Missing),
                ),
                Certificate::of_secret(Purpose::FrontProxyCa, "edge-proxy", unread, None),
                Certificate::of_secret(Purpose::ServiceAccountKeys, "edge-sa", Validity::NoExpiry, None),
                Certificate::of_secret(
                    Purpose::AdminKubeconfig,
                    "edge-kubeconfig",
                    valid(-100, 265),
                    Some(SecretOwnership::ControlPlane),
                ),
                Certificate::of_secret(
                    Purpose::AdminKubeconfig,
                    "rim-kubeconfig",
                    valid(-275, 90),
                    Some(SecretOwnership::ControlPlane),
                ),
                machine("edge-x7k2p", 265),
                machine("edge-z9d4c", -2),
            ],
        }],
        now: now(),
        is_list: false,
        all_namespaces: false,
    }
}

fn machine_with(days: i64) -> kcp_api::Machine {
    let mut machine = kcp_control_plane::testing::objects::machine("m1");
    machine.status.certificates_expiry_date = Some(now() + SignedDuration::from_hours(24 * days));
    machine
}

#[test]
fn each_certificate_has_a_line() {
    let wide = Layout {
        is_wide: true,
        ..Layout::default()
    };
    insta::assert_snapshot!("one", plain(&report().table(wide)));
    let narrow = Layout {
        width: Some(100),
        ..Layout::default()
    };
    let list = CertificatesReport {
        is_list: true,
        all_namespaces: true,
        ..report()
    };
    insta::assert_snapshot!("list_100", plain(&list.table(narrow)));
}

#[test]
fn an_expired_certificate_outweighs_an_unread_one_of_the_same_control_plane() {
    let with_only = |objects: &[&str]| {
        let mut control_plane = report().control_planes.remove(0);
        let certificates = &mut control_plane.certificates;
        certificates.retain(|certificate| objects.contains(&certificate.object.as_str()));
        assert_eq!(certificates.len(), objects.len(), "{objects:?}");
        control_plane
    };
    let (valid, unread, expired) = (
        "Secret/edge-kubeconfig",
        "Secret/edge-proxy",
        "Machine/edge-z9d4c",
    );
    let soon = "Secret/edge-ca";
    for (control_planes, expected) in [
        (vec![], Verdict::Met),
        (vec![with_only(&[valid, soon])], Verdict::Met),
        (vec![with_only(&[unread])], Verdict::Undecided),
        (vec![with_only(&[unread, soon])], Verdict::Undecided),
        (vec![with_only(&[unread, expired])], Verdict::Negative),
        (
            vec![with_only(&[expired]), with_only(&[unread])],
            Verdict::Undecided,
        ),
    ] {
        let report = CertificatesReport {
            control_planes,
            ..report()
        };
        assert_eq!(report.verdict(), expected, "{:?}", report.control_planes);
    }
}

#[test]
fn the_document_matches_its_schema() {
    let report = report();
    schema::conforms(&CertificatesDocument::new(&report));
    schema::checked_in::<CertificatesDocument<'_>>("controlplanecertificateslist.json");
    assert_every_format(&report);
}
