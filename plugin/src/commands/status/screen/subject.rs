//! Finds the Machine or other object that a finding or a blocker is about.

const CONTROL_PLANE: &str = "KubeadmControlPlane/";
const MACHINE: &str = "Machine/";

/// The object that a finding is about: the only Machine among its objects, or the only object. `None` if the control
/// plane is among the objects, or if several objects are possible.
pub(super) fn subject(objects: &[String]) -> Option<&str> {
    if names_control_plane(objects) {
        return None;
    }
    let mut machines = objects.iter().filter(|object| object.starts_with(MACHINE));
    match (machines.next(), machines.next(), objects) {
        (Some(machine), None, _) => Some(machine),
        (None, _, [only]) => Some(only),
        _ => None,
    }
}

/// Whether the control plane itself is among the objects. If it is, the finding is about the control plane, and the other
/// objects cause the problem.
pub(super) fn names_control_plane(objects: &[String]) -> bool {
    objects.iter().any(|object| object.starts_with(CONTROL_PLANE))
}

/// The objects to name in a finding: the control plane if it is among the objects, or else the subject of the
/// finding, or else all objects.
pub(in crate::commands) fn subjects(objects: &[String]) -> Vec<&str> {
    let whole = objects.iter().find(|object| object.starts_with(CONTROL_PLANE));
    match whole.map(String::as_str).or_else(|| subject(objects)) {
        Some(subject) => vec![subject],
        None => objects.iter().map(String::as_str).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{subject, subjects};

    #[test]
    fn finds_the_subject_of_a_finding() {
        for (objects, expected, shown) in [
            ("EtcdMember/n1 Machine/m1", Some("Machine/m1"), "Machine/m1"),
            ("Machine/m1 Node/n1", Some("Machine/m1"), "Machine/m1"),
            ("Node/n1", Some("Node/n1"), "Node/n1"),
            (
                "KubeadmControlPlane/c1 Machine/m1",
                None,
                "KubeadmControlPlane/c1",
            ),
            (
                "Cluster/c1 KubeadmControlPlane/c1",
                None,
                "KubeadmControlPlane/c1",
            ),
            ("KubeadmControlPlane/c1", None, "KubeadmControlPlane/c1"),
            ("Machine/m1 Machine/m2", None, "Machine/m1 Machine/m2"),
            ("Node/n1 Node/n2", None, "Node/n1 Node/n2"),
            ("", None, ""),
        ] {
            let objects: Vec<String> = objects.split_whitespace().map(str::to_owned).collect();
            assert_eq!(subject(&objects), expected, "{objects:?}");
            assert_eq!(subjects(&objects).join(" "), shown, "{objects:?}");
        }
    }
}
