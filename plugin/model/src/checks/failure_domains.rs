//! Checks whether the loss of one failure domain would cost etcd its quorum.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckOutcome, CheckResult, Finding, machine_object, require},
        machine_grace::{are_machines_changing, require_machines},
    },
    quorum::Votes,
    snapshot::Snapshot,
};

pub const CHECKS: &[Check] = &[Check::new(
    "failure-domains-unbalanced",
    "etcd would lose its quorum with one failure domain, although the Cluster has enough of them to prevent this.",
    check_failure_domains_unbalanced,
    Responsible::Fault(Actor::Person),
)];

fn check_failure_domains_unbalanced(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    require(&observed.cluster, "the Cluster")?;
    let domains = observed.failure_domains();
    // During a change, Cluster API creates and deletes Machines so that they are balanced afterwards.
    if observed.has_external_etcd() || domains.len() < 2 || are_machines_changing(observed, now) {
        return Ok(Vec::new());
    }
    let mut machines: BTreeMap<&str, Vec<&Machine>> = domains
        .iter()
        .map(|domain| (domain.as_str(), Vec::new()))
        .collect();
    for machine in &observed.machines {
        let domain = machine.spec.failure_domain.as_deref();
        if let Some(inside) = domain.and_then(|domain| machines.get_mut(domain)) {
            inside.push(machine);
        }
    }
    let total = observed.machines.len();
    let votes = Votes {
        voters: total,
        unhealthy: 0,
        starting: 0,
    };
    let balanced = total.div_ceil(domains.len());
    let fullest = machines.iter().max_by_key(|(_, inside)| inside.len());
    let emptiest = machines.iter().min_by_key(|(_, inside)| inside.len());
    let (Some((domain, inside)), Some((other, others))) = (fullest, emptiest) else {
        return Ok(Vec::new());
    };
    if inside.len() <= balanced || total.saturating_sub(inside.len()) >= votes.quorum() {
        return Ok(Vec::new());
    }
    let message = format!(
        "{} of {total} Machines are in failure domain {domain}, and {} in {other}: if {domain} fails, etcd loses its quorum",
        inside.len(),
        others.len()
    );
    let objects = inside.iter().map(|machine| machine_object(machine.name()));
    let finding = Finding {
        objects: objects.collect(),
        ..Finding::new(CheckOutcome::Warn, "", message)
    };
    Ok(Vec::from_iter(inside.last().map(|machine| {
        finding.with_hint(format!(
            "replace one of these Machines, because Cluster API creates the new one in the failure domain with the fewest: kubectl kcp \
             machine replace {} -n {}",
            machine.name(),
            machine.namespace()
        ))
    })))
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::metadata::Time;

    use crate::{checks::tests::Case, snapshot::Snapshot, testing::objects::minutes_ago};

    fn both_in_a(observed: &mut Snapshot, domains: &str) {
        observed.set_failure_domains(domains);
        observed.machine(3).spec.failure_domain = Some("a".to_owned());
    }

    pub(crate) const CASES: &[Case] = &[
        ("failure-domains-unbalanced", "balanced", |o| {
            o.set_failure_domains("a b c");
        }),
        ("failure-domains-unbalanced", "two_of_three_in_one", |o| {
            both_in_a(o, "a b c");
        }),
        // With two failure domains, two of three Machines are always in one of them.
        ("failure-domains-unbalanced", "too_few_failure_domains", |o| {
            both_in_a(o, "a b");
        }),
        ("failure-domains-unbalanced", "during_a_deletion", |o| {
            both_in_a(o, "a b c");
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        }),
    ];
}
