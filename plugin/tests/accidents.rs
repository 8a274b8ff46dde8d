//! The page `docs/src/reference/accidents.md` consists of the rows in `tests/accidents`. Each row names tests, rules, checks
//! and commands that exist, and sentences that the programs print.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows tests by their attribute, and these helpers have none"
)]

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use kcp_control_plane::testing::page::{assert_generated, markdown};
use kubectl_kcp::command::program;
use serde_json::Value;

#[path = "../../tests/accidents/mod.rs"]
mod rows;

use rows::{Accident, CLUSTER_API, ETCD, KUBEADM, KUBERNETES, Proof, Seen, TOPICS, With};

/// What the first table of the page counts.
const KINDS: [&str; 5] = [
    "denied",
    "named",
    "undone",
    "neither denied nor named nor undone",
    "fixed upstream",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn accidents() -> impl Iterator<Item = &'static Accident> {
    TOPICS.into_iter().flat_map(|topic| topic.accidents)
}

/// Each answer to each accident.
fn answers() -> impl Iterator<Item = &'static With> {
    accidents().flat_map(|accident| accident.with)
}

fn kind(accident: &Accident) -> usize {
    match accident.with.first().expect("an answer") {
        With::Denied { .. } => 0,
        With::Warned { .. } | With::Named { .. } | With::Said { .. } => 1,
        With::Undone { .. } => 2,
        With::Neither { .. } => 3,
        With::Upstream => 4,
    }
}

const fn is_replayed(accident: &Accident) -> bool {
    matches!(accident.proof, Proof::Test(_))
}

#[test]
fn the_page_has_each_accident() {
    let mut text =
        "\n| with kcp-webhook and the plugin | accidents | of these, not replayed |\n|---|---|---|\n"
            .to_owned();
    let mut count = |what: &str, counted: &[&Accident]| {
        let left = counted.iter().filter(|accident| !is_replayed(accident)).count();
        writeln!(text, "| {what} | {} | {left} |", counted.len()).expect("text");
    };
    for (number, what) in KINDS.into_iter().enumerate() {
        let of_kind: Vec<_> = accidents().filter(|accident| kind(accident) == number).collect();
        count(what, &of_kind);
    }
    count("all", &accidents().collect::<Vec<_>>());
    for topic in TOPICS {
        write!(
            text,
            "\n## {}\n\n| what the person did | without kcp-webhook and the plugin | with them | test |\n|---|---|---|---|\n",
            topic.title
        )
        .expect("text");
        for accident in topic.accidents {
            text += &row(accident);
        }
    }
    assert_generated("reference/accidents.md", &text);
}

fn row(accident: &Accident) -> String {
    let references: Vec<_> = accident
        .references
        .iter()
        .map(|reference| link(reference))
        .collect();
    let answers: Vec<_> = accident.with.iter().map(shown).collect();
    let proof = match accident.proof {
        Proof::Test(path) => format!("`{path}`"),
        Proof::NotReplayed(reason) => format!("not replayed: {}", cell(reason)),
    };
    format!(
        "| {} {} | {} | {} | {proof} |\n",
        cell(accident.done),
        references.join(", "),
        without(accident),
        answers.join(" ")
    )
}

/// The link of `owner/repository#number`. GitHub leads from the issue of a pull request to the pull request.
fn link(reference: &str) -> String {
    let (repository, number) = reference.split_once('#').expect("a number");
    format!("[{reference}](https://github.com/{repository}/issues/{number})")
}

fn without(accident: &Accident) -> String {
    let seen = match accident.seen {
        Seen::With(release) => format!("Seen with {release}."),
        Seen::Reported(place) => format!("Reported: {}.", cell(place)),
    };
    let mut text = format!("{} {seen}", cell(accident.outcome));
    if let Some(fixed) = &accident.fixed {
        let tested = if fixed.is_tested {
            "the test also runs on a release without the fix"
        } else {
            "no test replays it on a release without the fix"
        };
        write!(text, " Fixed: {}; {tested}.", cell(fixed.release)).expect("text");
    }
    text
}

fn shown(answer: &With) -> String {
    let of_command = |command: &str| {
        let anchor = command.replace(' ', "-");
        format!("[`kubectl kcp {command}`](flags.md#{anchor})")
    };
    match answer {
        With::Denied { rule, sentence } => {
            format!("Denied by [`{rule}`](rules.md#{rule}): \"{}\".", cell(sentence))
        }
        With::Warned { rule, sentence } => {
            format!("Warned by [`{rule}`](rules.md#{rule}): \"{}\".", cell(sentence))
        }
        With::Named { check, sentence } => format!(
            "Named by check [`{check}`](checks.md#{check}): \"{}\".",
            cell(sentence)
        ),
        With::Said { command, sentence } => {
            format!("Named by {}: \"{}\".", of_command(command), cell(sentence))
        }
        With::Undone { command } => format!("Undone by {}.", of_command(command)),
        With::Neither { reason } => format!("Neither denied nor named nor undone. {}", cell(reason)),
        With::Upstream => "Not needed: upstream has fixed it.".to_owned(),
    }
}

/// The text in a cell of a table.
fn cell(text: &str) -> String {
    markdown(text).replace('|', "\\|")
}

/// The files in a folder and its folders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// The paths of the test functions in `tests/integration`.
fn tests() -> BTreeSet<String> {
    let folder = workspace().join("tests/integration");
    let mut tests = BTreeSet::new();
    for file in files(&folder) {
        let module = file.strip_prefix(&folder).expect("a file in the folder");
        let module = module.with_extension("");
        let module: Vec<_> = module.iter().map(|part| part.to_string_lossy()).collect();
        let mut is_test = false;
        for line in read(&file).lines().map(str::trim) {
            if line == "#[test]" {
                is_test = true;
            } else if let Some((name, _)) = line.strip_prefix("fn ").and_then(|rest| rest.split_once('('))
                && is_test
            {
                tests.insert(format!("{}::{name}", module.join("::")));
                is_test = false;
            }
        }
    }
    tests
}

#[test]
fn each_accident_names_a_test_that_exists() {
    let tests = tests();
    assert!(tests.len() > 200, "only {} tests were found", tests.len());
    for accident in accidents() {
        if let Proof::Test(path) = accident.proof {
            assert!(tests.contains(path), "{path}");
        }
    }
}

#[test]
fn each_accident_names_threads_of_its_own_and_a_fix_if_it_needs_one() {
    let mut known = BTreeSet::new();
    for accident in accidents() {
        assert!(!accident.references.is_empty(), "{}", accident.done);
        for reference in accident.references {
            let (repository, number) = reference.split_once('#').expect("a number");
            let parts: Vec<&str> = repository.split('/').collect();
            assert!(
                parts.len() == 2 && parts.iter().all(|part| !part.is_empty()),
                "{reference}"
            );
            assert!(number.parse::<u32>().is_ok(), "{reference}");
            assert!(known.insert(reference), "two accidents name {reference}");
        }
        let is_upstream = accident
            .with
            .iter()
            .any(|answer| matches!(answer, With::Upstream));
        assert!(!is_upstream || accident.fixed.is_some(), "{}", accident.done);
    }
    assert!(accidents().count() >= 50, "{}", accidents().count());
}

/// The texts of the files in these folders of the workspace, with each string in one line and single spaces.
fn texts(folders: &[&str]) -> String {
    let files = folders
        .iter()
        .flat_map(|folder| files(&workspace().join(folder)))
        .filter(|file| {
            file.extension().is_some_and(|extension| {
                ["rs", "snap", "json", "sh"]
                    .iter()
                    .any(|known| extension == *known)
            })
        });
    let texts = files.map(|file| {
        let text = read(&file);
        let mut parts = text.split("\\\n");
        let mut joined = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            joined.push_str(part.trim_start());
        }
        let words: Vec<&str> = joined.split_whitespace().collect();
        words.join(" ").replace("\\\"", "\"")
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn each_rule_prints_its_sentence() {
    let examples = workspace().join("plugin/src/commands/explain/examples.json");
    let examples: Value = serde_json::from_str(&read(&examples)).expect("JSON");
    for answer in answers() {
        if let With::Denied { rule, sentence } | With::Warned { rule, sentence } = answer {
            assert!(kcp_rules::topics::is_rule(rule), "{rule}");
            let messages = examples.get(rule).and_then(|example| example.get("messages"));
            let mut messages = messages.and_then(Value::as_array).into_iter().flatten();
            let says = messages.any(|message| message.as_str().is_some_and(|text| text.contains(sentence)));
            assert!(says, "{rule} does not say: {sentence}");
        }
    }
}

#[test]
fn each_check_prints_its_sentence() {
    let texts = texts(&["plugin/model/src"]);
    for answer in answers() {
        if let With::Named { check, sentence } = answer {
            assert!(kcp_control_plane::checks::find(check).is_some(), "{check}");
            assert!(texts.contains(sentence), "{check} does not say: {sentence}");
        }
    }
}

#[test]
fn each_command_exists_and_prints_its_sentence() {
    let texts = texts(&["plugin/src", "plugin/model/src", "plugin/pool/src"]);
    let program = program();
    for answer in answers() {
        let (With::Said { command, .. } | With::Undone { command }) = answer else {
            continue;
        };
        let found = command.split(' ').try_fold(&program, |command, name| {
            command.get_subcommands().find(|child| child.get_name() == name)
        });
        assert!(found.is_some(), "{command}");
        if let With::Said { sentence, .. } = answer {
            assert!(texts.contains(sentence), "{command} does not say: {sentence}");
        }
    }
}

/// Another release needs another look at what the tests see.
#[test]
fn the_releases_are_those_of_the_tests() {
    let pins = read(&workspace().join("tests/envtest/go.mod"));
    for (seen, name, module) in [
        (CLUSTER_API, "Cluster API", "sigs.k8s.io/cluster-api v"),
        (ETCD, "etcd", "go.etcd.io/etcd/server/v3 v"),
        (KUBERNETES, "Kubernetes", "k8s.io/kubernetes v"),
        (KUBEADM, "kubeadm", "k8s.io/kubernetes v"),
    ] {
        let Seen::With(release) = seen else {
            panic!("a test sees it")
        };
        let version = release.strip_prefix(name).map(str::trim);
        let pinned = pins.lines().find_map(|line| line.trim().strip_prefix(module));
        let pinned = pinned.and_then(|rest| rest.split_whitespace().next());
        assert_eq!(version, pinned, "{release}");
    }
}
