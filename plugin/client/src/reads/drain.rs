//! Reads the objects that decide how Cluster API drains the nodes of control plane Machines.

use std::{collections::BTreeMap, time::Instant};

use futures_util::future::try_join_all;
use k8s_openapi::api::{
    core::v1::{Namespace, Pod},
    policy::v1::PodDisruptionBudget,
};
use kcp_api::{MachineDrainRule, kind::MACHINE_DRAIN_RULE};
use kcp_control_plane::snapshot::{DrainObjects, Failure, Reading};
use kube::api::ListParams;

use crate::{
    Action, Error, ReadLimit,
    reader::Reader,
    reads::{WorkloadTarget, failure, secret::Secrets, time_limits, workload::WorkloadCluster},
};

/// Reads the pods of these nodes, and the objects that decide how each pod is drained, and stops reading at `end`.
pub async fn read_drain_objects(
    reader: &Reader<'_>,
    target: &WorkloadTarget,
    nodes: Vec<String>,
    end: Instant,
) -> Reading<DrainObjects> {
    if !target.initialized || nodes.is_empty() {
        return Reading::NotYet;
    }
    let secrets = Secrets {
        management: reader.connection,
        namespace: &target.namespace,
        cluster: &target.cluster,
        end,
    };
    let read = async {
        let cluster = WorkloadCluster::open(&secrets).await?;
        let rules = drain_rules(reader, &target.namespace, end).await;
        Box::pin(read_from(&cluster, rules, &nodes)).await
    };
    match Box::pin(read).await {
        Ok(objects) => Reading::Read(objects),
        Err(failure) => Reading::Failed(failure),
    }
}

async fn read_from(
    cluster: &WorkloadCluster,
    rules: Reading<Vec<MachineDrainRule>>,
    nodes: &[String],
) -> Result<DrainObjects, Failure> {
    let pods = nodes.iter().map(|node| async move {
        let filter = ListParams::default().fields(&format!("spec.nodeName={node}"));
        Box::pin(cluster.objects.list(None, &filter, Some::<Pod>)).await
    });
    let failed = |kind: &'static str| move |error: Error| cluster.failures.describe(kind, &error);
    let everything = ListParams::default();
    let budgets = cluster
        .objects
        .list(None, &everything, Some::<PodDisruptionBudget>);
    let selects_namespaces = rules.value().is_some_and(|rules| {
        let mut pods = rules.iter().flat_map(|rule| &rule.spec.pods);
        pods.any(|pods| pods.namespace_selector.is_some())
    });
    let namespaces = async {
        if !selects_namespaces {
            return Ok(BTreeMap::new());
        }
        let labels = |namespace: Namespace| {
            let metadata = namespace.metadata;
            Some((metadata.name?, metadata.labels.unwrap_or_default()))
        };
        let listed = cluster.objects.list(None, &everything, labels).await?;
        Ok(listed.into_iter().collect())
    };
    let (pods, budgets, namespaces) =
        tokio::join!(try_join_all(pods), Box::pin(budgets), Box::pin(namespaces));
    Ok(DrainObjects {
        pods: pods.map_err(failed("Pod"))?.into_iter().flatten().collect(),
        budgets: budgets.map_err(failed("PodDisruptionBudget"))?,
        namespaces: namespaces.map_err(failed("Namespace"))?,
        rules,
    })
}

/// Reads the `MachineDrainRules` of a namespace. Empty if the management cluster does not serve the kind.
async fn drain_rules(reader: &Reader<'_>, namespace: &str, end: Instant) -> Reading<Vec<MachineDrainRule>> {
    let read = async {
        let resource = reader.served.resource(&MACHINE_DRAIN_RULE)?;
        let action = Action::new("list", &resource).in_namespace(namespace);
        let read = reader
            .connection
            .list::<MachineDrainRule>(&resource, Some(namespace), None);
        let limit = ReadLimit::per_read(time_limits::remaining(end));
        reader.connection.run_with_limit(limit, &action, read).await
    };
    match read.await {
        Ok(rules) => Reading::Read(rules),
        Err(Error::NotServed { .. } | Error::NotFound { .. }) => Reading::Read(Vec::new()),
        Err(error) => Reading::Failed(failure::of_kind(&MACHINE_DRAIN_RULE, &error)),
    }
}
