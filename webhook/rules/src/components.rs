//! What the components of a control plane know: flags, feature gates, admission plugins, APIs and controllers. A component exits
//! at startup if its settings contain a name that it does not know.
//!
//! The answers come from tables that are derived from the sources of the components. The tables cover one patch version of each
//! minor version, in its standard build. For any other minor version, the answer is [`Answer::NotCovered`].

mod table;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::LazyLock};

use semver::Version;
use table::{Row, Table};

/// A component that a machine of a control plane runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    ApiServer,
    ControllerManager,
    Scheduler,
    Kubelet,
    Etcd,
}

/// Whether a version of a component knows a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    Known(T),
    Unknown(Absence),
    /// The tables do not cover the version.
    NotCovered,
}

/// Why a version does not know a name. Numbers are minor versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The first version without the name.
    RemovedIn(u64),
    /// The first version with the name.
    AddedIn(u64),
    /// No version that the tables cover has the name.
    Always,
}

/// A flag that a version knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The type of the value, in the words of pflag, such as `bool`, `int32` or `duration`, or of etcd, such as `uniqueurls`.
    /// `one=A|B` means one of these values, and `some=A|B` means a list of them.
    pub kind: &'static str,
    /// The deprecation message of the component; `None` if the flag is not deprecated.
    pub deprecated: Option<&'static str>,
}

/// A feature gate that a version knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    pub default: bool,
    /// The first minor version in the tables that rejects any value except the default; `None` if the version accepts both
    /// values. kubeadm accepts both values of a locked gate.
    pub locked_since: Option<u64>,
}

/// A kind that Kubernetes no longer serves in an API version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemovedKind {
    /// The first minor version that does not serve the kind.
    pub removed_in: u64,
    /// The API version, as `GROUP/VERSION`.
    pub api_version: &'static str,
    pub kind: &'static str,
    /// The API version that replaces it; empty if Kubernetes names none.
    pub replacement: &'static str,
}

impl<T> Answer<T> {
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Known(value) => Answer::Known(change(value)),
            Self::Unknown(absence) => Answer::Unknown(absence),
            Self::NotCovered => Answer::NotCovered,
        }
    }
}

impl Component {
    /// The name of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::Etcd => "etcd",
        }
    }

    fn flags(self) -> &'static Table {
        match self {
            Self::ApiServer => &TABLES.api_server,
            Self::ControllerManager => &TABLES.controller_manager,
            Self::Scheduler => &TABLES.scheduler,
            Self::Kubelet => &TABLES.kubelet,
            Self::Etcd => &TABLES.etcd,
        }
    }

    /// The only major version that the tables cover.
    pub const fn major(self) -> u64 {
        match self {
            Self::Etcd => 3,
            _ => 1,
        }
    }

    /// The minor version; 0 if the tables do not cover the major version.
    fn minor(self, version: &Version) -> u64 {
        if version.major == self.major() {
            version.minor
        } else {
            0
        }
    }
}

/// The oldest and the newest minor version of a component that the tables cover.
pub fn minors(component: Component) -> (u64, u64) {
    component.flags().range()
}

struct Tables {
    api_server: Table,
    controller_manager: Table,
    scheduler: Table,
    kubelet: Table,
    etcd: Table,
    gates: Table,
    etcd_gates: Table,
    kubeadm_gates: Table,
    admission_plugins: Table,
    apis: Table,
    kinds: Table,
    controllers: Table,
}

macro_rules! table {
    ($name:literal) => {
        Table::parse(include_str!(concat!("../components/data/", $name, ".tsv")))
    };
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| Tables {
    api_server: table!("kube-apiserver"),
    controller_manager: table!("kube-controller-manager"),
    scheduler: table!("kube-scheduler"),
    kubelet: table!("kubelet"),
    etcd: table!("etcd"),
    gates: table!("gates"),
    etcd_gates: table!("etcd-gates"),
    kubeadm_gates: table!("kubeadm-gates"),
    admission_plugins: table!("admission-plugins"),
    apis: table!("apis"),
    kinds: table!("kinds"),
    controllers: table!("controllers"),
});

/// Whether a component knows a flag, which has no leading dashes. Kubernetes accepts underscores as dashes, and etcd does not.
pub fn flag(component: Component, name: &str, version: &Version) -> Answer<Flag> {
    let minor = component.minor(version);
    let name = if component == Component::Etcd {
        name.to_owned()
    } else {
        name.replace('_', "-")
    };
    component.flags().answer(&name, minor, |row, state| Flag {
        kind: state.split(',').next().unwrap_or_default(),
        deprecated: has(state, "deprecated").then_some(row.text),
    })
}

/// Whether a state, such as `string,deprecated`, has a word.
fn has(state: &str, word: &str) -> bool {
    state.split(',').any(|known| known == word)
}

/// Whether a component knows a feature gate.
pub fn gate(component: Component, name: &str, version: &Version) -> Answer<Gate> {
    let minor = component.minor(version);
    if component == Component::Etcd {
        return TABLES.etcd_gates.answer(name, minor, gate_in(minor));
    }
    match TABLES.gates.answer(name, minor, gate_in(minor)) {
        Answer::Unknown(Absence::Always) => {
            let name = format!("{}:{name}", component.name());
            TABLES.gates.answer(&name, minor, gate_in(minor))
        }
        answer => answer,
    }
}

/// Reads a gate from its state in a minor version, such as `ga,true,locked`.
fn gate_in(minor: u64) -> impl Fn(&Row, &'static str) -> Gate {
    let is_locked = |state: &str| has(state, "locked");
    move |row, state| Gate {
        default: has(state, "true"),
        locked_since: is_locked(state).then(|| row.since(minor, is_locked)),
    }
}

/// Returns the feature gates that are on although gates that they need are off, each with these missing gates (`unsafeSetFromMap`
/// of `component-base/featuregate`). `program` is the version of the program, `at` is the version whose defaults the program has,
/// and `given` are the gates that a flag sets.
pub fn unmet_gates(
    component: Component,
    [program, at]: [&Version; 2],
    given: &[(&str, bool)],
) -> Vec<(&'static str, Vec<&'static str>)> {
    let table = match component {
        Component::Etcd => &TABLES.etcd_gates,
        _ => &TABLES.gates,
    };
    let [program, at] = [program, at].map(|version| component.minor(version));
    if !table.covers(program) || !table.covers(at) {
        return Vec::new();
    }
    let own = table.rows().filter_map(|(name, row)| match name.split_once(':') {
        Some((other, _)) if other != component.name() => None,
        Some((_, gate)) => Some((gate, row)),
        None => Some((name, row)),
    });
    let rows: BTreeMap<_, _> = own.collect();
    let given = |name: &str| {
        given
            .iter()
            .rev()
            .find(|(given, _)| *given == name)
            .map(|(_, on)| *on)
    };
    let is_on = |name: &str| {
        // A gate that the emulated version does not know is off.
        let state = rows.get(name).and_then(|row| row.state(at)).unwrap_or_default();
        let of_stage = ["alpha", "beta"].into_iter().zip(["AllAlpha", "AllBeta"]);
        let all = of_stage
            .filter(|(stage, _)| has(state, stage))
            .find_map(|(_, all)| given(all));
        given(name).or(all).unwrap_or_else(|| has(state, "true"))
    };
    let needs = |name: &str, row: &Row| -> Vec<&'static str> {
        let state = row.state(program).unwrap_or_default();
        let derived = state.split(',').filter_map(|word| word.strip_prefix("needs="));
        // `embed.Config.Validate` of etcd.
        let persist =
            (component == Component::Etcd && name == "LeaseCheckpointPersist").then_some("LeaseCheckpoint");
        derived.chain(persist).filter(|need| !is_on(need)).collect()
    };
    let unmet = rows
        .iter()
        .filter(|(name, _)| is_on(name))
        .map(|(name, row)| (*name, needs(name, row)));
    unmet.filter(|(_, off)| !off.is_empty()).collect()
}

/// Whether kubeadm knows a feature gate. If not, it rejects the configuration.
pub fn kubeadm_gate(name: &str, version: &Version) -> Answer<Gate> {
    let minor = Component::ApiServer.minor(version);
    TABLES.kubeadm_gates.answer(name, minor, gate_in(minor))
}

/// Whether kube-apiserver knows an admission plugin. If so, contains whether it is enabled by default.
pub fn admission_plugin(name: &str, version: &Version) -> Answer<bool> {
    let minor = Component::ApiServer.minor(version);
    TABLES
        .admission_plugins
        .answer(name, minor, |_, state| state == "on")
}

/// Whether kube-apiserver accepts a key of `--runtime-config`: `GROUP/VERSION`, `GROUP/VERSION/RESOURCE`, or a group of APIs such
/// as `api/beta`. kube-apiserver also accepts an API version that it registers but does not serve.
pub fn runtime_config(key: &str, version: &Version) -> Answer<()> {
    let minor = Component::ApiServer.minor(version);
    let api_version = match *key.split('/').collect::<Vec<_>>() {
        _ if !TABLES.apis.covers(minor) => return Answer::NotCovered,
        ["api", "all" | "ga" | "beta" | "alpha" | "legacy"] => return Answer::Known(()),
        ["v1", ..] | ["api", "v1", ..] => "v1".to_owned(),
        ["", version] | ["", version, _] => version.to_owned(),
        [group, version] | [group, version, _] => format!("{group}/{version}"),
        _ => return Answer::Unknown(Absence::Always),
    };
    TABLES.apis.answer(&api_version, minor, |_, _| ())
}

/// The API versions of a group: the stable ones, or all if none is stable.
pub fn api_versions(group: &str, version: &Version) -> Vec<&'static str> {
    let minor = Component::ApiServer.minor(version);
    let registered = TABLES.apis.rows().filter(|(_, row)| row.state(minor).is_some());
    let of_group =
        registered.filter(|(name, _)| name.split_once('/').is_some_and(|(known, _)| known == group));
    let mut versions: Vec<_> = of_group.map(|(name, _)| name).collect();
    versions.sort_unstable();
    let is_stable = |name: &&str| !name.contains("beta") && !name.contains("alpha");
    if versions.iter().any(is_stable) {
        versions.retain(is_stable);
    }
    versions
}

/// Whether `--controllers` of kube-controller-manager accepts the name of a controller.
pub fn controller(name: &str, version: &Version) -> Answer<()> {
    let minor = Component::ControllerManager.minor(version);
    TABLES.controllers.answer(name, minor, |_, _| ())
}

/// Returns the name if any version has a controller of this name; otherwise `None`, because any other text in a flag or a file
/// may be secret.
pub fn controller_name(name: &str) -> Option<&'static str> {
    TABLES.controllers.name(name)
}

/// The kinds that version `to` no longer serves, and version `from` still does.
pub fn removed_kinds(from: &Version, to: &Version) -> Vec<RemovedKind> {
    let [from, to] = [from, to].map(|version| Component::ApiServer.minor(version));
    let mut removed: Vec<_> = TABLES
        .kinds
        .rows()
        .filter_map(|(name, row)| removed_kind(name, row, to))
        .filter(|kind| from < kind.removed_in && kind.removed_in <= to)
        .collect();
    removed.sort();
    removed
}

/// The version that stops serving a kind is the one that Kubernetes announced, or an earlier one that no longer registers the
/// kind.
fn removed_kind(name: &'static str, row: &Row, minor: u64) -> Option<RemovedKind> {
    let (api_version, kind) = name.split_once(':')?;
    let planned = row.last_known(minor)?.strip_prefix("removed=")?.parse().ok()?;
    let removed_in = match row.absence(minor) {
        Absence::RemovedIn(dropped) if row.state(minor).is_none() => dropped.min(planned),
        _ => planned,
    };
    Some(RemovedKind {
        removed_in,
        api_version,
        kind,
        replacement: row.text,
    })
}
