//! `load` sends 2,000 reviews per second for a minute to two servers with the shipped configuration, restarts one of
//! them, replaces the certificates of both, and prints the result of each review. Exit code 1: a review was lost or
//! answered wrongly.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use kcp_tests::load::{self, Plan, Report};
use kcp_tests::run::Run;
use tokio::runtime::Runtime;

/// The exit code if the load did not run.
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
