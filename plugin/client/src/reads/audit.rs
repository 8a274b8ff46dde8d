//! Reads what `kubectl kcp audit` checks, in the workload cluster of a control plane, or in a kubeadm cluster that
//! Cluster API did not create.
//!
//! - [`objects`]: extracts what the checks need from objects
//! - [`services`]: reads what runs behind Services

pub mod objects;
pub mod services;

use std::{collections::BTreeMap, time::Instant};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        coordination::v1::Lease,
        core::v1::{self, ConfigMap, Namespace},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kcp_api::{CertificateSecret, Machine, Object as _, kind::MACHINE, names::label};
use kcp_control_plane::{
    audit::facts::{
        Backend, CertificateFacts, EtcdFacts, Facts, HealthCheckFacts, MachineNode, Node, Pod, Webhook,
    },
    certificates::{Certificates, Validity},
    snapshot::{EndpointCertificate, EtcdMembers, Failure, Reading, Snapshot},
};
use kcp_rules::registration::{CONFIGURATION, NAMESPACE, TLS_SECRET};
use kube::api::ListParams;
use tokio::time::timeout;

use crate::{
    Action, Connection, Error, ReadLimit,
    reader::Reader,
    reads::{
        Excluded,
        certificates::{read_certificates, validity_of_bundle},
        failure, limit_per_control_plane, observe,
        secret::Secrets,
        time_limits::{self, remaining},
        workload::{KUBE_SYSTEM, NODE_LEASES, WorkloadCluster, objects::lease},
    },
    workload::{Objects, ServingCertificate},
};

/// What was read, and the time of the API server.
#[derive(Clone, Debug)]
pub struct AuditedCluster {
    pub facts: Facts,
    pub now: Timestamp,
}

type DescribeFailure<'s> = Box<dyn Fn(&str, &Error) -> Failure + 's>;

/// A cluster whose objects are read, and how its errors are described.
struct Source<'s> {
    objects: Objects,
    describe: DescribeFailure<'s>,
}

impl Source<'_> {
    fn reading<T>(&self, object: &str, read: Result<T, Error>) -> Reading<T> {
        match read {
            Ok(part) => Reading::Read(part),
            Err(error) => Reading::Failed((self.describe)(object, &error)),
        }
    }
}

/// Reads the workload cluster of a control plane, until `end` at the latest.
pub async fn read_workload_cluster(
    reader: &Reader<'_>,
    namespace: &str,
    name: &str,
    end: Instant,
) -> Result<AuditedCluster, Error> {
    // The certificates and the rest of the workload cluster are read afterwards, in the second half of the time.
    let half = Instant::now() + remaining(end) / 2;
    let observed = Box::pin(observe(reader, namespace, name, Excluded::default(), half)).await?;
    let machines = Box::pin(read_machines(reader, &observed, end));
    let limit = limit_per_control_plane(remaining(end));
    let certificates = Box::pin(read_certificates(reader, &observed, limit));
    let objects = Box::pin(read_objects_of_workload(reader.connection, &observed, end));
    let (machines, certificates, (facts, now)) = tokio::join!(machines, certificates, objects);
    let Certificates { certificates, .. } = certificates;
    let members = observed.members();
    let facts = Facts {
        machines,
        health_checks: health_checks(&observed),
        certificates: CertificateFacts {
            endpoint: observed.endpoint_certificate,
            managed: certificates,
            is_managed: true,
            ..facts.certificates
        },
        etcd: EtcdFacts {
            survey: observed.etcd,
            members,
        },
        ..facts
    };
    Ok(AuditedCluster { facts, now })
}

/// Reads the cluster of the connection, which has no management cluster, until `end` at the latest.
pub async fn read_plain_cluster(connection: &Connection, end: Instant) -> AuditedCluster {
    let limit = time_limits::for_workload(remaining(end));
    let source = Source {
        objects: Objects::new(connection.clone(), limit),
        describe: Box::new(|object, error| failure::from_error(object.to_owned(), error)),
    };
    let (mut facts, endpoint) = tokio::join!(
        Box::pin(read_objects(&source, &connection.server)),
        Box::pin(read_endpoint_certificate(connection, limit))
    );
    facts.certificates.endpoint = endpoint;
    AuditedCluster {
        facts,
        now: connection.now(),
    }
}

async fn read_endpoint_certificate(
    connection: &Connection,
    limit: std::time::Duration,
) -> Reading<EndpointCertificate> {
    let server = connection.server.clone();
    let failed = |message: String| {
        Reading::Failed(Failure {
            object: server.clone(),
            message,
            hint: None,
            ..Failure::default()
        })
    };
    let Ok(url) = server.parse() else {
        return failed("the URL of the API server is not valid".to_owned());
    };
    match timeout(limit, ServingCertificate::new(url).read_expiry()).await {
        Ok(Ok(expires_at)) => Reading::Read(EndpointCertificate { server, expires_at }),
        Ok(Err(error)) => failed(error.to_string()),
        Err(_) => failed("the API server did not present its certificate within the time limit".to_owned()),
    }
}

/// The `MachineHealthChecks` that select a Machine of the control plane.
fn health_checks(observed: &Snapshot) -> Reading<Option<HealthCheckFacts>> {
    let replicas = observed.control_plane.spec.replicas.unwrap_or(1);
    observed.health_checks.clone().map(|mut checks| {
        checks.retain(|check| !check.targets.is_empty());
        Some(HealthCheckFacts {
            replicas: u64::try_from(replicas).unwrap_or_default(),
            checks,
        })
    })
}

/// Reads all Machines of the control plane's Cluster, those of workers too.
async fn read_machines(
    reader: &Reader<'_>,
    observed: &Snapshot,
    end: Instant,
) -> Reading<Option<Vec<MachineNode>>> {
    let control_plane = &observed.control_plane;
    let Some(cluster) = control_plane.cluster() else {
        return Reading::NotYet;
    };
    let namespace = control_plane.namespace();
    let selector = format!("{}={cluster}", label::CLUSTER_NAME);
    let resource = &reader.machine_resource;
    let action = Action::new("list", resource).in_namespace(namespace);
    let list = reader
        .connection
        .list::<Machine>(resource, Some(namespace), Some(&selector));
    let limit = ReadLimit::per_read(remaining(end));
    let machines = match reader.connection.run_with_limit(limit, &action, list).await {
        Ok(machines) => machines,
        Err(error) => return Reading::Failed(failure::of_kind(&MACHINE, &error)),
    };
    let machines = machines.into_iter().map(|machine| MachineNode {
        name: machine.name().to_owned(),
        node: machine.node().map(str::to_owned),
        provider_id: machine.spec.provider_id.clone(),
    });
    Reading::Read(Some(machines.collect()))
}

/// Reads the objects of the workload cluster, and its API server's time.
async fn read_objects_of_workload(
    management: &Connection,
    observed: &Snapshot,
    end: Instant,
) -> (Facts, Timestamp) {
    let control_plane = &observed.control_plane;
    let cluster = control_plane
        .cluster()
        .filter(|_| control_plane.status.initialized);
    let Some(cluster) = cluster else {
        return (unread(None), management.now());
    };
    let secrets = Secrets {
        management,
        namespace: control_plane.namespace(),
        cluster,
        end,
    };
    let cluster = match WorkloadCluster::open(&secrets).await {
        Ok(cluster) => cluster,
        Err(failure) => return (unread(Some(&failure)), management.now()),
    };
    let source = Source {
        objects: cluster.objects.clone(),
        describe: Box::new(|object, error| cluster.failures.describe(object, error)),
    };
    let facts = read_objects(&source, &cluster.server.url).await;
    let now = cluster.server.clock.now();
    (facts, now.map_or_else(|| management.now(), |time| time.earliest))
}

/// The facts of a cluster of which nothing was read. Without a failure, the control plane is not initialized yet.
fn unread(failure: Option<&Failure>) -> Facts {
    fn of<T>(failure: Option<&Failure>) -> Reading<T> {
        failure.map_or(Reading::NotYet, |failure| Reading::Failed(failure.clone()))
    }
    Facts {
        server: String::new(),
        nodes: of(failure),
        node_leases: of(failure),
        system_pods: of(failure),
        kubeadm: of(failure),
        machines: of(failure),
        health_checks: of(failure),
        etcd: EtcdFacts {
            survey: of(failure),
            members: EtcdMembers::Unread,
        },
        certificates: CertificateFacts {
            endpoint: of(failure),
            managed: Vec::new(),
            authorities: of(failure),
            webhook: of(failure),
            is_managed: false,
        },
        namespaces: of(failure),
        webhooks: of(failure),
        api_services: of(failure),
        conversions: of(failure),
        services: BTreeMap::new(),
    }
}

/// Reads all objects at the same time, and then the Services that they name.
async fn read_objects(source: &Source<'_>, server: &str) -> Facts {
    let everything = ListParams::default();
    let objects = &source.objects;
    let (
        nodes,
        node_leases,
        system_pods,
        kubeadm,
        authorities,
        namespaces,
        validating,
        mutating,
        api_services,
        crds,
    ) = tokio::join!(
        Box::pin(objects.list(None, &everything, |node: v1::Node| Some(Node::from_object(node)))),
        Box::pin(objects.list(Some(NODE_LEASES), &everything, |item: Lease| Some(lease(item)))),
        Box::pin(objects.list(Some(KUBE_SYSTEM), &everything, |pod: v1::Pod| Some(
            Pod::from_object(pod)
        ))),
        Box::pin(objects.get::<ConfigMap>(KUBE_SYSTEM, "kubeadm-config")),
        Box::pin(objects.get::<ConfigMap>(KUBE_SYSTEM, "extension-apiserver-authentication")),
        Box::pin(objects.list(None, &everything, |namespace: Namespace| {
            let metadata = namespace.metadata;
            Some((metadata.name?, metadata.labels.unwrap_or_default()))
        })),
        Box::pin(objects.list(
            None,
            &everything,
            |configuration: ValidatingWebhookConfiguration| Some(objects::validating_webhooks(configuration))
        )),
        Box::pin(objects.list(
            None,
            &everything,
            |configuration: MutatingWebhookConfiguration| Some(objects::mutating_webhooks(configuration))
        )),
        Box::pin(
            objects.list(None, &everything, |service: APIService| objects::api_service(
                service
            ))
        ),
        // Read few definitions at a time: they are large, because they contain schemas.
        Box::pin(objects.list_in_pages_of(
            DEFINITIONS_PER_PAGE,
            None,
            &everything,
            |definition: CustomResourceDefinition| objects::conversion(definition)
        )),
    );
    let webhooks = match (validating, mutating) {
        (Ok(validating), Ok(mutating)) => {
            Reading::Read(mutating.into_iter().chain(validating).flatten().collect())
        }
        (Err(error), _) => source.reading("ValidatingWebhookConfiguration", Err(error)),
        (_, Err(error)) => source.reading("MutatingWebhookConfiguration", Err(error)),
    };
    let api_services = source.reading("APIService", api_services);
    let conversions = source.reading("CustomResourceDefinition", crds);
    let names = services::named(&webhooks, &api_services, &conversions);
    let (services, webhook_certificate) = tokio::join!(
        Box::pin(services::read(objects, source.describe.as_ref(), names)),
        Box::pin(read_webhook_certificate(source, &webhooks)),
    );
    Facts {
        server: server.to_owned(),
        nodes: source.reading("Node", nodes),
        node_leases: source.reading("Lease", node_leases),
        system_pods: source.reading("Pod", system_pods),
        kubeadm: source
            .reading("ConfigMap/kubeadm-config", kubeadm)
            .and_then(objects::kubeadm_settings),
        machines: Reading::Read(None),
        health_checks: Reading::Read(None),
        etcd: EtcdFacts {
            survey: Reading::NotYet,
            members: EtcdMembers::Unread,
        },
        certificates: CertificateFacts {
            endpoint: Reading::NotYet,
            managed: Vec::new(),
            authorities: source
                .reading("ConfigMap/extension-apiserver-authentication", authorities)
                .and_then(objects::authorities),
            webhook: webhook_certificate,
            is_managed: false,
        },
        namespaces: source
            .reading("Namespace", namespaces)
            .map(|namespaces| namespaces.into_iter().collect()),
        webhooks,
        api_services,
        conversions,
        services,
    }
}

const DEFINITIONS_PER_PAGE: u32 = 50;

/// Reads the serving certificate of kcp-webhook, if one of the webhooks is that of kcp-webhook.
async fn read_webhook_certificate(
    source: &Source<'_>,
    webhooks: &Reading<Vec<Webhook>>,
) -> Reading<Option<Validity>> {
    let webhooks = match webhooks.as_ref() {
        Reading::Read(webhooks) => webhooks,
        unread => return unread.map(|_| None),
    };
    let Some(own) = webhooks.iter().find(|webhook| is_own(webhook)) else {
        return Reading::Read(None);
    };
    let namespace = match &own.backend {
        Backend::Service(service) => service.namespace.as_str(),
        // A configuration that calls static Pods names no namespace.
        Backend::Url(_) => NAMESPACE,
    };
    let secret = source
        .objects
        .get_as::<v1::Secret, CertificateSecret>(namespace, TLS_SECRET);
    source
        .reading(&format!("Secret/{TLS_SECRET}"), secret.await)
        .map(|secret| {
            let certificate = secret.as_ref().and_then(CertificateSecret::certificate);
            Some(certificate.map_or_else(
                || Validity::Missing {
                    why: format!(
                        "there is no Secret {namespace}/{TLS_SECRET} with the key tls.crt; the certificate may be in another Secret"
                    ),
                },
                validity_of_bundle,
            ))
        })
}

fn is_own(webhook: &Webhook) -> bool {
    webhook.configuration.rsplit('/').next() == Some(CONFIGURATION)
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, time::Duration};

    use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::testing::failure;

    fn webhooks(name: &str, client_config: &Value) -> Reading<Vec<Webhook>> {
        let configuration = json!({
            "metadata": {"name": name},
            "webhooks": [{"name": "w", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": client_config}],
        });
        let configuration: MutatingWebhookConfiguration = from_value(configuration).expect("a configuration");
        Reading::Read(objects::mutating_webhooks(configuration))
    }

    /// What is read if the API server responds to the read of the Secret in this way, and the path of this read.
    async fn read(
        webhooks: &Reading<Vec<Webhook>>,
        response: (u16, Value),
    ) -> (Reading<Option<Validity>>, Option<String>) {
        let (requested, paths) = channel();
        let connection = Connection::canned(move |_, path| {
            let path = path.split('?').next().unwrap_or_default();
            requested.send(path.to_owned()).expect("a receiver");
            response.clone()
        });
        let source = Source {
            objects: Objects::new(connection, Duration::from_secs(10)),
            describe: Box::new(|object, error| failure::from_error(object.to_owned(), error)),
        };
        let found = read_webhook_certificate(&source, webhooks).await;
        (found, paths.try_iter().next())
    }

    fn absent() -> (u16, Value) {
        let (code, mut status) = failure(404, "NotFound", "secrets \"kcp-webhook-tls\" not found");
        status["details"] = json!({"name": "kcp-webhook-tls", "kind": "secrets"});
        (code, status)
    }

    fn service() -> Value {
        json!({"service": {"namespace": "hooks", "name": "kcp-webhook"}})
    }

    #[tokio::test]
    async fn the_secret_of_a_registered_webhook_is_read() {
        let no_certificate = json!({"data": {"tls.crt": "bm9uZQ=="}});
        for (config, namespace) in [
            (service(), "hooks"),
            (
                json!({"url": "https://127.0.0.1:11443/mutate"}),
                "kcp-webhook-system",
            ),
        ] {
            let (found, path) = read(&webhooks(CONFIGURATION, &config), (200, no_certificate.clone())).await;
            let why = "the data contains no certificate in PEM format".to_owned();
            assert_eq!(found, Reading::Read(Some(Validity::Missing { why })));
            assert_eq!(
                path,
                Some(format!("/api/v1/namespaces/{namespace}/secrets/kcp-webhook-tls"))
            );
        }
        let (found, _) = read(&webhooks(CONFIGURATION, &service()), absent()).await;
        let why = "there is no Secret hooks/kcp-webhook-tls with the key tls.crt; the certificate may be in another Secret";
        assert_eq!(
            found,
            Reading::Read(Some(Validity::Missing { why: why.to_owned() }))
        );
        let (found, _) = read(
            &webhooks(CONFIGURATION, &service()),
            failure(403, "Forbidden", "forbidden"),
        )
        .await;
        assert!(matches!(found, Reading::Failed(_)), "{found:?}");
    }

    #[tokio::test]
    async fn no_secret_is_read_for_other_webhooks() {
        let (found, path) = read(&webhooks("other", &service()), absent()).await;
        assert_eq!((found, path), (Reading::Read(None), None));
        let unread = Reading::NotYet;
        let (found, path) = read(&unread, absent()).await;
        assert_eq!((found, path), (Reading::NotYet, None));
    }
}
