//! The configuration file, in which an operator sets the action of each rule and exempts writes.
//!
//! The server runs no matter what the file contains: with `failurePolicy: Fail`, a server that does not start blocks
//! every write.

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use kcp_rules::{
    Configuration,
    configuration::{ConfigurationError, ConfigurationMap},
    topics,
};
use thiserror::Error;
use tracing::{info, warn};

use crate::metrics::Metrics;

/// How often the webhook reads the configuration file. It is often enough that a replaced file takes effect within the
/// documented five seconds, plus the kubelet's delay for a `ConfigMap`.
pub(crate) const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// Why a configuration file cannot be used.
#[derive(Debug, Error)]
pub enum ConfigurationFileError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// The file is not YAML, or has unknown fields.
    #[error("{}: {error}", path.display())]
    Malformed {
        path: PathBuf,
        /// The parser's error, with its line and column.
        error: String,
    },
    /// The file is not an `AdmissionConfiguration`, or one of its exemptions would exempt every write.
    #[error("{}: {error}", path.display())]
    Invalid {
        path: PathBuf,
        error: ConfigurationError,
    },
}

/// A usable configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The configuration, without rules that this program does not have.
    pub configuration: Configuration,
    /// Rule ids in the file that no rule has, such as those of another version of this program.
    pub unknown_rules: BTreeSet<String>,
}

/// Whether the content of the configuration file is in use, and which of its rule ids are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileStatus {
    unusable: bool,
    /// Whether the webhook has used some content of the file since it started.
    has_previous: bool,
    unknown_rules: BTreeSet<String>,
}

/// Prints the status without text from the configuration file, because everyone who reaches the health port can read
/// it.
impl fmt::Display for FileStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.unusable, self.has_previous, self.unknown_rules.len()) {
            (true, false, _) => f.write_str("unusable: every rule uses its default action; see the log"),
            (true, true, _) => {
                f.write_str("unusable: the webhook still uses the previous configuration; see the log")
            }
            (false, _, 0) => f.write_str("ok"),
            (false, _, unknown) => write!(f, "in use; unknown rule ids: {unknown}; see the log"),
        }
    }
}

/// The configuration that the webhook uses, reloaded when its file changes.
pub(crate) struct CurrentConfiguration {
    file: Option<PathBuf>,
    current: ArcSwap<Configuration>,
    /// The result of the last read of the file. If the next read has the same result, nothing changes.
    last_read: Mutex<FileState>,
    status: ArcSwap<FileStatus>,
    metrics: Arc<Metrics>,
}

#[derive(PartialEq, Eq)]
enum FileState {
    /// No file is configured, or it does not exist.
    Missing,
    /// The content of the file, valid or not.
    Content(Vec<u8>),
    /// The file cannot be read; the text is the error.
    Unreadable(String),
}

impl CurrentConfiguration {
    /// Reads the configuration file. Until it is usable, every rule uses its default action. The file may not exist
    /// yet, because its `ConfigMap` may be created later.
    pub(crate) fn load(file: Option<&Path>, metrics: Arc<Metrics>) -> Self {
        let configuration = Self::without_file(metrics);
        let Some(path) = file else {
            configuration.metrics.count_configuration_reload(true);
            return configuration;
        };
        let configuration = Self {
            file: Some(path.to_owned()),
            ..configuration
        };
        let read = fs::read(path);
        if matches!(&read, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            info!(file = %path.display(), "the configuration file does not exist yet; every rule uses its default action");
            configuration.metrics.count_configuration_reload(true);
        } else {
            configuration.use_content(path, read);
        }
        configuration
    }

    /// Creates a configuration in which every rule uses its default action.
    pub(crate) fn without_file(metrics: Arc<Metrics>) -> Self {
        Self {
            file: None,
            current: ArcSwap::default(),
            last_read: Mutex::new(FileState::Missing),
            status: ArcSwap::default(),
            metrics,
        }
    }

    /// The status of the configuration file; `None` if none is configured.
    pub(crate) fn status(&self) -> Option<Arc<FileStatus>> {
        self.file.as_ref().map(|_| self.status.load_full())
    }

    pub(crate) fn get(&self) -> Arc<Configuration> {
        self.current.load_full()
    }

    /// Replaces the configuration if the file changed and is valid.
    pub(crate) fn reload(&self, path: &Path) {
        self.use_content(path, fs::read(path));
    }

    fn use_content(&self, path: &Path, read: io::Result<Vec<u8>>) {
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
            Ok(Parsed {
                configuration,
                unknown_rules,
            }) => {
                info!(rules = ?configuration.rules, "loaded the configuration");
                if !unknown_rules.is_empty() {
                    warn!(
                        ?unknown_rules,
                        "the configuration file contains unknown rule ids; to list all rule ids, run: \
                         kubectl kcp rules"
                    );
                }
                self.current.store(Arc::new(configuration));
                self.metrics.count_configuration_reload(true);
                self.metrics.set_unknown_rules(unknown_rules.len());
                self.status.store(Arc::new(FileStatus {
                    unusable: false,
                    has_previous: true,
                    unknown_rules,
                }));
            }
            Err(error) => {
                let status = FileStatus {
                    unusable: true,
                    ..(*self.status.load_full()).clone()
                };
                self.metrics.count_configuration_reload(false);
                warn!(%error, in_use = status.in_use(), "cannot use the configuration file");
                self.status.store(Arc::new(status));
            }
        }
    }
}

impl FileStatus {
    const fn in_use(&self) -> &'static str {
        if self.has_previous {
            "the previous configuration"
        } else {
            "the default action of every rule"
        }
    }
}

fn unreadable(path: &Path, error: io::Error) -> ConfigurationFileError {
    ConfigurationFileError::Unreadable {
        path: path.to_owned(),
        error,
    }
}

/// Parses the content of a configuration file. Only errors use `path`.
pub fn parse(path: &Path, content: &[u8]) -> Result<Parsed, ConfigurationFileError> {
    let mut configuration: Configuration =
        serde_saphyr::from_slice(content).map_err(|error| ConfigurationFileError::Malformed {
            path: path.to_owned(),
            error: error.to_string(),
        })?;
    let unknown_rules = configuration.remove_unknown_rules(topics::is_rule);
    configuration
        .validate(topics::is_rule)
        .map(|configuration| Parsed {
            configuration,
            unknown_rules,
        })
        .map_err(|error| ConfigurationFileError::Invalid {
            path: path.to_owned(),
            error,
        })
}

/// `kcp-webhook check-configuration`: prints the problems of a configuration file. The file may also be the manifest of a
/// ConfigMap that contains the configuration. Returns whether there are no problems.
pub fn check(path: &Path, now: Timestamp, out: &mut impl io::Write) -> Result<bool, CheckError> {
    let mut content = fs::read(path).map_err(|error| unreadable(path, error))?;
    if let Ok(manifest) = serde_saphyr::from_slice::<ConfigurationMap>(&content)
        && let Some(file) = manifest.into_file()
    {
        content = file.into();
    }
    let path_shown = path.display();
    let Parsed {
        configuration,
        unknown_rules,
    } = match parse(path, &content) {
        Ok(parsed) => parsed,
        Err(error) => {
            writeln!(out, "{error}")?;
            return Ok(false);
        }
    };
    for id in &unknown_rules {
        let similar = topics::similar_rule_ids(id);
        let hint = similar
            .first()
            .map(|id| format!("; did you mean {id}?"))
            .unwrap_or_default();
        writeln!(out, "{path_shown}: {id}: no rule has this id{hint}")?;
    }
    let mut ended = 0;
    for (index, exemption) in configuration.exemptions.iter().enumerate() {
        if exemption.until <= now {
            ended += 1;
            writeln!(
                out,
                "{path_shown}: exemptions[{index}]: the exemption ended at {}; remove the exemption",
                exemption.until
            )?;
        }
    }
    let has_no_problems = unknown_rules.is_empty() && ended == 0;
    if has_no_problems {
        writeln!(
            out,
            "{path_shown}: ok; number of rules with an action: {}; number of exemptions: {}",
            configuration.rules.len(),
            configuration.exemptions.len()
        )?;
    }
    Ok(has_no_problems)
}

/// Why a configuration file cannot be checked.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The file cannot be read.
    #[error("{0}")]
    File(#[from] ConfigurationFileError),
    #[error("cannot print the result: {0}")]
    Output(#[from] io::Error),
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
        let configuration = CurrentConfiguration::load(Some(&path), Arc::new(Metrics::new()));
        assert_eq!(action(&configuration), Some(Action::Warn));
        fs::write(&path, WARN.replace("warn", "off")).unwrap();
        configuration.reload(&path);
        assert_eq!(action(&configuration), Some(Action::Off));
        for broken in [
            "rules: [",
            "kind: Other",
            &format!("{WARN}exemptions:\n- until: 2026-12-01T00:00:00Z\n"),
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
        let configuration = CurrentConfiguration::load(Some(&path), metrics.clone());
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
    fn starts_with_the_default_actions_if_the_file_is_unusable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("configuration.yaml");
        fs::write(&path, "rules: [").unwrap();
        let metrics = Arc::new(Metrics::new());
        let configuration = CurrentConfiguration::load(Some(&path), metrics.clone());
        assert_eq!(action(&configuration), None);
        let status = || configuration.status().unwrap().to_string();
        assert_eq!(
            status(),
            "unusable: every rule uses its default action; see the log"
        );
        assert!(
            metrics
                .encode()
                .unwrap()
                .contains("kcp_webhook_configuration_last_reload_success 0\n")
        );
        fs::write(&path, WARN).unwrap();
        configuration.reload(&path);
        assert_eq!(
            (action(&configuration), status()),
            (Some(Action::Warn), "ok".to_owned())
        );
        fs::write(&path, "rules: [").unwrap();
        configuration.reload(&path);
        assert_eq!(
            status(),
            "unusable: the webhook still uses the previous configuration; see the log"
        );
    }

    #[test]
    fn ignores_unknown_rules_and_counts_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("configuration.yaml");
        let unknown =
            "  replicas-odd: warn\nexemptions:\n- {users: [a], rules: [gone], until: 2026-12-01T00:00:00Z}\n";
        fs::write(&path, format!("{WARN}{unknown}")).unwrap();
        let metrics = Arc::new(Metrics::new());
        let configuration = CurrentConfiguration::load(Some(&path), metrics.clone());
        assert_eq!(action(&configuration), Some(Action::Warn));
        assert_eq!(configuration.get().rules.len(), 1);
        // An exemption of an unknown rule must not become one of every rule.
        assert_eq!(configuration.get().exemptions[0].rules, Some(BTreeSet::new()));
        assert_eq!(
            configuration.status().unwrap().to_string(),
            "in use; unknown rule ids: 2; see the log"
        );
        assert!(
            metrics
                .encode()
                .unwrap()
                .contains("kcp_webhook_configuration_unknown_rules 2\n")
        );
    }

    /// What the repository ships and shows passes the check, now and for decades.
    #[test]
    fn the_sample_and_the_page_pass_their_check() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = fs::read_to_string(repository.join("docs/src/reference/configuration.md")).unwrap();
        let (_, rest) = page.split_once("```yaml\n").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let shown = folder.path().join("page.yaml");
        fs::write(&shown, rest.split("```").next().unwrap()).unwrap();
        let sample = repository.join("manifests/samples/admission-configuration.yaml");
        let now: Timestamp = "2090-01-01T00:00:00Z".parse().unwrap();
        for file in [shown, sample] {
            let mut out = Vec::new();
            let is_good = check(&file, now, &mut out).unwrap();
            assert!(is_good, "{}", String::from_utf8_lossy(&out));
        }
    }

    #[test]
    fn checks_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("configuration.yaml");
        let shown = path.display();
        let exempts = |until: &str| format!("{WARN}exemptions:\n- {{users: [a], until: {until}}}\n");
        for (content, good, expected) in [
            (
                exempts("2026-12-01T00:00:01Z"),
                true,
                format!("{shown}: ok; number of rules with an action: 1; number of exemptions: 1\n"),
            ),
            (
                exempts("2026-12-01T00:00:00Z"),
                false,
                format!(
                    "{shown}: exemptions[0]: the exemption ended at 2026-12-01T00:00:00Z; remove the \
                     exemption\n"
                ),
            ),
            (
                WARN.replace("even", "evn"),
                false,
                format!("{shown}: replicas-evn: no rule has this id; did you mean replicas-even?\n"),
            ),
            (
                WARN.replace("kubectl-kcp.dev", "example.com"),
                false,
                format!(
                    "{shown}: apiVersion is \"example.com/v1alpha1\" and kind is \"AdmissionConfiguration\"; set them to \
                     kubectl-kcp.dev/v1alpha1 and AdmissionConfiguration\n"
                ),
            ),
        ] {
            fs::write(&path, &content).unwrap();
            let mut out = Vec::new();
            let now = "2026-12-01T00:00:00Z".parse().unwrap();
            let checked = check(&path, now, &mut out).unwrap();
            assert_eq!(
                (checked, String::from_utf8(out).unwrap()),
                (good, expected),
                "{content}"
            );
        }
        fs::remove_file(&path).unwrap();
        assert!(check(&path, Timestamp::UNIX_EPOCH, &mut Vec::new()).is_err());
    }
}
