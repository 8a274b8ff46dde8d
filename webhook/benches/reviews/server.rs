//! A measured server: starts it, and reads its resource usage from the kernel.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{certificates::Certificates, client::Client};
use anyhow::{Context as _, Result};

/// The core of the servers.
const SERVER_CORE: &str = "0";
/// The core of the client.
pub(crate) const CLIENT_CORE: &str = "1";

/// The time limit for the start of a server.
const START: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    Ours,
    ConstantAnswer,
    SameDecode,
}

impl Program {
    pub(crate) const ALL: [Self; 3] = [Self::Ours, Self::ConstantAnswer, Self::SameDecode];

    /// The name of the server in the report.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::ConstantAnswer => "constant_answer",
            Self::SameDecode => "same_decode",
        }
    }

    pub(crate) fn command_line(self, port: u16, certificates: &Certificates) -> Vec<String> {
        let ours = Path::new(env!("CARGO_BIN_EXE_kcp-webhook"));
        let baseline = |name: &str| {
            vec![
                ours.with_file_name("examples/baseline").display().to_string(),
                name.to_owned(),
                port.to_string(),
                certificates.certificate.display().to_string(),
                certificates.key.display().to_string(),
            ]
        };
        match self {
            Self::Ours => vec![
                ours.display().to_string(),
                "serve".to_owned(),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={port}"),
                "--health-port=0".to_owned(),
                format!("--tls-cert-file={}", certificates.certificate.display()),
                format!("--tls-private-key-file={}", certificates.key.display()),
            ],
            Self::ConstantAnswer => baseline("constant-answer"),
            Self::SameDecode => baseline("same-decode"),
        }
    }
}

/// A server that runs until it is dropped.
pub(crate) struct Server {
    program: Program,
    port: u16,
    child: Child,
}

impl Server {
    /// Starts a server and waits until it accepts connections.
    pub(crate) fn start(program: Program, certificates: &Certificates) -> Result<Self> {
        let server = Self::execute(program, certificates)?;
        Client::connect_as_soon_as(server.port, certificates, START)?;
        Ok(server)
    }

    pub(crate) fn execute(program: Program, certificates: &Certificates) -> Result<Self> {
        let port = free_port()?;
        Self::run(program, port, &[], &program.command_line(port, certificates))
    }

    /// Starts a server under another program, such as valgrind.
    pub(crate) fn run(program: Program, port: u16, under: &[String], command: &[String]) -> Result<Self> {
        let child = Command::new("taskset")
            .args(["-c", SERVER_CORE])
            .args(under)
            .args(command)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting a server under taskset")?;
        Ok(Self { program, port, child })
    }

    pub(crate) fn program(&self) -> Program {
        self.program
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sends SIGTERM and waits for the process to exit.
    pub(crate) fn end(mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .context("ending a server")?;
        self.child.wait().context("waiting for a server")?;
        Ok(())
    }

    /// The CPU time of all threads so far, from the scheduler's statistics.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        let mut total = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            let spent = text.split(' ').next().context("an empty schedstat")?;
            total += spent.parse::<u64>().context("reading schedstat")?;
        }
        Ok(Duration::from_nanos(total))
    }

    /// Anonymous resident memory.
    pub(crate) fn anonymous_mib(&self) -> Result<f64> {
        self.status_mib("RssAnon:")
    }

    /// Peak resident memory.
    pub(crate) fn peak_mib(&self) -> Result<f64> {
        self.status_mib("VmHWM:")
    }

    fn status_mib(&self, name: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line
            .and_then(|line| line.split_whitespace().next())
            .context("no such status")?;
        Ok(kib.parse::<f64>()? / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have exited already.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
