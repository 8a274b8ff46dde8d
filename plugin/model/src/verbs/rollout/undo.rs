//! The decision of `rollout undo`, which writes back the spec from which a Machine was created.
//!
//! Cluster API keeps no earlier spec. But a Machine that a rollout has not replaced yet still has its version, its
//! `KubeadmConfig` and the name of its infrastructure template. Only what can replace a Machine is written back.

use jiff::Timestamp;
use kcp_api::{
    KubeadmConfigSpec, Machine, Object as _, Reference,
    machine::{Bootstrap, Infrastructure},
};
use kcp_rules::api::{DecodeError, control_plane::Shape};
use serde_json::{Map, Value, json};

use crate::{
    change::{
        confirmation::Question,
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
        preflight::{Preflight, preflight, refusal_while_paused},
    },
    checks::rollout::{NoEarlierSpec, newest_earlier},
    merge_patch,
    plan::{
        kubeadm_config::{is_first, reversal},
        messages::join_names,
        rollout_reason::{Gap, MachineDifference, Reason, differs_from_spec, verdicts},
    },
    review::ReviewContext,
    snapshot::change::{ChangeSnapshot, Part},
};

/// The earlier spec of a control plane, as far as a Machine shows it.
#[derive(Clone, PartialEq)]
struct EarlierSpec<'s> {
    /// The newest Machine with the earlier spec.
    machine: &'s Machine,
    /// The merge patch of the control plane.
    patch: Value,
    /// The fields whose earlier values the Machine does not show: one line for each.
    unknown: Vec<String>,
}

/// Decides whether the earlier spec may be written back. `api_version` is the API version of the control plane's JSON.
pub fn decide(
    snapshot: &ChangeSnapshot,
    force: bool,
    api_version: &str,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    let earlier = match EarlierSpec::find(snapshot, api_version, context.now) {
        Ok(earlier) => earlier,
        Err(refusal) => return Ok(Decision::Refused(refusal)),
    };
    let preflight = preflight(snapshot, &earlier.patch, force, context)?;
    let refusal = preflight
        .refusal
        .clone()
        .or_else(|| earlier.refuse_unless_restored(&preflight))
        .or_else(|| refusal_while_paused(&snapshot.observed, force));
    if let Some(refusal) = refusal {
        return Ok(Decision::Refused(refusal));
    }
    let before = verdicts(&snapshot.observed, &snapshot.control_plane().spec, context.now);
    let detail = format!("to the spec of Machine {}", earlier.machine.name());
    Ok(Decision::Write(Proposal {
        outcome: format!("rolled back {detail}"),
        consequences: [
            earlier.unknown,
            effects(&before, &preflight.plan.verdicts),
            preflight.consequences(),
        ]
        .concat(),
        write: ObjectWrite::patch(earlier.patch),
        warnings: preflight.warnings,
        event: ChangeEvent {
            reason: "RolloutUndone",
            action: "UndoRollout",
            note_verb: "rollout undone",
            detail,
        },
    }))
}

/// What the user confirms. `None` if there is no earlier spec.
pub fn question(snapshot: &ChangeSnapshot, api_version: &str, now: Timestamp) -> Option<Question> {
    let EarlierSpec { machine, patch, .. } = EarlierSpec::find(snapshot, api_version, now).ok()?;
    let fields = merge_patch::fields(&patch);
    Some(Question {
        goal: format!(
            "roll back control plane {} to the spec of Machine {}",
            snapshot.control_plane().name(),
            machine.name()
        ),
        details: fields
            .iter()
            .map(|path| merge_patch::display_path(path))
            .collect(),
    })
}

/// What happens to the Machines: one line for each kind of effect.
fn effects(before: &[MachineDifference], after: &[MachineDifference]) -> Vec<String> {
    let was_outdated = |name: &str| {
        let mut before = before.iter();
        before.any(|verdict| verdict.machine == name && verdict.is_outdated())
    };
    let names = |outdated: bool| -> Vec<String> {
        let same = after.iter().filter(|verdict| {
            was_outdated(&verdict.machine) != outdated && verdict.is_outdated() == outdated
        });
        same.map(|verdict| verdict.machine.clone()).collect()
    };
    let both = [("up to date again", names(false)), ("replaced", names(true))];
    let both = both.into_iter().filter(|(_, names)| !names.is_empty());
    let both = both.map(|(what, names)| format!("{what}: {}", join_names(&names, "and")));
    let rest = after
        .iter()
        .filter(|verdict| verdict.is_outdated() && was_outdated(&verdict.machine));
    let rest = rest.map(|verdict| {
        let reasons: Vec<String> = verdict.reasons.iter().map(Reason::message).collect();
        format!("still outdated: {} ({})", verdict.machine, reasons.join("; "))
    });
    both.chain(rest).collect()
}

impl<'s> EarlierSpec<'s> {
    fn find(snapshot: &'s ChangeSnapshot, api_version: &str, now: Timestamp) -> Result<Self, Refusal> {
        let control_plane = snapshot.control_plane();
        if let Some(refusal) = topology_refusal(snapshot).or_else(|| unread_refusal(snapshot)) {
            return Err(refusal);
        }
        let verdicts = verdicts(&snapshot.observed, &control_plane.spec, now);
        let machine = newest_earlier(&snapshot.observed, &verdicts)
            .map_err(|why| no_earlier_spec(snapshot, &verdicts, why))?;
        let spec = &control_plane.spec;
        let version = machine.spec.version.as_deref().unwrap_or_default();
        let reversal = reversal(
            config_of(machine, &verdicts)?,
            config_of_first(snapshot, machine, &verdicts),
            &spec.kubeadm_config_spec,
            version,
        );
        let reversal = reversal.ok_or_else(|| unknown_config(machine, &Gap::ConfigVersion))?;
        let mut fields = Map::new();
        if version != spec.version() {
            fields.insert("version".to_owned(), json!(version));
        }
        if reversal.patch != json!({}) {
            fields.insert("kubeadmConfigSpec".to_owned(), reversal.patch);
        }
        let name = machine.name();
        let mut unknown: Vec<String> = reversal.unknown.map_or_else(Vec::new, |field| {
            vec![format!(
                "spec.kubeadmConfigSpec.{field} stays as it is, because Machine {name} does not have it"
            )]
        });
        match &machine.infrastructure {
            Infrastructure::ClonedFrom(template) if *template != spec.infrastructure_ref => {
                let template = template_patch(api_version, &spec.infrastructure_ref, template);
                fields.insert("machineTemplate".to_owned(), template);
            }
            Infrastructure::ClonedFrom(_) => {}
            Infrastructure::Missing => unknown.push(unknown_template(machine, &Gap::InfrastructureMissing)),
            Infrastructure::Unannotated => unknown.push(unknown_template(machine, &Gap::TemplateUnknown)),
        }
        Ok(Self {
            machine,
            patch: json!({ "spec": fields }),
            unknown,
        })
    }

    /// Refuses if the patched spec still differs from the spec of the Machine.
    fn refuse_unless_restored(&self, preflight: &Preflight) -> Option<Refusal> {
        let mut verdicts = preflight.plan.verdicts.iter();
        let rest =
            verdicts.find(|verdict| verdict.machine == self.machine.name() && verdict.differs_from_spec())?;
        let reasons: Vec<String> = rest.reasons.iter().map(Reason::message).collect();
        Some(Refusal::new(
            RefusedBy::Command,
            vec![format!(
                "the spec of Machine {} cannot be restored: {}",
                rest.machine,
                reasons.join("; ")
            )],
        ))
    }
}

fn topology_refusal(snapshot: &ChangeSnapshot) -> Option<Refusal> {
    let cluster = snapshot.control_plane().cluster().unwrap_or_default();
    snapshot.observed.has_managed_topology().then(|| Refusal {
        remedies: vec![format!(
            "revert the change of spec.topology of Cluster {cluster}, of its ClusterClass or of the templates of the ClusterClass"
        )],
        ..Refusal::new(
            RefusedBy::Command,
            vec![format!(
                "Cluster API sets the spec of the control plane from the managed topology of Cluster {cluster}"
            )],
        )
    })
}

/// Refuses if it is unknown from which specs the Machines were created.
fn unread_refusal(snapshot: &ChangeSnapshot) -> Option<Refusal> {
    let unread = snapshot
        .unread
        .iter()
        .filter(|unread| matches!(unread.part, Part::Bootstrap | Part::Infrastructure));
    let why: Vec<String> = unread
        .map(|unread| format!("could not read {}: {}", unread.kind, unread.why))
        .collect();
    (!why.is_empty()).then(|| Refusal::new(RefusedBy::Command, why))
}

fn no_earlier_spec(snapshot: &ChangeSnapshot, verdicts: &[MachineDifference], why: NoEarlierSpec) -> Refusal {
    let why = match why {
        NoEarlierSpec::SameSpec => return nothing_to_undo(snapshot, verdicts),
        NoEarlierSpec::OnlyNewer => "nothing to undo: the Machines with another spec are newer",
        NoEarlierSpec::NoneWorks => "no Machine with an earlier spec has a node and healthy components",
    };
    Refusal::new(RefusedBy::Command, vec![why.to_owned()])
}

fn nothing_to_undo(snapshot: &ChangeSnapshot, verdicts: &[MachineDifference]) -> Refusal {
    let control_plane = snapshot.control_plane();
    let mut refusal = Refusal::new(
        RefusedBy::Command,
        vec!["nothing to undo: no Machine was created from another spec".to_owned()],
    );
    let mut reasons = verdicts.iter().flat_map(|verdict| &verdict.reasons);
    if reasons.any(|reason| matches!(reason, Reason::RolloutAfter { .. })) {
        refusal.remedies.push(format!(
            "cancel the rollout: kubectl kcp rollout cancel {} -n {} --running",
            control_plane.name(),
            control_plane.namespace()
        ));
    }
    refusal
}

fn config_of<'m>(
    machine: &'m Machine,
    verdicts: &[MachineDifference],
) -> Result<&'m KubeadmConfigSpec, Refusal> {
    if let Bootstrap::Config(config) = &machine.bootstrap {
        return Ok(config);
    }
    let verdict = verdicts.iter().find(|verdict| verdict.machine == machine.name());
    let mut gaps = verdict.into_iter().flat_map(|verdict| &verdict.gaps);
    let gap = gaps.find(|gap| matches!(gap, Gap::ConfigUnreferenced | Gap::ConfigMissing));
    Err(unknown_config(machine, gap.unwrap_or(&Gap::ConfigMissing)))
}

/// The configuration of the Machine that initialized the cluster, if the change has made it outdated, too.
fn config_of_first<'s>(
    snapshot: &'s ChangeSnapshot,
    machine: &Machine,
    verdicts: &[MachineDifference],
) -> Option<&'s KubeadmConfigSpec> {
    let machines = snapshot.observed.machines.iter();
    let mut same = machines
        .filter(|other| other.spec.version == machine.spec.version && differs_from_spec(verdicts, other));
    same.find_map(|other| match &other.bootstrap {
        Bootstrap::Config(config) => Some(config).filter(|config| is_first(&config.fields)),
        Bootstrap::Unreferenced | Bootstrap::Missing => None,
    })
}

fn unknown_config(machine: &Machine, gap: &Gap) -> Refusal {
    let name = machine.name();
    Refusal::new(
        RefusedBy::Command,
        vec![format!(
            "the earlier spec is unknown: Machine {name}: {}",
            gap.message()
        )],
    )
}

fn unknown_template(machine: &Machine, gap: &Gap) -> String {
    let name = machine.name();
    format!(
        "the infrastructure template stays as it is: Machine {name}: {}",
        gap.message()
    )
}

/// The merge patch of `spec.machineTemplate` that changes the infrastructure template. In v1beta1, the
/// reference has an `apiVersion`, which stays, because the annotation on a Machine's objects names the group but no version.
fn template_patch(api_version: &str, current: &Reference, earlier: &Reference) -> Value {
    let fields = |template: &Reference| match Shape::from_api_version(api_version) {
        Shape::V1Beta1 => json!({"kind": template.kind, "name": template.name}),
        Shape::V1Beta2 => json!({"apiGroup": template.group, "kind": template.kind, "name": template.name}),
    };
    let reference = json!({"infrastructureRef": merge_patch::between(&fields(current), &fields(earlier))});
    match Shape::from_api_version(api_version) {
        Shape::V1Beta1 => reference,
        Shape::V1Beta2 => json!({ "spec": reference }),
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::{
        KubeadmControlPlane, decode,
        machine::{Bootstrap, Infrastructure},
        metadata::Time,
    };
    use kcp_rules::testing::case::{Base, V1BETA1};
    use serde_json::{Value, json};

    use super::{decide, question, template_patch};
    use crate::{
        change::decision::{Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
        merge_patch::apply_to_json,
        review::ReviewContext,
        snapshot::change::{ChangeSnapshot, Part, UnreadPart},
        testing::{
            change::{fail, snapshot},
            objects::{minutes_ago, new_machine, now, pause},
            plan::{config, machine, template},
        },
    };

    /// The bootstrap configuration of a Machine that joins with this `kubeadmConfigSpec`.
    fn joined(fields: &Value) -> Bootstrap {
        let mut fields = fields.clone();
        fields["initConfiguration"] = Value::Null;
        fields["joinConfiguration"]["controlPlane"] = json!({});
        if fields["clusterConfiguration"]["featureGates"].is_null() {
            fields["clusterConfiguration"]["featureGates"] = json!({"ControlPlaneKubeletLocalMode": true});
        }
        Bootstrap::Config(config(fields))
    }

    /// The bootstrap configuration of the Machine that initializes the cluster with this `kubeadmConfigSpec`.
    fn initialized(fields: &Value) -> Bootstrap {
        let mut fields = fields.clone();
        fields["joinConfiguration"] = Value::Null;
        fields["clusterConfiguration"]["featureGates"] = json!({"ControlPlaneKubeletLocalMode": true});
        Bootstrap::Config(config(fields))
    }

    /// The Machines `m1`, `m2` and `m3`, and since a change of the spec `m4`, which has no node yet.
    fn changed(change: &Value) -> ChangeSnapshot {
        let mut snapshot = snapshot();
        let observed = &mut snapshot.observed;
        for machine in &mut observed.machines {
            machine.bootstrap = joined(&observed.control_plane.spec.kubeadm_config_spec.fields);
            machine
                .status
                .conditions
                .retain(|condition| condition.type_ != "UpToDate");
        }
        snapshot.json = apply_to_json(&snapshot.json, change).expect("JSON");
        snapshot.json_at_start = snapshot.json.clone();
        let decoded: KubeadmControlPlane = decode(&snapshot.json).expect("a control plane");
        let mut new = new_machine("m4");
        new.spec.version.clone_from(&decoded.spec.version);
        new.infrastructure = Infrastructure::ClonedFrom(decoded.spec.infrastructure_ref.clone());
        new.bootstrap = joined(&decoded.spec.kubeadm_config_spec.fields);
        observed.control_plane.spec = decoded.spec;
        observed.machines.push(new);
        snapshot
    }

    fn decided(snapshot: &ChangeSnapshot, force: bool) -> Decision {
        let context = ReviewContext {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &snapshot.view(),
            configuration: None,
        };
        decide(snapshot, force, "g/v1beta2", context).expect("decodes")
    }

    fn proposal(snapshot: &ChangeSnapshot) -> Proposal {
        match decided(snapshot, false) {
            Decision::Write(proposal) => proposal,
            other => panic!("not written: {other:?}"),
        }
    }

    fn refusal(snapshot: &ChangeSnapshot) -> Refusal {
        match decided(snapshot, false) {
            Decision::Refused(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    fn kubeadm(change: &Value) -> Value {
        json!({"spec": {"kubeadmConfigSpec": change}})
    }

    #[test]
    fn only_what_the_change_has_set_is_written_back() {
        let flag = json!([{"name": "event-ttl", "value": "soon"}]);
        let registration = json!({"nodeRegistration": {"name": "n"}});
        for (name, change, expected) in [
            (
                "patch_version",
                json!({"spec": {"version": "v1.34.3"}}),
                json!({"spec": {"version": "v1.34.2"}}),
            ),
            (
                "minor_version",
                json!({"spec": {"version": "v1.35.0"}}),
                json!({"spec": {"version": "v1.34.2"}}),
            ),
            (
                "flag",
                kubeadm(&json!({"clusterConfiguration": {"apiServer": {"extraArgs": flag}}})),
                kubeadm(&json!({"clusterConfiguration": {"apiServer": {"extraArgs": null}}})),
            ),
            (
                "flag_of_a_component_without_another_field",
                kubeadm(&json!({"clusterConfiguration": {"scheduler": {"extraArgs": flag}}})),
                kubeadm(&json!({"clusterConfiguration": {"scheduler": null}})),
            ),
            (
                "list",
                kubeadm(&json!({"clusterConfiguration": {"apiServer": {"certSANs": ["10.0.0.9"]}}})),
                kubeadm(&json!({"clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}}})),
            ),
            (
                "removed_field",
                kubeadm(
                    &json!({"clusterConfiguration": {"apiServer": null, "etcd": {"local": {"imageTag": "t"}}}}),
                ),
                kubeadm(
                    &json!({"clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}, "etcd": null}}),
                ),
            ),
            (
                "feature_gate",
                kubeadm(
                    &json!({"clusterConfiguration": {"featureGates": {"ControlPlaneKubeletLocalMode": false}}}),
                ),
                kubeadm(
                    &json!({"clusterConfiguration": {"featureGates": {"ControlPlaneKubeletLocalMode": true}}}),
                ),
            ),
            (
                "join_configuration",
                kubeadm(&json!({"joinConfiguration": registration, "initConfiguration": registration})),
                kubeadm(&json!({"joinConfiguration": {"nodeRegistration": {"name": null}}})),
            ),
            (
                "file",
                kubeadm(&json!({"files": [{"path": "/f", "content": "c"}]})),
                kubeadm(&json!({"files": null})),
            ),
            (
                "template",
                json!({"spec": {"machineTemplate": {"spec": {"infrastructureRef": {"name": "t2"}}}}}),
                json!({"spec": {"machineTemplate": {"spec": {"infrastructureRef": {"name": "example"}}}}}),
            ),
            (
                "beside_what_replaces_no_machine",
                json!({"spec": {
                    "version": "v1.34.3",
                    "remediation": {"maxRetry": 3},
                    "kubeadmConfigSpec": {"clusterConfiguration": {"dns": {"imageTag": "v1.12.1"}}},
                }}),
                json!({"spec": {"version": "v1.34.2"}}),
            ),
        ] {
            let snapshot = changed(&change);
            let Proposal {
                write,
                outcome,
                event,
                ..
            } = proposal(&snapshot);
            assert_eq!(write, ObjectWrite::patch(expected.clone()), "{name}");
            assert_eq!(outcome, "rolled back to the spec of Machine m3");
            assert_eq!(
                event.note("alice"),
                "rollout undone by alice to the spec of Machine m3"
            );
            // Afterwards there is nothing to undo.
            let mut undone = snapshot;
            undone.json = apply_to_json(&undone.json, &expected).expect("JSON");
            let decoded: KubeadmControlPlane = decode(&undone.json).expect("a control plane");
            undone.observed.control_plane.spec = decoded.spec;
            assert_eq!(
                refusal(&undone).why,
                ["nothing to undo: the Machines with another spec are newer"],
                "{name}"
            );
            undone.observed.machines.truncate(3);
            assert_eq!(
                refusal(&undone).why,
                ["nothing to undo: no Machine was created from another spec"],
                "{name}"
            );
        }
    }

    #[test]
    fn the_user_confirms_the_fields_and_sees_what_happens_to_the_machines() {
        let registration = json!({"nodeRegistration": {"name": "n"}});
        let mut snapshot = changed(&json!({"spec": {
            "version": "v1.34.3",
            "kubeadmConfigSpec": {"joinConfiguration": registration, "initConfiguration": registration},
        }}));
        let asked = question(&snapshot, "g/v1beta2", now()).expect("a question");
        assert_eq!(
            asked.goal,
            "roll back control plane c1-cp to the spec of Machine m3"
        );
        assert_eq!(
            asked.details,
            [
                "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.name",
                "spec.version"
            ]
        );
        assert_eq!(
            proposal(&snapshot).consequences,
            [
                "spec.kubeadmConfigSpec.initConfiguration stays as it is, because Machine m3 does not have it",
                "up to date again: m1, m2 and m3",
                "replaced: m4",
            ]
        );
        // An older Machine has another spec, and another one is the Machine that initialized the cluster.
        let base = Base::ControlPlane("v1beta2").object();
        snapshot.observed.machines[0].spec.version = Some("v1.34.1".to_owned());
        snapshot.observed.machines[1].bootstrap = initialized(&base["spec"]["kubeadmConfigSpec"]);
        // The controller deletes the older Machine first, and waits until the new one is healthy.
        assert_eq!(refusal(&snapshot).why, ["Machine m4 has no node yet"]);
        let Decision::Write(Proposal {
            write, consequences, ..
        }) = decided(&snapshot, true)
        else {
            panic!("refused");
        };
        let before = json!({"nodeRegistration": {"name": null}});
        assert_eq!(
            write,
            ObjectWrite::patch(json!({"spec": {
                "version": "v1.34.2",
                "kubeadmConfigSpec": {"joinConfiguration": before, "initConfiguration": before},
            }}))
        );
        assert_eq!(
            consequences.get(..3),
            Some(
                &[
                    "up to date again: m2 and m3".to_owned(),
                    "replaced: m4".to_owned(),
                    "still outdated: m1 (version v1.34.1, desired v1.34.2)".to_owned(),
                ][..]
            )
        );
    }

    /// A control plane of one replica, whose earlier Machine initialized the cluster.
    fn changed_with_one_replica(change: &Value) -> ChangeSnapshot {
        let mut change = change.clone();
        change["spec"]["replicas"] = json!(1);
        let mut snapshot = changed(&change);
        let machines = &mut snapshot.observed.machines;
        machines.drain(1..3);
        let base = Base::ControlPlane("v1beta2").object();
        machines[0].bootstrap = initialized(&base["spec"]["kubeadmConfigSpec"]);
        snapshot
    }

    /// Gives the newest Machine a node, and healthy components.
    fn join(snapshot: &mut ChangeSnapshot) {
        let new = snapshot.observed.machines.last_mut().expect("a Machine");
        let mut status = machine("m4", "a", 0).status;
        status
            .conditions
            .retain(|condition| condition.type_ != "UpToDate");
        new.status = status;
    }

    #[test]
    fn the_first_machine_shows_how_others_join_if_the_spec_makes_no_difference() {
        let registration = json!({"nodeRegistration": {"name": "n"}});
        let before = json!({"nodeRegistration": {"name": null}});
        for (join_configuration, expected, unknown) in [
            (registration.clone(), Some(before.clone()), None),
            (
                json!({"nodeRegistration": {"name": "other"}}),
                None,
                Some(
                    "spec.kubeadmConfigSpec.joinConfiguration stays as it is, because Machine m1 does not have it",
                ),
            ),
        ] {
            let change = kubeadm(&json!({
                "initConfiguration": registration,
                "joinConfiguration": join_configuration,
            }));
            let mut snapshot = changed_with_one_replica(&change);
            join(&mut snapshot);
            let Proposal {
                write, consequences, ..
            } = proposal(&snapshot);
            let mut patch = json!({"initConfiguration": before});
            if let Some(expected) = expected {
                patch["joinConfiguration"] = expected;
            }
            assert_eq!(write, ObjectWrite::patch(kubeadm(&patch)));
            let line = consequences.iter().find(|line| line.contains("stays as it is"));
            assert_eq!(line.map(String::as_str), unknown);
        }
    }

    /// A change of the spec, the state in which it is to be undone, and who refuses this for which reason.
    type Case = (
        &'static str,
        Value,
        fn(&mut ChangeSnapshot),
        RefusedBy,
        &'static str,
    );

    fn refused(cases: &[Case]) {
        for (name, change, alter, expected, end) in cases {
            let mut snapshot = changed(change);
            alter(&mut snapshot);
            let refusal = refusal(&snapshot);
            assert_eq!(refusal.refused_by, *expected, "{name}: {refusal:?}");
            let why = &refusal.why;
            assert!(why.iter().any(|why| why.ends_with(end)), "{name}: {refusal:?}");
        }
    }

    #[test]
    fn refuses_if_the_earlier_spec_is_unknown() {
        let patch = || json!({"spec": {"version": "v1.34.3"}});
        let command = RefusedBy::Command;
        refused(&[
            (
                "no_change",
                json!({}),
                |_| {},
                command,
                "nothing to undo: no Machine was created from another spec",
            ),
            (
                "no_machine_that_works",
                patch(),
                |s| (1..4).for_each(|number| fail(s, number, "APIServerPodHealthy", "crashed")),
                command,
                "no Machine with an earlier spec has a node and healthy components",
            ),
            (
                "only_a_newer_machine_has_another_spec",
                patch(),
                |s| {
                    join(s);
                    s.observed.control_plane.spec.version = Some("v1.34.2".to_owned());
                },
                command,
                "nothing to undo: the Machines with another spec are newer",
            ),
            (
                "without_configuration",
                patch(),
                |s| s.observed.machines[2].bootstrap = Bootstrap::Missing,
                command,
                "the earlier spec is unknown: Machine m3: the bootstrap configuration does not exist",
            ),
            (
                "unread",
                patch(),
                |s| {
                    s.unread.push(UnreadPart {
                        part: Part::Bootstrap,
                        kind: "KubeadmConfig".to_owned(),
                        why: "forbidden".to_owned(),
                        is_absent: false,
                    });
                },
                command,
                "could not read KubeadmConfig: forbidden",
            ),
        ]);
    }

    #[test]
    fn refuses_without_a_safe_way_back() {
        let patch = || json!({"spec": {"version": "v1.34.3"}});
        let command = RefusedBy::Command;
        refused(&[
            (
                "managed_topology",
                patch(),
                |s| s.observed.set_topology("v1.34.3"),
                command,
                "Cluster API sets the spec of the control plane from the managed topology of Cluster c1",
            ),
            (
                "being_deleted",
                patch(),
                |s| s.observed.control_plane.metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                command,
                "being deleted",
            ),
            (
                "paused",
                patch(),
                |s| pause(&mut s.observed.control_plane.metadata),
                RefusedBy::Preflight,
                "the control plane is paused: no controller reconciles it",
            ),
            (
                "paused_before_a_machine_was_created",
                patch(),
                |s| {
                    s.observed.machines.truncate(3);
                    pause(&mut s.observed.control_plane.metadata);
                },
                RefusedBy::Preflight,
                "the control plane is paused: no controller reconciles it",
            ),
            (
                "template_is_gone",
                json!({"spec": {"machineTemplate": {"spec": {"infrastructureRef": {"name": "t2"}}}}}),
                |s| {
                    let Infrastructure::ClonedFrom(template) = s.observed.machines[2].infrastructure.clone()
                    else {
                        panic!("a template");
                    };
                    let missing = crate::snapshot::Reading::Read(false);
                    s.observed.templates.insert(template, missing);
                },
                RefusedBy::Preflight,
                "the controller neither creates nor deletes Machines without it",
            ),
            (
                "joined_at_a_higher_version",
                json!({"spec": {"version": "v1.35.0"}}),
                join,
                RefusedBy::Rules,
                "(version-lowered)",
            ),
        ]);
        let flag =
            json!({"clusterConfiguration": {"scheduler": {"extraArgs": [{"name": "a", "value": "b"}]}}});
        let second_joins = refusal(&changed_with_one_replica(&kubeadm(&flag)));
        assert_eq!(second_joins.refused_by, RefusedBy::Rules);
        assert!(
            second_joins.why[0].ends_with("(joining-machine-outdated)"),
            "{second_joins:?}"
        );
    }

    #[test]
    fn a_rollout_of_the_same_spec_is_cancelled_instead() {
        let time = minutes_ago(30).to_string();
        let rolling = refusal(&changed(&json!({"spec": {"rollout": {"after": time}}})));
        assert_eq!(
            rolling.why,
            ["nothing to undo: no Machine was created from another spec"]
        );
        assert_eq!(
            rolling.remedies,
            ["cancel the rollout: kubectl kcp rollout cancel c1-cp -n d --running"]
        );
    }

    #[test]
    fn force_overrides_a_pause() {
        let mut paused = changed(&json!({"spec": {"version": "v1.34.3"}}));
        pause(&mut paused.observed.control_plane.metadata);
        assert!(matches!(decided(&paused, true), Decision::Write(_)));
    }

    #[test]
    fn each_version_has_its_own_reference_to_the_template() {
        let (current, earlier) = (template("t2"), template("t1"));
        for (version, expected) in [
            (V1BETA1, json!({"infrastructureRef": {"name": "t1"}})),
            ("v1beta2", json!({"spec": {"infrastructureRef": {"name": "t1"}}})),
        ] {
            assert_eq!(
                template_patch(&format!("g/{version}"), &current, &earlier),
                expected
            );
        }
    }
}
