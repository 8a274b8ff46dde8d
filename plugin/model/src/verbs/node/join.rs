//! Decides whether a host may join the control plane of a cluster without Cluster API.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::{
    change::decision::{Refusal, RefusedBy},
    snapshot::etcd::{EtcdSurvey, describe_unresponsive},
    verbs::{
        etcd::members::{ClusterMember, EtcdCluster},
        node::labelled_node::LabelledNode,
    },
};

const UPLOAD: &str = "on a host of the control plane, upload the certificates again, and use the key that kubeadm prints: kubeadm \
                      init phase upload-certs --upload-certs; with an external etcd, add --config FILE with a configuration that \
                      names this etcd";

/// The certificates of the control plane in Secret `kube-system/kubeadm-certs`. kubeadm lets a bootstrap token of two hours own
/// the Secret, so Kubernetes deletes both at the same time (`createShortLivedBootstrapToken` of kubeadm).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadedCertificates {
    Absent,
    /// When the token expires. `None` if no token owns the Secret.
    Until(Option<Timestamp>),
}

impl UploadedCertificates {
    /// When Kubernetes deletes the certificates. `None` if this is unknown.
    pub const fn expire(self) -> Option<Timestamp> {
        match self {
            Self::Absent => None,
            Self::Until(expire) => expire,
        }
    }

    /// Refuses a join that finds no certificates.
    pub fn refuse(self, now: Timestamp) -> Option<Refusal> {
        let why = match self {
            Self::Absent => "does not exist. Kubernetes deletes it two hours after the upload".to_owned(),
            Self::Until(Some(expire)) if expire <= now => format!("expired at {expire}"),
            Self::Until(_) => return None,
        };
        let why = format!(
            "the new host reads the certificates of the control plane from Secret kube-system/kubeadm-certs, which {why}"
        );
        Some(Refusal {
            remedies: vec![UPLOAD.to_owned()],
            ..Refusal::new(RefusedBy::Command, vec![why])
        })
    }

    /// The warning about a script that is valid for longer than the certificates.
    pub fn warning(self, script_expires: Timestamp) -> Option<String> {
        let expire = self.expire().filter(|expire| *expire < script_expires)?;
        Some(format!(
            "run the script before {expire}, because Kubernetes then deletes the certificates of the control plane, Secret \
             kube-system/kubeadm-certs"
        ))
    }
}

/// Refuses a new etcd member on a control plane of Cluster API.
pub fn refuse_machines(nodes: &[LabelledNode]) -> Option<Refusal> {
    let machine = nodes.iter().find_map(|node| node.machine.as_ref())?;
    let why = format!(
        "the control plane consists of Machines that Cluster API manages, such as {machine}: an etcd member without a Machine \
         would block every later change of the control plane"
    );
    let remedy = format!(
        "add a Machine in the management cluster: kubectl kcp scale NAME --replicas N -n {}",
        machine.namespace_in_command()
    );
    Some(Refusal {
        remedies: vec![remedy],
        ..Refusal::new(RefusedBy::Command, vec![why])
    })
}

/// Refuses a join while etcd lists a member without a Node, or a member that does not respond. A member has no Node if its host is
/// gone or its join has failed. Before kubeadm adds a member, it asks every member for its status
/// (`CheckLocalEtcdClusterStatus`), including the leader and learners. It stops at the first member that does not respond, but
/// accepts a member that responds without a leader. Fails if the members are unknown.
pub fn refuse_silent_members(
    survey: &EtcdSurvey,
    nodes: &BTreeSet<String>,
) -> Result<Option<Refusal>, Refusal> {
    let cluster = EtcdCluster::from_survey(survey)?;
    let (with_nodes, without_nodes): (Vec<&ClusterMember<'_>>, Vec<&ClusterMember<'_>>) = cluster
        .members
        .iter()
        .partition(|member| nodes.contains(&member.name));
    let silent = with_nodes.into_iter().filter_map(|member| {
        let mut queried = survey.queried.iter();
        let failure = match queried.find(|queried| queried.name == member.name) {
            Some(queried) => queried.status().err()?,
            None => return Some((&member.name, member.health.as_ref().err()?.clone(), None)),
        };
        Some((
            &member.name,
            describe_unresponsive(&failure.message),
            failure.hint.as_ref(),
        ))
    });
    let removal = |name: &str| {
        format!("kubectl kcp node remove {name} --etcd-ca FILE --etcd-certificate FILE --etcd-key FILE")
    };
    let absent = without_nodes.iter().map(|member| {
        let remedy = format!(
            "if its host is gone, or its join has failed, remove the member: {}",
            removal(&member.name)
        );
        (describe(member), remedy)
    });
    let silent = silent.map(|(name, fault, hint)| {
        let why = format!(
            "etcd member {name} {fault}: kubeadm adds no member while an existing member does not respond"
        );
        let repair = hint.map_or("start the member", String::as_str);
        let remedy = format!(
            "{repair}, or, if its host is gone, remove the Node and the member: {}",
            removal(name)
        );
        (why, remedy)
    });
    let (why, remedies): (Vec<String>, Vec<String>) = absent.chain(silent).unzip();
    Ok((!why.is_empty()).then(|| Refusal {
        remedies,
        ..Refusal::new(RefusedBy::Command, why)
    }))
}

fn describe(member: &ClusterMember<'_>) -> String {
    let name = &member.name;
    if member.has_started {
        format!(
            "etcd lists the member {name}, but the cluster has no Node {name}: kubeadm adds no member while an existing member \
             does not respond"
        )
    } else {
        format!(
            "etcd lists the member {name}, which has not started: another host is joining, or its join has failed"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        snapshot::Snapshot,
        testing::snapshot::{member, observed},
    };

    const NOW: &str = "2026-11-25T12:00:00Z";

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_join_needs_certificates() {
        let secret = "the new host reads the certificates of the control plane from Secret kube-system/kubeadm-certs, which ";
        for (uploaded, why) in [
            (
                UploadedCertificates::Absent,
                Some("does not exist. Kubernetes deletes it two hours after the upload"),
            ),
            (
                UploadedCertificates::Until(Some(time(NOW))),
                Some("expired at 2026-11-25T12:00:00Z"),
            ),
            (
                UploadedCertificates::Until(Some(time("2026-11-25T12:00:01Z"))),
                None,
            ),
            (UploadedCertificates::Until(None), None),
        ] {
            let refused = uploaded.refuse(time(NOW));
            assert_eq!(
                refused.as_ref().map(|refusal| refusal.why.clone()),
                why.map(|why| vec![format!("{secret}{why}")])
            );
            let remedies = refused.map(|refusal| refusal.remedies);
            assert!(
                remedies.is_none_or(|remedies| remedies == [UPLOAD]),
                "{uploaded:?}"
            );
        }
    }

    #[test]
    fn a_script_outlives_the_certificates() {
        let warning = "run the script before 2026-11-25T12:00:00Z, because Kubernetes then deletes the certificates of the control plane, \
            Secret kube-system/kubeadm-certs";
        for (until, script, expected) in [
            (Some(NOW), "2026-11-25T12:00:01Z", Some(warning)),
            (Some(NOW), NOW, None),
            (None, NOW, None),
        ] {
            let uploaded = UploadedCertificates::Until(until.map(time));
            assert_eq!(uploaded.warning(time(script)).as_deref(), expected, "{until:?}");
        }
    }

    #[test]
    fn a_control_plane_of_machines_gets_no_other_member() {
        let node = |annotations: serde_json::Value| {
            let node = json!({"metadata": {"name": "cp-1", "annotations": annotations}});
            LabelledNode::new(node.to_string()).unwrap()
        };
        let machine =
            json!({"cluster.x-k8s.io/machine": "edge-1", "cluster.x-k8s.io/cluster-namespace": "fleet"});
        assert_eq!(refuse_machines(&[node(json!({}))]), None);
        let refused = refuse_machines(&[node(json!({})), node(machine)]).unwrap();
        assert!(refused.why.concat().contains("such as Machine fleet/edge-1"));
        assert_eq!(
            refused.remedies,
            ["add a Machine in the management cluster: kubectl kcp scale NAME --replicas N -n fleet"]
        );
    }

    #[test]
    fn every_member_has_a_node() {
        let refused = |nodes: &[&str], has_started: bool| {
            let mut observed = observed();
            if !has_started {
                observed.each_list(|list| list.members.push(member(10, "")));
            }
            let nodes = nodes.iter().map(ToString::to_string).collect();
            refuse_silent_members(observed.survey(), &nodes)
                .unwrap()
                .map(|refusal| (refusal.why.concat(), refusal.remedies.concat()))
        };
        let all = ["node-m1", "node-m2", "node-m3", "worker"];
        assert_eq!(refused(&all, true), None);
        let remedy = |name: &str| {
            format!(
                "if its host is gone, or its join has failed, remove the member: kubectl kcp node remove {name} --etcd-ca FILE \
                 --etcd-certificate FILE --etcd-key FILE"
            )
        };
        assert_eq!(
            refused(&["node-m1", "node-m2"], true),
            Some((
                "etcd lists the member node-m3, but the cluster has no Node node-m3: kubeadm adds no member while an existing \
                 member does not respond"
                    .to_owned(),
                remedy("node-m3")
            ))
        );
        assert_eq!(
            refused(&all, false),
            Some((
                "etcd lists the member a, which has not started: another host is joining, or its join has failed".to_owned(),
                remedy("a")
            ))
        );
    }

    #[test]
    fn no_host_joins_beside_a_silent_member() {
        type Case = (&'static str, fn(&mut Snapshot), Option<&'static str>);
        let cases: &[Case] = &[
            ("a voter", |o| o.kill(3), Some("node-m3")),
            ("the leader", |o| o.kill(1), Some("node-m1")),
            (
                "a learner",
                |o| {
                    o.each_list(|list| list.members[2].is_learner = true);
                    o.kill(3);
                },
                Some("node-m3"),
            ),
            (
                "an expired certificate",
                |o| {
                    o.kill(3);
                    o.survey().queried[2].certificate_expired_at = Some(time(NOW));
                },
                Some("node-m3"),
            ),
            ("no leader", |o| o.status(3).leader = None, None),
            ("far behind", |o| o.status(3).raft_applied_index -= 5_001, None),
        ];
        let nodes = ["node-m1", "node-m2", "node-m3"].map(str::to_owned).into();
        for (name, change, silent) in cases {
            let mut observed = observed();
            change(&mut observed);
            let refused = refuse_silent_members(observed.survey(), &nodes).unwrap();
            let expected = silent.map(|silent| {
                (
                    format!(
                        "etcd member {silent} does not respond: cannot connect: connection refused: kubeadm adds no member while \
                         an existing member does not respond"
                    ),
                    format!(
                        "start the member, or, if its host is gone, remove the Node and the member: kubectl kcp node remove \
                         {silent} --etcd-ca FILE --etcd-certificate FILE --etcd-key FILE"
                    ),
                )
            });
            let refused = refused.map(|refusal| (refusal.why.concat(), refusal.remedies.concat()));
            assert_eq!(refused, expected, "{name}");
        }
    }

    #[test]
    fn a_member_that_was_not_queried_is_silent() {
        let nodes = ["node-m1", "node-m2", "node-m3"].map(str::to_owned).into();
        let mut observed = observed();
        observed.survey().queried.remove(2);
        let refused = refuse_silent_members(observed.survey(), &nodes).unwrap().unwrap();
        assert_eq!(
            refused.why,
            [
                "etcd member node-m3 was not queried, because no control plane node has its name: kubeadm adds no member while an \
                 existing member does not respond"
            ]
        );
    }

    #[test]
    fn unknown_members_are_no_members() {
        let mut observed = observed();
        for id in 1..=3 {
            observed.kill(id);
        }
        assert!(refuse_silent_members(observed.survey(), &BTreeSet::new()).is_err());
    }
}
