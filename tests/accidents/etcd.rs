//! Members of etcd, their votes and their data.

use super::{Accident, CLUSTER_API, Fixed, KUBEADM, Proof, Seen, Topic, With};

pub(crate) const TOPIC: Topic = Topic {
    title: "etcd",
    accidents: &[
        Accident {
            references: &["kubernetes-sigs/cluster-api#10125"],
            done: "Loses two of five Machines at the same time, with a MachineHealthCheck.",
            seen: CLUSTER_API,
            outcome: "Cluster API replaces one of them. etcd before 3.5.31 and 3.6.11 admits no new member \
                      while the other dead one is listed, so the new Machine never joins.",
            fixed: None,
            with: &[
                With::Named {
                    check: "etcd-refuses-join",
                    sentence: "etcd admits no new member while member",
                },
                With::Undone {
                    command: "machine replace",
                },
            ],
            proof: Proof::Test("dead_members::no_member_joins_while_another_is_dead"),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#3845"],
            done: "Has two unhealthy Machines, and Cluster API begins with the one whose etcd member \
                   lives.",
            seen: CLUSTER_API,
            outcome: "etcd refuses to remove a running member while another is dead. The deletion \
                      never ends, and the dead Machine is never reached.",
            fixed: None,
            with: &[
                With::Named {
                    check: "etcd-refuses-removal",
                    sentence: "etcd refuses to remove a running member while member",
                },
                With::Undone {
                    command: "etcd remove-member",
                },
            ],
            proof: Proof::Test("dead_members::a_live_member_stays_while_another_is_dead"),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#8465",
                "kubernetes-sigs/cluster-api#12711",
            ],
            done: "Stops the kubelet or containerd on the Machine of etcd's leader.",
            seen: CLUSTER_API,
            outcome: "Cluster API could neither move the leadership nor remove a member. Since 1.14, \
                      only the leader's own Machine is stuck.",
            fixed: Some(Fixed {
                release: "Cluster API 1.14, for the other Machines",
                is_tested: true,
            }),
            with: &[With::Said {
                command: "machine replace",
                sentence: "or stop it so that the other members elect a new leader",
            }],
            proof: Proof::Test(
                "unreachable_leader::only_the_machine_of_an_unreachable_leader_waits_for_another_leader",
            ),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#13221",
                "kubernetes-sigs/cluster-api#13667",
                "kubernetes-sigs/cluster-api#5509",
                "kubernetes/kubeadm#3269",
            ],
            done: "Has a Machine that fails to join after kubeadm has added its etcd member.",
            seen: Seen::Reported("January 2026"),
            outcome: "Cluster API deletes the Machine, but not the member, which has no name. No \
                      other member can join until somebody removes it by hand.",
            fixed: Some(Fixed {
                release: "Cluster API 1.13.2",
                is_tested: false,
            }),
            with: &[
                With::Undone {
                    command: "etcd remove-member",
                },
                With::Named {
                    check: "etcd-learners-stuck",
                    sentence: "was added but has not started",
                },
            ],
            proof: Proof::Test("etcd_members::members_are_listed_and_a_learner_is_promoted"),
        },
        Accident {
            references: &[
                "kubernetes/kubeadm#3317",
                "kubernetes/kubeadm#2997",
                "deckhouse/deckhouse#11934",
            ],
            done: "Has a Machine that joins, but whose etcd member stays a learner.",
            seen: Seen::Reported("kubeadm 1.35.5"),
            outcome: "kubeadm gives up, and the member does not vote. Nobody promotes it, and no \
                      second learner can join.",
            fixed: None,
            with: &[
                With::Undone {
                    command: "etcd promote",
                },
                With::Named {
                    check: "etcd-learners-stuck",
                    sentence: "etcd member is a learner: it does not vote",
                },
            ],
            proof: Proof::Test("etcd_members::members_are_listed_and_a_learner_is_promoted"),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#13768"],
            done: "Creates a cluster on slow hosts, where etcd refuses to promote a new member for a while.",
            seen: Seen::Reported("Cluster API 1.13.2"),
            outcome: "cloud-init reports success, but the Node does not get the label of the control \
                      plane, and the creation of the cluster does not end.",
            fixed: None,
            with: &[
                With::Named {
                    check: "etcd-learners-stuck",
                    sentence: "etcd member is a learner: it does not vote",
                },
                With::Named {
                    check: "node-labels-or-taints-missing",
                    sentence: "the node lacks label node-role.kubernetes.io/control-plane",
                },
                With::Said {
                    command: "machine diagnose",
                    sentence: "the member is a learner: kubeadm has not promoted it yet",
                },
            ],
            proof: Proof::Test("incidents::each_remedy_leads_to_health"),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#14197",
                "kubernetes-sigs/cluster-api#3961",
            ],
            done: "Rolls out a change, and the kubelet registers the Node before kubeadm starts etcd.",
            seen: Seen::Reported("Cluster API 1.13.2"),
            outcome: "Cluster API takes the new member without a name for one that was left behind, \
                      and removes it. The join fails.",
            fixed: Some(Fixed {
                release: "Cluster API 1.14.2",
                is_tested: false,
            }),
            with: &[With::Upstream],
            proof: Proof::NotReplayed(
                "A stand-in machine writes its Node after its member has a name, so \
                               the race does not occur. `plan` knows the 20 seconds for which \
                               Cluster API 1.14.2 waits.",
            ),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#8877",
                "kubernetes-sigs/cluster-api#3978",
                "kubernetes-sigs/cluster-api#4365",
                "kubernetes-sigs/cluster-api#2651",
            ],
            done: "Has a Machine that is half deleted: its etcd member is removed, but the Machine \
                   stays.",
            seen: Seen::Reported("Cluster API before 1.8.2"),
            outcome: "etcd and the API server of the Machine crash in a loop, and the preflight \
                      checks never pass. A manual deletion of the Machine ended it.",
            fixed: Some(Fixed {
                release: "Cluster API 1.8.2, except for a member that a person removes",
                is_tested: false,
            }),
            with: &[With::Named {
                check: "etcd-members-mismatch",
                sentence: "has no etcd member",
            }],
            proof: Proof::Test("checks::status_reports_each_fault"),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api-provider-aws#740",
                "kubernetes-sigs/cluster-api-provider-aws#828",
            ],
            done: "Replaces a machine that then initializes a cluster of its own instead of joining.",
            seen: Seen::Reported("Kubernetes 1.13.2"),
            outcome: "Two etcd clusters answer behind one load balancer. With the next machine, the \
                      first one lost its quorum and its data.",
            fixed: None,
            with: &[With::Named {
                check: "etcd-clusters-differ",
                sentence: "but most members belong to",
            }],
            proof: Proof::Test("checks::status_reports_each_fault"),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#1351",
                "kubernetes-sigs/cluster-api#11161",
            ],
            done: "Deletes all control plane Machines at once.",
            seen: CLUSTER_API,
            outcome: "Cluster API removes no member if too few healthy ones would be left, and holds \
                      each deletion for ever.",
            fixed: None,
            with: &[With::Said {
                command: "why",
                sentence: "all control plane Machines are being deleted",
            }],
            proof: Proof::Test("checks::dead_ends::the_way_out_of_each_dead_end_is_named"),
        },
        Accident {
            references: &[
                "etcd-io/etcd#20967",
                "etcd-io/etcd#20793",
                "etcd-io/etcd#19557",
                "k3s-io/k3s#13485",
            ],
            done: "Upgrades from etcd 3.5 to 3.6 after many Machines were replaced.",
            seen: Seen::Reported("etcd 3.5.1 to 3.5.25"),
            outcome: "etcd 3.6 reads its members from another place, where removed members and \
                      learners remain. It does not start, or it loses its quorum.",
            fixed: Some(Fixed {
                release: "etcd 3.5.26",
                is_tested: true,
            }),
            with: &[
                With::Named {
                    check: "etcd-upgrade-unsafe",
                    sentence: "and before that every member must run",
                },
                With::Said {
                    command: "upgrade",
                    sentence: "before that, every member must run",
                },
                With::Warned {
                    rule: "etcd-upgrade-unsafe",
                    sentence: "members that were removed long ago can come back",
                },
            ],
            proof: Proof::Test("etcd_upgrade::etcd_3_6_waits_until_every_member_runs_a_safe_version"),
        },
        Accident {
            references: &["etcd-io/etcd#13724"],
            done: "Upgrades with kubeadm while the members of etcd list different members.",
            seen: Seen::Reported("etcd 3.5.0"),
            outcome: "kubeadm takes etcd for unhealthy, and the upgrade does not go on.",
            fixed: Some(Fixed {
                release: "etcd 3.5.2",
                is_tested: false,
            }),
            with: &[With::Named {
                check: "etcd-member-lists-differ",
                sentence: "members report different member lists; it is unknown which report is correct",
            }],
            proof: Proof::NotReplayed(
                "Unit tests have members that differ. The oldest etcd that the \
                               integration tests run is 3.5.23.",
            ),
        },
        Accident {
            references: &["kubernetes/kubeadm#2682"],
            done: "Upgrades from 1.21 to 1.22 with kubeadm, and the etcd Pod of one host does not \
                   start.",
            seen: Seen::Reported("kubeadm 1.22.5"),
            outcome: "kubeadm takes etcd for unhealthy, and the upgrade fails. The thread ends \
                      without a cause.",
            fixed: None,
            with: &[With::Named {
                check: "etcd-members-unresponsive",
                sentence: "etcd member does not respond",
            }],
            proof: Proof::Test("checks::status_reports_each_fault"),
        },
        Accident {
            references: &["openshift/openshift-docs#88791"],
            done: "Loses two of three hosts with their disks.",
            seen: KUBEADM,
            outcome: "etcd has no quorum, the API servers do not answer, and Cluster API does nothing.",
            fixed: None,
            with: &[
                With::Undone {
                    command: "etcd recover",
                },
                With::Named {
                    check: "etcd-no-quorum",
                    sentence: "quorum is lost",
                },
            ],
            proof: Proof::Test(
                "real_machines::full::recovery::etcd_is_recovered_from_the_machine_that_is_left",
            ),
        },
        Accident {
            references: &[
                "etcd-io/etcd#11732",
                "kubernetes/kubeadm#2071",
                "kubernetes-retired/bootkube#432",
            ],
            done: "Restores a snapshot on one host, and no other host can join.",
            seen: Seen::Reported("kubeadm 1.17"),
            outcome: "kubeadm waits for the new member until its time is over.",
            fixed: None,
            with: &[With::Undone {
                command: "etcd restore",
            }],
            proof: Proof::Test(
                "real_machines::full::restore::a_snapshot_is_restored_when_every_machine_has_lost_its_data",
            ),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#9398"],
            done: "Loses a Machine while another one joins in a rollout.",
            seen: Seen::Reported("September 2023"),
            outcome: "A MachineHealthCheck had the existing Machine deleted while the new one had \
                      not joined, and neither was replaced.",
            fixed: Some(Fixed {
                release: "Cluster API 1.7",
                is_tested: false,
            }),
            with: &[With::Upstream],
            proof: Proof::NotReplayed(
                "Since the fix, the controller defers the remediation while a Machine \
                               is being provisioned. No test marks a Machine at that time.",
            ),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#4239",
                "siderolabs/cluster-api-control-plane-provider-talos#260",
            ],
            done: "Has Nodes whose names differ from those of their Machines, such as \
                   `ip-10-0-253-7.us-west-1.compute.internal`.",
            seen: Seen::Reported("March 2021 and July 2026"),
            outcome: "Programs that compare names take a healthy member for one without a Machine. \
                      Cluster API refused a remediation; a provider removed two members.",
            fixed: Some(Fixed {
                release: "Cluster API 0.4",
                is_tested: false,
            }),
            with: &[With::Upstream],
            proof: Proof::NotReplayed(
                "The plugin finds a member by the Node of a Machine, which unit tests \
                               show. Stand-in and real machines of the tests name the Node after the \
                               Machine.",
            ),
        },
    ],
};
