//! What an API server sends: pages of a list, and the lines of a watch.

use std::fmt;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{ReadError, refused};
use crate::limits::ANSWER_BYTES;

/// A line's buffer is given back above this size, in bytes: most lines are a few thousand.
const SPARE_BYTES: usize = 64 * 1024;

/// One page of a list, in whatever version, with the objects as they were sent.
#[derive(Deserialize)]
pub(super) struct Page<'p> {
    #[serde(default)]
    pub(super) metadata: PageMetadata,
    /// Go writes an empty list of metadata as null.
    #[serde(borrow)]
    pub(super) items: Option<Vec<&'p RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PageMetadata {
    pub(super) resource_version: String,
    /// Where the next page begins; empty on the last.
    #[serde(rename = "continue")]
    pub(super) next: String,
}

/// What an object is known by.
#[derive(Deserialize)]
pub(super) struct Named {
    pub(super) metadata: NamedMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NamedMetadata {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) resource_version: String,
}

/// What a line of a watch says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'l> {
    /// An object is there as it is here.
    Put(&'l str),
    /// An object is gone.
    Removed(&'l str),
    /// Nothing but the resource version.
    Bookmark(&'l str),
}

impl<'l> Event<'l> {
    pub(super) fn read(line: &'l [u8]) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Line<'l> {
            #[serde(rename = "type")]
            kind: String,
            #[serde(borrow)]
            object: &'l RawValue,
        }
        let line: Line<'_> = serde_json::from_slice(line).map_err(|error| unusable(&error))?;
        let object = line.object.get();
        match line.kind.as_str() {
            "ADDED" | "MODIFIED" => Ok(Self::Put(object)),
            "DELETED" => Ok(Self::Removed(object)),
            "BOOKMARK" => Ok(Self::Bookmark(object)),
            "ERROR" => Err(serde_json::from_str::<Status>(object)
                .map_or_else(|error| unusable(&error), |status| refused(&status))),
            kind => Err(ReadError::Unusable(format!("an event of type {kind:?}"))),
        }
    }
}

pub(super) fn unusable(error: &serde_json::Error) -> ReadError {
    ReadError::Unusable(error.to_string())
}

/// The lines of a body.
pub(super) struct Lines<B> {
    body: B,
    buffer: Vec<u8>,
    /// Bytes of the buffer that have been given out.
    given: usize,
    /// Bytes of the buffer in which no line ends.
    searched: usize,
}

impl<B> Lines<B>
where
    B: Body<Data = Bytes, Error: fmt::Display> + Unpin,
{
    pub(super) const fn new(body: B) -> Self {
        Self {
            body,
            buffer: Vec::new(),
            given: 0,
            searched: 0,
        }
    }

    /// The next whole line; none when the body ends. Cut short, it can be called again: nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<&[u8]>, ReadError> {
        self.buffer.drain(..self.given);
        self.given = 0;
        if self.buffer.is_empty() {
            self.buffer.shrink_to(SPARE_BYTES);
        }
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') {
                let end = self.searched + end;
                (self.given, self.searched) = (end + 1, 0);
                return Ok(self.buffer.get(..end));
            }
            self.searched = self.buffer.len();
            if self.searched > ANSWER_BYTES {
                return Err(ReadError::TooLarge);
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| ReadError::Failed(format!("the watch broke off: {error}")))?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

#[cfg(test)]
mod tests;
