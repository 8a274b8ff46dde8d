//! Writes of controllers that a webhook refused, found in their logs.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::refusing_webhook::SUFFIX;

/// The API server's messages for a webhook that refused and for a webhook that did not answer: k8s.io/apiserver,
/// `pkg/admission/plugin/webhook/errors/statuserror.go` and `pkg/util/webhook/error.go`.
const REFUSALS: [&str; 2] = ["denied the request", "failed calling webhook"];

/// Fails with the first line of a log that reports a refused write, by any webhook but a stand-in that refuses on purpose.
/// Refusals with the text `expected` are not counted.
pub(super) fn none_in(log: &Path, expected: Option<&str>) -> Result<()> {
    let text = fs::read(log).with_context(|| format!("reading {}", log.display()))?;
    match first(&String::from_utf8_lossy(&text), expected) {
        Some(line) => bail!(
            "a webhook refused a write of Cluster API: {}: {line}",
            log.display()
        ),
        None => Ok(()),
    }
}

fn first<'t>(text: &'t str, expected: Option<&str>) -> Option<&'t str> {
    let is_expected = |line: &str| expected.is_some_and(|expected| line.contains(expected));
    text.lines().find(|line| {
        REFUSALS.iter().any(|refusal| line.contains(refusal)) && !line.contains(SUFFIX) && !is_expected(line)
    })
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
            assert_eq!(
                first(&format!("I1 started\n{refusal}\nI1 done\n"), Some("(a)")),
                Some(refusal)
            );
            assert_eq!(first(&format!("{refusal} (a)"), Some("(a)")), None);
        }
        let on_purpose = denied.replace(
            "kubeadmcontrolplanes.validate.kubectl-kcp.dev",
            "why.refusing.test",
        );
        assert_eq!(first(&on_purpose, None), None);
        assert_eq!(
            first(
                "I1 started\nE1 connection to the workload cluster is down\n",
                None
            ),
            None
        );
    }
}
