//! Prints versions.

use serde::Serialize;

use super::{
    component::{Component, ComponentState},
    skew,
};
use crate::{
    document::{Document, Versioned},
    output::Report,
    terminal::table::{Cell, Layout, Table},
};

/// The versions of all programs, and warnings about their combination.
#[derive(Debug)]
pub(in crate::commands) struct Versions {
    pub(super) components: Vec<Component>,
    pub(super) warnings: Vec<String>,
}

/// The versions of the plugin and of the programs that it works with.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct VersionReport<'v> {
    components: &'v [Component],
    /// Combinations of versions that are not supported.
    warnings: &'v [String],
}

impl Document for VersionReport<'_> {
    const KIND: &'static str = "VersionReport";
}

impl Versions {
    pub(super) fn new(components: Vec<Component>) -> Self {
        Self {
            warnings: skew::warnings(&components),
            components,
        }
    }

    /// What could not be read, and why.
    pub(in crate::commands) fn failures(&self) -> impl Iterator<Item = String> {
        let unread = self
            .components
            .iter()
            .filter(|component| component.state == ComponentState::Unread);
        unread.map(|component| {
            let why = component.detail.as_deref().unwrap_or_default();
            format!("{}: could not read the version: {why}", component.program.title())
        })
    }
}

impl Report for Versions {
    fn table(&self, layout: Layout) -> String {
        let mut table = Table::new(&["PROGRAM", "VERSION", "API VERSIONS", "FROM"]);
        for component in &self.components {
            let version = match (&component.version, component.state) {
                (Some(version), _) => version.as_str(),
                (None, ComponentState::Absent) => "not found",
                (None, _) => "unknown",
            };
            let detail = match component.state {
                ComponentState::Unread => None,
                _ => component.detail.as_deref(),
            };
            table.add_row([
                component.program.title().into(),
                version.into(),
                component.api_versions.join(",").into(),
                Cell::from(detail.unwrap_or_default()).extend_to_line_end(),
            ]);
        }
        table.render(layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(VersionReport {
            components: &self.components,
            warnings: &self.warnings,
        })
    }

    /// The names of the programs, without a kind, because they are not Kubernetes resources.
    fn names(&self) -> Vec<String> {
        let names = self.components.iter().map(|component| component.program.title());
        names.map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Component, ComponentState, Report as _, VersionReport, Versions};
    use crate::{
        commands::version::component::Program,
        terminal::{plain, table::Layout},
        testing::{assert_every_format, schema},
    };

    fn versions() -> Versions {
        let api_server = Component {
            version: Some("v1.36.3".to_owned()),
            ..Component::new(Program::ApiServer, ComponentState::Read)
        };
        let cluster_api = Component {
            api_versions: vec!["v1beta2".to_owned(), "v1beta1".to_owned()],
            ..Component::unread(Program::ClusterApi, "forbidden")
        };
        let mut plugin = Component::plugin();
        plugin.detail = Some("linux/x86_64".to_owned());
        plugin.version = Some("0.1.0".to_owned());
        Versions {
            components: vec![
                plugin,
                api_server,
                cluster_api,
                Component::new(Program::Webhook, ComponentState::Absent),
            ],
            warnings: vec!["the API server is old".to_owned()],
        }
    }

    #[test]
    fn the_document_matches_its_schema() {
        assert_every_format(&versions());
        schema::checked_in::<VersionReport<'_>>("versionreport.json");
        let versions = versions();
        schema::conforms(&VersionReport {
            components: &versions.components,
            warnings: &versions.warnings,
        });
    }

    #[test]
    fn a_program_that_was_not_read_is_unknown() {
        insta::assert_snapshot!(plain(&versions().table(Layout::default())));
        let failures: Vec<String> = versions().failures().collect();
        assert_eq!(failures, ["Cluster API: could not read the version: forbidden"]);
    }
}
