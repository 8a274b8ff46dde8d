//! The Common Expression Language (CEL) version of a rule.
//!
//! An expression evaluates to the list of the problems that the rule finds. Each problem is a map of strings: `field` is the
//! path, and `fault` is the message without the rule id. If the message omits a value that may be secret, the map also contains
//! this value as `hidden`. No message shows `hidden`, but two problems with different hidden values count as different problems.
//!
//! An expression of an object rule reads `self`, which is an object of the rule's kind, or `spec` if control planes and templates
//! share the field. An expression of a transition rule reads `object` and `oldObject`. The other variables are `request`,
//! `variables.path` (the path of `spec`), `variables.shape` and `variables.featureGates`. `expand` replaces two kinds of
//! placeholders: fields whose path differs between v1beta1 and v1beta2, and flags of components, which are a map in v1beta1 and a
//! list in v1beta2. All values of a map must have one type, because Kubernetes rejects other maps.
//!
//! The available functions are those of Kubernetes 1.35: <https://kubernetes.io/docs/reference/using-api/cel/>.

use crate::api::control_plane::Shape;

/// The CEL version of a rule.
#[derive(Clone, Copy, Debug)]
pub enum Cel {
    /// A CEL expression for the list of the problems.
    Faults(&'static str),
    /// A CEL expression that also applies to a Scale, because it reads only `spec.replicas` of `self`.
    FaultsAlsoForScale(&'static str),
    /// A CEL expression for control planes alone. The rule denies these and only warns about templates, which have no
    /// version.
    FaultsOfControlPlanes(&'static str),
    /// A CEL expression for a problem that v1beta1 objects cannot have.
    FaultsOnlyInV1Beta2(&'static str),
    /// A CEL expression for a problem that v1beta2 objects cannot have.
    FaultsOnlyInV1Beta1(&'static str),
    /// The rule has no CEL version.
    None(NoCel),
}

/// Why a rule has no CEL version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCel {
    OtherObjects,
    Grammar,
    Normalized,
    DefaultedFirst,
    SchemaFirst,
    TooLong,
    Writer,
}

impl NoCel {
    /// The reason as text for lists of rules.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherObjects => {
                "the rule reads other objects, but a CEL expression sees only the object of the write"
            }
            Self::Grammar => "the rule needs a parser that CEL does not have",
            Self::Normalized => "the rule compares objects without their default values",
            Self::DefaultedFirst => {
                "Cluster API sets the default before policies run, so a policy never sees an omitted field"
            }
            Self::SchemaFirst => "the CRD schema rejects the object before policies run",
            Self::Writer => {
                "the rule exempts the controllers that the configuration of kcp-webhook names, and a policy does not know them"
            }
            Self::TooLong => "the expression would be too long to read",
        }
    }
}

impl Cel {
    /// The CEL expression for objects of this shape; `None` if the rule has none.
    pub fn expression(self, shape: Shape) -> Option<String> {
        match self {
            Self::FaultsOnlyInV1Beta2(_) if shape == Shape::V1Beta1 => None,
            Self::FaultsOnlyInV1Beta1(_) if shape == Shape::V1Beta2 => None,
            Self::Faults(text)
            | Self::FaultsAlsoForScale(text)
            | Self::FaultsOfControlPlanes(text)
            | Self::FaultsOnlyInV1Beta2(text)
            | Self::FaultsOnlyInV1Beta1(text) => Some(expand(shape, text.trim_end())),
            Self::None(_) => None,
        }
    }

    /// Why the rule has no CEL version; `None` if it has one.
    pub const fn no_cel(self) -> Option<NoCel> {
        match self {
            Self::None(reason) => Some(reason),
            _ => None,
        }
    }
}

/// Placeholders in CEL expressions, and their paths below `spec` in v1beta1 and v1beta2.
const PLACEHOLDERS: &[(&str, &str, &str)] = &[
    ("ROLLOUT_STRATEGY", "rolloutStrategy", "rollout.strategy"),
    ("ROLLOUT_BEFORE", "rolloutBefore", "rollout.before"),
    (
        "INFRASTRUCTURE_REF",
        "machineTemplate.infrastructureRef",
        "machineTemplate.spec.infrastructureRef",
    ),
    ("REMEDIATION", "remediationStrategy", "remediation"),
    ("TAINTS", "machineTemplate.taints", "machineTemplate.spec.taints"),
];

/// Placeholders in CEL expressions for the flags of a component, and their paths below `spec.kubeadmConfigSpec`.
const FLAGS: &[(&str, &str)] = &[
    (
        "CONTROLLER_MANAGER_FLAGS",
        "clusterConfiguration.controllerManager.extraArgs",
    ),
    (
        "INIT_KUBELET_FLAGS",
        "initConfiguration.nodeRegistration.kubeletExtraArgs",
    ),
    (
        "JOIN_KUBELET_FLAGS",
        "joinConfiguration.nodeRegistration.kubeletExtraArgs",
    ),
];

/// A placeholder in CEL expressions for the leader migration configuration of kube-controller-manager. It becomes a list with one
/// map, or an empty list if leader migration is off. The map has the `path` of the flag and its `value`. It also has the path of
/// the file on the host as `host`, which is empty if no volume contains the file.
const LEADER_MIGRATION_FILE: (&str, &str) = (
    "LEADER_MIGRATION_FILE",
    include_str!("topics/cel/leader-migration-file.cel"),
);

/// CEL for a list of flags. Each is a map of its `name`, in which underscores are dashes, its `value`, and the `path` of the
/// value below `spec.kubeadmConfigSpec`.
fn flags(shape: Shape, path: &str) -> String {
    let optional = path.replace('.', ".?");
    match shape {
        Shape::V1Beta1 => format!(
            "spec.?kubeadmConfigSpec.?{optional}.orValue({{}}).transformList(name, value, {{'name': name.replace('_', '-'), \
             'value': string(value), 'path': '{path}[' + name + ']'}})"
        ),
        Shape::V1Beta2 => format!(
            "spec.?kubeadmConfigSpec.?{optional}.orValue([]).transformList(index, flag, {{'name': flag.name.replace('_', \
             '-'), 'value': string(flag.?value.orValue('')), 'path': '{path}[' + string(index) + '].value'}})"
        ),
    }
}

/// Replaces the placeholders of an expression: `PATH_OF_TAINTS` becomes the path of the taints, and
/// `TAINTS` the same path with every step optional. A placeholder for flags becomes a list of these
/// flags.
fn expand(shape: Shape, expression: &str) -> String {
    let (placeholder, file) = LEADER_MIGRATION_FILE;
    let expression = expression.replace(placeholder, file.trim_end());
    let expression = FLAGS.iter().fold(expression, |text, (placeholder, path)| {
        text.replace(placeholder, &flags(shape, path))
    });
    PLACEHOLDERS
        .iter()
        .fold(expression, |text, (placeholder, v1beta1, v1beta2)| {
            let path = match shape {
                Shape::V1Beta1 => v1beta1,
                Shape::V1Beta2 => v1beta2,
            };
            text.replace(&format!("PATH_OF_{placeholder}"), path)
                .replace(placeholder, &path.replace('.', ".?"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_the_paths_of_the_shape() {
        let text = "spec.?TAINTS == 'PATH_OF_TAINTS'";
        assert_eq!(
            expand(Shape::V1Beta1, text),
            "spec.?machineTemplate.?taints == 'machineTemplate.taints'"
        );
        assert_eq!(
            expand(Shape::V1Beta2, text),
            "spec.?machineTemplate.?spec.?taints == 'machineTemplate.spec.taints'"
        );
    }

    #[test]
    fn flags_are_lists_in_both_shapes() {
        assert_eq!(
            expand(Shape::V1Beta1, "JOIN_KUBELET_FLAGS"),
            "spec.?kubeadmConfigSpec.?joinConfiguration.?nodeRegistration.?kubeletExtraArgs.orValue({}).transformList(name, \
             value, {'name': name.replace('_', '-'), 'value': string(value), 'path': \
             'joinConfiguration.nodeRegistration.kubeletExtraArgs[' + name + ']'})"
        );
        assert_eq!(
            expand(Shape::V1Beta2, "JOIN_KUBELET_FLAGS"),
            "spec.?kubeadmConfigSpec.?joinConfiguration.?nodeRegistration.?kubeletExtraArgs.orValue([]).transformList(index, \
             flag, {'name': flag.name.replace('_', '-'), 'value': string(flag.?value.orValue('')), 'path': \
             'joinConfiguration.nodeRegistration.kubeletExtraArgs[' + string(index) + '].value'})"
        );
    }
}
