//! What a problem says: its message, and the hint how to end it.

use kcp_api::names::annotation;

use super::{CONTROL_PLANE_CONTROLLER, Problem, TopologyError};
use crate::{
    quorum::RefusedChange,
    snapshot::etcd::{CORRUPT, NOSPACE},
};

/// The field manager of `clusterctl move`: the API server takes it from the user agent that clusterctl sets
/// (`cmd/clusterctl/client/cluster/proxy.go`).
const CLUSTERCTL: &str = "clusterctl";

/// Names who paused the Cluster, as the end of a message. Empty if it is not known.
fn who_paused(paused_by: Option<&str>) -> String {
    paused_by.map_or_else(String::new, |manager| {
        format!("; field manager {manager} paused the Cluster")
    })
}

/// What to check before the Cluster is resumed, as the start of a hint. `clusterctl move` pauses the Cluster, creates it again
/// in the other management cluster, and resumes only that copy (`setClusterPause` in
/// `cmd/clusterctl/client/cluster/mover.go`). If it fails in between, both management clusters have the Cluster.
fn before_resuming(paused_by: Option<&str>) -> &'static str {
    if paused_by == Some(CLUSTERCTL) {
        "a failed clusterctl move leaves the Cluster paused: first make sure that no other management cluster has this Cluster, \
         because otherwise the controllers of both management clusters create and delete machines; then "
    } else {
        ""
    }
}

/// A hint that tells the user how to find out whether the controller runs. clusterctl sets this label on the
/// controller's pods.
pub const CONTROLLER_HINT: &str = "check that the controller is running: kubectl get pods -A -l cluster.x-k8s.io/provider=control-plane-kubeadm";

/// What the controller does while a control plane Machine of the Cluster does not belong to the control plane.
const FOREIGN: &str = "the controller does nothing until all control plane Machines of the Cluster belong to this control plane";

/// How to bring the members to a version from which an upgrade to etcd 3.6 is safe.
pub const SAFE_ETCD_HINT: &str = "set spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.imageTag to 3.5.26-0 or a later tag of 3.5, wait until the \
     rollout is complete, upgrade, and then remove the tag";

/// Says how another etcd member becomes the leader if the leader does not respond.
pub fn leader_hint(member: &str) -> String {
    format!(
        "repair the member on node {member}, or stop it so that the other members elect a new leader; stop it only if the others \
         have quorum: crictl stop $(crictl ps -q --name etcd)"
    )
}

/// Says who has raised an alarm of etcd, and what it means. `member` is `None` if etcd does not know which member is affected.
pub fn alarm_message(member: Option<&str>, alarm: &str) -> String {
    let who = member.map_or_else(|| "etcd".to_owned(), |member| format!("etcd member {member}"));
    let means = match (alarm, member) {
        (NOSPACE, _) => {
            ": a database has reached its quota, so etcd rejects writes until the alarm is disarmed"
        }
        (CORRUPT, None) => ": the data of its members differs",
        (CORRUPT, Some(_)) => ": its data differs from that of the other members",
        _ => "",
    };
    format!("{who} has raised the alarm {alarm}{means}")
}

/// How to end an alarm of etcd. `None` for an alarm that etcd does not document.
pub fn alarm_hint(alarm: &str, namespace: &str, name: &str) -> Option<String> {
    match alarm {
        NOSPACE => Some(format!(
            "delete old revisions: kubectl kcp etcd compact {name} -n {namespace}; then return the space to the file system: \
             kubectl kcp etcd defrag {name} -n {namespace}; then disarm the alarm: kubectl kcp etcd disarm {name} -n {namespace}"
        )),
        // etcd compares followers with the leader, but the leader's data may be the wrong one.
        CORRUPT => Some(format!(
            "save a snapshot: kubectl kcp etcd snapshot {name} -n {namespace} --output-file FILE; compare the data of all members: \
             kubectl kcp etcd check {name} -n {namespace}; then replace the Machine of the member that differs from the majority"
        )),
        _ => None,
    }
}

/// The command that shows all facts about a Machine.
pub fn diagnose_command(machine: &str, namespace: &str) -> String {
    format!("kubectl kcp machine diagnose {machine} -n {namespace}")
}

pub fn resume_machine_hint(machine: &str, namespace: &str) -> String {
    format!(
        "resume the Machine: kubectl annotate machine {machine} -n {namespace} {}-",
        annotation::PAUSED
    )
}

impl Problem {
    #[expect(clippy::too_many_lines, reason = "one arm for each problem")]
    pub fn message(&self) -> String {
        let text = |what: String, message: &Option<String>| match message.as_deref().unwrap_or_default() {
            "" => what,
            message => format!("{what}: {message}"),
        };
        match self {
            Self::Paused => "the control plane is paused: no controller reconciles it".to_owned(),
            Self::ClusterPaused { paused_by, .. } => format!(
                "the Cluster is paused: no controller reconciles the control plane{}",
                who_paused(paused_by.as_deref())
            ),
            Self::MixedOwnership { machine, owner } => {
                format!("Machine {machine} of the Cluster belongs to {owner}: {FOREIGN}")
            }
            Self::CannotAdopt { machine, why } => {
                format!("the controller cannot adopt Machine {machine}: {why}; {FOREIGN}")
            }
            Self::UnusableSecret { secret, why, .. } => format!("{secret}: {why}"),
            Self::WorkloadUnreachable { message } => format!(
                "the controller cannot connect to the workload cluster, and therefore does not create, delete or \
                 replace Machines: {message}"
            ),
            Self::NoKubeadmConfig { why } => format!(
                "ConfigMap kube-system/kubeadm-config of the workload cluster {why}: the controller does not start a \
                 rollout, and no Machine can join"
            ),
            Self::InfrastructureNotReady => "the Cluster's infrastructure is not ready".to_owned(),
            Self::NoEndpoint => "the Cluster has no control plane endpoint yet".to_owned(),
            Self::NoKubeconfig { ca } => format!(
                "the Secret with the workload cluster's kubeconfig does not exist, and the controller cannot create it, because \
                 Secret {ca} does not exist"
            ),
            Self::NoTemplate { kind, template, .. } => format!(
                "infrastructure template {kind} {template} does not exist: the controller neither creates nor deletes Machines \
                 without it"
            ),
            Self::TopologyVersion { version } => {
                format!(
                    "Cluster API's topology controller has not set the control plane's version to {version} yet"
                )
            }
            Self::TopologyFailed { message, cause } => match cause {
                TopologyError::Extension { name } => format!(
                    "runtime extension {name} fails, so Cluster API's topology controller changes nothing: {message}"
                ),
                TopologyError::LowerVersion { version, .. } => format!(
                    "the Cluster asks for a lower version than {version}, which the control plane has, so Cluster API's topology \
                     controller changes nothing: {message}"
                ),
                TopologyError::Other => format!(
                    "Cluster API's topology controller cannot apply the ClusterClass to the Cluster: {message}"
                ),
            },
            Self::LifecycleHook { hook, message } => text(
                format!(
                    "the runtime extension of hook {hook} must answer before Cluster API's topology controller continues"
                ),
                message,
            ),
            Self::UpgradeAnnotation { annotation, .. } => {
                format!(
                    "the owner of the Cluster's annotation {annotation} must remove it to let the upgrade begin"
                )
            }
            Self::WorkersHeld {
                workers,
                version,
                annotation,
                holder,
                ..
            } => {
                let version = version
                    .as_ref()
                    .map_or_else(String::new, |version| format!(" at {version}"));
                let holder = if workers.ends_with(&format!(" {holder}")) {
                    String::new()
                } else {
                    format!(" of {holder}, which comes earlier in spec.topology.workers")
                };
                format!("{workers} is held{version} by annotation {annotation}{holder}")
            }
            Self::WriteRefused { message, .. } => message.clone(),
            Self::CertificatesNotAvailable => {
                "no Machine can join: condition CertificatesAvailable is not True".to_owned()
            }
            Self::NoKey { secret } => format!("no Machine can join: Secret {secret} does not exist"),
            Self::BeingDeleted { machine, message } => {
                text(format!("Machine {machine} is being deleted"), message)
            }
            Self::NoNode { machine, message } => text(format!("Machine {machine} has no node yet"), message),
            Self::Condition {
                machine,
                condition,
                status,
                message,
            } => text(format!("{condition} of Machine {machine} is {status}"), message),
            Self::UpdatingInPlace { machine } => format!("Machine {machine} is being updated in place"),
            Self::Learner { machine } => {
                format!("the etcd member of Machine {machine} has not been promoted yet")
            }
            Self::Silent { member, machine, why } => {
                format!("etcd member {member} of Machine {machine} {why}")
            }
            Self::RefusedByEtcd { machine, refusal } => match refusal.change {
                RefusedChange::Join => format!("Machine {machine} cannot join: {refusal}"),
                RefusedChange::Removal => {
                    format!("the deletion of Machine {machine} cannot finish: {refusal}")
                }
            },
            Self::Alarm {
                member,
                machine,
                alarm,
            } => alarm_message(Some(&format!("{member} of Machine {machine}")), alarm),
            Self::NoMember { machine } => format!("Machine {machine} has no etcd member"),
            Self::MachinePaused { machine } => {
                format!("Machine {machine} is paused: no controller provisions, updates or deletes it")
            }
            Self::LeaderUnreachable {
                member,
                machine: None,
            } => format!(
                "etcd's leader {member} does not respond, so Cluster API can neither move the leadership nor remove a \
                 member"
            ),
            Self::LeaderUnreachable {
                member,
                machine: Some(machine),
            } => format!(
                "etcd's leader {member} does not respond, so Cluster API cannot move the leadership, and does not finish \
                 the deletion of Machine {machine}"
            ),
            Self::MemberWithoutMachine { member } if member.is_empty() => {
                "an etcd member has not started, and no Machine belongs to it".to_owned()
            }
            Self::MemberWithoutMachine { member } => {
                format!("no Machine has a Node with the name of etcd member {member}")
            }
            Self::MembersDisputed => {
                "the etcd members contradict each other, so it is unknown which members have the data"
                    .to_owned()
            }
            Self::AnotherInProgress => "another Machine is being remediated".to_owned(),
            Self::MalformedRemediation { machine: None } => format!(
                "annotation {} of the control plane cannot be decoded: every reconciliation fails before the \
                 controller remediates, rolls out or scales",
                annotation::REMEDIATION_IN_PROGRESS
            ),
            Self::MalformedRemediation {
                machine: Some(machine),
            } => format!(
                "annotation {} of Machine {machine}, which awaits remediation, cannot be decoded: every reconciliation \
                 fails before the controller remediates, rolls out or scales",
                annotation::REMEDIATION_FOR
            ),
            Self::TriedRecently { until } => {
                format!("the controller waits until {until} before it remediates again")
            }
            Self::TriedTooOften { retries, until } => format!(
                "the controller has retried the remediation {retries} times, which is the maximum; it remediates again after \
                 {until}"
            ),
            Self::AnotherComingUp { machine } => format!("Machine {machine} is starting"),
            Self::AnotherBeingDeleted { machine } => format!("Machine {machine} is being deleted"),
            Self::LastMachine => "the control plane has no other Machine".to_owned(),
            Self::NoOtherWorks => "no other Machine has healthy control plane components".to_owned(),
            Self::MembersUnknown => "the controller cannot read the etcd members".to_owned(),
            Self::ExternalEtcd { .. } => {
                "with an external etcd, Cluster API 1.13 and later remediate no Machine, because their list of etcd members is \
                 empty"
                    .to_owned()
            }
            Self::MembersUnreadByController { message } => format!(
                "the controller cannot read the etcd members, although they respond to this command: EtcdMemberHealthy of \
                 every Machine is Unknown: {message}"
            ),
            Self::ReplacementInProgress { machine, waits_for } => {
                format!("Machine {machine} is being replaced: {waits_for}")
            }
            Self::NoWay { why, .. } | Self::UnsafeEtcdUpgrade { why } => why.clone(),
            Self::Quorum { votes } => format!("etcd could lose quorum: after the change, {votes}"),
            Self::Blocked { condition, message } => text(
                format!("the controller reports in condition {condition} that it is blocked"),
                message,
            ),
            Self::ControllerStopped {
                generation,
                observed_generation,
            } => format!(
                "{CONTROL_PLANE_CONTROLLER} has not processed generation {generation} of the spec; the last processed generation is \
                 {observed_generation}"
            ),
            Self::NoProgress { condition, message } => text(
                format!("{condition} is True, but the controller neither creates nor deletes Machines"),
                message,
            ),
        }
    }

    /// How to end the problem. `None` if only waiting helps.
    #[expect(clippy::too_many_lines, reason = "one arm for each problem")]
    pub fn hint(&self, namespace: &str, name: &str) -> Option<String> {
        match self {
            Self::Paused => Some(format!(
                "resume the control plane: kubectl kcp rollout resume {name} -n {namespace}"
            )),
            Self::ClusterPaused { cluster, paused_by } => Some(format!(
                "{}resume the Cluster: kubectl patch cluster {cluster} -n {namespace} --type=merge -p '{{\"spec\":{{\"paused\":false}}}}'",
                before_resuming(paused_by.as_deref())
            )),
            Self::MixedOwnership { machine, .. } => Some(format!(
                "correct the labels or the owner of the Machine; to see them: kubectl get machine {machine} \
                 -n {namespace} -o yaml"
            )),
            Self::CannotAdopt { machine, .. } => Some(format!(
                "correct spec.bootstrap.configRef, the version or the labels of the Machine: kubectl edit machine \
                 {machine} -n {namespace}; then let the controller try again, because it does not watch Machines without an \
                 owner: kubectl kcp reconcile {name} -n {namespace}"
            )),
            Self::UnusableSecret { remedy, .. } => remedy.clone(),
            Self::WorkloadUnreachable { .. } => Some(format!(
                "check the endpoint of the workload cluster and the kubeconfig in its Secret: kubectl kcp status {name} -n \
                 {namespace}"
            )),
            Self::NoKubeadmConfig { .. } => Some(format!(
                "restore the ConfigMap from a backup, or upload the configuration: on a control plane node, \
                 run kubeadm init phase upload-config kubeadm --config FILE; then let the controller try again: kubectl kcp \
                 reconcile {name} -n {namespace}"
            )),
            Self::NoTemplate {
                kind,
                group,
                template,
            } => Some(format!(
                "create {kind} {template} in namespace {namespace}, then let the controller try again: kubectl kcp \
                 reconcile {name} -n {namespace}; or refer to another template, but then the controller replaces every \
                 Machine; to list the templates: kubectl get {}.{group} -n {namespace}",
                kind.to_lowercase()
            )),
            Self::NoKey { secret } => Some(format!(
                "restore Secret {secret} from a backup, because a new key would not match the running Machines; then let the \
                 controller try again: kubectl kcp reconcile {name} -n {namespace}; to list the Secrets: kubectl get secrets -n \
                 {namespace}"
            )),
            Self::Silent { machine, .. } => Some(format!(
                "repair the member, or replace its Machine: kubectl kcp machine replace {machine} -n {namespace}"
            )),
            Self::RefusedByEtcd { machine, refusal } => {
                let waiting = (refusal.change == RefusedChange::Removal).then_some(machine.as_str());
                Some(refusal.hint(waiting, namespace, name))
            }
            Self::Alarm { alarm, .. } => alarm_hint(alarm, namespace, name),
            Self::MachinePaused { machine } => Some(resume_machine_hint(machine, namespace)),
            Self::NoMember { machine } => Some(format!(
                "replace the Machine: kubectl kcp machine replace {machine} -n {namespace}"
            )),
            Self::TopologyVersion { .. } => {
                Some("to change the version, set spec.topology.version of the Cluster".to_owned())
            }
            Self::TopologyFailed { cause, .. } => Some(match cause {
                TopologyError::Extension { name: extension } => format!(
                    "the owner of the extension must repair it; to see where it runs: kubectl get extensionconfig {extension} -o \
                     yaml"
                ),
                TopologyError::LowerVersion { version, cluster } => format!(
                    "Cluster API admits {version} only together with an annotation, which you can remove afterwards: kubectl patch \
                     cluster {cluster} -n {namespace} --type=merge -p '{{\"metadata\":{{\"annotations\":{{\"{}\":\"\"}}}},\
                     \"spec\":{{\"topology\":{{\"version\":\"{version}\"}}}}}}'",
                    annotation::UNCHECKED_VERSION
                ),
                TopologyError::Other => format!(
                    "correct what the message names; to see the ClusterClass and its templates: kubectl get \
                     clusterclasses,kubeadmcontrolplanetemplates -n {namespace}"
                ),
            }),
            Self::LifecycleHook { .. } => {
                Some("to see which runtime extensions there are: kubectl get extensionconfigs".to_owned())
            }
            Self::UpgradeAnnotation { annotation, cluster } => Some(format!(
                "if nothing needs the annotation any more: kubectl annotate cluster {cluster} -n {namespace} {annotation}-"
            )),
            Self::WorkersHeld { holder, cluster, .. } => Some(format!(
                "to upgrade these workers, remove the annotation of {holder} from spec.topology.workers: kubectl edit cluster \
                 {cluster} -n {namespace}"
            )),
            Self::WriteRefused { remedy, .. } => Some(remedy.clone()),
            Self::MalformedRemediation { machine: None } => Some(format!(
                "remove the annotation: kubectl annotate kcp {name} -n {namespace} {}-",
                annotation::REMEDIATION_IN_PROGRESS
            )),
            Self::MalformedRemediation {
                machine: Some(machine),
            } => Some(format!(
                "remove the annotation: kubectl annotate machine {machine} -n {namespace} {}-",
                annotation::REMEDIATION_FOR
            )),
            Self::UnsafeEtcdUpgrade { .. } => Some(SAFE_ETCD_HINT.to_owned()),
            Self::MembersDisputed => Some(format!(
                "find out what each member reports: kubectl kcp status {name} -n {namespace}"
            )),
            Self::LeaderUnreachable { member, .. } => Some(leader_hint(member)),
            Self::ExternalEtcd { machine } => Some(format!(
                "replace the Machine yourself: kubectl kcp machine replace {machine} -n {namespace}"
            )),
            Self::MembersUnreadByController { .. } => Some(
                "check the controller's access to etcd: the key in the Secret with etcd's CA, the controller's network, and its \
                 permission to forward ports; the controller's log has the error: kubectl logs -n \
                 capi-kubeadm-control-plane-system deployment/capi-kubeadm-control-plane-controller-manager"
                    .to_owned(),
            ),
            Self::NoKubeconfig { ca } => Some(format!(
                "restore Secret {ca} from a backup, because a new key would not match the running Machines"
            )),
            Self::CertificatesNotAvailable => Some(format!(
                "see condition CertificatesAvailable: kubectl describe kcp {name} -n {namespace}"
            )),
            Self::ControllerStopped { .. } | Self::NoProgress { .. } => Some(CONTROLLER_HINT.to_owned()),
            _ => None,
        }
    }
}
