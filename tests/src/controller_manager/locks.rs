//! The Leases of controller managers in one namespace.

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt as _};

use crate::wait;

/// A holder that never renews.
const FOREIGN_HOLDER: &str = "somebody-else";

/// How long a Lease of the foreign holder lasts, in seconds: longer than any test.
const FOREIGN_DURATION: i32 = 600;

/// The locks of the controller managers of one test or row.
pub struct Locks {
    leases: Api<Lease>,
    namespace: String,
}

impl Locks {
    /// The Leases of a namespace, which must exist.
    pub fn in_namespace(client: &Client, namespace: &str) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
        }
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Creates a Lease that no controller manager can take, because it has a holder.
    pub async fn occupy(&self, name: &str) -> Result<()> {
        let now = Some(MicroTime(Timestamp::now()));
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(FOREIGN_HOLDER.to_owned()),
                lease_duration_seconds: Some(FOREIGN_DURATION),
                acquire_time: now.clone(),
                renew_time: now,
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        };
        let created = self.leases.create(&PostParams::default(), &lease).await;
        created.with_context(|| format!("creating the Lease {name}"))?;
        Ok(())
    }

    /// Deletes a Lease, so that a controller manager can take the lock.
    pub async fn vacate(&self, name: &str) -> Result<()> {
        let deleted = self.leases.delete(name, &DeleteParams::default()).await;
        deleted.with_context(|| format!("deleting the Lease {name}"))?;
        Ok(())
    }

    pub async fn lease(&self, name: &str) -> Result<LeaseSpec> {
        let lease = self.leases.get(name).await;
        let lease = lease.with_context(|| format!("reading the Lease {name}"))?;
        let name = lease.name_any();
        lease.spec.with_context(|| format!("the Lease {name} is empty"))
    }

    /// The holder of a Lease.
    pub async fn holder(&self, name: &str) -> Result<String> {
        let holder = self.lease(name).await?.holder_identity.unwrap_or_default();
        ensure!(!holder.is_empty(), "the Lease {name} has no holder");
        Ok(holder)
    }

    /// Waits until a Lease has a holder, and returns it.
    pub async fn held(&self, name: &str) -> Result<String> {
        let what = format!("the Lease {name} in {} is held", self.namespace);
        wait::until(&what, || self.holder(name)).await
    }

    /// Waits until a Lease has another holder, and returns its new content.
    pub async fn held_by_another(&self, name: &str, than: &str) -> Result<LeaseSpec> {
        let what = format!("the Lease {name} in {} has a new holder", self.namespace);
        wait::until(&what, || async {
            let lease = self.lease(name).await?;
            let holder = lease.holder_identity.as_deref().unwrap_or_default();
            ensure!(!holder.is_empty() && holder != than, "the holder is {holder:?}");
            Ok(lease)
        })
        .await
    }

    /// Waits until the holder of a Lease renews it.
    pub async fn renewed(&self, name: &str) -> Result<LeaseSpec> {
        let before = wait::until("the Lease can be read", || self.lease(name)).await?;
        let what = format!("the Lease {name} in {} is renewed", self.namespace);
        wait::until(&what, || async {
            let lease = self.lease(name).await?;
            ensure!(lease.renew_time > before.renew_time, "it is not");
            Ok(lease)
        })
        .await
    }
}
