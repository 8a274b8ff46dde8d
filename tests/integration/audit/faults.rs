//! The faults that the audit finds. Each group is produced, found with exactly its findings, and undone.

use std::fmt::Debug;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kcp_rules::registration::CONFIGURATION;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::pki::{Authority, Subject};
use kcp_tests::wait;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, from_value, json, to_value};

use super::Audit;

pub(super) async fn are_found(
    audit: &Audit<'_>,
    workload: &WorkloadCluster,
    machines: &[String],
) -> Result<()> {
    let [first, second, third] = machines else {
        anyhow::bail!("three Machines expected: {machines:?}");
    };
    let names = [first.as_str(), second.as_str(), third.as_str()];
    let client = workload.client()?;
    durations_are_compared(audit).await?;
    of_static_pods(audit, client, names).await?;
    of_images_and_flags(audit, client, names).await?;
    of_nodes(audit, client, names).await?;
    of_servers_in_the_cluster(audit, client).await?;
    of_the_certificate_of_kcp_webhook(audit, client).await?;
    of_kubelets(
        audit,
        client,
        "ControlPlaneKubeletLocalMode: true",
        "ControlPlaneKubeletLocalMode: false",
        "the feature gate ControlPlaneKubeletLocalMode is off",
    )
    .await?;
    static_balancers_serve_the_endpoint(audit, client).await?;
    of_members(audit, workload, names).await
}

/// The certificates of the stand-in machines are valid for a year, those of kubelets for at least a tenth of a year.
pub(crate) async fn durations_are_compared(audit: &Audit<'_>) -> Result<()> {
    let kubelets = (
        "kubelet-certificates-expire-while-off",
        "FAIL",
        "they are still valid for at least 36d12h",
    );
    audit
        .finds_with(
            "kubelets whose certificates expire",
            &["--power-off=900h"],
            &[kubelets],
        )
        .await?;
    let all = (
        "certificates-expire-while-off",
        "FAIL",
        "but the machines may be off for 365d",
    );
    audit
        .finds_with(
            "certificates that expire",
            &["--power-off=8760h"],
            &[kubelets, all],
        )
        .await
}

async fn of_static_pods(audit: &Audit<'_>, client: &Client, [first, second, third]: [&str; 3]) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let scheduler = take_away(&pods, &format!("kube-scheduler-{first}")).await?;
    let secret = json!({"spec": {"volumes": [{"name": "s", "secret": {"secretName": "oidc"}}]}});
    let api_server = change(&pods, &format!("kube-apiserver-{second}"), &secret).await?;
    set_ready(&pods, &format!("kube-scheduler-{third}"), "False").await?;
    audit
        .finds(
            "faults of static Pods",
            &[
                (
                    "static-pods-missing",
                    "FAIL",
                    &format!("Node {first} has no static Pod of kube-scheduler"),
                ),
                (
                    "static-pods-not-ready",
                    "FAIL",
                    &format!("Pod kube-scheduler-{third} is not ready"),
                ),
                (
                    "static-pods-need-the-api",
                    "FAIL",
                    &format!("Pod kube-apiserver-{second} needs Secret/oidc"),
                ),
            ],
        )
        .await?;
    put_back(&pods, scheduler).await?;
    restore(&pods, api_server).await?;
    set_ready(&pods, &format!("kube-scheduler-{third}"), "True").await?;
    audit.finds("repaired static Pods", &[]).await
}

async fn of_images_and_flags(
    audit: &Audit<'_>,
    client: &Client,
    [first, second, third]: [&str; 3],
) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let container = |patch: Value| json!({"spec": {"containers": patch}});
    let always = container(json!([{"name": "kube-scheduler", "imagePullPolicy": "Always",
        "image": "registry.k8s.io/kube-scheduler:v1.34.2", "command": ["kube-scheduler", "--leader-elect=true"]}]));
    let scheduler = change(&pods, &format!("kube-scheduler-{first}"), &always).await?;
    let inside = container(
        json!([{"name": "kube-scheduler", "image": "registry.infra.svc:5000/kube-scheduler:v1.34.2",
        "command": ["kube-scheduler", "--leader-elect=false"]}]),
    );
    let other = change(&pods, &format!("kube-scheduler-{second}"), &inside).await?;
    let flags = container(
        json!([{"name": "kube-apiserver", "image": "registry.k8s.io/kube-apiserver:v1.34.2",
        "command": ["kube-apiserver", "--advertise-address=127.0.0.1", "--etcd-servers=https://192.0.2.9:2379",
            "--encryption-provider-config=/etc/kubernetes/kms.yaml", "--oidc-issuer-url=https://dex.auth.svc"]}]),
    );
    let api_server = change(&pods, &format!("kube-apiserver-{third}"), &flags).await?;
    audit
        .finds(
            "faults of images and flags",
            &[
                (
                    "images-always-pulled",
                    "FAIL",
                    &format!("Pod kube-scheduler-{first} has"),
                ),
                (
                    "images-from-the-cluster",
                    "FAIL",
                    &format!("Pod kube-scheduler-{second} uses"),
                ),
                (
                    "component-images-differ",
                    "FAIL",
                    "kube-scheduler: registry.infra.svc:5000",
                ),
                ("component-flags-differ", "FAIL", "--leader-elect=false"),
                (
                    "api-server-etcd-endpoints",
                    "FAIL",
                    &format!("Node {third} lists neither the etcd member on"),
                ),
                (
                    "encryption-provider-unknown",
                    "UNKNOWN",
                    "--encryption-provider-config=/etc/kubernetes/kms.yaml",
                ),
                (
                    "authentication-in-cluster",
                    "FAIL",
                    "asks https://dex.auth.svc, which is a Service",
                ),
            ],
        )
        .await?;
    for pod in [scheduler, other, api_server] {
        restore(&pods, pod).await?;
    }
    audit.finds("repaired images and flags", &[]).await
}

/// A Node whose Machine no longer exists. `more` are the findings about a Node without a kubelet.
pub(crate) async fn of_a_node_without_a_machine(
    audit: &Audit<'_>,
    client: &Client,
    more: &[(&str, &str, &str)],
) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let stray =
        json!({"metadata": {"name": "stray", "annotations": {"cluster.x-k8s.io/machine": "edge-gone"}}});
    create(&nodes, &stray).await?;
    let left = "Node stray belonged to Machine edge-gone, which no longer exists";
    let found = [more, &[("nodes-without-machines", "FAIL", left)]].concat();
    audit.finds("a Node without a Machine", &found).await?;
    nodes.delete("stray", &DeleteParams::default()).await?;
    audit.finds("no stray Node", &[]).await
}

async fn of_nodes(audit: &Audit<'_>, client: &Client, [first, ..]: [&str; 3]) -> Result<()> {
    // kwok runs the kubelet of every Node.
    of_a_node_without_a_machine(audit, client, &[]).await?;

    // kwok renews the Lease every ten seconds, so the fault is produced again before each try.
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let stale = format!("Node {first} is shown as ready, but its kubelet renewed its Lease");
    wait::until("the audit finds a Lease that is not renewed", || async {
        let renewed = Timestamp::now() - SignedDuration::from_mins(5);
        let time = renewed.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let patch = json!({"spec": {"renewTime": time}});
        leases
            .patch(first, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        let (_, results) = audit.run(&[]).await?;
        super::is_exactly(&results, audit.healthy, &[("node-leases-stale", "FAIL", &stale)])
    })
    .await?;
    audit.finds("renewed Leases", &[]).await
}

/// A webhook, an aggregated API and a conversion webhook whose Service does not exist. The webhook is called for a request that a
/// restart needs, and the API server does reject this request. It calls mutating webhooks before it validates the request.
pub(crate) async fn of_servers_in_the_cluster(audit: &Audit<'_>, client: &Client) -> Result<()> {
    let service = json!({"namespace": "hooks", "name": "hook"});
    let webhook = json!({
        "metadata": {"name": "hooks"},
        "webhooks": [{
            "name": "csr.example.com", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": service},
            "rules": [{"apiGroups": ["certificates.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"],
                "resources": ["certificatesigningrequests"]}],
        }],
    });
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    create(&webhooks, &webhook).await?;
    let api_services: Api<APIService> = Api::all(client.clone());
    let api_service = json!({
        "metadata": {"name": "v1.shop.example.com"},
        "spec": {"group": "shop.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": service},
    });
    create(&api_services, &api_service).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let version = |name: &str, storage: bool| {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        json!({"name": name, "served": true, "storage": storage, "schema": schema})
    };
    let definition = json!({
        "metadata": {"name": "carts.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Cart", "plural": "carts"},
            "versions": [version("v1", true), version("v2", false)],
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": service},
                "conversionReviewVersions": ["v1"]}},
        },
    });
    create(&definitions, &definition).await?;
    audit
        .finds(
            "servers that do not run",
            &[
                (
                    "webhooks-deadlock",
                    "FAIL",
                    "it is called for certificatesigningrequests, and its server is behind Service hooks/hook",
                ),
                ("webhooks-fragile", "FAIL", "Service hooks/hook does not exist"),
                (
                    "api-services-unavailable",
                    "FAIL",
                    "APIService v1.shop.example.com of Service hooks/hook is not available",
                ),
                (
                    "conversion-webhooks-fragile",
                    "FAIL",
                    "carts.example.com: Service hooks/hook does not exist",
                ),
            ],
        )
        .await?;
    is_rejected(client).await?;
    webhooks.delete("hooks", &DeleteParams::default()).await?;
    api_services
        .delete("v1.shop.example.com", &DeleteParams::default())
        .await?;
    definitions
        .delete("carts.example.com", &DeleteParams::default())
        .await?;
    audit.finds("no servers in the cluster", &[]).await
}

/// The webhook configuration has the name of kcp-webhook's, and the API server ignores that nothing responds.
pub(crate) async fn of_the_certificate_of_kcp_webhook(audit: &Audit<'_>, client: &Client) -> Result<()> {
    const NAMESPACE: &str = "kcp-webhook-system";
    const CHECK: &str = "webhook-certificate-expires-while-off";
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, &json!({"metadata": {"name": NAMESPACE}})).await?;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let webhook = json!({
        "metadata": {"name": CONFIGURATION},
        "webhooks": [{
            "name": "carts.mutate.example.com", "failurePolicy": "Ignore", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"service": {"namespace": NAMESPACE, "name": "kcp-webhook"}},
            "rules": [{"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["carts"]}],
        }],
    });
    create(&webhooks, &webhook).await?;
    let absent = (
        CHECK,
        "UNKNOWN",
        "there is no Secret kcp-webhook-system/kcp-webhook-tls with the key tls.crt",
    );
    audit.finds("kcp-webhook without its Secret", &[absent]).await?;

    let (authority, folder) = (
        Authority::new("webhook-ca")?,
        audit.management.run().subfolder("webhook-tls")?,
    );
    let subject = Subject {
        common_name: "kcp-webhook",
        ..Subject::default()
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    for (files, expected) in [
        (
            authority.issue_expired(&folder, "expired", &subject)?,
            &[(CHECK, "FAIL", "the serving certificate of kcp-webhook expired")][..],
        ),
        (authority.issue(&folder, "valid", &subject)?, &[]),
    ] {
        let data = json!({"tls.crt": fs::read_to_string(&files.certificate)?, "tls.key": fs::read_to_string(&files.key)?});
        create(
            &secrets,
            &json!({"metadata": {"name": "kcp-webhook-tls"}, "stringData": data}),
        )
        .await?;
        audit.finds("the certificate of kcp-webhook", expected).await?;
        secrets
            .delete("kcp-webhook-tls", &DeleteParams::default())
            .await?;
    }
    webhooks.delete(CONFIGURATION, &DeleteParams::default()).await?;
    audit.finds("no kcp-webhook", &[]).await
}

async fn is_rejected(client: &Client) -> Result<()> {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let request = json!({
        "metadata": {"name": "kubelet"},
        "spec": {"request": "", "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": ["client auth"]},
    });
    wait::until("the API server calls the webhook", || async {
        let created = requests
            .create(&PostParams::default(), &from_value(request.clone())?)
            .await;
        let error = created.err().context("it was created")?.to_string();
        ensure!(
            error.contains("failed calling webhook \"csr.example.com\""),
            "{error}"
        );
        Ok(())
    })
    .await
}

/// kubeadm's own record says that kubelets use the endpoint. `from` becomes `to` in it.
pub(crate) async fn of_kubelets(
    audit: &Audit<'_>,
    client: &Client,
    from: &str,
    to: &str,
    evidence: &str,
) -> Result<()> {
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let config = configs.get("kubeadm-config").await?;
    let text = config
        .data
        .and_then(|mut data| data.remove("ClusterConfiguration"))
        .context("no ClusterConfiguration")?;
    ensure!(text.contains(from), "{text}");
    let set = async |text: &str| -> Result<()> {
        let patch = json!({"data": {"ClusterConfiguration": text}});
        configs
            .patch("kubeadm-config", &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    };
    set(&text.replace(from, to)).await?;
    let found = ("kubelets-use-endpoint", "FAIL", evidence);
    audit.finds("kubelets that use the endpoint", &[found]).await?;
    set(&text).await?;
    audit.finds("kubelets that use their own API server", &[]).await
}

/// With a static Pod on each Node, no check of the healthy cluster fails. One is unknown.
async fn static_balancers_serve_the_endpoint(audit: &Audit<'_>, client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let names: Vec<String> = nodes
        .list(&kube::api::ListParams::default())
        .await?
        .into_iter()
        .filter_map(|node| node.metadata.name)
        .collect();
    for node in &names {
        let pod = json!({
            "metadata": {
                "name": format!("haproxy-{node}"),
                "annotations": {"kubernetes.io/config.mirror": node, "kubernetes.io/config.source": "file"},
            },
            "spec": {
                "nodeName": node, "hostNetwork": true, "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "haproxy", "image": "haproxy:3.2"}],
            },
        });
        create(&pods, &pod).await?;
    }
    wait::until("no check fails", || async {
        let (code, results) = audit.run(&[]).await?;
        super::is_exactly(&results, &[super::WITHOUT_FLAGS], &[])?;
        ensure!(code == 2, "exit code {code}");
        Ok(())
    })
    .await?;
    for node in &names {
        let now = DeleteParams::default().grace_period(0);
        pods.delete(&format!("haproxy-{node}"), &now).await?;
    }
    audit.finds("an endpoint without static Pods", &[]).await
}

async fn of_members(audit: &Audit<'_>, workload: &WorkloadCluster, [_, second, _]: [&str; 3]) -> Result<()> {
    let few = (
        "etcd-loss-not-survived",
        "FAIL",
        "2 of 3 voting members healthy, 2 needed for quorum",
    );
    let not_ready = format!("Pod etcd-{second} is not ready");
    workload.inflict(Fault::Kill, second).await?;
    audit
        .finds(
            "a killed member",
            &[few, ("static-pods-not-ready", "FAIL", &not_ready)],
        )
        .await?;
    workload.inflict(Fault::Restart, second).await?;
    audit.finds("a restarted member", &[]).await?;
    workload.inflict(Fault::NoSpace, second).await?;
    let alarm = format!("member {second} has raised the alarm NOSPACE");
    audit
        .finds("an alarm", &[few, ("etcd-alarms-raised", "FAIL", &alarm)])
        .await?;
    workload.inflict(Fault::Disarm, second).await?;
    audit.finds("no alarm", &[]).await?;
    workload.inflict(Fault::Stray, "stray").await?;
    let four = ("etcd-members-even", "FAIL", "4 voting members");
    let three = ("etcd-loss-not-survived", "FAIL", "3 of 4 voting members healthy");
    audit.finds("a fourth member", &[four, three]).await?;
    workload.inflict(Fault::Remove, "stray").await?;
    audit.finds("three members", &[]).await
}

async fn create<K>(api: &Api<K>, object: &Value) -> Result<()>
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &from_value(object.clone())?)
        .await?;
    Ok(())
}

/// Deletes a static Pod, and returns it as it can be created again.
async fn take_away(pods: &Api<Pod>, name: &str) -> Result<Value> {
    let mut pod = pods.get(name).await?;
    pod.meta_mut().resource_version = None;
    pod.meta_mut().uid = None;
    pod.meta_mut().creation_timestamp = None;
    pod.meta_mut().managed_fields = None;
    pod.status = None;
    pods.delete(name, &DeleteParams::default().grace_period(0))
        .await?;
    Ok(to_value(pod)?)
}

/// Replaces a static Pod by a changed one, as a kubelet does after a change of the manifest. Returns the original.
async fn change(pods: &Api<Pod>, name: &str, patch: &Value) -> Result<Value> {
    let original = take_away(pods, name).await?;
    let mut changed = original.clone();
    let spec = changed
        .get_mut("spec")
        .and_then(Value::as_object_mut)
        .context("no spec")?;
    spec.extend(
        patch
            .get("spec")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default(),
    );
    put_back(pods, changed).await?;
    Ok(original)
}

async fn restore(pods: &Api<Pod>, original: Value) -> Result<()> {
    let name = original
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .context("no name")?;
    take_away(pods, name).await?;
    put_back(pods, original).await
}

async fn put_back(pods: &Api<Pod>, pod: Value) -> Result<()> {
    wait::until("the static Pod exists again", || async {
        create(pods, &pod).await
    })
    .await
}

async fn set_ready(pods: &Api<Pod>, name: &str, status: &str) -> Result<()> {
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(&status))
        .await?;
    Ok(())
}
