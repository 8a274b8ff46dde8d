//! The decision of `etcd disarm`: whether the alarm NOSPACE can be disarmed.
//!
//! Only NOSPACE is disarmed. CORRUPT means that the data of the members differs: without the alarm, etcd
//! would serve reads from any member, and add writes to the differing data. The remedy is a new member with
//! the right data, which also ends the alarm.

use kcp_api::Object as _;
use kcp_etcd::{Alarm, AlarmKind, Status};

use crate::{
    change::decision::Refusal,
    snapshot::{
        Snapshot,
        etcd::{Alarms, QueriedMember},
    },
    verbs::etcd::members::{ClusterMember, EtcdCluster, read_refusal, refusal},
};

/// etcd's default quota in bytes, for members that do not report their quota because they are older than etcd
/// 3.6 (etcd's `DefaultQuotaBytes`).
const DEFAULT_QUOTA_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// The free space in bytes that a database needs below its quota: one request of the maximum size (etcd's
/// `DefaultMaxRequestBytes`). etcd raises the alarm again when a request does not fit.
const REQUEST_BYTES: u64 = 1024 * 1024 * 3 / 2;

/// If at least this percentage of the quota is in use, a compaction comes first: a defragmentation alone
/// would free little space, and the database would soon be full again. `status` warns from the same
/// percentage on.
const COMPACTION_PERCENT: u64 = 80;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisarmPlan {
    /// The alarms to disarm, all of the kind NOSPACE.
    pub alarms: Vec<Alarm>,
    /// The names of the members that have raised them.
    pub members: Vec<String>,
    /// The member to which the calls are sent.
    pub member: QueriedMember,
}

/// Returns which alarms to disarm. `None` if no alarm is raised. Fails if another alarm is raised, or a database still has too
/// little space.
pub fn decide(observed: &Snapshot) -> Result<Option<DisarmPlan>, Refusal> {
    let plan = plan(observed)?;
    if plan.is_some() {
        refuse_without_space(observed, &EtcdCluster::new(observed)?)?;
    }
    Ok(plan)
}

/// Whether the alarms stay only because a database has too little space, so that another defragmentation may help.
pub fn needs_only_space(observed: &Snapshot) -> bool {
    let are_running = |cluster: EtcdCluster<'_>| {
        let mut started = cluster.members.iter().filter(|member| member.has_started);
        started.all(|member| member.fault().is_none())
    };
    plan(observed).is_ok() && decide(observed).is_err() && EtcdCluster::new(observed).is_ok_and(are_running)
}

/// Returns which alarms to disarm once every database has space. `None` if no alarm is raised. Fails if another alarm is raised.
pub fn plan(observed: &Snapshot) -> Result<Option<DisarmPlan>, Refusal> {
    let cluster = EtcdCluster::new(observed)?;
    cluster.refuse_corruption().map_err(|mut refusal| {
        refusal.why.push(
            "kubectl-kcp never disarms CORRUPT, because etcd would then serve and change data that differs between its \
             members".to_owned(),
        );
        refusal
    })?;
    let through = cluster.select_voter()?.queried.clone();
    let alarms = match &cluster.survey.alarms {
        Alarms::Listed(alarms) => alarms.clone(),
        Alarms::Failed(failure) => return Err(read_refusal(failure)),
        Alarms::FromStatus => return Err(refusal("no etcd member has a leader".to_owned())),
    };
    if let Some(other) = alarms.iter().find(|alarm| alarm.kind != AlarmKind::NoSpace) {
        return Err(refusal(format!(
            "etcd member {} has raised an alarm that kubectl-kcp does not know",
            cluster.name_of(other.member_id)
        )));
    }
    if alarms.is_empty() {
        return Ok(None);
    }
    Ok(Some(DisarmPlan {
        members: alarms
            .iter()
            .map(|alarm| cluster.name_of(alarm.member_id))
            .collect(),
        alarms,
        member: through,
    }))
}

/// Every member must have space, not only the one with the alarm: a write goes to all members.
fn refuse_without_space(observed: &Snapshot, cluster: &EtcdCluster<'_>) -> Result<(), Refusal> {
    let mut refusal = cluster.quorum_refusal(String::new());
    // The sizes of the databases of unhealthy members are unknown. A member that has not started has no database.
    let started = cluster.members.iter().filter(|member| member.has_started);
    refusal.why = started.filter_map(ClusterMember::fault).collect();
    let (mut needs_compaction, mut is_fragmented) = (false, false);
    for (member, healthy) in cluster.healthy_voters() {
        let Space { used, file, quota } = Space::of(healthy.status, observed);
        let limit = quota.saturating_sub(REQUEST_BYTES);
        let (size, what) = if used >= limit {
            (used, "in use")
        } else if file >= limit {
            (file, "on disk")
        } else {
            continue;
        };
        is_fragmented = true;
        needs_compaction |= used.saturating_mul(100) >= quota.saturating_mul(COMPACTION_PERCENT);
        refusal.why.push(format!(
            "the database of etcd member {} has {} MiB {what}, and its quota is {} MiB",
            member.name,
            mebibytes(size),
            mebibytes(quota)
        ));
    }
    if refusal.why.is_empty() {
        return Ok(());
    }
    let (name, namespace) = (observed.control_plane.name(), observed.control_plane.namespace());
    let defrag =
        format!("return the space to the file system: kubectl kcp etcd defrag {name} -n {namespace}");
    if needs_compaction {
        // Possibly the user has compacted already: a member counts deleted revisions as in use until its next write, and a full
        // etcd accepts no write.
        refusal.remedies.push(format!(
            "if the old revisions are not deleted yet, delete them: kubectl kcp etcd compact {name} -n {namespace}; then \
             {defrag}; if that is not enough, delete objects or raise the quota"
        ));
    } else if is_fragmented {
        refusal.remedies.push(defrag);
    }
    Err(refusal)
}

/// The sizes of a member's database, in bytes.
struct Space {
    used: u64,
    /// The size of the file, which etcd compares with the quota (`server/storage/quota.go`, `Available`).
    file: u64,
    quota: u64,
}

impl Space {
    fn of(status: &Status, observed: &Snapshot) -> Self {
        Self {
            used: status.db_size_in_use,
            file: status.db_size,
            quota: status
                .db_size_quota
                .or_else(|| desired_quota(observed))
                .unwrap_or(DEFAULT_QUOTA_BYTES),
        }
    }
}

/// The quota in the spec of the control plane. The flags of etcd are a map in v1beta1 and a list in v1beta2.
fn desired_quota(observed: &Snapshot) -> Option<u64> {
    const NAME: &str = "quota-backend-bytes";
    let config = &observed.control_plane.spec.kubeadm_config_spec.fields;
    let arguments = config.pointer("/clusterConfiguration/etcd/local/extraArgs")?;
    let value = arguments.get(NAME).or_else(|| {
        let mut listed = arguments.as_array()?.iter();
        let argument = listed.find(|argument| argument.get("name").is_some_and(|name| name == NAME))?;
        argument.get("value")
    });
    value?.as_str()?.parse().ok().filter(|quota| *quota > 0)
}

const fn mebibytes(bytes: u64) -> u64 {
    bytes >> 20
}

#[cfg(test)]
mod tests {
    use kcp_etcd::{Alarm, AlarmKind};
    use serde_json::json;

    use super::{decide, needs_only_space};
    use crate::{
        snapshot::{Snapshot, etcd::Alarms},
        testing::{plan::config, snapshot::observed},
    };

    const MEBIBYTE: u64 = 1024 * 1024;

    const ALARM: Alarm = Alarm {
        member_id: 3,
        kind: AlarmKind::NoSpace,
    };

    fn full() -> Snapshot {
        let mut observed = observed();
        observed.survey().alarms = Alarms::Listed(vec![ALARM]);
        observed
    }

    /// Why no alarm is disarmed, and what to do.
    type WhyAndRemedies = (Vec<String>, Vec<String>);

    /// The members whose alarms are disarmed, or why no alarm is disarmed and what to do.
    fn decided(observed: &Snapshot) -> Result<Option<Vec<String>>, WhyAndRemedies> {
        match decide(observed) {
            Ok(disarmament) => Ok(disarmament.map(|disarmament| {
                assert_eq!(disarmament.member.name, "node-m2");
                assert!(disarmament.alarms.iter().all(|alarm| *alarm == ALARM));
                disarmament.members
            })),
            Err(refusal) => Err((refusal.why, refusal.remedies)),
        }
    }

    #[test]
    fn an_alarm_without_a_reason_is_disarmed() {
        assert_eq!(decided(&observed()), Ok(None));
        assert_eq!(decided(&full()), Ok(Some(vec!["node-m3".to_owned()])));
        assert!(!needs_only_space(&full()));
        let mut of_a_removed_member = full();
        of_a_removed_member.each_list(|list| list.members.truncate(2));
        of_a_removed_member.survey().queried.truncate(2);
        assert_eq!(decided(&of_a_removed_member), Ok(Some(vec!["3".to_owned()])));
    }

    #[test]
    fn a_database_without_space_is_compacted_and_defragmented_first() {
        type Case = (
            &'static str,
            fn(&mut Snapshot),
            &'static str,
            Option<&'static str>,
        );
        const DEFRAG: &str = "return the space to the file system: kubectl kcp etcd defrag c1-cp -n d";
        const COMPACT: &str = "if the old revisions are not deleted yet, delete them: kubectl kcp etcd compact c1-cp -n d; \
                               then return the space to the file system: kubectl kcp etcd defrag c1-cp -n d; if that is \
                               not enough, delete objects or raise the quota";
        let cases: &[Case] = &[
            (
                "in use",
                |o| {
                    o.status(1).db_size_in_use = 2047 * MEBIBYTE;
                    o.status(1).db_size = 2048 * MEBIBYTE;
                },
                "the database of etcd member node-m1 has 2047 MiB in use, and its quota is 2048 MiB",
                Some(COMPACT),
            ),
            (
                "fragmented",
                |o| o.status(3).db_size = 2047 * MEBIBYTE,
                "the database of etcd member node-m3 has 2047 MiB on disk, and its quota is 2048 MiB",
                Some(DEFRAG),
            ),
            (
                "before etcd 3.6, with etcd's default",
                |o| {
                    o.status(3).db_size_quota = None;
                    o.status(3).db_size = 2047 * MEBIBYTE;
                },
                "the database of etcd member node-m3 has 2047 MiB on disk, and its quota is 2048 MiB",
                Some(DEFRAG),
            ),
            (
                "before etcd 3.6, with an own quota",
                |o| {
                    o.status(3).db_size_quota = None;
                    o.control_plane.spec.kubeadm_config_spec =
                        config(json!({"clusterConfiguration": {"etcd": {"local": {
                        "extraArgs": [{"name": "quota-backend-bytes", "value": "62914560"}]}}}}));
                },
                "the database of etcd member node-m3 has 60 MiB on disk, and its quota is 60 MiB",
                Some(COMPACT),
            ),
            (
                "a member of unknown size",
                |o| o.kill(3),
                "etcd member node-m3 does not respond: cannot connect: connection refused",
                None,
            ),
        ];
        for (name, change, why, remedy) in cases {
            let mut observed = full();
            change(&mut observed);
            let remedies = remedy.map(str::to_owned).into_iter().collect();
            assert_eq!(
                decided(&observed),
                Err((vec![(*why).to_owned()], remedies)),
                "{name}"
            );
            assert_eq!(needs_only_space(&observed), remedy.is_some(), "{name}");
        }
        let mut enough = full();
        enough.status(3).db_size_quota = None;
        enough.control_plane.spec.kubeadm_config_spec = config(
            json!({"clusterConfiguration": {"etcd": {"local": {"extraArgs": {"quota-backend-bytes": "67108864"}}}}}),
        );
        assert_eq!(decided(&enough), Ok(Some(vec!["node-m3".to_owned()])));
    }

    #[test]
    fn corrupt_data_is_never_disarmed() {
        for alarms in [
            vec![AlarmKind::Corrupt],
            vec![AlarmKind::NoSpace, AlarmKind::Corrupt],
        ] {
            let mut observed = observed();
            let alarms = alarms.into_iter().map(|kind| Alarm { member_id: 0, kind });
            observed.survey().alarms = Alarms::Listed(alarms.collect());
            let (why, _) = decided(&observed).expect_err("refused");
            assert!(!needs_only_space(&observed));
            assert_eq!(
                why,
                [
                    "etcd has raised the alarm CORRUPT: the data of its members differs",
                    "kubectl-kcp never disarms CORRUPT, because etcd would then serve and change data that differs \
                     between its members"
                ]
            );
        }
    }
}
