//! Answers reviews with neither a socket nor a cluster: what is left of the server is a function of a body's bytes, for
//! fuzzing and for tests from outside.

use std::{borrow::Cow, sync::Arc};

use tokio::sync::watch;

use crate::{
    Limits, admission::Admission, cluster::Cluster, configuration::CurrentConfiguration, hook::Hook,
    metrics::Metrics, router::Router, shutdown::Phase,
};

/// A server that has every rule's own action and no API access.
pub struct Offline {
    router: Router,
}

/// A body that is answered with a status of HTTP alone, for no uid can be read in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnedAway {
    /// The status of HTTP.
    pub code: u16,
    /// What is wrong, in one sentence.
    pub sentence: Cow<'static, str>,
}

impl Default for Offline {
    fn default() -> Self {
        let metrics = Arc::new(Metrics::new());
        let configuration = CurrentConfiguration::without_file(metrics.clone());
        let admission = Admission::new(Cluster::new(None, metrics.clone()), Arc::new(configuration));
        // A phase whose sender is gone stays what it was.
        let (_, phase) = watch::channel(Phase::Serving);
        Self {
            router: Router::new(admission, metrics, Limits::default(), phase),
        }
    }
}

impl Offline {
    /// The `AdmissionReview` that `/mutate` answers to a body.
    pub async fn mutate(&self, body: &[u8]) -> Result<Vec<u8>, TurnedAway> {
        self.answer(Hook::Mutate, body).await
    }

    /// The `AdmissionReview` that `/validate` answers to a body.
    pub async fn validate(&self, body: &[u8]) -> Result<Vec<u8>, TurnedAway> {
        self.answer(Hook::Validate, body).await
    }

    async fn answer(&self, hook: Hook, body: &[u8]) -> Result<Vec<u8>, TurnedAway> {
        self.router
            .respond(hook, body)
            .await
            .map_err(|refused| TurnedAway {
                code: refused.code.as_u16(),
                sentence: refused.sentence,
            })
    }
}
