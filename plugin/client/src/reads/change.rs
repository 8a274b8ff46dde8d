//! Reads the facts that decide whether a control plane may be changed.

use std::{
    future::ready,
    time::{Duration, Instant},
};

use kcp_api::{
    Object as _,
    kind::{CLUSTER, MACHINE_HEALTH_CHECK},
};
use kcp_control_plane::snapshot::{
    EtcdMembers, EtcdSurvey, Failure, Reading, Snapshot, Workload,
    change::{ChangeSnapshot, Part, UnreadPart},
};

use crate::{
    Error, ReadLimit,
    reader::Reader,
    reads::{
        Excluded, MachineByNode, WorkloadTarget,
        drain::read_drain_objects,
        failure, limit_per_control_plane,
        management::{health_checks, of_control_plane},
        planned::{self, Fetched, Reads, fetch},
        read_workload_and_etcd,
        secret::is_absent,
    },
};

/// The time limit for all reads before a change, taken together.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Reads all facts about a control plane. `limit` applies to all reads together. A part that cannot be read is recorded
/// with its error.
pub async fn read_everything(
    reader: &Reader<'_>,
    namespace: &str,
    name: &str,
    limit: Duration,
) -> Result<ChangeSnapshot, Error> {
    let (snapshot, _) = read_parts(reader, namespace, name, limit).await?;
    Ok(snapshot)
}

/// Like [`read_everything`], but fails if one of the parts cannot be read. If several parts cannot be read, the error is about
/// the first of them.
pub async fn read_everything_or_fail(
    reader: &Reader<'_>,
    namespace: &str,
    name: &str,
    limit: Duration,
) -> Result<ChangeSnapshot, Error> {
    let (snapshot, unread) = read_parts(reader, namespace, name, limit).await?;
    match unread.into_iter().next() {
        Some(unread) => Err(unread.error),
        None => Ok(snapshot),
    }
}

async fn read_parts(
    reader: &Reader<'_>,
    namespace: &str,
    name: &str,
    limit: Duration,
) -> Result<(ChangeSnapshot, Vec<planned::Unread>), Error> {
    let end = Instant::now() + limit;
    let mut fetched = Box::pin(fetch(reader, namespace, name, limit_per_control_plane(limit))).await?;
    let Snapshot {
        control_plane,
        machines,
        ..
    } = &fetched.observed;
    let Some(target) = WorkloadTarget::new(control_plane) else {
        return Ok(change_snapshot(fetched, Reading::NotYet, &Reading::NotYet));
    };
    let machines: MachineByNode = machines
        .iter()
        .filter_map(|machine| Some((machine.status.node_name.clone()?, machine.name().to_owned())))
        .collect();
    let excluded = Excluded::default();
    let nodes = machines.keys().cloned().collect();
    let workload = read_workload_and_etcd(reader.connection, &target, ready(machines), excluded, end);
    let drain = read_drain_objects(reader, &target, nodes, end);
    let reads = Reads {
        reader,
        namespace,
        limit: ReadLimit::per_read(limit),
    };
    let ((workload, _, etcd), drain, health_checks, templates) = tokio::join!(
        Box::pin(workload),
        Box::pin(drain),
        Box::pin(health_checks(&reads)),
        Box::pin(reads.templates_of_machines(&fetched.observed))
    );
    fetched.observed.drain = Box::new(drain);
    fetched.observed.templates.extend(templates);
    let health_checks = match &health_checks {
        Ok(all) => Reading::Read(all.as_slice()),
        Err(error) => Reading::Failed(failure::of_kind(&MACHINE_HEALTH_CHECK, error)),
    };
    fetched.observed.health_checks = of_control_plane(&fetched.observed, health_checks);
    // Read the control plane again. Querying etcd takes seconds, in which the controller may change the control plane, and the
    // write requires the resource version that was checked.
    let (object, control_plane) = reads.read_control_plane(name).await?;
    let at_first = std::mem::replace(&mut fetched.json, object);
    fetched.observed.control_plane = control_plane;
    let (snapshot, unread) = change_snapshot(fetched, workload, &etcd);
    Ok((
        ChangeSnapshot {
            json_at_start: at_first,
            ..snapshot
        },
        unread,
    ))
}

/// Reads only a control plane and its Cluster. `limit` applies to each read.
pub async fn read_control_plane_alone(
    reader: &Reader<'_>,
    namespace: &str,
    name: &str,
    limit: Duration,
) -> Result<ChangeSnapshot, Error> {
    let reads = Reads {
        reader,
        namespace,
        limit: ReadLimit::per_read(limit),
    };
    let (object, control_plane) = reads.read_control_plane(name).await?;
    let mut observed = Snapshot::from(control_plane);
    let mut unread = Vec::new();
    if let Some(cluster) = observed.control_plane.cluster().map(str::to_owned) {
        match reads.read_cluster(&cluster).await {
            Ok(cluster) => observed.cluster = Reading::Read(cluster),
            Err(error) => unread.push(unread_part(&planned::Unread {
                part: Part::Cluster,
                kind: CLUSTER.kind.to_owned(),
                error,
            })),
        }
    }
    Ok(ChangeSnapshot {
        json_at_start: object.clone(),
        json: object,
        observed,
        are_machines_read: false,
        unread,
        etcd_failure: None,
    })
}

fn change_snapshot(
    mut fetched: Fetched,
    workload: Reading<Workload>,
    etcd: &Reading<EtcdSurvey>,
) -> (ChangeSnapshot, Vec<planned::Unread>) {
    fetched.observed.workload = workload;
    fetched.observed.etcd = etcd.clone();
    let etcd_failure = match etcd {
        _ if fetched.observed.members() != EtcdMembers::Unread => None,
        Reading::Read(survey) => Some(no_member_responds(survey)),
        Reading::OutOfReach(failure) | Reading::Failed(failure) => Some(failure.clone()),
        Reading::Excluded { .. } | Reading::NotYet => None,
    };
    let cluster = fetched.observed.control_plane.cluster();
    let ca = cluster.map(|cluster| format!("{cluster}-etcd"));
    if let (Some(failure), Some(ca)) = (&etcd_failure, &ca)
        && is_absent(failure, ca)
    {
        fetched.observed.has_etcd_ca = Some(false);
    }
    let Fetched {
        json: object,
        observed,
        unread,
        ..
    } = fetched;
    let snapshot = ChangeSnapshot {
        json_at_start: object.clone(),
        json: object,
        observed,
        are_machines_read: true,
        unread: unread.iter().map(unread_part).collect(),
        etcd_failure,
    };
    (snapshot, unread)
}

fn unread_part(planned::Unread { part, kind, error }: &planned::Unread) -> UnreadPart {
    UnreadPart {
        part: *part,
        kind: kind.clone(),
        is_absent: matches!(error, Error::NotFound { .. }),
        why: error.to_string(),
    }
}

fn no_member_responds(survey: &EtcdSurvey) -> Failure {
    let failures = || {
        survey
            .queried
            .iter()
            .filter_map(|asked| asked.response.as_ref().err())
    };
    failures().next().cloned().unwrap_or_else(|| Failure {
        object: "etcd".to_owned(),
        message: "could not query any etcd member".to_owned(),
        hint: None,
        ..Failure::default()
    })
}

#[cfg(test)]
mod tests {
    use super::{change_snapshot, read_everything};
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
        time::Duration,
    };

    use http::Method;
    use kcp_api::Object as _;
    use kcp_etcd::{Member, Members};
    use kcp_rules::testing::case::{Base, V1BETA2};
    use serde_json::{Value, json};

    use super::{ChangeSnapshot, EtcdSurvey, Fetched, LIMIT, Reading};
    use crate::{Connection, Error, reader::Reader, testing::failure};
    use kcp_control_plane::{
        snapshot::{
            EtcdMembers, Failure,
            etcd::{Alarms, MemberResponse, QueriedMember},
        },
        testing::plan,
    };

    /// A server with a control plane whose version says how often it was read, and with other objects by their path.
    fn cluster(others: impl Fn(&str) -> Option<(u16, Value)> + Send + 'static) -> Connection {
        let reads = Arc::new(AtomicUsize::new(0));
        let group = |name: &str| {
            let version = json!({"groupVersion": format!("{name}/v1beta2"), "version": "v1beta2"});
            json!({"name": name, "versions": [version], "preferredVersion": version})
        };
        let names = [
            "cluster.x-k8s.io",
            "controlplane.cluster.x-k8s.io",
            "bootstrap.cluster.x-k8s.io",
            "infrastructure.cluster.x-k8s.io",
        ];
        let groups = json!({"groups": names.map(group)});
        Connection::canned(move |method, path| {
            assert_eq!(*method, Method::GET, "{path}");
            if path == "/apis" {
                return (200, groups.clone());
            }
            if let Some(answer) = others(path) {
                return answer;
            }
            if path.contains("/kubeadmcontrolplanes/") {
                let mut object = Base::ControlPlane(V1BETA2).object();
                let read = reads.fetch_add(1, Relaxed) + 1;
                object["metadata"]["resourceVersion"] = json!(read.to_string());
                object["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "c1"});
                object["status"] = json!({"initialization": {"controlPlaneInitialized": true}});
                return (200, object);
            }
            if path.ends_with("/machines") || path.ends_with("/kubeadmconfigs") {
                return (200, json!({"items": []}));
            }
            let (code, mut status) = failure(404, "NotFound", "no");
            status["details"] = json!({"name": "x"});
            (code, status)
        })
    }

    async fn read(
        others: impl Fn(&str) -> Option<(u16, Value)> + Send + 'static,
    ) -> Result<ChangeSnapshot, Error> {
        let connection = cluster(others);
        let reader = Reader::discover(&connection).await?;
        read_everything(&reader, "d", "example", LIMIT).await
    }

    #[tokio::test]
    async fn reports_what_cannot_be_read_and_has_the_latest_version() {
        let snapshot = read(|_| None).await.expect("read");
        assert_eq!(snapshot.control_plane().resource_version(), "2");
        assert_eq!(snapshot.observed.members(), EtcdMembers::Unread);
        assert_eq!(
            snapshot.warnings(),
            [
                "could not read the etcd members: cannot reach the etcd members, because the workload cluster is not \
                 accessible: Secret/c1-kubeconfig: not found in namespace default; using the Machines' conditions instead"
            ]
        );
        // The rules know that there is no Cluster.
        let view = snapshot.view();
        assert_eq!(view.cluster.as_ref(), Some(&None));
    }

    #[test]
    fn an_api_server_without_etcd_tells_that_the_quorum_is_lost() {
        let fetched = || Fetched {
            json: "{}".to_owned(),
            observed: plan::observed(),
            unread: Vec::new(),
        };
        let silent_members = |api_server_lacks_etcd| {
            let survey = EtcdSurvey {
                stacked: true,
                queried: Vec::new(),
                alarms: Alarms::FromStatus,
                used_ca_key: true,
                api_server_lacks_etcd,
            };
            let (snapshot, _) = change_snapshot(fetched(), Reading::NotYet, &Reading::Read(survey));
            let silent = ["node-m1", "node-m2", "node-m3"]
                .map(|node| snapshot.observed.members().fault(node).is_some());
            (silent, snapshot.etcd_failure.is_some())
        };
        assert_eq!(silent_members(true), ([true; 3], false));
        assert_eq!(silent_members(false), ([false; 3], true));
    }

    #[test]
    fn a_member_that_could_not_be_queried_is_not_healthy() {
        let member = |id| Member {
            id,
            name: format!("node-m{id}"),
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner: false,
        };
        let failure = || Failure {
            object: "etcd".to_owned(),
            message: "not asked".to_owned(),
            hint: None,
            ..Failure::default()
        };
        let answer = MemberResponse {
            status: Err(failure()),
            members: Ok(Members {
                cluster_id: 1,
                members: [1, 2].map(member).to_vec(),
            }),
            metrics: Err(failure()),
            has_matching_name: true,
            certificate_expires_at: None,
            latency: Duration::ZERO,
        };
        let survey = EtcdSurvey {
            stacked: true,
            queried: vec![QueriedMember {
                name: "node-m1".to_owned(),
                machine: None,
                response: Ok(answer),
                certificate_expired_at: None,
            }],
            alarms: Alarms::FromStatus,
            used_ca_key: true,
            api_server_lacks_etcd: false,
        };
        let fetched = Fetched {
            json: "{}".to_owned(),
            observed: plan::observed(),
            unread: Vec::new(),
        };
        let (snapshot, _) = change_snapshot(fetched, Reading::NotYet, &Reading::Read(survey));
        assert_eq!(
            snapshot.observed.members().fault("node-m2"),
            Some("was not queried, because no control plane node has its name")
        );
    }

    #[tokio::test]
    async fn what_one_may_not_read_is_left_to_the_server() {
        let snapshot = read(|path| {
            let denied = path.contains("/clusters/") || path.ends_with("/kubeadmconfigs");
            denied.then(|| failure(403, "Forbidden", "no"))
        });
        let snapshot = snapshot.await.expect("read");
        let warnings = snapshot.warnings();
        assert_eq!(
            warnings.get(1..),
            Some(
                &[
                    "could not read Cluster: cannot get clusters \"c1\" in namespace \"d\": forbidden; assuming that \
                     the Cluster is ready and has no failure domains"
                        .to_owned(),
                    "could not read KubeadmConfig: cannot list kubeadmconfigs in namespace \"d\": forbidden; \
                     assuming that all Machines match the spec"
                        .to_owned()
                ][..]
            )
        );
        assert_eq!(snapshot.view().cluster, None);
    }

    #[tokio::test]
    async fn without_machines_only_the_control_plane_is_read() {
        let denied = read(|path| {
            path.ends_with("/machines")
                .then(|| failure(403, "Forbidden", "no"))
        });
        assert!(matches!(denied.await, Err(Error::Forbidden { .. })));
    }
}
