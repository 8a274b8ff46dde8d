//! etcd: whether it survives the loss of a member, and whether API servers find it after a restart.

use std::collections::BTreeSet;

use crate::{
    audit::{
        Assumptions, AuditCheck, Evidence, Facts,
        evidence::{either, require},
        facts::Node,
        images::without_port,
        static_pods::{PODS, control_plane_nodes, pod_of},
    },
    quorum::{self, Votes},
    snapshot::{EtcdMembers, Reading, workload::Component},
};

pub const CHECKS: &[AuditCheck] = &[
    AuditCheck {
        id: "etcd-members-even",
        requirement: "etcd has an odd number of voting members",
        remedy: "run 1, 3 or 5 members: kubectl kcp scale NAME --replicas 3; or remove a member that never started: kubectl kcp \
            status NAME",
        function: check_etcd_members_even,
    },
    AuditCheck {
        id: "etcd-loss-not-survived",
        requirement: "etcd keeps its quorum if one more member is lost",
        remedy: "run at least three members, and repair those that do not respond: kubectl kcp status NAME",
        function: check_etcd_loss_not_survived,
    },
    AuditCheck {
        id: "etcd-alarms-raised",
        requirement: "no etcd member has raised an alarm",
        remedy: "find out why the alarm was raised, and disarm it: kubectl kcp etcd disarm NAME",
        function: check_etcd_alarms,
    },
    AuditCheck {
        id: "api-server-etcd-endpoints",
        requirement: "each API server uses the etcd member of its own Node, or lists all members",
        remedy: "set --etcd-servers to https://127.0.0.1:2379, as kubeadm does, or to all members",
        function: check_api_server_etcd_endpoints,
    },
];

/// The members as they count for the quorum. In a cluster whose etcd cannot be queried, the static Pods of etcd count.
fn members(facts: &Facts) -> Result<(Vec<quorum::Member>, &'static str), Evidence> {
    if let EtcdMembers::Read(members) = &facts.etcd.members {
        return Ok((
            members.iter().map(|member| member.voter(None)).collect(),
            "members",
        ));
    }
    if facts.has_external_etcd() {
        let survey = require(&facts.etcd.survey, "the external etcd")?;
        let Some(list) = survey.agreed_members() else {
            return Err(Evidence::unknown_because(
                "no member of the external etcd reported its list of members",
            ));
        };
        let responds = |id| {
            survey
                .statuses()
                .any(|(_, status)| status.member_id == id && status.leader.is_some())
        };
        let members = list.members.iter().map(|member| quorum::Member {
            name: member.name.clone(),
            is_learner: member.is_learner,
            is_healthy: responds(member.id),
            ..quorum::Member::default()
        });
        return Ok((members.collect(), "members"));
    }
    let nodes = control_plane_nodes(facts)?;
    require(&facts.system_pods, PODS)?;
    let pods = nodes
        .iter()
        .filter_map(|node| pod_of(facts, Component::Etcd, node));
    let members: Vec<quorum::Member> = pods
        .map(|pod| quorum::Member {
            name: pod.node.clone(),
            is_healthy: pod.ready,
            ..quorum::Member::default()
        })
        .collect();
    if members.is_empty() {
        return Err(Evidence::unknown_because(
            "found neither members nor static Pods of etcd",
        ));
    }
    Ok((members, "static Pods of etcd"))
}

fn check_etcd_members_even(facts: &Facts, _: Assumptions) -> Evidence {
    either(members(facts).map(|(members, what)| {
        let votes = Votes::by_status(&members);
        let counted = format!("{} voting {what}", votes.voters);
        if votes.voters.is_multiple_of(2) {
            let mut evidence = Evidence::default();
            evidence.fail(format!(
                "{counted}, which tolerate no more failures than {} would",
                votes.voters.saturating_sub(1)
            ));
            return evidence;
        }
        Evidence::passing(counted)
    }))
}

fn check_etcd_loss_not_survived(facts: &Facts, _: Assumptions) -> Evidence {
    either(members(facts).map(|(members, what)| {
        let votes = Votes::by_status(&members);
        let healthy = votes.voters.saturating_sub(votes.unhealthy);
        let counted = format!(
            "{healthy} of {} voting {what} healthy, {} needed for quorum",
            votes.voters,
            votes.quorum()
        );
        let mut evidence = Evidence::default();
        if healthy > votes.quorum() {
            evidence.pass(counted);
        } else {
            evidence.fail(counted);
        }
        evidence
    }))
}

fn check_etcd_alarms(facts: &Facts, _: Assumptions) -> Evidence {
    either(etcd_alarms(facts))
}

fn etcd_alarms(facts: &Facts) -> Result<Evidence, Evidence> {
    if matches!(facts.etcd.survey, Reading::NotYet) {
        return Err(Evidence::unknown_because(
            "etcd was not queried, because no Secret has its CA; on a control plane Node, run: etcdctl alarm list",
        ));
    }
    let survey = require(&facts.etcd.survey, "etcd")?;
    let mut evidence = Evidence::default();
    if survey.responses().next().is_none() {
        evidence.unknown("no member responded");
    }
    for (member, alarm) in survey.alarms_by_member() {
        let name = survey
            .agreed_members()
            .and_then(|list| list.members.iter().find(|candidate| candidate.id == member))
            .map_or_else(|| format!("{member:x}"), |member| member.name.clone());
        evidence.fail(format!("member {name} has raised the alarm {alarm}"));
    }
    evidence.pass(format!("{} members report no alarm", survey.responses().count()));
    Ok(evidence)
}

fn check_api_server_etcd_endpoints(facts: &Facts, _: Assumptions) -> Evidence {
    either(api_server_etcd_endpoints(facts))
}

fn api_server_etcd_endpoints(facts: &Facts) -> Result<Evidence, Evidence> {
    let nodes = control_plane_nodes(facts)?;
    require(&facts.system_pods, PODS)?;
    let mut evidence = Evidence::default();
    for node in &nodes {
        let container = pod_of(facts, Component::ApiServer, node)
            .and_then(|pod| pod.container(Component::ApiServer.as_str()));
        let Some(servers) = container.and_then(|container| container.flag("--etcd-servers")) else {
            evidence.unknown(format!(
                "the API server of Node {} shows no flag --etcd-servers",
                node.name
            ));
            continue;
        };
        let hosts: BTreeSet<&str> = servers.split(',').map(host_of).collect();
        if facts.has_external_etcd() {
            match facts.etcd.survey.value().map(|survey| survey.queried.len()) {
                Some(known) if hosts.len() >= known => {
                    evidence.pass(format!("Node {}: {servers}", node.name));
                }
                Some(known) => evidence.fail(format!(
                    "--etcd-servers of the API server on Node {} lists {} of the {known} endpoints of the external etcd: {servers}",
                    node.name,
                    hosts.len()
                )),
                None => evidence.unknown("the members of the external etcd are unknown".to_owned()),
            }
        } else if hosts.iter().any(|host| is_own(node, host)) || lists_all(&nodes, &hosts) {
            evidence.pass(format!("Node {}: {servers}", node.name));
        } else {
            evidence.fail(format!(
                "--etcd-servers of the API server on Node {0} lists neither the etcd member on {0} nor all members: {servers}",
                node.name
            ));
        }
    }
    Ok(evidence)
}

/// The host in a URL, without the port.
fn host_of(url: &str) -> &str {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    without_port(authority.split('/').next().unwrap_or_default())
}

fn is_own(node: &Node, host: &str) -> bool {
    let is_loopback = host
        .parse::<std::net::IpAddr>()
        .map_or(host == "localhost", |address| address.is_loopback());
    is_loopback || node.name == host || node.addresses.iter().any(|address| address == host)
}

fn lists_all(nodes: &[&Node], hosts: &BTreeSet<&str>) -> bool {
    nodes.iter().all(|node| {
        hosts
            .iter()
            .any(|host| node.name == *host || node.addresses.iter().any(|address| address == host))
    })
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_etcd::{Alarm, AlarmKind};

    use crate::{
        audit::{
            Facts,
            tests::{Case, failed},
        },
        snapshot::{
            EtcdMembers, Reading,
            etcd::{Alarms, EtcdMember},
        },
    };

    /// A member that was added as a voter. It has no name until it starts.
    fn add_member(facts: &mut Facts) {
        let mut members = facts.members();
        members.push(EtcdMember {
            fault: Some("has not started".to_owned()),
            ..EtcdMember::default()
        });
        facts.etcd.members = EtcdMembers::Read(members);
    }

    pub(crate) const CASES: &[Case] = &[
        ("etcd-members-even", "healthy", |_| {}),
        ("etcd-members-even", "four", |facts| {
            let mut members = facts.members();
            members.push(members[0].clone());
            facts.etcd.members = EtcdMembers::Read(members);
        }),
        ("etcd-members-even", "a fourth that never started", add_member),
        ("etcd-members-even", "two Pods of a plain cluster", |facts| {
            facts.without_management();
            facts.pods().retain(|pod| pod.name != "etcd-n3");
        }),
        ("etcd-members-even", "neither members nor Pods", |facts| {
            facts.without_management();
            facts.pods().retain(|pod| !pod.name.starts_with("etcd-"));
        }),
        ("etcd-loss-not-survived", "healthy", |_| {}),
        ("etcd-loss-not-survived", "one member down", |facts| {
            let mut members = facts.members();
            members[1].fault = Some("does not respond".to_owned());
            facts.etcd.members = EtcdMembers::Read(members);
        }),
        (
            "etcd-loss-not-survived",
            "a fourth member that never started",
            add_member,
        ),
        ("etcd-loss-not-survived", "one member in all", |facts| {
            facts.etcd.members = EtcdMembers::Read(facts.members()[..1].to_vec());
        }),
        (
            "etcd-loss-not-survived",
            "three Pods of a plain cluster",
            |facts| {
                facts.without_management();
            },
        ),
        (
            "etcd-loss-not-survived",
            "an external etcd that was not read",
            |facts| {
                facts.use_external_etcd();
                facts.etcd.survey = failed("etcd");
            },
        ),
        ("etcd-alarms-raised", "healthy", |_| {}),
        ("etcd-alarms-raised", "out of space", |facts| {
            facts.survey().alarms = Alarms::Listed(vec![Alarm {
                member_id: 2,
                kind: AlarmKind::NoSpace,
            }]);
        }),
        ("etcd-alarms-raised", "a plain cluster", |facts| {
            facts.without_management();
        }),
        ("etcd-alarms-raised", "unread", |facts| {
            facts.etcd.survey = failed("etcd");
        }),
        ("api-server-etcd-endpoints", "healthy", |_| {}),
        ("api-server-etcd-endpoints", "all members", |facts| {
            facts.set_flag(
                "kube-apiserver-n1",
                "--etcd-servers",
                "https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379",
            );
        }),
        ("api-server-etcd-endpoints", "another member only", |facts| {
            facts.set_flag("kube-apiserver-n1", "--etcd-servers", "https://10.0.0.2:2379");
        }),
        ("api-server-etcd-endpoints", "flags are not shown", |facts| {
            facts.pod("kube-apiserver-n2").containers[0].command.clear();
        }),
        (
            "api-server-etcd-endpoints",
            "one of three external members",
            |facts| {
                facts.use_external_etcd();
                facts.set_flag("kube-apiserver-n1", "--etcd-servers", "https://e1:2379");
                facts.set_flag(
                    "kube-apiserver-n2",
                    "--etcd-servers",
                    "https://e1:2379,https://e2:2379,https://e3:2379",
                );
                facts.set_flag(
                    "kube-apiserver-n3",
                    "--etcd-servers",
                    "https://e1:2379,https://e2:2379,https://e3:2379",
                );
            },
        ),
        (
            "api-server-etcd-endpoints",
            "an external etcd that was not read",
            |facts| {
                facts.use_external_etcd();
                facts.etcd.survey = Reading::NotYet;
            },
        ),
    ];
}
