//! Names of objects as kubectl takes them: `NAME` or `KIND/NAME`.

/// What a `KubeadmControlPlane` may be called before the slash. Cluster API gives it the short name `kcp`.
const CONTROL_PLANE_KINDS: &[&str] = &["kcp", "kubeadmcontrolplane", "kubeadmcontrolplanes"];

/// Parses the name of a control plane: `NAME`, `kcp/NAME`, `kubeadmcontrolplane/NAME`, the group after a dot or not.
///
/// # Errors
/// One sentence on what is wrong.
pub fn parse_name(text: &str) -> Result<String, String> {
    let name = match text.split_once('/') {
        None => text,
        Some((kind, name)) => {
            let kind = kind.to_ascii_lowercase();
            let plain = kind
                .strip_suffix(".controlplane.cluster.x-k8s.io")
                .unwrap_or(&kind);
            if !CONTROL_PLANE_KINDS.contains(&plain) {
                return Err(format!("{kind} is not a control plane: write NAME or kcp/NAME"));
            }
            name
        }
    };
    let valid = !name.is_empty()
        && name.len() <= 253
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.');
    if valid {
        Ok(name.to_owned())
    } else {
        Err("a name has lower case letters, digits, '-' and '.'".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::parse_name;

    #[test]
    fn accepts_a_name_with_or_without_its_kind() {
        for text in [
            "c1-cp",
            "kcp/c1-cp",
            "kubeadmcontrolplane/c1-cp",
            "KubeadmControlPlane/c1-cp",
            "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io/c1-cp",
        ] {
            assert_eq!(parse_name(text).as_deref(), Ok("c1-cp"), "{text}");
        }
    }

    #[test]
    fn rejects_other_kinds_and_impossible_names() {
        for text in [
            "pod/c1",
            "kcp/",
            "",
            "a/b/c",
            "C1",
            "c1?x=y",
            "../c1",
            "c1\u{1b}[31m",
        ] {
            assert!(parse_name(text).is_err(), "{text}");
        }
    }
}
