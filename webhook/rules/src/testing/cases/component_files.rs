//! Cases of the rules in [`crate::topics::component_files`].

use crate::testing::case::{Case, V1BETA2};

const FILE: &str = "component-file-unmounted";

const API_SERVER: &str = "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[0].value";

pub(super) const CASES: &[Case] = &[
    Case::create(
        "accepts_files_in_volumes",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"audit-policy-file","value":"/etc/kubernetes/audit/policy.yaml"},
                {"name":"audit-log-path","value":"/var/log/audit.log"},
                {"name":"etcd-cafile","value":"etc/kubernetes//pki/./oidc.crt"},{"name":"token-auth-file","value":""},
                {"name":"tracing-config-file","value":"{{ ds.meta_data.tracing }}"}],
                "extraVolumes":[{"name":"audit","hostPath":"/etc/audit","mountPath":"/etc/kubernetes/audit"}]},
            "scheduler":{"extraArgs":[{"name":"config","value":"/etc/kubernetes/scheduler/config.yaml"}],
                "extraVolumes":[{"name":"config","hostPath":"/etc/s","mountPath":"/etc/kubernetes/scheduler/config.yaml"}]},
            "etcd":{"local":{"dataDir":"/data","extraArgs":[{"name":"peer-crl-file","value":"/data/crl"},
                {"name":"trusted-ca-file","value":"/etc/kubernetes/pki/etcd/ca.crt"}]}}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_files_without_a_volume",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"audit-policy-file","value":"/etc/kubernetes/audit-policy.yaml"}]},
            "scheduler":{"extraArgs":[{"name":"config","value":"/etc/kubernetes/pki/config.yaml"}]},
            "etcd":{"local":{"extraArgs":[{"name":"trusted-ca-file","value":"/etc/kubernetes/pki/ca.crt"}]}}}}}}"#,
        &[
            (FILE, API_SERVER),
            (FILE, "spec.kubeadmConfigSpec.clusterConfiguration.scheduler.extraArgs[0].value"),
            (FILE, "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.extraArgs[0].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "accepts_files_in_folders_of_the_host",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{
            "etcd":{"external":{"endpoints":["https://a:2379"],"caFile":"/etc/etcd/ca.crt","certFile":"/etc/client/a.crt","keyFile":"/etc/client/a.key"}},
            "apiServer":{"extraArgs":[{"name":"etcd-cafile","value":"/etc/etcd/other/ca.crt"},{"name":"proxy-client-cert-file","value":"/etc/client/b.crt"},
                {"name":"tls-sni-cert-key","value":"/etc/kubernetes/pki/a.crt,/etc/kubernetes/pki/a.key:a.example,b.example"},
                {"name":"client-ca-file","value":"/etc/pki/tls/certs/ca.pem"}]},
            "controllerManager":{"extraArgs":[{"name":"kubeconfig","value":"/etc/kubernetes/controller-manager.conf"},
                {"name":"root-ca-file","value":"/usr/local/share/ca-certificates/a.crt"}]}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_files_that_kubeadm_mounts_elsewhere",
        r#"{"spec":{"version":"v1.36.3","kubeadmConfigSpec":{"clusterConfiguration":{
            "etcd":{"external":{"endpoints":["https://a:2379"],"caFile":"/etc/etcd/ca.crt","certFile":"","keyFile":"a.key"}},
            "apiServer":{"extraArgs":[{"name":"audit-webhook-config-file","value":"/etc/kubernetes/controller-manager.conf"},
                {"name":"tls-sni-cert-key","value":"/etc/kubernetes/pki/a.crt,/etc/a.key:a.example"},
                {"name":"client-ca-file","value":"/etc/pki/ca.pem"},{"name":"tracing-config-file","value":"/etc/etcd2/a"}]},
            "controllerManager":{"extraArgs":[{"name":"kubeconfig","value":"/etc/kubernetes/scheduler.conf"}]}}}}}"#,
        &[
            (FILE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[0].value"),
            (FILE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[2].value"),
            (FILE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[1].value"),
            (FILE, "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[3].value"),
            (FILE, "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "rejects_files_without_a_volume_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"tracing-config-file","value":"/etc/tracing.yaml"}]},
            "controllerManager":{"extraArgs":[{"name":"root-ca-file","value":"/etc/root.crt"}]}}}}}}}"#,
        &[
            (FILE, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[0].value"),
            (FILE, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value"),
        ],
    )
    .only_in_version(V1BETA2),
];
