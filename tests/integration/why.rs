//! `kubectl kcp why` on a real control plane: for each fault, who acts next and because of what. All faults share one cluster.
//! Each answer is the exact first line, without times and ports.

mod access;
mod controllers;
mod members;

use std::cell::RefCell;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::Value;

use crate::remedies;
use crate::schema;
use crate::shared::with_controllers;

const NAMESPACE: &str = "why";
const NAME: &str = "edge";
const VERSION: &str = "v1.34.2";

const HEALTHY: &str = "Nothing is wrong and nothing is planned: 3 of 3 Machines are ready and 3 up to date, with version v1.34.2";
const PAUSED: &str = "Nothing is planned and no action is needed: KubeadmControlPlane/edge: the Cluster is paused: no controller \
    reconciles the control plane (paused)";

/// Whether a person must act, as the exit code says it.
const NOBODY: i32 = 0;
const PERSON: i32 = 1;

#[test]
#[ignore = "takes minutes: make test-long"]
fn why_names_who_must_act_and_because_of_what() {
    with_controllers(NAMESPACE, are_explained);
}

async fn are_explained(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, VERSION).await?;
    cluster.settled(3).await?;
    let asked = Questions {
        management,
        answers: RefCell::default(),
    };
    asked.answers("nothing is wrong", NOBODY, HEALTHY).await?;
    controllers::are_explained(&asked, &cluster).await?;

    let machines = cluster.machines().await?;
    // Otherwise Cluster API repairs some of the faults before the test asks.
    cluster.pause(true).await?;
    asked.answers("the Cluster is paused", NOBODY, PAUSED).await?;
    access::are_explained(&asked).await?;
    members::are_explained(&asked, &machines).await?;
    cluster.pause(false).await?;
    asked.print();
    cluster.delete().await
}

/// What was asked, and how long the right answer took.
struct Questions<'m> {
    management: &'m ManagementCluster,
    answers: RefCell<Vec<(String, String, f64)>>,
}

impl Questions<'_> {
    /// Waits until `why` exits with this code and its first line is this one. A fault was injected just before.
    async fn answers(&self, fault: &str, code: i32, line: &str) -> Result<CommandOutput> {
        let began = Instant::now();
        let answer = wait::until(&format!("why answers for {fault}"), || async {
            let answer = why(self.management, &[]).await?;
            let first = without_times(answer.stdout.lines().next().unwrap_or_default());
            ensure!(
                answer.code == code && is_line(&first, line),
                "{} {first} instead of {code} {line}: {answer}",
                answer.code
            );
            Ok(answer)
        })
        .await?;
        let seconds = began.elapsed().as_secs_f64();
        if code == PERSON {
            remedies::are_accepted(self.management, NAMESPACE, NAME)
                .await
                .with_context(|| fault.to_owned())?;
        }
        let mut answers = self.answers.borrow_mut();
        answers.push((fault.to_owned(), line.to_owned(), seconds));
        Ok(answer)
    }

    /// The document of the same answer, which matches its schema.
    async fn document(&self) -> Result<Value> {
        let answer = why(self.management, &["-o", "json"]).await?;
        let document = serde_json::from_str(&answer.stdout)?;
        schema::holds("controlplaneexplanation.json", &document)?;
        Ok(document)
    }

    #[expect(clippy::print_stderr, reason = "the table of all answers is for people")]
    fn print(&self) {
        eprintln!("\n{:<28} {:>8}  ANSWER", "CAUSE", "SECONDS");
        for (fault, line, seconds) in self.answers.borrow().iter() {
            eprintln!("{fault:<28} {seconds:>8.1}  {line}");
        }
    }
}

async fn why(management: &ManagementCluster, arguments: &[&str]) -> Result<CommandOutput> {
    let command = ["kcp", "why", NAME, "-n", NAMESPACE];
    management.kubectl().run(command.iter().chain(arguments)).await
}

/// Whether a line is the expected one. [`members::OTHER`] stands for one word.
fn is_line(line: &str, expected: &str) -> bool {
    match expected.split_once(members::OTHER) {
        Some((before, after)) => line
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .is_some_and(|word| !word.is_empty() && !word.contains(' ')),
        None => line == expected,
    }
}

/// The line with `N` in place of what differs from one run to the next: times, ports and ids.
fn without_times(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let words = words.iter().enumerate().map(|(index, word)| {
        let is_unit = |next: &&str| next.trim_end_matches([';', ':', ',']) == "s";
        without_number(word, words.get(index + 1).is_some_and(is_unit))
    });
    words.collect::<Vec<_>>().join(" ")
}

/// `is_seconds`: whether the next word is a unit.
fn without_number(word: &str, is_seconds: bool) -> String {
    let value = word.trim_end_matches([',', ')', ';', ':']);
    let end = word.strip_prefix(value).unwrap_or_default();
    let number = value.trim_end_matches(['s', 'm', 'h', 'd']);
    let is_duration = (number != value || is_seconds)
        && number.starts_with(|c: char| c.is_ascii_digit())
        && number
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, '.' | 'd' | 'h' | 'm'));
    let is_id = value.len() >= 15 && value.chars().all(|c| c.is_ascii_hexdigit());
    let is_time = value.parse::<jiff::Timestamp>().is_ok();
    if is_duration || is_id || is_time {
        return format!("N{end}");
    }
    match word.split_once("127.0.0.1:") {
        Some((before, after)) => {
            let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}127.0.0.1:N{after}")
        }
        None => word.to_owned(),
    }
}

#[test]
fn what_differs_from_run_to_run_is_left_out() {
    for (line, expected) in [
        (
            "generation 2 of the spec for 1m5s; and 1; 10.5 s: a",
            "generation 2 of the spec for N; and 1; N s: a",
        ),
        (
            "https://127.0.0.1:1234: at 2026-11-23T16:38:05Z (0s ago)",
            "https://127.0.0.1:N: at N (0s ago)",
        ),
        ("cluster 8e9e05c52164694d; as 3", "cluster N; as 3"),
    ] {
        assert_eq!(without_times(line), expected);
    }
}
