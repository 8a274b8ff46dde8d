//! `kubectl kcp etcd snapshot --output-file s3://...` with a real S3 server, on a real etcd member.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::s3::{Capacity, S3Server, SECRET_KEY};
use kcp_tests::{resources, wait};
use serde_json::Value;

use crate::etcd_snapshot::is_equal_to_the_source;
use crate::schema;
use crate::shared::with_controllers;

const NAMESPACE: &str = "etcd-snapshot-s3";
const NAME: &str = "edge";

/// Large values, so that an upload has several parts and takes long enough to be interrupted.
const VALUES: usize = 64;
const VALUE_BYTES: usize = 1 << 20;

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_snapshot_is_in_the_bucket_whole_or_not_at_all() {
    with_controllers(NAMESPACE, saved);
}

async fn saved(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, "v1.34.2").await?;
    cluster.settled(1).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let etcd = workload.etcd().await?;
    let value = "v".repeat(VALUE_BYTES);
    for number in 0..VALUES {
        etcd.put(&format!("snapshot/{number}"), &value).await?;
    }
    let bench = Bench {
        server: S3Server::start(management.run(), "s3", Capacity::Disk).await?,
        management,
    };
    bench.arrives_and_is_restored(&workload).await?;
    bench.the_cron_job_keeps_the_newest().await?;
    bench.replaces_no_object().await?;
    bench.refusals_say_what_to_do().await?;
    bench.is_absent_after_a_signal("KILL").await?;
    bench.is_absent_after_a_signal("TERM").await?;
    bench
        .is_absent_after_the_death_of_the_member(&workload, &cluster)
        .await?;
    is_absent_if_the_bucket_is_full(management).await?;
    cluster.delete().await
}

struct Bench<'b> {
    server: S3Server,
    management: &'b ManagementCluster,
}

/// The arguments of a command with an environment, for `env`.
fn snapshot(environment: &[String], place: &str, more: &[&str]) -> Vec<String> {
    let command = ["kubectl", "kcp", "etcd", "snapshot", NAME, "-n", NAMESPACE];
    let fixed = ["--timeout=60s", "--output-file", place];
    let words = command.iter().chain(&fixed).chain(more).map(ToString::to_string);
    environment.iter().cloned().chain(words).collect()
}

async fn run(management: &ManagementCluster, arguments: &[String]) -> Result<CommandOutput> {
    let ended = management.kubectl().script("/usr/bin/env", arguments).await?;
    let shown = [&ended.stdout, &ended.stderr];
    ensure!(
        !shown.iter().any(|text| text.contains(SECRET_KEY)),
        "the output contains the secret key"
    );
    Ok(ended)
}

impl Bench<'_> {
    async fn snapshot(&self, place: &str, more: &[&str]) -> Result<CommandOutput> {
        run(
            self.management,
            &snapshot(&self.server.environment(), place, more),
        )
        .await
    }

    /// The snapshot gets a name in the folder, is recorded with its place, and is what etcd's tools accept.
    async fn arrives_and_is_restored(&self, workload: &WorkloadCluster) -> Result<()> {
        let saved = self.snapshot("s3://backups/prod/", &["-o", "json"]).await?;
        ensure!(saved.code == 0, "{saved}");
        let document: Value = serde_json::from_str(&saved.stdout)?;
        schema::holds("etcdsnapshot.json", &document)?;
        let place = document.pointer("/snapshot/place").and_then(Value::as_str);
        let key = place
            .and_then(|place| place.strip_prefix("s3://backups/"))
            .context("no place")?;
        ensure!(
            key.starts_with("prod/etcd-snapshot-s3_edge_2") && key.ends_with("Z.db"),
            "{saved}"
        );
        let object = self.server.object(key)?;
        let bytes = fs::metadata(&object)?.len();
        ensure!(
            document.pointer("/snapshot/bytes").and_then(Value::as_u64) == Some(bytes)
                && bytes > (VALUES * VALUE_BYTES) as u64,
            "{saved}"
        );
        let file = self
            .management
            .run()
            .subfolder("etcd-snapshot-s3")?
            .join("whole.db");
        fs::copy(&object, &file)?;
        is_equal_to_the_source(self.management, workload, &file).await?;
        ensure!(self.server.incomplete_bytes(key)? == 0, "parts are left");

        let control_planes = resources::control_planes(self.management.client(), NAMESPACE);
        let annotations = control_planes.get(NAME).await?.metadata.annotations;
        let annotations = annotations.unwrap_or_default();
        let recorded = annotations.get("kubectl-kcp.dev/etcd-snapshot");
        ensure!(
            Some(&serde_json::from_str::<Value>(recorded.context("no record")?)?) == document.get("snapshot"),
            "{annotations:?}"
        );
        let status = self
            .management
            .kubectl()
            .kcp(NAMESPACE, &["status", NAME])
            .await?;
        ensure!(
            status.words().contains(&format!(", in s3://backups/{key}")),
            "{status}"
        );
        Ok(())
    }

    /// With the permissions of `manifests/snapshots`, one command saves the snapshots of all control planes, and deletes only older
    /// ones of the same control plane.
    async fn the_cron_job_keeps_the_newest(&self) -> Result<()> {
        const ACCOUNT: &str = "--as=system:serviceaccount:kcp-snapshots:kcp-snapshots";
        let kubectl = self.management.kubectl();
        self.install_cron_job().await?;
        let folder = self.server.object("cron")?;
        fs::create_dir(&folder)?;
        let control_planes = resources::control_planes(self.management.client(), NAMESPACE);
        let created = control_planes.get(NAME).await?.metadata.creation_timestamp;
        let created = created.context("no creationTimestamp")?.0;
        let ours = |seconds: i64| {
            let began = created + SignedDuration::from_secs(seconds);
            format!("{NAMESPACE}_{NAME}_{}.db", began.strftime("%Y%m%dT%H%M%SZ"))
        };
        let theirs = [
            format!("{NAMESPACE}_other_20200101T000000Z.db"),
            format!("other_{NAME}_20200101T000000Z.db"),
            format!("{NAMESPACE}_{NAME}_20200101T000000Z.db.age"),
            "edge.db".to_owned(),
        ];
        for name in (1..4).map(ours).chain(theirs.clone()) {
            fs::write(folder.join(name), "old")?;
        }
        let each = |more: &[&'static str]| {
            let command = [
                "kubectl",
                "kcp",
                "etcd",
                "snapshot",
                "-n",
                NAMESPACE,
                "-l",
                "snapshots=yes",
                "--timeout=60s",
                ACCOUNT,
                "--output-file=s3://backups/cron/",
            ];
            let words = command.iter().chain(more).map(ToString::to_string);
            let command: Vec<String> = self.server.environment().into_iter().chain(words).collect();
            command
        };
        let unconfirmed = run(self.management, &each(&["--keep=2"])).await?;
        ensure!(
            unconfirmed.code == 2
                && unconfirmed.stdout.is_empty()
                && unconfirmed.stderr.contains("hint: confirm with --yes")
                && folder.join(ours(1)).exists(),
            "{unconfirmed}"
        );
        let saved = run(self.management, &each(&["--keep=2", "--yes", "-o", "json"])).await?;
        ensure!(saved.code == 0, "{saved}");
        let document: Value = serde_json::from_str(&saved.stdout)?;
        schema::holds("etcdsnapshotlist.json", &document)?;
        let deleted = [1, 2].map(|seconds| format!("s3://backups/cron/{}", ours(seconds)));
        ensure!(
            document.pointer("/items/0/deleted") == Some(&deleted.as_slice().into())
                && document
                    .pointer("/failed")
                    .and_then(Value::as_array)
                    .is_some_and(Vec::is_empty),
            "{saved}"
        );
        self.list_is(&ours(3)).await?;
        for name in &theirs {
            ensure!(folder.join(name).exists(), "{name} was deleted");
        }
        self.the_newest_is_verified().await?;
        let roles =
            "clusterrole/kcp-snapshots clusterrole/kcp-snapshots-secrets clusterrolebinding/kcp-snapshots";
        kubectl
            .succeed(["delete"].into_iter().chain(roles.split(' ')))
            .await?;
        Ok(())
    }

    async fn install_cron_job(&self) -> Result<()> {
        let kubectl = self.management.kubectl();
        kubectl.apply_kustomization("manifests/snapshots").await?;
        let secrets = [
            "create",
            "rolebinding",
            "kcp-snapshots",
            "-n",
            NAMESPACE,
            "--clusterrole=kcp-snapshots-secrets",
            "--serviceaccount=kcp-snapshots:kcp-snapshots",
        ];
        kubectl.succeed(secrets).await?;
        let label = [
            "label",
            "kubeadmcontrolplane",
            NAME,
            "-n",
            NAMESPACE,
            "snapshots=yes",
        ];
        kubectl.succeed(label).await?;
        Ok(())
    }

    /// The folder has two snapshots of the control plane, and four in all, which a list without a cluster shows, too.
    async fn list_is(&self, oldest: &str) -> Result<()> {
        // The one that was saved, and the newest of the old ones.
        let list = self
            .snapshot("s3://backups/cron/", &["--list", "-o", "json"])
            .await?;
        ensure!(list.code == 0, "{list}");
        let document: Value = serde_json::from_str(&list.stdout)?;
        schema::holds("storedetcdsnapshotlist.json", &document)?;
        let items = document.pointer("/items").and_then(Value::as_array);
        let items = items.context("no items")?;
        let place = |item: &Value| item.get("place").and_then(Value::as_str).map(str::to_owned);
        ensure!(
            items.len() == 2 && items.first().and_then(place) == Some(format!("s3://backups/cron/{oldest}")),
            "{list}"
        );
        let all = run(
            self.management,
            &self
                .server
                .environment()
                .into_iter()
                // It needs no cluster.
                .chain(
                    [
                        "KUBECONFIG=/dev/null",
                        "kubectl-kcp",
                        "etcd",
                        "snapshot",
                        "-A",
                        "--list",
                    ]
                    .map(str::to_owned),
                )
                .chain(["--output-file=s3://backups/cron/".to_owned()])
                .collect::<Vec<_>>(),
        )
        .await?;
        ensure!(all.code == 0 && all.stdout.lines().count() == 5, "{all}");
        Ok(())
    }

    /// The newest snapshot is restored on a scratch member, and has the data of the real one. A damaged one is not restored.
    async fn the_newest_is_verified(&self) -> Result<()> {
        let saved = self.snapshot("s3://backups/cron/", &["-o", "json"]).await?;
        ensure!(saved.code == 0, "{saved}");
        let saved: Value = serde_json::from_str(&saved.stdout)?;
        let place = saved.pointer("/snapshot/place").and_then(Value::as_str);
        let place = place.context("no place")?;
        let mut environment = self.server.environment();
        // etcd is beside kubectl, and etcdutl is not.
        let etcdutl = Assets::locate()?.program("etcdutl");
        let folder = etcdutl.parent().and_then(Path::to_str).context("text")?;
        let path = self.management.kubectl().path();
        environment.push(format!("PATH={folder}:{}", path.to_str().context("text")?));
        let verify = snapshot(&environment, "s3://backups/cron/", &["--verify", "-o", "json"]);
        let verified = run(self.management, &verify).await?;
        ensure!(verified.code == 0, "{verified}");
        let document: Value = serde_json::from_str(&verified.stdout)?;
        schema::holds("etcdsnapshotverification.json", &document)?;
        ensure!(
            document.get("place").and_then(Value::as_str) == Some(place)
                && document.pointer("/comparison/result") == Some(&"equal".into())
                && document.get("keys").and_then(Value::as_u64) > Some(VALUES as u64),
            "{verified}"
        );
        let object = self.server.object(place.trim_start_matches("s3://backups/"))?;
        let file = fs::OpenOptions::new().write(true).open(&object)?;
        file.write_all_at(b"damage", fs::metadata(&object)?.len() / 2)?;
        let refused = run(self.management, &verify).await?;
        ensure!(
            refused.code == 2
                && refused
                    .stderr
                    .contains("error: etcdutl cannot restore the snapshot: "),
            "{refused}"
        );
        fs::remove_file(&object)?;
        Ok(())
    }

    /// A name that is taken, before the upload or during it, stays with its object.
    async fn replaces_no_object(&self) -> Result<()> {
        const EXISTS: &str =
            "error: cannot write s3://backups/fixed.db: an object with this name already exists";
        let object = self.server.object("fixed.db")?;
        let theirs = self.management.kubectl().scratch_file("theirs.db");
        fs::write(&theirs, b"theirs")?;
        let (late, written) = tokio::join!(self.snapshot("s3://backups/fixed.db", &[]), async {
            self.has_begun("fixed.db").await?;
            let uploaded = self.server.upload(&theirs, "fixed.db").output().await?;
            ensure!(uploaded.status.success(), "{uploaded:?}");
            Ok(())
        });
        written?;
        for refused in [late?, self.snapshot("s3://backups/fixed.db", &[]).await?] {
            ensure!(refused.code == 2 && refused.stderr.contains(EXISTS), "{refused}");
            ensure!(fs::read(&object)? == b"theirs", "it was replaced");
        }
        fs::remove_file(&object)?;
        ensure!(self.server.incomplete_bytes("fixed.db")? == 0, "parts are left");
        Ok(())
    }

    async fn refusals_say_what_to_do(&self) -> Result<()> {
        const PLACE: &str = "s3://backups/refused.db";
        let unreachable = "AWS_ENDPOINT_URL=https://127.0.0.1:1";
        let http = "AWS_ENDPOINT_URL=http://127.0.0.1:1";
        for (change, place, texts) in [
            (
                &["AWS_SECRET_ACCESS_KEY=wrong"][..],
                PLACE,
                [
                    "403 Forbidden: SignatureDoesNotMatch",
                    "hint: check AWS_ACCESS_KEY_ID, ",
                ],
            ),
            (
                &["AWS_ACCESS_KEY_ID=AKIAWRONG"],
                PLACE,
                // S3 itself responds with InvalidAccessKeyId.
                [
                    "error: cannot upload to ",
                    "No user exists with the provided access key ID",
                ],
            ),
            (
                &["AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="],
                PLACE,
                ["cannot ", "hint: the environment names no credentials: "],
            ),
            (
                &[],
                "s3://absent/refused.db",
                ["404 Not Found: NoSuchBucket", "hint: create the bucket, "],
            ),
            (
                &[unreachable],
                PLACE,
                ["cannot connect: ", "hint: check AWS_ENDPOINT_URL, "],
            ),
            (
                &[http],
                PLACE,
                ["would be sent unencrypted", "AWS_ALLOW_HTTP=true"],
            ),
            (
                &["AWS_CA_BUNDLE="],
                PLACE,
                ["cannot connect: ", "hint: check AWS_ENDPOINT_URL, "],
            ),
        ] {
            let mut environment = self.server.environment();
            environment.extend(change.iter().map(ToString::to_string));
            // No machine that runs tests gives them a role.
            environment.push("AWS_METADATA_ENDPOINT=http://127.0.0.1:1".to_owned());
            let refused = run(self.management, &snapshot(&environment, place, &[])).await?;
            ensure!(refused.code == 2, "{refused}");
            for text in texts {
                ensure!(refused.stderr.contains(text), "{text:?} expected: {refused}");
            }
        }
        ensure!(!self.server.object("refused.db")?.exists(), "it exists");
        Ok(())
    }

    /// Waits until the server has a part of an upload.
    async fn has_begun(&self, key: &str) -> Result<()> {
        wait::until("the upload has begun", || async {
            ensure!(self.server.incomplete_bytes(key)? > 1 << 20, "no part");
            Ok(())
        })
        .await
    }

    async fn is_absent_after_a_signal(&self, signal: &str) -> Result<()> {
        let id = self.management.kubectl().scratch_file("etcd-snapshot-s3.pid");
        let id = id.to_str().context("text")?;
        // The parts of a killed upload stay, and must not look like the start of the next.
        let object = format!("ended-by-{signal}.db");
        let command = snapshot(&[], &format!("s3://backups/{object}"), &[]).join(" ");
        let mut arguments = self.server.environment();
        // kubectl replaces itself by the plugin, so the id stays the same.
        let script = format!("echo $$ > {id}; exec {command}");
        arguments.extend(["sh".to_owned(), "-c".to_owned(), script]);
        let (ended, sent) = tokio::join!(run(self.management, &arguments), async {
            self.has_begun(&object).await?;
            let kill = format!("kill -{signal} $(cat {id})");
            self.management.kubectl().script("sh", ["-c", &kill]).await
        });
        let (ended, sent) = (ended?, sent?);
        ensure!(sent.code == 0 && ended.code != 0, "{sent} {ended}");
        ensure!(!self.server.object(&object)?.exists(), "the object exists");
        if signal == "TERM" {
            ensure!(ended.code == 130, "{ended}");
            ensure!(
                self.server.incomplete_bytes(&object)? == 0,
                "parts are left: {ended}"
            );
        }
        Ok(())
    }

    async fn is_absent_after_the_death_of_the_member(
        &self,
        workload: &WorkloadCluster,
        cluster: &Cluster,
    ) -> Result<()> {
        let member = cluster.machines().await?.pop().context("no Machine")?;
        let (ended, killed) = tokio::join!(self.snapshot("s3://backups/dead.db", &[]), async {
            self.has_begun("dead.db").await?;
            workload.inflict(Fault::Kill, &member).await
        });
        killed?;
        let ended = ended?;
        ensure!(
            ended.code == 2 && ended.stderr.contains(&format!("etcd member {member}: ")),
            "{ended}"
        );
        ensure!(!self.server.object("dead.db")?.exists(), "the object exists");
        ensure!(
            self.server.incomplete_bytes("dead.db")? == 0,
            "parts are left: {ended}"
        );
        workload.inflict(Fault::Restart, &member).await
    }
}

async fn is_absent_if_the_bucket_is_full(management: &ManagementCluster) -> Result<()> {
    let server = S3Server::start(management.run(), "s3-full", Capacity::Mebibytes(24)).await?;
    let full = wait::until("the member sends a snapshot again", || async {
        let arguments = snapshot(&server.environment(), "s3://backups/full.db", &[]);
        let ended = run(management, &arguments).await?;
        ensure!(ended.stderr.contains("s3://backups/full.db"), "{ended}");
        Ok(ended)
    })
    .await?;
    ensure!(
        full.code == 2
            && full
                .stderr
                .contains("error: cannot upload to s3://backups/full.db: the server responded with "),
        "{full}"
    );
    ensure!(!server.object("full.db")?.exists(), "the object exists");
    ensure!(server.incomplete_bytes("full.db")? == 0, "parts are left: {full}");
    Ok(())
}
