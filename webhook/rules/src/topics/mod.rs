//! Every rule, by topic. A topic is one file: its rules as a table, their functions, and a table of cases.

pub mod control_plane_ref;
pub mod customization;
pub mod deletion;
pub mod etcd;
pub mod immutability;
pub mod inventory;
pub mod replicas;
pub mod rollout;
pub mod scale_with_upgrade;
pub mod version;

use crate::{case::Case, rule::Rule};

/// A topic: rules that are read together.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// The topic's name.
    pub name: &'static str,
    /// Its rules, in the order that findings are reported in.
    pub rules: &'static [Rule],
    /// Accepted and rejected examples.
    pub cases: &'static [Case],
}

/// The contents page. Its order is the order of findings.
pub static TOPICS: &[Topic] = &[
    replicas::TOPIC,
    version::TOPIC,
    rollout::TOPIC,
    scale_with_upgrade::TOPIC,
    deletion::TOPIC,
    control_plane_ref::TOPIC,
    immutability::TOPIC,
    etcd::TOPIC,
    inventory::TOPIC,
    customization::TOPIC,
];

/// All rules, in table order.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    TOPICS.iter().flat_map(|topic| topic.rules)
}
