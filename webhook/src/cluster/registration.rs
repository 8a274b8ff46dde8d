//! Checks whether the webhook configurations of the API server call this program. Without them no write is reviewed, and
//! nothing else shows it: the server is ready, and its caches are up to date.

use std::time::Duration;

use serde::Deserialize;
use tokio::time;

use super::{
    live_reads::{ApiServer, Projection},
    read_error::ReadError,
};
use crate::{hook::Hook, tasks::Tasks};

/// The name of both webhook configurations in `manifests`.
const NAME: &str = "admission.kubectl-kcp.dev";

/// How often to check. An alert waits longer than this.
const INTERVAL: Duration = Duration::from_secs(60);

/// The time limit for reading one configuration.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The part of a webhook configuration that says whether the API server can call the webhook.
#[derive(Debug, Deserialize)]
struct WebhookConfiguration {
    #[serde(default)]
    webhooks: Vec<Webhook>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Webhook {
    client_config: ClientConfig,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientConfig {
    #[serde(default)]
    ca_bundle: Option<String>,
}

impl WebhookConfiguration {
    /// Whether the API server calls every webhook of the configuration. Without a CA bundle, a call fails: no public CA signs
    /// the certificate of a Service.
    fn is_registered(&self) -> bool {
        let has_ca = |webhook: &Webhook| {
            let bundle = webhook.client_config.ca_bundle.as_deref();
            bundle.is_some_and(|bundle| !bundle.is_empty())
        };
        !self.webhooks.is_empty() && self.webhooks.iter().all(has_ca)
    }
}

/// Checks both configurations from now on, and reports them as metrics.
pub(super) fn spawn(server: &ApiServer, tasks: &mut Tasks) {
    let server = server.clone();
    tasks.spawn("registration check", async move {
        loop {
            for hook in Hook::ALL {
                let registered = match read(&server, hook).await {
                    Ok(configuration) => Some(configuration.is_registered()),
                    Err(ReadError::NotFound) => Some(false),
                    Err(error) => {
                        tracing::debug!(webhook = hook.path(), %error, "cannot read the webhook configuration");
                        None
                    }
                };
                server.metrics.set_registered(hook, registered);
            }
            time::sleep(INTERVAL).await;
        }
    });
}

async fn read(server: &ApiServer, hook: Hook) -> Result<WebhookConfiguration, ReadError> {
    let plural = match hook {
        Hook::Mutate => "mutatingwebhookconfigurations",
        Hook::Validate => "validatingwebhookconfigurations",
    };
    let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{NAME}");
    let reads = server.reads_within(REQUEST_TIMEOUT);
    let body = reads.get(&path, Projection::Whole).await?;
    serde_json::from_slice(body.as_bytes()).map_err(|error| ReadError::from_json_error(&error))
}

#[cfg(test)]
mod tests {
    use super::WebhookConfiguration;

    #[test]
    fn every_webhook_needs_a_ca() {
        for (configuration, registered) in [
            ("{}", false),
            (r#"{"webhooks": []}"#, false),
            (r#"{"webhooks": [{"clientConfig": {"caBundle": "YQ=="}}]}"#, true),
            (r#"{"webhooks": [{"clientConfig": {"caBundle": ""}}]}"#, false),
            (
                r#"{"webhooks": [{"clientConfig": {"caBundle": "YQ=="}}, {"clientConfig": {}}]}"#,
                false,
            ),
        ] {
            let decoded: WebhookConfiguration = serde_json::from_str(configuration).unwrap();
            assert_eq!(decoded.is_registered(), registered, "{configuration}");
        }
    }
}
