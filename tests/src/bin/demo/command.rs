//! A command of the demo: printed as a person would type it, and run.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::kubectl::Kubectl;

/// Runs a command that must succeed, and shows its output as it runs.
pub(crate) async fn run(kubectl: &Kubectl, arguments: &[&str]) -> Result<()> {
    ended_with(kubectl, 0, arguments).await
}

/// Runs a command that must end with this exit code, and shows its output as it runs.
pub(crate) async fn ended_with(kubectl: &Kubectl, code: i32, arguments: &[&str]) -> Result<()> {
    println!("$ kubectl {}", arguments.join(" "));
    let ended = kubectl.show(arguments).await.context("running kubectl")?;
    ensure!(
        ended.code == code,
        "{} ended with exit code {} instead of {code}",
        ended.command,
        ended.code
    );
    Ok(())
}

/// Runs a command that one of our rules must deny.
pub(crate) async fn denied(kubectl: &Kubectl, rule: &str, arguments: &[&str]) -> Result<()> {
    println!("$ kubectl {}", arguments.join(" "));
    let ended = kubectl.run(arguments).await.context("running kubectl")?;
    print!("{}{}", ended.stdout, ended.stderr);
    ensure!(
        ended.code == 1,
        "{} ended with exit code {} instead of 1",
        ended.command,
        ended.code
    );
    let named = [&ended.stdout, &ended.stderr]
        .iter()
        .any(|text| text.contains(&format!("({rule})")));
    ensure!(named, "rule {rule} did not deny {}", ended.command);
    Ok(())
}

pub(crate) fn title(text: &str) {
    println!("\n# {text}");
}
