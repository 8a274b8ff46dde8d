use insta::assert_snapshot;
use serde_json::Value;

use super::*;
use crate::testing::kubectl_output;

fn cause(message: &str) -> Cause {
    Cause {
        rule: "field-fault",
        reason: "FieldValueInvalid",
        field: "spec.field".into(),
        message: format!("{message} (field-fault)"),
        overridden: None,
    }
}

fn invalid(causes: Vec<Cause>) -> Decision {
    Decision {
        verdict: ReviewResult::Invalid(Invalid {
            group: "example.com",
            kind: "Example",
            name: "x".to_owned(),
            causes,
        }),
        ..Decision::default()
    }
}

fn warned(messages: &[&str]) -> Decision {
    Decision {
        warning_causes: messages.iter().map(|message| cause(message)).collect(),
        ..Decision::default()
    }
}

fn response(decision: &Decision) -> Value {
    let mut answer: Value = serde_json::from_slice(&write("u", decision).unwrap()).unwrap();
    answer["response"].take()
}

#[test]
fn denies_and_warns_at_the_same_time() {
    let mut decision = invalid(vec![
        cause("Invalid value: 1: no; write 2"),
        cause("Forbidden: no; leave it out"),
    ]);
    decision.warning_causes = vec![cause("Invalid value: 3: unusual; write 4")];
    assert_snapshot!(kubectl_output(&response(&decision)));
}

#[test]
fn keeps_the_rule_id_of_a_long_cause() {
    let response = response(&invalid(vec![cause(&"\u{e4}".repeat(5000))]));
    let message = response["status"]["details"]["causes"][0]["message"]
        .as_str()
        .unwrap();
    assert_eq!(message.chars().count(), MAX_CAUSE_CHARS);
    assert!(message.ends_with("\u{e4}… (field-fault)"), "{message}");
}

#[test]
fn counts_the_causes_beyond_the_limit() {
    let causes = (0..MAX_CAUSES + 7)
        .map(|number| cause(&number.to_string()))
        .collect();
    let response = response(&invalid(causes));
    let causes = response["status"]["details"]["causes"].as_array().unwrap();
    assert_eq!(causes.len(), MAX_CAUSES + 1);
    assert_eq!(causes[MAX_CAUSES - 1]["message"], "49 (field-fault)");
    assert_eq!(
        causes[MAX_CAUSES]["message"],
        "number of problems that are not listed: 7; correct the listed problems first"
    );
}

#[test]
fn shortens_a_warning_to_one_line() {
    let response = response(&warned(&["fits", &"long\n".repeat(60)]));
    assert_eq!(response["allowed"], true);
    assert_eq!(response["auditAnnotations"]["warned-by"], "field-fault");
    let warnings = response["warnings"].as_array().unwrap();
    assert_eq!(warnings[0], "spec.field: fits (field-fault)");
    let long = warnings[1].as_str().unwrap();
    assert_eq!(long.chars().count(), MAX_WARNING_CHARS);
    assert!(long.starts_with("spec.field: long long "), "{long}");
    assert!(long.ends_with("… (field-fault)"), "{long}");
}

#[test]
fn limits_all_warnings_together() {
    let long = "\u{20ac}".repeat(200);
    let response = response(&warned(&[long.as_str(); 100]));
    let warnings: Vec<&str> = response["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning.as_str().unwrap())
        .collect();
    let bytes: usize = warnings.iter().map(|warning| warning.len()).sum();
    assert!(bytes <= MAX_WARNINGS_BYTES, "{bytes}");
    let shown = warnings.len() - 1;
    assert_eq!(shown, 6);
    assert_eq!(
        warnings[shown],
        "94 more warnings are not listed; to see them, run: kubectl kcp lint -f FILE"
    );
}

#[test]
fn omits_the_least_severe_warnings() {
    let long = "x".repeat(90);
    let mut decision = warned(&vec![long.as_str(); 100]);
    decision.warning_causes[0] = cause("first");
    decision.other_warnings = vec!["an override does not count".to_owned()];
    let response = response(&decision);
    let warnings = response["warnings"].as_array().unwrap();
    assert_eq!(warnings[0], "an override does not count");
    assert_eq!(warnings[1], "spec.field: first (field-fault)");
    assert_eq!(
        warnings.last().unwrap(),
        "67 more warnings are not listed; to see them, run: kubectl kcp lint -f FILE"
    );
    assert_eq!(warnings.len(), 1 + 33 + 1);
}
