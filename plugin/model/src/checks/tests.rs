//! Tests each check: a healthy control plane passes, and each case has exactly the recorded findings.

mod page;

use kcp_api::metadata::Time;

use std::{collections::BTreeSet, fmt::Write as _};

use crate::{
    checks::{
        Checked, all, certificates, components, conditions, deadlock, drains, etcd_agreement, etcd_members,
        etcd_quorum, etcd_refusals, etcd_storage, failure_domains, finding::CheckOutcome, joining, kubeadm,
        left_behind, lifecycle, machines, refusals, remediation, rollout, sources, workload,
    },
    inspection::inspect,
    snapshot::{EtcdMembers, Reading, Snapshot},
    testing::{
        objects::{condition, minutes_ago, now, set, use_external_etcd},
        snapshot::{failure, member, observed},
    },
};

/// The id of the check, the name of the case, and a change to the healthy snapshot.
pub type Case = (&'static str, &'static str, fn(&mut Snapshot));

const CASES: &[(&str, &[Case])] = &[
    ("sources", sources::test_cases::CASES),
    ("conditions", conditions::test_cases::CASES),
    ("lifecycle", lifecycle::test_cases::CASES),
    ("refusals", refusals::test_cases::CASES),
    ("rollout", rollout::test_cases::CASES),
    ("deadlock", deadlock::test_cases::CASES),
    ("drains", drains::test_cases::CASES),
    ("joining", joining::test_cases::CASES),
    ("machines", machines::test_cases::CASES),
    ("left_behind", left_behind::test_cases::CASES),
    ("failure_domains", failure_domains::test_cases::CASES),
    ("etcd_refusals", etcd_refusals::test_cases::CASES),
    ("etcd_quorum", etcd_quorum::test_cases::CASES),
    ("etcd_agreement", etcd_agreement::test_cases::CASES),
    ("etcd_members", etcd_members::test_cases::CASES),
    ("etcd_storage", etcd_storage::test_cases::CASES),
    ("components", components::test_cases::CASES),
    ("kubeadm", kubeadm::test_cases::CASES),
    ("workload", workload::test_cases::CASES),
    ("remediation", remediation::test_cases::CASES),
    ("certificates", certificates::test_cases::CASES),
];

pub fn cases() -> impl Iterator<Item = Case> {
    CASES.iter().flat_map(|(_, cases)| cases.iter().copied())
}

pub fn changed(change: fn(&mut Snapshot)) -> Snapshot {
    let mut observed = observed();
    change(&mut observed);
    observed
}

#[test]
fn ids_are_unique_and_kebab_case() {
    let ids: BTreeSet<&str> = all().map(|check| check.id).collect();
    assert_eq!(ids.len(), all().count());
    for id in ids {
        assert!(
            id.chars().all(|c| c.is_ascii_lowercase() || c == '-'),
            "{id} is not kebab-case"
        );
    }
}

#[test]
fn a_control_plane_with_nothing_wrong_passes_every_check() {
    let observed = observed();
    for check in all() {
        let expected = Checked {
            id: check.id,
            outcome: CheckOutcome::Pass,
            reason: None,
            findings: vec![],
        };
        assert_eq!(check.run(&observed, now()), expected);
    }
}

#[test]
fn every_check_has_a_case_in_which_it_does_not_pass() {
    for check in all() {
        let mut cases = cases().filter(|case| case.0 == check.id);
        let finds = |(_, _, change): Case| {
            let outcome = check.run(&changed(change), now()).outcome;
            outcome > CheckOutcome::Skipped
        };
        assert!(cases.any(finds), "{} never finds anything", check.id);
    }
}

/// Describes a case: the findings of its check, the other checks with findings, and the verdict.
fn reported((id, name, change): Case) -> String {
    let inspection = inspect(&changed(change), now());
    let mut text = format!("{id}: {name}: {}\n", inspection.health.as_str());
    let own = inspection.checks.iter().find(|checked| checked.id == id);
    let own = own.unwrap_or_else(|| panic!("there is no check {id}"));
    let outcome = format!("{:?}", own.outcome).to_lowercase();
    let reason = own
        .reason
        .as_ref()
        .map_or(String::new(), |reason| format!(": {reason}"));
    writeln!(text, "  {outcome}{reason}").expect("text");
    for finding in &own.findings {
        let outcome = format!("{:?}", finding.outcome).to_lowercase();
        writeln!(
            text,
            "  {outcome} {}: {}",
            finding.objects.join(" "),
            finding.message
        )
        .expect("text");
        if let Some(hint) = &finding.hint {
            writeln!(text, "    hint: {hint}").expect("text");
        }
    }
    let others: Vec<String> = inspection
        .checks
        .iter()
        .filter(|checked| checked.id != id && checked.outcome != CheckOutcome::Pass)
        .map(|checked| format!("{} {:?}", checked.id, checked.outcome).to_lowercase())
        .collect();
    if !others.is_empty() {
        writeln!(text, "  beside: {}", others.join(", ")).expect("text");
    }
    text
}

#[test]
fn what_each_fault_comes_to() {
    let names: Vec<_> = cases().map(|(id, name, _)| (id, name)).collect();
    let unique: BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "two cases have one name");
    for (topic, cases) in CASES {
        let reported: Vec<String> = cases.iter().copied().map(reported).collect();
        insta::assert_snapshot!(*topic, reported.join("\n"));
    }
}

#[test]
fn every_message_and_hint_is_one_line_about_an_object() {
    for (id, name, change) in cases() {
        for checked in inspect(&changed(change), now()).checks {
            for finding in checked.findings {
                assert!(!finding.objects.is_empty(), "{id} {name}");
                assert!(
                    finding.objects.iter().all(|object| !object.is_empty()),
                    "{id} {name}"
                );
                assert!(!finding.message.is_empty(), "{id} {name}");
                let texts = [Some(&finding.message), finding.hint.as_ref()];
                assert!(
                    texts.into_iter().flatten().all(|text| !text.contains('\n')),
                    "{id} {name}"
                );
            }
        }
    }
}

/// Sets a condition of the control plane, which last changed this number of minutes ago.
pub fn says(
    observed: &mut Snapshot,
    kind: &str,
    status: kcp_api::ConditionStatus,
    message: &str,
    minutes: i64,
) {
    let mut condition = condition(kind, status, message);
    condition.last_transition_time = Some(minutes_ago(minutes));
    set(&mut observed.control_plane().status.conditions, condition);
}

/// `m3` was created a minute ago. Its node has joined, but the Machine does not reference the node yet.
pub fn joins_unnamed(observed: &mut Snapshot) {
    let machine = observed.machine(3);
    let new = crate::testing::objects::new_machine("m3");
    (machine.metadata, machine.status) = (new.metadata, new.status);
    machine.spec.failure_domain = None;
    observed.survey().queried[2].machine = None;
}

/// `m3` was created a minute ago and has no node yet.
pub fn starts(observed: &mut Snapshot) {
    joins_unnamed(observed);
    observed.nodes().retain(|node| node.name != "node-m3");
    observed.pods().retain(|pod| pod.node != "node-m3");
    observed
        .survey()
        .queried
        .retain(|queried| queried.name != "node-m3");
    for number in 1..=2 {
        observed
            .list(number)
            .members
            .retain(|member| member.name != "node-m3");
    }
}

pub fn unread(observed: &mut Snapshot) {
    let failure = failure("Secret/c1-kubeconfig", "cannot connect");
    observed.workload = Reading::Failed(failure.clone());
    observed.endpoint_certificate = Reading::Failed(failure.clone());
    observed.etcd = Reading::Failed(failure);
}

/// `m3` has just joined, and kubeadm has not marked its node yet.
pub fn joins(observed: &mut Snapshot) {
    let machine = observed.machine(3);
    machine.metadata.creation_timestamp = Some(Time(minutes_ago(2)));
    machine
        .status
        .conditions
        .retain(|other| other.type_ != "NodeKubeadmLabelsAndTaintsSet" && other.type_ != "Ready");
}

pub fn another_cluster(observed: &mut Snapshot) {
    observed.status(3).cluster_id = 0xc2;
    observed.status(3).member_id = 0x33;
    observed.status(3).leader = Some(0x33);
    observed.status(3).raft_term = 2;
    observed.status(3).raft_index = 10;
    observed.status(3).raft_applied_index = 10;
    observed.list(3).cluster_id = 0xc2;
    observed.list(3).members = vec![member(0x33, "node-m3")];
}

pub fn elsewhere(observed: &mut Snapshot) {
    use_external_etcd(&mut observed.control_plane().spec);
    observed.secrets().insert("c1-apiserver-etcd-client".to_owned());
    observed.etcd_members = EtcdMembers::External;
    observed.survey().stacked = false;
    for (number, queried) in (1..).zip(&mut observed.survey().queried) {
        queried.name = format!("node-m{number}:2379");
        queried.machine = None;
    }
}

pub fn leave_out(observed: &mut Snapshot) {
    observed.workload = Reading::Excluded {
        flag: "--no-workload",
    };
    observed.endpoint_certificate = Reading::Excluded {
        flag: "--no-workload",
    };
    observed.etcd = Reading::Excluded {
        flag: "--no-workload",
    };
}
