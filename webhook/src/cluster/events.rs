//! Decodes the lists and watch events that an API server sends.

use std::fmt;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::read_error::ReadError;
use crate::limits::MAX_RESPONSE_BYTES;

/// The size in bytes to which the line buffer shrinks after a longer line. Most lines have a few thousand bytes.
const BUFFER_BYTES: usize = 64 * 1024;

/// One page of a list in any API version, with each object as JSON.
#[derive(Deserialize)]
pub(super) struct Page<'p> {
    #[serde(default)]
    pub(super) metadata: PageMetadata,
    /// The objects. Go encodes an empty list of metadata as null.
    #[serde(borrow)]
    pub(super) items: Option<Vec<&'p RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PageMetadata {
    pub(super) resource_version: String,
    /// The token for the next page; empty on the last page.
    #[serde(rename = "continue")]
    pub(super) next: String,
}

#[derive(Deserialize)]
pub(super) struct Named {
    pub(super) metadata: NamedMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NamedMetadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) resource_version: String,
}

/// One event of a watch, with the object as JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'l> {
    /// An object was added or changed.
    Put(&'l str),
    Removed(&'l str),
    /// A bookmark, which is an object with only a resource version.
    Bookmark(&'l str),
}

impl<'l> Event<'l> {
    pub(super) fn decode(line: &'l [u8]) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Line<'l> {
            #[serde(rename = "type")]
            kind: String,
            #[serde(borrow)]
            object: &'l RawValue,
        }
        let line: Line<'_> =
            serde_json::from_slice(line).map_err(|error| ReadError::from_json_error(&error))?;
        let object = line.object.get();
        match line.kind.as_str() {
            "ADDED" | "MODIFIED" => Ok(Self::Put(object)),
            "DELETED" => Ok(Self::Removed(object)),
            "BOOKMARK" => Ok(Self::Bookmark(object)),
            "ERROR" => Err(serde_json::from_str::<Status>(object).map_or_else(
                |error| ReadError::from_json_error(&error),
                |status| ReadError::from_status(&status),
            )),
            kind => Err(ReadError::Unusable(format!("unknown event type {kind:?}"))),
        }
    }
}

/// Splits the body of a watch into lines.
pub(super) struct Lines<B> {
    body: B,
    buffer: Vec<u8>,
    /// The number of bytes at the start of the buffer that this reader has already returned.
    returned: usize,
    /// The number of bytes at the start of the buffer that contain no line end.
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
            returned: 0,
            searched: 0,
        }
    }

    /// The next complete line, or `None` at the end of the body. Cancel safe: a later call continues where this one
    /// stopped.
    pub(super) async fn next(&mut self) -> Result<Option<&[u8]>, ReadError> {
        self.buffer.drain(..self.returned);
        self.returned = 0;
        if self.buffer.is_empty() {
            self.buffer.shrink_to(BUFFER_BYTES);
        }
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') {
                let end = self.searched + end;
                (self.returned, self.searched) = (end + 1, 0);
                return Ok(self.buffer.get(..end));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_RESPONSE_BYTES {
                return Err(ReadError::TooLarge);
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| ReadError::Failed(format!("the watch failed: {error}")))?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

#[cfg(test)]
mod tests;
