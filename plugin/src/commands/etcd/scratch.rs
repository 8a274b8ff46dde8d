//! A member that serves a restored snapshot on this machine, for `etcd snapshot --verify` and `etcd restore`.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use kcp_control_plane::verbs::etcd::snapshot::verification::KeySpace;
use kcp_etcd::{Connection, Timeouts};
use tempfile::TempDir;
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    time::{sleep, timeout},
};

/// The programs of etcd, which must be on PATH.
const RESTORE: &str = "etcdutl";
const SERVE: &str = "etcd";

/// How long etcdutl may take. It copies the snapshot, and hashes it.
const RESTORE_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How long etcd may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(5 * 60);

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The socket on which etcd serves, in the scratch folder. etcd creates a socket with the name of the host and port of a unix URL.
const SOCKET: &str = "clients:0";

/// The time limits of a connection to the member. For a hash, the member reads its whole database.
const TIMEOUTS: Timeouts = Timeouts {
    dial: Duration::from_secs(5),
    handshake: Duration::from_secs(5),
    call: Duration::from_secs(5 * 60),
};

/// A member with a restored snapshot. Only this user can reach it. It ends, and its data is deleted, when it is dropped.
pub(super) struct ScratchMember {
    connection: Connection,
    _etcd: Child,
    _folder: TempDir,
}

/// A folder for the files of a scratch member, which only this user can read.
pub(super) fn folder() -> anyhow::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("kubectl-kcp-verify-").tempdir();
    folder.context("cannot create a folder for the snapshot")
}

impl ScratchMember {
    /// Restores a snapshot, and serves it. etcdutl checks the hash of the file. Fails if a program is not on PATH, the snapshot
    /// cannot be restored, or etcd does not serve it.
    pub(super) async fn start(folder: TempDir, snapshot: &Path) -> anyhow::Result<Self> {
        let data = folder.path().join("data");
        restore(snapshot, &data).await?;
        let log = folder.path().join("etcd.log");
        let output = File::create(&log).context("cannot write the log of etcd")?;
        let mut etcd = Command::new(SERVE)
            .current_dir(folder.path())
            // etcd reads variables such as ETCD_DATA_DIR as flags.
            .env_clear()
            .env("PATH", env::var_os("PATH").unwrap_or_default())
            .args(["--name=default", "--data-dir=data", "--unsafe-no-fsync"])
            .args([
                "--listen-client-urls=unix://clients:0",
                "--advertise-client-urls=unix://clients:0",
            ])
            .args(["--listen-peer-urls=unix://peers:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| not_found(SERVE, error))?;
        let end = Instant::now() + START_LIMIT;
        let connection = loop {
            if let Some(status) = etcd.try_wait()? {
                bail!(
                    "etcd does not serve the snapshot: it ended with {status}: {}",
                    last_line(&log)
                );
            }
            if let Some(connection) = serving(&folder.path().join(SOCKET)).await {
                break connection;
            }
            if Instant::now() > end {
                bail!(
                    "etcd does not serve the snapshot within {} minutes: {}",
                    START_LIMIT.as_secs() / 60,
                    last_line(&log)
                );
            }
            sleep(POLL_INTERVAL).await;
        };
        Ok(Self {
            connection,
            _etcd: etcd,
            _folder: folder,
        })
    }

    /// The newest revision of the snapshot.
    pub(super) async fn revision(&self) -> anyhow::Result<i64> {
        Ok(self.connection.status().await?.revision)
    }

    /// The value of a key. `None` if the snapshot has no such key.
    pub(super) async fn value(&self, key: &str) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(self.connection.get(key.as_bytes()).await?)
    }

    /// The number of keys at a revision.
    pub(super) async fn count_keys(&self, revision: i64) -> anyhow::Result<u64> {
        Ok(self.connection.count_keys(revision).await?)
    }

    /// The keys and values at a revision. First deletes the history before `compacted`, because only then the hash is comparable
    /// with that of a member that has deleted this history.
    pub(super) async fn key_space(&self, revision: i64, compacted: Option<i64>) -> anyhow::Result<KeySpace> {
        if let Some(compacted) = compacted.filter(|compacted| *compacted <= revision) {
            match self.connection.compact(compacted).await {
                Err(error) if !error.is_compacted() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(KeySpace {
            hash: self.connection.hash_key_space(revision).await?,
            keys: self.connection.count_keys(revision).await?,
        })
    }
}

async fn restore(snapshot: &Path, data: &PathBuf) -> anyhow::Result<()> {
    let restored = Command::new(RESTORE)
        .args(["snapshot", "restore"])
        .arg(snapshot)
        .arg("--data-dir")
        .arg(data)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let restored = timeout(RESTORE_LIMIT, restored)
        .await
        .map_err(|_| {
            anyhow!(
                "etcdutl did not restore the snapshot within {} minutes",
                RESTORE_LIMIT.as_secs() / 60
            )
        })?
        .map_err(|error| not_found(RESTORE, error))?;
    if restored.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&restored.stderr);
    Err(anyhow!(
        "etcdutl cannot restore the snapshot: {}",
        text.lines().last().unwrap_or_default().trim()
    ))
}

/// A connection to the member, once it serves.
async fn serving(socket: &Path) -> Option<Connection> {
    let stream = UnixStream::connect(socket).await.ok()?;
    let connection = Connection::open_without_tls(Box::new(stream), TIMEOUTS)
        .await
        .ok()?;
    let status = connection.status().await.ok()?;
    status.leader.map(|_| connection)
}

fn not_found(program: &str, error: std::io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(format!(
        "cannot run {program}: reading a snapshot needs {SERVE} and {RESTORE} on PATH, in the etcd version of the control plane"
    ))
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().last().unwrap_or_default().to_owned()
}
