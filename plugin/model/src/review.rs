//! Reviews a change with the admission rules before it is written, and formats the server's rejection.

use jiff::Timestamp;
use kcp_rules::{
    Action, Change, Configuration, Context,
    api::{DecodeError, KubeadmControlPlane, decode},
    context::OfTopology,
    judge,
    view::View,
};
use kube::core::Status;
use serde_json::{Value, json};

use crate::{
    merge_patch,
    ownership::{Ownership, ownership},
};

#[derive(Clone, Copy, Debug)]
pub struct ReviewContext<'s> {
    pub now: Timestamp,
    pub field_manager: &'s str,
    /// The other objects that rules read. Objects that were not fetched are unknown.
    pub view: &'s View,
    /// The webhook's configuration, which sets the action of each rule. `None` for the default actions.
    pub configuration: Option<&'s Configuration>,
}

impl ReviewContext<'_> {
    /// Whether the Cluster is known to be paused.
    pub fn is_cluster_paused(&self) -> bool {
        matches!(self.view.cluster.as_ref(), Some(Some(cluster)) if cluster.paused)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    /// The findings that deny the change, as `field: message`.
    pub denials: Vec<String>,
    /// The other findings, and the overrides that have no effect, as `field: message`.
    pub warnings: Vec<String>,
}

impl Review {
    fn new(
        change: Change<'_, KubeadmControlPlane<'_>>,
        topology: Option<OfTopology>,
        context: ReviewContext<'_>,
    ) -> Self {
        let ReviewContext {
            now,
            field_manager,
            view,
            configuration,
        } = context;
        let default = Configuration::default();
        let change = change.with_context(Context {
            now: Some(now),
            field_manager: Some(field_manager),
            view: Some(view),
            topology,
            ..Context::UNKNOWN
        });
        let result = judge(&change, configuration.unwrap_or(&default));
        let mut review = Self::default();
        for finding in &result.findings {
            let is_known = !result.unread.iter().any(|rule| rule.id == finding.rule.id);
            let line = format!("{}: {}", finding.fault.field, finding.message());
            match finding.action {
                Action::Deny if is_known => review.denials.push(line),
                Action::Warn => review.warnings.push(line),
                // The rule needs objects that were not read. The webhook can read them, and decides.
                Action::Deny | Action::Audit | Action::Off => {}
            }
        }
        review.warnings.extend(result.ignored_overrides);
        review
    }
}

/// Reviews a write of `replicas` to the scale subresource, or to the topology of the Cluster if the topology sets the replicas.
/// `object` is the control plane's JSON.
pub fn review_scale(object: &str, replicas: i64, context: ReviewContext<'_>) -> Result<Review, DecodeError> {
    let patch = json!({"spec": {"replicas": replicas}});
    if topology_of(object, &patch, context)?.is_some() {
        return review_patch(object, &patch, context);
    }
    let old: KubeadmControlPlane<'_> = decode(object)?;
    let new = old.scaled_to(replicas);
    Ok(Review::new(Change::scale(&old, &new), None, context))
}

/// Reviews a merge patch of a control plane, or of the topology of the Cluster if the topology sets the fields. `object` is the
/// control plane's JSON.
pub fn review_patch(object: &str, patch: &Value, context: ReviewContext<'_>) -> Result<Review, DecodeError> {
    let topology = topology_of(object, patch, context)?;
    let patched = merge_patch::apply_to_json(object, patch)?;
    let (old, new): (KubeadmControlPlane<'_>, KubeadmControlPlane<'_>) = (decode(object)?, decode(&patched)?);
    Ok(Review::new(Change::update(&old, &new), topology, context))
}

/// How the rules review a patch that is written to the topology of the Cluster. `None` for all other patches.
fn topology_of(
    object: &str,
    patch: &Value,
    context: ReviewContext<'_>,
) -> Result<Option<OfTopology>, DecodeError> {
    let ownership = ownership(object, patch, context.field_manager)?;
    let is_written_to_topology = matches!(
        ownership,
        Ownership::FromCluster(patch) if patch.pointer("/spec/topology").is_some()
    );
    Ok(is_written_to_topology.then_some(OfTopology {
        knows_configuration: true,
        is_copy: false,
        // The topology already owns the field, so the API version has it.
        written_shape: None,
        // Only the webhook reports that an annotation of the Cluster that overrides rules has no effect.
        has_override: false,
    }))
}

/// Formats the server's rejection as lines: its message, and the causes that the message does not contain.
pub fn server_rejection(status: &Status) -> Vec<String> {
    let mut lines: Vec<String> = status.message.lines().map(str::to_owned).collect();
    let causes = status.details.iter().flat_map(|details| &details.causes);
    lines.extend(
        causes
            .filter(|cause| !cause.message.is_empty() && !status.message.contains(&cause.message))
            .map(|cause| format!("{}: {}", cause.field, cause.message)),
    );
    if lines.is_empty() {
        lines.push(format!("{} {}", status.code, status.reason));
    }
    lines
}

#[cfg(test)]
mod tests {
    use kcp_rules::{
        Action, Configuration,
        testing::case::{Base, V1BETA1, V1BETA2},
        view::{Cluster, View},
    };
    use kube::core::Status;
    use serde_json::{Value, json};

    use super::server_rejection;
    use super::{Review, ReviewContext, review_patch, review_scale};
    use crate::testing::objects::now;

    fn context(view: &View) -> ReviewContext<'_> {
        ReviewContext {
            now: now(),
            field_manager: "kubectl-kcp",
            view,
            configuration: None,
        }
    }

    fn scale(object: &Value, replicas: i64, context: ReviewContext<'_>) -> Review {
        review_scale(&object.to_string(), replicas, context).expect("decodes")
    }

    /// The ids of rules, at the end of each line.
    fn rules(lines: &[String]) -> Vec<&str> {
        lines
            .iter()
            .map(|line| line.rsplit_once('(').expect("an id").1.trim_end_matches(')'))
            .collect()
    }

    #[test]
    fn the_rules_of_the_webhook_review_a_scale() {
        for version in [V1BETA1, V1BETA2] {
            let object = Base::ControlPlane(version).object();
            let view = View::default();
            let even = scale(&object, 4, context(&view));
            assert_eq!(rules(&even.denials), ["replicas-even"]);
            assert_eq!(scale(&object, 5, context(&view)), Review::default());
            let object = object.to_string();
            assert_eq!(
                review_patch(&object, &json!({}), context(&view)),
                Ok(Review::default())
            );
        }
    }

    #[test]
    fn the_configuration_says_what_follows() {
        let object = Base::ControlPlane(V1BETA2).object();
        let view = View::default();
        for (action, denials, warnings) in [
            (Action::Deny, &["replicas-even"][..], &[][..]),
            (Action::Warn, &[], &["replicas-even"]),
            (Action::Audit, &[], &[]),
            (Action::Off, &[], &[]),
        ] {
            let configuration = Configuration {
                rules: [("replicas-even".to_owned(), action)].into(),
                ..Configuration::default()
            };
            let context = ReviewContext {
                configuration: Some(&configuration),
                ..context(&view)
            };
            let review = scale(&object, 4, context);
            assert_eq!(rules(&review.denials), denials, "{action:?}");
            assert_eq!(rules(&review.warnings), warnings, "{action:?}");
        }
    }

    fn rolling_out() -> Value {
        let mut object = Base::ControlPlane(V1BETA2).object();
        object["metadata"]["generation"] = json!(2);
        object["status"] = json!({"observedGeneration": 2, "version": "v1.20.0"});
        object
    }

    #[test]
    fn an_override_counts_until_its_time() {
        let no_cluster = View {
            cluster: Some(None),
            machines: Vec::new().into(),
            ..View::default()
        };
        let judge = |until: &str| {
            let mut object = rolling_out();
            object["metadata"]["annotations"]["kubectl-kcp.dev/override-rules"] =
                json!(format!("replicas-during-rollout={until}"));
            scale(&object, 5, context(&no_cluster))
        };
        let overridden = judge("2026-08-21T12:30:00Z");
        assert_eq!(overridden.denials, Vec::<String>::new());
        assert_eq!(rules(&overridden.warnings), ["replicas-during-rollout"]);

        let ended = judge("2026-08-21T11:30:00Z");
        assert_eq!(rules(&ended.denials), ["replicas-during-rollout"]);
        assert_eq!(
            ended.warnings,
            ["the override of replicas-during-rollout expired at 2026-08-21T11:30:00Z"]
        );
    }

    #[test]
    fn what_other_objects_may_excuse_is_denied_once_they_are_read() {
        let cluster = |paused| View {
            cluster: Some(Cluster {
                paused,
                ..Cluster::default()
            })
            .into(),
            machines: Vec::new().into(),
            ..View::default()
        };
        let no_cluster = View {
            cluster: Some(None),
            machines: Vec::new().into(),
            ..View::default()
        };
        for (name, view, denials, warnings) in [
            ("not_read", View::default(), &[][..], &[][..]),
            ("absent", no_cluster, &["replicas-during-rollout"], &[]),
            ("runs", cluster(false), &["replicas-during-rollout"], &[]),
            ("paused", cluster(true), &[], &["replicas-during-rollout"]),
        ] {
            let review = scale(&rolling_out(), 5, context(&view));
            assert_eq!(rules(&review.denials), denials, "{name}");
            assert_eq!(rules(&review.warnings), warnings, "{name}");
        }
    }

    #[test]
    fn rules_that_know_the_writer_are_told_who_writes() {
        let old = Base::ControlPlane(V1BETA2).object();
        let patch = json!({"spec": {"rollout": {"after": "2026-08-21T11:49:59Z"}}});
        let view = View::default();
        for (field_manager, warnings) in [("kubectl-kcp", &[][..]), ("argocd", &["rollout-after-past"])] {
            let context = ReviewContext {
                field_manager,
                ..context(&view)
            };
            let review = review_patch(&old.to_string(), &patch, context).expect("decodes");
            assert_eq!(rules(&review.warnings), warnings, "{field_manager}");
        }
    }

    #[test]
    fn a_patch_of_the_topology_is_reviewed_as_such() {
        let mut owned = Base::ControlPlane(V1BETA2).object();
        owned["metadata"]["labels"] = json!({"topology.cluster.x-k8s.io/owned": ""});
        owned["metadata"]["managedFields"] = json!([{"manager": "capi-topology", "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:version": {}, "f:replicas": {}}}}]);
        let view = View::default();
        let review = |owned: &Value, version: &str| {
            let patch = json!({"spec": {"version": version}});
            review_patch(&owned.to_string(), &patch, context(&view)).expect("decodes")
        };
        assert_eq!(rules(&review(&owned, "v1.35.0").denials), [""; 0]);
        let lower = review(&owned, "v1.34.2-rc.0");
        assert!(
            lower.denials[0].starts_with("spec.topology.version: "),
            "{lower:?}"
        );
        let even = scale(&owned, 4, context(&view));
        assert!(
            even.denials[0].starts_with("spec.topology.controlPlane.replicas: "),
            "{even:?}"
        );
        // After `kubectl edit`, another client owns the version.
        owned["metadata"]["managedFields"] = json!([]);
        assert_eq!(rules(&review(&owned, "v1.35.0").denials), [""; 0]);
    }

    #[test]
    fn a_refusal_is_shown_once_and_whole() {
        let status: Status = serde_json::from_value(json!({
            "code": 422, "message": "admission webhook denied the request: spec.a: wrong\nmore",
            "details": {"causes": [
                {"field": "spec.a", "message": "wrong", "reason": "FieldValueInvalid"},
                {"field": "spec.b", "message": "also wrong", "reason": "FieldValueInvalid"}
            ]}
        }))
        .expect("a status");
        assert_eq!(
            server_rejection(&status),
            [
                "admission webhook denied the request: spec.a: wrong",
                "more",
                "spec.b: also wrong"
            ]
        );
        assert_eq!(
            server_rejection(&Status::failure("", "Invalid").with_code(422)),
            ["422 Invalid"]
        );
    }
}
