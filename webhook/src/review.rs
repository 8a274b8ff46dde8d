//! One review, from its HTTP request to its response.
//!
//! - `router`: routes requests to the webhooks by path, method and content type
//! - `panics`: catches panics
//! - `admission`: decides on reviews
//! - `denial_events`: records denials as Events
//! - `response`: writes the response to a review
//! - `decode`: decodes an `AdmissionReview`, borrowing from the body

pub(crate) mod admission;
pub(crate) mod decode;
pub(crate) mod denial_events;
pub(crate) mod panics;
pub(crate) mod response;
pub(crate) mod router;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
