//! The install-config that a customization's patches are applied to. It holds a pull secret, and passwords on some
//! platforms: shown nowhere but where it is asked for.
//!
//! - [`scalars`]: numbers and words as Hive reads them
//! - [`patches`]: the patches of a customization, by the RFC and by Hive's library

mod scalars;

pub mod patches;

use std::fmt;

use kcp_client::{Connection, Error, workload::Secret};
use serde_json::Value;

/// The key of a Secret that holds one, as Hive has it.
pub const KEY: &str = "install-config.yaml";

/// The deepest nesting that is read.
const MAX_DEPTH: usize = 128;
/// How much of a document its aliases may repeat, in parser events.
const MAX_REPEATED: usize = 100_000;

/// An install-config that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InstallConfigError {
    /// A Secret that cannot be read.
    #[error("cannot read the install-config")]
    Secret(#[source] Error),
    /// A Secret without one.
    #[error("secret/{name} in namespace {namespace} has no key {KEY}")]
    NoKey { namespace: String, name: String },
    /// Something else.
    #[error("{place} is no install-config: {why}")]
    Malformed { place: String, why: String },
}

/// An install-config.
#[derive(Clone, PartialEq, Eq)]
pub struct InstallConfig(Value);

impl fmt::Debug for InstallConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InstallConfig")
    }
}

impl InstallConfig {
    /// Reads one from a Secret of the connection's namespace.
    ///
    /// # Errors
    /// When it is not there, cannot be read, or is no YAML object.
    pub async fn of_secret(connection: &Connection, name: &str) -> Result<Self, InstallConfigError> {
        let secret = Secret::read(connection, &connection.namespace, name)
            .await
            .map_err(InstallConfigError::Secret)?;
        let content = secret.value(KEY).ok_or_else(|| InstallConfigError::NoKey {
            namespace: connection.namespace.clone(),
            name: name.to_owned(),
        })?;
        Self::parse(content, &format!("secret/{name}"))
    }

    /// Reads YAML. `place` is where it is from, for messages: they say where a fault is, never what stands there.
    ///
    /// # Errors
    /// When it is no YAML object.
    pub fn parse(yaml: &[u8], place: &str) -> Result<Self, InstallConfigError> {
        let malformed = |why: String| InstallConfigError::Malformed {
            place: place.to_owned(),
            why,
        };
        let text = std::str::from_utf8(yaml).map_err(|_| malformed("not UTF-8".to_owned()))?;
        let value = parse_yaml(text).map_err(|error| {
            malformed(match error.location() {
                Some(at) => format!("not valid YAML at line {}, column {}", at.line(), at.column()),
                None => "not valid YAML".to_owned(),
            })
        })?;
        if !value.is_object() {
            return Err(malformed("not a YAML object".to_owned()));
        }
        match scalars::first_misread(text, |scalar| parse_yaml(scalar).ok()) {
            None => Ok(Self(value)),
            Some((line, column)) => Err(malformed(format!(
                "Hive would read the plain scalar at line {line}, column {column} otherwise; put it between quotes, or \
                 write what is meant"
            ))),
        }
    }

    pub fn of(value: Value) -> Self {
        Self(value)
    }

    pub fn value(&self) -> &Value {
        &self.0
    }

    /// As YAML, fields sorted by name.
    ///
    /// # Errors
    /// When it cannot be written as YAML.
    pub fn to_yaml(&self) -> Result<String, serde_saphyr::ser::Error> {
        let mut text = serde_saphyr::to_string(&self.0)?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }
}

fn parse_yaml(text: &str) -> Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPEATED },
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    let mut value = serde_saphyr::from_str_with_options(text, options)?;
    scalars::with_whole_numbers(&mut value);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::InstallConfig;

    #[test]
    fn what_is_no_install_config_is_not_shown() {
        for (text, expected) in [
            (
                "a: [sesame",
                "f is no install-config: not valid YAML at line 1, column 4",
            ),
            ("- sesame", "f is no install-config: not a YAML object"),
            ("", "f is no install-config: not a YAML object"),
        ] {
            let error = InstallConfig::parse(text.as_bytes(), "f").unwrap_err();
            assert_eq!(error.to_string(), expected, "{text}");
        }
        let config = InstallConfig::parse(b"pullSecret: sesame", "f").unwrap();
        assert_eq!(format!("{config:?}"), "InstallConfig");
        assert_eq!(config.to_yaml().unwrap(), "pullSecret: sesame\n");
    }
}
