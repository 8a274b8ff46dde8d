//! Reads what runs behind the Services that webhooks, `APIServices` and custom resources name.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::{self, StreamExt as _};
use k8s_openapi::api::{
    core::v1::{self, Pod},
    policy::v1::PodDisruptionBudget,
};
use kcp_control_plane::{
    audit::facts::{ApiService, Backend, BackendPod, Conversion, Service, ServiceName, Webhook},
    snapshot::{Failure, Reading},
};
use kube::{
    api::ListParams,
    core::{Selector, SelectorExt as _},
};

use crate::{Error, workload::Objects};

/// The maximum number of Services that are read. A cluster with more webhooks has other problems first.
const MAX_SERVICES: usize = 200;

/// The maximum number of Services that are read at the same time. Each needs three requests.
const MAX_CONCURRENT_READS: usize = 8;

/// The Services that the objects name.
pub fn named(
    webhooks: &Reading<Vec<Webhook>>,
    api_services: &Reading<Vec<ApiService>>,
    conversions: &Reading<Vec<Conversion>>,
) -> BTreeSet<ServiceName> {
    let webhooks = webhooks.value().into_iter().flatten();
    let webhooks = webhooks.filter_map(|webhook| webhook.backend.service());
    let api_services = api_services.value().into_iter().flatten().map(|api| &api.service);
    let conversions = conversions.value().into_iter().flatten();
    let conversions = conversions
        .filter(|conversion| conversion.is_needed)
        .filter_map(|conversion| Backend::service(&conversion.backend));
    webhooks.chain(api_services).chain(conversions).cloned().collect()
}

/// Reads each Service, its Pods, and the budgets that protect them.
pub async fn read(
    objects: &Objects,
    describe: &dyn Fn(&str, &Error) -> Failure,
    names: BTreeSet<ServiceName>,
) -> BTreeMap<ServiceName, Reading<Option<Service>>> {
    let reads = names.into_iter().take(MAX_SERVICES).map(async |name| {
        let reading = match Box::pin(read_one(objects, &name)).await {
            Ok(service) => Reading::Read(service),
            Err(error) => Reading::Failed(describe(&name.to_string(), &error)),
        };
        (name, reading)
    });
    stream::iter(reads).buffered(MAX_CONCURRENT_READS).collect().await
}

async fn read_one(objects: &Objects, name: &ServiceName) -> Result<Option<Service>, Error> {
    let namespace = &name.namespace;
    let Some(service) = objects.get::<v1::Service>(namespace, &name.name).await? else {
        return Ok(None);
    };
    let spec = service.spec.unwrap_or_default();
    let selector = spec.selector.unwrap_or_default();
    let cluster_ips = spec.cluster_ips.unwrap_or_default();
    if selector.is_empty() {
        return Ok(Some(Service {
            cluster_ips,
            pods: None,
            budgets: 0,
        }));
    }
    let labels: Vec<String> = selector
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let filter = ListParams::default().labels(&labels.join(","));
    let pods = objects.list(Some(namespace), &filter, |pod: Pod| Some(backend_pod(pod)));
    let everything = ListParams::default();
    let budgets = objects.list(Some(namespace), &everything, Some::<PodDisruptionBudget>);
    let (pods, budgets) = tokio::join!(Box::pin(pods), Box::pin(budgets));
    let (pods, budgets) = (pods?, budgets?);
    let protects = |budget: &PodDisruptionBudget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        let selector: Option<Selector> = selector.and_then(|selector| selector.try_into().ok());
        selector.is_some_and(|selector| pods.iter().any(|pod| selector.matches(&pod.labels)))
    };
    Ok(Some(Service {
        cluster_ips,
        budgets: budgets.iter().filter(|budget| protects(budget)).count(),
        pods: Some(pods),
    }))
}

fn backend_pod(pod: Pod) -> BackendPod {
    let conditions = pod
        .status
        .and_then(|status| status.conditions)
        .unwrap_or_default();
    BackendPod {
        labels: pod.metadata.labels.unwrap_or_default(),
        node: pod.spec.and_then(|spec| spec.node_name).unwrap_or_default(),
        ready: pod.metadata.deletion_timestamp.is_none()
            && conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
    }
}
