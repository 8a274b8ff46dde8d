//! The control plane as an object, and what its controller says of it.

use crate::checks::tests::Case;
use crate::{
    checks::example::{failure, in_days, secrets},
    control_plane::{
        ConditionStatus::{False, True, Unknown},
        example::{condition, minutes_ago, now, set},
    },
    snapshot::{Observed, Reading},
};

/// A condition of the control plane that is so since some minutes.
fn says(
    observed: &mut Observed,
    kind: &str,
    status: crate::control_plane::ConditionStatus,
    message: &str,
    minutes: i64,
) {
    let mut condition = condition(kind, status, message);
    condition.last_transition_time = Some(minutes_ago(minutes));
    set(&mut observed.control_plane().conditions, condition);
}

/// `m3` was made a minute ago. Its node is there, and it has yet to name it.
pub(super) fn joins_unnamed(observed: &mut Observed) {
    let machine = &mut observed.machine(3).machine;
    *machine = crate::control_plane::Machine {
        version: machine.version.clone(),
        ..crate::control_plane::example::new_machine("m3")
    };
    observed.survey().asked[2].machine = None;
}

/// `m3` was made a minute ago and has no node yet.
pub fn starts(observed: &mut Observed) {
    joins_unnamed(observed);
    observed.nodes().retain(|node| node.name != "node-m3");
    observed.pods().retain(|pod| pod.node != "node-m3");
    observed.survey().asked.retain(|asked| asked.name != "node-m3");
    for number in 1..=2 {
        observed
            .list(number)
            .members
            .retain(|member| member.name != "node-m3");
    }
}

pub(super) const CASES: &[Case] = &[
    ("status-reported", "nothing", |o| {
        o.control_plane().observed_generation = None;
        o.control_plane().conditions.clear();
    }),
    ("status-reported", "not_whether_it_is_available", |o| {
        o.control_plane()
            .conditions
            .retain(|other| other.kind != "Available");
    }),
    ("status-current", "older_spec", |o| {
        o.control_plane().generation += 1;
    }),
    ("not-paused", "at_rest", |o| o.control_plane().paused = true),
    ("not-paused", "with_a_change_pending", |o| {
        o.control_plane().paused = true;
        o.control_plane().desired_replicas = Some(5);
    }),
    ("not-paused", "with_a_machine_out_of_date", |o| {
        o.control_plane().paused = true;
        o.machine(1).machine.version = Some("v1.33.0".to_owned());
    }),
    ("not-paused", "by_its_cluster", |o| {
        o.facts().cluster.paused = true;
    }),
    ("not-paused", "says_a_condition", |o| {
        says(o, "Paused", True, "", 5);
    }),
    ("not-deleted", "deleting", |o| {
        o.control_plane().deleting_since = Some(minutes_ago(5));
        says(o, "Deleting", True, "* waiting for 2 workers", 5);
    }),
    ("no-failure", "reported", |o| {
        o.control_plane().failure = Some("CreateError: no quota\nleft".to_owned());
    }),
    ("cluster-reference", "another", |o| {
        o.cluster().control_plane_name = Some("other".to_owned());
    }),
    ("cluster-reference", "another_kind", |o| {
        o.cluster().control_plane_kind = Some("RKE2ControlPlane".to_owned());
    }),
    ("cluster-reference", "none", |o| {
        o.cluster().control_plane_name = None;
    }),
    ("cluster-reference", "not_linked", |o| {
        o.control_plane().cluster = None;
    }),
    ("cluster-ready", "neither", |o| {
        o.facts().cluster.infrastructure_ready = false;
        o.facts().cluster.has_endpoint = false;
    }),
    ("cluster-ready", "not_yet", |o| {
        o.facts().cluster.infrastructure_ready = false;
        o.control_plane().initialized = false;
    }),
    ("topology-version", "goes_on", |o| {
        o.facts().cluster.topology_version = Some("v1.35.0".to_owned());
    }),
    ("machines-owned", "to_be_adopted", |o| {
        o.management.unowned = vec!["old-1".to_owned()];
    }),
    ("available", "no", |o| says(o, "Available", False, "no quorum", 5)),
    ("available", "cannot_be_told", |o| {
        says(o, "Available", Unknown, "", 5);
    }),
    ("available", "not_come_up_yet", |o| {
        o.control_plane().initialized = false;
        o.control_plane().created = Some(minutes_ago(9));
        says(o, "Available", False, "Control plane not yet initialized", 9);
    }),
    ("available", "does_not_come_up", |o| {
        o.control_plane().initialized = false;
        o.control_plane().created = Some(minutes_ago(10));
        says(o, "Available", False, "Control plane not yet initialized", 10);
    }),
    ("available", "a_moment_ago_while_a_machine_starts", |o| {
        says(o, "Available", False, "no quorum", 0);
        starts(o);
    }),
    ("certificates-available", "no", |o| {
        says(o, "CertificatesAvailable", False, "ca is missing", 5);
    }),
    ("certificates-available", "not_yet", |o| {
        o.control_plane().initialized = false;
        o.control_plane().created = Some(minutes_ago(1));
        says(o, "CertificatesAvailable", Unknown, "", 1);
    }),
    ("etcd-cluster-healthy", "no", |o| {
        says(
            o,
            "EtcdClusterHealthy",
            False,
            "* Machine m2:\n  * EtcdMemberHealthy: alarm",
            5,
        );
    }),
    ("etcd-cluster-healthy", "a_moment_ago", |o| {
        says(o, "EtcdClusterHealthy", False, "member without Machine", 0);
    }),
    ("etcd-cluster-healthy", "while_a_machine_starts", |o| {
        says(o, "EtcdClusterHealthy", False, "", 9);
        starts(o);
    }),
    ("etcd-cluster-healthy", "for_long_while_a_machine_starts", |o| {
        says(o, "EtcdClusterHealthy", False, "", 11);
        starts(o);
    }),
    ("etcd-cluster-healthy", "as_the_members_say", |o| {
        says(o, "EtcdClusterHealthy", False, "* Machine m2: dead", 5);
        o.kill(2);
    }),
    ("etcd-cluster-healthy", "elsewhere", |o| {
        o.control_plane().external_etcd = true;
        o.secrets().insert("c1-apiserver-etcd-client".to_owned());
        o.survey().stacked = false;
        o.facts().etcd = crate::plan::observed::Etcd::External;
        says(o, "EtcdClusterHealthy", Unknown, "", 60);
    }),
    ("components-healthy", "no", |o| {
        says(
            o,
            "ControlPlaneComponentsHealthy",
            False,
            "* Machine m2: scheduler",
            5,
        );
    }),
    ("secrets-present", "one_could_not_be_read", |o| {
        o.secrets().remove("c1-sa");
        o.management.unread = vec![failure("Secret/c1-sa", "no answer within 2s")];
    }),
    ("secrets-present", "absent", |o| {
        o.management.secrets = Reading::Read(secrets(&["ca", "etcd", "proxy"]));
    }),
    ("secrets-present", "not_yet", |o| {
        o.management.secrets = Reading::Read(secrets(&[]));
        o.control_plane().initialized = false;
        o.control_plane().created = Some(minutes_ago(1));
    }),
    ("secrets-present", "client_of_an_etcd_elsewhere", |o| {
        o.control_plane().external_etcd = true;
        o.facts().etcd = crate::plan::observed::Etcd::External;
        o.survey().stacked = false;
    }),
    ("machine-certificates", "soon_and_expired", |o| {
        o.machine(1).certificates_expire = Some(in_days(29));
        o.machine(2).certificates_expire = Some(now());
        o.machine(3).certificates_expire = Some(in_days(30));
    }),
    ("machine-certificates", "short_lived", |o| {
        o.facts().spec.config.fields =
            serde_json::json!({"clusterConfiguration": {"certificateValidityPeriodDays": 9}});
        for number in 1..=3 {
            o.machine(number).bootstrap = crate::plan::observed::Bootstrap::Missing;
        }
        o.machine(1).certificates_expire = Some(in_days(3));
        o.machine(2).certificates_expire = Some(in_days(2));
    }),
    ("endpoint-certificate", "soon", |o| {
        o.endpoint_certificate().expires = in_days(3);
    }),
    ("endpoint-certificate", "expired_and_nothing_else_answers", |o| {
        o.endpoint_certificate().expires = in_days(-1);
        let failure = failure("Secret/c1-kubeconfig", "the certificate is not trusted");
        o.workload = Reading::Failed(failure.clone());
        o.etcd = Reading::Failed(failure);
    }),
    ("endpoint-certificate", "does_not_come", |o| {
        o.endpoint_certificate = Reading::Failed(failure("https://10.0.0.1:6443", "no TLS"));
    }),
    ("etcd-certificates", "expired", |o| {
        o.answer(2).certificate_expires = Some(in_days(-1));
    }),
];
