//! What the exporter serves: `/metrics` in the `OpenMetrics` format, `/livez` and `/readyz`.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Bytes,
    header::{self, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, text},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::commands::exporter::{
    metrics::{METRICS, Metric, Samples, seconds, unread},
    pools::{POOL_METRICS, unread_pool},
};

/// The namespace and the name of a control plane or a pool.
pub(super) type Name = (String, String);

/// The maximum number of connections at the same time: Prometheus in pairs, and the kubelet.
const MAX_CONNECTIONS: usize = 16;

/// How long a client may take to send a request, and to read the whole response. 1,000 control planes are 5 MB.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
const CONNECTION_LIMIT: Duration = Duration::from_secs(20);

/// How long a response to a scrape is sent to further clients. So at most five responses are in memory, however many clients read
/// slowly.
const SHARED_FOR: Duration = Duration::from_secs(5);

/// hyper's minimum.
const BUFFER_BYTES: usize = 8192;

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// The metrics of the exporter itself, with their help.
const BUILD_INFO: (&str, &str) = (
    "kcp_exporter_build_info",
    "Always 1; the label version is the version of kubectl-kcp",
);
const LIST_SUCCESS: (&str, &str) = (
    "kcp_exporter_list_success",
    "1 if the control planes could be listed in the last round; if 0, all count as unread",
);
const CONTROL_PLANES: (&str, &str) = (
    "kcp_exporter_control_planes",
    "Control planes that the last list contained",
);
const COMPLETE_READS: (&str, &str) = (
    "kcp_exporter_complete_reads",
    "Control planes for which the last round sent separate requests to the management cluster",
);
const POOL_LIST_SUCCESS: (&str, &str) = (
    "kcp_exporter_pool_list_success",
    "With --pools: 1 if the pools could be listed in the last round; if 0, all count as unread",
);
const ROUND_END: (&str, &str) = (
    "kcp_exporter_round_timestamp_seconds",
    "When the last round of reads ended, in seconds since 1970",
);
const ROUND_DURATION: (&str, &str) = (
    "kcp_exporter_round_duration_seconds",
    "Duration of the last round of reads, without slow control planes and without pools",
);

/// All of these.
#[cfg(test)]
pub(super) const OWN: [(&str, &str); 7] = [
    BUILD_INFO,
    LIST_SUCCESS,
    CONTROL_PLANES,
    COMPLETE_READS,
    POOL_LIST_SUCCESS,
    ROUND_END,
    ROUND_DURATION,
];

/// A round of reads that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Round {
    pub(super) is_listed: bool,
    /// Those in the last list.
    pub(super) control_planes: u32,
    pub(super) complete_reads: u32,
    pub(super) ended: Timestamp,
    pub(super) duration: Duration,
}

/// The metrics that the next scrape gets.
#[derive(Debug, Default)]
pub(super) struct Published {
    state: Mutex<State>,
    /// The last response to a scrape, and when it was written.
    shared: Mutex<Option<(Instant, Bytes)>>,
}

#[derive(Debug, Default)]
struct State {
    control_planes: BTreeMap<Name, Samples>,
    pools: BTreeMap<Name, Samples>,
    round: Option<Round>,
    /// Whether the pools could be listed in the last round that has ended; `None` without `--pools`.
    are_pools_listed: Option<bool>,
}

impl Published {
    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the metrics of a control plane.
    pub(super) fn set(&self, name: Name, samples: Samples) {
        self.state(|state| state.control_planes.insert(name, samples));
    }

    /// Removes the metrics of all other control planes.
    pub(super) fn retain(&self, is_kept: impl Fn(&Name) -> bool) {
        self.state(|state| state.control_planes.retain(|name, _| is_kept(name)));
    }

    /// Records the end of a round. If no list could be read, every control plane counts as unread.
    pub(super) fn end_round(&self, round: Round) {
        self.state(|state| {
            if !round.is_listed {
                let samples = state.control_planes.values_mut();
                samples.for_each(|samples| *samples = unread());
            }
            state.round = Some(round);
        });
    }

    /// Replaces the metrics of all pools. If the pools could not be listed (`None`), every pool counts as unread.
    pub(super) fn end_pool_round(&self, pools: Option<BTreeMap<Name, Samples>>) {
        self.state(|state| {
            state.are_pools_listed = Some(pools.is_some());
            match pools {
                Some(pools) => state.pools = pools,
                None => state
                    .pools
                    .values_mut()
                    .for_each(|samples| *samples = unread_pool()),
            }
        });
    }

    fn is_ready(&self) -> bool {
        self.state(|state| state.round.is_some())
    }

    pub(super) fn encode(self: &Arc<Self>) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }

    /// The text of all metrics, which may be [`SHARED_FOR`] old.
    fn shared(self: &Arc<Self>) -> Result<Bytes, fmt::Error> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((written, text)) = &*shared
            && written.elapsed() < SHARED_FOR
        {
            return Ok(text.clone());
        }
        let text = Bytes::from(self.encode()?);
        *shared = Some((Instant::now(), text.clone()));
        Ok(text)
    }

    fn answer<B>(self: &Arc<Self>, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = answer(StatusCode::METHOD_NOT_ALLOWED, TEXT_TYPE, "use GET\n");
            let headers = response.headers_mut();
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/livez" => answer(StatusCode::OK, TEXT_TYPE, "ok"),
            "/readyz" if self.is_ready() => answer(StatusCode::OK, TEXT_TYPE, "ok"),
            "/readyz" => {
                let text = "the first round of reads has not ended\n";
                answer(StatusCode::SERVICE_UNAVAILABLE, TEXT_TYPE, text)
            }
            "/metrics" => match self.shared() {
                Ok(text) => answer(StatusCode::OK, METRICS_TYPE, text),
                Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT_TYPE, format!("{error}\n")),
            },
            _ => {
                let text = "not found; this port serves /livez, /readyz and /metrics\n";
                answer(StatusCode::NOT_FOUND, TEXT_TYPE, text)
            }
        }
    }
}

impl Collector for Published {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.state(|state| {
            encode_own(state, &mut encoder)?;
            encode_all(METRICS, "control_plane", &state.control_planes, &mut encoder)?;
            encode_all(POOL_METRICS, "pool", &state.pools, &mut encoder)
        })
    }
}

/// Encodes the metrics of all objects of a kind. `label` is the label with the name of the object.
fn encode_all<S>(
    metrics: &[Metric<S>],
    label: &'static str,
    objects: &BTreeMap<Name, Samples>,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    for (index, metric) in metrics.iter().enumerate() {
        let mut family = encoder.encode_descriptor(metric.name, metric.help, None, MetricType::Gauge)?;
        for ((namespace, name), samples) in objects {
            for (_, sample) in samples.iter().filter(|(of_metric, _)| *of_metric == index) {
                let mut labels = vec![("namespace", namespace.as_str()), (label, name)];
                let more = sample.labels.iter();
                labels.extend(more.map(|(label, value)| (*label, value.as_str())));
                ConstGauge::new(sample.value).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

fn encode_own(state: &State, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut own = |(name, help): (&str, &str), labels: &[(&str, &str)], value: f64| {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        if labels.is_empty() {
            return ConstGauge::new(value).encode(family);
        }
        ConstGauge::new(value).encode(family.encode_family(&labels)?)
    };
    own(BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))], 1.0)?;
    let Some(round) = state.round else {
        return Ok(());
    };
    own(LIST_SUCCESS, &[], u8::from(round.is_listed).into())?;
    own(CONTROL_PLANES, &[], round.control_planes.into())?;
    own(COMPLETE_READS, &[], round.complete_reads.into())?;
    if let Some(are_listed) = state.are_pools_listed {
        own(POOL_LIST_SUCCESS, &[], u8::from(are_listed).into())?;
    }
    own(ROUND_END, &[], seconds(round.ended))?;
    own(ROUND_DURATION, &[], round.duration.as_secs_f64())
}

/// Serves connections for ever.
pub(super) async fn serve(socket: TcpListener, published: Arc<Published>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // Nobody closes the semaphore.
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match socket.accept().await {
            Ok((stream, _)) => {
                let served = serve_connection(stream, published.clone());
                tokio::spawn(async move {
                    let _place = place;
                    served.await;
                });
            }
            // Otherwise, the loop would spin if there are no file descriptors left.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, published: Arc<Published>) {
    let service = service_fn(|request| {
        let response = published.answer(&request);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_LIMIT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // A client that disconnects, or that is too slow, gets no response.
    let _ = timeout(CONNECTION_LIMIT, connection).await;
}

/// One response for each connection, so that a connection that nobody uses takes no place.
fn answer(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, env, fs, path::Path, sync::Arc, time::Duration};

    use hyper::{Method, Request, StatusCode};
    use kcp_control_plane::testing::objects::now;
    use kcp_pool::testing::states::{busy, claims, state};

    use super::{Published, Round};
    use crate::commands::{
        exporter::{
            metrics::{Judged, unread},
            pools::{of_pool, unread_pool},
        },
        status::screen::example::{healthy, member_dead},
    };

    const ROUND: Round = Round {
        is_listed: true,
        control_planes: 3,
        complete_reads: 2,
        ended: jiff::Timestamp::UNIX_EPOCH,
        duration: Duration::from_millis(1500),
    };

    fn published() -> Arc<Published> {
        let published = Arc::new(Published::default());
        let samples = |example: &crate::commands::status::screen::example::Example| {
            Judged::new(&example.observed, now()).samples()
        };
        let name = |name: &str| ("d".to_owned(), name.to_owned());
        published.set(name("edge"), samples(&healthy()));
        published.set(name("rim"), samples(&member_dead()));
        published.set(name("lost"), unread());
        let pool = of_pool(&state(&busy(), &claims()));
        published.end_pool_round(Some(BTreeMap::from([
            (name("hosts"), pool),
            (name("lost"), unread_pool()),
        ])));
        published.end_round(Round {
            ended: now(),
            ..ROUND
        });
        published
    }

    /// `make monitoring` checks the same file with promtool.
    #[test]
    fn the_text_is_that_of_the_file() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/monitoring/exporter.metrics");
        let text = published().encode().expect("text");
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&file, &text).expect("a file");
        }
        let expected = fs::read_to_string(&file).expect("the file");
        assert!(
            text == expected,
            "{text}\nwith UPDATE_DOCS=1, this test writes the file"
        );
    }

    #[test]
    fn a_deleted_control_plane_has_no_metric_and_an_unlisted_one_only_that() {
        let published = published();
        published.retain(|(_, name)| name != "edge");
        let text = published.encode().expect("text");
        assert!(!text.contains("control_plane=\"edge\"") && text.contains("control_plane=\"rim\""));
        published.end_round(Round {
            is_listed: false,
            ..ROUND
        });
        let text = published.encode().expect("text");
        let of_rim: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("control_plane=\"rim\""))
            .collect();
        assert_eq!(
            of_rim,
            [
                "kcp_control_plane_source_read{namespace=\"d\",control_plane=\"rim\",source=\"management\"} 0.0"
            ]
        );
        assert!(text.contains("\nkcp_exporter_list_success 0.0\n"));
    }

    #[test]
    fn it_is_ready_once_a_round_has_ended() {
        let code = |published: &Arc<Published>, method: Method, path: &str| {
            let request = Request::builder().method(method).uri(path).body(());
            published.answer(&request.expect("a request")).status()
        };
        let (new, old) = (Arc::new(Published::default()), published());
        for (path, before, after) in [
            ("/livez", StatusCode::OK, StatusCode::OK),
            ("/readyz", StatusCode::SERVICE_UNAVAILABLE, StatusCode::OK),
            ("/metrics", StatusCode::OK, StatusCode::OK),
            ("/", StatusCode::NOT_FOUND, StatusCode::NOT_FOUND),
        ] {
            assert_eq!(code(&new, Method::GET, path), before, "{path}");
            assert_eq!(code(&old, Method::HEAD, path), after, "{path}");
        }
        assert_eq!(
            code(&old, Method::POST, "/metrics"),
            StatusCode::METHOD_NOT_ALLOWED
        );
    }
}
