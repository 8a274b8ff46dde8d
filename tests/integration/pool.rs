//! Leases on the real API server, as scripts use them.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::products;
use kcp_tests::wait::until;
use serde_json::{Value, json};

use crate::hosts::Hosts;
use crate::shared::with_management_cluster;

impl Hosts {
    /// Runs `kubectl kcp pool VERB hosts …`.
    pub(crate) async fn pool(&self, verb: &str, arguments: &[&str]) -> CommandOutput {
        self.run(&[&[verb, "hosts"], arguments].concat()).await
    }

    pub(crate) async fn lease(&self, name: &str, arguments: &[&str]) -> CommandOutput {
        let named = [&["--cluster-deployment", name], arguments].concat();
        self.pool("lease", &named).await
    }

    pub(crate) async fn release(&self, name: &str, arguments: &[&str]) -> CommandOutput {
        let named = [&["--cluster-deployment", name], arguments].concat();
        self.pool("release", &named).await
    }

    pub(crate) async fn own(&self, kind: &str, name: &str) -> Option<Value> {
        self.object(kind, name, self.namespace).await
    }

    /// The holder in the only customization's status.
    async fn holder(&self) -> Option<String> {
        self.holder_of("host-0").await
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

pub(crate) fn document(ended: &CommandOutput) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended}"))
}

/// The time of a record, in seconds from now.
fn seconds_left(time: &str) -> i64 {
    let time: Timestamp = time.parse().unwrap();
    time.duration_since(Timestamp::now()).as_secs()
}

#[test]
fn a_lease_is_one_record_with_an_end() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-record", 1).await;
        let leased = hosts.lease("paris", &["-o", "json"]).await;
        assert_eq!(leased.code, 0, "{leased}");
        let answer = document(&leased);
        let id = answer["leaseId"].as_str().unwrap();
        let end = answer["ends"].as_str().unwrap();
        let told = format!("\nlease {id} of host-0 ends at {end}\n");
        assert!(leased.stderr.ends_with(&told), "{leased}");
        let day = 24 * 3600;
        assert!((day - 60..=day + 60).contains(&seconds_left(end)), "{end}");
        let record = hosts.record_of("host-0").await.unwrap();
        let field = |name: &str| record[name].as_str();
        assert_eq!(
            [field("state"), field("holder"), field("id"), field("deadline")],
            ["held", "paris", id, end]
        );
        assert_eq!(
            [field("renewals"), field("cluster"), field("user")],
            ["0", "paris/paris", "admin"]
        );
        assert_eq!(
            hosts.own("lease", "kcp-pool-host-0").await,
            None,
            "no second object"
        );

        // The same name gets the same lease with the same end.
        let again = document(&hosts.lease("paris", &["-o", "json"]).await);
        let fields = (&again["alreadyHeld"], &again["leaseId"], &again["ends"]);
        assert_eq!(fields, (&json!(true), &answer["leaseId"], &answer["ends"]));
        let refused = hosts.lease("paris", &["--new", "-o", "json"]).await;
        assert_eq!(
            (refused.code, &document(&refused)["reason"]),
            (1, &json!("held")),
            "{refused}"
        );
        let never = document(&hosts.lease("paris", &["--ttl", "0", "-o", "json"]).await);
        assert_eq!((never.get("ends"), &never["leaseId"]), (None, &answer["leaseId"]));
        let usage = hosts.lease("paris", &["--ttl", "24"]).await;
        assert_eq!(usage.code, 2, "{usage}");
        assert!(
            usage
                .stderr
                .contains("the unit is missing: write 24s, 24m or 24h"),
            "{usage}"
        );

        let released = hosts.release("paris", &[]).await;
        assert_eq!(released.code, 0, "{released}");
        assert_eq!(hosts.record_of("host-0").await, None);
        assert_eq!(hosts.release("paris", &[]).await.code, 0);
    });
}

#[test]
fn a_late_trap_of_an_old_run_cannot_release_the_lease_of_a_new_one() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-ids", 1).await;
        let first = document(&hosts.lease("paris", &["-o", "json"]).await);
        let old = first["leaseId"].as_str().unwrap();
        hosts.release("paris", &["--id", old]).await;
        let second = document(&hosts.lease("paris", &["-o", "json"]).await);
        assert_ne!(second["leaseId"], first["leaseId"]);
        let late = hosts.release("paris", &["--id", old, "-o", "json"]).await;
        assert_eq!(
            (late.code, &document(&late)["reason"]),
            (1, &json!("not-holder")),
            "{late}"
        );
        let lost = hosts
            .pool("renew", &["--cluster-deployment", "paris", "--id", old])
            .await;
        let why = format!("not-holder: paris holds no entry of pool hosts with lease {old}\n");
        assert_eq!((lost.code, lost.stderr), (1, why));
        let hint = hosts
            .run(&["release", "host-0", "--cluster-deployment", "paris"])
            .await;
        assert_eq!(
            (hint.code, hint.stderr.as_str()),
            (
                2,
                "host-0 is a customization, not a pool; to release it, write cdc/host-0\n"
            )
        );

        let new = second["leaseId"].as_str().unwrap();
        let renew = [
            "--cluster-deployment",
            "paris",
            "--id",
            new,
            "--ttl",
            "48h",
            "-o",
            "json",
        ];
        let renewed = hosts.pool("renew", &renew).await;
        assert_eq!(renewed.code, 0, "{renewed}");
        let end = document(&renewed)["leases"][0]["ends"].clone();
        let record = hosts.record_of("host-0").await.unwrap();
        assert_eq!((json!(record["deadline"]), record["id"].as_str()), (end, new));
        assert!(seconds_left(&record["deadline"]) > 47 * 3600, "{record:?}");
        assert_eq!(hosts.release("paris", &["--id", new]).await.code, 0);
        assert_eq!(hosts.holder().await, None);
    });
}

/// A leased host is deleted to install it again, and a repair comes in between.
#[test]
fn a_cluster_that_is_deleted_and_applied_again_finds_its_host_reserved() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-reinstall", 1).await;
        hosts.leases("pool-reinstall-paris").await;
        hosts.cluster("pool-reinstall-paris", "host-0", &[]).await;
        assert_eq!(hosts.pool("repair", &["--yes"]).await.code, 0);
        assert_eq!(hosts.record_of("host-0").await.unwrap()["state"], "in-use");
        // Held for longer than the ttl.
        hosts
            .rewrite_record("host-0", &[("deadline", "2026-01-01T00:00:00Z")])
            .await;
        let name = "pool-reinstall-paris";
        let delete = ["delete", "clusterdeployment", name, "-n", name];
        hosts.kubectl.succeed(delete).await.unwrap();
        let mended = hosts.pool("repair", &["--yes", "-o", "json"]).await;
        assert_eq!(
            (mended.code, &document(&mended)["findings"][0]["cause"]),
            (0, &json!("cluster-gone")),
            "{mended}"
        );
        for _ in 0..2 {
            let refused = hosts.lease("rome", &["-o", "json"]).await;
            assert_eq!(
                (refused.code, &document(&refused)["reason"]),
                (1, &json!("exhausted")),
                "{refused}"
            );
            assert_eq!(hosts.pool("repair", &["--yes"]).await.code, 0);
        }
        let record = hosts.record_of("host-0").await.unwrap();
        assert_eq!(record["state"], "gone");
        assert!(
            (500..=660).contains(&seconds_left(&record["deadline"])),
            "{record:?}"
        );
        hosts.cluster(name, "host-0", &[]).await;
        assert_eq!(hosts.pool("repair", &["--yes"]).await.code, 0);
        assert_eq!(hosts.record_of("host-0").await.unwrap()["state"], "in-use");
        assert_eq!(hosts.holder().await.as_deref(), Some(name));
    });
}

#[test]
fn an_ended_lease_is_taken_over_at_the_second_look() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-ended", 1).await;
        hosts.leases("paris").await;
        let ended = [("deadline", "2026-01-01T00:00:00Z")];
        hosts.rewrite_record("host-0", &ended).await;
        let shown = hosts.pool("status", &["-o", "json"]).await;
        assert_eq!(document(&shown)["entries"][0]["state"], "expired", "{shown}");
        let first = hosts.lease("rome", &[]).await;
        assert_eq!(first.code, 1, "{first}");
        assert_eq!(hosts.record_of("host-0").await.unwrap()["state"], "gone");
        hosts.rewrite_record("host-0", &ended).await;
        assert_eq!(hosts.lease("rome", &[]).await.code, 0);
        assert_eq!(hosts.holder().await.as_deref(), Some("rome"));
        // One without a cluster ends at once.
        hosts.release("rome", &[]).await;
        assert_eq!(hosts.lease("oslo", &["--no-cluster"]).await.code, 0);
        hosts.rewrite_record("host-0", &ended).await;
        assert_eq!(hosts.lease("rome", &[]).await.code, 0);
        assert_eq!(hosts.holder().await.as_deref(), Some("rome"));
    });
}

#[test]
fn a_cordoned_entry_keeps_its_holder_and_gets_no_other() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-cordon", 1).await;
        hosts.leases("paris").await;
        let cordoned = hosts
            .run(&["cordon", "host-0", "--reason", "fan is broken"])
            .await;
        assert_eq!(cordoned.code, 0, "{cordoned}");
        assert!(
            cordoned
                .stderr
                .contains("paris holds host-0; the cordon does not end this lease"),
            "{cordoned}"
        );
        assert_eq!(hosts.lease("paris", &[]).await.code, 0);
        hosts.release("paris", &[]).await;
        let refused = hosts.lease("rome", &[]).await;
        assert_eq!(refused.code, 1, "{refused}");
        assert!(
            refused.stderr.contains("1 cordoned: host-0 (fan is broken)"),
            "{refused}"
        );
        assert_eq!(hosts.run(&["uncordon", "host-0"]).await.code, 0);
        let other = hosts.lease("rome", &["--customization", "host-9"]).await;
        assert_eq!(other.code, 1, "{other}");
        assert_eq!(hosts.lease("rome", &["--customization", "host-0"]).await.code, 0);
        let missing = hosts.run(&["cordon", "host-9", "--reason", "x"]).await;
        assert_eq!(missing.code, 1, "{missing}");
    });
}

#[test]
fn a_holder_of_another_customization_does_not_get_the_requested_one() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-held-instead", 2).await;
        let by_name = |name| ["--customization", name, "-o", "json"];
        assert_eq!(hosts.lease("rome", &by_name("host-0")).await.code, 0);
        let refused = hosts.lease("rome", &by_name("host-1")).await;
        assert_eq!(refused.code, 1, "{refused}");
        assert_eq!(document(&refused)["reason"], "held");
        let held =
            "held: rome already holds host-0, so it cannot lease host-1; release the lease on host-0 first";
        assert!(refused.stderr.contains(held), "{refused}");
        assert_eq!(hosts.lease("rome", &by_name("host-0")).await.code, 0);
    });
}

#[test]
fn a_waiting_lessee_gets_a_released_entry() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-wait", 1).await;
        assert_eq!(hosts.lease("paris", &[]).await.code, 0);
        let late = hosts.lease("rome", &["--wait=10s", "-o", "json"]).await;
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
        let id = &hosts.record_of("host-0").await.unwrap()["id"];
        assert_eq!(rome.stdout, format!("{expected}KCP_LEASE_ID={id}\n"));
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
        let condition = conditions
            .iter()
            .find(|condition| condition["type"] == "ApplySucceeded");
        assert_eq!(condition.unwrap()["reason"], "BrokenBySyntax");
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
            "spec.installConfigPatches[0] (remove \"/{}...\"): the field that `path` names does not exist",
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
        for (command, code) in [("/no/such/program", 127), ("/etc/hostname", 126)] {
            let ended = hosts.pool("exec", &["--", command]).await;
            assert_eq!(ended.code, code, "{ended}");
        }
        assert_eq!(hosts.holder().await, None);

        assert_eq!(hosts.lease("rome", &[]).await.code, 0);
        for (arguments, code) in [
            (&["--", "true"][..], 75),
            (&["--wait=1s", "--", "true"], 75),
            (&["--cluster-deployment", "rome", "--", "true"], 125),
        ] {
            let ended = hosts.pool("exec", arguments).await;
            assert_eq!(ended.code, code, "{ended}");
        }
        assert_eq!(hosts.holder().await.as_deref(), Some("rome"));
    });
}

#[test]
fn a_lost_lease_ends_the_command() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-lost", 1).await;
        let script = "trap 'echo ended; exit 3' TERM; while :; do sleep 0.1; done";
        let run = ["--cluster-deployment", "paris", "--", "sh", "-c", script];
        // The lease lasts for 15 minutes, and its loss is noticed within ten seconds.
        let (ended, stolen) = tokio::join!(hosts.pool("exec", &run), async {
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
            Instant::now()
        });
        assert!(
            stolen.elapsed() < Duration::from_secs(20),
            "{:?}",
            stolen.elapsed()
        );
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
        let secret = of_cluster("secret", &format!("pool-create-paris-{host}-install-config")).await;
        // base64 of `metadata:\n  name: host-`
        assert!(
            secret["data"]["install-config.yaml"]
                .as_str()
                .unwrap()
                .starts_with("bWV0YWRhdGE6CiAgbmFtZTogaG9zdC")
        );
        let record = hosts.record_of(&host).await.unwrap();
        assert_eq!(
            (record["state"].as_str(), json!(record["uid"])),
            ("in-use", cluster["metadata"]["uid"].clone())
        );
        assert_eq!(
            json!(record["id"]),
            cluster["metadata"]["annotations"]["kubectl-kcp.dev/lease-id"]
        );

        let full = hosts
            .lease("pool-create-rome", &[&create[..], &["-o", "json"]].concat())
            .await;
        assert_eq!(
            (full.code, &document(&full)["reason"]),
            (1, &json!("blocked")),
            "{full}"
        );
        assert!(
            full.stderr.contains("maxSize is 1, and the pool has 1 cluster"),
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

/// The finalizer of an uninstalled Hive does not make it run.
#[test]
fn leases_work_after_hive_was_uninstalled() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-uninstalled", 1).await;
        let hives = json!({"metadata": {"finalizers": ["hive.openshift.io/clusters"]}});
        hosts.patch("clusterpool/hosts", hosts.namespace, &hives).await;
        let refused = hosts.lease("paris", &["--claim", "-o", "json"]).await;
        let why = "Hive does not appear to manage pool hosts (the cluster has neither a HiveConfig nor Deployment \
            hive/hive-controllers), so a claim would stay pending; if Hive does manage it, use --hive=yes";
        assert_eq!(
            (refused.code, &document(&refused)["message"]),
            (1, &json!(why)),
            "{refused}"
        );
        assert_eq!(hosts.lease("rome", &[]).await.code, 0);
        hosts.release("rome", &[]).await;
        let refused = hosts.lease("rome", &["--hive=yes", "-o", "json"]).await;
        assert_eq!(
            (refused.code, &document(&refused)["reason"]),
            (1, &json!("blocked")),
            "{refused}"
        );
    });
}
