//! Routes requests to the webhooks by path, method and content type.
//!
//! A request without a readable uid gets an HTTP error with one sentence. The API server would not accept an
//! `AdmissionReview` without the uid, and applies the failure policy.

use std::{borrow::Cow, collections::BTreeSet, fmt, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes, Incoming},
    header::{self, HeaderMap, HeaderValue},
};
use kcp_rules::DowngradeReason;
use tokio::{sync::watch, time::Instant};
use tracing::{debug, error, info, warn};

use super::{
    admission::Admission,
    decode::{self, InvalidReview},
    denial_events::DenialEvents,
    panics::{self, Panicked},
    response,
};
use crate::{
    cluster::ReadLimits,
    decision::{Decision, RefusalKind, ReviewResult},
    hook::Hook,
    limits::{
        LIVE_READ_TIMEOUT, Limits, MAX_CAUSES, MAX_NAME_CHARS, MAX_REVIEW_TIMEOUT, MAX_VALUES,
        RESPONSE_MARGIN, REVIEW_BYTES, RateLimit, VALUE_BYTES, shorten,
    },
    metrics::Metrics,
    net::{
        body::{self, BodyError, BufferedBody},
        connection::{Client, Handle},
        shares::{Exhausted, Peer, Share, Shares},
    },
    shutdown::Phase,
};

/// Chooses the [`Admission`] that decides on a client's reviews.
pub(crate) struct Admissions {
    /// Decides for verified clients, or for all clients if they need no certificate.
    admission: Admission,
    /// Decides for clients without a verified certificate; `None` if clients need no certificate. Reads no other
    /// objects, because a message could reveal the names of objects in any namespace.
    for_unverified: Option<Admission>,
}

impl Admissions {
    /// Uses the same [`Admission`] for every client.
    pub(crate) const fn for_all(admission: Admission) -> Self {
        Self {
            admission,
            for_unverified: None,
        }
    }

    pub(crate) const fn with_unverified(admission: Admission, for_unverified: Admission) -> Self {
        Self {
            admission,
            for_unverified: Some(for_unverified),
        }
    }

    /// The [`Admission`] for a client, and whether the client lacks the certificate that it needs.
    fn for_client(&self, client: &Client) -> (&Admission, bool) {
        match &self.for_unverified {
            Some(admission) if !client.verified => (admission, true),
            _ => (&self.admission, false),
        }
    }
}

/// The warning in the response to a client that lacks the certificate that it needs.
const UNVERIFIED: &str =
    "kcp-webhook read no other objects for this review, because the API server sent no client certificate";

/// Responds to admission reviews.
pub(crate) struct Router {
    admissions: Admissions,
    metrics: Arc<Metrics>,
    limits: Limits,
    reviews: Arc<Shares>,
    memory: Arc<Shares>,
    undecodable: RateLimit,
    /// `None` if denials are not recorded.
    denial_events: Option<Arc<DenialEvents>>,
    phase: watch::Receiver<Phase>,
}

/// An HTTP error, with one sentence as the body of the response.
#[derive(Debug)]
pub(crate) struct HttpError {
    pub(crate) code: StatusCode,
    pub(crate) sentence: Cow<'static, str>,
}

impl HttpError {
    fn new(code: StatusCode, sentence: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            sentence: sentence.into(),
        }
    }
}

impl Router {
    pub(crate) fn new(
        admissions: Admissions,
        metrics: Arc<Metrics>,
        limits: Limits,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let needs_certificates = admissions.for_unverified.is_some();
        // If clients need certificates, reserve half of everything for verified clients.
        let shares = |total| Shares::with_reserve(total, if needs_certificates { total / 2 } else { 0 });
        Self {
            admissions,
            reviews: shares(limits.reviews),
            memory: shares(limits.held_bytes),
            undecodable: RateLimit::default(),
            denial_events: None,
            metrics,
            limits,
            phase,
        }
    }

    /// Records each denial as an Event.
    pub(crate) fn with_denial_events(self, denial_events: Option<Arc<DenialEvents>>) -> Self {
        Self {
            denial_events,
            ..self
        }
    }

    pub(crate) async fn answer<B>(&self, request: Request<B>, client: &Client) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes, Error: fmt::Display>,
    {
        let Some(hook) = Hook::from_path(request.uri().path()) else {
            return error_response(&HttpError::new(
                StatusCode::NOT_FOUND,
                "not found; this port serves /mutate and /validate",
            ));
        };
        let in_flight = self.metrics.begin(hook);
        // Box the future, so that a connection without a request does not need the memory for a review.
        let mut response = panics::catch_panics(Box::pin(self.review(hook, request, client)))
            .await
            .unwrap_or_else(|Panicked| Err(self.panicked(hook)))
            .unwrap_or_else(|error| error_response(&error));
        if *self.phase.borrow() != Phase::Serving {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        in_flight.end(response.status());
        response
    }

    async fn review<B>(
        &self,
        hook: Hook,
        request: Request<B>,
        client: &Client,
    ) -> Result<Response<Full<Bytes>>, HttpError>
    where
        B: Body<Data = Bytes, Error: fmt::Display>,
    {
        require_json_post(&request)?;
        let read_limits = read_limits(client.peer(), request.uri().query());
        let (body, mut share) = self
            .read_body(request.into_body(), client)
            .await
            .map_err(|error| self.body_error(error))?
            .into_parts();
        // Wait only after the body has arrived, so that clients that send slowly do not block other reviews.
        let _review = self.reviews.take(client.peer(), 1).await.map_err(|_| {
            HttpError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many reviews are in progress; try again",
            )
        })?;
        let _kept = client.slot.keep();
        let text = self
            .respond(
                hook,
                self.admissions.for_client(client),
                read_limits,
                &body,
                &mut share,
            )
            .await?;
        share.grow_to(REVIEW_BYTES + text.len()).map_err(no_memory)?;
        Ok(json(text, share))
    }

    /// Reads a body. Takes memory for all of it before the first byte is read.
    async fn read_body<B>(&self, body: B, client: &Client) -> Result<BufferedBody, BodyError>
    where
        B: Body<Data = Bytes, Error: fmt::Display>,
    {
        let (limit, deadline) = (
            self.limits.body_bytes,
            Instant::now() + self.limits.request_timeout,
        );
        let bytes = REVIEW_BYTES + body::announced_length(&body).min(limit);
        let share = self.memory.take(client.peer(), bytes).await?;
        body::read(body, limit, deadline, share).await
    }

    /// Responds to a complete body as for a client that needs no certificate.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) async fn respond_to_any(&self, hook: Hook, body: &[u8]) -> Result<Vec<u8>, HttpError> {
        let (admission, mut share) = (&self.admissions.admission, self.memory.open(Peer::SELF));
        self.respond(hook, (admission, false), ReadLimits::default(), body, &mut share)
            .await
    }

    /// Responds to a complete body of a request.
    async fn respond(
        &self,
        hook: Hook,
        (admission, is_unverified): (&Admission, bool),
        read_limits: ReadLimits,
        body: &[u8],
        share: &mut Share,
    ) -> Result<Vec<u8>, HttpError> {
        let values = decode::count_values(body);
        // While a review waits for live reads, it holds what is decoded.
        let decoded = values.min(MAX_VALUES) * VALUE_BYTES;
        share
            .grow_to(REVIEW_BYTES + body.len() + decoded)
            .map_err(no_memory)?;
        let written = match decode::decode_review(body, values) {
            Ok(mut review) => {
                review.request.read_limits = read_limits;
                let mut decision = admission.decide(hook, &mut review).await;
                self.metrics.count_decision(hook, &decision);
                log(hook, &review.request, &decision);
                if is_unverified {
                    self.metrics.unverified_reviews.inc();
                    decision.other_warnings.insert(0, UNVERIFIED.to_owned());
                } else if let Some(events) = &self.denial_events {
                    events.record(&review, &decision);
                }
                response::write(&review.request.uid, &decision)
            }
            Err(InvalidReview {
                uid: Some(uid),
                sentence,
            }) => {
                if let Some(dropped) = self.undecodable.admit() {
                    let uid = &*shortened(&uid);
                    warn!(
                        webhook = hook.path(),
                        uid, sentence, dropped, "cannot read the review"
                    );
                }
                let decision = Decision::refused(RefusalKind::BadRequest, sentence);
                self.metrics.count_decision(hook, &decision);
                response::write(&uid, &decision)
            }
            Err(InvalidReview { uid: None, sentence }) => {
                return Err(HttpError::new(StatusCode::BAD_REQUEST, sentence));
            }
        };
        written.map_err(|error| HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }

    fn panicked(&self, hook: Hook) -> HttpError {
        self.metrics.panics.inc();
        error!(
            webhook = hook.path(),
            "kcp-webhook panicked during a review, and responded with 500"
        );
        HttpError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "kcp-webhook failed to review this write; report this as a bug, with the log of kcp-webhook",
        )
    }

    fn body_error(&self, error: BodyError) -> HttpError {
        match error {
            BodyError::TooLarge => HttpError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!(
                    "the body of the request is larger than {} bytes",
                    self.limits.body_bytes
                ),
            ),
            BodyError::NoMemory => no_memory(Exhausted),
            BodyError::TooSlow => HttpError::new(
                StatusCode::REQUEST_TIMEOUT,
                format!(
                    "the body of the request did not arrive within {} s",
                    self.limits.request_timeout.as_secs()
                ),
            ),
            BodyError::Broken(error) => HttpError::new(
                StatusCode::BAD_REQUEST,
                format!("cannot read the body of the request: {error}"),
            ),
        }
    }
}

impl Handle for Router {
    async fn handle(&self, request: Request<Incoming>, client: &Client) -> Response<Full<Bytes>> {
        self.answer(request, client).await
    }
}

fn no_memory(_: Exhausted) -> HttpError {
    HttpError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "other reviews use all memory reserved for reviews; try again",
    )
}

/// The limits on live reads, from the query `timeout=5s` with which the API server sends a review.
fn read_limits(peer: Peer, query: Option<&str>) -> ReadLimits {
    let mut parameters = query.unwrap_or_default().split('&');
    let seconds = parameters.find_map(|parameter| {
        parameter
            .strip_prefix("timeout=")?
            .strip_suffix('s')?
            .parse()
            .ok()
    });
    let limit = seconds.map_or(LIVE_READ_TIMEOUT, |seconds| {
        let limit = Duration::from_secs(seconds).min(MAX_REVIEW_TIMEOUT);
        limit.saturating_sub(RESPONSE_MARGIN)
    });
    ReadLimits {
        peer,
        deadline: Instant::now() + limit,
    }
}

fn error_response(error: &HttpError) -> Response<Full<Bytes>> {
    debug!(code = error.code.as_u16(), sentence = %error.sentence, "request rejected");
    let mut response = Response::new(Full::from(format!("{}\n", error.sentence)));
    *response.status_mut() = error.code;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    match error.code {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    // Close the connection. Otherwise the rest of a body would be read as the next request, and errors that a client does not
    // read would use memory without a share.
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Rejects every request that is not a POST of uncompressed JSON.
fn require_json_post<B>(request: &Request<B>) -> Result<(), HttpError> {
    if request.method() != Method::POST {
        return Err(HttpError::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "send reviews with POST",
        ));
    }
    if !is_json(request.headers()) {
        return Err(HttpError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send reviews as application/json",
        ));
    }
    if request.headers().contains_key(header::CONTENT_ENCODING) {
        return Err(HttpError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send reviews without a content encoding",
        ));
    }
    Ok(())
}

fn is_json(headers: &HeaderMap) -> bool {
    let essence = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// The text of a response, with its share of the memory until it is sent.
struct Unsent {
    text: Vec<u8>,
    _share: Share,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

fn json(text: Vec<u8>, mut share: Share) -> Response<Full<Bytes>> {
    share.shrink_to(REVIEW_BYTES + text.len());
    let unsent = Unsent { text, _share: share };
    let mut response = Response::new(Full::from(Bytes::from_owner(unsent)));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Logs the decision. Denials are logged for the operator too, because the client may be a controller.
fn log(hook: Hook, request: &decode::Request<'_>, decision: &Decision) {
    let webhook = hook.path();
    let uid = &*shortened(&request.uid);
    let resource = &*shortened(&request.resource.plural);
    let namespace = &*shortened(&request.namespace);
    let name = &*shortened(&request.name);
    let user = &*shortened(request.user_info.name());
    match &decision.verdict {
        ReviewResult::Allowed if decision.overridden_rules().next().is_some() => {
            let overridden = decision.overridden_rules().take(MAX_CAUSES);
            let rules: BTreeSet<String> = overridden
                .map(|(rule, reason)| match reason {
                    DowngradeReason::Overridden { until } => format!("{rule} until {until}"),
                    reason => format!("{rule}: {}", reason.why()),
                })
                .collect();
            info!(
                webhook,
                uid,
                user,
                resource,
                namespace,
                name,
                ?rules,
                "overridden"
            );
        }
        ReviewResult::Allowed => {
            let patched = !decision.patch.is_empty();
            debug!(webhook, uid, resource, namespace, name, patched, "allowed");
        }
        ReviewResult::Invalid(invalid) => {
            let causes = invalid.causes.iter();
            let rules: Vec<&str> = causes.map(|cause| cause.rule).take(MAX_CAUSES).collect();
            info!(webhook, uid, user, resource, namespace, name, ?rules, "denied");
        }
        ReviewResult::Refused(refusal) => {
            let reason = &*refusal.message;
            warn!(webhook, uid, resource, namespace, name, reason, "refused");
        }
    }
}

/// Limits the length of text in a log, because any client that reaches the port can send any text.
fn shortened(text: &str) -> Cow<'_, str> {
    shorten(text, MAX_NAME_CHARS, "")
}

#[cfg(test)]
mod tests;
