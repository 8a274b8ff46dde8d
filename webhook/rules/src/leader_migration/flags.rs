//! The flags of a controller manager, as pflag and `k8s.io/component-base/cli/flag` parse them.

use std::time::Duration;

use crate::syntax::parse_go_duration;

/// Flags that need no value: `--leader-elect` is `--leader-elect=true`.
pub(super) const BOOLEAN: [&str; 4] = [
    "enable-leader-migration",
    "leader-elect",
    "allocate-node-cidrs",
    "configure-cloud-routes",
];

/// The name of the flag with the path of the leader migration configuration.
pub const CONFIGURATION_FLAG: &str = "leader-migration-config";

/// The flags of a component, in order. In their names, dashes replace underscores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags(Vec<(String, String)>);

impl Flags {
    /// The flags in a list of names and values, as in kubeadm's `extraArgs`.
    pub fn from_pairs<N: AsRef<str>, V: Into<String>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let pairs = pairs.into_iter();
        Self(
            pairs
                .map(|(name, value)| (name.as_ref().replace('_', "-"), value.into()))
                .collect(),
        )
    }

    /// The flags in the command of a container. Other words are ignored.
    pub fn from_command<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut flags = Vec::new();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").filter(|flag| !flag.is_empty()) else {
                continue;
            };
            let (name, value) = if let Some((name, value)) = flag.split_once('=') {
                (name.replace('_', "-"), value.to_owned())
            } else {
                let name = flag.replace('_', "-");
                let is_boolean = BOOLEAN.contains(&name.as_str());
                let value = words.next_if(|next| !is_boolean && !next.starts_with('-'));
                (name, value.unwrap_or("true").to_owned())
            };
            flags.push((name, value));
        }
        Self(flags)
    }

    /// These flags, followed by others, which take precedence.
    #[must_use]
    pub fn followed_by(mut self, others: Self) -> Self {
        self.0.retain(|(name, _)| others.get(name).is_none());
        self.0.extend(others.0);
        self
    }

    /// The value of a flag; `None` if it is not set. If the flag repeats, the last value counts.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The value of a text flag; `None` if it is unset or empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// The value of a boolean flag. Fails if the value is not a boolean (Go, `strconv.ParseBool`), because the component then
    /// does not start.
    pub fn boolean(&self, name: &str, default: bool) -> Result<bool, NotABoolean> {
        match self.get(name) {
            None => Ok(default),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
            Some(_) => Err(NotABoolean),
        }
    }

    /// Whether leader migration is on: `--enable-leader-migration` has no effect without leader election.
    pub fn is_leader_migration_enabled(&self) -> bool {
        self.boolean("enable-leader-migration", false) == Ok(true)
            && self.boolean("leader-elect", true) == Ok(true)
    }

    /// The path of the configuration that a controller manager reads; `None` if `--enable-leader-migration` is not true, or no
    /// path is set.
    pub fn configuration_path(&self) -> Option<&str> {
        if self.boolean("enable-leader-migration", false) == Ok(true) {
            self.text(CONFIGURATION_FLAG)
        } else {
            None
        }
    }

    /// The items of a list flag, as pflag splits them: an empty value has none, and spaces belong to the items. If the flag
    /// repeats, the lists are joined.
    pub fn list<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.0
            .iter()
            .filter(move |(known, value)| known == name && !value.is_empty())
            .flat_map(|(_, value)| value.split(','))
    }

    /// The names of the feature gates that are set (`k8s.io/component-base`, `cli/flag/map_string_bool.go`).
    pub fn feature_gates(&self) -> impl Iterator<Item = &str> {
        self.list("feature-gates")
            .filter_map(|gate| Some(gate.split('=').next()?.trim()))
            .filter(|name| !name.is_empty())
    }

    /// Returns these flags with `item` added to `--controllers`. If `--controllers` is not set, the list
    /// begins with its default, `*`.
    #[must_use]
    pub(super) fn with_controller(mut self, item: &str) -> Self {
        let value = match self.get("controllers") {
            Some(_) => item.to_owned(),
            None => format!("*,{item}"),
        };
        self.0.push(("controllers".to_owned(), value));
        self
    }

    /// The value of a flag with a duration in Go's format; `None` if it is not set, is not a duration, or is longer than a day.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        const DAY: Duration = Duration::from_secs(86_400);
        parse_go_duration(self.text(name)?).filter(|duration| *duration <= DAY)
    }
}

/// The error for a boolean flag whose value is not a boolean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotABoolean;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_parsed_as_by_pflag() {
        let flags = Flags::from_command([
            "kube-controller-manager",
            "--leader_elect",
            "false",
            "--controllers=*,-nodeipam",
            "-v",
            "2",
            "--controllers",
            "tokencleaner",
            "--leader-elect-lease-duration=1m30.5s",
            "--profiling",
            "--leader-elect-retry-period=soon",
        ]);
        assert_eq!(flags.boolean("leader-elect", false), Ok(true));
        assert_eq!(
            flags.list("controllers").collect::<Vec<_>>(),
            ["*", "-nodeipam", "tokencleaner"]
        );
        assert_eq!(flags.get("profiling"), Some("true"));
        assert_eq!(
            flags.duration("leader-elect-lease-duration"),
            Some(Duration::from_millis(90_500))
        );
        assert_eq!(flags.duration("leader-elect-retry-period"), None);
        assert_eq!(flags.boolean("controllers", true), Err(NotABoolean));
    }

    #[test]
    fn lists_are_split_as_by_pflag() {
        for (value, expected) in [
            ("*,-nodeipam", vec!["*", "-nodeipam"]),
            ("", vec![]),
            ("*,,route", vec!["*", "", "route"]),
            ("*, route", vec!["*", " route"]),
        ] {
            let flags = Flags::from_pairs([("controllers", value)]);
            assert_eq!(flags.list("controllers").collect::<Vec<_>>(), expected, "{value}");
        }
        let gates = Flags::from_pairs([("feature-gates", "A=true, B = false,,C")]);
        assert_eq!(gates.feature_gates().collect::<Vec<_>>(), ["A", "B", "C"]);
    }

    #[test]
    fn later_flags_replace_defaults() {
        let defaults = Flags::from_pairs([("controllers", "*,bootstrapsigner"), ("leader-elect", "true")]);
        let flags = defaults.followed_by(Flags::from_pairs([("controllers", "*"), ("v", "2")]));
        assert_eq!(
            flags,
            Flags::from_pairs([("leader-elect", "true"), ("controllers", "*"), ("v", "2")])
        );
    }
}
