//! The cost of a review, compared with two minimal servers: `make bench`.
//!
//! Uses HTTP/1.1 with keep-alive over TLS 1.3, with server and client on one core each. Eight connections saturate the server,
//! so that the CPU time of a review contains no sleeping and waking up. The servers take turns, so that a change in the
//! machine's speed does not affect the ratios.
//!
//! - [`bodies`]: the reviews
//! - [`client`]: a connection
//! - [`load`]: several connections, as fast as they can or at a steady rate
//! - [`certificates`]: the certificate of the servers
//! - [`server`]: a server, and the resources that it used
//! - [`figures`]: medians and quantiles
//! - [`instructions`]: the cost in instructions, which does not depend on other load
//! - [`limits`]: the limits on the results

#![expect(
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark: it may panic, and its numbers are small"
)]

mod bodies;
mod certificates;
mod client;
mod figures;
mod instructions;
mod limits;
mod load;
mod server;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use bodies::Body;
use certificates::Certificates;
use client::Client;
use figures::{median, quantile};
use server::{Program, Server};

/// The number of turns of each server. With three, the ratios of the same programs vary by 0.03 between two runs.
const SATURATED_ROUNDS: usize = 7;
const STEADY_ROUNDS: usize = 3;

/// The number of measured starts of each server.
const STARTS: usize = 20;

/// The rates at which latencies are measured, in reviews per second.
const RATES: [u32; 2] = [1_000, 5_000];

fn main() -> Result<()> {
    // Cargo also passes --list to benchmarks without a harness.
    if std::env::args().any(|argument| argument == "--list") {
        return Ok(());
    }
    client::stay_on_core(server::CLIENT_CORE)?;
    let certificates = Certificates::issue()?;
    let mut results = Vec::new();
    for body in bodies::all() {
        results.push(saturated(&body, &certificates)?);
    }
    for rate in RATES {
        results.push(steady(rate, &certificates)?);
    }
    results.push(start(&certificates)?);
    results.push(memory(&certificates)?);
    let report = json!({"machine": machine(), "results": results});
    let text = serde_json::to_string_pretty(&report)?;
    let program = Path::new(env!("CARGO_BIN_EXE_kcp-webhook"));
    let target = program
        .ancestors()
        .nth(2)
        .context("the program is in no target folder")?;
    let file = target.join("bench.json");
    fs::write(&file, &text).with_context(|| format!("writing {}", file.display()))?;
    show(&limits::table(&report));
    Ok(())
}

/// The CPU time of a review while all servers in turn are saturated.
fn saturated(body: &Body, certificates: &Certificates) -> Result<Value> {
    let servers = servers(certificates)?;
    let mut cpu: BTreeMap<Program, Vec<f64>> = BTreeMap::new();
    for _ in 0..SATURATED_ROUNDS {
        for server in &servers {
            let spent = load::saturated(server, body, certificates)?;
            cpu.entry(server.program()).or_default().push(spent);
        }
    }
    let ratio = |to: Program| {
        let pairs = cpu[&Program::Ours].iter().zip(&cpu[&to]);
        median(&pairs.map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
    };
    let mut figures = Map::from_iter([
        ("name".to_owned(), json!(body.name)),
        ("bytes".to_owned(), json!(body.text.len())),
        ("cpu_us".to_owned(), rounded(median(&cpu[&Program::Ours]))),
        (
            "cpu_ratio_to_constant".to_owned(),
            rounded(ratio(Program::ConstantAnswer)),
        ),
        (
            "cpu_ratio_to_decode".to_owned(),
            rounded(ratio(Program::SameDecode)),
        ),
    ]);
    for (program, cpu) in &cpu {
        let counted = instructions::per_review(*program, body, certificates)?;
        figures.insert(
            program.key().to_owned(),
            json!({"cpu_us": rounded(median(cpu)), "instructions": counted}),
        );
    }
    Ok(Value::Object(figures))
}

/// The latency of a 16 KB update at a steady rate, in all rounds together.
fn steady(rate: u32, certificates: &Certificates) -> Result<Value> {
    let body = bodies::update_16k("validate");
    let servers = servers(certificates)?;
    let mut latencies: BTreeMap<Program, Vec<f64>> = BTreeMap::new();
    for _ in 0..STEADY_ROUNDS {
        for server in &servers {
            let measured = load::steady(server, &body, certificates, rate)?;
            latencies.entry(server.program()).or_default().extend(measured);
        }
    }
    of_each(&format!("steady-{rate}"), |program| {
        let latencies = &latencies[&program];
        Ok(json!({
            "p50_us": rounded(quantile(latencies, 0.5)),
            "p99_us": rounded(quantile(latencies, 0.99)),
        }))
    })
}

fn servers(certificates: &Certificates) -> Result<Vec<Server>> {
    Program::ALL
        .into_iter()
        .map(|program| Server::start(program, certificates))
        .collect()
}

/// The time from starting a server to its first answer.
fn start(certificates: &Certificates) -> Result<Value> {
    let body = bodies::create("validate");
    of_each("start", |program| {
        let mut waits = Vec::new();
        for _ in 0..STARTS {
            let executed = Instant::now();
            let server = Server::execute(program, certificates)?;
            let mut client =
                Client::connect_as_soon_as(server.port(), certificates, Duration::from_secs(10))?;
            client.send(&body)?;
            waits.push(executed.elapsed().as_secs_f64() * 1e3);
        }
        Ok(json!({"exec_to_first_answer_ms": rounded(median(&waits))}))
    })
}

/// The anonymous resident memory of each server: idle, and the peak under 16 KB reviews.
fn memory(certificates: &Certificates) -> Result<Value> {
    let body = bodies::update_16k("validate");
    of_each("memory", |program| {
        let server = Server::start(program, certificates)?;
        let idle = server.anonymous_mib()?;
        let mut client = Client::connect(server.port(), certificates)?;
        let mut peak = idle;
        for review in 0..body.reviews {
            client.send(&body)?;
            if review.is_multiple_of(100) {
                peak = peak.max(server.anonymous_mib()?);
            }
        }
        Ok(
            json!({"idle_mib": rounded(idle), "peak_mib": rounded(peak), "peak_rss_mib": rounded(server.peak_mib()?)}),
        )
    })
}

/// A result with the figures of our server, and those of each minimal server under its name.
fn of_each(name: &str, figures: impl Fn(Program) -> Result<Value>) -> Result<Value> {
    let mut result = figures(Program::Ours)?;
    result["name"] = json!(name);
    for program in [Program::ConstantAnswer, Program::SameDecode] {
        result[program.key()] = figures(program)?;
    }
    Ok(result)
}

fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    // Counts all cores, not only the one that this process may run on.
    let cores = text.lines().filter(|line| line.starts_with("processor")).count();
    format!("{cores} cores, {}", model.map_or("unknown", |(_, model)| model))
}

/// Rounds to three decimal places, which is more than a run can reproduce.
fn rounded(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

#[expect(clippy::print_stdout, reason = "a benchmark's result")]
fn show(text: &str) {
    print!("{text}");
}
