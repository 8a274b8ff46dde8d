//! The names of the object under review, safe to use in paths and selectors.

use serde_json::Value;

use super::read_error::ReadError;
use crate::limits::MAX_NAME_CHARS;

/// The names of the object under review. All are valid Kubernetes names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The name of the Cluster that the object belongs to; `None` for Hive's kinds, or if the Cluster is unknown.
    pub(super) cluster: Option<String>,
    /// The namespace and name of the customization to which a `ClusterDeployment` refers.
    pub(super) customization: Option<(String, String)>,
    /// The `spec` of the `SubjectAccessReview` that says whether the user may override rules for the object.
    pub(crate) override_access: Value,
}

impl Subject {
    /// Returns `None` if a name is not a valid Kubernetes name, because a review can contain any text.
    pub(crate) fn new(namespace: &str, name: &str, cluster: Option<&str>) -> Option<Self> {
        // The name is empty if the API server will generate it. No rule then uses it to look for other objects.
        let given_name = Some(name).filter(|name| !name.is_empty());
        let valid = [Some(namespace), given_name, cluster]
            .into_iter()
            .flatten()
            .all(is_path_segment);
        valid.then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cluster: cluster.map(str::to_owned),
            customization: None,
            override_access: Value::Null,
        })
    }

    /// Adds the customization to which the object refers, by namespace and name. Returns `None` if the namespace or the
    /// name is not a valid Kubernetes name.
    pub(crate) fn with_customization(self, customization: Option<(&str, &str)>) -> Option<Self> {
        let valid =
            customization.is_none_or(|(namespace, name)| is_path_segment(namespace) && is_path_segment(name));
        valid.then(|| Self {
            customization: customization.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            ..self
        })
    }

    pub(super) fn cluster(&self) -> Result<&str, ReadError> {
        self.cluster.as_deref().ok_or(ReadError::ClusterUnknown)
    }
}

/// Whether `text` is a DNS subdomain (RFC 1123). Such a name is never `..` and never contains a slash.
pub(super) fn is_path_segment(text: &str) -> bool {
    text.len() <= MAX_NAME_CHARS
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::Subject;

    #[test]
    fn rejects_names_that_would_change_the_path() {
        for name in ["c?watch=1#", "..", "../secrets", "a/b", "A", "a,b=c"] {
            assert_eq!(Subject::new("prod", "cp", Some(name)), None, "{name}");
            assert_eq!(Subject::new("prod", name, None), None, "{name}");
            assert_eq!(Subject::new(name, "cp", None), None, "{name}");
            for customization in [("prod", name), (name, "a")] {
                let subject = Subject::new("prod", "cp", None).unwrap();
                assert_eq!(subject.with_customization(Some(customization)), None, "{name}");
            }
        }
        assert!(Subject::new("prod", "", None).is_some());
    }
}
