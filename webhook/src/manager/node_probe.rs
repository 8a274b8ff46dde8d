//! `kcp-webhook probe`: resolves names and reaches the API server from the Pod in which it runs, and prints a report.
//! `kubectl kcp validate` runs it in a Pod on each Node.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use futures_util::future::join_all;
use kcp_rules::probe::{ApiServerAnswer, ProbeReport, ResolvedName};
use thiserror::Error;
use tokio::{net::lookup_host, runtime, time::timeout};

use crate::{arguments::ProbeArguments, cluster, limits::shorten};

/// The maximum length of an error in the report, in characters, because the report is one line of a log.
const MAX_ERROR: usize = 300;

/// Why the program cannot print a report.
#[derive(Debug, Error)]
pub enum ProbeError {
    #[error("cannot start: {0}")]
    System(io::Error),
    #[error("cannot print the report: {0}")]
    Print(io::Error),
}

/// Prints a report as one line of JSON. The exit code is 1 if a name cannot be resolved, or if the API server does not
/// respond.
pub fn run(arguments: &ProbeArguments, output: &mut impl Write) -> Result<ExitCode, ProbeError> {
    // Install the default provider of the process, which the Kubernetes client uses.
    _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ProbeError::System)?;
    let report = runtime.block_on(probe(arguments));
    // Do not drop the runtime, because the drop would wait for DNS lookups that do not return.
    runtime.shutdown_background();
    let line = serde_json::to_string(&report).map_err(|error| ProbeError::Print(error.into()))?;
    writeln!(output, "{line}").map_err(ProbeError::Print)?;
    Ok(if report.passes() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn probe(arguments: &ProbeArguments) -> ProbeReport {
    let limit = arguments.timeout;
    let names = arguments.names.iter().map(|name| resolve(name, limit));
    let (names, api_server) = tokio::join!(
        join_all(names),
        reach_api_server(arguments.kubeconfig.as_deref(), limit)
    );
    ProbeReport {
        nonce: arguments.nonce.clone(),
        names,
        api_server,
    }
}

async fn resolve(name: &str, limit: Duration) -> ResolvedName {
    let resolved = match timeout(limit, lookup_host((name, 0))).await {
        Ok(Ok(found)) => Ok(found
            .map(|address| address.ip().to_string())
            .collect::<BTreeSet<_>>()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(no_response(limit)),
    };
    let (addresses, error) = match resolved {
        Ok(addresses) if addresses.is_empty() => (addresses, Some("the name has no addresses".to_owned())),
        Ok(addresses) => (addresses, None),
        Err(error) => (BTreeSet::new(), Some(error)),
    };
    ResolvedName {
        name: name.to_owned(),
        addresses: addresses.into_iter().collect(),
        error: error.as_deref().map(short),
    }
}

async fn reach_api_server(kubeconfig: Option<&Path>, limit: Duration) -> ApiServerAnswer {
    let version = async {
        let client = cluster::connect(kubeconfig)
            .await
            .map_err(|error| error.to_string())?
            .ok_or(
                "the Pod has no service account token, or no environment variable KUBERNETES_SERVICE_HOST",
            )?;
        let info = client.apiserver_version().await;
        info.map(|info| info.git_version)
            .map_err(|error| error.to_string())
    };
    let version = match timeout(limit, version).await {
        Ok(version) => version,
        Err(_) => Err(no_response(limit)),
    };
    match version {
        Ok(version) => ApiServerAnswer {
            version: Some(version),
            error: None,
        },
        Err(error) => ApiServerAnswer {
            version: None,
            error: Some(short(&error)),
        },
    }
}

fn no_response(limit: Duration) -> String {
    format!("no response within {} s", limit.as_secs_f32())
}

fn short(error: &str) -> String {
    shorten(error, MAX_ERROR, "").into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcp_rules::probe::ProbeReport;

    use super::run;
    use crate::arguments::ProbeArguments;

    fn report(names: &[&str]) -> (String, ProbeReport) {
        let arguments = ProbeArguments {
            nonce: "n1".to_owned(),
            names: names.iter().map(ToString::to_string).collect(),
            kubeconfig: Some("/no/such/file".into()),
            timeout: Duration::from_secs(10),
        };
        let mut output = Vec::new();
        let code = run(&arguments, &mut output).expect("a report");
        let text = String::from_utf8(output).expect("text");
        assert_eq!(text.lines().count(), 1, "{text}");
        (
            format!("{code:?}"),
            serde_json::from_str(&text).expect("a report"),
        )
    }

    #[test]
    fn what_fails_is_in_the_report() {
        // The label is too long for DNS, so no server is asked.
        let (code, report) = report(&["127.0.0.1", &"n".repeat(70)]);
        assert_eq!(code, format!("{:?}", std::process::ExitCode::FAILURE));
        assert_eq!(report.nonce, "n1");
        let [loopback, unknown] = report.names.as_slice() else {
            panic!("{report:?}");
        };
        assert_eq!(
            (loopback.addresses.as_slice(), &loopback.error),
            (&["127.0.0.1".to_owned()][..], &None)
        );
        assert!(
            unknown.addresses.is_empty() && unknown.error.is_some(),
            "{unknown:?}"
        );
        let error = report.api_server.error.as_deref().expect("an error");
        assert!(
            error.starts_with("cannot use the kubeconfig /no/such/file: "),
            "{error}"
        );
        assert!(!report.passes());
    }
}
