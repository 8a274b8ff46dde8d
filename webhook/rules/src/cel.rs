//! How a rule says in the Common Expression Language what its function says in Rust.
//!
//! An expression is a list of the rule's faults, each a map of two strings: `field`, its path, and `fault`, the message
//! up to the rule's id. It reads `self`, an object of the rule's kind, or `spec` where templates have it too; a rule about
//! a transition reads `object` and `oldObject`. Besides `request` there are `variables.path`, the path of `spec`,
//! `variables.shape` and `variables.featureGates`. What v1beta1 and v1beta2 keep in different places is spelt by
//! [`Shape::spell`].
//!
//! Functions are those of Kubernetes 1.35: <https://kubernetes.io/docs/reference/using-api/cel/>.

use crate::api::control_plane::Shape;

/// A rule in CEL.
#[derive(Clone, Copy, Debug)]
pub enum Cel {
    /// The list of its faults.
    Faults(&'static str),
    /// The same, which holds for a Scale as well: all that it reads of `self` is `spec.replicas`.
    FaultsOfScaleToo(&'static str),
    /// The same, where v1beta1 cannot have the fault.
    FaultsOfV1Beta2(&'static str),
    /// It has none.
    Without(Without),
}

/// Why a rule has no CEL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// An expression sees one object.
    OtherObjects,
    /// It reads a text by a grammar.
    Grammar,
    /// It overlooks what defaults fill in.
    Normalized,
    /// Cluster API fills the field in first.
    Filled,
    /// The definition refuses it first.
    Schema,
    /// It says many different things.
    Length,
}

impl Without {
    /// As a list of rules says it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherObjects => "it looks at other objects, and an expression sees one",
            Self::Grammar => "it reads a text by a grammar that CEL does not know",
            Self::Normalized => "it compares what is left once defaults are taken away",
            Self::Filled => "Cluster API fills the field in before policies are asked",
            Self::Schema => "the definition's schema refuses it before policies are asked",
            Self::Length => "it says more than an expression that can be read",
        }
    }
}

impl Cel {
    /// The expression for objects of a shape, if it has one.
    pub fn faults(self, shape: Shape) -> Option<String> {
        match self {
            Self::FaultsOfV1Beta2(_) if shape == Shape::V1Beta1 => None,
            Self::Faults(text) | Self::FaultsOfScaleToo(text) | Self::FaultsOfV1Beta2(text) => {
                Some(shape.spell(text.trim_end()))
            }
            Self::Without(_) => None,
        }
    }

    /// Why it has none, if it has none.
    pub const fn without(self) -> Option<Without> {
        match self {
            Self::Without(why) => Some(why),
            _ => None,
        }
    }
}

/// A word of an expression, and the path below `spec` that it stands for in each shape.
const WORDS: &[(&str, &str, &str)] = &[
    ("ROLLOUT_STRATEGY", "rolloutStrategy", "rollout.strategy"),
    ("ROLLOUT_BEFORE", "rolloutBefore", "rollout.before"),
    (
        "INFRASTRUCTURE_REF",
        "machineTemplate.infrastructureRef",
        "machineTemplate.spec.infrastructureRef",
    ),
    ("TAINTS", "machineTemplate.taints", "machineTemplate.spec.taints"),
];

impl Shape {
    /// An expression with the shape's own paths: `PATH_OF_TAINTS` becomes the path itself, and `TAINTS` the same with
    /// every step optional.
    pub fn spell(self, expression: &str) -> String {
        WORDS
            .iter()
            .fold(expression.to_owned(), |text, (word, v1beta1, v1beta2)| {
                let path = match self {
                    Self::V1Beta1 => v1beta1,
                    Self::V1Beta2 => v1beta2,
                };
                text.replace(&format!("PATH_OF_{word}"), path)
                    .replace(word, &path.replace('.', ".?"))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_spells_its_own_paths() {
        let text = "spec.?TAINTS == 'PATH_OF_TAINTS'";
        assert_eq!(
            Shape::V1Beta1.spell(text),
            "spec.?machineTemplate.?taints == 'machineTemplate.taints'"
        );
        assert_eq!(
            Shape::V1Beta2.spell(text),
            "spec.?machineTemplate.?spec.?taints == 'machineTemplate.spec.taints'"
        );
    }
}
