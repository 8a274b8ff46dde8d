//! The cgroups of machines. Unlike namespaces, they do not end with their last process.
//!
//! A machine has a cgroup `kcp-test-RUN/SITE-MACHINE` in each hierarchy, below the cgroup of the test, so that limits of the
//! test hold for its machines. `supervise` removes it when the machine has ended; a later run removes those of a run whose
//! supervisors were killed.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

const MOUNT: &str = "/sys/fs/cgroup";

/// Another machine that ends may remove the folder of the run between the creation of that folder and of one in it.
const TRIES: usize = 100;

/// The cgroup of this process in one hierarchy.
struct Hierarchy {
    /// The name of the hierarchy's folder, as `memory` or `cpu,cpuacct`; `unified` for version 2.
    controllers: String,
    path: PathBuf,
}

/// The folder of a run in each hierarchy.
fn folder_of(run: &str) -> String {
    format!("kcp-test-{run}")
}

/// Creates the cgroups of a machine. Returns a line for each with its controllers and its path.
pub(super) fn create(run: &str, machine: &str) -> Result<String> {
    let mut lines = String::new();
    for Hierarchy { controllers, path } in of_this_process()? {
        let of_run = path.join(folder_of(run));
        let of_machine = of_run.join(machine);
        create_folder(&of_machine)?;
        if controllers.split(',').any(|controller| controller == "cpuset") {
            // A new cpuset is empty, and no process can enter it.
            for setting in ["cpuset.cpus", "cpuset.mems"] {
                let value = fs::read(path.join(setting))
                    .with_context(|| format!("reading {}", path.join(setting).display()))?;
                for folder in [&of_run, &of_machine] {
                    fs::write(folder.join(setting), &value)
                        .with_context(|| format!("writing {}", folder.join(setting).display()))?;
                }
            }
        }
        let _ = writeln!(lines, "{controllers} {}", of_machine.display());
    }
    Ok(lines)
}

fn create_folder(folder: &Path) -> Result<()> {
    let mut created = Ok(());
    for _ in 0..TRIES {
        created = fs::create_dir_all(folder);
        match &created {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            _ => break,
        }
    }
    created.with_context(|| format!("creating {}", folder.display()))
}

/// Removes the cgroups of an ended run, except for those that still have processes.
pub(crate) fn remove_of_run(run: &str) {
    for Hierarchy { path, .. } in of_this_process().unwrap_or_default() {
        remove(&path.join(folder_of(run)));
    }
}

fn remove(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.path().is_dir()) {
        remove(&entry.path());
    }
    // It fails while a process is in it.
    let _ = fs::remove_dir(folder);
}

fn of_this_process() -> Result<Vec<Hierarchy>> {
    let file = "/proc/self/cgroup";
    Ok(parse(
        &fs::read_to_string(file).with_context(|| format!("reading {file}"))?,
    ))
}

/// Parses `/proc/self/cgroup`, see cgroups(7).
fn parse(text: &str) -> Vec<Hierarchy> {
    let line = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let controllers = if id == "0" {
            "unified"
        } else {
            controllers.strip_prefix("name=").unwrap_or(controllers)
        };
        Some(Hierarchy {
            controllers: controllers.to_owned(),
            path: Path::new(MOUNT)
                .join(controllers)
                .join(path.trim_start_matches('/')),
        })
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn finds_the_folder_in_each_hierarchy() {
        let text = "9:name=systemd:/\n4:memory:/user.slice/a:b\n2:cpu,cpuacct:/x\n0::/\n";
        let found: Vec<_> = parse(text)
            .into_iter()
            .map(|hierarchy| (hierarchy.controllers, hierarchy.path.display().to_string()))
            .collect();
        let expected = [
            ("systemd", "/sys/fs/cgroup/systemd/"),
            ("memory", "/sys/fs/cgroup/memory/user.slice/a:b"),
            ("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/x"),
            ("unified", "/sys/fs/cgroup/unified/"),
        ];
        let expected = expected.map(|(controllers, path)| (controllers.to_owned(), path.to_owned()));
        assert_eq!(found, expected);
    }
}
