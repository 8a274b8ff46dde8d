//! One poll: reads the control planes, then judges them.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::commands::status::{
    arguments::StatusArguments,
    deep::each,
    report::{Inspected, Subject},
};
use crate::{arguments::ControlPlaneName, terminal::Terminal};
use kcp_client::reads::{self, Excluded, WITHOUT_NAME};
use kcp_client::{Connection, Error, reader::Reader};
use kcp_control_plane::{
    inspection::inspect,
    snapshot::{Management, Observed, Reading},
};

/// Reads until `end`, and decides. Each control plane of a deep list has the whole time of the arguments, from its turn
/// on.
///
/// # Errors
/// When the control plane, or the list of control planes, cannot be read.
pub(super) async fn look(
    connection: &Connection,
    arguments: &StatusArguments,
    end: Instant,
    terminal: &Terminal,
) -> Result<Subject, Error> {
    let reader = reads::discover(connection, reads::limit_of_list(left(end))).await?;
    let excluded = Excluded {
        workload: arguments.no_workload,
        etcd: arguments.no_etcd,
    };
    if let Some(name) = &arguments.name {
        let observed = one(&reader, name, excluded, end).await?;
        return Ok(Subject::One(Box::new(inspected(observed))));
    }
    let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
    let selector = arguments.selector.as_deref();
    let limit = reads::limit_of_list(left(end));
    let listed = reads::list(&reader, namespace, selector, limit).await?;
    let observed = if arguments.deep {
        each(terminal, &listed, async |listed| {
            deep(&reader, listed, excluded, arguments.timeout).await
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

fn left(end: Instant) -> Duration {
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
    let name = match name {
        ControlPlaneName::Own(name) => name,
        ControlPlaneName::OfCluster(cluster) => {
            let limit = reads::limit_of_one(left(end));
            &reads::control_plane_of(reader, namespace, cluster, limit).await?
        }
    };
    reads::observe(reader, namespace, name, excluded, end).await
}

/// A control plane of a list, with all its sources. The time limit is its own and counts from its turn.
async fn deep(reader: &Reader<'_>, listed: &Management, excluded: Excluded, timeout: Duration) -> Observed {
    let end = Instant::now() + timeout;
    let control_plane = &listed.control_plane.control_plane;
    let (namespace, name) = (&control_plane.namespace(), &control_plane.name());
    match reads::observe(reader, namespace, name, excluded, end).await {
        Ok(observed) => observed,
        Err(error) => reads::unread(listed.clone(), &error),
    }
}

fn shallow(management: Management) -> Observed {
    Observed {
        management,
        workload: Reading::Excluded { flag: WITHOUT_NAME },
        endpoint_certificate: Reading::Excluded { flag: WITHOUT_NAME },
        etcd: Reading::Excluded { flag: WITHOUT_NAME },
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::{Subject, look};
    use crate::{
        arguments::global::ColorWhen, commands::status::StatusArguments, output::OutputArguments,
        terminal::Terminal,
    };
    use kcp_client::{
        Connection,
        reads::example::{answer, groups},
    };

    const CONTROL_PLANES: usize = 9;

    const TIMEOUT: Duration = Duration::from_millis(400);

    /// A server that has been asked too late has no answer in time.
    const ANSWERS_AFTER: Duration = Duration::from_millis(20);

    fn control_plane(name: &str) -> Value {
        json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
            "metadata": {"name": name, "namespace": "d"}, "spec": {"replicas": 3, "version": "v1.34.1"}})
    }

    /// On a server that lists them all, and gives by name the last one alone.
    fn connection() -> Connection {
        Connection::canned_later(|_, path| {
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

    #[test]
    fn each_control_plane_of_a_deep_list_has_its_own_time_and_its_own_failure() {
        let arguments = StatusArguments {
            name: None,
            all_namespaces: false,
            watch: false,
            selector: None,
            output: OutputArguments::default(),
            no_etcd: false,
            no_workload: false,
            deep: true,
            timeout: TIMEOUT,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let subject = runtime.expect("a runtime").block_on(async {
            let terminal = Terminal::new(ColorWhen::Never);
            look(
                &connection(),
                &arguments,
                std::time::Instant::now() + arguments.timeout,
                &terminal,
            )
            .await
            .expect("a list")
        });
        let Subject::Several { inspected, .. } = subject else {
            panic!("it is a list");
        };
        let unread: Vec<_> = inspected
            .iter()
            .map(|inspected| {
                let unread = &inspected.observed.management.unread;
                let unread: Vec<_> = unread.iter().map(|failure| failure.object.as_str()).collect();
                unread.join(" ")
            })
            .collect();
        let hung = (0..CONTROL_PLANES - 1).map(|number| format!("KubeadmControlPlane/cp-{number}"));
        let expected: Vec<_> = hung.chain([String::new()]).collect();
        assert_eq!(unread, expected);
    }
}
