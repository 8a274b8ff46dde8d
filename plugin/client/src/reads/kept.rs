//! What a program that reads a control plane repeatedly keeps between two complete reads: the facts that no list contains, and
//! the access to the workload cluster. The other reads then send no request about this control plane to the management cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use kcp_api::Reference;
use kcp_control_plane::{
    certificates::Certificate,
    snapshot::{Reading, Snapshot},
};

use crate::{
    Connection,
    reads::{
        observe::by_node,
        secret::Secrets,
        workload_and_etcd::{WorkloadAccess, WorkloadAndEtcd},
    },
};

pub struct Kept {
    access: WorkloadAccess,
    templates: BTreeMap<Reference, Reading<bool>>,
    has_kubeconfig: Option<bool>,
    has_etcd_ca: Option<bool>,
    secrets: Reading<BTreeSet<String>>,
    unowned_secrets: BTreeSet<String>,
    certificates: Reading<Vec<Certificate>>,
}

impl Kept {
    /// Keeps the facts of a snapshot of which every source was read. `None` if etcd is external, if the control plane is not
    /// initialized yet, or if a Secret cannot be read.
    pub async fn new(management: &Connection, observed: &Snapshot, end: Instant) -> Option<Self> {
        let control_plane = &observed.control_plane;
        if !control_plane.status.initialized || observed.has_external_etcd() {
            return None;
        }
        let secrets = Secrets::of_control_plane(management, control_plane, end).ok()?;
        Some(Self {
            access: WorkloadAccess::open(&secrets).await.ok()?,
            templates: observed.templates.clone(),
            has_kubeconfig: observed.has_kubeconfig,
            has_etcd_ca: observed.has_etcd_ca,
            secrets: observed.secrets.clone(),
            unowned_secrets: observed.unowned_secrets.clone(),
            certificates: observed.certificates.clone(),
        })
    }

    /// Adds the kept facts, and what was read from the workload cluster and etcd, to a snapshot from a list.
    #[must_use]
    pub fn add_to(
        &self,
        listed: Snapshot,
        (workload, endpoint_certificate, etcd): WorkloadAndEtcd,
    ) -> Snapshot {
        Snapshot {
            workload,
            endpoint_certificate,
            etcd,
            templates: self.templates.clone(),
            has_kubeconfig: self.has_kubeconfig,
            has_etcd_ca: self.has_etcd_ca,
            secrets: self.secrets.clone(),
            unowned_secrets: self.unowned_secrets.clone(),
            certificates: self.certificates.clone(),
            ..listed
        }
    }

    /// Reads the workload cluster and etcd of a control plane from a list, and stops reading at `end`.
    pub async fn observe(&self, management: &Connection, listed: Snapshot, end: Instant) -> Snapshot {
        let machines = by_node(&listed.machines);
        let read = match Secrets::of_control_plane(management, &listed.control_plane, end) {
            Ok(secrets) => self.access.read(&secrets, machines).await,
            Err(failure) => (
                Reading::Failed(failure.clone()),
                Reading::Failed(failure.clone()),
                Reading::Failed(failure),
            ),
        };
        self.add_to(listed, read)
    }
}
