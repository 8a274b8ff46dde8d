//! Finds what the values of an argument mean.
//!
//! No table lists the arguments. The parser of an argument already knows which kinds of objects the argument names: the parser for
//! a control plane accepts `kcp/x` and rejects `pod/x`. Some arguments are known by the value's name in their help, such as
//! `VERSION`.

use clap::{Arg, Command, ValueHint, builder::PossibleValue};

use crate::arguments::name::{self, NamedKind};

#[derive(Clone, Debug)]
pub(super) enum Meaning {
    /// One of a few words, which the parser of the argument lists.
    Words(Vec<PossibleValue>),
    /// The name of an object of one of these kinds, as `KIND/NAME`. A bare name is taken to be of the first
    /// kind.
    Objects(Vec<&'static NamedKind>),
    Namespace,
    Context,
    /// A cluster of the kubeconfig.
    KubeconfigCluster,
    /// A user of the kubeconfig.
    KubeconfigUser,
    /// A Kubernetes version.
    Version,
    /// The id of a rule or a check.
    Explained,
    /// A file or a command. The shell completes them.
    File,
    Unknown,
}

impl Meaning {
    pub(super) fn of(argument: &Arg) -> Self {
        let words: Vec<PossibleValue> = argument
            .get_possible_values()
            .into_iter()
            .filter(|value| !value.is_hide_set())
            .collect();
        if !words.is_empty() {
            return Self::Words(words);
        }
        let kinds = named_kinds(argument);
        if !kinds.is_empty() {
            return Self::Objects(kinds);
        }
        match argument.get_id().as_str() {
            "namespace" => return Self::Namespace,
            "context" | "contexts" => return Self::Context,
            "cluster" => return Self::KubeconfigCluster,
            "user" => return Self::KubeconfigUser,
            "explained" => return Self::Explained,
            _ => {}
        }
        let names = argument.get_value_names().unwrap_or_default();
        let value_name = names.first().map_or("", |name| name.as_str());
        match value_name.trim_end_matches(",...") {
            "VERSION" => Self::Version,
            // An etcd member can be named by its Machine.
            "MACHINE" | "MEMBER" => Self::Objects(vec![&name::MACHINE]),
            _ if argument.is_last_set() || argument.get_value_hint() != ValueHint::Unknown => Self::File,
            name if name.contains("FILE") => Self::File,
            _ => Self::Unknown,
        }
    }
}

/// The kinds that the parser of the argument accepts before a slash. Empty if it also accepts an unknown kind, because its
/// value is then not an object name.
fn named_kinds(argument: &Arg) -> Vec<&'static NamedKind> {
    if accepts(argument, "no-such-kind/x") {
        return Vec::new();
    }
    let kinds = name::KINDS.into_iter();
    kinds
        .filter(|kind| accepts(argument, &format!("{}/x", kind.short_name())))
        .collect()
}

/// Whether the parser of the argument accepts this value.
fn accepts(argument: &Arg, value: &str) -> bool {
    let parser = argument.get_value_parser().clone();
    let only = Arg::new("value").value_parser(parser).num_args(1);
    let command = Command::new("value").no_binary_name(true).arg(only);
    command.try_get_matches_from([value]).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{Command, Meaning, PossibleValue};
    use crate::command::command;

    fn meaning(path: &str, id: &str) -> String {
        let mut command = command();
        command.build();
        let names = path.split(' ').filter(|name| !name.is_empty());
        let command = names.fold(&command, |command, name| {
            command.find_subcommand(name).expect("a subcommand")
        });
        let argument = command.get_arguments().find(|argument| argument.get_id() == id);
        match Meaning::of(argument.expect("an argument")) {
            Meaning::Words(words) => words
                .iter()
                .map(PossibleValue::get_name)
                .collect::<Vec<_>>()
                .join("|"),
            Meaning::Objects(kinds) => kinds
                .iter()
                .map(|kind| kind.short_name())
                .collect::<Vec<_>>()
                .join(" "),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn an_argument_means_what_its_parser_accepts() {
        for (path, id, expected) in [
            ("status", "name", "kcp cl"),
            ("scale", "name", "kcp cl"),
            ("rollout start", "name", "kcp cl"),
            ("etcd check", "name", "kcp cl"),
            ("machine replace", "name", "ma"),
            ("pool status", "pool", "cp"),
            ("pool release", "target", "cp cdc"),
            ("pool cordon", "entry", "cdc"),
            ("pool repair", "force", "cdc"),
            ("pool lease", "cluster_deployment", "Unknown"),
            ("etcd move-leader", "member", "ma"),
            ("etcd promote", "member", "ma"),
            ("etcd members", "name", "kcp cl"),
            ("", "namespace", "Namespace"),
            ("", "context", "Context"),
            ("status", "contexts", "Context"),
            ("", "cluster", "KubeconfigCluster"),
            ("", "user", "KubeconfigUser"),
            ("", "kubeconfig", "File"),
            ("", "impersonate", "Unknown"),
            ("", "color", "auto|always|never"),
            ("lint", "files", "File"),
            ("pool exec", "command", "File"),
            ("pool lease", "install_config", "File"),
            ("upgrade", "to", "Version"),
            ("upgrade", "via", "Version"),
            ("leader-migration check", "to", "Version"),
            ("leader-migration check", "ccm", "File"),
            ("leader-migration generate", "to", "Version"),
            (
                "leader-migration generate",
                "step",
                "start|upgrade|finish|rollback",
            ),
            ("leader-migration status", "ccm_namespace", "Unknown"),
            ("explain", "explained", "Explained"),
            ("scale", "dry_run", "client|server"),
            ("scale", "replicas", "Unknown"),
            ("pool lease", "ttl", "Unknown"),
        ] {
            assert_eq!(meaning(path, id), expected, "{path} {id}");
        }
    }

    /// The name of a control plane in a topology has a random suffix.
    #[test]
    fn each_argument_that_names_a_control_plane_accepts_its_cluster() {
        fn check(command: &Command, checked: &mut usize) {
            for argument in command.get_arguments() {
                if let Meaning::Objects(kinds) = Meaning::of(argument) {
                    let has = |short: &str| kinds.iter().any(|kind| kind.short_name() == short);
                    assert_eq!(
                        has("kcp"),
                        has("cl"),
                        "{} {}",
                        command.get_name(),
                        argument.get_id()
                    );
                    *checked += usize::from(has("kcp"));
                }
            }
            command
                .get_subcommands()
                .for_each(|command| check(command, checked));
        }
        let (mut command, mut checked) = (command(), 0);
        command.build();
        check(&command, &mut checked);
        assert!(checked > 20, "{checked}");
    }
}
