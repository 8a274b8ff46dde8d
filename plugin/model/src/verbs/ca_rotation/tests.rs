use jiff::{SignedDuration, Timestamp};
use kcp_api::{ConditionStatus, metadata::Time};
use proptest::{collection::vec, prelude::any, prop_assert, prop_assert_eq, proptest};

use super::{
    ControllerLease, KeyPairContent, PhaseOfSecret, Purpose, Reading, RotatedSecret, RotationDecision,
    RotationOptions, RotationPhase, RotationRecord, RotationStep, decide, refusal_of_purposes,
};
use crate::{
    certificates::Purpose::{EtcdCa, FrontProxyCa, ServiceAccountKeys},
    change::decision::Refusal,
    snapshot::change::ChangeSnapshot,
    testing::{
        change::{fail, snapshot},
        objects::{condition, minutes_ago, now, pause, set, use_external_etcd},
        snapshot::failure,
    },
};
use RotationPhase::{SignWithNew, TrustBoth, TrustOnlyNew};

/// A Secret whose `tls.crt` has these entries. The first character of each is that of its hash.
fn secret(purpose: Purpose, entries: &str, signer: &str, next: &str) -> RotatedSecret {
    RotatedSecret {
        purpose,
        name: format!("c1-{}", purpose.secret_suffix().unwrap_or_default()),
        content: Ok(KeyPairContent {
            entries: entries.split_whitespace().map(str::to_owned).collect(),
            signer: signer.to_owned(),
            next: (!next.is_empty()).then(|| next.to_owned()),
            hash: format!("hash of {entries}"),
        }),
        record: None,
    }
}

impl RotatedSecret {
    fn recorded(mut self, phase: RotationPhase, since: Timestamp) -> Self {
        let content = self.content.as_ref().expect("content").hash.clone();
        self.record = Some(RotationRecord {
            phase,
            since,
            content,
            older: Vec::new(),
        });
        self
    }

    /// What the command writes for a phase.
    fn write(&mut self, phase: RotationPhase, since: Timestamp) {
        let content = self.content.clone().expect("content");
        let [first, last] =
            [content.entries.first(), content.entries.last()].map(|entry| entry.expect("an entry"));
        let (entries, signer, next) = match phase {
            TrustBoth => (
                format!("{first} {first}'"),
                content.signer.clone(),
                format!("{first}'"),
            ),
            SignWithNew => (
                format!("{last} {first}"),
                content.next.clone().expect("a key"),
                String::new(),
            ),
            TrustOnlyNew => (first.clone(), content.signer.clone(), String::new()),
        };
        *self = secret(self.purpose, &entries, &signer, &next).recorded(phase, since);
    }
}

/// Each Secret in each phase, written this many minutes ago.
fn in_phase(purpose: Purpose, phase: RotationPhase, minutes: i64) -> RotatedSecret {
    let (entries, signer, next) = match phase {
        TrustBoth => ("old new", "old", "new"),
        SignWithNew => ("new old", "new", ""),
        TrustOnlyNew => ("new", "new", ""),
    };
    secret(purpose, entries, signer, next).recorded(phase, minutes_ago(minutes))
}

fn led_since(minutes: i64) -> Reading<Option<ControllerLease>> {
    Reading::Read(Some(ControllerLease {
        name: "lease".to_owned(),
        holder: Some("pod_1".to_owned()),
        acquired: Some(minutes_ago(minutes)),
        renewed: Some(now()),
        duration_seconds: Some(15),
    }))
}

fn decided(
    snapshot: &ChangeSnapshot,
    secrets: &[RotatedSecret],
    options: RotationOptions,
) -> RotationDecision {
    decide(snapshot, secrets, &led_since(1), options, now())
}

fn refusal(decision: RotationDecision) -> Refusal {
    match decision {
        RotationDecision::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn step(decision: RotationDecision) -> (Vec<RotationPhase>, Vec<RotationPhase>) {
    let phases = |phases: Vec<PhaseOfSecret>| phases.into_iter().map(|found| found.phase).collect();
    match decision {
        RotationDecision::Step(RotationStep { writes, written }) => (phases(writes), phases(written)),
        other => panic!("no step: {other:?}"),
    }
}

/// The Machines of the snapshot are 5, 4 and 3 hours old.
#[test]
fn the_next_phase_follows_from_the_content_and_the_machines() {
    const OLDER: i64 = 60;
    const NEWER: i64 = 600;
    let no_options = RotationOptions::default();
    for (name, secret, writes, written) in [
        (
            "never rotated",
            secret(EtcdCa, "old", "old", ""),
            vec![TrustBoth],
            vec![],
        ),
        (
            "a key that is left over",
            secret(EtcdCa, "old", "old", "x"),
            vec![TrustBoth],
            vec![],
        ),
        (
            "1, Machines older",
            in_phase(EtcdCa, TrustBoth, OLDER),
            vec![],
            vec![TrustBoth],
        ),
        (
            "1, a Machine older",
            in_phase(EtcdCa, TrustBoth, 270),
            vec![],
            vec![TrustBoth],
        ),
        ("1", in_phase(EtcdCa, TrustBoth, NEWER), vec![SignWithNew], vec![]),
        (
            "2, Machines older",
            in_phase(EtcdCa, SignWithNew, OLDER),
            vec![],
            vec![SignWithNew],
        ),
        (
            "2",
            in_phase(EtcdCa, SignWithNew, NEWER),
            vec![TrustOnlyNew],
            vec![],
        ),
        (
            "3, Machines older",
            in_phase(EtcdCa, TrustOnlyNew, OLDER),
            vec![],
            vec![TrustOnlyNew],
        ),
        // Another client has written another CA since.
        (
            "replaced by hand",
            RotatedSecret {
                content: secret(EtcdCa, "other", "other", "").content,
                ..in_phase(EtcdCa, TrustOnlyNew, NEWER)
            },
            vec![TrustBoth],
            vec![],
        ),
    ] {
        let decision = decided(&snapshot(), &[secret], no_options);
        assert_eq!(step(decision), (writes, written), "{name}");
    }
    let complete = [in_phase(EtcdCa, TrustOnlyNew, NEWER)];
    let since = minutes_ago(NEWER);
    assert_eq!(
        decided(&snapshot(), &complete, no_options),
        RotationDecision::Complete(format!(
            "every Machine has trusted only the new key of the etcd CA since {since}"
        ))
    );
    let again = RotationOptions {
        again: true,
        ..no_options
    };
    assert_eq!(
        step(decided(&snapshot(), &complete, again)),
        (vec![TrustBoth], vec![])
    );
}

#[test]
fn several_authorities_share_a_rollout() {
    // Killed between the writes of phase 2.
    let secrets = [
        in_phase(EtcdCa, SignWithNew, 60),
        in_phase(FrontProxyCa, TrustBoth, 600),
    ];
    let decision = decided(&snapshot(), &secrets, RotationOptions::default());
    let RotationDecision::Step(step) = decision else {
        panic!("{decision:?}");
    };
    let question = step.question("c1-cp");
    assert_eq!(
        question.goal,
        "begin the front-proxy CA: phase 2 of 3, sign with the new key, and replace all Machines of control plane c1-cp"
    );
    assert_eq!(
        question.details,
        [
            "the front-proxy CA: phase 2 of 3, sign with the new key",
            "the etcd CA: phase 2 of 3, sign with the new key"
        ]
    );
    assert_eq!(
        step.writes[0].event().note("alice"),
        "CA rotation continued by alice with the front-proxy CA: phase 2 of 3, sign with the new key"
    );
    let written = RotationStep {
        writes: Vec::new(),
        ..step
    };
    assert_eq!(
        written.question("c1-cp").goal,
        "replace all Machines of control plane c1-cp"
    );
}

#[test]
fn unknown_content_is_refused() {
    let not_written =
        |count| format!("Secret c1-etcd: tls.crt has {count} entries, but this command has not written them");
    for (name, secret, expected) in [
        (
            "the wrong order",
            secret(EtcdCa, "old new", "new", ""),
            "Secret c1-etcd: the first entry of tls.crt does not belong to tls.key, so no new Machine can join".to_owned(),
        ),
        ("by hand", secret(EtcdCa, "old new", "old", ""), not_written(2)),
        ("no record", secret(EtcdCa, "old new", "old", "new"), not_written(2)),
        ("another new key", secret(EtcdCa, "old new", "old", "x").recorded(TrustBoth, now()), not_written(2)),
        ("another phase", secret(EtcdCa, "new old", "new", "").recorded(TrustBoth, now()), not_written(2)),
        ("restored by hand", RotatedSecret { content: secret(EtcdCa, "old", "old", "").content, ..in_phase(EtcdCa, SignWithNew, 600) },
            "Secret c1-etcd: tls.crt has one entry, but the rotation is in phase 2 of 3, sign with the new key: another client has \
             changed the Secret, and Machines may trust or sign with another key".to_owned()),
        ("three", secret(EtcdCa, "a b c", "a", "").recorded(TrustBoth, now()), not_written(3)),
        (
            "no key",
            RotatedSecret {
                content: Err("the Secret has no key tls.key".to_owned()),
                ..secret(EtcdCa, "old", "old", "")
            },
            "Secret c1-etcd: the Secret has no key tls.key".to_owned(),
        ),
    ] {
        let refused = refusal(decided(&snapshot(), &[secret], RotationOptions::default()));
        assert_eq!(refused.why, [expected], "{name}");
        assert_eq!(refused.remedies, ["correct the Secret by hand: see the page Rotation of CAs in the kubectl-kcp book"]);
    }
}

#[test]
fn nothing_is_written_while_something_is_missing() {
    type Case = (&'static str, fn(&mut ChangeSnapshot), &'static str);
    let cases: [Case; 7] = [
        (
            "paused",
            |s| pause(&mut s.observed.control_plane.metadata),
            "the control plane is paused",
        ),
        (
            "rolling out",
            |s| s.observed.control_plane.status.up_to_date_replicas = 1,
            "the rollout is not complete: Machines up to date: 1 of 3",
        ),
        (
            "not ready",
            |s| s.observed.control_plane.status.ready_replicas = 2,
            "the rollout is not complete: Machines ready: 2 of 3",
        ),
        (
            "not processed",
            |s| s.observed.control_plane.metadata.generation = Some(8),
            "the rollout is not complete: Cluster API's kubeadm control plane controller has not processed the change yet",
        ),
        (
            "unread",
            |s| s.etcd_failure = Some(failure("etcd", "no answer")),
            "could not read the etcd members: no answer; using the Machines' conditions instead",
        ),
        (
            "unhealthy",
            |s| {
                let conditions = &mut s.observed.control_plane.status.conditions;
                set(
                    conditions,
                    condition("Available", ConditionStatus::False, "no quorum"),
                );
            },
            "KubeadmControlPlane/c1-cp Available is False: no quorum",
        ),
        (
            "an unhealthy Machine",
            |s| fail(s, 2, "EtcdPodHealthy", "crashed"),
            "Machine/m2 etcd pod: crashed",
        ),
    ];
    for (name, change, expected) in cases {
        for secret in [
            secret(EtcdCa, "old", "old", ""),
            in_phase(EtcdCa, TrustBoth, 600),
            in_phase(EtcdCa, SignWithNew, 600),
        ] {
            let mut snapshot = snapshot();
            change(&mut snapshot);
            let refused = refusal(decided(&snapshot, &[secret], RotationOptions::default()));
            assert!(
                refused.why.iter().any(|why| why.starts_with(expected)),
                "{name}: {:#?}",
                refused.why
            );
        }
    }
    // The message of a rollout names the phase that it brings.
    let mut rolling = snapshot();
    rolling.observed.control_plane.status.up_to_date_replicas = 1;
    let refused = refusal(decided(
        &rolling,
        &[in_phase(EtcdCa, TrustBoth, 60)],
        RotationOptions::default(),
    ));
    assert_eq!(
        refused.why,
        [
            "the rollout of the etcd CA: phase 1 of 3, trust both keys is not complete: Machines up to date: 1 of 3"
        ]
    );
    // It also is what is left of a complete rotation.
    let refused = refusal(decided(
        &rolling,
        &[in_phase(EtcdCa, TrustOnlyNew, 600)],
        RotationOptions::default(),
    ));
    assert_eq!(
        refused.why,
        ["the rollout is not complete: Machines up to date: 1 of 3"]
    );
}

#[test]
fn the_controller_must_restart_before_the_old_etcd_ca_is_dropped() {
    let judge = |lease: &Reading<Option<ControllerLease>>, minutes: i64, is_controller_restarted| {
        let options = RotationOptions {
            is_controller_restarted,
            ..RotationOptions::default()
        };
        let secret = in_phase(EtcdCa, SignWithNew, minutes);
        match decide(&snapshot(), &[secret], lease, options, now()) {
            RotationDecision::Step(_) => Ok(()),
            other => Err(refusal(other)),
        }
    };
    assert_eq!(judge(&led_since(599), 600, false), Ok(()));
    for minutes in [600, 601] {
        let refused = judge(&led_since(minutes), 600, true).expect_err("refused");
        let (leads, since) = (minutes_ago(minutes), minutes_ago(600));
        assert_eq!(
            refused.why,
            [format!(
                "Secret c1-etcd: the control plane controller has been the leader since {leads}, and keeps a client certificate of \
                 the old CA for a day: it must restart after {since}"
            )]
        );
        assert_eq!(
            refused.remedies,
            [
                "restart it: kubectl rollout restart deployment capi-kubeadm-control-plane-controller-manager -n \
                 capi-kubeadm-control-plane-system"
            ]
        );
    }
    // The certificate has been renewed by itself.
    assert_eq!(judge(&led_since(60 * 48), 60 * 24 + 1, false), Ok(()));
    for (lease, why) in [
        (Reading::NotYet, "its Lease was not read"),
        (
            Reading::Failed(failure("Lease/x", "forbidden")),
            "Lease/x: forbidden",
        ),
        (
            Reading::Read(None),
            "Lease kubeadm-control-plane-manager-leader-election-capi does not say when the controller became the leader",
        ),
    ] {
        let refused = judge(&lease, 600, false).expect_err("refused");
        let since = minutes_ago(600);
        assert_eq!(
            refused.why,
            [format!(
                "Secret c1-etcd: it is unknown whether the control plane controller has restarted since {since}: {why}"
            )]
        );
        assert_eq!(refused.remedies.len(), 2);
        assert_eq!(judge(&lease, 600, true), Ok(()));
    }
}

#[test]
fn the_tokens_must_be_renewed_before_the_old_key_is_dropped() {
    let judge = |minutes: Option<i64>, hours: i64, are_tokens_renewed| {
        let mut snapshot = snapshot();
        for machine in &mut snapshot.observed.machines {
            machine.metadata.creation_timestamp = Some(Time(minutes_ago(60 * hours)));
        }
        let conditions = &mut snapshot.observed.control_plane.status.conditions;
        if let Some(minutes) = minutes {
            let mut ended = condition("RollingOut", ConditionStatus::False, "");
            ended.last_transition_time = Some(minutes_ago(minutes));
            set(conditions, ended);
        }
        let options = RotationOptions {
            are_tokens_renewed,
            ..RotationOptions::default()
        };
        let secret = in_phase(ServiceAccountKeys, SignWithNew, 60 * 48);
        match decided(&snapshot, &[secret], options) {
            RotationDecision::Step(_) => Ok(()),
            other => Err(refusal(other).why.join("; ")),
        }
    };
    let over_in = |left: &str| {
        Err(format!(
            "Secret c1-sa: tokens that the old key signed may still be in use: the kubelets renew the tokens of Pods within a day of \
             the last rollout, and that day is over{left}; nothing renews other tokens"
        ))
    };
    assert_eq!(judge(None, 24, false), over_in(""));
    assert_eq!(judge(None, 23, false), over_in(" in 1h"));
    assert_eq!(judge(None, 23, true), Ok(()));
    // The old Machines were deleted after the newest was created.
    assert_eq!(judge(Some(60 * 22), 24, false), over_in(" in 2h"));
    assert_eq!(judge(Some(60 * 40), 23, false), over_in(" in 1h"));
}

#[test]
fn the_kubernetes_ca_and_the_ca_of_an_external_etcd_are_refused() {
    let mut observed = snapshot().observed;
    assert_eq!(
        refusal_of_purposes(&observed, &[EtcdCa, FrontProxyCa, ServiceAccountKeys]),
        None
    );
    let refused = refusal_of_purposes(&observed, &[Purpose::ClusterCa]).expect("refused");
    insta::assert_snapshot!(format!(
        "{}\n{}",
        refused.why.join("\n"),
        refused.remedies.join("\n")
    ));
    use_external_etcd(&mut observed.control_plane.spec);
    assert_eq!(refusal_of_purposes(&observed, &[FrontProxyCa]), None);
    let refused = refusal_of_purposes(&observed, &[EtcdCa]).expect("refused");
    assert_eq!(
        refused.why,
        ["etcd is external, so its administrators rotate its CA"]
    );
}

#[test]
fn says_what_to_do_after_each_phase() {
    let mut lines = Vec::new();
    for phase in [TrustBoth, SignWithNew, TrustOnlyNew] {
        let step = RotationStep {
            writes: [EtcdCa, FrontProxyCa, ServiceAccountKeys]
                .map(|purpose| in_phase(purpose, phase, 1).in_phase(phase))
                .into(),
            written: Vec::new(),
        };
        lines.push(phase.describe());
        let actions = step.next_actions("c1-cp", "c1", "d");
        lines.extend(actions.into_iter().map(|action| format!("- {action}")));
    }
    insta::assert_snapshot!(lines.join("\n"));
}

/// A cluster in which the command runs, is killed, and runs again.
struct World {
    snapshot: ChangeSnapshot,
    secrets: Vec<RotatedSecret>,
    minutes: i64,
}

impl World {
    fn now(&self) -> Timestamp {
        now() + SignedDuration::from_mins(self.minutes)
    }

    /// Runs the command, which is killed after this number of writes to the clusters, of which the rollout is the last. Returns
    /// whether the rotation is complete.
    fn run(&mut self, kill_after: usize) -> bool {
        self.minutes += 1;
        let lease = Reading::Read(Some(ControllerLease {
            acquired: Some(self.now()),
            ..led_since(0).value().cloned().flatten().expect("a Lease")
        }));
        let options = RotationOptions {
            are_tokens_renewed: true,
            ..RotationOptions::default()
        };
        let step = match decide(&self.snapshot, &self.secrets, &lease, options, self.now()) {
            RotationDecision::Step(step) => step,
            RotationDecision::Complete(_) => return true,
            RotationDecision::Refused(refusal) => panic!("{refusal:?}"),
        };
        let now = self.now();
        for written in step.writes.iter().take(kill_after) {
            let secret = self
                .secrets
                .iter_mut()
                .find(|secret| secret.purpose == written.purpose);
            let secret = secret.expect("a Secret");
            let before = secret.record.as_ref();
            // Each Machine has the phase before.
            let older = before.map(|record| record.older_machines(&self.snapshot.observed.machines).len());
            assert!(older.is_none_or(|older| older == 0));
            secret.write(written.phase, now);
            let machines = self.snapshot.observed.machines.iter();
            let names = machines.filter_map(|machine| machine.metadata.name.clone());
            secret.record.as_mut().expect("a record").older = names.collect();
        }
        if kill_after > step.writes.len() {
            self.minutes += 10;
            let created = Some(Time(self.now()));
            for machine in &mut self.snapshot.observed.machines {
                machine.metadata.creation_timestamp = created.clone();
                machine.metadata.name = machine.metadata.name.take().map(|name| name + "'");
            }
        } else {
            // `clusterctl move` creates the Machines again, with their names.
            self.minutes += 10;
            let created = Some(Time(self.now()));
            for machine in &mut self.snapshot.observed.machines {
                machine.metadata.creation_timestamp = created.clone();
            }
        }
        false
    }
}

proptest! {
    #[test]
    fn killed_at_any_point_it_ends_the_same(kills in vec(0_usize..5, 0..30), both in any::<bool>()) {
        let purposes: &[Purpose] = if both { &[EtcdCa, FrontProxyCa, ServiceAccountKeys] } else { &[EtcdCa] };
        let mut world = World {
            snapshot: snapshot(),
            secrets: purposes.iter().map(|purpose| secret(*purpose, "old", "old", "")).collect(),
            minutes: 0,
        };
        for kill in kills {
            world.run(kill);
        }
        let mut runs = 0;
        while !world.run(usize::MAX) {
            runs += 1;
            // A kill between the writes of several Secrets costs no more than a rollout for each.
            prop_assert!(runs <= 6);
        }
        for secret in &world.secrets {
            let content = secret.content.as_ref().expect("content");
            prop_assert_eq!(&content.entries, &vec!["old'".to_owned()]);
            prop_assert_eq!(&content.signer, "old'");
            prop_assert_eq!(&content.next, &None);
            let record = secret.record.as_ref().expect("a record");
            prop_assert!(record.older_machines(&world.snapshot.observed.machines).is_empty());
        }
    }
}
