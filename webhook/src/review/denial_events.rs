//! Records denials as Events on the object, so that `kubectl describe` and `kubectl get events` show them: the client that a
//! webhook denies is often a controller or a pipeline whose log users rarely read.
//! An Event is a side effect, so a dry run records none (Kubernetes, "Dynamic Admission Control", Side effects). There is one
//! exception: the topology controller tries each write of a control plane with a dry run first. A denial of this dry run would
//! otherwise leave no trace on the control plane. The exception applies only to the users that the configuration trusts as
//! Cluster API's controllers.

use std::{collections::HashMap, env, sync::Arc, time::Duration};

use jiff::Timestamp;
use kcp_rules::{TrustedUsers, context::TOPOLOGY_MANAGER};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use super::decode::{Operation, Request, Review};
use crate::{
    cluster::ClusterReader,
    configuration::CurrentConfiguration,
    decision::{Decision, Invalid, ReviewResult},
    limits::{MAX_NAME_CHARS, shorten},
    metrics::{EventResult, Metrics},
    tasks::Tasks,
};

/// The maximum number of denials that wait to be recorded. Further denials are dropped, because a review must not wait.
const MAX_WAITING: usize = 64;

/// The time during which the same denial is recorded only once. A controller repeats a denied write every few minutes.
const REPEAT_AFTER: Duration = Duration::from_secs(600);

/// The maximum number of denials that are remembered for [`REPEAT_AFTER`].
const MAX_REMEMBERED: usize = 1024;

/// The maximum length of a note in characters. The API server limits it to 1 KiB (k8s.io/api, `events/v1/types.go`).
const MAX_NOTE_CHARS: usize = 250;

/// Records denials in the background.
pub(crate) struct DenialEvents {
    waiting: mpsc::Sender<Denial>,
    configuration: Arc<CurrentConfiguration>,
    metrics: Arc<Metrics>,
}

/// A denial to record.
#[derive(Debug, PartialEq)]
struct Denial {
    key: Key,
    /// The Event without its time.
    event: Value,
}

/// Identifies a denial: two denials with the same key count as the same denial.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    namespace: String,
    kind: &'static str,
    name: String,
    operation: Operation,
    rules: Vec<&'static str>,
}

impl DenialEvents {
    pub(crate) fn start(
        cluster: ClusterReader,
        configuration: Arc<CurrentConfiguration>,
        metrics: Arc<Metrics>,
        tasks: &mut Tasks,
    ) -> Self {
        let (waiting, denials) = mpsc::channel(MAX_WAITING);
        tasks.spawn("denial events", record_all(cluster, denials, metrics.clone()));
        Self {
            waiting,
            configuration,
            metrics,
        }
    }

    /// Records a decision if it denies a write, and if the configuration enables this. Records the denial of a dry run only if
    /// the topology controller makes it. Never waits.
    pub(crate) fn record(&self, review: &Review<'_>, decision: &Decision) {
        let configuration = self.configuration.get();
        if configuration.denial_events
            && let ReviewResult::Invalid(invalid) = &decision.verdict
            && let Some(denial) = denial(review, invalid, &configuration.trusted_users)
            && self.waiting.try_send(denial).is_err()
        {
            self.metrics.count_denial_event(EventResult::Dropped);
        }
    }
}

/// Whether Cluster API's topology controller makes the write.
fn is_of_topology_controller(request: &Request<'_>, trusted: &TrustedUsers) -> bool {
    let options = request.options.as_ref();
    let manager = options.and_then(|options| options.field_manager.as_deref());
    let users = &trusted.cluster_api;
    manager == Some(TOPOLOGY_MANAGER) && users.iter().any(|user| user == request.user_info.name())
}

/// Returns the Event of a denial. `None` for a dry run of anybody but the topology controller, and for an object without a name,
/// to which an Event cannot refer. `generateName` ends in a hyphen, because the API server refuses one that ends in a dot
/// (apimachinery, `NameIsDNSSubdomain`).
fn denial(review: &Review<'_>, invalid: &Invalid, trusted: &TrustedUsers) -> Option<Denial> {
    let request = &review.request;
    let leaves_no_event = request.is_dry_run() && !is_of_topology_controller(request, trusted);
    if leaves_no_event || request.name.is_empty() {
        return None;
    }
    let causes = invalid.causes.iter();
    let causes: Vec<_> = causes
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    let user = shorten(request.user_info.name(), MAX_NAME_CHARS, "");
    let note = format!(
        "denied {} by {user}: {}",
        noun(request.operation),
        causes.join(", ")
    );
    let (namespace, name) = (&*request.namespace, &*request.name);
    let [_, stored] = review.identities();
    let uid = stored.and_then(|stored| stored.uid);
    let event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "generateName": format!("{name}-")},
        "regarding": {
            "apiVersion": format!("{}/{}", invalid.group, &*request.resource.version),
            "kind": invalid.kind,
            "namespace": namespace,
            "name": name,
            "uid": uid.as_deref(),
        },
        "type": "Warning",
        "reason": "Denied",
        "action": "Admission",
        "note": shorten(&note, MAX_NOTE_CHARS, ""),
        "reportingController": "kubectl-kcp.dev/kcp-webhook",
        // The name of the Pod.
        "reportingInstance": env::var("HOSTNAME").unwrap_or_else(|_| "kcp-webhook".to_owned()),
    });
    Some(Denial {
        key: Key {
            namespace: namespace.to_owned(),
            kind: invalid.kind,
            name: name.to_owned(),
            operation: request.operation,
            rules: invalid.causes.iter().map(|cause| cause.rule).collect(),
        },
        event,
    })
}

const fn noun(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "creation",
        Operation::Update => "update",
        Operation::Delete => "deletion",
        Operation::Connect => "connection",
    }
}

async fn record_all(cluster: ClusterReader, mut denials: mpsc::Receiver<Denial>, metrics: Arc<Metrics>) {
    let mut recorded = Recorded::default();
    while let Some(Denial { key, mut event }) = denials.recv().await {
        // The type is MicroTime, which has exactly six decimal places.
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        if let Some(fields) = event.as_object_mut() {
            fields.insert("eventTime".to_owned(), json!(now));
        }
        let namespace = key.namespace.clone();
        let created = cluster.create_event(&namespace, &event);
        let result = recorded.record(key, Instant::now(), created).await;
        metrics.count_denial_event(result.unwrap_or_else(|error| {
            tracing::warn!(namespace, %error, "cannot record a denial as an Event");
            EventResult::Failed
        }));
    }
}

/// When each denial was last recorded.
#[derive(Default)]
struct Recorded(HashMap<Key, Instant>);

impl Recorded {
    /// Creates the Event of a denial, unless the same denial was recorded a short time ago. Remembers the denial only if the Event
    /// was created. If too many are remembered, forgets the one that was recorded first.
    async fn record<E>(
        &mut self,
        key: Key,
        now: Instant,
        created: impl Future<Output = Result<(), E>>,
    ) -> Result<EventResult, E> {
        self.0
            .retain(|_, recorded| now.duration_since(*recorded) < REPEAT_AFTER);
        if self.0.contains_key(&key) {
            return Ok(EventResult::Repeated);
        }
        created.await?;
        if self.0.len() >= MAX_REMEMBERED
            && let Some(first) = self.0.values().min().copied()
        {
            self.0.retain(|_, recorded| *recorded != first);
        }
        self.0.insert(key, now);
        Ok(EventResult::Recorded)
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::{decision::Cause, testing::decoded};

    fn invalid() -> Invalid {
        Invalid {
            group: "controlplane.cluster.x-k8s.io",
            kind: "KubeadmControlPlane",
            name: "edge".to_owned(),
            causes: vec![Cause {
                rule: "replicas-even",
                reason: "FieldValueInvalid",
                field: "spec.replicas".into(),
                message: "Invalid value: 4: set 3 or 5 (replicas-even)".to_owned(),
                overridden: None,
            }],
        }
    }

    fn review(more: &str) -> String {
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"7","namespace":"default",
            "resource":{{"group":"controlplane.cluster.x-k8s.io","version":"v1beta2","resource":"kubeadmcontrolplanes"}},
            "operation":"UPDATE","userInfo":{{"username":"alice"}}{more}}}}}"#
        )
    }

    #[test]
    fn an_event_names_the_object_the_user_and_the_causes() {
        let text = review(r#","name":"edge","oldObject":{"metadata":{"uid":"u-1"}}"#);
        let Denial { key, event } = denial(&decoded(&text), &invalid(), &TrustedUsers::default()).unwrap();
        assert_eq!(key.rules, ["replicas-even"]);
        assert_eq!(
            event["note"],
            "denied update by alice: spec.replicas: Invalid value: 4: set 3 or 5 (replicas-even)"
        );
        let regarding = json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
            "namespace": "default", "name": "edge", "uid": "u-1",
        });
        assert_eq!(event["regarding"], regarding);
        assert_eq!(
            event["metadata"],
            json!({"namespace": "default", "generateName": "edge-"})
        );
    }

    #[test]
    fn a_dry_run_and_a_generated_name_have_no_event() {
        for more in [r#","name":"edge","dryRun":true"#, "", r#","name":"""#] {
            let text = review(more);
            let found = denial(&decoded(&text), &invalid(), &TrustedUsers::default());
            assert_eq!(found, None, "{more}");
        }
    }

    #[test]
    fn a_dry_run_of_the_topology_controller_has_an_event() {
        let dry_run = |manager: &str| {
            format!(r#","name":"edge","dryRun":true,"options":{{"fieldManager":"{manager}"}}"#)
        };
        for (user, manager, has_event) in [
            (kcp_rules::trusted_users::CLUSTER_API, "capi-topology", true),
            (kcp_rules::trusted_users::CLUSTER_API, "kubectl", false),
            ("alice", "capi-topology", false),
        ] {
            let text = review(&dry_run(manager)).replace("alice", user);
            let found = denial(&decoded(&text), &invalid(), &TrustedUsers::default());
            assert_eq!(found.is_some(), has_event, "{user} as {manager}");
        }
    }

    #[tokio::test]
    async fn a_repeated_denial_is_recorded_again_after_ten_minutes() {
        let key = |name: &str| Key {
            namespace: "default".to_owned(),
            kind: "KubeadmControlPlane",
            name: name.to_owned(),
            operation: Operation::Update,
            rules: vec!["replicas-even"],
        };
        let (mut recorded, now) = (Recorded::default(), Instant::now());
        let created = || ready(Ok::<_, &str>(()));
        for (after, response, expected) in [
            // A denial whose Event could not be created is not remembered.
            (Duration::ZERO, Err("forbidden"), Err("forbidden")),
            (Duration::ZERO, Ok(()), Ok(EventResult::Recorded)),
            (REPEAT_AFTER / 2, Ok(()), Ok(EventResult::Repeated)),
            (REPEAT_AFTER, Ok(()), Ok(EventResult::Recorded)),
        ] {
            let result = recorded.record(key("edge"), now + after, ready(response)).await;
            assert_eq!(result, expected, "{after:?}");
        }
        // The first of too many is forgotten.
        let later = now + REPEAT_AFTER + REPEAT_AFTER / 2;
        for number in 0..MAX_REMEMBERED {
            let key = key(&number.to_string());
            let result = recorded.record(key, later, created()).await;
            assert_eq!(result, Ok(EventResult::Recorded), "{number}");
        }
        assert_eq!(recorded.0.len(), MAX_REMEMBERED);
        for (name, expected) in [("0", EventResult::Repeated), ("edge", EventResult::Recorded)] {
            assert_eq!(
                recorded.record(key(name), later, created()).await,
                Ok(expected),
                "{name}"
            );
        }
    }
}
