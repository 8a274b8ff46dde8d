//! The instructions per review, counted by callgrind. The difference between two runs excludes the start of the server.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::{
    bodies::Body,
    certificates::Certificates,
    client::Client,
    server::{Program, Server, free_port},
};

/// Under callgrind, a server is about fifty times slower.
const START: Duration = Duration::from_secs(120);

/// The number of reviews in each of the two runs.
const RUNS: [usize; 2] = [20, 120];

/// Returns `None` without valgrind.
pub(crate) fn per_review(program: Program, body: &Body, certificates: &Certificates) -> Result<Option<u64>> {
    if std::process::Command::new("valgrind")
        .arg("--version")
        .output()
        .is_err()
    {
        return Ok(None);
    }
    let [few, many] = RUNS;
    let (less, more) = (
        counted(program, body, certificates, few)?,
        counted(program, body, certificates, many)?,
    );
    Ok(Some(more.saturating_sub(less) / (many - few) as u64))
}

fn counted(program: Program, body: &Body, certificates: &Certificates, reviews: usize) -> Result<u64> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("callgrind.out");
    let wrapper = [
        "valgrind".to_owned(),
        "--quiet".to_owned(),
        "--tool=callgrind".to_owned(),
        format!("--callgrind-out-file={}", out.display()),
    ];
    let port = free_port()?;
    let server = Server::run(program, port, &wrapper, &program.command_line(port, certificates))?;
    let mut client = Client::connect_as_soon_as(port, certificates, START)?;
    for _ in 0..reviews {
        client.send(body)?;
    }
    drop(client);
    server.end()?;
    let text = std::fs::read_to_string(&out).context("reading callgrind's output")?;
    let totals = text
        .lines()
        .find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    totals
        .context("callgrind's output has no totals")?
        .trim()
        .parse()
        .context("reading callgrind's totals")
}
