use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;

use super::*;
use crate::{cluster::ClusterReader, metrics::Metrics, testing::api_server_by_uri};

/// An API server whose list has `count` pages. The last page has one object.
fn pages(count: usize) -> ClusterReader {
    let client = api_server_by_uri(move |uri| {
        let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        let start = query
            .filter(|(name, _)| name == "continue")
            .find_map(|(_, from)| from.parse().ok())
            .unwrap_or(0_usize);
        let members = if start + 1 == count { 1 } else { LIST_PAGE_SIZE };
        let next = (start + 1 < count).then(|| (start + 1).to_string());
        let items: Vec<_> = (0..members)
            .map(|n| json!({"metadata": {"name": format!("{start}-{n}")}}))
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

/// An API server that is busy for the first `count` requests.
fn busy_server(count: usize) -> ClusterReader {
    let requests = Arc::new(AtomicUsize::new(0));
    let client = api_server_by_uri(move |_| {
        let is_busy = requests.fetch_add(1, Ordering::Relaxed) < count;
        let list = json!({"metadata": {}, "items": [{"metadata": {"name": "m1"}}]});
        let status = json!({"kind": "Status", "code": 429, "message": "storage is (re)initializing"});
        std::future::ready(if is_busy { (429, status) } else { (200, list) })
    });
    ClusterReader::new(Some(client), Arc::new(Metrics::new()))
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_busy_api_server_until_the_deadline() {
    let list_names = async |count| {
        let server = busy_server(count);
        let reads = server.start_reads(crate::cluster::ReadLimits::default());
        reads.list_names("/apis/g/v1/kinds").await
    };
    assert_eq!(list_names(4).await.unwrap(), ["m1"]);
    let error = list_names(5).await.unwrap_err();
    assert_eq!(
        (error.label(), error.to_string().as_str()),
        (
            "busy",
            "the API server responded with 429: storage is (re)initializing; try again"
        )
    );
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
