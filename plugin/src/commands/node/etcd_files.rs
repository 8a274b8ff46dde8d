//! The files with which the verbs of `node` reach the etcd members of a control plane.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use kcp_client::reads::{etcd::Access, node_removal::etcd_access};

use crate::file;

#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "they are the names of the flags")]
pub struct EtcdFiles {
    /// For a control plane with etcd members: etcd's CA, from /etc/kubernetes/pki/etcd/ca.crt on a Node of the control plane
    #[arg(long, value_name = "FILE", requires_all = ["etcd_certificate", "etcd_key"])]
    pub etcd_ca: Option<PathBuf>,

    /// For a control plane with etcd members: a client certificate, from /etc/kubernetes/pki/etcd/healthcheck-client.crt
    #[arg(long, value_name = "FILE", requires = "etcd_ca")]
    pub etcd_certificate: Option<PathBuf>,

    /// For a control plane with etcd members: the key of the client certificate
    #[arg(long, value_name = "FILE", requires = "etcd_ca")]
    pub etcd_key: Option<PathBuf>,
}

impl EtcdFiles {
    /// Reads the files. None if the user named none.
    pub(super) fn access(&self) -> anyhow::Result<Option<Access>> {
        let (Some(ca), Some(certificate), Some(key)) =
            (&self.etcd_ca, &self.etcd_certificate, &self.etcd_key)
        else {
            return Ok(None);
        };
        etcd_access(&file::read(ca)?, &file::read(certificate)?, &file::read(key)?)
            .map(Some)
            .context("cannot use the files of --etcd-ca, --etcd-certificate and --etcd-key")
    }
}
