//! One pool, its entries, and a log of the messages to its lessees.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, ensure};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};

use super::claim::{EventKind, LesseeEvent};
use super::command::CommandOutput;
use super::fault::FaultPlan;
use super::invariant::{Leftover, Violation, leftovers, not_cleaned, violations};
use super::server::PoolServer;
use super::verb::{Effect, FIND, INSTALL_CONFIG, REPAIR, Values, Verb};
use super::version::Versions;
use crate::wait;

/// The name of every pool, each in its own namespace.
pub const POOL: &str = "hosts";

/// The API path of the kinds that leases use.
pub(super) const HIVE: &str = "/apis/hive.openshift.io/v1";

/// The difference between a lease's end and the ttl after its start: the API server's `Date` has whole seconds, and the end is
/// rounded up.
const IMPRECISION: SignedDuration = SignedDuration::from_secs(3);

/// A pool in a namespace of its own.
pub struct Pool<'s> {
    server: &'s PoolServer,
    namespace: String,
    inventory: Vec<String>,
    events: Mutex<Vec<LesseeEvent>>,
    /// The ids of the janitors whose commands cleaned an entry; `None` if the pool does not ask for cleaning.
    cleaned: Mutex<Option<BTreeSet<String>>>,
    was_restored: AtomicBool,
}

/// A command of a lessee.
#[derive(Clone, Copy, Debug)]
pub struct Call<'c> {
    pub verb: Verb,
    pub lessee: &'c str,
    /// For how long it leases.
    pub ttl: &'c str,
    /// The lease that it renews or releases.
    pub id: &'c str,
    /// By how much its wall clock is ahead.
    pub ahead: SignedDuration,
}

impl<'c> Call<'c> {
    /// A command with the right clock. It leases for longer than any run takes.
    pub fn new(verb: Verb, lessee: &'c str) -> Self {
        Self {
            verb,
            lessee,
            ttl: "24h",
            id: "",
            ahead: SignedDuration::ZERO,
        }
    }
}

/// The result of checking a pool's history.
#[derive(Debug)]
pub struct HistoryCheck {
    pub violations: Vec<Violation>,
    pub leftovers: Vec<Leftover>,
    /// The checked history.
    pub versions: Versions,
}

impl<'s> Pool<'s> {
    /// Creates a pool with this number of free entries. Nothing else may use the namespace.
    pub async fn create(server: &'s PoolServer, namespace: &str, entries: usize) -> Result<Self> {
        let _serving = server.serving().await;
        let client = server.client();
        let name = json!({"metadata": {"name": namespace}});
        create(client, "/api/v1/namespaces".to_owned(), &name).await?;
        let inventory: Vec<_> = (1..=entries).map(|number| format!("host-{number}")).collect();
        for name in &inventory {
            create(client, customizations(namespace), &customization(name)).await?;
        }
        let install_config = json!({
            "metadata": {"name": INSTALL_CONFIG},
            "stringData": {"install-config.yaml": "metadata: {name: replaced}\n"},
        });
        let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
        create(client, secrets, &install_config).await?;
        let names: Vec<_> = inventory.iter().map(|name| json!({"name": name})).collect();
        let pool = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterPool", "metadata": {"name": POOL},
            "spec": {
                "baseDomain": "example.com", "imageSetRef": {"name": "release"}, "platform": {"none": {}},
                "size": 0, "inventory": names,
            },
        });
        create(
            client,
            format!("{HIVE}/namespaces/{namespace}/clusterpools"),
            &pool,
        )
        .await?;
        Ok(Self {
            server,
            namespace: namespace.to_owned(),
            inventory,
            events: Mutex::default(),
            cleaned: Mutex::default(),
            was_restored: AtomicBool::new(false),
        })
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Makes the pool ask that its entries are cleaned between two holders.
    pub async fn ask_for_cleaning(&self) -> Result<()> {
        let _serving = self.server.serving().await;
        let annotations = json!({"kubectl-kcp.dev/clean-before-reuse": "true"});
        let patch = serde_json::to_vec(&json!({"metadata": {"annotations": annotations}}))?;
        let url = format!("{HIVE}/namespaces/{}/clusterpools/{POOL}", self.namespace);
        let request = Request::patch(url).header("content-type", "application/merge-patch+json");
        self.server
            .client()
            .request::<Value>(request.body(patch)?)
            .await?;
        *locked(&self.cleaned) = Some(BTreeSet::new());
        Ok(())
    }

    pub fn server(&self) -> &'s PoolServer {
        self.server
    }

    /// Whether an entry was restored without its status. A repair may have run while the entry did not exist.
    pub fn was_restored(&self) -> bool {
        self.was_restored.load(Ordering::Relaxed)
    }

    pub(super) fn set_restored(&self) {
        self.was_restored.store(true, Ordering::Relaxed);
    }

    /// Runs a command for a lessee, and logs its messages to the lessee.
    pub async fn run(&self, verb: &Verb, lessee: &str, plan: Option<FaultPlan>) -> Result<CommandOutput> {
        self.call(Call::new(*verb, lessee), plan).await
    }

    /// [`Self::run`] with all options of a command.
    pub async fn call(&self, call: Call<'_>, plan: Option<FaultPlan>) -> Result<CommandOutput> {
        let Call {
            verb,
            lessee,
            ttl,
            id,
            ahead,
        } = call;
        let values = Values {
            pool: POOL,
            lessee,
            ttl,
            id,
        };
        let arguments = verb.command(&self.namespace, &values);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        if verb.effect == Effect::Releases {
            self.log_event(lessee, EventKind::Releases).await?;
        }
        let started = Timestamp::now();
        let ended = self.server.plugin().run(&arguments, plan, ahead).await?;
        if verb.effect == Effect::Cleans {
            // Also if `pool exec` was killed after its command had ended.
            let ids = ended.stdout.lines().filter_map(|line| line.split_once(' '));
            locked(&self.cleaned)
                .get_or_insert_default()
                .extend(ids.map(|(_, id)| id.to_owned()));
        }
        if ended.code == Some(0) {
            match verb.effect {
                Effect::Leases => {
                    let leases = ended.leases()?;
                    for (_, ends) in leases.iter().filter(|_| verb.line.contains("{ttl}")) {
                        // The lease began while the command ran, by the clock of the server and of this process. A command learns the
                        // server's time only to within the time of a request, which can take seconds on a busy machine.
                        let ttl: SignedDuration = ttl.parse()?;
                        let began = ends.checked_sub(ttl)?;
                        let now = Timestamp::now();
                        let latest = now.checked_add(now.duration_since(started))?;
                        ensure!(
                            began >= started.checked_sub(IMPRECISION)?
                                && began <= latest.checked_add(IMPRECISION)?,
                            "at {started} a lease for {ttl} ends at {ends}: {ended}"
                        );
                    }
                    let holder = ended.text("/clusterDeployment/name")?;
                    let event = match <[_; 1]>::try_from(leases) {
                        Ok([(entry, ends)]) => EventKind::Leased { entry, ends },
                        Err(entries) => EventKind::LeasedSet { entries },
                    };
                    self.log_event(&holder, event).await?;
                }
                Effect::Renews => {
                    let ends = ended.time("/leases/0/ends")?;
                    self.log_event(lessee, EventKind::Renewed { ends }).await?;
                }
                Effect::Releases | Effect::Keeps | Effect::Repairs | Effect::Cleans => {}
            }
        }
        Ok(ended)
    }

    /// [`Self::run`] without a fault. The command must succeed.
    pub async fn succeed(&self, verb: &Verb, lessee: &str) -> Result<CommandOutput> {
        let ended = self.run(verb, lessee, None).await?;
        ensure!(ended.code == Some(0), "{ended}");
        Ok(ended)
    }

    /// Repairs the leases of dead lessees, and checks that no problem remains.
    pub async fn repair(&self) -> Result<()> {
        self.succeed(&REPAIR, "nobody").await?;
        self.succeed(&FIND, "nobody").await?;
        Ok(())
    }

    /// Logs a message to a lessee, or an event of its cluster.
    pub async fn log_event(&self, lessee: &str, what: EventKind) -> Result<()> {
        let events = LesseeEvent {
            revision: self.server.history().revision().await?,
            at: Timestamp::now(),
            lessee: lessee.to_owned(),
            what,
        };
        locked(&self.events).push(events);
        Ok(())
    }

    /// Checks the history if only these lessees still live.
    pub async fn check_history(self, living: &BTreeSet<String>) -> Result<HistoryCheck> {
        let versions = self.server.history().take(&self.namespace).await?;
        ensure!(
            !versions.entries.is_empty(),
            "etcd has no history of {}",
            self.namespace
        );
        let events = self.events.into_inner().unwrap_or_else(PoisonError::into_inner);
        let cleaned = self.cleaned.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut violations = violations(&versions, &events);
        if let Some(cleaned) = cleaned {
            violations.extend(not_cleaned(&versions.entries, &events, &cleaned));
        }
        Ok(HistoryCheck {
            violations,
            leftovers: leftovers(&versions, &self.inventory, living),
            versions,
        })
    }
}

impl HistoryCheck {
    /// Fails with all violations and leftovers, if there are any.
    pub fn ensure_clean(&self) -> Result<()> {
        let Self {
            violations,
            leftovers,
            versions,
        } = self;
        ensure!(
            violations.is_empty() && leftovers.is_empty(),
            "violations: {violations:#?}\nleft over: {leftovers:#?}\nversions of the entries: {:#?}",
            versions.entries
        );
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A customization without a status.
pub(super) fn customization(name: &str) -> Value {
    let patch = json!({"op": "replace", "path": "/metadata/name", "value": name});
    json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeploymentCustomization",
        "metadata": {"name": name}, "spec": {"installConfigPatches": [patch]},
    })
}

/// The API path of the customizations of a namespace.
pub(super) fn customizations(namespace: &str) -> String {
    format!("{HIVE}/namespaces/{namespace}/clusterdeploymentcustomizations")
}

pub(super) async fn create(client: &Client, collection: String, object: &Value) -> Result<()> {
    let body = serde_json::to_vec(object)?;
    let created = while_initializing(async || {
        let request = Request::post(&collection).header("content-type", "application/json");
        let request = request.body(body.clone()).map_err(kube::Error::HttpError)?;
        client.request::<Value>(request).await
    });
    let created = created.await;
    created.with_context(|| format!("creating an object in {collection}"))?;
    Ok(())
}

/// Repeats a request that the API server refuses with 429 after a restart, while it fills its caches.
pub(super) async fn while_initializing(
    request: impl AsyncFn() -> kube::Result<Value>,
) -> kube::Result<Value> {
    let attempt = || async {
        match request().await {
            Err(kube::Error::Api(status)) if status.code == 429 => anyhow::bail!(status.message.clone()),
            result => Ok(result),
        }
    };
    match wait::until("the API server fills its caches", attempt).await {
        Ok(result) => result,
        Err(error) => Err(kube::Error::Service(error.into())),
    }
}
