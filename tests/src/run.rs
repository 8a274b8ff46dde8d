//! One run of the tests or the demo: its id, its folder and its logs.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, io, mem, process};

use anyhow::{Context as _, Result, ensure};
use tokio::process::Child;

use crate::machines::real;
use crate::wait;

/// Set in the environment of every process of a run. `tests/leftovers ID` searches for it.
pub const MARKER: &str = "KCP_TEST_RUN";

const PREFIX: &str = "kcp-test-";

/// The number of ended runs whose folders remain, for their logs.
const KEPT: usize = 3;

/// Supervisors kill a program that has not ended after a second.
const END: Duration = Duration::from_secs(60);

/// A run in progress. Its folder contains everything that its processes write.
#[derive(Debug)]
pub struct Run {
    id: String,
    folder: PathBuf,
    /// Locked as long as this process lives, however it ends. An unlocked folder belongs to an ended run.
    _lock: File,
    /// Supervisors that are ending, with the names of their programs.
    ending: Mutex<Vec<(String, Child)>>,
    /// Names of programs whose supervisors have not ended yet.
    running: Mutex<Vec<String>>,
}

impl Run {
    /// Starts a run with the id that the environment names, or a new id, and removes old runs.
    pub fn begin() -> Result<Arc<Self>> {
        let id = env::var(MARKER).unwrap_or_else(|_| format!("{:08x}", random() & 0xffff_ffff));
        let folder = folder_of(&id);
        let in_folder = || format!("preparing {}", folder.display());
        fs::create_dir_all(&folder).with_context(in_folder)?;
        let lock = File::create(folder.join("lock")).with_context(in_folder)?;
        lock.try_lock()
            .with_context(|| format!("run {id} is already in progress in {}", folder.display()))?;
        remove_all_but_lock(&folder).with_context(in_folder)?;
        fs::create_dir(folder.join("log")).with_context(in_folder)?;
        remove_ended_runs();
        Ok(Arc::new(Self {
            id,
            folder,
            _lock: lock,
            ending: Mutex::default(),
            running: Mutex::default(),
        }))
    }

    /// The id in the environment of every process of this run.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn logs(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Creates a folder below the run's, unless it exists.
    pub fn subfolder(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }

    /// A log for this process itself.
    pub fn log(&self, name: &str) -> Result<Log> {
        let path = self.logs().join(format!("{name}.log"));
        let file = File::options().append(true).create(true).open(&path);
        Ok(Log(Mutex::new(
            file.with_context(|| format!("opening {}", path.display()))?,
        )))
    }

    pub(crate) fn started(&self, name: &str) {
        locked(&self.running).push(name.to_owned());
    }

    /// Takes over a supervisor whose pipe is closed.
    pub(crate) fn ends(&self, name: &str, supervisor: Child) {
        locked(&self.ending).push((name.to_owned(), supervisor));
    }

    /// Waits until all programs of this run have ended. Drop their processes first.
    pub async fn ended(&self) -> Result<()> {
        self.ended_within(END).await
    }

    async fn ended_within(&self, limit: Duration) -> Result<()> {
        wait::until_within("all programs of this run have ended", limit, || async {
            let ending = mem::take(&mut *locked(&self.ending));
            for (name, mut supervisor) in ending {
                supervisor
                    .wait()
                    .await
                    .with_context(|| format!("waiting for {name}"))?;
                let mut running = locked(&self.running);
                if let Some(place) = running.iter().position(|running| *running == name) {
                    running.swap_remove(place);
                }
            }
            let running = locked(&self.running);
            ensure!(running.is_empty(), "still running: {}", running.join(", "));
            Ok(())
        })
        .await
    }

    /// Removes the folder of a run that succeeded.
    pub fn forget(&self) {
        // A later run removes what this one cannot remove.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A log file with a timestamp on each line.
#[derive(Debug)]
pub struct Log(Mutex<File>);

impl Log {
    /// Appends one line. Ignores errors: a log must not fail a test.
    pub fn line(&self, text: impl AsRef<str>) {
        if let Ok(mut file) = self.0.lock() {
            let _ = writeln!(
                file,
                "{} {}",
                jiff::Timestamp::now().strftime("%H:%M:%S%.3f"),
                text.as_ref()
            );
        }
    }
}

/// A number that differs between processes and calls. It is not suitable for secrets.
pub fn random() -> u64 {
    RandomState::new().hash_one(process::id())
}

/// The folder of a run.
pub fn folder_of(id: &str) -> PathBuf {
    env::temp_dir().join(format!("{PREFIX}{id}"))
}

/// The id of the run with this folder.
pub fn id_of(folder: &Path) -> Option<&str> {
    folder.file_name()?.to_str()?.strip_prefix(PREFIX)
}

/// The folders of all runs.
pub fn folders() -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(env::temp_dir())?.flatten();
    let runs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    Ok(runs.map(|entry| entry.path()).collect())
}

/// A run can have the id of an ended one, and must not start with its etcd data.
fn remove_all_but_lock(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if entry.file_name() != "lock" {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn remove_ended_runs() {
    let Ok(folders) = folders() else {
        return;
    };
    let mut ended: Vec<_> = folders
        .into_iter()
        .filter(|folder| File::open(folder.join("lock")).is_ok_and(|lock| lock.try_lock().is_ok()))
        .filter_map(|folder| Some((fs::metadata(&folder).ok()?.modified().ok()?, folder)))
        .collect();
    ended.sort();
    for id in ended.iter().filter_map(|(_, folder)| id_of(folder)) {
        real::remove_of_run(id);
    }
    let surplus = ended.len().saturating_sub(KEPT);
    for (_, folder) in ended.into_iter().take(surplus) {
        let _ = fs::remove_dir_all(folder);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Run;

    #[tokio::test]
    async fn names_programs_that_have_not_ended() {
        let run = Run::begin().unwrap();
        run.ended_within(Duration::ZERO).await.unwrap();
        run.started("etcd");
        run.started("management-apiserver");
        let error = format!("{:#}", run.ended_within(Duration::ZERO).await.unwrap_err());
        run.forget();
        assert_eq!(
            error,
            "waited 0 s until all programs of this run have ended: still running: etcd, management-apiserver"
        );
    }
}
