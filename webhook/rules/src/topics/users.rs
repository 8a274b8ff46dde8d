//! Users that cloud-init adds on a Machine before kubeadm runs. No message shows their passwords.

use crate::{
    api::{ControlPlaneSpec, machine_setup::User},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, Rule, Scope},
    topics::{Topic, files},
};

pub(super) const TOPIC: Topic = Topic {
    name: "users",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "user-passwd-conflict",
        summary: "a password hash must be either inline or from a Secret",
        why: "A user has one password hash. If passwd and passwdFrom are both set, the manifest does not say \
              which one counts.",
        scope: Scope::Object,
        source: "Cluster API, bootstrap/kubeadm/webhooks/admission/kubeadmconfig.go: validateUsers",
        check: Check::ControlPlaneSpec(passwd_conflict),
        cel: Cel::Faults(include_str!("cel/user-passwd-conflict.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "user-secret-incomplete",
        summary: "a password hash from a Secret needs the name of the Secret and the key",
        why: "Cluster API cannot create bootstrap data without the password hash, so the next Machine never \
              starts.",
        scope: Scope::Object,
        source: "Cluster API, bootstrap/kubeadm/webhooks/admission/kubeadmconfig.go: validateUsers",
        check: Check::ControlPlaneSpec(secret_incomplete),
        cel: Cel::None(NoCel::SchemaFirst),
        ..Rule::USUAL
    },
];

/// All users, each with its index.
pub fn users<'c>(spec: &ControlPlaneSpec<'c>) -> impl Iterator<Item = (usize, &'c User<'c>)> {
    let users = spec.kubeadm_config().and_then(|config| config.users.as_deref());
    users.unwrap_or_default().iter().enumerate()
}

fn passwd_conflict(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for (index, user) in users(change.new) {
        if user.passwd.is_some_and(|passwd| !passwd.is_empty()) && user.passwd_from.is_some() {
            faults.push_redacted(
                (&user.name, user.passwd, &user.passwd_from),
                Fault {
                    field: change.new.kubeadm_path(format_args!("users[{index}].passwdFrom")),
                    reason: CauseReason::Forbidden,
                    value: None,
                    detail: "the user also has passwd, and only one of the two can be used".into(),
                    remedy: "remove passwd to use the Secret, which keeps the hash out of this object".into(),
                },
            );
        }
    }
}

fn secret_incomplete(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for (index, user) in users(change.new) {
        let Some(source) = &user.passwd_from else { continue };
        for missing in files::missing_secret_fields(source) {
            faults.push_redacted(
                &user.name,
                Fault {
                    field: change
                        .new
                        .kubeadm_path(format_args!("users[{index}].passwdFrom.secret.{}", missing.field)),
                    reason: CauseReason::Required,
                    value: None,
                    detail: format!(
                        "the password of the user comes from a Secret, but the reference to the Secret has no {}",
                        missing.field
                    )
                    .into(),
                    remedy: missing.remedy.into(),
                },
            );
        }
    }
}
