//! Injects faults on request. Whoever has a cluster up listens on a socket in its run's folder.
//!
//! A request is one line, `TARGET FAULT`. The answer is one line too: `done` or an error.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::Client;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::machines::fault::Fault;
use crate::machines::{Clusters, WorkloadCluster};
use crate::management_cluster::ManagementCluster;
use crate::named_fault::NamedFault;
use crate::run::{self, Run};
use crate::workload_access::WorkloadAccess;

const SOCKET: &str = "fault.sock";

const DONE: &str = "done";

/// Two names, or an error with the end of a log.
const LINE_BYTES: u64 = 64 * 1024;

const REQUEST: Duration = Duration::from_secs(60);

/// Injects requested faults until it is dropped.
pub struct FaultSocket {
    task: JoinHandle<()>,
}

impl FaultSocket {
    /// Listens in the folder of the management cluster's run.
    pub fn listen(management: &ManagementCluster) -> Result<Self> {
        let path = management.run().folder().join(SOCKET);
        let listener =
            UnixListener::bind(&path).with_context(|| format!("listening on {}", path.display()))?;
        let inflicter = Inflicter {
            run: management.run().clone(),
            client: management.client().clone(),
            clusters: management.machines().clusters(),
            accesses: Mutex::default(),
        };
        let task = tokio::spawn(accept(listener, Arc::new(inflicter)));
        Ok(Self { task })
    }
}

impl Drop for FaultSocket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: UnixListener, inflicter: Arc<Inflicter>) {
    let mut requests = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while requests.try_join_next().is_some() {}
        let inflicter = inflicter.clone();
        requests.spawn(async move {
            // A client that does not wait for the answer does not need it.
            let _ = inflicter.answer(stream).await;
        });
    }
}

struct Inflicter {
    run: Arc<Run>,
    client: Client,
    clusters: Clusters,
    /// Access by namespace and name of the cluster, as it was before the first fault.
    accesses: Mutex<HashMap<(String, String), Arc<WorkloadAccess>>>,
}

impl Inflicter {
    async fn answer(&self, mut stream: UnixStream) -> Result<()> {
        let request = timeout(REQUEST, line(&mut stream))
            .await
            .context("no request")??;
        let answer = match self.inflict(&request).await {
            Ok(()) => DONE.to_owned(),
            Err(error) => format!("{error:#}").replace('\n', " "),
        };
        stream.write_all(format!("{answer}\n").as_bytes()).await?;
        Ok(())
    }

    async fn inflict(&self, request: &str) -> Result<()> {
        let (target, fault) = request.split_once(' ').context("not a request")?;
        match fault.parse()? {
            NamedFault::Machine(fault) => {
                let cluster = self.cluster_of(target, fault).await?;
                cluster.inflict(fault, target).await
            }
            NamedFault::Access(fault) => self.access(target).await?.inflict(fault).await,
        }
    }

    /// The cluster that has the machine, or the only cluster for a fault of no machine that exists.
    async fn cluster_of(&self, machine: &str, fault: Fault) -> Result<Arc<WorkloadCluster>> {
        let clusters: Vec<_> = self.clusters.lock().await.values().cloned().collect();
        let mut known = Vec::new();
        for cluster in &clusters {
            let machines = cluster.machines().await;
            if machines.iter().any(|name| name == machine) {
                return Ok(cluster.clone());
            }
            known.extend(machines);
        }
        known.sort();
        match clusters.as_slice() {
            [only] if !fault.needs_machine() => Ok(only.clone()),
            several if !fault.needs_machine() => bail!(
                "{} workload clusters are up, so name a Machine of one of them",
                several.len()
            ),
            _ => bail!(
                "no Machine is named {machine}; choose one of: {}",
                known.join(", ")
            ),
        }
    }

    /// The access to a cluster named `NAME`, or `NAMESPACE/NAME` if several clusters have that name.
    async fn access(&self, cluster: &str) -> Result<Arc<WorkloadAccess>> {
        let mut keys: Vec<_> = self.clusters.lock().await.keys().cloned().collect();
        keys.retain(|(namespace, name)| name == cluster || format!("{namespace}/{name}") == cluster);
        let key = match keys.as_slice() {
            [only] => only,
            [] => bail!("no workload cluster is named {cluster}"),
            several => {
                let several: Vec<_> = several
                    .iter()
                    .map(|(namespace, name)| format!("{namespace}/{name}"))
                    .collect();
                bail!(
                    "several workload clusters are named {cluster}: {}",
                    several.join(", ")
                )
            }
        };
        let mut accesses = self.accesses.lock().await;
        if let Some(known) = accesses.get(key) {
            return Ok(known.clone());
        }
        let read = WorkloadAccess::read(&self.run, &self.client, &key.0, &key.1).await?;
        let access = Arc::new(read);
        accesses.insert(key.clone(), access.clone());
        Ok(access)
    }
}

/// The folder of the run that listens: the one that the environment names, that of `$KUBECONFIG`, or the only one.
pub async fn listening() -> Result<PathBuf> {
    let folders = match env::var(run::MARKER) {
        Ok(id) => vec![run::folder_of(&id)],
        Err(_) => run::folders()?,
    };
    let mut listening = Vec::new();
    for folder in folders {
        if UnixStream::connect(folder.join(SOCKET)).await.is_ok() {
            listening.push(folder);
        }
    }
    let kubeconfig = env::var_os("KUBECONFIG").map(PathBuf::from).unwrap_or_default();
    select(listening, &kubeconfig)
}

/// The only folder, or the one with the kubeconfig.
fn select(mut listening: Vec<PathBuf>, kubeconfig: &Path) -> Result<PathBuf> {
    if listening.iter().any(|folder| kubeconfig.starts_with(folder)) {
        listening.retain(|folder| kubeconfig.starts_with(folder));
    }
    match listening.as_slice() {
        [only] => Ok(only.clone()),
        [] => bail!("no cluster is up; start one with: make demo KEEP=1"),
        several => {
            let several = several.iter().filter_map(|folder| run::id_of(folder));
            bail!(
                "several demos are up; run the line `export ...` that yours printed, or select one with {}=ID: {}",
                run::MARKER,
                several.collect::<Vec<_>>().join(", ")
            )
        }
    }
}

/// Injects a fault and waits until it is injected.
pub async fn inflict(folder: &Path, target: &str, fault: NamedFault) -> Result<()> {
    let mut stream = UnixStream::connect(folder.join(SOCKET))
        .await
        .context("connecting to the demo")?;
    stream.write_all(format!("{target} {fault}\n").as_bytes()).await?;
    let answer = line(&mut stream)
        .await
        .context("the demo ended before it answered")?;
    ensure!(answer == DONE, "{answer}");
    Ok(())
}

async fn line(stream: &mut UnixStream) -> Result<String> {
    let mut lines = BufReader::new(stream.take(LINE_BYTES)).lines();
    lines.next_line().await?.context("empty line")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_of_the_kubeconfig_is_selected() {
        let folders = |ids: &[&str]| ids.iter().map(|id| run::folder_of(id)).collect::<Vec<_>>();
        let kubeconfig = |id: &str| run::folder_of(id).join("management/kubeconfig");
        let selected = |ids: &[&str], kubeconfig: &Path| select(folders(ids), kubeconfig).ok();
        assert_eq!(selected(&["a", "b"], &kubeconfig("b")), Some(run::folder_of("b")));
        assert_eq!(selected(&["a"], &kubeconfig("ended")), Some(run::folder_of("a")));
        assert_eq!(selected(&["a", "b"], &kubeconfig("ended")), None);
        assert_eq!(selected(&[], &kubeconfig("a")), None);
    }
}
