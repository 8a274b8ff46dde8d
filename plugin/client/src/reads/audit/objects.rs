//! Extracts what the checks of the audit need from objects.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::ConfigMap,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kcp_control_plane::{
    audit::facts::{ApiService, Backend, Conversion, KubeadmSettings, ServiceName, Webhook},
    certificates::Validity,
    snapshot::{Failure, Reading},
};
use serde::{Deserialize, de::IgnoredAny};

use crate::reads::{certificates::validity_of_bundle, failure::one_line};

pub fn validating_webhooks(configuration: ValidatingWebhookConfiguration) -> Vec<Webhook> {
    let name = configuration.metadata.name.unwrap_or_default();
    let webhooks = configuration.webhooks.unwrap_or_default().into_iter();
    webhooks
        .filter_map(|webhook| Webhook::from_validating(&name, webhook))
        .collect()
}

pub fn mutating_webhooks(configuration: MutatingWebhookConfiguration) -> Vec<Webhook> {
    let name = configuration.metadata.name.unwrap_or_default();
    let webhooks = configuration.webhooks.unwrap_or_default().into_iter();
    webhooks
        .filter_map(|webhook| Webhook::from_mutating(&name, webhook))
        .collect()
}

/// Returns an `APIService` whose server is not kube-apiserver. `None` if kube-apiserver serves it itself.
pub fn api_service(service: APIService) -> Option<ApiService> {
    let reference = service.spec?.service?;
    let conditions = service
        .status
        .and_then(|status| status.conditions)
        .unwrap_or_default();
    let condition = conditions
        .into_iter()
        .find(|condition| condition.type_ == "Available");
    Some(ApiService {
        name: service.metadata.name.unwrap_or_default(),
        service: ServiceName {
            namespace: reference.namespace.unwrap_or_default(),
            name: reference.name.unwrap_or_default(),
        },
        available: condition
            .as_ref()
            .and_then(|condition| match condition.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            }),
        message: one_line(
            &condition
                .and_then(|condition| condition.message)
                .unwrap_or_default(),
        ),
    })
}

/// Returns the conversion webhook of a custom resource. `None` if it has none.
pub fn conversion(definition: CustomResourceDefinition) -> Option<Conversion> {
    let conversion = definition.spec.conversion?;
    if conversion.strategy != "Webhook" {
        return None;
    }
    let config = conversion.webhook?.client_config?;
    let backend = match (config.service, config.url) {
        (Some(service), _) => Backend::Service(ServiceName {
            namespace: service.namespace,
            name: service.name,
        }),
        (None, Some(url)) => Backend::Url(url),
        (None, None) => return None,
    };
    let versions = definition.spec.versions;
    let served: Vec<String> = versions
        .into_iter()
        .filter(|version| version.served)
        .map(|version| version.name)
        .collect();
    let stored = definition
        .status
        .and_then(|status| status.stored_versions)
        .unwrap_or_default();
    Some(Conversion {
        crd: definition.metadata.name.unwrap_or_default(),
        backend,
        is_needed: served.len() > 1 || stored.iter().any(|version| !served.contains(version)),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterConfiguration {
    kubernetes_version: Option<String>,
    control_plane_endpoint: Option<String>,
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,
    #[serde(default)]
    etcd: EtcdConfiguration,
}

#[derive(Default, Deserialize)]
struct EtcdConfiguration {
    external: Option<IgnoredAny>,
    local: Option<LocalEtcd>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LocalEtcd {
    data_dir: Option<String>,
}

/// Parses kubeadm's `ConfigMap`. `None` if it does not exist.
pub fn kubeadm_settings(config: Option<ConfigMap>) -> Reading<Option<KubeadmSettings>> {
    let Some(config) = config else {
        return Reading::Read(None);
    };
    let text = config
        .data
        .and_then(|mut data| data.remove("ClusterConfiguration"));
    // The parser's message is dropped, because it may quote the configuration.
    let parsed = text
        .as_deref()
        .and_then(|text| serde_saphyr::from_str::<ClusterConfiguration>(text).ok());
    match parsed {
        Some(parsed) => Reading::Read(Some(KubeadmSettings {
            kubernetes_version: parsed.kubernetes_version.filter(|version| !version.is_empty()),
            control_plane_endpoint: parsed
                .control_plane_endpoint
                .filter(|endpoint| !endpoint.is_empty()),
            feature_gates: parsed.feature_gates,
            has_external_etcd: parsed.etcd.external.is_some(),
            etcd_folder: parsed.etcd.local.and_then(|local| local.data_dir),
        })),
        None => Reading::Failed(Failure {
            object: "ConfigMap/kubeadm-config".to_owned(),
            message: "the key ClusterConfiguration is missing or cannot be decoded".to_owned(),
            hint: None,
            ..Failure::default()
        }),
    }
}

/// The keys of the `ConfigMap` in which the API server publishes the CAs that it trusts.
const AUTHORITIES: [(&str, &str); 2] = [
    ("client-ca-file", "the CA of client certificates"),
    ("requestheader-client-ca-file", "the front-proxy CA"),
];

/// Reads when the CAs that the API server publishes expire.
pub fn authorities(config: Option<ConfigMap>) -> Reading<Vec<(String, Timestamp)>> {
    let failed = |message: String| {
        Reading::Failed(Failure {
            object: "ConfigMap/extension-apiserver-authentication".to_owned(),
            message,
            hint: None,
            ..Failure::default()
        })
    };
    let Some(data) = config.and_then(|config| config.data) else {
        return failed("not found in namespace kube-system".to_owned());
    };
    let mut found = Vec::new();
    for (key, title) in AUTHORITIES {
        let Some(pem) = data.get(key) else {
            continue;
        };
        match validity_of_bundle(pem.as_bytes()) {
            Validity::Certificate { expires, .. } => found.push((title.to_owned(), expires)),
            _ => {
                return failed(format!(
                    "the key {key} contains no certificate that can be parsed"
                ));
            }
        }
    }
    Reading::Read(found)
}

#[cfg(test)]
mod tests {
    use kcp_control_plane::{audit::facts::KubeadmSettings, snapshot::Reading};
    use serde_json::{Value, from_value, json};

    use super::{api_service, authorities, conversion, kubeadm_settings};

    #[test]
    fn kubeadms_settings_are_parsed() {
        let config =
            |text: &str| from_value(json!({"data": {"ClusterConfiguration": text}})).expect("a ConfigMap");
        let text = "kubernetesVersion: v1.36.3\ncontrolPlaneEndpoint: 10.0.0.9:6443\nfeatureGates:\n  A: true\n\
            etcd:\n  local:\n    dataDir: /var/lib/etcd\n";
        let expected = KubeadmSettings {
            kubernetes_version: Some("v1.36.3".to_owned()),
            control_plane_endpoint: Some("10.0.0.9:6443".to_owned()),
            feature_gates: [("A".to_owned(), true)].into(),
            has_external_etcd: false,
            etcd_folder: Some("/var/lib/etcd".to_owned()),
        };
        assert_eq!(
            kubeadm_settings(Some(config(text))),
            Reading::Read(Some(expected))
        );
        assert_eq!(kubeadm_settings(None), Reading::Read(None));
        let external = kubeadm_settings(Some(config("etcd: {external: {endpoints: [https://e:2379]}}")));
        assert!(external.value().is_some_and(|settings| {
            settings
                .as_ref()
                .is_some_and(|settings| settings.has_external_etcd)
        }));
        let broken = kubeadm_settings(Some(config("featureGates: secret")));
        let failure = broken.failure().expect("a failure");
        assert_eq!(
            failure.message,
            "the key ClusterConfiguration is missing or cannot be decoded"
        );
    }

    #[test]
    fn only_apis_of_other_servers_count() {
        let service = |spec: Value, status: &str| {
            let condition = json!({"type": "Available", "status": status, "message": "no\nanswer"});
            let service =
                json!({"metadata": {"name": "v1.x"}, "spec": spec, "status": {"conditions": [condition]}});
            api_service(from_value(service).expect("an APIService"))
        };
        let spec = json!({"group": "x", "groupPriorityMinimum": 1, "versionPriority": 1});
        assert_eq!(service(spec.clone(), "True"), None);
        let mut spec = spec;
        spec["service"] = json!({"namespace": "a", "name": "b"});
        let found = service(spec, "False").expect("another server");
        assert_eq!(found.available, Some(false));
        assert_eq!(
            (found.service.to_string(), found.message),
            ("Service a/b".to_owned(), "no answer".to_owned())
        );
    }

    #[test]
    fn a_conversion_is_needed_for_several_versions() {
        let definition = |served: &[&str], stored: &[&str]| {
            let versions: Vec<Value> = served
                .iter()
                .map(|name| json!({"name": name, "served": true, "storage": false}))
                .collect();
            let service = json!({"namespace": "a", "name": "b"});
            let webhook = json!({"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]});
            let definition = json!({
                "metadata": {"name": "x"},
                "spec": {
                    "group": "g", "names": {"kind": "X", "plural": "xs"}, "scope": "Cluster", "versions": versions,
                    "conversion": {"strategy": "Webhook", "webhook": webhook},
                },
                "status": {"storedVersions": stored},
            });
            conversion(from_value(definition).expect("a definition"))
                .expect("a conversion")
                .is_needed
        };
        assert!(!definition(&["v1"], &["v1"]));
        assert!(definition(&["v1", "v2"], &["v2"]));
        assert!(definition(&["v2"], &["v1", "v2"]));
    }

    #[test]
    fn an_authority_that_cannot_be_parsed_is_a_failure() {
        let config = |data: Value| authorities(Some(from_value(json!({"data": data})).expect("a ConfigMap")));
        assert_eq!(config(json!({})), Reading::Read(Vec::new()));
        let broken = config(json!({"client-ca-file": "nothing"}));
        let failure = broken.failure().expect("a failure");
        assert_eq!(
            failure.message,
            "the key client-ca-file contains no certificate that can be parsed"
        );
        assert!(authorities(None).failure().is_some());
    }
}
