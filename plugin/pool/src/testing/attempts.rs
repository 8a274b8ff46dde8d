//! Attempts to lease entries of the API server in memory.

use crate::{
    lease::{
        LeaseError,
        attempt::{Attempt, AttemptRequest, attempt},
        reuse::Reuse,
        usage::Clusters,
    },
    objects::Holder,
    store::LeaseStore as _,
    testing::fake::Fake,
};

/// Runs a future. Its pauses take no time.
pub fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(work)
}

/// A request for one of these entries.
pub fn request<'r>(names: &'r [&'r str], clusters: &'r Clusters, holder: &'r str) -> AttemptRequest<'r> {
    AttemptRequest {
        names,
        unselected: &[],
        clusters,
        holder: Holder {
            pool: "pool",
            cluster_deployment: holder,
        },
        count: 1,
        ttl: None,
        cluster: None,
        user: None,
        install_config: None,
        must_be_new: false,
        only_entry: None,
        overtaken: &[],
        reuse: Reuse::Free,
    }
}

/// Attempts this request after a change.
pub async fn attempt_by(
    fake: &Fake,
    names: &[&str],
    holder: &str,
    change: impl Fn(&mut AttemptRequest<'_>),
) -> Result<Attempt, LeaseError> {
    let clusters = fake.clusters().await?;
    let mut request = request(names, &clusters, holder);
    change(&mut request);
    attempt(fake, request).await
}
