//! The configuration file: what follows from each rule, as the operator sets it.

use std::{
    fs, future, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use kcp_rules::{Configuration, configuration::ConfigurationError, topics};
use thiserror::Error;
use tokio::time::{self, MissedTickBehavior};
use tracing::{info, warn};

use crate::metrics::Metrics;

/// How often the file is read. With the reading itself, a replaced file takes effect within the five seconds that are
/// promised; the kubelet's own delay for a ConfigMap comes on top.
const INTERVAL: Duration = Duration::from_secs(2);

/// A configuration file that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigurationFileError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is not YAML, or has fields that no configuration has.
    #[error("{}: {error}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What and where.
        error: String,
    },
    /// The file holds something else, or names a rule that there is not.
    #[error("{}: {error}", path.display())]
    Invalid {
        /// Which.
        path: PathBuf,
        /// What.
        error: ConfigurationError,
    },
}

/// The configuration in force.
pub(crate) struct CurrentConfiguration {
    file: Option<PathBuf>,
    current: ArcSwap<Configuration>,
    /// What was seen when the file was last looked at: the same again is no news.
    seen: Mutex<Seen>,
    metrics: Arc<Metrics>,
}

#[derive(PartialEq, Eq)]
enum Seen {
    /// No file: none was named, or there is none yet.
    Nothing,
    /// Its content, good or not.
    Content(Vec<u8>),
    /// It could not be read, and why.
    Unreadable(String),
}

impl CurrentConfiguration {
    /// Reads the file; without one every rule keeps its own action. One that is named and not there yet is looked for:
    /// a `ConfigMap` may be made later.
    pub(crate) fn load(file: Option<&Path>, metrics: Arc<Metrics>) -> Result<Self, ConfigurationFileError> {
        let (seen, configuration) = match file.map(|path| (path, fs::read(path))) {
            None => (Seen::Nothing, Configuration::default()),
            Some((path, Err(error))) if error.kind() == io::ErrorKind::NotFound => {
                info!(file = %path.display(), "there is no configuration yet: every rule keeps its own action");
                (Seen::Nothing, Configuration::default())
            }
            Some((path, Err(error))) => return Err(unreadable(path, error)),
            Some((path, Ok(content))) => {
                let configuration = parse(path, &content)?;
                (Seen::Content(content), configuration)
            }
        };
        Ok(Self::new(file, seen, configuration, metrics))
    }

    /// Every rule's own action, for ever.
    pub(crate) fn without_file(metrics: Arc<Metrics>) -> Self {
        Self::new(None, Seen::Nothing, Configuration::default(), metrics)
    }

    fn new(file: Option<&Path>, seen: Seen, configuration: Configuration, metrics: Arc<Metrics>) -> Self {
        metrics.configuration_in_force(true);
        Self {
            file: file.map(Path::to_owned),
            current: ArcSwap::from_pointee(configuration),
            seen: Mutex::new(seen),
            metrics,
        }
    }

    /// What is in force now.
    pub(crate) fn get(&self) -> Arc<Configuration> {
        self.current.load_full()
    }

    /// Looks at the file for ever. Its content is compared: a ConfigMap mount replaces a symlink two levels up, which
    /// no watch on the file sees.
    pub(crate) async fn keep_up(&self) {
        let Some(path) = &self.file else {
            return future::pending().await;
        };
        let mut ticks = time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.reload(path);
        }
    }

    /// Replaces the configuration if the file has changed and holds a good one; keeps the one there is otherwise.
    pub(crate) fn reload(&self, path: &Path) {
        let read = fs::read(path);
        let now = match &read {
            Ok(content) => Seen::Content(content.clone()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Seen::Nothing,
            Err(error) => Seen::Unreadable(error.to_string()),
        };
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if *seen == now {
                return;
            }
            *seen = now;
        }
        let parsed = read
            .map_err(|error| unreadable(path, error))
            .and_then(|content| parse(path, &content));
        match parsed {
            Ok(configuration) => {
                info!(rules = ?configuration.rules, "the configuration has been replaced");
                self.current.store(Arc::new(configuration));
                self.metrics.configuration_in_force(true);
            }
            Err(error) => {
                self.metrics.configuration_in_force(false);
                warn!(%error, "the configuration stays as it was");
            }
        }
    }
}

fn unreadable(path: &Path, error: io::Error) -> ConfigurationFileError {
    ConfigurationFileError::Unreadable {
        path: path.to_owned(),
        error,
    }
}

/// Reads the content of a configuration file; `path` is for messages alone.
///
/// # Errors
/// When it is not YAML, or not a configuration of rules that there are.
pub fn parse(path: &Path, content: &[u8]) -> Result<Configuration, ConfigurationFileError> {
    let configuration: Configuration =
        serde_saphyr::from_slice(content).map_err(|error| ConfigurationFileError::Malformed {
            path: path.to_owned(),
            error: error.to_string(),
        })?;
    configuration
        .checked(topics::is_rule)
        .map_err(|error| ConfigurationFileError::Invalid {
            path: path.to_owned(),
            error,
        })
}

#[cfg(test)]
mod tests {
    use kcp_rules::Action;

    use super::*;

    const WARN: &str = "apiVersion: kubectl-kcp.dev/v1alpha1\nkind: AdmissionConfiguration\nrules:\n  \
                        replicas-even: warn\n";

    fn action(configuration: &CurrentConfiguration) -> Option<Action> {
        configuration.get().rules.get("replicas-even").copied()
    }

    #[test]
    fn a_good_file_replaces_and_a_broken_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("configuration.yaml");
        fs::write(&path, WARN).unwrap();
        let configuration = CurrentConfiguration::load(Some(&path), Arc::new(Metrics::new())).unwrap();
        assert_eq!(action(&configuration), Some(Action::Warn));
        fs::write(&path, WARN.replace("warn", "off")).unwrap();
        configuration.reload(&path);
        assert_eq!(action(&configuration), Some(Action::Off));
        for broken in [
            "rules: [",
            "kind: Other",
            &WARN.replace("even", "odd"),
            &WARN.replace("warn", "loud"),
        ] {
            fs::write(&path, broken).unwrap();
            configuration.reload(&path);
            assert_eq!(action(&configuration), Some(Action::Off), "{broken}");
        }
        fs::remove_file(&path).unwrap();
        configuration.reload(&path);
        assert_eq!(action(&configuration), Some(Action::Off));
        fs::write(&path, WARN).unwrap();
        configuration.reload(&path);
        assert_eq!(action(&configuration), Some(Action::Warn));
    }

    #[test]
    fn a_file_that_comes_back_as_it_was_is_in_force_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("configuration.yaml");
        let metrics = Arc::new(Metrics::new());
        let in_force = |expected: &str| {
            let line = format!("kcp_webhook_configuration_last_reload_success {expected}\n");
            assert!(
                metrics.encode().unwrap().contains(&line),
                "{}",
                metrics.encode().unwrap()
            );
        };
        let configuration = CurrentConfiguration::load(Some(&path), metrics.clone()).unwrap();
        assert_eq!(action(&configuration), None);
        in_force("1");
        fs::write(&path, WARN).unwrap();
        configuration.reload(&path);
        assert_eq!(action(&configuration), Some(Action::Warn));
        fs::remove_file(&path).unwrap();
        configuration.reload(&path);
        assert_eq!(action(&configuration), Some(Action::Warn));
        in_force("0");
        fs::write(&path, WARN).unwrap();
        configuration.reload(&path);
        in_force("1");
    }

    #[test]
    fn a_broken_file_stops_the_start_and_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("configuration.yaml");
        fs::write(&path, WARN.replace("even", "odd")).unwrap();
        let error = CurrentConfiguration::load(Some(&path), Arc::new(Metrics::new()))
            .err()
            .unwrap();
        assert_eq!(
            error.to_string(),
            format!(
                "{}: rules.replicas-odd: no rule has this id; `kubectl kcp rules` lists them",
                path.display()
            )
        );
    }
}
