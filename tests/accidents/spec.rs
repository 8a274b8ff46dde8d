//! Changes of a spec that a component or Cluster API cannot carry out.

use super::{Accident, CLUSTER_API, ETCD, Fixed, KUBERNETES, Proof, Seen, Topic, With};

pub(crate) const TOPIC: Topic = Topic {
    title: "Spec mistakes",
    accidents: &[
        Accident {
            references: &["kubernetes-sigs/cluster-api#4057"],
            done: "Scales from three to four Machines with `kubectl scale`.",
            seen: Seen::Reported("January 2021"),
            outcome: "Cluster API's webhook denied the number in the spec, but reviewed no scale, so \
                      etcd got four members and tolerated no more failures than three.",
            fixed: Some(Fixed {
                release: "Cluster API 0.4",
                is_tested: false,
            }),
            with: &[With::Denied {
                rule: "replicas-even",
                sentence: "Machines tolerate no more failures than",
            }],
            proof: Proof::Test("samples::rejects_scaling_to_an_even_number"),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api#3483",
                "kubernetes-sigs/cluster-api#3439",
            ],
            done: "Makes a change with which no new Machine starts, and looks for the way back.",
            seen: CLUSTER_API,
            outcome: "The controller waits for the new Machine for ever. clusterctl undoes no \
                      rollout of a control plane.",
            fixed: None,
            with: &[With::Undone {
                command: "rollout undo",
            }],
            proof: Proof::Test("rollout_undo::a_change_that_does_not_start_is_undone"),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#4583"],
            done: "Corrects a flag of the API server, and the API server of the new Machine does not \
                   start.",
            seen: Seen::Reported("Cluster API 0.3.13"),
            outcome: "The new Machine stays in phase Provisioned, and no object says why.",
            fixed: None,
            with: &[
                With::Named {
                    check: "api-servers-not-ready",
                    sentence: "does not have this change of the spec yet",
                },
                With::Undone {
                    command: "rollout undo",
                },
            ],
            proof: Proof::Test("on_call::a_component_that_crashes_after_a_change_is_a_failure_of_the_change"),
        },
        Accident {
            references: &[
                "kubernetes-sigs/cluster-api-provider-vsphere#3866",
                "vexxhost/capo-image-elements#47",
                "kubernetes-sigs/cluster-api-provider-ibmcloud#2224",
            ],
            done: "Upgrades to 1.33 with `cloud-provider` among the flags of the API server, as \
                   templates had it for years.",
            seen: KUBERNETES,
            outcome: "kube-apiserver prints `unknown flag: --cloud-provider` and exits, so the new \
                      Machine never joins.",
            fixed: None,
            with: &[With::Denied {
                rule: "component-flag-unknown",
                sentence: "do not know the flag --cloud-provider, and exit at startup; remove \
                           --cloud-provider",
            }],
            proof: Proof::Test("startup::components_do_what_the_rules_say"),
        },
        Accident {
            references: &["kubermatic/kubermatic#13936"],
            done: "Upgrades to 1.31 with a feature gate that an earlier migration of volumes needed.",
            seen: KUBERNETES,
            outcome: "kube-apiserver prints `unrecognized feature gate` and exits, again and again.",
            fixed: None,
            with: &[With::Denied {
                rule: "feature-gate-unknown",
                sentence: "do not know the feature gate",
            }],
            proof: Proof::Test("startup::components_do_what_the_rules_say"),
        },
        Accident {
            references: &["aws/eks-anywhere#9789", "kubernetes/kubeadm#1793"],
            done: "Upgrades to 1.33 with kubeadm's feature gate `EtcdLearnerMode`.",
            seen: Seen::Reported("kubeadm 1.33"),
            outcome: "kubeadm rejects its configuration, so no new Machine joins.",
            fixed: None,
            with: &[With::Denied {
                rule: "kubeadm-feature-gate-unknown",
                sentence: "do not know the feature gate EtcdLearnerMode, and reject the configuration",
            }],
            proof: Proof::Test("rows::the_webhook_that_the_row_names_answers_every_row"),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#1719", "kubernetes/kubernetes#85503"],
            done: "Gives a Node its role with the kubelet's flag `node-labels`.",
            seen: KUBERNETES,
            outcome: "The kubelet prints `unknown 'kubernetes.io' or 'k8s.io' labels` and exits, so \
                      the Machine never gets a Node.",
            fixed: None,
            with: &[With::Denied {
                rule: "kubelet-label-refused",
                sentence: "so the kubelet exits at startup; remove the label here",
            }],
            proof: Proof::Test("startup::components_do_what_the_rules_say"),
        },
        Accident {
            references: &[
                "kubernetes-sigs/image-builder#1866",
                "kubernetes/kubeadm#3281",
                "kubermatic/kubeone#2924",
            ],
            done: "Upgrades with a flag that the kubelet no longer has.",
            seen: KUBERNETES,
            outcome: "The kubelet prints `unknown flag` and exits.",
            fixed: None,
            with: &[With::Denied {
                rule: "component-flag-unknown",
                sentence: "and later do not know the flag",
            }],
            proof: Proof::Test("startup::components_do_what_the_rules_say"),
        },
        Accident {
            references: &["canonical/microk8s#5209", "flatcar/scripts#2916"],
            done: "Upgrades to etcd 3.6 with the flag `enable-v2=false`.",
            seen: ETCD,
            outcome: "etcd prints `flag provided but not defined: -enable-v2` and exits, and with it \
                      the API server of the Machine.",
            fixed: None,
            with: &[With::Denied {
                rule: "component-flag-unknown",
                sentence: "and later do not know the flag",
            }],
            proof: Proof::Test("startup::components_do_what_the_rules_say"),
        },
        Accident {
            references: &["kubermatic/kubermatic#11836", "gardener/gardener#6431"],
            done: "Upgrades to 1.25 with the admission plugin PodSecurityPolicy.",
            seen: KUBERNETES,
            outcome: "kube-apiserver says that the plugin is unknown, and exits.",
            fixed: None,
            with: &[With::Denied {
                rule: "admission-plugin-unknown",
                sentence: "and later do not know this admission plugin, and exit at startup",
            }],
            proof: Proof::Test("startup::components_do_what_the_rules_say"),
        },
        Accident {
            references: &["kubernetes/kubernetes#133574", "kubernetes/kops#15489"],
            done: "Writes an audit policy to each Machine, but gives the API server no volume with it.",
            seen: Seen::Reported("kubeadm"),
            outcome: "The API server runs in a container, does not find the file, and exits.",
            fixed: None,
            with: &[With::Denied {
                rule: "component-file-unmounted",
                sentence: "no volume of kube-apiserver contains this path, so kube-apiserver exits \
                           at startup",
            }],
            proof: Proof::Test("rows::the_webhook_that_the_row_names_answers_every_row"),
        },
        Accident {
            references: &["kubernetes/kubeadm#3240", "kubernetes/kubernetes#135701"],
            done: "Keeps the tag of an etcd image that kubeadm 1.36 no longer supports.",
            seen: Seen::Reported("kubeadm 1.36"),
            outcome: "kubeadm starts etcd with flags that this etcd does not know, and etcd exits.",
            fixed: None,
            with: &[With::Denied {
                rule: "etcd-version-unsupported",
                sentence: "need etcd 3.6.0 or later, and an older etcd does not become ready",
            }],
            proof: Proof::Test("rows::the_webhook_that_the_row_names_answers_every_row"),
        },
        Accident {
            references: &["kubernetes-sigs/cluster-api#5043"],
            done: "Runs etcd until its database is full, and cannot set a higher quota.",
            seen: ETCD,
            outcome: "etcd rejects every write. Cluster API's webhook used to deny a change of \
                      `quota-backend-bytes`.",
            fixed: Some(Fixed {
                release: "a release after August 2021",
                is_tested: false,
            }),
            with: &[
                With::Named {
                    check: "etcd-alarms",
                    sentence: "a database has reached its quota, so etcd rejects writes until the alarm \
                           is disarmed",
                },
                With::Undone {
                    command: "etcd disarm",
                },
            ],
            proof: Proof::Test("etcd_maintenance::a_full_etcd_is_brought_back"),
        },
        Accident {
            references: &[
                "teutonet/teutonet-helm-charts#466",
                "teutonet/teutonet-helm-charts#596",
            ],
            done: "Lets a MachineHealthCheck act on at most 33% of three Machines.",
            seen: CLUSTER_API,
            outcome: "Cluster API rounds down to no Machine, and never replaces one. Nothing shows \
                      this before a Machine fails.",
            fixed: None,
            with: &[With::Named {
                check: "machines-without-health-check",
                sentence: "which Cluster API rounds down to",
            }],
            proof: Proof::Test("overlooked::a_healthy_control_plane_shows_what_is_going_to_hurt"),
        },
        Accident {
            references: &[
                "utilitywarehouse/tf_kube_ignition#205",
                "utilitywarehouse/tf_kube_ignition#207",
            ],
            done: "Moves the loops of a cloud to a cloud-controller-manager in one rollout, without \
                   leader migration.",
            seen: Seen::Reported("Kubernetes 1.27"),
            outcome: "Old and new Machines run the same controllers under different locks during the \
                      rollout.",
            fixed: None,
            with: &[With::Denied {
                rule: "leader-migration-handover-unsafe",
                sentence: "would run twice during the rollout",
            }],
            proof: Proof::Test("rows::the_webhook_that_the_row_names_answers_every_row"),
        },
        Accident {
            references: &["kubernetes/website#32052"],
            done: "Upgrades to 1.36 with leader migration still on, which the documentation of \
                   earlier versions asks for.",
            seen: KUBERNETES,
            outcome: "kube-controller-manager exits at startup, after it has taken both locks.",
            fixed: None,
            with: &[With::Denied {
                rule: "leader-migration-unsupported",
                sentence: "exits at startup if leader migration is enabled, so no controller manager \
                           of this control plane would run",
            }],
            proof: Proof::Test(
                "leader_migration::upgrade::the_upgrade_to_1_36_with_leader_migration_is_denied_and_its_controller_manager_exits",
            ),
        },
    ],
};
