//! Sends reviews at a steady rate through a balancer to two servers, while one server restarts and the certificates of
//! both are replaced, the CA last, and reports the result of each review. In [`run`], the test replaces the CA; in
//! [`run_managed`], `kcp-webhook manage` does.
//!
//! The report contains the speed, but no test depends on it, because it depends on the machine.

pub(crate) mod balancer;
mod client;
mod connection;
mod replica;
mod report;
mod reviews;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use self::balancer::Balancer;
use self::client::Client;
use self::connection::Dialer;
use self::replica::Replica;
pub use self::report::Report;
use crate::api_server::{ApiServer, Etcd};
use crate::assets::Assets;
use crate::kubectl::Kubectl;
use crate::managed::Managed;
use crate::pki::Authority;
use crate::run::Run;
use crate::wait;

/// The host name of the certificates, as the API server derives it from the Service.
const HOST: &str = "kcp-webhook.kcp-webhook-system.svc";

/// After the first and the third fifth of the load, both certificates are replaced. After the second, one server
/// restarts while both certificates are replaced. After the fourth, the CA is replaced.
const FIFTHS: u64 = 5;

/// The interval at which the client reads the caBundle, as the API server watches it.
const WATCH: Duration = Duration::from_millis(200);

/// The load and the configuration of the servers.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Reviews per second.
    pub rate: u32,
    /// The load lasts this long, and until the restart is over.
    pub duration: Duration,
    /// Additional arguments of the servers.
    pub arguments: Vec<String>,
}

/// Starts the servers, sends the load and returns the report. Fails if anything but a review fails.
pub async fn run(run: &Arc<Run>, plan: &Plan) -> Result<Report> {
    let authority = Authority::new("load")?;
    let mut replicas = [
        Replica::start(run, 1, &authority, &plan.arguments).await?,
        Replica::start(run, 2, &authority, &plan.arguments).await?,
    ];
    let balancer = Balancer::start(replicas.iter().map(Replica::backend).collect()).await?;
    let dialer = Dialer::new(balancer.address(), HOST, authority.certificate())?;
    let reviews = reviews::all(&dialer).await.context("asking each review once")?;
    let client = Client::new(dialer, reviews);

    let sending = client.clone().send(plan.rate, plan.duration);
    let (steps, outcomes) = tokio::join!(
        async {
            let steps = disturb(&client, &mut replicas, &authority, plan).await;
            client.may_end();
            steps
        },
        sending
    );
    steps?;
    let mut lives = Vec::new();
    for replica in &mut replicas {
        lives.push(replica.end().await?);
    }
    Ok(Report::new(plan, outcomes?, lives))
}

async fn disturb(
    client: &Client,
    replicas: &mut [Replica; 2],
    authority: &Authority,
    plan: &Plan,
) -> Result<()> {
    let fifth = u64::from(plan.rate) * plan.duration.as_secs() / FIFTHS;
    let [steady, restarted] = replicas;
    client.until_sent(fifth).await?;
    rotate(steady, restarted, authority).await?;

    client.until_sent(fifth * 2).await?;
    let before = restarted.shown().await?;
    let (restarting, rotating) = tokio::join!(restarted.restart(authority), async {
        steady.rotate(authority).await?;
        steady.until_certificate_shown().await
    });
    restarting?;
    rotating?;
    restarted.until_certificate_shown().await?;
    ensure!(
        restarted.shown().await? != before,
        "the restarted server shows the certificate of before"
    );

    client.until_sent(fifth * 3).await?;
    rotate(steady, restarted, authority).await?;

    client.until_sent(fifth * 4).await?;
    replace_authority(client, steady, restarted, authority).await
}

/// Replaces the CA in two steps, as the book says for an own CA: first both are trusted, then the servers get certificates
/// from the new one, and then only that one is trusted.
async fn replace_authority(
    client: &Client,
    steady: &mut Replica,
    restarted: &mut Replica,
    old: &Authority,
) -> Result<()> {
    let new = Authority::new("load, the next CA")?;
    let both = format!("{}{}", old.certificate(), new.certificate());
    for bundle in [both.as_str(), new.certificate()] {
        client.trust(bundle)?;
        for replica in [&mut *steady, &mut *restarted] {
            replica.trust(bundle)?;
        }
        if bundle == both {
            rotate(steady, restarted, &new).await?;
        }
    }
    Ok(())
}

/// Starts the servers with `kcp-webhook manage`, on an API server of their own, and asks the manager for a new CA after the
/// first half of the load. The client trusts what the registered caBundle says.
pub async fn run_managed(run: &Arc<Run>, plan: &Plan) -> Result<Report> {
    let assets = Assets::locate()?;
    let etcd = Etcd::start(run, &assets, "load-etcd")?;
    let api = ApiServer::start(run, &assets, &etcd, "load").await?;
    let kubectl = Kubectl::new(run, &assets, api.kubeconfig())?;
    let mut managed = Managed::install(run, &api, &kubectl, 2)
        .await?
        .without_api_access();
    managed.start_manager()?;
    for number in [1, 2] {
        managed.start_server(number).await?;
    }
    managed.registered().await?;
    let bundle = managed.bundle().await?.concat();
    let dialer = Dialer::new(managed.address(), HOST, &bundle)?;
    let reviews = reviews::all(&dialer).await.context("asking each review once")?;
    let client = Client::new(dialer, reviews);

    let half = u64::from(plan.rate) * plan.duration.as_secs() / 2;
    let sending = client.clone().send(plan.rate, plan.duration);
    let (steps, outcomes) = tokio::join!(
        async {
            let steps = tokio::select! {
                steps = replace_managed_authority(&client, &managed, half) => steps,
                watched = watch_bundle(&client, &managed, bundle) => watched,
            };
            client.may_end();
            steps
        },
        sending
    );
    steps?;
    managed.stop_manager().await?;
    Ok(Report::new(plan, outcomes?, Vec::new()))
}

async fn replace_managed_authority(client: &Client, managed: &Managed, half: u64) -> Result<()> {
    client.until_sent(half).await?;
    let old = managed.bundle().await?;
    managed.request_rotation().await?;
    wait::until("only the new CA is trusted", || async {
        let bundle = managed.bundle().await?;
        ensure!(bundle.len() == 1 && bundle != old, "{} CAs", bundle.len());
        Ok(())
    })
    .await?;
    // The client has seen it, too.
    let sent = client.sent();
    client.until_sent(sent + half / 2).await
}

/// Makes the client trust the registered caBundle, whenever it changes.
async fn watch_bundle(client: &Client, managed: &Managed, mut trusted: String) -> Result<()> {
    let mut ticks = tokio::time::interval(WATCH);
    loop {
        ticks.tick().await;
        // While the two configurations are written one after the other, their bundles differ.
        let Ok(bundle) = managed.bundle().await else {
            continue;
        };
        let bundle = bundle.concat();
        if bundle != trusted {
            client.trust(&bundle)?;
            trusted = bundle;
        }
    }
}

async fn rotate(steady: &mut Replica, restarted: &mut Replica, authority: &Authority) -> Result<()> {
    for replica in [&mut *steady, &mut *restarted] {
        replica.rotate(authority).await?;
    }
    steady.until_certificate_shown().await?;
    restarted.until_certificate_shown().await
}
