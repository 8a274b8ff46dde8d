//! Asks etcd's members, each by itself.
//!
//! A question travels: [`members`] (whom to ask, and on which way) -> [`access`] (whom to trust, as whom to come) -> this
//! file -> [`failure`] (what an error means to somebody who reads a report).

pub mod access;
pub mod failure;
pub mod members;

use std::collections::BTreeMap;

use futures_util::future::{join_all, select_ok};
use kcp_etcd::{Connection, Error, Report, Step, Timeouts};

pub use crate::reads::etcd::{
    access::Access,
    failure::Failures,
    members::{Question, external, stacked},
};
use crate::workload::certificate_end;
use kcp_control_plane::snapshot::{
    EtcdSurvey, Failure, Reading,
    etcd::{Alarms, MemberResponse, QueriedMember},
};

/// Asks everybody at the same time. External members none of which can be reached are out of reach.
pub async fn survey(
    questions: Vec<Question>,
    access: &Access,
    failures: &Failures,
    timeouts: Timeouts,
) -> Reading<EtcdSurvey> {
    let endpoints: Vec<_> = questions
        .iter()
        .filter_map(|question| question.endpoint.as_ref().ok().cloned())
        .collect();
    let reports = kcp_etcd::survey(&endpoints, &access.tls, timeouts).await;
    if !failures.stacked && !reports.is_empty() && reports.iter().all(is_unreachable) {
        let mut asked = questions.into_iter().filter(|question| question.endpoint.is_ok());
        let first = asked.next().zip(reports.into_iter().next());
        if let Some((question, Err(error))) = first {
            return Reading::OutOfReach(failures.of(&question.name, error));
        }
        return Reading::OutOfReach(failure::of_all("no member can be reached"));
    }
    let alarms = alarms(reports.iter().flatten()).await;
    let mut reports = reports.into_iter();
    let asked = questions.into_iter().filter_map(|question| {
        let answer = match question.endpoint {
            Ok(_) => reports
                .next()?
                .map_err(|error| failures.of(&question.name, error)),
            Err(failure) => return Some(asked(question.name, question.machine, Err(failure))),
        };
        let answer = answer.map(|report| told(report, &question.name, failures));
        Some(asked(question.name, question.machine, answer))
    });
    Reading::Read(EtcdSurvey {
        stacked: failures.stacked,
        queried: asked.collect(),
        alarms,
        used_ca_key: access.used_ca_key,
        api_server_lacks_etcd: false,
    })
}

const fn asked(
    name: String,
    machine: Option<String>,
    response: Result<MemberResponse, Failure>,
) -> QueriedMember {
    QueriedMember {
        name,
        machine,
        response,
    }
}

fn told(report: Report, name: &str, failures: &Failures) -> MemberResponse {
    let server = report.connection.server();
    MemberResponse {
        status: report.status.map_err(|error| failures.of(name, error)),
        members: report.members.map_err(|error| failures.of(name, error)),
        has_matching_name: server.names_member,
        certificate_expires: server.certificate_not_after.map(certificate_end),
    }
}

const fn is_unreachable(report: &Result<Report, Error>) -> bool {
    matches!(
        report,
        Err(Error::Dial(_) | Error::Deadline { step: Step::Dial, .. })
    )
}

/// Alarms by agreement: of each etcd cluster that members belong to (there should be one), from whichever of those who
/// know a leader answers first. One who learned of the leader before it was lost does not answer.
async fn alarms(reports: impl Iterator<Item = &Report>) -> Alarms {
    let mut led: BTreeMap<u64, Vec<&Connection>> = BTreeMap::new();
    for report in reports {
        if let Ok(status) = &report.status
            && status.leader.is_some()
            && !status.is_learner
        {
            led.entry(status.cluster_id).or_default().push(&report.connection);
        }
    }
    if led.is_empty() {
        return Alarms::FromStatus;
    }
    let clusters = led.into_values().map(|connections| {
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
            Err(error) => return Alarms::Failed(failure::of_all(&error.to_string())),
        }
    }
    Alarms::Listed(listed)
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use kcp_etcd::{ClientCertificate, Dial, Dialing, Endpoint, Tls, Trust};

    use super::{Access, Failures, Question, Reading, external, survey};
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
        let mut questions = external(&["http://10.0.0.1:2379".to_owned()]);
        questions.push(Question {
            name: "10.0.0.2:2379".to_owned(),
            machine: None,
            endpoint: Ok(Endpoint::new(Refusing, ["10.0.0.2"])),
        });
        let trust = Trust::new(CERTIFICATE).expect("an authority");
        let access = Access {
            tls: Tls::new(trust, ClientCertificate::given(CERTIFICATE, KEY).expect("a pair")),
            used_ca_key: false,
        };
        let failures = Failures {
            stacked: false,
            authority: "edge-etcd".to_owned(),
            server: String::new(),
        };
        let timeouts = time_limits::for_etcd(Duration::from_secs(10));
        let survey = survey(questions, &access, &failures, timeouts).await;
        let Reading::OutOfReach(failure) = survey else {
            panic!("nobody can be reached: {survey:?}");
        };
        assert_eq!(failure.object, "etcd member 10.0.0.2:2379");
    }
}
