use jiff::SignedDuration;

use super::*;

const TRUST_DELAY: Duration = Duration::from_secs(5 * 60);

fn day(days: i64) -> Timestamp {
    let start: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
    start + SignedDuration::from_hours(24 * days)
}

fn minute(day_: i64, minutes: i64) -> Timestamp {
    day(day_) + SignedDuration::from_mins(minutes)
}

const fn lifetime(from: Timestamp, until: Timestamp) -> Lifetime {
    Lifetime { from, until }
}

/// Registered and in order since day 0: a CA of 360 days, and a certificate of 90.
fn observed() -> Observed {
    Observed {
        server: ServerVersion { major: 1, minor: 36 },
        has_owner: true,
        authorities: Authorities {
            signing: Some(lifetime(day(0), day(360))),
            ..Authorities::default()
        },
        serving: Serving::Signed(lifetime(day(0), day(90))),
        registrations: [Registration::Current; 2],
        pods: Vec::new(),
        canary: Canary::Answered,
        clock_difference: SignedDuration::ZERO,
    }
}

fn pod(name: &str, is_ready: bool, certificate: PodCertificate) -> ServedCertificate {
    ServedCertificate {
        pod: name.to_owned(),
        is_ready,
        certificate,
    }
}

const OUTDATED: Registration = Registration::Outdated { trusts_any: true };

/// The name of a case, the time, what differs from [`observed`], and the step.
type Case = (&'static str, Timestamp, fn(&mut Observed), ManagerStep);

fn check(cases: &[Case]) {
    for (name, now, change, expected) in cases {
        let mut observed = observed();
        change(&mut observed);
        assert_eq!(decide(&observed, TRUST_DELAY, *now), *expected, "{name}");
    }
}

#[test]
fn installs_in_this_order() {
    check(&[
        (
            "nothing exists",
            day(0),
            |observed| {
                observed.authorities = Authorities::default();
                observed.serving = Serving::Unusable;
                observed.registrations = [Registration::Absent; 2];
            },
            ManagerStep::CreateAuthority,
        ),
        (
            "a CA exists",
            day(0),
            |observed| {
                observed.serving = Serving::Unusable;
                observed.registrations = [Registration::Absent; 2];
            },
            ManagerStep::IssueCertificate,
        ),
        (
            "a certificate exists",
            day(0),
            |observed| observed.registrations = [Registration::Absent; 2],
            ManagerStep::Register,
        ),
        (
            "one configuration exists",
            day(0),
            |observed| observed.registrations[1] = Registration::Absent,
            ManagerStep::Register,
        ),
        (
            "a new version has other entries",
            day(0),
            |observed| observed.registrations[0] = OUTDATED,
            ManagerStep::Register,
        ),
        ("all is current", day(0), |_| {}, ManagerStep::Wait(Some(day(60)))),
    ]);
}

#[test]
fn registers_the_rest_once_a_canary_is_answered() {
    const ONLY_CANARY: Registration = Registration::OnlyCanary { is_current: true };
    check(&[
        (
            "nothing is registered",
            day(0),
            |observed| {
                observed.registrations = [Registration::Absent; 2];
                observed.canary = Canary::NotSent;
            },
            ManagerStep::RegisterCanary,
        ),
        (
            "the canary trusts another CA",
            day(0),
            |observed| {
                observed.registrations = [
                    Registration::Absent,
                    Registration::OnlyCanary { is_current: false },
                ];
                observed.canary = Canary::Unanswered(day(0));
            },
            ManagerStep::RegisterCanary,
        ),
        (
            "no canary is answered",
            day(0),
            |observed| {
                observed.registrations = [Registration::Absent, ONLY_CANARY];
                observed.canary = Canary::Unanswered(day(0));
            },
            ManagerStep::AwaitCanary,
        ),
        (
            "the canary is disabled",
            day(0),
            |observed| {
                observed.registrations = [Registration::Absent, ONLY_CANARY];
                observed.canary = Canary::NotSent;
            },
            ManagerStep::AwaitCanary,
        ),
        (
            "a canary is answered",
            day(0),
            |observed| observed.registrations = [Registration::Absent, ONLY_CANARY],
            ManagerStep::Register,
        ),
        (
            "an upgrade of a registration without a canary",
            day(0),
            |observed| {
                observed.registrations = [Registration::Current, OUTDATED];
                observed.canary = Canary::NotSent;
            },
            ManagerStep::Register,
        ),
        (
            "a registration exists, and no canary is answered",
            day(0),
            |observed| observed.canary = Canary::Unanswered(day(0)),
            ManagerStep::Wait(Some(day(60))),
        ),
    ]);
}

#[test]
fn a_canary_without_an_answer_is_a_problem_after_ten_seconds() {
    let second = |seconds| day(0) + SignedDuration::from_secs(seconds);
    let registered = [Registration::Current; 2];
    let only_canary = [
        Registration::Absent,
        Registration::OnlyCanary { is_current: true },
    ];
    let unanswered = Canary::Unanswered(day(0));
    for (registrations, canary, now, expected) in [
        (registered, Canary::Answered, second(60), None),
        (registered, Canary::NotSent, second(60), None),
        (registered, unanswered, second(9), None),
        (
            registered,
            unanswered,
            second(10),
            Some("it refuses writes to control planes"),
        ),
        (
            only_canary,
            unanswered,
            second(10),
            Some("the webhook is not registered"),
        ),
    ] {
        let observed = Observed {
            registrations,
            canary,
            ..observed()
        };
        let expected = expected.map(|effect| {
            format!(
                "the API server gets no answer from kcp-webhook when the manager updates Lease kcp-webhook-canary, so {effect}; if the \
                 Pods of kcp-webhook are ready, allow connections from the control plane to their port named webhook, or run the \
                 Pods with hostNetwork"
            )
        });
        assert_eq!(canary_problem(&observed, now), expected);
    }
}

#[test]
fn does_not_register_where_it_must_not() {
    check(&[
        (
            "an old server",
            day(0),
            |observed| {
                observed.server.minor = 30;
                observed.registrations = [Registration::Absent; 2];
            },
            ManagerStep::Refuse(CertificateRefusal::OldServer(ServerVersion {
                major: 1,
                minor: 30,
            })),
        ),
        (
            "the oldest server",
            day(0),
            |observed| {
                observed.server.minor = 31;
                observed.registrations = [Registration::Absent; 2];
            },
            ManagerStep::Register,
        ),
        (
            "being uninstalled",
            day(0),
            |observed| {
                observed.has_owner = false;
                observed.registrations = [Registration::Absent; 2];
            },
            ManagerStep::Refuse(CertificateRefusal::NoOwner),
        ),
        (
            "cert-manager writes the caBundle",
            day(0),
            |observed| observed.registrations[0] = Registration::Injected,
            ManagerStep::Refuse(CertificateRefusal::Injected),
        ),
        (
            "a server is still given its certificate",
            day(0),
            |observed| {
                observed.server.minor = 30;
                observed.serving = Serving::Unusable;
                observed.registrations = [Registration::Absent; 2];
            },
            ManagerStep::IssueCertificate,
        ),
    ]);
    let refusal = CertificateRefusal::OldServer(ServerVersion { major: 1, minor: 30 });
    assert_eq!(
        refusal.to_string(),
        "the manager does not register the webhook: the API server has version 1.30, and kcp-webhook needs 1.31 or newer; upgrade Kubernetes"
    );
}

#[test]
fn renews_a_certificate_after_two_thirds_of_its_validity() {
    check(&[
        (
            "before",
            minute(59, 1439),
            |_| {},
            ManagerStep::Wait(Some(day(60))),
        ),
        ("due", day(60), |_| {}, ManagerStep::IssueCertificate),
        (
            "a certificate that ends with its CA",
            day(240) - SignedDuration::from_mins(1),
            |observed| observed.serving = Serving::Signed(lifetime(day(1), day(360))),
            ManagerStep::Wait(Some(day(240))),
        ),
        (
            "of another CA",
            day(0),
            |observed| observed.serving = Serving::Outdated,
            ManagerStep::IssueCertificate,
        ),
    ]);
}

/// The next CA exists.
fn begun(observed: &mut Observed) {
    observed.serving = Serving::Signed(lifetime(day(230), day(320)));
    observed.authorities.next = Some(lifetime(day(240), day(600)));
}

/// Both caBundles have it.
fn trusted(observed: &mut Observed) {
    begun(observed);
    observed.authorities.next_trusted_since = Some(day(240));
}

/// It signs.
fn promoted(observed: &mut Observed) {
    observed.authorities.signing = Some(lifetime(day(240), day(600)));
    observed.authorities.retired = vec![lifetime(day(0), day(360))];
    observed.authorities.signing_since = Some(day(240));
    // Valid from an hour before it is issued.
    observed.serving = Serving::Signed(lifetime(minute(240, -60), day(330)));
}

#[test]
fn replaces_a_ca_in_this_order() {
    check(&[
        (
            "due",
            day(240),
            |observed| observed.serving = Serving::Signed(lifetime(day(230), day(320))),
            ManagerStep::CreateNextAuthority,
        ),
        (
            "asked for",
            day(1),
            |observed| observed.authorities.rotation_requested = true,
            ManagerStep::CreateNextAuthority,
        ),
        (
            "the next CA is in no caBundle",
            day(240),
            |observed| {
                begun(observed);
                observed.registrations = [OUTDATED; 2];
            },
            ManagerStep::Register,
        ),
        (
            "it is in one caBundle",
            day(240),
            |observed| {
                begun(observed);
                observed.registrations[1] = OUTDATED;
            },
            ManagerStep::Register,
        ),
        ("it is in both", day(240), begun, ManagerStep::RecordTrust),
        (
            "five minutes have not passed",
            minute(240, 4),
            trusted,
            ManagerStep::Wait(Some(minute(240, 5))),
        ),
        (
            "five minutes have passed",
            minute(240, 5),
            trusted,
            ManagerStep::Promote,
        ),
        (
            "a caBundle has lost it",
            minute(240, 5),
            |observed| {
                trusted(observed);
                observed.registrations[0] = OUTDATED;
            },
            ManagerStep::ForgetTrust,
        ),
    ]);
}

#[test]
fn trusts_the_retired_ca_until_every_pod_serves_from_the_new_one() {
    check(&[
        (
            "the Secret of the Pods has a certificate of the retired CA",
            minute(240, 5),
            |observed| {
                promoted(observed);
                observed.serving = Serving::Outdated;
            },
            ManagerStep::IssueCertificate,
        ),
        (
            "all Pods serve from the new CA at once",
            minute(240, 4),
            |observed| {
                promoted(observed);
                observed.pods = vec![pod("a", true, PodCertificate::Signing)];
            },
            ManagerStep::Wait(Some(minute(240, 5))),
        ),
        (
            "one Pod still serves from the retired CA",
            minute(240, 60),
            |observed| {
                promoted(observed);
                observed.pods = vec![
                    pod("a", true, PodCertificate::Signing),
                    pod("b", true, PodCertificate::Another),
                ];
            },
            ManagerStep::Wait(None),
        ),
        (
            "one Pod does not respond",
            minute(240, 60),
            |observed| {
                promoted(observed);
                observed.pods = vec![
                    pod("a", true, PodCertificate::Signing),
                    pod("b", true, PodCertificate::Unknown),
                ];
            },
            ManagerStep::Wait(None),
        ),
        (
            "there is no Pod",
            minute(240, 60),
            promoted,
            ManagerStep::Wait(None),
        ),
        (
            "a Pod that is not ready does not respond",
            minute(240, 5),
            |observed| {
                promoted(observed);
                observed.pods = vec![
                    pod("a", true, PodCertificate::Signing),
                    pod("b", false, PodCertificate::Unknown),
                ];
            },
            ManagerStep::RemoveRetired,
        ),
        (
            "no Pod is ready",
            minute(240, 60),
            |observed| {
                promoted(observed);
                observed.pods = vec![pod("a", false, PodCertificate::Signing)];
            },
            ManagerStep::Wait(None),
        ),
        (
            "the certificate was issued later than the CA began to sign",
            minute(240, 64),
            |observed| {
                promoted(observed);
                observed.serving = Serving::Signed(lifetime(day(240), day(330)));
                observed.pods = vec![pod("a", true, PodCertificate::Signing)];
            },
            ManagerStep::Wait(Some(minute(240, 65))),
        ),
        (
            "all Pods serve from the new CA",
            minute(240, 5),
            |observed| {
                promoted(observed);
                observed.pods = vec![pod("a", true, PodCertificate::Signing)];
            },
            ManagerStep::RemoveRetired,
        ),
        (
            "the retired CA has expired",
            day(360),
            |observed| {
                promoted(observed);
                observed.serving = Serving::Signed(lifetime(day(330), day(420)));
                observed.pods = vec![pod("a", true, PodCertificate::Unknown)];
            },
            ManagerStep::RemoveRetired,
        ),
    ]);
}

#[test]
fn names_the_pods_because_of_which_a_retired_ca_is_trusted() {
    use PodCertificate::{Another, Signing, Unknown};
    let text = |pods: &str| {
        Some(format!(
            "the API server still trusts the previous CA of kcp-webhook, because not all Pods serve a certificate of the new \
             CA yet: {pods}; if a Pod does not respond, delete it"
        ))
    };
    let late = minute(240, 5);
    for (pods, now, expected) in [
        (vec![pod("a", true, Signing)], late, None),
        (vec![pod("a", true, Another)], minute(240, 4), None),
        (vec![pod("a", true, Another)], late, text("a")),
        (
            vec![
                pod("a", true, Unknown),
                pod("b", true, Another),
                pod("c", false, Another),
            ],
            late,
            text("a, b"),
        ),
        (Vec::new(), late, text("no Pod is ready")),
    ] {
        let mut observed = observed();
        promoted(&mut observed);
        observed.pods = pods;
        assert_eq!(rotation_problem(&observed, TRUST_DELAY, now), expected);
        observed.authorities.retired.clear();
        assert_eq!(rotation_problem(&observed, TRUST_DELAY, now), None);
    }
}

#[test]
fn issues_and_registers_nothing_with_a_wrong_clock() {
    check(&[
        (
            "five minutes ahead",
            day(60),
            |observed| observed.clock_difference = SignedDuration::from_mins(5),
            ManagerStep::IssueCertificate,
        ),
        (
            "more",
            day(60),
            |observed| observed.clock_difference = SignedDuration::from_secs(301),
            ManagerStep::Refuse(CertificateRefusal::Clock),
        ),
        (
            "more behind",
            day(60),
            |observed| observed.clock_difference = SignedDuration::from_secs(-301),
            ManagerStep::Refuse(CertificateRefusal::Clock),
        ),
    ]);
}

#[test]
fn takes_over_from_certificates_of_others_without_a_gap() {
    fn foreign(observed: &mut Observed) {
        observed.authorities = Authorities::default();
        observed.serving = Serving::Unusable;
        observed.registrations = [OUTDATED; 2];
    }
    fn adopted(observed: &mut Observed) {
        observed.authorities = Authorities {
            next: Some(lifetime(day(1), day(361))),
            retired: vec![lifetime(day(0), day(30))],
            ..Authorities::default()
        };
        observed.serving = Serving::Outdated;
    }
    check(&[
        (
            "the configurations trust another CA",
            day(1),
            foreign,
            ManagerStep::AdoptTrusted,
        ),
        (
            "they trust an expired CA",
            day(1),
            |observed| {
                foreign(observed);
                observed.registrations = [Registration::Outdated { trusts_any: false }; 2];
            },
            ManagerStep::CreateAuthority,
        ),
        (
            "the new CA joins the caBundles",
            day(1),
            |observed| {
                adopted(observed);
                observed.registrations = [OUTDATED; 2];
            },
            ManagerStep::Register,
        ),
        (
            "both configurations trust both",
            day(1),
            adopted,
            ManagerStep::RecordTrust,
        ),
        ("the other CA has expired", day(30), adopted, ManagerStep::Promote),
        (
            "the Secret of the Pods was deleted",
            day(1),
            |observed| {
                adopted(observed);
                observed.serving = Serving::Unusable;
            },
            ManagerStep::Promote,
        ),
    ]);
}

#[test]
fn recovers_after_years_without_power() {
    check(&[
        (
            "the CA has expired",
            day(400),
            |observed| observed.serving = Serving::Unusable,
            ManagerStep::CreateNextAuthority,
        ),
        (
            "waiting would protect nobody",
            day(400),
            |observed| {
                observed.serving = Serving::Unusable;
                observed.authorities.next = Some(lifetime(day(400), day(760)));
                observed.registrations = [OUTDATED; 2];
            },
            ManagerStep::Promote,
        ),
    ]);
}
