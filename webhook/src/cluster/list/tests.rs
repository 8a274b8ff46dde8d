use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::{cluster::ClusterReader, metrics::Metrics, testing::api_server_by_uri};

/// An API server whose list has `count` pages. The last page has one object.
fn pages(count: usize) -> ClusterReader {
    let client = api_server_by_uri(move |uri| {
        let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        let at = query
            .filter(|(name, _)| name == "continue")
            .find_map(|(_, from)| from.parse().ok())
            .unwrap_or(0_usize);
        let members = if at + 1 == count { 1 } else { LIST_PAGE_SIZE };
        let next = (at + 1 < count).then(|| (at + 1).to_string());
        let items: Vec<_> = (0..members)
            .map(|n| json!({"metadata": {"name": format!("{at}-{n}")}}))
            .collect();
        std::future::ready((
            200,
            json!({"metadata": {"continue": next.unwrap_or_default()}, "items": items}),
        ))
    });
    ClusterReader::new(Some(client), Arc::new(Metrics::new()))
}

#[tokio::test]
async fn reads_all_pages() {
    let names = pages(3)
        .start_reads(crate::cluster::ReadLimits::default())
        .list_names("/apis/g/v1/kinds")
        .await
        .unwrap();
    assert_eq!(names.len(), 2 * LIST_PAGE_SIZE + 1);
    assert_eq!(names.first().map(String::as_str), Some("0-0"));
    assert_eq!(names.last().map(String::as_str), Some("2-0"));
}

#[tokio::test]
async fn rejects_a_list_that_is_too_long() {
    let most = MAX_LISTED_OBJECTS / LIST_PAGE_SIZE;
    assert!(
        pages(most)
            .start_reads(crate::cluster::ReadLimits::default())
            .list_names("/apis/g/v1/kinds")
            .await
            .is_ok()
    );
    let read = pages(most + 1)
        .start_reads(crate::cluster::ReadLimits::default())
        .list_names("/apis/g/v1/kinds")
        .await;
    assert!(
        matches!(read, Err(ReadError::TooMany(MAX_LISTED_OBJECTS))),
        "{read:?}"
    );
}
