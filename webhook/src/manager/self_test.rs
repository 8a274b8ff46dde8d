//! The self-test: reviews that the webhook must answer before the API server may call it.

use serde::Deserialize;
use serde_json::json;

use super::tls_client::{ProbeError, Trust};
use crate::hook::Hook;

/// The uid of the reviews. The API server uses random ones.
const UID: &str = "00000000-0000-4000-8000-000000000001";

#[derive(Deserialize)]
struct Review {
    response: Response,
}

#[derive(Deserialize)]
struct Response {
    uid: String,
    #[serde(rename = "allowed")]
    _allowed: bool,
}

/// Sends a review to both paths of the webhook. Succeeds if both responses are valid, whatever they decide: the
/// configuration of the webhook may deny any object.
pub(crate) async fn run(trust: &Trust, host: &str, port: u16) -> Result<(), ProbeError> {
    for hook in Hook::ALL {
        let path = hook.path();
        let response = trust.post(host, port, path, review().into_bytes()).await?;
        check(&response).map_err(|why| {
            ProbeError::WrongResponse(format!("{host}, port {port}"), format!("{path}: {why}"))
        })?;
    }
    Ok(())
}

/// A dry run that creates a control plane, in the format of k8s.io/api, admission/v1/types.go.
fn review() -> String {
    let group = "controlplane.cluster.x-k8s.io";
    let kind = json!({"group": group, "version": "v1beta2", "kind": "KubeadmControlPlane"});
    let resource = json!({"group": group, "version": "v1beta2", "resource": "kubeadmcontrolplanes"});
    let object = json!({
        "apiVersion": format!("{group}/v1beta2"),
        "kind": "KubeadmControlPlane",
        "metadata": {"name": "kcp-webhook-self-test", "namespace": "default"},
        "spec": {
            "replicas": 3,
            "version": "v1.34.2",
            "machineTemplate": {"spec": {"infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "SelfTestMachineTemplate", "name": "self-test",
            }}},
            "kubeadmConfigSpec": {},
        },
    });
    let request = json!({
        "uid": UID, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": "kcp-webhook-self-test", "namespace": "default", "operation": "CREATE", "dryRun": true,
        "userInfo": {"username": "kcp-webhook-self-test"},
        "object": object, "oldObject": null,
    });
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

fn check(response: &[u8]) -> Result<(), String> {
    let review: Review = serde_json::from_slice(response).map_err(|error| error.to_string())?;
    if review.response.uid == UID {
        Ok(())
    } else {
        Err("the response is for another review".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{UID, check, review};
    use crate::review::testing::Offline;

    #[tokio::test]
    async fn the_webhook_answers_its_self_test() {
        let webhook = Offline::default();
        for response in [
            webhook.mutate(review().as_bytes()).await.unwrap(),
            webhook.validate(review().as_bytes()).await.unwrap(),
        ] {
            assert_eq!(check(&response), Ok(()), "{}", String::from_utf8_lossy(&response));
            let text = String::from_utf8_lossy(&response).into_owned();
            assert!(text.contains("\"allowed\":true"), "{text}");
        }
    }

    #[test]
    fn another_server_does_not_pass() {
        for response in [
            "",
            "ok",
            "{}",
            r#"{"response": {"uid": "other", "allowed": true}}"#,
        ] {
            assert!(check(response.as_bytes()).is_err(), "{response}");
        }
        let right = format!(r#"{{"response": {{"uid": "{UID}", "allowed": false}}}}"#);
        assert_eq!(check(right.as_bytes()), Ok(()));
    }
}
