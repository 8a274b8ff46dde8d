//! The commands that the plugin prints for a fault are commands that the plugin, the API server and kcp-webhook accept while
//! the fault lasts.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::Value;

/// Runs each command in the hints of `status` and `why`: one that only reads as it is, and one that writes with
/// `--dry-run=server`. A command after `then` needs the effect of the one before it, and is not run. Returns the commands.
pub(crate) async fn are_accepted(
    management: &ManagementCluster,
    namespace: &str,
    name: &str,
) -> Result<BTreeSet<String>> {
    let mut commands = BTreeSet::new();
    // A failed read has the hint of its finding, but does not know whether the control plane is paused.
    for (verb, part) in [("status", "/findings"), ("why", "")] {
        let shown = ["kcp", verb, name, "-n", namespace, "-o", "json"];
        let shown = management.kubectl().run(shown).await?;
        let document: Value = serde_json::from_str(&shown.stdout).with_context(|| shown.to_string())?;
        let part = document.pointer(part).with_context(|| shown.to_string())?;
        collect(part, &mut commands);
    }
    for command in &commands {
        let file = management.kubectl().scratch_file("remedies.db");
        let (trial, highest) = trial(&command.replace("FILE", &file.display().to_string()));
        // A busy member may not respond in time.
        wait::until(&format!("{command}, which is printed, is accepted"), || async {
            let ended = management.kubectl().script("sh", ["-c", &trial]).await?;
            ensure!((0..=highest).contains(&ended.code), "{ended}");
            Ok(())
        })
        .await?;
        if file.exists() {
            std::fs::remove_file(file)?;
        }
    }
    Ok(commands)
}

fn collect(value: &Value, commands: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match field.as_str() {
                    Some(hint) if key == "hint" => commands.extend(first_commands(hint)),
                    _ => collect(field, commands),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, commands)),
        _ => {}
    }
}

/// The commands of a hint that need no other command before them, such as `kubectl kcp machine replace m1 -n d`.
fn first_commands(hint: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for clause in hint.split("; ") {
        if clause.starts_with("then ") || clause.contains(" then ") || clause.contains("resume the ") {
            continue;
        }
        commands.extend(commands_in(clause));
    }
    commands
}

fn commands_in(clause: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut rest = clause;
    while let Some(start) = rest.find("kubectl ") {
        let command = &rest[start..];
        let end = [", ", ")", " and "]
            .iter()
            .filter_map(|end| command.find(end))
            .min();
        let (command, after) = command.split_at(end.unwrap_or(command.len()));
        commands.push(command.to_owned());
        rest = after;
    }
    commands
}

/// The commands of a hint that change something, in order. Of several ways, those of the first that has any.
pub(crate) fn repairs(hint: &str) -> Vec<String> {
    let mut repairs = Vec::new();
    for clause in hint.split("; ") {
        if clause.starts_with("or ") && !repairs.is_empty() {
            break;
        }
        repairs.extend(commands_in(clause).into_iter().filter(|command| {
            let (trial, _) = trial(command);
            trial.contains("--dry-run=") || command.contains(" etcd snapshot ")
        }));
    }
    repairs
}

/// The command so that it changes nothing, and the highest exit code with which it is accepted.
fn trial(command: &str) -> (String, i32) {
    // What kubectl does with a workload cluster counts.
    let words = command.split(" -- ").last().unwrap_or(command);
    let words: Vec<&str> = words
        .split_whitespace()
        .filter(|word| !["kubectl", "kcp"].contains(word))
        .collect();
    match words.as_slice() {
        // The stand-ins keep no logs.
        ["logs", ..] => (
            command
                .replacen(" logs ", " get pods ", 1)
                .replace(" --tail=-1", ""),
            0,
        ),
        ["get" | "describe" | "auth", ..] | ["etcd", "snapshot", ..] => (command.to_owned(), 0),
        // A control plane that is not well ends these with 1.
        ["status" | "why" | "plan", ..] | ["etcd", "members" | "check", ..] => (command.to_owned(), 1),
        // They end with 2 if something could not be read, such as a member that is dead.
        ["certificates", ..] | ["machine", "diagnose", ..] => (command.to_owned(), 2),
        // The person changes the object in an editor.
        ["edit", ..] => (command.replacen(" edit ", " get ", 1), 0),
        // It needs a snapshot of the cluster: `real_machines::full` restores one.
        ["etcd", "restore", ..] => (format!("{command} --help"), 0),
        ["etcd", ..] => (format!("{command} --dry-run=client"), 0),
        _ => (format!("{command} --dry-run=server"), 0),
    }
}

#[test]
fn the_first_commands_of_a_hint_are_found() {
    for (hint, expected) in [
        ("upgrade the worker nodes", &[][..]),
        (
            "save a snapshot: kubectl kcp etcd snapshot c1-cp -n d --output-file FILE; then remove the member of Machine m2: kubectl kcp \
             etcd remove-member c1-cp 2 -n d",
            &["kubectl kcp etcd snapshot c1-cp -n d --output-file FILE"],
        ),
        (
            "if the Machine is gone (kubectl get machine m0 -n d), delete the Node: kubectl kcp kubectl c1-cp -n d -- delete node n0",
            &[
                "kubectl get machine m0 -n d",
                "kubectl kcp kubectl c1-cp -n d -- delete node n0",
            ],
        ),
    ] {
        assert_eq!(first_commands(hint), expected, "{hint}");
    }
    for (command, expected) in [
        (
            "kubectl kcp kubectl c1 -- delete node n0",
            "kubectl kcp kubectl c1 -- delete node n0 --dry-run=server",
        ),
        (
            "kubectl kcp kubectl c1 -- get nodes",
            "kubectl kcp kubectl c1 -- get nodes",
        ),
        ("kubectl edit kcp c1 -n d", "kubectl get kcp c1 -n d"),
        ("kubectl kcp etcd check c1", "kubectl kcp etcd check c1"),
        (
            "kubectl kcp reconcile c1",
            "kubectl kcp reconcile c1 --dry-run=server",
        ),
    ] {
        assert_eq!(trial(command).0, expected);
    }
}
