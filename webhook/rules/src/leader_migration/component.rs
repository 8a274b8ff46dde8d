//! The two components that can take part in leader migration.

use std::fmt;

/// A component that can take part in leader migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    Kube,
    Cloud,
}

impl Component {
    /// The component's name. Its main lock and its entries in `controllerLeaders[].component` have the same name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kube => "kube-controller-manager",
            Self::Cloud => "cloud-controller-manager",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
