//! Where the API servers call the webhook: at its Service, or at the static Pod that `kcp-webhook anchor` runs beside each of
//! them.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kcp_rules::anchor::{ANCHOR, SERVES, STOPS};
use kube::{Api, Client, api::ListParams};

use super::{
    decision::{PodCertificate, ServedCertificate},
    objects::is_ready,
};
use crate::manager::request::{RequestError, call, read_api_servers};

/// Where the API servers call the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Service,
    StaticPods,
}

/// The API servers and the anchors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Anchors {
    /// The addresses of the API servers.
    pub(crate) api_servers: BTreeSet<IpAddr>,
    /// The number of Nodes on which the DaemonSet wants a Pod. `None` if the DaemonSet does not exist or is being deleted.
    pub(crate) desired: Option<usize>,
    pub(crate) pods: Vec<AnchorPod>,
}

/// A Pod of the DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnchorPod {
    /// The addresses of its Node.
    pub(crate) hosts: Vec<IpAddr>,
    /// Whether the static Pod on its Node is ready, and this Pod is not being deleted.
    pub(crate) is_ready: bool,
    /// The port of the static Pod, and the serial number of the certificate with which it has passed its self-test.
    pub(crate) serves: Option<String>,
    /// Whether the static Pod does not serve, or is about to stop.
    pub(crate) stops: bool,
}

impl AnchorPod {
    fn is_beside(&self, api_server: &IpAddr) -> bool {
        self.hosts.contains(api_server)
    }
}

impl Anchors {
    /// Returns an API server that has no working static Pod. A static Pod works if its anchor is ready and reports `expected`:
    /// the port, and the serial number of the current certificate.
    pub(crate) fn without_static_pod(&self, expected: Option<&str>) -> Option<IpAddr> {
        let serves = |pod: &AnchorPod| {
            pod.is_ready && !pod.stops && expected.is_some() && pod.serves.as_deref() == expected
        };
        let has_one = |address: &IpAddr| self.pods.iter().any(|pod| pod.is_beside(address) && serves(pod));
        self.api_servers.iter().copied().find(|address| !has_one(address))
    }

    /// Where the API servers should call the webhook.
    ///
    /// The API servers begin to call static Pods only if each API server has a static Pod that serves. They call the Service
    /// again if the DaemonSet no longer wants an anchor beside each API server, or if an anchor reports that its static Pod
    /// stops. A missing anchor is no reason to call the Service: after a power failure and during a rolling update, the static
    /// Pods serve without their anchors.
    pub(crate) fn backend(&self, expected: Option<&str>, current: Backend) -> Backend {
        let Some(desired) = self.desired.filter(|_| !self.api_servers.is_empty()) else {
            return Backend::Service;
        };
        let is_beside_any = |pod: &AnchorPod| self.api_servers.iter().any(|address| pod.is_beside(address));
        let elsewhere = self
            .pods
            .iter()
            .filter(|pod| !pod.hosts.is_empty() && !is_beside_any(pod));
        let wanted = desired.saturating_sub(elsewhere.count()) >= self.api_servers.len();
        let stops = self.pods.iter().any(|pod| pod.stops && is_beside_any(pod));
        let serve = current == Backend::StaticPods || self.without_static_pod(expected).is_none();
        if wanted && !stops && serve {
            Backend::StaticPods
        } else {
            Backend::Service
        }
    }

    /// Returns which CA has issued the certificate of each static Pod. `expected` is the port, and the serial number of a
    /// certificate from the CA that signs. If the API servers call static Pods, the result also has an entry for each API server,
    /// because an anchor may be missing.
    pub(crate) fn certificates(&self, expected: Option<&str>, are_called: bool) -> Vec<ServedCertificate> {
        let serves = |pod: &AnchorPod| expected.is_some() && pod.serves.as_deref() == expected;
        let is_served = |address: &IpAddr| self.pods.iter().any(|pod| pod.is_beside(address) && serves(pod));
        let of_pods = self.pods.iter().map(|pod| (pod.hosts.first(), serves(pod)));
        let called = self.api_servers.iter().filter(|_| are_called);
        of_pods
            .chain(called.map(|address| (Some(address), is_served(address))))
            .map(|(host, is_signing)| ServedCertificate {
                pod: host.map_or_else(
                    || "a static Pod".to_owned(),
                    |host| format!("the static Pod at {host}"),
                ),
                is_ready: true,
                certificate: if is_signing {
                    PodCertificate::Signing
                } else {
                    PodCertificate::Another
                },
            })
            .collect()
    }
}

pub(crate) async fn read(
    client: &Client,
    namespace: &str,
    daemon_set: &str,
) -> Result<Anchors, RequestError> {
    let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    let action = format!("get the DaemonSet {daemon_set}");
    let found = call(&action, daemon_sets.get_opt(daemon_set)).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selected = ListParams::default().labels(&format!("app.kubernetes.io/name={ANCHOR}"));
    let pods = call("list pods", pods.list(&selected)).await?;
    let api_servers = read_api_servers(client).await?;
    Ok(Anchors {
        api_servers: api_servers.iter().map(SocketAddr::ip).collect(),
        desired: found.as_ref().and_then(desired),
        pods: pods.items.iter().map(anchor_pod).collect(),
    })
}

fn desired(daemon_set: &DaemonSet) -> Option<usize> {
    if daemon_set.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = daemon_set.status.as_ref();
    let desired = status.map_or(0, |status| status.desired_number_scheduled);
    Some(usize::try_from(desired).unwrap_or(0))
}

fn anchor_pod(pod: &Pod) -> AnchorPod {
    let status = pod.status.as_ref();
    let listed = status.and_then(|status| status.host_ips.as_ref());
    let listed = listed.into_iter().flatten().map(|host| host.ip.as_str());
    let first = status.and_then(|status| status.host_ip.as_deref());
    let hosts: BTreeSet<IpAddr> = listed.chain(first).filter_map(|host| host.parse().ok()).collect();
    let annotation = |name: &str| pod.metadata.annotations.as_ref()?.get(name).cloned();
    AnchorPod {
        hosts: hosts.into_iter().collect(),
        is_ready: is_ready(pod),
        serves: annotation(SERVES),
        stops: annotation(STOPS).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn pod(number: u8, is_ready: bool, serves: &str) -> AnchorPod {
        AnchorPod {
            hosts: vec![address(number)],
            is_ready,
            serves: Some(serves.to_owned()),
            stops: false,
        }
    }

    fn stopping(number: u8) -> AnchorPod {
        AnchorPod {
            serves: None,
            stops: true,
            ..pod(number, true, "")
        }
    }

    fn anchors(api_servers: &[u8], desired: Option<usize>, pods: Vec<AnchorPod>) -> Anchors {
        Anchors {
            api_servers: api_servers.iter().copied().map(address).collect(),
            desired,
            pods,
        }
    }

    #[test]
    fn api_servers_call_static_pods_once_each_has_one() {
        let both = || vec![pod(1, true, "a"), pod(2, true, "a")];
        for (what, anchors, expected) in [
            ("each", anchors(&[1, 2], Some(2), both()), Backend::StaticPods),
            (
                "one is missing",
                anchors(&[1, 2], Some(2), vec![pod(1, true, "a")]),
                Backend::Service,
            ),
            (
                "one is not ready",
                anchors(&[1, 2], Some(2), vec![pod(1, true, "a"), pod(2, false, "a")]),
                Backend::Service,
            ),
            (
                "one serves another certificate",
                anchors(&[1, 2], Some(2), vec![pod(1, true, "a"), pod(2, true, "b")]),
                Backend::Service,
            ),
            (
                "one stops",
                anchors(&[1, 2], Some(2), vec![pod(1, true, "a"), stopping(2)]),
                Backend::Service,
            ),
            ("no DaemonSet", anchors(&[1, 2], None, both()), Backend::Service),
            (
                "a Node has lost its label, and its anchor is not gone yet",
                anchors(&[1, 2], Some(1), both()),
                Backend::Service,
            ),
            (
                "no API server is known",
                anchors(&[], Some(1), both()),
                Backend::Service,
            ),
        ] {
            assert_eq!(anchors.backend(Some("a"), Backend::Service), expected, "{what}");
        }
        let silent = AnchorPod {
            serves: None,
            ..pod(1, true, "a")
        };
        let none = anchors(&[1], Some(1), vec![silent]);
        assert_eq!(none.backend(None, Backend::Service), Backend::Service);
        assert_eq!(none.without_static_pod(None), Some(address(1)));
    }

    #[test]
    fn api_servers_call_static_pods_until_one_stops() {
        for (what, anchors, expected) in [
            (
                "after a power failure",
                anchors(&[1, 2], Some(2), vec![pod(1, false, "old")]),
                Backend::StaticPods,
            ),
            (
                "during a rolling update",
                anchors(&[1, 2], Some(2), Vec::new()),
                Backend::StaticPods,
            ),
            (
                "one stops",
                anchors(&[1, 2], Some(2), vec![pod(1, true, "a"), stopping(2)]),
                Backend::Service,
            ),
            (
                "a static Pod stops on a Node without an API server",
                anchors(&[1], Some(2), vec![pod(1, true, "a"), stopping(9)]),
                Backend::StaticPods,
            ),
            (
                "a Node has lost its label",
                anchors(&[1, 2], Some(1), vec![pod(1, true, "a")]),
                Backend::Service,
            ),
            (
                "a new API server",
                anchors(&[1, 2, 3], Some(2), vec![pod(1, true, "a"), pod(2, true, "a")]),
                Backend::Service,
            ),
            (
                "an anchor on a Node without an API server does not count",
                anchors(&[1, 2], Some(2), vec![pod(1, true, "a"), pod(9, true, "a")]),
                Backend::Service,
            ),
            (
                "uninstalled",
                anchors(&[1], None, vec![pod(1, true, "a")]),
                Backend::Service,
            ),
        ] {
            assert_eq!(
                anchors.backend(Some("a"), Backend::StaticPods),
                expected,
                "{what}"
            );
        }
    }

    #[test]
    fn a_ca_is_needed_while_an_api_server_may_call_a_certificate_of_it() {
        use PodCertificate::{Another, Signing};
        let certificates = |anchors: &Anchors, expected, are_called| -> Vec<PodCertificate> {
            let served = anchors.certificates(expected, are_called);
            served.iter().map(|served| served.certificate).collect()
        };
        let one_is_missing = anchors(&[1, 2], Some(2), vec![pod(1, true, "new")]);
        assert_eq!(certificates(&one_is_missing, Some("new"), false), [Signing]);
        assert_eq!(
            certificates(&one_is_missing, Some("new"), true),
            [Signing, Signing, Another]
        );
        let last = one_is_missing.certificates(Some("new"), true).pop().unwrap();
        assert_eq!(last.pod, "the static Pod at 10.0.0.2");
        let old = anchors(&[1], Some(1), vec![pod(1, true, "old")]);
        assert_eq!(certificates(&old, Some("new"), false), [Another]);
        assert_eq!(certificates(&old, None, true), [Another, Another]);
    }

    #[test]
    fn objects_are_read_as_kubernetes_writes_them() {
        let read: Pod = serde_json::from_value(json!({
            "metadata": {"annotations": {SERVES: "11443 00:01", STOPS: "true"}},
            "status": {
                "hostIP": "10.0.0.1",
                "hostIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }))
        .unwrap();
        let expected = AnchorPod {
            hosts: vec![address(1), "fd00::1".parse().unwrap()],
            is_ready: true,
            serves: Some("11443 00:01".to_owned()),
            stops: true,
        };
        assert_eq!(anchor_pod(&read), expected);
        let daemon_set = |metadata| -> DaemonSet {
            let status = json!({
                "currentNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1, "desiredNumberScheduled": 3,
            });
            serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
        };
        assert_eq!(desired(&daemon_set(json!({}))), Some(3));
        let deleted = json!({"deletionTimestamp": "2026-12-01T00:00:00Z"});
        assert_eq!(desired(&daemon_set(deleted)), None);
    }
}
