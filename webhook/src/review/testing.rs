//! Responds to reviews without sockets and without API access, for fuzzing and integration tests.

use std::{borrow::Cow, sync::Arc};

use tokio::sync::watch;

use super::{
    admission::Admission,
    router::{Admissions, Router},
};
use crate::{
    Limits, cluster::ClusterReader, configuration::CurrentConfiguration, hook::Hook, metrics::Metrics,
    shutdown::Phase,
};

/// A webhook without sockets and API access, in which every rule uses its default action.
pub struct Offline {
    router: Router,
}

/// The HTTP error for a body without a readable uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRejection {
    pub code: u16,
    pub sentence: Cow<'static, str>,
}

impl Default for Offline {
    fn default() -> Self {
        let metrics = Arc::new(Metrics::new());
        let configuration = CurrentConfiguration::without_file(metrics.clone());
        let admission = Admission::new(ClusterReader::new(None, metrics.clone()), Arc::new(configuration));
        // The phase never changes, because its sender is dropped.
        let (_, phase) = watch::channel(Phase::Serving);
        Self {
            router: Router::new(Admissions::for_all(admission), metrics, Limits::default(), phase),
        }
    }
}

impl Offline {
    /// Responds to a body as `/mutate` does.
    pub async fn mutate(&self, body: &[u8]) -> Result<Vec<u8>, HttpRejection> {
        self.answer(Hook::Mutate, body).await
    }

    /// Responds to a body as `/validate` does.
    pub async fn validate(&self, body: &[u8]) -> Result<Vec<u8>, HttpRejection> {
        self.answer(Hook::Validate, body).await
    }

    async fn answer(&self, hook: Hook, body: &[u8]) -> Result<Vec<u8>, HttpRejection> {
        self.router
            .respond_to_any(hook, body)
            .await
            .map_err(|error| HttpRejection {
                code: error.code.as_u16(),
                sentence: error.sentence,
            })
    }
}
