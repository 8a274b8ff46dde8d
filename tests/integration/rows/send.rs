//! Sends a row: first creates the other objects without any webhook, then sends the write itself as a dry run.

use anyhow::{Context as _, Result};
use kcp_rules::testing::case::{Answer, Base, Write};
use kcp_rules::testing::row::Row;
use kube::Client;
use serde_json::json;

use super::answer::Answered;
use super::environment::create_namespace;
use super::other_objects;
use super::request::{Request, Verb, path_of};
use super::seed::{Place, seed};

/// Sends a row to its own namespace. `judge` returns the reviewer, given whether the row has other objects.
pub(super) async fn send<'j>(
    client: &Client,
    place: Place<'_>,
    row: Row<'_>,
    judge: impl FnOnce(bool) -> Result<&'j str>,
) -> Result<Answered> {
    let case = row.case;
    let namespace = place.namespace;
    let mut other_objects = other_objects::of(&(case.view)(), namespace, row.base);
    let judge = judge(other_objects.sees)?;
    create_namespace(client, namespace, judge).await?;
    if row.base == Base::ClusterDeployment {
        create_namespace(client, &format!("{namespace}-example-1"), judge).await?;
    }
    for object in other_objects.objects.drain(..) {
        seed(client, place.of(object))
            .await
            .context("what the row sees")?;
    }
    let old = match row.old()? {
        Some(old) => match seed(client, place.of(other_objects.labelled(old))).await {
            Ok(stored) => Some(stored),
            Err(refused) if matches!(case.answer, Some(Answer::Schema(_))) => return refused.downcast(),
            Err(refused) => return Err(refused.context("the object as it is")),
        },
        None => None,
    };
    if other_objects.terminating {
        let path = format!("/api/v1/namespaces/{namespace}");
        Request::new(Verb::Delete, &path)
            .send(client)
            .await?
            .succeeded()?;
    }
    let new = place.of(other_objects.labelled(row.new_object()?));
    let collection = path_of(&new)?;
    let path = format!(
        "{collection}/{}",
        new["metadata"]["name"].as_str().context("no name")?
    );
    let scale = format!("{path}/scale");
    let request = match (case.write, old) {
        // Only an apply leaves its manager as the owner of what it sets.
        (Write::Update(_, change), Some(_)) if change.contains("managedFields") => {
            Request::new(Verb::Apply, &path).body(json!({
                "apiVersion": new["apiVersion"],
                "kind": new["kind"],
                "metadata": {"name": new["metadata"]["name"], "namespace": new["metadata"]["namespace"]},
                "spec": {"replicas": new["spec"]["replicas"], "version": new["spec"]["version"]},
            }))
        }
        (Write::Update(..), Some(old)) => {
            let mut new = new;
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            Request::new(Verb::Replace, &path).body(new)
        }
        (Write::Scale(_, replicas), Some(old)) => Request::new(Verb::Replace, &scale).body(json!({
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": old["metadata"]["name"], "namespace": old["metadata"]["namespace"]},
            "spec": {"replicas": replicas},
        })),
        (Write::Delete(_), _) => Request::new(Verb::Delete, &path),
        _ => Request::new(Verb::Create, &collection).body(new),
    };
    let mut request = request.dry_run();
    if let Some(writer) = case.writer {
        request = request.by(writer);
    }
    if let Some(manager) = case.field_manager {
        request = request.field_manager(manager);
    }
    request.send(client).await
}
