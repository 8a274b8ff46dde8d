//! Paths, methods and content types.
//!
//! What is not even a review with a uid is answered with a status of HTTP and one sentence: the API server could not
//! take an `AdmissionReview` for it, and follows the failure policy.

use std::{borrow::Cow, fmt, sync::Arc};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes, Incoming},
    header::{self, HeaderMap, HeaderValue},
};
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};
use tracing::{debug, info, warn};

use crate::{
    admission::Admission,
    body::{self, Unread},
    decision::{Decision, Outcome, RefusalKind},
    handle::Handle,
    hook::Hook,
    limits::{CAUSES, Limits, NAME_CHARS},
    metrics::Metrics,
    response,
    review::{self, Unreadable},
    shorten::shorten,
    shutdown::Phase,
};

/// Answers reviews.
pub(crate) struct Router {
    admission: Admission,
    metrics: Arc<Metrics>,
    limits: Limits,
    reviews: Semaphore,
    buffered: Semaphore,
    phase: watch::Receiver<Phase>,
}

/// A request that is turned away.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: StatusCode,
    pub(crate) sentence: Cow<'static, str>,
}

impl Refused {
    fn new(code: StatusCode, sentence: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            sentence: sentence.into(),
        }
    }
}

impl Router {
    pub(crate) fn new(
        admission: Admission,
        metrics: Arc<Metrics>,
        limits: Limits,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        Self {
            admission,
            metrics,
            reviews: Semaphore::new(limits.reviews),
            buffered: Semaphore::new(limits.buffered_bytes),
            limits,
            phase,
        }
    }

    /// Answers one request.
    pub(crate) async fn answer<B>(&self, request: Request<B>, overloaded: bool) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes, Error: fmt::Display>,
    {
        let Some(hook) = Hook::at(request.uri().path()) else {
            return refuse(&Refused::new(
                StatusCode::NOT_FOUND,
                "there is nothing at this path; reviews go to /mutate and /validate",
            ));
        };
        let in_flight = self.metrics.begin(hook);
        let response = if overloaded {
            Err(Refused::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many connections are open; try again",
            ))
        } else {
            self.review(hook, request).await
        };
        let mut response = match response {
            Ok(answer) => json(answer),
            Err(refused) => refuse(&refused),
        };
        if overloaded || *self.phase.borrow() != Phase::Serving {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        in_flight.end(response.status());
        response
    }

    async fn review<B>(&self, hook: Hook, request: Request<B>) -> Result<Vec<u8>, Refused>
    where
        B: Body<Data = Bytes, Error: fmt::Display>,
    {
        accept(&request)?;
        let Ok(_place) = self.reviews.try_acquire() else {
            return Err(Refused::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many reviews are being answered; try again",
            ));
        };
        let (_, body) = request.into_parts();
        let deadline = Instant::now() + self.limits.body;
        let body = body::read(body, self.limits.body_bytes, deadline, &self.buffered)
            .await
            .map_err(|unread| self.unread(unread))?;
        self.respond(hook, body.as_bytes()).await
    }

    /// Answers a body that has come whole.
    pub(crate) async fn respond(&self, hook: Hook, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let written = match review::read(body) {
            Ok(request) => {
                let decision = self.admission.decide(hook, &request).await;
                self.metrics.decided(hook, &decision);
                tell(hook, &request, &decision);
                response::write(&request.uid, &decision)
            }
            Err(Unreadable {
                uid: Some(uid),
                sentence,
            }) => {
                warn!(
                    webhook = hook.path(),
                    uid = &*brief(&uid),
                    sentence,
                    "not a review"
                );
                let decision = Decision::refused(RefusalKind::BadRequest, sentence);
                self.metrics.decided(hook, &decision);
                response::write(&uid, &decision)
            }
            Err(Unreadable { uid: None, sentence }) => {
                return Err(Refused::new(StatusCode::BAD_REQUEST, sentence));
            }
        };
        written.map_err(|error| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }

    fn unread(&self, unread: Unread) -> Refused {
        match unread {
            Unread::TooLarge => Refused::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {} bytes", self.limits.body_bytes),
            ),
            Unread::NoMemory => Refused::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many bytes are being held for other reviews; try again",
            ),
            Unread::TooSlow => Refused::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not come within {} s", self.limits.body.as_secs()),
            ),
            Unread::Broken(error) => Refused::new(
                StatusCode::BAD_REQUEST,
                format!("the body cannot be read: {error}"),
            ),
        }
    }
}

impl Handle for Router {
    async fn handle(&self, request: Request<Incoming>, overloaded: bool) -> Response<Full<Bytes>> {
        self.answer(request, overloaded).await
    }
}

fn refuse(refused: &Refused) -> Response<Full<Bytes>> {
    debug!(code = refused.code.as_u16(), sentence = %refused.sentence, "turned away");
    let mut response = Response::new(Full::from(format!("{}\n", refused.sentence)));
    *response.status_mut() = refused.code;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    match refused.code {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // The rest of the body would be taken for the next request.
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        _ => {}
    }
    response
}

/// Takes a POST of plain JSON alone.
fn accept<B>(request: &Request<B>) -> Result<(), Refused> {
    if request.method() != Method::POST {
        return Err(Refused::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "a review is sent with POST",
        ));
    }
    if !is_json(request.headers()) {
        return Err(Refused::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a review is sent as application/json",
        ));
    }
    if request.headers().contains_key(header::CONTENT_ENCODING) {
        return Err(Refused::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a review is sent without a content encoding",
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

fn json(body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A denial is told to the operator as well as to the user: the user may be a controller.
fn tell(hook: Hook, request: &review::Request<'_>, decision: &Decision) {
    let webhook = hook.path();
    let uid = &*brief(&request.uid);
    let resource = &*brief(&request.resource.plural);
    let namespace = &*brief(&request.namespace);
    let name = &*brief(&request.name);
    match &decision.outcome {
        Outcome::Allowed => {
            let patched = !decision.patch.is_empty();
            debug!(webhook, uid, resource, namespace, name, patched, "allowed");
        }
        Outcome::Invalid(invalid) => {
            let causes = invalid.causes.iter();
            let rules: Vec<&str> = causes.map(|cause| cause.rule).take(CAUSES).collect();
            info!(webhook, uid, resource, namespace, name, ?rules, "denied");
        }
        Outcome::Refused(refusal) => {
            let reason = &*refusal.message;
            warn!(webhook, uid, resource, namespace, name, reason, "refused");
        }
    }
}

/// For a log: whoever reaches the port can send what it likes.
fn brief(text: &str) -> Cow<'_, str> {
    shorten(text, NAME_CHARS, "")
}

#[cfg(test)]
mod tests;
