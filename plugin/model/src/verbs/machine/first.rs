//! What `machine replace` checks if the Machine is the first one of its control plane: what exists only on this Machine, and what
//! the replacement would therefore break or lose.

use kcp_api::{Machine, Object as _};

use crate::{
    change::decision::{Decision, Refusal, RefusedBy},
    snapshot::Reading,
};

/// What the command reads about the first Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstMachine {
    pub name: String,
    /// The Machine's Node. `None` if the Machine has none.
    pub node: Option<String>,
    /// The host of the control plane endpoint. `None` if it is unknown.
    pub endpoint: Option<String>,
    /// `NotYet` if the Machine has no Node.
    pub holdings: Reading<Holdings>,
}

/// What the Machine's Node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// The addresses and the name of the Node.
    pub addresses: Vec<String>,
    pub volumes: Vec<LocalVolume>,
    pub pods: Vec<PinnedPod>,
    /// Whether the `ConfigMap` `kubeadm-config` exists, which every joining Machine reads.
    pub has_kubeadm_config: bool,
}

/// A `PersistentVolume` whose data is on the Node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalVolume {
    pub name: String,
    /// The claim that uses the volume, as `namespace/name`. `None` if it is not bound.
    pub claim: Option<String>,
    /// Whether only this Node can use the volume. A `hostPath` volume does not say on which Node its data is.
    pub is_only_here: bool,
}

/// A Pod that can run only on this Node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PinnedPod {
    /// `namespace/name`.
    pub name: String,
    /// What pins it, such as `nodeSelector kubernetes.io/hostname`.
    pub by: String,
}

/// The first Machine: the oldest that is not being deleted. Of Machines of the same age, the first by name.
pub fn first_machine(machines: &[Machine]) -> Option<&Machine> {
    let candidates = machines
        .iter()
        .filter(|machine| machine.deletion_timestamp().is_none());
    candidates.min_by_key(|machine| (machine.creation_timestamp(), machine.name()))
}

/// What exists only on the first Machine, one line for each.
pub fn list_holdings(first: &FirstMachine) -> Vec<String> {
    let node = first.node.as_deref().unwrap_or("no Node");
    let mut lines = vec![format!("the first Machine is {}, on {node}", first.name)];
    if let Reading::Read(holdings) = &first.holdings {
        if let Some(address) = endpoint_on(first, holdings) {
            lines.push(format!(
                "the address {address} of the first Machine is the control plane endpoint"
            ));
        }
        lines.extend(holdings.volumes.iter().map(|volume| {
            let claim = volume.claim.as_deref().unwrap_or("none");
            let data = if volume.is_only_here {
                "is on the disk of the first Machine"
            } else {
                "is in a hostPath, which may be on the disk of the first Machine"
            };
            format!(
                "the data of PersistentVolume {} (claim: {claim}) {data}",
                volume.name
            )
        }));
        let pods = holdings.pods.iter();
        lines.extend(pods.map(|pod| {
            format!(
                "Pod {} can run only on the first Machine, because of its {}",
                pod.name, pod.by
            )
        }));
    }
    lines
}

/// Refuses a replacement that would break or lose what exists only on the first Machine. `accepts_loss` says that the user accepts
/// the loss of local data and of Pods that cannot run elsewhere, and of what is unknown.
pub fn guard(decision: Decision, first: Option<&FirstMachine>, accepts_loss: bool) -> Decision {
    match (&decision, first.and_then(|first| refuse(first, accepts_loss))) {
        (Decision::Write(_), Some(refusal)) => Decision::Refused(refusal),
        _ => decision,
    }
}

fn refuse(first: &FirstMachine, accepts_loss: bool) -> Option<Refusal> {
    let mut why = Vec::new();
    let mut remedies = Vec::new();
    let mut losses = Vec::new();
    match &first.holdings {
        Reading::Read(holdings) => {
            if let Some(address) = endpoint_on(first, holdings) {
                why.push(format!(
                    "the control plane endpoint is {address}, an address of this Machine: without the Machine, clients and \
                     kubelets reach no API server"
                ));
                remedies.push("move the endpoint to a load balancer or to kube-vip first".to_owned());
            }
            if !holdings.has_kubeadm_config {
                why.push(
                    "the ConfigMap kubeadm-config does not exist, so the replacement cannot join".to_owned(),
                );
            }
            losses.extend(holdings.volumes.iter().map(|volume| {
                let loss = if volume.is_only_here {
                    "is lost"
                } else {
                    "may be lost"
                };
                format!("the data of PersistentVolume {} {loss}", volume.name)
            }));
            losses.extend(holdings.pods.iter().map(|pod| {
                format!(
                    "Pod {} cannot run on another Node, because of its {}",
                    pod.name, pod.by
                )
            }));
        }
        Reading::Failed(failure) | Reading::OutOfReach(failure) => {
            losses.push(format!(
                "it is unknown what exists only on the first Machine: {}",
                failure.text()
            ));
            remedies.extend(failure.hint.clone());
        }
        Reading::Excluded { .. } | Reading::NotYet => {
            losses.push("the first Machine has no Node, so it is unknown what exists only there".to_owned());
        }
    }
    if !accepts_loss && !losses.is_empty() {
        why.extend(losses);
        remedies.push("move the data and the Pods, or use --accept-loss".to_owned());
    }
    (!why.is_empty()).then(|| Refusal {
        remedies,
        ..Refusal::new(RefusedBy::Command, why)
    })
}

/// The endpoint, if it is an address of the Machine's Node. A loopback address does not count: on each Node, it
/// reaches only that Node.
fn endpoint_on<'f>(first: &'f FirstMachine, holdings: &Holdings) -> Option<&'f str> {
    let endpoint = first.endpoint.as_deref()?;
    let is_loopback = endpoint
        .parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    (!is_loopback && holdings.addresses.iter().any(|address| address == endpoint)).then_some(endpoint)
}

#[cfg(test)]
mod tests {
    use kcp_api::metadata::Time;

    use super::*;
    use crate::{
        testing::{
            objects::{machine, minutes_ago, now},
            snapshot::failure,
        },
        verbs::machine::replace::{ReplaceOptions, decide},
    };

    fn first(change: impl FnOnce(&mut FirstMachine, &mut Holdings)) -> FirstMachine {
        let mut holdings = Holdings {
            addresses: vec!["10.0.0.1".to_owned(), "n1".to_owned()],
            has_kubeadm_config: true,
            ..Holdings::default()
        };
        let mut first = FirstMachine {
            name: "m1".to_owned(),
            node: Some("n1".to_owned()),
            endpoint: Some("10.0.0.9".to_owned()),
            holdings: Reading::NotYet,
        };
        change(&mut first, &mut holdings);
        if first.holdings == Reading::NotYet && first.node.is_some() {
            first.holdings = Reading::Read(holdings);
        }
        first
    }

    fn reasons(first: &FirstMachine, accepts_loss: bool) -> Vec<String> {
        refuse(first, accepts_loss).map_or_else(Vec::new, |refusal| refusal.why)
    }

    #[test]
    fn the_oldest_machine_that_stays_is_the_first() {
        let aged = |name: &str, minutes| {
            let mut machine = machine(name);
            machine.metadata.creation_timestamp = Some(Time(minutes_ago(minutes)));
            machine
        };
        let mut leaving = aged("m0", 90);
        leaving.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        let machines = [aged("m3", 10), leaving, aged("m2", 60), aged("m1", 60)];
        assert_eq!(first_machine(&machines).map(kcp_api::Object::name), Some("m1"));
        assert_eq!(first_machine(&machines[1..2]), None);
    }

    #[test]
    fn what_exists_only_on_the_first_machine_is_a_reason_to_refuse() {
        let volume = |is_only_here: bool| LocalVolume {
            name: "pv".to_owned(),
            claim: is_only_here.then(|| "shop/data".to_owned()),
            is_only_here,
        };
        let pod = PinnedPod {
            name: "shop/web".to_owned(),
            by: "nodeSelector kubernetes.io/hostname".to_owned(),
        };
        for (name, machine, accepted, expected) in [
            ("nothing", first(|_, _| {}), false, vec![]),
            (
                "the endpoint",
                first(|machine, _| machine.endpoint = Some("10.0.0.1".to_owned())),
                true,
                vec!["the control plane endpoint is 10.0.0.1"],
            ),
            (
                "a loopback endpoint",
                first(|machine, holdings| {
                    machine.endpoint = Some("127.0.0.1".to_owned());
                    holdings.addresses.push("127.0.0.1".to_owned());
                }),
                false,
                vec![],
            ),
            (
                "no kubeadm-config",
                first(|_, holdings| holdings.has_kubeadm_config = false),
                true,
                vec!["the ConfigMap kubeadm-config does not exist"],
            ),
            (
                "data and a Pod",
                first(|_, holdings| {
                    holdings.volumes = vec![volume(true)];
                    holdings.pods = vec![pod.clone()];
                }),
                false,
                vec![
                    "the data of PersistentVolume pv",
                    "Pod shop/web cannot run on another Node",
                ],
            ),
            (
                "an accepted loss",
                first(|_, holdings| holdings.volumes = vec![volume(false)]),
                true,
                vec![],
            ),
            (
                "unread",
                first(|machine, _| {
                    machine.holdings = Reading::Failed(failure("PersistentVolume", "forbidden"));
                }),
                false,
                vec!["it is unknown what exists only on the first Machine: forbidden"],
            ),
            (
                "unread, and accepted",
                first(|machine, _| {
                    machine.holdings = Reading::Failed(failure("PersistentVolume", "forbidden"));
                }),
                true,
                vec![],
            ),
            (
                "no Node",
                first(|machine, _| machine.node = None),
                false,
                vec!["the first Machine has no Node"],
            ),
        ] {
            let found = reasons(&machine, accepted);
            assert_eq!(found.len(), expected.len(), "{name}: {found:?}");
            assert!(
                found
                    .iter()
                    .zip(&expected)
                    .all(|(found, begin)| found.starts_with(begin)),
                "{name}: {found:?}"
            );
        }
    }

    #[test]
    fn only_a_replacement_that_nothing_else_refuses_is_guarded() {
        let risky = first(|machine, _| machine.endpoint = Some("10.0.0.1".to_owned()));
        let other = || Decision::Refused(Refusal::new(RefusedBy::Command, vec!["other".to_owned()]));
        assert_eq!(guard(other(), Some(&risky), false), other());
        let machine = crate::testing::machine::snapshot("m1");
        let write = || decide(&machine, ReplaceOptions::default(), now());
        assert_eq!(guard(write(), None, false), write());
        assert_eq!(guard(write(), Some(&first(|_, _| {})), false), write());
        assert!(matches!(guard(write(), Some(&risky), true), Decision::Refused(_)));
    }

    #[test]
    fn the_list_contains_everything_that_exists_only_there() {
        let first = first(|machine, holdings| {
            machine.endpoint = Some("10.0.0.1".to_owned());
            holdings.volumes = vec![LocalVolume {
                name: "pv".to_owned(),
                claim: Some("shop/data".to_owned()),
                is_only_here: true,
            }];
            holdings.pods = vec![PinnedPod {
                name: "shop/web".to_owned(),
                by: "nodeName".to_owned(),
            }];
        });
        assert_eq!(
            list_holdings(&first),
            [
                "the first Machine is m1, on n1",
                "the address 10.0.0.1 of the first Machine is the control plane endpoint",
                "the data of PersistentVolume pv (claim: shop/data) is on the disk of the first Machine",
                "Pod shop/web can run only on the first Machine, because of its nodeName",
            ]
        );
    }
}
