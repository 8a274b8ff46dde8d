//! Reads infrastructure templates.

use std::collections::BTreeMap;

use kcp_api::{Reference, machine::Infrastructure};
use kcp_control_plane::snapshot::{Reading, Snapshot};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::{
    Action, Error,
    reads::{failure, planned::Reads},
};

impl Reads<'_> {
    /// Reads whether an infrastructure template exists, from its metadata. `None` if the reference names no template.
    pub(super) async fn template_exists(&self, template: &Reference) -> Option<Reading<bool>> {
        // For a kind without the suffix `Template`, Cluster API does not check that the object exists before it clones a Machine
        // from it.
        let is_template = template.kind.ends_with("Template") && !template.name.is_empty();
        if !is_template {
            return None;
        }
        Some(match self.template_metadata(template).await {
            Ok(_) => Reading::Read(true),
            Err(Error::NotFound { .. }) => Reading::Read(false),
            Err(error) => {
                let object = failure::object_name(&template.kind, Some(&template.name));
                Reading::Failed(failure::from_error(object, &error))
            }
        })
    }

    /// Reads whether the templates exist from which the Machines were cloned, except for templates that were read before.
    pub(super) async fn templates_of_machines(
        &self,
        observed: &Snapshot,
    ) -> BTreeMap<Reference, Reading<bool>> {
        let mut templates = BTreeMap::new();
        for machine in &observed.machines {
            if let Infrastructure::ClonedFrom(template) = &machine.infrastructure
                && !observed.templates.contains_key(template)
                && !templates.contains_key(template)
                && let Some(exists) = self.template_exists(template).await
            {
                templates.insert(template.clone(), exists);
            }
        }
        templates
    }

    async fn template_metadata(&self, template: &Reference) -> Result<IgnoredAny, Error> {
        let resource = self
            .reader
            .served
            .resource_of_reference(&template.group, &template.kind)?;
        let action = Action::new("get", &resource)
            .in_namespace(self.namespace)
            .with_name(&template.name);
        let connection = self.reader.connection;
        let read = connection.get_metadata(&resource, self.namespace, &template.name);
        connection.run_with_limit(self.limit, &action, read).await
    }

    /// Reads an infrastructure template.
    pub async fn read_template(&self, template: &Reference) -> Result<Value, Error> {
        let resource = self
            .reader
            .served
            .resource_of_reference(&template.group, &template.kind)?;
        let action = Action::new("get", &resource)
            .in_namespace(self.namespace)
            .with_name(&template.name);
        let connection = self.reader.connection;
        let read = connection.get(&resource, self.namespace, &template.name);
        connection.run_with_limit(self.limit, &action, read).await
    }
}
