//! Whether a control plane may be scaled, and what is written for it.

use kcp_rules::api::DecodeError;
use serde_json::json;

use crate::{
    change::{
        consent::{Demand, consent},
        decision::{Decision, Proposal, Refusal, RefusedBy},
        event::Occurrence,
        situation::Situation,
    },
    judgement::{Surroundings, judge_scale},
};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Machines to have.
    pub replicas: i64,
    /// Machines that the spec must ask for now; none where any number will do.
    pub current: Option<i64>,
    /// Whether to go on though the preflight blocks it.
    pub force: bool,
}

/// Decides on a control plane and what surrounds it.
///
/// # Errors
/// When the control plane does not have its kind's types.
pub fn decide(
    situation: &Situation,
    wanted: Wanted,
    surroundings: Surroundings<'_>,
) -> Result<Decision, DecodeError> {
    let Wanted { replicas, force, .. } = wanted;
    let desired = situation.control_plane().desired_replicas;
    if let Some(current) = wanted.current.filter(|current| desired != Some(*current)) {
        return Ok(Decision::Refused(Refusal::new(
            RefusedBy::Command,
            vec![format!("replicas is {}, not {current}", number(desired))],
        )));
    }
    if desired == Some(replicas) {
        return Ok(Decision::Unchanged);
    }
    let patch = json!({ "spec": { "replicas": replicas } });
    let judgement = judge_scale(&situation.object, replicas, surroundings)?;
    let consent = consent(
        situation,
        Demand {
            patch: &patch,
            judgement: &judgement,
            field_manager: surroundings.field_manager,
            force,
            now: surroundings.now,
        },
    )?;
    let consequences = consent.consequences();
    if let Some(refusal) = consent.refusal {
        return Ok(Decision::Refused(refusal));
    }
    Ok(Decision::Write(Proposal {
        patch,
        // Without spec.replicas the API server has no scale to read and answers 500: then the object itself is patched.
        subresource: desired.map(|_| "scale"),
        warnings: consent.warnings,
        consequences,
        occurrence: Occurrence {
            reason: "Scaled",
            action: "Scale",
            done: "scaled",
            detail: format!("from {} to {replicas}", number(desired)),
        },
    }))
}

/// `3`, or what stands for a number that is not set.
pub fn number(replicas: Option<i64>) -> String {
    replicas.map_or_else(|| "an unset number".to_owned(), |replicas| replicas.to_string())
}

#[cfg(test)]
mod tests {
    use kcp_rules::view::View;
    use serde_json::json;

    use super::{Decision, Refusal, RefusedBy, Surroundings, Wanted, decide};
    use crate::{
        change::{
            example::{fail, situation},
            situation::Situation,
        },
        control_plane::example::{minutes_ago, now},
    };

    fn decision(situation: &Situation, wanted: Wanted) -> Decision {
        let surroundings = Surroundings {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &View::default(),
            configuration: None,
        };
        decide(situation, wanted, surroundings).expect("decodes")
    }

    fn to(replicas: i64) -> Wanted {
        Wanted {
            replicas,
            current: None,
            force: false,
        }
    }

    fn refusal(decision: Decision) -> Refusal {
        match decision {
            Decision::Refused(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    fn refused(by: RefusedBy, why: &str) -> Refusal {
        Refusal::new(by, vec![why.to_owned()])
    }

    #[test]
    fn decides_by_the_rules() {
        let three = situation();
        assert_eq!(decision(&three, to(3)), Decision::Unchanged);
        for replicas in [-1, 0, 2, 4] {
            let refusal = refusal(decision(
                &three,
                Wanted {
                    force: true,
                    ..to(replicas)
                },
            ));
            assert_eq!(refusal.by, RefusedBy::Rules, "{replicas}");
        }
    }

    #[test]
    fn writes_the_number_and_tells_of_it() {
        let Decision::Write(proposal) = decision(&situation(), to(5)) else {
            panic!("not written");
        };
        assert_eq!(proposal.patch, json!({"spec": {"replicas": 5}}));
        assert_eq!(proposal.subresource, Some("scale"));
        assert_eq!(proposal.warnings, Vec::<String>::new());
        assert_eq!(proposal.consequences, ["etcd cannot lose a member during step 1"]);
        assert_eq!(proposal.occurrence.note("alice"), "scaled by alice from 3 to 5");

        let mut unset = situation();
        unset.observed.control_plane.desired_replicas = None;
        let Decision::Write(proposal) = decision(&unset, to(5)) else {
            panic!("not written");
        };
        assert_eq!(proposal.subresource, None);
        assert_eq!(
            proposal.occurrence.note("alice"),
            "scaled by alice from an unset number to 5"
        );
    }

    #[test]
    fn goes_by_the_number_that_is_expected() {
        let wanted = |replicas, current| Wanted {
            current: Some(current),
            ..to(replicas)
        };
        assert!(matches!(decision(&situation(), wanted(5, 3)), Decision::Write(_)));
        assert_eq!(
            refusal(decision(&situation(), wanted(5, 1))),
            refused(RefusedBy::Command, "replicas is 3, not 1")
        );
        // It is as wanted, but not from where it was thought to be.
        assert_eq!(
            refusal(decision(&situation(), wanted(3, 1))),
            refused(RefusedBy::Command, "replicas is 3, not 1")
        );
    }

    #[test]
    fn a_machine_that_is_not_well_blocks_by_its_name() {
        let mut sick = situation();
        fail(&mut sick, 2, "EtcdPodHealthy", "crashed");
        let blocked = refused(
            RefusedBy::Preflight,
            "EtcdPodHealthy of Machine m2 is False: crashed",
        );
        for replicas in [1, 5] {
            assert_eq!(refusal(decision(&sick, to(replicas))), blocked, "{replicas}");
            let forced = decision(
                &sick,
                Wanted {
                    force: true,
                    ..to(replicas)
                },
            );
            assert!(
                matches!(&forced, Decision::Write(proposal) if proposal.warnings == blocked.why),
                "{forced:?}"
            );
        }
        // The oldest is who goes first: what is wrong with it does not count.
        let mut oldest = situation();
        fail(&mut oldest, 1, "EtcdPodHealthy", "crashed");
        assert!(matches!(decision(&oldest, to(1)), Decision::Write(_)));
        assert!(matches!(decision(&oldest, to(5)), Decision::Refused(_)));
    }

    #[test]
    fn what_stands_still_is_scaled_with_a_warning_and_what_goes_is_not() {
        let mut paused = situation();
        paused.observed.control_plane.paused = true;
        let decided = decision(&paused, to(5));
        assert!(
            matches!(&decided, Decision::Write(proposal)
                if proposal.warnings == ["the control plane is paused: no controller reconciles it"]),
            "{decided:?}"
        );
        let mut leaving = situation();
        leaving.observed.control_plane.deleting_since = Some(minutes_ago(1));
        assert_eq!(
            refusal(decision(&leaving, Wanted { force: true, ..to(5) })),
            refused(RefusedBy::Command, "the control plane is being deleted")
        );
    }
}
