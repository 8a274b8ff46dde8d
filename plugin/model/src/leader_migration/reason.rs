//! The verdicts on controllers that can migrate, and the reasons for them.

use std::{fmt, time::Duration};

use kcp_rules::leader_migration::{Component, Lock};

use crate::duration::format_duration;

/// The state of one controller that can migrate, or of all these controllers together. The variants are in
/// order of severity, the least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigrationState {
    /// One controller manager runs the controller, and no other can run it; or no controller manager has the controller.
    NothingToMigrate,
    /// One controller manager runs the controller, and holds the migration lock.
    Protected,
    /// It is unknown which controller manager runs the controller, because something could not be read.
    Unknown,
    /// One controller manager runs the controller, but no lock prevents another one from running it at the
    /// same time.
    Unprotected,
    /// The holder of the lock no longer renews it.
    Stale,
    /// No controller manager runs the controller.
    Orphaned,
    /// Two controller managers run the controller at the same time.
    RunsTwice,
}

impl MigrationState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NothingToMigrate => "nothing-to-migrate",
            Self::Protected => "protected",
            Self::Unknown => "unknown",
            Self::Unprotected => "unprotected",
            Self::Stale => "stale",
            Self::Orphaned => "orphaned",
            Self::RunsTwice => "runs-twice",
        }
    }
}

/// The reason for a verdict on a controller. Pods are named without their namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    RunsTwice {
        pods: Vec<String>,
    },
    /// The holder renews its Lease, but does not run the controller.
    HeldWithoutRunner {
        lock: Lock,
        holder: String,
        /// The component that holds the lock. `None` if the holder does not hold a main lock.
        component: Option<Component>,
        /// Whether that component is the component of the Pod.
        is_own: bool,
        /// The Pod that would run the controller if it held the lock.
        pod: String,
    },
    /// No process holds the lock that a healthy controller manager needs.
    LockNotTaken {
        lock: Lock,
        pod: String,
    },
    NotRunning {
        pod: String,
        why: String,
    },
    /// No controller manager runs the controller, because each configuration assigns it to the other
    /// component, or to a component that does not have it.
    NotAssigned {
        pods: Vec<String>,
    },
    Stale {
        lock: Lock,
        holder: String,
        age: Option<Duration>,
        /// The Pod that runs the controller although the holder does not renew the Lease. `None` if no Pod runs
        /// it.
        runner: Option<String>,
    },
    MainLock {
        lock: Lock,
        pod: String,
    },
    /// Another controller manager would run the controller without the migration lock.
    OtherWithoutLock {
        pod: String,
        other: String,
    },
    /// The Pod runs the controller, but the lock has no holder.
    RunsWithoutLock {
        lock: Lock,
        pod: String,
    },
    /// The Pods could not be read, or an object that is needed to read them could not be read, such as the Secret with the
    /// kubeconfig.
    PodsUnread {
        object: String,
        why: String,
    },
    HealthUnread {
        pod: String,
        why: String,
    },
    SettingsUnread {
        pod: String,
        why: String,
    },
    LockUnread {
        lock: Lock,
        why: String,
    },
    /// A process holds a main lock, but no Pod of its component was found.
    UnknownHolder {
        lock: Lock,
        holder: String,
        component: Component,
    },
    /// The holder of the lock does not hold the runner's main lock, or another component wrote the lock.
    HolderUnclear {
        lock: Lock,
        holder: String,
        pod: String,
    },
    /// The Pod runs a controller that its settings disable.
    SettingsDiffer {
        pod: String,
    },
    Protected {
        lock: Lock,
        pod: String,
    },
    OneRunner {
        pod: String,
    },
    NoRunner,
}

impl Reason {
    pub const fn verdict(&self) -> MigrationState {
        match self {
            Self::RunsTwice { .. } => MigrationState::RunsTwice,
            Self::HeldWithoutRunner { .. }
            | Self::LockNotTaken { .. }
            | Self::NotRunning { .. }
            | Self::NotAssigned { .. } => MigrationState::Orphaned,
            Self::Stale { .. } => MigrationState::Stale,
            Self::MainLock { .. } | Self::OtherWithoutLock { .. } | Self::RunsWithoutLock { .. } => {
                MigrationState::Unprotected
            }
            Self::PodsUnread { .. }
            | Self::HealthUnread { .. }
            | Self::SettingsUnread { .. }
            | Self::LockUnread { .. }
            | Self::UnknownHolder { .. }
            | Self::HolderUnclear { .. }
            | Self::SettingsDiffer { .. } => MigrationState::Unknown,
            Self::Protected { .. } => MigrationState::Protected,
            Self::OneRunner { .. } | Self::NoRunner => MigrationState::NothingToMigrate,
        }
    }

    /// What to do about the problem, in the workload cluster. `None` if there is no problem, or no general remedy.
    pub fn fix(&self) -> Option<String> {
        let fix = match self {
            Self::RunsTwice { .. } => {
                "disable the controller in one component with --controllers, or enable leader migration in both \
                 components with the same configuration"
                    .to_owned()
            }
            Self::HeldWithoutRunner {
                is_own: true, pod, ..
            } => format!("find out why the controller has not started: kubectl -n kube-system logs {pod}"),
            Self::HeldWithoutRunner { .. } | Self::NotAssigned { .. } => {
                "enable the controller in the --controllers of one component, and assign it to \"*\" in the leader \
                 migration configuration of both components"
                    .to_owned()
            }
            Self::LockNotTaken { .. } => {
                "in the workload cluster, apply the permissions for the Lease: `leader-migration generate -o rbac` prints \
                 the permissions"
                    .to_owned()
            }
            Self::NotRunning { pod, .. } => format!("find out why the Pod does not run: kubectl -n kube-system logs \
                {pod}"),
            Self::Stale { .. } => {
                "check that a controller manager with this controller is running, and that the clocks of the Nodes \
                 agree"
                    .to_owned()
            }
            Self::MainLock { .. } => {
                "add the controller to the leader migration configuration of both components, under the name that \
                 each version uses"
                    .to_owned()
            }
            Self::OtherWithoutLock { other, .. } => {
                format!("disable the controller in the --controllers of {other}, or enable leader migration for \
                    {other}")
            }
            Self::UnknownHolder { component, .. } => format!(
                "pass the namespace of the Pods of {component} with --ccm-namespace, or find out which \
                 process holds the Lease"
            ),
            _ => return None,
        };
        Some(fix)
    }
}

/// The name of a Lease in messages, without its namespace if the namespace is `kube-system`.
fn lease(lock: &Lock) -> String {
    match lock.namespace.as_str() {
        "kube-system" => format!("Lease {}", lock.name),
        namespace => format!("Lease {namespace}/{}", lock.name),
    }
}

fn held_without_runner(
    lease: &str,
    holder: &str,
    component: Option<Component>,
    is_own: bool,
    pod: &str,
) -> String {
    match component {
        Some(component) if is_own => {
            format!("{component} renews {lease}, but {pod} has not started the controller")
        }
        Some(component) => format!(
            "{component} renews {lease} but does not run the controller; {pod} would run the controller if it held that Lease"
        ),
        None => format!(
            "{holder} renews {lease} and is not a controller manager of this cluster; {pod} waits for that Lease"
        ),
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunsTwice { pods } => {
                write!(f, "{} run the controller at the same time", pods.join(" and "))
            }
            Self::HeldWithoutRunner {
                lock,
                holder,
                component,
                is_own,
                pod,
            } => {
                let lease = lease(lock);
                f.write_str(&held_without_runner(&lease, holder, *component, *is_own, pod))
            }
            Self::LockNotTaken { lock, pod } => {
                write!(
                    f,
                    "{pod} is healthy, but has not acquired {}, which has no holder",
                    lease(lock)
                )
            }
            Self::NotRunning { pod, why } => write!(f, "{pod} does not run: {why}"),
            Self::NotAssigned { pods } => {
                write!(
                    f,
                    "the configuration of {} assigns the controller to another component",
                    pods.join(" and ")
                )
            }
            Self::Stale {
                lock,
                holder,
                age,
                runner,
            } => {
                write!(f, "{holder} has not renewed {}", lease(lock))?;
                if let Some(age) = age {
                    write!(f, " for {}", format_duration(*age))?;
                }
                match runner {
                    Some(runner) => write!(f, ", but {runner} runs the controller"),
                    None => f.write_str(", and no controller manager runs the controller"),
                }
            }
            Self::MainLock { lock, pod } => {
                write!(
                    f,
                    "{pod} runs the controller under its main lock, {}, although leader migration is enabled",
                    lease(lock)
                )
            }
            Self::OtherWithoutLock { pod, other } => {
                write!(
                    f,
                    "{pod} runs the controller under the migration lock, but {other} would run the controller \
                     without that lock"
                )
            }
            Self::RunsWithoutLock { lock, pod } => {
                write!(f, "{pod} runs the controller, but {} has no holder", lease(lock))
            }
            Self::PodsUnread { object, why } => write!(f, "could not read {object}: {why}"),
            Self::HealthUnread { pod, why } => {
                write!(f, "could not read which controllers {pod} runs: {why}")
            }
            Self::SettingsUnread { pod, why } => write!(f, "could not read the settings of {pod}: {why}"),
            Self::LockUnread { lock, why } => write!(f, "could not read {}: {why}", lease(lock)),
            Self::UnknownHolder {
                lock,
                holder,
                component,
            } => write!(
                f,
                "{holder} renews {}, but no Pod of {component} was found",
                lease(lock)
            ),
            Self::HolderUnclear { lock, holder, pod } => write!(
                f,
                "{pod} runs the controller, but {lease} seems to be held by another process: {holder} holds it, but does not hold \
                 {pod}'s main lock",
                lease = lease(lock)
            ),
            Self::SettingsDiffer { pod } => {
                write!(
                    f,
                    "{pod} runs the controller although its settings disable the controller"
                )
            }
            Self::Protected { lock, pod } => write!(f, "{pod} runs the controller and holds {}", lease(lock)),
            Self::OneRunner { pod } => {
                write!(
                    f,
                    "{pod} runs the controller, and no other controller manager can run it"
                )
            }
            Self::NoRunner => f.write_str("no controller manager has this controller"),
        }
    }
}
