//! `kubectl kcp node` through the real kubectl, against a real API server of its own without Cluster API.

pub(crate) mod join_script;
mod labels;
mod member;
mod remove;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kcp_tests::api_server::{ApiServer, Etcd};
use kcp_tests::assets::Assets;
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::products;
use kcp_tests::run::Run;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, from_value, json};

/// A user with the shipped role for Nodes only.
const OPERATOR: &str = "nora";

/// An API server whose Nodes no controller touches.
struct BareCluster {
    run: Arc<Run>,
    assets: Assets,
    api: ApiServer,
    kubectl: Kubectl,
    _etcd: Etcd,
}

impl BareCluster {
    async fn start(run: &Arc<Run>, name: &str, flags: &[&str]) -> Result<Self> {
        products::under_test("kubectl-kcp")?;
        let assets = Assets::locate()?;
        let etcd = Etcd::start(run, &assets, &format!("{name}-etcd"))?;
        let api = ApiServer::start_with(run, &assets, &etcd, name, flags).await?;
        let kubectl = Kubectl::new(run, &assets, api.kubeconfig())?;
        let cluster = Self {
            run: run.clone(),
            assets,
            api,
            kubectl,
            _etcd: etcd,
        };
        cluster.bind_the_operator().await?;
        Ok(cluster)
    }

    async fn bind_the_operator(&self) -> Result<()> {
        self.kubectl.apply_kustomization("manifests/operator").await?;
        let user = format!("--user={OPERATOR}");
        let role = "kcp-node-operator";
        let of_nodes = ["create", "clusterrolebinding", role, "--clusterrole", role, &user];
        self.kubectl.succeed(of_nodes).await?;
        let of_tokens = [
            "create",
            "rolebinding",
            role,
            "--role",
            role,
            &user,
            "-n",
            "kube-system",
        ];
        self.kubectl.succeed(of_tokens).await?;
        Ok(())
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.api.client().clone())
    }

    async fn create_node(&self, name: &str, labels: &Value, annotations: &Value) -> Result<()> {
        let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
        let node = from_value(json!({ "metadata": metadata }))?;
        self.nodes().create(&PostParams::default(), &node).await?;
        Ok(())
    }

    /// Runs `kubectl kcp node …` as the operator.
    async fn node<A: AsRef<str>>(&self, arguments: &[A]) -> Result<CommandOutput> {
        let user = ["--as", OPERATOR];
        let words = ["kcp", "node"]
            .into_iter()
            .chain(arguments.iter().map(AsRef::as_ref))
            .chain(user);
        self.kubectl.run(words).await
    }

    /// The path of a file for a command.
    fn file(&self, name: &str) -> String {
        self.kubectl.scratch_file(name).display().to_string()
    }

    /// A kubectl for a user with a bearer token.
    fn kubectl_with_token(&self, token: &str) -> Result<Kubectl> {
        let path = self.kubectl.scratch_file("token.kubeconfig");
        self.api.write_token_kubeconfig(&path, token)?;
        Kubectl::new(&self.run, &self.assets, path)
    }
}

/// Values that a shell or YAML would read as more than text.
const HOSTILE: [&str; 7] = ["; rm -rf /", "a\nb", "'", "\"", "$(reboot)", "`reboot`", "a b"];

/// Every option of a join script with every hostile value.
pub(crate) fn hostile_options() -> impl Iterator<Item = (&'static str, String)> {
    HOSTILE.into_iter().flat_map(|hostile| {
        let download = format!("kubelet=https://a/{hostile},sha256={}", "0".repeat(64));
        [
            ("--hostname", hostile.to_owned()),
            ("--labels", format!("a={hostile}")),
            ("--taints", format!("a={hostile}:NoSchedule")),
            ("--cri-socket", format!("unix:///run/{hostile}")),
            ("--ignore-preflight-errors", hostile.to_owned()),
            ("--install", download),
            ("--proxy-image", hostile.to_owned()),
        ]
    })
}

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}
