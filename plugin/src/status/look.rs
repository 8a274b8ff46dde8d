//! One look at what was asked for: reads, then decides.

use std::time::Instant;

use jiff::Timestamp;

use super::{
    arguments::StatusArguments,
    inspect,
    observed::{EtcdSurvey, Management, Observed, Reading, Workload},
    read::{self, Excluded, Target, WITHOUT_NAME},
    report::{Inspected, Subject},
};
use crate::{
    arguments::ControlPlaneName,
    cluster::{Connection, Error},
    control_plane::Reader,
    terminal::Terminal,
};

/// Reads within the time that the arguments give, and decides.
///
/// # Errors
/// When the control plane, or the list of control planes, cannot be read.
pub(super) async fn look(
    connection: &Connection,
    arguments: &StatusArguments,
    terminal: &Terminal,
) -> Result<Subject, Error> {
    let end = Instant::now() + arguments.timeout;
    let reader = read::discover(connection, read::limit_of_list(arguments.timeout)).await?;
    let excluded = Excluded {
        workload: arguments.no_workload,
        etcd: arguments.no_etcd,
    };
    if let Some(name) = &arguments.name {
        let observed = one(&reader, name, excluded, end).await?;
        return Ok(Subject::One(Box::new(inspected(observed))));
    }
    let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
    let listed = read::list(&reader, namespace, read::limit_of_list(left(end))).await?;
    let observed = if arguments.deep {
        read::each(terminal, &listed, async |listed| {
            deep(&reader, listed, excluded, end).await
        })
        .await
    } else {
        listed.into_iter().map(shallow).collect()
    };
    Ok(Subject::Several {
        namespace: namespace.map(str::to_owned),
        inspected: observed.into_iter().map(inspected).collect(),
    })
}

fn left(end: Instant) -> std::time::Duration {
    end.saturating_duration_since(Instant::now())
}

fn inspected(observed: Observed) -> Inspected {
    let inspection = inspect(&observed, Timestamp::now());
    Inspected { observed, inspection }
}

async fn one(
    reader: &Reader<'_>,
    name: &ControlPlaneName,
    excluded: Excluded,
    end: Instant,
) -> Result<Observed, Error> {
    let namespace = &reader.connection.namespace;
    let limit = read::limit_of_one(left(end));
    let name = match name {
        ControlPlaneName::Own(name) => name,
        ControlPlaneName::OfCluster(cluster) => {
            &read::control_plane_of(reader, namespace, cluster, limit).await?
        }
    };
    let management = read::management(reader, namespace, name, limit).await?;
    Ok(beyond(reader, management, excluded, end).await)
}

/// A control plane of a list, each of its sources asked. One that is gone meanwhile stays as it was listed.
async fn deep(reader: &Reader<'_>, listed: &Management, excluded: Excluded, end: Instant) -> Observed {
    let control_plane = &listed.control_plane.control_plane;
    let limit = read::limit_of_one(left(end));
    let management = read::management(reader, &control_plane.namespace, &control_plane.name, limit).await;
    let management = management.unwrap_or_else(|_| listed.clone());
    beyond(reader, management, excluded, end).await
}

/// The workload cluster and etcd of a control plane.
async fn beyond(
    reader: &Reader<'_>,
    mut management: Management,
    excluded: Excluded,
    end: Instant,
) -> Observed {
    let (workload, etcd): (Reading<Workload>, Reading<EtcdSurvey>) =
        match Target::of(&management.control_plane) {
            Some(target) => {
                Box::pin(read::workload_and_etcd(reader.connection, &target, excluded, end)).await
            }
            None => (Reading::NotYet, Reading::NotYet),
        };
    if let Some(survey) = etcd.read() {
        management.control_plane.etcd = survey.members();
    }
    Observed {
        management,
        workload,
        etcd,
    }
}

fn shallow(management: Management) -> Observed {
    Observed {
        management,
        workload: Reading::Excluded { flag: WITHOUT_NAME },
        etcd: Reading::Excluded { flag: WITHOUT_NAME },
    }
}
