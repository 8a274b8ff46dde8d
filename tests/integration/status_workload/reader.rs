//! A user with exactly the shipped roles in the workload cluster, or with one permission less.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kcp_control_plane::{inspection::inspect, snapshot::Snapshot};
use kcp_tests::assets::Assets;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use super::{Observer, TIMEOUT};
use crate::objects::written;
use crate::roles::{self, Permission};

const KUBE_SYSTEM: &str = "kube-system";

/// Without a permission of the shipped roles, exactly the reads that need it fail.
pub(super) async fn needs_each_permission(observer: &Observer, management: &ManagementCluster) -> Result<()> {
    let kubeconfig = management.run().folder().join("status-workload-administrator");
    std::fs::write(&kubeconfig, observer.secret("kubeconfig", "value").await?)?;
    let kubectl = Kubectl::new(management.run(), &Assets::locate()?, kubeconfig)?;
    let shipped = roles::shipped("workload-cluster.yaml")?;
    ensure!(shipped.len() == 2, "{shipped:?}");

    // docs/src/reference/permissions.md: older API servers require only `get`.
    let version = kubectl.server_version().await?;
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse().ok());
    let creates_websockets = minor.is_some_and(|minor: u32| minor >= 35);

    let none = BTreeSet::new();
    observer.lacks(&kubectl, "reader", &shipped, &none).await?;
    for (index, role) in shipped.iter().enumerate() {
        for missing in roles::permissions(role) {
            let mut rest = shipped.clone();
            if let Some(role) = rest.get_mut(index) {
                *role = roles::without(role, &missing);
            }
            let (resource, verb) = &missing;
            let who = format!("without-{verb}-{}", resource.replace('/', "-"));
            let is_required =
                creates_websockets || (resource.as_str(), verb.as_str()) != ("pods/portforward", "create");
            let told = is_required.then(|| finding(&missing)).into_iter().collect();
            observer.lacks(&kubectl, &who, &rest, &told).await?;
        }
    }
    Ok(())
}

/// The finding for a missing permission.
fn finding((resource, verb): &Permission) -> String {
    let group = match resource.as_str() {
        "daemonsets" | "deployments" => ".apps",
        "leases" => ".coordination.k8s.io",
        _ => "",
    };
    let namespace = if resource == "nodes" {
        ""
    } else {
        "namespace kube-system of "
    };
    format!("you have no permission to {verb} {resource}{group} in {namespace}the workload cluster")
}

impl Observer {
    /// Checks that with these roles exactly these permissions are reported as missing, and that all other reads
    /// succeed.
    async fn lacks(
        &self,
        kubectl: &Kubectl,
        who: &str,
        roles: &[Value],
        missing: &BTreeSet<String>,
    ) -> Result<()> {
        let kubeconfig = self.kubeconfig_of(kubectl, who, roles).await?;
        let (authority, key) = (
            self.secret("etcd", "tls.crt").await?,
            self.secret("etcd", "tls.key").await?,
        );
        self.create_secret(who, "kubeconfig", &[("value", kubeconfig.as_bytes())])
            .await?;
        self.create_secret(who, "etcd", &[("tls.crt", &authority), ("tls.key", &key)])
            .await?;
        wait::until(&format!("status reports what is missing {who}"), || async {
            let (workload, endpoint_certificate, etcd) = self.read_as(who, TIMEOUT).await?;
            let observed = Snapshot {
                workload,
                endpoint_certificate,
                etcd,
                ..self.snapshot.clone()
            };
            let inspection = inspect(&observed, Timestamp::now());
            let messages = |id: &str| -> BTreeSet<String> {
                let checked = inspection.checks.iter().filter(|checked| checked.id == id);
                let findings = checked.flat_map(|checked| &checked.findings);
                findings.map(|finding| finding.message.clone()).collect()
            };
            let told = messages("permissions-missing");
            ensure!(told == *missing, "it reports {told:?}, not {missing:?}");
            for source in [
                "workload-unreachable",
                "etcd-unreachable",
                "etcd-members-unresponsive",
            ] {
                ensure!(messages(source).is_empty(), "{source}: {:?}", messages(source));
            }
            Ok(())
        })
        .await
    }

    /// A kubeconfig for a `ServiceAccount` with these roles.
    async fn kubeconfig_of(&self, kubectl: &Kubectl, who: &str, roles: &[Value]) -> Result<String> {
        let account = json!({"kind": "ServiceAccount", "name": who, "namespace": KUBE_SYSTEM});
        let mut objects = vec![json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": who, "namespace": KUBE_SYSTEM}})];
        for role in roles {
            let kind = role.get("kind").and_then(Value::as_str).context("no kind")?;
            let mut metadata = json!({"name": who});
            if kind == "Role" {
                metadata = json!({"name": who, "namespace": KUBE_SYSTEM});
            }
            let mut named = role.clone();
            let fields = named.as_object_mut().context("the role is not an object")?;
            fields.insert("metadata".to_owned(), metadata.clone());
            objects.push(named);
            objects.push(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": who},
                "subjects": [account],
            }));
        }
        written(kubectl, "apply", &objects, &[]).await?;
        let token = kubectl
            .succeed(["create", "token", who, "-n", KUBE_SYSTEM])
            .await?;
        let administrators = String::from_utf8(self.secret("kubeconfig", "value").await?)?;
        let mut kubeconfig = Kubeconfig::from_yaml(&administrators)?;
        let users = kubeconfig.auth_infos.iter().map(|user| user.name.clone());
        let users: Vec<Value> = users
            .map(|name| json!({"name": name, "user": {"token": token.stdout.trim()}}))
            .collect();
        kubeconfig.auth_infos.clear();
        let mut kubeconfig = serde_json::to_value(kubeconfig)?;
        kubeconfig
            .as_object_mut()
            .context("the kubeconfig is not an object")?
            .insert("users".to_owned(), json!(users));
        Ok(kubeconfig.to_string())
    }
}
