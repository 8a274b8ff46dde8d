//! Accepted and rejected examples of each rule. The cases of a topic are in the file with its name.

mod certificates;
mod component_files;
mod component_flags;
mod component_names;
mod control_plane_ref;
mod controller_manager;
mod coredns;
mod customization;
mod customization_holder;
mod customization_lease;
mod deletion;
mod disk_setup;
mod etcd;
mod extra_args;
mod files;
mod hive_names;
mod ignition;
mod images;
mod immutability;
mod infrastructure;
mod init_and_join;
mod inventory;
mod joining;
mod leader_migration;
mod leader_migration_change;
mod leader_migration_upgrade;
mod machine_metadata;
mod manifest_glob;
mod naming;
mod pool_change;
mod pool_reference;
mod pool_spec;
mod remediation;
mod replicas;
mod rollout;
mod scale_with_upgrade;
mod taints;
mod template;
mod topology;
mod users;
mod version;

use crate::{testing::case::Case, topics::Topic};

/// The cases of each topic, by its name, in the order of [`crate::topics::TOPICS`].
static CASES: &[(&str, &[Case])] = &[
    ("replicas", replicas::CASES),
    ("version", version::CASES),
    ("rollout", rollout::CASES),
    ("scale-with-upgrade", scale_with_upgrade::CASES),
    ("joining", joining::CASES),
    ("remediation", remediation::CASES),
    ("topology", topology::CASES),
    ("deletion", deletion::CASES),
    ("control-plane-ref", control_plane_ref::CASES),
    ("immutability", immutability::CASES),
    ("template", template::CASES),
    ("etcd", etcd::CASES),
    ("images", images::CASES),
    ("coredns", coredns::CASES),
    ("certificates", certificates::CASES),
    ("init-and-join", init_and_join::CASES),
    ("extra-args", extra_args::CASES),
    ("component-flags", component_flags::CASES),
    ("component-files", component_files::CASES),
    ("component-names", component_names::CASES),
    ("controller-manager", controller_manager::CASES),
    ("leader-migration", leader_migration::CASES),
    ("leader-migration-change", leader_migration_change::CASES),
    ("leader-migration-upgrade", leader_migration_upgrade::CASES),
    ("files", files::CASES),
    ("users", users::CASES),
    ("disk-setup", disk_setup::CASES),
    ("ignition", ignition::CASES),
    ("infrastructure", infrastructure::CASES),
    ("machine-metadata", machine_metadata::CASES),
    ("taints", taints::CASES),
    ("naming", naming::CASES),
    ("hive-names", hive_names::CASES),
    ("pool-spec", pool_spec::CASES),
    ("inventory", inventory::CASES),
    ("pool-change", pool_change::CASES),
    ("customization", customization::CASES),
    ("manifest-glob", manifest_glob::CASES),
    ("customization-lease", customization_lease::CASES),
    ("customization-holder", customization_holder::CASES),
    ("pool-reference", pool_reference::CASES),
];

/// The cases of a topic.
pub fn cases_of(topic: &Topic) -> &'static [Case] {
    let cases = CASES.iter().find(|(name, _)| *name == topic.name);
    cases.map_or(&[], |(_, cases)| cases)
}

/// The cases of all topics.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().flat_map(|(_, cases)| *cases)
}

/// The cases that write the object itself. Tests can send only these to an API server.
pub fn written_cases() -> impl Iterator<Item = &'static Case> {
    cases().filter(|case| !case.in_topology)
}

#[cfg(test)]
mod tests {
    use super::CASES;
    use crate::topics::TOPICS;

    #[test]
    fn every_topic_has_cases() {
        let with_cases: Vec<_> = CASES.iter().map(|(name, _)| *name).collect();
        let topics: Vec<_> = TOPICS.iter().map(|topic| topic.name).collect();
        assert_eq!(with_cases, topics);
        assert!(CASES.iter().all(|(_, cases)| !cases.is_empty()));
    }
}
