//! Clients that send slowly do not keep others from a review.

use std::{
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use kcp_webhook::Limits;
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    runtime,
    sync::Semaphore,
    task::JoinSet,
    time::{self, Instant},
};
use tokio_rustls::client::TlsStream;

use crate::{
    client::{Answer, Connection, DEADLINE, REVIEW, connect, connect_from, soon},
    running::Running,
    stand_in::{deletion, kubeconfig, scale, slow_api_server},
};

const SLOW_SENDERS: usize = 256;
const SLOW_BODIES: usize = 10;
const LARGEST: usize = 7 * 1024 * 1024;

/// The number of good reviews per second, and how long they are sent: longer than the time limit of a body.
const RATE: u32 = 200;
const UNDISTURBED: Duration = Duration::from_secs(2);
const DISTURBED: Duration = Duration::from_secs(11);

/// The interval at which a slow client sends something.
const PACE: Duration = Duration::from_millis(250);
/// A body that arrives slowly, but not below the minimum rate that the server accepts.
const SLOW_BODY: Slowness = Slowness {
    length: LARGEST,
    step: LARGEST / 60,
};
const SLOW_SENDER: Slowness = Slowness {
    length: REVIEW.len(),
    step: 1,
};
/// How often a slow client connects again.
const RENEWED: Duration = Duration::from_secs(5);

/// The writes that an API server serves at one time (k8s.io/apiserver, `pkg/server/config.go`,
/// `MaxMutatingRequestsInFlight`).
const IN_FLIGHT: usize = 200;

#[derive(Clone)]
struct Target {
    address: SocketAddr,
    ca: PathBuf,
}

impl Target {
    async fn connect(&self) -> std::io::Result<Connection<TlsStream<TcpStream>>> {
        connect(self.address, &self.ca, &["http/1.1"]).await
    }
}

/// How a slow client sends a body.
#[derive(Clone, Copy)]
struct Slowness {
    length: usize,
    /// Bytes that it sends every [`PACE`].
    step: usize,
}

/// Sends a body slowly. Begins again every [`RENEWED`], after the server had enough.
async fn slowly(target: Target, slowness: Slowness, opened: Arc<AtomicU64>) {
    let Slowness { length, step } = slowness;
    let mut renewals = time::interval(RENEWED);
    renewals.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        renewals.tick().await;
        let attempt = async {
            let mut connection = target.connect().await?;
            let head = format!(
                "POST /validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Content-Length: {length}\r\n\r\n"
            );
            connection.0.write_all(head.as_bytes()).await?;
            opened.fetch_add(1, Relaxed);
            let mut pace = time::interval(PACE);
            for _ in 0..length / step {
                pace.tick().await;
                connection.0.write_all(&vec![b' '; step]).await?;
                connection.0.flush().await?;
            }
            std::io::Result::Ok(())
        };
        // The server closes the connection of a slow client.
        _ = attempt.await;
    }
}

type Idle = Arc<Mutex<Vec<Connection<TlsStream<TcpStream>>>>>;

/// Sends good reviews at a steady rate. Returns all answers but the right one, and the latencies in order.
async fn good_reviews(target: &Target, duration: Duration) -> (Vec<Answer>, Vec<Duration>) {
    let idle = Idle::default();
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut running = JoinSet::new();
    let started = Instant::now();
    let mut ticks = time::interval(Duration::from_secs(1) / RATE);
    while started.elapsed() < duration {
        ticks.tick().await;
        let (idle, target, in_flight) = (idle.clone(), target.clone(), in_flight.clone());
        running.spawn(async move {
            let sent = Instant::now();
            let _permit = in_flight.acquire().await.unwrap();
            let kept = idle.lock().unwrap().pop();
            let mut connection = match kept {
                Some(connection) => connection,
                None => target.connect().await.unwrap(),
            };
            let answer = connection.review().await;
            idle.lock().unwrap().push(connection);
            (answer, sent.elapsed())
        });
    }
    let (answers, mut latencies): (Vec<_>, Vec<_>) = running.join_all().await.into_iter().unzip();
    latencies.sort_unstable();
    let bad = answers
        .into_iter()
        .filter(|answer| *answer != Answer::allowed(false));
    (bad.collect(), latencies)
}

fn p99(latencies: &[Duration]) -> Duration {
    latencies[latencies.len() * 99 / 100]
}

/// The slow clients are at the API server's own address, where no limit on an address protects it.
#[tokio::test(flavor = "multi_thread")]
async fn no_review_is_refused_beside_slow_clients_at_the_same_address() {
    // Handshakes take long on a machine that is busy with other tests.
    let server = Running::start(Limits {
        handshake_timeout: DEADLINE * 3,
        ..Limits::default()
    })
    .await;
    let target = Target {
        address: server.secure,
        ca: server.certificates.path("ca.crt"),
    };
    let (refused, undisturbed) = good_reviews(&target, UNDISTURBED).await;
    assert_eq!(refused, []);

    // Their own CPU time, such as that of handshakes, must not delay the good reviews more than a scheduler makes it.
    let elsewhere = runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let opened = Arc::new(AtomicU64::new(0));
    for number in 0..SLOW_SENDERS + SLOW_BODIES {
        let slowness = if number < SLOW_BODIES {
            SLOW_BODY
        } else {
            SLOW_SENDER
        };
        elsewhere.spawn(slowly(target.clone(), slowness, opened.clone()));
    }
    let (refused, disturbed) = good_reviews(&target, DISTURBED).await;
    let report = format!(
        "{} good reviews beside {} slow requests: {} refused; p99 {:.1} ms, undisturbed {:.1} ms; evicted: {} connections\n",
        disturbed.len(),
        opened.load(Relaxed),
        refused.len(),
        p99(&disturbed).as_secs_f64() * 1e3,
        p99(&undisturbed).as_secs_f64() * 1e3,
        server.metric("kcp_webhook_connections_evicted_total").await,
    );
    // libtest captures what tests print, but everyone should see the figures.
    std::io::stderr().write_all(report.as_bytes()).unwrap();
    elsewhere.shutdown_background();
    assert_eq!(refused, []);
    assert!(opened.load(Relaxed) >= (SLOW_SENDERS + SLOW_BODIES) as u64);
}

/// Another address sends reviews that need reads, as many as its connections can carry.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_address_does_not_keep_others_from_reads() {
    const FLOODING: usize = 350;
    let api_server = slow_api_server(Duration::from_millis(100)).await;
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start_with(Limits::default(), |arguments| {
        arguments.kubeconfig = Some(kubeconfig(api_server, folder.path()));
    })
    .await;
    let (address, ca) = (server.secure, server.certificates.path("ca.crt"));
    let mut flood = JoinSet::new();
    for number in 0..FLOODING {
        let ca = ca.clone();
        flood.spawn(async move {
            let review = scale(&format!("made-up-{number}"));
            loop {
                let mut connection = connect_from(Ipv4Addr::new(127, 0, 0, 2), address, &ca)
                    .await
                    .unwrap();
                while connection
                    .try_post("/validate?timeout=10s", &review)
                    .await
                    .is_ok()
                {}
            }
        });
    }
    let reads = r#"controller_runtime_webhook_requests_in_flight{webhook="/validate"}"#;
    soon(async { while server.metric(reads).await.parse::<usize>().unwrap() < FLOODING / 2 {} }).await;
    let mut connection = server.connect().await;
    for _ in 0..9 {
        let answer = connection
            .try_post("/validate?timeout=3s", &deletion())
            .await
            .unwrap();
        assert!(answer.body.contains("(control-plane-in-use)"), "{answer:?}");
    }
    flood.abort_all();
}
