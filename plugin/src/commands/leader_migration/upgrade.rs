//! What `leader-migration check` found out about an upgrade: the problems, and how to fix each.

use kcp_rules::leader_migration::{
    Component, Lock, Manager, Pair, Phase, Row, Side, Verdict, generate::UNSUPPORTED_SINCE, pair::Owner,
};
use kcp_rules::topics::controller_managers::Unknown;

/// An upgrade of a control plane.
pub(crate) struct Check {
    /// The control plane. Empty if its manifest has no name.
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// Desired number of Machines; none if the manifest does not set it.
    pub(crate) replicas: Option<i64>,
    pub(crate) pair: Pair,
    /// Why `files` does not tell whether a static Pod is a cloud-controller-manager.
    pub(crate) unknown_clouds: Vec<Unknown>,
}

/// A problem with what to change.
pub(crate) struct Problem {
    pub(crate) message: String,
    pub(crate) fix: String,
    pub(crate) is_harmful: bool,
}

impl Check {
    pub(crate) fn has_problem(&self) -> bool {
        self.problems().iter().any(|problem| problem.is_harmful)
    }

    /// Every problem with its fix, the most severe first.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let exits = self.pair.exits().into_iter().map(|(phase, component, exit)| {
            let side = if phase == Phase::Now {
                &self.pair.now
            } else {
                &self.pair.then
            };
            let minor = manager(side, component).map(|manager| manager.minor);
            let minor = minor.map_or_else(String::new, |minor| format!(" 1.{minor}"));
            Problem {
                message: format!("{component}{minor} exits at startup: {exit}"),
                fix: exit.fix(),
                is_harmful: true,
            }
        });
        let rows = self.pair.rows();
        let rows = rows.iter().filter_map(|row| self.of_row(row));
        let findings = self.pair.findings().into_iter().map(|finding| Problem {
            message: finding.to_string(),
            fix: finding.fix(),
            is_harmful: finding.is_problem(),
        });
        let unknown = self.unknown_clouds.iter().map(|unknown| Problem {
            message: unknown.to_string(),
            fix: "give the manifest of cloud-controller-manager with --ccm, and the one before the upgrade with --old-ccm"
                .to_owned(),
            is_harmful: false,
        });
        exits.chain(rows).chain(findings).chain(unknown).collect()
    }

    fn of_row(&self, row: &Row) -> Option<Problem> {
        let name = row.controller.canonical;
        let (message, fix) = match row.verdict {
            Verdict::RunsTwice(phase) => (
                format!(
                    "{name} runs in two controller managers at the same time {}",
                    when(phase)
                ),
                self.fix_of_two_owners(name),
            ),
            Verdict::Orphaned(phase) => (
                format!("no controller manager runs {name} {}", when(phase)),
                self.fix_of_no_owner(name),
            ),
            Verdict::CannotStart(component, phase) => (
                format!(
                    "no controller manager runs {name} {}: {component} exits at startup",
                    when(phase)
                ),
                format!("let {component} start; see above"),
            ),
            Verdict::SwitchedOff => (
                format!("no controller manager runs {name} after the upgrade, because the flags disable it"),
                self.fix_of_no_owner(name),
            ),
            Verdict::Unknown => (
                format!(
                    "cloud-controller-manager may run {name}: its flags and its cloud provider do not say so"
                ),
                format!(
                    "add {name} to the --controllers of cloud-controller-manager if its cloud provider has {name}; otherwise \
                     remove --allocate-node-cidrs"
                ),
            ),
            Verdict::Protected | Verdict::Unprotected | Verdict::NothingToMigrate => return None,
        };
        Some(Problem {
            message,
            fix,
            is_harmful: row.verdict.is_problem(),
        })
    }

    fn fix_of_two_owners(&self, name: &str) -> String {
        if self.pair.now.kube.minor >= UNSUPPORTED_SINCE {
            return format!(
                "kube-controller-manager 1.36 and later cannot migrate: disable {name} in the --controllers of \
                 kube-controller-manager, wait for the rollout, then enable it in cloud-controller-manager"
            );
        }
        let (from, to) = (self.pair.now.kube.minor, self.pair.then.kube.minor);
        let ipam = if name == "node-ipam-controller" {
            " --node-ipam"
        } else {
            ""
        };
        format!(
            "before the upgrade, enable leader migration on kube-controller-manager and cloud-controller-manager, with a \
             configuration that lists {name}; to generate this configuration: kubectl kcp leader-migration generate \
             --from 1.{from} --to 1.{to}{ipam}"
        )
    }

    fn fix_of_no_owner(&self, name: &str) -> String {
        match &self.pair.then.cloud {
            Some(_) => format!(
                "enable {name} in the --controllers of cloud-controller-manager, and let its leader migration \
                 configuration assign {name} to \"*\""
            ),
            None => format!(
                "if a cloud-controller-manager runs {name}, give its manifest with --ccm; otherwise enable {name} in \
                 kube-controller-manager"
            ),
        }
    }

    /// Whether a stop of the old controller managers before the start of the new ones is simpler.
    pub(crate) fn recommends_stop_then_start(&self) -> bool {
        let moves = self.pair.rows().iter().any(|row| {
            let owner = |owners: &[Owner]| owners.first().map(|owner| owner.component);
            owner(&row.now) == Some(Component::Kube) && owner(&row.then) == Some(Component::Cloud)
        });
        moves && self.replicas == Some(1)
    }
}

fn manager(side: &Side, component: Component) -> Option<&Manager> {
    match component {
        Component::Kube => Some(&side.kube),
        Component::Cloud => side.cloud.as_ref(),
    }
}

fn when(phase: Phase) -> &'static str {
    match phase {
        Phase::Now => "before the upgrade",
        Phase::Rollout => "while Machines of both versions run",
        Phase::Then => "after the upgrade",
    }
}

/// The name of a Lease, with its namespace unless that is `kube-system`.
pub(super) fn lease(lock: &Lock) -> String {
    match lock.namespace.as_str() {
        "kube-system" => lock.name.clone(),
        namespace => format!("{namespace}/{}", lock.name),
    }
}
