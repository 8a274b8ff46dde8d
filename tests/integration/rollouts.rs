//! `kubectl kcp rollout` and `upgrade` under Cluster API's real controllers: what they write, what happens then, and
//! what they refuse. The user has the shipped roles only.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use kcp_control_plane::release_changes::requested_apis;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::{CommandOutput, RunningCommand};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::refusing_webhook::RefusingWebhook;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::roles;
use crate::schema;
use crate::shared::with_controllers;

pub(crate) const OLD: &str = "v1.33.6";
const NEW: &str = "v1.34.2";
/// A worker of this version may not use an API server of [`NEW`].
const TOO_OLD: &str = "v1.30.14";

/// How the estimate of the time for a new Machine begins.
const ESTIMATE: &str = "each new Machine takes about ";

/// The user who runs the plugin.
pub(crate) const OPERATOR: &str = "alice";

/// A cluster, and the plugin for it.
pub(crate) struct Subject<'m> {
    management: &'m ManagementCluster,
    namespace: &'static str,
    pub(crate) cluster: Cluster,
}

impl<'m> Subject<'m> {
    pub(crate) async fn create(management: &'m ManagementCluster, namespace: &'static str) -> Result<Self> {
        let cluster = Cluster::create(management.client(), namespace, "edge", 1, OLD).await?;
        Self::of(management, namespace, cluster).await
    }

    async fn create_with_measurable_joins(
        management: &'m ManagementCluster,
        namespace: &'static str,
    ) -> Result<Self> {
        let client = management.client();
        let cluster = Cluster::create_with_measurable_joins(client, namespace, "edge", 1, OLD).await?;
        Self::of(management, namespace, cluster).await
    }

    pub(crate) async fn of(
        management: &'m ManagementCluster,
        namespace: &'static str,
        cluster: Cluster,
    ) -> Result<Self> {
        cluster.settled(1).await?;
        roles::bind_operator(management.kubectl(), OPERATOR, namespace).await?;
        Ok(Self {
            management,
            namespace,
            cluster,
        })
    }

    pub(crate) async fn kcp(&self, command: &str) -> Result<CommandOutput> {
        self.management.kubectl().run(self.words(command)).await
    }

    /// Starts the plugin.
    pub(crate) fn spawn(&self, command: &str) -> Result<RunningCommand> {
        self.management.kubectl().spawn(self.words(command))
    }

    fn words<'c>(&self, command: &'c str) -> impl Iterator<Item = &'c str> + use<'c> {
        let words = std::iter::once("kcp").chain(command.split_whitespace());
        words.chain(["-n", self.namespace, "--as", OPERATOR])
    }

    /// Runs the plugin, which must end with this exit code and print this on stdout.
    pub(crate) async fn says(&self, command: &str, code: i32, stdout: &str) -> Result<CommandOutput> {
        let ended = self.kcp(command).await?;
        ensure!(
            ended.code == code && ended.stdout.contains(stdout),
            "exit code {code} and {stdout:?} expected: {ended}"
        );
        Ok(ended)
    }

    async fn document(&self, command: &str) -> Result<Value> {
        let ended = self.kcp(command).await?;
        serde_json::from_str(&ended.stdout).with_context(|| format!("{ended}"))
    }

    async fn spec(&self) -> Result<Value> {
        let control_plane = self.cluster.get().await?;
        control_plane.get("spec").cloned().context("no spec")
    }

    /// The spec without the time of a rollout, and that time.
    async fn spec_and_time(&self) -> Result<(Value, Option<String>)> {
        let mut spec = self.spec().await?;
        let rollout = spec.pointer_mut("/rollout").and_then(Value::as_object_mut);
        let after = rollout.and_then(|rollout| rollout.remove("after"));
        Ok((spec, after.and_then(|after| after.as_str().map(str::to_owned))))
    }

    pub(crate) async fn worker_version(&self, version: &str) -> Result<()> {
        let patch = json!({"spec": {"template": {"spec": {"version": version}}}}).to_string();
        let patch = [
            "patch",
            "machinedeployment",
            "edge",
            "-n",
            self.namespace,
            "--type=merge",
            "-p",
            &patch,
        ];
        self.management.kubectl().succeed(patch).await.map(drop)
    }

    pub(crate) async fn events(&self, reason: &str) -> Result<Vec<String>> {
        let field = format!("reason={reason}");
        let list = [
            "get",
            "events.v1.events.k8s.io",
            "-o",
            "json",
            "--field-selector",
            &field,
            "-n",
            self.namespace,
        ];
        let ended = self.management.kubectl().succeed(list).await?;
        let events: Value = serde_json::from_str(&ended.stdout)?;
        let items = events
            .pointer("/items")
            .and_then(Value::as_array)
            .context("not a list")?;
        let notes = items.iter().filter_map(|event| event.get("note")?.as_str());
        Ok(notes.map(str::to_owned).collect())
    }
}

#[test]
fn a_rollout_is_planned_and_cancelled_paused_and_restarted() {
    with_controllers("rollouts", async |management| {
        let subject = Subject::create_with_measurable_joins(management, "rollouts").await?;
        is_planned_and_cancelled(&subject).await?;
        is_paused_and_resumed(&subject).await?;
        restarts_as_clusterctl_does(&subject).await?;
        subject.cluster.delete().await
    });
}

async fn is_planned_and_cancelled(subject: &Subject<'_>) -> Result<()> {
    let before = subject.spec().await?;
    subject
        .says("rollout cancel edge", 0, "unchanged: no rollout is planned")
        .await?;
    subject
        .says(
            "rollout start edge --at 2020-01-01T00:00:00Z",
            1,
            "2020-01-01T00:00:00Z is in the past",
        )
        .await?;
    subject
        .says(
            "rollout start edge --in 8h --dry-run=server",
            0,
            "rollout planned (server dry run)",
        )
        .await?;
    ensure!(subject.spec().await? == before, "a dry run has changed the spec");

    subject
        .says("rollout start edge --in 8h --yes", 0, "rollout planned")
        .await?;
    let (rest, after) = subject.spec_and_time().await?;
    let after = after.context("no time is written")?;
    let away = after
        .parse::<jiff::Timestamp>()?
        .duration_since(jiff::Timestamp::now());
    ensure!(
        away.as_secs() > 7 * 3600 && away.as_secs() <= 8 * 3600,
        "it begins at {after}"
    );
    let notes = subject.events("RolloutPlanned").await?;
    ensure!(
        matches!(notes.as_slice(), [note] if *note == format!("rollout planned by {OPERATOR} for {after}")),
        "{notes:?}"
    );
    // The controller has observed the time, which is not due yet.
    subject.cluster.settled(1).await?;
    let status = subject.document("rollout status edge -o json").await?;
    ensure!(
        status.get("progress") == Some(&json!("Complete")) && status.get("planned") == Some(&json!(after)),
        "{status:#}"
    );
    let again = subject
        .says(
            "rollout start edge",
            1,
            "rollout not started: refused by kubectl kcp",
        )
        .await?;
    ensure!(
        again
            .stderr
            .contains("hint: cancel the planned rollout: kubectl kcp rollout cancel edge -n rollouts"),
        "{again}"
    );

    subject
        .says("rollout cancel edge", 0, &format!("rollout at {after} cancelled"))
        .await?;
    ensure!(
        subject.spec().await? == before && rest == subject.spec_and_time().await?.0,
        "{before:#} became {:#}",
        subject.spec().await?
    );
    Ok(())
}

async fn is_paused_and_resumed(subject: &Subject<'_>) -> Result<()> {
    subject.says("rollout resume edge", 0, "unchanged").await?;
    subject.says("rollout pause edge", 0, "edge paused").await?;
    subject
        .says("rollout pause edge", 0, "unchanged: already paused")
        .await?;
    let control_plane = subject.cluster.get().await?;
    let annotation = control_plane.pointer("/metadata/annotations/cluster.x-k8s.io~1paused");
    ensure!(annotation == Some(&json!("true")), "{annotation:?}");
    subject.cluster.has_condition("Paused", "True").await?;
    // Nothing is left to do, so the pause stops nothing, and the command does not wait.
    let complete = subject.says("rollout status edge", 0, "rollout complete").await?;
    ensure!(complete.stdout.lines().count() == 1, "{complete}");
    subject
        .says("rollout start edge", 1, "the control plane is paused")
        .await?;
    let resumed = subject.document("rollout resume edge -o json").await?;
    ensure!(
        resumed.get("kind") == Some(&json!("KubeadmControlPlane"))
            && resumed
                .pointer("/metadata/annotations/cluster.x-k8s.io~1paused")
                .is_none(),
        "{resumed:#}"
    );
    wait::until("the controller continues", || async {
        subject
            .says("rollout status edge", 0, "rollout complete")
            .await
            .map(drop)
    })
    .await
}

async fn restarts_as_clusterctl_does(subject: &Subject<'_>) -> Result<()> {
    let clusterctl = subject.management.kubectl();
    let theirs = [
        "alpha",
        "rollout",
        "restart",
        "kubeadmcontrolplane/edge",
        "-n",
        subject.namespace,
    ];
    let first = subject.cluster.machines().await?;
    clusterctl.clusterctl(theirs).await?;
    let (after_theirs, time_of_theirs) = subject.spec_and_time().await?;
    // Without a flag, it waits, and says how long a new Machine takes.
    let waited = subject
        .says("rollout status edge --timeout 10m", 0, "rollout complete")
        .await?;
    ensure!(
        waited.stdout.contains("1/1 Machines, ") && waited.stdout.contains(ESTIMATE),
        "{waited}"
    );
    let second = subject.cluster.machines().await?;
    let done = subject
        .says("rollout cancel edge", 0, "unchanged: no rollout is planned")
        .await?;
    ensure!(
        done.stdout
            .contains("is complete, and its time stays in the spec"),
        "{done}"
    );

    let planned = subject
        .says("plan edge --restart", 0, "1 to create, 1 to delete")
        .await?;
    ensure!(planned.stdout.contains(ESTIMATE), "{planned}");
    let started = subject
        .says("rollout restart edge --yes", 0, "rollout started")
        .await?;
    ensure!(started.stdout.contains(ESTIMATE), "{started}");
    let shown_once = subject
        .document("rollout status edge --watch=false -o json")
        .await?;
    ensure!(
        shown_once.get("progress") == Some(&json!("InProgress")),
        "{shown_once:#}"
    );
    let (after_ours, time_of_ours) = subject.spec_and_time().await?;
    ensure!(
        after_ours == after_theirs,
        "{after_theirs:#} became {after_ours:#}"
    );
    let (theirs, ours) = (
        time_of_theirs.context("no time")?,
        time_of_ours.context("no time")?,
    );
    ensure!(theirs.len() == ours.len() && theirs < ours, "{theirs} and {ours}");
    let running = subject
        .says("rollout cancel edge", 1, "has already created Machine")
        .await?;
    ensure!(
        running.stdout.contains(second.first().context("no Machine")?),
        "{running}"
    );
    let ended = subject
        .document("rollout status edge --timeout 10m -o json")
        .await?;
    ensure!(ended.get("progress") == Some(&json!("Complete")), "{ended:#}");

    let third = subject.cluster.machines().await?;
    ensure!(
        first != second && second != third && third.len() == 1,
        "{first:?}, {second:?}, {third:?}"
    );
    let history = subject.document("rollout history edge -o json").await?;
    ensure!(
        history
            .pointer("/generations/0/machines/0/name")
            .and_then(Value::as_str)
            == third.first().map(String::as_str)
            && history.pointer("/generations/0/current") == Some(&json!(true))
            && history.pointer("/generations/1").is_none()
            && history.pointer("/rolloutAfter") == Some(&json!(ours)),
        "{history:#}"
    );
    names_deleted_machines(subject, &history, [&first, &second]).await?;
    has_a_timeline(subject, [&first, &second, &third]).await
}

/// The timeline has the creation of the Machine that exists, the Events about the deleted ones, and the rollout that alice started, in
/// the order of time.
async fn has_a_timeline(subject: &Subject<'_>, machines: [&Vec<String>; 3]) -> Result<()> {
    let timeline = subject.document("timeline edge -o json").await?;
    schema::holds("controlplanetimeline.json", &timeline)?;
    let entries = timeline
        .pointer("/entries")
        .and_then(Value::as_array)
        .context("no entries")?;
    let text = |entry: &Value, field: &str| {
        let text = entry.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let times: Vec<jiff::Timestamp> = entries
        .iter()
        .filter_map(|entry| text(entry, "at").parse().ok())
        .collect();
    ensure!(times.len() == entries.len() && times.is_sorted(), "{timeline:#}");
    let has = |object: &str, what: &str, who: &str| {
        entries.iter().any(|entry| {
            text(entry, "object") == object
                && text(entry, "what").starts_with(what)
                && text(entry, "who") == who
        })
    };
    let [first, second, third] = machines.map(|names| names.concat());
    let control_plane = "KubeadmControlPlane/edge";
    let deleted = |name: &str| format!("Machine/{name} (deleted)");
    for (object, what, who) in [
        (control_plane, "created", ""),
        (
            control_plane,
            "last write of a manager that owns spec.rollout",
            "kubectl-kcp",
        ),
        (control_plane, "rollout of all Machines, as requested", ""),
        (
            control_plane,
            "RolloutStarted: rollout started by alice",
            "kubectl-kcp.dev/kubectl-kcp",
        ),
        (&format!("Machine/{third}"), "created", ""),
        (&deleted(&first), "SuccessfulSetNodeRef", "machine-controller"),
        (&deleted(&second), "SuccessfulSetNodeRef", "machine-controller"),
    ] {
        ensure!(
            has(object, what, who),
            "no {what:?} of {object} by {who:?}: {timeline:#}"
        );
    }
    let recent = subject
        .says("timeline edge --since 1s", 0, "What this list cannot know:")
        .await?;
    ensure!(
        recent.stdout.contains(" Events of namespace ") && !recent.stdout.contains("RolloutStarted"),
        "{recent}"
    );
    Ok(())
}

/// The Events about deleted Machines name them and say when they joined.
async fn names_deleted_machines(
    subject: &Subject<'_>,
    history: &Value,
    [first, second]: [&Vec<String>; 2],
) -> Result<()> {
    let deleted = history
        .pointer("/deletedMachines")
        .and_then(Value::as_array)
        .context("no deleted Machines")?;
    let names: Vec<&str> = deleted
        .iter()
        .filter_map(|machine| machine.get("name")?.as_str())
        .collect();
    ensure!(
        first.iter().chain(second).eq(&names)
            && deleted.iter().all(|machine| machine.get("joined").is_some()),
        "{first:?} and {second:?} are deleted: {history:#}"
    );
    let text = subject
        .says(
            "rollout history edge",
            0,
            "RolloutStarted: rollout started by alice",
        )
        .await?;
    ensure!(
        text.stdout
            .contains(&format!("Machine/{} (deleted)", second.join(","))),
        "{text}"
    );
    Ok(())
}

/// A webhook of another project denies Machines.
#[test]
fn a_refused_machine_ends_rollout_status_with_its_cause() {
    with_controllers("refused-rollout", async |management| {
        let subject = Subject::create(management, "refused-rollout").await?;
        let reason = "no new Machine before Monday";
        let webhook = RefusingWebhook::of_machines(management.api(), "refused-rollout", reason).await?;
        subject
            .says("rollout start edge --yes", 0, "rollout started")
            .await?;
        let began = Instant::now();
        let cause = format!(
            "webhook refused-rollout.refusing.test does not let the controller create a Machine: {reason}"
        );
        let stuck = subject
            .says("rollout status edge --timeout 60s", 1, &cause)
            .await?;
        took("refused Machine", began);
        ensure!(
            stuck.stdout.contains(" rollout stuck: ")
                && !stuck.stdout.contains("has not processed generation"),
            "{stuck}"
        );
        let once = subject
            .document("rollout status edge --watch=false -o json")
            .await?;
        ensure!(
            once.pointer("/obstacles/0/reason") == Some(&json!("writeRefused")),
            "{once:#}"
        );
        webhook.remove().await?;
        subject
            .cluster
            .patch(&json!({"metadata": {"annotations": {"reconciled": "now"}}}))
            .await?;
        subject.cluster.settled(1).await?;
        subject.says("rollout status edge", 0, "rollout complete").await?;
        subject.cluster.delete().await
    });
}

#[expect(clippy::print_stderr, reason = "how long it takes is for people")]
fn took(what: &str, began: Instant) {
    eprintln!("{what}: {:.1} s", began.elapsed().as_secs_f64());
}

#[test]
fn an_upgrade_is_checked_confirmed_and_awaited() {
    with_controllers("upgrades", async |management| {
        let subject = Subject::create_with_measurable_joins(management, "upgrades").await?;
        let before = subject.spec().await?;
        subject.cluster.add_worker(OLD).await?;
        // Cluster API creates no Machine of this version, but the spec is enough.
        subject.worker_version(TOO_OLD).await?;
        let refused = subject
            .says(
                &format!("upgrade edge --to {NEW} --yes --force"),
                1,
                "not upgraded",
            )
            .await?;
        let worker = "MachineDeployment/edge: kubelet v1.30.14 would be 4 minor versions behind";
        ensure!(refused.stdout.contains(worker), "{refused}");
        subject.worker_version(OLD).await?;

        subject
            .says("upgrade edge --to 1.35.1 --yes", 1, "(version-skips-minor)")
            .await?;
        let undecided = subject
            .says(&format!("upgrade edge --to {NEW}"), 2, "STEP")
            .await?;
        ensure!(undecided.stdout.contains(ESTIMATE), "{undecided}");
        ensure!(
            undecided.stderr.contains("hint: confirm with --yes"),
            "{undecided}"
        );
        let dry_run = format!("upgrade edge --to {NEW} --dry-run=server");
        let dry_run = subject.says(&dry_run, 0, "(server dry run)").await?;
        ensure!(
            !dry_run.stdout.contains("could not read") && !dry_run.stderr.contains("could not read"),
            "{dry_run}"
        );
        ensure!(subject.spec().await? == before, "the spec has changed");

        let upgraded = subject
            .says(
                &format!("upgrade edge --to {NEW} --yes --wait=10m"),
                0,
                "upgraded from v1.33.6 to v1.34.2",
            )
            .await?;
        ensure!(
            upgraded
                .stdout
                .ends_with("edge is at v1.34.2, with all Machines ready and up to date\n"),
            "{upgraded}"
        );
        subject.cluster.settled(1).await?;
        let version = subject.cluster.get().await?;
        let version = version.pointer("/status/version");
        ensure!(version == Some(&json!(NEW)), "{version:?}");
        let notes = subject.events("Upgraded").await?;
        ensure!(
            matches!(notes.as_slice(), [note] if note == "upgraded by alice from v1.33.6 to v1.34.2"),
            "{notes:?}"
        );
        subject
            .says(
                &format!("upgrade edge --to {NEW}"),
                0,
                "unchanged: the version is already v1.34.2",
            )
            .await?;
        subject.cluster.delete().await
    });
}

/// An API server of Kubernetes 1.31 serves flow schemas of the version that 1.32 removes; later ones do not.
#[test]
fn an_upgrade_names_the_removed_apis_that_clients_use() {
    const NAMESPACE: &str = "removed-apis";
    with_controllers(NAMESPACE, async |management| {
        let cluster = Cluster::create(management.client(), NAMESPACE, "edge", 1, "v1.31.14").await?;
        let subject = Subject::of(management, NAMESPACE, cluster).await?;
        let workload = management.machines().cluster(NAMESPACE, "edge").await?;
        let upgrade = "upgrade edge --to v1.32.9 --dry-run=server";
        let unused = "no client has requested these APIs since the API servers started";
        let removed = "v1.32 no longer serves flowcontrol.apiserver.k8s.io/v1beta3; ";
        subject.says(upgrade, 0, &format!("{removed}{unused}")).await?;

        let get = async |path: &str| {
            let request = Request::get(path).body(Vec::new())?;
            anyhow::Ok(workload.client()?.request_text(request).await?)
        };
        get("/api/v1/componentstatuses").await?;
        let is_served = get("/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas")
            .await
            .is_ok();
        let metrics = get("/metrics").await?;
        let requested: Vec<_> = requested_apis(&metrics).collect();
        let of_core = requested.iter().filter(|api| api.api_version == "v1");
        let of_core: Vec<_> = of_core
            .map(|api| (api.resource.as_str(), api.removed_in))
            .collect();
        ensure!(of_core.contains(&("componentstatuses", None)), "{requested:?}");
        let expected = if is_served {
            "; clients still use flowschemas"
        } else {
            unused
        };
        subject.says(upgrade, 0, expected).await?;
        subject.cluster.delete().await
    });
}
