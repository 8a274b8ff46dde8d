//! Machines, hosts, deletions and pauses.

use super::{Accident, CLUSTER_API, Fixed, KUBEADM, KUBERNETES, Proof, Seen, Topic, With};

/// The host says itself why it does not join.
const HOST_REPORTS: With = With::Named {
    check: "machines-without-node",
    sentence: "reports:",
};

const JOIN_REPORTS: Proof =
    Proof::Test("real_machines::full::join_reports::hosts_report_why_they_do_not_join");

pub(crate) const TOPIC: Topic = Topic {
    title: "Machines and kubeadm",
    accidents: &[
        Accident {
            references: &[
                "kubernetes/kubeadm#1300",
                "kubernetes/kubeadm#1432",
                "weaveworks/wksctl#284",
                "kubernetes/kubernetes#81071",
                "etcd-io/etcd#12368",
            ],
            done: "Loses a control plane host of a kubeadm cluster, deletes its Node, and joins \
                   another host.",
            seen: KUBEADM,
            outcome: "etcd still lists the member of the lost host, and `kubeadm join` fails: `etcd \
                      cluster is not healthy`.",
            fixed: None,
            with: &[
                With::Said {
                    command: "node join-script",
                    sentence: "kubeadm adds no member while an existing member does",
                },
                With::Undone {
                    command: "node remove",
                },
            ],
            proof: Proof::Test("real_machines::full::nodes::hosts_join_and_leave_by_scripts"),
        },
        Accident {
            references: &["kubernetes/kubeadm#3225", "kubernetes/kubernetes#133437"],
            done: "Runs `kubeadm reset` on a host with an etcd of its own in `/var/lib/etcd`.",
            seen: Seen::Reported("kubeadm 1.32.6"),
            outcome: "kubeadm finds no manifest of etcd, takes its default folder, and empties it.",
            fixed: None,
            with: &[
                With::Said {
                    command: "node join-script",
                    sentence: "is not empty, so this host may run an etcd of its own",
                },
                With::Said {
                    command: "node remove",
                    sentence: "stays as it is: its data is not that of an etcd member that kubeadm created",
                },
            ],
            proof: Proof::Test("real_machines::short::hosts::a_host_keeps_what_is_not_of_kubeadm"),
        },
        Accident {
            references: &["kubernetes/kubeadm#2923", "kubernetes/kubernetes#120376"],
            done: "Runs `kubeadm reset` while a volume below `/var/lib/kubelet` cannot be unmounted.",
            seen: Seen::Reported("an older kubeadm"),
            outcome: "kubeadm warns, and then deletes the files of the volume.",
            fixed: None,
            with: &[With::Said {
                command: "node remove",
                sentence: "kubeadm reset would delete the files in",
            }],
            proof: Proof::Test("real_machines::short::hosts::a_host_keeps_what_is_not_of_kubeadm"),
        },
        Accident {
            references: &[
                "kubernetes/kubeadm#1886",
                "kubernetes/kubernetes#84627",
                "kubernetes/website#17453",
            ],
            done: "Uploads the certificates of a kubeadm cluster with an external etcd again, without \
                   `--config`.",
            seen: Seen::Reported("Kubernetes 1.15.5"),
            outcome: "kubeadm uploads no certificate for the external etcd, and the next control plane \
                      host cannot join: `the Secret does not include the required certificate or key`.",
            fixed: None,
            with: &[With::Said {
                command: "node join-script",
                sentence: "with an external etcd, add --config FILE",
            }],
            proof: Proof::NotReplayed(
                "No test has kubeadm hosts with an external etcd. In the source of \
                               kubeadm 1.36.3, the upload still knows an external etcd only from \
                               `--config`.",
            ),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#14024"],
            done: "Rolls out a change, and the Nodes of replaced Machines stay.",
            seen: Seen::Reported("Cluster API 1.10.3 and 1.12.5"),
            outcome: "The Node is not ready, and has no Machine. Cluster API tries to delete it for \
                      ten seconds only, and then reports it in a condition.",
            fixed: None,
            with: &[With::Named {
                check: "nodes-left-behind",
                sentence: "is not ready and has no Machine: it is left over from Machine",
            }],
            proof: Proof::Test("overlooked::a_healthy_control_plane_shows_what_is_going_to_hurt"),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#7407",
                "kubernetes-sigs/cluster-api#12742",
            ],
            done: "Moves Clusters with `clusterctl move`, which fails half-way.",
            seen: CLUSTER_API,
            outcome: "The Clusters stay paused, and no controller acts. If both copies are resumed, \
                      two management clusters manage the same machines.",
            fixed: None,
            with: &[With::Named {
                check: "paused",
                sentence: "first make sure that no other management cluster has this Cluster",
            }],
            proof: Proof::Test("overlooked::a_healthy_control_plane_shows_what_is_going_to_hurt"),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#6929"],
            done: "Has a pod on a control plane Node whose disruption budget allows no eviction.",
            seen: CLUSTER_API,
            outcome: "The drain never ends, and the Machine is deleted only after its \
                      `nodeDrainTimeout`, if it has one.",
            fixed: None,
            with: &[With::Named {
                check: "machine-drains-blocked",
                sentence: "the drain of its node is blocked: Pod",
            }],
            proof: Proof::Test("why::why_names_who_must_act_and_because_of_what"),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#11138"],
            done: "Replaces a Machine with Kubernetes 1.31, whose kubelet asks only its own API server.",
            seen: Seen::Reported("Cluster API before 1.8.2"),
            outcome: "Cluster API removed the etcd member before the drain. The API server failed, \
                      the kubelet with it, and no pod was drained.",
            fixed: Some(Fixed {
                release: "Cluster API 1.8.2",
                is_tested: false,
            }),
            with: &[With::Upstream],
            proof: Proof::NotReplayed(
                "Real machines are replaced in tests, but none has a pod whose \
                               eviction shows whether the kubelet still works.",
            ),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#2818",
                "kubernetes-sigs/cluster-api#2759",
            ],
            done: "Deletes a control plane Machine with kubectl.",
            seen: CLUSTER_API,
            outcome: "Cluster API left the etcd member behind, and then stopped. Today, it removes \
                      the member, and creates another Machine.",
            fixed: Some(Fixed {
                release: "Cluster API 0.3",
                is_tested: false,
            }),
            with: &[With::Upstream],
            proof: Proof::Test(
                "unreachable_leader::only_the_machine_of_an_unreachable_leader_waits_for_another_leader",
            ),
        },
        Accident {
            references: &[
                "kubernetes/kubernetes#107678",
                "open-policy-agent/gatekeeper#1997",
                "open-policy-agent/gatekeeper#725",
            ],
            done: "Runs a webhook in the cluster that it reviews, and switches all machines off and on.",
            seen: KUBERNETES,
            outcome: "The API server rejects what a restart needs, such as a \
                      CertificateSigningRequest, until the webhook runs. The webhook does not run \
                      until then.",
            fixed: None,
            with: &[With::Said {
                command: "audit",
                sentence: "the API server calls no webhook in the cluster with failurePolicy Fail for a request that the restart \
                           needs",
            }],
            proof: Proof::Test("audit::each_fault_that_the_audit_knows_is_found"),
        },
        Accident {
            references: &[
                "kubernetes/kubernetes#89512",
                "kubernetes/kubeadm#1711",
                "kubernetes/kubernetes#79779",
            ],
            done: "Boots a control plane host with the name of another one.",
            seen: KUBEADM,
            outcome: "kubeadm refuses to join, which only the log of the host says. Before 1.18, kubeadm joined it, and the control plane \
                      could go down.",
            fixed: None,
            with: &[HOST_REPORTS],
            proof: JOIN_REPORTS,
        },
        Accident {
            references: &["kubernetes/kubeadm#1341"],
            done: "Boots a control plane host that cannot pull an image.",
            seen: KUBEADM,
            outcome: "kubeadm fails, and only the log of the host says why.",
            fixed: None,
            with: &[HOST_REPORTS],
            proof: JOIN_REPORTS,
        },
        Accident {
            references: &["kubernetes/kubernetes#99305", "kubernetes/kubernetes#74169"],
            done: "Boots a control plane host without enough space on its disk.",
            seen: KUBEADM,
            outcome: "kubeadm waits and fails, and only the logs of the host say why.",
            fixed: None,
            with: &[HOST_REPORTS],
            proof: JOIN_REPORTS,
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#8631"],
            done: "Boots a control plane host whose kubelet does not run.",
            seen: KUBEADM,
            outcome: "kubeadm adds the host's etcd member and then fails. The member stays, never starts, and no other host can join.",
            fixed: None,
            with: &[
                HOST_REPORTS,
                With::Undone {
                    command: "machine replace",
                },
            ],
            proof: JOIN_REPORTS,
        },
        Accident {
            references: &[
                "kubernetes-retired/cluster-api-bootstrap-provider-kubeadm#248",
                "kubernetes/kubeadm#1988",
            ],
            done: "Boots a host after its bootstrap token has expired.",
            seen: KUBEADM,
            outcome: "kubeadm fails in its preflight, and only the log of the host says why.",
            fixed: None,
            with: &[With::Said {
                command: "generate join-report",
                sentence: "the bootstrap token has expired, or the cluster does not know it",
            }],
            proof: JOIN_REPORTS,
        },
        Accident {
            references: &["kubernetes/kubeadm#240", "kairen/kubeadm-ansible#4"],
            done: "Boots a host with a wrong clock, or without a route to the control plane endpoint.",
            seen: KUBEADM,
            outcome: "kubeadm fails in its preflight, and only the log of the host says why.",
            fixed: None,
            with: &[
                With::Said {
                    command: "generate join-report",
                    sentence: "the control plane endpoint cannot be reached",
                },
                With::Said {
                    command: "generate join-report",
                    sentence: "a certificate is not valid at the time of the host's clock",
                },
            ],
            proof: JOIN_REPORTS,
        },
    ],
};
