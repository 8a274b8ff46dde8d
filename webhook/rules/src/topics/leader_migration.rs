//! Leader migration of the controller manager (KEP-2436): `enable-leader-migration` and its configuration file. No
//! message shows text of a flag or a file, because it may be secret.

use std::borrow::Cow;

use crate::{
    action::Action,
    api::{ControlPlaneSpec, KubeadmControlPlane, kubeadm_config::HostPathMount, machine_setup::File},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, HIDDEN},
    leader_migration::{CONTROLLERS, LeaderMigrationConfiguration},
    rule::{Check, InTopology, Rule, Scope},
    topics::{
        Topic,
        extra_args::{FlagValue, controller_manager},
        files::files,
    },
};

pub(super) const TOPIC: Topic = Topic {
    name: "leader-migration",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "leader-migration-unsupported",
        summary: "leader migration must be off for kube-controller-manager 1.36 or later",
        why: "kube-controller-manager 1.36 or later exits at startup if leader migration is enabled. The \
              first new Machine then never becomes ready, and the rollout stops.",
        scope: Scope::Object,
        topology: InTopology::Strands,
        source: "kube-controller-manager 1.36.3 and 1.37.0: informer name is already registered, exit code 1",
        check: Check::ControlPlaneSpec(unsupported),
        cel: Cel::FaultsOfControlPlanes(include_str!("cel/leader-migration-unsupported.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "leader-migration-ignored",
        summary: "leader migration must not be configured where it has no effect",
        why: "The controller manager uses leader migration only if enable-leader-migration and leader \
              election are both on. If one is off, two controller managers can run the same controller \
              during a migration.",
        scope: Scope::Object,
        source: "KEP-2436, Component Flags: such a configuration is fatal; kube-controller-manager only \
                 ignores it",
        check: Check::ControlPlaneSpec(ignored),
        cel: Cel::Faults(include_str!("cel/leader-migration-ignored.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "leader-migration-file-missing",
        summary: "the controller manager must be able to read its migration configuration",
        why: "The controller manager exits at startup if it cannot read the file. The first new Machine then never \
              becomes ready, and the rollout stops.",
        scope: Scope::Object,
        overridable: true,
        source: "KEP-2436, Component Flags: a configuration file that cannot be read is fatal",
        check: Check::ControlPlaneSpec(file_missing),
        cel: Cel::Faults(include_str!("cel/leader-migration-file-missing.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "leader-migration-configuration-invalid",
        summary: "the leader migration configuration must be valid",
        why: "The controller manager exits at startup if it cannot parse the configuration. If leaderName is not \
              a valid Lease name, or is the Lease of another component, the controller manager starts, but never \
              gets the migration lock (a Lease).",
        scope: Scope::Object,
        source: "k8s.io/controller-manager, pkg/leadermigration/config/config.go",
        check: Check::ControlPlaneSpec(configuration_invalid),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
    Rule {
        id: "leader-migration-configuration-unchecked",
        summary: "a leader migration configuration that is encoded or in a Secret is not checked",
        why: "The rules do not decode a file, and do not read it from a Secret. If the configuration is \
              invalid, the controller manager of the first new Machine exits at startup.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "KEP-2436, Component Flags: a configuration file that cannot be parsed is fatal",
        check: Check::ControlPlaneSpec(configuration_unchecked),
        cel: Cel::Faults(include_str!("cel/leader-migration-configuration-unchecked.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "leader-migration-unprotected",
        summary: "leader migration should select a controller that the controller manager runs",
        why: "Leader migration protects a controller only if the configuration names the controller and the \
              controller manager runs it. Every other controller can run twice during a migration.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "k8s.io/controller-manager, pkg/leadermigration/migrator.go: names are compared without aliases",
        check: Check::ControlPlane(unprotected),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
];

const ENABLE: &str = "enable-leader-migration";
const CONFIGURATION: &str = "leader-migration-config";
const LEADER_ELECT: &str = "leader-elect";

/// The first minor version whose kube-controller-manager exits with leader migration enabled.
const UNSUPPORTED_SINCE: u64 = 36;

/// Folders and files that kubeadm mounts into the controller manager by itself (kubeadm, `controlplane/volumes.go`).
/// `certificatesDir` replaces the first one.
const MOUNTED_BY_KUBEADM: [&str; 7] = [
    "/etc/kubernetes/pki",
    "/etc/kubernetes/controller-manager.conf",
    "/etc/ssl/certs",
    "/etc/ca-certificates",
    "/etc/pki",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];

fn is_enabled(flag: &FlagValue<'_>) -> bool {
    flag.as_bool() == Some(true)
}

/// The flag `enable-leader-migration`; `None` unless it turns leader migration on.
pub(super) fn enabling_flag<'c>(spec: &ControlPlaneSpec<'c>) -> Option<FlagValue<'c>> {
    let flags = controller_manager(spec);
    let enable = flags.get(ENABLE).filter(is_enabled)?;
    let elects = flags.bool(LEADER_ELECT) != Some(false);
    elects.then_some(enable)
}

fn unsupported(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let Some(flag) = enabling_flag(change.new) else {
        return;
    };
    let exits = "kube-controller-manager 1.36 or later exits at startup if leader migration is enabled";
    let fault = |detail: Cow<'static, str>, remedy: &'static str| Fault {
        field: flag.path(change.new),
        reason: CauseReason::Forbidden,
        value: None,
        detail,
        remedy: remedy.into(),
    };
    match change.new.minor() {
        Some(minor) if minor >= UNSUPPORTED_SINCE => faults.push(fault(
            format!("{exits}, so no controller manager of this control plane would run at 1.{minor}").into(),
            "remove enable-leader-migration and leader-migration-config in the same update that changes spec.version",
        )),
        Some(_) => {}
        None => faults.push_at_most(
            Action::Warn,
            fault(
                format!("{exits}, and a template does not limit the version").into(),
                "remove the flag, unless all control planes of this template are at 1.35 or earlier",
            ),
        ),
    }
}

fn ignored(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let flags = controller_manager(spec);
    let enable = flags.get(ENABLE);
    if let Some(configuration) = flags.get(CONFIGURATION)
        && !enable.as_ref().is_some_and(is_enabled)
    {
        faults.push(Fault {
            field: configuration.path(spec),
            reason: CauseReason::Forbidden,
            value: None,
            detail:
                "the controller manager ignores the file, because enable-leader-migration is not \"true\""
                    .into(),
            remedy: "set enable-leader-migration to \"true\", or remove leader-migration-config".into(),
        });
    }
    if enable.as_ref().is_some_and(is_enabled)
        && let Some(elect) = flags
            .get(LEADER_ELECT)
            .filter(|flag| flag.as_bool() == Some(false))
    {
        faults.push(Fault {
            field: elect.path(spec),
            reason: CauseReason::Forbidden,
            value: Some("\"false\"".to_owned()),
            detail: "without leader election, the controller manager ignores enable-leader-migration".into(),
            remedy: "remove leader-elect, or enable-leader-migration".into(),
        });
    }
}

/// Where the leader migration configuration of the controller manager comes from.
pub(super) enum Source<'c> {
    /// No volume contains the path of the file in the controller manager's Pod.
    Unmounted,
    /// No entry of `files` writes the file on the host.
    NoFile,
    /// The entry of `files` with this index writes the file.
    File(usize, &'c File<'c>),
}

/// The flag with the path of the leader migration configuration; `None` if it is not set.
pub(super) fn configuration_flag<'c>(spec: &ControlPlaneSpec<'c>) -> Option<FlagValue<'c>> {
    let flag = controller_manager(spec).get(CONFIGURATION);
    flag.filter(|flag| !flag.value.is_empty())
}

/// The flag with the path of the leader migration configuration, and where the file comes from; `None` if leader
/// migration is off.
pub(super) fn source<'c>(spec: &ControlPlaneSpec<'c>) -> Option<(FlagValue<'c>, Source<'c>)> {
    enabling_flag(spec)?;
    let flag = configuration_flag(spec)?;
    let cluster = spec.cluster_configuration()?;
    let volumes = cluster
        .controller_manager
        .as_ref()
        .and_then(|component| component.extra_volumes.as_deref());
    let own = cluster
        .certificates_dir
        .as_deref()
        .filter(|directory| !directory.is_empty());
    let source = match host_path(flag.value, volumes.unwrap_or_default(), own) {
        None => Source::Unmounted,
        Some(path) => files(spec)
            .find(|(_, file)| file.path.as_deref() == Some(path.as_str()))
            .map_or(Source::NoFile, |(index, file)| Source::File(index, file)),
    };
    Some((flag, source))
}

/// Returns the length of `mount` without a slash at its end, if `path` is this folder or is below it; otherwise `None`.
pub(super) fn length_above(path: &str, mount: &str) -> Option<usize> {
    let mount = mount.trim_end_matches('/');
    let rest = path.strip_prefix(mount)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(mount.len())
}

/// The path on the host of a file in the Pod of kube-apiserver or kube-controller-manager; `None` if no volume contains it. The
/// innermost mount counts.
fn host_path(path: &str, volumes: &[HostPathMount<'_>], certificates: Option<&str>) -> Option<String> {
    let depth = |mount: &str| length_above(path, mount);
    let extra = volumes.iter().filter_map(|volume| {
        let length = depth(volume.mount_path.as_deref()?)?;
        let host = volume.host_path.as_deref()?.trim_end_matches('/');
        Some((length, format!("{host}{}", path.get(length..)?)))
    });
    let [default_certificates, others @ ..] = MOUNTED_BY_KUBEADM;
    let own = [certificates.unwrap_or(default_certificates)]
        .into_iter()
        .chain(others)
        .filter_map(|mount| Some((depth(mount)?, path.to_owned())));
    let mounts = own.chain(extra);
    mounts.max_by_key(|(length, _)| *length).map(|(_, host)| host)
}

fn file_missing(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let Some((flag, source)) = source(change.new) else {
        return;
    };
    let (detail, remedy) = match source {
        Source::Unmounted => (
            "no volume of the controller manager contains this path, so the controller manager would exit at startup",
            "add an entry to controllerManager.extraVolumes, or put the file in /etc/kubernetes/pki, which kubeadm mounts",
        ),
        Source::NoFile => (
            "no entry of kubeadmConfigSpec.files writes this file, so the controller manager of a new \
             Machine would exit at startup",
            "add the file to kubeadmConfigSpec.files in the same write",
        ),
        Source::File(..) => return,
    };
    faults.push_redacted(
        flag.value,
        Fault {
            field: flag.path(change.new),
            reason: CauseReason::NotFound,
            value: Some(HIDDEN.to_owned()),
            detail: detail.into(),
            remedy: remedy.into(),
        },
    );
}

/// The inline text of the leader migration configuration, with the index of its file in `files`.
fn inline(spec: &ControlPlaneSpec<'_>) -> Option<(usize, String)> {
    let Source::File(index, file) = source(spec)?.1 else {
        return None;
    };
    Some((index, inline_content(file)?))
}

/// The content of a file; `None` if it is not inline plain text.
pub(super) fn inline_content(file: &File<'_>) -> Option<String> {
    let is_plain = file.encoding.as_deref().is_none_or(str::is_empty);
    let content = file.content.filter(|content| is_plain && !content.is_empty())?;
    content.decode()
}

fn configuration_invalid(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let Some((index, text)) = inline(spec) else { return };
    let Err(problems) = LeaderMigrationConfiguration::parse(&text, spec.minor()) else {
        return;
    };
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let fault = Fault {
        field: spec.kubeadm_path(format_args!("files[{index}].content")),
        reason: CauseReason::Invalid,
        value: Some(HIDDEN.to_owned()),
        detail: format!(
            "with this configuration, the controller manager exits at startup or never holds the migration \
             lock: {}",
            problems.join(", ")
        )
        .into(),
        remedy: "correct the file; see: kubectl kcp explain leader-migration-configuration-invalid".into(),
    };
    faults.push_at_most(Action::of_version(spec), fault);
}

fn configuration_unchecked(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let Some((_, Source::File(index, file))) = source(spec) else {
        return;
    };
    let is_encoded = file
        .encoding
        .as_deref()
        .is_some_and(|encoding| !encoding.is_empty());
    let (field, detail) = if file.content_from.is_some() {
        (
            "contentFrom",
            "the leader migration configuration is in a Secret, which admission does not read",
        )
    } else if is_encoded {
        (
            "encoding",
            "the leader migration configuration is encoded, and admission does not decode it",
        )
    } else {
        return;
    };
    faults.push_redacted(
        &file.path,
        Fault {
            field: spec.kubeadm_path(format_args!("files[{index}].{field}")),
            reason: CauseReason::Forbidden,
            value: None,
            detail: detail.into(),
            remedy: "put the text in content, or check the configuration yourself".into(),
        },
    );
}

/// The effective leader migration configuration, with the index of its file in `files`. If no file is set, this is the default
/// configuration. `None` if leader migration is off, or if the configuration is unknown or invalid.
pub(super) fn effective_configuration(
    spec: &ControlPlaneSpec<'_>,
    minor: u64,
) -> Option<(LeaderMigrationConfiguration, Option<usize>)> {
    enabling_flag(spec)?;
    if configuration_flag(spec).is_none() {
        return Some((LeaderMigrationConfiguration::default_at(minor), None));
    }
    let (index, text) = inline(spec)?;
    let configuration = LeaderMigrationConfiguration::parse(&text, Some(minor)).ok()?;
    Some((configuration, Some(index)))
}

fn unprotected(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let spec = &change.new.common_spec();
    let Some(minor) = spec.minor().filter(|minor| *minor < UNSUPPORTED_SINCE) else {
        return;
    };
    let (Some(enable), Some((configuration, file))) =
        (enabling_flag(spec), effective_configuration(spec, minor))
    else {
        return;
    };
    let field = match file {
        Some(index) => spec.kubeadm_path(format_args!("files[{index}].content")),
        None => enable.path(spec),
    };
    let mut push = |detail: String, remedy: String| {
        faults.push(Fault {
            field: field.clone(),
            reason: CauseReason::Forbidden,
            value: None,
            detail: detail.into(),
            remedy: remedy.into(),
        });
    };
    let runs = CONTROLLERS
        .iter()
        .filter(|controller| controller.is_in_kube_controller_manager(minor));
    let mut selected = 0;
    for controller in runs {
        let name = controller.name_at(minor);
        let other = [controller.short, controller.canonical]
            .into_iter()
            .find(|other| *other != name && configuration.selects(other));
        if configuration.selects(name) {
            selected += 1;
        } else if let Some(other) = other {
            push(
                format!(
                    "{other} is called {name} in version 1.{minor}, and leader migration does not resolve \
                     aliases, so {name} runs under the main lock"
                ),
                format!("add an entry for {name}"),
            );
        }
    }
    if selected == 0 {
        push(
            format!(
                "kube-controller-manager 1.{minor} runs no controller that the configuration names, so nothing migrates"
            ),
            "to migrate Node IPAM, add an entry for node-ipam-controller; otherwise remove \
             enable-leader-migration"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_gives_the_path_on_the_host() {
        let volume = |host: &'static str, mount: &'static str| HostPathMount {
            host_path: Some(host.into()),
            mount_path: Some(mount.into()),
        };
        for (path, volumes, certificates, expected) in [
            ("/a/b", vec![volume("/h", "/a")], None, Some("/h/b")),
            ("/a/b", vec![volume("/h/", "/a/")], None, Some("/h/b")),
            ("/a", vec![volume("/h", "/a")], None, Some("/h")),
            ("/ab", vec![volume("/h", "/a")], None, None),
            (
                "/a/b/c",
                vec![volume("/h", "/a"), volume("/i", "/a/b")],
                None,
                Some("/i/c"),
            ),
            (
                "/etc/kubernetes/pki/x",
                vec![],
                None,
                Some("/etc/kubernetes/pki/x"),
            ),
            ("/etc/kubernetes/pki/x", vec![], Some("/var/pki"), None),
            ("/var/pki/x", vec![], Some("/var/pki"), Some("/var/pki/x")),
            ("/etc/kubernetes/x", vec![], None, None),
        ] {
            assert_eq!(
                host_path(path, &volumes, certificates).as_deref(),
                expected,
                "{path}"
            );
        }
    }
}
