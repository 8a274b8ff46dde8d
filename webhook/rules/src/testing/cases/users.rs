//! Cases of the rules in [`crate::topics::users`].

use crate::testing::case::Case;

const PASSWD_AND_PASSWD_FROM: &str = r#"{"spec":{"kubeadmConfigSpec":{"users":[
    {"name":"a","passwd":"x","passwdFrom":{"secret":{"name":"a","key":"b"}}}]}}}"#;

pub(super) const CASES: &[Case] = &[
    Case::create(
        "accepts_passwords",
        r#"{"spec":{"kubeadmConfigSpec":{"users":[{"name":"a"},{"name":"b","passwd":"x"},
            {"name":"c","passwdFrom":{"secret":{"name":"a","key":"b"}}}]}}}"#,
        &[],
    ),
    Case::create(
        "rejects_two_passwords",
        PASSWD_AND_PASSWD_FROM,
        &[(
            "user-passwd-conflict",
            "spec.kubeadmConfigSpec.users[0].passwdFrom",
        )],
    ),
    Case::create(
        "rejects_incomplete_secret",
        r#"{"spec":{"kubeadmConfigSpec":{"users":[{"name":"a","passwdFrom":{"secret":{"name":"a","key":""}}}]}}}"#,
        &[(
            "user-secret-incomplete",
            "spec.kubeadmConfigSpec.users[0].passwdFrom.secret.key",
        )],
    ),
    Case::template(
        "rejects_users_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"users":[
            {"name":"a","passwd":"x","passwdFrom":{"secret":{"key":"b"}}}]}}}}}"#,
        &[
            (
                "user-passwd-conflict",
                "spec.template.spec.kubeadmConfigSpec.users[0].passwdFrom",
            ),
            (
                "user-secret-incomplete",
                "spec.template.spec.kubeadmConfigSpec.users[0].passwdFrom.secret.name",
            ),
        ],
    ),
];
