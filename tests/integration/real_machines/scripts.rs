//! Runs the scripts of `kubectl kcp node` on machines.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::real::Machine;

/// What kubeadm creates on a host that joins.
pub(super) const CREATED_BY_KUBEADM: &str = "/etc/kubernetes/kubelet.conf";

/// Runs a script as root on a host.
pub(super) async fn run(host: &Machine, script: &str) -> Result<CommandOutput> {
    // Not among the files that are compared.
    let path = "/var/tmp/script.sh";
    host.write(path, script)?;
    host.exec(["bash", path]).await
}

/// Runs a script that must end with exit code 1 and these messages.
pub(super) async fn refuses(host: &Machine, script: &str, messages: &[&str]) -> Result<CommandOutput> {
    let refused = run(host, script).await?;
    ensure!(refused.code == 1, "{refused}");
    for message in messages {
        ensure!(refused.stderr.contains(message), "no '{message}' in: {refused}");
    }
    Ok(refused)
}

/// Runs a teardown script, which must succeed.
pub(super) async fn tears_down(host: &Machine, script: &str) -> Result<CommandOutput> {
    let ended = run(host, script).await?;
    let last = format!("Kubernetes is removed from {}\n", host.name());
    ensure!(ended.code == 0 && ended.stderr.ends_with(&last), "{ended}");
    ensure!(
        !host.file(CREATED_BY_KUBEADM).exists(),
        "{CREATED_BY_KUBEADM} remains on {}",
        host.name()
    );
    Ok(ended)
}

/// The hash of the CA's public key in a script.
pub(super) fn hash_of(script: &str) -> Result<String> {
    let (_, hash) = script.split_once("\"sha256:").context("no hash in the script")?;
    let (hash, _) = hash.split_once('"').context("no end of the hash in the script")?;
    Ok(hash.to_owned())
}
