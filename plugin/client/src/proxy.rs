//! Chooses the proxy for the API server as client-go does: `proxy-url` of the kubeconfig, or else the proxy
//! from the environment. The latter does not apply to loopback addresses or to hosts in `NO_PROXY`.

use std::net::IpAddr;

use http::Uri;
use kube::config::Kubeconfig;

use crate::Error;

#[derive(Clone, Debug, Default)]
pub struct Environment {
    https: Option<String>,
    http: Option<String>,
    /// The hosts in `NO_PROXY`, separated by commas.
    excluded: Option<String>,
}

impl Environment {
    pub fn from_process() -> Self {
        let read = |upper: &str, lower: &str| {
            let value = std::env::var(upper).or_else(|_| std::env::var(lower));
            value.ok().filter(|value| !value.is_empty())
        };
        Self {
            https: read("HTTPS_PROXY", "https_proxy"),
            http: read("HTTP_PROXY", "http_proxy"),
            excluded: read("NO_PROXY", "no_proxy"),
        }
    }
}

/// Returns the proxy for the only cluster of a kubeconfig that [`select`](crate::kubeconfig::select) returned. `None` if
/// the connection needs no proxy.
pub fn proxy_for(selected: &Kubeconfig, environment: &Environment) -> Result<Option<Uri>, Error> {
    let cluster = selected.clusters.first().and_then(|named| named.cluster.as_ref());
    let configured = cluster.and_then(|cluster| cluster.proxy_url.as_deref());
    let server = cluster
        .and_then(|cluster| cluster.server.as_deref())
        .unwrap_or_default();
    let url = match configured.filter(|url| !url.is_empty()) {
        Some(url) => Some(url),
        None => proxy_from_environment(server, environment),
    };
    url.map(parse_url).transpose()
}

fn proxy_from_environment<'e>(server: &str, environment: &'e Environment) -> Option<&'e str> {
    let server: Uri = server.parse().ok()?;
    let proxy = match server.scheme_str() {
        Some("http") => environment.http.as_deref(),
        _ => environment.https.as_deref(),
    }?;
    let host = server.host()?.trim_matches(['[', ']']);
    let excluded = host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        || environment
            .excluded
            .iter()
            .flat_map(|list| list.split(','))
            .any(|entry| excludes(entry.trim(), host));
    (!excluded).then_some(proxy)
}

/// Whether an entry of `NO_PROXY` matches a host. An entry is `*`, an IP address, a CIDR, or a domain, which also
/// matches its subdomains.
fn excludes(entry: &str, host: &str) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return entry.parse() == Ok(ip) || is_in_cidr(entry, ip);
    }
    let domain = entry.trim_start_matches("*.").trim_start_matches('.');
    let (host, domain) = (host.to_ascii_lowercase(), domain.to_ascii_lowercase());
    !domain.is_empty()
        && host
            .strip_suffix(&domain)
            .is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn is_in_cidr(range: &str, ip: IpAddr) -> bool {
    let Some((network, bits)) = range.split_once('/') else {
        return false;
    };
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    match (network, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) if bits <= 32 => {
            (network.to_bits() ^ ip.to_bits())
                .checked_shr(32 - bits)
                .unwrap_or(0)
                == 0
        }
        (IpAddr::V6(network), IpAddr::V6(ip)) if bits <= 128 => {
            (network.to_bits() ^ ip.to_bits())
                .checked_shr(128 - bits)
                .unwrap_or(0)
                == 0
        }
        _ => false,
    }
}

/// Parses the URL of a proxy. If the URL has no scheme, the scheme is `http`.
fn parse_url(url: &str) -> Result<Uri, Error> {
    let parsed = if url.contains("://") {
        url.parse()
    } else {
        format!("http://{url}").parse()
    };
    // The error does not show the URL, which may contain a password.
    parsed.map_err(|_| Error::Configuration {
        cause: "the proxy URL is invalid".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Environment, excludes, proxy_from_environment};

    #[test]
    fn an_entry_covers_hosts_as_go_has_it() {
        for (entry, host, covered) in [
            ("*", "a.example", true),
            ("example", "a.example", true),
            (".example", "a.example", true),
            ("*.example", "a.example", true),
            ("example", "notexample", false),
            ("", "a.example", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("0.0.0.0/0", "11.1.2.3", true),
            ("fd00::/8", "fd01::1", true),
            ("10.0.0.0/99", "10.1.2.3", false),
        ] {
            assert_eq!(excludes(entry, host), covered, "{entry} {host}");
        }
    }

    #[test]
    fn this_machine_is_never_reached_through_the_environments_proxy() {
        let environment = Environment {
            https: Some("http://proxy:3128".to_owned()),
            http: None,
            excluded: Some("internal, 10.0.0.0/8".to_owned()),
        };
        for (server, proxied) in [
            ("https://127.0.0.1:6443", false),
            ("https://[::1]:6443", false),
            ("https://localhost:6443", false),
            ("https://10.1.1.1", false),
            ("https://api.internal", false),
            ("https://api.example:6443", true),
            ("http://api.example", false),
        ] {
            assert_eq!(
                proxy_from_environment(server, &environment).is_some(),
                proxied,
                "{server}"
            );
        }
    }
}
