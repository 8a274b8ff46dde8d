//! Pools of clusters.

use super::{Accident, Proof, Seen, Topic, With};

pub(crate) const TOPIC: Topic = Topic {
    title: "Pools and Hive",
    accidents: &[
        Accident {
            references: &["openshift/release#32783"],
            done: "Installs a second operator, whose older ClusterPool CRD has no inventory.",
            seen: Seen::With("Hive's definitions"),
            outcome: "The API server drops the inventory without a word. Hive then creates clusters \
                      without their names and addresses.",
            fixed: None,
            with: &[With::Said {
                command: "pool status",
                sentence: "the manifest that was last applied has an inventory",
            }],
            proof: Proof::Test("pool_sources::an_inventory_that_an_old_definition_drops_is_reported"),
        },
        Accident {
            references: &[
                "openshift/release#26329",
                "openshift/release#27519",
                "openshift/hive#1666",
            ],
            done: "Runs a pool of hibernating clusters, of which the oldest cannot resume.",
            seen: Seen::Reported("Hive"),
            outcome: "Hive gives it to the next claim again and again, and without a timeout never \
                      replaces it. All claims wait.",
            fixed: None,
            with: &[
                With::Warned {
                    rule: "resume-timeout-missing",
                    sentence: "and without a timeout, Hive never replaces a cluster that cannot resume",
                },
                With::Said {
                    command: "pool status",
                    sentence: "Hive never replaces the cluster; set it, or delete the ClusterDeployment",
                },
            ],
            proof: Proof::Test("pool_sources::a_cluster_that_does_not_resume_is_a_problem_while_claims_wait"),
        },
        Accident {
            references: &["openshift/hive#1434"],
            done: "Changes what a pool installs while it has clusters that nobody has claimed.",
            seen: Seen::Reported("Hive"),
            outcome: "The clusters that were created before stay as they were, and a claim gets one \
                      of them.",
            fixed: None,
            with: &[
                With::Warned {
                    rule: "pool-version-changed",
                    sentence: "unclaimed clusters stale, so Hive replaces them",
                },
                With::Said {
                    command: "pool status",
                    sentence: "and the cluster's install-config differs from the one that Hive would create now",
                },
            ],
            proof: Proof::Test("pool_sources::clusters_that_are_older_than_the_template_are_reported"),
        },
    ],
};
