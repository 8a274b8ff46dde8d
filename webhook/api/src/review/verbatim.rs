//! A value with the JSON text from which it was decoded, so that comparisons include the fields that are not decoded.

use std::{fmt, ops::Deref, sync::Arc};

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};

use super::{DecodeError, decode};

/// A value with the JSON text from which it was decoded. Two values are equal if their texts have the same meaning; see
/// [`Verbatim::differences`].
pub struct Verbatim<'a, T> {
    text: &'a RawValue,
    value: Arc<T>,
}

impl<T> Clone for Verbatim<'_, T> {
    fn clone(&self) -> Self {
        Self {
            text: self.text,
            value: self.value.clone(),
        }
    }
}

/// The paths of the fields in which two values differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences(Vec<String>);

impl<'a, T> Verbatim<'a, T> {
    /// The differences between two values. A missing value counts as empty. The order of keys does not matter. An unset
    /// field equals a field that is empty or that has a default of an older Cluster API.
    ///
    /// Equal texts are only compared byte by byte; different texts are parsed.
    pub fn differences(one: Option<&Self>, other: Option<&Self>) -> Differences {
        Self::differences_except(one, other, &[])
    }

    /// Like [`Self::differences`], but ignores the fields at these paths, such as `clusterConfiguration.dns`.
    pub fn differences_except(one: Option<&Self>, other: Option<&Self>, ignored: &[&str]) -> Differences {
        let text = |value: Option<&Self>| -> &'a str { value.map_or("{}", |value| value.text.get()) };
        let (one, other) = (text(one), text(other));
        let mut found = Vec::new();
        if one != other {
            match (normalize(one, ignored), normalize(other, ignored)) {
                (Some(one), Some(other)) => collect_differences("", &one, &other, &mut found),
                // The values are nested too deeply to parse, so it is only known that their texts differ.
                _ => found.push(String::new()),
            }
        }
        Differences(found)
    }
}

impl<'a, T: Deserialize<'a>> Verbatim<'a, T> {
    /// Decodes a value from its text. If `other` has the same text, shares its value instead.
    pub(super) fn decode_reusing(other: Option<&Self>, text: &'a RawValue) -> Result<Self, DecodeError> {
        match other {
            Some(other) if other.text.get() == text.get() => Ok(other.clone()),
            _ => Ok(Self {
                text,
                value: Arc::new(decode(text.get())?),
            }),
        }
    }
}

impl Differences {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Displays the paths of the first two differences.
impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] if one.is_empty() => f.write_str("something"),
            [one] => f.write_str(one),
            [one, other] => write!(f, "{one} and {other}"),
            [one, other, ..] => write!(f, "{one}, {other} and other fields"),
            [] => f.write_str("nothing"),
        }
    }
}

impl<T> PartialEq for Verbatim<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        Self::differences(Some(self), Some(other)).is_empty()
    }
}

impl<T> Deref for Verbatim<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Omits the text, which may contain secrets.
impl<T: fmt::Debug> fmt::Debug for Verbatim<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Verbatim<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&'de RawValue>::deserialize(deserializer)?;
        let value = decode(text.get()).map_err(|error| error.outer_error())?;
        let value = Arc::new(value);
        Ok(Self { text, value })
    }
}

/// Defaults that Cluster API set before v1.11, which count as unset: parent, field and value (Cluster API,
/// `ApplyPreviousKubeadmConfigDefaults`, and the rollout strategy in the validation of templates).
const FORMER_DEFAULTS: &[(&str, &str, &str)] = &[
    ("", "format", "cloud-config"),
    ("kubeadmConfigSpec", "format", "cloud-config"),
    ("nodeRegistration", "imagePullPolicy", "IfNotPresent"),
    ("exec", "apiVersion", "client.authentication.k8s.io/v1"),
    ("strategy", "type", "RollingUpdate"),
    ("rolloutStrategy", "type", "RollingUpdate"),
];

/// Fields that comparisons ignore, by parent and name, because an API server does not return them as a client
/// wrote them. Most are fields of v1beta1 that v1beta2 does not have: an API server that stores v1beta2 loses
/// them (Cluster API, `webhooks/conversion`). `divisor` is a quantity, which a client can write in several
/// ways. The parent is empty at the top of `spec.kubeadmConfigSpec`; in a template it is `kubeadmConfigSpec`.
const NOT_PRESERVED: &[(&str, &str)] = &[
    ("resourceFieldRef", "divisor"),
    ("", "useExperimentalRetryJoin"),
    ("kubeadmConfigSpec", "useExperimentalRetryJoin"),
    ("clusterConfiguration", "apiVersion"),
    ("clusterConfiguration", "kind"),
    ("initConfiguration", "apiVersion"),
    ("initConfiguration", "kind"),
    ("joinConfiguration", "apiVersion"),
    ("joinConfiguration", "kind"),
    ("clusterConfiguration", "networking"),
    ("clusterConfiguration", "kubernetesVersion"),
    ("clusterConfiguration", "clusterName"),
];

/// Names of fields with durations in v1beta1. v1beta2 stores them in seconds, so the API server returns `90s` as
/// `1m30s`.
const DURATIONS: &[&str] = &[
    "timeoutForControlPlane",
    "nodeDrainTimeout",
    "nodeVolumeDetachTimeout",
    "nodeDeletionTimeout",
    "ttl",
    "timeout",
    "retryPeriod",
    "minHealthyPeriod",
];

fn seconds(duration: &str) -> Option<Value> {
    let duration: SignedDuration = duration.parse().ok()?;
    Some(duration.as_secs().into())
}

fn normalize(text: &str, ignored: &[&str]) -> Option<Value> {
    let mut value = serde_json::from_str(text).ok()?;
    for path in ignored {
        remove(&mut value, path);
    }
    remove_unset("", &mut value);
    Some(value)
}

fn remove(value: &mut Value, path: &str) {
    match (value, path.split_once('.')) {
        (Value::Object(fields), Some((field, rest))) => {
            if let Some(value) = fields.get_mut(field) {
                remove(value, rest);
            }
        }
        (Value::Object(fields), None) => {
            fields.remove(path);
        }
        _ => {}
    }
}

/// Removes unset fields at every depth. The recursion is bounded, because `serde_json` rejects nesting deeper than 128.
fn remove_unset(name: &str, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|field, value| {
                remove_unset(field, value);
                if let Value::String(text) = value
                    && DURATIONS.contains(&field.as_str())
                    && let Some(seconds) = seconds(text)
                {
                    *value = seconds;
                }
                !is_unset(name, field, value) && !NOT_PRESERVED.contains(&(name, field))
            });
        }
        Value::Array(values) => values.iter_mut().for_each(|value| remove_unset(name, value)),
        _ => {}
    }
}

fn is_unset(parent: &str, field: &str, value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(values) => values.is_empty(),
        // For maxSurge, 0 is a value, and 1 is the default. For all other numbers, 0 means unset.
        Value::Number(number) => number.as_i64() == Some(i64::from(field == "maxSurge")),
        Value::String(text) => text.is_empty() || FORMER_DEFAULTS.contains(&(parent, field, text)),
    }
}

/// Names of fields that are maps. Users choose the keys, which may be secret, so a path in a message ends before the
/// key.
const MAPS: &[&str] = &[
    "annotations",
    "config",
    "extraArgs",
    "featureGates",
    "kubeletExtraArgs",
    "labels",
];
/// The number of differences after which the search ends, so that messages can distinguish one, two and more.
const MAX_DIFFERENCES: usize = 3;
/// The maximum length of a path in a message, in bytes. The longest path of fields in the schema has 90 bytes, so a
/// longer path contains a key that a user chose.
const MAX_PATH_BYTES: usize = 100;

fn collect_differences(path: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    if one == other || found.len() >= MAX_DIFFERENCES {
        return;
    }
    let (Value::Object(one), Value::Object(other)) = (one, other) else {
        found.push(path.to_owned());
        return;
    };
    // A file that `lint` reads may contain unknown fields, which an API server would remove. The name of a known field consists of letters only.
    let is_no_field = |field: &String| {
        path.len() + field.len() > MAX_PATH_BYTES || !field.bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    let is_map = path.rsplit('.').next().is_some_and(|field| MAPS.contains(&field));
    if is_map || one.keys().chain(other.keys()).any(is_no_field) {
        found.push(path.to_owned());
        return;
    }
    let added = other.keys().filter(|field| !one.contains_key(*field));
    for field in one.keys().chain(added) {
        let path = if path.is_empty() {
            field.clone()
        } else {
            format!("{path}.{field}")
        };
        let one = one.get(field).unwrap_or(&Value::Null);
        collect_differences(&path, one, other.get(field).unwrap_or(&Value::Null), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::{decode, kubeadm_config::KubeadmConfig};

    fn differences(one: &str, other: &str) -> String {
        let (one, other): (KubeadmConfig, KubeadmConfig) = (decode(one).unwrap(), decode(other).unwrap());
        Verbatim::differences(Some(&one), Some(&other)).to_string()
    }

    #[test]
    fn equal_meaning_is_no_difference() {
        for (one, other) in [
            (r#"{"format":"cloud-config","verbosity":4}"#, r#"{"verbosity":4}"#),
            (
                r#"{"verbosity":4,"useExperimentalRetryJoin":false}"#,
                r#"{ "verbosity": 4 }"#,
            ),
            (r#"{"ntp":{"servers":[]},"verbosity":null}"#, "{}"),
            (
                r#"{"useExperimentalRetryJoin":true,"clusterConfiguration":{"networking":{"podSubnet":"10.0.0.0/8"},
                    "apiServer":{"timeoutForControlPlane":"1.5m"}}}"#,
                r#"{"clusterConfiguration":{"apiServer":{"timeoutForControlPlane":"1m30s"}}}"#,
            ),
            (
                r#"{"initConfiguration":{"bootstrapTokens":[{"token":"a","ttl":"24h"}]}}"#,
                r#"{"initConfiguration":{"bootstrapTokens":[{"token":"a","ttl":"24h0m0s"}]}}"#,
            ),
            (
                r#"{"joinConfiguration":{"nodeRegistration":{"imagePullPolicy":"IfNotPresent"}}}"#,
                r#"{"joinConfiguration":{}}"#,
            ),
        ] {
            assert_eq!(differences(one, other), "nothing", "{one} and {other}");
        }
    }

    #[test]
    fn differences_are_named() {
        for (one, other, named) in [
            (r#"{"verbosity":4}"#, r#"{"verbosity":5}"#, "verbosity"),
            (
                r#"{"ntp":{"enabled":true}}"#,
                r#"{"ntp":{"enabled":false}}"#,
                "ntp",
            ),
            (
                r#"{"ntp":{"enabled":true,"servers":["a"]},"verbosity":4}"#,
                r#"{"ntp":{"enabled":true,"servers":["b"]}}"#,
                "ntp.servers and verbosity",
            ),
            (r#"{"a":1,"b":1,"c":1,"d":1}"#, "{}", "a, b and other fields"),
            (
                r#"{"format":"ignition"}"#,
                r#"{"format":"cloud-config"}"#,
                "format",
            ),
        ] {
            assert_eq!(differences(one, other), named, "{one} and {other}");
        }
    }

    #[test]
    fn keys_of_maps_are_not_named() {
        let one = r#"{"clusterConfiguration":{"apiServer":{"extraArgs":{"hunter2":"a"}}}}"#;
        let other = r#"{"clusterConfiguration":{"apiServer":{"extraArgs":{"v":"a"}}}}"#;
        assert_eq!(
            differences(one, other),
            "clusterConfiguration.apiServer.extraArgs"
        );
    }

    #[test]
    fn ignored_fields_are_no_difference() {
        let except = |one: &str, other: &str| {
            let (one, other): (KubeadmConfig, KubeadmConfig) = (decode(one).unwrap(), decode(other).unwrap());
            Verbatim::differences_except(Some(&one), Some(&other), &["clusterConfiguration.dns"]).to_string()
        };
        let dns = r#"{"clusterConfiguration":{"dns":{"imageTag":"v1.12.1"}}}"#;
        for (other, named) in [
            (
                r#"{"clusterConfiguration":{"dns":{"imageTag":"v1.13.1"}}}"#,
                "nothing",
            ),
            ("{}", "nothing"),
            (
                r#"{"clusterConfiguration":{"imageRepository":"a"}}"#,
                "clusterConfiguration",
            ),
        ] {
            assert_eq!(except(dns, other), named, "{other}");
            assert_eq!(except(other, dns), named, "{other}");
        }
    }

    #[test]
    fn long_unknown_keys_are_not_named() {
        let key = "x".repeat(1000);
        assert_eq!(
            differences(&format!(r#"{{"a":{{"{key}":1}}}}"#), r#"{"a":{"b":1}}"#),
            "a"
        );
        assert_eq!(differences(&format!(r#"{{"{key}":1}}"#), "{}"), "something");
    }

    #[test]
    fn deeply_nested_values_are_compared_as_text() {
        let deep = |value: u8| format!(r#"{{"a":{}{value}{}}}"#, "[".repeat(5000), "]".repeat(5000));
        assert_eq!(differences(&deep(1), &deep(1)), "nothing");
        assert_eq!(differences(&deep(1), &deep(2)), "something");
    }

    #[test]
    fn debug_omits_the_text() {
        let config: KubeadmConfig = decode(r#"{"files":[{"path":"/a","content":"hidden"}]}"#).unwrap();
        assert!(!format!("{config:?}").contains("hidden"));
    }
}
