//! Queries each etcd member of a control plane separately.
//!
//! A query passes through [`members`] (which members to query, and how to reach them) -> [`access`] (CA and client
//! certificate) -> this file -> [`failure`] (errors with hints). [`MemberConnection`] connects to one member for other
//! calls.

pub mod access;
mod connect;
pub mod failure;
pub mod members;

use std::collections::BTreeMap;

use futures_util::future::{join_all, select_ok};
use jiff::Timestamp;
use kcp_etcd::{Connection, ConnectionStep, Error, HandshakeError, Report, Timeouts};

pub use crate::reads::etcd::{
    access::Access,
    connect::{MemberConnection, MemberError},
    failure::FailureContext,
    members::{MemberQuery, external_queries, object_name, stacked_queries},
};
use crate::workload::certificate_end;
use kcp_control_plane::snapshot::{
    EtcdSurvey, Failure, Reading,
    etcd::{Alarms, MemberResponse, QueriedMember, metrics::EtcdMetrics},
};

/// Queries all etcd members at the same time. Returns [`Reading::OutOfReach`] if etcd is external and no member is reachable.
pub async fn survey(
    queries: Vec<MemberQuery>,
    access: &Access,
    failures: &FailureContext,
    timeouts: Timeouts,
) -> Reading<EtcdSurvey> {
    let endpoints: Vec<_> = queries
        .iter()
        .filter_map(|query| query.endpoint.as_ref().ok().cloned())
        .collect();
    let reports = kcp_etcd::survey(&endpoints, &access.tls, timeouts).await;
    if !failures.stacked && !reports.is_empty() && reports.iter().all(is_unreachable) {
        let mut asked = queries.into_iter().filter(|query| query.endpoint.is_ok());
        let first = asked.next().zip(reports.into_iter().next());
        if let Some((query, Err(error))) = first {
            return Reading::OutOfReach(failures.describe(&query.name, error));
        }
        return Reading::OutOfReach(failure::etcd_failure("could not reach any etcd member"));
    }
    let alarms = alarms(reports.iter().flatten()).await;
    let is_foreign = |report: &Result<Report, Error>| {
        matches!(report, Err(Error::Handshake(HandshakeError::UnknownIssuer)))
    };
    // One of several members may have a wrong certificate. If all do, it is the CA that is wrong.
    let foreign_ca = (!reports.is_empty() && reports.iter().all(is_foreign))
        .then(|| failures.foreign_ca())
        .flatten();
    let mut reports = reports.into_iter();
    let asked = queries.into_iter().filter_map(|query| {
        let report = match query.endpoint {
            Ok(_) => reports.next()?,
            Err(failure) => return Some(member(query.name, query.machine, Err(failure), None)),
        };
        let expired = report.as_ref().err().and_then(Error::certificate_expired_at);
        let response = match report {
            Ok(report) => Ok(member_response(report, &query.name, failures)),
            Err(error) => Err(foreign_ca
                .clone()
                .unwrap_or_else(|| failures.describe(&query.name, error))),
        };
        Some(member(
            query.name,
            query.machine,
            response,
            expired.map(certificate_end),
        ))
    });
    Reading::Read(EtcdSurvey {
        stacked: failures.stacked,
        queried: asked.collect(),
        alarms,
        used_ca_key: access.used_ca_key,
        api_server_lacks_etcd: false,
    })
}

const fn member(
    name: String,
    machine: Option<String>,
    response: Result<MemberResponse, Failure>,
    certificate_expired: Option<Timestamp>,
) -> QueriedMember {
    QueriedMember {
        name,
        machine,
        response,
        certificate_expired_at: certificate_expired,
    }
}

fn member_response(report: Report, name: &str, failures: &FailureContext) -> MemberResponse {
    let server = report.connection.server();
    let describe = |error| failures.describe(name, error);
    let metrics = match report.metrics {
        Ok(text) => EtcdMetrics::parse(&text).map_err(|why| Failure {
            object: object_name(name),
            message: why.to_owned(),
            ..Failure::default()
        }),
        Err(error) => Err(describe(error)),
    };
    let mut status = report.status.map_err(describe);
    if let (Ok(status), Ok(metrics)) = (&mut status, &metrics) {
        // Before etcd 3.6, only the metrics have the quota.
        status.db_size_quota = status.db_size_quota.or(metrics.quota_bytes);
    }
    MemberResponse {
        status,
        members: report.members.map_err(describe),
        metrics,
        has_matching_name: server.matches_endpoint_name,
        certificate_expires_at: server.certificate_not_after.map(certificate_end),
        latency: report.latency,
    }
}

const fn is_unreachable(report: &Result<Report, Error>) -> bool {
    matches!(
        report,
        Err(Error::Dial(_)
            | Error::Deadline {
                step: ConnectionStep::Dial,
                ..
            })
    )
}

/// Reads the alarms of each etcd cluster (normally one) from the first member that responds and has a leader.
/// etcd reads alarms through raft, so a member without a leader does not respond.
async fn alarms(reports: impl Iterator<Item = &Report>) -> Alarms {
    let mut with_leader: BTreeMap<u64, Vec<&Connection>> = BTreeMap::new();
    for report in reports {
        if let Ok(status) = &report.status
            && status.leader.is_some()
            && !status.is_learner
        {
            with_leader
                .entry(status.cluster_id)
                .or_default()
                .push(&report.connection);
        }
    }
    if with_leader.is_empty() {
        return Alarms::FromStatus;
    }
    let clusters = with_leader.into_values().map(|connections| {
        select_ok(
            connections
                .into_iter()
                .map(|connection| Box::pin(connection.alarms())),
        )
    });
    let mut listed = Vec::new();
    for alarms in join_all(clusters).await {
        match alarms {
            Ok((alarms, _)) => listed.extend(alarms),
            Err(error) => return Alarms::Failed(failure::etcd_failure(&error.to_string())),
        }
    }
    Alarms::Listed(listed)
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use kcp_etcd::{ClientCertificate, Dial, Dialing, Endpoint, Tls, Trust};

    use super::{Access, FailureContext, MemberQuery, Reading, external_queries, survey};
    use crate::reads::time_limits;

    const CERTIFICATE: &[u8] = include_bytes!("../../../etcd/tests/keys/rsa-pkcs1.crt");
    const KEY: &[u8] = include_bytes!("../../../etcd/tests/keys/rsa-pkcs1.key");

    struct Refusing;

    impl Dial for Refusing {
        fn dial(&self) -> Dialing<'_> {
            Box::pin(async { Err(io::Error::from(io::ErrorKind::ConnectionRefused)) })
        }
    }

    #[tokio::test]
    async fn the_member_that_is_out_of_reach_is_named() {
        let mut queries = external_queries(&["http://10.0.0.1:2379".to_owned()]);
        queries.push(MemberQuery {
            name: "10.0.0.2:2379".to_owned(),
            machine: None,
            endpoint: Ok(Endpoint::new(Refusing, ["10.0.0.2"])),
        });
        let trust = Trust::new(CERTIFICATE).expect("an authority");
        let access = Access {
            tls: Tls::new(
                trust,
                ClientCertificate::from_pem(CERTIFICATE, KEY).expect("a pair"),
            ),
            used_ca_key: false,
        };
        let failures = FailureContext {
            stacked: false,
            ca_source: "Secret edge-etcd".to_owned(),
            server: String::new(),
            kubectl: "kubectl".to_owned(),
        };
        let timeouts = time_limits::for_etcd(Duration::from_secs(10));
        let survey = survey(queries, &access, &failures, timeouts).await;
        let Reading::OutOfReach(failure) = survey else {
            panic!("nobody can be reached: {survey:?}");
        };
        assert_eq!(failure.object, "etcd member 10.0.0.2:2379");
    }
}
