//! Compares the Secrets of a pool with its clusters. Hive copies these Secrets when it creates a cluster, and does not replace the
//! cluster if they change later, because the pool's version contains only their names (openshift/hive,
//! `pkg/controller/clusterpool/clusterpool_controller.go`, `calculatePoolVersion`). Install-configs are compared, but never returned.
//! Credentials are not read at all, only the time of their last change.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kcp_api::{
    ClusterDeployment, ClusterPool, decode::parse_time, hive::LocalReference, kind::SECRET,
    metadata::Object as _,
};
use kcp_client::Error;
use serde_json::{Map, Value};

use crate::{
    install_config::{InstallConfig, InstallConfigError, patches::patch_install_config},
    objects::entry::Entry,
    store::Store,
};

/// The number of workers in the MachinePool that Hive creates for each cluster (openshift/hive,
/// `pkg/controller/clusterpool/clusterpool_controller.go`, `createCluster`).
pub const HIVE_WORKERS: i64 = 3;

/// What the Secrets of a pool say about its clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretFacts {
    /// The install-config template.
    pub template: Option<SecretChange>,
    /// The credentials for the platform.
    pub credentials: Option<SecretChange>,
    /// How the template compares with the install-config of each cluster that may be older than the template, by the cluster's
    /// name.
    pub comparisons: BTreeMap<String, Comparison>,
    /// The number of workers in the template, if it differs from [`HIVE_WORKERS`] and Hive changes it to that number.
    pub changed_workers: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretChange {
    pub name: String,
    /// When the data last changed; `None` if the Secret does not say so.
    pub at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    Same,
    Differs,
    /// The two could not be compared, for this reason.
    Unknown(String),
}

impl SecretFacts {
    /// Which Secret changed after the cluster had been created, in one sentence; `None` if none is known to have changed.
    pub fn old_secret(&self, cluster: &ClusterDeployment) -> Option<String> {
        self.old_template(cluster)
            .or_else(|| self.old_credentials(cluster))
    }

    fn old_template(&self, cluster: &ClusterDeployment) -> Option<String> {
        let template = self.template.as_ref()?;
        let changed = format!(
            "secret/{}, the install-config template, changed{}",
            template.name,
            template.time()
        );
        match self.comparisons.get(cluster.name())? {
            Comparison::Same => None,
            Comparison::Differs => Some(format!(
                "{changed}, and the cluster's install-config differs from the one that Hive would create now; to replace the \
                 cluster, delete the ClusterDeployment"
            )),
            Comparison::Unknown(why) => Some(format!(
                "{changed}; it is unknown whether the cluster has an older install-config, because its install-config \
                 could not be compared with the template: {why}"
            )),
        }
    }

    fn old_credentials(&self, cluster: &ClusterDeployment) -> Option<String> {
        let credentials = self.credentials.as_ref()?;
        let is_old = credentials.at? > cluster.creation_timestamp()?;
        is_old.then(|| {
            format!(
                "secret/{}, the credentials for the platform, changed{}, after Hive had copied them for the cluster; if the old \
                 credentials are no longer valid, delete the ClusterDeployment, and Hive creates another one",
                credentials.name,
                credentials.time()
            )
        })
    }
}

impl SecretChange {
    fn time(&self) -> String {
        self.at.map_or_else(
            || " at an unknown time".to_owned(),
            |time| time.strftime(" at %Y-%m-%dT%H:%M:%SZ").to_string(),
        )
    }

    /// Whether the Secret may have changed after the cluster had been created.
    fn may_be_newer(&self, cluster: &ClusterDeployment) -> bool {
        match (self.at, cluster.creation_timestamp()) {
            (Some(changed), Some(created)) => changed > created,
            _ => true,
        }
    }
}

/// The unclaimed clusters of a pool, and the customizations from which they were created.
#[derive(Clone, Copy)]
pub struct ComparedClusters<'c> {
    pub pool: &'c ClusterPool,
    pub clusters: &'c [&'c ClusterDeployment],
    pub entries: &'c [Entry],
}

impl ComparedClusters<'_> {
    /// Reads the pool's Secrets, and compares them with the clusters. Adds a sentence to `unread` for each Secret that the client
    /// cannot read.
    pub async fn read(self, store: &Store<'_>, unread: &mut Vec<String>) -> SecretFacts {
        let Self { pool, clusters, .. } = self;
        let mut facts = SecretFacts::default();
        if let Some(name) = credentials(pool).filter(|_| !clusters.is_empty()) {
            facts.credentials = read_change(store, name, unread).await;
        }
        let template = pool.spec.install_config_secret_template_ref.as_ref();
        let Some(name) = template.and_then(LocalReference::name) else {
            return facts;
        };
        let is_undecided = pool.spec.skip_machine_pools.is_none();
        if clusters.is_empty() && !is_undecided {
            return facts;
        }
        let Some(change) = read_change(store, name, unread).await else {
            return facts;
        };
        let older: Vec<_> = clusters
            .iter()
            .filter(|cluster| change.may_be_newer(cluster))
            .collect();
        facts.template = Some(change);
        if older.is_empty() && !is_undecided {
            return facts;
        }
        let template = match InstallConfig::from_secret(store.connection(), name).await {
            Ok(template) => template,
            Err(error) => {
                let unknown = Comparison::Unknown(reason(&error));
                let names = older.iter().map(|cluster| cluster.name().to_owned());
                facts.comparisons = names.map(|name| (name, unknown.clone())).collect();
                return facts;
            }
        };
        let workers = template_workers(template.value()).filter(|_| is_undecided);
        facts.changed_workers = workers.filter(|workers| *workers != HIVE_WORKERS);
        for cluster in older {
            let comparison = self.compare(store, &template, cluster).await;
            facts.comparisons.insert(cluster.name().to_owned(), comparison);
        }
        facts
    }

    async fn compare(
        self,
        store: &Store<'_>,
        template: &InstallConfig,
        cluster: &ClusterDeployment,
    ) -> Comparison {
        let mut connection = store.connection().clone();
        cluster.namespace().clone_into(&mut connection.namespace);
        // Hive, pkg/clusterresource/builder.go, getInstallConfigSecretName.
        let name = format!("{}-install-config", cluster.name());
        let own = match InstallConfig::from_secret(&connection, &name).await {
            Ok(own) => own,
            Err(error) => return Comparison::Unknown(reason(&error)),
        };
        match self.install_config(template, cluster) {
            Ok(current) if without_null_metadata(own.value()) == without_null_metadata(&current) => {
                Comparison::Same
            }
            Ok(_) => Comparison::Differs,
            Err(why) => Comparison::Unknown(why),
        }
    }

    /// The install-config that Hive would create for the cluster now (openshift/hive, `pkg/clusterresource/builder.go`,
    /// `mergeInstallConfigTemplate`).
    fn install_config(self, template: &InstallConfig, cluster: &ClusterDeployment) -> Result<Value, String> {
        let mut document = template.value().clone();
        if let Value::Object(fields) = &mut document {
            fields.insert("baseDomain".to_owned(), self.pool.spec.base_domain.clone().into());
            let metadata = fields.entry("metadata").or_insert_with(|| Map::new().into());
            if let Value::Object(metadata) = metadata {
                metadata.insert("name".to_owned(), cluster.name().into());
            }
        }
        let of_pool = self.pool.spec.customization_ref.as_ref();
        let customizations = [of_pool.and_then(LocalReference::name), cluster.customization()];
        for name in customizations.into_iter().flatten() {
            let entry = self.entries.iter().find(|entry| entry.name() == name);
            let entry = entry.ok_or_else(|| format!("customization {name} does not exist"))?;
            let patched = patch_install_config(&InstallConfig::new(document), &entry.spec);
            document = patched
                .map_err(|why| why.to_string())?
                .install_config
                .value()
                .clone();
        }
        Ok(document)
    }
}

/// The name of the Secret with the credentials for the pool's platform.
fn credentials(pool: &ClusterPool) -> Option<&str> {
    let mut platforms = pool.spec.platform.values();
    let name = platforms.find_map(|platform| platform.pointer("/credentialsSecretRef/name"))?;
    name.as_str().filter(|name| !name.is_empty())
}

/// Reads when the data of a Secret last changed. `None` if the Secret does not exist, which Hive reports itself, or if the client
/// cannot read it.
async fn read_change(store: &Store<'_>, name: &str, unread: &mut Vec<String>) -> Option<SecretChange> {
    let resource = SECRET.api_resource("v1");
    let read = store
        .connection()
        .get_metadata::<Value>(&resource, store.namespace(), name);
    match read.await {
        Ok(secret) => Some(SecretChange {
            name: name.to_owned(),
            at: last_change(&secret),
        }),
        Err(Error::NotFound { .. }) => None,
        Err(error) => {
            unread.push(format!(
                "it is unknown whether secret/{name} changed after clusters had been created from it: {error}"
            ));
            None
        }
    }
}

/// When the data of a Secret last changed, from the times of the clients that own fields of the data. `None` if no such client is
/// recorded.
fn last_change(secret: &Value) -> Option<Timestamp> {
    let metadata = secret.get("metadata")?;
    let time = |object: &Value, field: &str| parse_time(object.get(field)?.as_str()?).ok();
    let managers = metadata.get("managedFields").and_then(Value::as_array);
    let owners = managers.into_iter().flatten();
    let owners = owners.filter(|entry| entry.pointer("/fieldsV1/f:data").is_some());
    let changed = owners.filter_map(|entry| time(entry, "time")).max()?;
    Some(time(metadata, "creationTimestamp").map_or(changed, |created| created.max(changed)))
}

/// The number of workers in an install-config; `None` if it does not say so.
fn template_workers(template: &Value) -> Option<i64> {
    let pools = template.get("compute")?.as_array()?;
    if pools.is_empty() {
        return Some(0);
    }
    let is_worker = |pool: &&Value| pool.get("name").and_then(Value::as_str) == Some("worker");
    pools.iter().find(is_worker)?.get("replicas")?.as_i64()
}

/// Go writes the absent time of creation as null.
fn without_null_metadata(install_config: &Value) -> Value {
    let mut install_config = install_config.clone();
    if let Some(Value::Object(metadata)) = install_config.get_mut("metadata") {
        metadata.retain(|_, value| !value.is_null());
    }
    install_config
}

/// Why an install-config could not be read.
fn reason(error: &InstallConfigError) -> String {
    match error {
        InstallConfigError::Secret(error) => error.to_string(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
