//! `kcp-webhook api-proxy`: rewrites the list of API servers in the configuration of the local proxy of its node.
//!
//! A DaemonSet runs it on the nodes whose kubelets use the proxy. It changes only that list, in a configuration file that already
//! exists on the node. So the proxy can start without the API server, with the list that was written last. HAProxy loads a new
//! configuration without closing open connections. If HAProxy cannot load the file, it continues with the previous configuration.

use std::{
    collections::BTreeSet,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use kcp_rules::api_proxy::{CONFIGURATION, CountError, SOCKET, check_count, with_servers};
use kube::Client;
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time,
};
use tracing::info;

use super::{
    reconciler::{self, LastProblem, ReconcilerError},
    replace_file::replace_file,
    request::{RequestError, read_api_servers},
};
use crate::arguments::ApiProxyArguments;

/// How long HAProxy may take to answer a command.
const RELOAD_LIMIT: Duration = Duration::from_secs(10);

/// The longest answer of HAProxy that is read, in bytes: it can contain the messages of a start.
const MAX_ANSWER: u64 = 64 * 1024;

/// Why a pass failed. The next pass tries again.
#[derive(Debug, Error)]
enum PassError {
    #[error("{0}; the list of API servers on this node stays as it is")]
    Request(#[from] RequestError),
    #[error("EndpointSlice default/kubernetes: {0}; the list on this node stays as it is")]
    Count(#[from] CountError),
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    #[error(
        "{} has no line that marks the API servers, so it stays as it is; write the file again with: kubectl kcp generate api-proxy",
        .0.display()
    )]
    Foreign(PathBuf),
    #[error("HAProxy did not load {}: {reason}", path.display())]
    NotLoaded { path: PathBuf, reason: String },
}

struct ApiProxy {
    folder: PathBuf,
    /// Whether HAProxy has loaded the file since this process started. An earlier process may have been killed after it wrote the
    /// file and before HAProxy loaded it.
    is_loaded: bool,
}

/// Runs until SIGTERM or SIGINT.
pub fn run(arguments: &ApiProxyArguments) -> Result<ExitCode, ReconcilerError> {
    reconciler::run("api-proxy", &arguments.reconciler, async |client, mut stop| {
        let mut proxy = ApiProxy {
            folder: arguments.folder.clone(),
            is_loaded: false,
        };
        let mut last_problem = LastProblem::default();
        loop {
            let problem = proxy.pass(&client).await.err();
            last_problem.report(problem.map(|error| error.to_string()));
            tokio::select! {
                () = time::sleep(arguments.reconciler.interval) => {}
                reason = stop.wait_for_request() => {
                    info!(reason, "stopping");
                    return;
                }
            }
        }
    })
}

impl ApiProxy {
    async fn pass(&mut self, client: &Client) -> Result<(), PassError> {
        let servers = check_count(read_api_servers(client).await?)?;
        if self.write(&servers)? {
            info!(?servers, "wrote the list of API servers");
            self.is_loaded = false;
        }
        if !self.is_loaded {
            self.load().await?;
            self.is_loaded = true;
        }
        Ok(())
    }

    /// Returns whether the file has changed.
    fn write(&self, servers: &BTreeSet<SocketAddr>) -> Result<bool, PassError> {
        let path = self.folder.join(CONFIGURATION);
        let before = fs::read_to_string(&path).map_err(|error| failed("read", &path, error))?;
        let configuration = with_servers(&before, servers).ok_or_else(|| PassError::Foreign(path.clone()))?;
        if configuration == before {
            return Ok(false);
        }
        replace_file(&path, configuration.as_bytes(), 0o600, None)
            .map_err(|error| failed("write", &path, error))?;
        Ok(true)
    }

    /// Lets HAProxy load the file. Until version 2.6, HAProxy closes the connection without an answer; since 2.7, it reports
    /// whether it has loaded the file.
    async fn load(&self) -> Result<(), PassError> {
        let socket = self.folder.join(SOCKET);
        let answer = time::timeout(RELOAD_LIMIT, reload(&socket)).await;
        let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let answer = answer.map_err(|error| failed("reach HAProxy at", &socket, error))?;
        if answer.starts_with("Success=0") {
            return Err(PassError::NotLoaded {
                path: self.folder.join(CONFIGURATION),
                reason: answer,
            });
        }
        info!("HAProxy loaded the list of API servers");
        Ok(())
    }
}

async fn reload(socket: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(b"reload\n").await?;
    let mut answer = Vec::new();
    match stream.take(MAX_ANSWER).read_to_end(&mut answer).await {
        // HAProxy's master process has restarted, and closed the connection.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn failed(action: &'static str, path: &Path, error: io::Error) -> PassError {
    PassError::Io {
        action,
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use kcp_rules::api_proxy;

    use super::*;

    fn servers(texts: &[&str]) -> BTreeSet<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_file_changes_only_with_the_api_servers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CONFIGURATION);
        let proxy = ApiProxy {
            folder: folder.path().to_owned(),
            is_loaded: false,
        };
        let one = servers(&["10.0.0.1:6443"]);
        let missing = proxy.write(&one).unwrap_err().to_string();
        assert!(
            missing.starts_with(&format!("cannot read {}: ", path.display())),
            "{missing}"
        );

        fs::write(&path, "backend theirs\n").unwrap();
        assert!(matches!(proxy.write(&one), Err(PassError::Foreign(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "backend theirs\n");

        let configuration = api_proxy::ApiProxy {
            image: String::new(),
            port: 1,
            health_port: 2,
        };
        fs::write(&path, configuration.configuration(&one)).unwrap();
        assert!(!proxy.write(&one).unwrap());
        let two = servers(&["10.0.0.1:6443", "10.0.0.2:6443"]);
        assert!(proxy.write(&two).unwrap());
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            configuration.configuration(&two)
        );
    }
}
