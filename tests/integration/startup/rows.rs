//! Flags of the programs, and what the programs and the rules say about them.

const FLAG: &str = "component-flag-unknown";
const VALUE: &str = "component-flag-value-refused";
const CONFLICT: &str = "component-flags-conflict";
const GATE: &str = "feature-gate-unknown";
const GATE_VALUE: &str = "feature-gate-value-refused";
const PLUGIN: &str = "admission-plugin-unknown";
const API: &str = "runtime-config-unknown";
const LABEL: &str = "kubelet-label-refused";

/// Flags, and the rule that denies them with a part of what the program says before it exits. None: the program accepts them.
pub(super) type Row = (&'static [&'static str], Option<(&'static str, &'static str)>);

/// Without a server for etcd, kube-apiserver validates its flags and exits.
pub(super) const API_SERVER: &[Row] = &[
    (
        &["cloud-provider=external"],
        Some((FLAG, "unknown flag: --cloud-provider")),
    ),
    (&["profilling=false"], Some((FLAG, "unknown flag: --profilling"))),
    (&["enable_admission_plugins=PodSecurity"], None),
    (&["event-ttl=60"], Some((VALUE, "missing unit"))),
    (&["event-ttl=1h30m"], None),
    (&["event-ttl=5µs"], None),
    (&["max-requests-inflight=400m"], Some((VALUE, "strconv.ParseInt"))),
    (&["max-requests-inflight=0x190"], None),
    (&["max-requests-inflight=1_000"], None),
    (&["max-requests-inflight=1__0"], Some((VALUE, "strconv.ParseInt"))),
    (&["audit-log-maxage=08"], Some((VALUE, "strconv.ParseInt"))),
    (
        &["max-requests-inflight=99999999999999999999"],
        Some((VALUE, "out of range")),
    ),
    (&["max-requests-inflight="], Some((VALUE, "strconv.ParseInt"))),
    (&["profiling=off"], Some((VALUE, "strconv.ParseBool"))),
    (&["profiling=F"], None),
    (&["goaway-chance=1%"], Some((VALUE, "strconv.ParseFloat"))),
    (&["goaway-chance=.01"], None),
    (&["bind-address=all"], Some((VALUE, "failed to parse IP"))),
    (&["bind-address=::", "service-cluster-ip-range=fd00::/112"], None),
    (
        &["feature-gates=NoSuchGate=true"],
        Some((GATE, "unrecognized feature gate: NoSuchGate")),
    ),
    (
        &["feature-gates=InTreePluginvSphereUnregister=true"],
        Some((GATE, "unrecognized feature gate")),
    ),
    (
        &["feature-gates=WatchList=maybe"],
        Some((GATE_VALUE, "invalid value of WatchList")),
    ),
    (
        &["feature-gates=NodeSwap=false"],
        Some((GATE_VALUE, "cannot set feature gate NodeSwap to false")),
    ),
    (&["feature-gates=NodeSwap=true, WatchList = false"], None),
    (&["feature-gates=kube:WatchList=true"], None),
    (
        &["feature-gates=kube:WatchList=true,NodeSwap=true"],
        Some((GATE, "do not mix use")),
    ),
    (
        &["enable-admission-plugins=PodSecurityPolicy"],
        Some((PLUGIN, r#"PodSecurityPolicy\" is unknown"#)),
    ),
    (
        &["enable-admission-plugins=NodeRestriction, PodSecurity"],
        Some((PLUGIN, r#" PodSecurity\" is unknown"#)),
    ),
    (
        &["enable-admission-plugins=NodeRestriction,\"PodSecurity\""],
        None,
    ),
    (
        &[
            "disable-admission-plugins=PodSecurity",
            "enable-admission-plugins=PodSecurity",
        ],
        Some((CONFLICT, "overlapped")),
    ),
    (
        &["runtime-config=batch=true"],
        Some((API, "runtime-config invalid key batch")),
    ),
    (
        &["runtime-config=a.example/v1=true"],
        Some((API, "unknown api groups a.example/v1")),
    ),
    (&["runtime-config=v1=true,api/legacy=true,batch/v1"], None),
    (&["runtime-config=api/all=false,api/ga=true"], None),
    (
        &["runtime-config=api/all=false,flowcontrol.apiserver.k8s.io/v1=true"],
        None,
    ),
    (
        &["runtime-config=api/ga=false"],
        Some((CONFLICT, "conflicts with --enable-priority-and-fairness")),
    ),
    (
        &[
            "runtime-config=api/ga=false",
            "enable-priority-and-fairness=false",
        ],
        None,
    ),
    (
        &["--profiling=false"],
        Some((FLAG, "bad flag syntax: ----profiling")),
    ),
    (
        &["feature-gates=GangScheduling=true"],
        Some((
            GATE_VALUE,
            "depends on features that are disabled: [GenericWorkload]",
        )),
    ),
    (&["feature-gates=GangScheduling=true,GenericWorkload=true"], None),
    (&["feature-gates=GangScheduling=true,AllAlpha=true"], None),
    (
        &["feature-gates=ContainerRestartRules=false"],
        Some((GATE_VALUE, "RestartAllContainersOnContainerExits is enabled")),
    ),
    (
        &["feature-gates=ContainerRestartRules=false,RestartAllContainersOnContainerExits=false"],
        None,
    ),
    (&["feature-gates=AllAlpha=true"], None),
    (&["feature-gates=AllBeta=false"], None),
    (
        &["feature-gates=NodeSwap=false", "emulated-version=1.34"],
        Some((GATE_VALUE, "cannot set feature gate NodeSwap to false")),
    ),
    (&["feature-gates=NodeSwap=false", "emulated-version=1.33"], None),
    (
        &["feature-gates=WorkloadWithJob=true", "emulated-version=1.34"],
        Some((GATE, "feature is PreAlpha at emulated version 1.34")),
    ),
    (
        &[
            "feature-gates=ClusterTrustBundleProjection=true",
            "emulated-version=kube=1.34",
        ],
        Some((
            GATE_VALUE,
            "depends on features that are disabled: [ClusterTrustBundle]",
        )),
    ),
    (
        &["emulated-version=1.32"],
        Some((VALUE, "is not between [1.33, 1.36.0]")),
    ),
    (
        &["emulated-version=1.34.2"],
        Some((VALUE, "patch version not allowed")),
    ),
    (&["emulated-version=v1.33"], None),
    (&["emulated-version="], None),
    (&["logging-format=JSON"], Some((VALUE, "Unsupported log format"))),
    (&["v=debug"], Some((VALUE, "strconv.ParseUint"))),
    (&["v=0x4"], Some((VALUE, "strconv.ParseUint"))),
    (&["v=08"], None),
    (
        &["vmodule=a"],
        Some((VALUE, "does not have the pattern=N format")),
    ),
    (&["vmodule=a=2,,b=3"], None),
    (&["secure-port=0"], Some((VALUE, "must be between 1 and 65535"))),
    (
        &["goaway-chance=0.03"],
        Some((VALUE, "can not be less than 0 or greater than 0.02")),
    ),
    (&["goaway-chance=0.02"], None),
    (
        &["max-requests-inflight=-1"],
        Some((VALUE, "can not be negative")),
    ),
    (&["max-requests-inflight=-0"], None),
    (&["request-timeout=-0.5s"], Some((VALUE, "can not be negative"))),
    (&["livez-grace-period=-0s"], None),
    (
        &["apiserver-count=0"],
        Some((VALUE, "should be a positive number")),
    ),
    (
        &["kubernetes-service-node-port=70000"],
        Some((VALUE, "must be between 0 and 65535")),
    ),
    (
        &["storage-media-type=application/xml"],
        Some((VALUE, "invalid, allowed values")),
    ),
    (&["storage-media-type="], None),
    (
        &["watch-cache-sizes=pods"],
        Some((VALUE, "invalid value of watch cache size")),
    ),
    (&["watch-cache-sizes=pods#10,nodes#08"], None),
    (
        &["watch-cache-sizes=pods#0x10"],
        Some((VALUE, "invalid size of watch cache size")),
    ),
    (
        &["strict-transport-security-directives=includesubdomains"],
        Some((VALUE, "invalid, allowed values")),
    ),
    (&["strict-transport-security-directives=max-age=x,preload"], None),
    (
        &["cors-allowed-origins=.*"],
        Some((VALUE, "does not pin to start/end of host")),
    ),
    (&["cors-allowed-origins=//a.example:"], None),
    (
        &["audit-log-mode=async", "audit-log-path=-"],
        Some((VALUE, "invalid audit log mode")),
    ),
    (&["audit-log-mode=async"], None),
    (
        &["audit-log-maxage=-1", "audit-log-path=-"],
        Some((VALUE, "can't be a negative number")),
    ),
    (&["audit-log-maxage=-1"], None),
    (
        &["audit-log-version=audit.k8s.io/v1beta1", "audit-log-path=-"],
        Some((VALUE, "invalid group version")),
    ),
    (
        &["service-node-port-range=32767-30000"],
        Some((VALUE, "end port cannot be less")),
    ),
    (
        &["service-node-port-range=65000+1000"],
        Some((VALUE, "cannot be greater than 65535")),
    ),
    (&["service-node-port-range=30000+100"], None),
    (&["service-node-port-range=30000"], None),
    (
        &["service-account-issuer=::"],
        Some((VALUE, "was not a valid URL")),
    ),
    (&["service-account-issuer=/a:b"], None),
    (
        &["service-account-max-token-expiration=1m"],
        Some((VALUE, "must be between 1 hour and 2^32 seconds")),
    ),
    (&["service-account-max-token-expiration=0"], None),
    (
        &["service-cluster-ip-range=10.0.0.0/30"],
        Some((VALUE, "at least 8 IP addresses")),
    ),
    (&["service-cluster-ip-range=10.0.0.0/29,fd00::/64"], None),
    (&["service-cluster-ip-range=010.96.0.0/16"], None),
    (
        &["service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16"],
        Some((VALUE, "must be of different IP family")),
    ),
    (
        &["tls-sni-cert-key=a"],
        Some((VALUE, "expected comma separated certificate and key")),
    ),
    (
        &["oidc-issuer-url=https://a.example"],
        Some((CONFLICT, "must be specified together")),
    ),
    (
        &["oidc-username-claim=a"],
        Some((CONFLICT, "must be specified together")),
    ),
    (&["oidc-issuer-url=https://a.example", "oidc-client-id=a"], None),
    (
        &["authorization-mode=RBAC,RBAC"],
        Some((CONFLICT, "has mode specified more than once")),
    ),
    (
        &["authorization-mode=Webhook"],
        Some((CONFLICT, "authorization config file not passed")),
    ),
    (
        &[
            "authorization-mode=RBAC",
            "authorization-policy-file=/etc/kubernetes/pki/a",
        ],
        Some((
            CONFLICT,
            "cannot specify --authorization-policy-file without mode ABAC",
        )),
    ),
    (
        &[
            "authorization-mode=Webhook",
            "authorization-webhook-config-file=/etc/kubernetes/pki/a",
        ],
        None,
    ),
    (
        &["encryption-provider-config-automatic-reload=true"],
        Some((CONFLICT, "must be set with --encryption-provider-config")),
    ),
    (&["encryption-provider-config-automatic-reload=false"], None),
    (
        &["storage-backend=etcd2"],
        Some((VALUE, "--storage-backend invalid")),
    ),
    (
        &["storage-initialization-timeout=-1s"],
        Some((VALUE, "can not be negative value")),
    ),
    (
        &["shutdown-watch-termination-grace-period=-1s"],
        Some((VALUE, "can not be a negative value")),
    ),
    (
        &["service-account-jwks-uri=http://a.example/keys"],
        Some((VALUE, "requires https scheme")),
    ),
    (
        &["service-account-max-token-expiration=1ms"],
        Some((VALUE, "must be between 1 hour and 2^32 seconds")),
    ),
    (&["service-account-max-token-expiration=0"], None),
    (
        &["oidc-groups-prefix=a"],
        Some((CONFLICT, "must be specified together")),
    ),
    (
        &["log-flush-frequency=0s"],
        Some((VALUE, "Must be greater than zero")),
    ),
    (&["log-flush-frequency=1ms"], None),
    (
        &["log-json-info-buffer-size=1MB"],
        Some((VALUE, "quantities must match the regular expression")),
    ),
    (&["allow-metric-labels=m1,l1=v1,v2"], None),
    (
        &["allow-metric-labels=a"],
        Some((VALUE, "must be formatted as key=value")),
    ),
];

/// Without a kubeconfig, kube-controller-manager validates its flags and exits.
pub(super) const CONTROLLER_MANAGER: &[Row] = &[
    (
        &["pod-eviction-timeout=2m"],
        Some((FLAG, "unknown flag: --pod-eviction-timeout")),
    ),
    (&["cloud-provider=external"], None),
    (&["node-monitor-grace-period=1d"], Some((VALUE, "unknown unit"))),
    (&["concurrent-gc-syncs=2147483648"], Some((VALUE, "out of range"))),
    (&["concurrent-gc-syncs=30"], None),
    (&["kube-api-qps=1e2"], None),
    (
        &["feature-gates=DisableCloudProviders=false"],
        Some((GATE, "unrecognized feature gate")),
    ),
    (&["feature-gates=AllBeta=false"], None),
    (
        &["feature-gates=GangScheduling=true"],
        Some((
            GATE_VALUE,
            "depends on features that are disabled: [GenericWorkload]",
        )),
    ),
    (
        &["secure-port=70000"],
        Some((VALUE, "must be between 1 and 65535")),
    ),
    (&["secure-port=0"], None),
    (&["concurrent-deployment-syncs=0"], None),
    (
        &["show-hidden-metrics-for-version=1.34"],
        Some((VALUE, "must be omitted or have the value '1.35'")),
    ),
    (&["show-hidden-metrics-for-version=1.35"], None),
    (&["cidr-allocator-type="], None),
    (
        &["concurrent-job-syncs=0"],
        Some((VALUE, "must be greater than 0")),
    ),
    (
        &["concurrent-daemonset-syncs=-1"],
        Some((VALUE, "must be greater than 0")),
    ),
    (
        &["concurrent-resourceclaim-syncs=0"],
        Some((VALUE, "must be larger than 0")),
    ),
    (
        &["concurrent-service-endpoint-syncs=51"],
        Some((VALUE, "must not be more than 50")),
    ),
    (&["concurrent-service-endpoint-syncs=50"], None),
    (
        &["max-endpoints-per-slice=1001"],
        Some((VALUE, "must not be more than 1000")),
    ),
    (&["max-endpoints-per-slice=1000"], None),
    (
        &["attach-detach-reconcile-sync-period=999ms"],
        Some((VALUE, "must be greater than one second")),
    ),
    (&["attach-detach-reconcile-sync-period=1s"], None),
    (
        &["cidr-allocator-type=CloudAllocator"],
        Some((VALUE, "is not available")),
    ),
    (&["cidr-allocator-type=RangeAllocator"], None),
    (
        &["cluster-signing-legacy-unknown-cert-file=/a"],
        Some((CONFLICT, "cannot specify cert without key")),
    ),
    (
        &["cluster-signing-kubelet-client-key-file=/a"],
        Some((CONFLICT, "cannot specify key without cert")),
    ),
];

/// Without a kubeconfig, kube-scheduler validates its flags and exits.
pub(super) const SCHEDULER: &[Row] = &[
    (&["kube-api-burst=many"], Some((VALUE, "strconv.ParseInt"))),
    (
        &["feature-gates=GangScheduling=true"],
        Some((
            GATE_VALUE,
            "depends on features that are disabled: [GenericWorkload]",
        )),
    ),
    (
        &["secure-port=70000"],
        Some((VALUE, "must be between 1 and 65535")),
    ),
    (&["secure-port=0"], None),
];

/// Without a kubeconfig, the kubelet validates its flags and exits.
pub(super) const KUBELET: &[Row] = &[
    (
        &["container-runtime=remote"],
        Some((FLAG, "unknown flag: --container-runtime")),
    ),
    (
        &["feature-gates=GangScheduling=true"],
        Some((
            GATE_VALUE,
            "depends on features that are disabled: [GenericWorkload]",
        )),
    ),
    (
        &["feature-gates=NoSuchGate=true"],
        Some((GATE, "unrecognized feature gate: NoSuchGate")),
    ),
    (&["node-labels=a=-b"], Some((VALUE, "invalid node labels"))),
    (
        &["node-labels=a.example/b/c=d"],
        Some((VALUE, "invalid node labels")),
    ),
    (
        &["node-labels=kubernetes.io/a=b"],
        Some((LABEL, "unknown 'kubernetes.io' or 'k8s.io' labels")),
    ),
    (&["node-labels=a,b=,,c=d"], None),
    (
        &["register-with-taints=a=b:NoSchedul"],
        Some((VALUE, "invalid taint effect")),
    ),
    (&["register-with-taints=a"], Some((VALUE, "invalid taint spec"))),
    (&["register-with-taints=a:NoSchedule,b=c:NoExecute"], None),
    (&["register-with-taints=a:NoSchedule-"], None),
    (
        &["register-with-taints=a:NoSchedule, b:NoExecute"],
        Some((VALUE, "invalid taint spec")),
    ),
    (
        &["register-with-taints=a:NoSchedule,a=b:NoSchedule"],
        Some((VALUE, "duplicated taints")),
    ),
    (
        &["eviction-hard=memory.available=100Mi"],
        Some((VALUE, "malformed pair")),
    ),
    (
        &["eviction-hard=memory.available < 100Mi,nodefs.available<10%"],
        None,
    ),
    (&["system-reserved=cpu"], Some((VALUE, "malformed pair"))),
    (&["system-reserved=cpu=100m,,memory=1Gi"], None),
    (&["topology-manager-policy=all"], Some((VALUE, "must be one of"))),
    (&["topology-manager-policy=restricted"], None),
    (&["topology-manager-scope="], Some((VALUE, "must be one of"))),
    (&["hairpin-mode=on"], Some((VALUE, "Valid options are"))),
    (&["max-pods=-1"], Some((VALUE, "must not be a negative number"))),
    (&["max-pods=0"], None),
    (&["healthz-port=-1"], Some((VALUE, "must be between 1 and 65535"))),
    (&["healthz-port=0"], None),
    (
        &["container-log-max-files=1"],
        Some((VALUE, "must be greater than 1")),
    ),
    (
        &["image-gc-high-threshold=101"],
        Some((VALUE, "must be between 0 and 100")),
    ),
    (&["image-gc-high-threshold=100"], None),
    (
        &["oom-score-adj=-1001"],
        Some((VALUE, "must be between -1000 and 1000")),
    ),
    (
        &["tls-min-version=VersionTLS14"],
        Some((VALUE, "unknown tls version")),
    ),
    (&["tls-min-version="], None),
    (
        &["tls-cipher-suites=ECDHE-RSA-AES128-GCM-SHA256"],
        Some((VALUE, "not supported or doesn't exist")),
    ),
    (
        &["tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA,TLS_AES_128_GCM_SHA256"],
        None,
    ),
    (&["logging-format="], Some((VALUE, "Unsupported log format"))),
    (&["cgroup-driver=none"], None),
    (
        &["container-runtime-endpoint="],
        Some((VALUE, "was not specified or empty")),
    ),
    (
        &["cpu-cfs-quota-period=2s"],
        Some((VALUE, "must be between 1ms and 1sec")),
    ),
    (
        &["enforce-node-allocatable=pods,system"],
        Some((VALUE, "Valid options are")),
    ),
    (&["enforce-node-allocatable=pods"], None),
    (
        &["max-open-files=-1"],
        Some((VALUE, "must not be a negative number")),
    ),
    (
        &["minimum-image-ttl-duration=-1s"],
        Some((VALUE, "must not be negative")),
    ),
    (&["port=0"], Some((VALUE, "must be between 1 and 65535"))),
    (
        &["reserved-cpus=0-x"],
        Some((VALUE, "unable to parse reservedSystemCPUs")),
    ),
    (&["reserved-cpus=0-1,3"], None),
    (
        &["eviction-minimum-reclaim=memory.available"],
        Some((VALUE, "malformed pair")),
    ),
    (&["eviction-minimum-reclaim=memory.available=1Gi,,"], None),
    (
        &["image-gc-high-threshold=80"],
        Some((CONFLICT, "must be less than imageGCHighThresholdPercent")),
    ),
    (&["image-gc-high-threshold=80", "image-gc-low-threshold=79"], None),
    (
        &["system-cgroups=/system"],
        Some((CONFLICT, "was specified and cgroupRoot")),
    ),
];

/// etcd cannot listen at this address, which is for documentation only (RFC 5737), and exits.
pub(super) const ETCD: &[Row] = &[
    (
        &["enable-v2=false"],
        Some((FLAG, "flag provided but not defined: -enable-v2")),
    ),
    (
        &["listen_metrics_urls=http://127.0.0.1:1"],
        Some((FLAG, "flag provided but not defined")),
    ),
    (&["v2-deprecation=not-yet"], Some((VALUE, "invalid value"))),
    (&["v2-deprecation=write-only"], None),
    (&["pre-vote=yes"], Some((VALUE, "invalid boolean value"))),
    (
        &["feature-gates=InitialCorruptCheck=maybe"],
        Some((GATE_VALUE, "invalid value of InitialCorruptCheck")),
    ),
    (
        &["feature-gates=FastLeaseKeepAlive=true"],
        Some((GATE, "unrecognized feature gate")),
    ),
    (
        &[
            "experimental-compaction-batch-limit=9",
            "compaction-batch-limit=9",
        ],
        Some((CONFLICT, "at the same time")),
    ),
    (&["experimental-compaction-batch-limit=9"], None),
    (
        &[
            "experimental-enable-lease-checkpoint=true",
            "feature-gates=LeaseCheckpoint=true",
        ],
        Some((CONFLICT, "at the same time")),
    ),
    (
        &[
            "experimental-initial-corrupt-check=true",
            "feature-gates=CompactHashCheck=true",
        ],
        None,
    ),
    (&["v2-deprecation=write-only,gone"], None),
    (&["initial-cluster-state=New"], Some((VALUE, "invalid value"))),
    (&["initial-cluster-state=existing"], None),
    (&["quota-backend-bytes=8GB"], Some((VALUE, "invalid value"))),
    (&["quota-backend-bytes=-1"], None),
    (&["snapshot-count=-1"], Some((VALUE, "invalid value"))),
    (&["snapshot-count=10_000"], None),
    (
        &["max-concurrent-streams=4294967296"],
        Some((VALUE, "value out of range")),
    ),
    (&["grpc-keepalive-interval=10"], Some((VALUE, "invalid value"))),
    (&["backend-batch-limit=-5"], None),
    (&["cluster-active-size=many"], None),
    (
        &["listen-metrics-urls=http://127.0.0.1"],
        Some((VALUE, "host:port")),
    ),
    (
        &["listen-metrics-urls=127.0.0.1:2381"],
        Some((VALUE, "first path segment")),
    ),
    (
        &["listen-metrics-urls=http://127.0.0.1:2381/"],
        Some((VALUE, "must not contain a path")),
    ),
    (
        &["listen-metrics-urls=http://node:2381"],
        Some((VALUE, "expected IP in URL for binding")),
    ),
    (
        &["listen-metrics-urls=http://localhost:2381,http://[::1]:2381"],
        None,
    ),
    (&["listen-metrics-urls="], None),
    (&["cors=*"], None),
    (
        &["heartbeat-interval=500"],
        Some((CONFLICT, "should be at least as 5 times")),
    ),
    (&["heartbeat-interval=200"], None),
    (&["election-timeout=60000"], Some((VALUE, "is too long"))),
    (
        &["auto-compaction-mode=always"],
        Some((VALUE, "unknown auto-compaction-mode")),
    ),
    (
        &["auto-compaction-mode=revision", "auto-compaction-retention=8h"],
        None,
    ),
    (&["auto-compaction-retention=08"], None),
    (
        &["auto-compaction-retention=0x10"],
        Some((VALUE, "auto-compaction-retention")),
    ),
    (&["log-format="], None),
    (&["log-level=trace"], Some((VALUE, "unrecognized level"))),
    (&["log-level=Debug"], None),
    (
        &["logger=capnslog"],
        Some((VALUE, "--logger=capnslog is removed")),
    ),
    (&["log-format=xml"], Some((VALUE, "unknown log format"))),
    (
        &["tls-min-version=VersionTLS12"],
        Some((VALUE, "unexpected TLS version")),
    ),
    (&["tls-min-version=TLS1.2"], None),
    (
        &["cipher-suites=TLS_FOO"],
        Some((VALUE, "unexpected TLS cipher suite")),
    ),
    (
        &["feature-gates=LeaseCheckpointPersist=true"],
        Some((GATE_VALUE, "requires enabling feature gate LeaseCheckpoint")),
    ),
    (&["feature-gates=AllAlpha=true"], None),
    (
        &["auto-compaction-mode="],
        Some((VALUE, "undefined auto-compaction-mode")),
    ),
    (&["compact-hash-check-time=0s"], Some((VALUE, "must be >0"))),
];
