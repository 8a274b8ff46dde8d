//! Whether an upgrade to etcd 3.6 is safe. If a member still runs a version that is too old, members that were removed long ago
//! come back after the upgrade (etcd-io/etcd#20967).

use kcp_api::KubeadmControlPlaneSpec;
use kcp_rules::{
    syntax::parse_version,
    topics::etcd::{FIRST_SAFE, is_too_old_for_3_6, stacked_version},
};
use serde_json::Value;

use crate::snapshot::{
    Reading, Snapshot,
    etcd::{EtcdSurvey, QueriedMember},
};

/// Whether a control plane with this spec runs etcd 3.6 or later. `None` for external etcd, and if the version is unknown.
pub fn brings_etcd_3_6(spec: &KubeadmControlPlaneSpec) -> Option<bool> {
    let config = &spec.kubeadm_config_spec;
    if config.has_external_etcd() {
        return None;
    }
    let kubernetes = parse_version(spec.version()).ok()?;
    let etcd = stacked_version(image_tag(&config.fields), kubernetes.minor)?;
    Some((etcd.major, etcd.minor) >= (3, 6))
}

/// The tag of the image of stacked etcd in a `kubeadmConfigSpec`.
pub fn image_tag(config: &Value) -> Option<&str> {
    config
        .pointer("/clusterConfiguration/etcd/local/imageTag")?
        .as_str()
}

/// The version that a member reports, and whether it is too old for an upgrade to etcd 3.6. `None` if the version is unknown.
fn version(queried: &QueriedMember) -> Option<(&str, bool)> {
    let status = queried.response.as_ref().ok()?.status.as_ref().ok()?;
    let version = parse_version(&status.version).ok()?;
    Some((&status.version, is_too_old_for_3_6(&version)))
}

/// The members that are too old for etcd 3.6, with their versions.
pub fn old_members(survey: &EtcdSurvey) -> impl Iterator<Item = (&QueriedMember, &str)> {
    survey
        .queried
        .iter()
        .filter_map(|queried| match version(queried)? {
            (text, true) => Some((queried, text)),
            (_, false) => None,
        })
}

/// Why a change of the spec must not upgrade etcd to 3.6 yet. `None` if it may: the change does not
/// bring etcd 3.6, or every member is new enough.
pub fn obstacle(observed: &Snapshot, desired: &KubeadmControlPlaneSpec) -> Option<String> {
    let has_3_6 = brings_etcd_3_6(&observed.control_plane.spec) == Some(true);
    if has_3_6 || brings_etcd_3_6(desired) != Some(true) {
        return None;
    }
    let members = match &observed.etcd {
        Reading::Read(survey) => unfit_members(survey),
        Reading::Failed(failure) | Reading::OutOfReach(failure) => {
            vec![format!(
                "the versions of the members are unknown: {}",
                failure.text()
            )]
        }
        Reading::Excluded { .. } | Reading::NotYet => Vec::new(),
    };
    (!members.is_empty()).then(|| {
        format!(
            "the change upgrades etcd to 3.6; before that, every member must run {FIRST_SAFE} or later, because otherwise \
             members that were removed long ago come back; {}",
            members.join(", ")
        )
    })
}

/// One text for each member that is too old, or whose version is unknown.
fn unfit_members(survey: &EtcdSurvey) -> Vec<String> {
    let members = survey
        .queried
        .iter()
        .filter_map(|queried| match version(queried) {
            Some((_, false)) => None,
            Some((text, true)) => Some(format!("{} runs {text}", queried.name)),
            None => Some(format!("the version of {} is unknown", queried.name)),
        });
    members.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{brings_etcd_3_6, obstacle};
    use crate::{
        snapshot::{Reading, Snapshot},
        testing::{
            plan::{config, spec, with_version},
            snapshot::{failure, observed},
        },
    };

    #[test]
    fn the_image_tag_decides_over_the_default_of_kubeadm() {
        for (version, tag, expected) in [
            ("v1.33.5", None, Some(false)),
            ("v1.34.0", None, Some(true)),
            ("v1.34.0", Some(""), Some(true)),
            ("v1.34.0", Some("3.5.26-0"), Some(false)),
            ("v1.33.5", Some("3.6.4-0"), Some(true)),
            ("v1.33.5", Some("latest"), None),
            ("v1.99.0", None, None),
        ] {
            let mut spec = with_version(spec(), version);
            spec.kubeadm_config_spec =
                config(json!({"clusterConfiguration": {"etcd": {"local": {"imageTag": tag}}}}));
            assert_eq!(brings_etcd_3_6(&spec), expected, "{version} {tag:?}");
        }
        let mut external = with_version(spec(), "v1.34.0");
        external.kubeadm_config_spec = config(json!({"clusterConfiguration": {"etcd": {"external":
            {"endpoints": ["https://etcd:2379"], "caFile": "/ca", "certFile": "/c", "keyFile": "/k"}}}}));
        assert_eq!(brings_etcd_3_6(&external), None);
    }

    /// A control plane at v1.33.5 whose members run these versions.
    fn at_1_33(versions: [&str; 3]) -> Snapshot {
        let mut observed = observed();
        observed.control_plane.spec.version = Some("v1.33.5".to_owned());
        for (number, version) in (1..).zip(versions) {
            version.clone_into(&mut observed.status(number).version);
        }
        observed
    }

    #[test]
    fn every_member_must_be_new_enough_before_etcd_3_6() {
        let end = |versions: [&str; 3], to: &str| {
            let observed = at_1_33(versions);
            let why = obstacle(&observed, &with_version(observed.control_plane.spec.clone(), to))?;
            why.rsplit_once("; ").map(|(_, members)| members.to_owned())
        };
        for (versions, to, expected) in [
            (["3.5.26"; 3], "v1.34.2", None),
            (["3.6.4"; 3], "v1.34.2", None),
            (["3.5.21"; 3], "v1.33.9", None),
            (
                ["3.5.26", "3.5.25", "3.5.26"],
                "v1.34.2",
                Some("node-m2 runs 3.5.25"),
            ),
            (
                ["3.5.21", "3.5.26", ""],
                "v1.34.2",
                Some("node-m1 runs 3.5.21, the version of node-m3 is unknown"),
            ),
            (
                ["3.4.30", "3.5.26", "3.5.26-rc.0"],
                "v1.34.2",
                Some("node-m1 runs 3.4.30"),
            ),
        ] {
            assert_eq!(end(versions, to).as_deref(), expected, "{versions:?} to {to}");
        }
    }

    #[test]
    fn a_member_that_does_not_answer_is_not_new_enough() {
        let mut silent = at_1_33(["3.5.26"; 3]);
        let desired = with_version(silent.control_plane.spec.clone(), "v1.34.2");
        silent.survey().queried[1].response = Err(failure("etcd member node-m2", "no answer within 1 s"));
        insta::assert_snapshot!(obstacle(&silent, &desired).expect("an obstacle"), @"the change upgrades etcd to 3.6; before that, every member must run 3.5.26 or later, because otherwise members that were removed long ago come back; the version of node-m2 is unknown");
        silent.etcd = Reading::Failed(failure("Secret/c1-etcd", "forbidden"));
        insta::assert_snapshot!(obstacle(&silent, &desired).expect("an obstacle"), @"the change upgrades etcd to 3.6; before that, every member must run 3.5.26 or later, because otherwise members that were removed long ago come back; the versions of the members are unknown: Secret/c1-etcd: forbidden");
        silent.etcd = Reading::NotYet;
        assert_eq!(obstacle(&silent, &desired), None);
        // The spec has etcd 3.6 already, so the change does not bring it.
        let mut upgraded = at_1_33(["3.5.21"; 3]);
        upgraded.control_plane.spec.version = Some("v1.34.0".to_owned());
        assert_eq!(obstacle(&upgraded, &desired), None);
    }
}
