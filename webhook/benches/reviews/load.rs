//! Several connections to one server: as fast as they can, or at a steady rate.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};

use crate::{bodies::Body, certificates::Certificates, client::Client, server::Server};

/// The number of connections. An API server opens a connection for each write that it sends at the same time.
const CONNECTIONS: usize = 8;

/// Reviews of each connection that are not measured.
const WARM_UP: usize = 50;

/// How long a steady rate lasts.
const STEADY: Duration = Duration::from_secs(5);

/// Sends the reviews of a turn over all connections, each as fast as the server responds. Returns the CPU time of the
/// server for each review, in microseconds.
///
/// Under saturation the server is never idle, so that the figure has no cost of sleeping and waking up.
pub(crate) fn saturated(server: &Server, body: &Body, certificates: &Certificates) -> Result<f64> {
    let each = body.reviews / CONNECTIONS;
    let mut clients = connected(server, body, certificates)?;
    let before = server.cpu_time()?;
    on_each(&mut clients, |_, client| {
        (0..each).try_for_each(|_| client.send(body))
    })?;
    let spent = server.cpu_time()?.saturating_sub(before);
    Ok(spent.as_secs_f64() * 1e6 / (each * CONNECTIONS) as f64)
}

/// Sends `rate` reviews a second over all connections. Returns the latency of each review in microseconds.
///
/// If the response to the previous review arrives after a review is due, the latency counts from the time it was due, so that a
/// slow response delays no measurement. A late timer of the client does not count.
#[expect(clippy::disallowed_methods, reason = "the client sends at a steady rate")]
pub(crate) fn steady(
    server: &Server,
    body: &Body,
    certificates: &Certificates,
    rate: u32,
) -> Result<Vec<f64>> {
    let mut clients = connected(server, body, certificates)?;
    let period = Duration::from_secs(1) * CONNECTIONS as u32 / rate;
    let began = Instant::now();
    let latencies = on_each(&mut clients, |number, client| {
        let mut latencies = Vec::new();
        let mut due = began + period * number as u32 / CONNECTIONS as u32;
        while due < began + STEADY {
            let wait = due.saturating_duration_since(Instant::now());
            thread::sleep(wait);
            let from = if wait.is_zero() { due } else { Instant::now() };
            client.send(body)?;
            latencies.push(from.elapsed().as_secs_f64() * 1e6);
            due += period;
        }
        Ok(latencies)
    })?;
    Ok(latencies.into_iter().flatten().collect())
}

fn connected(server: &Server, body: &Body, certificates: &Certificates) -> Result<Vec<Client>> {
    let mut clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| Client::connect(server.port(), certificates))
        .collect::<Result<_>>()?;
    on_each(&mut clients, |_, client| {
        (0..WARM_UP).try_for_each(|_| client.send(body))
    })?;
    Ok(clients)
}

/// Runs `work` on a thread for each client, with the number of the client.
fn on_each<T: Send>(
    clients: &mut [Client],
    work: impl Fn(usize, &mut Client) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = clients
            .iter_mut()
            .enumerate()
            .map(|(number, client)| scope.spawn(move || work(number, client)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .map_err(|_| anyhow!("a thread of the client panicked"))?
            })
            .collect::<Result<_>>()
            .context("sending reviews")
    })
}
