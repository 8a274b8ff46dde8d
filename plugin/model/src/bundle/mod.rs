//! The debug bundle of a control plane: the files that a person sends to ask for help. It contains no secrets.
//!
//! - [`redaction`]: replaces all text of an object, except in fields that are known to contain no secret
//! - [`fields`]: these fields, for each kind
//! - [`flags`]: the flags of control plane components whose values are no secrets
//! - [`secret_text`]: finds tokens and keys in messages
//! - [`replacement`]: replaces text
//! - [`selection`]: the webhook configurations and Events that concern a control plane
//! - [`part`]: the files of a bundle, and their maximum sizes

mod fields;
mod flags;
pub mod part;
pub mod redaction;
mod replacement;
mod secret_text;
pub mod selection;

pub use part::{Part, Unread};
pub use redaction::Redacted;
pub use replacement::REDACTED;

#[cfg(test)]
mod tests;
