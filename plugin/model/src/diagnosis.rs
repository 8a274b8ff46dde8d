//! All that is known about one Machine: the objects that it consists of, the steps by which it joins, its Node, etcd member and
//! static Pods, and the Events about them.
//!
//! - [`steps`]: the steps by which a Machine joins, and which of them is missing
//! - [`command`]: where to look next if the facts do not name the cause

pub mod command;
pub mod steps;

use jiff::Timestamp;
use kcp_api::{
    Condition, ConditionedObject, Machine, Object as _, Reference, kind::KUBEADM_CONFIG, names::label,
};
use serde::Serialize;

use crate::{
    checks::{
        actor::Actor,
        finding::{machine_object, node_object},
        machines::who_deletes,
    },
    inspection::inspect,
    join_times::{DEFAULT_JOIN_LIMIT, JoinLimit},
    rollout_events::{ReportedEvent, RolloutEvent},
    snapshot::{
        Deletion, EtcdMember, EtcdMembers, Failure, Reading, Snapshot, Workload,
        etcd::{Alarms, QueriedMember, hexadecimal},
        workload::{Component, Node, StaticPod},
    },
    staleness::{DELETION_LIMIT, age},
    timeline::{self, TimelineEntry},
    why::{Explanation, WhyState, explain_objects},
};
use command::NextCommand;
use steps::{Step, StepState};

/// What was read about a Machine.
#[derive(Clone, Debug)]
pub struct MachineRecords {
    pub machine: Machine,
    /// The owner, the bootstrap configuration and the infrastructure machine, as far as the Machine names them.
    pub related: Vec<RelatedObject>,
    /// The control plane of the Machine's Cluster.
    pub control_plane: Reading<Box<Snapshot>>,
    /// The Events about the Machine, its bootstrap configuration and its infrastructure machine.
    pub events: Reading<Vec<ReportedEvent>>,
    /// The Events about the Node and its static Pods. Not read if there is no Node, or if the workload cluster cannot be read.
    pub workload_events: Reading<Vec<ReportedEvent>>,
}

#[derive(Clone, Debug)]
pub struct RelatedObject {
    pub reference: Reference,
    /// `None` if the object does not exist.
    pub object: Reading<Option<ConditionedObject>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    pub state: WhyState,
    /// Who acts next. Absent if no action is needed, or if this is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// What the checks of `status` found about the Machine and its Node. Only for a Machine of a `KubeadmControlPlane`.
    #[serde(skip)]
    pub explanation: Explanation,
    /// The control plane of the Machine's Cluster. Absent if it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<String>,
    /// Whether the Machine belongs to a control plane.
    pub of_control_plane: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The address of the Machine's host. Absent if the infrastructure provider reports none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    /// What the deletion of the Machine waits for.
    pub deletion_waits_for: Vec<String>,
    /// The steps by which a Machine joins, in their order.
    pub steps: Vec<Step>,
    /// The owner, the Machine, its bootstrap configuration and its infrastructure machine.
    pub objects: Vec<ObjectReport>,
    /// Absent if the workload cluster has no Node of the Machine, or if it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeReport>,
    /// Absent if etcd lists no member of the Machine, or if it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberReport>,
    pub static_pods: Vec<PodReport>,
    /// When the first of the Machine's certificates expires, as Cluster API reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates_expire: Option<Timestamp>,
    /// The Events about the Machine, its other objects, its Node and its static Pods, oldest first.
    pub events: Vec<TimelineEntry>,
    /// What could not be read, one sentence each.
    pub unread: Vec<String>,
    /// Where to look next if these facts do not name the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_command: Option<NextCommand>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ObjectReport {
    /// The object, as `Kind/name`.
    pub object: String,
    /// Null if the object could not be read.
    pub exists: Option<bool>,
    /// The error that the controller of the object does not try to overcome. Absent if it reports none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    pub name: String,
    pub kubelet_version: String,
    /// Null if the kubelet does not report.
    pub ready: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_since: Option<Timestamp>,
    /// The conditions that report a problem.
    pub problems: Vec<Condition>,
    pub taints: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MemberReport {
    /// The id as etcdctl prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The name of the member; empty until it starts.
    pub name: String,
    pub learner: bool,
    pub leader: bool,
    /// Why the member is unhealthy. Absent if it is healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarm: Option<String>,
    /// When its serving certificate expires. Absent if this is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_expires: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// The name of the component, such as `kube-apiserver`.
    pub component: &'static str,
    pub phase: String,
    pub ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_since: Option<Timestamp>,
    pub restarts: u32,
    /// Why a container waits or has ended. Absent if all run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How a container last ended before it was restarted. Absent if no container was restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
}

/// The facts from which the parts of a diagnosis are made.
#[derive(Clone, Copy)]
struct Facts<'r> {
    records: &'r MachineRecords,
    machine: &'r Machine,
    /// `None` if the control plane could not be read.
    observed: Option<&'r Snapshot>,
    of_control_plane: bool,
    /// The name of the Node. `None` if no Node is known.
    node: Option<&'r str>,
}

/// Puts together what is known about a Machine.
pub fn diagnose(records: &MachineRecords, now: Timestamp) -> Diagnosis {
    let facts = Facts::new(records);
    let machine = facts.machine;
    let steps = steps::steps(&facts);
    let explanation = facts.explain(now);
    let unread = facts.unread();
    let missing = steps.iter().find(|step| step.state != StepState::Done);
    let missing = missing.filter(|_| !machine.is_deleting());
    let state = match explanation.state {
        WhyState::NothingToDo => facts.state_of_steps(missing, now),
        state => state,
    };
    let state = match state {
        WhyState::NothingToDo | WhyState::Working if !unread.is_empty() => WhyState::Unknown,
        state => state,
    };
    let acts = matches!(state, WhyState::Working | WhyState::PersonNeeded);
    let of_step = || {
        if machine.is_deleting() {
            Some(who_deletes(machine))
        } else {
            missing.and_then(|step| step.actor)
        }
    };
    let deletion = Deletion::from_machine(machine);
    Diagnosis {
        state,
        actor: explanation.actor.or_else(of_step).filter(|_| acts),
        control_plane: facts
            .observed
            .map(|observed| observed.control_plane.name().to_owned()),
        of_control_plane: facts.of_control_plane,
        version: machine.spec.version.clone(),
        phase: machine.status.phase.clone(),
        host_address: machine.status.host_address.clone(),
        creation_timestamp: machine.creation_timestamp(),
        deletion_timestamp: machine.deletion_timestamp(),
        deletion_waits_for: deletion.map_or_else(Vec::new, |deletion| deletion.waits_for),
        objects: facts.objects(),
        node: facts.node_object().map(NodeReport::new),
        member: facts.member_report(),
        static_pods: facts.static_pods().map(PodReport::new).collect(),
        certificates_expire: machine.status.certificates_expiry_date,
        events: facts.events(),
        next_command: command::next_command(&facts, missing),
        explanation,
        steps,
        unread,
    }
}

impl<'r> Facts<'r> {
    fn new(records: &'r MachineRecords) -> Self {
        let observed = records.control_plane.value().map(AsRef::as_ref);
        // The control plane's list of Machines was read later.
        let own = observed.and_then(|observed: &Snapshot| {
            let mut machines = observed.machines.iter();
            machines.find(|machine| machine.name() == records.machine.name())
        });
        let machine = own.unwrap_or(&records.machine);
        let node = observed.map_or_else(|| machine.node(), |observed| observed.node_of(machine));
        Self {
            records,
            machine,
            observed,
            of_control_plane: machine.label(label::CONTROL_PLANE).is_some()
                || machine.control_plane().is_some(),
            node,
        }
    }

    /// What the checks found about the Machine and its Node, without hints at this diagnosis itself.
    fn explain(self, now: Timestamp) -> Explanation {
        let Some(observed) = self.observed.filter(|_| self.of_control_plane) else {
            return Explanation::NOTHING;
        };
        let objects = self.node.map(node_object).into_iter();
        let objects: Vec<String> = objects.chain([machine_object(self.machine.name())]).collect();
        let inspection = inspect(observed, now);
        let mut explanation = explain_objects(observed, &inspection, &objects, now);
        for cause in explanation.cause.iter_mut().chain(&mut explanation.other_causes) {
            cause.hint = cause.hint.take().and_then(|hint| without_itself(&hint));
        }
        explanation
    }

    /// The state of a Machine about which no check found anything, as for a worker.
    fn state_of_steps(self, missing: Option<&Step>, now: Timestamp) -> WhyState {
        let limit = match self.observed.filter(|_| self.of_control_plane) {
            Some(observed) => JoinLimit::of(observed).limit,
            None => DEFAULT_JOIN_LIMIT,
        };
        let (since, limit) = match (self.machine.deletion_timestamp(), missing) {
            (Some(since), _) => (Some(since), DELETION_LIMIT),
            (None, None) => return WhyState::NothingToDo,
            (None, Some(step)) if step.state == StepState::Unknown => return WhyState::Unknown,
            (None, Some(_)) => (self.machine.creation_timestamp(), limit),
        };
        if since.is_some_and(|since| age(since, now) > limit) {
            WhyState::PersonNeeded
        } else {
            WhyState::Working
        }
    }

    fn workload(self) -> Reading<&'r Workload> {
        let control_plane = self.records.control_plane.as_ref();
        control_plane.and_then(|observed| observed.workload.as_ref())
    }

    fn nodes(self) -> Reading<&'r Vec<Node>> {
        self.workload().and_then(|workload| workload.nodes.as_ref())
    }

    fn pods(self) -> Reading<&'r Vec<StaticPod>> {
        self.workload().and_then(|workload| workload.static_pods.as_ref())
    }

    fn node_object(self) -> Option<&'r Node> {
        let Reading::Read(nodes) = self.nodes() else {
            return None;
        };
        nodes.iter().find(|node| Some(node.name.as_str()) == self.node)
    }

    fn static_pods(self) -> impl Iterator<Item = &'r StaticPod> {
        let pods = match self.pods() {
            Reading::Read(pods) if self.of_control_plane => pods.as_slice(),
            _ => &[],
        };
        pods.iter()
            .filter(move |pod| Some(pod.node.as_str()) == self.node)
    }

    /// The components that run as static Pods, causes of a failure before its effects.
    fn components(self) -> impl Iterator<Item = Component> {
        let external = self.observed.is_some_and(Snapshot::has_external_etcd);
        let components = [
            Component::Etcd,
            Component::ApiServer,
            Component::ControllerManager,
            Component::Scheduler,
        ];
        let is_there = move |component: &Component| !external || *component != Component::Etcd;
        components.into_iter().filter(is_there)
    }

    fn static_pod(self, component: Component) -> Option<&'r StaticPod> {
        self.static_pods().find(|pod| pod.component == component)
    }

    /// The etcd member of the Machine. While only this Machine has no Node, it is the member that joins.
    fn member(self) -> Option<EtcdMember> {
        let observed = self.observed.filter(|_| self.of_control_plane)?;
        let EtcdMembers::Read(members) = observed.members() else {
            return None;
        };
        let without_node = observed.machines.iter().filter(|machine| !machine.has_node());
        let is_alone = !self.machine.has_node() && without_node.count() == 1;
        let mut members = members.into_iter();
        match self.node {
            Some(node) => members.find(|member| member.name == node || (is_alone && member.is_joining)),
            None => members.find(|member| is_alone && member.is_joining),
        }
    }

    /// Whether kubeadm has created something on the host.
    fn has_host(self) -> bool {
        self.node.is_some() || self.member().is_some()
    }

    fn member_report(self) -> Option<MemberReport> {
        let member = self.member()?;
        let survey = self.observed?.etcd.value();
        let listed = survey.and_then(|survey| {
            let mut listed = survey.agreed_members()?.members.iter();
            listed.find(|listed| listed.name == member.name)
        });
        let mut queried = survey.into_iter().flat_map(|survey| &survey.queried);
        let queried = queried.find(|queried| queried.name == member.name);
        Some(MemberReport {
            id: listed.map(|listed| hexadecimal(listed.id)),
            learner: member.is_learner,
            leader: member.is_leader,
            fault: member.fault,
            alarm: member.alarm,
            certificate_expires: queried.and_then(QueriedMember::certificate_expires_at),
            name: member.name,
        })
    }

    fn objects(self) -> Vec<ObjectReport> {
        let mut objects: Vec<ObjectReport> = self.records.related.iter().map(ObjectReport::new).collect();
        let machine = ObjectReport {
            object: machine_object(self.machine.name()),
            exists: Some(true),
            failure_message: None,
            conditions: self.machine.status.conditions.clone(),
        };
        let owner = self.machine.controller().map(Reference::from);
        let mut related = self.records.related.iter();
        let has_owner = related
            .next()
            .is_some_and(|first| owner.as_ref() == Some(&first.reference));
        objects.insert(usize::from(has_owner), machine);
        objects
    }

    /// The bootstrap configuration of the Machine, if it is a `KubeadmConfig` that was read.
    fn kubeadm_config(self) -> Option<&'r ConditionedObject> {
        let mut related = self.records.related.iter();
        let config = related.find(|related| related.reference.kind == KUBEADM_CONFIG.kind)?;
        config.object.value()?.as_ref()
    }

    fn infrastructure(self) -> Option<&'r RelatedObject> {
        let reference = self.machine.spec.infrastructure_ref.as_ref()?;
        let mut related = self.records.related.iter();
        related.find(|related| related.reference == *reference)
    }

    fn events(self) -> Vec<TimelineEntry> {
        let MachineRecords {
            events,
            workload_events,
            ..
        } = self.records;
        let events = [events, workload_events].into_iter().filter_map(Reading::value);
        let mut entries: Vec<TimelineEntry> = events
            .flatten()
            .map(|event| TimelineEntry::of_event(&RolloutEvent::from(event.clone())))
            .collect();
        timeline::sort(&mut entries);
        entries
    }

    /// What could not be read. A failure that several sources share is listed once.
    fn unread(self) -> Vec<String> {
        let records = self.records;
        let related = records
            .related
            .iter()
            .filter_map(|related| related.object.failure());
        let alarms = self
            .observed
            .and_then(|observed| match &observed.etcd.value()?.alarms {
                Alarms::Failed(failure) => Some(failure),
                Alarms::Listed(_) | Alarms::FromStatus => None,
            });
        let observed = self.observed.filter(|_| self.of_control_plane);
        let etcd = observed.and_then(|observed| observed.etcd.failure());
        let failures = related
            .chain(records.control_plane.failure())
            .chain(alarms.filter(|_| self.of_control_plane))
            .cloned()
            .chain(failure_of(self.nodes()))
            .chain(failure_of(self.pods()).filter(|_| self.of_control_plane))
            .chain(etcd.cloned())
            .chain(
                [&records.events, &records.workload_events]
                    .into_iter()
                    .filter_map(Reading::failure)
                    .cloned(),
            );
        let mut unread: Vec<String> = Vec::new();
        for failure in failures {
            let text = failure.text();
            if !unread.contains(&text) {
                unread.push(text);
            }
        }
        unread
    }
}

fn failure_of<T>(reading: Reading<T>) -> Option<Failure> {
    match reading {
        Reading::Failed(failure) => Some(failure),
        _ => None,
    }
}

/// A hint without the clauses that lead to this diagnosis. `None` if no other is left.
fn without_itself(hint: &str) -> Option<String> {
    let clauses = hint
        .split("; ")
        .filter(|clause| !clause.contains(" machine diagnose "));
    let clauses: Vec<&str> = clauses.collect();
    (!clauses.is_empty()).then(|| clauses.join("; "))
}

impl ObjectReport {
    fn new(related: &RelatedObject) -> Self {
        let Reference { kind, name, .. } = &related.reference;
        let object = related.object.value().and_then(Option::as_ref);
        Self {
            object: format!("{kind}/{name}"),
            exists: related.object.value().map(Option::is_some),
            failure_message: object.and_then(|object| object.failure_message.clone()),
            conditions: object.map_or_else(Vec::new, |object| object.conditions.clone()),
        }
    }

    /// The conditions that report a problem or a change.
    pub fn notable_conditions(&self) -> impl Iterator<Item = &Condition> {
        self.conditions.iter().filter(|condition| is_notable(condition))
    }
}

/// The conditions of Cluster API's objects that are False in the normal state.
const NORMALLY_FALSE: [&str; 7] = [
    "Deleting",
    "Paused",
    "Remediating",
    "RollingOut",
    "ScalingDown",
    "ScalingUp",
    "Updating",
];

pub fn is_notable(condition: &Condition) -> bool {
    if NORMALLY_FALSE.contains(&condition.type_.as_str()) {
        !condition.is_false()
    } else {
        !condition.is_true()
    }
}

impl NodeReport {
    fn new(node: &Node) -> Self {
        Self {
            name: node.name.clone(),
            kubelet_version: node.kubelet_version.clone(),
            ready: node.ready,
            ready_since: node.ready_since,
            problems: node.problems.clone(),
            taints: node.taints.clone(),
        }
    }
}

impl PodReport {
    fn new(pod: &StaticPod) -> Self {
        Self {
            component: pod.component.as_str(),
            phase: pod.phase.clone(),
            ready: pod.ready,
            ready_since: pod.ready_since,
            restarts: pod.restarts,
            message: pod.message.clone(),
            last_exit: pod.last_exit.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
