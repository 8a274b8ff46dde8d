//! An API server with all definitions and webhooks, without controllers, and with a user whom no webhook reviews.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use kcp_rules::Configuration;
use kcp_rules::testing::case::{Base, Case, V1BETA1, V1BETA2, Write};
use kcp_rules::testing::cases::written_cases;
use kcp_tests::addresses::free_port;
use kcp_tests::cluster_api::FEATURE_GATES;
use kcp_tests::cluster_api_alone::ClusterApiAlone;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::pki::Subject;
use kcp_tests::process::Process;
use kcp_tests::{manifests, products, wait};
use kube::Client;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::answer::Answered;
use super::request::{Request, Verb, path_of};

/// The user who creates objects that webhooks would deny.
pub(super) const SEEDER: &str = "seeder";

/// The label of a namespace that selects the server that reviews its writes.
pub(super) const JUDGED_BY: &str = "test.kubectl-kcp.dev/judged-by";

/// The API server and all webhook servers.
pub(super) struct Environment {
    cluster: ClusterApiAlone,
    /// Names of the servers without API access, by their configuration.
    blind: BTreeMap<String, String>,
    servers: Vec<Process>,
}

impl Environment {
    pub(super) async fn start(management: &ManagementCluster) -> Result<Self> {
        let cluster = management.another_with_managers("rows", &[FEATURE_GATES]).await?;
        let mut environment = Self {
            cluster,
            blind: BTreeMap::new(),
            servers: Vec::new(),
        };
        environment.spare_the_seeder().await?;
        environment.serve(management, "sighted", None).await?;
        for case in written_cases() {
            let configuration = document(&case.configuration());
            if !environment.blind.contains_key(&configuration) {
                let name = format!("blind-{}", environment.blind.len());
                environment.serve(management, &name, Some(&configuration)).await?;
                environment.blind.insert(configuration, name);
            }
        }
        for name in environment.blind.values().map(String::as_str).chain(["sighted"]) {
            environment.judged(name).await?;
        }
        Ok(environment)
    }

    pub(super) fn client(&self) -> &Client {
        self.cluster.client()
    }

    /// The server for a row: it has API access if the row has other objects. A scale always needs API access.
    pub(super) fn judge(&self, case: &Case, sees: bool) -> Result<&str> {
        if sees || matches!(case.write, Write::Scale(..)) {
            return Ok("sighted");
        }
        let judge = self.blind.get(&document(&case.configuration()));
        judge
            .map(String::as_str)
            .context("no server has the configuration of the row")
    }

    async fn send(&self, request: Request<'_>) -> Result<Answered> {
        request.send(self.client()).await
    }

    async fn spare_the_seeder(&self) -> Result<()> {
        for resource in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
            let list = self.send(Request::new(Verb::Get, &path)).await?.body;
            for mut configuration in list["items"].as_array().cloned().unwrap_or_default() {
                restrict(&mut configuration, None);
                let name = configuration["metadata"]["name"].as_str().context("no name")?;
                let path = format!("{path}/{name}");
                let request = Request::new(Verb::Replace, &path).body(configuration);
                self.send(request).await?.succeeded()?;
            }
        }
        Ok(())
    }

    /// Starts one of our servers. Without a configuration it gets API access.
    async fn serve(&mut self, management: &ManagementCluster, name: &str, blind: Option<&str>) -> Result<()> {
        let folder = self.cluster.api().folder().join(name);
        std::fs::create_dir_all(&folder)?;
        let subject = Subject {
            common_name: "kcp-webhook",
            addresses: &[Ipv4Addr::LOCALHOST.into()],
            ..Subject::default()
        };
        let serving = self.cluster.api().authority().issue(&folder, "tls", &subject)?;
        let port = free_port()?;
        let mut arguments = vec![
            "serve".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--health-port={}", free_port()?),
            format!("--tls-cert-file={}", serving.certificate.display()),
            format!("--tls-private-key-file={}", serving.key.display()),
        ];
        arguments.push(match blind {
            Some(configuration) => {
                let file = folder.join("configuration.yaml");
                std::fs::write(&file, configuration)?;
                format!("--configuration={}", file.display())
            }
            None => format!("--kubeconfig={}", self.cluster.api().kubeconfig().display()),
        });
        let program = products::under_test("kcp-webhook")?;
        let environment: &[(&str, &str)] = &[];
        let log = format!("rows-kcp-webhook-{name}");
        self.servers.push(Process::start(
            management.run(),
            &log,
            &program,
            arguments,
            environment,
        )?);
        for mut configuration in shipped_configurations(management).await? {
            review_each_version(&mut configuration);
            let mut configuration: DynamicObject = serde_json::from_value(configuration)?;
            manifests::redirect_webhooks(&mut configuration, |path| {
                manifests::local_client_config(port, path, self.cluster.api().authority().certificate())
            })?;
            // Still sorted before Cluster API's names, which start with capi.
            configuration.metadata.name = Some(format!("admission.{name}.kubectl-kcp.dev"));
            let mut configuration = serde_json::to_value(configuration)?;
            restrict(&mut configuration, Some(name));
            manifests::create_webhooks(self.client(), &serde_json::from_value(configuration)?).await?;
        }
        Ok(())
    }

    /// Waits until a server of ours reviews all users except for the seeder, whom Cluster API does not review either.
    async fn judged(&self, by: &str) -> Result<()> {
        let namespace = format!("judged-by-{by}");
        create_namespace(self.client(), &namespace, by).await?;
        let mut faulty = Base::ControlPlane(V1BETA2).object();
        faulty["metadata"]["namespace"] = json!(namespace);
        faulty["spec"]["replicas"] = json!(2);
        let path = path_of(&faulty)?;
        wait::until(&format!("{by} judges"), || async {
            let create = || Request::new(Verb::Create, &path).body(faulty.clone()).dry_run();
            let judged = self.send(create()).await?;
            ensure!(
                judged.finds("replicas-even"),
                "the denial came from somewhere else: {judged:?}"
            );
            self.send(create().by(SEEDER)).await?.succeeded()?;
            Ok(())
        })
        .await
    }
}

/// Creates a namespace whose writes `judge` reviews.
pub(super) async fn create_namespace(client: &Client, name: &str, judge: &str) -> Result<()> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {JUDGED_BY: judge}},
    });
    let request = Request::new(Verb::Create, "/api/v1/namespaces").body(namespace);
    request.send(client).await?.succeeded()?;
    Ok(())
}

/// Our webhook configurations as they are shipped.
async fn shipped_configurations(management: &ManagementCluster) -> Result<Vec<Value>> {
    let folder: PathBuf = products::workspace().join(Path::new("manifests/registration"));
    let folder = management
        .kubectl()
        .succeed(["kustomize", &folder.display().to_string()])
        .await?;
    let mut objects = manifests::parse(&folder.stdout)?;
    objects.retain(|object| {
        object["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("WebhookConfiguration"))
    });
    if objects.is_empty() {
        bail!("manifests/registration has no webhook configuration");
    }
    Ok(objects)
}

/// Has each row reviewed in its own version: a row in v1beta1 is about an API server that serves nothing newer.
fn review_each_version(configuration: &mut Value) {
    let webhooks = configuration["webhooks"].as_array_mut().into_iter().flatten();
    for rule in webhooks
        .filter_map(|webhook| webhook["rules"].as_array_mut())
        .flatten()
    {
        if rule["apiVersions"] == json!([V1BETA2]) {
            rule["apiVersions"] = json!([V1BETA1, V1BETA2]);
        }
    }
}

/// Excludes the seeder, and all namespaces except for those with the label `by`.
fn restrict(configuration: &mut Value, by: Option<&str>) {
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        append(&mut webhook["matchConditions"], spares_the_seeder());
        if let Some(judge) = by {
            append(
                &mut webhook["namespaceSelector"]["matchExpressions"],
                json!({"key": JUDGED_BY, "operator": "In", "values": [judge]}),
            );
        }
    }
}

/// The match condition that excludes the seeder.
pub(super) fn spares_the_seeder() -> Value {
    json!({"name": "spares-the-seeder", "expression": format!("request.userInfo.username != '{SEEDER}'")})
}

pub(super) fn append(list: &mut Value, element: Value) {
    match list {
        Value::Array(elements) => elements.push(element),
        other => *other = json!([element]),
    }
}

/// A configuration as a server's configuration file. JSON is YAML.
pub(super) fn document(configuration: &Configuration) -> String {
    json!({
        "apiVersion": kcp_rules::configuration::API_VERSION,
        "kind": kcp_rules::configuration::KIND,
        "rules": configuration.rules,
        "featureGates": {
            "ignition": configuration.feature_gates.ignition,
            "machineTaints": configuration.feature_gates.machine_taints,
        },
    })
    .to_string()
}
