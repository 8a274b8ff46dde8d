//! Reads, checks and writes the install-config to which a customization's patches are applied. An install-config contains
//! a pull secret, and passwords on some platforms, so it is printed only on request.
//!
//! - [`scalars`]: finds unquoted YAML values that Hive reads differently from this program
//! - [`patches`]: applies a customization's patches as RFC 6902 and Hive's library do

mod scalars;

pub mod patches;

use std::fmt;

use kcp_api::{Secret, kind::SECRET};
use kcp_client::{Connection, Error};
use serde_json::Value;

/// The key of the install-config in a Secret, the same as Hive's.
pub const KEY: &str = "install-config.yaml";

/// The maximum depth of nesting in an install-config.
const MAX_DEPTH: usize = 128;
/// The maximum number of parser events that the YAML aliases of an install-config may add.
const MAX_REPEATED: usize = 100_000;

#[derive(Debug, thiserror::Error)]
pub enum InstallConfigError {
    #[error("cannot read the install-config")]
    Secret(#[source] Error),
    #[error("secret/{name} in namespace {namespace} has no key {KEY}")]
    NoKey { namespace: String, name: String },
    #[error("cannot use {place} as an install-config: {why}")]
    Malformed { place: String, why: String },
}

#[derive(Clone, PartialEq, Eq)]
pub struct InstallConfig(Value);

impl fmt::Debug for InstallConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InstallConfig")
    }
}

impl InstallConfig {
    /// Reads the install-config from a Secret in the connection's namespace.
    pub async fn from_secret(connection: &Connection, name: &str) -> Result<Self, InstallConfigError> {
        let secret: Secret = connection
            .get(&SECRET.api_resource("v1"), &connection.namespace, name)
            .await
            .map_err(InstallConfigError::Secret)?;
        let content = secret.value(KEY).ok_or_else(|| InstallConfigError::NoKey {
            namespace: connection.namespace.clone(),
            name: name.to_owned(),
        })?;
        Self::parse(content, &format!("secret/{name}"))
    }

    /// Parses an install-config from YAML. Error messages name `place` and the position of a syntax error, never the
    /// content.
    pub fn parse(yaml: &[u8], place: &str) -> Result<Self, InstallConfigError> {
        let malformed = |why: String| InstallConfigError::Malformed {
            place: place.to_owned(),
            why,
        };
        let text = std::str::from_utf8(yaml).map_err(|_| malformed("not UTF-8".to_owned()))?;
        let value = parse_yaml(text).map_err(|error| {
            malformed(match error.location() {
                Some(mark) => format!("not valid YAML at line {}, column {}", mark.line(), mark.column()),
                None => "not valid YAML".to_owned(),
            })
        })?;
        if !value.is_object() {
            return Err(malformed("not a YAML object".to_owned()));
        }
        match scalars::find_misread_scalar(text, |scalar| parse_yaml(scalar).ok()) {
            None => Ok(Self(value)),
            Some((line, column)) => Err(malformed(format!(
                "Hive reads the unquoted value at line {line}, column {column} differently from YAML 1.2; put it in \
                 quotes"
            ))),
        }
    }

    pub fn new(value: Value) -> Self {
        Self(value)
    }

    pub fn value(&self) -> &Value {
        &self.0
    }

    /// The install-config as YAML, with its fields sorted by name.
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
    scalars::replace_whole_floats(&mut value);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::InstallConfig;

    #[test]
    fn an_invalid_install_config_is_not_shown() {
        for (text, expected) in [
            (
                "a: [sesame",
                "cannot use f as an install-config: not valid YAML at line 1, column 4",
            ),
            ("- sesame", "cannot use f as an install-config: not a YAML object"),
            ("", "cannot use f as an install-config: not a YAML object"),
        ] {
            let error = InstallConfig::parse(text.as_bytes(), "f").unwrap_err();
            assert_eq!(error.to_string(), expected, "{text}");
        }
        let config = InstallConfig::parse(b"pullSecret: sesame", "f").unwrap();
        assert_eq!(format!("{config:?}"), "InstallConfig");
        assert_eq!(config.to_yaml().unwrap(), "pullSecret: sesame\n");
    }
}
