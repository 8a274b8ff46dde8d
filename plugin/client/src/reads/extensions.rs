//! Reads the runtime extensions that may update Machines in place.

use kcp_api::{ExtensionConfig, kind::EXTENSION_CONFIG};
use kcp_control_plane::snapshot::{Reading, management::selects_namespace};

use crate::{
    Action, Error,
    reads::{failure, list::read_namespace_metadata, planned::Reads},
};

impl Reads<'_> {
    /// Reads the names of the handlers that say whether a Machine of this namespace can be updated in place. Empty if
    /// the cluster does not serve `ExtensionConfigs`.
    pub async fn read_in_place_handlers(&self) -> Reading<Vec<String>> {
        match self.selected_handlers().await {
            Ok(handlers) => Reading::Read(handlers),
            Err(Error::NotServed { .. } | Error::NotFound { .. }) => Reading::Read(Vec::new()),
            Err(error) => Reading::Failed(failure::of_kind(&EXTENSION_CONFIG, &error)),
        }
    }

    async fn selected_handlers(&self) -> Result<Vec<String>, Error> {
        let connection = self.reader.connection;
        let resource = self.reader.served.resource(&EXTENSION_CONFIG)?;
        let action = Action::new("list", &resource);
        let read = connection.list::<ExtensionConfig>(&resource, None, None);
        let mut configs = connection.run_with_limit(self.limit, &action, read).await?;
        configs.retain(|config| config.in_place_handlers().next().is_some());
        if configs.is_empty() {
            return Ok(Vec::new());
        }
        let namespace = read_namespace_metadata(connection, self.namespace, self.limit).await?;
        let labels = namespace.metadata.labels.unwrap_or_default();
        let selected = configs.iter().filter(|config| selects_namespace(config, &labels));
        let handlers = selected.flat_map(ExtensionConfig::in_place_handlers);
        Ok(handlers.map(str::to_owned).collect())
    }
}
