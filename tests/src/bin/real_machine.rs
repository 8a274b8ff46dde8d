//! `real-machine` boots a machine in a network of its own, says how to enter both, and ends them on Ctrl-C.

#![expect(clippy::print_stdout, reason = "it is a program for people")]

use anyhow::{Context as _, Result};
use kcp_tests::machines::real::{Images, Site};
use kcp_tests::run::Run;

fn main() -> Result<()> {
    let run = Run::begin()?;
    Site::enter(&run, "alone", Images::ControlPlane, async |site| {
        let machine = site.machine_with_disk("alone").await?;
        machine.power_on().await?;
        println!("{}", machine.shell()?);
        tokio::signal::ctrl_c().await.context("waiting for Ctrl-C")
    })?;
    Ok(())
}
