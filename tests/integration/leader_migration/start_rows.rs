//! The start-up table of leader migration: rows on real programs.

use kcp_tests::controller_manager::Program::{self, Cloud, Kube};

use super::start_files::{
    BOOLEAN_NAME, DUPLICATE, EMPTY_NAME, ENDPOINTS, INCOMPLETE, INVALID_LEASE, LEASES_IN_BETA, LOCK_IN_V1,
    MAIN_LOCK_OF_KUBE, NO_CONTROLLERS, NO_LOCK_IN_BETA, NO_NAME, OTHER_KIND, TWO_DOCUMENTS, UNQUOTED_STAR,
    VALID, WRONG_CASE,
};

/// A start of a program.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) program: Program,
    /// Flags after those of every controller manager.
    pub(super) flags: &'static str,
    /// The configuration file.
    pub(super) file: Option<&'static str>,
    /// The start of a flag that is left out.
    pub(super) without: &'static str,
    pub(super) expected: Expected,
    /// Why the model says something else than the program does.
    pub(super) differs: &'static str,
}

#[derive(Clone, Copy)]
pub(super) enum Expected {
    /// It is healthy and runs exactly these controllers.
    Runs(&'static [&'static str]),
    /// It exits with this code, and an error contains this text.
    Exits(i32, &'static str),
}

pub(super) const fn row(
    name: &'static str,
    program: Program,
    flags: &'static str,
    expected: Expected,
) -> Row {
    Row {
        name,
        program,
        flags,
        file: None,
        without: "",
        expected,
        differs: "",
    }
}

/// A row with leader migration and a configuration file.
const fn file(name: &'static str, program: Program, file: &'static str, expected: Expected) -> Row {
    Row {
        file: Some(file),
        ..row(name, program, ENABLE, expected)
    }
}

pub(super) const ENABLE: &str = "--enable-leader-migration";

pub(super) const fn exits(message: &'static str) -> Expected {
    Expected::Exits(1, message)
}

/// What kube-controller-manager runs with the flags of every row.
pub(super) const KUBE_RUNS: Expected =
    Expected::Runs(&["serviceaccount-token-controller", "node-ipam-controller"]);
/// What it runs without the controllers that migrate.
pub(super) const KUBE_ORPHANS: Expected = Expected::Runs(&["serviceaccount-token-controller"]);
const CLOUD_RUNS: Expected = Expected::Runs(&[
    "cloud-node-controller",
    "cloud-node-lifecycle-controller",
    "node-ipam-controller",
    "node-route-controller",
    "service-lb-controller",
]);
const CLOUD_ORPHANS: Expected = Expected::Runs(&["cloud-node-controller"]);

/// kube-controller-manager 1.36 registers the name of its informers once for each lock.
const CRASH: Expected = Expected::Exits(1, "is already registered");

pub(super) const ROWS: &[Row] = &[
    row("without leader migration", Kube, "", KUBE_RUNS),
    row("default configuration", Kube, ENABLE, CRASH),
    row(
        "an underscore in a flag",
        Kube,
        "--enable_leader_migration=true",
        CRASH,
    ),
    row(
        "emulated 1.35",
        Kube,
        "--emulated-version=1.35 --enable-leader-migration",
        CRASH,
    ),
    file("valid configuration", Kube, VALID, CRASH),
    file("valid beta configuration", Kube, LEASES_IN_BETA, CRASH),
    file("no controllers", Kube, NO_CONTROLLERS, CRASH),
    file("a second document", Kube, TWO_DOCUMENTS, CRASH),
    file("the main lock as migration lock", Kube, MAIN_LOCK_OF_KUBE, CRASH),
    Row {
        differs: "the program exits when it takes the migration lock, and no Lease can have its name",
        ..file("a name that no Lease can have", Kube, INVALID_LEASE, KUBE_ORPHANS)
    },
    row(
        "configuration without enable",
        Kube,
        "--leader-migration-config=/missing",
        KUBE_RUNS,
    ),
    row(
        "without leader election",
        Kube,
        "--enable-leader-migration --leader-elect=false",
        KUBE_RUNS,
    ),
    row(
        "no such file",
        Kube,
        NO_FILE,
        exits("unable to read leader migration configuration"),
    ),
    row(
        "not a boolean",
        Kube,
        "--enable-leader-migration=yes",
        exits("parsing \"yes\": invalid syntax"),
    ),
    Row {
        without: "--service-account-private-key-file",
        ..row(
            "no key for tokens",
            Kube,
            ENABLE,
            Expected::Exits(2, "nil pointer dereference"),
        )
    },
    Row {
        without: "--service-account-private-key-file",
        ..row(
            "no key for tokens and no leader migration",
            Kube,
            "",
            Expected::Runs(&["node-ipam-controller"]),
        )
    },
    file(
        "resourceLock in v1",
        Kube,
        LOCK_IN_V1,
        exits("unknown field \\\"resourceLock\\\""),
    ),
    file(
        "an unquoted star",
        Kube,
        UNQUOTED_STAR,
        exits("did not find expected alphabetic"),
    ),
    file(
        "no leader name",
        Kube,
        NO_NAME,
        exits("leaderName: Required value"),
    ),
    file(
        "an empty leader name",
        Kube,
        EMPTY_NAME,
        exits("leaderName: Required value"),
    ),
    file(
        "a boolean of YAML 1.1 as leader name",
        Kube,
        BOOLEAN_NAME,
        exits("cannot unmarshal bool"),
    ),
    file(
        "a field in the wrong case",
        Kube,
        WRONG_CASE,
        exits("unknown field \\\"leadername\\\""),
    ),
    file("a duplicate field", Kube, DUPLICATE, exits("already set in map")),
    file(
        "no resourceLock in v1beta1",
        Kube,
        NO_LOCK_IN_BETA,
        exits("resourceLock: Invalid value"),
    ),
    file(
        "resourceLock endpoints",
        Kube,
        ENDPOINTS,
        exits("endpoints lock is removed"),
    ),
    file(
        "an incomplete entry",
        Kube,
        INCOMPLETE,
        exits("controllerLeaders[1].name: Required value"),
    ),
    file(
        "another kind",
        Kube,
        OTHER_KIND,
        exits("no kind \\\"KubeletConfiguration\\\" is registered"),
    ),
    row(
        "the feature gate",
        Kube,
        GATE,
        exits("unrecognized feature gate: ControllerManagerLeaderMigration"),
    ),
    row(
        "the feature gate of in-tree clouds",
        Kube,
        "--feature-gates=DisableCloudProviders=false",
        exits("unrecognized feature gate: DisableCloudProviders"),
    ),
    row(
        "endpoints as main lock",
        Kube,
        LOCK,
        exits("resourceLock value must be"),
    ),
    row(
        "endpoints as main lock without leader election",
        Kube,
        "--leader-elect-resource-lock=endpoints --leader-elect=false",
        KUBE_RUNS,
    ),
    row(
        "two dashes before the name of a controller",
        Kube,
        "--controllers=--nodeipam",
        exits("is not in the list of known controllers"),
    ),
    row(
        "an empty name of a controller",
        Kube,
        "--controllers=-route,,-service",
        exits("is not in the list of known controllers"),
    ),
    row("an empty list of controllers", Kube, "--controllers=", KUBE_RUNS),
    row(
        "an unknown controller",
        Kube,
        "--controllers=-routes",
        exits("is not in the list of known controllers"),
    ),
    row(
        "the names of cloud loops",
        Kube,
        "--controllers=-route,-service-lb-controller",
        KUBE_RUNS,
    ),
    row(
        "an in-tree cloud",
        Kube,
        "--cloud-provider=aws",
        exits("built-in cloud providers are disabled"),
    ),
    row("an external cloud", Kube, "--cloud-provider=external", KUBE_RUNS),
    row(
        "a flag for the service controller",
        Kube,
        "--concurrent-service-syncs=2",
        KUBE_RUNS,
    ),
    row("without leader migration", Cloud, "", CLOUD_RUNS),
    row("default configuration", Cloud, ENABLE, CLOUD_RUNS),
    file("valid configuration", Cloud, VALID, CLOUD_RUNS),
    file("valid beta configuration", Cloud, LEASES_IN_BETA, CLOUD_RUNS),
    file("no controllers", Cloud, NO_CONTROLLERS, CLOUD_RUNS),
    file("a second document", Cloud, TWO_DOCUMENTS, CLOUD_RUNS),
    file(
        "the main lock of another component as migration lock",
        Cloud,
        MAIN_LOCK_OF_KUBE,
        CLOUD_RUNS,
    ),
    file(
        "a name that no Lease can have",
        Cloud,
        INVALID_LEASE,
        CLOUD_ORPHANS,
    ),
    row(
        "configuration without enable",
        Cloud,
        "--leader-migration-config=/missing",
        CLOUD_RUNS,
    ),
    row(
        "without leader election",
        Cloud,
        "--enable-leader-migration --leader-elect=false",
        CLOUD_RUNS,
    ),
    Row {
        flags: "--enable-leader-migration --leader-elect=false",
        ..file(
            "invalid configuration without leader election",
            Cloud,
            UNQUOTED_STAR,
            exits("did not find expected alphabetic"),
        )
    },
    row(
        "no such file",
        Cloud,
        NO_FILE,
        exits("unable to read leader migration configuration"),
    ),
    file(
        "resourceLock in v1",
        Cloud,
        LOCK_IN_V1,
        exits("unknown field \\\"resourceLock\\\""),
    ),
    file(
        "no leader name",
        Cloud,
        NO_NAME,
        exits("leaderName: Required value"),
    ),
    file(
        "no resourceLock in v1beta1",
        Cloud,
        NO_LOCK_IN_BETA,
        exits("resourceLock: Invalid value"),
    ),
    file(
        "resourceLock endpoints",
        Cloud,
        ENDPOINTS,
        Expected::Exits(255, "endpoints lock is removed"),
    ),
    file(
        "an incomplete entry",
        Cloud,
        INCOMPLETE,
        exits("controllerLeaders[1].name: Required value"),
    ),
    row(
        "the feature gate",
        Cloud,
        GATE,
        exits("unrecognized feature gate: ControllerManagerLeaderMigration"),
    ),
    row(
        "endpoints as main lock",
        Cloud,
        LOCK,
        exits("resourceLock value must be"),
    ),
    Row {
        differs: "the model does not know the controllers of a cloud-controller-manager, which can have its own",
        ..row(
            "an unknown controller",
            Cloud,
            "--controllers=-routes",
            exits("is not in the list of known controllers"),
        )
    },
    Row {
        differs: "the model does not know the provider of a cloud-controller-manager",
        ..row(
            "another provider",
            Cloud,
            "--cloud-provider=aws",
            Expected::Exits(255, "unknown cloud provider"),
        )
    },
];

const NO_FILE: &str = "--enable-leader-migration --leader-migration-config=/missing";
pub(super) const GATE: &str = "--feature-gates=ControllerManagerLeaderMigration=true";
pub(super) const LOCK: &str = "--leader-elect-resource-lock=endpoints";
