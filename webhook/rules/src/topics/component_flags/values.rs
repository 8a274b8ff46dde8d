//! What a component accepts as the value of a flag.

use std::net::IpAddr;

use crate::{
    components::Component,
    syntax::parse_go_duration,
    topics::extra_args::{FlagValue, items, parse_bool},
};

/// What the value of a flag of this type must be for a minor version of the component; `None` if the component accepts the value, or if this cannot be known.
pub(super) fn required_value(
    component: Component,
    minor: u64,
    flag: &FlagValue<'_>,
    kind: &str,
) -> Option<&'static str> {
    let value = flag.value;
    match kind {
        "bool" => parse_bool(value).is_none().then_some("true or false"),
        "int" | "int64" => (!is_integer(value, 64, true)).then_some("an integer"),
        "int32" => (!is_integer(value, 32, true)).then_some("an integer of 32 bits"),
        "uint" => (!is_integer(value, 64, false)).then_some("an integer that is not negative"),
        "float32" | "float64" => value.parse::<f64>().is_err().then_some("a number"),
        "duration" => {
            let unsigned = value.strip_prefix(['-', '+']).unwrap_or(value);
            parse_go_duration(unsigned)
                .is_none()
                .then_some("a duration with a unit, such as 30s")
        }
        "ip" => (!value.is_empty() && value.trim().parse::<IpAddr>().is_err()).then_some("an IP address"),
        "mapStringString" if component == Component::ApiServer && flag.is("runtime-config") => {
            required_runtime_config(value)
        }
        _ if component == Component::Etcd && minor >= 6 && flag.is("v2-deprecation") => (!V2_DEPRECATIONS
            .contains(&value))
        .then_some("one that etcd 3.6 and later accept, such as write-only"),
        _ => None,
    }
}

/// The values of `--v2-deprecation` that etcd 3.6 accepts.
const V2_DEPRECATIONS: [&str; 4] = [
    "write-only",
    "write-only-skip-check",
    "write-only-drop-data",
    "gone",
];

/// Whether Go's `strconv` parses an integer, whose prefix may be that of another base.
fn is_integer(value: &str, bits: u32, is_signed: bool) -> bool {
    let (is_negative, digits) = match value.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, value.strip_prefix('+').unwrap_or(value)),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, lower.get(2..)),
        [b'0', b'o', ..] => (8, lower.get(2..)),
        [b'0', b'b', ..] => (2, lower.get(2..)),
        [b'0', _, ..] => (8, lower.get(1..)),
        _ => (10, Some(lower.as_str())),
    };
    let digits = digits.unwrap_or_default();
    let has_lone_underscores = !digits.contains("__") && !digits.ends_with('_');
    let limit = 1_i128 << (bits - u32::from(is_signed));
    let number = i128::from_str_radix(&digits.replace('_', ""), base).ok();
    let is_in_range = number.is_some_and(|number| {
        if is_negative {
            is_signed && number <= limit
        } else {
            number < limit
        }
    });
    has_lone_underscores && is_in_range
}

fn required_runtime_config(value: &str) -> Option<&'static str> {
    let pairs: Vec<(&str, &str)> = items(value)
        .map(|item| item.split_once('=').unwrap_or((item, "")))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let is_refused = |(key, value): &(&str, &str)| match *key {
        "api/all" | "api/ga" | "api/beta" | "api/alpha" => !["true", "false"].contains(value),
        _ => !value.is_empty() && parse_bool(value).is_none(),
    };
    pairs
        .iter()
        .any(is_refused)
        .then_some("a list of API versions with =true or =false")
}
