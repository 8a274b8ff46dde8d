//! Reads control planes once, and checks them.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::commands::status::{
    arguments::StatusArguments,
    report::{Inspected, Subject},
    screen::ListRow,
};
use crate::{
    arguments::ControlPlaneName,
    fleet::{Connections, read_concurrently, read_each},
    terminal::Terminal,
};
use kcp_client::reads::{self, Excluded, NO_NAME_ARGUMENT};
use kcp_client::{Connection, Error, reader::Reader};
use kcp_control_plane::{
    inspection::inspect,
    snapshot::{Failure, Reading, Snapshot},
};

/// The maximum number of control planes in a list for which etcd is queried without `--deep`.
const MAX_CONTROL_PLANES_QUERIED: usize = 32;

/// What to read for each control plane of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadDepth {
    /// Read only the conditions in the management cluster.
    Conditions,
    /// Also read the workload cluster and etcd, if the user is allowed to read the Secrets for them.
    PermittedSources,
    /// Always read the workload cluster and etcd.
    AllSources,
}

impl ReadDepth {
    fn new(arguments: &StatusArguments, control_planes: usize) -> Self {
        if arguments.deep {
            Self::AllSources
        } else if arguments.no_etcd || arguments.no_workload || control_planes > MAX_CONTROL_PLANES_QUERIED {
            Self::Conditions
        } else {
            Self::PermittedSources
        }
    }
}

/// Reads control planes until the time `end`, and checks them. In a list, the time limit of the arguments applies to each
/// control plane, from the start of its own read.
pub(in crate::commands) async fn poll(
    connection: &Connection,
    arguments: &StatusArguments,
    end: Instant,
    terminal: &Terminal,
) -> Result<Subject, Error> {
    let discovering = reads::discover(connection, reads::list_limit(remaining(end)));
    let reader = if arguments.watch {
        discovering.await?
    } else {
        terminal.spin_while(WAITING_FOR_MANAGEMENT, discovering).await?
    };
    if let Some(name) = &arguments.name {
        let excluded = Excluded {
            workload: arguments.no_workload,
            etcd: arguments.no_etcd,
        };
        let reading = read_one(&reader, name, excluded, end);
        let observed = if arguments.watch {
            reading.await?
        } else {
            terminal.spin_while(&waiting_for(name), reading).await?
        };
        return Ok(Subject::One(Box::new(inspect_snapshot(
            observed,
            connection.now(),
        ))));
    }
    let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
    let selector = arguments.selector.as_deref();
    let limit = reads::list_limit(remaining(end));
    let listed = reads::list(&reader, namespace, selector, limit).await?;
    if let (Some(namespace), [], None) = (namespace, listed.as_slice(), selector) {
        reads::check_namespace_exists(connection, namespace, limit).await?;
    }
    Ok(Subject::Several {
        namespace: namespace.map(str::to_owned),
        inspected: inspect_listed(&reader, listed, arguments, terminal).await,
        unread: Vec::new(),
    })
}

/// What a user waits for before anything else is read.
pub(in crate::commands) const WAITING_FOR_MANAGEMENT: &str =
    "waiting for the API server of the management cluster";

/// What a user waits for while one control plane is read.
pub(in crate::commands) fn waiting_for(name: &ControlPlaneName) -> String {
    let (ControlPlaneName::Own(name) | ControlPlaneName::OfCluster(name)) = name;
    format!("waiting for the API server and etcd of {name}")
}

/// Reads the sources of the control planes in a list as deeply as the arguments and the length of the list require.
async fn inspect_listed(
    reader: &Reader<'_>,
    listed: Vec<Snapshot>,
    arguments: &StatusArguments,
    terminal: &Terminal,
) -> Vec<Inspected> {
    let excluded = Excluded {
        workload: arguments.no_workload,
        etcd: arguments.no_etcd,
    };
    let observed = match ReadDepth::new(arguments, listed.len()) {
        ReadDepth::Conditions => listed.into_iter().map(by_conditions).collect(),
        depth => {
            read_concurrently(terminal, &listed, async |listed| {
                let observed = read_all_sources(reader, listed, excluded, arguments.timeout).await;
                if depth == ReadDepth::PermittedSources && may_not_read_secrets(&observed) {
                    by_conditions(listed.clone())
                } else {
                    observed
                }
            })
            .await
        }
    };
    let now = || reader.connection.now();
    observed
        .into_iter()
        .map(|observed| inspect_snapshot(observed, now()))
        .collect()
}

/// Reads the control planes of several contexts at the same time, and checks them. The time limit of the arguments applies to
/// the lists of each context, and to each control plane.
pub(super) async fn poll_contexts(
    connections: &Connections,
    arguments: &StatusArguments,
    terminal: &Terminal,
) -> Subject {
    let polled = read_each(connections, async |connection| {
        let end = Instant::now() + arguments.timeout;
        Box::pin(poll(connection, arguments, end, terminal)).await
    })
    .await;
    let in_context = |(context, subject): (String, Subject)| {
        let inspected = subject.into_inspected().into_iter();
        inspected.map(move |inspected| Inspected {
            context: Some(context.clone()),
            ..inspected
        })
    };
    Subject::Several {
        namespace: None,
        inspected: polled.results.into_iter().flat_map(in_context).collect(),
        unread: polled.unread_contexts,
    }
}

/// Reads the control planes of all namespaces until the time `end`, and checks them. If there are too many to query the etcd of
/// each, only the row of each control plane stays in memory.
pub(super) async fn poll_rows(
    connection: &Connection,
    arguments: &StatusArguments,
    end: Instant,
    terminal: &Terminal,
) -> Result<Vec<ListRow>, Error> {
    let reader = reads::discover(connection, reads::list_limit(remaining(end))).await?;
    let row = |Inspected {
                   observed, inspection, ..
               }: Inspected| ListRow::new(&observed, &inspection);
    let row_by_conditions = |listed| row(inspect_snapshot(by_conditions(listed), connection.now()));
    let (mut few, mut rows) = (Vec::new(), Vec::new());
    let limit = reads::list_limit(remaining(end));
    reads::for_each(&reader, None, arguments.selector.as_deref(), limit, |listed| {
        if rows.is_empty() && ReadDepth::new(arguments, few.len() + 1) != ReadDepth::Conditions {
            few.push(listed);
        } else {
            rows.extend(few.drain(..).map(row_by_conditions));
            rows.push(row_by_conditions(listed));
        }
    })
    .await?;
    let few = inspect_listed(&reader, few, arguments, terminal).await;
    rows.extend(few.into_iter().map(row));
    Ok(rows)
}

fn remaining(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

fn inspect_snapshot(observed: Snapshot, now: Timestamp) -> Inspected {
    let inspection = inspect(&observed, now);
    Inspected {
        context: None,
        observed,
        inspection,
    }
}

/// Reads a control plane by its own name or by the name of its Cluster.
pub(in crate::commands) async fn read_one(
    reader: &Reader<'_>,
    name: &ControlPlaneName,
    excluded: Excluded,
    end: Instant,
) -> Result<Snapshot, Error> {
    let namespace = &reader.connection.namespace;
    let limit = reads::limit_per_control_plane(remaining(end));
    let name = name.read(reader, limit).await?;
    reads::observe(reader, namespace, &name, excluded, end).await
}

/// Reads the workload cluster and the etcd of one control plane of a list.
async fn read_all_sources(
    reader: &Reader<'_>,
    listed: &Snapshot,
    excluded: Excluded,
    timeout: Duration,
) -> Snapshot {
    let end = Instant::now() + timeout;
    let control_plane = &listed.control_plane;
    let (namespace, name) = (&control_plane.namespace(), &control_plane.name());
    match reads::observe(reader, namespace, name, excluded, end).await {
        Ok(observed) => observed,
        Err(error) => reads::unread_snapshot(listed.clone(), &error),
    }
}

/// Whether the user is not allowed to read the Secrets for the workload cluster or etcd.
fn may_not_read_secrets(observed: &Snapshot) -> bool {
    let failures = [observed.workload.failure(), observed.etcd.failure()];
    let mut forbidden = failures
        .into_iter()
        .flatten()
        .filter_map(|failure: &Failure| failure.forbidden.as_ref());
    forbidden.any(|forbidden| forbidden.resource == "secrets" && !forbidden.is_from_workload_cluster)
}

fn by_conditions(listed: Snapshot) -> Snapshot {
    Snapshot {
        workload: Reading::Excluded {
            flag: NO_NAME_ARGUMENT,
        },
        endpoint_certificate: Reading::Excluded {
            flag: NO_NAME_ARGUMENT,
        },
        etcd: Reading::Excluded {
            flag: NO_NAME_ARGUMENT,
        },
        ..listed
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        future::pending,
        time::{Duration, Instant},
    };

    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::{
        Inspected, MAX_CONTROL_PLANES_QUERIED, ReadDepth, Subject, poll, poll_rows, read_concurrently,
    };
    use crate::{
        arguments::global::ColorWhen,
        commands::status::{StatusArguments, screen::list},
        fleet::{ContextsArgument, MAX_CONCURRENT_READS},
        output::OutputArguments,
        terminal::{Terminal, plain},
    };
    use kcp_client::{
        Connection,
        testing::{
            example::{answer, groups},
            failure,
        },
    };
    use kcp_control_plane::inspection::Basis;

    const CONTROL_PLANES: usize = 9;

    const TIMEOUT: Duration = Duration::from_millis(400);

    /// The delay of a response. A request that is sent too late gets no response in time.
    const ANSWERS_AFTER: Duration = Duration::from_millis(20);

    fn control_plane(name: &str) -> Value {
        json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
            "metadata": {"name": name, "namespace": "d"}, "spec": {"replicas": 3, "version": "v1.34.1"}})
    }

    /// A server that lists all control planes, but returns only the last one by its name.
    fn connection() -> Connection {
        Connection::canned_async(|_, path| {
            let last = format!("/kubeadmcontrolplanes/cp-{}", CONTROL_PLANES - 1);
            let hangs = path.contains("/kubeadmcontrolplanes/") && !path.ends_with(&last);
            let names = (0..CONTROL_PLANES).map(|number| format!("cp-{number}"));
            let answer = match path {
                "/apis" => (200, groups()),
                path if path.ends_with("/kubeadmcontrolplanes") => {
                    let items: Vec<Value> = names.map(|name| control_plane(&name)).collect();
                    (200, json!({"items": items}))
                }
                path if path.ends_with(&last) => (200, control_plane("cp-8")),
                path if path.ends_with("/clusters") => (200, json!({"items": []})),
                path => answer(path),
            };
            async move {
                if hangs {
                    pending::<()>().await;
                }
                sleep(ANSWERS_AFTER).await;
                answer
            }
        })
    }

    fn arguments() -> StatusArguments {
        StatusArguments {
            name: None,
            all_namespaces: false,
            watch: false,
            selector: None,
            output: OutputArguments::default(),
            no_etcd: false,
            no_workload: false,
            deep: false,
            contexts: ContextsArgument::default(),
            timeout: TIMEOUT,
        }
    }

    fn polled(connect: impl Fn() -> Connection, arguments: &StatusArguments) -> Vec<Inspected> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let subject = runtime.expect("a runtime").block_on(async {
            let terminal = Terminal::new(ColorWhen::Never);
            let end = Instant::now() + arguments.timeout;
            poll(&connect(), arguments, end, &terminal).await.expect("a list")
        });
        let Subject::Several { inspected, .. } = subject else {
            panic!("it is a list");
        };
        inspected
    }

    #[test]
    fn a_short_list_asks_etcd_and_a_long_one_only_with_deep() {
        let changed = |change: fn(&mut StatusArguments)| {
            let mut arguments = arguments();
            change(&mut arguments);
            arguments
        };
        for (arguments, control_planes, depth) in [
            (
                arguments(),
                MAX_CONTROL_PLANES_QUERIED,
                ReadDepth::PermittedSources,
            ),
            (arguments(), MAX_CONTROL_PLANES_QUERIED + 1, ReadDepth::Conditions),
            (
                changed(|a| a.all_namespaces = true),
                MAX_CONTROL_PLANES_QUERIED,
                ReadDepth::PermittedSources,
            ),
            (
                changed(|a| a.all_namespaces = true),
                MAX_CONTROL_PLANES_QUERIED + 1,
                ReadDepth::Conditions,
            ),
            (changed(|a| a.no_etcd = true), 1, ReadDepth::Conditions),
            (changed(|a| a.no_workload = true), 1, ReadDepth::Conditions),
            (
                changed(|a| a.deep = true),
                MAX_CONTROL_PLANES_QUERIED + 1,
                ReadDepth::AllSources,
            ),
            (
                changed(|a| {
                    a.all_namespaces = true;
                    a.deep = true;
                }),
                1,
                ReadDepth::AllSources,
            ),
        ] {
            assert_eq!(ReadDepth::new(&arguments, control_planes), depth, "{arguments:?}");
        }
    }

    #[test]
    fn without_access_to_secrets_the_verdict_follows_from_conditions() {
        let connection = || {
            Connection::canned(|_, path| match path {
                "/apis" => (200, groups()),
                path if path.ends_with("/kubeadmcontrolplanes") => {
                    let (_, control_plane) = answer("/namespaces/d/kubeadmcontrolplanes/c1-cp");
                    (200, json!({"items": [control_plane]}))
                }
                path if path.ends_with("/clusters") => (200, json!({"items": []})),
                path if path.contains("/secrets/") => failure(403, "Forbidden", "secrets is forbidden"),
                path => answer(path),
            })
        };
        let of_list = |arguments: &StatusArguments| -> Vec<_> {
            let inspected = polled(connection, arguments);
            let etcd = |inspected: &Inspected| {
                let failure = inspected.observed.etcd.failure();
                failure.map(|failure| failure.object.clone())
            };
            inspected
                .iter()
                .map(|inspected| (inspected.inspection.basis, etcd(inspected)))
                .collect()
        };
        assert_eq!(of_list(&arguments()), [(Basis::Conditions, None)]);
        let mut deep = arguments();
        deep.deep = true;
        assert_eq!(of_list(&deep), [(Basis::Conditions, Some("etcd".to_owned()))]);
    }

    #[test]
    fn an_undecodable_object_is_named_and_makes_only_its_control_plane_unknown() {
        let control_plane = |namespace: &str, name: &str| {
            json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
                "metadata": {"name": name, "namespace": namespace, "labels": {"cluster.x-k8s.io/cluster-name": name}},
                "spec": {"replicas": 0, "version": "v1.34.1"}})
        };
        let mut undecodable = control_plane("a", "broken");
        undecodable["spec"]["replicas"] = json!("3");
        let machine = json!({"kind": "Machine", "metadata": {"namespace": "b", "name": "m1"},
            "spec": {"clusterName": "c1", "version": 1.35}});
        let control_planes = [undecodable, control_plane("b", "c1"), control_plane("b", "c2")];
        let connect = || {
            Connection::canned(move |_, path| match path {
                "/apis" => (200, groups()),
                path if path.ends_with("/kubeadmcontrolplanes") => (200, json!({"items": control_planes})),
                path if path.ends_with("/machines") => (200, json!({"items": [machine]})),
                _ => (200, json!({"items": []})),
            })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let rows = runtime.expect("a runtime").block_on(async {
            let end = Instant::now() + Duration::from_secs(30);
            let by_conditions = StatusArguments {
                no_etcd: true,
                ..arguments()
            };
            poll_rows(&connect(), &by_conditions, end, &Terminal::new(ColorWhen::Never)).await
        });
        let rows = rows.expect("a list");
        let layout = crate::terminal::table::Layout::default();
        let now = "2026-08-21T12:00:00Z".parse().expect("a time");
        insta::assert_snapshot!(plain(&list(rows, None, now, layout).text()));
    }

    #[test]
    fn each_control_plane_of_a_list_has_its_own_timeout_and_failure() {
        let inspected = polled(connection, &arguments());
        let unread: Vec<_> = inspected
            .iter()
            .map(|inspected| {
                let unread = &inspected.observed.failed_reads;
                let unread: Vec<_> = unread.iter().map(|failure| failure.object.as_str()).collect();
                unread.join(" ")
            })
            .collect();
        let hung = (0..CONTROL_PLANES - 1).map(|number| format!("KubeadmControlPlane/cp-{number}"));
        let expected: Vec<_> = hung.chain([String::new()]).collect();
        assert_eq!(unread, expected);
    }

    #[test]
    fn reads_several_at_a_time_and_keeps_the_order() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let (under_way, most) = (Cell::new(0), Cell::new(0));
        let numbers: Vec<usize> = (0..3 * MAX_CONCURRENT_READS).collect();
        let read = runtime.expect("a runtime").block_on(read_concurrently(
            &Terminal::new(ColorWhen::Never),
            &numbers,
            async |number| {
                under_way.set(under_way.get() + 1);
                most.set(most.get().max(under_way.get()));
                // The later reads end first.
                for _ in *number..numbers.len() {
                    tokio::task::yield_now().await;
                }
                under_way.set(under_way.get() - 1);
                number * 2
            },
        ));
        let expected: Vec<usize> = numbers.iter().map(|number| number * 2).collect();
        assert_eq!(read, expected);
        assert_eq!(most.get(), MAX_CONCURRENT_READS);
    }
}
