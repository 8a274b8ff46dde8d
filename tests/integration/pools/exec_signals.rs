//! `pool exec` forwards signals to its command, and stops waiting for an entry.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;

use crate::plugin::create_pool;
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "pool-signals";

/// Starts exec with the arguments, waits until it prints `$1`, and sends it TERM.
const TERMINATED: &str = r#"
    folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
    shown=$1 && shift && : > "$folder/out"
    kubectl kcp pool exec -n pool-signals hosts "$@" > "$folder/out" 2>&1 &
    until grep -q "$shown" "$folder/out"; do kill -0 $! && sleep 0.1; done
    kill -TERM $! && wait $!
    code=$?
    cat "$folder/out"
    exit $code
"#;

async fn terminated(management: &ManagementCluster, shown: &str, arguments: &[&str]) -> CommandOutput {
    let script = ["-c", TERMINATED, "sh", shown];
    let script = script.iter().chain(arguments);
    management.kubectl().script("sh", script).await.unwrap()
}

async fn holder(management: &ManagementCluster) -> String {
    let name = "-o=jsonpath={.status.clusterDeploymentRef.name}";
    let get = ["get", "cdc", "host-0", "-n", NAMESPACE, name];
    management.kubectl().succeed(get).await.unwrap().stdout
}

#[test]
fn exec_forwards_signals_and_stops_waiting() {
    with_management_cluster(async |management| {
        create_pool(management, NAMESPACE, "hosts", 1).await.unwrap();
        let script = "exec 2>/dev/null; trap 'echo ended; exit 4' TERM; echo up; while :; do sleep 0.1; done";
        let ended = terminated(management, "up", &["--", "sh", "-c", script]).await;
        assert_eq!(ended.code, 4, "{ended}");
        assert!(ended.stdout.ends_with("\nup\nended\n"), "{ended}");
        assert_eq!(holder(management).await, "");

        let lease = [
            "kcp",
            "pool",
            "lease",
            "hosts",
            "-n",
            NAMESPACE,
            "--cluster-deployment",
            "rome",
        ];
        management.kubectl().succeed(lease).await.unwrap();
        let ended = terminated(management, "waiting:", &["--wait", "--", "echo", "ran"]).await;
        assert_eq!(ended.code, 143, "{ended}");
        let waiting =
            "waiting: pool pool-signals/hosts has no free entry (1 in total): 1 held: host-0 by rome until ";
        assert!(ended.stdout.starts_with(waiting), "{ended}");
        let events = "\ninterrupted before the command started\n";
        assert!(ended.stdout.ends_with(events), "{ended}");
        assert_eq!(holder(management).await, "rome");
    });
}
