//! A workload cluster's API server. There is one per cluster, not one per machine, because each takes 250 MB and
//! seconds of two cores. It reaches etcd through an [`EtcdRoute`](super::etcd_route::EtcdRoute), so it does not depend
//! on one machine.

use std::path::PathBuf;

use anyhow::Result;
use kube::Client;

use super::workload_cluster::{LOOPBACK, WorkloadCluster};
use crate::api_server::{NO_ENVIRONMENT, ready};
use crate::audit::{AuditLog, NODES, PodCidrWrite};
use crate::kubeconfig::{self, User};
use crate::pki::Subject;
use crate::process::Process;
use crate::wait;

impl WorkloadCluster {
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Each write of `podCIDR` of a Node, oldest first, according to the audit log.
    pub fn pod_cidr_writes(&self) -> Result<Vec<PodCidrWrite>> {
        AuditLog::in_folder(&self.folder).pod_cidr_writes()
    }

    /// Stops the API server: it accepts connections and never responds.
    pub async fn freeze_api_server(&self) -> Result<()> {
        self.services()?.api_server.lock().await.freeze().await;
        Ok(())
    }

    /// Lets a frozen API server continue.
    pub async fn thaw_api_server(&self) -> Result<()> {
        self.services()?.api_server.lock().await.thaw().await;
        Ok(())
    }

    pub(super) async fn start_api_server(&self) -> Result<(Process, Client)> {
        let certificates = self.certificates()?;
        let serving = certificates.authority.issue(
            &self.folder,
            "apiserver",
            &Subject {
                // Cluster API connects to this name to read when the certificate expires.
                common_name: "kube-apiserver",
                names: &["kube-apiserver", "localhost", "kubernetes", "kubernetes.default"],
                addresses: &[LOOPBACK],
                ..Subject::default()
            },
        )?;
        let admin = certificates.authority.issue(
            &self.folder,
            "admin",
            &Subject {
                common_name: "kubernetes-admin",
                organization: Some("system:masters"),
                ..Subject::default()
            },
        )?;
        let mut arguments = vec![
            format!("--etcd-servers={}", self.etcd_route.url()),
            format!("--etcd-cafile={}", certificates.etcd_authority_file.display()),
            format!(
                "--etcd-certfile={}",
                certificates.etcd_client.certificate.display()
            ),
            format!("--etcd-keyfile={}", certificates.etcd_client.key.display()),
            format!("--secure-port={}", self.api_port),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--tls-cert-file={}", serving.certificate.display()),
            format!("--tls-private-key-file={}", serving.key.display()),
            format!("--client-ca-file={}", certificates.authority_file.display()),
            // As kubeadm does. Controller managers read these settings from the API server.
            format!(
                "--requestheader-client-ca-file={}",
                certificates.authority_file.display()
            ),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-bootstrap-token-auth=true".to_owned(),
            // No resolver knows the machines' names.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--allow-privileged=true".to_owned(),
            // Without kube-controller-manager there are no service accounts, and nothing removes taints.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
            format!(
                "--service-account-key-file={}",
                certificates.verification_key.display()
            ),
            format!(
                "--service-account-signing-key-file={}",
                certificates.signing_key.display()
            ),
            "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
        ];
        let audit = AuditLog::in_folder(&self.folder);
        audit.write_rules(NODES)?;
        arguments.extend(audit.arguments());
        let log = format!("{}-apiserver", self.name);
        let program = self.assets.program("kube-apiserver");
        let mut process = Process::start(&self.run, &log, &program, arguments, NO_ENVIRONMENT)?;

        let server = format!("https://127.0.0.1:{}", self.api_port);
        let (authority, admin) = (&certificates.authority_file, User::Certificate(&admin));
        kubeconfig::write(&self.kubeconfig(), &server, authority, &admin)?;
        let client = kubeconfig::client(&server, authority, &admin).await?;
        wait::until_served(&format!("{log} is ready"), &mut process, || ready(&client)).await?;
        Ok((process, client))
    }
}
