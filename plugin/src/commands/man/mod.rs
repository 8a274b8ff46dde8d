//! `kubectl kcp man`: creates manual pages.
//!
//! - [`page`]: the page of a command, from the definition of the command line
//! - [`roff`]: the macros of manual pages

mod page;
mod roff;

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};
use jiff::civil::Date;

use crate::{file::FileError, session::Session, terminal::escape, verdict::Verdict};
use page::pages;

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(
    after_help = "The command creates one page for each command, such as kubectl-kcp-status.1, and replaces pages that exist. \
        man(1) finds them if the folder is named man1, in a folder of its search path.

Examples:
  kubectl kcp man ~/.local/share/man/man1
  kubectl kcp man --date 2026-11-25 man1"
)]
pub struct ManArguments {
    /// Folder in which to create the pages; the command creates the folder if it does not exist
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,

    /// Date on the pages, such as the date of a release [default: none]
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub date: Option<Date>,
}

/// Runs `man` for the command line of the program.
///
/// # Errors
/// The folder cannot be written, or stdout cannot be written.
pub fn run(arguments: &ManArguments, program: Command, session: &Session) -> anyhow::Result<Verdict> {
    let ManArguments { folder, date } = arguments;
    let date = date.map(|date| date.to_string()).unwrap_or_default();
    let fails = |path: &PathBuf, cause| FileError::Write {
        path: path.display().to_string(),
        cause,
    };
    fs::create_dir_all(folder).map_err(|cause| fails(folder, cause))?;
    let pages = pages(program, &date);
    for page in &pages {
        let path = folder.join(&page.file);
        fs::write(&path, &page.text).map_err(|cause| fails(&path, cause))?;
    }
    let line = format!("{}: {} pages", folder.display(), pages.len());
    session
        .terminal
        .print_line(&escape(&line))
        .context("cannot write to stdout")?;
    Ok(Verdict::Met)
}
