//! The mistakes in a topology that Cluster API's own webhook admits, one Cluster each. Our webhook denies them at the Cluster. Where a
//! Cluster is not reviewed, its topology controller fails: `why` names the way out, the way out works, and no denial of ours makes the
//! controller try more often than the denial of any other webhook. Most machines never boot, because few mistakes depend on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::{join_all, try_join_all};
use jiff::{SignedDuration, Timestamp};
use kcp_tests::assets::Assets;
use kcp_tests::cluster::{ClassSettings, Cluster};
use kcp_tests::cluster_api::RATE_LIMIT;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::refusing_webhook::RefusingWebhook;
use kcp_tests::run::Run;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::shared::with_run;
use crate::topology::{leave_out, refusal, topology_reconciled};

const NAMESPACE: &str = "topology-mistakes-made";
const VERSION: &str = "v1.34.2";
const UNCHECKED: &str = "unsafe.topology.cluster.x-k8s.io/disable-update-version-check";
const MISPLACED: &str = "(machine-annotation-misplaced)";

/// How long each step of a Cluster may take, beside fourteen others.
const LIMIT: Duration = Duration::from_secs(600);

/// How often the topology controller may try in a minute once its pauses have grown.
const MOST_TRIES: usize = 5;

/// How often it may try in the first minute. Its pauses are 1 s and 5 ms, then 1 s and 10 ms, and so on (Cluster API 1.14,
/// `util/controller/builder.go`), so it tries about fourteen times, and once more after each change of a Cluster, whatever the
/// reason. If the pauses did not grow, it would try each second.
const MOST_FIRST_TRIES: usize = 25;

/// How the command begins that takes back a version or the time of a rollout.
const PRINTED: &str = "kubectl patch cluster ";

/// The Cluster whose control plane another webhook refuses.
const REFUSED: &str = "refused";

struct Mistake {
    /// The name of the Cluster.
    name: &'static str,
    replicas: u32,
    version: &'static str,
    /// The versions of its class. Empty if the class has no such list.
    versions: &'static [&'static str],
    /// Whether its machine boots: Cluster API's own webhook changes no version before.
    boots: bool,
    /// The API version of its template of the control plane.
    template: &'static str,
    /// The class `NAME-other`.
    other: Option<ClassSettings>,
    /// The merge patch of the Cluster.
    write: Value,
    /// The rule with which our webhook denies it at the Cluster. `None` if it needs no denial there, or cannot know.
    rule: Option<&'static str>,
    /// What `why` says without that denial. Empty if the topology controller carries the value over.
    said: &'static [&'static str],
    /// The replicas of the control plane, if the topology controller carries the value over.
    carried: u32,
    /// The merge patch of the Cluster that takes it back. Null if the plugin prints a command for this.
    way_out: Value,
}

impl Mistake {
    fn new(name: &'static str, write: Value, way_out: Value) -> Self {
        Self {
            name,
            replicas: 1,
            version: VERSION,
            versions: &[],
            boots: false,
            template: "v1beta2",
            other: None,
            write,
            rule: None,
            said: &[],
            carried: 1,
            way_out,
        }
    }

    fn replicas(name: &'static str, before: u32, after: Value) -> Self {
        let replicas =
            |replicas: Value| json!({"spec": {"topology": {"controlPlane": {"replicas": replicas}}}});
        Self {
            replicas: before,
            ..Self::new(name, replicas(after), replicas(json!(before)))
        }
    }

    /// The Cluster's own webhook takes a version back only with an annotation.
    fn version(name: &'static str, before: &'static str, after: &str, is_checked: bool) -> Self {
        let annotation = if is_checked { Value::Null } else { json!("") };
        let write = json!({
            "metadata": {"annotations": {UNCHECKED: annotation}},
            "spec": {"topology": {"version": after}},
        });
        Self {
            version: before,
            boots: is_checked,
            rule: Some("(topology-version-lowered)"),
            said: &["invalid ControlPlane upgrade plan", UNCHECKED],
            ..Self::new(name, write, Value::Null)
        }
    }

    fn annotation(name: &'static str, key: &str) -> Self {
        let annotation = |value: Value| json!({"spec": {"topology": {"controlPlane": {"metadata": {"annotations": {key: value}}}}}});
        Self {
            rule: Some(MISPLACED),
            said: &[MISPLACED, "remove the annotation here"],
            ..Self::new(name, annotation(json!("")), annotation(Value::Null))
        }
    }

    /// The Cluster gets a class with this `clusterConfiguration`.
    fn rebase(name: &'static str, configuration: Value, said: &'static [&'static str]) -> Self {
        let class = |class: String| json!({"spec": {"topology": {"classRef": {"name": class}}}});
        Self {
            other: Some(ClassSettings {
                configuration,
                ..ClassSettings::default()
            }),
            said,
            ..Self::new(name, class(format!("{name}-other")), class(name.to_owned()))
        }
    }
}

fn mistakes() -> Vec<Mistake> {
    let label = |value: Value| json!({"spec": {"topology": {"controlPlane": {"metadata": {"labels": {"a": value}}}}}});
    let rollout = |after: Value| json!({"spec": {"topology": {"controlPlane": {"rollout": after}}}});
    let external = json!({"etcd": {"external": {
        "endpoints": ["https://192.0.2.1:2379"], "caFile": "/a", "certFile": "/b", "keyFile": "/c",
    }}});
    // kubeadm 1.35 does not know this gate.
    let gate = json!({"featureGates": {"WaitForAllControlPlaneComponents": true}});
    vec![
        Mistake {
            rule: Some("(replicas-not-positive)"),
            said: &["(replicas-not-positive)", "set 1 or more"],
            ..Mistake::replicas("zero", 1, json!(0))
        },
        Mistake {
            rule: Some("(replicas-not-positive)"),
            said: &["(replicas-not-positive)"],
            ..Mistake::replicas("negative", 1, json!(-1))
        },
        Mistake {
            rule: Some("(replicas-even)"),
            said: &["(replicas-even)", "set 1 or 3"],
            ..Mistake::replicas("even", 1, json!(2))
        },
        Mistake {
            rule: Some("(replicas-dropped)"),
            write: json!({"spec": {"topology": {"controlPlane": null}}}),
            // Our webhook keeps the number that the control plane has.
            carried: 3,
            ..Mistake::replicas("dropped", 3, Value::Null)
        },
        Mistake::replicas("fewer", 3, json!(1)),
        Mistake::version("pre-release", VERSION, "v1.34.2-rc.1", true),
        Mistake::version("build", "v1.34.2+b.2", "v1.34.2+b.1", true),
        Mistake::version("older", VERSION, "v1.33.6", false),
        Mistake {
            versions: &["v1.33.6", VERSION],
            ..Mistake::version("listed", VERSION, "v1.33.6", false)
        },
        Mistake::annotation("paused", "cluster.x-k8s.io/paused"),
        Mistake::annotation("remediated", "cluster.x-k8s.io/remediate-machine"),
        Mistake::rebase(
            "immutable",
            json!({"certificatesDir": "/etc/other"}),
            &["(cluster-configuration-immutable)"],
        ),
        Mistake::rebase(
            "external",
            external,
            &["(etcd-topology-switched)", "keep stacked etcd"],
        ),
        Mistake {
            version: "v1.35.1",
            ..Mistake::rebase("gate", gate, &["(kubeadm-feature-gate-unknown)"])
        },
        Mistake {
            template: "v1beta1",
            rule: Some("(topology-rollout-unsupported)"),
            said: &["spec.rollout"],
            ..Mistake::new(
                "old-version",
                rollout(json!({"after": "2126-01-01T00:00:00Z"})),
                Value::Null,
            )
        },
        Mistake {
            said: &["change freeze"],
            ..Mistake::new(REFUSED, label(json!("b")), Value::Null)
        },
    ]
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn every_mistake_in_a_topology_is_denied_and_leaves_a_way_out() {
    with_run(async |run| {
        let made = made_in_another_cluster(run).await;
        made.unwrap();
    });
}

/// The controllers have the limit of reconciles that they have in production.
async fn made_in_another_cluster(run: &Arc<Run>) -> Result<()> {
    let management = ManagementCluster::start_beside(run, Assets::locate()?, "mistakes").await?;
    management.create_namespace(NAMESPACE).await?;
    management.start_controllers(&[RATE_LIMIT]).await?;
    let taken_back = are_taken_back(&management).await;
    let stopped = management.stop_controllers(Some("denied the request")).await;
    taken_back.and(stopped)
}

async fn are_taken_back(management: &ManagementCluster) -> Result<()> {
    let mistakes = mistakes();
    let made = try_join_all(mistakes.iter().map(|mistake| Made::create(management, mistake))).await?;
    let why = "change freeze";
    let webhook = RefusingWebhook::of_topology(management.api(), NAMESPACE, REFUSED, why).await?;
    let taken_back = all_taken_back(management, &made).await;
    webhook.remove().await?;
    taken_back?;
    try_join_all(made.into_iter().map(|made| made.cluster.delete())).await?;
    Ok(())
}

async fn all_taken_back(management: &ManagementCluster, made: &[Made<'_>]) -> Result<()> {
    try_join_all(made.iter().map(Made::is_denied)).await?;
    leave_out(management, NAMESPACE).await?;
    let lived = join_all(made.iter().map(Made::live)).await;
    let log = management.run().log("topology-mistakes")?;
    let mut tries = BTreeMap::new();
    let mut errors = Vec::new();
    for (Made { mistake, .. }, lived) in made.iter().zip(lived) {
        match lived {
            Ok(counts) => {
                log.line(format!(
                    "{}: {counts:?} tries in the first two minutes",
                    mistake.name
                ));
                tries.insert(mistake.name, counts);
            }
            Err(error) => errors.push(format!("{}: {error:#}", mistake.name)),
        }
    }
    ensure!(errors.is_empty(), "{}\n{tries:?}", errors.join("\n"));
    for (name, [first, second]) in &tries {
        let is_seldom = *first <= MOST_FIRST_TRIES && *second <= MOST_TRIES;
        ensure!(is_seldom, "{name}: {tries:?}");
    }
    // Otherwise, nothing would be counted.
    let [counted, _] = tries.get(REFUSED).context("no tries of the other webhook")?;
    ensure!(*counted > MOST_TRIES, "{tries:?}");
    Ok(())
}

/// A Cluster in which a mistake is made.
struct Made<'m> {
    management: &'m ManagementCluster,
    mistake: &'m Mistake,
    cluster: Cluster,
}

impl<'m> Made<'m> {
    async fn create(management: &'m ManagementCluster, mistake: &'m Mistake) -> Result<Self> {
        const NEVER: u32 = 1_000_000;
        let Mistake {
            name,
            replicas,
            version,
            versions,
            boots,
            template,
            ..
        } = mistake;
        let machine = if *boots {
            json!({})
        } else {
            json!({"secondsBeforeBoot": NEVER})
        };
        let class = ClassSettings {
            machine,
            control_plane_version: template,
            ..ClassSettings::default()
        };
        let client = management.client();
        let cluster =
            Cluster::create_of_class_with(client, NAMESPACE, name, *replicas, version, &class).await?;
        if let Some(other) = &mistake.other {
            cluster.add_class(&format!("{name}-other"), other).await?;
        }
        if !versions.is_empty() {
            cluster
                .patch_class(&json!({"spec": {"kubernetesVersions": versions}}))
                .await?;
        }
        let made = Self {
            management,
            mistake,
            cluster,
        };
        made.is_reconciled().await?;
        if *boots {
            made.cluster.settled(1).await?;
        }
        Ok(made)
    }

    async fn is_reconciled(&self) -> Result<()> {
        let Mistake { name, .. } = self.mistake;
        wait::until_within(
            &format!("the topology of {name} is reconciled"),
            LIMIT,
            || async {
                let cluster = self.cluster.get_cluster().await?;
                let condition = topology_reconciled(&self.cluster, self.management).await?;
                ensure!(
                    condition.get("status") == Some(&json!("True"))
                        && condition.get("observedGeneration") == cluster.pointer("/metadata/generation"),
                    "{condition}"
                );
                let control_plane = self.cluster.get().await?;
                let version = control_plane.pointer("/spec/version");
                ensure!(
                    version == Some(&json!(self.mistake.version))
                        && version == cluster.pointer("/spec/topology/version"),
                    "{version:?}"
                );
                Ok(())
            },
        )
        .await
    }

    async fn is_denied(&self) -> Result<()> {
        let Mistake { write, rule, .. } = self.mistake;
        if let Some(rule) = rule {
            let error = refusal(self.cluster.patch_cluster(write).await, write)?;
            ensure!(error.contains(rule), "{write}: {error}");
        }
        Ok(())
    }

    /// Makes the mistake, waits, and takes it back. Returns how often the topology controller has tried in each of the two minutes.
    async fn live(&self) -> Result<[usize; 2]> {
        let said = self.write().await?;
        let tries = self.tries().await?;
        // The other webhook refuses what takes its mistake back, too.
        if self.mistake.name != REFUSED {
            self.is_taken_back(said).await?;
        }
        Ok(tries)
    }

    /// Makes the mistake, which no webhook of ours reviews at the Cluster, and asks who acts next. Returns what `why` says.
    async fn write(&self) -> Result<Option<CommandOutput>> {
        let Mistake {
            name,
            write,
            said,
            carried,
            ..
        } = self.mistake;
        wait::until_within(&format!("{name} is admitted"), LIMIT, || async {
            self.cluster.patch_cluster(write).await
        })
        .await?;
        if said.is_empty() {
            self.is_reconciled().await?;
            return self.has_replicas(*carried).await.map(|()| None);
        }
        wait::until_within(&format!("why of {name}"), LIMIT, || async {
            let target = format!("cluster/{name}");
            let ended = self
                .management
                .kubectl()
                .kcp(NAMESPACE, &["why", &target])
                .await?;
            let missing = said.iter().find(|text| !ended.words().contains(**text));
            ensure!(ended.code == 1 && missing.is_none(), "{missing:?}: {ended}");
            Ok(Some(ended))
        })
        .await
    }

    /// How often the topology controller has tried to write the control plane in the first two minutes, each.
    async fn tries(&self) -> Result<[usize; 2]> {
        let control_plane = self.cluster.get().await?;
        let name = control_plane.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.context("the control plane has no name")?;
        let times = || self.management.api().refused_dry_runs(NAMESPACE, name);
        let Some(begin) = times()?.first().copied() else {
            return Ok([0, 0]);
        };
        let minute = |number: i64| begin + SignedDuration::from_mins(number);
        wait::until("two minutes have passed", || async {
            ensure!(Timestamp::now() > minute(2), "not yet");
            Ok(())
        })
        .await?;
        let times = times()?;
        let count = |from: Timestamp, to: Timestamp| {
            let tries = times.iter().filter(|time| (from..to).contains(*time));
            tries.count()
        };
        Ok([count(begin, minute(1)), count(minute(1), minute(2))])
    }

    /// Runs the command that `why` or `rollout cancel` prints. If they print none, patches the Cluster.
    async fn is_taken_back(&self, said: Option<CommandOutput>) -> Result<()> {
        let Mistake {
            way_out, replicas, ..
        } = self.mistake;
        let kubectl = self.management.kubectl();
        let said = if self.mistake.template == "v1beta1" {
            // The control plane never gets the time, so there is nothing to cancel there.
            let target = format!("cluster/{}", self.mistake.name);
            kubectl
                .kcp(NAMESPACE, &["rollout", "cancel", &target])
                .await?
                .stderr
        } else {
            said.map_or_else(String::new, |said| said.stdout)
        };
        let printed = said.find(PRINTED).and_then(|start| said.get(start..));
        let printed = printed.and_then(|from| from.lines().next());
        ensure!(
            printed.is_some() == (way_out.is_null() && !self.mistake.said.is_empty()),
            "{printed:?}: {said}"
        );
        if let Some(command) = printed {
            let ended = kubectl.script("bash", ["-c", command]).await?;
            ensure!(ended.code == 0, "{command}: {ended}");
        } else {
            let back = self.cluster.patch_cluster(way_out).await;
            back.with_context(|| format!("{way_out}"))?;
        }
        self.is_reconciled().await?;
        self.cluster.annotate_cluster(UNCHECKED, &Value::Null).await?;
        self.has_replicas(*replicas).await
    }

    async fn has_replicas(&self, replicas: u32) -> Result<()> {
        let control_plane = self.cluster.get().await?;
        ensure!(
            control_plane.pointer("/spec/replicas") == Some(&json!(replicas)),
            "{control_plane:#}"
        );
        Ok(())
    }
}
