//! Sends every row of the rules' own table to an API server with our policies only. The CEL rules must give the same
//! messages as their functions. There are no webhooks, so nothing else defaults or denies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kcp_api::names::annotation;
use kcp_rules::api::control_plane::Shape;
use kcp_rules::cel::{Cel, NoCel};
use kcp_rules::testing::case::{Answer, Base, Case, V1BETA1, V1BETA2, Write};
use kcp_rules::testing::row::Row;
use kcp_rules::{Action, Configuration, Finding, Rule};
use kcp_rules::{testing::cases::written_cases, topics::rules};
use kcp_tests::cluster_api_alone::ClusterApiAlone;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{manifests, wait};
use kube::Client;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};

use super::IN_FLIGHT;
use super::answer::{Answered, rule_of};
use super::environment::{JUDGED_BY, append, create_namespace, document, spares_the_seeder};
use super::request::{Request, Verb, path_of};
use super::seed::Place;
use super::send::send;
use crate::shared::with_management_cluster;

/// Rules of which only the fields are compared, with the API version of the rows. CEL does not know a parser's error,
/// and an old object in v1beta1 lacks the fields that v1beta2 does not have.
const WORDED_OTHERWISE: &[(&str, Option<&str>)] = &[
    ("version-not-semantic", None),
    ("cluster-configuration-immutable", Some(V1BETA1)),
];

#[test]
fn the_policies_alone_decide_every_row_alike() {
    with_management_cluster(async |management| {
        let environment = Arc::new(Environment::start(management).await.unwrap());
        let turns = Arc::new(Semaphore::new(IN_FLIGHT));
        let mut sent = JoinSet::new();
        let rows = written_cases().flat_map(Case::rows);
        for (number, row) in rows.enumerate() {
            let (environment, turns) = (environment.clone(), turns.clone());
            sent.spawn(async move {
                let _turn = turns.acquire().await;
                let judge = |_| environment.judge(row.case);
                let namespace = format!("row-{number}");
                let place = Place::now_in(&namespace);
                let answered = send(environment.cluster.client(), place, row, judge).await;
                let agreed = answered.and_then(|answered| agreement(row, &answered, &namespace));
                agreed.map_err(|error| format!("{} of {:?}: {error:#}", row.case.name, row.base))
            });
        }
        let (mut found_by, mut wrong) = (BTreeMap::<&str, usize>::new(), Vec::new());
        for outcome in sent.join_all().await {
            match outcome {
                Ok(ids) => ids
                    .into_iter()
                    .for_each(|id| *found_by.entry(id).or_default() += 1),
                Err(error) => wrong.push(error),
            }
        }
        assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
        environment.overrides_pass().await.unwrap();
        let (policed, others): (Vec<&Rule>, Vec<&Rule>) =
            rules().partition(|rule| rule.cel.no_cel().is_none());
        let unfound = policed.iter().filter(|rule| !found_by.contains_key(rule.id));
        let unfound: Vec<_> = unfound.map(|rule| rule.id).collect();
        assert!(unfound.is_empty(), "no row reaches the policies of {unfound:?}");
        println!("{} rules are held by policies; without CEL are", policed.len());
        for rule in others {
            let why = rule.cel.no_cel().map_or("", NoCel::as_str);
            println!("{}: {why}", rule.id);
        }
    });
}

/// An API server with the definitions, our policies, and no webhook.
struct Environment {
    cluster: ClusterApiAlone,
    /// Names of the policies by their configuration.
    judges: BTreeMap<String, String>,
}

impl Environment {
    async fn start(management: &ManagementCluster) -> Result<Self> {
        let cluster = management.another_without_ours("policies").await?;
        let mut environment = Self {
            cluster,
            judges: BTreeMap::new(),
        };
        for resource in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
            let request = Request::new(Verb::Delete, &path);
            request.send(environment.cluster.client()).await?.succeeded()?;
        }
        for case in written_cases() {
            let configuration = document(&case.configuration());
            if !environment.judges.contains_key(&configuration) {
                let name = format!("policies-{}", environment.judges.len());
                environment.apply(&name, &configuration).await?;
                environment.judges.insert(configuration, name);
            }
        }
        for name in environment.judges.values() {
            judged(environment.cluster.client(), name).await?;
        }
        Ok(environment)
    }

    /// An override annotation lets a write pass the rule that it names, and no other rule.
    async fn overrides_pass(&self) -> Result<()> {
        let judge = self.judges.get(&document(&Configuration::default()));
        let judge = judge.context("no policies have the default configuration")?;
        let namespace = "overrides";
        create_namespace(self.cluster.client(), namespace, judge).await?;
        let mut object = Base::ControlPlane(V1BETA2).object();
        object["metadata"]["namespace"] = json!(namespace);
        object["spec"]["kubeadmConfigSpec"]["format"] = json!("ignition");
        let path = path_of(&object)?;
        for (annotation, replicas, denied_by) in [
            (
                "taints-gate-off=2026-06-01T12:00:00Z",
                3,
                Some("ignition-gate-off"),
            ),
            (
                "taints-gate-off=2026-06-01T12:00:00Z, ignition-gate-off=2026-06-01T12:00:00Z",
                3,
                None,
            ),
            (
                "ignition-gate-off=2026-06-01T12:00:00Z, replicas-even=2026-06-01T12:00:00Z",
                2,
                Some("replicas-even"),
            ),
        ] {
            object["metadata"]["annotations"] = json!({annotation::OVERRIDE_RULES: annotation});
            object["spec"]["replicas"] = json!(replicas);
            let create = Request::new(Verb::Create, &path).body(object.clone()).dry_run();
            let answered = create.send(self.cluster.client()).await?;
            let found = denial(&answered).and_then(rule_of);
            ensure!(
                found == denied_by && answered.is_success() == denied_by.is_none(),
                "{annotation}: {answered:?}"
            );
        }
        Ok(())
    }

    fn judge(&self, case: &Case) -> Result<&str> {
        let judge = self.judges.get(&document(&case.configuration()));
        judge
            .map(String::as_str)
            .context("no policies have the configuration of the row")
    }

    /// Applies the output of `rules export` with other names and namespaces. Denials also warn, because the API server
    /// returns only the first of several denials.
    /// denials an API server tells the first alone.
    async fn apply(&self, name: &str, configuration: &str) -> Result<()> {
        let folder = self.cluster.api().folder().join(name);
        fs::create_dir_all(&folder)?;
        let (file, applied) = (folder.join("configuration.yaml"), folder.join("policies.json"));
        fs::write(&file, configuration)?;
        let file = file.display().to_string();
        let export = [
            "kcp",
            "rules",
            "export",
            "--format",
            "vap",
            "--configuration",
            &file,
        ];
        let mut objects = manifests::parse(&self.cluster.kubectl().succeed(export).await?.stdout)?;
        let mut warnings = Vec::new();
        for object in &mut objects {
            rename(&mut object["metadata"]["name"], name);
            if object["kind"] == "ValidatingAdmissionPolicy" {
                append(&mut object["spec"]["matchConditions"], spares_the_seeder());
                continue;
            }
            rename(&mut object["spec"]["policyName"], name);
            append(
                &mut object["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"],
                json!({"key": JUDGED_BY, "operator": "In", "values": [name]}),
            );
            if object["spec"]["validationActions"] == json!(["Deny"]) {
                let mut warning = object.clone();
                rename(&mut warning["metadata"]["name"], "warning");
                warning["spec"]["validationActions"] = json!(["Warn"]);
                warnings.push(warning);
            }
        }
        objects.extend(warnings);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        fs::write(&applied, list.to_string())?;
        let applied = applied.display().to_string();
        self.cluster.kubectl().succeed(["apply", "-f", &applied]).await?;
        Ok(())
    }
}

fn rename(name: &mut Value, prefix: &str) {
    *name = json!(format!("{prefix}.{}", name.as_str().unwrap_or_default()));
}

/// Waits until an API server applies the first and the last policy.
async fn judged(client: &Client, by: &str) -> Result<()> {
    let namespace = format!("judged-by-{by}");
    create_namespace(client, &namespace, by).await?;
    let mut scaled = Base::ControlPlane(V1BETA2).object();
    scaled["spec"]["replicas"] = json!(2);
    let mut claimed = Base::ClusterDeployment.object();
    claimed["spec"]["clusterPoolRef"]["claimName"] = json!("us");
    for (mut faulty, rule) in [(scaled, "replicas-even"), (claimed, "claim-name-given")] {
        faulty["metadata"]["namespace"] = json!(namespace);
        let path = path_of(&faulty)?;
        wait::until(&format!("{by} judges"), || async {
            let create = Request::new(Verb::Create, &path).body(faulty.clone()).dry_run();
            let answered = create.send(client).await?;
            let warned = said(&answered).contains_key(rule);
            ensure!(denial(&answered).is_some() && warned, "{answered:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Compares the policies' messages with those of the rules' functions. Returns the rules that had findings.
fn agreement(row: Row<'_>, answered: &Answered, namespace: &str) -> Result<BTreeSet<&'static str>> {
    let findings: Vec<_> = row
        .judge()?
        .into_iter()
        // Policies ignore faults that existed before.
        .filter(|finding| finding.downgrade_reason.is_none() && is_policed(finding.rule, row))
        // The stored version lacks the changed field.
        .filter(|_| row.case.answer != Some(Answer::Admitted))
        .collect();
    let denial = denial(answered);
    if !answered.is_success() && denial.is_none() {
        let expected = matches!(row.case.answer, Some(Answer::Schema(_))) || !row.case.findings.is_empty();
        ensure!(expected, "refused by the definition: {answered:?}");
        return Ok(BTreeSet::new());
    }
    let denials = findings
        .iter()
        .filter(|finding| finding.action == Action::Deny)
        .map(|finding| finding.rule.id);
    let denials: BTreeSet<_> = denials.collect();
    ensure!(
        denial.is_some() != denials.is_empty(),
        "expected denials by {denials:?}: {answered:?}"
    );
    let (messages, expected) = (said(answered), messages(&findings));
    ensure!(
        messages.keys().eq(expected.keys()),
        "expected {expected:?}, found {messages:?}: {answered:?}"
    );
    for (id, message) in &expected {
        // Rows are in namespace default, and name other namespaces.
        let found = messages.get(id).map_or("", String::as_str);
        let found = found
            .replace(&format!("\"{namespace}\""), "\"default\"")
            .replace(&format!("\"{namespace}-"), "\"");
        let same = if is_worded_otherwise(id, row.base) {
            fields(&found).eq(fields(message))
        } else {
            found == *message
        };
        ensure!(same, "expected {message:?}, found {found:?}");
    }
    if let Some(denial) = denial {
        let id = rule_of(denial).with_context(|| format!("no rule in {denial}"))?;
        let is_said = messages.get(id).is_some_and(|message| message == denial);
        ensure!(denials.contains(id) && is_said, "{answered:?}");
        ensure!(answered.code == 422, "{answered:?}");
    }
    Ok(findings.iter().map(|finding| finding.rule.id).collect())
}

/// Whether a policy for the row's kind and version contains the rule.
fn is_policed(rule: &Rule, row: Row<'_>) -> bool {
    let shape = Shape::from_api_version(row.base.version());
    match (row.case.write, rule.cel) {
        (Write::Scale(..), cel) => matches!(cel, Cel::FaultsAlsoForScale(_)),
        (_, Cel::FaultsOfControlPlanes(_)) => matches!(row.base, Base::ControlPlane(_)),
        (_, cel) => cel.expression(shape).is_some(),
    }
}

fn is_worded_otherwise(id: &str, base: Base) -> bool {
    WORDED_OTHERWISE
        .iter()
        .any(|(rule, version)| *rule == id && version.is_none_or(|version| version == base.version()))
}

/// The fields in a rule's message.
fn fields(message: &str) -> impl Iterator<Item = &str> {
    let fields = message.split("); ").map(|finding| finding.split_once(": "));
    fields.map(|field| field.map_or("", |(field, _)| field))
}

/// The functions' findings by rule.
fn messages(findings: &[Finding]) -> BTreeMap<String, String> {
    let mut messages = BTreeMap::<String, String>::new();
    for finding in findings {
        let entry = messages.entry(finding.rule.id.to_owned()).or_default();
        let separator = if entry.is_empty() { "" } else { "; " };
        *entry = format!("{entry}{separator}{}: {}", finding.fault.field, finding.message());
    }
    messages
}

/// The policies' findings by rule.
fn said(answered: &Answered) -> BTreeMap<String, String> {
    let warnings = answered.warnings.iter();
    let ours = warnings.filter_map(|warning| {
        let (_, message) = warning
            .strip_prefix("Validation failed for ValidatingAdmissionPolicy ")?
            .split_once("': ")?;
        Some((rule_of(message)?.to_owned(), message.to_owned()))
    });
    ours.collect()
}

/// The messages of a policy's denial.
fn denial(answered: &Answered) -> Option<&str> {
    let message = answered.body["message"].as_str()?;
    let (policy, denial) = message.split_once(" denied request: ")?;
    policy.contains("ValidatingAdmissionPolicy ").then_some(denial)
}
