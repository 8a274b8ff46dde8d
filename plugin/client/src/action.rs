//! Describes a request to a cluster, for error messages.

use std::fmt;

use kube::core::ApiResource;

/// A request as RBAC describes it: verb, resource, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The verb: `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
    /// The resource, its subresource if any, and its group, such as `machines.cluster.x-k8s.io` or
    /// `machines/status.cluster.x-k8s.io`. For a non-resource URL, its path.
    pub resource: String,
    /// The namespace. `None` for all namespaces.
    pub namespace: Option<String>,
    /// The name of the object. `None` for a collection of objects.
    pub name: Option<String>,
}

impl Action {
    /// Describes a request for a resource in all namespaces, unless [`Action::in_namespace`] is called.
    pub fn new(verb: &'static str, resource: &ApiResource) -> Self {
        let resource = if resource.group.is_empty() {
            resource.plural.clone()
        } else {
            format!("{}.{}", resource.plural, resource.group)
        };
        Self {
            verb,
            resource,
            namespace: None,
            name: None,
        }
    }

    /// Describes a request for a non-resource URL, such as `/apis`.
    pub fn path(verb: &'static str, path: &str) -> Self {
        Self {
            verb,
            resource: path.to_owned(),
            namespace: None,
            name: None,
        }
    }

    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Like [`Action::in_namespace`]. `None` is for a cluster-scoped kind.
    pub fn within(mut self, namespace: Option<&str>) -> Self {
        self.namespace = namespace.map(str::to_owned);
        self
    }

    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    pub fn subresource(mut self, subresource: &str) -> Self {
        if let Some(dot) = self.resource.find('.') {
            self.resource.insert_str(dot, &format!("/{subresource}"));
        } else {
            self.resource = format!("{}/{subresource}", self.resource);
        }
        self
    }

    /// The command that tells the user whether RBAC allows this request. `kubectl` is the command that runs kubectl
    /// against the cluster, such as `kubectl kcp kubectl edge --`.
    pub fn can_i_command(&self, kubectl: &str) -> String {
        if self.is_path() {
            return format!("{kubectl} auth can-i {} {}", self.verb, self.resource);
        }
        let scope = match &self.namespace {
            Some(namespace) => format!("-n {namespace}"),
            None => "-A".to_owned(),
        };
        let (resource, subresource) = self.split_subresource();
        let subresource = subresource.map_or(String::new(), |name| format!(" --subresource {name}"));
        format!(
            "{kubectl} auth can-i {} {resource}{subresource} {scope}",
            self.verb
        )
    }

    /// The command that shows the object of this request, after a write whose outcome is unknown. `kubectl` is the
    /// command that runs kubectl against the cluster, such as `kubectl kcp kubectl edge --`.
    pub fn show_command(&self, kubectl: &str) -> String {
        let (resource, _) = self.split_subresource();
        let name = self.name.as_deref().unwrap_or_default();
        let namespace = self
            .namespace
            .as_deref()
            .map(|namespace| format!(" -n {namespace}"));
        let namespace = namespace.unwrap_or_default();
        match resource.split('.').next() {
            Some("kubeadmcontrolplanes") => format!("kubectl kcp status {name}{namespace}"),
            _ if name.is_empty() => format!("{kubectl} get {resource}{namespace}"),
            _ => format!("{kubectl} get {resource} {name}{namespace}"),
        }
    }

    fn is_path(&self) -> bool {
        self.resource.starts_with('/')
    }

    fn resource_without_group(&self) -> &str {
        self.resource.split('.').next().unwrap_or(&self.resource)
    }

    fn split_subresource(&self) -> (String, Option<&str>) {
        let (plural, group) = self.resource.split_once('.').unwrap_or((&self.resource, ""));
        let (plural, subresource) = match plural.split_once('/') {
            Some((plural, subresource)) => (plural, Some(subresource)),
            None => (plural, None),
        };
        let dot = if group.is_empty() { "" } else { "." };
        (format!("{plural}{dot}{group}"), subresource)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource_without_group())?;
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace:?}"),
            None if self.name.is_none() && !self.is_path() => f.write_str(" in all namespaces"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::kind::KUBEADM_CONTROL_PLANE;

    use super::Action;

    #[test]
    fn the_object_of_a_write_can_be_shown() {
        let action = |resource: &str, namespace: Option<&str>| Action {
            verb: "patch",
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: Some("x".to_owned()),
        };
        for (action, expected) in [
            (
                action(
                    "kubeadmcontrolplanes/scale.controlplane.cluster.x-k8s.io",
                    Some("d"),
                ),
                "kubectl kcp status x -n d",
            ),
            (
                action("machines.cluster.x-k8s.io", Some("d")),
                "kubectl get machines.cluster.x-k8s.io x -n d",
            ),
            (action("nodes", None), "kubectl get nodes x"),
            (
                action(
                    "validatingwebhookconfigurations.admissionregistration.k8s.io",
                    None,
                ),
                "kubectl get validatingwebhookconfigurations.admissionregistration.k8s.io x",
            ),
            (
                Action {
                    name: None,
                    ..action("roles.rbac.authorization.k8s.io", Some("kube-system"))
                },
                "kubectl get roles.rbac.authorization.k8s.io -n kube-system",
            ),
        ] {
            assert_eq!(action.show_command("kubectl"), expected);
        }
        let workload = "kubectl kcp kubectl cluster/edge -n d --";
        assert_eq!(
            action("nodes", None).show_command(workload),
            "kubectl kcp kubectl cluster/edge -n d -- get nodes x"
        );
    }

    #[test]
    fn says_what_where() {
        let discover = Action::path("get", "/apis");
        assert_eq!(discover.to_string(), "get /apis");
        assert_eq!(discover.can_i_command("kubectl"), "kubectl auth can-i get /apis");

        let list = Action::new("list", &KUBEADM_CONTROL_PLANE.api_resource("v1beta2"));
        assert_eq!(list.to_string(), "list kubeadmcontrolplanes in all namespaces");
        assert_eq!(
            list.can_i_command("kubectl"),
            "kubectl auth can-i list kubeadmcontrolplanes.controlplane.cluster.x-k8s.io -A"
        );

        let mut scale = list.in_namespace("d").with_name("c1").subresource("scale");
        scale.verb = "patch";
        assert_eq!(
            scale.to_string(),
            "patch kubeadmcontrolplanes/scale \"c1\" in namespace \"d\""
        );
        assert_eq!(
            scale.can_i_command("kubectl"),
            "kubectl auth can-i patch kubeadmcontrolplanes.controlplane.cluster.x-k8s.io --subresource scale -n d"
        );
    }
}
