//! What a component accepts as the value of a flag, by the type of the flag.

use std::{borrow::Cow, net::IpAddr, time::Duration};

use semver::Version;

use crate::{
    components::Component,
    syntax::{parse_go_duration, parse_version},
    topics::extra_args::{FlagValue, items, parse_bool},
};

/// What the value of a flag of this type must be; `None` if the component accepts the value, or if this cannot be known.
pub(super) fn required_value(
    component: Component,
    flag: &FlagValue<'_>,
    kind: &str,
) -> Option<Cow<'static, str>> {
    match kind.split_once('=') {
        Some((number @ ("one" | "some"), words)) => required_word(number == "some", words, flag.value),
        _ => required_by_kind(component, flag, kind).map(Cow::Borrowed),
    }
}

fn required_by_kind(component: Component, flag: &FlagValue<'_>, kind: &str) -> Option<&'static str> {
    let value = flag.value;
    let (is_accepted, required) = match kind {
        "bool" => (parse_bool(value).is_some(), "true or false"),
        "int" | "int64" => (is_integer(value, 64, true), "an integer"),
        "int32" => (is_integer(value, 32, true), "an integer of 32 bits"),
        "uint" | "uint64" => (is_integer(value, 64, false), "an integer, 0 or more"),
        "uint32" => (is_integer(value, 32, false), "an integer of 32 bits, 0 or more"),
        "Level" => (is_level(value), "an integer between 0 and 2147483647"),
        "float32" | "float64" => (value.parse::<f64>().is_ok(), "a number"),
        "duration" => (
            parse_duration(value).is_some(),
            "a duration with a unit, such as 30s",
        ),
        "ip" => (
            value.is_empty() || value.trim().parse::<IpAddr>().is_ok(),
            "an IP address",
        ),
        "quantity" => (is_quantity(value), "a quantity, such as 1Mi"),
        "stringToString" => (is_map(value), "a list of KEY=VALUE"),
        "colonSeparatedMultimapStringString" if !flag.is("feature-gates") => {
            (items(value).all(|item| item.contains(':')), "a list of KEY:VALUE")
        }
        "pattern=N" => (
            items(value).all(is_verbosity),
            "a list of file patterns with =N, such as reflector=4",
        ),
        "portRange" => (is_port_range(value), "a range of ports, such as 30000-32767"),
        "namedCertKey" => (
            is_named_certificate(value),
            "CERTIFICATE,KEY or CERTIFICATE,KEY:NAME,NAME",
        ),
        "uniqueurls" => (
            ["", "*"].contains(&value)
                || value
                    .split(',')
                    .all(|url| is_member_url(url, flag.name.starts_with("listen-"))),
            "a list of URLs with a port and without a path, such as http://127.0.0.1:2381; in the flags --listen-*, the host \
             must be an IP address or localhost",
        ),
        "mapStringString" if component == Component::ApiServer && flag.is("runtime-config") => {
            return required_runtime_config(value);
        }
        _ => return None,
    };
    (!is_accepted).then_some(required)
}

/// What the value of a flag of etcd must be, if it must be one of the words `A|B`; `None` if etcd accepts the value.
fn required_word(is_list: bool, words: &str, value: &str) -> Option<Cow<'static, str>> {
    let is_word = |value: &str| words.split('|').any(|word| word == value);
    let is_accepted = if is_list {
        value.split(',').all(is_word)
    } else {
        is_word(value)
    };
    (!is_accepted).then(|| format!("one of {}", words.replace('|', ", ")).into())
}

/// A duration of Go, without its sign.
pub(super) fn parse_duration(value: &str) -> Option<Duration> {
    parse_go_duration(value.strip_prefix(['-', '+']).unwrap_or(value))
}

/// The version in `--emulated-version`, such as `1.34` or `kube=1.34`.
pub(super) fn parse_emulated(value: &str) -> Option<Version> {
    let version = value.strip_prefix("kube=").unwrap_or(value);
    let parsed = parse_version(&format!("{version}.0")).ok();
    parsed.filter(|_| version.matches('.').count() == 1)
}

/// A quantity that is not negative (`k8s.io/apimachinery`, `pkg/api/resource`).
pub(super) fn is_quantity(value: &str) -> bool {
    const SUFFIXES: [&str; 16] = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    ];
    let end = value
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(value.len());
    let (number, suffix) = value.split_at(end);
    let exponent = suffix
        .strip_prefix(['e', 'E'])
        .map(|exponent| exponent.parse::<i32>().is_ok());
    !number.starts_with('-')
        && number.parse::<f64>().is_ok()
        && (exponent == Some(true) || SUFFIXES.contains(&suffix))
}

/// A map as pflag reads it (`string_to_string.go`): one pair, or several as CSV. Text with quotes is not judged.
fn is_map(value: &str) -> bool {
    match value.matches('=').count() {
        0 => false,
        1 => true,
        _ => value.contains('"') || value.split(',').all(|item| item.contains('=')),
    }
}

fn is_verbosity(item: &str) -> bool {
    item.split_once('=')
        .is_some_and(|(pattern, level)| !pattern.is_empty() && is_level(level))
}

/// Unlike other integers, a verbosity is decimal (`component-base/logs/api/v1`, `VerbosityLevelPflag`).
fn is_level(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_digit()) && value.parse::<i32>().is_ok()
}

/// `30000-32767`, `30000+100` or `30000` (`k8s.io/apimachinery`, `pkg/util/net/port_range.go`).
fn is_port_range(value: &str) -> bool {
    let port = |text: &str| text.parse::<u32>().ok();
    let value = value.trim();
    let ports = if let Some((first, size)) = value.split_once('+') {
        let last = port(first)
            .zip(port(size))
            .map(|(first, size)| first.saturating_add(size));
        port(first).zip(last)
    } else {
        let (first, last) = value.split_once('-').unwrap_or((value, value));
        port(first).zip(port(last))
    };
    value.is_empty() || ports.is_some_and(|(first, last)| first <= last && last <= 65535)
}

fn is_named_certificate(value: &str) -> bool {
    let files: Vec<_> = value.split(':').next().unwrap_or(value).split(',').collect();
    files.len() == 2 && files.iter().all(|file| !file.trim().is_empty())
}

/// Whether etcd accepts a URL (`client/pkg/types/urls.go`). If `is_bound`, etcd must also be able to listen at it
/// (`checkBindURLs`).
fn is_member_url(url: &str, is_bound: bool) -> bool {
    let Some((scheme, rest)) = url.trim().split_once(':') else {
        return false;
    };
    match scheme.to_ascii_lowercase().as_str() {
        "unix" | "unixs" => return true,
        "http" | "https" => {}
        _ => return false,
    }
    let address = rest
        .strip_prefix("//")
        .and_then(|rest| rest.split(['?', '#']).next());
    let Some((host, port)) = address.and_then(|address| address.rsplit_once(':')) else {
        return false;
    };
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = inner.is_some() || !host.contains([':', '/']);
    let is_ip = inner.unwrap_or(host).parse::<IpAddr>().is_ok();
    is_host && port.bytes().all(|byte| byte.is_ascii_digit()) && (!is_bound || is_ip || host == "localhost")
}

/// Whether Go's `strconv` parses an integer. A prefix, such as `0x`, stands for another base.
pub(super) fn is_integer(value: &str, bits: u32, is_signed: bool) -> bool {
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
