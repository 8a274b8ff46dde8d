//! Each row is what a program of the version answered, or a report of somebody whose component did not start.

use super::*;

fn version(text: &str) -> Version {
    crate::syntax::parse_version(text).unwrap()
}

const ALWAYS: Absence = Absence::Always;

/// `known`, `deprecated`, or why the flag is unknown.
fn flag_answer(component: Component, name: &str, release: &str) -> String {
    match flag(component, name, &version(release)) {
        Answer::Known(Flag { deprecated: None, .. }) => "known".to_owned(),
        Answer::Known(Flag {
            deprecated: Some(_), ..
        }) => "deprecated".to_owned(),
        Answer::Unknown(absence) => format!("{absence:?}"),
        Answer::NotCovered => "not covered".to_owned(),
    }
}

#[test]
fn flags_depend_on_the_version() {
    use Component::{ApiServer, ControllerManager, Etcd, Kubelet, Scheduler};
    for (component, name, release, expected) in [
        (ApiServer, "cloud-provider", "v1.32.4", "deprecated"),
        (ApiServer, "cloud-provider", "v1.33.0", "RemovedIn(33)"),
        (ApiServer, "cloud_provider", "v1.34.1", "RemovedIn(33)"),
        (ApiServer, "tls-curve-preferences", "v1.35.0", "AddedIn(36)"),
        (ApiServer, "tls-curve-preferences", "v1.36.0", "known"),
        (ApiServer, "enable_admission_plugins", "v1.36.0", "known"),
        (ApiServer, "insecure-port", "v1.30.0", "Always"),
        (ApiServer, "log-json-split-stream", "v1.36.0", "known"),
        (ControllerManager, "pod-eviction-timeout", "v1.29.0", "Always"),
        (ControllerManager, "concurrent-service-syncs", "v1.36.0", "known"),
        (
            ControllerManager,
            "concurrent-service-syncs",
            "v1.37.0",
            "RemovedIn(37)",
        ),
        (ControllerManager, "concurrent_rc_syncs", "v1.36.0", "known"),
        (Scheduler, "address", "v1.30.0", "Always"),
        (Scheduler, "leader-elect", "v1.30.0", "known"),
        (Kubelet, "container-runtime", "v1.29.0", "Always"),
        (
            Kubelet,
            "azure-container-registry-config",
            "v1.29.0",
            "deprecated",
        ),
        (
            Kubelet,
            "azure-container-registry-config",
            "v1.30.0",
            "RemovedIn(30)",
        ),
        (Kubelet, "pod-infra-container-image", "v1.34.0", "deprecated"),
        (Kubelet, "pod-infra-container-image", "v1.35.0", "RemovedIn(35)"),
        (Kubelet, "node-labels", "v1.36.0", "known"),
        (Kubelet, "node-labels", "v1.28.0", "not covered"),
        (Kubelet, "node-labels", "v2.36.0", "not covered"),
        (Etcd, "enable-v2", "v3.5.24", "deprecated"),
        (Etcd, "enable-v2", "v3.6.5", "RemovedIn(6)"),
        (
            Etcd,
            "experimental-initial-corrupt-check",
            "v3.7.0",
            "RemovedIn(7)",
        ),
        (Etcd, "feature-gates", "v3.5.24", "AddedIn(6)"),
        (Etcd, "listen_client_urls", "v3.6.5", "Always"),
        (Etcd, "listen-client-urls", "v1.36.0", "not covered"),
    ] {
        assert_eq!(
            flag_answer(component, name, release),
            expected,
            "{} --{name} {release}",
            component.name()
        );
    }
}

#[test]
fn a_deprecated_flag_has_the_words_of_the_component() {
    let Answer::Known(known) = flag(Component::Kubelet, "max-pods", &version("v1.36.0")) else {
        panic!("the kubelet knows --max-pods");
    };
    let text = known.deprecated.unwrap();
    assert!(
        text.starts_with("This parameter should be set via the config file"),
        "{text}"
    );
    for (component, name, kind) in [
        (Component::ControllerManager, "enable-leader-migration", "bool"),
        (Component::ControllerManager, "leader-elect", "bool"),
        (Component::ControllerManager, "allocate-node-cidrs", "bool"),
        (Component::ControllerManager, "configure-cloud-routes", "bool"),
        (Component::ControllerManager, "controllers", "stringSlice"),
        (Component::Etcd, "quota-backend-bytes", "int64"),
        (Component::Etcd, "listen-peer-urls", "uniqueurls"),
        (Component::Etcd, "initial-cluster-state", "one=existing|new"),
        (Component::Etcd, "cluster-active-size", "ignoredflag"),
    ] {
        let release = if component == Component::Etcd {
            "v3.6.5"
        } else {
            "v1.35.0"
        };
        let answer = flag(component, name, &version(release)).map(|flag| flag.kind);
        assert_eq!(answer, Answer::Known(kind), "{name}");
    }
}

#[test]
fn feature_gates_appear_are_locked_and_vanish() {
    use Component::{ApiServer, ControllerManager, Etcd, Kubelet, Scheduler};
    let known = |default, locked_since| {
        Answer::Known(Gate {
            default,
            locked_since,
        })
    };
    let removed = |minor| Answer::Unknown(Absence::RemovedIn(minor));
    for (component, name, release, expected) in [
        (
            ApiServer,
            "InTreePluginvSphereUnregister",
            "v1.30.0",
            known(false, None),
        ),
        (ApiServer, "InTreePluginvSphereUnregister", "v1.31.0", removed(31)),
        (
            ControllerManager,
            "DisableCloudProviders",
            "v1.30.0",
            known(true, None),
        ),
        (
            ControllerManager,
            "DisableCloudProviders",
            "v1.31.0",
            known(true, Some(31)),
        ),
        (Kubelet, "DisableCloudProviders", "v1.33.0", removed(33)),
        (
            Kubelet,
            "ControllerManagerLeaderMigration",
            "v1.29.0",
            Answer::Unknown(ALWAYS),
        ),
        (Kubelet, "GitRepoVolumeDriver", "v1.36.0", known(false, Some(36))),
        (
            ControllerManager,
            "ControllerManagerReleaseLeaderElectionLockOnExit",
            "v1.36.0",
            known(false, None),
        ),
        (
            Scheduler,
            "ControllerManagerReleaseLeaderElectionLockOnExit",
            "v1.36.0",
            Answer::Unknown(ALWAYS),
        ),
        (Etcd, "InitialCorruptCheck", "v3.6.5", known(false, None)),
        (
            Etcd,
            "InitialCorruptCheck",
            "v3.5.24",
            Answer::Unknown(Absence::AddedIn(6)),
        ),
        (
            Etcd,
            "FastLeaseKeepAlive",
            "v3.6.5",
            Answer::Unknown(Absence::AddedIn(7)),
        ),
        (
            ApiServer,
            "disablecloudproviders",
            "v1.31.0",
            Answer::Unknown(ALWAYS),
        ),
        (ApiServer, "AllAlpha", "v1.28.0", Answer::NotCovered),
    ] {
        assert_eq!(
            gate(component, name, &version(release)),
            expected,
            "{} {name} {release}",
            component.name()
        );
    }
}

#[test]
fn gates_need_others_to_be_on() {
    use Component::{ApiServer, Etcd, Kubelet};
    for (component, versions, given, expected) in [
        (ApiServer, ["v1.36.0"; 2], &[][..], &[][..]),
        (
            ApiServer,
            ["v1.36.0"; 2],
            &[("GangScheduling", true)],
            &["GangScheduling"],
        ),
        (
            ApiServer,
            ["v1.36.0"; 2],
            &[("GangScheduling", true), ("GenericWorkload", true)],
            &[],
        ),
        (
            ApiServer,
            ["v1.36.0"; 2],
            &[("AllAlpha", true), ("GangScheduling", true)],
            &[],
        ),
        (ApiServer, ["v1.36.0"; 2], &[("AllAlpha", true)], &[]),
        (ApiServer, ["v1.36.0"; 2], &[("AllBeta", false)], &[]),
        (
            Kubelet,
            ["v1.36.0"; 2],
            &[("ContainerRestartRules", false)],
            &["RestartAllContainersOnContainerExits"],
        ),
        (
            ApiServer,
            ["v1.36.0", "v1.34.0"],
            &[("ClusterTrustBundleProjection", true)],
            &["ClusterTrustBundleProjection"],
        ),
        (
            ApiServer,
            ["v1.34.0"; 2],
            &[("ClusterTrustBundleProjection", true)],
            &[],
        ),
        (ApiServer, ["v1.28.0"; 2], &[("GangScheduling", true)], &[]),
        (
            Etcd,
            ["v3.6.5"; 2],
            &[("LeaseCheckpointPersist", true)],
            &["LeaseCheckpointPersist"],
        ),
        (Etcd, ["v3.6.5"; 2], &[("AllAlpha", true)], &[]),
    ] {
        let [program, at] = versions.map(version);
        let unmet = unmet_gates(component, [&program, &at], given);
        let names: Vec<_> = unmet.iter().map(|(gate, _)| *gate).collect();
        assert_eq!(names, expected, "{} {versions:?} {given:?}", component.name());
    }
}

#[test]
fn a_group_has_api_versions() {
    for (group, expected) in [
        ("batch", &["batch/v1"][..]),
        ("autoscaling", &["autoscaling/v1", "autoscaling/v2"]),
        (
            "internal.apiserver.k8s.io",
            &["internal.apiserver.k8s.io/v1alpha1"],
        ),
        ("none", &[]),
    ] {
        assert_eq!(api_versions(group, &version("v1.36.0")), expected, "{group}");
    }
}

#[test]
fn kubeadm_has_feature_gates_of_its_own() {
    for (name, release, expected) in [
        ("EtcdLearnerMode", "v1.32.0", Answer::Known(true)),
        (
            "EtcdLearnerMode",
            "v1.33.0",
            Answer::Unknown(Absence::RemovedIn(33)),
        ),
        (
            "UpgradeAddonsBeforeControlPlane",
            "v1.31.0",
            Answer::Unknown(Absence::RemovedIn(31)),
        ),
        (
            "ControlPlaneKubeletLocalMode",
            "v1.30.0",
            Answer::Unknown(Absence::AddedIn(31)),
        ),
        ("ControlPlaneKubeletLocalMode", "v1.35.0", Answer::Known(true)),
        (
            "ControlPlaneKubeletLocalMode",
            "v1.36.0",
            Answer::Unknown(Absence::RemovedIn(36)),
        ),
        ("RootlessControlPlane", "v1.37.0", Answer::Known(false)),
        ("IPv6DualStack", "v1.29.0", Answer::Unknown(ALWAYS)),
    ] {
        let answer = kubeadm_gate(name, &version(release)).map(|gate| gate.locked_since.is_some());
        assert_eq!(answer, expected, "{name} {release}");
    }
}

#[test]
fn admission_plugins_depend_on_the_version() {
    for (name, release, expected) in [
        ("PodSecurityPolicy", "v1.29.0", Answer::Unknown(ALWAYS)),
        ("SecurityContextDeny", "v1.29.0", Answer::Known(false)),
        (
            "SecurityContextDeny",
            "v1.30.0",
            Answer::Unknown(Absence::RemovedIn(30)),
        ),
        (
            "PersistentVolumeLabel",
            "v1.31.0",
            Answer::Unknown(Absence::RemovedIn(31)),
        ),
        (
            "PodTopologyLabels",
            "v1.32.0",
            Answer::Unknown(Absence::AddedIn(33)),
        ),
        ("NodeRestriction", "v1.36.0", Answer::Known(false)),
        ("PodSecurity", "v1.36.0", Answer::Known(true)),
    ] {
        assert_eq!(
            admission_plugin(name, &version(release)),
            expected,
            "{name} {release}"
        );
    }
}

#[test]
fn runtime_config_accepts_registered_api_versions() {
    let removed = |minor| Answer::Unknown(Absence::RemovedIn(minor));
    for (key, release, expected) in [
        ("resource.k8s.io/v1alpha2", "v1.30.0", Answer::Known(())),
        ("resource.k8s.io/v1alpha2", "v1.31.0", removed(31)),
        ("networking.k8s.io/v1alpha1", "v1.34.0", removed(34)),
        (
            "scheduling.k8s.io/v1alpha1/priorityclasses",
            "v1.36.0",
            removed(36),
        ),
        ("policy/v1beta1", "v1.36.0", Answer::Known(())),
        (
            "policy/v1beta1/poddisruptionbudgets",
            "v1.36.0",
            Answer::Known(()),
        ),
        ("apiextensions.k8s.io/v1", "v1.36.0", Answer::Known(())),
        ("apiregistration.k8s.io/v1", "v1.36.0", Answer::Known(())),
        ("/v1", "v1.36.0", Answer::Known(())),
        ("api/beta", "v1.36.0", Answer::Known(())),
        ("api/v1", "v1.36.0", Answer::Known(())),
        ("api/legacy", "v1.36.0", Answer::Known(())),
        ("batch", "v1.36.0", Answer::Unknown(ALWAYS)),
        ("settings.k8s.io/v1alpha1", "v1.36.0", Answer::Unknown(ALWAYS)),
        ("v1", "v1.36.0", Answer::Known(())),
        ("api/all", "v1.28.0", Answer::NotCovered),
        ("v1", "v1.28.0", Answer::NotCovered),
    ] {
        assert_eq!(
            runtime_config(key, &version(release)),
            expected,
            "{key} {release}"
        );
    }
}

#[test]
fn controllers_have_aliases() {
    let removed = Answer::Unknown(Absence::RemovedIn(37));
    for (name, release, expected) in [
        ("node-ipam-controller", "v1.36.0", Answer::Known(())),
        ("nodeipam", "v1.37.0", Answer::Known(())),
        ("route", "v1.36.0", Answer::Known(())),
        ("route", "v1.37.0", removed.clone()),
        ("service-lb-controller", "v1.37.0", removed.clone()),
        ("cloud-node-lifecycle", "v1.37.0", removed),
        (
            "selinux-warning-controller",
            "v1.31.0",
            Answer::Unknown(Absence::AddedIn(32)),
        ),
        ("bootstrapsigner", "v1.35.0", Answer::Known(())),
        ("", "v1.35.0", Answer::Unknown(ALWAYS)),
    ] {
        assert_eq!(controller(name, &version(release)), expected, "{name} {release}");
    }
}

#[test]
fn removed_kinds_lie_between_two_versions() {
    let removed = removed_kinds(&version("v1.31.0"), &version("v1.32.0"));
    let kinds: Vec<_> = removed
        .iter()
        .map(|kind| (kind.api_version, kind.kind, kind.replacement))
        .filter(|(api_version, ..)| api_version.starts_with("flowcontrol"))
        .collect();
    let v1 = "flowcontrol.apiserver.k8s.io/v1";
    assert_eq!(
        kinds,
        [
            ("flowcontrol.apiserver.k8s.io/v1beta3", "FlowSchema", v1),
            (
                "flowcontrol.apiserver.k8s.io/v1beta3",
                "PriorityLevelConfiguration",
                v1
            ),
        ]
    );
    assert!(removed.iter().all(|kind| kind.removed_in == 32));
    assert_eq!(removed_kinds(&version("v1.32.0"), &version("v1.31.0")), []);

    // 1.34 does not register it. 1.32 does not register the other one, whose removal was planned for 1.37.
    for (api_version, from, to, expected) in [
        ("networking.k8s.io/v1alpha1", "v1.32.0", "v1.34.0", 33),
        ("coordination.k8s.io/v1alpha1", "v1.31.0", "v1.34.0", 32),
    ] {
        let removed = removed_kinds(&version(from), &version(to));
        let found = removed.iter().find(|kind| kind.api_version == api_version);
        assert_eq!(found.map(|kind| kind.removed_in), Some(expected), "{api_version}");
    }
}

/// A line of a table that is no row would be a name that no version knows.
#[test]
fn every_line_of_the_tables_is_a_row() {
    let tables: [&str; 12] = [
        include_str!("../../components/data/admission-plugins.tsv"),
        include_str!("../../components/data/apis.tsv"),
        include_str!("../../components/data/controllers.tsv"),
        include_str!("../../components/data/etcd-gates.tsv"),
        include_str!("../../components/data/etcd.tsv"),
        include_str!("../../components/data/gates.tsv"),
        include_str!("../../components/data/kinds.tsv"),
        include_str!("../../components/data/kube-apiserver.tsv"),
        include_str!("../../components/data/kube-controller-manager.tsv"),
        include_str!("../../components/data/kube-scheduler.tsv"),
        include_str!("../../components/data/kubeadm-gates.tsv"),
        include_str!("../../components/data/kubelet.tsv"),
    ];
    for text in tables {
        assert_eq!(
            Table::parse(text).rows().count(),
            text.lines().count() - 1,
            "{text}"
        );
    }
}
