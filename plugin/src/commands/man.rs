//! `kubectl kcp man`: creates manual pages.

use std::{fs, path::PathBuf};

use clap::{Args, Command};

use crate::{file::FileError, verdict::Verdict};

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(
    after_help = "The command creates one page for each command, such as kubectl-kcp-status.1, and replaces pages that exist. \
        man(1) finds them if the folder is named man1, in a folder of its search path.

Examples:
  kubectl kcp man ~/.local/share/man/man1
  kubectl kcp man man1"
)]
pub struct ManArguments {
    /// Folder in which to create the pages; the command creates the folder if it does not exist
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Runs `man` for the command line of the program.
pub fn run(ManArguments { folder }: &ManArguments, program: Command) -> anyhow::Result<Verdict> {
    let created = fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(program.bin_name("kubectl kcp"), folder));
    created.map_err(|cause| FileError::Write {
        path: folder.display().to_string(),
        cause,
    })?;
    Ok(Verdict::Met)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::{ManArguments, run};
    use crate::command::program;

    fn names(command: &clap::Command, above: &str, found: &mut BTreeSet<String>) {
        let name = format!("{above}{}", command.get_name());
        for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
            names(child, &format!("{name}-"), found);
        }
        found.insert(name + ".1");
    }

    #[test]
    fn every_command_has_a_page() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("man1");
        run(
            &ManArguments {
                folder: folder.clone(),
            },
            program(),
        )
        .unwrap();
        let pages = fs::read_dir(&folder).unwrap();
        let pages: BTreeSet<String> = pages
            .map(|page| page.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut expected = BTreeSet::new();
        names(&program(), "", &mut expected);
        assert_eq!(pages, expected);
        let page = fs::read_to_string(folder.join("kubectl-kcp-etcd-defrag.1")).unwrap();
        for part in [
            ".SH SYNOPSIS\n\\fBkubectl kcp etcd defrag\\fR",
            "\\-\\-allow\\-pause",
            "  kubectl kcp etcd defrag",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
