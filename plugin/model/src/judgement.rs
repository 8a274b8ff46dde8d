//! The admission rules, put to a change before it is written, and the server's own refusals; both as lines to print.

use jiff::Timestamp;
use kcp_rules::{
    Action, Change, Configuration, Context, Finding, Scope,
    api::{DecodeError, KubeadmControlPlane, decode},
    judge,
    view::View,
};
use kube::core::Status;

/// What surrounds a write of our own.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'s> {
    /// When it is made.
    pub now: Timestamp,
    /// The name that it is made under.
    pub field_manager: &'s str,
    /// The other objects, as far as they have been read.
    pub view: &'s View,
    /// What follows from each rule; none for what the rules themselves say.
    pub configuration: Option<&'s Configuration>,
}

impl Surroundings<'_> {
    /// Whether the Cluster is known to be paused.
    pub fn cluster_is_paused(&self) -> bool {
        matches!(self.view.cluster.get(), Some(Some(cluster)) if cluster.paused)
    }
}

/// What the rules say of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// `field: message` of each finding that refuses it.
    pub denials: Vec<String>,
    /// `field: message` of each finding that does not, and why an override does not override.
    pub warnings: Vec<String>,
}

impl Judgement {
    fn of(change: Change<'_, KubeadmControlPlane<'_>>, surroundings: Surroundings<'_>) -> Self {
        let Surroundings {
            now,
            field_manager,
            view,
            configuration,
        } = surroundings;
        let default = Configuration::default();
        let change = change.within(Context {
            now: Some(now),
            field_manager: Some(field_manager),
            view: Some(view),
            ..Context::UNKNOWN
        });
        let judged = judge(&change, configuration.unwrap_or(&default));
        let sees_all = !view.missing().any();
        let mut judgement = Self::default();
        for finding in &judged.findings {
            let line = format!("{}: {}", finding.fault.field, finding.message());
            match finding.action {
                Action::Deny if sees_all || !looks_around(finding) => judgement.denials.push(line),
                Action::Warn => judgement.warnings.push(line),
                // The server has the objects that are missing here: it denies where they are against it.
                Action::Deny | Action::Audit | Action::Off => {}
            }
        }
        judgement.warnings.extend(judged.ignored_overrides);
        judgement
    }
}

fn looks_around(finding: &Finding) -> bool {
    finding.rule.scope == Scope::Cluster
}

/// Judges a write of a number of replicas to the scale subresource of a control plane, given as JSON.
///
/// # Errors
/// When the control plane does not have its kind's types.
pub fn judge_scale(
    old: &str,
    replicas: i64,
    surroundings: Surroundings<'_>,
) -> Result<Judgement, DecodeError> {
    let old: KubeadmControlPlane<'_> = decode(old)?;
    let new = old.scaled_to(replicas);
    Ok(Judgement::of(Change::scale(&old, &new), surroundings))
}

/// Judges a change of a control plane, given as JSON.
///
/// # Errors
/// When one of the two does not have its kind's types.
pub fn judge_update(old: &str, new: &str, surroundings: Surroundings<'_>) -> Result<Judgement, DecodeError> {
    let (old, new): (KubeadmControlPlane<'_>, KubeadmControlPlane<'_>) = (decode(old)?, decode(new)?);
    Ok(Judgement::of(Change::update(&old, &new), surroundings))
}

/// A server's refusal, whole: its message, and those causes that the message does not hold already.
pub fn rejection(status: &Status) -> Vec<String> {
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
        case::{Base, V1BETA1, V1BETA2},
        view::{Cluster, View},
    };
    use kube::core::Status;
    use serde_json::{Value, json};

    use super::rejection;
    use super::{Judgement, Surroundings, judge_scale, judge_update};
    use crate::control_plane::example::now;

    fn surroundings(view: &View) -> Surroundings<'_> {
        Surroundings {
            now: now(),
            field_manager: "kubectl-kcp",
            view,
            configuration: None,
        }
    }

    fn scale(object: &Value, replicas: i64, surroundings: Surroundings<'_>) -> Judgement {
        judge_scale(&object.to_string(), replicas, surroundings).expect("decodes")
    }

    /// The ids of rules, at the end of each line.
    fn rules(lines: &[String]) -> Vec<&str> {
        lines
            .iter()
            .map(|line| line.rsplit_once('(').expect("an id").1.trim_end_matches(')'))
            .collect()
    }

    #[test]
    fn the_rules_of_the_webhook_judge_a_scale() {
        for version in [V1BETA1, V1BETA2] {
            let object = Base::ControlPlane(version).object();
            let view = View::default();
            let even = scale(&object, 4, surroundings(&view));
            assert_eq!(rules(&even.denials), ["replicas-even"]);
            assert_eq!(scale(&object, 5, surroundings(&view)), Judgement::default());
            let object = object.to_string();
            assert_eq!(
                judge_update(&object, &object, surroundings(&view)),
                Ok(Judgement::default())
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
            let surroundings = Surroundings {
                configuration: Some(&configuration),
                ..surroundings(&view)
            };
            let judgement = scale(&object, 4, surroundings);
            assert_eq!(rules(&judgement.denials), denials, "{action:?}");
            assert_eq!(rules(&judgement.warnings), warnings, "{action:?}");
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
            cluster: None.into(),
            ..View::default()
        };
        let judge = |until: &str| {
            let mut object = rolling_out();
            object["metadata"]["annotations"]["kubectl-kcp.dev/override-rules"] =
                json!(format!("replicas-during-rollout={until}"));
            scale(&object, 5, surroundings(&no_cluster))
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
            ..View::default()
        };
        let no_cluster = View {
            cluster: None.into(),
            ..View::default()
        };
        for (name, view, denials, warnings) in [
            ("not_read", View::default(), &[][..], &[][..]),
            ("absent", no_cluster, &["replicas-during-rollout"], &[]),
            ("runs", cluster(false), &["replicas-during-rollout"], &[]),
            ("paused", cluster(true), &[], &["replicas-during-rollout"]),
        ] {
            let judgement = scale(&rolling_out(), 5, surroundings(&view));
            assert_eq!(rules(&judgement.denials), denials, "{name}");
            assert_eq!(rules(&judgement.warnings), warnings, "{name}");
        }
    }

    #[test]
    fn rules_that_know_the_writer_are_told_who_writes() {
        let old = Base::ControlPlane(V1BETA2).object();
        let mut new = old.clone();
        new["spec"]["rollout"]["after"] = json!("2026-08-21T11:59:59Z");
        let view = View::default();
        for (field_manager, warnings) in [("kubectl-kcp", &[][..]), ("argocd", &["rollout-after-past"])] {
            let surroundings = Surroundings {
                field_manager,
                ..surroundings(&view)
            };
            let judgement = judge_update(&old.to_string(), &new.to_string(), surroundings).expect("decodes");
            assert_eq!(rules(&judgement.warnings), warnings, "{field_manager}");
        }
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
            rejection(&status),
            [
                "admission webhook denied the request: spec.a: wrong",
                "more",
                "spec.b: also wrong"
            ]
        );
        assert_eq!(
            rejection(&Status::failure("", "Invalid").with_code(422)),
            ["422 Invalid"]
        );
    }
}
