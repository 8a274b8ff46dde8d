//! Our reading of leader migration configurations, beside the code of four versions of Kubernetes.
//!
//! `envtest/leader-migration` passes texts through `k8s.io/controller-manager`, as a controller manager does at start.

#![expect(clippy::indexing_slicing, reason = "an index is a remainder")]

use std::collections::BTreeSet;
use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kcp_rules::leader_migration::{Component, ConfigurationProblem, Filter, LeaderMigrationConfiguration};
use kcp_tests::assets::Assets;
use kcp_tests::pools::random::Random;
use kcp_tests::run::{MARKER, Run};
use serde::Deserialize;
use serde_json::json;

use crate::shared::with_run;

/// The versions of Kubernetes, by minor. From 1.32 on, unknown fields are errors.
const MINORS: [u64; 4] = [30, 35, 36, 37];

const SEED: u64 = 2436;
const CONFIGURATIONS: usize = 500;

const CONTROLLERS: [&str; 12] = [
    "route",
    "service",
    "cloud-node-lifecycle",
    "nodeipam",
    "route-controller",
    "service-controller",
    "node-route-controller",
    "service-lb-controller",
    "cloud-node-lifecycle-controller",
    "node-ipam-controller",
    "cloud-node-controller",
    "Route",
];

/// What Kubernetes makes of one text.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    error: String,
    leader_name: String,
    resource_lock: String,
    filters: Vec<Vec<String>>,
}

#[test]
fn configurations_mean_what_they_mean_to_kubernetes() {
    with_run(async |run| compared(run).unwrap());
}

fn compared(run: &Arc<Run>) -> Result<()> {
    let assets = Assets::locate()?;
    let mut random = Random::new(SEED);
    // The default configuration comes first.
    let mut texts = vec![String::new()];
    texts.extend((0..CONFIGURATIONS).map(|_| configuration(&mut random)));
    for minor in MINORS {
        let answers = kubernetes(run, &assets, minor, &texts)?;
        ensure!(answers.len() == texts.len(), "{} answers", answers.len());
        let mut accepted = 0;
        let mut differences = Vec::new();
        for (text, answer) in texts.iter().zip(&answers) {
            if let Some(difference) = difference(text, minor, answer) {
                differences.push(format!("{difference}; Kubernetes: {answer:?}\n{text}"));
            }
            accepted += usize::from(answer.error.is_empty());
        }
        assert!(differences.is_empty(), "1.{minor}: {}", differences.join("\n"));
        // Neither kind may be rare.
        ensure!(
            (CONFIGURATIONS / 5..CONFIGURATIONS * 4 / 5).contains(&accepted),
            "1.{minor} accepts {accepted}"
        );
    }
    Ok(())
}

/// Runs the code of one version of Kubernetes.
fn kubernetes(run: &Run, assets: &Assets, minor: u64, texts: &[String]) -> Result<Vec<Answer>> {
    let components = [Component::Kube, Component::Cloud].map(Component::name);
    let input = json!({"texts": texts, "components": components, "controllers": CONTROLLERS});
    let file = run.folder().join(format!("leader-migration-1.{minor}.json"));
    std::fs::write(&file, input.to_string())?;
    let output = Command::new(assets.program(&format!("leader-migration-1.{minor}")))
        .env(MARKER, run.id())
        .stdin(File::open(&file)?)
        .stderr(Stdio::inherit())
        .output()
        .context("running the code of Kubernetes")?;
    ensure!(output.status.success(), "it ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("reading its answers")
}

/// How our reading differs from that of Kubernetes.
fn difference(text: &str, minor: u64, answer: &Answer) -> Option<String> {
    // Kubernetes accepts Endpoints here, and the controller manager exits as soon as it holds its main lock.
    let starts = answer.error.is_empty() && answer.resource_lock == "leases";
    let ours = if text.is_empty() {
        Ok((LeaderMigrationConfiguration::default_at(minor), Vec::new()))
    } else {
        LeaderMigrationConfiguration::parse_leniently(text, Some(minor))
    };
    // Before 1.32, Kubernetes reads the kind from a field in any case. We reject such a text, as later versions do.
    let is_kind_in_any_case = minor < 32 && text.contains("\nKind: ");
    match ours {
        Err(problems) if starts && is_kind_in_any_case && problems == [ConfigurationProblem::Kind] => None,
        Err(problems) if starts => Some(format!("we reject it: {problems:?}")),
        Err(problems) => invalid_fields_differ(&problems, answer),
        Ok(_) if !starts => Some("we accept it".to_owned()),
        Ok((configuration, _)) => {
            let ours = [Component::Kube, Component::Cloud].map(|component| {
                let filters = CONTROLLERS.map(|name| configuration.filter(component.name(), name));
                filters.map(word).to_vec()
            });
            let is_same =
                ours.as_slice() == answer.filters && configuration.leader_name == answer.leader_name;
            (!is_same).then(|| format!("{}: {ours:?}", configuration.leader_name))
        }
    }
}

fn word(filter: Filter) -> String {
    let word = match filter {
        Filter::Migrated => "migrated",
        Filter::Unowned => "unowned",
        Filter::NonMigrated => "non-migrated",
    };
    word.to_owned()
}

/// Compares the fields that Kubernetes and we find invalid. Kubernetes looks at them only if it could decode the text.
fn invalid_fields_differ(problems: &[ConfigurationProblem], answer: &Answer) -> Option<String> {
    let list = answer
        .error
        .strip_prefix("failed to parse leader migration configuration: ")?;
    // "[leaderName: Required value: … controllerLeaders[3].name: Required value]"
    let paths = list.split_whitespace().filter_map(|word| word.strip_suffix(':'));
    let paths = paths.map(|word| word.trim_start_matches('['));
    let theirs: BTreeSet<_> = paths
        .filter(|word| {
            ["leaderName", "resourceLock"].contains(word) || word.starts_with("controllerLeaders[")
        })
        .map(str::to_owned)
        .collect();
    let mut ours = BTreeSet::new();
    for problem in problems {
        match problem {
            ConfigurationProblem::Missing(path) => {
                ours.insert(path.clone());
            }
            ConfigurationProblem::ResourceLock => {
                ours.insert("resourceLock".to_owned());
            }
            // To Kubernetes, an entry that is null is an empty entry.
            ConfigurationProblem::Type { path, .. } if path.ends_with(']') => {
                ours.extend([format!("{path}.component"), format!("{path}.name")]);
            }
            _ => {}
        }
    }
    (ours != theirs).then(|| format!("we find {ours:?} invalid"))
}

/// A random text. Most of its parts are valid, so that neither valid nor invalid texts are rare.
fn configuration(random: &mut Random) -> String {
    let version = usual(random, &["v1", "v1", "v1beta1", "v1alpha1"], &["v2", "V1", ""]);
    let mut text = format!("apiVersion: controllermanager.config.k8s.io/{version}\n");
    text += usual(
        random,
        &["kind: LeaderMigrationConfiguration\n"],
        &[
            "kind: KubeletConfiguration\n",
            "Kind: LeaderMigrationConfiguration\n",
            "",
        ],
    );
    text += usual(
        random,
        &["leaderName: migration\n", "leaderName: \"cloud.migration\"\n"],
        &[
            "",
            "leaderName: \"\"\n",
            "leaderName: null\n",
            "leaderName: 7\n",
            "leaderName: yes\n",
            "leaderName: Bad_Name\n",
            "leaderName: kube-controller-manager\n",
            "leadername: migration\n",
            "leaderName: first\nleaderName: second\n",
        ],
    );
    // In v1, this field is unknown.
    let usual_locks: &[&str] = if version == "v1" {
        &[""]
    } else {
        &["resourceLock: leases\n"]
    };
    text += usual(
        random,
        usual_locks,
        &[
            "",
            "resourceLock: leases\n",
            "resourceLock: endpoints\n",
            "resourceLock: configmaps\n",
            "resourceLock: \"\"\n",
            "resourceLock: null\n",
        ],
    );
    leaders(random, &mut text);
    text += usual(
        random,
        &["", "# a comment\n"],
        &[
            "other: 1\n",
            "---\nleaderName: other\n",
            "...\n",
            "- a\n",
            "metadata: {}\n",
        ],
    );
    text
}

fn leaders(random: &mut Random, text: &mut String) {
    let whole = usual(
        random,
        &["controllerLeaders:\n"],
        &[
            "",
            "controllerLeaders: []\n",
            "controllerLeaders: null\n",
            "controllerLeaders: {}\n",
            "controllerLeaders: all\n",
        ],
    );
    *text += whole;
    if whole != "controllerLeaders:\n" {
        return;
    }
    for _ in 0..random.number() % 6 {
        let name = usual(random, &CONTROLLERS, &["", "\"\"", "null", "7", "true"]);
        let component = usual(
            random,
            &[
                "\"*\"",
                "'*'",
                "kube-controller-manager",
                "cloud-controller-manager",
            ],
            &["*", "\"\"", "somebody", "null", "1.5"],
        );
        let more = usual(
            random,
            &[""],
            &["  lock: main\n", "  name: route\n", "  Component: \"*\"\n"],
        );
        let (first, second) = if random.one_in(2) {
            (format!("name: {name}"), format!("component: {component}"))
        } else {
            (format!("component: {component}"), format!("name: {name}"))
        };
        *text += &usual(
            random,
            &[
                format!("- {first}\n  {second}\n{more}"),
                format!("- {{{first}, {second}}}\n"),
            ],
            &[
                format!("- {first}\n"),
                "- route\n".to_owned(),
                "- null\n".to_owned(),
            ],
        );
    }
}

/// One of the usual parts, and rarely one of the others.
fn usual<T: Clone>(random: &mut Random, usual: &[T], rare: &[T]) -> T {
    let parts = if random.one_in(24) { rare } else { usual };
    let count = u64::try_from(parts.len()).unwrap_or(1);
    let index = usize::try_from(random.number() % count).unwrap_or_default();
    parts[index].clone()
}
