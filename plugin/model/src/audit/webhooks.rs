//! Webhooks that prevent a restart: the API server rejects requests until the webhook responds, and the webhook's Pods do not
//! start until the API server accepts these requests.
//!
//! - [`critical`]: the requests that a restart needs
//! - [`matching`]: whether a webhook is called for a request
//! - [`verdict`]: the decision about one webhook

pub mod critical;
pub mod matching;
pub mod verdict;

use crate::audit::{
    Assumptions, AuditCheck, Evidence, Facts,
    evidence::{either, require},
    facts::Webhook,
};
use verdict::{DeadlockRisk, fragilities, judge};

pub const CHECKS: &[AuditCheck] = &[
    AuditCheck {
        id: "webhooks-deadlock",
        requirement: "the API server calls no webhook in the cluster with failurePolicy Fail for a request that the restart needs",
        remedy: "exclude kube-system, kube-node-lease and the webhook's own namespace with namespaceSelector, list the resources \
            in rules instead of \"*\", or set failurePolicy: Ignore. After a deadlock, run kubectl delete CONFIGURATION: the API \
            server calls no webhook for this request",
        function: check_webhooks_deadlock,
    },
    AuditCheck {
        id: "webhooks-fragile",
        requirement: "each webhook with failurePolicy Fail survives the loss of one Node, responds quickly, and lists its \
                      resources",
        remedy: "run two Pods on different Nodes with a PodDisruptionBudget, set timeoutSeconds to 10 at most, and list the \
            resources in rules",
        function: check_webhooks_fragile,
    },
];

const WEBHOOKS: &str = "the webhook configurations";

fn describe(webhook: &Webhook) -> String {
    format!("{} of {}", webhook.name, webhook.configuration)
}

fn check_webhooks_deadlock(facts: &Facts, _: Assumptions) -> Evidence {
    either(webhooks_deadlock(facts))
}

fn webhooks_deadlock(facts: &Facts) -> Result<Evidence, Evidence> {
    let webhooks = require(&facts.webhooks, WEBHOOKS)?;
    let mut evidence = Evidence::default();
    for webhook in webhooks {
        match judge(webhook, facts) {
            DeadlockRisk::Safe(_) => {}
            DeadlockRisk::Deadlock(why) => evidence.fail(format!("{}: {why}", describe(webhook))),
            DeadlockRisk::Unknown(why) => evidence.unknown(format!("{}: {why}", describe(webhook))),
        }
    }
    evidence.pass(format!(
        "{} webhooks, {} with failurePolicy Fail",
        webhooks.len(),
        webhooks.iter().filter(|webhook| webhook.fails).count()
    ));
    Ok(evidence)
}

fn check_webhooks_fragile(facts: &Facts, _: Assumptions) -> Evidence {
    either(webhooks_fragile(facts))
}

fn webhooks_fragile(facts: &Facts) -> Result<Evidence, Evidence> {
    let webhooks = require(&facts.webhooks, WEBHOOKS)?;
    let mut evidence = Evidence::default();
    for webhook in webhooks.iter().filter(|webhook| webhook.fails) {
        match fragilities(webhook, facts) {
            Ok(reasons) if reasons.is_empty() => {}
            Ok(reasons) => evidence.fail(format!("{}: {}", describe(webhook), reasons.join("; "))),
            Err(why) => evidence.unknown(format!("{}: {why}", describe(webhook))),
        }
    }
    evidence.pass(format!("{} webhooks", webhooks.len()));
    Ok(evidence)
}

#[cfg(test)]
mod projects;
#[cfg(test)]
pub(super) mod test_cases;
