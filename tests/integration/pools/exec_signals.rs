//! `pool exec` forwards signals to its command. A command that waits for an entry stops waiting, and leaves the queue.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use jiff::Timestamp;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::products;
use kcp_tests::wait::until;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::plugin::create_pool;
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "pool-signals";

/// Starts `pool` with the arguments, waits until it prints `$1`, and sends it TERM.
const TERMINATED: &str = r#"
    folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
    shown=$1 && shift && : > "$folder/out"
    kubectl kcp pool -n pool-signals "$@" > "$folder/out" 2>&1 &
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
fn signals_reach_the_command_and_end_a_wait() {
    with_management_cluster(async |management| {
        create_pool(management, NAMESPACE, "hosts", 1).await.unwrap();
        let script = "exec 2>/dev/null; trap 'echo ended; exit 4' TERM; echo up; while :; do sleep 0.1; done";
        let ended = terminated(management, "up", &["exec", "hosts", "--", "sh", "-c", script]).await;
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
        let ended = terminated(
            management,
            "waiting:",
            &["exec", "hosts", "--wait", "--", "echo", "ran"],
        )
        .await;
        assert_eq!(ended.code, 143, "{ended}");
        let waiting =
            "waiting: pool pool-signals/hosts has no free entry (1 in total): 1 held: host-0 by rome until ";
        assert!(ended.stdout.starts_with(waiting), "{ended}");
        let events = "\ninterrupted before the command started\n";
        assert!(ended.stdout.ends_with(events), "{ended}");
        assert_eq!(holder(management).await, "rome");

        let lease = ["lease", "hosts", "--cluster-deployment", "paris", "--wait"];
        let ended = terminated(management, "in the queue", &lease).await;
        assert_eq!(ended.code, 130, "{ended}");
        let note = "\ninterrupted: a lease may have been acquired; release it with: kubectl kcp pool release hosts \
                    --cluster-deployment paris -n pool-signals\n";
        assert!(ended.stdout.ends_with(note), "{ended}");
        assert_eq!(holder(management).await, "rome");
        let annotations = "-o=jsonpath={.metadata.annotations}";
        let get = [
            "get",
            "leases",
            "kubectl-kcp-queue-hosts",
            "-n",
            NAMESPACE,
            annotations,
        ];
        // The command with a generated name has left the queue. The other one has a place that has ended, at which it may continue.
        let annotations = management.kubectl().succeed(get).await.unwrap().stdout;
        let annotations: BTreeMap<String, String> = serde_json::from_str(&annotations).unwrap();
        let places: Vec<Value> = annotations
            .values()
            .map(|place| serde_json::from_str(place).unwrap())
            .collect();
        assert_eq!(places.len(), 1, "{places:?}");
        assert_eq!(places[0]["holder"], "paris");
        let until: Timestamp = places[0]["until"].as_str().unwrap().parse().unwrap();
        assert!(until <= Timestamp::now(), "{places:?}");
    });
}

#[test]
fn a_second_signal_ends_a_command_whose_request_gets_no_answer() {
    for (verb, more, code) in [
        ("lease", &["--no-cluster"][..], 130),
        ("exec", &["--", "true"], 143),
    ] {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = format!("http://{}", silent.local_addr().unwrap());
        let mut command = Command::new(products::under_test("kubectl-kcp").unwrap());
        command
            .args(["pool", verb, "hosts", "-n", NAMESPACE, "-s", &server])
            .args(["--request-timeout=1h", "--wait", "--cluster-deployment", "paris"])
            .args(more)
            .env("KUBECONFIG", "/dev/null")
            .stderr(Stdio::null());
        let child = RefCell::new(command.spawn().unwrap());
        let (mut connection, _) = silent.accept().unwrap();
        connection.read_exact(&mut [0]).unwrap();
        let id = child.borrow().id().to_string();
        let terminate = || {
            let sent = Command::new("kill").args(["-TERM", &id]).status();
            let ended = child.borrow_mut().try_wait();
            async move {
                sent?;
                ended?.context("it still runs")
            }
        };
        let ended = Runtime::new()
            .unwrap()
            .block_on(until("the command ends", terminate));
        assert_eq!(ended.unwrap().code(), Some(code), "{verb}");
    }
}
