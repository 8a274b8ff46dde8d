//! The configuration file, in which an operator sets the action of each rule.

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

/// How often the file is read. A replaced file takes effect within the documented five seconds, plus the kubelet's delay
/// for a `ConfigMap`.
const INTERVAL: Duration = Duration::from_secs(2);

/// Why a configuration file cannot be used.
#[derive(Debug, Error)]
pub enum ConfigurationFileError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The file is not YAML, or has unknown fields.
    #[error("{}: {error}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error and its position.
        error: String,
    },
    /// The file is not an `AdmissionConfiguration`, or names an unknown rule.
    #[error("{}: {error}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: ConfigurationError,
    },
}

/// The configuration in use.
pub(crate) struct CurrentConfiguration {
    file: Option<PathBuf>,
    current: ArcSwap<Configuration>,
    /// The result of the last read. A reload with the same result does nothing.
    last_read: Mutex<FileState>,
    metrics: Arc<Metrics>,
}

#[derive(PartialEq, Eq)]
enum FileState {
    /// No file is configured, or it does not exist.
    Missing,
    /// The content, valid or not.
    Content(Vec<u8>),
    /// The error.
    Unreadable(String),
}

impl CurrentConfiguration {
    /// Reads the file. Without one, every rule uses its default action. A configured file may not exist yet: someone may
    /// create its `ConfigMap` later.
    pub(crate) fn load(file: Option<&Path>, metrics: Arc<Metrics>) -> Result<Self, ConfigurationFileError> {
        let (last_read, configuration) = match file.map(|path| (path, fs::read(path))) {
            None => (FileState::Missing, Configuration::default()),
            Some((path, Err(error))) if error.kind() == io::ErrorKind::NotFound => {
                info!(file = %path.display(), "the configuration file does not exist yet; every rule uses its default action");
                (FileState::Missing, Configuration::default())
            }
            Some((path, Err(error))) => return Err(unreadable(path, error)),
            Some((path, Ok(content))) => {
                let configuration = parse(path, &content)?;
                (FileState::Content(content), configuration)
            }
        };
        Ok(Self::new(file, last_read, configuration, metrics))
    }

    /// Every rule uses its default action.
    pub(crate) fn without_file(metrics: Arc<Metrics>) -> Self {
        Self::new(None, FileState::Missing, Configuration::default(), metrics)
    }

    fn new(
        file: Option<&Path>,
        last_read: FileState,
        configuration: Configuration,
        metrics: Arc<Metrics>,
    ) -> Self {
        metrics.configuration_reloaded(true);
        Self {
            file: file.map(Path::to_owned),
            current: ArcSwap::from_pointee(configuration),
            last_read: Mutex::new(last_read),
            metrics,
        }
    }

    pub(crate) fn get(&self) -> Arc<Configuration> {
        self.current.load_full()
    }

    /// Reloads the file periodically, forever. Compares its content: a `ConfigMap` mount replaces a symlink two levels up,
    /// which a watch on the file does not notice.
    pub(crate) async fn reload_periodically(&self) {
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

    /// Replaces the configuration if the file changed and is valid.
    pub(crate) fn reload(&self, path: &Path) {
        let read = fs::read(path);
        let now = match &read {
            Ok(content) => FileState::Content(content.clone()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileState::Missing,
            Err(error) => FileState::Unreadable(error.to_string()),
        };
        {
            let mut last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
            if *last_read == now {
                return;
            }
            *last_read = now;
        }
        let parsed = read
            .map_err(|error| unreadable(path, error))
            .and_then(|content| parse(path, &content));
        match parsed {
            Ok(configuration) => {
                info!(rules = ?configuration.rules, "reloaded the configuration");
                self.current.store(Arc::new(configuration));
                self.metrics.configuration_reloaded(true);
            }
            Err(error) => {
                self.metrics.configuration_reloaded(false);
                warn!(%error, "cannot reload the configuration; still using the previous one");
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

/// Parses the content of a configuration file. `path` is only used in errors.
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
    fn reloads_a_valid_file_and_ignores_an_invalid_one() {
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
    fn uses_a_file_again_that_was_removed_and_restored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("configuration.yaml");
        let metrics = Arc::new(Metrics::new());
        let reload_succeeded = |expected: &str| {
            let line = format!("kcp_webhook_configuration_last_reload_success {expected}\n");
            assert!(
                metrics.encode().unwrap().contains(&line),
                "{}",
                metrics.encode().unwrap()
            );
        };
        let configuration = CurrentConfiguration::load(Some(&path), metrics.clone()).unwrap();
        assert_eq!(action(&configuration), None);
        reload_succeeded("1");
        fs::write(&path, WARN).unwrap();
        configuration.reload(&path);
        assert_eq!(action(&configuration), Some(Action::Warn));
        fs::remove_file(&path).unwrap();
        configuration.reload(&path);
        assert_eq!(action(&configuration), Some(Action::Warn));
        reload_succeeded("0");
        fs::write(&path, WARN).unwrap();
        configuration.reload(&path);
        reload_succeeded("1");
    }

    #[test]
    fn rejects_an_invalid_file_at_start_with_its_path() {
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
