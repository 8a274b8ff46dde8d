//! The object that is judged, and what goes into paths and selectors.

use super::ReadError;
use crate::limits::NAME_CHARS;

/// The object that is judged. Its names are put into paths and selectors, and are what Kubernetes allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The Cluster it belongs to, for Cluster API's kinds.
    pub(super) cluster: Option<String>,
}

impl Subject {
    /// None when a name is none that Kubernetes allows: the review's body says what it likes.
    pub(crate) fn new(namespace: &str, name: &str, cluster: Option<&str>) -> Option<Self> {
        // A name that is yet to be generated is empty, and no rule looks for what goes with it.
        let name_given = Some(name).filter(|name| !name.is_empty());
        let allowed = [Some(namespace), name_given, cluster]
            .into_iter()
            .flatten()
            .all(is_path_segment);
        allowed.then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cluster: cluster.map(str::to_owned),
        })
    }

    pub(super) fn cluster(&self) -> Result<&str, ReadError> {
        self.cluster.as_deref().ok_or(ReadError::ClusterUnknown)
    }
}

/// What a DNS subdomain is made of (RFC 1123), and so never `..` nor anything that ends a path's segment.
pub(super) fn is_path_segment(text: &str) -> bool {
    text.len() <= NAME_CHARS
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::Subject;

    #[test]
    fn names_that_would_leave_the_path_are_refused() {
        for name in ["c?watch=1#", "..", "../secrets", "a/b", "A", "a,b=c"] {
            assert_eq!(Subject::new("prod", "cp", Some(name)), None, "{name}");
            assert_eq!(Subject::new("prod", name, None), None, "{name}");
            assert_eq!(Subject::new(name, "cp", None), None, "{name}");
        }
        assert!(Subject::new("prod", "", None).is_some());
    }
}
