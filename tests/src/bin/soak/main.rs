//! `soak RUNS [SEED]` runs randomized runs of lessees with faults, with consecutive seeds, and restarts the API server
//! in the middle of every fifty. It saves its progress in `soak.json` in the target folder. From there, the same command
//! resumes after an interrupt or after an hour. Exit code 1: a run failed. 2: not all runs are done.
//!
//! `soak sets ROUNDS` lets two or three lessees compete for overlapping sets of entries, ROUNDS times. Exit code 1: a round failed.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod state;

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::stream::{self, StreamExt as _};
use kcp_tests::pools::counts::Counts;
use kcp_tests::pools::random_run::{Tolerance, random_run};
use kcp_tests::pools::server::PoolServer;
use kcp_tests::pools::sets::compete_for_sets;
use kcp_tests::products;
use kcp_tests::run::{Run, random};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::state::State;

/// The runs between two restarts of the API server, and between two writes of the progress.
const BATCH: u64 = 50;

/// The argument with which lessees compete for sets of entries.
const SETS: &str = "sets";

/// The rounds of sets in one pool.
const SETS_BATCH: usize = 50;

/// Concurrent runs or pools. Their lessees mostly wait for others or for the end of a lease.
const AT_ONCE: usize = 10;

/// The most time that one call takes.
const LIMIT: Duration = Duration::from_secs(3600);

/// The exit code if not all runs are done.
const UNDECIDED: u8 = 2;

/// The end of a call without a failure.
enum Verdict {
    Kept,
    Broken(anyhow::Error),
    /// The next call continues.
    OutOfTime,
}

fn main() -> ExitCode {
    match run() {
        Ok(Verdict::Kept) => ExitCode::SUCCESS,
        Ok(Verdict::Broken(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
        Ok(Verdict::OutOfTime) => {
            eprintln!("error: the time limit of one hour is reached\nhint: the same command resumes");
            ExitCode::from(UNDECIDED)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(UNDECIDED)
        }
    }
}

fn run() -> Result<Verdict> {
    const USAGE: &str = "usage: soak RUNS [SEED], or soak sets ROUNDS";
    let mut arguments = env::args().skip(1).peekable();
    if arguments.next_if_eq(SETS).is_some() {
        let rounds = arguments.next().context(USAGE)?.parse().context(USAGE)?;
        return compete_in_batches(rounds);
    }
    let mut arguments = arguments.map(|number| number.parse().context(USAGE));
    let runs = arguments.next().context(USAGE)??;
    let seed = arguments.next().transpose()?;
    let file = products::target()?.join("soak.json");
    let state = State::load(&file)?.filter(|state| state.is_unfinished(runs, seed));
    let mut state = state.unwrap_or_else(|| State::new(seed.unwrap_or_else(|| random() >> 32)));
    println!(
        "seeds from {}; {} of {runs} runs are done",
        state.first_seed, state.counts.runs
    );
    Runtime::new()?.block_on(async {
        let run = Run::begin()?;
        let verdict = soak(&run, runs, &mut state, |state| state.save(&file)).await;
        run.ended().await?;
        verdict
    })
}

fn compete_in_batches(rounds: usize) -> Result<Verdict> {
    Runtime::new()?.block_on(async {
        let run = Run::begin()?;
        let started = Instant::now();
        let verdict = async {
            let server = PoolServer::start(&run).await?;
            let batches = (0..rounds).step_by(SETS_BATCH).map(async |first| {
                let batch = SETS_BATCH.min(rounds - first);
                compete_for_sets(&server, &format!("sets-{first}"), batch).await?;
                anyhow::Ok(batch)
            });
            let mut batches = stream::iter(batches).buffer_unordered(AT_ONCE);
            let mut done = 0;
            while let Some(batch) = batches.next().await {
                match batch {
                    Ok(batch) => done += batch,
                    Err(error) => return Ok(Verdict::Broken(error)),
                }
                println!("{done} rounds in {} s", started.elapsed().as_secs());
            }
            anyhow::Ok(Verdict::Kept)
        };
        let verdict = verdict.await;
        run.ended().await?;
        verdict
    })
}

async fn soak(
    run: &Arc<Run>,
    runs: u64,
    state: &mut State,
    save: impl Fn(&State) -> Result<()>,
) -> Result<Verdict> {
    let server = PoolServer::start(run).await?;
    let started = Instant::now();
    let mut longest = Duration::ZERO;
    while state.counts.runs < runs {
        let batch = Instant::now();
        let left = LIMIT.saturating_sub(started.elapsed());
        if left < longest {
            return Ok(Verdict::OutOfTime);
        }
        let next = state.first_seed.wrapping_add(state.counts.runs);
        let seeds = 0..BATCH.min(runs - state.counts.runs);
        let seeds = seeds.map(|index| next.wrapping_add(index)).collect();
        // A batch that takes longer than all before is cancelled, and the next call repeats it.
        match timeout(left, lessees_through_a_restart(&server, seeds)).await {
            Ok(Ok(counts)) => state.counts += counts,
            Ok(Err(error)) => return Ok(Verdict::Broken(error)),
            Err(_) => return Ok(Verdict::OutOfTime),
        }
        state.restarts += 1;
        longest = longest.max(batch.elapsed());
        state.seconds += batch.elapsed().as_secs();
        save(state)?;
        println!("{state}");
    }
    Ok(Verdict::Kept)
}

/// Runs these seeds. Kills and restarts the API server when half of the runs are done and others are in progress.
async fn lessees_through_a_restart(server: &PoolServer, seeds: Vec<u64>) -> Result<Counts> {
    let half = seeds.len().div_ceil(2);
    let runs = stream::iter(seeds).map(|seed| random_run(server, seed, Tolerance::ServerRestarts));
    let mut runs = runs.buffer_unordered(AT_ONCE).enumerate();
    let mut sum = Counts::default();
    let (half_done, is_half_done) = tokio::sync::oneshot::channel();
    let mut half_done = Some(half_done);
    let restarted = async {
        is_half_done.await?;
        server.restart().await
    };
    let made = async {
        while let Some((index, counts)) = runs.next().await {
            sum += counts?;
            if index + 1 == half {
                // Ignored: the restart has failed and reports the error itself.
                let _ = half_done.take().map(|half_done| half_done.send(()));
            }
        }
        anyhow::Ok(())
    };
    tokio::try_join!(made, restarted)?;
    Ok(sum)
}
