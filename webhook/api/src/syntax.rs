//! Kubernetes' syntax of versions, names, label keys and label values (k8s.io/apimachinery, `pkg/api/validate/content`), and
//! of durations.

use std::time::Duration;

use semver::Version;

/// Parses a Kubernetes version, with or without the leading `v`.
pub fn parse_version(version: &str) -> Result<Version, semver::Error> {
    Version::parse(version.strip_prefix('v').unwrap_or(version))
}

/// Whether the name is an RFC 1123 subdomain, as most object names must be: labels of lowercase letters, digits and `-`,
/// separated by dots, each of which begins and ends with a letter or digit; at most 253 bytes.
pub fn is_dns1123_subdomain(name: &[u8]) -> bool {
    name.len() <= 253 && name.split(|byte| *byte == b'.').all(is_label_of_any_length)
}

/// Whether the name is an RFC 1123 label, as names of namespaces must be: a subdomain without dots, of at most 63 bytes.
pub fn is_dns1123_label(name: &[u8]) -> bool {
    name.len() <= 63 && is_label_of_any_length(name)
}

fn is_label_of_any_length(label: &[u8]) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    label.first().is_some_and(is_alphanumeric)
        && label.last().is_some_and(is_alphanumeric)
        && label.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
}

/// What is wrong with the key of a label, an annotation or a taint; `None` if it is valid. A key is a name, with an
/// optional subdomain and `/` before it.
pub fn key_fault(key: &str) -> Option<&'static str> {
    let name = match key.split_once('/') {
        Some((prefix, _)) if !is_dns1123_subdomain(prefix.as_bytes()) => {
            return Some("the part of the key before the slash is not a DNS subdomain");
        }
        Some((_, name)) => name,
        None => key,
    };
    match name.len() {
        0 => Some("the name part of the key is empty"),
        _ if name.contains('/') => Some("a key must have at most one slash"),
        1..=63 if is_name_part(name) => None,
        1..=63 => Some(
            "a key must contain only letters, digits, '-', '_' and '.', and begin and end with a letter or digit",
        ),
        _ => Some("the name part of a key must have at most 63 characters"),
    }
}

/// The keys in Kubernetes' domains that Kubernetes lets a kubelet set, besides the keys in [`KUBELET_DOMAINS`].
const KUBELET_KEYS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

const KUBELET_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Whether Kubernetes lets a kubelet set the label when it registers its Node (`--node-labels`). The lists are those of
/// Kubernetes v1.37 (`pkg/kubelet/apis/well_known_labels.go`).
pub fn may_kubelet_set(key: &str) -> bool {
    let is_in = |domain: &&str| is_in_domain(key, domain);
    !["kubernetes.io", "k8s.io"].iter().any(is_in)
        || KUBELET_KEYS.contains(&key)
        || KUBELET_DOMAINS.iter().any(is_in)
}

/// Whether a key is in a domain or in one of its subdomains.
pub fn is_in_domain(key: &str, parent: &str) -> bool {
    let domain = key.split_once('/').map(|(domain, _)| domain);
    let rest = domain.and_then(|domain| domain.strip_suffix(parent));
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// What is wrong with the value of a label; `None` if it is valid.
pub fn label_value_fault(value: &str) -> Option<&'static str> {
    match value.len() {
        0 => None,
        1..=63 if is_name_part(value) => None,
        1..=63 => Some(
            "a label value must contain only letters, digits, '-', '_' and '.', and begin and end with a letter or \
             digit",
        ),
        _ => Some("a label value must have at most 63 characters"),
    }
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Parses a duration such as `1h30m`, `2.5s` or `300ms`, with the units of Go's `time.ParseDuration`. As in Go, only `0` needs no
/// unit.
pub fn parse_go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, after) = after.split_at(
            after
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(after.len()),
        );
        let unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()?;
        total = total.checked_add(part)?;
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_sets_few_labels_of_kubernetes() {
        for (key, expected) in [
            ("rack", true),
            ("example.com/rack", true),
            ("node.cluster.x-k8s.io/a", true),
            ("node.kubernetes.io/a", true),
            ("a.kubelet.kubernetes.io/a", true),
            ("topology.kubernetes.io/zone", true),
            ("kubernetes.io/hostname", true),
            ("node-role.kubernetes.io/worker", false),
            ("node-restriction.kubernetes.io/a", false),
            ("kubernetes.io/a", false),
            ("a.k8s.io/a", false),
        ] {
            assert_eq!(may_kubelet_set(key), expected, "{key}");
        }
    }

    #[test]
    fn accepts_subdomains() {
        for name in ["a", "a.b-c.d1", "1", &"a".repeat(253)] {
            assert!(is_dns1123_subdomain(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn rejects_other_names() {
        for name in [
            "",
            "A",
            "a.",
            ".a",
            "a..b",
            "-a",
            "a-",
            "a_b",
            "ä",
            &"a".repeat(254),
        ] {
            assert!(!is_dns1123_subdomain(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn accepts_and_rejects_labels() {
        for name in ["a", "a-1", "1", &"a".repeat(63)] {
            assert!(is_dns1123_label(name.as_bytes()), "{name}");
        }
        for name in ["", "A", "a.b", "-a", "a-", "..", &"a".repeat(64)] {
            assert!(!is_dns1123_label(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn accepts_and_rejects_keys() {
        for key in ["a", "A_b.c-d", "example.com/Name", &"a".repeat(63)] {
            assert_eq!(key_fault(key), None, "{key}");
        }
        for key in [
            "",
            "/a",
            "a/",
            "a/b/c",
            "Example.com/a",
            "a b",
            "-a",
            "a.",
            &"a".repeat(64),
        ] {
            assert!(key_fault(key).is_some(), "{key}");
        }
    }

    #[test]
    fn accepts_and_rejects_label_values() {
        for value in ["", "a", "A_b.c-d"] {
            assert_eq!(label_value_fault(value), None, "{value}");
        }
        for value in ["a/b", "-a", "a b", &"a".repeat(64)] {
            assert!(label_value_fault(value).is_some(), "{value}");
        }
    }
}
