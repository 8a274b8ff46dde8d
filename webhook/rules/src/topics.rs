//! Every rule, by topic. A topic is one file with a table of rules and their functions. The topic [`component_flags`] also
//! has a folder with the checks that its functions apply. The cases of a topic are in `testing/cases`.

pub mod certificates;
pub mod component_files;
pub mod component_flags;
pub mod component_names;
pub mod control_plane_ref;
pub mod controller_manager;
pub mod controller_managers;
pub mod coredns;
pub mod customization;
pub mod customization_holder;
pub mod customization_lease;
pub mod deletion;
pub mod disk_setup;
pub mod etcd;
pub mod extra_args;
pub mod files;
pub mod hive_names;
pub mod ignition;
pub mod images;
pub mod immutability;
pub mod infrastructure;
pub mod init_and_join;
pub mod inventory;
pub mod joining;
pub mod leader_migration;
pub mod leader_migration_change;
pub mod leader_migration_upgrade;
pub mod machine_metadata;
pub mod manifest_glob;
pub mod naming;
pub mod pool_change;
pub mod pool_reference;
pub mod pool_spec;
pub mod remediation;
pub mod replicas;
pub mod rollout;
pub mod scale_with_upgrade;
pub mod static_pods;
pub mod taints;
pub mod template;
pub mod topology;
pub mod users;
pub mod version;

use crate::rule::Rule;

/// A group of related rules.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// The name of the topic in kebab-case.
    pub name: &'static str,
    /// The rules of the topic, in the order in which findings are reported.
    pub rules: &'static [Rule],
}

/// All topics, in the order in which findings are reported.
pub static TOPICS: &[Topic] = &[
    replicas::TOPIC,
    version::TOPIC,
    rollout::TOPIC,
    scale_with_upgrade::TOPIC,
    joining::TOPIC,
    remediation::TOPIC,
    topology::TOPIC,
    deletion::TOPIC,
    control_plane_ref::TOPIC,
    immutability::TOPIC,
    template::TOPIC,
    etcd::TOPIC,
    images::TOPIC,
    coredns::TOPIC,
    certificates::TOPIC,
    init_and_join::TOPIC,
    extra_args::TOPIC,
    component_flags::TOPIC,
    component_files::TOPIC,
    component_names::TOPIC,
    controller_manager::TOPIC,
    leader_migration::TOPIC,
    leader_migration_change::TOPIC,
    leader_migration_upgrade::TOPIC,
    files::TOPIC,
    users::TOPIC,
    disk_setup::TOPIC,
    ignition::TOPIC,
    infrastructure::TOPIC,
    machine_metadata::TOPIC,
    taints::TOPIC,
    naming::TOPIC,
    hive_names::TOPIC,
    pool_spec::TOPIC,
    inventory::TOPIC,
    pool_change::TOPIC,
    customization::TOPIC,
    manifest_glob::TOPIC,
    customization_lease::TOPIC,
    customization_holder::TOPIC,
    pool_reference::TOPIC,
];

/// All rules, in the order in which findings are reported.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    TOPICS.iter().flat_map(|topic| topic.rules)
}

/// Whether a rule has this id.
pub fn is_rule(id: &str) -> bool {
    rules().any(|rule| rule.id == id)
}

/// Rule ids that are similar to a mistyped one, most similar first.
pub fn similar_rule_ids(id: &str) -> Vec<&'static str> {
    similar(id, rules().map(|rule| rule.id))
}

/// The names that are similar to a mistyped one, most similar first.
pub fn similar<'n>(mistyped: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    const MAX_SUGGESTIONS: usize = 3;
    /// The minimum similarity of a suggestion, the same that clap uses for flags.
    const MIN_SIMILARITY: f64 = 0.7;
    let mut similar: Vec<_> = names
        .into_iter()
        .map(|name| {
            let contains = !mistyped.is_empty() && name.contains(mistyped);
            ((contains, strsim::jaro_winkler(name, mistyped)), name)
        })
        .filter(|((contains, similarity), _)| *contains || *similarity > MIN_SIMILARITY)
        .collect();
    // Put names that contain the text first.
    similar.sort_by(|((of_one, one), _), ((of_other, other), _)| {
        of_other.cmp(of_one).then(other.total_cmp(one))
    });
    similar
        .into_iter()
        .take(MAX_SUGGESTIONS)
        .map(|(_, name)| name)
        .collect()
}

/// The name that was probably meant: at most two letters, and at most a third of all, are wrong, missing, extra or swapped.
pub fn misspelled<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    const MAX_FAULTS: usize = 2;
    let written = written.to_lowercase();
    let max = MAX_FAULTS.min(written.len() / 3);
    let faults = names
        .into_iter()
        .map(|name| (strsim::osa_distance(&name.to_lowercase(), &written), name));
    let nearest = faults.filter(|(faults, _)| *faults <= max).min();
    nearest.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::{misspelled, similar_rule_ids};

    #[test]
    fn finds_the_name_that_was_meant() {
        let kinds = ["Machine", "MachineSet", "KubeadmControlPlane"];
        for (written, meant) in [
            ("kubeadmcontrolplane", Some("KubeadmControlPlane")),
            ("KubeadmControlPlanes", Some("KubeadmControlPlane")),
            ("KubaedmControlPlane", Some("KubeadmControlPlane")),
            ("Machines", Some("Machine")),
            ("MachinSet", Some("MachineSet")),
            ("KThreesControlPlane", None),
            ("Set", None),
            ("", None),
        ] {
            assert_eq!(misspelled(written, kinds), meant, "{written}");
        }
    }

    #[test]
    fn wrong_ids_suggest_similar_ones() {
        for (id, suggested) in [
            (
                "replica-even",
                &["replicas-even", "replicas-above-seven", "replicas-dropped"][..],
            ),
            (
                "max-surge",
                &["max-surge-unsupported", "max-surge-zero-below-three"],
            ),
            (
                "inventory",
                &["inventory-empty", "inventory-shared", "inventory-duplicate"],
            ),
            (
                "even",
                &["replicas-even", "replicas-above-seven", "etcd-version-lowered"],
            ),
            ("zzz", &[]),
        ] {
            assert_eq!(similar_rule_ids(id), suggested, "{id}");
        }
    }
}
