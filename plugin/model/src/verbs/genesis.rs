//! The checks of `genesis replace` before it replaces the first Machine of a control plane: what exists only on this Machine,
//! and what the replacement would therefore break or lose.

use kcp_api::{Machine, Object as _};

use crate::{
    change::decision::{Refusal, RefusedBy},
    snapshot::Reading,
};

/// The number of Machines from which the loss of one keeps etcd's quorum.
const MIN_REPLICAS: i64 = 3;

/// What the command reads about the first Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Genesis {
    pub machine: String,
    /// The Machine's Node. None if the Machine has none.
    pub node: Option<String>,
    /// The number of Machines that the control plane should have, and the number that it has.
    pub desired: i64,
    pub machines: usize,
    /// The host of the control plane endpoint. None if it is unknown.
    pub endpoint: Option<String>,
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
    /// The claim that uses the volume, as `namespace/name`. None if it is not bound.
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
    let kept = machines
        .iter()
        .filter(|machine| machine.deletion_timestamp().is_none());
    kept.min_by_key(|machine| (machine.creation_timestamp(), machine.name()))
}

/// What exists only on the first Machine, one line for each.
pub fn list_holdings(genesis: &Genesis) -> Vec<String> {
    let node = genesis.node.as_deref().unwrap_or("no Node");
    let mut lines = vec![format!("the first Machine is {}, on {node}", genesis.machine)];
    if let Reading::Read(holdings) = &genesis.holdings {
        if let Some(address) = endpoint_on(genesis, holdings) {
            lines.push(format!("its address {address} is the control plane endpoint"));
        }
        lines.extend(holdings.volumes.iter().map(|volume| {
            let claim = volume
                .claim
                .as_ref()
                .map_or_else(|| "no claim".to_owned(), |claim| format!("claim {claim}"));
            if volume.is_only_here {
                format!("PersistentVolume {} of {claim} is on its disk", volume.name)
            } else {
                format!(
                    "PersistentVolume {} of {claim} is a hostPath, which may be on its disk",
                    volume.name
                )
            }
        }));
        let pods = holdings.pods.iter();
        lines.extend(
            pods.map(|pod| format!("Pod {} can run only there, because of its {}", pod.name, pod.by)),
        );
    }
    lines
}

/// Why the first Machine must not be replaced. None if it may. `accepts_loss` says that the user accepts the loss of local data
/// and of Pods that cannot run elsewhere.
pub fn refuse(genesis: &Genesis, accepts_loss: bool) -> Option<Refusal> {
    let mut why = Vec::new();
    let mut remedies = Vec::new();
    if genesis.desired < MIN_REPLICAS || genesis.machines < 3 {
        why.push(format!(
            "the control plane has {} of {} Machines, but etcd survives the replacement of its first member only with three",
            genesis.machines, genesis.desired
        ));
        remedies.push(
            "scale the control plane to three Machines first: kubectl kcp scale NAME --replicas 3".to_owned(),
        );
    }
    if genesis.node.is_none() {
        why.push("the first Machine has no Node, so it is unknown what exists only there".to_owned());
    }
    match &genesis.holdings {
        Reading::Read(holdings) => {
            if let Some(address) = endpoint_on(genesis, holdings) {
                why.push(format!(
                    "the control plane endpoint is {address}, an address of this Machine: without it, clients and kubelets \
                     reach no API server"
                ));
                remedies.push("move the endpoint to a load balancer or to kube-vip first".to_owned());
            }
            if !holdings.has_kubeadm_config {
                why.push(
                    "the ConfigMap kubeadm-config does not exist, so the replacement cannot join".to_owned(),
                );
            }
            if !accepts_loss {
                let lost = holdings.volumes.len() + holdings.pods.len();
                why.extend(holdings.volumes.iter().map(|volume| {
                    format!(
                        "the data of PersistentVolume {} would or might be lost",
                        volume.name
                    )
                }));
                why.extend(holdings.pods.iter().map(|pod| {
                    format!(
                        "Pod {} cannot run on another Node, because of its {}",
                        pod.name, pod.by
                    )
                }));
                if lost > 0 {
                    remedies.push("move the data and the Pods, or use --accept-loss".to_owned());
                }
            }
        }
        Reading::Failed(failure) | Reading::OutOfReach(failure) => {
            why.push(format!(
                "it is unknown what exists only on this Machine: {}",
                failure.text()
            ));
            remedies.extend(failure.hint.clone());
        }
        Reading::Excluded { .. } | Reading::NotYet => {
            why.push("the control plane is not initialized yet".to_owned());
        }
    }
    (!why.is_empty()).then(|| Refusal {
        remedies,
        ..Refusal::new(RefusedBy::Command, why)
    })
}

/// The endpoint, if it is an address of the Machine's Node. A loopback address is another server on each Node.
fn endpoint_on<'g>(genesis: &'g Genesis, holdings: &Holdings) -> Option<&'g str> {
    let endpoint = genesis.endpoint.as_deref()?;
    let is_loopback = endpoint
        .parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    (!is_loopback && holdings.addresses.iter().any(|address| address == endpoint)).then_some(endpoint)
}

#[cfg(test)]
mod tests {
    use kcp_api::metadata::Time;

    use super::*;
    use crate::testing::{
        objects::{machine, minutes_ago},
        snapshot::failure,
    };

    fn genesis(change: impl FnOnce(&mut Genesis, &mut Holdings)) -> Genesis {
        let mut holdings = Holdings {
            addresses: vec!["10.0.0.1".to_owned(), "n1".to_owned()],
            has_kubeadm_config: true,
            ..Holdings::default()
        };
        let mut genesis = Genesis {
            machine: "m1".to_owned(),
            node: Some("n1".to_owned()),
            desired: 3,
            machines: 3,
            endpoint: Some("10.0.0.9".to_owned()),
            holdings: Reading::NotYet,
        };
        change(&mut genesis, &mut holdings);
        if genesis.holdings == Reading::NotYet {
            genesis.holdings = Reading::Read(holdings);
        }
        genesis
    }

    fn reasons(genesis: &Genesis, accepts_loss: bool) -> Vec<String> {
        refuse(genesis, accepts_loss).map_or_else(Vec::new, |refusal| refusal.why)
    }

    #[test]
    fn the_oldest_machine_that_stays_is_the_first() {
        let at = |name: &str, minutes| {
            let mut machine = machine(name);
            machine.metadata.creation_timestamp = Some(Time(minutes_ago(minutes)));
            machine
        };
        let mut leaving = at("m0", 90);
        leaving.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        let machines = [at("m3", 10), leaving, at("m2", 60), at("m1", 60)];
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
        for (name, genesis, accepted, expected) in [
            ("nothing", genesis(|_, _| {}), false, vec![]),
            (
                "one Machine",
                genesis(|of, _| (of.desired, of.machines) = (1, 1)),
                true,
                vec!["the control plane has 1 of 1 Machines"],
            ),
            (
                "a Machine is missing",
                genesis(|of, _| of.machines = 2),
                true,
                vec!["the control plane has 2 of 3 Machines"],
            ),
            (
                "the endpoint",
                genesis(|of, _| of.endpoint = Some("10.0.0.1".to_owned())),
                true,
                vec!["the control plane endpoint is 10.0.0.1"],
            ),
            (
                "a loopback endpoint",
                genesis(|of, holdings| {
                    of.endpoint = Some("127.0.0.1".to_owned());
                    holdings.addresses.push("127.0.0.1".to_owned());
                }),
                false,
                vec![],
            ),
            (
                "no kubeadm-config",
                genesis(|_, holdings| holdings.has_kubeadm_config = false),
                true,
                vec!["the ConfigMap kubeadm-config does not exist"],
            ),
            (
                "data and a Pod",
                genesis(|_, holdings| {
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
                genesis(|_, holdings| holdings.volumes = vec![volume(false)]),
                true,
                vec![],
            ),
            (
                "unread",
                genesis(|of, _| of.holdings = Reading::Failed(failure("PersistentVolume", "forbidden"))),
                true,
                vec!["it is unknown what exists only on this Machine: forbidden"],
            ),
            (
                "no Node",
                genesis(|of, _| of.node = None),
                true,
                vec!["the first Machine has no Node"],
            ),
        ] {
            let found = reasons(&genesis, accepted);
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
    fn the_list_contains_everything_that_exists_only_there() {
        let genesis = genesis(|of, holdings| {
            of.endpoint = Some("10.0.0.1".to_owned());
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
            list_holdings(&genesis),
            [
                "the first Machine is m1, on n1",
                "its address 10.0.0.1 is the control plane endpoint",
                "PersistentVolume pv of claim shop/data is on its disk",
                "Pod shop/web can run only there, because of its nodeName",
            ]
        );
    }
}
