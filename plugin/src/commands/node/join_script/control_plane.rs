//! Reads the control plane that a host joins, and refuses the join if etcd is not ready for it.

use std::time::Instant;

use anyhow::anyhow;
use kcp_api::names::label;
use kcp_client::{
    Connection,
    reads::{
        etcd::Access,
        node::list_nodes,
        node_join::{read_kubeadm_settings, read_uploaded_certificates},
        node_removal::survey_members,
    },
};
use kcp_control_plane::{
    change::decision::Refusal,
    snapshot::Reading,
    verbs::{
        etcd::members::read_refusal,
        node::join::{UploadedCertificates, refuse_machines, refuse_silent_members},
    },
};

use crate::{commands::node::join_script::JoinScriptArguments, session::Session};

/// The folder in which kubeadm stores etcd's data by default.
const ETCD_FOLDER: &str = "/var/lib/etcd";

/// The control plane that a host joins.
pub(super) struct ControlPlane {
    /// The folder of the data of the host's etcd member. `None` if etcd is external.
    pub(super) etcd_folder: Option<String>,
    pub(super) certificates: UploadedCertificates,
}

impl ControlPlane {
    /// Reads the control plane. `None` for a host that becomes a worker. The inner error says why the host must not join.
    pub(super) async fn read(
        connection: &Connection,
        arguments: &JoinScriptArguments,
        session: &Session,
        end: Instant,
    ) -> anyhow::Result<Result<Option<Self>, Refusal>> {
        if !arguments.control_plane {
            return Ok(Ok(None));
        }
        let access = arguments.etcd.access()?;
        let nodes = list_nodes(connection, Some(label::NODE_CONTROL_PLANE)).await?;
        if let Some(refusal) = refuse_machines(&nodes) {
            return Ok(Err(refusal));
        }
        let certificates = read_uploaded_certificates(connection).await?;
        if let Some(refusal) = certificates.refuse(connection.now()) {
            return Ok(Err(refusal));
        }
        let etcd_folder = read_etcd_folder(connection).await?;
        if etcd_folder.is_some() {
            let nodes = nodes.into_iter().map(|node| node.name).collect();
            match Box::pin(refuse_members(connection, access, nodes, end)).await? {
                Ok(None) => {}
                Ok(Some(refusal)) => return Ok(Err(refusal)),
                Err(unknown) => session.terminal.warning(&format!(
                    "it is unknown whether etcd lists a dead member, such as the member of a lost host: if it does, kubeadm lets \
                     no other host join; {unknown}"
                )),
            }
        }
        Ok(Ok(Some(Self {
            etcd_folder,
            certificates,
        })))
    }
}

/// The folder of etcd's data on a host of the control plane. `None` if etcd is external.
async fn read_etcd_folder(connection: &Connection) -> anyhow::Result<Option<String>> {
    let settings = read_kubeadm_settings(connection).await?;
    if let Some(failure) = settings.failure() {
        return Err(anyhow!("{}: {}", failure.object, failure.message));
    }
    let settings = settings.value().cloned().flatten().unwrap_or_default();
    let folder = settings.etcd_folder.unwrap_or_else(|| ETCD_FOLDER.to_owned());
    Ok((!settings.has_external_etcd).then_some(folder))
}

/// Refuses a join while etcd lists a member that has no Node or does not respond. `Ok(Err(why))` if the members cannot be read.
async fn refuse_members(
    connection: &Connection,
    access: Option<Access>,
    control_plane: Vec<String>,
    end: Instant,
) -> anyhow::Result<Result<Option<Refusal>, String>> {
    let Some(access) = access else {
        let flags = "to find out, pass --etcd-ca, --etcd-certificate and --etcd-key";
        return Ok(Err(flags.to_owned()));
    };
    let nodes = list_nodes(connection, None).await?;
    let nodes = nodes.into_iter().map(|node| node.name).collect();
    let refusal = match survey_members(connection, control_plane, &access, end).await {
        Reading::Read(survey) => refuse_silent_members(&survey, &nodes),
        unread => match unread.failure() {
            Some(failure) => Err(read_refusal(failure)),
            None => return Ok(Err("etcd was not queried".to_owned())),
        },
    };
    Ok(refusal.map_err(|refusal| refusal.why.join("; ")))
}
