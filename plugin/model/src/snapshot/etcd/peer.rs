//! On which Machine a member may run that has no name yet.

use std::net::IpAddr;

use kcp_api::Machine;

/// Whether a member with these peer URLs may run on the Machine, as far as their addresses show.
pub fn may_run_on(machine: &Machine, peer_urls: &[String]) -> bool {
    // Host names prove nothing: kubeadm writes IP addresses into peer URLs.
    let hosts: Vec<IpAddr> = peer_urls
        .iter()
        .filter_map(|url| host(url)?.parse().ok())
        .collect();
    let addresses = machine.status.addresses.iter();
    let own: Vec<IpAddr> = addresses.filter_map(|address| address.parse().ok()).collect();
    let is_unknown = own.is_empty() || hosts.is_empty();
    is_unknown || own.iter().any(|address| hosts.contains(address))
}

/// The host in a URL such as `https://10.0.0.1:2380` or `https://[fd00::1]:2380`.
fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let (host, _port) = rest.rsplit_once(':')?;
    Some(host.trim_start_matches('[').trim_end_matches(']'))
}

#[cfg(test)]
mod tests {
    use super::{host, may_run_on};
    use crate::testing::objects;

    #[test]
    fn addresses_may_show_that_a_member_runs_elsewhere() {
        let cases: &[(&str, &str, bool)] = &[
            ("https://10.0.0.2:2380", "10.0.0.2", true),
            ("https://10.0.0.2:2380", "10.0.0.3", false),
            ("https://10.0.0.2:2380", "m3 10.0.0.3 10.0.0.2", true),
            ("https://[fd00:0::2]:2380", "fd00::2", true),
            // Nothing is known.
            ("https://10.0.0.2:2380", "", true),
            ("https://10.0.0.2:2380", "m3", true),
            ("https://m2:2380", "10.0.0.3", true),
            ("", "10.0.0.3", true),
        ];
        for (url, addresses, expected) in cases {
            let mut machine = objects::machine("m3");
            machine.status.addresses = addresses.split_whitespace().map(str::to_owned).collect();
            assert_eq!(
                may_run_on(&machine, &[(*url).to_owned()]),
                *expected,
                "{url}, {addresses}"
            );
        }
    }

    #[test]
    fn the_host_of_a_peer_is_compared_with_addresses() {
        assert_eq!(host("https://10.0.0.1:2380"), Some("10.0.0.1"));
        assert_eq!(host("https://[fd00::1]:2380"), Some("fd00::1"));
        assert_eq!(host("10.0.0.1"), None);
    }
}
