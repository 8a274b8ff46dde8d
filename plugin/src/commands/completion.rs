//! `kubectl kcp completion`: prints a completion script, or installs the completion of `kubectl kcp`.
//!
//! - [`link`]: creates the link `kubectl_complete-kcp`

mod link;

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::{session::Session, terminal::escape, verdict::Verdict};
use link::{Installed, install};

/// Arguments of `completion`.
#[derive(Debug, Args)]
#[command(
    after_help = "kubectl completes `kubectl kcp` if the program kubectl_complete-kcp is on your PATH and the \
completion of kubectl is set up. It also completes the names of objects in the cluster, if the server responds within \
220 ms. --install creates kubectl_complete-kcp as a link to this program.

The script that this command prints completes `kubectl-kcp` (with the hyphen), but not the names of objects.

Examples:
  kubectl kcp completion --install
  kubectl kcp completion bash"
)]
pub struct CompletionArguments {
    /// Shell for which to print a script
    #[arg(required_unless_present = "install", conflicts_with = "install")]
    pub shell: Option<Shell>,

    /// Create the link kubectl_complete-kcp in the folder of this program, or in another folder on your PATH
    #[arg(long)]
    pub install: bool,
}

/// The name of the plugin's program.
const PROGRAM: &str = "kubectl-kcp";

/// Runs `completion` with the command line to complete.
pub fn run(
    arguments: &CompletionArguments,
    mut command: Command,
    session: &Session,
) -> anyhow::Result<Verdict> {
    if let Some(shell) = arguments.shell {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, PROGRAM, &mut script);
        let script = String::from_utf8_lossy(&script);
        session
            .terminal
            .print(&script)
            .context("cannot write to stdout")?;
        return Ok(Verdict::Met);
    }
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    let program = program(env::args_os().next(), &folders)?;
    let (what, path) = match install(&program, &folders)? {
        Installed::Created(link) => ("created", link),
        Installed::Present(link) => ("unchanged", link),
    };
    let line = format!("{} {what}", path.display());
    session
        .terminal
        .print_line(&escape(&line))
        .context("cannot write to stdout")?;
    session
        .terminal
        .note("set up the completion of kubectl too: kubectl completion --help");
    Ok(Verdict::Met)
}

/// The path of this program as the user or kubectl started it. Does not resolve links: a link of krew leads to another file after
/// an upgrade.
fn program(argv0: Option<OsString>, folders: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let argv0 = PathBuf::from(argv0.unwrap_or_default());
    if argv0.parent() != Some(Path::new("")) {
        return std::path::absolute(argv0).context("cannot find the path of this program");
    }
    let on_path = folders.iter().map(|folder| folder.join(&argv0));
    match on_path.into_iter().find(|program| program.is_file()) {
        Some(program) => Ok(program),
        None => env::current_exe().context("cannot find the path of this program"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clap::ValueEnum as _;
    use clap_complete::Shell;

    use super::PROGRAM;
    use crate::command::command;

    fn script(shell: Shell) -> String {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command(), PROGRAM, &mut script);
        String::from_utf8(script).unwrap()
    }

    #[test]
    fn each_script_knows_the_newest_commands() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            assert!(script.contains("move-leader"), "{shell}");
        }
    }

    /// Only bash is on every machine.
    #[test]
    fn bash_reads_its_script() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("script");
        std::fs::write(&file, script(Shell::Bash)).unwrap();
        let read = Command::new("bash").arg("-n").arg(&file).output().unwrap();
        assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
    }
}
