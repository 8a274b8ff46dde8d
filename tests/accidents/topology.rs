//! Clusters of a `ClusterClass`.

use super::{Accident, CLUSTER_API, Fixed, Proof, Seen, Topic, With};

pub(crate) const TOPIC: Topic = Topic {
    title: "Topology and class",
    accidents: &[
        Accident {
            references: &["kubernetes-sigs/cluster-api#5853"],
            done: "Raises the version in a topology by two minor versions at once.",
            seen: CLUSTER_API,
            outcome: "The Cluster's webhook accepted the version, and then the topology controller \
                      could not write the control plane. Today, it goes over each version of the \
                      class in turn.",
            fixed: Some(Fixed {
                release: "Cluster API 1.12",
                is_tested: false,
            }),
            with: &[With::Upstream],
            proof: Proof::Test("class_clusters::a_cluster_of_a_class_is_changed_through_its_cluster"),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#9098"],
            done: "Wants back an earlier version of a topology that its controller cannot carry out.",
            seen: CLUSTER_API,
            outcome: "Cluster API's webhook denies the earlier version without an annotation for \
                      unsafe changes, and with it, each try of the topology controller fails.",
            fixed: None,
            with: &[
                With::Denied {
                    rule: "topology-version-lowered",
                    sentence: "every reconcile of the topology controller would fail, and Cluster API would deny the way back",
                },
                With::Named {
                    check: "topology-not-reconciled",
                    sentence: "Cluster API's topology controller cannot apply the ClusterClass to the \
                           Cluster",
                },
            ],
            proof: Proof::Test(
                "topology_mistakes::every_mistake_in_a_topology_is_denied_and_leaves_a_way_out",
            ),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#7428"],
            done: "Sets the version of a topology to one for which there is no image.",
            seen: Seen::Reported("October 2022"),
            outcome: "The new Machine never joins, and the topology controller holds back every \
                      later version, also the earlier one.",
            fixed: None,
            with: &[With::Neither {
                reason: "No webhook knows which images exist. `status` reports a Machine that \
                             does not join (`machines-without-node`), but no test shows it for a \
                             topology, nor a way back.",
            }],
            proof: Proof::NotReplayed(
                "Machines that do not boot are there, but no test gives a topology a \
                               version for which only these are.",
            ),
        },
        Accident {
            references: &["ionos-cloud/cluster-api-provider-proxmox#832"],
            done: "Upgrades a topology while the webhook of another program refuses what the \
                   topology controller writes.",
            seen: CLUSTER_API,
            outcome: "The topology controller fails at its dry run, tries again for ever, and \
                      changes nothing, not even workers.",
            fixed: None,
            with: &[With::Named {
                check: "topology-not-reconciled",
                sentence: "Cluster API's topology controller cannot apply the ClusterClass to the \
                           Cluster",
            }],
            proof: Proof::Test(
                "topology_mistakes::every_mistake_in_a_topology_is_denied_and_leaves_a_way_out",
            ),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#5442",
                "kubernetes-sigs/cluster-api#7395",
            ],
            done: "Changes a KubeadmControlPlane that a topology owns, instead of its Cluster.",
            seen: Seen::Reported("Cluster API with ClusterClasses"),
            outcome: "The topology controller takes most changes back within seconds. It does not \
                      take back a version, but fails until the Cluster has it, too.",
            fixed: None,
            with: &[
                With::Denied {
                    rule: "version-owned-by-topology",
                    sentence: "the topology of Cluster edge owns the version, and the topology \
                           controller fails while the control plane is ahead of the Cluster",
                },
                With::Warned {
                    rule: "field-owned-by-topology",
                    sentence: "and the topology controller restores these values within seconds",
                },
            ],
            proof: Proof::Test("topology::mistakes_in_a_topology_are_denied_at_the_cluster"),
        },
    ],
};
