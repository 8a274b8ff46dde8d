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
    "If one failure domain fails, etcd loses its quorum, although the Cluster has enough failure domains to prevent this.",
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
        // A failure domain that the Cluster no longer has can fail, too.
        if let Some(domain) = &machine.spec.failure_domain {
            machines.entry(domain).or_default().push(machine);
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
    let offered = machines
        .iter()
        .filter(|(name, _)| domains.iter().any(|domain| domain == *name));
    let emptiest = offered.min_by_key(|(_, inside)| inside.len());
    let (Some((domain, inside)), Some((other, others))) = (fullest, emptiest) else {
        return Ok(Vec::new());
    };
    let survives = |lost: usize| total.saturating_sub(lost) >= votes.quorum();
    if survives(inside.len()) || !survives(balanced) {
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
            "replace one of these Machines, because Cluster API creates the new one in the failure domain with the fewest Machines: kubectl kcp \
             machine replace {} -n {}",
            machine.name(),
            machine.namespace()
        ))
    })))
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::metadata::Time;

    use crate::{
        checks::tests::Case,
        snapshot::Snapshot,
        testing::objects::{minutes_ago, use_external_etcd},
    };

    /// Puts each Machine into the failure domain of the same place in the list.
    fn put(observed: &mut Snapshot, offered: &str, domains: &[&str]) {
        observed.set_failure_domains(offered);
        for (number, domain) in (1..).zip(domains) {
            observed.machine(number).spec.failure_domain = Some((*domain).to_owned());
        }
    }

    pub(crate) const CASES: &[Case] = &[
        ("failure-domains-unbalanced", "balanced", |o| {
            o.set_failure_domains("a b c");
        }),
        ("failure-domains-unbalanced", "two_of_three_in_one", |o| {
            put(o, "a b c", &["a", "b", "a"]);
        }),
        // With two failure domains, one of them always has a majority of three Machines.
        ("failure-domains-unbalanced", "too_few_failure_domains", |o| {
            put(o, "a b", &["a", "a", "a"]);
        }),
        ("failure-domains-unbalanced", "in_a_removed_failure_domain", |o| {
            put(o, "a b c", &["x", "b", "x"]);
        }),
        ("failure-domains-unbalanced", "during_a_deletion", |o| {
            put(o, "a b c", &["a", "b", "a"]);
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        }),
        ("failure-domains-unbalanced", "external_etcd", |o| {
            put(o, "a b c", &["a", "b", "a"]);
            use_external_etcd(&mut o.control_plane().spec);
        }),
    ];
}
