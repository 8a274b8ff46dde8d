//! Writes of controllers that a webhook refused, found in their logs.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::refusing_webhook::SUFFIX;

/// The API server's messages for a webhook that refused and for a webhook that did not answer: k8s.io/apiserver,
/// `pkg/admission/plugin/webhook/errors/statuserror.go` and `pkg/util/webhook/error.go`.
const REFUSALS: [&str; 2] = ["denied the request", "failed calling webhook"];

/// Fails with the first line of a log that reports a refused write, by any webhook but a stand-in that refuses on purpose.
pub(super) fn none_in(log: &Path) -> Result<()> {
    let text = fs::read(log).with_context(|| format!("reading {}", log.display()))?;
    match first(&String::from_utf8_lossy(&text)) {
        Some(line) => bail!(
            "a webhook refused a write of Cluster API: {}: {line}",
            log.display()
        ),
        None => Ok(()),
    }
}

fn first(text: &str) -> Option<&str> {
    text.lines()
        .find(|line| REFUSALS.iter().any(|refusal| line.contains(refusal)) && !line.contains(SUFFIX))
}

#[cfg(test)]
mod tests {
    use super::first;

    #[test]
    fn finds_what_was_refused_and_what_could_not_be_asked() {
        let denied = r#"E1 "Reconciler error" err="admission webhook \"kubeadmcontrolplanes.validate.kubectl-kcp.dev\" denied the request: ...""#;
        let outage =
            r#"E1 "Reconciler error" err="failed calling webhook \"x.kubectl-kcp.dev\": connection refused""#;
        for refusal in [denied, outage] {
            assert_eq!(first(&format!("I1 started\n{refusal}\nI1 done\n")), Some(refusal));
        }
        let on_purpose = denied.replace(
            "kubeadmcontrolplanes.validate.kubectl-kcp.dev",
            "why.refusing.test",
        );
        assert_eq!(first(&on_purpose), None);
        assert_eq!(
            first("I1 started\nE1 connection to the workload cluster is down\n"),
            None
        );
    }
}
