//! Reads lists of objects from the API server.

use kcp_api::List;
use serde::de::DeserializeOwned;

use super::{
    events::Named,
    live_reads::{LiveReads, Projection},
    read_error::ReadError,
};
use crate::limits::{LIST_PAGE_SIZE, MAX_LISTED_OBJECTS};

impl LiveReads<'_> {
    /// Lists whole objects. Of each, keeps only the part that `part` returns: a list can be long, and an object large.
    pub(super) async fn list<T: DeserializeOwned, P>(
        &self,
        path: &str,
        selector: &str,
        part: impl Fn(T) -> Option<P>,
    ) -> Result<Vec<P>, ReadError> {
        self.pages(path, selector, Projection::Whole, part).await
    }

    pub(super) async fn list_names(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let name = |object: Named| Some(object.metadata.name);
        self.pages(path, "", Projection::Metadata, name).await
    }

    /// Reads all pages of a list. Fails if the list is too long: a rule must not decide on part of a list,
    /// and memory is limited.
    async fn pages<T: DeserializeOwned, P>(
        &self,
        path: &str,
        selector: &str,
        projection: Projection,
        part: impl Fn(T) -> Option<P>,
    ) -> Result<Vec<P>, ReadError> {
        let (mut parts, mut listed) = (Vec::new(), 0);
        let mut next = String::new();
        loop {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("labelSelector", selector)
                .append_pair("limit", &LIST_PAGE_SIZE.to_string())
                .append_pair("continue", &next)
                .finish();
            let page: List<T> = self.read_object(&format!("{path}?{query}"), projection).await?;
            listed += page.items.len();
            parts.extend(page.items.into_iter().filter_map(&part));
            let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
                return Ok(parts);
            };
            if listed >= MAX_LISTED_OBJECTS {
                return Err(ReadError::TooMany(MAX_LISTED_OBJECTS));
            }
            next = token;
        }
    }
}

#[cfg(test)]
mod tests;
