//! What `validate` prints: text, and `kubectl-kcp.dev/v1alpha1`.

use kcp_control_plane::{
    audit::AuditOutcome,
    validation::{NodeCheck, NodeResult},
};
use serde::Serialize;

use crate::{
    document::{Document, ObjectName, Versioned},
    output::Report,
    terminal::{
        style::{BAD, GOOD, WARN},
        table::{Cell, Column, Layout, Table},
    },
    verdict::Verdict,
};

/// The columns of the table, in the order of the checks.
const COLUMNS: [&str; 6] = ["READY", "LEASE", "POD", "LOG", "NAMES", "API SERVER"];

pub(super) struct ValidationReport<'r> {
    /// The namespace and the name of the control plane. `None` for the cluster of the current context.
    pub(super) control_plane: Option<(String, String)>,
    pub(super) server: &'r str,
    pub(super) image: &'r str,
    pub(super) nodes: Vec<NodeResult>,
}

/// The result of a validation.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct ValidationDocument<'r> {
    /// The control plane. Absent for the cluster of the current context.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<ObjectName>,
    /// The URL of the API server.
    server: &'r str,
    /// The image of the Pods.
    image: &'r str,
    /// FAIL if a check fails, otherwise UNKNOWN if one is unknown.
    outcome: AuditOutcome,
    nodes: Vec<NodeDocument<'r>>,
}

impl Document for ValidationDocument<'_> {
    const KIND: &'static str = "ClusterValidation";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ValidatedNode"))]
struct NodeDocument<'r> {
    name: &'r str,
    outcome: AuditOutcome,
    checks: &'r [NodeCheck],
}

impl ValidationReport<'_> {
    fn outcome(&self) -> AuditOutcome {
        let outcomes = self.nodes.iter().map(NodeResult::outcome);
        outcomes.max().unwrap_or(AuditOutcome::Unknown)
    }

    pub(super) fn verdict(&self) -> Verdict {
        match self.outcome() {
            AuditOutcome::Pass => Verdict::Met,
            AuditOutcome::Fail => Verdict::Negative,
            AuditOutcome::Unknown => Verdict::Undecided,
        }
    }

    fn as_document(&self) -> ValidationDocument<'_> {
        let metadata = self.control_plane.as_ref().map(|(namespace, name)| ObjectName {
            name: name.clone(),
            namespace: namespace.clone(),
        });
        let nodes = self.nodes.iter().map(|node| NodeDocument {
            name: &node.name,
            outcome: node.outcome(),
            checks: &node.checks,
        });
        ValidationDocument {
            metadata,
            server: self.server,
            image: self.image,
            outcome: self.outcome(),
            nodes: nodes.collect(),
        }
    }
}

impl Report for ValidationReport<'_> {
    fn table(&self, layout: Layout) -> String {
        let columns = ["NODE"].into_iter().chain(COLUMNS).map(Column::new);
        let mut table = Table::with_columns(columns);
        for node in &self.nodes {
            let outcomes = node.checks.iter().map(|check| {
                let style = match check.outcome {
                    AuditOutcome::Pass => GOOD,
                    AuditOutcome::Unknown => WARN,
                    AuditOutcome::Fail => BAD,
                };
                Cell::styled(check.outcome.as_str(), style)
            });
            table.add_row([Cell::from(&node.name)].into_iter().chain(outcomes));
        }
        let mut text = table.render(layout);
        let problems = self.nodes.iter().flat_map(|node| {
            let problems = node
                .checks
                .iter()
                .filter(|check| check.outcome != AuditOutcome::Pass);
            problems.map(|check| {
                let outcome = check.outcome.as_str();
                format!("{outcome} Node {}: {} ({})", node.name, check.message, check.id)
            })
        });
        let problems: Vec<String> = problems.collect();
        if !problems.is_empty() {
            text.push('\n');
        }
        layout.append_paragraphs(text, &problems)
    }

    fn document(&self) -> impl Serialize {
        Versioned(self.as_document())
    }

    /// The Nodes that do not pass.
    fn names(&self) -> Vec<String> {
        let failed = self
            .nodes
            .iter()
            .filter(|node| node.outcome() != AuditOutcome::Pass);
        failed.map(|node| format!("node/{}", node.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use kcp_control_plane::{
        audit::AuditOutcome::{self, Fail, Pass, Unknown},
        validation::{NodeCheck, NodeResult},
    };

    use super::{COLUMNS, ValidationDocument, ValidationReport};
    use crate::{
        output::Report as _,
        terminal::{plain, table::Layout},
        testing::{assert_every_format, schema},
        verdict::Verdict,
    };

    const IDS: [&str; 6] = [
        "node-ready",
        "lease-renewed",
        "pod-completes",
        "log-matches",
        "names-resolve",
        "api-server-responds",
    ];

    fn node(name: &str, outcomes: [AuditOutcome; 6]) -> NodeResult {
        let checks = IDS.into_iter().zip(outcomes).map(|(id, outcome)| NodeCheck {
            id,
            outcome,
            message: format!("why {id}"),
        });
        NodeResult {
            name: name.to_owned(),
            checks: checks.collect(),
        }
    }

    fn report(nodes: Vec<NodeResult>) -> ValidationReport<'static> {
        ValidationReport {
            control_plane: Some(("d".to_owned(), "edge".to_owned())),
            server: "https://edge.example.com:6443",
            image: "kcp-webhook:0.1.0",
            nodes,
        }
    }

    #[test]
    fn the_text_lists_what_does_not_pass() {
        let report = report(vec![
            node("n1", [Pass; 6]),
            node("n2", [Pass, Pass, Pass, Pass, Fail, Pass]),
            node("n3", [Fail, Pass, Unknown, Unknown, Unknown, Unknown]),
        ]);
        insta::assert_snapshot!(plain(&report.table(Layout::default())));
        assert_eq!(report.names(), ["node/n2", "node/n3"]);
        assert_eq!(COLUMNS.len(), IDS.len());
        assert_every_format(&report);
        schema::conforms(&report.as_document());
        schema::checked_in::<ValidationDocument<'_>>("clustervalidation.json");
    }

    #[test]
    fn one_failed_check_decides() {
        for (outcomes, expected) in [
            ([Pass; 6], Verdict::Met),
            ([Pass, Pass, Unknown, Pass, Pass, Pass], Verdict::Undecided),
            ([Pass, Fail, Unknown, Pass, Pass, Pass], Verdict::Negative),
        ] {
            let report = report(vec![node("n1", [Pass; 6]), node("n2", outcomes)]);
            assert_eq!(report.verdict(), expected);
        }
        assert_eq!(report(Vec::new()).verdict(), Verdict::Undecided);
    }
}
