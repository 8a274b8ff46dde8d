//! Starts the server, runs it, and shuts it down.

use std::{
    hint, io,
    net::{IpAddr, SocketAddr},
    num::NonZero,
    process::ExitCode,
    sync::Arc,
    thread,
    time::Duration,
};

use kcp_rules::{Operation, rule::Check, topics};
use thiserror::Error;
use tokio::{net::TcpListener, runtime, sync::watch, time};
use tracing::{error, info, warn};

use crate::{
    arguments::ServeArguments,
    cluster::{AccessError, ClusterReader},
    configuration::{CurrentConfiguration, RELOAD_INTERVAL},
    health::{self, Health},
    limits::{Limits, RateLimit},
    metrics::{ConnectionMetrics, Metrics},
    net::{
        listener::{self, Listener, Transport},
        tls::{self, ClientCa, ClientCaError, KeyPair, KeyPairError},
    },
    review::{
        admission::Admission,
        denial_events::DenialEvents,
        panics,
        router::{Admissions, Router},
    },
    shutdown::{Phase, Stop},
    tasks::{EndedTask, Tasks},
};

/// The maximum number of connections to the health port, which is enough for a kubelet and a few scrapers.
const HEALTH_CONNECTIONS: usize = 32;

/// Why the server cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("{0}")]
    KeyPair(#[from] KeyPairError),
    #[error("{0}")]
    ClientCa(#[from] ClientCaError),
    #[error("{0}")]
    Access(#[from] AccessError),
    #[error("cannot listen on {address}, port {port}: {error}")]
    Listen {
        address: IpAddr,
        port: u16,
        error: io::Error,
    },
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The async runtime or a signal handler cannot be set up.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Why the server stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The server responded to every review in progress.
    Drained,
    /// Some reviews were still in progress after the drain timeout.
    TimedOut,
    /// The server received a second stop request.
    Aborted,
    /// A background task or the listener for reviews ended unexpectedly. Reviews in progress got a response if
    /// possible.
    Failed,
}

/// The maximum number of threads that handle reviews. A review takes tens of microseconds, so two threads do not limit the rate
/// of writes, and every additional thread would need memory. While one thread handles a costly review, the other thread handles
/// the rest. On a machine with one core, two threads would only interrupt each other, so the main thread handles the reviews.
const REVIEW_THREADS: usize = 2;

/// The largest block, in bytes, that glibc keeps after it was freed: more than a review and its objects need.
const KEPT_BLOCK: usize = 4 << 20;

/// Serves until SIGTERM or SIGINT.
pub fn run(arguments: &ServeArguments) -> Result<ExitCode, StartError> {
    arguments.log.init();
    // Install the default provider of the process, which the Kubernetes client uses.
    _ = rustls::crypto::ring::default_provider().install_default();
    panics::log_panics_without_message();
    keep_freed_blocks();
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let mut builder = if cores == 1 {
        runtime::Builder::new_current_thread()
    } else {
        runtime::Builder::new_multi_thread()
    };
    let runtime = builder
        .worker_threads(REVIEW_THREADS)
        .thread_name("reviews")
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let stop = Stop::on_signals()?;
        let server = Server::bind(arguments, Limits::default()).await?;
        Ok::<_, StartError>(server.run(stop).await)
    })?;
    // Do not wait for threads with DNS lookups, whose results are no longer needed.
    runtime.shutdown_background();
    Ok(match ended {
        StopReason::Drained => ExitCode::SUCCESS,
        StopReason::TimedOut | StopReason::Aborted | StopReason::Failed => ExitCode::FAILURE,
    })
}

/// Lets glibc keep the memory of a review for the next one. By default, glibc returns each body of more than 128 KiB to the
/// kernel. A page fault for every 4 KiB of the next body then takes a fifth of the time of its review. After a larger block is
/// freed, glibc keeps freed blocks of up to that size, and up to twice as many bytes at the end of the heap (mallopt(3),
/// `M_MMAP_THRESHOLD`). This function never writes to the block, so the block takes no memory. Other C libraries ignore this.
fn keep_freed_blocks() {
    drop(hint::black_box(Vec::<u8>::with_capacity(KEPT_BLOCK)));
}

/// A server with open ports that does not serve yet.
#[derive(Debug)]
pub struct Server {
    secure: TcpListener,
    health: TcpListener,
    tasks: Tasks,
    parts: ServerParts,
}

/// The parts from which the two listeners of a server are built.
struct ServerParts {
    acceptor: Arc<tls::Acceptor>,
    /// Whether the webhook reads other objects only for clients with a verified certificate.
    needs_certificates: bool,
    cluster: ClusterReader,
    configuration: Arc<CurrentConfiguration>,
    denial_events: Option<Arc<DenialEvents>>,
    metrics: Arc<Metrics>,
    limits: Limits,
    shutdown_delay: Duration,
    drain_timeout: Duration,
}

impl std::fmt::Debug for ServerParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerParts")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Loads all files first and opens the ports last, so that a server with an invalid configuration never accepts a
    /// connection.
    pub async fn bind(arguments: &ServeArguments, limits: Limits) -> Result<Self, StartError> {
        let metrics = Arc::new(Metrics::new());
        let key_pair = Arc::new(KeyPair::load(
            &arguments.tls_cert_file,
            &arguments.tls_private_key_file,
            metrics.clone(),
        )?);
        let cluster = ClusterReader::connect(arguments.kubeconfig.as_deref(), metrics.clone()).await?;
        let configuration = Arc::new(CurrentConfiguration::load(
            arguments.configuration.as_deref(),
            metrics.clone(),
        ));
        let client_ca = arguments
            .client_ca_file
            .as_deref()
            .map(|file| ClientCa::load(file, arguments.client_allowed_names.clone(), metrics.clone()))
            .transpose()?
            .map(Arc::new);
        let acceptor = Arc::new(tls::acceptor(key_pair.clone(), client_ca.clone())?);
        let address = arguments.bind_address;
        let open =
            |port| listener::bind(address, port).map_err(|error| StartError::Listen { address, port, error });
        let (secure, health) = (open(arguments.secure_port)?, open(arguments.health_port)?);
        let mut tasks = Tasks::default();
        let interval = arguments.tls_reload_interval;
        tasks.repeat("TLS key pair reload", interval, move || key_pair.reload());
        if let Some(client_ca) = client_ca.clone() {
            tasks.repeat("client CA reload", interval, move || client_ca.reload());
        }
        if let Some(file) = arguments.configuration.clone() {
            let current = configuration.clone();
            let reload = move || current.reload(&file);
            tasks.repeat("configuration reload", RELOAD_INTERVAL, reload);
        }
        cluster.watch(&mut tasks);
        let denial_events = cluster.has_access().then(|| {
            let configuration = configuration.clone();
            let events = DenialEvents::start(cluster.clone(), configuration, metrics.clone(), &mut tasks);
            Arc::new(events)
        });
        Ok(Self {
            secure,
            health,
            tasks,
            parts: ServerParts {
                acceptor,
                needs_certificates: client_ca.is_some(),
                cluster,
                configuration,
                denial_events,
                metrics,
                limits,
                shutdown_delay: arguments.shutdown_delay,
                drain_timeout: arguments.drain_timeout,
            },
        })
    }

    /// The address of the port for `/mutate` and `/validate`.
    pub fn secure_address(&self) -> io::Result<SocketAddr> {
        self.secure.local_addr()
    }

    /// The address of the port for `/livez`, `/readyz` and `/metrics`.
    pub fn health_address(&self) -> io::Result<SocketAddr> {
        self.health.local_addr()
    }

    /// Serves until it receives a stop request or a background task ends. If a background task ends, the kubelet restarts the
    /// server, which is better than serving with an expired certificate or an old configuration.
    pub async fn run(self, mut stop: Stop) -> StopReason {
        if let (Ok(secure), Ok(health)) = (self.secure_address(), self.health_address()) {
            info!(%secure, %health, "serving");
        }
        let Self {
            secure,
            health,
            mut tasks,
            parts,
        } = self;
        if !parts.cluster.has_access() {
            warn!(
                scale_rules = ?scale_rules(),
                skipped_rules = ?rules_that_read_objects(),
                "kcp-webhook has no API access: it refuses every write to kubeadmcontrolplanes/scale, because it \
                 cannot evaluate the rules in scale_rules; it skips the rules in skipped_rules, because they read \
                 other objects"
            );
        }
        let (sender, phase) = watch::channel(Phase::Serving);
        if let Err(error) = health::spawn(&mut tasks, health, parts.probes(phase.clone())) {
            error!(%error, "cannot start the thread that answers probes; kcp-webhook stops");
            return StopReason::Failed;
        }
        let mut reviews = tokio::spawn(parts.reviews(phase).run(secure));

        let failed = tokio::select! {
            reason = stop.wait_for_request() => {
                info!(reason, "kcp-webhook is no longer ready, and shuts down");
                false
            }
            EndedTask { name, panicked } = tasks.wait_for_end() => {
                error!(task = name, panicked, "a background task ended unexpectedly; kcp-webhook is no longer ready, and shuts down");
                true
            }
            ended = &mut reviews => {
                error!(panicked = ended.is_err(), "the listener for reviews ended unexpectedly; kcp-webhook stops");
                return StopReason::Failed;
            }
        };
        sender.send_replace(Phase::Draining);
        let drain = async {
            time::sleep(parts.shutdown_delay).await;
            sender.send_replace(Phase::Closing);
            match time::timeout(parts.drain_timeout, reviews).await {
                Ok(_) if failed => StopReason::Failed,
                Ok(_) => StopReason::Drained,
                Err(_) => StopReason::TimedOut,
            }
        };
        let ended = tokio::select! {
            ended = drain => ended,
            reason = stop.wait_for_request() => {
                warn!(reason, "received a second stop request; kcp-webhook stops without waiting for reviews in progress");
                StopReason::Aborted
            }
        };
        info!(?ended, "kcp-webhook stopped");
        ended
    }
}

impl ServerParts {
    fn reviews(&self, phase: watch::Receiver<Phase>) -> Listener<Router> {
        Listener {
            transport: Transport::Tls(self.acceptor.clone()),
            handler: Router::new(
                self.admissions(),
                self.metrics.clone(),
                self.limits.clone(),
                phase.clone(),
            )
            .with_denial_events(self.denial_events.clone()),
            limits: self.limits.clone(),
            metrics: self.metrics.connections.clone(),
            phase,
        }
    }

    fn admissions(&self) -> Admissions {
        let admission = Admission::new(self.cluster.clone(), self.configuration.clone());
        if self.needs_certificates {
            let cluster = ClusterReader::for_unverified(self.metrics.clone());
            let for_unverified = Admission::new(cluster, self.configuration.clone());
            Admissions::with_unverified(admission, for_unverified)
        } else {
            Admissions::for_all(admission)
        }
    }

    fn probes(&self, phase: watch::Receiver<Phase>) -> Listener<Health> {
        Listener {
            transport: Transport::Plain,
            handler: Health {
                metrics: self.metrics.clone(),
                cluster: self.cluster.clone(),
                configuration: self.configuration.clone(),
                phase,
                pools_counted: RateLimit::default(),
            },
            limits: Limits {
                connections: HEALTH_CONNECTIONS,
                ..self.limits.clone()
            },
            // The connection metrics do not include probes.
            metrics: ConnectionMetrics::default(),
            // Probes get a response until the process exits, so that they report the shutdown.
            phase: watch::channel(Phase::Serving).1,
        }
    }
}

/// The rules for writes to the scale subresource, which are the rules for updates of a control plane.
fn scale_rules() -> Vec<&'static str> {
    topics::rules()
        .filter(|rule| matches!(rule.check, Check::ControlPlane(_)))
        .filter(|rule| rule.operations.contains(&Operation::Update))
        .map(|rule| rule.id)
        .collect()
}

fn rules_that_read_objects() -> Vec<&'static str> {
    topics::rules()
        .filter(|rule| !rule.reads().is_empty())
        .map(|rule| rule.id)
        .collect()
}

#[cfg(test)]
mod tests;
