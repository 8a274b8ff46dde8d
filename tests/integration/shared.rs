//! The management cluster that all tests share.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::sync::{Arc, LazyLock};
use std::thread;

use anyhow::Result;
use kcp_tests::assets::Assets;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::pools::server::PoolServer;
use kcp_tests::run::Run;
use tokio::runtime::Runtime;
use tokio::sync::{OnceCell, Semaphore};

/// The runtime of everything that tests share. It outlives each test, which has a thread of its own. It is never shut
/// down: the programs end with this process, see `supervise`.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Runtime::new().expect("a runtime needs nothing but threads"));

/// The run of all programs of the tests.
static RUN: LazyLock<Result<Arc<Run>, String>> =
    LazyLock::new(|| Run::begin().map_err(|error| format!("{error:#}")));

static CLUSTER: OnceCell<Result<ManagementCluster, String>> = OnceCell::const_new();

static POOLS: OnceCell<Result<PoolServer, String>> = OnceCell::const_new();

/// A workload cluster uses one core while it changes, and almost none while its members elect a leader or join.
static WORKLOAD_CLUSTERS: Semaphore = Semaphore::const_new(4);

/// Runs a test on the shared management cluster.
pub(crate) fn with_management_cluster(test: impl AsyncFnOnce(&ManagementCluster)) {
    RUNTIME.block_on(async {
        // All tests share the error, because another try would fail as slowly.
        let cluster = CLUSTER.get_or_init(async || {
            let run = RUN.as_ref().map_err(Clone::clone)?;
            let started = async { ManagementCluster::start(run, Assets::locate()?).await }.await;
            started.map_err(|error| format!("{error:#}\nlogs: {}", run.logs().display()))
        });
        match cluster.await {
            Ok(cluster) => {
                let _logs = NamedOnFailure(cluster);
                test(cluster).await;
            }
            Err(error) => panic!("the management cluster did not come up: {error}"),
        }
    });
}

/// Runs a test while Cluster API's controllers reconcile a namespace, after waiting for its turn. Fails if a webhook
/// refused one of their writes.
pub(crate) fn with_controllers(namespace: &str, test: impl AsyncFnOnce(&ManagementCluster) -> Result<()>) {
    with_refusals(namespace, None, test);
}

/// [`with_controllers`] in which our webhooks refuse writes of the controllers with the text `expected`.
pub(crate) fn with_controllers_refused(
    namespace: &str,
    expected: &str,
    test: impl AsyncFnOnce(&ManagementCluster) -> Result<()>,
) {
    with_refusals(namespace, Some(expected), test);
}

fn with_refusals(
    namespace: &str,
    expected: Option<&str>,
    test: impl AsyncFnOnce(&ManagementCluster) -> Result<()>,
) {
    with_management_cluster(async |management| {
        let _turn = WORKLOAD_CLUSTERS
            .acquire()
            .await
            .expect("the semaphore is never closed");
        let lived = management
            .with_controllers_refused(namespace, expected, async || test(management).await)
            .await;
        if let Err(error) = lived {
            panic!("{error:#}");
        }
    });
}

/// Runs a test on the API server for pools, which has a readable history.
pub(crate) fn with_pools(test: impl AsyncFnOnce(&PoolServer)) {
    with_run(async |run| {
        let server = POOLS.get_or_init(async || {
            let started = PoolServer::start(run).await;
            started.map_err(|error| format!("{error:#}\nlogs: {}", run.logs().display()))
        });
        match server.await {
            Ok(server) => test(server).await,
            Err(error) => panic!("the API server for pools did not come up: {error}"),
        }
    });
}

/// Runs a test that starts its own programs and no management cluster.
pub(crate) fn with_run(test: impl AsyncFnOnce(&Arc<Run>)) {
    RUNTIME.block_on(test(run()));
}

/// The run, for a test that has a runtime of its own.
pub(crate) fn run() -> &'static Arc<Run> {
    match &*RUN {
        Ok(run) => run,
        Err(error) => panic!("the run did not begin: {error}"),
    }
}

/// Runs a test that needs no management cluster.
pub(crate) fn alone(test: impl Future<Output = ()>) {
    RUNTIME.block_on(test);
}

/// Prints the folder of the logs after a failed assertion.
struct NamedOnFailure<'a>(&'a ManagementCluster);

impl Drop for NamedOnFailure<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("logs: {}", self.0.run().logs().display());
        }
    }
}
