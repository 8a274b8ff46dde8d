//! What the Secrets of a pool say about its clusters.

use k8s_openapi::ByteString;
use kcp_api::ClusterDeployment;
use kcp_client::{Connection, testing::failure};
use serde_json::{Value, json};

use super::{ComparedClusters, Comparison, SecretFacts, last_change};
use crate::{
    store::Store,
    testing::objects::{JUST_NOW, LONG_AGO, NOW, cluster, entry, pool, read},
};

const TEMPLATE: &str =
    "baseDomain: ignored\ncompute:\n- name: worker\n  replicas: 2\nplatform: {aws: {region: a}}\n";

fn secret(content: &str, changed: Option<&str>) -> Value {
    let owner = changed.map(|time| json!({"manager": "kubectl", "time": time, "fieldsV1": {"f:data": {}}}));
    let labels = json!({"manager": "labeler", "time": NOW, "fieldsV1": {"f:metadata": {}}});
    json!({
        "metadata": {"name": "s", "creationTimestamp": LONG_AGO,
            "managedFields": owner.into_iter().chain([labels]).collect::<Vec<_>>()},
        "data": {"install-config.yaml": ByteString(content.as_bytes().to_vec())},
    })
}

/// What the server answers for each Secret, by its namespace and name.
type Answers = Vec<(&'static str, (u16, Value))>;

/// A pool of clusters on AWS with a template, and an entry that changes the region.
async fn facts(answers: Answers, spec: &Value) -> (SecretFacts, Vec<String>) {
    let connection = Connection::canned(move |_, path| {
        let answer = answers.iter().find(|(secret, _)| {
            let (namespace, name) = secret.split_once('/').unwrap();
            path == format!("/api/v1/namespaces/{namespace}/secrets/{name}")
        });
        answer.map_or_else(
            || {
                let (code, mut status) = failure(404, "NotFound", "no");
                status["details"] = json!({"name": "s"});
                (code, status)
            },
            |(_, answer)| answer.clone(),
        )
    });
    let mut whole = json!({
        "platform": {"aws": {"credentialsSecretRef": {"name": "creds"}}},
        "installConfigSecretTemplateRef": {"name": "template"},
    });
    whole
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    let pool = pool(&whole);
    let mut host = entry("False", Some("bern"));
    host["spec"] =
        json!({"installConfigPatches": [{"op": "replace", "path": "/platform/aws/region", "value": "b"}]});
    let entries = [read(&host)];
    let bern = bern();
    let compared = ComparedClusters {
        pool: &pool,
        clusters: &[&bern],
        entries: &entries,
    };
    let mut unread = Vec::new();
    let facts = compared.read(&Store::new(&connection, "m"), &mut unread).await;
    (facts, unread)
}

/// A cluster that Hive created a minute ago.
fn bern() -> ClusterDeployment {
    let mut bern = cluster("bern", "pool", Some("a"));
    bern["metadata"]["creationTimestamp"] = JUST_NOW.into();
    read(&bern)
}

fn own(region: &str, replicas: u8) -> (&'static str, (u16, Value)) {
    let content = format!(
        "baseDomain: example.com\nmetadata: {{name: bern, creationTimestamp: null}}\ncompute:\n- name: worker\n  replicas: \
         {replicas}\nplatform: {{aws: {{region: {region}}}}}\n"
    );
    (
        "bern/bern-install-config",
        (200, secret(&content, Some(JUST_NOW))),
    )
}

#[tokio::test]
async fn a_changed_template_is_compared_with_the_install_config_of_each_older_cluster() {
    const CHANGED: &str = "secret/template, the install-config template, changed at 2026-11-21T05:00:00Z";
    const DIFFERS: &str = ", and the cluster's install-config differs from the one that Hive would create now; to replace the \
                           cluster, delete the ClusterDeployment";
    const UNKNOWN: &str = "; it is unknown whether the cluster has an older install-config, because its install-config could not be \
                           compared with the template: ";
    let template = |changed| ("d/template", (200, secret(TEMPLATE, changed)));
    let forbidden = |secret| (secret, failure(403, "Forbidden", "no"));
    let decided = || json!({"skipMachinePools": true});
    for (case, answers, expected) in [
        (
            "not changed since",
            vec![template(Some(LONG_AGO)), own("x", 9)],
            None,
        ),
        ("the same content", vec![template(Some(NOW)), own("b", 2)], None),
        (
            "other workers",
            vec![template(Some(NOW)), own("b", 3)],
            Some(format!("{CHANGED}{DIFFERS}")),
        ),
        (
            "created without the patch of the entry",
            vec![template(Some(NOW)), own("a", 2)],
            Some(format!("{CHANGED}{DIFFERS}")),
        ),
        (
            "changed at an unknown time",
            vec![template(None), own("b", 3)],
            Some(format!(
                "secret/template, the install-config template, changed at an unknown time{DIFFERS}"
            )),
        ),
        (
            "the install-config of the cluster is missing",
            vec![template(Some(NOW))],
            Some(format!(
                "{CHANGED}{UNKNOWN}cannot get secrets \"bern-install-config\" in namespace \"bern\": not found"
            )),
        ),
        (
            "the template has no install-config",
            vec![(
                "d/template",
                (200, {
                    let mut secret = secret("", Some(NOW));
                    secret["data"] = json!({});
                    secret
                }),
            )],
            Some(format!(
                "{CHANGED}{UNKNOWN}secret/template in namespace d has no key install-config.yaml"
            )),
        ),
        ("the template is missing", vec![own("b", 3)], None),
        (
            "the template may not be read",
            vec![forbidden("d/template"), own("b", 3)],
            None,
        ),
        (
            "the server cannot read the template",
            vec![("d/template", failure(500, "InternalError", "no")), own("b", 3)],
            None,
        ),
    ] {
        let is_unread = answers.iter().any(|(_, (code, _))| *code >= 403);
        let (facts, unread) = facts(answers, &decided()).await;
        let old = facts.old_secret(&bern());
        assert_eq!(old, expected, "{case}");
        let says = unread.iter().any(|unread| {
            unread.starts_with(
                "it is unknown whether secret/template changed after clusters had been created from it: cannot get secrets",
            )
        });
        assert_eq!(says, is_unread, "{unread:?}");
        assert_eq!(facts.changed_workers, None, "{case}");
    }
}

#[tokio::test]
async fn changed_credentials_are_not_read() {
    for (changed, is_old) in [(NOW, true), (LONG_AGO, false)] {
        let mut creds = secret("", Some(changed));
        creds.as_object_mut().unwrap().remove("data");
        let (facts, unread) = facts(vec![("d/creds", (200, creds))], &json!({})).await;
        let expected = is_old.then(|| {
            "secret/creds, the credentials for the platform, changed at 2026-11-21T05:00:00Z, after Hive had copied them for the \
             cluster; if the old credentials are no longer valid, delete the ClusterDeployment, and Hive creates another one"
                .to_owned()
        });
        assert_eq!(facts.old_secret(&bern()), expected);
        assert_eq!(unread, Vec::<String>::new());
    }
}

#[tokio::test]
async fn hive_changes_the_workers_of_a_template_unless_the_pool_decides() {
    let workers = |text: &str| {
        TEMPLATE
            .replace("- name: worker\n  replicas: 2", text)
            .replace("compute:\n[]", "compute: []")
    };
    for (template, spec, expected) in [
        (workers("- name: worker\n  replicas: 2"), json!({}), Some(2)),
        (workers("- name: worker\n  replicas: 0"), json!({}), Some(0)),
        (workers("- name: worker\n  replicas: 3"), json!({}), None),
        (workers("- name: worker"), json!({}), None),
        (workers("[]"), json!({}), Some(0)),
        (workers("- name: edge\n  replicas: 1"), json!({}), None),
        ("platform: {}\n".to_owned(), json!({}), None),
        (
            workers("- name: worker\n  replicas: 2"),
            json!({"skipMachinePools": true}),
            None,
        ),
        (
            workers("- name: worker\n  replicas: 2"),
            json!({"skipMachinePools": false}),
            None,
        ),
    ] {
        let answers = vec![("d/template", (200, secret(&template, Some(LONG_AGO))))];
        let (facts, _) = facts(answers, &spec).await;
        assert_eq!(facts.changed_workers, expected, "{template} {spec}");
        assert_eq!(facts.comparisons.get("bern"), None::<&Comparison>);
    }
}

#[test]
fn the_last_change_of_a_secret_is_that_of_its_data() {
    let mut created_again = secret("", Some(LONG_AGO));
    created_again["metadata"]["creationTimestamp"] = JUST_NOW.into();
    for (secret, expected) in [
        (secret("", Some(JUST_NOW)), Some(JUST_NOW)),
        (secret("", None), None),
        (created_again, Some(JUST_NOW)),
        (json!({"metadata": {"creationTimestamp": LONG_AGO}}), None),
    ] {
        let expected = expected.map(|time| time.parse().unwrap());
        assert_eq!(last_change(&secret), expected, "{secret}");
    }
}
