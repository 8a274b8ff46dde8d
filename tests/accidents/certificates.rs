//! Certificates, kubeconfigs and CAs.

use super::{Accident, CLUSTER_API, Proof, Seen, Topic, With};

pub(crate) const TOPIC: Topic = Topic {
    title: "Certificates",
    accidents: &[
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#4011",
                "kubernetes-sigs/cluster-api#3348",
                "rancher/cluster-api-provider-rke2#520",
            ],
            done: "Keeps a control plane paused until its kubeconfig is about to expire.",
            seen: CLUSTER_API,
            outcome: "Cluster API renews the kubeconfig six months before its end, but only while it \
                      reconciles the control plane.",
            fixed: None,
            with: &[
                With::Named {
                    check: "secret-certificates-expiring",
                    sentence: "no controller reconciles it",
                },
                With::Undone {
                    command: "rollout resume",
                },
            ],
            proof: Proof::Test("overlooked::a_healthy_control_plane_shows_what_is_going_to_hurt"),
        },
        Accident {
            references: &[
                "siderolabs/cluster-api-control-plane-provider-talos#126",
                "clastix/kamaji#340",
            ],
            done: "Has a kubeconfig whose certificate has expired.",
            seen: CLUSTER_API,
            outcome: "The API server rejects each program that uses it, such as the controllers of \
                      Cluster API.",
            fixed: None,
            with: &[With::Undone { command: "reconcile" }],
            proof: Proof::Test("on_call::an_expired_kubeconfig_is_stated_and_its_remedy_heals"),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#5435",
                "kubernetes-sigs/cluster-api#9662",
            ],
            done: "Lets a control plane run for a year without a rollout.",
            seen: Seen::Reported("October 2021"),
            outcome: "The certificates that kubeadm issued expire. Cluster API replaces Machines in \
                      time only if `certificatesExpiryDays` is set.",
            fixed: None,
            with: &[
                With::Named {
                    check: "machine-certificates-expiring",
                    sentence: "certificate expired",
                },
                With::Undone {
                    command: "rollout start",
                },
            ],
            proof: Proof::Test("overlooked::a_healthy_control_plane_shows_what_is_going_to_hurt"),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#7721",
                "kubernetes-sigs/cluster-api#5490",
                "kubernetes/kubeadm#2027",
            ],
            done: "Needs another CA before the one of ten years ends.",
            seen: Seen::Reported("December 2022"),
            outcome: "Cluster API creates a CA that is missing, but replaces none.",
            fixed: None,
            with: &[With::Undone {
                command: "certificates rotate",
            }],
            proof: Proof::Test("real_machines::full::ca_rotation::cas_are_rotated_while_the_cluster_runs"),
        },
        Accident {
            references: &["kubernetes/kubeadm#1350"],
            done: "Puts the old and the new Kubernetes CA into one file, to rotate it.",
            seen: Seen::Reported("kubeadm"),
            outcome: "kube-controller-manager signs with this file, and exits once it leads.",
            fixed: None,
            with: &[With::Said {
                command: "certificates rotate",
                sentence: "kube-controller-manager exits if ca.crt contains two certificates",
            }],
            proof: Proof::Test("real_machines::full::ca_rotation::cas_are_rotated_while_the_cluster_runs"),
        },
    ],
};
