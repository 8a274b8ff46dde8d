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
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        selector: &str,
    ) -> Result<Vec<T>, ReadError> {
        self.pages(path, selector, Projection::Whole).await
    }

    pub(super) async fn list_names(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let objects: Vec<Named> = self.pages(path, "", Projection::Metadata).await?;
        Ok(objects.into_iter().map(|object| object.metadata.name).collect())
    }

    /// Reads all pages of a list. Fails if the list is too long: a rule must not decide on part of a list,
    /// and memory is limited.
    async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        selector: &str,
        projection: Projection,
    ) -> Result<Vec<T>, ReadError> {
        let mut members = Vec::new();
        let mut next = String::new();
        loop {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("labelSelector", selector)
                .append_pair("limit", &LIST_PAGE_SIZE.to_string())
                .append_pair("continue", &next)
                .finish();
            let page: List<T> = self.read_object(&format!("{path}?{query}"), projection).await?;
            members.extend(page.items);
            let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
                return Ok(members);
            };
            if members.len() >= MAX_LISTED_OBJECTS {
                return Err(ReadError::TooMany(MAX_LISTED_OBJECTS));
            }
            next = token;
        }
    }
}

#[cfg(test)]
mod tests;
