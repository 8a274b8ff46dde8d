//! `load` sends 2,000 reviews per second for a minute to two servers with the shipped configuration, restarts one of
//! them, replaces the certificates and the CA of both, and prints the result of each review. Then it sends the same load
//! while `kcp-webhook manage` replaces the CA. Exit code 1: a review was lost or answered wrongly.

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
    let reports = match run() {
        Ok(reports) => reports,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(UNDECIDED);
        }
    };
    let mut code = ExitCode::SUCCESS;
    for (title, report) in [
        "a CA that is replaced by hand",
        "a CA that kcp-webhook manage replaces",
    ]
    .into_iter()
    .zip(reports)
    {
        print!("{title}:\n{report}");
        if let Err(error) = report.nothing_lost_or_wrong() {
            eprintln!("error: {error:#}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn run() -> Result<[Report; 2]> {
    let plan = Plan {
        rate: 2000,
        duration: Duration::from_secs(60),
        arguments: Vec::new(),
    };
    Runtime::new()?.block_on(async {
        let run = Run::begin()?;
        let reports = async {
            Ok([
                load::run(&run, &plan).await?,
                load::run_managed(&run, &plan).await?,
            ])
        };
        let reports = reports.await;
        run.ended().await?;
        reports
    })
}
