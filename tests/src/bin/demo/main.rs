//! `make demo`: shows the product on a real control plane, which it starts and ends.
//!
//! With `KEEP=1` it stops after the setup, prints how to use the cluster, and waits for Ctrl-C or TERM.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a demo is what it prints"
)]

mod command;
mod setup;
mod steps;

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use kcp_tests::api_server::{ApiServer, Etcd};
use kcp_tests::assets::Assets;
use kcp_tests::fault_socket::FaultSocket;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::products;
use kcp_tests::run::Run;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::setup::Demo;

/// For the test of `tests/leftovers`: the fastest way to start programs that do not end by themselves.
const API_SERVER_ONLY: &str = "--api-server-only";

#[tokio::main]
async fn main() -> ExitCode {
    let run = match Run::begin() {
        Ok(run) => run,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let started = Instant::now();
    let shown = show_until_stopped(&run).await;
    // The last line says that no process is left.
    let ended = run.ended().await;
    match shown.and_then(|end| ended.map(|()| end)) {
        Ok(End::Shown) => {
            run.forget();
            println!(
                "\nDone in {} s. Nothing is left running.",
                started.elapsed().as_secs()
            );
            ExitCode::SUCCESS
        }
        Ok(End::Kept) => {
            run.forget();
            ExitCode::SUCCESS
        }
        Ok(End::Interrupted) => {
            run.forget();
            // The exit code of shells after SIGINT.
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("\nerror: {error:#}\nlogs: {}", run.logs().display());
            ExitCode::FAILURE
        }
    }
}

enum End {
    /// All steps were shown.
    Shown,
    /// The user ended a cluster that was kept.
    Kept,
    /// The user ended the demo during the steps.
    Interrupted,
}

async fn show_until_stopped(run: &Arc<Run>) -> Result<End> {
    let mut stop = Stop::listen()?;
    let keep = env::var_os("KEEP").is_some_and(|value| !value.is_empty() && value != "0");
    match env::args().nth(1).as_deref() {
        None => {}
        Some(API_SERVER_ONLY) => {
            let assets = Assets::locate_for_demo()?;
            let etcd = Etcd::start(run, &assets, "etcd")?;
            let api = ApiServer::start(run, &assets, &etcd, "management").await?;
            stay(&Kubectl::new(run, &assets, api.kubeconfig())?, &mut stop).await;
            return Ok(End::Kept);
        }
        Some(other) => {
            bail!("unknown argument {other}; to keep the cluster up, set KEEP=1 in the environment")
        }
    }
    let demo = tokio::select! {
        demo = Demo::set_up(run) => demo.context("setup")?,
        () = stop.wanted() => return Ok(End::Interrupted),
    };
    if keep {
        let _faults = FaultSocket::listen(demo.management())?;
        let fault = products::folder()?.join("fault");
        println!("\nTo break a Machine, run this in another shell. fault --help lists all faults.\n");
        println!("{} {} kill", fault.display(), demo.machine().await?);
        println!("\nTo use the cluster, run this in another shell. To end the demo, press Ctrl-C here.\n");
        stay(demo.kubectl(), &mut stop).await;
        return Ok(End::Kept);
    }
    let show = async {
        steps::show(&demo).await?;
        demo.end().await
    };
    tokio::select! {
        shown = show => shown.map(|()| End::Shown),
        () = stop.wanted() => Ok(End::Interrupted),
    }
}

async fn stay(kubectl: &Kubectl, stop: &mut Stop) {
    let path = kubectl.path().to_string_lossy();
    println!("export KUBECONFIG={} PATH={path}", kubectl.kubeconfig().display());
    stop.wanted().await;
}

/// The two signals that end the demo.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    fn listen() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("listening for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("listening for SIGTERM")?,
        })
    }

    async fn wanted(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
