//! Versions, rollouts, and what starts them.

use super::{Accident, CLUSTER_API, Fixed, Proof, Seen, Topic, With};

pub(crate) const TOPIC: Topic = Topic {
    title: "Upgrades",
    accidents: &[
        Accident {
            references: &["kubernetes-sigs/cluster-api#11772"],
            done: "Rolls out a change of a control plane with one Machine, and takes the change back \
                   a few seconds later.",
            seen: CLUSTER_API,
            outcome: "Cluster API deletes the second Machine, but not its etcd member. etcd has two \
                      members, of which one is left, and no leader.",
            fixed: None,
            with: &[
                With::Denied {
                    rule: "joining-machine-outdated",
                    sentence: "so Cluster API would delete the Machine but not its etcd member, and etcd \
                           would lose its quorum",
                },
                With::Named {
                    check: "etcd-no-quorum",
                    sentence: "make the member on this host the only member",
                },
                With::Undone {
                    command: "etcd recover",
                },
            ],
            proof: Proof::Test("joining::the_second_machine_is_kept_while_only_its_member_has_joined"),
        },
        Accident {
            references: &["aws/eks-anywhere#4709", "kubernetes-sigs/cluster-api#3026"],
            done: "Keeps a `nodeStartupTimeout` that is shorter than a Machine takes to join.",
            seen: CLUSTER_API,
            outcome: "A MachineHealthCheck marks each new Machine before it has a Node, and Cluster \
                      API deletes it. If it is the second Machine, etcd loses its quorum.",
            fixed: None,
            with: &[
                With::Named {
                    check: "joining-member-needed",
                    sentence: "and Cluster API then deletes it",
                },
                With::Named {
                    check: "remediation-scheduled",
                    sentence: "because the Machine has no node within",
                },
            ],
            proof: Proof::Test("joining::the_second_machine_is_kept_while_only_its_member_has_joined"),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#9220",
                "kubernetes-sigs/cluster-api#12870",
            ],
            done: "Lets a MachineHealthCheck delete the first Machine of a Cluster just as kubeadm \
                   initializes it.",
            seen: Seen::Reported("Cluster API 1.5"),
            outcome: "The replacement is told to join a cluster whose only Machine is being deleted, \
                      and never does.",
            fixed: None,
            with: &[With::Neither {
                reason: "The checks name the Machine that does not join, but neither the race \
                             nor a way out: the Cluster has no Machine left to repair.",
            }],
            proof: Proof::NotReplayed(
                "The stand-in machines can be held before their Node appears, but no \
                               test marks the first Machine as unhealthy before the control plane is \
                               initialized.",
            ),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#6093",
                "kubernetes-sigs/cluster-api#13017",
            ],
            done: "Updates Cluster API, and every control plane Machine is replaced.",
            seen: Seen::Reported("Cluster API 1.1 and 1.11"),
            outcome: "The newer controller compares the Machines with the spec in another way, and \
                      finds differences.",
            fixed: None,
            with: &[With::Said {
                command: "plan",
                sentence: "an update of Cluster API to v1.14.2 would replace",
            }],
            proof: Proof::NotReplayed(
                "A test changes a KubeadmConfig as an update would, and sees the sentence of `plan`, but \
                 updates nothing.",
            ),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#14167"],
            done: "Updates Cluster API from 1.11, and Machines whose KubeadmConfig has lost a field \
                   are replaced.",
            seen: Seen::Reported("Cluster API 1.12 to 1.14.1"),
            outcome: "The newer controller takes such a Machine for the first one, and replaces it.",
            fixed: Some(Fixed {
                release: "Cluster API 1.13.6 and 1.14.2",
                is_tested: false,
            }),
            with: &[With::Said {
                command: "plan",
                sentence: "joinConfiguration.controlPlane (kubernetes-sigs/cluster-api#14167)",
            }],
            proof: Proof::NotReplayed(
                "Unit tests have this Machine. The integration tests run one release \
                               of Cluster API at a time, so none updates it.",
            ),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api-provider-vsphere#797"],
            done: "Raises the version, but keeps the template whose image has the kubelet of the \
                   earlier version.",
            seen: Seen::Reported("Cluster API for vSphere"),
            outcome: "New Machines get the old kubelet and kubeadm. They do not join, or run the \
                      wrong version.",
            fixed: None,
            with: &[
                With::Warned {
                    rule: "machine-image-kept",
                    sentence: "so if its image contains Kubernetes",
                },
                With::Named {
                    check: "machine-kubelet-differs",
                    sentence: "but its kubelet is",
                },
                With::Said {
                    command: "upgrade",
                    sentence: "if this text names the image, new Machines get the old kubelet",
                },
            ],
            proof: Proof::Test("overlooked::a_healthy_control_plane_shows_what_is_going_to_hurt"),
        },
        Accident {
            references: &["kubernetes/kubeadm#2371", "kubernetes/kubernetes#84326"],
            done: "Runs a CoreDNS that is newer than the spec asks for, or whose version Cluster API \
                   does not know.",
            seen: CLUSTER_API,
            outcome: "Each reconcile fails at CoreDNS, after the Machines are up to date. The \
                      observed generation stays behind, also after the cause is gone.",
            fixed: None,
            with: &[
                With::Warned {
                    rule: "coredns-version-unknown",
                    sentence: "Cluster API cannot update CoreDNS if the running version is newer than \
                           the new tag, or unknown to Cluster API",
                },
                With::Named {
                    check: "addon-update-impossible",
                    sentence: "and Cluster API never lowers CoreDNS, but the spec requires",
                },
            ],
            proof: Proof::Test("late_failures::status_and_the_controller_agree_on_impossible_updates"),
        },
        Accident {
            references: &["kubernetes/kubernetes#122033", "kubernetes/kubeadm#2067"],
            done: "Upgrades a cluster whose ConfigMap `kubeadm-config` is gone.",
            seen: CLUSTER_API,
            outcome: "The controller fails before it creates a Machine, and only its log says why.",
            fixed: None,
            with: &[With::Named {
                check: "kubeadm-config-unusable",
                sentence: "the controller does not start a rollout, and no Machine can join",
            }],
            proof: Proof::Test("controller_failures::causes_for_which_the_controller_fails_are_named"),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#8691"],
            done: "Breaks the API servers with a flag, and corrects the flag.",
            seen: Seen::Reported("May 2023"),
            outcome: "The controller asked each API server for its certificate first, failed, and \
                      did not roll the correction out.",
            fixed: Some(Fixed {
                release: "cluster-api#8711 in May 2023",
                is_tested: false,
            }),
            with: &[With::Undone {
                command: "rollout undo",
            }],
            proof: Proof::Test("rollout_undo::a_change_that_does_not_start_is_undone"),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#3353"],
            done: "Creates a control plane without a `clusterConfiguration`.",
            seen: Seen::Reported("July 2020"),
            outcome: "The controller took each new Machine for an outdated one, and replaced it for \
                      ever.",
            fixed: Some(Fixed {
                release: "Cluster API 0.3",
                is_tested: false,
            }),
            with: &[With::Upstream],
            proof: Proof::NotReplayed(
                "The source of Cluster API 1.14.2 treats an absent section as an empty \
                               one. No test creates such a control plane.",
            ),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#8943"],
            done: "Rolls out a change of five Machines, and the controller reports errors of a \
                   Machine that nobody finds.",
            seen: Seen::Reported("June 2023"),
            outcome: "The rollout stays at its preflight checks, although all Machines and members \
                      are well.",
            fixed: None,
            with: &[With::Neither {
                reason: "The thread ends without a cause. `status` reads the Machines and \
                             members itself, and says what it finds, which may help to see such a \
                             difference.",
            }],
            proof: Proof::NotReplayed("Nothing in the thread says how to get there."),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#3396"],
            done: "Rolls out three Machines in three failure domains, and two end in the same one.",
            seen: Seen::Reported("July 2020"),
            outcome: "The controller counted outdated Machines, too, when it chose a failure domain. \
                      Today, it chooses as `plan` says.",
            fixed: Some(Fixed {
                release: "Cluster API 0.3",
                is_tested: false,
            }),
            with: &[With::Upstream],
            proof: Proof::Test("predictions::the_controller_does_what_the_plan_says"),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#10476"],
            done: "Loses a failure domain while Cluster API keeps creating Machines in it.",
            seen: Seen::Reported("April 2024"),
            outcome: "Cluster API takes every failure domain for available until somebody removes it \
                      from the infrastructure's status.",
            fixed: None,
            with: &[With::Neither {
                reason: "`plan` shows the failure domain of each new Machine before it exists. \
                             Whether the domain works, no object says.",
            }],
            proof: Proof::NotReplayed("Failure domains of the stand-in provider have no fault."),
        },
    ],
};
