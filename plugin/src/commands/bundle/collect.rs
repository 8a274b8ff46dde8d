//! Reads the parts of a debug bundle, and removes what may be secret. A part that cannot be read does not hide the others.

use std::time::{Duration, Instant};

use kcp_api::{KubeadmControlPlane, kind::SECRET};
use kcp_client::{
    Connection, Error,
    reads::{
        self, Excluded,
        bundle::{ObjectList, management::read_management_objects, workload::read_workload_objects},
        component_logs::{ComponentLogs, LogQuery, MachineLog},
        failure::one_line,
        planned::Reads,
        time_limits::remaining,
        webhook::read_webhook,
    },
};
use kcp_control_plane::{
    bundle::{Part, Redacted, Unread, part::limit_size},
    inspection::inspect,
    plan::{Desired, plan},
    snapshot::{Failure, Reading, Snapshot, workload::Component},
    why::explain,
};
use serde::Serialize;
use tokio::time::{timeout, timeout_at};

use crate::{
    arguments::ControlPlaneName,
    commands::{
        plan::document::PlanDocument,
        status::{document::ControlPlaneStatus, read_one},
        version::{Versions, read_versions},
        webhook::WebhookReport,
        why::{WhyReport, document::ExplanationDocument},
    },
    document::Versioned,
    output::Report,
};

const STATUS: &str = "status.json";
const WHY: &str = "why.json";
const PLAN: &str = "plan.json";
const VERSION: &str = "version.json";
const WEBHOOK: &str = "webhook.json";

/// The folder of the logs.
const LOGS: &str = "workload/logs";

/// The number of lines of each log, those at its end.
const LOG_LINES: u32 = 2_000;

/// The parts of a bundle.
pub(super) struct Collected {
    pub(super) control_plane: KubeadmControlPlane,
    pub(super) parts: Vec<Part>,
}

/// Reads a control plane and everything else for a bundle, until `end` at the latest.
pub(super) async fn collect(
    name: &ControlPlaneName,
    connection: &Connection,
    end: Instant,
) -> Result<Collected, Error> {
    let reader = reads::discover(connection, reads::list_limit(remaining(end))).await?;
    // A workload cluster that does not respond uses up all the time that it gets. So it gets half of the time, and the other parts
    // get the rest.
    let half = Instant::now() + remaining(end) / 2;
    let mut observed = Box::pin(read_one(&reader, name, Excluded::default(), half)).await?;
    let left = remaining(end);
    let reads = Reads {
        reader: &reader,
        namespace: &connection.namespace,
        limit: reads::list_limit(left),
    };
    let (handlers, management, workload, logs, webhook, versions) = tokio::join!(
        Box::pin(reads.read_in_place_handlers()),
        Box::pin(read_management_objects(&reads, &observed)),
        Box::pin(read_workload_objects(connection, &observed, end)),
        Box::pin(logs(connection, &observed, end)),
        Box::pin(read_webhook(connection, reads.limit)),
        Box::pin(timeout(left, read_versions(connection)))
    );
    observed.in_place_handlers = handlers;
    let mut parts = documents(&observed, connection);
    parts.push(versions.map_or_else(|_| no_versions(left), |versions| version_part(&versions)));
    parts.push(match webhook {
        Ok(state) => document(WEBHOOK, &WebhookReport::new(state, connection.now()).document()),
        Err(error) => Part::unread(WEBHOOK, vec![unread(&error)]),
    });
    parts.extend(management.into_iter().chain(workload).map(object_part));
    // Last, because these are the largest files, and a bundle has a maximum size.
    parts.extend(logs);
    Ok(Collected {
        control_plane: observed.control_plane,
        parts: limit_size(parts),
    })
}

/// The ends of the logs of all components. There are none until the control plane is initialized.
async fn logs(connection: &Connection, observed: &Snapshot, end: Instant) -> Vec<Part> {
    if !observed.control_plane.status.initialized {
        return Vec::new();
    }
    let all_unread = |failure: &Failure| vec![Part::unread(LOGS, vec![failure.into()])];
    let logs = match ComponentLogs::open(connection, &observed.control_plane, end).await {
        Ok(logs) => logs,
        Err(failure) => return all_unread(&failure),
    };
    let mut parts = Vec::new();
    for component in Component::ALL {
        let query = LogQuery {
            component,
            is_previous: false,
            lines: LOG_LINES,
        };
        let read = logs.read(&observed.machines, query, |_| None);
        match timeout_at(end.into(), read).await {
            Ok(Ok(logs)) => parts.extend(logs.iter().map(|log| log_part(component, log))),
            Ok(Err(failure)) => return all_unread(&failure),
            Err(_) => {
                let file = format!("{LOGS}/{}", component.as_str());
                let unread = Unread::new("not read within the time limit of --timeout", None);
                parts.push(Part::unread(&file, vec![unread]));
            }
        }
    }
    parts
}

fn log_part(component: Component, log: &MachineLog) -> Part {
    let file = format!("{LOGS}/{}/{}.log", log.machine, component.as_str());
    match &log.text {
        Ok(text) if log.is_cut() => {
            let mut part = Part::log(&file, text);
            let message = "the kubelet has cut off the end of the log, because the log is too large";
            part.unread.push(Unread::new(message, None));
            part
        }
        Ok(text) => Part::log(&file, text),
        Err(failure) => Part::unread(&file, vec![failure.into()]),
    }
}

/// The documents of `status`, `why` and `plan`, all of the same state.
fn documents(observed: &Snapshot, connection: &Connection) -> Vec<Part> {
    let now = connection.now();
    let inspection = inspect(observed, now);
    let explanation = explain(observed, &inspection, now);
    let why = WhyReport {
        basis: inspection.basis,
        observed,
        explanation: &explanation,
        webhook_off: None,
        now,
    };
    let status = Part {
        unread: sources(observed),
        ..document(STATUS, &Versioned(ControlPlaneStatus::new(observed, &inspection)))
    };
    vec![
        status,
        document(WHY, &Versioned(ExplanationDocument::new(&why))),
        plan_part(observed, connection),
    ]
}

/// The sources of `status` that could not be read. The document of `status` also lists them.
fn sources(observed: &Snapshot) -> Vec<Unread> {
    let readings = [source(&observed.workload), source(&observed.etcd)];
    let failures = readings.into_iter().flatten().chain(observed.cluster.failure());
    let failures = failures.chain(&observed.failed_reads).map(Unread::from);
    let mut unread: Vec<Unread> = Vec::new();
    for failure in failures {
        if !unread.contains(&failure) {
            unread.push(failure);
        }
    }
    unread
}

const fn source<T>(reading: &Reading<T>) -> Option<&Failure> {
    match reading {
        Reading::Failed(failure) | Reading::OutOfReach(failure) => Some(failure),
        Reading::Read(_) | Reading::Excluded { .. } | Reading::NotYet => None,
    }
}

/// The plan without a change. As in `plan`, there is no plan if an object on which the steps depend is missing.
fn plan_part(observed: &Snapshot, connection: &Connection) -> Part {
    let is_of_secret = |failure: &&Failure| failure.object.starts_with(SECRET.kind);
    let failed = observed
        .failed_reads
        .iter()
        .filter(|failure| !is_of_secret(failure));
    let missing: Vec<Unread> = observed
        .cluster
        .failure()
        .into_iter()
        .chain(failed)
        .map(Unread::from)
        .collect();
    if !missing.is_empty() {
        return Part::unread(PLAN, missing);
    }
    let plan = plan(observed, &Desired::current(observed), connection.now());
    document(PLAN, &Versioned(PlanDocument::new(&plan)))
}

fn version_part(versions: &Versions) -> Part {
    Part {
        unread: versions
            .failures()
            .map(|message| Unread::new(&one_line(&message), None))
            .collect(),
        ..document(VERSION, &versions.document())
    }
}

fn no_versions(limit: Duration) -> Part {
    let message = format!("the versions could not be read within {} s", limit.as_secs());
    Part::unread(VERSION, vec![Unread::new(&message, None)])
}

fn document(file: &str, document: &impl Serialize) -> Part {
    match Redacted::document(document) {
        Ok(document) => Part::document(file, &document),
        Err(error) => Part::unread(
            file,
            vec![Unread::new(&format!("cannot write JSON: {error}"), None)],
        ),
    }
}

fn object_part(list: ObjectList) -> Part {
    let objects: Vec<Redacted> = list.objects.into_iter().map(Redacted::object).collect();
    Part::objects(
        &list.file,
        &objects,
        list.failures.iter().map(Unread::from).collect(),
    )
}

fn unread(error: &Error) -> Unread {
    Unread::new(&one_line(&error.to_string()), error.hint())
}
