//! Cases of the rules in [`crate::topics::component_flags`].

use crate::testing::case::{Case, V1BETA1, V1BETA2};

const FLAG: &str = "component-flag-unknown";
const DEPRECATED: &str = "component-flag-deprecated";
const VALUE: &str = "component-flag-value-refused";
const CONFLICT: &str = "component-flags-conflict";
const LABEL: &str = "kubelet-label-refused";

const API_SERVER: &str = "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[0].value";
const ETCD: &str = "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.extraArgs[0].value";

pub(super) const CASES: &[Case] = &[
    Case::create(
        "accepts_what_1_32_knows",
        r#"{"spec":{"version":"v1.32.4","kubeadmConfigSpec":{
            "clusterConfiguration":{"featureGates":{"EtcdLearnerMode":true},
                "apiServer":{"extraArgs":[{"name":"event-ttl","value":"2h"},{"name":"profiling","value":"false"},
                    {"name":"feature-gates","value":"kube:AllAlpha=false, kube:WatchList=True,"},
                    {"name":"enable-admission-plugins","value":"NodeRestriction,PodSecurity"},
                    {"name":"runtime-config","value":"api/beta=true,policy/v1beta1=false"}]},
                "etcd":{"local":{"extraArgs":[{"name":"experimental-initial-corrupt-check","value":"true"}]}}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[
                {"name":"node_labels","value":"rack=a,node.cluster.x-k8s.io/a=b,topology.kubernetes.io/zone=z"}]}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_upgrade_that_removes_a_flag",
        r#"{"spec":{"version":"v1.32.4","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"cloud-provider","value":"external"}]}}}}}"#,
        r#"{"spec":{"version":"v1.33.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"cloud-provider","value":"external"}]}}}}}"#,
        &[(FLAG, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_flags_that_no_version_knows",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{
            "scheduler":{"extraArgs":{"profilling":"false"}}},
            "initConfiguration":{"nodeRegistration":{"kubeletExtraArgs":{"token8c1f93":"remote"}}}}}}"#,
        &[
            (FLAG, "spec.kubeadmConfigSpec.clusterConfiguration.scheduler.extraArgs[profilling]"),
            (FLAG, "spec.kubeadmConfigSpec.initConfiguration.nodeRegistration.kubeletExtraArgs"),
        ],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_flag_that_etcd_3_6_does_not_know",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"extraArgs":
            [{"name":"enable-v2","value":"false"}]}}}}}}"#,
        &[(FLAG, ETCD)],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "rejects_each_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{
            "clusterConfiguration":{"apiServer":{"extraArgs":[
                {"name":"cloud-provider","value":"external"},{"name":"apiserver-count","value":"three"},
                {"name":"service-account-signing-endpoint","value":"/s"}]}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[
                {"name":"node-labels","value":"node-role.kubernetes.io/ingress="}]}}}}}}}"#,
        &[
            (FLAG, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[0].value"),
            (DEPRECATED, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (VALUE, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (CONFLICT, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[2].value"),
            (LABEL, "spec.template.spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[0].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "warns_of_deprecated_flag",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"apiserver-count","value":"3"}]}}}}}"#,
        &[(DEPRECATED, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_flags_that_exclude_those_of_kubeadm",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"service-account-signing-endpoint","value":"/s"}]},
            "etcd":{"local":{"extraArgs":[{"name":"experimental-initial-corrupt-check","value":"true"}]}}}}}}"#,
        &[(CONFLICT, API_SERVER), (CONFLICT, ETCD)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_other_flags_that_exclude_each_other",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"admission-control","value":"PodSecurity"},
                {"name":"authentication-config","value":"/etc/kubernetes/pki/authentication.yaml"},
                {"name":"oidc-client-id","value":"a"}]},
            "etcd":{"local":{"extraArgs":[{"name":"experimental-watch-progress-notify-interval","value":"5s"}]}}}}}}"#,
        &[
            (DEPRECATED, API_SERVER),
            (DEPRECATED, ETCD),
            (CONFLICT, API_SERVER),
            (CONFLICT, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (CONFLICT, ETCD),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_flags_that_are_too_new_or_too_early",
        r#"{"spec":{"version":"v1.29.6","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":[
            {"name":"authorization-config","value":"/etc/kubernetes/pki/authorization.yaml"},
            {"name":"tls-curve-preferences","value":"X25519"}]}}}}}"#,
        &[
            (FLAG, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (CONFLICT, API_SERVER),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_what_excludes_defaults_of_kubeadm",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":[
            {"name":"disable-admission-plugins","value":"NodeRestriction"},
            {"name":"authorization-config","value":"/etc/kubernetes/pki/a.yaml"},{"name":"authorization-mode","value":"RBAC"}]}}}}}"#,
        &[
            (CONFLICT, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (CONFLICT, API_SERVER),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_plugin_that_is_enabled_and_disabled",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"disable-admission-plugins","value":"PodSecurity"},{"name":"enable-admission-plugins","value":"PodSecurity"}]}}}}}"#,
        &[(CONFLICT, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "accepts_values_of_each_type",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"event-ttl","value":"1h30m"},{"name":"max-requests-inflight","value":"0x1_90"},
                {"name":"profiling","value":"F"},{"name":"runtime-config","value":"api/all=false, v1 = true,batch/v1"},{"name":"enable-priority-and-fairness","value":"f"},
                {"name":"v","value":"${VERBOSITY}"},{"name":"advertise-address","value":"{{ ds.meta_data.local_ipv4 }}"},
                {"name":"bind-address","value":"::"},{"name":"goaway-chance","value":".001"}]},
            "controllerManager":{"extraArgs":[{"name":"node-monitor-grace-period","value":"500ms"},
                {"name":"concurrent-gc-syncs","value":"30"},{"name":"kube-api-qps","value":"1e2"}]},
            "etcd":{"local":{"imageTag":"3.5.24-0","extraArgs":[{"name":"v2-deprecation","value":"not-yet"}]}}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_values_of_another_type",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"event-ttl","value":"60"},{"name":"max-requests-inflight","value":"400m"},
                {"name":"profiling","value":"off"},{"name":"bind-address","value":"all"},{"name":"goaway-chance","value":"1%"},
                {"name":"runtime-config","value":"api/all=false"},{"name":"lease-reuse-duration-seconds","value":""}]},
            "controllerManager":{"extraArgs":[{"name":"node-monitor-grace-period","value":"1d"},
                {"name":"concurrent-gc-syncs","value":"2147483648"}]},
            "etcd":{"local":{"extraArgs":[{"name":"v2-deprecation","value":"not-yet"},{"name":"pre-vote","value":"yes"}]}}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"max-pods","value":"many"}]}}}}}"#,
        &[
            (DEPRECATED, ETCD),
            (VALUE, API_SERVER),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[2].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[3].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[4].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[6].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[1].value"),
            (VALUE, ETCD),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.extraArgs[1].value"),
            (VALUE, "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[0].value"),
            (CONFLICT, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[5].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_values_that_a_component_does_not_accept",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"tls-cipher-suites","value":"ECDHE-RSA-AES128-GCM-SHA256"},{"name":"goaway-chance","value":"0.1"},
                {"name":"request-timeout","value":"-1s"},{"name":"cors-allowed-origins","value":".*"},{"name":"service-node-port-range","value":"32767-30000"},
                {"name":"emulated-version","value":"1.30"},{"name":"audit-log-mode","value":"async"},{"name":"audit-log-path","value":"-"}]},
            "etcd":{"local":{"extraArgs":[{"name":"quota-backend-bytes","value":"8GB"},{"name":"listen-metrics-urls","value":"http://node:2381"},
                {"name":"initial-cluster-state","value":"old"},{"name":"heartbeat-interval","value":"500"}]}}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"node-labels","value":"a=-"},{"name":"eviction-hard","value":"memory<1Gi"},
                {"name":"register-with-taints","value":"a:NoSchedul"},{"name":"kube-reserved","value":"cpu=1c"}]}}}}}"#,
        &[
            (VALUE, API_SERVER),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[2].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[3].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[4].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[5].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[6].value"),
            (VALUE, ETCD),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.extraArgs[1].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.extraArgs[2].value"),
            (VALUE, "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[0].value"),
            (VALUE, "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[1].value"),
            (VALUE, "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[2].value"),
            (VALUE, "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[3].value"),
            (CONFLICT, "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.extraArgs[3].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "accepts_values_at_the_limits",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"goaway-chance","value":"0.02"},{"name":"request-timeout","value":"-0s"},
                {"name":"cors-allowed-origins","value":"//a\\.example:"},{"name":"service-node-port-range","value":"30000+100"},
                {"name":"emulated-version","value":"kube=v1.33"},{"name":"audit-log-mode","value":"async"},
                {"name":"authorization-mode","value":"Node,RBAC,Webhok"}]},
            "controllerManager":{"extraArgs":[{"name":"secure-port","value":"0"},{"name":"vmodule","value":"a=2,,"}]},
            "etcd":{"local":{"extraArgs":[{"name":"listen-metrics-urls","value":"http://localhost:2381,unix://a"},{"name":"cors","value":"*"},
                {"name":"heartbeat-interval","value":"200"},{"name":"log-level","value":"Debug"},
                {"name":"snapshot-count","value":"10_000"},{"name":"auto-compaction-retention","value":"${RETENTION}"}]}}},
            "joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"node-labels","value":"a,b=,,c = d"},
                {"name":"eviction-hard","value":"memory.available<10%,nodefs.available<1.5Gi"},{"name":"healthz-port","value":"0"},
                {"name":"register-with-taints","value":"a:NoSchedule-"},{"name":"kube-reserved","value":"cpu=1.5,memory=1e3"}]}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "accepts_emulated_version_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":[
            {"name":"emulated-version","value":"1.31"}]}}}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_effect_of_taint",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"joinConfiguration":{"nodeRegistration":{"taints":[
            {"key":"a","effect":"NoSchedule"},{"key":"b","value":"c","effect":"NoSchedul"},{"key":"d","effect":"PreferNoSchedule"}]}}}}}"#,
        &[(VALUE, "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.taints[1].effect")],
    ),
    Case::create(
        "rejects_flags_without_those_that_they_need",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"oidc-issuer-url","value":"https://a.example"},{"name":"authorization-mode","value":"Node,RBAC,Webhook"},
                {"name":"encryption-provider-config-automatic-reload","value":"true"}]},
            "scheduler":{"extraArgs":[{"name":"tls-cert-file","value":"/etc/kubernetes/scheduler.conf"}]}}}}}"#,
        &[
            (CONFLICT, API_SERVER),
            (CONFLICT, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[2].value"),
            (CONFLICT, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (CONFLICT, "spec.kubeadmConfigSpec.clusterConfiguration.scheduler.extraArgs[0].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_flag_with_dashes",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"--profiling","value":"false"}]}}}}}"#,
        &[(FLAG, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_digits_of_no_base",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"min-request-timeout","value":"0s"},{"name":"audit-log-maxage","value":"08"},
             {"name":"max-requests-inflight","value":"1__0"}]}}}}}"#,
        &[
            (VALUE, API_SERVER),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (VALUE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[2].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "accepts_apis_that_priority_needs",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"runtime-config","value":"api/all=false,api/ga=true"}]}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_experimental_flag_beside_its_gate",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"extraArgs":[
            {"name":"experimental-enable-lease-checkpoint","value":"true"},{"name":"feature-gates","value":"LeaseCheckpoint=true"},
            {"name":"experimental-initial-corrupt-check","value":"true"}]}}}}}}"#,
        &[(CONFLICT, ETCD)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "warns_of_flag_that_went_before_the_tables",
        r#"{"spec":{"version":"v1.27.3","kubeadmConfigSpec":{"clusterConfiguration":{
            "controllerManager":{"extraArgs":[{"name":"pod-eviction-timeout","value":"2m"},{"name":"profiling","value":"false"}]}}}}}"#,
        &[(FLAG, "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value")],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_values_of_runtime_config",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"extraArgs":
            [{"name":"runtime-config","value":"api/beta"}]}}}}}"#,
        &[(VALUE, API_SERVER)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_experimental_flag_beside_its_successor",
        r#"{"spec":{"version":"v1.33.2","kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"local":{"imageTag":"3.6.5-0","extraArgs":[
            {"name":"experimental-compaction-batch-limit","value":"9"},{"name":"compaction-batch-limit","value":"9"},
            {"name":"experimental-corrupt-check-time","value":"1h"}]}}}}}}"#,
        &[
            (DEPRECATED, ETCD),
            (DEPRECATED, "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.extraArgs[2].value"),
            (CONFLICT, ETCD),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_suites_without_those_of_http2_and_times_of_leader_election",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"tls-cipher-suites","value":"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}]},
            "controllerManager":{"extraArgs":[{"name":"leader-elect-renew-deadline","value":"20s"}]}}}}}"#,
        &[
            (CONFLICT, API_SERVER),
            (CONFLICT, "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "accepts_suites_of_http2_and_times_of_leader_election",
        r#"{"spec":{"version":"v1.34.2","kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"tls-cipher-suites","value":
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}]},
            "controllerManager":{"extraArgs":[{"name":"tls-cipher-suites","value":"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"},
                {"name":"tls-min-version","value":"VersionTLS13"},{"name":"leader-elect-lease-duration","value":"60s"},
                {"name":"leader-elect-renew-deadline","value":"40s"},{"name":"leader-elect-retry-period","value":"5s"}]},
            "scheduler":{"extraArgs":[{"name":"leader-elect","value":"false"},{"name":"leader-elect-lease-duration","value":"1s"}]}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_label_of_a_role",
        r#"{"spec":{"kubeadmConfigSpec":{"joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":
            [{"name":"node-labels","value":"rack=a,node-role.kubernetes.io/ingress="}]}}}}}"#,
        &[(LABEL, "spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.kubeletExtraArgs[0].value")],
    )
    .only_in_version(V1BETA2),
];
