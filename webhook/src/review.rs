//! One review, from its HTTP request to its response.
//!
//! - `offline`: responds to reviews without sockets and without API access
//! - `router`: routes requests to the webhooks by path, method and content type
//! - `panics`: catches panics
//! - `admission`: decides on reviews
//! - `denial_events`: records denials as Events
//! - `response`: writes the response to a review
//! - `decode`: decodes an `AdmissionReview`, borrowing from the body

pub(crate) mod admission;
pub(crate) mod decode;
pub(crate) mod denial_events;
pub mod offline;
pub(crate) mod panics;
pub(crate) mod response;
pub(crate) mod router;
