//! Leases on the real API server, as scripts use them.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::fs;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::products;
use kcp_tests::wait::until;
use serde_json::{Value, json};

use crate::hosts::Hosts;
use crate::shared::with_management_cluster;

impl Hosts {
    /// Runs `kubectl kcp pool VERB hosts …`.
    async fn pool(&self, verb: &str, arguments: &[&str]) -> CommandOutput {
        self.run(&[&[verb, "hosts"], arguments].concat()).await
    }

    async fn lease(&self, name: &str, arguments: &[&str]) -> CommandOutput {
        let named = [&["--cluster-deployment", name], arguments].concat();
        self.pool("lease", &named).await
    }

    async fn release(&self, name: &str, arguments: &[&str]) -> CommandOutput {
        let named = [&["--cluster-deployment", name], arguments].concat();
        self.pool("release", &named).await
    }

    async fn own(&self, kind: &str, name: &str) -> Option<Value> {
        self.object(kind, name, self.namespace).await
    }

    /// The holder in the only customization's status.
    async fn holder(&self) -> Option<String> {
        self.holder_of("host-0").await
    }

    async fn recorded(&self) -> Option<Value> {
        self.own("lease", "kcp-pool-host-0").await
    }

    /// Waits until the only customization has this holder, or none.
    async fn until_held_by(&self, holder: Option<&str>) {
        until("the customization names its holder", || async {
            let named = self.holder().await;
            ensure!(named.as_deref() == holder, "{named:?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

fn document(ended: &CommandOutput) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended}"))
}

#[test]
fn a_lease_is_recorded_beside_its_customization() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-record", 1).await;
        let leased = hosts.lease("paris", &["--ttl", "90s", "-o", "json"]).await;
        assert_eq!(leased.code, 0, "{leased}");
        assert_eq!(document(&leased)["ttlSeconds"], 90);
        let record = hosts.recorded().await.unwrap();
        assert_eq!(record["spec"]["holderIdentity"], "paris");
        assert_eq!(record["spec"]["leaseDurationSeconds"], 90);
        assert_eq!(
            record["metadata"]["annotations"]["kubectl-kcp.dev/cluster-pool"],
            "hosts"
        );

        let again = hosts.lease("paris", &["-o", "json"]).await;
        assert_eq!(document(&again)["alreadyHeld"], true, "{again}");
        let renewed = hosts.recorded().await.unwrap();
        assert_eq!(renewed["spec"].get("leaseDurationSeconds"), None);
        assert_eq!(renewed["spec"]["acquireTime"], record["spec"]["acquireTime"]);

        let released = hosts.release("paris", &[]).await;
        assert_eq!(released.code, 0, "{released}");
        assert_eq!(hosts.recorded().await, None);
        assert_eq!(hosts.release("paris", &[]).await.code, 0);
    });
}

#[test]
fn a_waiting_lessee_gets_a_released_entry() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-wait", 1).await;
        assert_eq!(hosts.lease("paris", &[]).await.code, 0);
        let late = hosts.lease("rome", &["--wait=1s", "-o", "json"]).await;
        assert_eq!(late.code, 1, "{late}");
        assert_eq!(document(&late)["reason"], "timeout");
        assert!(late.stderr.contains("waiting: pool pool-wait/hosts"), "{late}");

        // The release comes after rome has reported that it waits.
        let script = r#"
            kubectl kcp pool lease hosts -n pool-wait --cluster-deployment rome --wait=2m -o env 2> "$1" &
            until grep -q waiting: "$1"; do kill -0 $! && sleep 0.1; done
            kubectl kcp pool release hosts -n pool-wait --cluster-deployment paris >&2
            wait $!
        "#;
        let said = hosts.kubectl.scratch_file("rome-waits");
        fs::write(&said, "").unwrap();
        let script = ["-c", script, "sh", &said.display().to_string()];
        let rome = hosts.kubectl.script("sh", script).await.unwrap();
        assert_eq!(rome.code, 0, "{rome}");
        let expected = "KCP_NAMESPACE=pool-wait\nKCP_POOL=hosts\nKCP_CLUSTER_DEPLOYMENT=rome\nKCP_CUSTOMIZATION=host-0\n";
        assert_eq!(rome.stdout, expected);
    });
}

#[test]
fn a_name_can_be_generated() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-names", 2).await;
        let mut names = Vec::new();
        for _ in 0..2 {
            let leased = hosts
                .pool("lease", &["--generate-name", "ci-", "-o", "json"])
                .await;
            let name = document(&leased)["clusterDeployment"]["name"].clone();
            names.push(name.as_str().unwrap().to_owned());
        }
        assert!(names.iter().all(|name| name.starts_with("ci-")), "{names:?}");
        assert_ne!(names[0], names[1]);
    });
}

#[test]
fn a_customization_is_released_by_its_name() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-by-name", 1).await;
        assert_eq!(hosts.lease("paris", &[]).await.code, 0);
        let by_name = async |name: &str, holder: &str| {
            let release = ["kcp", "pool", "release", "-n", "pool-by-name", name];
            let holder = ["--cluster-deployment", holder, "-o", "json"];
            hosts.kubectl.run(release.iter().chain(&holder)).await.unwrap()
        };
        for (name, holder, code, reason) in [
            ("cdc/host-9", "paris", 1, json!("no-such-entry")),
            ("cdc/host-0", "rome", 1, json!("not-holder")),
            ("cdc/host-0", "paris", 0, Value::Null),
            ("cdc/host-0", "paris", 0, Value::Null),
        ] {
            let ended = by_name(name, holder).await;
            assert_eq!(
                (ended.code, &document(&ended)["reason"]),
                (code, &reason),
                "{ended}"
            );
        }
        assert_eq!(hosts.holder().await, None);
    });
}

#[test]
fn the_install_config_is_patched_and_a_broken_patch_is_recorded() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-patches", 1).await;
        let file = hosts.kubectl.scratch_file("install-config.yaml");
        fs::write(&file, "metadata:\n  name: generated\npullSecret: sesame\n").unwrap();
        let install_config = format!("--install-config={}", file.display());
        let leased = hosts
            .lease("paris", &[&install_config, "-o", "install-config"])
            .await;
        assert_eq!(
            leased.stdout, "metadata:\n  name: host-0\npullSecret: sesame\n",
            "{leased}"
        );
        let usage = hosts.lease("paris", &["-o", "install-config"]).await;
        assert_eq!(usage.code, 2, "{usage}");
        hosts.release("paris", &[]).await;

        fs::write(&file, "pullSecret: sesame\n").unwrap();
        let refused = hosts.lease("paris", &[&install_config, "-o", "json"]).await;
        assert_eq!(refused.code, 1, "{refused}");
        let answer = document(&refused);
        assert_eq!(answer["reason"], "exhausted");
        assert_eq!(answer["entries"][0]["state"], "broken");
        assert!(!refused.to_string().contains("sesame"), "{refused}");
        let entry = hosts
            .own("clusterdeploymentcustomization", "host-0")
            .await
            .unwrap();
        let conditions = entry["status"]["conditions"].as_array().unwrap();
        let said = conditions
            .iter()
            .find(|condition| condition["type"] == "ApplySucceeded");
        assert_eq!(said.unwrap()["reason"], "BrokenBySyntax");
        assert_eq!(hosts.holder().await, None);
    });
}

#[test]
fn a_path_longer_than_a_message_does_not_block_other_entries() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-long-path", 2).await;
        let path = format!("/{}", "a".repeat(33_000));
        let long = json!({"spec": {"installConfigPatches": [{"op": "remove", "path": path}]}}).to_string();
        let long = [
            "patch",
            "clusterdeploymentcustomization",
            "host-1",
            "-n",
            "pool-long-path",
            "--type=merge",
            "-p",
            &long,
        ];
        hosts.kubectl.succeed(long).await.unwrap();
        let file = hosts.kubectl.scratch_file("install-config-for-long-path.yaml");
        fs::write(&file, "metadata:\n  name: generated\n").unwrap();
        let json = [&*format!("--install-config={}", file.display()), "-o", "json"];
        let leased = hosts.lease("paris", &json).await;
        assert_eq!(leased.code, 0, "{leased}");
        assert_eq!(document(&leased)["customization"]["name"], "host-0");
        let refused = hosts.lease("rome", &json).await;
        assert_eq!(refused.code, 1, "{refused}");
        let message = document(&refused)["message"].as_str().unwrap().to_owned();
        let why = format!(
            "spec.installConfigPatches[0] (remove \"/{}...\"): its path does not exist",
            "a".repeat(119)
        );
        assert!(
            message.ends_with(&format!("1 broken: host-1 ({why})")),
            "{refused}"
        );
        let broken = hosts
            .own("clusterdeploymentcustomization", "host-1")
            .await
            .unwrap();
        assert_eq!(broken["status"]["conditions"][0]["message"], why);
    });
}

#[test]
fn a_command_runs_under_a_lease() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-exec", 1).await;
        let script = "echo $KCP_POOL $KCP_CUSTOMIZATION $KCP_CLUSTER_DEPLOYMENT; exit 7";
        let run = ["--cluster-deployment", "paris", "--", "sh", "-c", script];
        let ended = hosts.pool("exec", &run).await;
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (7, "hosts host-0 paris\n"),
            "{ended}"
        );
        assert_eq!(hosts.holder().await, None);
        assert_eq!(hosts.recorded().await, None);
        for (command, code) in [("/no/such/program", 127), ("/etc/hostname", 126)] {
            let ended = hosts.pool("exec", &["--", command]).await;
            assert_eq!(ended.code, code, "{ended}");
        }
        assert_eq!(hosts.holder().await, None);

        assert_eq!(hosts.lease("rome", &[]).await.code, 0);
        for arguments in [
            &["--", "true"][..],
            &["--cluster-deployment", "rome", "--", "true"],
        ] {
            let ended = hosts.pool("exec", arguments).await;
            assert_eq!(ended.code, 125, "{ended}");
        }
        assert_eq!(hosts.holder().await.as_deref(), Some("rome"));
    });
}

#[test]
fn a_lost_lease_ends_the_command() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-lost", 1).await;
        let script = "trap 'echo ended; exit 3' TERM; while :; do sleep 0.1; done";
        let run = [
            "--cluster-deployment",
            "paris",
            "--ttl",
            "15s",
            "--",
            "sh",
            "-c",
            script,
        ];
        let (ended, ()) = tokio::join!(hosts.pool("exec", &run), async {
            hosts.until_held_by(Some("paris")).await;
            let stolen = json!({"status": {"clusterDeploymentRef": {"name": "thief"}}}).to_string();
            let patch = [
                "patch",
                "clusterdeploymentcustomization",
                "host-0",
                "-n",
                "pool-lost",
            ];
            let patch =
                patch
                    .iter()
                    .copied()
                    .chain(["--subresource", "status", "--type=merge", "-p", &stolen]);
            hosts.kubectl.succeed(patch).await.unwrap();
        });
        assert_eq!((ended.code, ended.stdout.as_str()), (125, "ended\n"), "{ended}");
        assert!(ended.stderr.contains("lost the lease on host-0"), "{ended}");
        assert_eq!(hosts.holder().await.as_deref(), Some("thief"));
    });
}

#[test]
fn the_sample_script_leases_and_releases() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-script", 1).await;
        let script = products::workspace().join("manifests/samples/lease.sh");
        let script = script.display().to_string();
        let run = async |shell: &str, flags: &[&str], pool: &str| -> Result<CommandOutput> {
            let work = ["pool-script", "sh", "-c", "echo \"$KCP_CUSTOMIZATION\"; exit 5"];
            let arguments = flags.iter().copied().chain([script.as_str(), pool]).chain(work);
            hosts
                .kubectl
                .script(shell, arguments)
                .await
                .context("running the sample")
        };
        for (shell, flags) in [("sh", &[][..]), ("bash", &["-euo", "pipefail"])] {
            let ended = run(shell, flags, "hosts").await.unwrap();
            assert_eq!((ended.code, ended.stdout.as_str()), (5, "host-0\n"), "{ended}");
            assert_eq!(hosts.holder().await, None);
            let missing = run(shell, flags, "nowhere").await.unwrap();
            assert_eq!((missing.code, missing.stdout.as_str()), (2, ""), "{missing}");
        }
        assert_eq!(hosts.lease("paris", &[]).await.code, 0);
        let exhausted = run("sh", &[], "hosts").await.unwrap();
        assert_eq!(exhausted.code, 1, "{exhausted}");
        assert_eq!(hosts.holder().await.as_deref(), Some("paris"));
    });
}

#[test]
fn a_cluster_is_created_and_deleted_with_its_lease() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-create", 2).await;
        let file = hosts.kubectl.scratch_file("install-config-to-create.yaml");
        fs::write(&file, "metadata:\n  name: generated\n").unwrap();
        let install_config = format!("--install-config={}", file.display());
        let create = ["--create", install_config.as_str()];
        let limit = json!({"spec": {"maxSize": 1}}).to_string();
        let limit = [
            "patch",
            "clusterpool",
            "hosts",
            "-n",
            "pool-create",
            "--type=merge",
            "-p",
            &limit,
        ];
        hosts.kubectl.succeed(limit).await.unwrap();

        // The second call continues with the existing cluster.
        for already in [false, true] {
            let made = hosts
                .lease("pool-create-paris", &[&create[..], &["-o", "json"]].concat())
                .await;
            assert_eq!(made.code, 0, "{made}");
            let answer = document(&made);
            assert_eq!(
                (&answer["hasCluster"], &answer["alreadyHeld"]),
                (&json!(true), &json!(already))
            );
        }
        let of_cluster = async |kind: &str, name: &str| {
            let get = ["get", kind, name, "-n", "pool-create-paris", "-o", "json"];
            let got = hosts.kubectl.succeed(get).await.unwrap();
            serde_json::from_str::<Value>(&got.stdout).unwrap()
        };
        let cluster = of_cluster("clusterdeployment", "pool-create-paris").await;
        let made_with = &cluster["spec"]["clusterPoolRef"]["clusterDeploymentCustomization"]["name"];
        let host = made_with.as_str().unwrap().to_owned();
        assert_eq!(cluster["spec"]["clusterName"], json!(host));
        assert_eq!(
            cluster["metadata"]["finalizers"],
            json!(["kubectl-kcp.dev/pool-lease"])
        );
        of_cluster("clusterdeploymentcustomization", &host).await;
        let secret = of_cluster("secret", "pool-create-paris-install-config").await;
        // base64 of `metadata:\n  name: host-`
        assert!(
            secret["data"]["install-config.yaml"]
                .as_str()
                .unwrap()
                .starts_with("bWV0YWRhdGE6CiAgbmFtZTogaG9zdC")
        );
        let record = hosts.own("lease", &format!("kcp-pool-{host}")).await.unwrap();
        assert_eq!(
            record["metadata"]["annotations"]["kubectl-kcp.dev/cluster-deployment-uid"],
            cluster["metadata"]["uid"]
        );
        assert_eq!(record["spec"].get("leaseDurationSeconds"), None);

        let full = hosts
            .lease("pool-create-rome", &[&create[..], &["-o", "json"]].concat())
            .await;
        assert_eq!(
            (full.code, &document(&full)["reason"]),
            (1, &json!("blocked")),
            "{full}"
        );
        assert!(
            full.stderr.contains("maxSize is 1, and it has 1 cluster"),
            "{full}"
        );

        let living = hosts.release("pool-create-paris", &["-o", "json"]).await;
        assert_eq!(
            (living.code, &document(&living)["reason"]),
            (1, &json!("blocked")),
            "{living}"
        );
        let delete = [
            "delete",
            "clusterdeployment",
            "pool-create-paris",
            "-n",
            "pool-create-paris",
            "--wait=false",
        ];
        hosts.kubectl.succeed(delete).await.unwrap();
        let released = hosts.release("pool-create-paris", &["-o", "name"]).await;
        assert_eq!(released.code, 0, "{released}");
        assert!(released.stdout.ends_with(&format!("/{host}\n")), "{released}");
        let gone = [
            "get",
            "clusterdeployment",
            "pool-create-paris",
            "-n",
            "pool-create-paris",
        ];
        assert_eq!(hosts.kubectl.run(gone).await.unwrap().code, 1);
    });
}

/// The test writes what Hive would write to a claim.
#[test]
fn a_claim_waits_for_its_cluster_and_is_deleted() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-claim", 1).await;
        let refused = hosts.lease("paris", &["--claim", "-o", "json"]).await;
        assert_eq!(
            (refused.code, &document(&refused)["reason"]),
            (1, &json!("blocked")),
            "{refused}"
        );
        let hives = json!({"metadata": {"finalizers": ["hive.openshift.io/clusters"]}}).to_string();
        let hives = [
            "patch",
            "clusterpool",
            "hosts",
            "-n",
            "pool-claim",
            "--type=merge",
            "-p",
            &hives,
        ];
        hosts.kubectl.succeed(hives).await.unwrap();

        let late = hosts
            .lease("paris", &["--claim", "--wait=1s", "-o", "json"])
            .await;
        assert_eq!(
            (late.code, &document(&late)["reason"]),
            (1, &json!("timeout")),
            "{late}"
        );
        assert_eq!(hosts.own("clusterclaim", "paris").await, None);
        let kept = hosts.lease("paris", &["--claim", "--wait=1s", "--keep"]).await;
        assert_eq!(kept.code, 1, "{kept}");
        assert!(hosts.own("clusterclaim", "paris").await.is_some());

        let cluster = json!({
            "apiVersion": "hive.openshift.io/v1",
            "kind": "ClusterDeployment",
            "metadata": {"name": "pool-claim-x", "namespace": "pool-claim-x"},
            "spec": {
                "baseDomain": "example.com", "clusterName": "pool-claim-x", "platform": {"none": {}},
                "clusterPoolRef": {
                    "namespace": "pool-claim", "poolName": "hosts",
                    "clusterDeploymentCustomization": {"name": "host-0"},
                },
            },
        });
        management.create_namespace("pool-claim-x").await.unwrap();
        let file = hosts.kubectl.scratch_file("claimed-cluster.json");
        fs::write(&file, cluster.to_string()).unwrap();
        hosts
            .kubectl
            .succeed(["create", "-f", &file.display().to_string()])
            .await
            .unwrap();
        let answer = json!({"spec": {"namespace": "pool-claim-x"}});
        hosts.patch("clusterclaim/paris", "pool-claim", &answer).await;
        let others = hosts
            .lease("paris", &["--claim", "--wait=1s", "-o", "json"])
            .await;
        let why = "ClusterClaim paris names ClusterDeployment pool-claim-x, which does not name the claim; the claim \
                   existed before and is kept";
        assert_eq!(others.code, 1, "{others}");
        let message = document(&others)["message"].to_string();
        assert!(message.contains(why), "{message}");

        let claimed_by = json!({"spec": {"clusterPoolRef": {"claimName": "paris"}}});
        let (claimed, ()) = tokio::join!(
            hosts.lease("paris", &["--claim", "--wait=2m", "-o", "json"]),
            hosts.patch("clusterdeployment/pool-claim-x", "pool-claim-x", &claimed_by)
        );
        assert_eq!(claimed.code, 0, "{claimed}");
        let claimed = document(&claimed);
        assert_eq!(claimed["claim"]["name"], "paris");
        assert_eq!(claimed["clusterDeployment"]["name"], "pool-claim-x");
        assert_eq!(claimed["customization"]["name"], "host-0");

        let environment = hosts.lease("paris", &["--claim", "-o", "env"]).await;
        assert_eq!(
            environment.stdout,
            "KCP_NAMESPACE=pool-claim\nKCP_POOL=hosts\nKCP_CLUSTER_DEPLOYMENT=pool-claim-x\n\
             KCP_CUSTOMIZATION=host-0\nKCP_CLUSTER_CLAIM=paris\n",
            "{environment}"
        );

        let released = hosts.release("pool-claim-x", &[]).await;
        assert_eq!(
            released.stdout, "clusterclaim.hive.openshift.io/paris deleted\n",
            "{released}"
        );
        assert_eq!(hosts.own("clusterclaim", "paris").await, None);
    });
}
