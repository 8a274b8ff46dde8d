//! A value together with the JSON text that it was decoded from, to compare the fields that nobody reads, too.

use std::{fmt, marker::PhantomData, ops::Deref, sync::Arc};

use jiff::SignedDuration;
use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use super::{DecodeError, decode_part, json::WITH_TEXT};

/// A value with the text that it was decoded from. Two are equal when their texts mean the same: see
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

/// How two values differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences(Vec<String>);

impl<'a, T> Verbatim<'a, T> {
    /// How two values differ; one that is not there counts as empty. Keys in another order are no difference, nor is
    /// a field that is unset on one side and empty, or what an older Cluster API filled in, on the other.
    ///
    /// Equal texts cost one comparison of bytes; only others are parsed.
    pub fn differences(one: Option<&Self>, other: Option<&Self>) -> Differences {
        let text = |value: Option<&Self>| -> &'a str { value.map_or("{}", |value| value.text.get()) };
        let (one, other) = (text(one), text(other));
        let mut found = Vec::new();
        if one != other {
            match (meaning(one), meaning(other)) {
                (Some(one), Some(other)) => differ("", &one, &other, &mut found),
                // Nested too deep to parse: different texts are all we know.
                _ => found.push(String::new()),
            }
        }
        Differences(found)
    }
}

impl<'a, T: Deserialize<'a>> Verbatim<'a, T> {
    /// Decodes a value, unless it is the other's text.
    pub(super) fn decode_beside(other: Option<&Self>, text: &'a RawValue) -> Result<Self, DecodeError> {
        match other {
            Some(other) if other.text.get() == text.get() => Ok(other.clone()),
            _ => Ok(Self {
                text,
                value: Arc::new(decode_part(text)?),
            }),
        }
    }

    /// What it was decoded from.
    pub(super) fn text(&self) -> &'a RawValue {
        self.text
    }
}

impl Differences {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The paths of the first few.
impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] if one.is_empty() => f.write_str("something"),
            [one] => f.write_str(one),
            [one, other] => write!(f, "{one} and {other}"),
            [one, other, ..] => write!(f, "{one}, {other} and more"),
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

/// Without the text, which may hold secrets.
impl<T: fmt::Debug> fmt::Debug for Verbatim<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Verbatim<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VerbatimVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for VerbatimVisitor<T> {
            type Value = Verbatim<'de, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut value_and_text: A) -> Result<Self::Value, A::Error> {
                let value = value_and_text.next_element()?;
                let text = value_and_text.next_element()?;
                match (value, text) {
                    (Some(value), Some(text)) => Ok(Verbatim {
                        text,
                        value: Arc::new(value),
                    }),
                    _ => Err(Error::invalid_length(0, &self)),
                }
            }

            /// A value that comes without its text is decoded of its text.
            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<Self::Value, D::Error> {
                let text = <&'de RawValue>::deserialize(deserializer)?;
                let value = decode_part(text).map_err(|error| error.within())?;
                Ok(Verbatim {
                    text,
                    value: Arc::new(value),
                })
            }
        }

        deserializer.deserialize_newtype_struct(WITH_TEXT, VerbatimVisitor(PhantomData))
    }
}

/// What Cluster API filled in before v1.11: as good as unset (its `ApplyPreviousKubeadmConfigDefaults`, and the
/// rollout strategy in the validation of templates).
const FORMER_DEFAULTS: &[(&str, &str, &str)] = &[
    ("", "format", "cloud-config"),
    ("kubeadmConfigSpec", "format", "cloud-config"),
    ("nodeRegistration", "imagePullPolicy", "IfNotPresent"),
    ("exec", "apiVersion", "client.authentication.k8s.io/v1"),
    ("strategy", "type", "RollingUpdate"),
    ("rolloutStrategy", "type", "RollingUpdate"),
];

/// Fields that a server does not give back as they were written, by parent and name. Those of v1beta1 that v1beta2 does
/// not have: where v1beta2 is stored, the old object never has them (Cluster API, `webhooks/conversion`). And a quantity,
/// which has many spellings. Parents are those of `spec.kubeadmConfigSpec` on its own, and in a template.
const FORGOTTEN: &[(&str, &str)] = &[
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

/// Fields of v1beta1 that v1beta2 has in seconds: `90s` comes back as `1m30s`.
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

fn meaning(text: &str) -> Option<Value> {
    let mut value = serde_json::from_str(text).ok()?;
    remove_unset("", &mut value);
    Some(value)
}

/// `serde_json` refuses to parse what is nested deeper than 128, so this ends.
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
                !is_unset(name, field, value) && !FORGOTTEN.contains(&(name, field))
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
        // The one number of which 0 means something else than unset, and 1 was the default.
        Value::Number(number) => number.as_i64() == Some(i64::from(field == "maxSurge")),
        Value::String(text) => text.is_empty() || FORMER_DEFAULTS.contains(&(parent, field, text)),
    }
}

/// As many differences as tell one, two and more apart.
const COUNTED: usize = 3;
/// The longest path of a field that there is has 90 bytes; longer ones have a key that somebody made up.
const LONGEST_PATH: usize = 100;

fn differ(path: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    if one == other || found.len() >= COUNTED {
        return;
    }
    let (Value::Object(one), Value::Object(other)) = (one, other) else {
        found.push(path.to_owned());
        return;
    };
    let too_long = |field: &String| path.len() + field.len() > LONGEST_PATH;
    if one.keys().chain(other.keys()).any(too_long) {
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
        differ(&path, one, other.get(field).unwrap_or(&Value::Null), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{decode, kubeadm_config::KubeadmConfig};

    fn differences(one: &str, other: &str) -> String {
        let (one, other): (KubeadmConfig, KubeadmConfig) = (decode(one).unwrap(), decode(other).unwrap());
        Verbatim::differences(Some(&one), Some(&other)).to_string()
    }

    #[test]
    fn the_same_in_other_words() {
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
            (r#"{"a":1,"b":1,"c":1,"d":1}"#, "{}", "a, b and more"),
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
    fn made_up_keys_are_not_named() {
        let key = "x".repeat(1000);
        assert_eq!(
            differences(&format!(r#"{{"a":{{"{key}":1}}}}"#), r#"{"a":{"b":1}}"#),
            "a"
        );
        assert_eq!(differences(&format!(r#"{{"{key}":1}}"#), "{}"), "something");
    }

    #[test]
    fn what_is_nested_deep_is_different_text() {
        let deep = |value: u8| format!(r#"{{"a":{}{value}{}}}"#, "[".repeat(5000), "]".repeat(5000));
        assert_eq!(differences(&deep(1), &deep(1)), "nothing");
        assert_eq!(differences(&deep(1), &deep(2)), "something");
    }

    #[test]
    fn the_text_is_not_shown() {
        let config: KubeadmConfig = decode(r#"{"files":[{"path":"/a","content":"hidden"}]}"#).unwrap();
        assert!(!format!("{config:?}").contains("hidden"));
    }
}
