//! Control planes as they were read and judged, to print.

use kcp_etcd::{Alarm, AlarmKind, Member, Members, Status};

use crate::status::{
    health::Health,
    inspection::{Basis, Blocker, Checked, Finding, Inspection, Outcome, Permission, Preflight, Remediation},
    observed::{
        EtcdSurvey, Failure, Management, Observed, Reading, Workload,
        etcd::{Alarms, Answer, Asked},
        management::ClusterLink,
        workload::{Addon, Component, Node, StaticPod},
    },
};
use crate::{
    control_plane::{
        ConditionStatus::False,
        example::{condition, minutes_ago, set},
    },
    plan::{
        self,
        observed::Machine,
        quorum::Votes,
        rollout_reason::{Reason, Verdict},
    },
};

#[derive(Clone, Debug)]
pub(in crate::status) struct Example {
    pub(in crate::status) observed: Observed,
    pub(in crate::status) inspection: Inspection,
}

const MINUTES_PER_DAY: i64 = 24 * 60;

fn days_ahead(days: i64) -> jiff::Timestamp {
    minutes_ago(-days * MINUTES_PER_DAY)
}

/// Ids of members, as etcd makes them up.
fn id(number: u64) -> u64 {
    0x8e9e_05c5_2164_694d_u64.wrapping_mul(number * 2 + 1)
}

fn machine(name: &str, domain: Option<&str>, days: i64) -> Machine {
    let mut machine = plan::example::machine(name, domain.unwrap_or_default(), days * 24);
    let own = &mut machine.machine;
    own.failure_domain = domain.map(str::to_owned);
    own.namespace = "default".to_owned();
    own.node = Some(name.replace("edge-", "node-"));
    machine.certificates_expire = Some(days_ahead(365 - days));
    machine
}

fn node(machine: &Machine) -> Option<Node> {
    Some(Node {
        name: machine.machine.node.clone()?,
        kubelet_version: machine.machine.version.clone()?,
        ready: Some(true),
        has_control_plane_label: true,
        has_control_plane_taint: true,
        is_unreachable: false,
    })
}

fn workload(machines: &[Machine], components: &[Component]) -> Workload {
    let nodes: Vec<Node> = machines.iter().filter_map(node).collect();
    let count = i64::try_from(nodes.len()).expect("a small number");
    let pods = nodes.iter().flat_map(|node| {
        components.iter().map(|component| StaticPod {
            component: *component,
            node: node.name.clone(),
            phase: "Running".to_owned(),
            ready: true,
            deleting: false,
            message: None,
        })
    });
    let addon = |desired| {
        Reading::Read(Some(Addon {
            desired,
            ready: desired,
            image: None,
        }))
    };
    Workload {
        server: "https://edge.example.com:6443".to_owned(),
        certificate_expires: Reading::Read(days_ahead(353)),
        static_pods: Reading::Read(pods.collect()),
        nodes: Reading::Read(nodes),
        kube_proxy: addon(count),
        core_dns: addon(2),
        kubeadm_version: Reading::Read(Some("v1.34.1".to_owned())),
        leases: Reading::Read(Vec::new()),
    }
}

fn status(number: u64, leader: Option<u64>) -> Status {
    Status {
        cluster_id: id(100),
        member_id: id(number),
        version: "3.6.8".to_owned(),
        db_size: 21_000_000 + number * 1_100_000,
        db_size_in_use: 12_345_678,
        db_size_quota: Some(2 * 1024 * 1024 * 1024),
        leader,
        raft_index: 182_044 + number,
        raft_term: 4,
        raft_applied_index: 182_044 + number,
        errors: Vec::new(),
        is_learner: false,
    }
}

fn members(machines: &[Machine]) -> Members {
    let members = (0..).zip(machines).filter_map(|(number, machine)| {
        Some(Member {
            id: id(number),
            name: machine.machine.node.clone()?,
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner: false,
        })
    });
    Members {
        cluster_id: id(100),
        members: members.collect(),
    }
}

/// The first Machine's member leads.
fn survey(machines: &[Machine]) -> EtcdSurvey {
    let list = members(machines);
    let asked = (0..).zip(machines).filter_map(|(number, machine)| {
        Some(Asked {
            name: machine.machine.node.clone()?,
            machine: Some(machine.machine.name.clone()),
            answer: Ok(Answer {
                status: Ok(status(number, Some(id(0)))),
                members: Ok(list.clone()),
                is_named: true,
                certificate_expires: Some(days_ahead(353)),
            }),
        })
    });
    EtcdSurvey {
        stacked: true,
        asked: asked.collect(),
        alarms: Alarms::Listed(Vec::new()),
        used_ca_key: true,
        server_lacks_etcd: false,
    }
}

fn failure(object: &str, message: &str) -> Failure {
    Failure {
        object: object.to_owned(),
        message: message.to_owned(),
        hint: None,
        forbidden: None,
    }
}

const IDS: &[&str] = &[
    "workload-reachable",
    "etcd-reachable",
    "not-paused",
    "certificates-available",
    "etcd-quorum",
    "etcd-tolerance",
    "etcd-members-answer",
    "etcd-alarms",
    "etcd-learners",
    "etcd-leader",
    "api-servers-ready",
    "etcd-pods-ready",
    "machines-joined",
    "machines-up-to-date",
    "machine-certificates",
];

fn allowed(machines: &[Machine]) -> Preflight {
    let yes = || Permission {
        allowed: Some(true),
        blocked_by: Vec::new(),
    };
    let remediation = machines.iter().map(|machine| Remediation {
        machine: machine.machine.name.clone(),
        permission: yes(),
    });
    Preflight {
        scale_up: yes(),
        scale_down: yes(),
        rollout: yes(),
        remediation: remediation.collect(),
    }
}

fn blocked(blockers: &[(&'static str, &str)]) -> Permission {
    Permission {
        allowed: Some(false),
        blocked_by: blockers
            .iter()
            .map(|(check, object)| Blocker {
                check,
                objects: vec![(*object).to_owned()],
                message: "it does not hold".to_owned(),
            })
            .collect(),
    }
}

fn example(machines: Vec<Machine>) -> Example {
    let count = machines.len();
    let mut plan = plan::example::observed();
    let control_plane = &mut plan.control_plane;
    control_plane.name = "edge".to_owned();
    control_plane.namespace = "default".to_owned();
    control_plane.cluster = Some("edge".to_owned());
    let replicas = i64::try_from(count).expect("a small number");
    control_plane.desired_replicas = Some(replicas);
    control_plane.replicas = replicas;
    control_plane.ready_replicas = replicas;
    control_plane.available_replicas = replicas;
    control_plane.up_to_date_replicas = replicas;
    let up_to_date = machines.iter().map(|machine| Verdict {
        machine: machine.machine.name.clone(),
        ..Verdict::default()
    });
    let inspection = Inspection {
        health: Health::Healthy,
        basis: Basis::AllSources,
        checks: IDS
            .iter()
            .map(|id| Checked {
                id,
                outcome: Outcome::Pass,
                reason: None,
                findings: Vec::new(),
            })
            .collect(),
        votes: Some(Votes {
            voters: count,
            unhealthy: 0,
            starting: 0,
        }),
        up_to_date: up_to_date.collect(),
        preflight: allowed(&machines),
    };
    let workload = workload(&machines, &Component::ALL);
    let survey = survey(&machines);
    plan.machines = machines;
    Example {
        observed: Observed {
            management: Management {
                control_plane: plan,
                cluster: Reading::Read(ClusterLink {
                    name: "edge".to_owned(),
                    control_plane_kind: Some("KubeadmControlPlane".to_owned()),
                    control_plane_name: Some("edge".to_owned()),
                    endpoint: Some("edge.example.com:6443".to_owned()),
                }),
                unowned: Vec::new(),
                deletions: Vec::new(),
                health_checks: Reading::Read(Vec::new()),
                secrets: Reading::Read(std::collections::BTreeSet::new()),
                unread: Vec::new(),
            },
            workload: Reading::Read(workload),
            etcd: Reading::Read(survey),
        },
        inspection,
    }
}

fn three() -> Vec<Machine> {
    vec![
        machine("edge-5xk2p", Some("zone-a"), 12),
        machine("edge-b8v4q", Some("zone-b"), 12),
        machine("edge-tw7zn", Some("zone-c"), 12),
    ]
}

impl Example {
    fn find(&mut self, id: &str, outcome: Outcome, object: &str, message: &str, hint: Option<&str>) {
        let mut checks = self.inspection.checks.iter_mut();
        let checked = checks.find(|checked| checked.id == id).expect("a check");
        checked.outcome = checked.outcome.max(outcome);
        checked.findings.push(Finding {
            outcome,
            objects: vec![object.to_owned()],
            message: message.to_owned(),
            hint: hint.map(str::to_owned),
        });
    }

    fn unjudged(&mut self, outcome: Outcome, reason: &str, ids: &[&str]) {
        for checked in &mut self.inspection.checks {
            if ids.contains(&checked.id) {
                checked.outcome = outcome;
                checked.reason = Some(reason.to_owned());
            }
        }
    }

    fn survey(&mut self) -> &mut EtcdSurvey {
        match &mut self.observed.etcd {
            Reading::Read(survey) => survey,
            other => panic!("no survey: {other:?}"),
        }
    }

    fn workload(&mut self) -> &mut Workload {
        match &mut self.observed.workload {
            Reading::Read(workload) => workload,
            other => panic!("no workload: {other:?}"),
        }
    }

    /// The member of a Machine does not answer, nor does its node.
    fn kill(&mut self, index: usize) {
        let machine = &mut self.observed.management.control_plane.machines[index].machine;
        set(&mut machine.conditions, condition("Ready", False, ""));
        let node = machine.node.clone().expect("a node");
        self.observed
            .management
            .control_plane
            .control_plane
            .ready_replicas -= 1;
        self.survey().asked[index].answer = Err(failure(
            &format!("etcd member {node}"),
            "connection refused: nothing listens on port 2379 of the pod",
        ));
        let workload = self.workload();
        if let Reading::Read(nodes) = &mut workload.nodes {
            nodes[index].ready = None;
        }
        if let Reading::Read(pods) = &mut workload.static_pods {
            for pod in pods.iter_mut().filter(|pod| pod.node == node) {
                pod.ready = false;
            }
        }
    }
}

pub(in crate::status) fn healthy() -> Example {
    example(three())
}

/// Two of three are outdated, one new Machine is coming up as a learner.
pub(in crate::status) fn mid_rollout() -> Example {
    let mut machines = three();
    machines.push(machine("edge-new9c", Some("zone-a"), 0));
    machines[3].machine.created = Some(minutes_ago(1));
    set(&mut machines[3].machine.conditions, condition("Ready", False, ""));
    let mut example = example(machines);
    let plan = &mut example.observed.management.control_plane;
    plan.control_plane.desired_replicas = Some(3);
    plan.control_plane.ready_replicas = 3;
    plan.control_plane.up_to_date_replicas = 1;
    plan.control_plane.version = Some("v1.33.4".to_owned());
    let version = Reason::Version {
        machine: "v1.33.4".to_owned(),
        asked: "v1.34.1".to_owned(),
    };
    let fields = Reason::Config {
        fields: vec!["clusterConfiguration.apiServer.extraArgs[2].value".to_owned()],
    };
    for (machine, verdict) in plan
        .machines
        .iter_mut()
        .zip(&mut example.inspection.up_to_date)
        .take(3)
    {
        machine.machine.version = Some("v1.33.4".to_owned());
        verdict.reasons.push(version.clone());
    }
    example.inspection.up_to_date[0].reasons.push(fields);
    let survey = example.survey();
    if let Some(Asked {
        answer: Ok(answer), ..
    }) = survey.asked.last_mut()
    {
        answer.status.as_mut().expect("a status").is_learner = true;
        answer.members = Err(failure(
            "etcd member node-new9c",
            "a learner does not list the members",
        ));
    }
    if let Reading::Read(pods) = &mut example.workload().static_pods {
        pods.retain(|pod| pod.node != "node-new9c" || pod.component == Component::Etcd);
    }
    example.inspection.votes = Some(Votes {
        voters: 3,
        unhealthy: 0,
        starting: 1,
    });
    let blockers = [
        ("etcd-learners", "Machine/edge-new9c"),
        ("api-servers-ready", "Machine/edge-new9c"),
    ];
    example.inspection.preflight.scale_up = blocked(&blockers);
    example.inspection.preflight.scale_down = blocked(&blockers);
    example.inspection.preflight.rollout = blocked(&blockers);
    for remediation in &mut example.inspection.preflight.remediation {
        remediation.permission = blocked(&blockers[..1]);
    }
    example.find(
        "machines-up-to-date",
        Outcome::Info,
        "KubeadmControlPlane/edge",
        "rollout in progress, 1 of 3 Machines up to date",
        None,
    );
    example.find(
        "etcd-learners",
        Outcome::Info,
        "Machine/edge-new9c",
        "its etcd member is a learner, for 40s",
        None,
    );
    example
}

pub(in crate::status) fn member_dead() -> Example {
    let mut example = example(three());
    example.kill(1);
    let inspection = &mut example.inspection;
    inspection.health = Health::Degraded;
    inspection.votes = Some(Votes {
        voters: 3,
        unhealthy: 1,
        starting: 0,
    });
    let blockers = [
        ("etcd-members-answer", "Machine/edge-b8v4q"),
        ("api-servers-ready", "Pod/kube-apiserver-node-b8v4q"),
    ];
    inspection.preflight.scale_up = blocked(&blockers);
    inspection.preflight.scale_down = blocked(&blockers);
    inspection.preflight.rollout = blocked(&blockers);
    for remediation in &mut inspection.preflight.remediation {
        if remediation.machine != "edge-b8v4q" {
            remediation.permission = blocked(&[("etcd-quorum", "KubeadmControlPlane/edge")]);
        }
    }
    example.find(
        "etcd-tolerance",
        Outcome::Fail,
        "KubeadmControlPlane/edge",
        "no more etcd members may fail: 2 of 3 voters are healthy, 2 are needed",
        None,
    );
    example.find(
        "etcd-members-answer",
        Outcome::Fail,
        "Machine/edge-b8v4q",
        "etcd member node-b8v4q does not answer: connection refused: nothing listens on port 2379 of the pod",
        Some("see what became of it: kubectl describe machine edge-b8v4q -n default"),
    );
    example.find(
        "api-servers-ready",
        Outcome::Fail,
        "Pod/kube-apiserver-node-b8v4q",
        "not ready: CrashLoopBackOff",
        None,
    );
    example
}

pub(in crate::status) fn quorum_lost() -> Example {
    let mut example = member_dead();
    example.kill(2);
    let inspection = &mut example.inspection;
    inspection.health = Health::Blocked;
    inspection.votes = Some(Votes {
        voters: 3,
        unhealthy: 2,
        starting: 0,
    });
    let lost = blocked(&[("etcd-quorum", "KubeadmControlPlane/edge")]);
    inspection.preflight.scale_up = lost.clone();
    inspection.preflight.scale_down = lost.clone();
    inspection.preflight.rollout = lost.clone();
    for remediation in &mut inspection.preflight.remediation {
        remediation.permission = lost.clone();
    }
    let survey = example.survey();
    survey.alarms = Alarms::FromStatus;
    if let Ok(answer) = &mut survey.asked[0].answer {
        let status = answer.status.as_mut().expect("a status");
        status.leader = None;
        status.errors = vec![
            "etcdserver: no leader".to_owned(),
            format!("memberID:{} alarm:NOSPACE ", status.member_id),
        ];
    }
    example.find(
        "etcd-quorum",
        Outcome::Fail,
        "KubeadmControlPlane/edge",
        "etcd has no quorum: 1 of 3 voters is healthy, 2 are needed",
        Some("bring a member back first: the controller cannot"),
    );
    example
}

/// The workload cluster does not answer, and so neither does etcd.
pub(in crate::status) fn unreadable() -> Example {
    let mut example = example(three());
    let kubeconfig = failure(
        "Secret/edge-kubeconfig",
        "its server edge.example.com:6443 did not answer within 10s",
    );
    example.observed.workload = Reading::Failed(kubeconfig.clone());
    example.observed.etcd = Reading::Failed(kubeconfig);
    for machine in &mut example.observed.management.control_plane.machines {
        machine.certificates_expire = None;
    }
    let inspection = &mut example.inspection;
    inspection.health = Health::Unknown;
    inspection.votes = None;
    let unknown = Permission {
        allowed: None,
        blocked_by: vec![Blocker {
            check: "etcd-reachable",
            objects: vec!["Secret/edge-kubeconfig".to_owned()],
            message: "did not answer".to_owned(),
        }],
    };
    inspection.preflight = Preflight {
        scale_up: unknown.clone(),
        scale_down: unknown.clone(),
        rollout: unknown,
        remediation: Vec::new(),
    };
    example.find(
        "workload-reachable",
        Outcome::Unknown,
        "Secret/edge-kubeconfig",
        "its server edge.example.com:6443 did not answer within 10s",
        Some("leave it out with: kubectl kcp status edge -n default --no-workload"),
    );
    example.unjudged(
        Outcome::Unknown,
        "the workload cluster could not be read",
        &["etcd-quorum", "etcd-alarms", "etcd-leader", "api-servers-ready"],
    );
    example
}

/// Asked directly, without the CA's key.
pub(in crate::status) fn external_etcd() -> Example {
    let mut example = example(three());
    let plan = &mut example.observed.management.control_plane;
    plan.control_plane.external_etcd = true;
    let components = [
        Component::ApiServer,
        Component::ControllerManager,
        Component::Scheduler,
    ];
    example.observed.workload = Reading::Read(workload(&plan.machines, &components));
    example.inspection.votes = None;
    let survey = example.survey();
    survey.stacked = false;
    survey.used_ca_key = false;
    survey.alarms = Alarms::Listed(vec![Alarm {
        member_id: id(2),
        kind: AlarmKind::NoSpace,
    }]);
    for (number, asked) in (1..).zip(&mut survey.asked) {
        asked.name = format!("10.0.0.{number}:2379");
        asked.machine = None;
        if let Ok(answer) = &mut asked.answer {
            answer.is_named = number != 1;
        }
    }
    example.inspection.health = Health::Degraded;
    example.find(
        "etcd-alarms",
        Outcome::Fail,
        "etcd member 10.0.0.3:2379",
        "alarm NOSPACE: etcd takes no writes",
        Some("free space, then disarm it: etcdctl alarm disarm"),
    );
    example
}

pub(in crate::status) fn no_etcd() -> Example {
    let mut example = example(three());
    example.observed.etcd = Reading::Excluded { flag: "--no-etcd" };
    example.inspection.basis = Basis::Conditions;
    example.inspection.votes = None;
    example.unjudged(
        Outcome::Skipped,
        "etcd was not asked (--no-etcd)",
        &["etcd-alarms", "etcd-learners", "etcd-leader"],
    );
    example
}

/// Names and messages that would take the terminal over.
pub(in crate::status) fn control_characters() -> Example {
    const EVIL: &str = "edge\u{1b}[2J\u{7}\r\nok";
    let mut machines = three();
    machines[0].machine.name = EVIL.to_owned();
    machines[0].machine.node = Some(EVIL.to_owned());
    machines[0].machine.failure_domain = Some("\u{202e}zone".to_owned());
    machines[0].machine.version = Some("v1\u{9b}31m".to_owned());
    let mut example = example(machines);
    example.observed.management.control_plane.control_plane.name = EVIL.to_owned();
    let failure = failure(EVIL, "\u{1b}]0;owned\u{7}");
    example.survey().asked[0].answer = Err(failure.clone());
    example.workload().kube_proxy = Reading::Failed(failure);
    example.workload().server = EVIL.to_owned();
    example.inspection.up_to_date[0].reasons.push(Reason::Reported {
        message: EVIL.to_owned(),
    });
    example.inspection.preflight.rollout = blocked(&[("etcd-members-answer", EVIL)]);
    example.find("etcd-members-answer", Outcome::Warn, EVIL, EVIL, Some(EVIL));
    example.unjudged(Outcome::Unknown, EVIL, &["etcd-alarms"]);
    example
}

pub(in crate::status) fn single() -> Example {
    let mut example = example(vec![machine("edge-5xk2p", None, 400)]);
    example.inspection.preflight.remediation[0].permission =
        blocked(&[("machines-joined", "KubeadmControlPlane/edge")]);
    example.inspection.health = Health::Degraded;
    example.find(
        "machine-certificates",
        Outcome::Fail,
        "Machine/edge-5xk2p",
        "its certificates expired 35d ago",
        Some("replace it: kubectl kcp rollout start edge -n default"),
    );
    example
}

/// Names as long as installers make them.
pub(in crate::status) fn long_names() -> Example {
    let name = |suffix: &str| format!("production-eu-central-1-payments-control-plane-{suffix}");
    let machine = |suffix: &str, domain: &str| {
        let mut machine = machine(&name(suffix), Some(domain), 30);
        machine.machine.node = Some(format!(
            "ip-10-0-12-{}.eu-central-1.compute.internal",
            suffix.len()
        ));
        machine
    };
    let mut example = example(vec![
        machine("x7k2p", "eu-central-1a"),
        machine("qq4d", "eu-central-1b"),
        machine("m9v6zz", "eu-central-1c"),
    ]);
    example.kill(1);
    let plan = &mut example.observed.management.control_plane;
    plan.control_plane.name = name("kcp");
    plan.control_plane.namespace = "payments-production-eu-central-1".to_owned();
    example.inspection.health = Health::Degraded;
    example.inspection.preflight.scale_down =
        blocked(&[("etcd-members-answer", &format!("Machine/{}", name("qq4d")))]);
    example.find(
        "etcd-members-answer",
        Outcome::Fail,
        &format!("Machine/{}", name("qq4d")),
        "etcd member ip-10-0-12-4.eu-central-1.compute.internal does not answer: connection refused",
        Some(&format!(
            "see what became of it: kubectl describe machine {} -n payments-production-eu-central-1",
            name("qq4d")
        )),
    );
    example
}

/// Every example, by name.
pub(in crate::status) fn all() -> Vec<(&'static str, Example)> {
    vec![
        ("healthy", healthy()),
        ("mid_rollout", mid_rollout()),
        ("member_dead", member_dead()),
        ("quorum_lost", quorum_lost()),
        ("unreadable", unreadable()),
        ("external_etcd", external_etcd()),
        ("no_etcd", no_etcd()),
        ("control_characters", control_characters()),
        ("single", single()),
        ("long_names", long_names()),
    ]
}
