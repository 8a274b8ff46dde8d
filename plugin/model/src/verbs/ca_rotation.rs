//! The decision of `certificates rotate`: which phase a CA is in, and what the next step is.
//!
//! The decision depends only on what the clusters show now, so a command that was interrupted can run again.

use jiff::{SignedDuration, Timestamp};
use kcp_api::{Machine, Object as _, names::lease};

use crate::{
    certificates::Purpose,
    change::{
        confirmation::Question,
        decision::{ChangeEvent, Refusal, RefusedBy},
    },
    checks::{self, finding::CheckOutcome},
    duration::format_duration,
    snapshot::{
        ControllerLease, Reading, Snapshot,
        ca_rotation::{RotationPhase, RotationRecord},
        change::ChangeSnapshot,
    },
    wait::{WaitCondition, WaitProgress},
};

#[cfg(test)]
mod tests;

/// How long the control plane controller keeps its client certificate for etcd (`ClientCertCache` in
/// `controlplane/kubeadm/reconcilers/kubeadmcontrolplane/kubeadmcontrolplane_controller.go` of Cluster API v1.14), and how old the
/// token of a Pod may be before its kubelet renews it (`maxTTL` in `pkg/kubelet/token/token_manager.go` of Kubernetes v1.36).
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The Deployment of the control plane controller in Cluster API's manifests.
const CONTROLLER: &str = "capi-kubeadm-control-plane-controller-manager";

/// The page of the book about rotations.
const PAGE: &str = "the page Rotation of CAs in the kubectl-kcp book";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RotationOptions {
    /// Begin another rotation of a CA whose rotation is complete.
    pub again: bool,
    /// The user has restarted the control plane controller. This counts only if its Lease does not show whether it restarted.
    pub is_controller_restarted: bool,
    /// The user knows that no token of the old key is in use.
    pub are_tokens_renewed: bool,
}

/// A Secret with a CA or the keys of service accounts, without the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotatedSecret {
    pub purpose: Purpose,
    /// The name of the Secret.
    pub name: String,
    /// What the Secret contains. The error says why it cannot be used.
    pub content: Result<KeyPairContent, String>,
    /// The record on the Secret. `None` if there is none.
    pub record: Option<RotationRecord>,
}

/// The public keys in a Secret, as hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPairContent {
    /// The public key of each entry of `tls.crt`. Never empty.
    pub entries: Vec<String>,
    /// The public key that belongs to `tls.key`.
    pub signer: String,
    /// The public key of the private key with which the next phase signs. `None` if the Secret has no such key.
    pub next: Option<String>,
    /// The hash of `tls.crt`, as in [`RotationRecord::content`].
    pub hash: String,
}

/// A phase of one CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseOfSecret {
    pub purpose: Purpose,
    /// The name of the Secret.
    pub secret: String,
    pub phase: RotationPhase,
}

/// What the command does next. After the writes, every Machine is replaced in one rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RotationStep {
    /// The Secrets to change.
    pub writes: Vec<PhaseOfSecret>,
    /// The Secrets that have changed already, but not all Machines have their content.
    pub written: Vec<PhaseOfSecret>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotationDecision {
    Step(RotationStep),
    /// Every Machine has the last phase of each CA. The text says so.
    Complete(String),
    Refused(Refusal),
}

/// Where the rotation of one CA is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position<'s> {
    /// The Secret contains one key, and this command has not written it.
    NotRotated,
    At(&'s RotationRecord),
}

impl RotatedSecret {
    /// Where the rotation is, from the content of the Secret. Fails if the content does not match any phase that this command
    /// writes.
    fn position(&self) -> Result<Position<'_>, String> {
        let content = self.content.as_ref().map_err(Clone::clone)?;
        let recorded = |phase| {
            let record = self.record.as_ref()?;
            (record.phase == phase && record.content == content.hash).then_some(Position::At(record))
        };
        if content.entries.first() != Some(&content.signer) {
            return Err(
                "the first entry of tls.crt does not belong to tls.key, so no new Machine can join"
                    .to_owned(),
            );
        }
        let begun = self
            .record
            .as_ref()
            .filter(|record| record.phase != RotationPhase::TrustOnlyNew);
        let position = match (content.entries.as_slice(), begun) {
            ([_], Some(begun)) => {
                return Err(format!(
                    "tls.crt has one entry, but the rotation is in {}: another client has changed the Secret, and Machines may \
                     trust or sign with another key",
                    begun.phase.describe()
                ));
            }
            ([_], None) => recorded(RotationPhase::TrustOnlyNew).or(Some(Position::NotRotated)),
            ([_, new], _) if content.next.as_ref() == Some(new) => recorded(RotationPhase::TrustBoth),
            ([_, _], _) => recorded(RotationPhase::SignWithNew),
            _ => None,
        };
        position.ok_or_else(|| {
            format!(
                "tls.crt has {} entries, but this command has not written them",
                content.entries.len()
            )
        })
    }
}

/// Refuses the purposes that this command never rotates. `None` if it rotates all of them. The decision needs no Secret.
pub fn refusal_of_purposes(observed: &Snapshot, purposes: &[Purpose]) -> Option<Refusal> {
    let (mut why, mut remedies) = (Vec::new(), Vec::new());
    if purposes.contains(&Purpose::ClusterCa) {
        let reasons = [
            "the Kubernetes CA cannot be rotated in phases of one Secret and one rollout:",
            "kube-controller-manager exits if ca.crt contains two certificates, because it signs with this file \
             (kubernetes/kubeadm#1350)",
            "kubeadm writes only the first certificate to admin.conf, and joins through the control plane endpoint, where API \
             servers with a certificate of the old CA respond",
            "workers get the CA from ConfigMap kube-public/cluster-info, which only kubeadm init writes",
            "the kubeconfig of Cluster API contains only the first certificate, and Cluster API does not renew it when the CA \
             changes",
        ];
        why.extend(reasons.map(str::to_owned));
        remedies.push(format!(
            "renew its certificate with the same key, or create a new Cluster: see {PAGE}"
        ));
    }
    if purposes.contains(&Purpose::EtcdCa)
        && observed
            .control_plane
            .spec
            .kubeadm_config_spec
            .has_external_etcd()
    {
        why.push("etcd is external, so its administrators rotate its CA".to_owned());
    }
    (!why.is_empty()).then(|| Refusal {
        remedies,
        ..Refusal::new(RefusedBy::Command, why)
    })
}

/// Decides on the next step of the rotation of each CA. `lease` is that of the control plane controller.
pub fn decide(
    snapshot: &ChangeSnapshot,
    secrets: &[RotatedSecret],
    lease: &Reading<Option<ControllerLease>>,
    options: RotationOptions,
    now: Timestamp,
) -> RotationDecision {
    let observed = &snapshot.observed;
    let purposes: Vec<Purpose> = secrets.iter().map(|secret| secret.purpose).collect();
    let refusals = [
        refusal_of_purposes(observed, &purposes).unwrap_or_else(no_refusal),
        Refusal::while_paused(observed, observed.is_cluster_paused()),
        unknown(snapshot),
    ];
    if let Some(refusal) = refusals.into_iter().find(|refusal| !refusal.why.is_empty()) {
        return RotationDecision::Refused(refusal);
    }
    let mut refusal = no_refusal();
    let (mut step, mut complete) = (RotationStep::default(), Vec::new());
    for secret in secrets {
        match next_of(secret, observed, lease, options, now) {
            Ok(Next::Write(phase)) => step.writes.push(secret.in_phase(phase)),
            Ok(Next::RollOut(phase)) => step.written.push(secret.in_phase(phase)),
            Ok(Next::Nothing(since)) => complete.push(format!(
                "every Machine has trusted only the new key of the {} since {since}",
                secret.purpose.title()
            )),
            Err(obstacle) => {
                refusal.why.extend(
                    obstacle
                        .why
                        .iter()
                        .map(|why| format!("Secret {}: {why}", secret.name)),
                );
                refusal.remedies.extend(obstacle.remedies);
            }
        }
    }
    // While a rollout is not complete, only the reasons for that are reported.
    let unfinished = unfinished(observed, &step, now);
    if !unfinished.why.is_empty() {
        return RotationDecision::Refused(unfinished);
    }
    if !refusal.why.is_empty() {
        return RotationDecision::Refused(refusal);
    }
    if step.is_empty() {
        return RotationDecision::Complete(complete.join("; "));
    }
    let unhealthy = unhealthy(observed, now);
    if !unhealthy.why.is_empty() {
        return RotationDecision::Refused(unhealthy);
    }
    RotationDecision::Step(step)
}

const fn no_refusal() -> Refusal {
    Refusal::new(RefusedBy::Command, Vec::new())
}

/// What comes next for one CA.
enum Next {
    Write(RotationPhase),
    RollOut(RotationPhase),
    /// The rotation has been complete since this time.
    Nothing(Timestamp),
}

impl RotatedSecret {
    fn in_phase(&self, phase: RotationPhase) -> PhaseOfSecret {
        PhaseOfSecret {
            purpose: self.purpose,
            secret: self.name.clone(),
            phase,
        }
    }
}

fn next_of(
    secret: &RotatedSecret,
    observed: &Snapshot,
    lease: &Reading<Option<ControllerLease>>,
    options: RotationOptions,
    now: Timestamp,
) -> Result<Next, Refusal> {
    let position = secret.position().map_err(|why| Refusal {
        remedies: vec![format!("correct the Secret by hand: see {PAGE}")],
        ..Refusal::new(RefusedBy::Command, vec![why])
    })?;
    let record = match position {
        Position::NotRotated => return Ok(Next::Write(RotationPhase::TrustBoth)),
        Position::At(record) => record,
    };
    if !record.older_machines(&observed.machines).is_empty() {
        return Ok(Next::RollOut(record.phase));
    }
    match record.phase.next() {
        None if options.again => Ok(Next::Write(RotationPhase::TrustBoth)),
        None => Ok(Next::Nothing(record.since)),
        Some(next) => {
            if next == RotationPhase::TrustOnlyNew {
                may_drop_old(secret.purpose, record, observed, lease, options, now)?;
            }
            Ok(Next::Write(next))
        }
    }
}

/// Whether nothing needs the old key any more.
fn may_drop_old(
    purpose: Purpose,
    record: &RotationRecord,
    observed: &Snapshot,
    lease: &Reading<Option<ControllerLease>>,
    options: RotationOptions,
    now: Timestamp,
) -> Result<(), Refusal> {
    match purpose {
        Purpose::EtcdCa => controller_has_new_certificate(record, lease, options, now),
        Purpose::ServiceAccountKeys => {
            if options.are_tokens_renewed {
                return Ok(());
            }
            let left = DAY - now.duration_since(rolled_out_since(observed).unwrap_or(now));
            let end = if left.is_positive() {
                let left = format_duration(left.try_into().unwrap_or_default());
                format!("is over in {left}")
            } else {
                "is over".to_owned()
            };
            Err(Refusal {
                remedies: vec![
                    "wait until that day is over; create the Secrets of type kubernetes.io/service-account-token and the tokens of \
                     kubectl create token again; restart Pods that read their token only once; then add --tokens-renewed"
                        .to_owned(),
                ],
                ..Refusal::new(
                    RefusedBy::Command,
                    vec![format!(
                        "tokens that the old key signed may still be in use: the kubelets renew the tokens of Pods within a day of \
                         the last rollout, and that day {end}; nothing renews other tokens"
                    )],
                )
            })
        }
        _ => Ok(()),
    }
}

/// Whether the control plane controller connects to etcd with a certificate of the new CA: it keeps its certificate for a day,
/// unless it restarts.
fn controller_has_new_certificate(
    record: &RotationRecord,
    lease: &Reading<Option<ControllerLease>>,
    options: RotationOptions,
    now: Timestamp,
) -> Result<(), Refusal> {
    if now.duration_since(record.since) > DAY {
        return Ok(());
    }
    let since = record.since;
    let lease_name = lease::CONTROL_PLANE;
    let unknown = |why: &str| {
        let known = options.is_controller_restarted;
        (!known).then(|| {
            (
                format!(
                    "it is unknown whether the control plane controller has restarted since {since}: {why}"
                ),
                Some("if it has restarted, add --controller-restarted".to_owned()),
            )
        })
    };
    let obstacle = match lease {
        Reading::Read(Some(ControllerLease {
            acquired: Some(acquired),
            ..
        })) => (*acquired <= since).then(|| {
            (
                format!(
                    "the control plane controller has been the leader since {acquired}, and keeps a client certificate of the old \
                     CA for a day: it must restart after {since}"
                ),
                None,
            )
        }),
        Reading::Read(_) => unknown(&format!("Lease {lease_name} does not say when the controller became the leader")),
        Reading::Failed(failure) | Reading::OutOfReach(failure) => unknown(&failure.text()),
        Reading::Excluded { .. } | Reading::NotYet => unknown("its Lease was not read"),
    };
    let Some((why, remedy)) = obstacle else {
        return Ok(());
    };
    let namespace = lease::CONTROL_PLANE_NAMESPACE;
    let restart = format!("restart it: kubectl rollout restart deployment {CONTROLLER} -n {namespace}");
    Err(Refusal {
        remedies: [restart].into_iter().chain(remedy).collect(),
        ..Refusal::new(RefusedBy::Command, vec![why])
    })
}

/// When the last rollout ended, according to the condition `RollingOut`, but not before the newest Machine was created.
fn rolled_out_since(observed: &Snapshot) -> Option<Timestamp> {
    let condition = observed.control_plane.condition("RollingOut");
    let ended = condition.and_then(|condition| condition.last_transition_time);
    let created = observed
        .machines
        .iter()
        .filter_map(Machine::creation_timestamp)
        .max();
    ended.max(created)
}

/// The refusal because of what could not be read. If everything was read, the refusal has no reasons.
fn unknown(snapshot: &ChangeSnapshot) -> Refusal {
    Refusal::new(RefusedBy::Command, snapshot.warnings())
}

/// Why the Machines are not all ready and up to date.
fn unfinished(observed: &Snapshot, step: &RotationStep, now: Timestamp) -> Refusal {
    let control_plane = &observed.control_plane;
    let (name, namespace) = (control_plane.name(), control_plane.namespace());
    let what = match WaitCondition::RolledOut.progress(observed, None, now) {
        WaitProgress::Met => return no_refusal(),
        WaitProgress::WaitingFor(what) => what,
        WaitProgress::Impossible(why) => vec![why],
    };
    let phases = step.written.iter().map(PhaseOfSecret::describe);
    let phases: Vec<String> = phases.collect();
    let of_phases = if phases.is_empty() {
        String::new()
    } else {
        format!(" of {}", phases.join(", "))
    };
    let why = what
        .iter()
        .map(|line| format!("the rollout{of_phases} is not complete: {line}"))
        .collect();
    Refusal {
        remedies: vec![format!(
            "run the same command again once the rollout is complete; watch it with: kubectl kcp rollout status {name} -n \
             {namespace}"
        )],
        ..Refusal::new(RefusedBy::Command, why)
    }
}

/// The problems that `status` reports as failures.
fn unhealthy(observed: &Snapshot, now: Timestamp) -> Refusal {
    let control_plane = &observed.control_plane;
    let checked = checks::all().map(|check| check.run(observed, now));
    let failed = checked
        .flat_map(|checked| checked.findings)
        .filter(|finding| finding.outcome == CheckOutcome::Fail);
    let why: Vec<String> = failed
        .map(|finding| format!("{} {}", finding.objects.join(", "), finding.message))
        .collect();
    Refusal {
        remedies: vec![format!(
            "solve the problems first: kubectl kcp status {} -n {}",
            control_plane.name(),
            control_plane.namespace()
        )],
        ..Refusal::new(RefusedBy::Command, why)
    }
}

impl PhaseOfSecret {
    /// The phase as text, such as `the etcd CA: phase 1 of 3, trust both keys`.
    pub fn describe(&self) -> String {
        format!("the {}: {}", self.purpose.title(), self.phase.describe())
    }

    /// The Event that records the changed Secret.
    pub fn event(&self) -> ChangeEvent {
        ChangeEvent {
            reason: "CertificateAuthorityRotated",
            action: "RotateCertificateAuthority",
            note_verb: "CA rotation continued",
            detail: format!("with {}", self.describe()),
        }
    }
}

impl RotationStep {
    pub const fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.written.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = &PhaseOfSecret> {
        self.writes.iter().chain(&self.written)
    }

    /// What the user confirms.
    pub fn question(&self, control_plane: &str) -> Question {
        let writes: Vec<String> = self.writes.iter().map(PhaseOfSecret::describe).collect();
        let begin = if writes.is_empty() {
            String::new()
        } else {
            format!("begin {}, and ", writes.join(", "))
        };
        Question {
            goal: format!("{begin}replace all Machines of control plane {control_plane}"),
            details: self.all().map(PhaseOfSecret::describe).collect(),
        }
    }

    /// What the user does once the rollout is complete.
    pub fn next_actions(&self, control_plane: &str, cluster: &str, namespace: &str) -> Vec<String> {
        let is_last = self.all().all(|phase| phase.phase.next().is_none());
        let then = if is_last {
            "which then says that the rotation is complete"
        } else {
            "which begins the next phase"
        };
        let mut actions = vec![format!(
            "once the rollout is complete, run the same command again, {then}; watch the rollout: kubectl kcp rollout status \
             {control_plane} -n {namespace}"
        )];
        let all = self.all();
        actions.extend(all.filter_map(|phase| phase.action(cluster, namespace)));
        actions
    }
}

impl PhaseOfSecret {
    /// What the user does after the rollout of this phase, before the next one.
    fn action(&self, cluster: &str, namespace: &str) -> Option<String> {
        let controller_namespace = lease::CONTROL_PLANE_NAMESPACE;
        match (self.purpose, self.phase) {
            (Purpose::EtcdCa, RotationPhase::SignWithNew) => Some(format!(
                "before the next phase, give other clients of etcd, such as backup jobs and Prometheus, certificates of the new CA, and \
                 restart the control plane controller, which keeps a client certificate of the old CA for a \
                 day: kubectl rollout restart deployment {CONTROLLER} -n {controller_namespace}"
            )),
            (Purpose::ServiceAccountKeys, RotationPhase::SignWithNew) => Some(
                "before the next phase, create the Secrets of type kubernetes.io/service-account-token and the tokens of kubectl \
                 create token again; wait a day, because the kubelets renew the tokens of Pods within a day; restart Pods that \
                 read their token only once; then add --tokens-renewed"
                    .to_owned(),
            ),
            (Purpose::FrontProxyCa, RotationPhase::TrustBoth) => Some(
                "before the next phase, add the new CA to the file of each extension API server that has its own \
                 --requestheader-client-ca-file"
                    .to_owned(),
            ),
            (Purpose::FrontProxyCa, RotationPhase::TrustOnlyNew) => Some(format!(
                "once the rollout is complete, delete the ConfigMap from which extension API servers get the CA, because it still \
                 contains the old CA; the API servers create the ConfigMap again: kubectl kcp kubectl cluster/{cluster} -n \
                 {namespace} -- delete configmap extension-apiserver-authentication -n kube-system"
            )),
            _ => None,
        }
    }
}
