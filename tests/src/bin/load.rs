//! `load` sends 2,000 reviews a second for a minute through two servers as they are shipped, restarts one of them,
//! replaces the certificates of both, and prints what became of each review. Exit code 1: one was lost or wrong.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use kcp_tests::load::{self, Plan, Report};
use kcp_tests::run::Run;
use tokio::runtime::Runtime;

/// The load itself failed to run.
const UNDECIDED: u8 = 2;

fn main() -> ExitCode {
    let report = match run() {
        Ok(report) => report,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(UNDECIDED);
        }
    };
    print!("{report}");
    if let Err(error) = report.nothing_lost_or_wrong() {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run() -> Result<Report> {
    let plan = Plan {
        rate: 2000,
        duration: Duration::from_secs(60),
        arguments: Vec::new(),
    };
    Runtime::new()?.block_on(async {
        let run = Run::begin()?;
        let report = load::run(&run, &plan).await;
        run.ended().await?;
        report
    })
}
