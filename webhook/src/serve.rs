//! Puts the server together, runs it, ends it.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use kcp_rules::{Operation, Scope, rule::Check, topics};
use thiserror::Error;
use tokio::{net::TcpListener, runtime, sync::watch, time};
use tokio_rustls::TlsAcceptor;
use tracing::{error, info, warn};

use crate::{
    admission::Admission,
    arguments::ServeArguments,
    cluster::{self, AccessError, Cluster},
    configuration::{ConfigurationFileError, CurrentConfiguration},
    health::Health,
    limits::Limits,
    listener::{self, Listener, Transport},
    log,
    metrics::{Connections, Metrics},
    router::Router,
    shutdown::{Phase, Stop},
    tasks::{EndedTask, Tasks},
    tls::{self, KeyPair, KeyPairError},
};

/// Connections to the health port that are served at one time: a kubelet and a few scrapers.
const HEALTH_CONNECTIONS: usize = 32;

/// A server that cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The key pair is missing or bad.
    #[error("{0}")]
    KeyPair(#[from] KeyPairError),
    /// The configuration file cannot be used.
    #[error("{0}")]
    Configuration(#[from] ConfigurationFileError),
    /// API access was asked for and cannot be had.
    #[error("{0}")]
    Access(#[from] AccessError),
    /// A port cannot be listened on.
    #[error("cannot listen on {address}, port {port}: {error}")]
    Listen {
        /// The address asked for.
        address: IpAddr,
        /// The port asked for.
        port: u16,
        /// Why.
        error: io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The operating system refuses something that every server needs.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every review that had begun was answered.
    Drained,
    /// Some took longer than the drain timeout.
    TimedOut,
    /// It was asked to stop a second time.
    Aborted,
    /// A part of it ended by itself; every review that had begun was answered if that was possible.
    Failed,
}

/// Serves until SIGTERM or SIGINT.
///
/// One thread: a review takes tens of microseconds of it, so that it is not what limits a control plane's writes, and
/// threads would each cost memory.
pub fn run(arguments: &ServeArguments) -> Result<ExitCode, StartError> {
    log::init(arguments.log_format, &arguments.log_level);
    // For the Kubernetes client, which takes the process's default.
    _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let stop = Stop::on_signals()?;
        let server = Server::bind(arguments, Limits::default()).await?;
        Ok::<_, StartError>(server.run(stop).await)
    })?;
    // A name being looked up blocks a thread, and nobody waits for its answer any more.
    runtime.shutdown_background();
    Ok(match ended {
        Ended::Drained => ExitCode::SUCCESS,
        Ended::TimedOut | Ended::Aborted | Ended::Failed => ExitCode::FAILURE,
    })
}

/// A server that listens, and does not serve yet.
#[derive(Debug)]
pub struct Server {
    secure: TcpListener,
    health: TcpListener,
    /// What keeps the parts up to date.
    tasks: Tasks,
    parts: Parts,
}

struct Parts {
    acceptor: TlsAcceptor,
    cluster: Cluster,
    configuration: Arc<CurrentConfiguration>,
    metrics: Arc<Metrics>,
    limits: Limits,
    shutdown_delay: Duration,
    drain_timeout: Duration,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Loads what serving needs, and only then opens the ports: a bad configuration never looks like a server.
    pub async fn bind(arguments: &ServeArguments, limits: Limits) -> Result<Self, StartError> {
        let metrics = Arc::new(Metrics::new());
        let key_pair = Arc::new(KeyPair::load(
            &arguments.tls_cert_file,
            &arguments.tls_private_key_file,
            metrics.clone(),
        )?);
        let cluster = Cluster::connect(arguments.kubeconfig.as_deref(), metrics.clone()).await?;
        let configuration = Arc::new(CurrentConfiguration::load(
            arguments.configuration.as_deref(),
            metrics.clone(),
        )?);
        let acceptor = tls::acceptor(key_pair.clone())?;
        let address = arguments.bind_address;
        let open = async |port| {
            listener::bind(address, port)
                .await
                .map_err(|error| StartError::Listen { address, port, error })
        };
        let (secure, health) = (
            open(arguments.secure_port).await?,
            open(arguments.health_port).await?,
        );
        let mut tasks = Tasks::default();
        let interval = arguments.tls_reload_interval;
        tasks.spawn("reload of the key pair", async move {
            key_pair.keep_up(interval).await;
        });
        let current = configuration.clone();
        tasks.spawn("reload of the configuration", async move {
            current.keep_up().await;
        });
        cluster::keep_up(&cluster, &mut tasks);
        Ok(Self {
            secure,
            health,
            tasks,
            parts: Parts {
                acceptor,
                cluster,
                configuration,
                metrics,
                limits,
                shutdown_delay: arguments.shutdown_delay,
                drain_timeout: arguments.drain_timeout,
            },
        })
    }

    /// Where reviews are taken.
    pub fn secure_address(&self) -> io::Result<SocketAddr> {
        self.secure.local_addr()
    }

    /// Where probes are answered.
    pub fn health_address(&self) -> io::Result<SocketAddr> {
        self.health.local_addr()
    }

    /// Serves until asked to stop, or until a part of it ends by itself: better no server, which is started anew, than
    /// one that serves an expired certificate or a configuration of yesterday.
    pub async fn run(self, mut stop: Stop) -> Ended {
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
                scale = ?rules_of_scale(),
                cluster = ?rules_of_the_cluster(),
                "no API access: writes to kubeadmcontrolplanes/scale cannot be judged by the rules named first, and \
                 are refused; the rules named second look at other objects and cannot be judged; all others are judged"
            );
        }
        let (sender, phase) = watch::channel(Phase::Serving);
        tasks.spawn("probes", parts.probes(phase.clone()).run(health));
        let mut reviews = tokio::spawn(parts.reviews(phase).run(secure));

        let failed = tokio::select! {
            reason = stop.requested() => {
                info!(reason, "stopping: not ready any more");
                false
            }
            EndedTask { name, panicked } = tasks.ended() => {
                error!(task = name, panicked, "a task that is not to end has ended; stopping: not ready any more");
                true
            }
            ended = &mut reviews => {
                error!(panicked = ended.is_err(), "reviews are not taken any more; stopped");
                return Ended::Failed;
            }
        };
        sender.send_replace(Phase::Draining);
        let drain = async {
            time::sleep(parts.shutdown_delay).await;
            sender.send_replace(Phase::Closing);
            match time::timeout(parts.drain_timeout, reviews).await {
                Ok(_) if failed => Ended::Failed,
                Ok(_) => Ended::Drained,
                Err(_) => Ended::TimedOut,
            }
        };
        let ended = tokio::select! {
            ended = drain => ended,
            reason = stop.requested() => {
                warn!(reason, "asked a second time");
                Ended::Aborted
            }
        };
        info!(?ended, "stopped");
        ended
    }
}

impl Parts {
    fn reviews(&self, phase: watch::Receiver<Phase>) -> Listener<Router> {
        Listener {
            transport: Transport::Tls(self.acceptor.clone()),
            handler: Router::new(
                Admission::new(self.cluster.clone(), self.configuration.clone()),
                self.metrics.clone(),
                self.limits.clone(),
                phase.clone(),
            ),
            limits: self.limits.clone(),
            counters: self.metrics.connections.clone(),
            phase,
        }
    }

    fn probes(&self, phase: watch::Receiver<Phase>) -> Listener<Health> {
        Listener {
            transport: Transport::Plain,
            handler: Health {
                metrics: self.metrics.clone(),
                cluster: self.cluster.clone(),
                phase,
            },
            limits: Limits {
                connections: HEALTH_CONNECTIONS,
                ..self.limits.clone()
            },
            // Probes are not counted among the connections that matter.
            counters: Connections::default(),
            // Probes are answered to the very end: they say that it is coming.
            phase: watch::channel(Phase::Serving).1,
        }
    }
}

/// The rules that a write to the scale subresource is put to: those of updates of a control plane.
fn rules_of_scale() -> Vec<&'static str> {
    topics::rules()
        .filter(|rule| matches!(rule.check, Check::ControlPlane(_)))
        .filter(|rule| rule.operations.contains(&Operation::Update))
        .map(|rule| rule.id)
        .collect()
}

/// The rules that look at other objects.
fn rules_of_the_cluster() -> Vec<&'static str> {
    topics::rules()
        .filter(|rule| rule.scope == Scope::Cluster)
        .map(|rule| rule.id)
        .collect()
}

#[cfg(test)]
mod tests;
