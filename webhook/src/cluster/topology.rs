//! Reads the control plane of a Cluster with a topology, or the template from which the topology controller creates one.

use std::sync::Arc;

use kcp_api::{
    ClusterClass,
    kind::{CLUSTER_CLASS, KUBEADM_CONTROL_PLANE, KUBEADM_CONTROL_PLANE_TEMPLATE, Kind},
};

use super::{
    live_reads::{LiveReads, Projection},
    read_error::ReadError,
    subject::is_path_segment,
};
use crate::net::body::BufferedBody;

/// The template of a control plane, as JSON.
pub(crate) struct ClassTemplate {
    pub(crate) text: Arc<BufferedBody>,
    /// Whether patches of the class may change the template for a Cluster.
    pub(crate) is_patched: bool,
}

impl LiveReads<'_> {
    /// A control plane as JSON; `None` if it does not exist.
    pub(crate) async fn read_own_control_plane(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<BufferedBody>>, ReadError> {
        let path = self.object_path(KUBEADM_CONTROL_PLANE, namespace, name).await?;
        match self.read(&path, Projection::Whole).await {
            Ok(control_plane) => Ok(Some(control_plane)),
            Err(ReadError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The template of a class; `None` if the class creates another kind of control plane.
    pub(crate) async fn read_class_template(
        &self,
        namespace: &str,
        class: &str,
    ) -> Result<Option<ClassTemplate>, ReadError> {
        let path = self.object_path(CLUSTER_CLASS, namespace, class).await?;
        let class: ClusterClass = self.read_object(&path, Projection::Whole).await?;
        if class.has_other_control_plane() {
            return Ok(None);
        }
        let template = class.control_plane_template().ok_or(ReadError::NotFound)?;
        let path = self
            .object_path(KUBEADM_CONTROL_PLANE_TEMPLATE, namespace, template)
            .await?;
        Ok(Some(ClassTemplate {
            text: self.read(&path, Projection::Whole).await?,
            is_patched: class.has_patches(),
        }))
    }

    async fn object_path(&self, kind: Kind, namespace: &str, name: &str) -> Result<String, ReadError> {
        if ![namespace, name].into_iter().all(is_path_segment) {
            return Err(ReadError::BadName);
        }
        Ok(format!("{}/{name}", self.path(kind, namespace).await?))
    }
}
